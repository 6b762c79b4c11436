/* ring.c -- a contraction whose parts come round, a turn each.
 *
 * An axis of ranks may have a time twin: sp and sp'.  Where two letters of an
 * attention lie over sp, one of them lies over sp' instead: at turn t of its
 * ring rank i has the block of keys of rank t, and no other.  What is folded
 * over keys is owed over sp', and the turns add it up; what keeps keys (their
 * gradient) is owed over sp, block by block, and goes back to who keeps it,
 * turn by turn.  Both ways are one exchange: rank i at turn t has what rank t
 * has at turn i (architecture.md, case c; Liu, Zaharia, Abbeel, "Ring
 * attention", 2023).  At run time rank i counts its turns as t = (step - i)
 * mod n, so that i and t are partners at one step and each has one (collect.c);
 * the order of a sum is all that this changes.
 *
 * A product whose plan says so reads an operand in the same way, a part a turn
 * while the next is sent (Wang et al., "Overlap communication with dependent
 * computation via decomposition", ASPLOS 2023).  Where the part's letter is
 * kept, the turns' results are joined: a gather in chunks.  Where what lies
 * over the ranks is folded, each turn's result goes to the rank that keeps it,
 * and is added up there: a scatter in chunks. */
#include "passes/ring.h"
#include "passes/letter.h"

Axes ring_twins(const Mesh *m)
{
    Axes twins = 0;
    for (int i = 0; i < m->naxis; i++)
        twins |= mesh_ring(m, i) & (Axes)~(1u << i);
    return twins;
}

Split ring_split(const Mesh *m, Split s)
{
    Split to = 0;
    for (; s; s >>= 4) {
        int axis = (int)(s & 15) - 1, twin = mesh_twin(m, axis);
        to = split_push(to, twin < 0 ? axis : twin);
    }
    return to;
}

Split ring_home(const Mesh *m, Split said, Split have)
{
    Split to = 0;
    for (; said; said >>= 4) {
        int axis = (int)(said & 15) - 1, home = mesh_home(m, axis);
        if (home < 0)
            to = split_push(to, axis);
        else if (split_axes(have) >> home & 1)
            to = split_push(to, home);
    }
    return to;
}

Split ring_round(const Mesh *m, Split said, Split have)
{
    Axes left = split_axes(said) & ring_twins(m);
    Split to = 0;
    for (; have; have >>= 4) {
        int axis = (int)(have & 15) - 1, twin = mesh_twin(m, axis);
        bool round = twin >= 0 && left >> twin & 1;
        to = split_push(to, round ? twin : axis);
        left &= (Axes)~split_axes(to);
    }
    for (; left; left &= (Axes)(left - 1))
        to = split_push(to, __builtin_ctz(left));
    return to;
}

const Lie *ring_lie(const Plan *plan, const Node *n)
{
    if (!plan || n->attr.id >= plan->nvalue)
        return NULL;
    const ValuePlan *v = &plan->value[n->attr.id];
    return n->attr.use ? &v->grad : &v->lie;
}

bool ring_keeps(const Mesh *m, const Lie *l, const Type *have,
                const Type *home)
{
    bool keeps = !have->partial;
    for (int d = 0; l && d < have->ndim; d++)
        keeps &= have->split[d] == home->split[d] || d >= l->ndim
            || l->free[d] || have->split[d]
            == ring_round(m, l->split[d], home->split[d]);
    return keeps;
}

const Lie *ring_said(const Plan *plan, const Node *n)
{
    const Lie *l = ring_lie(plan, n);
    Axes said = 0;
    for (int d = 0; l && d < l->ndim; d++)
        said |= split_axes(l->split[d]);
    return said & ring_twins(&plan->mesh) ? l : NULL;
}

const Lie *ring_through(Op op, const Sig *s, const Lie *l, Arena *a)
{
    if (op != OP_cast && op != OP_move)
        return NULL;
    Lie *to = alloc(a, sizeof *to);
    to->ndim = s->out.ndim;
    for (int k = 0; k < to->ndim; k++)
        for (int d = 0; d < l->ndim; d++)
            if (s->in[0].dim[d].c[0] == s->out.dim[k].c[0])
                to->split[k] = l->split[d];
    return to;
}

/* The axes that other letters of the product than c lie over. */
static Axes lies_elsewhere(const Graph *g, const Sig *s, const Ref *in, int c)
{
    Axes over = 0;
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim; d++)
            if (s->in[i].dim[d].c[0] != c)
                over |= split_axes(g->node[in[i]].type.split[d]);
    return over;
}

bool ring_reads(const Graph *g, const Sig *s, const Ref *in, int i,
                const Lie *l, Type *t)
{
    Axes twins = ring_twins(&g->mesh);
    bool reads = false;
    for (int d = 0; d < l->ndim; d++) {
        Axes over = lies_elsewhere(g, s, in, s->in[i].dim[d].c[0]);
        bool worth = false;
        for (int k = 0; k < g->mesh.naxis; k++)
            worth |= split_axes(l->split[d]) & twins & mesh_ring(&g->mesh, k)
                && over >> k & 1;
        if (worth)
            t->split[d] = ring_round(&g->mesh, l->split[d], t->split[d]);
        reads |= worth;
    }
    return reads;
}

/* The parts that letters have in the turns of rings; false: two of one letter,
 * a twin of two letters, or none. */
static bool turns_of_letters(const Graph *g, const Sig *s, Op op,
                             const Ref *in, Split *of)
{
    Axes twins = ring_twins(&g->mesh), used = 0;
    bool inner[NLETTER];
    letters_inner(s, inner);
    memset(of, 0, NLETTER * sizeof *of);
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim; d++) {
            Split split = g->node[in[i]].type.split[d];
            int c = s->in[i].dim[d].c[0];
            if (!(split_axes(split) & twins) || of[c] == split)
                continue;
            if (of[c] || inner[c] || used & split_axes(split) & twins
                || !letter_cuts(g, s, op, c, split))
                return false;
            of[c] = split;
            used |= split_axes(split);
        }
    return used;
}

bool ring_goes_on(const Graph *g, const Sig *s, Op op, const Ref *in,
                  Type *want)
{
    Split of[NLETTER];
    bool alike = s->nin == 2 && op_linear(op, 0, 1);
    if (ops[op].family != FAMILY_nest || ops[op].arity < 0
        || !turns_of_letters(g, s, op, in, of))
        return false;
    for (int i = 0; i < s->nin; i++) {
        const Type *t = &g->node[in[i]].type;
        alike &= type_equal(t, &g->node[in[0]].type);
        want[i] = *t;
        for (int d = 0; d < s->in[i].ndim; d++)
            if (of[(int)s->in[i].dim[d].c[0]])
                want[i].split[d] = of[(int)s->in[i].dim[d].c[0]];
        if (s->in[i].unread || type_halo(t))
            return false;
    }
    for (int i = 0; i < s->nin; i++)
        if (g->node[in[i]].type.partial && !alike)
            return false;
    return true;
}

bool ring_between(const Mesh *m, const Type *have, const Type *want)
{
    bool round = false;
    for (int d = 0; d < want->ndim; d++)
        round |= have->split[d] != want->split[d]
            && ring_split(m, have->split[d]) == want->split[d];
    return round;
}

Type ring_left(const Mesh *m, const Type *of)
{
    Type t = *of;
    Axes twins = ring_twins(m);
    for (int i = 0; i < m->naxis; i++) {
        Axes ring = mesh_ring(m, i), space = ring & (Axes)(1u << i);
        Type home = type_swap(&t, ring);
        for (int d = 0; ring && d < t.ndim; d++)
            if (split_axes(t.split[d]) & ring & twins) {
                t.split[d] = t.partial & space ? home.split[d]
                           : split_without(t.split[d], ring);
                t.partial &= (Axes)~space;
            }
    }
    t.partial &= (Axes)~twins;
    t.fold = t.partial ? t.fold : FOLD_SUM;
    return t;
}
