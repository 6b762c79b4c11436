/* compress.c -- gradients are sent in fewer bytes, and what that loses stays.
 *
 * A sum of gradients over ranks that `propagate` has asked for is made in two
 * halves, each of bf16, or of bytes with a scale for each row:
 *     u   = move x, the addends side by side     [P/dp, a, b]
 *     s   = u + e             e: the residual, a state of this rank
 *     q   = s in fewer bytes; e' = s - q, to the bit: what is sent and what
 *           stays are the true sum
 *     sum = fold of q, sent from /dp along P to /dp along a     [a/dp, b]
 * and, where the gradient is wanted whole, once more for `sum`, with a
 * residual of its own, gathered along a (Seide et al., Interspeech 2014;
 * error feedback: Karimireddy et al., ICML 2019; two halves: Tang et al.,
 * "1-bit Adam", ICML 2021).  Parts are added up in f32 by who keeps them.
 *
 * s - q is exact in f32: q is s rounded to 8 bits of 24, or a whole number of
 * at most 127 times a scale of 8 bits; what is left has no bit below those of
 * s and is no larger.  Casts and `round` are the identity in the field, where
 * e, which begins with zeros, stays zero: `dpc verify` sees the plain sum.
 *
 * Of several axes that a sum is owed over, the plan's major one is
 * compressed, last: inside of a node bytes are cheap.  Small gradients are
 * sent as they are. */
#include "ir/text.h"
#include "passes/pass.h"
#include <math.h>

enum { BLOCK = 64, ROW = 16, MOST = 126 };

typedef struct Squeeze {
    Copy c;
    const Plan *plan;
    Arena *scratch;
    Ref *leaf;                            /* by node of in: the param whose
                                             gradient it is; NONE */
    Ref *sum;                             /* by node of in: finished; NONE */
    const Node *of;                       /* the reshard that is replaced */
    const char *name;                     /* of the param */
    Names leaves;                         /* of out */
} Squeeze;

/* A value in fewer bytes; scale NONE: bf16. */
typedef struct Coded { Ref q, scale; int row; } Coded;

/* ---- nodes with the labels of what they replace ---- */

static Ref label(Squeeze *s, Ref r)
{
    Node *n = &s->c.out->node[r];
    n->segment = s->of->segment, n->scope = s->of->scope;
    n->stage = s->of->stage;
    return r;
}

static Ref one(Squeeze *s, Op op, const Attr *a, Ref x)
{
    return label(s, EMIT(s->c.out, op, a, s->of->loc, x));
}

static Ref two(Squeeze *s, Op op, Ref x, Ref y)
{
    return label(s, EMIT(s->c.out, op, NULL, s->of->loc, x, y));
}

static const Type *type_of(const Squeeze *s, Ref r)
{
    return &s->c.out->node[r].type;
}

static Ref number(Squeeze *s, double v, Ref like)
{
    Graph *g = s->c.out;
    Ref first = g->n, r = emit_const(g, v, type_of(s, like), s->of->loc);
    for (Ref q = first; q < g->n; q++)
        label(s, q);
    return r;
}

static Ref lie(Squeeze *s, Ref x, const Type *want)
{
    if (type_equal(type_of(s, x), want))
        return x;
    return label(s, emit_typed(s->c.out, OP_reshard, NULL, *want, &x, 1, NULL,
                               s->of->loc));
}

/* "abc" -> "ab" for 3 dimensions and 2: letters in order, from `first` on. */
static const char *letters(Squeeze *s, int from, int to, int from_end,
                           int to_end)
{
    Str t = { .arena = s->c.out->arena };
    for (int d = from; d < from_end; d++)
        str_add(&t, "%c", 'a' + d);
    str_add(&t, "->");
    for (int d = to; d < to_end; d++)
        str_add(&t, "%c", 'a' + d);
    return t.p;
}

/* ---- fewer bytes ---- */

/* Where the rows begin that share a scale: trailing dimensions that are not
 * split, nor `keep`; ndim where they would be too short. */
static int row_of(const Type *t, int keep)
{
    int64_t n = 1;
    int d = t->ndim;
    while (d > keep + 1 && !t->split[d - 1] && n < BLOCK)
        n *= t->dim[--d];
    return n < ROW ? t->ndim : d;
}

/* A number a row, at each of its elements. */
static Ref spread(Squeeze *s, Ref x, const Type *to, int row)
{
    Attr a = { .sig = letters(s, 0, 0, row, to->ndim) };
    a.letter = alloc(s->c.out->arena, (NDIM + 1) * sizeof *a.letter);
    for (int d = row; d < to->ndim; d++)
        a.letter[a.nletter++] = (Letter){ (char)('a' + d), to->dim[d], 0 };
    return one(s, OP_move, &a, x);
}

static Ref cast_to(Squeeze *s, Ref x, DType t)
{
    return one(s, OP_cast, &(Attr){ .dtype = t }, x);
}

/* The largest of a row is about MOST steps of its scale, never over 127;
 * infinity of a row with a number that is not finite, whatever the order of
 * the fold, which keeps no NaN. */
static Ref scale_of(Squeeze *s, Ref x, int row)
{
    Attr fold = { .sig = letters(s, 0, 0, type_of(s, x)->ndim, row) };
    Ref size = label(s, EMIT(s->c.out, OP_where, NULL, s->of->loc,
                             one(s, OP_finite, NULL, x),
                             one(s, OP_abs, NULL, x),
                             number(s, INFINITY, x)));
    Ref most = one(s, OP_max, &fold, size);
    most = two(s, OP_mul, most, number(s, 1.0 / MOST, most));
    most = two(s, OP_maximum, most, number(s, 1e-30, most));
    return cast_to(s, most, BF16);
}

/* Bytes are counted from 128. */
static Ref decode(Squeeze *s, const Coded *k)
{
    Ref q = cast_to(s, k->q, F32);
    if (k->scale == NONE)
        return q;
    q = two(s, OP_sub, q, number(s, 128, q));
    Ref scale = cast_to(s, k->scale, F32);
    return two(s, OP_mul, q, spread(s, scale, type_of(s, q), k->row));
}

static Coded encode(Squeeze *s, Ref x, int keep, DType how)
{
    int row = row_of(type_of(s, x), keep);
    if (how == BF16 || row == type_of(s, x)->ndim)
        return (Coded){ cast_to(s, x, BF16), NONE, 0 };
    Coded k = { NONE, scale_of(s, x, row), row };
    Ref scale = spread(s, cast_to(s, k.scale, F32), type_of(s, x), row);
    Ref q = two(s, OP_div, x, scale);
    q = two(s, OP_keep, one(s, OP_finite, NULL, q), q);
    q = one(s, OP_round, NULL, q);
    k.q = cast_to(s, two(s, OP_add, q, number(s, 128, q)), U8);
    return k;
}

/* x and what was left behind, in fewer bytes; what that loses stays behind.
 * A step that is not finite leaves nothing. */
static Coded send(Squeeze *s, Ref x, int keep, DType how, const char *name)
{
    Graph *g = s->c.out;
    Attr a = { .residual = 1 };
    Ref e = emit_typed(g, OP_state, &a, *type_of(s, x), NULL, 0, name,
                       s->of->loc);
    for (int i = 1; !names_add(&s->leaves, s->scratch, g, e); i++)
        g->node[e].name = fmt(g->arena, "%s.%d", g->node[e].name, i);
    g->node[e].segment = BEGIN, g->node[e].stage = s->of->stage;
    Ref all = two(s, OP_add, x, e);
    Coded k = encode(s, all, keep, how);
    Ref left = two(s, OP_sub, all, decode(s, &k));
    graph_set(g, e, two(s, OP_keep, one(s, OP_finite, NULL, left), left));
    return k;
}

/* The same, its dimensions' splits those of `want` as far as it has them. */
static Coded moved(Squeeze *s, Coded k, const Type *want)
{
    Type t = *type_of(s, k.q);
    memcpy(t.split, want->split, sizeof t.split);
    k.q = lie(s, k.q, &t);
    if (k.scale == NONE)
        return k;
    t = *type_of(s, k.scale);
    memcpy(t.split, want->split, (size_t)t.ndim * sizeof *t.split);
    k.scale = lie(s, k.scale, &t);
    return k;
}

/* ---- a gradient ---- */

/* The dimension that the ranks of the axis share out: the one that is wanted
 * so, else the first that they divide, else the first that is long enough. */
static int shared_dim(const Mesh *m, const Type *t, const Type *want, int axis)
{
    int parts = m->axis[axis].size, found = -1;
    for (int d = 0; d < t->ndim; d++)
        if (split_axes(want->split[d]) >> axis & 1)
            return d;
    for (int d = t->ndim; d-- > 0;)
        if (!t->split[d] && t->dim[d] % parts == 0)
            found = d;
    for (int d = 0; found < 0 && d < t->ndim; d++)
        if (!t->split[d] && t->dim[d] >= parts)
            found = d;
    return found;
}

static Ref side_by_side(Squeeze *s, Ref x, int axis)
{
    Attr a = { .nletter = 1 };
    Str sig = { .arena = s->c.out->arena };
    int n = type_of(s, x)->ndim;
    a.letter = alloc(s->c.out->arena, sizeof *a.letter);
    *a.letter = (Letter){ 'p', s->c.out->mesh.axis[axis].size,
                          split_push(0, axis) };
    str_add(&sig, "%.*s->p%.*s", n, "abcdefgh", n, "abcdefgh");
    a.sig = sig.p;
    return one(s, OP_move, &a, x);
}

/* x owes a sum over the axis and nothing else; the ranks keep parts of
 * dimension d, or all of it. */
static Ref squeezed(Squeeze *s, Ref x, int axis, int d, bool whole)
{
    Graph *g = s->c.out;
    const char *on = g->mesh.axis[axis].name;
    DType how = s->plan->compress[axis];
    Ref u = side_by_side(s, x, axis);
    Type t = *type_of(s, u);
    Coded k = send(s, u, d + 1, how, fmt(g->arena, "residual.%s.%s", on,
                                         s->name));
    t.split[0] = 0, t.split[d + 1] = split_push(t.split[d + 1], axis);
    k = moved(s, k, &t);
    Attr fold = { .sig = letters(s, 0, 1, t.ndim, t.ndim) };
    Ref sum = one(s, OP_move, &fold, decode(s, &k));
    if (!whole)
        return sum;
    t = *type_of(s, sum);
    k = send(s, sum, d, how, fmt(g->arena, "residual.%s.sum.%s", on, s->name));
    t.split[d] = split_without(t.split[d], (Axes)(1u << axis));
    k = moved(s, k, &t);
    return decode(s, &k);
}

/* The major axis of those that are owed and that the plan compresses; -1. */
static int axis_of(const Squeeze *s, const Type *have, const Type *want)
{
    Axes owed = have->partial & (Axes)~want->partial;
    const Mesh *m = &s->c.out->mesh;
    for (int i = 0; i < m->naxis && have->fold == FOLD_SUM; i++)
        if (owed >> i & 1 && m->axis[i].kind == SPACE
            && s->plan->compress[i] != F32)
            return i;
    return -1;
}

/* Node r, a reshard, with its sum in fewer bytes; NONE: as it is. */
static Ref compressed(Squeeze *s, Ref r)
{
    const Graph *in = s->c.in;
    const Node *n = &in->node[r];
    Type t = in->node[n->in[0]].type, want = n->type;
    int axis = axis_of(s, &t, &want);
    Axes it = axis < 0 ? 0 : (Axes)(1u << axis);
    if (axis < 0 || s->leaf[r] == NONE || t.dtype != F32 || t.ndim >= NDIM
        || want.partial)
        return NONE;
    t = want, t.partial = it, t.fold = FOLD_SUM;
    for (int d = 0; d < t.ndim; d++)
        t.split[d] = split_without(t.split[d], it);
    int d = shared_dim(&in->mesh, &t, &want, axis);
    Type part = type_local(&in->mesh, &t);
    if (d < 0 || type_volume(&part) < s->plan->least)
        return NONE;
    s->of = n, s->name = in->node[s->leaf[r]].name;
    bool whole = !(split_axes(want.split[d]) & it);
    Ref *sum = &s->sum[n->in[0]];
    if (*sum == NONE)
        *sum = squeezed(s, lie(s, s->c.map[n->in[0]], &t), axis, d, whole);
    return lie(s, *sum, &want);
}

/* From each param back through its update to the gradient that it reads. */
static Ref *params_ahead(const Graph *g, Arena *a)
{
    Ref *leaf = alloc(a, (g->n + 1) * sizeof *leaf);
    for (Ref r = 0; r < g->n; r++)
        leaf[r] = NONE;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->node[g->set[i].leaf].op == OP_param)
            leaf[g->set[i].value] = g->set[i].leaf;
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool gradient = n->op == OP_reshard && n->segment != UPDATE;
        for (int i = 0; leaf[r] != NONE && !gradient && i < n->nin; i++)
            if (leaf[n->in[i]] == NONE && g->node[n->in[i]].type.ndim
                && type_volume(&g->node[n->in[i]].type)
                    == type_volume(&g->node[leaf[r]].type))
                leaf[n->in[i]] = leaf[r];
    }
    return leaf;
}

static bool wanted(const Plan *p)
{
    bool any = false;
    for (int i = 0; p && i < p->mesh.naxis; i++)
        any |= p->compress[i] != F32;
    return any;
}

Graph *pass_compress(const Graph *in, Job *j)
{
    if (!wanted(j->plan))
        return copy_none(in);
    Squeeze s = { .c = copy_begin(in, j), .plan = j->plan,
                  .scratch = j->scratch,
                  .leaf = params_ahead(in, j->scratch) };
    s.sum = alloc(j->scratch, (in->n + 1) * sizeof *s.sum);
    for (Ref r = 0; r < in->n; r++)
        s.sum[r] = NONE;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref q = n->op == OP_reshard ? compressed(&s, r) : NONE;
        if (q == NONE)
            q = copy_node(&s.c, r);
        s.c.map[r] = q;
        if (ops[n->op].leaf)
            names_add(&s.leaves, s.scratch, s.c.out, q);
    }
    return copy_end(&s.c);
}
