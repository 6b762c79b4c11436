/* hop.c -- what one stage makes and another reads comes through a hop.
 *
 * A value hops once to each stage that reads it, or once to EVERY: what is
 * returned, and the new value of a leaf that every stage holds.  A sum over
 * turns is finished before it hops, so that a shared weight's gradient hops
 * once a step.  Sums of scalars of several stages (the norm of all gradients)
 * are first made within each.  A number that is spread over a tensor hops as
 * the number.  The order of the pipeline is fixed here, too: hop_order.c. */
#include "passes/chunk.h"

typedef struct Moved { int to; Ref ref; struct Moved *next; } Moved;

typedef struct Hops {
    Copy c;
    Arena *scratch;
    int *stage;                           /* by node of in */
    bool *every;                          /* by node of in: goes to all */
    bool *summed;                         /* by node of out: owes turns no
                                             more, as it did in `in` */
    uint32_t nsummed;
    Moved **moved;                        /* by node of in */
    int nhop;
} Hops;

/* ---- where the rest works ---- */

/* A broadcast: cheaper to make anew than to send. */
static bool spreads(const Graph *g, Ref x)
{
    const Node *n = &g->node[x];
    return n->op == OP_move
        && type_volume(&n->type) > type_volume(&g->node[n->in[0]].type);
}

/* Elements that would hop for it. */
static int64_t weight(const Graph *g, Ref x)
{
    while (spreads(g, x))
        x = g->node[x].in[0];
    return type_volume(&g->node[x].type);
}

static int derived(const Hops *h, const Node *n)
{
    int stage = EVERY;
    int64_t most = -1;
    for (int i = 0; i < n->nin; i++) {
        int s = h->stage[n->in[i]];
        int64_t v = weight(h->c.in, n->in[i]);
        bool earlier = n->op == OP_total ? s > stage : s < stage;
        if (s == EVERY || op_unread(n->op, i)
            || v < most || (v == most && !earlier))
            continue;
        stage = s, most = v;
    }
    return stage;
}

static void derive(Hops *h)
{
    const Graph *g = h->c.in;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        h->stage[r] = n->stage != EVERY || ops[n->op].leaf ? n->stage
            : derived(h, n);
    }
    for (uint32_t i = 0; i < g->nout; i++)
        h->every[g->out[i].ref] = true;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->node[g->set[i].leaf].stage == EVERY)
            h->every[g->set[i].value] = true;
}

/* ---- hops ---- */

static Axes owed_turns(const Graph *g, Ref r)
{
    return g->node[r].type.partial & mesh_axes(&g->mesh, TIME);
}

static void mark_summed(Hops *h, Ref q)
{
    if (q >= h->nsummed) {
        uint32_t n = 2 * q + 64;
        bool *more = alloc(h->scratch, n);
        if (h->nsummed)
            memcpy(more, h->summed, h->nsummed);
        h->summed = more, h->nsummed = n;
    }
    h->summed[q] = true;
}

static bool is_summed(const Hops *h, Ref q)
{
    return q < h->nsummed && h->summed[q];
}

/* The value with its sums over turns finished. */
static Ref summed(Hops *h, Ref q)
{
    Graph *g = h->c.out;
    const Node n = g->node[q];
    Type t = n.type;
    if (!owed_turns(g, q))
        return q;
    t.partial &= (Axes)~owed_turns(g, q);
    t.fold = t.partial ? t.fold : FOLD_SUM;
    Ref r = emit_typed(g, OP_reshard, NULL, t, &q, 1, NULL, n.loc);
    g->node[r].segment = n.segment, g->node[r].scope = n.scope;
    g->node[r].stage = n.stage;
    mark_summed(h, r);
    return r;
}

static void remember(Hops *h, Ref x, int to, Ref there)
{
    Moved *m = alloc(h->scratch, sizeof *m);
    *m = (Moved){ to, there, h->moved[x] };
    h->moved[x] = m;
}

static Ref at_stage(Hops *h, Ref x, int to, Segment reader);

/* What is spread there anew. */
static Ref spread_at(Hops *h, Ref x, int to, Segment reader)
{
    Graph *g = h->c.out;
    const Node *n = &h->c.in->node[x];
    Ref in = at_stage(h, n->in[0], to, reader), was = h->c.map[x];
    Ref q = copy_node_in(&h->c, x, &in, 1);
    h->c.map[x] = was;
    g->node[q].stage = to;
    remember(h, x, to, q);
    return q;
}

/* Value x of in as it is on that stage; `reader` is the segment that asks. */
static Ref at_stage(Hops *h, Ref x, int to, Segment reader)
{
    Graph *g = h->c.out;
    int from = h->stage[x];
    if (from == EVERY || from == to)
        return h->c.map[x];
    to = h->every[x] ? EVERY : to;
    for (Moved *m = h->moved[x]; m; m = m->next)
        if (m->to == to)
            return m->ref;
    if (spreads(h->c.in, x) && !owed_turns(g, h->c.map[x]))
        return spread_at(h, x, to, reader);
    Ref q = summed(h, h->c.map[x]);
    const Node n = g->node[q];
    Attr a = { .from = from, .to = to, .id = ++h->nhop };
    a.late = n.segment == FORWARD && reader == FORWARD && to > from + 1;
    Ref r = emit_typed(g, OP_hop, &a, n.type, &q, 1,
                       fmt(g->arena, "%s.to%d", h->c.in->node[x].name, to),
                       n.loc);
    if (to == EVERY)
        g->node[r].name = fmt(g->arena, "%s.out", h->c.in->node[x].name);
    g->node[r].segment = n.segment, g->node[r].scope = n.scope;
    g->node[r].stage = to;
    if (is_summed(h, q))
        mark_summed(h, r);
    remember(h, x, to, r);
    return r;
}

/* Of which only the shape is read. */
static Ref shape_of(Hops *h, Ref x)
{
    Graph *g = h->c.out;
    Ref q = h->c.map[x];
    Type t = g->node[q].type;
    const char *loc = g->node[q].loc;
    t.partial = 0, t.fold = FOLD_SUM;
    return emit_typed(g, OP_const, NULL, t, NULL, 0, NULL, loc);
}

/* ---- nodes ---- */

static void label_like(Graph *g, Ref q, const Node *n, int stage)
{
    Node *m = &g->node[q];
    m->segment = n->segment, m->scope = n->scope, m->stage = stage;
}

/* The operands of a total that lie on stage s, as one. */
static Ref part_of_total(Hops *h, const Node *n, int s)
{
    Graph *g = h->c.out;
    Ref *in = alloc(h->scratch, (size_t)n->nin * sizeof *in);
    int k = 0;
    for (int i = 0; i < n->nin; i++)
        if (h->stage[n->in[i]] == s)
            in[k++] = h->c.map[n->in[i]];
    if (k < 2)
        return k ? in[0] : NONE;
    Ref q = emit(g, OP_total, NULL, in, k, n->loc);
    label_like(g, q, n, s);
    return q;
}

/* A total over stages is one of totals of each: scalars that hop. */
static Ref total(Hops *h, Ref r)
{
    Graph *g = h->c.out;
    const Node *n = &h->c.in->node[r];
    Ref *in = alloc(h->scratch, ((size_t)g->nstage + 1) * sizeof *in);
    int k = 0, to = h->stage[r];
    for (int s = EVERY; s < g->nstage; s++) {
        Ref q = part_of_total(h, n, s);
        if (q == NONE)
            continue;
        if (s != to && s != EVERY) {
            Attr a = { .from = s, .to = to, .id = ++h->nhop };
            q = summed(h, q);
            Type t = g->node[q].type;
            q = emit_typed(g, OP_hop, &a, t, &q, 1, NULL, n->loc);
            label_like(g, q, n, to);
        }
        in[k++] = q;
    }
    for (int i = 0; i < k; i++)
        in[i] = summed(h, in[i]);
    Ref q = emit(g, OP_total, &n->attr, in, k, n->loc);
    label_like(g, q, n, to);
    g->node[q].name = n->name;
    if (g->node[q].type.partial != n->type.partial)
        mark_summed(h, q);
    return q;
}

static bool over_stages(const Hops *h, const Node *n)
{
    int first = h->stage[n->in[0]];
    for (int i = 1; i < n->nin; i++)
        if (h->stage[n->in[i]] != first)
            return true;
    return false;
}

/* Where one operand owes turns no more, none may: its type follows anew. */
static void place(Hops *h, Ref r)
{
    Graph *g = h->c.out;
    const Node *n = &h->c.in->node[r];
    Ref *in = alloc(h->scratch, ((size_t)n->nin + 1) * sizeof *in), q;
    bool any = false;
    if (n->op == OP_total && over_stages(h, n)) {
        h->c.map[r] = total(h, r);
        return;
    }
    for (int i = 0; i < n->nin; i++) {
        Ref x = n->in[i];
        int from = h->stage[x];
        bool far = from != EVERY && from != h->stage[r];
        in[i] = far && op_unread(n->op, i) ? shape_of(h, x)
            : at_stage(h, x, h->stage[r], n->segment);
        any |= is_summed(h, in[i]);
    }
    for (int i = 0; i < n->nin && any; i++)
        in[i] = summed(h, in[i]);
    if (any && n->op != OP_reshard && !ops[n->op].leaf) {
        q = h->c.map[r] = emit(g, n->op, &n->attr, in, n->nin, n->loc);
        label_like(g, q, n, h->stage[r]);
        g->node[q].name = n->name;
        if (g->node[q].type.partial != n->type.partial)
            mark_summed(h, q);
        return;
    }
    q = copy_node_in(&h->c, r, in, n->nin);
    g->node[q].stage = h->stage[r];
}

static void ends(Hops *h)
{
    const Graph *g = h->c.in;
    for (uint32_t i = 0; i < g->nset; i++) {
        Ref leaf = h->c.map[g->set[i].leaf];
        graph_set(h->c.out, leaf,
                  at_stage(h, g->set[i].value, h->c.out->node[leaf].stage,
                           UPDATE));
    }
    for (uint32_t i = 0; i < g->nout; i++)
        graph_out(h->c.out, g->out[i].name,
                  at_stage(h, g->out[i].ref, EVERY, UPDATE));
}

Graph *pass_hop(const Graph *in, Job *j)
{
    if (!in->nstage)
        return copy_none(in);
    Hops h = { .c = copy_begin(in, j), .scratch = j->scratch };
    h.stage = alloc(j->scratch, (in->n + 1) * sizeof *h.stage);
    h.every = alloc(j->scratch, in->n + 1);
    h.moved = alloc(j->scratch, (in->n + 1) * sizeof *h.moved);
    derive(&h);
    for (Ref r = 0; r < in->n; r++)
        place(&h, r);
    ends(&h);
    hop_order(h.c.out, j);
    return h.c.out;
}
