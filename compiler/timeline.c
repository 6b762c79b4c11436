/* timeline.c -- what the clock's walk over a schedule says of it: how much of
 * the time is useful, and what the arena holds when.
 *
 * MFU, as in "PaLM" (Chowdhery et al. 2022, appendix B): the seconds that the
 * products of a step would take at the peak of the device, over those that the
 * step takes.  What is made again is no use. */
#include "compiler/curve.h"
#include "compiler/planning.h"

enum { PLACES = 48 };                     /* of a printed curve */

typedef struct Room {
    const Graph *g;
    Arena *a;
    Span *span;
    uint32_t n, cap, *of;                 /* of (node, instance): span + 1 */
    int turns;
} Room;

static void span_use(Room *m, Ref r, int turn, uint32_t step)
{
    const Graph *g = m->g;
    Ref root = g->sched->buf[view_root(g, r)].root;
    const Buf *b = &g->sched->buf[root];
    if (!b->used || b->space != ARENA)
        return;
    int k = turn_instance(&g->mesh, node_along(g, root), turn);
    uint32_t *at = &m->of[(size_t)root * (size_t)m->turns + (size_t)k];
    if (!*at) {
        GROW(m->a, m->span, m->n, m->cap);
        m->span[m->n++] = (Span){ buf_place(b, k), b->size, step, step, root,
                                  k };
        *at = m->n;
    }
    m->span[*at - 1].last = step;
}

Span *arena_spans(const Graph *g, uint32_t *n, Arena *a)
{
    Room m = { .g = g, .a = a };
    m.turns = graph_turns(g, mesh_axes(&g->mesh, TIME));
    m.of = alloc(a, ((size_t)g->n * (size_t)m.turns + 1) * sizeof *m.of);
    for (uint32_t k = 0; k < g->sched->nstep; k++) {
        const Step *q = &g->sched->step[k];
        const Launch *l = &g->sched->launch[q->launch];
        for (int i = 0; i < l->n; i++) {
            span_use(&m, l->node[i], q->turn, k);
            for (int o = 0; o < g->node[l->node[i]].nin; o++)
                span_use(&m, g->node[l->node[i]].in[o], q->turn, k);
        }
        if (l->scratch > 0) {
            GROW(a, m.span, m.n, m.cap);
            m.span[m.n++] = (Span){ q->scratch_at, l->scratch, k, k,
                                    l->node[0], -1 };
        }
    }
    *n = m.n;
    return m.span;
}

static bool is_product(const Node *n)
{
    return n->op == OP_dot || ops[n->op].family == FAMILY_conv
        || ops[n->op].family == FAMILY_attention;
}

static double peak_of(const Job *j, DType t)
{
    double peak = j->cluster->peak[t];
    return peak > 0 ? peak : j->cluster->rates.flops[t] > 0
         ? j->cluster->rates.flops[t] : j->target->flops[t];
}

Use use_of(const Graph *g, const Job *j)
{
    Use u = { 0, 0, 0 };
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (!is_product(n))
            continue;
        double flops = graph_turns(g, n->loop) * node_flops(g, r);
        double peak = peak_of(j, g->node[n->in[0]].type.dtype);
        *(n->again == NONE ? &u.flops : &u.again) += flops;
        if (n->again == NONE && peak > 0)
            u.seconds += flops / peak;
    }
    return u;
}

double mfu_of(const Timeline *role, int n, const Job *j)
{
    double seconds = 0;
    for (int i = 0; i < n; i++)
        seconds += use_of(role[i].g, j).seconds;
    return role[0].spent.step > 0 ? seconds / n / role[0].spent.step : 0;
}

double bubble_share(const Timeline *role, int n)
{
    double idle = 0, all = 0;
    for (int i = 0; i < n; i++) {
        idle += role[i].spent.bubble;
        all += role[i].spent.bubble + role[i].spent.compute;
    }
    return all > 0 ? idle / all : 0;
}

double exposed_share(const Timeline *role, int n)
{
    double bare = 0, all = 0;
    for (int i = 0; i < n; i++) {
        bare += spent_exposed(&role[i].spent);
        all += role[i].spent.step;
    }
    return all > 0 ? bare / all : 0;
}

Memory memory_of(const Timeline *t, Arena *a)
{
    const Sched *s = t->g->sched;
    Memory m = { .n = 0 };
    m.span = arena_spans(t->g, &m.nspan, a);
    m.alive = spans_alive(m.span, m.nspan, s->nstep, a);
    m.at = alloc(a, ((size_t)s->nstep + 2) * sizeof *m.at);
    m.bytes = alloc(a, ((size_t)s->nstep + 2) * sizeof *m.bytes);
    for (uint32_t k = 0; k < s->nstep; k++) {
        if (s->step[k].stream != STREAM_COMPUTE)
            continue;
        if (m.alive[k] > m.most)
            m.most = m.alive[k], m.step = k;
        if (m.n && m.bytes[m.n - 1] == (double)m.alive[k])
            continue;
        m.at[m.n] = t->begin[k];
        m.bytes[m.n++] = (double)m.alive[k];
    }
    m.at[m.n] = t->spent.step;
    return m;
}

void memory_line(const Timeline *t, Arena *a, FILE *out)
{
    Memory m = memory_of(t, a);
    if (!m.n)
        return;
    m.at[0] = 0;
    fprintf(out, "arena %s most %.1f MiB at %.3f ms\n",
            curve_text(a, m.at, m.bytes, m.n, PLACES), mib(m.most),
            1e3 * t->begin[m.step]);
}
