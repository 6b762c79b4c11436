/* watch.c -- kernels under a magnifier: who made the number that is none?
 *
 * A fused kernel shows what it stores, not what it computed on the way.  So
 * beside it goes a second function of the same values in the same loops, plain
 * and without stores.  Where what is stored or folded is not finite, the
 * values in scope go to dpc_trace with a table of who is made of whom; it
 * gives each of them a blame: the number of the operation that made it of
 * finite operands.  The blame of what would be stored is reported; that of a
 * fold is kept while it grows.  Only the hunt calls it (runtime/hunt.c),
 * before the kernel, because outputs may lie over inputs.  It must be quick
 * to compile: nothing is optimised, so tcc, where there is one, does it at a
 * tenth of the time, and the text of a value is its line.
 *
 * Blame, not the first bad value: where(x > 0, log(x), 0) may have a NaN on
 * its way that nobody ever sees. */
#include "codegen/host.h"
#include "codegen/watch.h"
#include "runtime/dpc_rt.h"
#include <math.h>

const char watch_flags[] = "-O0";

/* tcc has no such functions built in; the C library has. */
const char watch_head[] =
"#ifdef __TINYC__\n"
"float sqrtf(float), floorf(float), rintf(float), fabsf(float);\n"
"void *memcpy(void *, const void *, size_t);\n"
"#define __builtin_sqrtf sqrtf\n"
"#define __builtin_floorf floorf\n"
"#define __builtin_rintf rintf\n"
"#define __builtin_fabsf fabsf\n"
"#define __builtin_memcpy memcpy\n"
"#define __builtin_inff() ((float)1e300)\n"
"#define __builtin_nanf(x) ((float)1e300 - (float)1e300)\n"
"#endif\n";

typedef struct Watch {
    const Kernel *k;
    Text text;
    int *number;                          /* by value: 1, ...; 0: no blame */
    int n;
} Watch;

static bool has_blame(const Value *v)
{
    return (v->kind == VAL_EXPR || v->kind == VAL_FOLD)
        && (v->dtype == F32 || v->dtype == BF16);
}

static void mark(bool *seen, const int *v, int n)
{
    for (int i = 0; i < n; i++)
        seen[v[i]] = true;
}

/* The values that the kernel's text has. */
static bool *values_used(const Kernel *k)
{
    bool *seen = alloc(k->arena, (size_t)(k->nvalue + 1) * sizeof *seen);
    mark(seen, k->top, k->ntop);
    mark(seen, k->tail, k->ntail);
    for (int i = 0; i < k->nloop; i++) {
        const Loop *l = &k->loop[i];
        mark(seen, l->pre, l->npre);
        mark(seen, l->value, l->nvalue);
        mark(seen, l->fold, l->nfold);
    }
    return seen;
}

int watch_nodes(const Kernel *k, Ref **node)
{
    bool *seen = values_used(k);
    int n = 0;
    *node = alloc(k->arena, (size_t)(k->nvalue + 1) * sizeof **node);
    for (int v = 0; v < k->nvalue; v++)
        if (seen[v] && has_blame(&k->value[v]))
            (*node)[n++] = k->value[v].node;
    return n;
}

bool watch_worth(const Kernel *k)
{
    Ref *node;
    bool *seen = values_used(k), several = false;
    for (int i = watch_nodes(k, &node); i-- > 0;)
        several |= node[i] != node[0];
    for (int v = 0; v < k->nvalue; v++)   /* a mask: no mistake */
        several |= seen[v] && k->value[v].kind == VAL_CONST
            && isinf(k->value[v].num);
    return several && k->form != FORM_PUT;
}

static void numbers_give(Watch *w)
{
    const Kernel *k = w->k;
    bool *seen = values_used(k);
    w->number = alloc(k->arena, (size_t)(k->nvalue + 1) * sizeof *w->number);
    for (int v = 0; v < k->nvalue; v++)
        if (seen[v] && has_blame(&k->value[v]))
            w->number[v] = ++w->n;
}

/* ---- values ---- */

static bool whole(const Value *v)
{
    return v->dtype == I32 || v->dtype == U8;
}

/* Rows of dpc_trace: what comes from memory is nobody's here, and numbers of
 * the text are no mistake. */
static void made(Watch *w)
{
    const Kernel *k = w->k;
    text_add(&w->text, "static const DpcMade @_made[] = {\n");
    for (int v = 0; v < k->nvalue; v++) {
        const Value *x = &k->value[v];
        bool expr = x->kind == VAL_EXPR || x->kind == VAL_PICK;
        int kind = whole(x) ? DPC_NOBODY : expr ? DPC_MADE
                 : x->kind == VAL_LOAD ? DPC_LOADED
                 : x->kind == VAL_FOLD ? DPC_FOLDED : DPC_NOBODY;
        text_add(&w->text, "{%d,%d", kind, w->number[v]);
        for (int i = 0; kind == DPC_MADE && i < x->narg; i++) {
            if (x->arg[i] >= v)
                die("value %d is made of value %d", v, x->arg[i]);
            text_add(&w->text, ",%d", x->arg[i] + 1);
        }
        text_add(&w->text, "},\n");
    }
    text_add(&w->text, "};\n");
}

/* Blames begin as nobody's; those of folds are kept between points. */
static void blames_begin(Watch *w)
{
    text_add(&w->text, "    int w[%d] = {0};\n", w->k->nvalue);
}

/* Added to the numbers in the list's member c. */
static const char *shift(const Watch *w)
{
    return w->k->list ? fmt(w->k->arena, "(int)c * %d", w->n) : "0";
}

/* "[3] = v3, ": those of a list that may be no number. */
static void in_scope(Watch *w, const int *list, int n)
{
    for (int i = 0; i < n; i++) {
        const Value *x = &w->k->value[list[i]];
        bool finite = whole(x) || x->kind == VAL_INDEX
                   || (x->kind == VAL_CONST && isfinite(x->num));
        if (!finite)
            text_add(&w->text, "[%d] = v%d, ", list[i], list[i]);
    }
}

typedef struct Point {                    /* what a place of the text has */
    const Loop *loop;                     /* NULL: behind the loops */
    const int *store;                     /* numbers of stores */
    int nstore, depth;
} Point;

/* The folds of the loops before it. */
static void folds_in_scope(Watch *w, const Loop *end)
{
    for (int i = 0; i < w->k->nloop && &w->k->loop[i] != end; i++)
        in_scope(w, w->k->loop[i].fold, w->k->loop[i].nfold);
}

/* "v3 - v3 != 0 || v5 - v5 != 0": what leaves the point; false: nothing. */
static bool leaving(Watch *w, const Point *p)
{
    int n = 0;
    for (int i = 0; i < p->nstore; i++) {
        int v = w->k->store[p->store[i]].value;
        if (!whole(&w->k->value[v]))
            text_add(&w->text, "%sv%d - v%d != 0", n++ ? " || " : "", v, v);
    }
    for (int i = 0; p->loop && i < p->loop->nfold; i++) {
        int v = w->k->value[p->loop->fold[i]].arg[0];
        text_add(&w->text, "%sv%d - v%d != 0", n++ ? " || " : "", v, v);
    }
    return n > 0;
}

/* Gives the values of a point their blames, if one that leaves it is bad. */
static void trace(Watch *w, const Point *p)
{
    const Kernel *k = w->k;
    Text *t = &w->text;
    uint32_t was = t->n;
    text_indent(t, p->depth);
    text_add(t, "if (");
    if (!leaving(w, p)) {
        t->n = was;
        return;
    }
    text_add(t, ") {\n");
    text_indent(t, p->depth + 1);
    text_add(t, "const float x[%d] = { ", k->nvalue);
    in_scope(w, k->top, k->ntop);
    folds_in_scope(w, p->loop);
    if (p->loop) {
        in_scope(w, p->loop->pre, p->loop->npre);
        in_scope(w, p->loop->value, p->loop->nvalue);
    } else
        in_scope(w, k->tail, k->ntail);
    text_add(t, "};\n");
    text_line(t, p->depth + 1, "dpc_trace(@_made, %d, %s, x, w);", k->nvalue,
              shift(w));
    text_line(t, p->depth, "}");
}

static void stores(Watch *w, const Point *p)
{
    for (int i = 0; i < p->nstore; i++) {
        int v = w->k->store[p->store[i]].value;
        if (!whole(&w->k->value[v]))
            text_line(&w->text, p->depth, "if (v%d - v%d != 0) "
                      "dpc_see(seen, v%d, w[%d]);", v, v, v, v);
    }
}

/* ---- loops ---- */

static void folds_begin(Watch *w, const Loop *l, int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        text_indent(&w->text, depth);
        text_add(&w->text, "float v%d = %s; w[%d] = 0;\n", l->fold[i],
                 text_identity(&w->k->value[l->fold[i]]), l->fold[i]);
    }
}

static void folds(Watch *w, const Loop *l, int depth)
{
    Text *t = &w->text;
    for (int i = 0; i < l->nfold; i++) {
        int v = l->fold[i], from = w->k->value[v].arg[0];
        char acc[16], x[16];
        snprintf(acc, sizeof acc, "v%d", v);
        snprintf(x, sizeof x, "v%d", from);
        text_indent(t, depth);
        text_add(t, "{ const float was = v%d; ", v);
        text_fold(t, &w->k->value[v], acc, x);
        text_indent(t, depth);
        text_add(t, "  w[%d] = v%d - v%d == 0 ? 0 : dpc_blame(%d + %s, v%d, "
                 "was, w[%d], v%d, w[%d], 0, 0); }\n", v, v, v, w->number[v],
                 shift(w), v, v, from, from);
    }
}

static void loop(Watch *w, const Loop *l, int depth)
{
    int at[KATOM], n = host_places(w->k, l->atoms, at), in = depth;
    text_values(&w->text, w->k, l->pre, l->npre, depth);
    folds_begin(w, l, depth);
    for (int i = 0; i < n; i++) {
        host_loop(&w->text, w->k, at[i], in++);
        text_add(&w->text, " {\n");
    }
    Point p = { l, l->store, l->nstore, in };
    text_values(&w->text, w->k, l->value, l->nvalue, in);
    trace(w, &p);
    folds(w, l, in);
    stores(w, &p);
    while (in-- > depth) {
        text_indent(&w->text, in);
        text_add(&w->text, "}\n");
    }
}

static void tail(Watch *w, int depth)
{
    const Kernel *k = w->k;
    Point p = { NULL, k->tail_store, k->ntail_store, depth };
    text_values(&w->text, k, k->tail, k->ntail, depth);
    trace(w, &p);
    stores(w, &p);
}

static void nest(Watch *w)
{
    const Kernel *k = w->k;
    int at[KATOM], n = host_places(k, k->outer, at);
    text_buffers(&w->text, k);
    host_open(&w->text, k);
    blames_begin(w);
    text_values(&w->text, k, k->top, k->ntop, 1);
    for (int i = 0; i < n; i++) {
        host_loop(&w->text, k, at[i], 1 + i);
        text_add(&w->text, " {\n");
    }
    for (int i = 0; i < k->nloop; i++)
        loop(w, &k->loop[i], 1 + n);
    tail(w, 1 + n);
    while (n-- > 0)
        text_add(&w->text, "}\n");
}

static void list(Watch *w)
{
    const Kernel *k = w->k;
    blames_begin(w);
    text_add(&w->text, "    const long *n = DPC_ENV.pos + 1, "
             "count = DPC_ENV.pos[0];\n"
             "    for (long c = 0; c < count; c++) {\n");
    host_flat_member(&w->text, k);
    text_values(&w->text, k, k->top, k->ntop, 2);
    text_add(&w->text, "        for (long i0 = 0; i0 < n[c]; i0++) {\n");
    tail(w, 3);
    text_add(&w->text, "        }\n    }\n");
}

KernelText watch_text(Arena *a, const Kernel *given)
{
    Kernel k = *given;
    k.list = kernel_flat(given);
    Watch w = { .k = &k, .text.arena = a };
    numbers_give(&w);
    text_tables(&w.text, &k);
    made(&w);
    text_add(&w.text, "void @(void *const *p, const DpcEnv *env, DpcSeen "
             "*seen)\n{\n");
    (k.list ? list : nest)(&w);
    text_add(&w.text, "}\n");
    return text_named(a, &w.text);
}
