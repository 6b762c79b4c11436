/* unit_index.c -- inputs that index a table, so that data are checked.
 *
 * `take` answers 0 outside of its table, which ranks that hold a part of one
 * need.  A token that no table has is the data's mistake, and is told when it
 * is read: an input that reaches the indices of a take unchanged has a limit,
 * the rows of the smallest such table.  So has one that is compared with an
 * iota, as labels of classes are: its length. */
#include "codegen/unit.h"

/* The elements of operand 0, as they are. */
static bool passes_on(const Graph *g, const Node *n)
{
    if (n->op == OP_move)
        return type_volume(&n->type)
            >= type_volume(&g->node[n->in[0]].type);
    return n->op == OP_cast || n->op == OP_copy || n->op == OP_stop
        || n->op == OP_slice;
}

/* Rows of what the node looks up with those of its operands that are the
 * input; 0: nothing. */
static int64_t rows_of(const Graph *g, const Node *n, const bool *same)
{
    if (n->op == OP_take && same[n->in[1]])
        return g->node[n->in[0]].type.dim[0];
    for (int i = 0; n->op == OP_eq && i < 2; i++) {
        const Node *other = &g->node[n->in[!i]];
        if (same[n->in[i]] && other->op == OP_iota)
            return other->type.dim[other->attr.dim];
    }
    return 0;
}

void unit_index(const Graph *g, Ref input, DpcLeaf *l, Arena *a)
{
    bool *same = alloc(a, (g->n + 1) * sizeof *same);
    same[input] = true;
    for (Ref r = input + 1; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (n->nin && same[n->in[0]] && passes_on(g, n))
            same[r] = true;
        int64_t rows = rows_of(g, n, same);
        if (rows && (!l->limit || rows < l->limit))
            l->limit = rows, l->table = n->loc;
    }
}
