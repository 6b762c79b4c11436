/* plan_auto.c -- the partitioner "auto": shipped ones, tried and priced.
 *
 * Every shipped partitioner with every size of its own axis that stays within
 * a node and, where the command line leaves them free, some numbers of
 * micro-batches.  Each plan goes through all passes; the clock walks the
 * schedule that comes out, with the cluster's rates and links, and its memory
 * is what `memory` placed.  The quickest that fits wins, so auto is never
 * slower, by that clock, than the best of those it prices.  Where the graph is
 * so large that this would take long, all are judged first (plan_try.c), and
 * the best of them priced, until some fit.  Of a graph that is not, the best
 * are priced with other words of recomputation, too, and plans that come out
 * the same stand in the table once.  A partitioner that refuses is a
 * row of the table with its reason. */
#include "compiler/planning.h"
#include <stdlib.h>

enum {
    MICRO = 4,                            /* most micro-batches tried */
    BLOCKS = 8,                           /* of "exact"; on so many ranks it
                                             has no turns, and its sums, an
                                             axis at a time, wait for fewer
                                             hops than a ring of all */
    BEST = 5,                             /* plans that get other words */
    LARGE = 20000                         /* nodes that a partitioner which
                                             walks them often is spared, and
                                             what hardly differs is left out */
};

/* Sizes of an axis that lies in a node: divisors of the ranks.  The largest
 * first: where even its leaves do not fit, no smaller one need be tried. */
static void sizes_add(Tries *t, const Options *o, int ranks, int inside,
                      int micro, bool large)
{
    static const char *const along[] = { "ulysses", "ring", "spatial" };
    for (int n = inside < ranks ? inside : ranks; n > 1; n--) {
        const char *tp = fmt(o->arena, "tp=%d", n);
        const char *sp = fmt(o->arena, "sp=%d", n);
        if (ranks % n)
            continue;
        try_add(t, micro, "megatron", tp, NULL, NULL)->size = n;
        if (ranks > n && (!large || n == inside))
            try_add(t, micro, "megatron", tp, "zero=3", NULL);
        if (large)
            continue;
        try_add(t, micro, "megatron", tp, "sp=true", NULL)->size = n;
        try_add(t, micro, "megatron", tp, "sp=true", "ring=true")->size = n;
        for (int i = 0; i < COUNT(along); i++)
            try_add(t, micro, along[i], sp, NULL, NULL);
    }
}

static Tries tries_of(const Options *o, const Cluster *c, int ranks,
                      bool large)
{
    static const char *const all[] = { "zero1", "zero", "zero3", "zero2" };
    Tries t = { .arena = o->arena };
    int inside = c->nlevel && c->level[0].fanout ? c->level[0].fanout : ranks;
    int least = o->micro ? (int)o->micro : 1;
    int most = o->micro ? least : large ? 1 : MICRO;
    for (int micro = least; micro <= most; micro *= 2) {
        sizes_add(&t, o, ranks, inside, micro, large);
        try_add(&t, micro, "ddp", NULL, NULL, NULL);
        if (ranks == 1)
            continue;
        for (int n = 2; n <= ranks && micro > 1 && !large; n++)
            if (ranks % n == 0)
                try_add(&t, micro, "pipeline", fmt(o->arena, "pp=%d", n), NULL,
                        NULL);
        for (int i = 0; i < COUNT(all); i++)
            if (!large || i == 0 || i == 2)
                try_add(&t, micro, all[i], NULL, NULL, NULL);
        if (ranks > inside && ranks % inside == 0)
            try_add(&t, micro, "hsdp", fmt(o->arena, "nodes=%d",
                                           ranks / inside), NULL, NULL);
        if (!large) {
            try_add(&t, micro, "hsdp", NULL, NULL, NULL);
            try_add(&t, micro, "replicate", NULL, NULL, NULL);
            if (micro == 1 && ranks == BLOCKS)
                try_add(&t, micro, "exact", NULL, NULL, NULL);
        }
    }
    return t;
}

double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

Timeline *roles_timed(Graph *const *role, int n, const Job *j)
{
    Job mine = *j;
    mine.scratch = j->keep;
    Timeline *t = alloc(j->keep, (size_t)n * sizeof *t);
    for (int i = 0; i < n; i++)
        t[i].g = role[i];
    clock_roles(t, n, &mine);
    return t;
}

void memory_price(const Graph *done, const Job *j, Priced *p)
{
    p->leaves = leaf_bytes(done);
    p->arena = done->sched->bytes[ARENA];
    p->io = done->sched->bytes[IO];
    p->fits = p->leaves + p->arena + p->io <= memory_limit(j);
}

int64_t memory_limit(const Job *j)
{
    const Plan *p = j->plan;
    bool stricter = p && p->recompute == RECOMPUTE_AUTO
        && p->bytes < j->cluster->memory;
    return stricter ? p->bytes : j->cluster->memory;
}

int64_t bytes_of(const Priced *p)
{
    return p->leaves + p->arena + p->io;
}

/* Of the role that computes longest, and of the one that holds most. */
void plan_price(const Options *o, const Graph *g, const char *from, Priced *p)
{
    Job job = job_open(o, p->plan);
    int n;
    job.start_from = from;
    Graph **done = run_roles(g, &job, &n);
    const Timeline *t = roles_timed(done, n, &job);
    p->spent = t[0].spent;
    p->fits = true, p->leaves = 0;
    for (int i = 0; i < n; i++) {
        Priced one = { .plan = NULL };
        memory_price(done[i], &job, &one);
        if (bytes_of(&one) > bytes_of(p))
            p->leaves = one.leaves, p->arena = one.arena, p->io = one.io;
        p->fits &= one.fits;
        if (t[i].spent.compute > p->spent.compute)
            p->spent = t[i].spent;
    }
}

const Graph *plan_entry(Graph *const *entry, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(entry[i]->entry, "train") == 0)
            return entry[i];
    return entry[0];
}

int plans_order(const void *a, const void *b)
{
    const Priced *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? 1 : -1;
    if (x->alone != y->alone)
        return x->alone ? 1 : -1;
    if (x->rough != y->rough)
        return x->rough ? 1 : -1;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    int64_t m = bytes_of(x), n = bytes_of(y);
    if (!x->fits && m != n)
        return (m > n) - (m < n);
    return (x->spent.step > y->spent.step) - (x->spent.step < y->spent.step);
}

/* Prices the best of those that were judged: they take the place of what was
 * thought of them.  What is thought not to fit is not worth it, but for the
 * nearest one. */
static void best_price(const Options *o, Work *w, Priced *p, uint32_t n)
{
    Try t[64];
    uint32_t k = 0;
    w->judge = false, w->wanted = true;
    while (k < w->most && k < COUNT(t) && k < n && !p[k].why && !p[k].alone
           && (p[k].fits || k == 0)) {
        t[k] = p[k].of;
        k++;
    }
    Priced *q = tries_run(o, w, t, k);
    memcpy(p, q, k * sizeof *p);
    w->wanted = false;
    tries_end(w);
}

/* Do two options of one partitioner come to the same on this model? */
static bool is_same(const Priced *a, const Priced *b)
{
    const Spent *s = &a->spent, *t = &b->spent;
    return !a->why && !b->why && !a->alone && !b->alone
        && strcmp(a->of.partitioner, b->of.partitioner) == 0
        && a->micro == b->micro && a->rough == b->rough
        && s->step == t->step && s->compute == t->compute
        && s->communicate == t->communicate && s->bytes == t->bytes
        && a->leaves == b->leaves && a->arena == b->arena && a->io == b->io;
}

/* Those that nobody could tell apart stand there once, by their first words. */
static uint32_t same_drop(Priced *p, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < kept && !is_same(&p[k], &p[i]))
            k++;
        if (k == kept)
            p[kept++] = p[i];
    }
    return kept;
}

/* Words of recomputation for the best: `none` for the quickest that fit, which
 * makes nothing twice; the least that lets it fit for those that do not and are
 * quicker. */
static Priced *words_price(const Options *o, Work *w, Priced *p, uint32_t *n)
{
    Tries t = { .arena = o->arena };
    const Priced *best = *n && !p[0].why && p[0].fits ? p : NULL;
    uint32_t had[2] = { 0, 0 };
    for (uint32_t i = 0; i < *n && !p[i].why && !p[i].rough; i++) {
        bool quicker = !best || p[i].spent.step < best->spent.step;
        if (had[p[i].fits]++ < BEST && (p[i].fits || quicker))
            try_add_word(&t, &p[i].of, p[i].fits ? "none" : "auto");
    }
    Priced *more = tries_run(o, w, t.at, t.n);
    Priced *all = alloc(o->arena, (*n + t.n + 1) * sizeof *all);
    memcpy(all, p, *n * sizeof *all);
    memcpy(all + *n, more, t.n * sizeof *all);
    *n += t.n;
    qsort(all, *n, sizeof *all, plans_order);
    return all;
}

Priced *plans_auto(const Options *o, Graph *const *entry, int nentry,
                   uint32_t *n)
{
    if (o->set.n)
        usage("-P %s: auto sets the options of those it tries itself",
              o->set.at[0]);
    Work w = { .entry = entry, .nentry = nentry };
    const Cluster *c = cluster_read(o->home, o->cluster, o->arena);
    uint32_t nodes = plan_entry(entry, nentry)->n;
    Tries t = tries_of(o, c, ranks_wanted(o), nodes > LARGE);
    w.judge = t.n > 2 && (double)nodes * t.n > NODES;
    w.most = !w.judge ? 0 : NODES / nodes > 2 ? NODES / nodes : 2;
    w.begun = work_begin(o, &w);
    Priced *p = tries_run(o, &w, t.at, t.n);
    t.n = same_drop(p, t.n);
    qsort(p, t.n, sizeof *p, plans_order);
    if (w.judge) {
        best_price(o, &w, p, t.n);
        qsort(p, t.n, sizeof *p, plans_order);
    }
    *n = t.n;
    if (!o->recompute && nodes <= LARGE) {
        p = words_price(o, &w, p, n);
        *n = same_drop(p, *n);
    }
    return p;
}

void plans_print(const Priced *p, uint32_t n, FILE *out)
{
    fprintf(out, "%-26s %5s %10s %9s %9s %9s %9s %9s\n", "plan", "micro",
            "step ms", "compute", "send", "exposed", "leaf MiB", "arena MiB");
    for (uint32_t i = 0; i < n; i++) {
        const Spent *s = &p[i].spent;
        fprintf(out, "%-26s %5d ", p[i].name, p[i].micro);
        if (p[i].why)
            fprintf(out, "refused: %s\n", p[i].why);
        else if (p[i].alone)
            fprintf(out, "%10s %9s %9s %9s %s%9.1f %9s  leaves alone do not "
                    "fit\n", "-", "-", "-", "-", p[i].rough ? "> " : "",
                    mib(p[i].leaves), "-");
        else
            fprintf(out, "%s%10.3f %9.3f %9.3f %9.3f %9.1f %9.1f%s\n",
                    p[i].rough ? "~" : "", 1e3 * s->step, 1e3 * s->compute,
                    1e3 * s->communicate, 1e3 * spent_exposed(s),
                    mib(p[i].leaves), mib(p[i].arena),
                    p[i].fits ? "" : "  does not fit");
    }
}

/* ---- nothing fits ---- */

/* Ways out, as helps. */
static const char *ways_text(const Options *o, const Priced *p,
                             Graph *const *entry, int nentry)
{
    Options mine = *o;
    if (!p->of.partitioner && !o->plan && !o->exact)
        return "help: fewer samples a rank, --recompute full, more ranks, or "
               "more memory";
    mine.partitioner = p->of.partitioner, mine.set = p->of.set;
    mine.micro = p->of.micro;
    const Plan *plan = try_plan(o, &p->of, entry, nentry);
    Job j = job_open(&mine, plan);
    return fit_help(&mine, plan, plan_entry(entry, nentry)->entry,
                    bytes_of(p), memory_limit(&j));
}

const Priced *plans_best(const Options *o, Priced *p, uint32_t n,
                         Graph *const *entry, int nentry)
{
    if (n && !p[0].why && p[0].fits && !p[0].rough) {
        if (!p[0].plan)
            p[0].plan = try_plan(o, &p[0].of, entry, nentry);
        return p;
    }
    if (!n || p[0].why)
        err_code(4, o->file[0], "no partitioner has a plan for %d ranks: %s",
                 ranks_wanted(o), n ? p[0].why : "none was tried");
    Str near = { .arena = o->arena };
    for (uint32_t i = 0; i < n && i < 3 && !p[i].why
         && (i == 0 || !p[i].alone); i++)
        str_add(&near, "%s%s --micro %d: %.1f MiB", i ? "; " : "", p[i].name,
                p[i].micro, mib(bytes_of(&p[i])));
    err_code(3, o->file[0], "no plan fits the memory of a rank; nearest: %s\n%s",
             near.p, ways_text(o, p, entry, nentry));
}
