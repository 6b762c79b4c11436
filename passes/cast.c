/* cast.c -- storage types, made explicit before grad.
 *
 * Contractions take operands in the plan's compute dtype and their results
 * are kept in it; everything else (statistics, softmax, losses, optimizer,
 * accumulators, masters) stays f32.  A value has its dtype whether or not it
 * is fused, so fusion never changes bits.  A contraction of a value with
 * itself is a statistic and stays f32, as does one that makes a scalar; an
 * outer product, which folds nothing, does too.  This is the mixed precision
 * of Micikevicius et al. (ICLR 2018) with bf16, which needs no loss scale.
 * Where no gradient is taken nothing is kept for one, and results stay as wide
 * as they were summed: a sampler feeds its network its own rounding.  There,
 * too, the logits of a softmax and the queries and keys that make them are
 * contracted wide: exp turns an absolute error of its argument, which grows
 * with it, into a relative one.
 * Gradients of the narrow values are narrow in turn (grad.c). */
#include "passes/pass.h"

static bool contracts(const Graph *g, const Node *n)
{
    if (n->op != OP_dot)
        return ops[n->op].family == FAMILY_conv;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    bool folds = false;
    for (int c = 0; c < NLETTER; c++)
        folds |= s.folded[c];
    return folds;
}

static bool narrowed(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return contracts(g, n) && n->type.ndim > 1 && n->type.dtype == F32
        && n->in[0] != n->in[1];
}

enum { LOGITS = 1, PROJECTIONS = 2 };     /* contractions before an exp */

/* How many contractions on the ways to each node stay wide, for what an exp
 * reads: none but those that it reads through. */
static uint8_t *exponents(const Graph *g)
{
    uint8_t *wide = alloc(g->arena, g->n + 1);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool attn = n->op == OP_attn;
        int left = n->op == OP_exp ? PROJECTIONS : attn ? LOGITS
                 : wide[r] - (wide[r] && narrowed(g, r));
        for (int i = 0; i < (attn ? 2 : n->nin); i++)
            if (wide[n->in[i]] < left)
                wide[n->in[i]] = (uint8_t)left;
    }
    return wide;
}

static Ref cast_to(Graph *g, Ref r, DType d, const Node *like)
{
    if (g->node[r].type.dtype == d)
        return r;
    Ref q = EMIT(g, OP_cast, &(Attr){ .dtype = d }, like->loc, r);
    g->node[q].scope = like->scope;
    return q;
}

/* kept: what the result is kept in. */
static Ref narrow(Copy *c, Ref r, DType d, DType kept)
{
    const Node *n = &c->in->node[r];
    Ref in[NIN];
    for (int i = 0; i < n->nin; i++)
        in[i] = cast_to(c->out, c->map[n->in[i]], d, n);
    Ref q = copy_node_in(c, r, in, n->nin);
    return cast_to(c->out, cast_to(c->out, q, kept, n), F32, n);
}

static bool trains(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_grad)
            return true;
    return false;
}

Graph *pass_cast(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    DType d = j->plan ? j->plan->compute : F32;
    bool train = trains(in);
    const uint8_t *wide = train ? NULL : exponents(in);
    DType kept = train ? d : F32;
    for (Ref r = 0; r < in->n; r++)
        if (d != F32 && narrowed(in, r) && !(wide && wide[r]))
            c.map[r] = narrow(&c, r, d, kept);
        else
            copy_node(&c, r);
    Graph *g = copy_end(&c), *out = graph_simplify(g, j);
    arena_drop(j->keep, g->node);
    return out;
}
