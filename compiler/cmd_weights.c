/* cmd_weights.c -- dpc weights: tensors of a run, a checkpoint, a .safetensors
 * file or a folder of them, as --init-from sees them.
 *
 *     ls PATH           names, types and sizes
 *     map PATH MODEL    each param of a model, and the tensor it would take
 *     diff PATH PATH    names that only one has, and how far the others part
 *     convert PATH OUT  into one file, or a folder (weights_convert.c)
 *
 * `diff` reads one tensor at a time: the relative L2 distance of each, the
 * largest of all last. */
#include "compiler/weights.h"
#include "runtime/source.h"
#include <math.h>
#include <stdlib.h>

enum { ROOM = 1 << 20 };                  /* bytes read at once */

/* A run means its latest checkpoint. */
static const char *run_latest(const char *path, Arena *a)
{
    char name[64] = "";
    FILE *f = fopen(fmt(a, "%s/ckpt/latest", path), "r");
    if (!f)
        return path;
    if (!fgets(name, sizeof name, f))
        name[0] = 0;
    fclose(f);
    name[strcspn(name, "\n")] = 0;
    return fmt(a, "%s/ckpt/%s", path, name);
}

DpcSource *weights_open(const Options *o, int i)
{
    DpcSource *s;
    if (!*o->file[i])
        usage("weights: a path is empty");
    DpcStatus e = dpc_source_open(run_latest(o->file[i], o->arena), &s);
    if (!e && o->rules)
        e = dpc_source_rename(s, o->rules);
    if (e)
        runtime_fail(e);
    return s;
}

static const char *whole_type(Arena *a, const DpcWhole *w)
{
    return dims_text(a, dpc_safe_kind_name((DpcSafeKind)w->kind), w->ndim,
                     w->dim);
}

static int64_t whole_count(const DpcWhole *w)
{
    int64_t n = 1;
    for (int i = 0; i < w->ndim; i++)
        n *= w->dim[i];
    return n;
}

static int weights_ls(const Options *o)
{
    if (o->nfile > 2)
        usage("weights ls: one path is wanted, \"%s\" is another",
              o->file[2]);
    DpcSource *s = weights_open(o, 1);
    int64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        printf("%s : %s\n", s->whole[i].name,
               whole_type(o->arena, &s->whole[i]));
        n += whole_count(&s->whole[i]);
    }
    fprintf(stderr, "%u tensors, %lld numbers\n", s->n, (long long)n);
    dpc_source_close(s);
    return 0;
}

/* ---- map ---- */

static bool same_shape(const DpcWhole *w, const Type *t)
{
    bool same = w->ndim == t->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = w->dim[d] == t->dim[d];
    return same;
}

/* As --init-from takes it: of the same shape, in numbers that convert. */
static bool fits(const DpcWhole *w, const Type *t)
{
    return same_shape(w, t)
        && dpc_safe_converts((DpcSafeKind)w->kind,
                             dpc_safe_kind_of((DpcDtype)t->dtype));
}

typedef struct Map {
    const Options *o;
    const DpcSource *s;
    const Graph *init;
    char there[2][DPC_PATH];              /* before each name; the second: if
                                             it is not clear which */
    const DpcWhole **of;                  /* by node: a param's; NULL */
    bool *taken;                          /* by tensor */
} Map;

static const DpcWhole *map_find(const Map *m, const Node *n)
{
    return dpc_source_find(m->s, fmt(m->o->arena, "%s%s", m->there[0],
                                     n->name));
}

static DpcNamed wanting(const void *map, uint32_t i)
{
    const Map *m = map;
    const Node *n = &m->init->node[i];
    return n->op != OP_param || m->of[i] ? (DpcNamed){ 0 }
         : (DpcNamed){ n->name, n->type.ndim, n->type.dim };
}

/* A param's or an average's of one: a run's other tensors are states. */
static DpcNamed spare(const void *map, uint32_t i)
{
    const Map *m = map;
    const DpcWhole *w = &m->s->whole[i];
    bool taken = m->taken[i] || w->state || !strncmp(w->name, "ema.", 4);
    return taken ? (DpcNamed){ 0 } : dpc_whole_named(w);
}

static const char *nearest(const Map *m, DpcNamed of, uint32_t n, DpcNameAt at)
{
    const char *near[DPC_NEAR];
    Str s = { .arena = m->o->arena };
    int k = dpc_names_near(of, n, at, m, near);
    for (int i = 0; i < k; i++)
        str_add(&s, "%s%s", i ? ", " : "; nearest: ", near[i]);
    return k ? s.p : "";
}

/* True when the param has its tensor. */
static bool map_print(const Map *m, Ref r)
{
    static const Mesh none;
    const Node *n = &m->init->node[r];
    const DpcWhole *w = m->of[r];
    Arena *a = m->o->arena;
    const char *type = type_text(a, &none, &n->type);
    if (!w)
        printf("%s : %s missing%s\n", n->name, type,
               nearest(m, wanting(m, r), m->s->n, spare));
    else if (!fits(w, &n->type))
        printf("%s : %s, but the tensor is %s\n", n->name, type,
               whole_type(a, w));
    else
        printf("%s : %s from %s\n", n->name, type, whole_type(a, w));
    return w && fits(w, &n->type);
}

static uint32_t extras_print(const Map *m)
{
    uint32_t extra = 0;
    for (uint32_t i = 0; i < m->s->n; i++) {
        DpcNamed w = spare(m, i);
        if (!w.name)
            continue;
        extra++;
        printf("%s : %s is no param's%s\n", w.name,
               whole_type(m->o->arena, &m->s->whole[i]),
               nearest(m, w, m->init->n, wanting));
    }
    return extra;
}

/* A wrapper's words before all names are cut off, as --init-from does. */
static void map_prefix(Map *m)
{
    uint32_t n = 0;
    const char **want = alloc(m->o->arena, (m->init->n + 1) * sizeof *want);
    for (Ref r = 0; r < m->init->n; r++)
        if (m->init->node[r].op == OP_param) {
            if (map_find(m, &m->init->node[r]))
                return;
            want[n++] = m->init->node[r].name;
        }
    if (dpc_source_prefix(m->s, want, n, m->there) != 1)
        m->there[0][0] = 0;
    else
        fprintf(stderr, "note: names begin with \"%s\" there, which is cut "
                "off\n", m->there[0]);
}

static void map_pairs(Map *m)
{
    m->of = alloc(m->o->arena, (m->init->n + 1) * sizeof *m->of);
    m->taken = alloc(m->o->arena, m->s->n + 1);
    for (Ref r = 0; r < m->init->n; r++) {
        const Node *n = &m->init->node[r];
        m->of[r] = n->op == OP_param ? map_find(m, n) : NULL;
        if (m->of[r])
            m->taken[m->of[r] - m->s->whole] = true;
    }
}

static int weights_map(const Options *o)
{
    Options model = *o;
    model.file = o->file + 2, model.nfile = 1;
    if (o->nfile < 3)
        usage("weights map: PATH MODEL.lua is wanted");
    DpcSource *s = weights_open(o, 1);
    const Graph *init = model_entry(model_open(&model), "init"), none = { 0 };
    Map m = { .o = o, .s = s, .init = init ? init : &none };
    uint32_t params = 0, found = 0;
    map_prefix(&m);
    map_pairs(&m);
    for (Ref r = 0; r < m.init->n; r++)
        if (m.init->node[r].op == OP_param)
            params++, found += map_print(&m, r);
    uint32_t extra = extras_print(&m);
    fprintf(stderr, "%u of %u params have a tensor; %u of %u tensors are no "
            "param's\n", found, params, extra, s->n);
    dpc_source_close(s);
    return found == params && !extra ? 0 : 1;
}

/* ---- diff ---- */

/* All elements, as kind `to`. */
static void *whole_read(DpcSource *s, const DpcWhole *w, DpcSafeKind to,
                        Arena *a)
{
    DpcBox all = dpc_box_whole(w->ndim, w->dim);
    void *x = alloc(a, (size_t)dpc_safe_bytes(to, w->ndim, w->dim) + 1);
    DpcStatus e = dpc_source_read(s, w, &all, w->dim, to, x, alloc(a, ROOM),
                                  ROOM);
    if (e)
        runtime_fail(e);
    return x;
}

/* |a - b| / |a|, Euclidean; infinity where one is not finite and the other is
 * not the same. */
static double distance(const float *a, const float *b, int64_t n)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) {
            all += isfinite(a[i]) ? (double)a[i] * (double)a[i] : 0;
            continue;
        }
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return INFINITY;
        double d = (double)a[i] - (double)b[i];
        off += d * d, all += (double)a[i] * (double)a[i];
    }
    return off == 0 ? 0 : sqrt(off / (all > 0 ? all : 1));
}

static int64_t nans_count(const float *x, int64_t n)
{
    int64_t nans = 0;
    for (int64_t i = 0; i < n; i++)
        nans += isnan(x[i]);
    return nans;
}

/* The distance of v and w, of one size; infinity where they are of different
 * kinds, or are no floats and any element differs.  nan: how many of each are
 * none. */
static double whole_distance(DpcSource *s, const DpcWhole *v, DpcSource *t,
                             const DpcWhole *w, int64_t nan[2], Arena *a)
{
    if (dpc_safe_converts(v->kind, DPC_SAFE_F32) &&
        dpc_safe_converts(w->kind, DPC_SAFE_F32)) {
        const float *x = whole_read(s, v, DPC_SAFE_F32, a);
        const float *y = whole_read(t, w, DPC_SAFE_F32, a);
        int64_t m = whole_count(v);
        nan[0] = nans_count(x, m), nan[1] = nans_count(y, m);
        return distance(x, y, m);
    }
    size_t n = (size_t)dpc_safe_bytes((DpcSafeKind)v->kind, v->ndim, v->dim);
    return v->kind == w->kind &&
           memcmp(whole_read(s, v, (DpcSafeKind)v->kind, a),
                  whole_read(t, w, (DpcSafeKind)w->kind, a), n) == 0
         ? 0 : INFINITY;
}

/* The distance of a tensor of both; infinity where the sizes differ. */
static double whole_diff(DpcSource *s, const DpcWhole *v, DpcSource *t,
                         const DpcWhole *w, Arena *a)
{
    bool same = v->ndim == w->ndim;
    for (int d = 0; same && d < v->ndim; d++)
        same = v->dim[d] == w->dim[d];
    if (!same) {
        printf("%s : %s and %s\n", v->name, whole_type(a, v),
               whole_type(a, w));
        return INFINITY;
    }
    int64_t nan[2] = { 0 };
    double d = whole_distance(s, v, t, w, nan, a);
    if (d > 0 || nan[0] || nan[1])
        printf("%s : %s %.3g", v->name, whole_type(a, v), d);
    if (nan[0] || nan[1])
        printf(", NaN: %lld and %lld", (long long)nan[0], (long long)nan[1]);
    if (d > 0 || nan[0] || nan[1])
        putchar('\n');
    return d;
}

static bool has_states(const DpcSource *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->whole[i].state)
            return true;
    return false;
}

/* A run's states have nothing to be compared with in bare params. */
static uint32_t only_in(const DpcSource *s, const DpcSource *t,
                        const char *path)
{
    uint32_t n = 0, states = 0;
    bool bare = !has_states(t);
    for (uint32_t i = 0; i < s->n; i++) {
        if (dpc_source_find(t, s->whole[i].name))
            continue;
        if (bare && s->whole[i].state)
            states++;
        else
            printf("%s : only in %s\n", s->whole[i].name, path), n++;
    }
    if (states)
        fprintf(stderr, "note: %u states of %s have no like in bare params\n",
                states, path);
    return n;
}

static int weights_diff(const Options *o)
{
    if (o->nfile < 3)
        usage("weights diff: two paths are wanted");
    DpcSource *s = weights_open(o, 1), *t = weights_open(o, 2);
    uint32_t only = only_in(s, t, o->file[1]) + only_in(t, s, o->file[2]);
    double most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const DpcWhole *w = dpc_source_find(t, s->whole[i].name);
        Arena *a = arena_new();
        double d = w ? whole_diff(s, &s->whole[i], t, w, a) : 0;
        most = d > most ? d : most;
        arena_free(a);
    }
    printf("largest relative distance %.3g; %u names in one alone\n", most,
           only);
    dpc_source_close(s);
    dpc_source_close(t);
    return most > 0 || only ? 6 : 0;
}

int cmd_weights(const Options *o)
{
    static const struct {
        const char *name;
        int (*fn)(const Options *);
    } what[] = { { "ls", weights_ls }, { "map", weights_map },
                 { "diff", weights_diff },
                 { "convert", weights_convert } };
    for (int i = 0; i < COUNT(what); i++)
        if (strcmp(o->file[0], what[i].name) == 0)
            return what[i].fn(o);
    usage("weights: \"%s\" is not one of ls, map, diff, convert", o->file[0]);
}
