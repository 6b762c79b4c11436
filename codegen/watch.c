/* watch.c -- kernels under a magnifier: who made the number that is none?
 *
 * A fused kernel shows what it stores, not what it computed on the way.  So
 * beside it goes a second function of the same values in the same loops, plain
 * and without stores, in which each value that is not finite carries a blame:
 * the number of the operation that made it of finite operands.  Where a value
 * would be stored, its blame is reported.  Only the hunt calls it
 * (runtime/hunt.c), before the kernel, because outputs may lie over inputs.
 * Nothing is optimised: it must be quick to compile.
 *
 * Blame, not the first bad value: where(x > 0, log(x), 0) may have a NaN on
 * its way that nobody ever sees. */
#include "codegen/host.h"
#include "codegen/watch.h"
#include <math.h>

const char watch_flags[] = "-O0";

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
    bool *seen = values_used(k), several = false;
    int n = 0;
    *node = alloc(k->arena, (size_t)(k->nvalue + 1) * sizeof **node);
    for (int v = 0; v < k->nvalue; v++)
        if (seen[v] && has_blame(&k->value[v])) {
            (*node)[n++] = k->value[v].node;
            several |= k->value[v].node != (*node)[0];
        } else if (seen[v] && k->value[v].kind == VAL_CONST)
            several |= isinf(k->value[v].num);    /* a mask: no mistake */
    return several && k->form != FORM_PUT ? n : 0;
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

/* "v3, w3": an operand and its blame, if it is bad; what comes from memory is
 * nobody's here, and numbers of the text are no mistake. */
static void operand(Watch *w, int v)
{
    const Value *x = v < 0 ? NULL : &w->k->value[v];
    bool whole = x && (x->dtype == I32 || x->dtype == U8);
    bool load = x && !whole && x->kind == VAL_LOAD;
    bool made = x && !whole && (x->kind == VAL_EXPR || x->kind == VAL_PICK
                                || x->kind == VAL_FOLD);
    text_add(&w->text, v < 0 ? ", 0, 0" : load ? ", v%d, DPC_OUTSIDE"
             : made ? ", v%d, w%d" : ", v%d, 0", v, v);
}

/* The own number, in the list's member c. */
static void own(Watch *w, int v)
{
    if (w->k->list)
        text_add(&w->text, "%d + (int)c * %d", w->number[v], w->n);
    else
        text_add(&w->text, "%d", w->number[v]);
}

static void blame(Watch *w, int v, int depth)
{
    const Value *x = &w->k->value[v];
    Text *t = &w->text;
    if (x->kind != VAL_EXPR && x->kind != VAL_PICK)
        return;
    if (x->dtype == I32 || x->dtype == U8)
        return;
    text_indent(t, depth);
    text_add(t, "const int w%d = v%d - v%d == 0 ? 0 : dpc_blame(", v, v, v);
    own(w, v);
    text_add(t, ", v%d", v);
    for (int i = 0; i < 3; i++)
        operand(w, i < x->narg ? x->arg[i] : -1);
    text_add(t, ");\n");
}

static void values(Watch *w, const int *list, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        text_values(&w->text, w->k, &list[i], 1, depth);
        blame(w, list[i], depth);
    }
}

static void stores(Watch *w, const int *list, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        int v = w->k->store[list[i]].value;
        DType d = w->k->value[v].dtype;
        if (d == I32 || d == U8)
            continue;
        text_indent(&w->text, depth);
        text_add(&w->text, "if (v%d - v%d != 0)\n", v, v);
        text_indent(&w->text, depth + 1);
        text_add(&w->text, "dpc_see(seen");
        operand(w, v);
        text_add(&w->text, ");\n");
    }
}

/* ---- loops ---- */

static void folds_begin(Watch *w, const Loop *l, int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        text_indent(&w->text, depth);
        text_add(&w->text, "float v%d = %s; int w%d = 0;\n", l->fold[i],
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
        text_add(t, "  w%d = v%d - v%d == 0 ? 0 : dpc_blame(", v, v, v);
        own(w, v);
        text_add(t, ", v%d, was, w%d", v, v);
        operand(w, from);
        text_add(t, ", 0, 0); }\n");
    }
}

static void loop(Watch *w, const Loop *l, int depth)
{
    int at[KATOM], n = host_places(w->k, l->atoms, at), in = depth;
    values(w, l->pre, l->npre, depth);
    folds_begin(w, l, depth);
    for (int i = 0; i < n; i++) {
        host_loop(&w->text, w->k, at[i], in++);
        text_add(&w->text, " {\n");
    }
    values(w, l->value, l->nvalue, in);
    folds(w, l, in);
    stores(w, l->store, l->nstore, in);
    while (in-- > depth) {
        text_indent(&w->text, in);
        text_add(&w->text, "}\n");
    }
}

static void nest(Watch *w)
{
    const Kernel *k = w->k;
    int at[KATOM], n = host_places(k, k->outer, at);
    text_buffers(&w->text, k);
    values(w, k->top, k->ntop, 1);
    for (int i = 0; i < n; i++) {
        host_loop(&w->text, k, at[i], 1 + i);
        text_add(&w->text, " {\n");
    }
    for (int i = 0; i < k->nloop; i++)
        loop(w, &k->loop[i], 1 + n);
    values(w, k->tail, k->ntail, 1 + n);
    stores(w, k->tail_store, k->ntail_store, 1 + n);
    while (n-- > 0)
        text_add(&w->text, "}\n");
}

static void list(Watch *w)
{
    const Kernel *k = w->k;
    text_add(&w->text, "    const long *n = DPC_ENV.pos + 1, "
             "count = DPC_ENV.pos[0];\n"
             "    for (long c = 0; c < count; c++) {\n");
    host_flat_member(&w->text, k);
    values(w, k->top, k->ntop, 2);
    text_add(&w->text, "        for (long i0 = 0; i0 < n[c]; i0++) {\n");
    values(w, k->tail, k->ntail, 3);
    stores(w, k->tail_store, k->ntail_store, 3);
    text_add(&w->text, "        }\n    }\n");
}

char *watch_text(Arena *a, const Kernel *given, const char *name)
{
    Kernel k = *given;
    k.list = kernel_flat(given);
    Watch w = { .k = &k, .text.arena = a };
    numbers_give(&w);
    text_tables(&w.text, &k);
    text_add(&w.text, "void @(void *const *p, const DpcEnv *env, DpcSeen "
             "*seen)\n{\n");
    (k.list ? list : nest)(&w);
    text_add(&w.text, "}\n");
    return text_rename(a, &w.text, fmt(a, "%s_watch", name));
}
