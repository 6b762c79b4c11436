/* fuzz_rows.c -- pictures in parts by chance: what convolutions read lies over
 * one axis along its rows or its columns, as far as windows let it be cut. */
#include "compiler/verify.h"

/* Along dimension d of its picture, may node n be cut over that axis, and do
 * its windows reach the neighbours then? */
static bool cuts(const Graph *g, const Node *n, int d, const Mesh *m, int axis)
{
    uint8_t lo, hi;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    const Dim *w = &s.in[0].dim[d];
    return d < s.in[0].ndim && w->window
        && sig_cuts(&s, m, n->op, w->c[0], split_push(0, axis))
        && sig_halo(&s, 0, d, &lo, &hi);
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
        GROW(a, p->value, p->nvalue, p->valuecap);
        ValuePlan *v = &p->value[p->nvalue++];
        *v = (ValuePlan){ .loc = "fuzz", .lie = { .ndim = x->type.ndim },
            .name = *x->scope ? fmt(a, "%s.%s", x->scope, x->name) : x->name };
        for (int k = 0; k < x->type.ndim; k++)
            v->lie.free[k] = k != dim;
        v->lie.split[dim] = split_push(0, axis);
        v->grad = v->lie;
        *has |= FEATURE_SET(halos);
    }
}
