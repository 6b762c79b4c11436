/* loop.c -- which loops a kernel needs, and in what order.
 *
 * Sinks (folds and stores) ask for values, and values for their operands, so
 * each loop evaluates just what its sinks need.  The atoms that all folds keep
 * are the outer loops, one row each.  A fold that keeps more is a *table* of
 * the row: a column of sums beside a norm's means.  Stores come in the last
 * loop and behind it: then an output may take the bytes of an input that is
 * read at the same index only. */
#include "codegen/kernel.h"

typedef struct Pull {
    Kernel *k;
    uint32_t *done;                       /* loop + 1 that has the value last */
    bool *once;                           /* in top, or in some pre */
    Loop *loop;                           /* NULL: behind the loops */
    uint32_t mark;
    bool keep;                            /* see kernel_keep */
    int *first;                           /* loop + 1 that has it first */
    double *work;                         /* flops of a value from memory on */
} Pull;

Atoms affine_atoms(const Affine *a)
{
    Atoms s = 0;
    for (int i = 0; i < KATOM; i++)
        s |= a->coef[i] ? 1u << i : 0;
    return s;
}

bool kernel_tabled(const Kernel *k, int v)
{
    const Value *x = &k->value[v];
    return x->kind == VAL_FOLD && (x->atoms & ~k->outer);
}

bool value_global(const Value *v)
{
    return !v->atoms && !v->level && v->kind != VAL_FOLD;
}

double kernel_points(const Kernel *k, Atoms a)
{
    double n = 1;
    for (int i = 0; i < k->natom; i++)
        if (a >> i & 1)
            n *= (double)k->extent[i];
    return n;
}

enum { ROW = 4096, DEAR = 8, BUFFERS = 4 };

/* An earlier loop has the value, and it is dearer than a store and a load. */
static bool kept(Pull *p, int v)
{
    Loop *now = p->loop;
    if (!p->keep || !now || !p->first[v] || p->work[v] < DEAR)
        return false;
    Loop *then = &p->k->loop[p->first[v] - 1];
    bool saved = false;
    for (int i = 0; i < then->nsave; i++)
        saved |= then->save[i] == v;
    if (then == now || then->atoms != now->atoms
        || kernel_points(p->k, now->atoms) > ROW
        || (!saved && then->nsave == BUFFERS))
        return false;
    if (!saved)
        then->save[then->nsave++] = v;
    now->kept[now->nkept++] = v;
    p->done[v] = p->mark;
    return true;
}

/* A finished fold: under its name, or from its table. */
static void pull_fold(Pull *p, int v)
{
    if (p->loop && p->done[v] != p->mark && kernel_tabled(p->k, v))
        p->loop->kept[p->loop->nkept++] = v;
    p->done[v] = p->mark;
}

static void pull(Pull *p, int v)
{
    Kernel *k = p->k;
    const Value *x = &k->value[v];
    bool outer = !(x->atoms & ~k->outer);

    if (x->kind == VAL_FOLD) {
        pull_fold(p, v);
        return;
    }
    if (p->done[v] == p->mark || p->once[v] || (!outer && kept(p, v)))
        return;
    if (!p->first[v] && p->loop)
        p->first[v] = (int)(p->loop - k->loop) + 1;
    for (int i = 0; i < x->narg; i++)
        pull(p, x->arg[i]);
    if (x->row >= 0)
        pull(p, x->row);
    p->done[v] = p->mark;
    p->once[v] = outer;
    if (value_global(x))
        k->top[k->ntop++] = v;
    else if (!p->loop)
        k->tail[k->ntail++] = v;
    else if (outer)
        p->loop->pre[p->loop->npre++] = v;
    else
        p->loop->value[p->loop->nvalue++] = v;
}

static Loop *loop_new(Kernel *k, Atoms atoms, int level)
{
    Loop *l = &k->loop[k->nloop++];
    size_t n = (size_t)k->nvalue + 1;
    l->atoms = atoms, l->level = level;
    l->pre = alloc(k->arena, n * sizeof *l->pre);
    l->value = alloc(k->arena, n * sizeof *l->value);
    l->fold = alloc(k->arena, n * sizeof *l->fold);
    l->store = alloc(k->arena, ((size_t)k->nstore + 1) * sizeof *l->store);
    l->save = alloc(k->arena, n * sizeof *l->save);
    l->kept = alloc(k->arena, n * sizeof *l->kept);
    return l;
}

/* ---- which values live ---- */

static void live(const Kernel *k, int v, bool *seen)
{
    const Value *x = &k->value[v];
    if (seen[v])
        return;
    seen[v] = true;
    for (int i = 0; i < x->narg; i++)
        live(k, x->arg[i], seen);
    if (x->row >= 0)
        live(k, x->row, seen);
}

enum { ROWS = 16, SMALL = 4096, TABLES = 8192, FOLDS = 4 };

/* May folds of this kernel keep different atoms?  Rows have to be many, or
 * all of it small, and the tables of a row fit beside it and are smaller than
 * what they sum up. */
static bool tables_fit(const Kernel *k, const bool *seen)
{
    double sums = 0, points = 0, rows = kernel_points(k, k->outer);
    double least = FOLDS;
    for (int v = 0; v < k->nvalue; v++) {
        const Value *x = &k->value[v];
        if (!seen[v] || x->kind != VAL_FOLD)
            continue;
        double n = kernel_points(k, x->atoms | x->over);
        points = n > points ? n : points;
        if (!kernel_tabled(k, v))
            continue;
        sums += kernel_points(k, x->atoms & ~k->outer);
        n = kernel_points(k, x->over);
        least = n < least ? n : least;
    }
    return !sums || points <= SMALL
        || (sums <= TABLES && rows >= ROWS && least == FOLDS);
}

/* The atoms that all folds, or else all stores, keep; false when that is no
 * nest. */
static bool outer_atoms(Kernel *k, const bool *seen, const char **why)
{
    bool any = false;
    for (int v = 0; v < k->nvalue; v++) {
        const Value *x = &k->value[v];
        if (!seen[v] || x->kind != VAL_FOLD)
            continue;
        k->outer = any ? k->outer & x->atoms : x->atoms;
        any = true;
    }
    for (int i = 0; i < k->nstore; i++) {
        Atoms a = affine_atoms(&k->store[i].at);
        if (any && (k->outer & ~a))
            return *why = "a result spans fewer loops than the folds", false;
        if (!any && i && a != k->outer)
            return *why = "results span different loops", false;
        if (!any)
            k->outer = a;
    }
    for (int v = 0; v < k->nvalue; v++)
        if (seen[v] && !any && (k->value[v].atoms & ~k->outer))
            return *why = "a value spans more loops than the result", false;
    if (!tables_fit(k, seen))
        return *why = "folds keep different dimensions", false;
    return true;
}

static Loop *loop_find(Kernel *k, Atoms atoms, int level)
{
    for (int i = 0; i < k->nloop; i++)
        if (k->loop[i].level == level && k->loop[i].atoms == atoms)
            return &k->loop[i];
    return loop_new(k, atoms, level);
}

static void fold_loops(Kernel *k, const bool *seen)
{
    int top = 0;
    for (int v = 0; v < k->nvalue; v++)
        top = k->value[v].level > top ? k->value[v].level : top;
    for (int level = 0; level <= top; level++)
        for (int v = 0; v < k->nvalue; v++) {
            const Value *x = &k->value[v];
            if (!seen[v] || x->kind != VAL_FOLD || x->level != level)
                continue;
            Loop *l = loop_find(k, (x->over | x->atoms) & ~k->outer, level);
            l->fold[l->nfold++] = v;
        }
}

static Atoms store_atoms(const Kernel *k, int store)
{
    return affine_atoms(&k->store[store].at) & ~k->outer;
}

/* The loop that stores of these atoms stand in: the last, or one behind it. */
static Loop *store_loop(Kernel *k, Atoms in)
{
    Loop *last = k->nloop ? &k->loop[k->nloop - 1] : NULL;
    int level = last ? last->level : 0;
    for (int i = 0; i < k->nstore; i++) {
        const Value *x = &k->value[k->store[i].value];
        int at = x->level + (x->kind == VAL_FOLD);
        if (store_atoms(k, i) == in && at > level)
            level = at;
    }
    return last && last->atoms == in && last->level == level
        ? last : loop_new(k, in, level);
}

/* All in loops behind those of the folds, or in the last of these, larger
 * ones first: an input that an output lies over has been read for the last
 * time by then. */
static void store_loops(Kernel *k)
{
    bool *done = alloc(k->arena, (size_t)k->nstore + 1);
    for (int n = KATOM; n > 0; n--)
        for (int i = 0; i < k->nstore; i++) {
            Atoms in = store_atoms(k, i);
            if (done[i] || __builtin_popcount(in) != n)
                continue;
            Loop *l = store_loop(k, in);
            for (int s = i; s < k->nstore; s++)
                if (store_atoms(k, s) == in) {
                    l->store[l->nstore++] = s;
                    done[s] = true;
                }
        }
    for (int i = 0; i < k->nstore; i++)
        if (!store_atoms(k, i))
            k->tail_store[k->ntail_store++] = i;
}

static void pull_all(Kernel *k, bool keep)
{
    size_t n = (size_t)k->nvalue + 1;
    Pull p = { .k = k, .keep = keep,
               .done = alloc(k->arena, n * sizeof *p.done),
               .once = alloc(k->arena, n * sizeof *p.once),
               .first = alloc(k->arena, n * sizeof *p.first),
               .work = alloc(k->arena, n * sizeof *p.work) };
    for (int v = 0; v < k->nvalue; v++) {
        const Value *x = &k->value[v];
        p.work[v] = x->kind == VAL_RANDOM ? 64
                  : x->kind == VAL_EXPR ? ops[x->op].work : 0;
        for (int i = 0; i < x->narg && x->kind != VAL_FOLD; i++)
            p.work[v] += p.work[x->arg[i]];
    }
    for (int i = 0; i < k->nloop; i++) {
        p.loop = &k->loop[i];
        p.mark = (uint32_t)i + 1;
        for (int f = 0; f < p.loop->nfold; f++)
            pull(&p, k->value[p.loop->fold[f]].arg[0]);
        for (int s = 0; s < p.loop->nstore; s++)
            pull(&p, k->store[p.loop->store[s]].value);
    }
    p.loop = NULL;
    p.mark = (uint32_t)k->nloop + 1;
    for (int s = 0; s < k->ntail_store; s++)
        pull(&p, k->store[k->tail_store[s]].value);
}

bool kernel_loops(Kernel *k, const char **why)
{
    size_t n = (size_t)k->nvalue + (size_t)k->nstore + 1;
    bool *seen = alloc(k->arena, n * sizeof *seen);

    for (int i = 0; i < k->nstore; i++)
        live(k, k->store[i].value, seen);
    if (!outer_atoms(k, seen, why))
        return false;
    k->loop = alloc(k->arena, n * sizeof *k->loop);
    k->top = alloc(k->arena, n * sizeof *k->top);
    k->tail = alloc(k->arena, n * sizeof *k->tail);
    k->tail_store = alloc(k->arena, n * sizeof *k->tail_store);
    fold_loops(k, seen);
    store_loops(k);
    pull_all(k, false);
    return true;
}

const Kernel *kernel_keep(const Kernel *given)
{
    Kernel *k = alloc(given->arena, sizeof *k);
    size_t n = (size_t)given->nvalue + 1;
    if (given->form != FORM_ROW || given->nloop < 2)
        return given;
    *k = *given;
    k->loop = alloc(k->arena, (size_t)k->nloop * sizeof *k->loop);
    k->nloop = k->ntop = k->ntail = 0;
    k->top = alloc(k->arena, n * sizeof *k->top);
    k->tail = alloc(k->arena, n * sizeof *k->tail);
    for (int i = 0; i < given->nloop; i++) {
        const Loop *was = &given->loop[i];
        Loop *l = loop_new(k, was->atoms, was->level);
        l->nfold = was->nfold, l->fold = was->fold;
        l->nstore = was->nstore, l->store = was->store;
    }
    pull_all(k, true);
    return k;
}
