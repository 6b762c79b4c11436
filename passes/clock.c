/* clock.c -- about when each step of an order begins and ends.
 *
 * Rough on purpose: flops and bytes over what the target and the cluster say,
 * the streams side by side, a step after what makes its operands.  It is
 * enough to tell what a transfer runs beside, and so what has to stay out of
 * its way; events make the real order safe whatever is said here. */
#include "passes/clock.h"
#include "passes/like.h"
#include <stdlib.h>

int launch_stream(const Graph *g, const Launch *l)
{
    const Node *n = &g->node[l->node[0]];
    if (n->op == OP_send || n->op == OP_recv)
        return STREAM_HOP;
    if (node_moves(g, l->node[0]))
        return STREAM_COPY;
    return node_over_ranks(g, n) ? STREAM_COLLECT : STREAM_COMPUTE;
}

bool launch_communicates(const Graph *g, const Launch *l)
{
    return launch_stream(g, l) != STREAM_COMPUTE;
}

static double given(double of_cluster, double of_target)
{
    return of_cluster > 0 ? of_cluster : of_target;
}

/* On a host both memories are one, which is read and written. */
double copy_seconds(const Graph *g, Ref r, const Job *j)
{
    static const Rates none;
    const Rates *c = j->cluster ? &j->cluster->rates : &none;
    double rate = given(c->copy, given(c->bandwidth,
                        j->target ? j->target->bandwidth : 0) / 2);
    double launch = given(c->launch, j->target ? j->target->launch : 0);
    double bytes = (double)type_bytes(&g->mesh, &g->node[r].type);
    return rate > 0 ? launch + bytes / rate : 0;
}

static double transfer(const Graph *g, const Launch *l, const Job *j)
{
    double s = 0;
    if (launch_stream(g, l) == STREAM_HOP)
        return hops_seconds(g, l->node, l->n, j->cluster);
    for (int i = 0; i < l->n; i++)
        s += node_moves(g, l->node[i]) ? copy_seconds(g, l->node[i], j)
           : transfer_seconds(g, l->node[i], j->cluster);
    return s;
}

static double operand_bytes(const Graph *g, const Launch *l)
{
    double n = 0;
    for (int i = 0; i < l->n; i++) {
        const Node *x = &g->node[l->node[i]];
        bool large = x->op == OP_dot || ops[x->op].family == FAMILY_conv;
        n += (double)type_bytes(&g->mesh, &x->type) / (large ? 1 : l->n);
        for (int k = 0; k < x->nin; k++)
            n += (double)type_bytes(&g->mesh, &g->node[x->in[k]].type)
                / (large ? 1 : l->n);
    }
    return n;
}

static const Graph *sorted;               /* of by_kernel */

static int by_kernel(const void *a, const void *b)
{
    Ref x = *(const Ref *)a, y = *(const Ref *)b;
    int k = sorted->node[x].kernel, l = sorted->node[y].kernel;
    return k != l ? (k > l) - (k < l) : (x > y) - (x < y);
}

/* All kernels of a bucket, one after the other; threads are woken once. */
static void nests_load(const Graph *g, const Launch *l, const Target *t,
                       const uint32_t *uses, Amount *a)
{
    Arena *room = arena_new();
    Ref *node = alloc(room, (size_t)l->n * sizeof *node);
    memcpy(node, l->node, (size_t)l->n * sizeof *node);
    sorted = g;
    qsort(node, (size_t)l->n, sizeof *node, by_kernel);
    double points = 0;
    a->bytes = a->flops = 0;
    for (int i = 0, end; i < l->n; i = end) {
        for (end = i; end < l->n && g->node[node[end]].kernel
             == g->node[node[i]].kernel; end++)
            ;
        Load one = t->load(g, node + i, end - i, uses);
        a->bytes += one.bytes, a->flops += one.work, points += one.points;
    }
    a->shared = t->shared > 0 && points >= t->shared;
    arena_free(room);
}

Amount launch_amount(const Graph *g, const Launch *l, const Target *t,
                     const uint32_t *uses)
{
    Amount a = { .kind = launch_communicates(g, l) ? TRANSFERS : OTHERS };
    if (a.kind == TRANSFERS)
        return a;
    a.bytes = operand_bytes(g, l);
    for (int i = 0; i < l->n; i++) {
        const Node *n = &g->node[l->node[i]];
        bool conv = ops[n->op].family == FAMILY_conv;
        a.flops += node_flops(g, l->node[i]);
        a.shared |= t->shared > 0 && (n->op == OP_pack || a.flops >= t->shared);
        if (n->op != OP_dot && !conv)
            continue;
        a.kind = conv ? CONVS : PRODUCTS;
        a.dtype = g->node[n->in[0]].type.dtype;
    }
    if (a.kind == OTHERS && uses && g->node[l->node[0]].kernel >= 0) {
        a.kind = NESTS;
        nests_load(g, l, t, uses, &a);
    }
    return a;
}

double amount_seconds(const Amount *a, const Rates *c, const Target *t)
{
    double rate = given(c->flops[a->dtype], t->flops[a->dtype]);
    if (a->kind == CONVS)
        rate = given(c->conv[a->dtype], rate);
    if (a->kind == NESTS)
        rate = given(c->work, rate);
    double move = a->bytes / given(c->bandwidth, t->bandwidth);
    double work = rate > 0 ? a->flops / rate : 0;
    return given(c->launch, t->launch) + (a->shared ? c->wake : 0)
        + (move > work ? move : work);
}

/* Loop nests are described anew, by `uses`, where their speed is known. */
static double launch_takes(const Graph *g, const Launch *l, const Job *j,
                           const uint32_t *uses)
{
    static const Rates none;
    const Rates *c = j->cluster ? &j->cluster->rates : &none;
    if (launch_communicates(g, l))
        return transfer(g, l, j);
    if (!j->target || j->target->bandwidth <= 0)
        return 0;
    Amount a = launch_amount(g, l, j->target, c->work > 0 ? uses : NULL);
    return amount_seconds(&a, c, j->target);
}

double launch_seconds(const Graph *g, const Launch *l, const Job *j)
{
    return launch_takes(g, l, j, NULL);
}

double *launches_seconds(const Graph *g, const Sched *s, const Job *j)
{
    double *takes = alloc(j->scratch, (s->nlaunch + 1) * sizeof *takes);
    const uint32_t *like = launches_alike(g, s, j->scratch);
    for (uint32_t l = 0; l < s->nlaunch; l++)
        takes[l] = like[l] < l ? takes[like[l]]
                               : launch_seconds(g, &s->launch[l], j);
    return takes;
}

/* A list names steps as they begin: one that comes later, a transfer that has
 * to wait for its turn, begins no sooner. */
void clock_steps(const Graph *g, const Job *j, double *begin, double *end)
{
    const Sched *s = g->sched;
    Arena *a = j->scratch;
    double *made = alloc(a, (g->n + 1) * sizeof *made), now[NSTREAM] = { 0 };
    const double *takes = launches_seconds(g, s, j);
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Launch *l = &s->launch[s->step[k].launch];
        double *stream = &now[s->step[k].stream];
        for (int i = 0; i < l->n; i++)
            for (int q = 0; q < g->node[l->node[i]].nin; q++) {
                double m = made[view_root(g, g->node[l->node[i]].in[q])];
                *stream = m > *stream ? m : *stream;
            }
        *stream = k && begin[k - 1] > *stream ? begin[k - 1] : *stream;
        begin[k] = *stream;
        end[k] = *stream += takes[s->step[k].launch];
        for (int i = 0; i < l->n; i++)
            made[l->node[i]] = end[k];
    }
}

void clock_takes(const Graph *g, const Job *j, double *takes)
{
    const Sched *s = g->sched;
    const uint32_t *uses = graph_uses(g, j->scratch);
    double *of = alloc(j->scratch, (s->nlaunch + 1) * sizeof *of);
    for (uint32_t l = 0; l < s->nlaunch; l++)
        of[l] = launch_takes(g, &s->launch[l], j, uses);
    for (uint32_t k = 0; k < s->nstep; k++)
        takes[k] = of[s->step[k].launch];
}

/* ---- the least ---- */

/* Seconds of computing on some way to, or from, a launch: each once. */
typedef struct Way { double head, tail, takes; } Way;

typedef struct Reach {
    const Graph *g;
    const Sched *s;
    uint32_t *of;                         /* launch of a node, + 1 */
    size_t words;
    uint64_t *set;                        /* of each launch: those before it */
} Reach;

static void reach_add(Reach *r, uint32_t l)
{
    const Launch *q = &r->s->launch[l];
    uint64_t *to = r->set + l * r->words;
    for (int i = 0; i < q->n; i++)
        for (int k = 0; k < r->g->node[q->node[i]].nin; k++) {
            uint32_t p = r->of[view_root(r->g, r->g->node[q->node[i]].in[k])];
            if (!p || --p == l)
                continue;
            const uint64_t *from = r->set + p * r->words;
            for (size_t w = 0; w < r->words; w++)
                to[w] |= from[w];
            to[p / 64] |= 1ull << p % 64;
        }
}

/* Launches before each, in the order of the steps. */
static Reach reach_of(const Graph *g, Arena *a)
{
    Reach r = { .g = g, .s = g->sched, .words = g->sched->nlaunch / 64 + 1 };
    r.of = alloc(a, (g->n + 1) * sizeof *r.of);
    r.set = alloc(a, r.words * (r.s->nlaunch + 1) * sizeof *r.set);
    for (uint32_t l = 0; l < r.s->nlaunch; l++)
        for (int i = 0; i < r.s->launch[l].n; i++)
            r.of[r.s->launch[l].node[i]] = l + 1;
    for (uint32_t k = 0; k < r.s->nstep; k++)
        reach_add(&r, r.s->step[k].launch);
    return r;
}

static int by_tail(const void *a, const void *b)
{
    const Way *x = a, *y = b;
    return (x->tail < y->tail) - (x->tail > y->tail);
}

/* Transfers that begin after h seconds at the soonest, and leave t at the
 * least, last h, their sum, and t (Carlier, "The one-machine sequencing
 * problem", 1982): the most that some of them ask for. */
static double one_machine(Way *w, int n)
{
    double most = 0;
    qsort(w, (size_t)n, sizeof *w, by_tail);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < n; k++) {
            if (w[k].head < w[i].head)
                continue;
            sum += w[k].takes;
            double all = w[i].head + sum + w[k].tail;
            most = all > most ? all : most;
        }
    }
    return most;
}

double clock_least(const Graph *g, const double *takes, Arena *a)
{
    const Sched *s = g->sched;
    Reach r = reach_of(g, a);
    double *work = alloc(a, (s->nlaunch + 1) * sizeof *work), compute = 0;
    Way *way = alloc(a, (s->nlaunch + 1) * sizeof *way);
    int n = 0;
    for (uint32_t k = 0; k < s->nstep; k++)
        if (!s->step[k].stream) {
            work[s->step[k].launch] += takes[k];
            compute += takes[k];
        }
    for (uint32_t k = 0; k < s->nstep; k++) {
        uint32_t l = s->step[k].launch;
        if (!s->step[k].stream || g->node[s->launch[l].node[0]].loop)
            continue;
        Way *w = &way[n++];
        w->takes = takes[k];
        for (uint32_t p = 0; p < s->nlaunch; p++) {
            bool before = r.set[l * r.words + p / 64] >> p % 64 & 1;
            bool after = r.set[p * r.words + l / 64] >> l % 64 & 1;
            w->head += before ? work[p] : 0;
            w->tail += after ? work[p] : 0;
        }
    }
    double most = one_machine(way, n);
    return most > compute ? most : compute;
}
