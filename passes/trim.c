/* trim.c -- zeros in the padding of what is folded.
 *
 * Where parts do not divide a dimension, the last ones hold less than the
 * others and then padding, in which anything may stand: a NaN, too.  What
 * keeps the dimension carries that along; what folds it must not.  Generated
 * loops choose as they fold (codegen/kernel_op.c), and attention ends where
 * its tokens do; a product of the library, a convolution and rows by index read
 * whatever there is.  All of their operands are trimmed, since zero times a NaN
 * is none.  Halos bring zeros. */
#include "passes/pass.h"

static bool padded(const Mesh *m, Split s, int64_t n)
{
    return n % split_parts(m, s) != 0;
}

/* Does the node fold a letter whose padding it would read? */
static bool reads_padding(const Graph *g, const Node *n)
{
    bool any = false;
    Family f = ops[n->op].family;
    if (n->op != OP_dot && n->op != OP_put && f != FAMILY_conv
        && f != FAMILY_attention)
        return false;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    sig_split(&s, g, n->in);
    for (int c = 0; c < NLETTER; c++)
        any |= s.folded[c] && padded(&g->mesh, s.split[c], s.size[c])
            && !(f == FAMILY_attention && strchr("qs", c));
    return any;
}

static bool has_padding(const Graph *g, Ref r)
{
    const Type *t = &g->node[r].type;
    for (int d = 0; d < t->ndim; d++)
        if (padded(&g->mesh, t->split[d], t->dim[d]))
            return true;
    return false;
}

/* r with zeros in its padding; made once a reader's segment. */
static Ref trimmed(Copy *c, Ref r, const Node *reader, Ref *made)
{
    const Node *n = &c->in->node[r];
    Ref q = made[r];
    if (!has_padding(c->in, r) || type_halo(&n->type))  /* zeros are there */
        return c->map[r];
    if (q != NONE && c->out->node[q].segment <= reader->segment)
        return q;
    q = made[r] = EMIT(c->out, OP_trim, NULL, n->loc, c->map[r]);
    Node *m = &c->out->node[q];
    bool leaf = ops[n->op].leaf;
    m->segment = leaf ? reader->segment : n->segment;
    m->loop = type_axes(&n->type) & mesh_axes(&c->in->mesh, TIME);
    m->stage = n->stage, m->scope = n->scope;
    return q;
}

Graph *pass_trim(const Graph *in, Job *j)
{
    bool *reads = alloc(j->scratch, in->n + 1), any = false;
    for (Ref r = 0; r < in->n; r++)
        any |= reads[r] = reads_padding(in, &in->node[r]);
    if (!any)
        return copy_none(in);
    Copy c = copy_begin(in, j);
    Ref *made = alloc(j->scratch, (in->n + 1) * sizeof *made);
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref x[NIN];
        made[r] = NONE;
        if (!reads[r]) {
            copy_node(&c, r);
            continue;
        }
        for (int i = 0; i < n->nin; i++)
            x[i] = op_unread(n->op, i) ? c.map[n->in[i]]
                 : trimmed(&c, n->in[i], n, made);
        copy_node_in(&c, r, x, n->nin);
    }
    return copy_end(&c);
}
