/* peak.c -- who lives where the arena is fullest, and what is made again. */
#include "compiler/planning.h"
#include <stdlib.h>

enum { SHOWN = 8 };

static int larger(const void *a, const void *b)
{
    const Buf *x = *(const Buf *const *)a, *y = *(const Buf *const *)b;
    if (x->stride != y->stride)
        return (x->stride < y->stride) - (x->stride > y->stride);
    return (x->root > y->root) - (x->root < y->root);
}

/* Flops of a step of one rank: all that kernels compute, free copies too. */
static double step_flops(const Graph *g)
{
    double sum = 0;
    for (uint32_t l = 0; l < g->sched->nlaunch; l++) {
        const Launch *q = &g->sched->launch[l];
        int turns = graph_turns(g, g->node[q->node[0]].loop);
        for (int i = 0; i < q->n; i++)
            sum += turns * node_flops(g, q->node[i]);
    }
    return sum;
}

int values_again(const Graph *g)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].again != NONE && g->sched->buf[r].used;
    return n;
}

/* Who lives where one of the two arenas is fullest. */
static void arena_print(const Graph *g, Space space, Arena *a, FILE *out)
{
    const Sched *s = g->sched;
    uint32_t n = 0, peak = space == ARENA ? s->peak : s->host_peak;
    const Buf **live = alloc(a, (g->n + 1) * sizeof(Buf *));
    for (Ref r = 0; r < g->n; r++) {
        const Buf *b = &s->buf[r];
        if (b->used && b->root == r && b->space == space
            && b->born <= peak && peak <= b->dies)
            live[n++] = b;
    }
    qsort(live, n, sizeof *live, larger);
    fprintf(out, "dpc: %s: the %s is fullest at step %u of %u: %.2f MiB, "
            "bound %.2f; %u values live there\n", g->entry,
            space == ARENA ? "arena" : "host's arena", peak, s->nstep,
            mib(s->bytes[space]),
            mib(space == ARENA ? s->lower : s->host_lower), n);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const Node *x = &g->node[live[i]->root];
        fprintf(out, "dpc:   %7.2f MiB  %s = %s, steps %u to %u%s%s\n",
                mib(live[i]->stride), x->name, ops[x->op].name, live[i]->born,
                live[i]->dies, x->loc ? ", " : "", x->loc ? x->loc : "");
    }
}

/* `none`: the same with nothing made again. */
void peak_print(const Graph *g, const Graph *none, Arena *a, FILE *out)
{
    arena_print(g, ARENA, a, out);
    if (g->sched->bytes[HOST_ARENA])
        arena_print(g, HOST_ARENA, a, out);
    double all = step_flops(g), before = step_flops(none);
    if (before > 0 && values_again(g))
        fprintf(out, "dpc: %s: backward makes %d values again: %+.2f %% flops, "
                "arena %.2f MiB of %.2f\n", g->entry, values_again(g),
                100 * (all / before - 1), mib(g->sched->bytes[ARENA]),
                mib(none->sched->bytes[ARENA]));
    if (g->remade > 0)
        fprintf(out, "dpc: %s: what was chosen of that takes %.2f ms; no "
                "choice of as low a peak less than %.2f\n", g->entry,
                1e3 * g->remade, 1e3 * g->remade_least);
}
