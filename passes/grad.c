/* grad.c -- the backward graph, from the VJP column of the op table.
 *
 * Reverse accumulation over the array of nodes: since operands come first,
 * one walk from the result to the leaves meets every node after all of its
 * readers.  A rule is an expression over y, dy and the operands; evaluating
 * it emits nodes, so rules can be differentiated again.
 *
 * A gradient has the dtype of its value: a contraction takes dy in its other
 * operand's dtype, what it makes is f32, and sums are made in f32, but the
 * gradient of a narrow value is narrow: its terms, each of which may wait for
 * the others, and their sum.  That of a weight's bf16 form is rounded once,
 * when it is whole (Micikevicius et al., ICLR 2018). */
#include "ir/expr.h"
#include "passes/pass.h"

typedef struct Vjp {
    Graph *g;
    Ref y, dy;
    int i;                                /* the operand asked for; -1 DEF */
    Arena *scratch;
    int depth;                            /* calls around this one */
} Vjp;

static Ref rule(Vjp *, const Expr *, const Type *like);

static Ref to_dtype(Graph *g, Ref r, DType d, const char *loc)
{
    DType from = g->node[r].type.dtype;
    if (from == d || from == I32 || from == U8)
        return r;
    return EMIT(g, OP_cast, &(Attr){ .dtype = d }, loc, r);
}

static bool narrow_wins(Op op)
{
    return op == OP_dot || ops[op].family == FAMILY_conv;
}

/* C14: bring operands to one dtype before an op of a rule is emitted. */
static void agree(Graph *g, Op op, const Attr *a, Ref *in, int nin,
                  const char *loc)
{
    if (op == OP_cast || op == OP_move)
        return;
    Sig s = sig_bind(g, op, a, in, nin, loc);
    DType d = narrow_wins(op) ? F32 : BF16;
    for (int i = 0; i < nin; i++) {
        DType t = g->node[in[i]].type.dtype;
        if (!s.in[i].unread && !s.in[i].integer && t <= BF16)
            d = narrow_wins(op) == (t == BF16) ? t : d;
    }
    for (int i = 0; i < nin; i++)
        if (!s.in[i].unread && !s.in[i].integer)
            in[i] = to_dtype(g, in[i], d, loc);
}

static Op op_named(const Vjp *v, const char *name)
{
    Op op = op_find(name);
    if (op == OP_COUNT)
        die("vjp of %s: no op named %s", ops[v->g->node[v->y].op].name, name);
    return op;
}

/* Which operand a one-letter name means; -1: none. */
static int operand(const Vjp *v, const char *name)
{
    const Node *n = &v->g->node[v->y];
    int i = name[0] - 'a';
    return name[1] == 0 && i >= 0 && i < n->nin ? i : -1;
}

/* key=value: a number, or the length (or dtype) of an operand along dim. */
static void set_key(const Vjp *v, Attr *a, const char *key, const Expr *e)
{
    const Node *n = &v->g->node[v->y];
    int i = e->kind == EXPR_NAME ? operand(v, e->name) : -1;
    const Type *t = i < 0 ? NULL : &v->g->node[n->in[i]].type;
    int64_t value = t ? t->dim[n->attr.dim] : (int64_t)e->num;
    if (strcmp(key, "dtype") == 0 && t)
        a->dtype = t->dtype;
    else if (strcmp(key, "at") == 0)
        a->at = value;
    else if (strcmp(key, "size") == 0)
        a->size = value;
    else if (strcmp(key, "for") == 0)
        a->use = (int)value;
    else
        die("vjp of %s: cannot set %s", ops[n->op].name, key);
}

static bool is_transpose(const Expr *e)
{
    return e->kind == EXPR_NAME && strcmp(e->name, "T") == 0;
}

static bool is_own(const Expr *e)
{
    return e->kind == EXPR_NAME && strcmp(e->name, "S") == 0;
}

/* A number, perhaps with a minus before it. */
static bool is_number(const Expr *e, double *v)
{
    bool minus = e->kind == EXPR_NEG;
    e = minus ? e->arg[0] : e;
    *v = minus ? -e->num : e->num;
    return e->kind == EXPR_NUM;
}

static Attr transposed(const Vjp *v)
{
    const Node *n = &v->g->node[v->y];
    Sig s = sig_bind(v->g, n->op, &n->attr, n->in, n->nin, n->loc);
    return sig_transpose(&s, v->g->arena, v->i);
}

/* The term of the node's signature that a name means; NULL: none. */
static const Term *term_of(const Vjp *v, const Sig *s, const char *name)
{
    int i = operand(v, name);
    return strcmp(name, "y") == 0 || strcmp(name, "dy") == 0 ? &s->out
         : i < 0 ? NULL : &s->in[i];
}

/* The term of an expression: of a call, its first operand's without the
 * letters that the callee does not split. */
static Term expr_term(const Vjp *v, const Sig *s, const Expr *e)
{
    const Term *t = e->kind == EXPR_NAME ? term_of(v, s, e->name) : NULL;
    Op op = e->kind == EXPR_CALL ? op_named(v, e->name) : OP_COUNT;
    if (t)
        return *t;
    if (op == OP_COUNT || ops[op].sig[0] != '@' || !e->narg)
        die("vjp of %s: no term for an operand with its own signature",
            ops[v->g->node[v->y].op].name);
    Term all = expr_term(v, s, e->arg[0]), kept = {0};
    const char *fixed = strchr(ops[op].sig, ' ');
    for (int d = 0; d < all.ndim; d++)
        if (!fixed || !strchr(fixed, all.dim[d].c[0]))
            kept.dim[kept.ndim++] = all.dim[d];
    return kept;
}

/* The signature of a call of an op with its own: its operands' terms. */
static Attr matched(const Vjp *v, const Expr *e, bool within)
{
    const Node *n = &v->g->node[v->y];
    Sig s = sig_bind(v->g, n->op, &n->attr, n->in, n->nin, n->loc), m = s;
    m.nin = e->narg;
    for (int i = 0; i < e->narg; i++)
        m.in[i] = expr_term(v, &s, e->arg[i]);
    m.out = within ? expr_term(v, &s, e) : v->i < 0 ? s.out : s.in[v->i];
    return sig_attr(&m, v->g->arena);
}

static Ref call(Vjp *v, const Expr *e)
{
    const Node n = v->g->node[v->y];
    Op op = op_named(v, e->name);
    Attr a = n.attr;
    Ref in[NIN];
    int nin = 0;
    bool own = false;                     /* T or S says its signature */
    double number;
    v->depth++;
    a.sig = NULL, a.dtype = 0;
    if (!strchr(ops[op].sig, '?'))
        a.nletter = 0;
    for (int i = 0; i < e->narg; i++)
        if (e->key && e->key[i])
            set_key(v, &a, e->key[i], e->arg[i]);
        else if (is_transpose(e->arg[i]))
            a = transposed(v), own = true;
        else if (is_own(e->arg[i]))
            own = true, a = (Attr){ .sig = n.attr.sig, .letter = n.attr.letter,
                        .nletter = n.attr.nletter };
        else if (!is_number(e->arg[i], &number))
            in[nin++] = rule(v, e->arg[i], NULL);
        else
            in[nin++] = NONE;
    for (int i = 0; i < nin; i++)
        if (in[i] == NONE)                /* a number: like its neighbour */
            in[i] = rule(v, e->arg[i], &v->g->node[in[i ? 0 : 1]].type);
    v->depth--;
    if (ops[op].sig[0] == '@' && !own)
        a = matched(v, e, v->depth > 0);
    agree(v->g, op, &a, in, nin, n.loc);
    if (op == OP_cast && v->g->node[in[0]].type.dtype == a.dtype)
        return in[0];
    return emit(v->g, op, &a, in, nin, n.loc);
}

/* The cotangent of operand v->i as a rule says it; NONE: truly zero. */
static Ref rule(Vjp *v, const Expr *e, const Type *like)
{
    const Node *n = &v->g->node[v->y];
    double number;
    if (is_number(e, &number))
        return emit_const(v->g, number, like, n->loc);
    if (e->kind == EXPR_CALL)
        return call(v, e);
    if (e->kind != EXPR_NAME)
        die("vjp of %s: only names, numbers and calls", ops[n->op].name);
    if (strcmp(e->name, "none") == 0)
        return NONE;
    if (strcmp(e->name, "y") == 0)
        return v->y;
    if (strcmp(e->name, "dy") == 0)
        return v->dy;
    if (is_transpose(e)) {
        Attr a = transposed(v);
        Op op = n->op;
        const char *loc = n->loc;
        Ref in[NIN];
        int nin = n->nin;
        memcpy(in, n->in, (size_t)nin * sizeof *in);
        in[v->i] = v->dy;
        agree(v->g, op, &a, in, nin, loc);
        return emit(v->g, op, &a, in, nin, loc);
    }
    int i = operand(v, e->name);
    if (i < 0)
        die("vjp of %s: unknown name %s", ops[n->op].name, e->name);
    return n->in[i];
}

static bool is_weight(const Graph *g, Ref x)
{
    return g->node[x].op == OP_cast && ops[g->node[g->node[x].in[0]].op].leaf;
}

static Ref add_up(Graph *g, Ref sum, Ref dx, Ref x, const char *loc)
{
    if (g->node[x].type.dtype == BF16 && !is_weight(g, x))
        dx = to_dtype(g, dx, BF16, loc);
    if (sum == NONE)
        return dx;
    Ref in[2] = { to_dtype(g, sum, F32, loc), to_dtype(g, dx, F32, loc) };
    return EMIT(g, OP_add, NULL, loc, in[0], in[1]);
}

static Expr **rules_of(Op op, int *n)
{
    static Expr **cache[OP_COUNT];
    static int count[OP_COUNT];
    static Arena *arena;                  /* the rows live as long as we do */
    if (!arena)
        arena = arena_lasting();
    if (!cache[op])
        cache[op] = expr_parse_list(arena, ops[op].vjp, ops[op].name,
                                    &count[op]);
    *n = count[op];
    return cache[op];
}

/* A gradient's node works where the node does that it belongs to. */
static void label(Graph *g, Ref q, const Node *of)
{
    Node *n = &g->node[q];
    n->segment = BACKWARD, n->scope = of->scope, n->stage = of->stage;
}

/* A sum of gradients is made on the earlier of its operands' stages, as all of
 * backward goes from the later to the earlier. */
static void label_sum(Graph *g, Ref sum)
{
    Node *n = &g->node[sum];
    for (int i = 0; i < n->nin; i++) {
        int s = g->node[n->in[i]].stage;
        n->stage = s != EVERY && (s < n->stage || n->stage == EVERY) ? s
            : n->stage;
    }
}

/* The whole gradient of n's value, in its dtype if that is narrower. */
static Ref narrowed(Graph *g, Ref dy, const Node *n)
{
    uint32_t first = g->n;
    if (n->type.dtype != BF16)
        return dy;
    dy = to_dtype(g, dy, BF16, n->loc);
    for (Ref q = first; q < g->n; q++)
        label(g, q, n);
    return dy;
}

/* Gradients of one node's operands, once its own is whole. */
static void backward(Graph *g, Ref r, Ref *d, const bool *need, Arena *scratch)
{
    const Node n = g->node[r];
    int nrule;
    if (!ops[n.op].vjp)
        err(n.loc, "%s: there is no gradient of this op%s%s", ops[n.op].name,
            ops[n.op].once ? "; " : "", ops[n.op].once ? ops[n.op].once : "");
    Expr **rules = rules_of(n.op, &nrule);
    d[r] = narrowed(g, d[r], &n);
    for (int i = 0; i < n.nin; i++) {
        Ref x = n.in[i], first = g->n;
        if (!need[x])
            continue;
        Vjp v = { g, r, d[r], i, scratch, 0 };
        Ref dx = rule(&v, rules[nrule == 1 ? 0 : i], NULL);
        Ref before = d[x];
        if (dx != NONE)
            d[x] = add_up(g, d[x], dx, x, n.loc);
        for (Ref q = first; q < g->n; q++)
            label(g, q, &n);
        if (dx != NONE && before != NONE)
            label_sum(g, d[x]);
    }
}

void grad_append(Graph *g, Ref y, Ref dy, const Ref *wrt, int n, Ref *dwrt,
                 Arena *scratch)
{
    bool *need = alloc(scratch, (y + 1) * sizeof *need);
    Ref *d = alloc(scratch, (y + 1) * sizeof *d);
    const Type t = g->node[y].type;

    if (dy == NONE && t.ndim)
        err(g->node[y].loc, "grad: the gradient of a tensor %s is asked; fold "
            "it to a scalar first", type_text(g->arena, &g->mesh, &t));
    for (int i = 0; i < n; i++)
        if (wrt[i] <= y)
            need[wrt[i]] = true;
    for (Ref r = 0; r <= y; r++) {
        d[r] = NONE;
        for (int i = 0; i < g->node[r].nin; i++)
            need[r] |= need[g->node[r].in[i]];
    }
    if (dy == NONE) {
        dy = emit_const(g, 1, &t, g->node[y].loc);
        g->node[dy].segment = BACKWARD;
    }
    d[y] = dy;
    for (Ref r = y + 1; r-- > 0;)
        if (need[r] && d[r] != NONE && g->node[r].nin)
            backward(g, r, d, need, scratch);
    for (int i = 0; i < n; i++)
        dwrt[i] = wrt[i] <= y ? d[wrt[i]] : NONE;
}

/* Every gradient that is asked of one scalar, in one backward graph. */
static void expand(Copy *c, Ref first, Job *j)
{
    const Graph *in = c->in;
    Ref y = in->node[first].in[0], *wrt, *at, *d;
    int n = 0;
    wrt = alloc(j->scratch, (in->n + 1) * sizeof *wrt);
    at = alloc(j->scratch, (in->n + 1) * sizeof *at);
    d = alloc(j->scratch, (in->n + 1) * sizeof *d);
    for (Ref r = first; r < in->n; r++)
        if (in->node[r].op == OP_grad && in->node[r].in[0] == y
            && c->map[in->node[r].in[1]] != NONE)
            at[n] = r, wrt[n++] = c->map[in->node[r].in[1]];
    grad_append(c->out, c->map[y], NONE, wrt, n, d, j->scratch);
    for (int i = 0; i < n; i++) {
        const Node *a = &in->node[at[i]];
        DType t = a->type.dtype;
        Ref g = d[i] != NONE ? to_dtype(c->out, d[i], t, a->loc)
              : emit_const(c->out, 0, &a->type, a->loc);
        c->map[at[i]] = g;
        c->out->node[g].segment = BACKWARD;
    }
}

/* Ops that are defined by others are these from here on. */
static Graph *defined(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++) {
        Ref q = copy_node(&c, r);
        const char *def = ops[in->node[r].op].def;
        if (!def)
            continue;
        Vjp v = { c.out, q, NONE, -1, j->scratch, 0 };
        c.map[r] = rule(&v, expr_parse(j->scratch, def, "DEF"), NULL);
        for (Ref k = q + 1; k < c.out->n; k++) {
            c.out->node[k].segment = in->node[r].segment;
            c.out->node[k].scope = in->node[r].scope;
            c.out->node[k].stage = in->node[r].stage;
        }
    }
    return copy_end(&c);
}

Graph *pass_grad(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        if (in->node[r].op != OP_grad)
            copy_node(&c, r);
        else if (c.map[r] == NONE)
            expand(&c, r, j);
    return defined(copy_end(&c), j);
}
