/* memory.c -- an offset for each buffer, on the order as it stands.
 *
 * A value lives from the step that writes it to the last step that reads it;
 * one that is made anew each turn lives once a turn, in `slots` places when
 * turns overlap.  Values that never live at one moment may share bytes.
 * Placing them is dynamic storage allocation (NP-hard; Buchsbaum et al.,
 * "OPT versus LOAD", STOC 2003): first fit is run in several orders and the
 * lowest peak wins.  The largest sum of live bytes is a lower bound, reported
 * beside the peak.
 *
 * Aliases: a view reads its root's bytes, a `set` value lies in its leaf, a
 * collective works in place when it alone reads its operand. */
#include "passes/pass.h"
#include <stdlib.h>

enum { ALIGN = 64, NHEURISTIC = 3 };

typedef struct Span { uint32_t from, to; } Span;      /* steps, both included */

typedef struct Item {                     /* what is placed in the ARENA */
    Ref node;                             /* or NONE: scratch of a launch */
    uint32_t launch;
    int64_t size, at;                     /* slots included */
    Span *span;                           /* ascending, disjoint */
    uint32_t nspan, cap;
} Item;

typedef struct Mem {
    Graph *g;
    Sched *s;
    Arena *scratch;
    const Job *job;
    uint32_t *uses;
    bool *fixed;                          /* node: no bytes in the ARENA */
    Span *life;                           /* node x turn */
    uint32_t nturn;
    Item *item;
    uint32_t nitem, itemcap;
} Mem;

static int64_t round_up(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t turns_of(const Mem *m, Ref r)
{
    Axes a = type_axes(&m->g->node[r].type);
    return a & mesh_axes(&m->g->mesh, TIME) ? m->nturn : 1;
}

/* ---- whose bytes ---- */

static bool in_place(const Mem *m, Ref r)
{
    const Graph *g = m->g;
    const Node *n = &g->node[r];
    if (n->op != OP_all_reduce
        || (n->attr.axes & mesh_axes(&g->mesh, TIME)))
        return false;
    Ref x = n->in[0];
    return m->uses[x] == 1 && !ops[g->node[x].op].leaf
        && !node_is_view(&g->node[x])
        && g->node[x].layout == n->layout;
}

static Ref root_of(const Mem *m, Ref r)
{
    const Graph *g = m->g;
    for (;;) {
        r = view_root(g, r);
        Ref up = m->s->buf[r].root;
        if (up == r)
            return r;
        r = up;
    }
}

/* A set's value lies in its leaf; through collectives in place, so does what
 * they work on. */
static void find_roots(Mem *m)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++)
        m->s->buf[r].root = node_is_view(&g->node[r]) ? view_root(g, r) : r;
    for (uint32_t i = 0; i < g->nset; i++)
        m->s->buf[g->set[i].value].root = g->set[i].leaf;
    for (Ref r = g->n; r-- > 0;)
        if (in_place(m, r) && m->s->buf[g->node[r].in[0]].root
            == g->node[r].in[0])
            m->s->buf[g->node[r].in[0]].root = r;
    for (Ref r = 0; r < g->n; r++)
        m->s->buf[r].root = root_of(m, r);
}

/* ---- how long ---- */

static void live_at(Mem *m, Ref r, uint32_t turn, uint32_t step)
{
    Ref root = m->s->buf[r].root;
    if (turns_of(m, root) == 1)
        turn = 0;
    Span *p = &m->life[root * m->nturn + turn];
    if (p->from > p->to)
        *p = (Span){ step, step };
    p->from = step < p->from ? step : p->from;
    p->to = step > p->to ? step : p->to;
}

/* A reader outside the value's time axes reads what all turns have left; one
 * inside reads its own turn's. */
static void read_at(Mem *m, Ref r, const Step *q, uint32_t step)
{
    uint32_t n = turns_of(m, m->s->buf[r].root);
    bool loops = m->g->node[m->s->launch[q->launch].node[0]].loop != 0;
    if (n > 1 && !loops)
        for (uint32_t t = 0; t < n; t++)
            live_at(m, r, t, step);
    else
        live_at(m, r, (uint32_t)q->turn, step);
}

static int max_operands(const Launch *l)
{
    return 8 + 8 * l->n;
}

static void lives(Mem *m)
{
    Graph *g = m->g;
    for (uint32_t i = 0; i < g->n * m->nturn; i++)
        m->life[i] = (Span){ UINT32_MAX, 0 };
    for (uint32_t k = 0; k < m->s->nstep; k++) {
        const Step *q = &m->s->step[k];
        const Launch *l = &m->s->launch[q->launch];
        int max = max_operands(l);
        Ref *x = alloc(m->scratch, (size_t)max * sizeof *x);
        int n = launch_inputs(g, l, x, max);
        for (int i = 0; i < n; i++)
            read_at(m, x[i], q, k);
        n = launch_outputs(g, l, m->uses, x, max);
        for (int i = 0; i < n; i++) {
            m->s->buf[x[i]].used = true;
            live_at(m, x[i], (uint32_t)q->turn, k);
        }
    }
}

/* ---- which space ---- */

static void set_buf(Mem *m, Ref r, Space space, int slots)
{
    Buf *b = &m->s->buf[r];
    Graph *g = m->g;
    b->used = true;
    b->space = space;
    b->slots = slots;
    b->size = type_bytes(&g->mesh, &g->node[r].type);
    if (g->node[r].op == OP_pack && m->job->target
        && m->job->target->pack_bytes)
        b->size = m->job->target->pack_bytes(g, r);
    b->stride = round_up(b->size);
    b->at = -1;
}

static void place_io(Mem *m, Ref r)
{
    set_buf(m, r, IO, (int)turns_of(m, r));
    Buf *b = &m->s->buf[r];
    b->at = m->s->bytes[IO];
    m->s->bytes[IO] += b->stride * b->slots;
    m->fixed[r] = true;
}

static void fixed_places(Mem *m)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++) {
        Op op = g->node[r].op;
        if (op == OP_input || op == OP_scalar)
            place_io(m, r);
        if (op != OP_param && op != OP_state)
            continue;
        set_buf(m, r, LEAVES, 1);
        m->fixed[r] = true;
    }
    for (uint32_t i = 0; i < g->nout; i++) {
        Ref root = m->s->buf[g->out[i].ref].root;
        if (!m->fixed[root])
            place_io(m, root);
    }
}

/* Fewest slots so that turn t + slots begins after turn t has ended. */
static int slots_of(const Mem *m, Ref r)
{
    uint32_t n = turns_of(m, r);
    const Span *p = &m->life[r * m->nturn];
    for (uint32_t slots = 1; slots < n; slots++) {
        bool fits = true;
        for (uint32_t t = 0; t + slots < n && fits; t++)
            fits = p[t].from > p[t].to || p[t + slots].from > p[t].to;
        if (fits)
            return (int)slots;
    }
    return (int)n;
}

/* ---- items ---- */

static Item *item_new(Mem *m, Ref r, uint32_t launch, int64_t size)
{
    GROW(m->scratch, m->item, m->nitem, m->itemcap);
    Item *it = &m->item[m->nitem++];
    *it = (Item){ .node = r, .launch = launch, .size = size, .at = -1 };
    return it;
}

static int span_order(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static void span_add(Mem *m, Item *it, Span p)
{
    if (p.from > p.to)
        return;
    GROW(m->scratch, it->span, it->nspan, it->cap);
    it->span[it->nspan++] = p;
}

static void span_merge(Item *it)
{
    uint32_t n = 0;
    if (it->nspan > 1)
        qsort(it->span, it->nspan, sizeof *it->span, span_order);
    for (uint32_t i = 0; i < it->nspan; i++)
        if (n && it->span[i].from <= it->span[n - 1].to + 1) {
            if (it->span[i].to > it->span[n - 1].to)
                it->span[n - 1].to = it->span[i].to;
        } else {
            it->span[n++] = it->span[i];
        }
    it->nspan = n;
}

static void value_items(Mem *m)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++) {
        Buf *b = &m->s->buf[r];
        if (!b->used || b->root != r || m->fixed[r])
            continue;
        int slots = slots_of(m, r);
        set_buf(m, r, ARENA, slots);
        Item *it = item_new(m, r, 0, b->stride * slots);
        for (uint32_t t = 0; t < turns_of(m, r); t++)
            span_add(m, it, m->life[r * m->nturn + t]);
        span_merge(it);
    }
}

static void scratch_items(Mem *m)
{
    const Target *t = m->job->target;
    uint32_t *index = alloc(m->scratch, (m->s->nlaunch + 1) * sizeof *index);
    for (uint32_t l = 0; t && t->scratch && l < m->s->nlaunch; l++) {
        Launch *q = &m->s->launch[l];
        q->scratch = t->scratch(m->g, q->node, q->n);
        if (q->scratch <= 0)
            continue;
        item_new(m, NONE, l, round_up(q->scratch));
        index[l] = m->nitem;
    }
    for (uint32_t k = 0; k < m->s->nstep; k++)
        if (index[m->s->step[k].launch])
            span_add(m, &m->item[index[m->s->step[k].launch] - 1],
                     (Span){ k, k });
    for (uint32_t l = 0; l < m->s->nlaunch; l++)
        if (index[l])
            span_merge(&m->item[index[l] - 1]);
}

static bool overlap(const Item *a, const Item *b)
{
    uint32_t i = 0, k = 0;
    while (i < a->nspan && k < b->nspan) {
        const Span *p = &a->span[i], *q = &b->span[k];
        if (p->to < q->from)
            i++;
        else if (q->to < p->from)
            k++;
        else
            return true;
    }
    return false;
}

/* ---- first fit, in several orders ---- */

static int heuristic;                     /* of the running qsort */

static int64_t weight(const Item *it)
{
    int64_t length = it->nspan ? it->span[it->nspan - 1].to - it->span[0].from
        + 1 : 0;
    return heuristic == 0 ? it->size : heuristic == 1 ? length
         : it->size / 64 * length;
}

static int heavier(const void *a, const void *b)
{
    const Item *x = *(Item *const *)a, *y = *(Item *const *)b;
    int64_t wx = weight(x), wy = weight(y);
    if (wx != wy)
        return (wx < wy) - (wx > wy);
    if (x->size != y->size)
        return (x->size < y->size) - (x->size > y->size);
    return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
         : (x->launch > y->launch) - (x->launch < y->launch);
}

static int lower_at(const void *a, const void *b)
{
    const Item *x = *(Item *const *)a, *y = *(Item *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Lowest place where `it` meets none of the items placed before it. */
static int64_t first_fit(const Item *it, Item **placed, uint32_t n, Item **hit)
{
    uint32_t k = 0;
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        if (overlap(it, placed[i]))
            hit[k++] = placed[i];
    qsort(hit, k, sizeof *hit, lower_at);
    for (uint32_t i = 0; i < k; i++) {
        if (hit[i]->at - at >= it->size)
            break;
        if (hit[i]->at + hit[i]->size > at)
            at = hit[i]->at + hit[i]->size;
    }
    return at;
}

static int64_t place_all(Mem *m, int how, int64_t *at)
{
    Item **list = alloc(m->scratch, (m->nitem + 1) * sizeof *list);
    Item **hit = alloc(m->scratch, (m->nitem + 1) * sizeof *hit);
    int64_t peak = 0;
    for (uint32_t i = 0; i < m->nitem; i++)
        list[i] = &m->item[i];
    heuristic = how;
    qsort(list, m->nitem, sizeof *list, heavier);
    for (uint32_t i = 0; i < m->nitem; i++) {
        list[i]->at = first_fit(list[i], list, i, hit);
        if (list[i]->at + list[i]->size > peak)
            peak = list[i]->at + list[i]->size;
    }
    for (uint32_t i = 0; i < m->nitem; i++)
        at[i] = m->item[i].at;
    return peak;
}

static void lower_bound(Mem *m)
{
    int64_t *delta = alloc(m->scratch, (m->s->nstep + 2) * sizeof *delta);
    int64_t sum = 0;
    for (uint32_t i = 0; i < m->nitem; i++)
        for (uint32_t k = 0; k < m->item[i].nspan; k++) {
            delta[m->item[i].span[k].from] += m->item[i].size;
            delta[m->item[i].span[k].to + 1] -= m->item[i].size;
        }
    for (uint32_t k = 0; k < m->s->nstep; k++) {
        sum += delta[k];
        if (sum > m->s->lower)
            m->s->lower = sum, m->s->peak = k;
    }
}

static void place_arena(Mem *m)
{
    int64_t *best = NULL;
    lower_bound(m);
    for (int how = 0; how < NHEURISTIC; how++) {
        int64_t *at = alloc(m->scratch, (m->nitem + 1) * sizeof *at);
        int64_t peak = place_all(m, how, at);
        if (!best || peak < m->s->bytes[ARENA])
            best = at, m->s->bytes[ARENA] = peak;
        if (peak == m->s->lower)
            break;
    }
    for (uint32_t i = 0; i < m->nitem; i++)
        if (m->item[i].node == NONE)
            m->s->launch[m->item[i].launch].scratch_at = best[i];
        else
            m->s->buf[m->item[i].node].at = best[i];
}

/* What lies in another's bytes says so itself, for those who read one row. */
static void copy_places(Mem *m)
{
    for (Ref r = 0; r < m->g->n; r++) {
        Buf *b = &m->s->buf[r], *root = &m->s->buf[b->root];
        const Span *p = &m->life[b->root * m->nturn];
        for (uint32_t t = 0; t < turns_of(m, b->root); t++) {
            if (p[t].from > p[t].to)
                continue;
            if (!t || p[t].from < b->born)
                b->born = p[t].from;
            b->dies = p[t].to > b->dies ? p[t].to : b->dies;
        }
        if (b->root == r || !root->used)
            continue;
        Ref keep = b->root;
        uint32_t born = b->born, dies = b->dies;
        bool used = b->used;
        *b = *root;
        b->root = keep, b->used = used, b->born = born, b->dies = dies;
    }
}

Graph *pass_memory(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        copy_node(&c, r);
    Graph *g = copy_end(&c);
    Mem m = { .g = g, .scratch = j->scratch, .job = j };
    g->sched = m.s = alloc(j->keep, sizeof *m.s);
    *m.s = *in->sched;
    m.s->buf = alloc(j->keep, (g->n + 1) * sizeof *m.s->buf);
    m.uses = graph_uses(g, j->scratch);
    m.nturn = (uint32_t)mesh_size(&g->mesh, mesh_axes(&g->mesh, TIME));
    m.fixed = alloc(j->scratch, (g->n + 1) * sizeof *m.fixed);
    m.life = alloc(j->scratch, (g->n + 1) * m.nturn * sizeof *m.life);
    find_roots(&m);
    lives(&m);
    fixed_places(&m);
    value_items(&m);
    scratch_items(&m);
    place_arena(&m);
    copy_places(&m);
    return g;
}
