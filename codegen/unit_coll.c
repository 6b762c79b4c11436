/* unit_coll.c -- rows of what ranks and roles say to each other. */
#include "codegen/unit.h"

int unit_coll_kind(Op op)
{
    return op == OP_all_reduce ? DPC_ALL_REDUCE
         : op == OP_reduce_scatter ? DPC_REDUCE_SCATTER
         : op == OP_all_gather ? DPC_ALL_GATHER
         : op == OP_all_to_all ? DPC_ALL_TO_ALL
         : op == OP_send ? DPC_SEND : op == OP_recv ? DPC_RECV : -1;
}

/* The dimension of the operand that an all_to_all splits. */
static void coll_to(const Graph *g, const Node *n, DpcColl *c)
{
    Type t = type_local(&g->mesh, &g->node[n->in[0]].type);
    c->to_outer = c->to_size = c->to_inner = 1;
    for (int d = 0; d < t.ndim; d++) {
        int64_t *to = d < n->attr.to ? &c->to_outer
                    : d == n->attr.to ? &c->to_size : &c->to_inner;
        *to *= t.dim[d];
    }
}

static DpcColl coll_of(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    bool scatter = n->op == OP_reduce_scatter;
    Type big = scatter ? g->node[n->in[0]].type : n->type;
    Type t = type_local(&g->mesh, &big);
    DpcColl c;
    memset(&c, 0, sizeof c);
    c.kind = (uint8_t)unit_coll_kind(n->op), c.dtype = (uint8_t)t.dtype;
    c.fold = (uint8_t)g->node[n->in[0]].type.fold, c.axes = n->attr.axes;
    c.outer = c.size = c.inner = 1;
    int dim = n->op == OP_all_reduce ? 0 : n->attr.dim;
    for (int d = 0; d < t.ndim; d++) {
        int64_t *to = d < dim ? &c.outer : d == dim ? &c.size : &c.inner;
        *to *= t.dim[d];
    }
    if (n->op == OP_all_reduce)
        c.size *= c.inner, c.inner = 1;
    if (n->op == OP_all_to_all)
        coll_to(g, n, &c);
    return c;
}

/* The layout is no part of the tables: both ends take the rows as they
 * are. */
static DpcColl hop_of(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    Type t = type_local(&g->mesh, &n->type);
    DpcColl c;
    memset(&c, 0, sizeof c);
    c.kind = (uint8_t)unit_coll_kind(n->op);
    c.dtype = (uint8_t)t.dtype, c.axes = mesh_axes(&g->mesh, STAGE);
    c.outer = c.inner = 1, c.size = type_volume(&t);
    c.peer = n->attr.peer, c.hop = (uint32_t)n->attr.id;
    return c;
}

uint32_t unit_colls(Unit *u, Program *p, uint32_t launch)
{
    const Launch *l = &p->g->sched->launch[launch];
    if (p->coll_of[launch])
        return p->coll_of[launch] - 1;
    p->coll_of[launch] = u->ncoll + 1;
    for (int i = 0; i < l->n; i++) {
        GROW(u->arena, u->coll, u->ncoll, u->collcap);
        bool hop = ops[p->g->node[l->node[i]].op].family == FAMILY_hop;
        u->coll[u->ncoll++] = hop ? hop_of(p->g, l->node[i])
                            : coll_of(p->g, l->node[i]);
    }
    return p->coll_of[launch] - 1;
}
