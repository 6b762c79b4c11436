/* fuse_cost.c -- a group as a graph of its own, to ask its cost.
 *
 * Values from outside are inputs of the same type and memory order; what is
 * read outside is returned.  The target then sees some twenty nodes. */
#include "passes/fuse.h"

typedef struct Small {
    Fuse *f;
    Arena *arena;
    Graph *g;
    Ref *asked;                           /* nodes of the group, copied */
    int nasked;
    uint32_t cap;
    const List *group;
    Segment segment;                      /* of the group */
} Small;

static bool member(const List *l, Ref r)
{
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (l->at[mid] < r)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < l->n && l->at[lo] == r;
}

static Ref append(Small *s, Node n)
{
    GROW(s->arena, s->g->node, s->g->n, s->g->ncap);
    s->g->node[s->g->n] = n;
    return s->g->n++;
}

static Ref place(Small *s, Ref r);

static Ref copy(Small *s, Ref r)
{
    Node n = s->f->g->node[r];
    const Ref *old = n.in;
    n.in = alloc(s->arena, (size_t)(n.nin + 1) * sizeof *n.in);
    n.kernel = 0;
    for (int i = 0; i < n.nin; i++)
        n.in[i] = place(s, old[i]);
    Ref q = append(s, n);
    GROW(s->arena, s->asked, (uint32_t)s->nasked, s->cap);
    s->asked[s->nasked++] = q;
    return q;
}

static Ref place(Small *s, Ref r)
{
    Fuse *f = s->f;
    if (f->mark[r] == f->question)
        return f->map[r];
    f->mark[r] = f->question;
    if (member(s->group, r) || fuse_free(f, r, s->segment))
        return f->map[r] = copy(s, r);
    Node n = f->g->node[r];
    n.op = OP_input;
    n.nin = 0;
    n.kernel = -1;
    return f->map[r] = append(s, n);
}

/* Is the value of a member read outside? */
static bool leaves(const Small *s, Ref r)
{
    const List *to = &s->f->to[r];
    for (uint32_t i = 0; i < to->n; i++)
        if (!member(s->group, to->at[i]))
            return true;
    return s->f->kept[r] || !to->n;
}

double fuse_cost(Fuse *f, const List *group, const char **why)
{
    Arena *a = arena_new();
    Graph g = { .arena = a, .phase = f->g->phase, .mesh = f->g->mesh };
    Small s = { .f = f, .arena = a, .g = &g, .group = group,
                .segment = f->g->node[group->at[0]].segment };
    f->question++;
    for (uint32_t i = 0; i < group->n; i++)
        place(&s, group->at[i]);
    for (uint32_t i = 0; i < group->n; i++)
        if (leaves(&s, group->at[i]))
            graph_out(&g, "", f->map[group->at[i]]);
    *why = NULL;
    double cost = f->target->cost(&g, s.asked, s.nasked, why);
    arena_free(a);
    return cost;
}

/* ---- dots through views ---- */

bool fuse_folds(const Graph *g, const Node *n)
{
    if (!n->nin)
        return false;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    for (int c = 0; c < NLETTER; c++)
        if (s.folded[c] && s.size[c] > 1)
            return true;
    return false;
}

/* Operand r of the dot, `move` by `move` when views are asked for. */
static Ref view_chain(Small *s, Ref r, bool views)
{
    Node n = s->f->g->node[r];
    if (!views || n.op != OP_move || fuse_folds(s->f->g, &n)) {
        n.op = OP_input, n.nin = 0;
    } else {
        Ref *in = alloc(s->arena, sizeof *in);
        *in = view_chain(s, n.in[0], views);
        n.in = in;
    }
    n.kernel = -1;
    return append(s, n);
}

double fuse_dot_cost(Fuse *f, Ref dot, bool views)
{
    Arena *a = arena_new();
    Graph g = { .arena = a, .phase = f->g->phase, .mesh = f->g->mesh };
    Small s = { .f = f, .arena = a, .g = &g };
    Node n = f->g->node[dot];
    Ref in[2] = { view_chain(&s, n.in[0], views),
                  view_chain(&s, n.in[1], views) };
    const char *why;
    n.in = in;
    Ref r = append(&s, n);
    graph_out(&g, "", r);
    double cost = f->target->cost(&g, &r, 1, &why);
    arena_free(a);
    return cost;
}

bool fuse_views_pay(Fuse *f, Ref dot)
{
    const Node *n = &f->g->node[dot];
    if (f->g->node[n->in[0]].op != OP_move
        && f->g->node[n->in[1]].op != OP_move)
        return true;
    return fuse_dot_cost(f, dot, true) <= 2 * fuse_dot_cost(f, dot, false);
}
