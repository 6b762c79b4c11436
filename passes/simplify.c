/* simplify.c -- the same values from fewer nodes.
 *
 * One forward walk; every node is first reduced by the rules below and then
 * looked up among its equals, so that equal work is done once (value
 * numbering).  Requirements of a rule:
 *   1. it holds exactly in a field, so that every check modulo 2^61-1 passes;
 *   2. in floating point it is at most a different rounding of a constant;
 *   3. it never makes a node that reads more than the one it replaces.
 * A clone (again=) is never merged: it exists to be computed twice. */
#include "ir/expr.h"
#include "passes/pass.h"
#include <math.h>

typedef struct Table {
    Ref *slot;
    uint32_t size;
    bool graded;                          /* no grad node is left: stop is a */
} Table;

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdu;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    for (; s && *s; s++)
        h = mix(h, (unsigned char)*s);
    return h;
}

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static uint64_t node_hash(const Node *n)
{
    const Attr *a = &n->attr;
    uint64_t h = mix(n->op, (uint64_t)n->nin);
    for (int i = 0; i < n->nin; i++)
        h = mix(h, n->in[i]);
    for (int d = 0; d < n->type.ndim; d++)
        h = mix(mix(h, (uint64_t)n->type.dim[d]), n->type.split[d]);
    h = hash_text(mix(h, bits(a->value)), a->sig);
    h = mix(mix(mix(h, (uint64_t)a->id), (uint64_t)a->at), (uint64_t)a->size);
    h = mix(mix(h, (uint64_t)(a->dim * 64 + a->to)), a->axes);
    return mix(h, (uint64_t)(a->stride * 65536 + a->pad * 256 + a->dilate)
               + (uint64_t)n->type.dtype);
}

static bool node_equal(const Node *a, const Node *b)
{
    return a->op == b->op && a->nin == b->nin && a->stage == b->stage
        && memcmp(a->in, b->in, (size_t)a->nin * sizeof *a->in) == 0
        && type_equal(&a->type, &b->type) && attr_equal(&a->attr, &b->attr);
}

static bool shared(const Node *n)
{
    return !op_public(n->op) && n->again == NONE;
}

/* The node like the last one of g that came before it, or NONE; the last one
 * is entered when it is the first of its kind. */
static Ref find_equal(Table *t, const Graph *g)
{
    Ref r = g->n - 1;
    const Node *n = &g->node[r];
    uint32_t k = (uint32_t)node_hash(n) & (t->size - 1);
    for (; t->slot[k] != NONE; k = (k + 1) & (t->size - 1))
        if (node_equal(&g->node[t->slot[k]], n))
            return t->slot[k];
    t->slot[k] = r;
    return NONE;
}

/* ---- rules ---- */

/* Is r one number everywhere?  Through broadcasts; *v is the number. */
static bool constant(const Graph *g, Ref r, double *v)
{
    const Node *n = &g->node[r];
    while (n->op == OP_move && n->attr.sig && n->attr.sig[0] == '-')
        n = &g->node[n->in[0]];
    *v = n->attr.value;
    return n->op == OP_const && n->attr.ndata == 0;
}

static bool is_number(const Graph *g, Ref r, double want)
{
    double v;
    return constant(g, r, &v) && v == want;
}

/* "abc->abc", spaces aside: nothing moves. */
static bool is_identity(const Node *n)
{
    const char *s = n->attr.sig, *arrow = strstr(s, "->");
    size_t len = (size_t)(arrow - s);
    return n->op == OP_move && strlen(arrow + 2) == len
        && strncmp(s, arrow + 2, len) == 0;
}

/* A slice of a slice is one of what that was cut from; a slice within one
 * operand of a concat, or within what a pad holds, is one of that. */
static void slice_through(const Graph *g, Node *n)
{
    while (n->op == OP_slice && !n->type.partial) {
        const Node *a = &g->node[n->in[0]];
        int64_t at = n->attr.at, end = at + n->attr.size, cut;
        if (a->attr.dim != n->attr.dim || a->type.partial)
            return;
        if (a->op == OP_slice) {
            n->attr.at += a->attr.at;
            n->in[0] = a->in[0];
            continue;
        }
        if (a->op != OP_concat && a->op != OP_pad)
            return;
        cut = g->node[a->in[0]].type.dim[n->attr.dim];
        if (a->op == OP_pad ? at >= a->attr.at && end <= a->attr.at + cut
                            : end <= cut) {
            n->attr.at -= a->op == OP_pad ? a->attr.at : 0;
            n->in[0] = a->in[0];
        } else if (a->op == OP_concat && at >= cut) {
            n->attr.at -= cut;
            n->in[0] = a->in[1];
        } else
            return;
    }
}

/* The operand that this node is equal to, or NONE. */
static Ref same_as(const Graph *g, Ref r, bool graded)
{
    const Node *n = &g->node[r];
    const Ref *in = n->in;
    const Node *a = n->nin ? &g->node[in[0]] : NULL;
    if (n->type.partial)
        return NONE;
    switch (n->op) {
    case OP_move:
        return is_identity(n) ? in[0] : NONE;
    case OP_slice:
        return n->attr.size == a->type.dim[n->attr.dim] ? in[0] : NONE;
    case OP_stop:
        return graded ? in[0] : NONE;
    case OP_cast:
        return a->type.dtype == n->type.dtype ? in[0] : NONE;
    case OP_neg:
        return a->op == OP_neg ? a->in[0] : NONE;
    case OP_add:
        return is_number(g, in[1], 0) ? in[0] : is_number(g, in[0], 0) ? in[1]
             : NONE;
    case OP_sub:
        return is_number(g, in[1], 0) ? in[0] : NONE;
    case OP_mul:
        return is_number(g, in[1], 1) ? in[0] : is_number(g, in[0], 1) ? in[1]
             : NONE;
    case OP_div:
        return is_number(g, in[1], 1) ? in[0] : NONE;
    case OP_total:
        return n->nin == 1 ? in[0] : NONE;
    default:
        return NONE;
    }
}

/* Arithmetic on numbers, exact in a field as it is in doubles here only when
 * the result is a dyadic rational without rounding: products and sums of
 * short numbers.  Others are left to the kernels. */
static bool fold_numbers(const Graph *g, const Node *n, double *v)
{
    double a, b = 0;
    if (n->nin < 1 || n->nin > 2 || n->type.dtype != F32 || n->type.partial
        || !constant(g, n->in[0], &a)
        || (n->nin == 2 && !constant(g, n->in[1], &b)))
        return false;
    if ((float)a != a || (float)b != b)
        return false;
    double sum = n->op == OP_sub ? a - b : a + b;   /* exact when it gives */
    if ((n->op == OP_add || n->op == OP_sub)        /* both back */
        && (sum - a != (n->op == OP_sub ? -b : b)
            || sum - (n->op == OP_sub ? -b : b) != a))
        return false;
    switch (n->op) {
    case OP_neg: *v = -a; break;
    case OP_add: *v = a + b; break;
    case OP_sub: *v = a - b; break;
    case OP_mul: *v = a * b; break;
    default: return false;
    }
    return (float)*v == *v;
}

/* Value r in bf16, where it was that before it was widened and moved: the same
 * moves of what was widened; NONE. */
static Ref narrow(Graph *g, Table *t, Ref r)
{
    Node n = g->node[r];
    if (n.op == OP_cast && g->node[n.in[0]].type.dtype == BF16)
        return n.in[0];
    if (n.op != OP_move || n.type.partial || n.again != NONE)
        return NONE;
    Sig s = sig_bind(g, n.op, &n.attr, n.in, n.nin, n.loc);
    if (sig_folds(&s))
        return NONE;
    Ref x = narrow(g, t, n.in[0]);
    if (x == NONE)
        return NONE;
    n.in = alloc(g->arena, sizeof *n.in);
    n.in[0] = x, n.type.dtype = BF16;
    GROW(g->arena, g->node, g->n, g->ncap);
    g->node[g->n++] = n;
    Ref equal = find_equal(t, g);
    if (equal == NONE)
        return g->n - 1;
    g->n--;
    return equal;
}

/* What cast r to bf16 is without a cast; NONE. */
static Ref narrowed(const Copy *c, Ref r, Table *t)
{
    const Node *n = &c->in->node[r];
    return n->op != OP_cast || n->type.dtype != BF16 || n->type.partial
        || !shared(n) ? NONE : narrow(c->out, t, c->map[n->in[0]]);
}

/* Drop the last node of g, an orphan. */
static void unemit(Graph *g)
{
    g->n--;
}

static Ref reduce(Copy *c, Ref r, Table *t)
{
    Graph *g = c->out;
    Ref same = narrowed(c, r, t);
    double v;
    if (same != NONE)
        return same;
    Ref q = copy_node(c, r);
    slice_through(g, &g->node[q]);
    same = same_as(g, q, t->graded);
    if (same != NONE) {
        unemit(g);
        return same;
    }
    if (fold_numbers(g, &g->node[q], &v)) {
        Node n = g->node[q];
        Segment s = n.segment;
        Ref before = g->n;
        q = emit_const(g, v, &n.type, n.loc);
        for (Ref k = before; k < g->n; k++)
            g->node[k].segment = s, g->node[k].scope = n.scope;
    }
    if (!shared(&g->node[q]) || q != g->n - 1)
        return q;
    Ref equal = find_equal(t, g);
    if (equal == NONE)
        return q;
    unemit(g);
    return equal;
}

Graph *graph_simplify(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    Table t = { NULL, 64, true };
    for (Ref r = 0; r < in->n; r++)
        t.graded &= in->node[r].op != OP_grad;
    while (t.size < 4 * in->n)
        t.size *= 2;
    t.slot = alloc(j->scratch, t.size * sizeof *t.slot);
    memset(t.slot, 0xff, t.size * sizeof *t.slot);
    for (Ref r = 0; r < in->n; r++)
        c.map[r] = reduce(&c, r, &t);
    return copy_end(&c);
}

/* A dead operand of which only the shape is read becomes a number of that
 * shape, which nobody computes. */
static void copy_live(Copy *c, Ref r)
{
    const Node *n = &c->in->node[r];
    for (int i = 0; i < n->nin; i++) {
        Ref x = n->in[i];
        if (c->map[x] != NONE)
            continue;
        Type t = c->in->node[x].type;
        t.partial = 0, t.fold = FOLD_SUM;
        c->map[x] = emit_typed(c->out, OP_const, NULL, t, NULL, 0, NULL,
                               n->loc);
        c->out->node[c->map[x]].loop = c->in->node[x].loop;
    }
    copy_node(c, r);
}

/* Drop what no set and no result needs; leaves that are saved stay, so that
 * a checkpoint holds them.  A clone does not keep what it is a clone of. */
Graph *graph_dce(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    bool *live = alloc(j->scratch, in->n + 1);

    for (uint32_t i = 0; i < in->nset; i++)
        live[in->set[i].value] = live[in->set[i].leaf] = true;
    for (uint32_t i = 0; i < in->nout; i++)
        live[in->out[i].ref] = true;
    for (Ref r = in->n; r-- > 0;) {
        const Node *n = &in->node[r];
        live[r] |= n->op == OP_param || n->op == OP_state
                || n->op == OP_send;
        for (int i = 0; live[r] && i < n->nin; i++)
            live[n->in[i]] |= !op_unread(n->op, i);
    }
    for (Ref r = 0; r < in->n; r++)
        if (live[r])
            copy_live(&c, r);
    return copy_end(&c);
}

static Graph *both(const Graph *in, Job *j)
{
    Graph *once = graph_simplify(in, j);
    Graph *out = graph_dce(once, j);
    arena_drop(j->keep, once->node);
    return out;
}

Graph *pass_simplify(const Graph *in, Job *j) { return both(in, j); }
Graph *pass_tidy(const Graph *in, Job *j) { return both(in, j); }
