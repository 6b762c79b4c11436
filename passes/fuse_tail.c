/* fuse_tail.c -- what the library does with a product before it stores it.
 *
 * A contraction that one rounding alone reads is stored narrow: its f32 form
 * never lies in memory.  The target says whether its library can (its cost of
 * both as one launch); what else reads the value reads the rounded one, so no
 * bit changes. */
#include "passes/fuse.h"
#include <math.h>

static bool product(const Node *n)
{
    return n->op == OP_dot || ops[n->op].family == FAMILY_conv;
}

/* By node: who reads it, if it is one node; NONE. */
static Ref *only_readers(const Fuse *f)
{
    const Graph *g = f->g;
    const uint32_t *uses = graph_uses(g, f->arena);
    Ref *reader = alloc(f->arena, (g->n + 1) * sizeof *reader);
    for (Ref r = 0; r < g->n; r++)
        reader[r] = NONE;
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++)
            if (uses[g->node[r].in[i]] == 1 && !op_unread(g->node[r].op, i))
                reader[g->node[r].in[i]] = r;
    return reader;
}

static bool is_kept(const Graph *g, Ref r)
{
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].value == r)
            return true;
    for (uint32_t i = 0; i < g->nout; i++)
        if (g->out[i].ref == r)
            return true;
    return false;
}

/* May the rounding r run where the product p does? */
static bool belongs(const Graph *g, Ref p, Ref r)
{
    const Node *n = &g->node[p], *m = &g->node[r];
    return m->op == OP_cast && m->type.dtype == BF16 && m->loop == n->loop
        && m->stage == n->stage && !is_kept(g, p) && !is_kept(g, r)
        && m->moment == n->moment
        && (m->segment == n->segment || m->segment == UPDATE);
}

void fuse_tails(Fuse *f)
{
    const Graph *g = f->g;
    const Ref *reader = only_readers(f);
    for (Ref p = 0; p < g->n; p++)
        f->call[p] = NONE;
    for (Ref p = 0; p < g->n; p++) {
        Ref r = product(&g->node[p]) ? reader[p] : NONE;
        List both = {0};
        const char *why;
        if (r == NONE || !belongs(g, p, r))
            continue;
        list_add(f->arena, &both, p);
        list_add(f->arena, &both, r);
        Node *m = &f->g->node[r];
        int was = m->layout;
        m->layout = g->node[p].layout;
        if (fuse_cost(f, &both, &why) == INFINITY) {
            m->layout = was;
            continue;
        }
        f->call[p] = f->call[r] = p;
        m->segment = g->node[p].segment;
    }
}
