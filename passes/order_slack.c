/* order_slack.c -- each launch where least lives meanwhile.
 *
 * List scheduling begins what is ready.  A launch that makes more than it
 * frees (a branch of the gradient, a filter in another order) would better
 * come right before the first that needs it, and one that frees more than it
 * makes right after the last that it waits for.  Both moves lower the sum of
 * live bytes at every step between, so no search is needed: from the last
 * step to the first what can sink does, then from the first to the last what
 * can rise.  At last one of a few neighbours changes to their other end where
 * less lives at the worst of them, the scratch of each while it works
 * counted.  Transfers stay, and what writes a leaf. */
#include "passes/like.h"
#include "passes/order.h"
#include <stdlib.h>

enum { GAP = 20 };                        /* bits between places of two steps */

typedef struct Val {                      /* one instance of a value */
    int64_t bytes;                        /* 0: not in the arena */
    uint32_t n, cap, *by;                 /* who reads or writes it, */
    uint32_t writers;                     /* so many write */
} Val;

typedef struct Slack {
    Order *o;
    Arena *a;
    uint32_t nturn, *uses;
    Val *val;                             /* node x turn */
    struct { uint32_t n, cap, *val; } *read, *made;   /* by instance */
    struct { uint32_t n, cap, *at; } *before;         /* it waits for these */
    bool *stays;
    int64_t *place;                       /* by instance: order of the steps */
    const int64_t *scratch;               /* by launch: bytes while it works */
    uint32_t *moved;                      /* by step: so many lie beside it */
    uint32_t *from, *to;                  /* by step: the first and the last of
                                             its chunk; it moves within */
} Slack;

/* ---- what each instance reads and makes ---- */

static void add_use(Slack *s, uint32_t i, uint32_t v, bool write)
{
    Val *x = &s->val[v];
    GROW(s->a, x->by, x->n, x->cap);
    x->by[x->n++] = i;
    x->writers += write;
    if (write) {
        GROW(s->a, s->made[i].val, s->made[i].n, s->made[i].cap);
        s->made[i].val[s->made[i].n++] = v;
    } else {
        GROW(s->a, s->read[i].val, s->read[i].n, s->read[i].cap);
        s->read[i].val[s->read[i].n++] = v;
    }
}

/* The instances of a value that one of a launch touches: of its own turn, or
 * what all turns have left. */
static void touch(Slack *s, uint32_t i, Ref r, bool write)
{
    const Graph *g = s->o->g;
    Axes has = node_along(g, r);
    const Inst *x = &s->o->inst[i];
    Axes loop = g->node[s->o->s->launch[x->launch].node[0]].loop;
    uint32_t n = (uint32_t)graph_turns(g, has), first = r * s->nturn;
    if (has & (Axes)~loop)
        for (uint32_t t = 0; t < n; t++)
            add_use(s, i, first + t, write);
    else
        add_use(s, i, first + (uint32_t)turn_instance(&g->mesh, has, x->turn),
                write);
}

static void find_uses(Slack *s)
{
    const Order *o = s->o;
    for (uint32_t i = 0; i < o->n; i++) {
        const Launch *l = &o->s->launch[o->inst[i].launch];
        int max = launch_operands(o->g, l);
        Ref *x = alloc(s->a, (size_t)max * sizeof *x);
        int n = launch_inputs(o->g, l, x, max);
        for (int k = 0; k < n; k++)
            touch(s, i, view_root(o->g, x[k]), false);
        n = launch_outputs(o->g, l, s->uses, x, max);
        for (int k = 0; k < n; k++)
            touch(s, i, x[k], true);
        for (Edge *e = o->after[i]; e; e = e->next) {
            GROW(s->a, s->before[e->to].at, s->before[e->to].n,
                 s->before[e->to].cap);
            s->before[e->to].at[s->before[e->to].n++] = i;
        }
    }
}

/* Leaves, what is set and what is returned lie elsewhere; who writes a leaf
 * in place has to stay behind those who read it. */
static void find_bytes(Slack *s)
{
    const Order *o = s->o;
    const Graph *g = o->g;
    bool *out = alloc(s->a, g->n + 1);
    for (uint32_t k = 0; k < g->nset; k++)
        out[view_root(g, g->set[k].value)] = true;
    for (uint32_t k = 0; k < g->nout; k++)
        out[view_root(g, g->out[k].ref)] = true;
    for (Ref r = 0; r < g->n; r++)
        for (uint32_t t = 0; o->of[r] && !out[r] && t < s->nturn; t++)
            s->val[r * s->nturn + t].bytes =
                type_bytes(&g->mesh, &g->node[r].type);
    for (uint32_t i = 0; i < o->n; i++) {
        const Launch *l = &o->s->launch[o->inst[i].launch];
        s->stays[i] |= launch_communicates(g, l);
        for (Edge *e = o->after[i]; e; e = e->next)
            s->stays[i] |= launch_communicates(g, &o->s->launch[
                o->inst[e->to].launch]);
        for (int k = 0; k < l->n; k++)
            s->stays[i] |= out[l->node[k]];
    }
}

/* A leaf is read before it is written: an edge more for each reader. */
static uint32_t *leaf_writers(const Slack *s)
{
    const Order *o = s->o;
    const Graph *g = o->g;
    uint32_t *by = alloc(s->a, (g->n + 1) * sizeof *by);
    for (uint32_t k = 0; k < g->nset; k++) {
        Ref v = view_root(g, g->set[k].value);
        if (o->of[v])
            by[g->set[k].leaf] = o->first[o->of[v]];    /* last instance + 1 */
    }
    return by;
}

/* ---- moves ---- */

/* The last place where a value is touched by others than i. */
static int64_t last_other(const Slack *s, uint32_t v, uint32_t i)
{
    int64_t last = -1;
    for (uint32_t k = 0; k < s->val[v].n; k++) {
        uint32_t by = s->val[v].by[k];
        if (by != i && s->place[by] > last)
            last = s->place[by];
    }
    return last;
}

static int64_t made_bytes(const Slack *s, uint32_t i)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < s->made[i].n; k++) {
        const Val *v = &s->val[s->made[i].val[k]];
        if (v->writers > 1)
            return -1;
        sum += v->bytes;
    }
    return sum;
}

static bool once(const uint32_t *list, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++)
        if (list[i] == list[k])
            return false;
    return true;
}

/* Bytes that i keeps alive where it works right before place `to`; *last: the
 * first place at which others have done with any of them. */
static int64_t kept_alive(const Slack *s, uint32_t i, int64_t to,
                          int64_t *last)
{
    int64_t bytes = 0;
    *last = to;
    for (uint32_t k = 0; k < s->read[i].n; k++) {
        uint32_t v = s->read[i].val[k];
        int64_t other = last_other(s, v, i);
        if (!once(s->read[i].val, k) || other >= to || !s->val[v].bytes)
            continue;
        bytes += s->val[v].bytes;
        *last = other < *last ? other : *last;
    }
    return bytes;
}

static void sink(Slack *s, uint32_t i, const uint32_t *writer)
{
    int64_t first = INT64_MAX, last, gain = made_bytes(s, i);
    for (Edge *e = s->o->after[i]; e; e = e->next)
        if (s->place[e->to] < first)
            first = s->place[e->to];
    for (uint32_t k = 0; k < s->read[i].n; k++) {
        uint32_t w = writer[s->read[i].val[k] / s->nturn];
        if (w && s->place[w - 1] > s->place[i] && s->place[w - 1] < first)
            first = s->place[w - 1];
    }
    if (first == INT64_MAX || gain <= 0)
        return;
    if (kept_alive(s, i, first, &last) >= gain)
        first = last;                     /* with the last of the others */
    int64_t end = s->to[s->place[i] >> GAP] + 1;
    int64_t step = (first + (1 << GAP) - 1) >> GAP;
    step = end < step ? end : step;
    if (step > (s->place[i] >> GAP) + 1)
        s->place[i] = (step << GAP) - ++s->moved[step];
}

static void rise(Slack *s, uint32_t i)
{
    int64_t last = -1, gain = 0, cost = made_bytes(s, i);
    for (uint32_t k = 0; k < s->before[i].n; k++)
        if (s->place[s->before[i].at[k]] > last)
            last = s->place[s->before[i].at[k]];
    for (uint32_t k = 0; k < s->read[i].n; k++) {
        uint32_t v = s->read[i].val[k];
        int64_t other = last_other(s, v, i);
        if (!once(s->read[i].val, k) || other > s->place[i]
            || !s->val[v].bytes)
            continue;
        gain += s->val[v].bytes;
        last = other > last ? other : last;
    }
    int64_t step = last >> GAP;
    int64_t start = (int64_t)s->from[s->place[i] >> GAP] - 1;
    step = start > step ? start : step;
    if (last >= 0 && cost >= 0 && gain > cost
        && step + 1 < s->place[i] >> GAP)
        s->place[i] = (step << GAP) + ++s->moved[step];
}

/* ---- the list ---- */

typedef struct At { int64_t place; uint32_t inst; } At;

static int by_place(const void *a, const void *b)
{
    const At *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* The chunk of each step; without a pipeline all are of one. */
static void chunks(Slack *s, const uint32_t *inst)
{
    const int64_t *pos = s->o->pos;
    uint32_t n = s->o->n;
    for (uint32_t k = 0; k < n; k++)
        s->from[k] = k && (!pos || pos[inst[k]] == pos[inst[k - 1]])
            ? s->from[k - 1] : k;
    for (uint32_t k = n; k-- > 0;)
        s->to[k] = k + 1 < n && s->from[k + 1] == s->from[k] ? s->to[k + 1]
            : k;
}

/* The instances in their new order; their places are made even again. */
static uint32_t *list(Slack *s)
{
    uint32_t n = s->o->n, *inst = alloc(s->a, (n + 1) * sizeof *inst);
    At *at = alloc(s->a, (n + 1) * sizeof *at);
    for (uint32_t i = 0; i < n; i++)
        at[i] = (At){ s->place[i], i };
    qsort(at, n, sizeof *at, by_place);
    for (uint32_t k = 0; k < n; k++) {
        inst[k] = at[k].inst;
        s->place[inst[k]] = (int64_t)k << GAP;
        s->moved[k] = 0;
    }
    chunks(s, inst);
    return inst;
}

/* ---- neighbours ---- */

enum { NEAR = 6, SWEEPS = 8 };            /* steps looked at together */

static bool waits_for(const Slack *s, uint32_t b, uint32_t a)
{
    for (uint32_t k = 0; k < s->before[b].n; k++)
        if (s->before[b].at[k] == a)
            return true;
    return false;
}

static bool among(const uint32_t *inst, uint32_t n, uint32_t i)
{
    for (uint32_t k = 0; k < n; k++)
        if (inst[k] == i)
            return true;
    return false;
}

/* Is v, which inst[0] reads, touched by none of the n - 1 behind it, nor
 * beyond place `last` at all?  Those added last mostly work last: they are
 * asked first. */
static bool dies(const Slack *s, uint32_t v, const uint32_t *inst, uint32_t n,
                 int64_t last)
{
    for (uint32_t k = s->val[v].n; k-- > 0;) {
        uint32_t by = s->val[v].by[k];
        if (s->place[by] > last || among(inst + 1, n - 1, by))
            return false;
    }
    return true;
}

/* Bytes above what lived before, at the worst of n steps in this order, which
 * are those up to place `last`. */
static int64_t worst(const Slack *s, const uint32_t *inst, uint32_t n,
                     int64_t last)
{
    int64_t live = 0, most = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = inst[k];
        live += made_bytes(s, i);
        int64_t all = live + s->scratch[s->o->inst[i].launch];
        most = all > most ? all : most;
        for (uint32_t m = 0; m < s->read[i].n; m++)
            if (once(s->read[i].val, m)
                && dies(s, s->read[i].val[m], inst + k, n - k, last))
                live -= s->val[s->read[i].val[m]].bytes;
    }
    return most;
}

/* The first of n steps comes last, or the last first; false: it may not. */
static bool turned(const Slack *s, const uint32_t *inst, uint32_t n,
                   bool back, uint32_t *out)
{
    for (uint32_t k = 0; k + 1 < n; k++) {
        out[back ? k + 1 : k] = inst[back ? k : k + 1];
        if (waits_for(s, inst[back ? n - 1 : k + 1], inst[back ? k : 0]))
            return false;
    }
    out[back ? 0 : n - 1] = inst[back ? n - 1 : 0];
    return true;
}

static bool movable(const Slack *s, const uint32_t *inst, uint32_t n)
{
    const int64_t *pos = s->o->pos;
    for (uint32_t k = 0; k < n; k++)
        if (s->stays[inst[k]] || made_bytes(s, inst[k]) < 0
            || (pos && pos[inst[k]] != pos[inst[0]]))
            return false;
    return true;
}

/* Put n steps in a better order, if turning them makes one. */
static bool improve(Slack *s, uint32_t *inst, uint32_t n)
{
    uint32_t out[NEAR];
    int64_t first = s->place[inst[0]], last = s->place[inst[n - 1]], now = -1;
    if (!movable(s, inst, n))
        return false;
    for (int back = 0; back < 2; back++) {
        if (!turned(s, inst, n, back, out))
            continue;
        now = now < 0 ? worst(s, inst, n, last) : now;
        if (worst(s, out, n, last) >= now)
            continue;
        for (uint32_t k = 0; k < n; k++) {
            inst[k] = out[k];
            s->place[inst[k]] = first + ((int64_t)k << GAP);
        }
        return true;
    }
    return false;
}

/* Has one of these steps moved since the sweep before the last? */
static bool stirred(const uint8_t *moved, uint32_t n, int sweep)
{
    for (uint32_t k = 0; k < n; k++)
        if (moved[k] >= sweep)
            return true;
    return false;
}

/* `moved`: the last sweep that moved a step, plus one.  Neighbours that none
 * has moved are as good as they were: what lives beside them depends on which
 * steps lie behind them, not on their order. */
static void exchange(Slack *s, uint32_t *inst)
{
    uint8_t *moved = alloc(s->a, s->o->n + 1);
    bool again = true;
    for (int sweep = 0; again && sweep < SWEEPS; sweep++) {
        again = false;
        for (uint32_t k = 0; k < s->o->n; k++)
            for (uint32_t n = 2; n <= NEAR && k + n <= s->o->n; n++)
                if (stirred(moved + k, n, sweep)
                    && improve(s, inst + k, n)) {
                    memset(moved + k, sweep + 1, n);
                    again = true;
                }
    }
}

/* Largest sum of live bytes and scratch. */
static int64_t peak(const Slack *s, const uint32_t *inst)
{
    uint32_t n = s->o->n;
    int64_t *live = alloc(s->a, (n + 2) * sizeof *live), most = 0, sum = 0;
    for (uint32_t v = 0; v < s->o->g->n * s->nturn; v++) {
        int64_t first = INT64_MAX, last = last_other(s, v, UINT32_MAX);
        for (uint32_t k = 0; k < s->val[v].n; k++)
            if (s->place[s->val[v].by[k]] < first)
                first = s->place[s->val[v].by[k]];
        if (last < 0)
            continue;
        live[first >> GAP] += s->val[v].bytes;
        live[(last >> GAP) + 1] -= s->val[v].bytes;
    }
    for (uint32_t k = 0; k < n; k++) {
        sum += live[k];
        int64_t all = sum + s->scratch[s->o->inst[inst[k]].launch];
        most = all > most ? all : most;
    }
    return most;
}

static void write_back(Slack *s, const uint32_t *inst)
{
    Order *o = s->o;
    for (uint32_t k = 0; k < o->n; k++) {
        const Inst *x = &o->inst[inst[k]];
        o->s->step[k] = (Step){
            .launch = x->launch, .turn = x->turn, .event = -1,
            .stream = launch_stream(o->g, &o->s->launch[x->launch]) };
        o->at[x->launch] = k;
    }
}

void order_slack(Order *o, const Target *t)
{
    Slack s = { .o = o, .a = o->scratch };
    size_t n = o->n + 1;
    s.nturn = (uint32_t)mesh_size(&o->g->mesh, mesh_axes(&o->g->mesh, TIME));
    s.uses = graph_uses(o->g, s.a);
    s.scratch = launches_scratch(o->g, o->s, t, s.uses, s.a);
    s.val = alloc(s.a, (o->g->n + 1) * s.nturn * sizeof *s.val);
    s.read = alloc(s.a, n * sizeof *s.read);
    s.made = alloc(s.a, n * sizeof *s.made);
    s.before = alloc(s.a, n * sizeof *s.before);
    s.stays = alloc(s.a, n);
    s.place = alloc(s.a, n * sizeof *s.place);
    s.moved = alloc(s.a, n * sizeof *s.moved);
    s.from = alloc(s.a, n * sizeof *s.from);
    s.to = alloc(s.a, n * sizeof *s.to);
    for (uint32_t k = 0; k < o->n; k++)
        s.place[order_inst(o, o->s->step[k].launch, o->s->step[k].turn)] =
            (int64_t)k << GAP;
    find_uses(&s);
    find_bytes(&s);
    const uint32_t *writer = leaf_writers(&s);
    uint32_t *inst = list(&s);
    int64_t before = peak(&s, inst);
    for (uint32_t k = o->n; k-- > 0;)
        if (!s.stays[inst[k]])
            sink(&s, inst[k], writer);
    inst = list(&s);
    for (uint32_t k = 0; k < o->n; k++)
        if (!s.stays[inst[k]])
            rise(&s, inst[k]);
    inst = list(&s);
    exchange(&s, inst);
    if (peak(&s, inst) <= before)
        write_back(&s, inst);
}
