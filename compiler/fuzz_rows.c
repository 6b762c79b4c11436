/* fuzz_rows.c -- pictures and tokens in parts by chance: what convolutions
 * read lies over one axis along its rows or its columns, as far as windows let
 * it be cut; queries and keys of attentions in one piece over one that has a
 * twin in time, by tokens; products read a part a turn of such an axis. */
#include "compiler/verify.h"

/* Along dimension d of its picture, may node n be cut over that axis, and do
 * its windows reach other parts then? */
static bool cuts(const Graph *g, const Node *n, int d, const Mesh *m, int axis)
{
    Type t = {0};
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    const Dim *w = &s.in[0].dim[d];
    if (d >= s.in[0].ndim || !w->window
        || !sig_cuts(&s, m, n->op, w->c[0], split_push(0, axis)))
        return false;
    sig_rows(&s, m, 0, d, split_push(0, axis), &t);
    return t.lo[d] || t.hi[d] || t.step[d];
}

static int space_axis(Draw *d, const Mesh *m)
{
    int axis = -1, n = 0;
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].kind == SPACE && m->axis[i].size > 1
            && draw_below(d, (uint64_t)++n) == 0)
            axis = i;
    return axis;
}

/* Value x lies over the axis along that dimension, whatever else it does. */
static void lie_along(Plan *p, Arena *a, const Node *x, int dim, int axis)
{
    ValuePlan *v = value_add(p, a, x);
    v->lie.ndim = x->type.ndim;
    for (int k = 0; k < x->type.ndim; k++)
        v->lie.free[k] = k != dim;
    v->lie.split[dim] = split_push(0, axis);
    v->grad = v->lie;
}

void rows_draw(Draw *d, Plan *p, const Graph *g, Arena *a, FeatureSet want,
               FeatureSet *has)
{
    int axis = space_axis(d, &p->mesh), dim = 2 + (int)draw_below(d, 2);
    bool asked = want & FEATURE_SET(halos);
    if (axis < 0 || (draw_below(d, 10) >= 1 && !asked))
        return;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        const Node *x = n->nin ? &g->node[n->in[0]] : n;
        if (n->op != OP_conv || ops[x->op].leaf
            || !cuts(g, n, dim, &p->mesh, axis) || draw_below(d, 4) == 0)
            continue;
        lie_along(p, a, x, dim, axis);
        *has |= FEATURE_SET(halos);
    }
}

/* The dimension of term t that its letter alone names there is, and term u
 * has not. */
static int apart_from(const Term *t, const Term *u)
{
    for (int d = 0; d < t->ndim; d++) {
        bool met = t->dim[d].n != 1;
        for (int k = 0; k < u->ndim; k++)
            met |= u->dim[k].n == 1 && u->dim[k].c[0] == t->dim[d].c[0];
        if (!met)
            return d;
    }
    return -1;
}

/* Queries, keys and values of an attention in parts of tokens. */
static bool ring_put(Plan *p, const Graph *g, Arena *a, const Node *n,
                     int axis)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    int at[] = { apart_from(&s.in[0], &s.in[1]),
                 apart_from(&s.in[1], &s.in[0]),
                 apart_from(&s.in[2], &s.out) };
    bool may = true;
    for (int k = 0; k < COUNT(at); k++)
        may &= at[k] >= 0 && !ops[g->node[n->in[k]].op].leaf;
    for (int k = 0; k < COUNT(at) && may; k++)
        lie_along(p, a, &g->node[n->in[k]], at[k], axis);
    return may;
}

static int twin_new(Plan *p, Arena *a, int axis)
{
    const Axis *of = &p->mesh.axis[axis];
    p->mesh.axis[p->mesh.naxis] =
        (Axis){ fmt(a, "%s'", of->name), of->size, TIME };
    return p->mesh.naxis++;
}

void rings_draw(Draw *d, Plan *p, const Graph *g, Arena *a, FeatureSet want,
                FeatureSet *has)
{
    int axis = space_axis(d, &p->mesh);
    bool asked = want & FEATURE_SET(rings), any = false;
    if (axis < 0 || p->mesh.naxis == NAXIS
        || (draw_below(d, 10) >= 1 && !asked))
        return;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_attn && (draw_below(d, 4) || asked))
            any |= ring_put(p, g, a, &g->node[r], axis);
    if (!any)
        return;
    twin_new(p, a, axis);
    *has |= FEATURE_SET(rings);
}

/* Does that leaf lie over the axis along dimension d, now? */
static bool leaf_along(Plan *p, Arena *a, const Node *n, int d, int axis)
{
    uint32_t i = 0;
    Axes has = 0;
    while (i < p->nleaf && strcmp(p->leaf[i].name, n->name) != 0)
        i++;
    if (i == p->nleaf) {
        GROW(a, p->leaf, p->nleaf, p->leafcap);
        p->leaf[p->nleaf++] = (LeafPlan){ .name = n->name,
                                          .ndim = n->type.ndim };
    }
    LeafPlan *l = &p->leaf[i];
    for (int k = 0; k < l->ndim; k++)
        has |= split_axes(l->split[k]);
    if (has >> axis & 1)
        return split_axes(l->split[d]) >> axis & 1;
    l->split[d] = split_push(l->split[d], axis);
    return true;
}

/* A product with a weight, whose columns lie over the axis: what it reads
 * comes round. */
static bool chunk_put(Plan *p, const Graph *g, Arena *a, const Node *n,
                      int axis, int twin)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    const Node *x = &g->node[n->in[0]], *w = &g->node[n->in[1]];
    int at = apart_from(&s.in[0], &s.in[1]), to = apart_from(&s.in[1],
                                                             &s.in[0]);
    if (at < 0 || to < 0 || ops[x->op].leaf || w->op != OP_param
        || !leaf_along(p, a, w, to, axis))
        return false;
    lie_along(p, a, x, at, twin);
    return true;
}

void chunks_draw(Draw *d, Plan *p, const Graph *g, Arena *a, FeatureSet want,
                 FeatureSet *has)
{
    int axis = space_axis(d, &p->mesh), twin = -1;
    bool asked = want & FEATURE_SET(chunks), any = false;
    for (int i = 0; i < p->mesh.naxis; i++)
        if (mesh_home(&p->mesh, i) >= 0)
            axis = mesh_home(&p->mesh, i), twin = i;
    if (axis < 0 || (twin < 0 && p->mesh.naxis == NAXIS)
        || (draw_below(d, 10) >= 1 && !asked))
        return;
    twin = twin < 0 ? twin_new(p, a, axis) : twin;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_dot && (draw_below(d, 4) || asked))
            any |= chunk_put(p, g, a, &g->node[r], axis, twin);
    if (any)
        *has |= FEATURE_SET(chunks);
}
