/* layout.c -- memory orders that the target likes.
 *
 * The target names an order for the results it cares about (channels last
 * for convolutions on a CPU).  The order spreads over pointwise neighbours of
 * the same shape, forward and back, until it meets a value that has one; a
 * kernel reads any order through its strides, so a border costs a slower
 * read and no copy.  Only an operand of a convolution must lie in the order
 * asked: where it does not, a copy is made.
 *
 * Filters are packed for their convolution, in an order that the target alone
 * knows; the pack rounds them too, where a cast would.  A pack depends on
 * weights only, so it runs once a step, before the turns.
 *
 * What a role sends lies at both ends in the order that the graph of all roles
 * would give it: `cut` asks for that. */
#include "passes/pass.h"

/* Values that lie alike when one of them does: a pointwise node and its
 * operands of the same sizes; slices, pads and concatenations too. */
static bool lies_alike(const Graph *g, Ref r, Ref x)
{
    const Node *n = &g->node[r];
    bool index = ops[n->op].family == FAMILY_index;
    bool coll = ops[n->op].family == FAMILY_collective || n->op == OP_hop;
    return (op_pointwise(n->op) || index || coll)
        && g->node[x].type.ndim == n->type.ndim;
}

static int wish(const Graph *g, Ref r, const Job *j)
{
    return j->target && j->target->layout ? j->target->layout(g, r) : 0;
}

/* Seeds: the target's results, and the operands of convolutions. */
static void seed(const Graph *g, int *order, const Job *j)
{
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        int w = wish(g, r, j);
        if (w && n->op != OP_conv_dw)
            order[r] = w;
        for (int i = 0; w && i < 2; i++)
            if (g->node[n->in[i]].type.ndim == n->type.ndim
                && !(i == 1 && n->op != OP_conv_dw)
                && !op_public(g->node[n->in[i]].op))
                order[n->in[i]] = w;
    }
}

static void spread(const Graph *g, int *order)
{
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin && !order[r]; i++)
            if (lies_alike(g, r, g->node[r].in[i]))
                order[r] = order[g->node[r].in[i]];
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; order[r] && i < g->node[r].nin; i++) {
            Ref x = g->node[r].in[i];
            if (lies_alike(g, r, x) && !order[x] && !op_public(g->node[x].op))
                order[x] = order[r];
        }
}

int *layout_orders(const Graph *g, const Job *j)
{
    int *order = alloc(j->scratch, (g->n + 1) * sizeof *order);
    for (Ref r = 0; r < g->n; r++)
        order[r] = g->node[r].layout;
    seed(g, order, j);
    spread(g, order);
    return order;
}

static bool transferred(const Node *n)
{
    return n->op == OP_send || n->op == OP_recv;
}

static Ref in_order(Copy *c, Ref r, int order)
{
    Ref q = c->map[r];
    const Node n = c->out->node[q];
    if (n.layout == order)
        return q;
    q = emit_typed(c->out, OP_copy, NULL, n.type, &q, 1, NULL, n.loc);
    Node *m = &c->out->node[q];
    m->segment = n.segment, m->scope = n.scope, m->stage = n.stage;
    m->loop = n.loop, m->layout = order;
    return q;
}

/* What a rounding to narrow floats rounds; any other node itself. */
static Ref unrounded(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    bool rounds = n->op == OP_cast && n->type.dtype == BF16
        && g->node[n->in[0]].type.dtype == F32 && !n->type.partial;
    return rounds ? n->in[0] : r;
}

static Ref packed(Copy *c, Ref r, const Job *j)
{
    const Node *n = &c->in->node[r];
    Ref w = c->map[n->in[1]];
    const Node of = c->out->node[w];
    bool turns = type_axes(&of.type) & mesh_axes(&c->in->mesh, TIME);
    if (!j->target->pack_bytes || turns || of.layout)
        return w;
    w = unrounded(c->out, w);
    Attr a = { .use = n->op == OP_conv_dx, .dtype = of.type.dtype };
    Ref q = emit_typed(c->out, OP_pack, &a, of.type, &w, 1, NULL, n->loc);
    Node *m = &c->out->node[q];
    m->segment = of.segment > BEGIN ? of.segment : BEGIN;
    m->loop = of.loop, m->scope = n->scope, m->stage = n->stage;
    return q;
}

Graph *pass_layout(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    int *order = layout_orders(in, j);
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        int w = wish(in, r, j);
        Ref x[NIN];
        if (n->op == OP_send) {
            x[0] = in_order(&c, n->in[0], n->layout);
            copy_node_in(&c, r, x, 1);
            continue;
        }
        if (op_collects(n->op)) {         /* parts move as they lie */
            x[0] = in_order(&c, n->in[0], order[r]);
            Ref q = copy_node_in(&c, r, x, 1);
            c.out->node[q].layout = order[r];
            continue;
        }
        if (!w) {
            Ref q = copy_node(&c, r);
            c.out->node[q].layout = transferred(n) ? n->layout : order[r];
            continue;
        }
        for (int i = 0; i < n->nin; i++) {
            bool picture = i == 0 || (i == 1 && n->op == OP_conv_dw);
            x[i] = picture ? in_order(&c, n->in[i], w)
                 : i == 1 ? packed(&c, r, j)
                 : c.map[unrounded(in, n->in[i])];
        }
        Ref q = copy_node_in(&c, r, x, n->nin);
        c.out->node[q].layout = n->op == OP_conv_dw ? 0 : w;
    }
    return copy_end(&c);
}
