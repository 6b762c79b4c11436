/* recompute_graph.c -- a graph's question, and its answer as clones.
 *
 * `fuse` is asked which values would lie in memory and which launches read
 * them; launches come in the order of the graph, as `order` would have them.
 * Of what forward stores each value is a choice: a clone of it is what its
 * launch made it of, down to other values that lie in memory.  What kernels
 * of backward compute for themselves from larger values (fuse_again.c) needs
 * a clone only when those are gone. */
#include "passes/recompute_graph.h"
#include "passes/clock.h"
#include <stdlib.h>

enum { PARTS = 4096 };                    /* of all that forward stores: what
                                             is smaller always waits */

static const Node *at(const Asked *a, Ref r)
{
    return &a->f->g->node[r];
}

static bool is_leaf(const Asked *a, Ref r)
{
    return ops[at(a, r)->op].leaf && a->f->kind[r] == OWN;
}

/* ---- launches ---- */

static uint32_t unit_of(const Asked *a, Ref r)
{
    Fuse *f = a->f;
    if ((f->kind[r] != OWN && f->kind[r] != PLAIN) || is_leaf(a, r))
        return NONE;
    return f->call[r] != NONE ? f->call[r]
         : f->kind[r] == PLAIN ? (uint32_t)fuse_group(f, r) : r;
}

static void find_units(Asked *a)
{
    const Graph *g = a->f->g;
    for (Ref r = 0; r < g->n; r++) {
        uint32_t u = a->unit[r] = unit_of(a, r);
        if (u != NONE)
            list_add(a->f->arena, &a->member[u], r);
    }
    for (Ref r = 0; r < g->n; r++) {
        const List *to = &a->f->to[r];
        a->stored[r] = a->unit[r] != NONE && a->f->kept[r];
        for (uint32_t i = 0; a->unit[r] != NONE && i < to->n; i++)
            a->stored[r] |= a->unit[to->at[i]] != a->unit[r];
    }
}

/* What is made once a step is made before its first reader. */
static void place_unit(Asked *a, uint32_t u, bool *done)
{
    if (done[u])
        return;
    done[u] = true;
    for (uint32_t i = 0; i < a->member[u].n; i++) {
        const List *from = &a->f->from[a->member[u].at[i]];
        for (uint32_t k = 0; k < from->n; k++)
            if (a->unit[from->at[k]] != NONE)
                place_unit(a, a->unit[from->at[k]], done);
    }
    a->moment[u] = a->q.nmoment;
    a->order[a->q.nmoment++] = u;
}

static void place_units(Asked *a)
{
    const Graph *g = a->f->g;
    bool *done = alloc(a->f->arena, g->n + 1);
    for (Ref r = 0; r < g->n; r++) {
        uint32_t u = a->unit[r];
        if (u != NONE && r == a->member[u].at[a->member[u].n - 1]
            && at(a, r)->segment != BEGIN)
            place_unit(a, u, done);
    }
    for (Ref r = 0; r < g->n; r++)
        if (a->unit[r] != NONE)
            place_unit(a, a->unit[r], done);
}

/* ---- values, and what they are made of ---- */

static bool can_repeat(const Asked *a, Ref r)
{
    const Node *n = at(a, r);
    const Mesh *m = &a->f->g->mesh;
    if (ops[n->op].family != FAMILY_collective)
        return ops[n->op].family != FAMILY_hop;
    return n->segment != BEGIN && !(n->attr.axes & mesh_axes(m, TIME))
        && op_collects(n->op);
}

/* With turns, what is made once a step would be made again in each. */
static bool is_value(const Asked *a, Ref r)
{
    const Node *n = at(a, r);
    const Mesh *m = &a->f->g->mesh;
    bool once = n->segment == BEGIN
        && mesh_size(m, mesh_axes(m, TIME)) == 1;
    return a->stored[r] && !a->f->kept[r] && (once || n->segment == FORWARD)
        && type_bytes(m, &n->type) >= a->least;
}

typedef struct Cone { Value *value; List node; uint32_t cap; } Cone;

static void add_input(const Asked *a, Cone *c, uint32_t v)
{
    Value *x = c->value;
    for (uint32_t i = 0; i < x->nin; i++)
        if (x->in[i] == v)
            return;
    GROW(a->f->arena, x->in, x->nin, c->cap);
    x->in[x->nin++] = v;
}

/* Adds r, which is computed where the value is, and what it reads. */
static void widen(Asked *a, Cone *c, Ref r)
{
    const Node *n = at(a, r);
    bool alone = a->f->kind[r] == OWN;
    if (a->seen[r] == a->stamp)
        return;
    a->seen[r] = a->stamp;
    c->value->waits |= !can_repeat(a, r);
    for (int i = 0; i < n->nin; i++) {
        Ref x = n->in[i];
        bool free = fuse_free(a->f, x, alone ? SEG_NONE : BACKWARD);
        if (op_unread(n->op, i) || is_leaf(a, x))
            continue;
        if (a->value[x] && !free)
            add_input(a, c, a->value[x] - 1);
        else if (!a->stored[x] || free)
            widen(a, c, x);
    }
    list_add(a->f->arena, &c->node, r);
}

static int ascending(const void *p, const void *q)
{
    Ref x = *(const Ref *)p, y = *(const Ref *)q;
    return (x > y) - (x < y);
}

static void find_values(Asked *a)
{
    const Graph *g = a->f->g;
    for (Ref r = 0; r < g->n; r++)
        if (a->stored[r] && at(a, r)->segment == FORWARD)
            a->least += type_bytes(&g->mesh, &at(a, r)->type);
    a->least /= PARTS;
    for (Ref r = 0; r < g->n; r++)
        if (is_value(a, r))
            a->value[r] = ++a->q.n;
    a->q.value = alloc(a->f->arena, (a->q.n + 1) * sizeof *a->q.value);
    for (Ref r = 0; r < g->n; r++) {
        if (!a->value[r])
            continue;
        Value *x = &a->q.value[a->value[r] - 1];
        *x = (Value){ .node = r,
                      .bytes = type_bytes(&g->mesh, &at(a, r)->type) };
        Cone c = { .value = x };
        a->stamp++;
        widen(a, &c, r);
        qsort(c.node.at, c.node.n, sizeof *c.node.at, ascending);
        Launch l = { .n = (int)c.node.n, .node = c.node.at };
        x->cost = launch_seconds(g, &l, a->job);
    }
}

/* ---- moments ---- */

static void put_once(const Asked *a, uint32_t **list, uint32_t *n,
                     uint32_t *cap, uint32_t v)
{
    for (uint32_t i = 0; i < *n; i++)
        if ((*list)[i] == v)
            return;
    GROW(a->f->arena, *list, *n, *cap);
    (*list)[(*n)++] = v;
}

static void fill_moment(Asked *a, uint32_t k)
{
    const List *nodes = &a->member[a->order[k]];
    Moment *m = &a->q.moment[k];
    uint32_t made = 0, read = 0;
    for (uint32_t i = 0; i < nodes->n; i++) {
        Ref r = nodes->at[i];
        const List *from = &a->f->from[r];
        m->late |= at(a, r)->segment >= BACKWARD;
        if (a->value[r])
            put_once(a, &m->made, &m->nmade, &made, a->value[r] - 1);
        for (uint32_t e = 0; e < from->n; e++)
            if (a->value[from->at[e]] && a->unit[from->at[e]] != a->unit[r])
                put_once(a, &m->read, &m->nread, &read,
                         a->value[from->at[e]] - 1);
    }
}

/* Bytes of what nobody chooses, while it lives. */
static void add_others(Asked *a, Ref r)
{
    const Graph *g = a->f->g;
    const List *to = &a->f->to[r];
    uint32_t from = a->moment[a->unit[r]], last = from;
    int64_t bytes = type_bytes(&g->mesh, &at(a, r)->type);
    for (uint32_t i = 0; i < to->n; i++)
        if (a->unit[to->at[i]] != NONE && a->moment[a->unit[to->at[i]]] > last)
            last = a->moment[a->unit[to->at[i]]];
    for (uint32_t k = from; k <= last; k++) {
        a->q.moment[k].other += bytes;
        a->q.moment[k].before += k > from ? bytes : 0;
    }
}

/* ---- scratch ---- */

typedef struct Known { Key key; int64_t bytes; } Known;
typedef struct Memo { Known *at; uint32_t n, cap; } Memo;

static Key key_call(const Graph *g, Ref r, Ref end)
{
    Key k = key_both(key_work(&g->node[r]), key_type(&g->node[end].type));
    for (int i = 0; i < g->node[r].nin; i++) {
        const Node *x = &g->node[g->node[r].in[i]];
        k = key_mix(key_both(k, key_type(&x->type)), (uint64_t)x->layout);
    }
    return key_mix(k, (uint64_t)g->node[r].layout);
}

/* What a library wants beside a product's operands; like ones are asked
 * once. */
static int64_t scratch_of(const Asked *a, const List *call, Memo *memo)
{
    const Graph *g = a->f->g;
    Ref r = call->at[0];
    if (!a->f->target->scratch || a->f->kind[r] != OWN
        || (g->node[r].op != OP_dot
            && ops[g->node[r].op].family != FAMILY_conv))
        return 0;
    Key key = key_call(g, r, call->at[call->n - 1]);
    for (uint32_t i = 0; i < memo->n; i++)
        if (key_equal(memo->at[i].key, key))
            return memo->at[i].bytes;
    int64_t bytes = a->f->target->scratch(g, call->at, (int)call->n, NULL);
    GROW(a->f->arena, memo->at, memo->n, memo->cap);
    memo->at[memo->n++] = (Known){ key, bytes > 0 ? bytes : 0 };
    return memo->at[memo->n - 1].bytes;
}

static void find_moments(Asked *a)
{
    const Graph *g = a->f->g;
    Memo memo = { 0 };
    a->q.moment = alloc(a->f->arena, (a->q.nmoment + 1)
                        * sizeof *a->q.moment);
    for (uint32_t k = 0; k < a->q.nmoment; k++)
        fill_moment(a, k);
    for (uint32_t k = 0; k < a->q.nmoment; k++)
        a->q.moment[k].other += scratch_of(a, &a->member[a->order[k]], &memo);
    for (Ref r = 0; r < g->n; r++)
        if (a->stored[r] && !a->value[r] && !a->f->kept[r])
            add_others(a, r);
}

/* ---- twins ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

enum { ROUNDS = 3 };

/* Values alike: of one size and cost, made of and read with such that are
 * alike, some steps far (the colours of Weisfeiler and Leman, 1968). */
static uint64_t *colours(const Asked *a)
{
    const Question *q = &a->q;
    uint64_t *now = alloc(a->f->arena, (q->n + 1) * sizeof *now);
    uint64_t *then = alloc(a->f->arena, (q->n + 1) * sizeof *then);
    for (uint32_t v = 0; v < q->n; v++) {
        uint64_t cost;
        memcpy(&cost, &q->value[v].cost, sizeof cost);
        now[v] = mix(mix(cost, (uint64_t)q->value[v].bytes),
                     (uint64_t)at(a, q->value[v].node)->op);
    }
    for (int i = 0; i < ROUNDS; i++) {
        memcpy(then, now, q->n * sizeof *now);
        for (uint32_t v = 0; v < q->n; v++)
            for (uint32_t k = 0; k < q->value[v].nin; k++) {
                uint32_t x = q->value[v].in[k];
                then[v] = mix(then[v], now[x]);
                then[x] += mix(now[v], k);
            }
        uint64_t *was = now;
        now = then, then = was;
    }
    return now;
}

typedef struct Coloured { uint64_t colour; uint32_t value; } Coloured;

static int by_colour(const void *p, const void *q)
{
    const Coloured *x = p, *y = q;
    if (x->colour != y->colour)
        return (x->colour > y->colour) - (x->colour < y->colour);
    return (x->value > y->value) - (x->value < y->value);
}

static void find_twins(Asked *a)
{
    const uint64_t *colour = colours(a);
    Coloured *c = alloc(a->f->arena, (a->q.n + 1) * sizeof *c);
    uint32_t twin = 0;
    for (uint32_t v = 0; v < a->q.n; v++)
        c[v] = (Coloured){ colour[v], v };
    qsort(c, a->q.n, sizeof *c, by_colour);
    for (uint32_t i = 0; i < a->q.n; i++) {
        twin += i && c[i].colour != c[i - 1].colour;
        a->q.value[c[i].value].twin = twin;
    }
}

Asked *recompute_ask(const Graph *g, Job *j)
{
    Asked *a = alloc(j->scratch, sizeof *a);
    size_t n = g->n + 1;
    a->job = j;
    a->f = fuse_run(g, j);
    a->q.arena = a->f->arena;
    a->unit = alloc(j->scratch, n * sizeof *a->unit);
    a->member = alloc(j->scratch, n * sizeof *a->member);
    a->stored = alloc(j->scratch, n);
    a->moment = alloc(j->scratch, n * sizeof *a->moment);
    a->order = alloc(j->scratch, n * sizeof *a->order);
    a->value = alloc(j->scratch, n * sizeof *a->value);
    a->seen = alloc(j->scratch, n * sizeof *a->seen);
    find_units(a);
    place_units(a);
    find_values(a);
    find_moments(a);
    find_twins(a);
    return a;
}

/* ---- clones ---- */

typedef struct Again {
    const Asked *a;
    const bool *keep;
    Copy c;
    int moment;                           /* of what is made now */
    Ref *clone;                           /* by node; NONE */
    bool *same;                           /* nothing that it reads is gone */
} Again;

static Ref late_form(Again *w, Ref r, bool alone);

static Ref clone_made(Again *w, Ref r, const Ref *x)
{
    const Node *n = at(w->a, r);
    w->clone[r] = copy_again(&w->c, r, x, n->nin, BACKWARD);
    w->c.out->node[w->clone[r]].moment = w->moment;
    return w->clone[r];
}

/* Where backward reads r: a launch of its own, or a kernel. */
static Ref late_form(Again *w, Ref r, bool alone)
{
    const Asked *a = w->a;
    const Node *n = at(a, r);
    bool free = fuse_free(a->f, r, alone ? SEG_NONE : BACKWARD);
    bool gone = a->value[r] && !w->keep[a->value[r] - 1]
        && !a->q.value[a->value[r] - 1].waits;
    if (is_leaf(a, r) || n->segment >= BACKWARD
        || (!free && a->stored[r] && !gone) || (free && w->same[r]))
        return w->c.map[r];
    if (w->clone[r] != NONE)
        return w->clone[r];
    bool same = true;
    Ref *x = alloc(a->f->arena, (size_t)(n->nin + 1) * sizeof *x);
    for (int i = 0; i < n->nin; i++) {
        x[i] = op_unread(n->op, i) ? w->c.map[n->in[i]]
             : late_form(w, n->in[i], a->f->kind[r] == OWN);
        same &= x[i] == w->c.map[n->in[i]];
    }
    if (free && same) {
        w->same[r] = true;
        return w->c.map[r];
    }
    return clone_made(w, r, x);
}

Graph *recompute_clone(const Asked *a, const Graph *in, const bool *keep)
{
    Again w = { .a = a, .keep = keep, .c = copy_begin(in, a->job) };
    w.clone = alloc(a->f->arena, (in->n + 1) * sizeof *w.clone);
    w.same = alloc(a->f->arena, in->n + 1);
    for (Ref r = 0; r < in->n; r++)
        w.clone[r] = NONE;
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref *x = alloc(a->f->arena, (size_t)(n->nin + 1) * sizeof *x);
        w.moment = 1 + (a->unit[r] == NONE ? 0 : (int)a->moment[a->unit[r]]);
        for (int i = 0; i < n->nin; i++)
            x[i] = n->segment >= BACKWARD && !op_unread(n->op, i)
                ? late_form(&w, n->in[i], a->f->kind[r] == OWN)
                : w.c.map[n->in[i]];
        copy_node_in(&w.c, r, x, n->nin);
    }
    return graph_dce(copy_end(&w.c), a->job);
}
