/* fuse_lie.c -- in which order kernels leave their results.
 *
 * A kernel writes any order at the same price, as long as it is the one in
 * which it reads: then its innermost loop walks all operands by neighbours.
 * So the orders that layout chose for convolutions spread on through
 * pointwise nodes and movement.  What launches that are no kernels read, but
 * dots, stays as it was. */
#include "passes/fuse.h"

/* Dimensions in the order of memory, major first. */
static void order_of(const Node *n, int *order)
{
    int code = n->layout;
    for (int d = n->type.ndim; d-- > 0; code /= 10)
        order[d] = n->layout ? code % 10 : d;
}

/* The label of an order; 0 when it is row-major. */
static int code_of(const int *order, int n)
{
    int code = 0;
    bool same = true;
    for (int d = 0; d < n; d++) {
        code = code * 10 + order[d];
        same &= order[d] == d;
    }
    return same ? 0 : code;
}

/* Letters of operand 0 in the order of its memory; what is folded is gone. */
static int letters(const Sig *s, const Node *x, char *out)
{
    int order[NDIM], n = 0;
    order_of(x, order);
    for (int d = 0; d < s->in[0].ndim; d++) {
        const Dim *m = &s->in[0].dim[order[d]];
        for (int i = 0; i < m->n; i++)
            if (!s->folded[(int)m->c[i]])
                out[n++] = m->c[i];
    }
    out[n] = 0;
    return n;
}

/* The order in which a move's result lies as its operand does; -1: none. */
static int moved(const Graph *g, const Node *n)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    char seq[NDIM * NDIM + 1];
    int order[NDIM], at = 0, total = letters(&s, &g->node[n->in[0]], seq);
    for (int done = 0; done < s.out.ndim; done++) {
        int found = -1;
        for (int d = 0; d < s.out.ndim; d++) {
            const Dim *m = &s.out.dim[d];
            if (at + m->n <= total && m->n
                && memcmp(seq + at, m->c, (size_t)m->n) == 0)
                found = d;
        }
        if (found < 0)
            return -1;
        order[done] = found;
        at += s.out.dim[found].n;
    }
    return at == total ? code_of(order, s.out.ndim) : -1;
}

static bool alike(const Graph *g, const Node *n, Ref x)
{
    return (op_pointwise(n->op) || ops[n->op].family == FAMILY_index)
        && g->node[x].type.ndim == n->type.ndim;
}

/* From operands to results, then back. */
static void spread(Fuse *f, const bool *fixed)
{
    Graph *g = f->g;
    for (Ref r = 0; r < g->n; r++) {
        Node *n = &g->node[r];
        if (fixed[r] || n->layout || !n->nin)
            continue;
        if (n->op == OP_move && g->node[n->in[0]].layout) {
            int code = moved(g, n);
            n->layout = code > 0 ? code : 0;
        }
        for (int i = 0; i < n->nin && !n->layout; i++)
            if (alike(g, n, n->in[i]))
                n->layout = g->node[n->in[i]].layout;
    }
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        for (int i = 0; i < n->nin; i++)
            if (n->layout && alike(g, n, n->in[i]) && !fixed[n->in[i]]
                && !g->node[n->in[i]].layout)
                g->node[n->in[i]].layout = n->layout;
    }
}

/* Where a dot cannot read an order well, and nobody else needs it, the value
 * is row-major. */
static void for_dots(Fuse *f, const bool *fixed)
{
    Graph *g = f->g;
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++) {
            Ref x = g->node[r].in[i];
            int was = g->node[x].layout;
            if (g->node[r].op != OP_dot || !was || fixed[x])
                continue;
            double lies = fuse_dot_cost(f, r, true);
            g->node[x].layout = 0;
            if (lies <= 2 * fuse_dot_cost(f, r, true))
                g->node[x].layout = was;
        }
}

void fuse_lie(Fuse *f)
{
    const Graph *g = f->g;
    bool *fixed = alloc(f->arena, g->n + 1);
    for (uint32_t i = 0; i < g->nset; i++)
        fixed[g->set[i].value] = true;
    for (uint32_t i = 0; i < g->nout; i++)
        fixed[g->out[i].ref] = true;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool own = fuse_alone(f, r);
        fixed[r] |= own;
        for (int i = 0; i < n->nin; i++)
            fixed[n->in[i]] |= own && n->op != OP_dot;
    }
    spread(f, fixed);
    for_dots(f, fixed);
}
