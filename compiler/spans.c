/* spans.c -- ranges of bytes over steps: who lives when, and how much.
 *
 * Views and results in place share bytes, so what lives is a union.  What
 * lives is kept in the order of its addresses: steps x ranges alive. */
#include "compiler/spans.h"
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
         : x->id != y->id ? (x->id > y->id) - (x->id < y->id)
         : (x->instance > y->instance) - (x->instance < y->instance);
}

static int by_birth(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
         : by_place(a, b);
}

static int by_size(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
         : by_place(a, b);
}

static int64_t union_bytes(const Span *const *live, uint32_t n)
{
    int64_t sum = 0, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t from = live[i]->at > end ? live[i]->at : end;
        int64_t to = live[i]->at + live[i]->size;
        sum += to > from ? to - from : 0;
        end = to > end ? to : end;
    }
    return sum;
}

/* Of those in `from` the ones that live at a step, and those born at it, by
 * their address. */
static uint32_t live_next(const Span **to, const Span *const *from, uint32_t n,
                          const Span *born, uint32_t nborn, uint32_t step)
{
    uint32_t m = 0, b = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (from[i]->last < step)
            continue;
        while (b < nborn && by_place(&born[b], from[i]) < 0)
            to[m++] = &born[b++];
        to[m++] = from[i];
    }
    while (b < nborn)
        to[m++] = &born[b++];
    return m;
}

int64_t *spans_alive(Span *s, uint32_t n, uint32_t nstep, Arena *a)
{
    int64_t *alive = alloc(a, ((size_t)nstep + 1) * sizeof *alive);
    const Span **live[2];
    uint32_t nlive = 0, at = 0;
    for (int i = 0; i < 2; i++)
        live[i] = alloc(a, ((size_t)n + 1) * sizeof *live[i]);
    qsort(s, n, sizeof *s, by_birth);
    for (uint32_t k = 0; k < nstep; k++) {
        uint32_t born = at;
        while (at < n && s[at].first == k)
            at++;
        nlive = live_next(live[~k & 1], live[k & 1], nlive, s + born,
                          at - born, k);
        alive[k] = union_bytes(live[~k & 1], nlive);
    }
    return alive;
}

Span *spans_at(const Span *s, uint32_t n, uint32_t step, uint32_t *m, Arena *a)
{
    Span *at = alloc(a, ((size_t)n + 1) * sizeof *at);
    *m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s[i].first <= step && step <= s[i].last)
            at[(*m)++] = s[i];
    qsort(at, *m, sizeof *at, by_size);
    return at;
}
