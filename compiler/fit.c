/* fit.c -- what to do about a model that does not fit a rank.
 *
 * Where the plan says offload = "auto", more and more goes to the host's
 * memory until it fits.  Where it does not, other plans of the same model are
 * tried: blocks made again, more turns, leaves and activations in the host's
 * memory, weights in parts over more ranks, products in bf16.  Those that fit
 * are named by the seconds of ranks that a step of them takes; where few fit,
 * the ones that come nearest.  How many nodes there are says whether each is
 * compiled or judged (plan_try.c), so that the answer is the same anywhere. */
#include "compiler/planning.h"
#include "passes/offload.h"
#include <stdlib.h>

enum { WAYS = 3, RANKS = 2, MOST = 1024 };   /* MOST: times as many ranks */

static const char *const moves[] = { NULL, "states", "states,activations" };

void offload_fit(const Options *o, Graph *const *entry, int n, Plan *p)
{
    if (!offload_says(p->offload, "auto"))
        return;
    Priced q = { .plan = p };
    for (int i = 0; i < COUNT(moves) && !q.fits; i++) {
        p->offload = moves[i];
        if (i + 1 < COUNT(moves))         /* the last is taken anyhow */
            plan_price(o, plan_entry(entry, n), NULL, &q);
    }
}

/* Words of a try that is no partitioner's own: what "auto" has no name for. */
static Try *way_add(Tries *t, const Options *o, const Try *words)
{
    Str s = { .arena = o->arena };
    GROW(t->arena, t->at, t->n, t->cap);
    Try *x = &t->at[t->n++];
    *x = *words;
    x->micro = x->micro ? x->micro : o->micro ? (int)o->micro : 1;
    if (x->recompute)
        str_add(&s, o->plan && !x->partitioner ? " recompute = \"%s\" in the "
                "plan" : " --recompute %s", x->recompute);
    if (words->micro > 1)
        str_add(&s, " --micro %d", x->micro);
    if (x->partitioner)
        str_add(&s, " --ranks %d --partitioner %s", x->ranks, x->partitioner);
    for (int i = 0; i < x->set.n; i++)
        str_add(&s, " -P %s", x->set.at[i]);
    if (x->dtype)
        str_add(&s, " --dtype %s", x->dtype);
    if (x->offload)
        str_add(&s, " --offload %s", x->offload);
    x->name = s.p + 1;
    return x;
}

/* What moves more than the plan has moved. */
static void moves_add(Tries *t, const Options *o, const Plan *p)
{
    if (p->offload && !offload_says(p->offload, "states"))
        return;
    for (int i = COUNT(moves) - 1; i > 0; i--) {
        if (p->offload && strcmp(p->offload, moves[i]) == 0)
            return;
        way_add(t, o, &(Try){ .offload = moves[i] });
    }
}

/* A rank's memory where there are so many. */
static int64_t memory_of_ranks(const Options *o, int ranks)
{
    Cluster *c = cluster_read(o->home, o->cluster, o->arena);
    cluster_share(c, ranks, 1);
    return c->memory;
}

/* Weights in parts over more ranks: the first two numbers for which parts that
 * are even could fit, whoever makes them. */
static void ranks_add(Tries *t, const Options *o, const Graph *g, int ranks,
                      const Try *words)
{
    int64_t all = leaf_bytes(g);          /* of a model's graph: whole */
    int found = 0, most = ranks_most(o);
    for (int n = ranks > 1 ? ranks : 2; n <= most && found < RANKS
         && n <= MOST * ranks; n *= 2) {
        if (all / n > memory_of_ranks(o, n))
            continue;
        Try x = *words;
        x.partitioner = "zero3", x.ranks = n;
        way_add(t, o, &x);
        found++;
    }
}

static Tries ways_of(const Options *o, const Plan *p, const Graph *g,
                     int64_t limit)
{
    Tries t = { .arena = o->arena };
    int micro = o->micro ? (int)o->micro : 1;
    Try again = { .recompute = fmt(o->arena, "auto:%lld", (long long)limit) };
    moves_add(&t, o, p);
    if (p->recompute != RECOMPUTE_AUTO)
        way_add(&t, o, &again);
    for (int k = 2; k <= 8 && !o->plan; k *= 2) {
        Try x = again;
        x.micro = k * micro;
        way_add(&t, o, &x);
    }
    again.micro = micro;
    if (p->compute == F32 && !o->plan) {
        Try x = again;
        x.dtype = "bf16";
        way_add(&t, o, &x);
    }
    ranks_add(&t, o, g, plan_ranks(p), &again);
    return t;
}

static double cost(const Priced *p)       /* seconds of all ranks */
{
    return p->spent.step * (p->of.ranks ? p->of.ranks : 1);
}

static int better(const void *a, const void *b)
{
    const Priced *x = a, *y = b;
    bool none[2] = { x->why || x->alone, y->why || y->alone };
    if (none[0] != none[1])
        return none[0] ? 1 : -1;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    return x->fits ? (cost(x) > cost(y)) - (cost(x) < cost(y))
         : (bytes_of(x) > bytes_of(y)) - (bytes_of(x) < bytes_of(y));
}

/* Large ones are judged by their nodes: no answer takes minutes. */
char *fit_help(const Options *o, const Plan *p, const char *entry,
               int64_t bytes, int64_t limit)
{
    const Model *m = model_open(o);       /* passes have used up the first */
    Work w = { .entry = m->entry, .nentry = m->nentry,
               .of = model_entry(m, entry) };
    Options mine = *o;
    mine.offload = p->offload;            /* what "auto" came to */
    int64_t leaves = leaf_bytes(w.of);
    Tries t = ways_of(&mine, p, w.of, limit);
    w.judge = (double)w.of->n * t.n > NODES;
    if (w.judge)
        w.begun = work_begin(&mine, &w);
    Priced *q = tries_run(&mine, &w, t.at, t.n);
    qsort(q, t.n, sizeof *q, better);
    Str s = { .arena = o->arena };
    for (uint32_t i = 0; i < t.n && i < WAYS && !q[i].why && !q[i].alone
         && (q[i].fits || bytes_of(&q[i]) < bytes); i++)
        str_add(&s, "%shelp: %s: %s%.1f MiB a rank%s", i ? "\n" : "",
                q[i].name, q[i].rough ? "about " : "", mib(bytes_of(&q[i])),
                q[i].fits ? "" : ", the nearest that was found");
    if (!s.p)
        str_add(&s, "help: nothing that was tried takes less: leaves alone "
                "are %.1f MiB over all ranks; another --cluster may have more",
                mib(leaves));
    return s.p;
}
