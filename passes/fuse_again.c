/* fuse_again.c -- what a later segment computes again instead of reading.
 *
 * A chain of pointwise nodes over one large value in memory and some small
 * ones (numbers, statistics, gains) costs a kernel of a later segment no more
 * bytes than its result would, and saves writing that, and the memory in
 * which it would wait: after a norm, backward wants six values of the size of
 * one convolution's result, all functions of it.  (Chen et al., "Training
 * deep nets with sublinear memory cost", 2016, drop by layers; here only what
 * is free is dropped.)  Chains are kept short, in nodes and in flops. */
#include "passes/fuse.h"

enum { CHAIN = 96, FLOPS = 192, SMALLER = 8, OPERANDS = 16 };

typedef struct Chain {                    /* of a node that may be met again */
    int n, nsmall;                        /* nodes; operands */
    double flops;
    Ref large;                            /* the one large operand; NONE */
    Ref small[OPERANDS];
} Chain;

/* ---- chains ---- */

static bool pointwise(const Graph *g, const Node *n)
{
    if (n->op == OP_const)
        return !n->attr.data;
    return (n->op == OP_move && !fuse_folds(g, n))
        || op_pointwise(n->op);
}

static bool add_small(Chain *c, Ref r)
{
    for (int i = 0; i < c->nsmall; i++)
        if (c->small[i] == r)
            return true;
    if (c->nsmall == OPERANDS)
        return false;
    c->small[c->nsmall++] = r;
    return true;
}

/* An operand of a node of `size` elements: large, or small. */
static bool add_value(const Fuse *f, Chain *c, Ref r, int64_t size)
{
    if (type_volume(&f->g->node[r].type) * SMALLER <= size)
        return add_small(c, r);
    bool fits = c->large == NONE || c->large == r;
    c->large = r;
    return fits;
}

/* Operand x of a node of `size` elements, met again itself or read. */
static bool add_operand(const Fuse *f, Chain *c, const Chain *all, Ref x,
                        int64_t size)
{
    const Chain *o = &all[x];
    if (!o->n)
        return add_value(f, c, x, size);
    c->n += o->n, c->flops += o->flops;
    for (int i = 0; i < o->nsmall; i++)
        if (!add_small(c, o->small[i]))
            return false;
    return o->large == NONE || add_value(f, c, o->large, size);
}

static bool extend(const Fuse *f, Ref r, Chain *all)
{
    const Node *n = &f->g->node[r];
    Chain c = { .n = 1, .flops = ops[n->op].work, .large = NONE };
    if (f->kind[r] == OWN || !pointwise(f->g, n))
        return false;
    for (int i = 0; i < n->nin; i++)
        if (!add_operand(f, &c, all, n->in[i], type_volume(&n->type)))
            return false;
    if (c.n > CHAIN || c.flops > FLOPS)
        return false;
    all[r] = c;
    return true;
}

/* No more bytes to read than the result has. */
static bool pays(const Graph *g, Ref r, Ref large)
{
    const Type *t = &g->node[r].type;
    const Type *u = large == NONE ? t : &g->node[large].type;
    return type_volume(u) * dtype_size(u->dtype)
        <= type_volume(t) * dtype_size(t->dtype);
}

/* What a kernel reads shifted has to be in memory. */
static bool *shifted(const Fuse *f)
{
    const Graph *g = f->g;
    bool *by = alloc(f->arena, g->n + 1);
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++)
            by[g->node[r].in[i]] |= fuse_shifted(&g->node[r], i);
    return by;
}

void fuse_again(Fuse *f)
{
    const Graph *g = f->g;
    bool *fixed = shifted(f);
    Chain *all = alloc(f->arena, (g->n + 1) * sizeof *all);
    for (Ref r = 0; r < g->n; r++) {
        Segment s = g->node[r].segment;
        bool ok = extend(f, r, all), own = f->kind[r] == PLAIN;
        bool cheap = ok && pays(g, r, all[r].large);
        f->again[r] = own && cheap && !f->kept[r] && !fixed[r]
            && (s == FORWARD || s == BACKWARD);
        f->large[r] = ok ? all[r].large : NONE;
        if (own && !cheap)                /* it waits: chains begin there */
            all[r] = (Chain){ .large = NONE };
    }
}
