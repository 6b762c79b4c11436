/* unit_coll.c -- rows of what ranks and roles say to each other. */
#include "codegen/unit.h"

int unit_coll_kind(Op op)
{
    return op == OP_all_reduce ? DPC_ALL_REDUCE
         : op == OP_reduce_scatter ? DPC_REDUCE_SCATTER
         : op == OP_all_gather ? DPC_ALL_GATHER
         : op == OP_all_to_all ? DPC_ALL_TO_ALL
         : op == OP_ring ? DPC_RING : op == OP_halo ? DPC_HALO
         : op == OP_send ? DPC_SEND : op == OP_recv ? DPC_RECV : -1;
}

/* Elements before, along and behind dimension d, as they lie in memory; a
 * collective's operand and result lie alike. */
static void view(const Graph *g, Ref r, Ref like, int d, int64_t *outer,
                 int64_t *size, int64_t *inner)
{
    Type t = type_local(&g->mesh, &g->node[r].type);
    int order[NDIM], layout = g->node[like].layout;
    bool behind = false;
    for (int i = t.ndim - 1; i >= 0; i--, layout /= 10)
        order[i] = g->node[like].layout ? layout % 10 : i;
    *outer = *size = *inner = 1;
    for (int i = 0; i < t.ndim; i++) {
        int64_t *to = order[i] == d ? size : behind ? inner : outer;
        *to *= t.dim[order[i]];
        behind |= order[i] == d;
    }
}

static DpcColl coll_of(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    bool large = n->op == OP_reduce_scatter || n->op == OP_halo;
    DpcColl c;
    memset(&c, 0, sizeof c);
    c.kind = (uint8_t)unit_coll_kind(n->op);
    c.dtype = (uint8_t)n->type.dtype;
    c.fold = (uint8_t)g->node[n->in[0]].type.fold, c.axes = n->attr.axes;
    view(g, large ? n->in[0] : r, r, n->attr.dim, &c.outer, &c.size, &c.inner);
    if (n->op == OP_ring)
        c.axes &= mesh_axes(&g->mesh, SPACE);
    if (n->op == OP_all_reduce || n->op == OP_ring) {
        c.size *= c.outer * c.inner;
        c.outer = c.inner = 1;
    }
    if (n->op == OP_all_to_all) {
        view(g, n->in[0], r, n->attr.to, &c.to_outer, &c.to_size,
             &c.to_inner);
        c.ranks = (int32_t)mesh_size(&g->mesh, c.axes);
    }
    if (n->op == OP_halo) {
        c.rows = n->type.dim[n->attr.dim];
        c.step = type_step(&g->mesh, &n->type, n->attr.dim);
        c.lo = n->attr.lo, c.hi = n->attr.hi;
    }
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
