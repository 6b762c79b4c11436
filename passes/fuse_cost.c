/* fuse_cost.c -- a group as a graph of its own, to ask its cost.
 *
 * Values from outside are inputs of the same type and memory order; what is
 * read outside is returned.  The target then sees some twenty nodes.  Groups of
 * repeated blocks would make equal graphs: a question is known by a key, and
 * the graph is made for the first of its kind. */
#include "passes/fuse.h"

typedef struct Small {
    Fuse *f;
    Arena *arena;
    Graph *g;
    Ref *asked;                           /* nodes of the group, copied */
    int nasked;
    uint32_t cap;
    const List *group;
    int phase;                            /* of the group */
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
    if (member(s->group, r) || fuse_free(f, r, s->phase))
        return f->map[r] = copy(s, r);
    Node n = f->g->node[r];
    n.op = OP_input;
    n.nin = 0;
    n.kernel = -1;
    return f->map[r] = append(s, n);
}

/* Is the value of a member read outside? */
static bool leaves(const Fuse *f, const List *group, Ref r)
{
    const List *to = &f->to[r];
    for (uint32_t i = 0; i < to->n; i++)
        if (!member(group, to->at[i]))
            return true;
    return f->kept[r] || !to->n;
}

/* ---- prices ---- */

typedef struct Question {                 /* a small graph that is not made */
    Fuse *f;
    const List *group;
    Segment segment;                      /* of the group */
    uint32_t n;                           /* nodes met */
    Key key;
} Question;

/* What the node itself adds to a key; its labels may still change. */
static Key own_key(Fuse *f, Ref r, bool asked)
{
    Key *k = asked ? &f->work[r] : &f->shape[r];
    if (key_none(*k))
        *k = asked ? key_work(&f->g->node[r]) : key_type(&f->g->node[r].type);
    return *k;
}

/* The number of the node among those met; operands are met first. */
static Ref meet(Question *q, Ref r)
{
    Fuse *f = q->f;
    const Node *n = &f->g->node[r];
    if (f->mark[r] == f->question)
        return f->map[r];
    f->mark[r] = f->question;
    bool asked = member(q->group, r) || fuse_free(f, r, q->segment);
    for (int i = 0; asked && i < n->nin; i++)
        meet(q, n->in[i]);
    q->key = key_both(q->key, own_key(f, r, asked));
    for (int i = 0; asked && i < n->nin; i++)
        q->key = key_mix(q->key, f->map[n->in[i]]);
    q->key = key_mix(q->key, (uint64_t)n->segment << 32 | n->loop);
    q->key = key_mix(q->key, (uint64_t)(uint32_t)n->layout << 1 | asked);
    return f->map[r] = q->n++;
}

static Key question_key(Fuse *f, const List *group)
{
    Question q = { f, group, f->g->node[group->at[0]].segment, 0, f->mesh };
    f->question++;
    for (uint32_t i = 0; i < group->n; i++)
        meet(&q, group->at[i]);
    for (uint32_t i = 0; i < group->n; i++)
        if (leaves(f, group, group->at[i]))
            q.key = key_mix(q.key, f->map[group->at[i]]);
    return q.key;
}

static Price *price_slot(Price *table, uint32_t cap, Key key)
{
    uint32_t i = (uint32_t)key.a & (cap - 1);
    while (!key_none(table[i].key) && !key_equal(table[i].key, key))
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static void prices_grow(Prices *p)
{
    uint32_t cap = p->cap ? 2 * p->cap : 256;
    Price *table = alloc(p->arena, cap * sizeof *table);
    for (uint32_t i = 0; i < p->cap; i++)
        if (!key_none(p->at[i].key))
            *price_slot(table, cap, p->at[i].key) = p->at[i];
    p->at = table, p->cap = cap;
}

Prices *prices_of(Job *j)
{
    if (!j->prices) {
        j->prices = alloc(j->keep, sizeof *j->prices);
        j->prices->arena = j->keep;
    }
    return j->prices;
}

/* The small graph is made, and the target asked. */
static void price_ask(Fuse *f, const List *group, Price *p)
{
    Arena *a = arena_new();
    Graph g = { .arena = a, .phase = f->g->phase, .mesh = f->g->mesh };
    Small s = { .f = f, .arena = a, .g = &g, .group = group,
                .phase = node_phase(&f->g->node[group->at[0]]) };
    f->question++;
    for (uint32_t i = 0; i < group->n; i++)
        place(&s, group->at[i]);
    for (uint32_t i = 0; i < group->n; i++)
        if (leaves(f, group, group->at[i]))
            graph_out(&g, "", f->map[group->at[i]]);
    p->cost = f->target->cost(&g, s.asked, s.nasked, &p->why);
    arena_free(a);
}

/* Where the price with that key stands, or would. */
static Price *price_find(Prices *all, Key key)
{
    if (2 * (all->n + 1) > all->cap)
        prices_grow(all);
    return price_slot(all->at, all->cap, key);
}

double fuse_cost(Fuse *f, const List *group, const char **why)
{
    Prices *all = f->prices;
    Key key = question_key(f, group);
    Price *p = price_find(all, key);
    if (key_none(p->key)) {
        *p = (Price){ .key = key };
        price_ask(f, group, p);
        all->n++;
    }
    *why = p->why;
    return p->cost;
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

/* What view_chain will read. */
static Key chain_key(Fuse *f, Key k, Ref r, bool views)
{
    const Node *n = &f->g->node[r];
    bool on = views && n->op == OP_move && !fuse_folds(f->g, n);
    k = key_both(k, own_key(f, r, on));
    k = key_mix(k, (uint64_t)n->segment << 32 | n->loop);
    k = key_mix(k, (uint64_t)(uint32_t)n->layout << 1 | on);
    return on ? chain_key(f, k, n->in[0], views) : k;
}

static Key dot_key(Fuse *f, Ref dot, bool views)
{
    const Node *n = &f->g->node[dot];
    Key k = key_both(key_mix(f->mesh, UINT64_MAX), own_key(f, dot, true));
    k = key_mix(k, (uint64_t)n->segment << 32 | n->loop);
    k = key_mix(k, (uint64_t)(uint32_t)n->layout);
    k = chain_key(f, k, n->in[0], views);
    return chain_key(f, k, n->in[1], views);
}

static double dot_ask(Fuse *f, Ref dot, bool views)
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

double fuse_dot_cost(Fuse *f, Ref dot, bool views)
{
    Key key = dot_key(f, dot, views);
    Price *p = price_find(f->prices, key);
    if (key_none(p->key)) {
        *p = (Price){ .key = key, .cost = dot_ask(f, dot, views) };
        f->prices->n++;
    }
    return p->cost;
}

bool fuse_views_pay(Fuse *f, Ref dot)
{
    const Node *n = &f->g->node[dot];
    if (f->g->node[n->in[0]].op != OP_move
        && f->g->node[n->in[1]].op != OP_move)
        return true;
    return fuse_dot_cost(f, dot, true) <= 2 * fuse_dot_cost(f, dot, false);
}
