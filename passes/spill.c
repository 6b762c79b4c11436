/* spill.c -- values that wait for backward do so in the host's memory.
 *
 * Where the plan's word "offload" lists "activations", a value that forward
 * keeps is copied out when it is made, and back before backward reads it
 * (Rhu et al., "vDNN", MICRO 2016).  The pass comes behind `fuse`, so it
 * knows what lies in memory at all, and no kernel is another one for it.
 * The order without copies is tried on the clock: a value is worth the way
 * when it rests for longer than the copies take, of which the one back begins
 * up to twice its time ahead (order.c).  Most bytes times seconds of rest go
 * first, while all copies together take no longer than the step. */
#include "passes/clock.h"
#include "passes/offload.h"
#include <math.h>
#include <stdlib.h>

enum { REST = 4 };                        /* times its copy, at the least */

/* Seconds of the step: forward is done with an instance; backward reads it. */
typedef struct Rest { double from, to; } Rest;

typedef struct Kept { Ref r; double worth, copies; } Kept;

typedef struct Spill {
    const Graph *g;                       /* scheduled, without copies */
    Arena *scratch;
    double *begin, *end;                  /* by step */
    uint32_t nturn;
    Rest *rest;                           /* node x turn */
    bool *may;                            /* by node */
} Spill;

static bool is_late(const Node *n)
{
    return n->segment == BACKWARD || n->segment == WEIGHT;
}

/* A pack is what one library call reads, and has bytes of its own. */
static bool is_kept_here(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    bool leaf = ops[n->op].leaf && n->kernel < 0;
    return n->segment == FORWARD && n->place == DEVICE && !leaf
        && n->op != OP_pack
        && !node_is_view(n)
        && node_along(g, r) == (n->loop & mesh_axes(&g->mesh, TIME));
}

/* Those of which all readers work in forward or backward, once for each of
 * their instances. */
static void find_may(Spill *s)
{
    const Graph *g = s->g;
    for (Ref r = 0; r < g->n; r++)
        s->may[r] = is_kept_here(g, r);
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++) {
            const Node *n = &g->node[r];
            Ref x = view_root(g, n->in[i]);
            if ((n->segment != FORWARD && !is_late(n))
                || g->node[x].loop & (Axes)~n->loop)
                s->may[x] = false;
        }
    for (uint32_t i = 0; i < g->nset; i++)
        s->may[view_root(g, g->set[i].value)] = false;
    for (uint32_t i = 0; i < g->nout; i++)
        s->may[view_root(g, g->out[i].ref)] = false;
}

static Rest *rest_at(const Spill *s, Ref r, int turn)
{
    int k = turn_instance(&s->g->mesh, node_along(s->g, r), turn);
    return &s->rest[r * s->nturn + (uint32_t)k];
}

static void read_at(Spill *s, Ref x, const Node *by, uint32_t step)
{
    if (!s->may[x])
        return;
    Rest *q = rest_at(s, x, s->g->sched->step[step].turn);
    if (is_late(by))
        q->to = fmin(q->to, s->begin[step]);
    else
        q->from = fmax(q->from, s->end[step]);
}

static void find_rests(Spill *s)
{
    const Graph *g = s->g;
    for (Ref i = 0; i < g->n * s->nturn; i++)
        s->rest[i].to = INFINITY;
    for (uint32_t k = 0; k < g->sched->nstep; k++) {
        const Launch *l = &g->sched->launch[g->sched->step[k].launch];
        for (int i = 0; i < l->n; i++) {
            const Node *n = &g->node[l->node[i]];
            read_at(s, l->node[i], n, k); /* made: no sooner */
            for (int q = 0; q < n->nin; q++)
                if (!op_unread(n->op, q))
                    read_at(s, view_root(g, n->in[q]), n, k);
        }
    }
}

/* The shortest rest of its instances; 0 where there is none. */
static double rest_of(const Spill *s, Ref r)
{
    int n = graph_turns(s->g, node_along(s->g, r));
    double least = INFINITY;
    for (int k = 0; k < n; k++) {
        const Rest *q = &s->rest[r * s->nturn + (uint32_t)k];
        least = fmin(least, q->to - q->from);
    }
    return s->may[r] && least < INFINITY && least > 0 ? least : 0;
}

static int by_worth(const void *a, const void *b)
{
    const Kept *x = a, *y = b;
    return x->worth != y->worth ? (x->worth < y->worth) - (x->worth > y->worth)
         : (x->r > y->r) - (x->r < y->r);
}

/* By node: does it go? */
static bool *chosen(const Spill *s, const Job *j)
{
    const Graph *g = s->g;
    Kept *kept = alloc(s->scratch, (g->n + 1) * sizeof *kept);
    bool *go = alloc(s->scratch, g->n + 1);
    double left = g->sched->nstep ? s->end[g->sched->nstep - 1] : 0;
    uint32_t n = 0;
    for (Ref r = 0; r < g->n; r++) {
        double rest = rest_of(s, r), copy = copy_seconds(g, r, j);
        if (rest > REST * copy)
            kept[n++] = (Kept){ r,
                rest * (double)type_bytes(&g->mesh, &g->node[r].type),
                2 * copy * graph_turns(g, g->node[r].loop) };
    }
    qsort(kept, n, sizeof *kept, by_worth);
    for (uint32_t i = 0; i < n; i++)
        if (kept[i].copies <= left)
            go[kept[i].r] = true, left -= kept[i].copies;
    return go;
}

/* Of a graph before `order`: what goes.  NULL: nothing is asked. */
static const bool *spilled(const Graph *in, Job *j)
{
    Job mine = { .keep = j->keep, .plan = j->plan, .target = j->target,
                 .cluster = j->cluster, .prices = j->prices };
    Spill s = { .g = run_passes("order", in, &mine), .scratch = j->scratch };
    const Graph *g = s.g;
    s.nturn = (uint32_t)mesh_size(&g->mesh, mesh_axes(&g->mesh, TIME));
    s.begin = alloc(s.scratch, (g->sched->nstep + 1) * sizeof *s.begin);
    s.end = alloc(s.scratch, (g->sched->nstep + 1) * sizeof *s.end);
    s.rest = alloc(s.scratch, ((size_t)g->n * s.nturn + 1) * sizeof *s.rest);
    s.may = alloc(s.scratch, g->n + 1);
    clock_steps(g, j, s.begin, s.end);
    find_may(&s);
    find_rests(&s);
    return chosen(&s, j);
}

/* ---- copies ---- */

typedef struct Away {
    Copy c;
    Ref *back;                            /* by node: as backward reads it */
} Away;

/* Views of what went are looked at anew. */
static Ref late_form(Away *a, Ref r)
{
    const Node *n = &a->c.in->node[r];
    if (a->back[r] != NONE)
        return a->back[r];
    if (!node_is_view(n) || n->segment != FORWARD)
        return a->c.map[r];
    Ref x = late_form(a, n->in[0]);
    if (x == a->c.map[n->in[0]])
        return a->c.map[r];
    a->back[r] = copy_again(&a->c, r, &x, 1, BACKWARD);
    return a->back[r];
}

static void copy_out_and_in(Away *a, Ref r)
{
    Graph *g = a->c.out;
    Axes loop = a->c.in->node[r].loop;
    Ref out = offload_copy(g, a->c.map[r], HOST, "out");
    Ref in = offload_copy(g, out, DEVICE, "in");
    g->node[out].loop = g->node[in].loop = loop;
    g->node[in].segment = BACKWARD;
    a->back[r] = in;
}

Graph *pass_spill(const Graph *in, Job *j)
{
    if (!j->plan || !offload_says(j->plan->offload, "activations"))
        return copy_none(in);
    const bool *go = spilled(in, j);
    Away a = { .c = copy_begin(in, j) };
    a.back = alloc(j->scratch, (in->n + 1) * sizeof *a.back);
    for (Ref r = 0; r < in->n; r++)
        a.back[r] = NONE;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref *x = alloc(j->scratch, (size_t)(n->nin + 1) * sizeof *x);
        for (int i = 0; i < n->nin; i++)
            x[i] = is_late(n) && !op_unread(n->op, i)
                ? late_form(&a, n->in[i]) : a.c.map[n->in[i]];
        copy_node_in(&a.c, r, x, n->nin);
        if (go[r])
            copy_out_and_in(&a, r);
    }
    return copy_end(&a.c);
}
