/* fuse_kind.c -- which nodes kernels are made of.
 *
 * A leaf and what a library or the network does stand alone; what costs
 * nothing is copied to its readers; the others are what fuse groups. */
#include "passes/fuse.h"
#include <math.h>

bool fuse_own(const Graph *g, const Node *n)
{
    Family f = ops[n->op].family;
    bool made = n->op == OP_const || n->op == OP_iota || n->op == OP_random;
    if (f == FAMILY_copy)
        return g->node[n->in[0]].layout == n->layout;
    return (ops[n->op].leaf && !made) || n->op == OP_dot || n->op == OP_put
        || f == FAMILY_conv || f == FAMILY_attention || f == FAMILY_collective
        || f == FAMILY_pack || f == FAMILY_hop;
}

bool fuse_alone(const Fuse *f, Ref r)
{
    return f->call[r] != NONE || fuse_own(f->g, &f->g->node[r]);
}

enum { SMALL = 4096 };                    /* numbers a kernel may hold */

static bool costs_nothing(const Graph *g, const Node *n)
{
    switch (n->op) {
    case OP_const:
        return n->attr.ndata <= SMALL;
    case OP_iota: case OP_stop: case OP_slice: case OP_pad: case OP_concat:
        return true;
    case OP_move:
        return !fuse_folds(g, n);
    case OP_cast:
        return dtype_size(g->node[n->in[0]].type.dtype)
            < dtype_size(n->type.dtype);
    default:
        return false;
    }
}

static void mark_seen(const Graph *g, Fuse *f)
{
    for (uint32_t i = 0; i < g->nset; i++)
        f->kept[g->set[i].value] = f->kept[g->set[i].leaf] = true;
    for (uint32_t i = 0; i < g->nout; i++)
        f->kept[g->out[i].ref] = true;
}

bool fuse_shifted(const Node *n, int i)
{
    return ops[n->op].family == FAMILY_index || (n->op == OP_take && i == 0);
}

/* What a reader wants of its operands. */
static void want(Fuse *f, Ref r, bool *by_dot, bool *in_memory)
{
    const Node *n = &f->g->node[r];
    bool dot = n->op == OP_dot && fuse_views_pay(f, r);
    for (int i = 0; i < n->nin; i++) {
        Ref x = n->in[i];
        if (op_unread(n->op, i))
            continue;
        f->read[x] = true;
        by_dot[x] |= f->kind[r] == VIEW || dot;
        in_memory[x] |= (f->kind[r] == OWN && !dot) || fuse_shifted(n, i);
    }
}

/* A value of which all readers take slices (the gradient of a concat) need not
 * wait for the last of them: all but the slice that is read first are copied.
 * `first[r]`: first reader of r. */
static void find_apart(Fuse *f)
{
    const Graph *g = f->g;
    Ref *first = alloc(f->arena, (g->n + 1) * sizeof *first);
    Ref *slice = alloc(f->arena, (g->n + 1) * sizeof *slice);
    bool *other = alloc(f->arena, g->n + 1);
    mark_seen(g, f);
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; i < g->node[r].nin; i++) {
            first[g->node[r].in[i]] = r;
            other[g->node[r].in[i]] |= g->node[r].op != OP_slice;
        }
    for (Ref r = 0; r < g->n; r++) {
        Ref x = g->node[r].nin ? g->node[r].in[0] : NONE;
        if (g->node[r].op != OP_slice || g->node[r].segment != BACKWARD
            || ops[g->node[x].op].leaf || other[x] || f->kept[x])
            continue;
        if (slice[x])
            f->apart[first[r] < first[slice[x] - 1] ? slice[x] - 1 : r] = true;
        if (!slice[x] || first[r] < first[slice[x] - 1])
            slice[x] = r + 1;             /* the one that is read first */
    }
}

/* From the last node to the first: what readers want of each value.  A free
 * node that somebody wants in memory is an ordinary one; a `move` that only
 * dots want may stay a view, which they read through strides.  What nobody
 * reads is left out. */
static void classify(Fuse *f)
{
    const Graph *g = f->g;
    bool *by_dot = alloc(f->arena, g->n + 1);
    bool *in_memory = alloc(f->arena, g->n + 1);
    mark_seen(g, f);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool move = n->op == OP_move, own = fuse_alone(f, r);
        bool bare = !own && !f->apart[r] && costs_nothing(g, n);
        in_memory[r] |= f->kept[r];
        f->kind[r] = own ? OWN
            : !f->kept[r] && !f->read[r] ? FREE
            : !bare || in_memory[r] || (by_dot[r] && !move) ? PLAIN
            : by_dot[r] ? VIEW : FREE;
        if (own || f->kept[r] || f->read[r])
            want(f, r, by_dot, in_memory);
    }
}

/* A free node that r reads by two ways, through free nodes; NONE.  Equal
 * nodes are one by now, so the ways differ. */
static Ref met_twice(Fuse *f, Ref r, uint32_t stamp)
{
    const Node *n = &f->g->node[r];
    Ref found = NONE;
    for (int i = 0; i < n->nin && found == NONE; i++) {
        Ref x = n->in[i];
        if ((f->kind[x] != FREE && f->kind[x] != VIEW)
            || !f->g->node[x].nin)
            continue;
        if (f->mark[x] == stamp && f->map[x] != r)
            return x;
        if (f->mark[x] == stamp)
            continue;
        f->mark[x] = stamp, f->map[x] = r;
        found = met_twice(f, x, stamp);
    }
    return found;
}

/* A kernel copies a free node once, and reads it at one place: where a node
 * wants it at two, as x and its transpose, it has to be in memory.  False
 * when none is like that. */
static bool settle(Fuse *f)
{
    bool moved = false;
    for (Ref r = 0; r < f->g->n; r++) {
        List one = { &r, 1, 1 };
        const char *why;
        Ref x = f->kind[r] != PLAIN ? NONE
              : met_twice(f, r, ++f->question);
        if (x == NONE || f->kept[x] || !isinf(fuse_cost(f, &one, &why)))
            continue;
        moved = f->kept[x] = true;
    }
    return moved;
}

bool fuse_free(const Fuse *f, Ref r, int reader)
{
    return f->kind[r] == FREE || f->kind[r] == VIEW
        || (f->again[r] && reader != SEG_NONE
            && node_phase(&f->g->node[r]) != reader);
}


/* The graph, its nodes free to be changed. */
static Graph *graph_own(const Graph *g, Arena *a)
{
    Graph *own = alloc(a, sizeof *own);
    *own = *g;
    own->node = alloc(a, (g->n + 1) * sizeof *own->node);
    memcpy(own->node, g->node, g->n * sizeof *own->node);
    return own;
}

Fuse *fuse_new(const Graph *in, Job *j)
{
    Arena *a = j->scratch;
    Fuse *f = alloc(a, sizeof *f);
    Graph *g = graph_own(in, a);
    size_t n = g->n + 1;
    if (!j->target)
        die("fuse: no target to ask for costs");
    f->g = g, f->arena = a, f->target = j->target;
    f->prices = prices_of(j), f->mesh = key_mesh(&g->mesh, g->phase);
    f->kind = alloc(a, n * sizeof *f->kind);
    f->kept = alloc(a, n * sizeof *f->kept);
    f->read = alloc(a, n * sizeof *f->read);
    f->from = alloc(a, n * sizeof *f->from);
    f->to = alloc(a, n * sizeof *f->to);
    f->group = alloc(a, n * sizeof *f->group);
    f->seen = alloc(a, n * sizeof *f->seen);
    f->map = alloc(a, n * sizeof *f->map);
    f->mark = alloc(a, n * sizeof *f->mark);
    f->work = alloc(a, n * sizeof *f->work);
    f->shape = alloc(a, n * sizeof *f->shape);
    f->again = alloc(a, n * sizeof *f->again);
    f->apart = alloc(a, n * sizeof *f->apart);
    f->large = alloc(a, n * sizeof *f->large);
    f->call = alloc(a, n * sizeof *f->call);
    fuse_tails(f);
    return f;
}

void fuse_sort(Fuse *f)
{
    find_apart(f);
    do {
        memset(f->read, 0, f->g->n * sizeof *f->read);
        classify(f);
    } while (settle(f));
    fuse_again(f);
}

Fuse *fuse_open(const Graph *in, Job *j)
{
    Fuse *f = fuse_new(in, j);
    fuse_sort(f);
    return f;
}
