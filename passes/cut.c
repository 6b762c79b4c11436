/* cut.c -- one role's part of a pipeline.
 *
 * A role keeps the nodes of its stages and those of EVERY stage; of a hop it
 * keeps its end.  Both ends bear the hop's number: `order` puts transfers in
 * one order for all roles, so that no two wait for each other crosswise.
 * Without stages a graph is the part of the one role that there is. */
#include "passes/pass.h"

typedef struct Cut {
    Copy c;
    int role, *order;                     /* order: of memory, by node */
    uint32_t recvs;
} Cut;

static bool mine(const Cut *k, int stage)
{
    return stage == EVERY || k->c.in->role_of[stage] == k->role;
}

static Ref end_new(Cut *k, Op op, Ref hop, int peer)
{
    Graph *g = k->c.out;
    const Node *n = &k->c.in->node[hop];
    Attr a = n->attr;
    a.peer = peer;
    bool send = op == OP_send;
    Ref r = emit_typed(g, op, &a, n->type, &k->c.map[n->in[0]], send,
                       send ? fmt(g->arena, "%s.send", n->name) : n->name,
                       n->loc);
    Node *m = &g->node[r];
    m->segment = n->segment, m->scope = n->scope, m->loop = n->loop;
    m->stage = send ? n->attr.from : n->stage;
    m->layout = k->order[hop];
    k->recvs += !send;
    return r;
}

static int role_count(const Graph *g)
{
    return (int)mesh_size(&g->mesh, mesh_axes(&g->mesh, STAGE));
}

static void hop(Cut *k, Ref r)
{
    const Graph *g = k->c.in;
    const Attr *a = &g->node[r].attr;
    int from = g->role_of[a->from], n = role_count(g);
    if (from != k->role) {
        if (mine(k, a->to))
            k->c.map[r] = end_new(k, OP_recv, r, from);
        return;
    }
    k->c.map[r] = k->c.map[g->node[r].in[0]];
    for (int q = 0; q < n; q++)
        if (q != k->role && (a->to == EVERY || g->role_of[a->to] == q))
            end_new(k, OP_send, r, q);
}

static uint32_t recv_count(const Graph *g)
{
    uint32_t n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].op == OP_recv;
    return n;
}

Graph *pass_cut(const Graph *in, Job *j)
{
    if (!in->nstage || in->role >= 0)
        return copy_none(in);
    Cut k = { .c = copy_begin(in, j), .role = j->role,
              .order = layout_orders(in, j) };
    for (Ref r = 0; r < in->n; r++)
        if (in->node[r].op == OP_hop)
            hop(&k, r);
        else if (mine(&k, in->node[r].stage))
            copy_node(&k.c, r);
    k.c.out->role = j->role;
    for (uint32_t i = 0; i < in->nset; i++)
        if (k.c.map[in->set[i].leaf] != NONE)
            graph_set(k.c.out, k.c.map[in->set[i].leaf],
                      k.c.map[in->set[i].value]);
    for (uint32_t i = 0; i < in->nout; i++)
        graph_out(k.c.out, in->out[i].name, k.c.map[in->out[i].ref]);
    Graph *g = graph_dce(k.c.out, j);
    arena_drop(j->keep, k.c.out->node);
    if (recv_count(g) != k.recvs)
        die("role %d receives what it does not read", j->role);
    return g;
}
