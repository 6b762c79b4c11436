/* recompute.c -- values that are made twice, so that they need not wait.
 *
 * A product's or convolution's operand is read again in the backward pass,
 * for the gradient of the weight.  Where it is a cheap chain over one large
 * value that backward keeps anyway (a norm and its activation over what came
 * before them; fuse_again.c), a clone there costs one more kernel, or a store
 * in one that reads the same, and the value itself dies in the forward pass.
 * (Chen et al., "Training deep nets with sublinear memory cost", 2016.)
 *
 * Before that, products themselves: one that takes few flops for its bytes,
 * over operands that are there in backward, is made again there with what
 * lies between it and its readers: scores and results of attention, mostly
 * (Dao et al., "FlashAttention", 2022, section 3.1). */
#include "passes/recompute_graph.h"

enum { LARGE = 1 << 14 };                 /* bytes worth it */

/* Values that backward reads even when clones are made: by themselves, or
 * through a chain in a kernel. */
static bool *waiting(const Fuse *f)
{
    const Graph *g = f->g;
    bool *waits = alloc(f->arena, g->n + 1);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        for (int i = 0; n->segment >= BACKWARD && i < n->nin; i++) {
            Ref x = n->in[i];
            if (!f->again[x])
                waits[x] = true;
            else if (f->kind[r] != OWN && f->large[x] != NONE)
                waits[f->large[x]] = true;
        }
    }
    return waits;
}

/* Does a move change the order of its letters? */
static bool turns(const Graph *g, const Node *n)
{
    if (n->op != OP_move)
        return false;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    char from[NDIM * NLETTER] = "", to[NDIM * NLETTER] = "";
    for (int d = 0; d < s.in[0].ndim; d++)
        strncat(from, s.in[0].dim[d].c, (size_t)s.in[0].dim[d].n);
    for (int d = 0; d < s.out.ndim; d++)
        strncat(to, s.out.dim[d].c, (size_t)s.out.dim[d].n);
    return strcmp(from, to) != 0;
}

/* Does a turning move stand between the large value and x?  It walks memory
 * against the grain, and making it twice is dear. */
static bool turned(const Fuse *f, Ref x)
{
    const Node *n = &f->g->node[x];
    if (x == f->large[x])
        return false;
    for (int i = 0; i < n->nin; i++) {
        Ref y = n->in[i];
        bool on = y == f->large[x] || f->large[y] == f->large[x];
        if (on && (turns(f->g, n) || (y != f->large[x] && turned(f, y))))
            return true;
    }
    return false;
}

static bool worth(const Fuse *f, Ref x, const bool *waits)
{
    const Node *n = &f->g->node[x];
    return f->again[x] && n->segment == FORWARD && f->large[x] != NONE
        && !turned(f, x)
        && waits[f->large[x]]
        && f->g->node[f->large[x]].segment == FORWARD
        && type_bytes(&f->g->mesh, &n->type) >= LARGE;
}

/* Operand x of a launch of its own in the backward pass. */
static Ref remade(Copy *c, Ref x, Ref *clone, const Node *reader)
{
    if (clone[x] != NONE)
        return clone[x];
    Ref was = c->map[x];
    clone[x] = copy_node(c, x);
    Node *n = &c->out->node[clone[x]];
    n->again = was;
    n->segment = reader->segment;
    n->name = fmt(c->out->arena, "%s.again", n->name);
    c->map[x] = was;
    return clone[x];
}

/* Is operand i wanted for its numbers, by a launch of its own in the backward
 * pass?  One that is read for its shape alone may be dead. */
static bool read_late(const Graph *g, const Node *n, int i)
{
    if (n->segment < BACKWARD || !fuse_own(g, n) || ops[n->op].leaf)
        return false;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    return i >= s.nin || !s.in[i].unread;
}

/* ---- products ---- */

enum { RATIO = 8 };                       /* a product's seconds over those of
                                             sending its bytes to memory */

typedef struct Remake {
    const Fuse *f;
    Copy c;
    bool *late, *there, *made;            /* by node: backward wants it; can
                                             have it; makes it again */
    Ref *clone;
} Remake;

/* Is r met again over one large value?  A sum of two ends what is remade, or
 * all of a residual network would be. */
static bool chains(const Fuse *f, Ref r)
{
    const Node *n = &f->g->node[r];
    return n->segment == FORWARD
        && (f->large[r] != NONE || f->call[r] != NONE)
        && (op_pointwise(n->op) || (n->op == OP_move && !fuse_folds(f->g, n)));
}

/* What backward reads, by itself or at the end of a chain. */
static void find_late(Remake *m)
{
    const Graph *g = m->f->g;
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool wants = n->segment >= BACKWARD || (m->late[r] && chains(m->f, r));
        for (int i = 0; wants && i < n->nin; i++)
            if (!op_unread(n->op, i))
                m->late[n->in[i]] = true;
    }
}

static bool few_flops(const Fuse *f, Ref r)
{
    const Graph *g = f->g;
    const Node *n = &g->node[r];
    DType d = g->node[n->in[0]].type.dtype;
    double bytes = (double)type_bytes(&g->mesh, &n->type);
    return n->op == OP_dot && bytes >= LARGE
        && node_flops(g, r) / f->target->flops[d]
        <= RATIO * bytes / f->target->bandwidth;
}

static bool find_made(Remake *m)
{
    const Graph *g = m->f->g;
    bool some = false;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool all = true, any = few_flops(m->f, r);
        for (int i = 0; i < n->nin; i++) {
            all &= m->there[n->in[i]] || op_unread(n->op, i);
            any |= m->made[n->in[i]] && chains(m->f, r);
        }
        m->made[r] = n->segment == FORWARD && m->late[r] && all && any;
        m->there[r] = m->made[r] || m->late[r] || ops[n->op].leaf
            || n->segment == BEGIN
            || type_bytes(&g->mesh, &n->type) < LARGE;
        some |= m->made[r];
    }
    return some;
}

/* Where backward reads r. */
static Ref late_form(Remake *m, Ref r)
{
    const Node *n = &m->f->g->node[r];
    if (!m->made[r])
        return m->c.map[r];
    if (m->clone[r] != NONE)
        return m->clone[r];
    Ref x[NIN];
    for (int i = 0; i < n->nin; i++)
        x[i] = op_unread(n->op, i) ? m->c.map[n->in[i]]
                                   : late_form(m, n->in[i]);
    m->clone[r] = copy_again(&m->c, r, x, n->nin, BACKWARD);
    return m->clone[r];
}

/* The graph itself where there are none. */
static const Graph *remake_products(const Graph *in, const Fuse *f, Job *j)
{
    Remake m = { .f = f };
    size_t n = in->n + 1;
    m.late = alloc(j->scratch, n);
    m.there = alloc(j->scratch, n);
    m.made = alloc(j->scratch, n);
    m.clone = alloc(j->scratch, n * sizeof *m.clone);
    for (Ref r = 0; r < in->n; r++)
        m.clone[r] = NONE;
    find_late(&m);
    if (!find_made(&m))
        return in;
    m.c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++) {
        const Node *p = &in->node[r];
        Ref *x = alloc(j->scratch, (size_t)(p->nin + 1) * sizeof *x);
        for (int i = 0; i < p->nin; i++)
            x[i] = p->segment >= BACKWARD && !op_unread(p->op, i)
                ? late_form(&m, p->in[i]) : m.c.map[p->in[i]];
        copy_node_in(&m.c, r, x, p->nin);
    }
    return copy_end(&m.c);
}

/* What costs next to nothing: products of few flops, and operands that are
 * cheap chains over what waits anyway. */
static Graph *selective(const Graph *in, Job *j)
{
    Fuse *f = fuse_open(in, j);
    const Graph *made = remake_products(in, f, j);
    if (made != in)
        f = fuse_open(in = made, j);
    Copy c = copy_begin(in, j);
    bool *waits = waiting(f);
    Ref *clone = alloc(j->scratch, (in->n + 1) * sizeof *clone);
    for (Ref r = 0; r < in->n; r++)
        clone[r] = NONE;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref *x = alloc(j->scratch, (size_t)(n->nin + 1) * sizeof *x);
        for (int i = 0; i < n->nin; i++)
            x[i] = worth(f, n->in[i], waits) && read_late(in, n, i)
                ? remade(&c, n->in[i], clone, n) : c.map[n->in[i]];
        copy_node_in(&c, r, x, n->nin);
    }
    return graph_dce(copy_end(&c), j);
}

/* Does anything work in that segment, or behind it? */
static bool works_from(const Graph *g, Segment s)
{
    Ref r = 0;
    while (r < g->n && g->node[r].segment < s)
        r++;
    return r < g->n;
}

static bool trains(const Graph *g)
{
    bool late = false;
    for (Ref r = 0; r < g->n; r++)
        late |= g->node[r].segment == BACKWARD;
    return late;
}

Graph *pass_recompute(const Graph *in, Job *j)
{
    Recompute word = j->plan ? j->plan->recompute : RECOMPUTE_SELECTIVE;
    if (!j->target || !j->target->cost || word == RECOMPUTE_NONE
        || !works_from(in, BACKWARD))
        return copy_whole(in, j);
    Graph *g = selective(in, j);
    return word == RECOMPUTE_SELECTIVE || !trains(g) ? g
         : word == RECOMPUTE_FULL ? recompute_full(g, j)
         : recompute_within(g, j, j->plan->bytes);
}
