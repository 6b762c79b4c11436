/* fuse_cost.c -- a group as a graph of its own, to ask its cost.
 *
 * Values from outside are inputs of the same type and memory order; what is
 * read outside is returned.  The target then sees some twenty nodes.  Groups of
 * repeated blocks make equal graphs, and the target is asked about one. */
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
static bool leaves(const Small *s, Ref r)
{
    const List *to = &s->f->to[r];
    for (uint32_t i = 0; i < to->n; i++)
        if (!member(s->group, to->at[i]))
            return true;
    return s->f->kept[r] || !to->n;
}

/* ---- prices ---- */

static void mix(uint64_t h[2], uint64_t v)
{
    h[0] = (h[0] ^ v) * 0x9e3779b97f4a7c15u;
    h[0] ^= h[0] >> 29;
    h[1] = (h[1] + v) * 0xff51afd7ed558ccdu;
    h[1] ^= h[1] >> 32;
}

static void mix_attr(uint64_t h[2], const Attr *a)
{
    uint64_t value;
    memcpy(&value, &a->value, sizeof value);
    mix(h, value);
    for (const char *s = a->sig ? a->sig : ""; *s; s++)
        mix(h, (uint8_t)*s);
    for (int i = 0; i < a->nletter; i++) {
        mix(h, (uint8_t)a->letter[i].c);
        mix(h, (uint64_t)a->letter[i].size);
        mix(h, a->letter[i].split);
    }
    const int64_t rest[] = { a->nletter, a->ndata, a->at, a->size, a->dim,
                             a->to, a->stride, a->pad, a->dilate, a->use,
                             a->dtype, a->axes };
    for (int i = 0; i < COUNT(rest); i++)
        mix(h, (uint64_t)rest[i]);
}

static void mix_node(uint64_t h[2], const Node *n)
{
    const Type *t = &n->type;
    mix(h, (uint64_t)n->op << 32 | (uint32_t)n->nin);
    for (int i = 0; i < n->nin; i++)
        mix(h, n->in[i]);
    mix(h, (uint64_t)t->dtype << 32 | (uint32_t)t->ndim);
    for (int d = 0; d < t->ndim; d++) {
        mix(h, (uint64_t)t->dim[d]);
        mix(h, t->split[d]);
        mix(h, (uint64_t)t->lo[d] << 8 | t->hi[d]);
    }
    mix(h, (uint64_t)t->partial << 32 | t->fold);
    mix(h, (uint64_t)n->segment << 32 | n->loop);
    mix(h, (uint64_t)(uint32_t)n->layout << 32 | (uint32_t)n->kernel);
    mix_attr(h, &n->attr);
}

static void price_key(const Small *s, uint64_t h[2])
{
    h[0] = s->g->n, h[1] = 1;
    for (Ref r = 0; r < s->g->n; r++)
        mix_node(h, &s->g->node[r]);
    for (uint32_t i = 0; i < s->g->nout; i++)
        mix(h, s->g->out[i].ref);
    for (int i = 0; i < s->nasked; i++)
        mix(h, s->asked[i]);
}

static Price *price_slot(Price *table, uint32_t cap, const uint64_t key[2])
{
    uint32_t i = (uint32_t)key[0] & (cap - 1);
    while ((table[i].key[0] || table[i].key[1])
           && (table[i].key[0] != key[0] || table[i].key[1] != key[1]))
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static void prices_grow(Fuse *f)
{
    uint32_t cap = f->pricecap ? 2 * f->pricecap : 256;
    Price *table = alloc(f->arena, cap * sizeof *table);
    for (uint32_t i = 0; i < f->pricecap; i++)
        if (f->price[i].key[0] || f->price[i].key[1])
            *price_slot(table, cap, f->price[i].key) = f->price[i];
    f->price = table, f->pricecap = cap;
}

static double price(const Small *s, const char **why)
{
    Fuse *f = s->f;
    uint64_t key[2];
    price_key(s, key);
    Price *p = price_slot(f->price, f->pricecap, key);
    if (!p->key[0] && !p->key[1]) {
        *p = (Price){ .key = { key[0], key[1] } };
        p->cost = f->target->cost(s->g, s->asked, s->nasked, &p->why);
        f->nprice++;
    }
    *why = p->why;
    return p->cost;
}

double fuse_cost(Fuse *f, const List *group, const char **why)
{
    if (2 * (f->nprice + 1) > f->pricecap)
        prices_grow(f);
    Arena *a = f->arena;
    ArenaMark m = arena_mark(a);
    Graph g = { .arena = a, .phase = f->g->phase, .mesh = f->g->mesh };
    Small s = { .f = f, .arena = a, .g = &g, .group = group,
                .phase = node_phase(&f->g->node[group->at[0]]) };
    f->question++;
    for (uint32_t i = 0; i < group->n; i++)
        place(&s, group->at[i]);
    for (uint32_t i = 0; i < group->n; i++)
        if (leaves(&s, group->at[i]))
            graph_out(&g, "", f->map[group->at[i]]);
    double cost = price(&s, why);
    arena_rewind(a, m);
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
