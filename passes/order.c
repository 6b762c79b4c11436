/* order.c -- one list of (launch, turn), by list scheduling.
 *
 * Two streams, one that computes and one that communicates, each take the
 * next launch when they are free, by the rough clock of clock.c (Graham,
 * "Bounds on multiprocessing timing anomalies", 1969): so computing goes on
 * with what does not wait for a transfer, and a transfer that is wanted soon
 * passes those wanted later.  Of the launches whose operands are done, a sum
 * over turns goes first, since it frees its operand and lets the sum over
 * ranks begin.  The update goes last: what it can do early (decay the moments)
 * would only wait in memory for gradients.  Then comes the earliest turn, then
 * the place in the graph, which lists backward after forward and so frees
 * values soon.  Each rank and each communicator runs a projection of this one
 * list: all ranks meet at their collectives in one order, and none can wait
 * in a circle.  order_slack.c then moves launches to where less lives.
 *
 * What a step leaves behind must lie where the next step looks for it: a
 * `set` takes effect in place when every reader of the old value came before;
 * where not, and for results that are nobody's own, a copy is appended. */
#include "passes/order.h"
#include <math.h>

static Axes launch_loop(const Order *o, uint32_t l)
{
    return o->g->node[o->s->launch[l].node[0]].loop;
}

/* Over ranks or over turns. */
static bool collects(const Order *o, uint32_t l)
{
    Op op = o->g->node[o->s->launch[l].node[0]].op;
    return op == OP_all_reduce || op == OP_reduce_scatter
        || op == OP_all_gather || op == OP_all_to_all;
}

static bool communicates(const Order *o, uint32_t l)
{
    return launch_communicates(o->g, &o->s->launch[l]);
}

/* Turns are numbered row-major over all time axes; an axis along which the
 * launch does not run counts 0. */
static int turn_of(const Mesh *m, const int *coord)
{
    int turn = 0;
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].kind == TIME)
            turn = turn * m->axis[i].size + coord[i];
    return turn;
}

static int all_turns(const Mesh *m)
{
    return (int)mesh_size(m, mesh_axes(m, TIME));
}

static bool runs_at(const Mesh *m, Axes loop, int turn)
{
    int coord[NAXIS] = {0};
    turn_coord(m, turn, coord);
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].kind == TIME && !(loop >> i & 1) && coord[i])
            return false;
    return true;
}

/* The turn of the maker that a reader at `turn` needs: its own along the axes
 * that the value has, the last along those that were folded or joined. */
static int turn_needed(const Order *o, Ref value, Axes made, int turn)
{
    const Mesh *m = &o->g->mesh;
    int coord[NAXIS] = {0};
    Axes has = type_axes(&o->g->node[value].type);
    turn_coord(m, turn, coord);
    for (int i = 0; i < m->naxis; i++) {
        if (m->axis[i].kind != TIME)
            continue;
        if (!(made >> i & 1))
            coord[i] = 0;
        else if (!(has >> i & 1))
            coord[i] = m->axis[i].size - 1;
    }
    return turn_of(m, coord);
}

uint32_t order_inst(const Order *o, uint32_t l, int turn)
{
    for (uint32_t i = o->first[l]; i < o->first[l + 1]; i++)
        if (o->inst[i].turn == turn)
            return i;
    die("launch %u has no turn %d", l, turn);
}

static void edge(Order *o, uint32_t from, uint32_t to)
{
    Edge *e = alloc(o->scratch, sizeof *e);
    *e = (Edge){ to, o->after[from] };
    o->after[from] = e;
    o->inst[to].waits++;
}

static void instances(Order *o)
{
    const Mesh *m = &o->g->mesh;
    int turns = all_turns(m);
    o->first = alloc(o->scratch, (o->s->nlaunch + 2) * sizeof *o->first);
    o->inst = alloc(o->scratch, ((size_t)o->s->nlaunch * (size_t)turns + 1)
                    * sizeof *o->inst);
    for (uint32_t l = 0; l < o->s->nlaunch; l++) {
        o->first[l] = o->n;
        for (int t = 0; t < turns; t++)
            if (runs_at(m, launch_loop(o, l), t))
                o->inst[o->n++] = (Inst){ l, t, 0, 0 };
    }
    o->first[o->s->nlaunch] = o->n;
    o->after = alloc(o->scratch, (o->n + 1) * sizeof *o->after);
}

static void edges_of(Order *o, uint32_t l)
{
    const Launch *q = &o->s->launch[l];
    int max = launch_operands(o->g, q);
    Ref *in = alloc(o->scratch, (size_t)max * sizeof *in);
    int nin = launch_inputs(o->g, q, in, max);
    for (uint32_t i = o->first[l]; i < o->first[l + 1]; i++) {
        if (i > o->first[l])
            edge(o, i - 1, i);            /* turns of one launch in order */
        for (int k = 0; k < nin; k++) {
            Ref v = view_root(o->g, in[k]);
            if (!o->of[v])
                continue;
            uint32_t p = o->of[v] - 1;
            int t = turn_needed(o, v, launch_loop(o, p), o->inst[i].turn);
            edge(o, order_inst(o, p, t), i);
        }
    }
}

static bool updates(const Order *o, uint32_t l)
{
    return o->g->node[o->s->launch[l].node[0]].segment == UPDATE;
}

static bool sooner(const Order *o, uint32_t a, uint32_t b)
{
    const Inst *x = &o->inst[a], *y = &o->inst[b];
    bool cx = collects(o, x->launch), cy = collects(o, y->launch);
    if (cx != cy)
        return cx;
    bool ux = updates(o, x->launch), uy = updates(o, y->launch);
    if (ux != uy)
        return uy;
    if (x->turn != y->turn)
        return x->turn < y->turn;
    Ref kx = o->key[x->launch], ky = o->key[y->launch];
    return kx != ky ? kx < ky : x->launch < y->launch;
}

/* What is done once a step comes right before its first reader: a filter that
 * ranks have to gather first would stop all of forward, were it packed at the
 * beginning. */
static void keys(Order *o)
{
    const Graph *g = o->g;
    Ref *first = alloc(o->scratch, (g->n + 1) * sizeof *first);
    o->key = alloc(o->scratch, (o->s->nlaunch + 1) * sizeof *o->key);
    for (Ref r = 0; r < g->n; r++)
        first[r] = g->node[r].segment == BEGIN ? g->n : r;
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; i < g->node[r].nin; i++) {
            Ref x = g->node[r].in[i];
            if (g->node[x].segment == BEGIN && first[r] < first[x])
                first[x] = first[r];
        }
    for (uint32_t l = 0; l < o->s->nlaunch; l++) {
        const Launch *q = &o->s->launch[l];
        bool begin = g->node[q->node[0]].segment == BEGIN;
        o->key[l] = begin ? g->n : q->node[q->n - 1];
        for (int i = 0; begin && i < q->n; i++)
            if (first[q->node[i]] < o->key[l])
                o->key[l] = first[q->node[i]];
    }
}

static void append(Order *o, uint32_t launch, int turn)
{
    Sched *s = o->s;
    GROW(o->keep, s->step, s->nstep, s->stepcap);
    s->step[s->nstep++] = (Step){ .launch = launch, .turn = turn, .event = -1,
                                  .stream = communicates(o, launch) };
}

/* ---- heaps of instances ---- */

typedef struct Heap {
    uint32_t *at, n;
    bool (*before)(const Order *, uint32_t, uint32_t);
} Heap;

static bool earlier(const Order *o, uint32_t a, uint32_t b)
{
    double x = o->inst[a].ready, y = o->inst[b].ready;
    return x != y ? x < y : sooner(o, a, b);
}

static void heap_push(const Order *o, Heap *h, uint32_t x)
{
    uint32_t k = h->n++;
    for (; k && h->before(o, x, h->at[(k - 1) / 2]); k = (k - 1) / 2)
        h->at[k] = h->at[(k - 1) / 2];
    h->at[k] = x;
}

static uint32_t heap_pop(const Order *o, Heap *h)
{
    uint32_t top = h->at[0], x = h->at[--h->n], k = 0, c;
    while ((c = 2 * k + 1) < h->n) {
        if (c + 1 < h->n && h->before(o, h->at[c + 1], h->at[c]))
            c++;
        if (!h->before(o, h->at[c], x))
            break;
        h->at[k] = h->at[c];
        k = c;
    }
    h->at[k] = x;
    return top;
}

/* ---- two streams, by the clock ---- */

enum { NSTREAM = 2 };

typedef struct Stream {
    double now;                           /* when it is free */
    Heap ready, later;                    /* by `sooner`; by time */
} Stream;

static void stream_add(const Order *o, Stream *s, uint32_t i)
{
    heap_push(o, &s[communicates(o, o->inst[i].launch)].later, i);
}

/* When the stream could begin its next launch; infinity: it has none. */
static double stream_next(const Order *o, Stream *s)
{
    while (s->later.n && o->inst[s->later.at[0]].ready <= s->now)
        heap_push(o, &s->ready, heap_pop(o, &s->later));
    return s->ready.n ? s->now
         : s->later.n ? o->inst[s->later.at[0]].ready : INFINITY;
}

static void run_next(Order *o, Stream *all, Stream *s, const double *takes)
{
    uint32_t i = heap_pop(o, &s->ready), l = o->inst[i].launch;
    s->now += takes[l];
    o->at[l] = o->s->nstep;
    append(o, l, o->inst[i].turn);
    for (Edge *e = o->after[i]; e; e = e->next) {
        Inst *x = &o->inst[e->to];
        x->ready = s->now > x->ready ? s->now : x->ready;
        if (--x->waits == 0)
            stream_add(o, all, e->to);
    }
}

static void list_schedule(Order *o, const Job *j)
{
    Stream s[NSTREAM];
    double *takes = alloc(o->scratch, (o->s->nlaunch + 1) * sizeof *takes);
    for (int k = 0; k < NSTREAM; k++) {
        size_t size = (o->n + 1) * sizeof(uint32_t);
        s[k] = (Stream){ 0, { alloc(o->scratch, size), 0, sooner },
                         { alloc(o->scratch, size), 0, earlier } };
    }
    for (uint32_t l = 0; l < o->s->nlaunch; l++)
        takes[l] = launch_seconds(o->g, &o->s->launch[l], j);
    o->at = alloc(o->scratch, (o->s->nlaunch + 1) * sizeof *o->at);
    for (uint32_t i = 0; i < o->n; i++)
        if (!o->inst[i].waits)
            stream_add(o, s, i);
    for (;;) {
        double t0 = stream_next(o, &s[0]), t1 = stream_next(o, &s[1]);
        Stream *q = &s[t1 <= t0];
        double t = t1 <= t0 ? t1 : t0;
        if (t == INFINITY)
            break;
        q->now = t;
        if (q->ready.n)
            run_next(o, s, q, takes);
    }
    if (o->s->nstep != o->n)
        die("order: %u of %u steps wait in a circle", o->n - o->s->nstep, o->n);
}

/* ---- what outlives the step ---- */

static Ref append_copy(Order *o, Ref r)
{
    Graph *g = o->g;
    const Node n = g->node[r];
    Ref q = emit_typed(g, OP_copy, NULL, n.type, &r, 1, NULL, n.loc);
    g->node[q].segment = n.segment, g->node[q].scope = n.scope;
    g->node[q].name = fmt(g->arena, "v%u", q);
    append(o, launch_add(o->s, o->keep, &q, 1), 0);
    return q;
}

/* Nobody's own: a leaf's value, or a view of another's. */
static bool borrowed(const Graph *g, Ref r)
{
    bool leaf = ops[g->node[r].op].leaf && g->node[r].kernel < 0;
    return leaf || node_is_view(&g->node[r]);
}

/* Results have memory of their own, in row-major order: that is how they are
 * written out. */
static void own_results(Order *o)
{
    Graph *g = o->g;
    for (uint32_t i = 0; i < g->nout; i++) {
        Ref r = g->out[i].ref;
        bool other = borrowed(g, r) || g->node[r].layout;
        for (uint32_t k = 0; k < i; k++)
            other |= g->out[k].ref == r;
        for (uint32_t k = 0; k < g->nset; k++)
            other |= g->set[k].value == r;
        if (other)
            g->out[i].ref = append_copy(o, r);
    }
}

/* Does the launch read the leaf, if at all, at the index that it writes?  So
 * it is when all of its nodes are pointwise, but for numbers spread out: then
 * the old value is read before the new one is written. */
static bool launch_aligned(const Order *o, const Launch *l, Ref leaf)
{
    bool reads = false, aligned = true;
    for (int i = 0; i < l->n; i++) {
        const Node *n = &o->g->node[l->node[i]];
        aligned &= node_is_spread(n) || !n->nin || node_aligned(o->g, n);
        for (int k = 0; k < n->nin; k++)
            reads |= view_root(o->g, n->in[k]) == leaf;
    }
    return !reads || aligned;
}

/* The last step that reads each value's bytes, in all turns, plus one; an
 * appended copy counts as the last of all. */
static uint32_t *last_reads(const Order *o, uint32_t limit)
{
    const Graph *g = o->g;
    uint32_t *last = alloc(o->scratch, (g->n + 1) * sizeof *last);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool launched = r < limit && o->of[r];
        uint32_t at = launched ? o->at[o->of[r] - 1] + 1 : UINT32_MAX;
        for (int i = 0; i < n->nin && !node_is_view(n); i++) {
            Ref x = view_root(g, n->in[i]);
            last[x] = at > last[x] ? at : last[x];
        }
    }
    return last;
}

/* May the leaf take its new value in the bytes of the old one? */
static bool takes_effect_in_place(const Order *o, Ref leaf, Ref value,
                                  const uint32_t *last)
{
    const Graph *g = o->g;
    if (borrowed(g, value) || g->node[value].loop || g->node[value].layout)
        return false;
    uint32_t l = o->of[value] - 1;
    return launch_aligned(o, &o->s->launch[l], leaf)
        && last[leaf] <= o->at[l] + 1;
}

static bool is_set(const Graph *g, Ref leaf)
{
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == leaf)
            return true;
    return false;
}

/* Leaves that take each other's values: all are read before one is written. */
static void settle_leaves(Order *o)
{
    Graph *g = o->g;
    for (uint32_t i = 0; i < g->nset; i++)
        if (borrowed(g, g->set[i].value)
            && is_set(g, view_root(g, g->set[i].value)))
            g->set[i].value = append_copy(o, g->set[i].value);
    uint32_t temps = g->n;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].value < temps && g->node[g->set[i].value].op == OP_copy
            && borrowed(g, g->node[g->set[i].value].in[0]))
            g->set[i].value = append_copy(o, g->set[i].value);
}

static void settle(Order *o)
{
    Graph *g = o->g;
    uint32_t limit = g->n;
    own_results(o);
    settle_leaves(o);
    for (uint32_t i = 0; i < g->nset; i++) {
        bool twice = false;
        for (uint32_t k = 0; k < i; k++)
            twice |= g->set[k].value == g->set[i].value;
        if (borrowed(g, g->set[i].value) || twice)
            g->set[i].value = append_copy(o, g->set[i].value);
    }
    const uint32_t *last = last_reads(o, limit);
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].value < limit
            && !takes_effect_in_place(o, g->set[i].leaf, g->set[i].value, last))
            g->set[i].value = append_copy(o, g->set[i].value);
}

Graph *pass_order(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        copy_node(&c, r);
    Graph *g = copy_end(&c);
    Order o = { .g = g, .scratch = j->scratch, .keep = j->keep };
    o.s = g->sched = sched_new(g, j->keep);
    o.of = alloc(j->scratch, (g->n + 1) * sizeof *o.of);
    for (uint32_t l = 0; l < o.s->nlaunch; l++)
        for (int i = 0; i < o.s->launch[l].n; i++)
            o.of[o.s->launch[l].node[i]] = l + 1;
    instances(&o);
    for (uint32_t l = 0; l < o.s->nlaunch; l++)
        edges_of(&o, l);
    keys(&o);
    list_schedule(&o, j);
    order_slack(&o);
    settle(&o);
    return g;
}
