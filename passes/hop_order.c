/* hop_order.c -- the order of a pipeline, from its graph.
 *
 * What each stage's segments take in a turn, and which wait for which, gives
 * the list of chunks (chunk.c) by which `order` goes.  A hop of every turn has
 * its place by the chunk that makes it; one that is made once says behind
 * which chunk it comes (attribute `at`): the last of those that it hangs on,
 * and no sooner than the hops before it, so that those stand in the order of
 * the graph. */
#include "ir/text.h"
#include "passes/chunk.h"
#include "passes/clock.h"

static Axes turns_of(const Graph *g, const Node *n)
{
    Axes a = type_axes(&n->type);
    for (int i = 0; i < n->nin; i++)
        a |= type_axes(&g->node[n->in[i]].type);
    return a & mesh_axes(&g->mesh, TIME);
}

static int turn_count(const Graph *g)
{
    return (int)mesh_size(&g->mesh, mesh_axes(&g->mesh, TIME));
}

/* Does a value of that segment lie in a chunk, by its axes? */
static bool each_turn(const Graph *g, Segment s, Axes turns)
{
    return s >= FORWARD && s <= WEIGHT && (turns || turn_count(g) == 1);
}

static bool in_chunk(const Graph *g, const Node *n)
{
    return n->stage != EVERY && !ops[n->op].leaf && n->op != OP_hop
        && each_turn(g, n->segment, turns_of(g, n));
}

/* ---- what a chunk takes ---- */

/* Contractions as they are; the rest runs beside its neighbours. */
static double seconds(const Graph *g, Ref r, const Job *j)
{
    enum { TOGETHER = 4 };
    const Node *n = &g->node[r];
    Launch l = { .n = 1, .node = &r };
    Family f = ops[n->op].family;
    bool alone = n->op == OP_dot || f == FAMILY_conv || f == FAMILY_attention
        || f == FAMILY_take;
    if (f == FAMILY_collective || !j->target || j->target->bandwidth <= 0)
        return 0;
    return launch_seconds(g, &l, j) / (alone ? 1 : TOGETHER);
}

/* Where no machine is known, all chunks take alike. */
static const double *costs(const Graph *g, const Job *j)
{
    size_t n = (size_t)(g->nstage * NSEGMENT);
    double *cost = alloc(j->scratch, (n + 1) * sizeof *cost), sum = 0;
    for (size_t i = 0; i < n; i++)
        cost[i] = -1;
    for (Ref r = 0; r < g->n; r++) {
        const Node *m = &g->node[r];
        if (!in_chunk(g, m))
            continue;
        double *c = &cost[m->stage * NSEGMENT + (int)(m->segment - FORWARD)];
        double s = seconds(g, r, j);
        *c = (*c < 0 ? 0 : *c) + s, sum += s;
    }
    for (size_t i = 0; i < n; i++)        /* a chunk takes some time */
        cost[i] = cost[i] < 0 ? -1 : sum > 0 ? cost[i] + 1e-6 * sum : 1;
    return cost;
}

/* ---- which waits for which ---- */

static const uint8_t *feeds_of(const Graph *g, Arena *a)
{
    size_t n = (size_t)g->nstage * (size_t)g->nstage;
    uint8_t *feeds = alloc(a, n + 1);
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++) {
            const Node *m = &g->node[r], *x = &g->node[m->in[i]];
            if (x->op != OP_hop || x->attr.to == EVERY || !in_chunk(g, m)
                || !each_turn(g, x->segment, turns_of(g, x)))
                continue;
            uint8_t *f = &feeds[x->attr.from * g->nstage + x->attr.to];
            bool later = m->segment != x->segment && x->segment == FORWARD;
            *f |= later ? FEEDS_LATER : m->segment == FORWARD ? FEEDS_FORWARD
                : FEEDS_BACKWARD;
        }
    return feeds;
}

/* A value of stage `from` that stage `to` reads, for a message. */
static const Node *hop_between(const Graph *g, int from, int to)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_hop && g->node[r].attr.from == from
            && g->node[r].attr.to == to)
            return &g->node[r];
    return &g->node[0];
}

/* Stages that wait for each other in one segment: each is taken away that
 * waits for none that is left; what stays is a circle, or behind one. */
static void refuse_rings(const Graph *g, const uint8_t *feeds, uint8_t bit,
                         Arena *a)
{
    int n = g->nstage, left = n;
    bool *gone = alloc(a, (size_t)n + 1);
    for (bool more = true; more;) {
        more = false;
        for (int t = 0; t < n; t++) {
            bool waits = false;
            for (int s = 0; s < n; s++)
                waits |= !gone[s] && feeds[s * n + t] & bit;
            if (!waits && !gone[t])
                gone[t] = more = true, left--;
        }
    }
    for (int s = 0; left && s < n; s++)
        for (int t = 0; t < s; t++)
            if (!gone[s] && !gone[t] && feeds[s * n + t] & bit) {
                const Node *x = hop_between(g, s, t);
                note(x->loc, "stage %d makes \"%s\", which stage %d reads", s,
                     x->name, t);
                err(x->loc, "plan: stages %d and %d wait for each other in "
                    "one micro-batch; values may only go forward, or make "
                    "them one stage", t, s);
            }
}

/* ---- the list that a plan gives ---- */

static bool is_wanted(const Graph *g, const double *cost, const Chunk *c)
{
    return c->turn < turn_count(g) && c->stage < g->nstage
        && cost[c->stage * NSEGMENT + (int)(c->segment - FORWARD)] >= 0;
}

/* The line of the plan's text where the chunk stands, the k-th time
 * after the first; NULL: of the order. */
static const char *chunk_loc(const Plan *p, const char *name, int k, Arena *a)
{
    const char *quoted = name ? fmt(a, "\"%s\"", name) : "";
    const char *order = p->text ? strstr(p->text, "order") : NULL, *at = order;
    int line = 1;
    while (at && (at = strstr(at, quoted)) && k-- > 0)
        at += strlen(quoted);
    for (const char *q = p->text; at && q < at; q++)
        line += *q == '\n';
    return at ? fmt(a, "%s:%d", p->path, line) : p->path ? p->path : "plan";
}

/* Why the chunk cannot stand there: `next` is the turn that its own segment
 * of its stage has come to, `before` that of the segment it follows. */
static _Noreturn void refuse_chunk(const Plan *p, const Chunk *c, int next,
                                   int before, Arena *a)
{
    const char *seg = segment_names[c->segment];
    const char *name = fmt(a, "%s.%d.%d", seg, c->stage, c->turn);
    if (next > c->turn)
        err(chunk_loc(p, name, 1, a), "order: chunk \"%s\" stands there twice",
            name);
    const char *first = next < c->turn
        ? fmt(a, "%s.%d.%d", seg, c->stage, next)
        : fmt(a, "%s.%d.%d", segment_names[c->segment - 1], c->stage, before);
    err(chunk_loc(p, name, 0, a), "order: chunk \"%s\" comes too soon: \"%s\" "
        "comes before it", name, first);
}

/* Each chunk once, turns of one in order, backward behind forward. */
static void check_given(const Graph *g, const double *cost, const Plan *p,
                        Arena *a)
{
    static const char *const names[] = { "forward", "backward", "weight" };
    int *done = alloc(a, ((size_t)g->nstage * NSEGMENT + 1) * sizeof *done);
    int turns = turn_count(g);
    for (uint32_t i = 0; i < p->nchunk; i++) {
        const Chunk *c = &p->chunk[i];
        int seg = (int)(c->segment - FORWARD);
        int *at = &done[c->stage * NSEGMENT];
        bool behind = !seg || cost[c->stage * NSEGMENT + seg - 1] < 0
            || at[seg - 1] > c->turn;
        if (!is_wanted(g, cost, c)) {
            const char *name = fmt(a, "%s.%d.%d", names[seg], c->stage,
                                   c->turn);
            err(chunk_loc(p, name, 0, a), "order: entry \"%s\" has no chunk "
                "\"%s\"", g->entry, name);
        }
        if (at[seg] != c->turn || !behind)
            refuse_chunk(p, c, at[seg], seg ? at[seg - 1] : 0, a);
        at[seg]++;
    }
    for (int s = 0; s < g->nstage; s++)
        for (int seg = 0; seg < NSEGMENT; seg++)
            if (cost[s * NSEGMENT + seg] >= 0
                && done[s * NSEGMENT + seg] < turns)
                err(chunk_loc(p, NULL, 0, a), "order: chunk \"%s.%d.%d\" is "
                    "missing", names[seg], s, done[s * NSEGMENT + seg]);
}

static bool trains(const Graph *g, const double *cost)
{
    for (int s = 0; s < g->nstage; s++)
        if (cost[s * NSEGMENT + 1] >= 0)
            return true;
    return false;
}

/* A list is of the entry that trains; others go forward alone. */
static void order_chunks(Graph *g, const Job *j)
{
    const Plan *p = j->plan;
    Pipe pipe = { .nstage = g->nstage, .role_of = g->role_of,
                  .nrole = (int)mesh_size(&g->mesh,
                                          mesh_axes(&g->mesh, STAGE)),
                  .nturn = turn_count(g), .cost = costs(g, j),
                  .feeds = feeds_of(g, j->scratch), .alive = p->alive };
    refuse_rings(g, pipe.feeds, FEEDS_FORWARD, j->scratch);
    refuse_rings(g, pipe.feeds, FEEDS_BACKWARD, j->scratch);
    bool given = p->pattern == GIVEN && trains(g, pipe.cost);
    if (given) {
        check_given(g, pipe.cost, p, j->scratch);
        g->chunk = p->chunk, g->nchunk = p->nchunk;
        return;
    }
    Timetable t = pipe_order(&pipe, p->pattern == GIVEN ? GPIPE : p->pattern,
                            j->scratch);
    g->nchunk = t.n;
    g->chunk = alloc(g->arena, (t.n + 1) * sizeof *g->chunk);
    memcpy(g->chunk, t.chunk, t.n * sizeof *g->chunk);
}

/* ---- what is made once ---- */

/* The first, or the last, chunk of each segment of a stage; -1. */
static int *ends_of(const Graph *g, bool last, Arena *a)
{
    size_t n = (size_t)(g->nstage * NSEGMENT);
    int *end = alloc(a, (n + 1) * sizeof *end);
    for (size_t i = 0; i < n; i++)
        end[i] = -1;
    for (uint32_t i = 0; i < g->nchunk; i++) {
        const Chunk *c = &g->chunk[i];
        int *e = &end[c->stage * NSEGMENT + (int)(c->segment - FORWARD)];
        *e = last || *e < 0 ? (int)i : *e;
    }
    return end;
}

static int of_stage(const int *end, Segment s, int stage)
{
    int c = end[stage * NSEGMENT + (int)(s - FORWARD)];
    return c < 0 && s == WEIGHT ? end[stage * NSEGMENT + 1] : c;
}

static void raise(int *to, int than)
{
    *to = than > *to ? than : *to;
}

/* The axes that say which part a turn has: up to the last of time. */
static Split turns_part(const Graph *g, Split s)
{
    Split part = 0;
    for (int at = 0; s >> at; at += 4)
        if (mesh_axes(&g->mesh, TIME) >> ((s >> at & 15) - 1) & 1)
            part = s & (((Split)16 << at) - 1);
    return part;
}

/* Does a value of every turn take parts of all turns?  So does a reshard whose
 * turns come to have other parts. */
static bool joins_turns(const Graph *g, const Node *n, const Node *from)
{
    bool joins = !(type_axes(&from->type) & mesh_axes(&g->mesh, TIME));
    for (int d = 0; n->op == OP_reshard && d < n->type.ndim; d++)
        joins |= turns_part(g, n->type.split[d])
            != turns_part(g, from->type.split[d]);
    return joins;
}

/* By node, of what it hangs on, -1 for nothing: the last chunk; the last whose
 * hop it needs in all turns; and of those, in whichever turn it is made. */
typedef struct Hang { int chunk, hop, joined; } Hang;

static Hang hang_of(const Graph *g, Ref r, const Hang *h, const int *end)
{
    const Node *n = &g->node[r];
    Hang x = { -1, -1, -1 };
    bool turns = turns_of(g, n), hop = n->op == OP_hop;
    for (int i = 0; i < n->nin; i++) {
        Ref q = n->in[i];
        bool joins = joins_turns(g, n, &g->node[q]);
        raise(&x.chunk, h[q].chunk);
        raise(&x.hop, h[q].hop);
        raise(&x.joined, turns && !joins ? h[q].joined : h[q].hop);
    }
    if (in_chunk(g, n))
        raise(&x.chunk, of_stage(end, n->segment, n->stage));
    if (hop && each_turn(g, n->segment, turns_of(g, n)))
        raise(&x.hop, of_stage(end, n->segment, n->attr.from));
    return x;
}

/* A hop of each turn that needs others of all turns, which the order has come
 * later. */
static void refuse_late(const Graph *g, const Node *n, const Hang *h,
                        const int *first, const Job *j)
{
    if (turn_count(g) > 1 && h->joined >= 0
        && h->joined >= of_stage(first, n->segment, n->attr.from))
        err(n->loc, "plan: order \"%s\": \"%s\" goes from stage %d to stage "
            "%d in every micro-batch, and needs all of them, which some stage "
            "has not made by then; take order \"gpipe\", or one micro-batch",
            pattern_names[j->plan->pattern], n->name, n->attr.from,
            n->attr.to);
}

void hop_order(Graph *g, const Job *j)
{
    order_chunks(g, j);
    const int *first = ends_of(g, false, j->scratch);
    const int *end = ends_of(g, true, j->scratch);
    Hang *h = alloc(j->scratch, (g->n + 1) * sizeof *h);
    int least = 0;
    for (Ref r = 0; r < g->n; r++) {
        Node *n = &g->node[r];
        h[r] = hang_of(g, r, h, end);
        if (n->op != OP_hop || n->segment <= BEGIN)
            continue;
        if (each_turn(g, n->segment, turns_of(g, n))) {
            refuse_late(g, n, &h[r], first, j);
            continue;
        }
        raise(&least, h[r].chunk);
        raise(&h[r].hop, least);
        n->attr.at = least + 1;
    }
}
