/* clock_roles.c -- the schedules of all roles, run by the clock.
 *
 * Each stream of a role takes its steps in order, a step begins when its
 * stream is free and what it awaits is over, and a hop when both of its ends
 * have come: so do the streams of the runtime.  All ranks of a role do the
 * same at the same time, so one stands for them, and roles meet by their hops
 * only.  A list is an order in which its own steps can run; each role is
 * walked up to its next hop, then the hops that have met are over, and again:
 * the lists are projections of one order, so somebody can always go on.
 *
 * Run once more with transfers that take no time, a role still waits where
 * the order of the pipeline has nothing for it: the bubble.  What it waits
 * beyond that is communication that nothing hides. */
#include "passes/clock.h"

typedef struct Actor {
    Timeline *t;
    const Sched *s;
    uint32_t at;                          /* step: a hop, or the end */
    double now[NSTREAM], *done;           /* done: by event */
    double ready, over;                   /* of the hop: since when it waits,
                                             end of what has met */
    bool here, *met;                      /* of its members */
    int left;                             /* that have not */
} Actor;

typedef struct Stage {
    Actor *role;
    int n;
    const Job *j;
    double scale;                         /* of the seconds of transfers */
} Stage;

static const Node *member(const Actor *a, int i)
{
    const Launch *l = &a->s->launch[a->s->step[a->at].launch];
    return &a->t->g->node[l->node[i]];
}

static int members(const Actor *a)
{
    return a->s->launch[a->s->step[a->at].launch].n;
}

static bool at_hop(const Actor *a)
{
    return a->at < a->s->nstep
        && ops[member(a, 0)->op].family == FAMILY_hop;
}

static double begin_of(const Actor *a, const Step *q)
{
    double t = a->now[q->stream];
    for (uint32_t i = 0; i < q->nwait; i++)
        t = a->done[q->wait[i]] > t ? a->done[q->wait[i]] : t;
    return t;
}

static void step_end(Actor *a, double begin, double end)
{
    const Step *q = &a->s->step[a->at];
    a->t->begin[a->at] = begin;
    a->t->end[a->at++] = a->now[q->stream] = end;
    if (q->event >= 0)
        a->done[q->event] = end;
}

/* Up to the next hop, which is ready then.  True: it moved. */
static bool go_on(const Stage *c, Actor *a)
{
    uint32_t was = a->at;
    if (a->here && a->left)
        return false;
    if (a->here)
        step_end(a, a->ready, a->over);
    a->here = false;
    while (a->at < a->s->nstep && !at_hop(a)) {
        const Step *q = &a->s->step[a->at];
        double t = begin_of(a, q);
        step_end(a, t, t + a->t->takes[a->at] * (q->stream ? c->scale : 1));
    }
    if (at_hop(a)) {
        a->here = true;
        a->ready = a->over = begin_of(a, &a->s->step[a->at]);
        a->left = members(a);
        memset(a->met, 0, (size_t)a->left * sizeof *a->met);
    }
    return a->at != was || a->here;
}

/* The first member that waits for that role in that way; -1. */
static int waiting(const Actor *a, int peer, Op op)
{
    for (int i = 0; a->here && i < members(a); i++)
        if (!a->met[i] && member(a, i)->attr.peer == peer
            && member(a, i)->op == op)
            return i;
    return -1;
}

/* What has met goes one behind the other, after one latency. */
static void goes(Actor *a, double begin, double latency, double takes)
{
    bool first = a->left == members(a);
    a->over = begin > a->over ? begin : a->over;
    a->over += first ? takes : takes - latency;
    a->left--;
}

/* Members of a's hop whose other ends are there, too. */
static bool meet(Stage *c, int role)
{
    Actor *a = &c->role[role];
    bool moved = false;
    for (int i = 0; a->here && i < members(a); i++) {
        const Node *n = member(a, i);
        Actor *b = &c->role[n->attr.peer];
        if (waiting(a, n->attr.peer, n->op) != i)
            continue;
        int k = waiting(b, role, n->op == OP_send ? OP_recv : OP_send);
        if (k < 0)
            continue;
        double t = a->ready > b->ready ? a->ready : b->ready;
        Ref r = a->s->launch[a->s->step[a->at].launch].node[i];
        const Cluster *link = c->j->cluster;
        double latency = c->scale * hops_seconds(a->t->g, NULL, 0, link);
        double takes = c->scale * hops_seconds(a->t->g, &r, 1, link);
        goes(a, t, latency, takes);
        goes(b, t, latency, takes);
        a->met[i] = b->met[k] = moved = true;
    }
    return moved;
}

static void actor_open(Actor *a, Timeline *t, Arena *s)
{
    *a = (Actor){ .t = t, .s = t->g->sched };
    int most = 1;
    for (uint32_t l = 0; l < a->s->nlaunch; l++)
        most = a->s->launch[l].n > most ? a->s->launch[l].n : most;
    a->met = alloc(s, (size_t)most * sizeof *a->met);
    a->done = alloc(s, ((size_t)a->s->nevent + 1) * sizeof *a->done);
}

/* Seconds until the last role is through. */
static double run(Timeline *role, int n, const Job *j, double scale)
{
    Stage c = { .n = n, .j = j, .scale = scale };
    c.role = alloc(j->scratch, (size_t)n * sizeof *c.role);
    for (int i = 0; i < n; i++)
        actor_open(&c.role[i], &role[i], j->scratch);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++)
            moved |= go_on(&c, &c.role[i]);
        for (int i = 0; i < n; i++)
            moved |= meet(&c, i);
    }
    double last = 0;
    for (int i = 0; i < n; i++) {
        Actor *a = &c.role[i];
        if (a->at < a->s->nstep)
            die("clock: role %d waits in vain at step %u", i, a->at);
        for (int k = 0; k < NSTREAM; k++)
            last = a->now[k] > last ? a->now[k] : last;
    }
    return last;
}

/* What a role does by itself. */
static void alone(Timeline *t, const Job *j)
{
    const Graph *g = t->g;
    const Sched *s = g->sched;
    clock_takes(g, j, t->takes);
    t->spent = (Spent){ 0 };
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Launch *l = &s->launch[s->step[k].launch];
        bool sends = s->step[k].stream != 0;
        *(sends ? &t->spent.communicate : &t->spent.compute) += t->takes[k];
        for (int i = 0; sends && i < l->n; i++)
            if (g->node[l->node[i]].op != OP_recv)
                t->spent.bytes += transfer_bytes(g, l->node[i]);
    }
}

static void timeline_room(Timeline *t, Arena *a)
{
    size_t n = (size_t)t->g->sched->nstep + 1;
    t->takes = alloc(a, n * sizeof *t->takes);
    t->begin = alloc(a, n * sizeof *t->begin);
    t->end = alloc(a, n * sizeof *t->end);
}

double clock_roles(Timeline *role, int n, const Job *j)
{
    for (int i = 0; i < n; i++) {
        timeline_room(&role[i], j->scratch);
        alone(&role[i], j);
    }
    double silent = n > 1 ? run(role, n, j, 0) : role[0].spent.compute;
    double step = run(role, n, j, 1)
        + (j->cluster ? j->cluster->rates.step : 0);
    for (int i = 0; i < n; i++) {
        role[i].spent.step = step;
        role[i].spent.bubble = silent - role[i].spent.compute;
    }
    return step;
}

double spent_exposed(const Spent *s)
{
    return s->step - s->compute - s->bubble;
}

Spent clock_spent(const Graph *g, const Job *j, double *takes)
{
    Timeline t = { .g = g };
    clock_roles(&t, 1, j);
    memcpy(takes, t.takes, (g->sched->nstep) * sizeof *takes);
    return t.spent;
}
