/* cmd_diff.c -- dpc diff A B: where do two dumps part?
 *
 * Values are compared in the order in which the model makes them, which the
 * folder of `dpc eval --dump` knows; the other one may be PyTorch's, an .npy
 * file a name.  The first that differs is the one to look at: what comes after
 * was made from it. */
#include "compiler/demo.h"
#include "compiler/options.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { DIFFER = 6, TOLD = 5 };            /* TOLD: names that are listed */

typedef struct Name { const char *name, *loc; } Name;
typedef struct Names { Name *at; uint32_t n, cap; bool ordered; } Names;

typedef struct Diff {                     /* of one value */
    Npy a, b;
    double rel, most, x, y;               /* |a - b| / |a|; the largest
                                             difference, of x and y */
    int64_t at;                           /* element where it is; -1: none */
    int64_t nan_a, nan_b, nan_one;        /* NaNs; where only one has one */
    bool same;
} Diff;

/* ---- folders ---- */

static void name_add(Arena *a, Names *l, const char *name, const char *loc)
{
    GROW(a, l->at, l->n, l->cap);
    l->at[l->n++] = (Name){ intern(a, name), loc ? intern(a, loc) : NULL };
}

static void order_read(const Options *o, FILE *f, Names *l)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, f) >= 0) {
        line[strcspn(line, "\n")] = 0;
        char *tab = strchr(line, '\t');
        if (tab)
            *tab++ = 0;
        name_add(o->arena, l, line, tab);
    }
    free(line);
    fclose(f);
    l->ordered = true;
}

static int is_npy(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".npy") == 0;
}

static Names names_read(const Options *o, const char *dir)
{
    Names l = { 0 };
    struct dirent **e = NULL;
    FILE *f = fopen(fmt(o->arena, "%s/order", dir), "re");
    if (f) {
        order_read(o, f, &l);
        return l;
    }
    int n = scandir(dir, &e, is_npy, alphasort);
    if (n < 0)
        err(dir, "%s", strerror(errno));
    for (int i = 0; i < n; i++) {
        e[i]->d_name[strlen(e[i]->d_name) - 4] = 0;
        name_add(o->arena, &l, e[i]->d_name, NULL);
        free(e[i]);
    }
    free(e);
    if (!n)
        err(dir, "holds no .npy file");
    return l;
}

static const char *file_of(const Options *o, int i, const char *name)
{
    return fmt(o->arena, "%s/%s.npy", o->file[i], name);
}

/* ---- one value ---- */

static void elements_compare(Diff *d, int64_t n)
{
    double off = 0, all = 0;
    d->at = -1;
    for (int64_t i = 0; i < n; i++) {
        double x = npy_get(&d->a, i), y = npy_get(&d->b, i), e = x - y;
        d->nan_a += isnan(x), d->nan_b += isnan(y);
        d->nan_one += isnan(x) != isnan(y);
        if (isnan(x) || isnan(y))
            continue;                     /* counted */
        if (x == y)
            e = 0;                        /* infinities, too */
        off += e * e, all += x * x;
        if (d->at < 0 ? e != 0 : !(fabs(e) <= d->most))
            d->most = fabs(e), d->at = i, d->x = x, d->y = y;
    }
    d->rel = off == 0 ? 0 : sqrt(off / (all > 0 ? all : 1));
}

static bool shape_equal(const Npy *a, const Npy *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

static Diff value_compare(const Options *o, const char *name, Arena *a,
                          double tol)
{
    Diff d = { .a = npy_read(a, file_of(o, 0, name)),
               .b = npy_read(a, file_of(o, 1, name)) };
    int64_t n = npy_count(&d.a);
    if (n != npy_count(&d.b)) {
        d.rel = INFINITY, d.at = -1;
        return d;
    }
    elements_compare(&d, n);
    d.same = d.rel <= tol && d.nan_one == 0;
    return d;
}

/* ---- what is said ---- */

static const char *type_of(Arena *a, const Npy *x)
{
    return dims_text(a, npy_kind_name(x->kind), x->ndim, x->dim);
}

/* "[0,3,2]" of the element that stands at i in row-major order. */
static const char *index_text(Arena *a, const Npy *x, int64_t i)
{
    int64_t at[NPY_NDIM];
    for (int d = x->ndim; d-- > 0; i /= x->dim[d])
        at[d] = i % x->dim[d];
    return dims_text(a, "", x->ndim, at);
}

static void diff_print(const Name *n, const Diff *d, Arena *a)
{
    printf("%s %s: ", d->same ? "same" : "DIFF", n->name);
    if (isinf(d->rel) && d->at < 0)
        printf("%s and %s", type_of(a, &d->a), type_of(a, &d->b));
    else
        printf("%s, relative L2 %.3g", type_of(a, &d->a), d->rel);
    if (d->at >= 0)
        printf(", most at %s: %.9g and %.9g, %.3g apart",
               index_text(a, &d->a, d->at), d->x, d->y, d->most);
    if (d->nan_a || d->nan_b)
        printf(", NaN: %lld and %lld", (long long)d->nan_a,
               (long long)d->nan_b);
    if (n->loc)
        printf(" (%s)", n->loc);
    printf("\n");
    if (npy_count(&d->a) == npy_count(&d->b) && !shape_equal(&d->a, &d->b))
        printf("note: %s is %s in the other: compared in the order of "
               "elements\n", n->name, type_of(a, &d->b));
}

static void number_json(const char *key, double x)
{
    printf(isfinite(x) ? ", \"%s\": %.17g" : ", \"%s\": null", key, x);
}

static void diff_json(const Name *n, const Diff *d, Arena *a, bool first)
{
    printf("%s{\"name\": ", first ? "" : ",\n ");
    json_quote(stdout, n->name);
    printf(", \"at\": ");
    json_quote(stdout, n->loc ? n->loc : "");
    printf(", \"types\": [\"%s\", \"%s\"]", type_of(a, &d->a),
           type_of(a, &d->b));
    number_json("relative", d->rel);
    number_json("most", d->most);
    printf(", \"element\": %lld, \"nan\": [%lld, %lld], \"differs\": %s}",
           (long long)d->at, (long long)d->nan_a, (long long)d->nan_b,
           d->same ? "false" : "true");
}

static bool is_in(const Names *l, const char *name)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->at[i].name == name)        /* interned */
            return true;
    return false;
}

static void only_print(const Names *l, const Names *other, const char *dir)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (!is_in(other, l->at[i].name) && n++ < TOLD)
            printf(n == 1 ? "only in %s: %s" : "%.0s, %s", dir,
                   l->at[i].name);
    if (n)
        printf("%s\n", n > TOLD ? ", ..." : "");
}

/* ---- the command ---- */

int cmd_diff(const Options *o)
{
    Names a = names_read(o, o->file[0]), b = names_read(o, o->file[1]);
    const Names *order = a.ordered || !b.ordered ? &a : &b;
    const Names *other = order == &a ? &b : &a;
    double tol = o->tol > 0 ? o->tol : 1e-4;
    uint32_t both = 0, differ = 0;
    if (o->json)
        printf("{\"values\": [");
    for (uint32_t i = 0; i < order->n; i++) {
        const Name *n = &order->at[i];
        if (!is_in(other, n->name))
            continue;
        Arena *scratch = arena_new();
        Diff d = value_compare(o, n->name, scratch, tol);
        if (o->json)
            diff_json(n, &d, scratch, !both);
        else if (o->verbose || (!d.same && !differ))
            diff_print(n, &d, scratch);
        both++, differ += !d.same;
        arena_free(scratch);
    }
    if (o->json)
        printf("],\n \"compared\": %u, \"differ\": %u}\n", both, differ);
    if (!both)
        err(o->file[1], "shares no name with %s: \"%s\" there, \"%s\" here",
            o->file[0], a.n ? a.at[0].name : "", b.n ? b.at[0].name : "");
    if (!o->json) {
        only_print(&a, &b, o->file[0]);
        only_print(&b, &a, o->file[1]);
        printf("%u values compared, %u differ by more than %g%s\n", both,
               differ, tol, differ ? "; the first is above" : "");
    }
    return differ ? DIFFER : 0;
}
