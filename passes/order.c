/* order.c -- one list of (launch, turn).
 *
 * A launch comes after the makers of its operands, in the turns that it
 * needs; order_list.c picks among the lists that this leaves the one that is
 * soon done, and order_slack.c moves launches in it to where less lives.
 * Where weights are whole for a use only, few are gathered ahead.
 * Each rank and each communicator runs a projection of this one list: all
 * ranks meet at their collectives in one order, and none can wait in a
 * circle.
 *
 * What a step leaves behind must lie where the next step looks for it: a
 * `set` takes effect in place when every reader of the old value came before;
 * where not, and for results that are nobody's own, a copy is appended. */
#include "passes/order.h"
#include <stdlib.h>

static Axes launch_loop(const Order *o, uint32_t l)
{
    return o->g->node[o->s->launch[l].node[0]].loop;
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
    Axes has = node_along(o->g, value);
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

void order_edge(Order *o, uint32_t from, uint32_t to)
{
    Edge *e = alloc(o->scratch, sizeof *e);
    *e = (Edge){ to, o->after[from] };
    o->after[from] = e;
    o->inst[to].needs++;
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
                o->inst[o->n++] = (Inst){ l, t, 0 };
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
            order_edge(o, i - 1, i);      /* turns of one launch in order */
        for (int k = 0; k < nin; k++) {
            Ref v = view_root(o->g, in[k]);
            if (!o->of[v])
                continue;
            uint32_t p = o->of[v] - 1;
            int t = turn_needed(o, v, launch_loop(o, p), o->inst[i].turn);
            order_edge(o, order_inst(o, p, t), i);
        }
    }
}

/* What is made of weights alone, or comes from the host. */
static bool waits_for_reader(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return n->segment == BEGIN || (n->place == DEVICE && node_moves(g, r));
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
        first[r] = waits_for_reader(g, r) ? g->n : r;
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; i < g->node[r].nin; i++) {
            Ref x = g->node[r].in[i];
            if (waits_for_reader(g, x) && first[r] < first[x])
                first[x] = first[r];
        }
    for (uint32_t l = 0; l < o->s->nlaunch; l++) {
        const Launch *q = &o->s->launch[l];
        bool begin = waits_for_reader(g, q->node[0]);
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
                                  .stream = launch_stream(o->g,
                                      &o->s->launch[launch]) };
}

/* ---- weights that are whole, or on the device, for a use only ---- */

typedef struct Gather { uint32_t inst, read; int64_t bytes; } Gather;

static int by_read(const void *a, const void *b)
{
    const Gather *x = a, *y = b;
    return x->read != y->read ? (x->read > y->read) - (x->read < y->read)
         : (x->inst > y->inst) - (x->inst < y->inst);
}

/* Is it made of one value alone?  Then it goes with the gather of that. */
static bool made_of_one(const Order *o, const Launch *l)
{
    return l->n == 1 && o->g->node[l->node[0]].nin == 1;
}

/* The place of the first that reads what instance i makes, or what is made of
 * that alone (a pack). */
static uint32_t first_read(const Order *o, uint32_t i, const uint32_t *place)
{
    uint32_t first = UINT32_MAX;
    for (Edge *e = o->after[i]; e; e = e->next) {
        const Launch *l = &o->s->launch[o->inst[e->to].launch];
        bool alone = made_of_one(o, l);
        if (o->inst[e->to].launch == o->inst[i].launch)
            continue;                     /* its next turn */
        uint32_t at = alone ? first_read(o, e->to, place) : place[e->to];
        first = at < first ? at : first;
    }
    return first;
}

/* Gathers of weights, if `use`, and copies from the host, by the place of
 * their first reader in the list. */
static int find_gathers(const Order *o, const uint32_t *list, bool use,
                        Gather *out)
{
    uint32_t *place = alloc(o->scratch, (o->n + 1) * sizeof *place);
    int n = 0;
    for (uint32_t k = 0; k < o->n; k++)
        place[list[k]] = k;
    for (uint32_t i = 0; i < o->n; i++) {
        const Launch *l = &o->s->launch[o->inst[i].launch];
        const Node *x = &o->g->node[l->node[0]];
        bool gather = x->op == OP_all_gather && launch_communicates(o->g, l)
            && o->g->node[x->in[0]].segment <= BEGIN;
        if (!(gather && use) && !(node_moves(o->g, l->node[0])
                                  && x->place == DEVICE))
            continue;
        Gather q = { i, first_read(o, i, place),
                     type_bytes(&o->g->mesh, &x->type) };
        if (q.read != UINT32_MAX)
            out[n++] = q;
    }
    qsort(out, (size_t)n, sizeof *out, by_read);
    return n;
}

enum { SHARES = 8, AHEAD = 2 };

/* Of fetches 0 to i, of which those from k on are ahead: copies from the host
 * have no operand to wait for, and would all begin with the step.  The last
 * launch behind which there is time enough for twice what is ahead. */
static void not_before(Order *o, const uint32_t *list, const Gather *q, int k,
                       int i)
{
    double want = 0;
    uint32_t at = q[i].read;
    if (!node_moves(o->g, o->s->launch[o->inst[q[i].inst].launch].node[0]))
        return;
    for (int m = k; m <= i; m++)
        want += 2 * o->takes[o->inst[q[m].inst].launch];
    for (bool computes = false; at > 0 && (want > 0 || !computes); at--) {
        const Launch *l = &o->s->launch[o->inst[list[at - 1]].launch];
        computes = !launch_communicates(o->g, l) && !made_of_one(o, l);
        want -= computes ? o->takes[o->inst[list[at - 1]].launch] : 0;
    }
    if (at)
        order_edge(o, list[at], q[i].inst);
}

/* A gather waits until one before it is read: at least two are ahead, and a
 * share of all bytes.  The list with each gather right before its first
 * reader obeys, so no circle is made. */
static bool few_ahead(Order *o, const uint32_t *list, bool use)
{
    Gather *q = alloc(o->scratch, (o->n + 1) * sizeof *q);
    int n = find_gathers(o, list, use, q);
    int64_t all = 0, ahead = 0;
    for (int i = 0; i < n; i++) {
        const Inst *x = &o->inst[q[i].inst];
        bool again = o->g->node[o->s->launch[x->launch].node[0]].again != NONE;
        all += x->turn || again ? 0 : q[i].bytes;
    }
    for (int i = 0, k = 0; i < n; i++) {
        for (; i - k > AHEAD && ahead - q[k].bytes >= all / SHARES; k++)
            ahead -= q[k].bytes;
        if (k && q[k - 1].read < q[i].read)
            order_edge(o, list[q[k - 1].read], q[i].inst);
        not_before(o, list, q, k, i);
        ahead += q[i].bytes;
    }
    return n > 0;
}

static const uint32_t *list_of(Order *o, const Job *j)
{
    return o->pos ? order_chunks(o) : order_list(o, j);
}

static bool any_transfer(const Order *o)
{
    bool any = false;
    for (uint32_t l = 0; l < o->s->nlaunch && !any; l++)
        any = launch_communicates(o->g, &o->s->launch[l]);
    return any;
}

static void list_steps(Order *o, const Job *j)
{
    o->takes = any_transfer(o) ? launches_seconds(o->g, o->s, j) : NULL;
    const uint32_t *list = list_of(o, j);
    if (few_ahead(o, list, j->plan && j->plan->gather == GATHER_USE))
        list = list_of(o, j);
    o->at = alloc(o->scratch, (o->s->nlaunch + 1) * sizeof *o->at);
    for (uint32_t k = 0; k < o->n; k++) {
        o->at[o->inst[list[k]].launch] = o->s->nstep;
        append(o, o->inst[list[k]].launch, o->inst[list[k]].turn);
    }
}

/* ---- what outlives the step ---- */

static Ref append_copy(Order *o, Ref r, MemoryClass place)
{
    Graph *g = o->g;
    const Node n = g->node[r];
    Ref q = emit_typed(g, OP_copy, NULL, n.type, &r, 1, NULL, n.loc);
    g->node[q].segment = n.segment, g->node[q].scope = n.scope;
    g->node[q].stage = n.stage, g->node[q].place = place;
    g->node[q].name = fmt(g->arena, "v%u", q);
    append(o, launch_add(o->s, o->keep, &q, 1), 0);
    return q;
}

static Ref own_copy(Order *o, Ref r)
{
    return append_copy(o, r, o->g->node[r].place);
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
            g->out[i].ref = append_copy(o, r, DEVICE);
    }
}

/* Are all nodes of each launch pointwise, but for numbers spread out?  Then it
 * reads what it writes over before it writes it. */
static bool *launches_aligned(const Order *o)
{
    bool *aligned = alloc(o->scratch, o->s->nlaunch + 1);
    for (uint32_t k = 0; k < o->s->nlaunch; k++) {
        const Launch *l = &o->s->launch[k];
        aligned[k] = true;
        for (int i = 0; i < l->n; i++) {
            const Node *n = &o->g->node[l->node[i]];
            aligned[k] &= node_is_spread(n) || !n->nin
                       || node_aligned(o->g, n);
        }
    }
    return aligned;
}

static bool launch_reads(const Order *o, const Launch *l, Ref leaf)
{
    for (int i = 0; i < l->n; i++) {
        const Node *n = &o->g->node[l->node[i]];
        for (int k = 0; k < n->nin; k++)
            if (view_root(o->g, n->in[k]) == leaf)
                return true;
    }
    return false;
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
                                  const uint32_t *last, const bool *aligned)
{
    const Graph *g = o->g;
    if (borrowed(g, value) || g->node[value].loop || g->node[value].layout)
        return false;
    uint32_t l = o->of[value] - 1;
    return last[leaf] <= o->at[l] + 1
        && (aligned[l] || !launch_reads(o, &o->s->launch[l], leaf));
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
            g->set[i].value = own_copy(o, g->set[i].value);
    uint32_t temps = g->n;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].value < temps && g->node[g->set[i].value].op == OP_copy
            && borrowed(g, g->node[g->set[i].value].in[0]))
            g->set[i].value = own_copy(o, g->set[i].value);
}

static void settle(Order *o)
{
    Graph *g = o->g;
    uint32_t limit = g->n;
    own_results(o);
    settle_leaves(o);
    bool *given = alloc(o->scratch, g->n + 1);
    for (uint32_t i = 0; i < g->nset; i++) {
        Ref v = g->set[i].value;
        if (borrowed(g, v) || given[v])
            g->set[i].value = own_copy(o, v);
        given[v] = true;
    }
    const uint32_t *last = last_reads(o, limit);
    const bool *aligned = launches_aligned(o);
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].value < limit
            && !takes_effect_in_place(o, g->set[i].leaf, g->set[i].value, last,
                                      aligned))
            g->set[i].value = own_copy(o, g->set[i].value);
}

/* ---- rings ---- */

/* A ring's part of a turn comes when those of two turns before are read: one
 * is on its way while another is worked on, and no more are held. */
static void rings_follow(Order *o)
{
    for (uint32_t l = 0; l < o->s->nlaunch; l++) {
        const Node *n = &o->g->node[o->s->launch[l].node[0]];
        Axes owed = n->type.partial & mesh_axes(&o->g->mesh, TIME);
        if (n->op != OP_ring || owed)
            continue;
        for (uint32_t i = o->first[l] + AHEAD; i < o->first[l + 1]; i++)
            for (Edge *e = o->after[i - AHEAD]; e; e = e->next)
                if (o->inst[e->to].launch != l)
                    order_edge(o, e->to, i);
    }
}

static Order order_of(Graph *g, Sched *s, Job *j)
{
    Order o = { .g = g, .s = s, .scratch = j->scratch, .keep = j->keep };
    o.of = alloc(j->scratch, (g->n + 1) * sizeof *o.of);
    for (uint32_t l = 0; l < s->nlaunch; l++)
        for (int i = 0; i < s->launch[l].n; i++)
            o.of[s->launch[l].node[i]] = l + 1;
    instances(&o);
    for (uint32_t l = 0; l < s->nlaunch; l++)
        edges_of(&o, l);
    rings_follow(&o);
    keys(&o);
    order_line(&o);
    list_steps(&o, j);
    return o;
}

uint32_t *order_places(Graph *g, Job *j, int64_t **line)
{
    Order o = order_of(g, sched_new(g, j->scratch), j);
    uint32_t *place = alloc(j->scratch, (g->n + 1) * sizeof *place);
    *line = o.pos ? alloc(j->scratch, (g->n + 1) * sizeof **line) : NULL;
    for (Ref r = 0; r < g->n; r++) {
        uint32_t l = o.of[view_root(g, r)];
        place[r] = l ? o.at[l - 1] : 0;
        if (o.pos && l)
            (*line)[r] = o.pos[o.first[l] - 1];
    }
    return place;
}

Graph *pass_order(const Graph *in, Job *j)
{
    Graph *g = copy_whole(in, j);
    g->sched = sched_new(g, j->keep);
    Order o = order_of(g, g->sched, j);
    order_slack(&o, j->target);
    settle(&o);
    return g;
}
