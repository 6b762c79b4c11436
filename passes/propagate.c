/* propagate.c -- carry shardings along signatures, from the leaves on.
 *
 * For each node the operands propose a split for each letter; the proposal
 * that moves the fewest bytes (that of the largest operand) wins, and an axis
 * goes to one letter only (V1).  An operand that lies otherwise is resharded:
 * "have -> want", nothing else; local chooses how.  Pending sums flow on
 * where the row is linear and are finished where it is not.
 *
 * What no data depends on (constants, broadcasts, random numbers, and what is
 * computed from them alone) is made again in the wanted split instead: that
 * costs nothing and nothing is sent.  This is how a whole constant meets a
 * sharded activation without a special case. */
#include "passes/pass.h"

typedef struct Made { Ref from, to; struct Made *next; } Made;

typedef struct Prop {
    Copy c;
    Arena *scratch;
    Made **made;                          /* by node of out: its other forms */
    uint32_t nmade;
} Prop;

static Type whole(Type t)
{
    memset(t.split, 0, sizeof t.split);
    t.partial = 0, t.fold = FOLD_SUM;
    return t;
}

static void remember(Prop *p, Ref from, Ref to)
{
    if (from >= p->nmade) {
        uint32_t n = 2 * from + 64;
        Made **m = alloc(p->scratch, n * sizeof *m);
        memcpy(m, p->made, p->nmade * sizeof *m);
        p->made = m, p->nmade = n;
    }
    Made *m = alloc(p->scratch, sizeof *m);
    *m = (Made){ from, to, p->made[from] };
    p->made[from] = m;
}

static Ref remembered(const Prop *p, Ref r, const Type *want)
{
    const Made *m = r < p->nmade ? p->made[r] : NULL;
    for (; m; m = m->next)
        if (type_equal(&p->c.out->node[m->to].type, want))
            return m->to;
    return NONE;
}

static Ref label_like(Graph *g, Ref q, Ref r)
{
    g->node[q].segment = g->node[r].segment;
    g->node[q].scope = g->node[r].scope;
    g->node[q].stage = g->node[r].stage;
    return q;
}

static Ref again(Prop *p, Ref r, const Type *want);

/* The wanted split of each letter, read off the wanted result. */
static bool letter_splits(const Sig *s, const Type *want, Split *of)
{
    memset(of, 0, NLETTER * sizeof *of);
    for (int d = 0; d < s->out.ndim; d++) {
        const Dim *m = &s->out.dim[d];
        if (want->split[d] && (m->window || s->fixed[(int)m->c[0]]))
            return false;
        of[(int)m->c[0]] = want->split[d];
    }
    return true;
}

/* Operand i, remade so that its dimensions lie as the letters do. */
static Ref operand_again(Prop *p, const Sig *s, int i, Ref x, const Split *of)
{
    Type t = p->c.out->node[x].type;
    for (int d = 0; d < t.ndim; d++)
        t.split[d] = of[(int)s->in[i].dim[d].c[0]];
    return again(p, x, &t);
}

static Ref nest_again(Prop *p, Ref r, const Type *want)
{
    Graph *g = p->c.out;
    const Node n = g->node[r];
    Sig s = sig_bind(g, n.op, &n.attr, n.in, n.nin, n.loc);
    Split of[NLETTER];
    Ref in[NIN];
    Attr a = n.attr;

    if (n.nin > NIN || ops[n.op].family != FAMILY_nest || ops[n.op].arity < 0
        || !letter_splits(&s, want, of))
        return NONE;
    for (int c = 0; c < NLETTER; c++)
        if (s.folded[c] && s.split[c])
            return NONE;
    for (int i = 0; i < n.nin; i++)
        if ((in[i] = operand_again(p, &s, i, n.in[i], of)) == NONE)
            return NONE;
    a.letter = alloc(g->arena, (size_t)(a.nletter + 1) * sizeof *a.letter);
    for (int i = 0; i < a.nletter; i++) {
        a.letter[i] = n.attr.letter[i];
        a.letter[i].split = of[(int)a.letter[i].c];
    }
    Ref q = emit(g, n.op, &a, in, n.nin, n.loc);
    return type_equal(&g->node[q].type, want) ? q : NONE;
}

static bool free_leaf(const Node *n)
{
    bool fill = n->op == OP_const && n->attr.ndata == 0;
    return fill || n->op == OP_random || n->op == OP_iota;
}

/* r made again with the type wanted, when no data need move; else NONE. */
static Ref again(Prop *p, Ref r, const Type *want)
{
    Graph *g = p->c.out;
    const Node n = g->node[r];
    Ref q = type_equal(&n.type, want) ? r : remembered(p, r, want);
    if (q != NONE || n.type.partial || want->partial)
        return q;
    if (free_leaf(&n))
        q = emit_typed(g, n.op, &n.attr, *want, NULL, 0, NULL, n.loc);
    else if (!ops[n.op].leaf && n.op != OP_reshard)
        q = nest_again(p, r, want);
    if (q != NONE) {
        label_like(g, q, r);
        remember(p, r, q);
    }
    return q;
}

static Ref have_want(Prop *p, Ref r, const Type *want)
{
    Graph *g = p->c.out;
    Ref q = again(p, r, want);
    if (q != NONE)
        return q;
    q = emit_typed(g, OP_reshard, NULL, *want, &r, 1, NULL, g->node[r].loc);
    label_like(g, q, r);
    remember(p, r, q);
    return q;
}

/* ---- what a node wants of its operands ---- */

typedef struct Wish { Split split; int64_t bytes; } Wish;

static void wishes(const Graph *g, const Sig *s, const Ref *in, Wish *w)
{
    memset(w, 0, NLETTER * sizeof *w);
    for (int i = 0; i < s->nin; i++) {
        const Type *t = &g->node[in[i]].type;
        int64_t bytes = type_volume(t) * dtype_size(t->dtype);
        for (int d = 0; d < t->ndim && !s->in[i].unread; d++) {
            const Dim *m = &s->in[i].dim[d];
            int c = m->c[0];
            bool may = t->split[d] && !m->window && !s->fixed[c]
                && s->size[c] % split_parts(&g->mesh, t->split[d]) == 0;
            if (may && bytes > w[c].bytes)
                w[c] = (Wish){ t->split[d], bytes };
        }
    }
}

/* V1: an axis goes to the letter of the largest operand that asks for it. */
static void one_letter_an_axis(Wish *w)
{
    bool done[NLETTER] = {0};
    Axes used = 0;
    for (;;) {
        int best = -1;
        for (int c = 0; c < NLETTER; c++)
            if (w[c].split && !done[c] && (best < 0 || w[c].bytes > w[best].bytes))
                best = c;
        if (best < 0)
            return;
        done[best] = true;
        if (split_axes(w[best].split) & used)
            w[best].split = 0;
        used |= split_axes(w[best].split);
    }
}

/* May operand i stay pending, with the letters split as chosen? */
static bool stays_pending(const Graph *g, Op op, const Sig *s, const Ref *in,
                          int i, const Wish *w)
{
    bool variadic = ops[op].arity < 0;
    const Type *t = &g->node[in[i]].type;
    int me = variadic ? 0 : i;
    if (!t->partial || t->fold != FOLD_SUM || !op_linear(op, me, me))
        return false;
    for (int c = 0; c < NLETTER; c++)
        if (split_axes(w[c].split) & t->partial)
            return false;
    for (int k = 0; k < s->nop; k++) {
        const Type *u = &g->node[in[k]].type;
        if (k == i || (!variadic && s->in[k].unread))
            continue;
        bool together = variadic || op_linear(op, i, k);
        if (together ? u->partial != t->partial
                     : (type_axes(u) & t->partial) != 0)
            return false;
    }
    return true;
}

static Type wanted(const Graph *g, Op op, const Sig *s, const Ref *in, int i,
                   const Wish *w)
{
    Type t = g->node[in[i]].type;
    for (int d = 0; d < t.ndim; d++) {
        int c = s->in[i].dim[d].c[0];
        t.split[d] = s->in[i].dim[d].window ? 0 : w[c].split;
    }
    if (!stays_pending(g, op, s, in, i, w))
        t.partial = 0, t.fold = FOLD_SUM;
    return t;
}

static Ref place(Prop *p, Ref r)
{
    Graph *g = p->c.out;
    const Node *n = &p->c.in->node[r];
    Ref in[NIN], few[NIN], *x = few, *was = in;
    Wish w[NLETTER];
    if (n->nin > NIN) {
        x = alloc(p->scratch, (size_t)n->nin * sizeof *x);
        was = alloc(p->scratch, (size_t)n->nin * sizeof *was);
    }
    for (int i = 0; i < n->nin; i++)
        was[i] = x[i] = p->c.map[n->in[i]];
    Sig s = sig_bind(g, n->op, &n->attr, was, n->nin, n->loc);
    wishes(g, &s, was, w);
    one_letter_an_axis(w);
    for (int i = 0; i < n->nin; i++) {
        if (ops[n->op].arity >= 0 && s.in[i].unread)
            continue;
        Type t = wanted(g, n->op, &s, was, i, w);
        x[i] = have_want(p, was[i], &t);
    }
    Ref q = emit(g, n->op, &n->attr, x, n->nin, n->loc);
    Node *m = &g->node[q];
    m->segment = n->segment, m->scope = n->scope, m->stage = n->stage;
    m->name = n->name;
    m->again = n->again == NONE ? NONE : p->c.map[n->again];
    return q;
}

/* Names that two forms of one value would share are made unique: the copy
 * that keeps the operand's name is the one that place() emitted. */
Graph *pass_propagate(const Graph *in, Job *j)
{
    Prop p = { copy_begin(in, j), j->scratch, NULL, 0 };
    Graph *g = p.c.out;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        if (n->op == OP_reshard)
            p.c.map[r] = p.c.map[n->in[0]];
        else if (ops[n->op].leaf)
            copy_node(&p.c, r);
        else
            p.c.map[r] = place(&p, r);
    }
    for (uint32_t i = 0; i < in->nset; i++) {
        Ref leaf = p.c.map[in->set[i].leaf];
        Type t = g->node[leaf].type;
        graph_set(g, leaf, have_want(&p, p.c.map[in->set[i].value], &t));
    }
    for (uint32_t i = 0; i < in->nout; i++) {
        Ref r = p.c.map[in->out[i].ref];
        Type t = whole(g->node[r].type);
        graph_out(g, in->out[i].name, have_want(&p, r, &t));
    }
    return graph_dce(g, j);
}
