/* dead.c -- trainable numbers that no gradient reaches.
 *
 * A loss depends on the nodes that it is made of.  A param that is not among
 * them keeps its first value for ever; one of which they read slices alone
 * keeps the rows between.  Both are legal, and usually a surprise. */
#include "compiler/dead.h"

/* What losses are made of; false: there is no loss. */
static bool losses_mark(const Graph *g, bool *in)
{
    bool any = false;
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        if (n->op == OP_grad) {
            in[n->in[0]] = any = true;
            continue;
        }
        for (int i = 0; in[r] && i < n->nin && n->op != OP_stop; i++)
            in[n->in[i]] |= !op_unread(n->op, i);
    }
    return any;
}

typedef struct Reach {
    bool whole, any;
    int dim;                              /* of all slices */
    bool *row;                            /* read by a slice, along dim */
} Reach;

static void reach_add(Reach *p, const Graph *g, const Node *reader, Arena *a)
{
    const Type *t = &g->node[reader->in[0]].type;
    int d = reader->attr.dim;
    if (reader->op != OP_slice || (p->any && p->dim != d)) {
        p->whole = true;
        return;
    }
    if (!p->any)
        p->row = alloc(a, (size_t)t->dim[d]);
    p->any = true, p->dim = d;
    for (int64_t i = 0; i < reader->attr.size; i++)
        p->row[reader->attr.at + i] = true;
}

static int64_t unread_of(const Reach *p, const Type *t)
{
    int64_t rows = 0;
    if (p->whole || !p->any)
        return p->whole ? 0 : type_volume(t);
    for (int64_t i = 0; i < t->dim[p->dim]; i++)
        rows += !p->row[i];
    return type_volume(t) / t->dim[p->dim] * rows;
}

Dead *dead_find(const Graph *g, Arena *a, uint32_t *n)
{
    Dead *dead = NULL;
    uint32_t cap = 0;
    bool *in = alloc(a, g->n + 1);
    Reach *reach = alloc(a, (g->n + 1) * sizeof *reach);
    *n = 0;
    if (!losses_mark(g, in))
        return NULL;
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; in[r] && i < g->node[r].nin; i++)
            if (g->node[g->node[r].in[i]].op == OP_param)
                reach_add(&reach[g->node[r].in[i]], g, &g->node[r], a);
    for (Ref r = 0; r < g->n; r++) {
        const Node *p = &g->node[r];
        int64_t count = unread_of(&reach[r], &p->type);
        if (p->op != OP_param || p->attr.frozen || !count)
            continue;
        GROW(a, dead, *n, cap);
        dead[(*n)++] = (Dead){ p->name, count, type_volume(&p->type) };
    }
    return dead;
}
