/* cast.c -- storage types, made explicit before grad.
 *
 * Contractions take operands in the plan's compute dtype and their results
 * are kept in it; so are the running sums of a residual network, and what a
 * concat joins: they wait for backward, and what they are made of has that
 * dtype.  Everything else (statistics, softmax, losses, optimizer,
 * accumulators, masters) stays f32.  A value has its dtype whether or not it
 * is fused, so fusion never changes bits; where narrow numbers only move, the
 * moved ones are narrow.  A contraction of a value with itself is a statistic
 * and stays f32, as does one that makes a scalar; an outer product, which
 * folds nothing, does too.  This is the mixed precision of Micikevicius et al.
 * (ICLR 2018) with bf16, which needs no loss scale.  Gradients of the narrow
 * values are narrow in turn (grad.c).
 * The logits of a softmax are contracted wide: exp turns an absolute error of
 * its argument, which grows with it, into a relative one.  So is what is
 * compared: a rounding there is another choice (of a code, an argmax).  But
 * what was rounded already is contracted as it is kept: products of narrow
 * numbers are exact in f32, so widening them before changes nothing.
 * Where no gradient is taken nothing is kept for one, and results stay as wide
 * as they were summed: a sampler feeds its network its own rounding.  There,
 * too, the queries and keys that make logits are contracted wide. */
#include "passes/pass.h"

static bool folds(const Graph *g, const Node *n)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    return sig_folds(&s);
}

static bool contracts(const Graph *g, const Node *n)
{
    return ops[n->op].family == FAMILY_conv
        || (n->op == OP_dot && folds(g, n));
}

static bool narrowed(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return contracts(g, n) && n->type.ndim > 1 && n->type.dtype == F32
        && n->in[0] != n->in[1];
}

enum { LOGITS = 1, PROJECTIONS = 2 };      /* contractions before a `bends` */

/* Does n make much of a small error? */
static bool bends(const Node *n)
{
    return n->op == OP_exp || n->op == OP_eq || n->op == OP_lt
        || n->op == OP_le;
}

/* How many contractions on the ways to each node stay wide, of the `deep` ones
 * before such a node. */
static uint8_t *widened(const Graph *g, int deep)
{
    uint8_t *wide = alloc(g->arena, g->n + 1);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool attn = n->op == OP_attn;
        int left = bends(n) ? deep : attn ? deep - LOGITS
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

/* The narrow value of which q is the wide form; NONE. */
static Ref narrow_form(const Graph *g, Ref q, DType kept)
{
    const Node *n = &g->node[q];
    bool wide = n->op == OP_cast && n->type.dtype == F32
        && g->node[n->in[0]].type.dtype == kept;
    return wide ? n->in[0] : NONE;
}

/* q as it is kept, and read as f32. */
static Ref rounded(Copy *c, Ref q, DType kept, const Node *like)
{
    if (narrow_form(c->out, q, kept) != NONE)
        return q;
    return cast_to(c->out, cast_to(c->out, q, kept, like), F32, like);
}

/* Narrow numbers are moved before they are widened. */
static Ref placed(Copy *c, Ref r, DType kept)
{
    const Node *n = &c->in->node[r];
    Ref in[NIN];
    for (int i = 0; i < n->nin; i++) {
        in[i] = narrow_form(c->out, c->map[n->in[i]], kept);
        if (in[i] == NONE)
            return copy_node(c, r);
    }
    Ref q = copy_node_in(c, r, in, n->nin);
    c->out->node[q].type.dtype = kept;
    return cast_to(c->out, q, F32, n);
}

/* Are all operands of r wide forms of narrow values? */
static bool is_rounded(const Copy *c, Ref r, DType d)
{
    const Node *n = &c->in->node[r];
    for (int i = 0; i < n->nin; i++)
        if (narrow_form(c->out, c->map[n->in[i]], d) == NONE)
            return false;
    return true;
}

/* kept: what the result is kept in. */
static Ref narrow(Copy *c, Ref r, DType d, DType kept)
{
    const Node *n = &c->in->node[r];
    Ref in[NIN];
    for (int i = 0; i < n->nin; i++)
        in[i] = cast_to(c->out, c->map[n->in[i]], d, n);
    return rounded(c, copy_node_in(c, r, in, n->nin), kept, n);
}

/* ---- what lies between contractions ---- */

/* Does n only say where numbers lie? */
static bool places(const Graph *g, const Node *n)
{
    return n->op == OP_concat || n->op == OP_slice
        || (n->op == OP_move && !folds(g, n)
            && type_volume(&n->type) == type_volume(&g->node[n->in[0]].type));
}

/* Values made of contractions, element by element. */
static bool *find_terms(const Graph *g, Job *j)
{
    bool *term = alloc(j->scratch, g->n + 1);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        term[r] = narrowed(g, r);
        for (int i = 0; i < n->nin; i++)
            term[r] |= term[n->in[i]]
                && (op_pointwise(n->op) || places(g, n));
    }
    return term;
}

/* Values that are read more than once, as they are or elsewhere. */
static bool *find_often(const Graph *g, Job *j)
{
    const uint32_t *uses = graph_uses(g, j->scratch);
    bool *often = alloc(j->scratch, g->n + 1);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        often[r] |= uses[r] > 1;
        for (int i = 0; places(g, n) && i < n->nin; i++)
            often[n->in[i]] |= often[r];
    }
    return often;
}

/* Is r kept narrow?  A sum of what a branch of the network made and what went
 * around it, which the next branch and the next sum read; an operand of a
 * concat. */
static bool *find_kept(const Graph *g, Job *j)
{
    const bool *term = find_terms(g, j), *often = find_often(g, j);
    bool *kept = alloc(j->scratch, g->n + 1);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool float32 = n->type.dtype == F32 && n->type.ndim > 1;
        if (!float32 || n->nin != 2)
            continue;
        bool both = term[n->in[0]] && term[n->in[1]] && often[r];
        kept[r] |= n->op == OP_add && both;
        if (n->op == OP_concat && both)
            kept[n->in[0]] = kept[n->in[1]] = true;
    }
    return kept;
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
    bool keeps = d != F32 && trains(in);
    const uint8_t *wide = d == F32 ? NULL
                        : widened(in, keeps ? LOGITS : PROJECTIONS);
    const bool *kept = keeps ? find_kept(in, j) : NULL;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        if (d != F32 && narrowed(in, r)
            && (!wide[r] || is_rounded(&c, r, d)))
            c.map[r] = narrow(&c, r, d, keeps && !wide[r] ? d : F32);
        else
            c.map[r] = keeps && places(in, n) ? placed(&c, r, d)
                                              : copy_node(&c, r);
        if (keeps && kept[r])
            c.map[r] = rounded(&c, c.map[r], d, n);
    }
    Graph *g = copy_end(&c), *out = graph_simplify(g, j);
    arena_drop(j->keep, g->node);
    return out;
}
