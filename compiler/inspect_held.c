/* inspect_held.c -- what the arena of a binary holds, by its tables alone: a
 * buffer lives from the first step that names it to the last. */
#include "compiler/curve.h"
#include "compiler/inspect.h"
#include "compiler/planning.h"

enum { SHOWN = 10, PLACES = 60 };

Held held_of(const DpcProgram *p, Arena *a)
{
    Held h = { .nstep = p->nstep };
    uint32_t *of = alloc(a, ((size_t)p->nbuf + 1) * sizeof *of);
    h.span = alloc(a, ((size_t)p->nbuf + 1) * sizeof *h.span);
    for (uint32_t k = 0; k < p->nstep; k++)
        for (uint32_t i = 0; i < p->step[k].narg; i++) {
            uint32_t b = p->arg[p->step[k].arg + i];
            if (p->buf[b].space != DPC_ARENA)
                continue;
            if (!of[b]) {
                of[b] = ++h.n;
                h.span[h.n - 1] = (Span){ p->buf[b].at, p->buf[b].size, k, k,
                                          b, 0 };
            }
            h.span[of[b] - 1].last = k;
        }
    h.alive = spans_alive(h.span, h.n, h.nstep, a);
    for (uint32_t k = 0; k < h.nstep; k++)
        if (h.alive[k] > h.bytes)
            h.bytes = h.alive[k], h.step = k;
    return h;
}

/* Buffers at the peak, the largest first; the step that makes each. */
static void peak_list(const DpcProgram *p, const Held *h, Arena *a)
{
    uint32_t n;
    const Span *live = spans_at(h->span, h->n, h->step, &n, a);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const DpcBuf *b = &p->buf[live[i].id];
        const DpcNode *x = &p->node[p->step[live[i].first].node];
        printf("  %9.3f MiB at %-11lld buffer %u, steps %u to %u: %s %s (%s)\n",
               mib(b->size), (long long)b->at, live[i].id, live[i].first,
               live[i].last, b->value ? x->op : "scratch of", x->name, x->loc);
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
           mib(p->arena_lower), curve_text(a, NULL, y, p->nstep, PLACES));
    printf("fullest at step %u of %u: %.3f MiB\n", h.step, p->nstep,
           mib(h.bytes));
    peak_list(p, &h, a);
}
