/* order_list.c -- list scheduling on two streams.
 *
 * One stream computes and one communicates; each takes the next launch when
 * it is free, by the rough clock of clock.c (Graham, "Bounds on
 * multiprocessing timing anomalies", 1969): so computing goes on with what
 * does not wait for a transfer, and a transfer that is wanted soon passes
 * those wanted later.  Of the launches whose operands are done, a sum over
 * turns goes first, since it frees its operand and lets the sum over ranks
 * begin.  The update goes last: what it can do early (decay the moments)
 * would only wait in memory for gradients.  Then comes the earliest turn, then
 * the place in the graph, which lists backward after forward and so frees
 * values soon.
 *
 * Where transfers take about as long as computing, one rule more pays.  A
 * *side* launch makes what only transfers and the update wait for: the
 * gradient of a weight.  Two machines in a row, the second never idle: jobs
 * that are short on the first and long on the second go first, the others
 * last (Johnson, "Optimal two- and three-stage production schedules", 1954).
 * So a gradient with more to send than to compute passes the chain of
 * backward, and one with more to compute waits until that chain, which leads
 * to more to send, is through.  What waits holds memory; so the rules are
 * tried on the clock, and the plain order stays unless another is quicker by
 * a share that is worth it. */
#include "passes/order.h"
#include <math.h>

enum { NBESIDE = 2 };
enum { WORTH = 50 };                      /* a rule saves one part in so many */

typedef enum Rule { PLAIN, AHEAD, APART, NRULE } Rule;

/* What only transfers and the update wait for, from one instance on. */
typedef struct Side {
    bool side;
    double work, gives;                   /* seconds: computed; sent */
} Side;

typedef struct Run {
    const Order *o;
    const Side *side;
    Rule rule;
    uint32_t *waits;                      /* of an instance, for so many */
    double *ready;                        /* when those are done */
    uint32_t *out, n;
} Run;

typedef struct Heap {
    uint32_t *at, n;
    bool (*before)(const Run *, uint32_t, uint32_t);
} Heap;

typedef struct Stream {
    double now;                           /* when it is free */
    Heap ready, later;                    /* by `sooner`; by time */
} Stream;

static const Node *first_node(const Order *o, uint32_t i)
{
    return &o->g->node[o->s->launch[o->inst[i].launch].node[0]];
}

static bool updates(const Order *o, uint32_t i)
{
    return first_node(o, i)->segment == UPDATE;
}

/* Over ranks or over turns. */
static bool collects(const Order *o, uint32_t i)
{
    return op_collects(first_node(o, i)->op);
}

static bool communicates(const Order *o, uint32_t i)
{
    return launch_communicates(o->g, &o->s->launch[o->inst[i].launch]);
}

/* ---- which goes first ---- */

/* -1 before the others, 1 after them. */
static int turn_away(const Run *r, uint32_t i)
{
    const Side *s = &r->side[i];
    if (r->rule == PLAIN || !s->side || s->gives <= 0)
        return 0;
    return s->work <= s->gives ? -1 : r->rule == APART;
}

static bool sooner(const Run *r, uint32_t a, uint32_t b)
{
    const Order *o = r->o;
    const Inst *x = &o->inst[a], *y = &o->inst[b];
    bool cx = collects(o, a), cy = collects(o, b);
    if (cx != cy)
        return cx;
    bool ux = updates(o, a), uy = updates(o, b);
    if (ux != uy)
        return uy;
    if (x->turn != y->turn)
        return x->turn < y->turn;
    int ax = turn_away(r, a), ay = turn_away(r, b);
    if (ax != ay)
        return ax < ay;
    Ref kx = o->key[x->launch], ky = o->key[y->launch];
    return kx != ky ? kx < ky : x->launch < y->launch;
}

static bool earlier(const Run *r, uint32_t a, uint32_t b)
{
    double x = r->ready[a], y = r->ready[b];
    return x != y ? x < y : sooner(r, a, b);
}

static void heap_push(const Run *r, Heap *h, uint32_t x)
{
    uint32_t k = h->n++;
    for (; k && h->before(r, x, h->at[(k - 1) / 2]); k = (k - 1) / 2)
        h->at[k] = h->at[(k - 1) / 2];
    h->at[k] = x;
}

static uint32_t heap_pop(const Run *r, Heap *h)
{
    uint32_t top = h->at[0], x = h->at[--h->n], k = 0, c;
    while ((c = 2 * k + 1) < h->n) {
        if (c + 1 < h->n && h->before(r, h->at[c + 1], h->at[c]))
            c++;
        if (!h->before(r, h->at[c], x))
            break;
        h->at[k] = h->at[c];
        k = c;
    }
    h->at[k] = x;
    return top;
}

/* ---- two streams, by the clock ---- */

static void stream_add(const Run *r, Stream *s, uint32_t i)
{
    heap_push(r, &s[communicates(r->o, i)].later, i);
}

/* When the stream could begin its next launch; infinity: it has none. */
static double stream_next(const Run *r, Stream *s)
{
    while (s->later.n && r->ready[s->later.at[0]] <= s->now)
        heap_push(r, &s->ready, heap_pop(r, &s->later));
    return s->ready.n ? s->now
         : s->later.n ? r->ready[s->later.at[0]] : INFINITY;
}

static void run_next(Run *r, Stream *all, Stream *s)
{
    uint32_t i = heap_pop(r, &s->ready);
    if (r->o->takes)
        s->now += r->o->takes[r->o->inst[i].launch];
    r->out[r->n++] = i;
    for (Edge *e = r->o->after[i]; e; e = e->next) {
        double *ready = &r->ready[e->to];
        *ready = s->now > *ready ? s->now : *ready;
        if (--r->waits[e->to] == 0)
            stream_add(r, all, e->to);
    }
}

/* Seconds until both streams are through. */
static double list_run(Run *r)
{
    const Order *o = r->o;
    Stream s[NBESIDE];
    size_t size = (o->n + 1) * sizeof(uint32_t);
    for (int k = 0; k < NBESIDE; k++)
        s[k] = (Stream){ 0, { alloc(o->scratch, size), 0, sooner },
                         { alloc(o->scratch, size), 0, earlier } };
    r->waits = alloc(o->scratch, size);
    r->out = alloc(o->scratch, size);
    r->ready = alloc(o->scratch, (o->n + 1) * sizeof *r->ready);
    for (uint32_t i = 0; i < o->n; i++)
        if (!(r->waits[i] = o->inst[i].needs))
            stream_add(r, s, i);
    for (;;) {
        double t0 = stream_next(r, &s[0]), t1 = stream_next(r, &s[1]);
        Stream *q = &s[t1 <= t0];
        double t = t1 <= t0 ? t1 : t0;
        if (t == INFINITY)
            break;
        q->now = t;
        if (q->ready.n)
            run_next(r, s, q);
    }
    if (r->n != o->n)
        die("order: %u of %u steps wait in a circle", o->n - r->n, o->n);
    return s[0].now > s[1].now ? s[0].now : s[1].now;
}

/* ---- what only transfers wait for ---- */

/* Seconds in which the results of each launch are sent, where they are the
 * operands of a transfer. */
static double *sent_at_once(const Order *o, const Job *j)
{
    double *gives = alloc(o->scratch, (o->s->nlaunch + 1) * sizeof *gives);
    uint32_t *of = alloc(o->scratch, (o->g->n + 1) * sizeof *of);
    for (uint32_t k = 0; k < o->s->nlaunch; k++)
        for (int i = 0; i < o->s->launch[k].n; i++)
            of[o->s->launch[k].node[i]] = k + 1;
    for (uint32_t k = 0; k < o->s->nlaunch; k++) {
        const Launch *q = &o->s->launch[k];
        for (int i = 0; launch_communicates(o->g, q) && i < q->n; i++) {
            Ref x = view_root(o->g, o->g->node[q->node[i]].in[0]);
            if (of[x])
                gives[of[x] - 1] += transfer_seconds(o->g, q->node[i],
                                                     j->cluster);
        }
    }
    return gives;
}

/* Of the last turn only: gradients are sent when all turns are added. */
static const Side *sides(const Order *o, const uint32_t *order, const Job *j)
{
    Side *side = alloc(o->scratch, (o->n + 1) * sizeof *side);
    const double *gives = sent_at_once(o, j);
    int last = 0;
    for (uint32_t i = 0; i < o->n; i++)
        last = o->inst[i].turn > last ? o->inst[i].turn : last;
    for (uint32_t k = o->n; k-- > 0;) {
        uint32_t i = order[k], launch = o->inst[i].launch;
        bool sends = communicates(o, i);
        Side s = { !updates(o, i) && (sends || o->inst[i].turn == last),
                   sends ? 0 : o->takes[launch], gives[launch] };
        int readers = 0;
        for (Edge *e = o->after[i]; e && s.side; e = e->next) {
            const Side *x = &side[e->to];
            if (updates(o, e->to))
                continue;
            s.side = x->side && (communicates(o, e->to) || !readers++);
            s.work += x->work, s.gives += x->gives;
        }
        if (s.side)
            side[i] = s;
    }
    return side;
}

const uint32_t *order_list(Order *o, const Job *j)
{
    Run best = { .o = o, .rule = PLAIN };
    double least = list_run(&best);
    if (!o->takes)
        return best.out;
    const Side *side = sides(o, best.out, j);
    for (Rule rule = AHEAD; rule < NRULE; rule++) {
        Run r = { .o = o, .side = side, .rule = rule };
        double t = list_run(&r);
        if (t < least * (1 - 1.0 / WORTH))
            least = t, best = r;
    }
    return best.out;
}
