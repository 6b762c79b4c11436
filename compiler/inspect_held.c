/* inspect_held.c -- what the arena of a binary holds, by its tables alone.
 *
 * A buffer lives from the first step that names it to the last; views and
 * results in place share bytes, so what lives is the union of the ranges.
 * Those that live are kept by their address: steps x the buffers alive. */
#include "compiler/curve.h"
#include "compiler/inspect.h"
#include "compiler/planning.h"
#include <stdlib.h>

enum { SHOWN = 10 };

static const DpcBuf *sorted;              /* of by_place */

static int by_place(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const DpcBuf *x = &sorted[i], *y = &sorted[k];
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
         : (i > k) - (i < k);
}

static int64_t union_bytes(const DpcBuf *buf, const uint32_t *live, uint32_t n)
{
    int64_t sum = 0, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        const DpcBuf *b = &buf[live[i]];
        int64_t from = b->at > end ? b->at : end, to = b->at + b->size;
        sum += to > from ? to - from : 0;
        end = to > end ? to : end;
    }
    return sum;
}

/* First and last step of each buffer, as step + 1; 0: none names it. */
static void spans_fill(const DpcProgram *p, Held *h)
{
    for (uint32_t k = 0; k < p->nstep; k++)
        for (uint32_t i = 0; i < p->step[k].narg; i++) {
            uint32_t b = p->arg[p->step[k].arg + i];
            if (!h->first[b])
                h->first[b] = k + 1, h->maker[b] = k;
            h->last[b] = k + 1;
        }
}

Held held_of(const DpcProgram *p, Arena *a)
{
    Held h = { .nstep = p->nstep };
    size_t n = (size_t)p->nbuf + 1;
    uint32_t *order = alloc(a, n * sizeof *order), most = 0;
    uint32_t *live = alloc(a, n * sizeof *live), nlive = 0;
    h.first = alloc(a, n * sizeof *h.first);
    h.last = alloc(a, n * sizeof *h.last);
    h.maker = alloc(a, n * sizeof *h.maker);
    h.alive = alloc(a, ((size_t)p->nstep + 1) * sizeof *h.alive);
    spans_fill(p, &h);
    uint32_t **born = alloc(a, ((size_t)p->nstep + 1) * sizeof *born);
    uint32_t *nborn = alloc(a, ((size_t)p->nstep + 1) * sizeof *nborn);
    uint32_t *cap = alloc(a, ((size_t)p->nstep + 1) * sizeof *cap);
    for (uint32_t b = 0; b < p->nbuf; b++)
        if (p->buf[b].space == DPC_ARENA && h.first[b]) {
            uint32_t k = h.first[b] - 1;
            GROW(a, born[k], nborn[k], cap[k]);
            born[k][nborn[k]++] = b;
        }
    sorted = p->buf;
    for (uint32_t k = 0; k < p->nstep; k++) {
        most = 0;
        for (uint32_t i = 0; i < nlive; i++)
            if (h.last[live[i]] > k)
                live[most++] = live[i];
        memcpy(live + most, born[k], nborn[k] * sizeof *live);
        nlive = most + nborn[k];
        if (nborn[k])
            qsort(live, nlive, sizeof *live, by_place);
        h.alive[k] = union_bytes(p->buf, live, nlive);
        if (h.alive[k] > h.bytes)
            h.bytes = h.alive[k], h.step = k;
    }
    return h;
}

static int larger(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int64_t x = sorted[i].size, y = sorted[k].size;
    return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

/* Buffers at the peak, the largest first, one for each range of bytes. */
static void peak_list(const DpcProgram *p, const Held *h, Arena *a)
{
    uint32_t *live = alloc(a, ((size_t)p->nbuf + 1) * sizeof *live), n = 0;
    for (uint32_t b = 0; b < p->nbuf; b++)
        if (p->buf[b].space == DPC_ARENA && h->first[b]
            && h->first[b] - 1 <= h->step && h->last[b] > h->step)
            live[n++] = b;
    sorted = p->buf;
    qsort(live, n, sizeof *live, larger);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const DpcBuf *b = &p->buf[live[i]];
        const DpcNode *x = &p->node[p->step[h->maker[live[i]]].node];
        printf("  %9.3f MiB at %-11lld buffer %u, steps %u to %u: %s %s (%s)\n",
               mib(b->size), (long long)b->at, live[i], h->first[live[i]] - 1,
               h->last[live[i]] - 1, b->value ? x->op : "scratch of", x->name,
               x->loc);
    }
    if (n > SHOWN)
        printf("  and %u more\n", n - SHOWN);
}

void held_print(const DpcProgram *p, Arena *a)
{
    Held h = held_of(p, a);
    double *y = alloc(a, ((size_t)p->nstep + 1) * sizeof *y);
    for (uint32_t k = 0; k < p->nstep; k++)
        y[k] = (double)h.alive[k];
    printf("arena %.3f MiB, bound %.3f; by step %s\n", mib(p->arena),
           mib(p->arena_lower), curve_text(a, NULL, y, p->nstep, 60));
    printf("fullest at step %u of %u: %.3f MiB\n", h.step, p->nstep,
           mib(h.bytes));
    peak_list(p, &h, a);
}
