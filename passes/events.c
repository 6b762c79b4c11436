/* events.c -- waits between streams, from byte ranges; the only pass that
 * makes them.
 *
 * Each stream runs its steps in order.  Between streams a step must wait for
 * the last earlier step that wrote bytes it touches, and before writing, for
 * the last that read them.  Since a stream is a queue, waiting for one of its
 * steps waits for all before it: a vector clock per stream tells which waits
 * are implied already, so that none is superfluous (architecture.md C5). */
#include "passes/pass.h"

typedef struct Range {
    Space space;
    Ref leaf;                             /* of LEAVES; else NONE */
    int64_t from, to;                     /* bytes */
    bool write;
} Range;
typedef struct Touch { Range *range; int n; } Touch;

static Range range_of(const Graph *g, Ref r, int turn, bool write)
{
    const Buf *b = &g->sched->buf[view_root(g, r)];
    const Buf *root = &g->sched->buf[b->root];
    int k = turn_instance(&g->mesh, node_along(g, b->root), turn);
    int64_t at = buf_place(root, k) + b->off;
    Range x = { root->space, space_leaves(root->space) ? b->root : NONE, at,
                at + root->size, write };
    return x;
}

static Touch touches(const Graph *g, const Step *q, const uint32_t *uses,
                     Arena *a)
{
    const Launch *l = &g->sched->launch[q->launch];
    int max = launch_operands(g, l), n;
    Ref *x = alloc(a, (size_t)max * sizeof *x);
    Touch t = { alloc(a, (size_t)(2 * max + 1) * sizeof *t.range), 0 };
    n = launch_inputs(g, l, x, max);
    for (int i = 0; i < n; i++)
        if (g->sched->buf[g->sched->buf[view_root(g, x[i])].root].used)
            t.range[t.n++] = range_of(g, x[i], q->turn, false);
    n = launch_outputs(g, l, uses, x, max);
    for (int i = 0; i < n; i++)
        t.range[t.n++] = range_of(g, x[i], q->turn, true);
    if (l->scratch > 0)
        t.range[t.n++] = (Range){ ARENA, NONE, q->scratch_at,
                                  q->scratch_at + l->scratch, true };
    return t;
}

static bool conflict(const Touch *a, const Touch *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            const Range *x = &a->range[i], *y = &b->range[k];
            if ((x->write || y->write) && x->space == y->space
                && x->leaf == y->leaf && x->from < y->to && y->from < x->to)
                return true;
        }
    return false;
}

typedef struct Clock {
    int64_t seen[NSTREAM];                /* last step known done; -1 none */
} Clock;

static void clock_join(Clock *a, const Clock *b)
{
    for (int i = 0; i < NSTREAM; i++)
        a->seen[i] = b->seen[i] > a->seen[i] ? b->seen[i] : a->seen[i];
}

static void wait_for(Sched *s, Step *q, uint32_t k, Arena *keep)
{
    Step *p = &s->step[k];
    if (p->event < 0)
        p->event = s->nevent++;
    int *wait = alloc(keep, (q->nwait + 1) * sizeof *wait);
    for (uint32_t i = 0; i < q->nwait; i++)
        wait[i] = q->wait[i];
    wait[q->nwait++] = p->event;
    q->wait = wait;
}

/* The steps of one stream so far. */
typedef struct Queue { uint32_t *step, n; } Queue;

/* The last of another stream that step k must see done; -1: none. */
static int64_t last_conflict(const Queue *q, const Touch *t, uint32_t k,
                             int64_t seen)
{
    for (uint32_t i = q->n; i-- > 0 && q->step[i] > seen;)
        if (conflict(&t[q->step[i]], &t[k]))
            return q->step[i];
    return -1;
}

static void make_waits(Sched *s, const Touch *t, Job *j)
{
    Clock *after = alloc(j->scratch, (s->nstep + 1) * sizeof *after);
    Clock now[NSTREAM];
    Queue queue[NSTREAM];
    bool two = sched_transfers(s);
    for (int i = 0; i < NSTREAM; i++)
        queue[i] = (Queue){ alloc(j->scratch, (s->nstep + 1)
                                  * sizeof *queue->step), 0 };
    memset(now, 0xff, sizeof now);
    for (uint32_t k = 0; two && k < s->nstep; k++) {
        Step *q = &s->step[k];
        Clock *c = &now[q->stream];
        for (int other = 0; other < NSTREAM; other++) {
            int64_t p = other == q->stream ? -1
                : last_conflict(&queue[other], t, k, c->seen[other]);
            if (p < 0)
                continue;
            wait_for(s, q, (uint32_t)p, j->keep);
            clock_join(c, &after[p]);
        }
        queue[q->stream].step[queue[q->stream].n++] = k;
        c->seen[q->stream] = k;
        after[k] = *c;
    }
}

Graph *pass_events(const Graph *in, Job *j)
{
    Graph *g = copy_whole(in, j);
    Sched *s = g->sched = alloc(j->keep, sizeof *s);
    *s = *in->sched;
    s->step = alloc(j->keep, (s->nstep + 1) * sizeof *s->step);
    memcpy(s->step, in->sched->step, s->nstep * sizeof *s->step);
    uint32_t *uses = graph_uses(g, j->scratch);
    Touch *t = alloc(j->scratch, (s->nstep + 1) * sizeof *t);
    for (uint32_t k = 0; k < s->nstep; k++)
        t[k] = touches(g, &s->step[k], uses, j->scratch);
    make_waits(s, t, j);
    return g;
}
