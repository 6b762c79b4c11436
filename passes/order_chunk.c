/* order_chunk.c -- the list of a pipeline's role.
 *
 * The chunks of all roles stand on one line (Graph.chunk).  A launch of a
 * chunk has its place there; what is made once a step, or for every stage,
 * comes right before its first reader, and what all turns leave right behind
 * the last.  A transfer comes behind the chunk that makes its value, or, if it
 * is late, before the chunk that precedes its reader's on that role: so what
 * skips stages waits where it is kept anyway.
 *
 * No two transfers wait for each other in a circle.  Both ends find the same
 * place on the line, and here each transfer waits for the one before it: a
 * role's list is one in which all transfers come in the line's order.  Take
 * the first transfer on the line that never happens; at either end all that
 * its list puts before it waits only for what is before it, so it happens. */
#include "passes/order.h"
#include <stdlib.h>

enum { ROOM = 4 };                        /* places of a chunk on the line */

typedef struct Line {
    const Order *o;
    const Graph *g;
    int nturn;
    int *chunk;                           /* by segment, stage, turn; -1 */
    int64_t end;                          /* behind all chunks */
    int64_t *pos;                         /* by instance */
} Line;

static int *chunk_slot(const Line *l, Segment s, int stage, int turn)
{
    return &l->chunk[((int)(s - FORWARD) * l->g->nstage + stage) * l->nturn
                     + turn];
}

static void number_chunks(Line *l)
{
    const Graph *g = l->g;
    size_t n = (size_t)(3 * g->nstage) * (size_t)l->nturn;
    l->chunk = alloc(l->o->scratch, (n + 1) * sizeof *l->chunk);
    for (size_t i = 0; i < n; i++)
        l->chunk[i] = -1;
    for (uint32_t i = 0; i < g->nchunk; i++)
        if (g->chunk[i].turn < l->nturn)
            *chunk_slot(l, g->chunk[i].segment, g->chunk[i].stage,
                        g->chunk[i].turn) = (int)i;
}

/* The chunk of a segment of a stage at a turn, the last of those that differ
 * in time axes which are not in `loop`; -1: there is none. */
static int chunk_of(const Line *l, Segment s, int stage, Axes loop, int turn)
{
    int last = -1;
    if (s < FORWARD || s > WEIGHT || stage < 0 || stage >= l->g->nstage)
        return -1;
    for (int t = 0; t < l->nturn; t++) {
        bool same = turn_instance(&l->g->mesh, loop, t)
            == turn_instance(&l->g->mesh, loop, turn);
        int c = *chunk_slot(l, s, stage, t);
        if (c < 0 && s == WEIGHT)         /* not split off */
            c = *chunk_slot(l, BACKWARD, stage, t);
        last = same && c > last ? c : last;
    }
    return last;
}

/* The chunk before c on the role that c belongs to; -1. */
static int chunk_before(const Line *l, int c)
{
    const Graph *g = l->g;
    int role = g->role_of[g->chunk[c].stage];
    while (--c >= 0 && g->role_of[g->chunk[c].stage] != role)
        ;
    return c;
}

static bool is_transfer(const Node *n)
{
    return n->op == OP_send || n->op == OP_recv;
}

Ref *transfers_before(const Graph *g, Arena *a)
{
    Ref *before = alloc(a, (g->n + 1) * sizeof *before), last[2];
    last[0] = last[1] = NONE;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool early = n->segment <= BEGIN;
        before[r] = NONE;
        if (!is_transfer(n) || !(n->attr.at || early))
            continue;
        before[r] = last[early];
        last[early] = r;
    }
    return before;
}

static int64_t transfer_place(const Line *l, const Node *n, int turn)
{
    const Attr *a = &n->attr;
    int made = chunk_of(l, n->segment, a->from, n->loop, turn);
    if (n->segment <= BEGIN)
        return -1;
    if (a->at || made < 0)
        return ROOM * (a->at - 1) + 2;
    int64_t at = ROOM * (int64_t)made + 2;
    int read = a->late ? chunk_of(l, FORWARD, a->to, n->loop, turn) : -1;
    int before = read < 0 ? -1 : chunk_before(l, read);
    int64_t late = ROOM * (int64_t)before - 1;
    return before >= 0 && late > at ? late : at;
}

static const Node *node_of(const Line *l, uint32_t inst)
{
    const Launch *q = &l->o->s->launch[l->o->inst[inst].launch];
    return &l->g->node[q->node[0]];
}

/* ---- transfers, one behind the other ---- */

typedef struct At { int64_t pos, id, turn; uint32_t inst; } At;

static int along(const void *a, const void *b)
{
    const At *x = a, *y = b;
    return x->pos != y->pos ? (x->pos > y->pos) - (x->pos < y->pos)
         : x->id != y->id ? (x->id > y->id) - (x->id < y->id)
         : x->turn != y->turn ? (x->turn > y->turn) - (x->turn < y->turn)
         : (x->inst > y->inst) - (x->inst < y->inst);
}

static void chain_transfers(Line *l, Order *o)
{
    At *at = alloc(o->scratch, (o->n + 1) * sizeof *at);
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        const Node *x = node_of(l, i);
        if (is_transfer(x))
            at[n++] = (At){ l->pos[i], x->attr.id, o->inst[i].turn, i };
    }
    qsort(at, n, sizeof *at, along);
    for (uint32_t k = 1; k < n; k++)
        order_edge(o, at[k - 1].inst, at[k].inst);
}

/* ---- everything else ---- */

/* Has it a place of its own? */
static bool placed(Line *l, uint32_t i)
{
    const Node *n = node_of(l, i);
    int turn = l->o->inst[i].turn, c;
    if (is_transfer(n)) {
        l->pos[i] = transfer_place(l, n, turn);
        return true;
    }
    c = n->loop || l->nturn == 1
        ? chunk_of(l, n->segment, n->stage, n->loop, turn) : -1;
    l->pos[i] = ROOM * (int64_t)c;
    return c >= 0;
}

static const uint32_t *any_order(const Order *o)
{
    uint32_t *out = alloc(o->scratch, (o->n + 1) * sizeof *out), n = 0, at = 0;
    uint32_t *waits = alloc(o->scratch, (o->n + 1) * sizeof *waits);
    for (uint32_t i = 0; i < o->n; i++)
        if (!(waits[i] = o->inst[i].needs))
            out[n++] = i;
    for (; at < n; at++)
        for (Edge *e = o->after[out[at]]; e; e = e->next)
            if (!--waits[e->to])
                out[n++] = e->to;
    if (n != o->n)
        die("order: %u of %u steps wait in a circle", o->n - n, o->n);
    return out;
}

/* Early is what serves all stages or is made once a step: right before its
 * first reader.  The rest comes behind what it reads. */
static void place_rest(Line *l, const bool *own)
{
    const Order *o = l->o;
    const uint32_t *list = any_order(o);
    bool *early = alloc(o->scratch, o->n + 1);
    for (uint32_t i = 0; i < o->n; i++) {
        const Node *n = node_of(l, i);
        early[i] = !own[i] && (n->segment <= BEGIN || (n->stage == EVERY
                               && n->segment != UPDATE));
        l->pos[i] = own[i] ? l->pos[i] : early[i] ? l->end
            : n->segment == UPDATE ? l->end + 1 : 0;
    }
    for (uint32_t k = o->n; k-- > 0;)
        for (Edge *e = o->after[list[k]]; e && early[list[k]]; e = e->next)
            if (l->pos[e->to] < l->pos[list[k]])
                l->pos[list[k]] = l->pos[e->to];
    for (uint32_t k = 0; k < o->n; k++)
        for (Edge *e = o->after[list[k]]; e; e = e->next)
            if (!own[e->to] && l->pos[e->to] < l->pos[list[k]])
                l->pos[e->to] = l->pos[list[k]];
}

void order_line(Order *o)
{
    const Graph *g = o->g;
    Axes time = mesh_axes(&g->mesh, TIME);
    if (g->role < 0 || !g->nstage)
        return;
    Line l = { .o = o, .g = g, .nturn = (int)mesh_size(&g->mesh, time),
               .end = ROOM * (int64_t)g->nchunk + 1 };
    bool *own = alloc(o->scratch, o->n + 1);
    l.pos = o->pos = alloc(o->scratch, (o->n + 1) * sizeof *l.pos);
    number_chunks(&l);
    for (uint32_t i = 0; i < o->n; i++)
        own[i] = placed(&l, i);
    chain_transfers(&l, o);
    place_rest(&l, own);
}

/* ---- the list ---- */

typedef struct Ready { const Order *o; uint32_t *at, n; } Ready;

static bool sooner(const Order *o, uint32_t a, uint32_t b)
{
    const Inst *x = &o->inst[a], *y = &o->inst[b];
    if (o->pos[a] != o->pos[b])
        return o->pos[a] < o->pos[b];
    if (o->key[x->launch] != o->key[y->launch])
        return o->key[x->launch] < o->key[y->launch];
    return x->turn != y->turn ? x->turn < y->turn : a < b;
}

static void push(Ready *h, uint32_t x)
{
    uint32_t k = h->n++;
    for (; k && sooner(h->o, x, h->at[(k - 1) / 2]); k = (k - 1) / 2)
        h->at[k] = h->at[(k - 1) / 2];
    h->at[k] = x;
}

static uint32_t pop(Ready *h)
{
    uint32_t top = h->at[0], x = h->at[--h->n], k = 0, c;
    while ((c = 2 * k + 1) < h->n) {
        if (c + 1 < h->n && sooner(h->o, h->at[c + 1], h->at[c]))
            c++;
        if (!sooner(h->o, h->at[c], x))
            break;
        h->at[k] = h->at[c];
        k = c;
    }
    h->at[k] = x;
    return top;
}

const uint32_t *order_chunks(const Order *o)
{
    uint32_t *out = alloc(o->scratch, (o->n + 1) * sizeof *out), n = 0;
    uint32_t *waits = alloc(o->scratch, (o->n + 1) * sizeof *waits);
    Ready h = { o, alloc(o->scratch, (o->n + 1) * sizeof *h.at), 0 };
    for (uint32_t i = 0; i < o->n; i++)
        if (!(waits[i] = o->inst[i].needs))
            push(&h, i);
    while (h.n) {
        uint32_t i = out[n++] = pop(&h);
        for (Edge *e = o->after[i]; e; e = e->next)
            if (!--waits[e->to])
                push(&h, e->to);
    }
    if (n != o->n)
        die("order: %u of %u steps wait in a circle", o->n - n, o->n);
    return out;
}
