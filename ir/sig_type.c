/* sig_type.c -- the type of a node: what its letters carry to the result.
 *
 * A letter takes the splits of the dimensions that it names; one that is
 * folded away leaves its axes pending.  Pending sums pass only where the row
 * says `lin`.  Windows over a part want their halo, no more and no less
 * (sig_window.c).  Whatever breaks V1-V3 is an error here; propagate inserts a
 * reshard before it can happen. */
#include "ir/graph.h"

/* The letter of a dimension that carries its axes: the outer one. */
static int carrier(const Dim *d)
{
    return d->c[0];
}

static bool merge_split(const Graph *g, Sig *s, const Dim *d, Split want,
                        bool *seen)
{
    int c = carrier(d);
    bool agree = !seen[c] || s->split[c] == want;
    if (!seen[c])
        s->split[c] = want;
    seen[c] = true;
    if (want && s->fixed[c])
        return false;
    if (want && d->n > 1 && !d->window
        && !sig_group_cuts(s, &g->mesh, c, want))
        return false;
    return agree;
}

bool sig_split(Sig *s, const Graph *g, const Ref *in)
{
    bool ok = true, seen[NLETTER] = {0};
    Axes used = 0;

    memset(s->split, 0, sizeof s->split);
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim && !s->in[i].unread; d++) {
            const Dim *m = &s->in[i].dim[d];
            ok &= merge_split(g, s, m, g->node[in[i]].type.split[d], seen);
            for (int k = 1; k < m->n; k++)   /* inner letters: never split */
                ok &= merge_split(g, s, &(Dim){ 1, false, { m->c[k] } }, 0,
                                  seen);
        }
    for (int c = 0; c < NLETTER; c++) {
        if (!s->split[c])
            continue;
        ok &= !(split_axes(s->split[c]) & used);
        used |= split_axes(s->split[c]);
    }
    return ok;
}

/* Letters that no operand has may be split by the node itself: b=128/dp. */
static void own_splits(Sig *s, const Attr *a)
{
    for (int i = 0; a && i < a->nletter; i++)
        if (a->letter[i].split)
            s->split[(int)a->letter[i].c] = a->letter[i].split;
}

/* Axes of the letters that the node itself cuts. */
static Axes own_axes(const Attr *a)
{
    Axes own = 0;
    for (int i = 0; a && i < a->nletter; i++)
        own |= split_axes(a->letter[i].split);
    return own;
}

static Axes folded_axes(const Sig *s)
{
    Axes a = 0;
    for (int c = 0; c < NLETTER; c++)
        if (s->folded[c] && s->split[c])
            a |= split_axes(s->split[c]);
    return a;
}

/* What operand i owes, or an error where the row may not take it. */
static Axes pending(const Sig *s, const Graph *g, Op op, const Ref *in,
                    int i, const char *loc)
{
    const Type *t = &g->node[in[i]].type;
    if (!t->partial)
        return 0;
    bool variadic = ops[op].arity < 0;
    int me = variadic ? 0 : i;
    if (t->fold != FOLD_SUM || !op_linear(op, me, me))
        err(loc, "%s: operand %d is still to be folded over the mesh, and this "
            "op wants it whole", ops[op].name, i + 1);
    for (int k = 0; k < s->nop; k++) {
        if (k == i || (!variadic && s->in[k].unread))
            continue;
        const Type *u = &g->node[in[k]].type;
        bool together = variadic || op_linear(op, i, k);
        if (together ? u->partial != t->partial
                     : (type_axes(u) & t->partial) != 0)
            err(loc, "%s: operands %d and %d owe different sums",
                ops[op].name, i + 1, k + 1);
    }
    return t->partial;
}

/* C14: operands agree; a fold of narrow floats returns f32; cast casts, and
 * so does a pack that is told to. */
static DType result_dtype(const Sig *s, const Graph *g, Op op, const Attr *a,
                          const Ref *in, const char *loc)
{
    if (op == OP_cast || (op == OP_pack && a->dtype != F32))
        return a->dtype;
    int first = -1;
    bool fold = op == OP_put || ops[op].family == FAMILY_conv
        || (ops[op].family != FAMILY_index    /* rows are one another */
            && memchr(s->folded, true, sizeof s->folded));
    for (int i = 0; i < s->nop; i++) {
        bool variadic = ops[op].arity < 0;
        DType t = g->node[in[i]].type.dtype;
        if (!variadic && s->in[i].integer && t != I32 && t != U8)
            err(loc, "%s: operand %d is %s, and indices are i32 or u8; cast "
                "them", ops[op].name, i + 1, dtype_name(t));
        if (!variadic && (s->in[i].integer || s->in[i].unread))
            continue;
        if (first >= 0 && t != g->node[in[first]].type.dtype)
            err(loc, "%s: operand %d is %s and operand %d is %s; cast one",
                ops[op].name, first + 1,
                dtype_name(g->node[in[first]].type.dtype), i + 1,
                dtype_name(t));
        if (first < 0)
            first = i;
    }
    DType d = first < 0 ? F32 : g->node[in[first]].type.dtype;
    if (op == OP_grad)
        d = g->node[in[1]].type.dtype;
    return fold && op != OP_take && d == BF16 ? F32 : d;
}

/* FOLD(max): the gradient asks which element it was, so a letter that is
 * repeated in the result would count twice. */
static void no_repeats(const Sig *s, Op op, const char *loc)
{
    bool left[NLETTER] = {0};
    for (int d = 0; d < s->in[0].ndim; d++)
        for (int k = 0; k < s->in[0].dim[d].n; k++)
            left[(int)s->in[0].dim[d].c[k]] = true;
    for (int d = 0; d < s->out.ndim; d++)
        for (int k = 0; k < s->out.dim[d].n; k++)
            if (!left[(int)s->out.dim[d].c[k]])
                err(loc, "%s: the operand has no dimension %c; repeat it with "
                    "move afterwards", ops[op].name, s->out.dim[d].c[k]);
}

static void result_dims(const Sig *s, const Graph *g, Op op, Type *t,
                        const char *loc)
{
    t->ndim = s->out.ndim;
    for (int d = 0; d < t->ndim; d++) {
        const Dim *m = &s->out.dim[d];
        t->dim[d] = 1;
        for (int k = 0; k < m->n; k++)
            t->dim[d] *= s->size[(int)m->c[k]];
        if (m->window)
            t->dim[d] = s->extent[(int)m->c[0]];
        for (int k = 1; k < m->n; k++)
            if (s->split[(int)m->c[k]])
                err(loc, "%s: %c is inner in a group of the result, so it "
                    "cannot be split", ops[op].name, m->c[k]);
        t->split[d] = s->split[carrier(m)];
        sig_rows(s, &g->mesh, -1, d, t->split[d], t);
        if (m->n > 1 && !m->window
            && !sig_group_cuts(s, &g->mesh, carrier(m), t->split[d]))
            err(loc, "%s: %c of %lld is outer in a group and cannot be cut in "
                "%lld parts", ops[op].name, carrier(m),
                (long long)s->size[carrier(m)],
                (long long)split_parts(&g->mesh, t->split[d]));
    }
}

/* V9: rows of other parts, and parts of another length, where the row's windows
 * and groups want them, nowhere else; what only moves a part takes them
 * along. */
static void halos(const Sig *s, const Graph *g, Op op, const Ref *in, Type *t,
                  const char *loc)
{
    bool moves = ops[op].family == FAMILY_copy || ops[op].family == FAMILY_hop;
    for (int c = 0; s->windows && c < NLETTER; c++)
        if (s->extent[c] && s->split[c]
            && !sig_cuts(s, &g->mesh, op, c, s->split[c]))
            err(loc, "%s: a window over %lld rows with %lld places cannot be "
                "cut in %lld parts: they must be those of ranks in order, and "
                "zeros beyond the ends must add nothing", ops[op].name,
                (long long)s->extent[c], (long long)s->size[c],
                (long long)split_parts(&g->mesh, s->split[c]));
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim && !s->in[i].unread; d++) {
            const Type *u = &g->node[in[i]].type;
            Type want = *u;
            if (moves) {
                t->lo[d] = u->lo[d], t->hi[d] = u->hi[d];
                t->step[d] = u->step[d];
                continue;
            }
            sig_rows(s, &g->mesh, i, d, s->split[carrier(&s->in[i].dim[d])],
                     &want);
            if (u->lo[d] != want.lo[d] || u->hi[d] != want.hi[d]
                || u->step[d] != want.step[d])
                err(loc, "%s: V9: operand %d has %d and %d rows of others in "
                    "parts of %lld, and %d and %d in parts of %lld are read",
                    ops[op].name, i + 1, u->lo[d], u->hi[d],
                    (long long)type_step(&g->mesh, u, d), want.lo[d],
                    want.hi[d], (long long)type_step(&g->mesh, &want, d));
        }
}

/* Of a signature whose letters have their splits. */
static Type type_of(const Sig *s, const Graph *g, Op op, const Attr *a,
                    const Ref *in, const char *loc)
{
    Type t = {0};
    bool variadic = ops[op].arity < 0;
    Axes owed = 0, folded = g->mesh.naxis ? folded_axes(s) : 0;

    result_dims(s, g, op, &t, loc);
    halos(s, g, op, in, &t, loc);
    if (ops[op].fold == FOLD_MAX)
        no_repeats(s, op, loc);
    t.dtype = result_dtype(s, g, op, a, in, loc);
    for (int i = 0; i < s->nop; i++)
        if (variadic || !s->in[i].unread)
            owed |= pending(s, g, op, in, i, loc);
    if (op == OP_move)                    /* the addends, side by side */
        owed &= (Axes)~own_axes(a);
    t.partial = owed | folded;
    t.fold = t.partial ? owed ? FOLD_SUM : ops[op].fold : FOLD_SUM;
    if (owed & folded)
        err(loc, "%s: two sums are owed over one axis", ops[op].name);
    return t;
}

/* A model's graph has no axes yet, and none of its letters a split. */
Type sig_type(const Sig *given, const Graph *g, Op op, const Attr *a,
              const Ref *in, const char *loc)
{
    if (!g->mesh.naxis)
        return type_of(given, g, op, a, in, loc);
    Sig s = *given;
    if (!sig_split(&s, g, in))
        err(loc, "%s: operands are split in ways that do not fit; reshard one",
            ops[op].name);
    own_splits(&s, a);
    return type_of(&s, g, op, a, in, loc);
}
