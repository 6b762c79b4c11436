/* propagate.c -- carry shardings along signatures, from the leaves on.
 *
 * For each node the operands propose a split for each letter; what depends on
 * the step's data outranks what follows from weights alone, since a weight is
 * sent once a step and used by forward and backward; among equals the largest
 * operand wins, and an axis goes to one letter only (V1).  An operand that
 * lies otherwise is resharded: "have -> want", nothing else; local chooses
 * how.
 *
 * A pending sum flows on where the row is linear, its value has no other
 * reader (else each would finish a sum of its own) and the result is no
 * larger; else it is finished.  The update reads sums that are finished into
 * the sharding of the leaf that they change (architecture.md C3), so that
 * each gradient is sent once and nothing of the update runs once a turn.
 *
 * Windows over what is split want rows of other parts, a second reshard
 * behind the one that splits; where they cannot have them (sig_cuts), all is
 * joined.
 *
 * What no data depends on (constants, broadcasts, random numbers, and what is
 * computed from them alone) is made again in the wanted split instead: that
 * costs nothing and nothing is sent.  This is how a whole constant meets a
 * sharded activation without a special case.  A broadcast of data is made
 * again from its operand, which is the smaller one to send. */
#include "passes/letter.h"
#include "passes/ring.h"

typedef struct Made { Ref from, to; struct Made *next; } Made;

/* What a node comes after: so many rings, one after the other. */
typedef uint32_t Rounds;

typedef struct Prop {
    Copy c;
    Arena *scratch;
    Made **made;                          /* by node of out: its other forms */
    uint32_t nmade;
    const uint32_t *uses;                 /* by node of in */
    const Type **leaf;                    /* by node of in: the split leaf */
                                          /* whose update it enters; NULL */
    const Plan *plan;                     /* NULL: none */
    Axes twins;                           /* of the mesh: turns of rings */
    Rounds *rounds;                       /* by node of in */
    const Lie **comes;                    /* by node of in: how products read
                                             it, a part a turn; NULL */
    Ref *turned;                          /* by node of in: it, in the turns of
                                             rings that it has not left; NONE */
} Prop;

static Type own_rows(Type t)
{
    memset(t.lo, 0, sizeof t.lo);
    memset(t.hi, 0, sizeof t.hi);
    memset(t.step, 0, sizeof t.step);
    return t;
}

static Type whole(Type t)
{
    memset(t.split, 0, sizeof t.split);
    t.partial = 0, t.fold = FOLD_SUM;
    return own_rows(t);
}

static void remember(Prop *p, Ref from, Ref to)
{
    if (from >= p->nmade) {
        uint32_t n = 2 * from + 64;
        Made **m = alloc(p->scratch, n * sizeof *m);
        for (uint32_t i = 0; i < p->nmade; i++)
            m[i] = p->made[i];
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

static Ref label_like(Graph *g, Ref q, Ref r);
static Ref have_want(Prop *p, Ref r, const Type *want);

/* ---- rings: parts of other ranks, a turn each ---- */

/* Those who read after as many rings share one: a later round begins when
 * the turns of this one are over, and no rank keeps all parts until then. */
static Ref ring_want(Prop *p, Ref r, const Type *want, const Node *reader,
                     Rounds rounds)
{
    Graph *g = p->c.out;
    const Made *m = r < p->nmade ? p->made[r] : NULL;
    for (; m; m = m->next)
        if (g->node[m->to].attr.id == rounds + 1
            && type_equal(&g->node[m->to].type, want))
            return m->to;
    Attr a = { .id = rounds + 1 };
    Ref q = emit_typed(g, OP_reshard, &a, *want, &r, 1, NULL,
                       g->node[r].loc);
    label_like(g, q, r);
    g->node[q].segment = reader->segment;
    remember(p, r, q);
    return q;
}

static Ref label_like(Graph *g, Ref q, Ref r)
{
    g->node[q].segment = g->node[r].segment;
    g->node[q].scope = g->node[r].scope;
    g->node[q].stage = g->node[r].stage;
    return q;
}

static Ref again(Prop *p, Ref r, const Type *want);

/* Operand i, remade so that its dimensions lie as the letters do. */
static Ref operand_again(Prop *p, const Sig *s, int i, Ref x, const Split *of,
                         bool send)
{
    Type t = whole(p->c.out->node[x].type);
    for (int d = 0; d < t.ndim; d++) {
        t.split[d] = of[(int)s->in[i].dim[d].c[0]];
        sig_rows(s, &p->c.out->mesh, i, d, t.split[d], &t);
    }
    if (type_halo(&t) && !send)           /* rows of others must move */
        return NONE;
    return send ? have_want(p, x, &t) : again(p, x, &t);
}

/* The node once more, its result as wanted; its operands are remade or, when
 * `send`, resharded.  NONE where its row cannot make that. */
static Ref nest_again(Prop *p, Ref r, const Type *want, bool send)
{
    Graph *g = p->c.out;
    const Node n = g->node[r];
    Sig s = sig_bind(g, n.op, &n.attr, n.in, n.nin, n.loc);
    Split of[NLETTER];
    Ref in[NIN];
    Attr a = n.attr;

    if (n.nin > NIN || ops[n.op].family != FAMILY_nest || ops[n.op].arity < 0
        || !letter_splits(g, &s, n.op, want, of))
        return NONE;
    for (int i = 0; i < n.nin; i++)
        if ((in[i] = operand_again(p, &s, i, n.in[i], of, send)) == NONE)
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
        q = nest_again(p, r, want, false);
    if (q != NONE) {
        label_like(g, q, r);
        remember(p, r, q);
    }
    return q;
}

/* More bytes than it is made from: a broadcast, a cast to a wider dtype. */
static bool spreads(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    const Type *t = n->nin ? &g->node[n->in[0]].type : &n->type;
    return (n->op == OP_move && type_volume(&n->type) > type_volume(t))
        || (n->op == OP_cast && dtype_size(n->type.dtype)
            > dtype_size(t->dtype));
}

/* Does only the length of parts differ, and what they hold of others? */
static bool in_same_parts(const Type *have, const Type *want)
{
    Type a = own_rows(*have), b = own_rows(*want);
    return type_equal(&a, &b);
}

static Ref have_want(Prop *p, Ref r, const Type *want)
{
    Graph *g = p->c.out;
    bool halo = type_halo(want);
    Type own = own_rows(*want);
    if (halo && !in_same_parts(&g->node[r].type, want))
        r = have_want(p, r, &own);
    Ref q = halo ? remembered(p, r, want) : again(p, r, want);
    if (q != NONE)
        return q;
    if (!halo && !want->partial && spreads(g, r))
        q = nest_again(p, r, want, true);
    if (q == NONE)
        q = emit_typed(g, OP_reshard, NULL, *want, &r, 1, NULL, g->node[r].loc);
    label_like(g, q, r);
    remember(p, r, q);
    return q;
}

/* ---- what a node wants of its operands ---- */

typedef struct Wish { Split split; bool data; int64_t bytes; } Wish;

static bool outranks(const Wish *a, const Wish *b)
{
    return a->data != b->data ? a->data : a->bytes > b->bytes;
}

static void wishes(const Graph *g, const Sig *s, Op op, const Ref *in,
                   Wish *w)
{
    bool inner[NLETTER];
    letters_inner(s, inner);
    memset(w, 0, NLETTER * sizeof *w);
    for (int i = 0; i < s->nin; i++) {
        const Type *t = &g->node[in[i]].type;
        Segment when = g->node[in[i]].segment;
        Wish mine = { .data = when != BEGIN && when != INIT,
                      .bytes = type_volume(t) * dtype_size(t->dtype) };
        for (int d = 0; d < t->ndim && !s->in[i].unread; d++) {
            const Dim *m = &s->in[i].dim[d];
            int c = m->c[0];
            bool may = t->split[d] && !s->fixed[c] && !inner[c]
                && letter_cuts(g, s, op, c, t->split[d]);
            mine.split = t->split[d];
            if (may && (!w[c].split || outranks(&mine, &w[c])))
                w[c] = mine;
        }
    }
}

/* V1: an axis goes to the letter of the largest operand that asks for it. */
static void one_letter_an_axis(const Mesh *m, bool rings, Wish *w)
{
    bool done[NLETTER] = {0};
    Axes used = 0;
    for (;;) {
        int best = -1;
        for (int c = 0; c < NLETTER; c++)
            if (w[c].split && !done[c]
                && (best < 0 || outranks(&w[c], &w[best])))
                best = c;
        if (best < 0)
            return;
        done[best] = true;
        if (split_axes(w[best].split) & used && rings)
            w[best].split = ring_split(m, w[best].split);
        if (split_axes(w[best].split) & used)
            w[best].split = 0;
        used |= split_axes(w[best].split);
    }
}

/* May operand i stay pending, with the letters split as chosen? */
static bool may_stay_pending(const Graph *g, Op op, const Sig *s,
                             const Ref *in, int i, const Wish *w)
{
    const Type *t = &g->node[in[i]].type;
    if (!t->partial || t->fold != FOLD_SUM || !op_linear(op, i, i)
        || op == OP_cast)                 /* sums are made before rounding */
        return false;
    for (int c = 0; c < NLETTER; c++)
        if (split_axes(w[c].split) & t->partial)
            return false;
    for (int k = 0; k < s->nop; k++) {
        const Type *u = &g->node[in[k]].type;
        if (k == i || s->in[k].unread)
            continue;
        if (op_linear(op, i, k) ? u->partial != t->partial
                                : (type_axes(u) & t->partial) != 0)
            return false;
    }
    return true;
}

/* Does it pay?  All operands that owe must agree on the answer. */
static bool stays_pending(const Prop *p, const Node *n, const Sig *s,
                          const Ref *in, int i, const Wish *w)
{
    const Graph *g = p->c.out;
    for (int k = 0; k < n->nin; k++) {
        const Type *t = &g->node[in[k]].type;
        if (t->partial && (p->uses[n->in[k]] > 1
                           || letters_volume(s) > type_volume(t)))
            return false;
    }
    return may_stay_pending(g, n->op, s, in, i, w);
}

/* Of scalars that are added up: the sums that any of them owes.  Those which
 * owe less count on one coordinate alone (own), so that one sum is finished
 * for all. */
static Type owed_by_any(const Graph *g, const Ref *in, int nin, int i)
{
    Type t = whole(g->node[in[i]].type);
    for (int k = 0; k < nin; k++)
        if (g->node[in[k]].type.fold == FOLD_SUM)
            t.partial |= g->node[in[k]].type.partial;
    return t;
}

static Type wanted(const Prop *p, const Node *n, const Sig *s, const Ref *in,
                   int i, const Wish *w)
{
    Type t = p->c.out->node[in[i]].type;
    if (ops[n->op].arity < 0)
        return owed_by_any(p->c.out, in, n->nin, i);
    for (int d = 0; d < t.ndim; d++) {
        t.split[d] = w[(int)s->in[i].dim[d].c[0]].split;
        sig_rows(s, &p->c.out->mesh, i, d, t.split[d], &t);
    }
    if (!stays_pending(p, n, s, in, i, w))
        t.partial = 0, t.fold = FOLD_SUM;
    return t;
}

/* What an update reads of the backward graph is finished, and lies as the
 * leaf that it will change. */
static Ref finished(Prop *p, const Node *n, Ref was)
{
    Type t = p->c.out->node[p->c.map[was]].type;
    const Type *leaf = p->leaf[was];
    if (n->segment != UPDATE || p->c.in->node[was].segment == UPDATE
        || !t.partial)
        return p->c.map[was];
    t.partial = 0, t.fold = FOLD_SUM;
    if (leaf)
        memcpy(t.split, leaf->split, sizeof t.split);
    return have_want(p, p->c.map[was], &t);
}

/* The type that the plan wants of a constrained value.  Turns are none of
 * its business, and an axis that it moves leaves where it was.  What is to
 * come round lies over the ranks of the ring if it does so already. */
static Type constrained(const Prop *p, const Node *n, const Type *have)
{
    const Mesh *m = &p->c.out->mesh;
    const ValuePlan *v = &p->plan->value[n->attr.id];
    const Lie *l = ring_lie(p->plan, n);
    Axes said = 0, time = mesh_axes(m, TIME);
    Type t = whole(*have);
    if (l->ndim > t.ndim)
        err(v->loc, "value \"%s\": %d splits, but it has %d dimensions at %s",
            v->name, l->ndim, t.ndim, n->loc);
    for (int d = 0; d < l->ndim; d++)
        said |= split_axes(l->split[d]);
    for (int d = 0; d < t.ndim; d++) {
        bool free = d >= l->ndim || l->free[d];
        t.split[d] = free ? split_without(have->split[d], said)
                          : ring_home(m, l->split[d], have->split[d]);
        Split turns = split_without(have->split[d], (Axes)~time);
        for (; !free && turns; turns >>= 4)
            t.split[d] = split_push(t.split[d], (int)(turns & 15) - 1);
    }
    return t;
}

/* What nobody else reads is made in parts, not cut afterwards. */
static Ref constrain(Prop *p, const Node *n)
{
    Ref r = p->c.map[n->in[0]], q = NONE;
    if (!p->plan || n->attr.id >= p->plan->nvalue)
        return r;
    const Node *of = &p->c.out->node[r];
    Type t = constrained(p, n, &of->type);
    if (p->uses[n->in[0]] == 1 && split_finer(&of->type, &t) && !ops[of->op].leaf)
        q = nest_again(p, r, &t, true);
    return q == NONE ? have_want(p, r, &t) : label_like(p->c.out, q, r);
}

/* Of queries and keys that lie over one axis, keys come round. */
static void queries_stay(const Sig *s, Wish *w)
{
    for (int d = 0; d < s->in[0].ndim; d++) {
        int c = s->in[0].dim[d].c[0];
        bool of_keys = false;
        for (int k = 0; k < s->in[1].ndim; k++)
            of_keys |= s->in[1].dim[k].c[0] == c;
        if (!of_keys && w[c].split)
            w[c].data = true, w[c].bytes = INT64_MAX;
    }
}

/* How many rings a node with these operands comes after. */
static Rounds rounds_of(const Prop *p, const Node *n, const Ref *in)
{
    Rounds most = 0;
    for (int i = 0; i < n->nin; i++) {
        bool inside = in[i] == p->turned[n->in[i]];
        Rounds k = p->rounds[n->in[i]] - inside;
        most = k > most ? k : most;
    }
    return most;
}

/* A product reads what shall come round a part a turn; as it is, if it is in
 * these turns already. */
static void come_round(Prop *p, const Node *n, const Sig *s, Ref *in)
{
    const Graph *g = p->c.out;
    Ref home[2] = { in[0], in[1] };
    Type want[2];
    bool asks[2] = { false, false };
    for (int i = 0; i < 2; i++) {
        const Lie *l = p->comes[n->in[i]];
        Ref inside = p->turned[n->in[i]];
        want[i] = g->node[home[i]].type;
        asks[i] = l && ring_reads(g, s, home, i, l, &want[i]);
        if (asks[i] && inside != NONE
            && type_equal(&g->node[inside].type, &want[i]))
            in[i] = inside, asks[i] = false;
    }
    Rounds rounds = rounds_of(p, n, in);
    for (int i = 0; i < 2; i++)
        if (asks[i])
            in[i] = ring_want(p, home[i], &want[i], n, rounds);
}

/* What goes by points, and sums over them, go on in the turns of the ring that
 * their operands are in, if nothing else has to be sent for it. */
static void go_on(Prop *p, const Node *n, const Sig *s, Ref *in)
{
    const Graph *g = p->c.out;
    Type want[NIN];
    Ref x[NIN];
    bool any = false;
    for (int i = 0; i < n->nin && n->nin <= NIN; i++) {
        x[i] = p->turned[n->in[i]];
        any |= x[i] != NONE;
        x[i] = x[i] == NONE ? in[i] : x[i];
        if (g->node[x[i]].type.partial && p->uses[n->in[i]] > 1)
            return;
    }
    if (!any || n->segment == UPDATE || !ring_goes_on(g, s, n->op, x, want))
        return;
    for (int i = 0; i < n->nin; i++)
        if ((x[i] = again(p, x[i], &want[i])) == NONE)
            return;
    memcpy(in, x, (size_t)n->nin * sizeof *x);
}

/* A value in the turns of a ring stays there if nothing else is said of its
 * parts. */
static Ref constrain_turned(const Prop *p, const Node *n, Ref home)
{
    const Graph *g = p->c.out;
    Ref r = p->turned[n->in[0]];
    bool same = r != NONE && home == p->c.map[n->in[0]];
    return same && ring_keeps(&g->mesh, ring_lie(p->plan, n), &g->node[r].type,
                              &g->node[home].type) ? r : NONE;
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
        was[i] = x[i] = finished(p, n, n->in[i]);
    Sig s = sig_bind(g, n->op, &n->attr, was, n->nin, n->loc);
    if (p->twins)
        (n->op == OP_dot ? come_round : go_on)(p, n, &s, was);
    p->rounds[r] = rounds_of(p, n, was);
    if (n->nin == 1 && p->comes[n->in[0]])
        p->comes[r] = ring_through(n->op, &s, p->comes[n->in[0]], p->scratch);
    wishes(g, &s, n->op, was, w);
    bool rings = p->twins && ops[n->op].family == FAMILY_attention;
    if (rings)
        queries_stay(&s, w);
    one_letter_an_axis(&g->mesh, rings, w);
    for (int i = 0; i < n->nin; i++) {
        if (ops[n->op].arity >= 0 && s.in[i].unread)
            continue;
        Type t = wanted(p, n, &s, was, i, w);
        x[i] = p->twins
                && ring_between(&g->mesh, &g->node[was[i]].type, &t)
             ? ring_want(p, was[i], &t, n, p->rounds[r])
             : have_want(p, was[i], &t);
    }
    Ref q = emit(g, n->op, &n->attr, x, n->nin, n->loc);
    Node *m = &g->node[q];
    m->segment = n->segment, m->scope = n->scope, m->stage = n->stage;
    m->name = n->name;
    m->again = n->again == NONE ? NONE : p->c.map[n->again];
    if (!p->twins)
        return q;
    Type t = ring_left(&g->mesh, &m->type);
    Ref left = have_want(p, q, &t);
    p->rounds[r] += left != q;
    p->turned[r] = left != q ? q : NONE;
    return left;
}

static bool same_sizes(const Type *a, const Type *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

/* From each split leaf back through its update, as far as sizes agree. */
static const Type **leaves_ahead(const Graph *g, Arena *a)
{
    const Type **leaf = alloc(a, (g->n + 1) * sizeof *leaf);
    for (uint32_t i = 0; i < g->nset; i++)
        if (type_axes(&g->node[g->set[i].leaf].type))
            leaf[g->set[i].value] = &g->node[g->set[i].leaf].type;
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        for (int i = 0; leaf[r] && n->segment == UPDATE && i < n->nin; i++)
            if (!leaf[n->in[i]]
                && same_sizes(leaf[r], &g->node[n->in[i]].type))
                leaf[n->in[i]] = leaf[r];
    }
    return leaf;
}

/* Is there a rank or a turn by which a value could be split? */
static bool splits(const Graph *g)
{
    bool any = g->mesh.naxis;
    for (Ref r = 0; r < g->n && !any; r++)
        any = g->node[r].op == OP_reshard || g->node[r].op == OP_constrain;
    return any;
}

/* Names that two forms of one value would share are made unique: the copy
 * that keeps the operand's name is the one that place() emitted. */
Graph *pass_propagate(const Graph *in, Job *j)
{
    if (!splits(in))
        return graph_dce(in, j);
    Prop p = { copy_begin(in, j), j->scratch, NULL, 0,
               graph_uses(in, j->scratch), leaves_ahead(in, j->scratch),
               j->plan, ring_twins(&in->mesh),
               alloc(j->scratch, (in->n + 1) * sizeof *p.rounds),
               alloc(j->scratch, (in->n + 1) * sizeof *p.comes),
               alloc(j->scratch, (in->n + 1) * sizeof *p.turned) };
    Graph *g = p.c.out;
    for (Ref r = 0; r < in->n; r++) {
        p.turned[r] = NONE;
        const Node *n = &in->node[r];
        if (n->op == OP_reshard || n->op == OP_constrain)
            p.rounds[r] = p.rounds[n->in[0]];
        if (n->op == OP_reshard)
            p.c.map[r] = p.c.map[n->in[0]];
        else if (n->op == OP_constrain) {
            p.c.map[r] = constrain(&p, n);
            p.comes[r] = ring_said(j->plan, n);
            p.turned[r] = constrain_turned(&p, n, p.c.map[r]);
        } else if (ops[n->op].leaf)
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
    Graph *live = graph_dce(g, j);
    arena_drop(j->keep, g->node);
    return live;
}
