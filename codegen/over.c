/* over.c -- which operand's bytes a kernel's result may take.
 *
 * Point by point: each element is read, for the last time, by the worker that
 * then writes it.  So all loads of the operand have the store's own index;
 * they stand in its loop, or in loops before it that run alike (a thread of a
 * GPU meets the same points in each of them); and nothing is read a second
 * time behind the store, nor in another walk for tables.  What is stored once
 * a row, behind loops that many threads share, keeps bytes of its own. */
#include "codegen/kernel.h"

static bool same_index(const Affine *a, const Affine *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Do all loads of `in` among these values have that index?  *any: there is
 * one. */
static bool loads_at(const Kernel *k, const int *list, int n, int in,
                     const Affine *at, bool *any)
{
    for (int i = 0; i < n; i++) {
        const Value *v = &k->value[list[i]];
        if (v->kind != VAL_LOAD || v->buf != in)
            continue;
        *any = true;
        if (v->row >= 0 || v->nquot || !same_index(&v->at, at))
            return false;
    }
    return true;
}

/* The only store to a result; NULL: there are several. */
static const Store *only_store(const Kernel *k, int out)
{
    const Store *s = NULL;
    for (int i = 0; i < k->nstore; i++) {
        if (k->store[i].out != out)
            continue;
        if (s)
            return NULL;
        s = &k->store[i];
    }
    return s;
}

/* The loop that the store stands in; nloop: behind them. */
static int loop_of(const Kernel *k, const Store *s)
{
    for (int i = 0; i < k->nloop; i++)
        for (int m = 0; m < k->loop[i].nstore; m++)
            if (&k->store[k->loop[i].store[m]] == s)
                return i;
    return k->nloop;
}

static bool loops_allow(const Kernel *k, int in, const Store *s, int last)
{
    for (int i = 0; i < k->nloop; i++) {
        const Loop *l = &k->loop[i];
        bool early = false, any = false;
        if (!loads_at(k, l->pre, l->npre, in, &s->at, &early)
            || !loads_at(k, l->value, l->nvalue, in, &s->at, &any)
            || early || (any && (i > last || l->atoms != k->loop[last].atoms)))
            return false;
    }
    return true;
}

/* A loop that fills tables may be walked once for each (cuda.c). */
static bool tabled(const Kernel *k, const Loop *l)
{
    bool any = false;
    for (int i = 0; i < l->nfold; i++)
        any |= kernel_tabled(k, l->fold[i]);
    return any;
}

bool kernel_over(const Kernel *k, int in, int out)
{
    const Store *s = only_store(k, out);
    bool behind = false, once = false;
    if (k->form == FORM_PUT || k->form == FORM_ATTENTION || !s
        || dtype_size(k->g->node[k->in[in]].type.dtype)
           != dtype_size(k->out_dtype[out]))
        return false;
    int last = loop_of(k, s);
    if (!loads_at(k, k->top, k->ntop, in, &s->at, &once)
        || !loads_at(k, k->tail, k->ntail, in, &s->at, &behind))
        return false;
    if (k->form == FORM_MAP)
        return last == k->nloop;
    return !once && last < k->nloop && !behind && !tabled(k, &k->loop[last])
        && loops_allow(k, in, s, last);
}
