/* plan_auto.c -- the partitioner "auto": shipped ones, tried and priced.
 *
 * Every shipped partitioner with every size of its own axis and, where the
 * command line leaves them free, some numbers of micro-batches.  Each plan
 * goes through all passes; the clock walks the schedule that comes out, with
 * the cluster's rates and links, and its memory is what `memory` placed.  The
 * quickest that fits wins, so auto is never slower, by that clock, than the
 * best of those it tries.  A partitioner that refuses is a row of the table
 * with its reason. */
#include "compiler/planning.h"
#include <stdlib.h>

enum { MICRO = 4 };                       /* most micro-batches tried */

typedef struct Try { const char *partitioner; List set; int micro; } Try;

typedef struct Tries { Try *at; uint32_t n, cap; Arena *arena; } Tries;

static void try_add(Tries *t, const char *partitioner, const char *set,
                    int micro)
{
    GROW(t->arena, t->at, t->n, t->cap);
    Try *x = &t->at[t->n++];
    *x = (Try){ .partitioner = partitioner, .micro = micro };
    if (set)
        x->set.at[x->set.n++] = set;
}

static Tries tries_of(const Options *o, int ranks)
{
    Tries t = { .arena = o->arena };
    int most = o->micro ? (int)o->micro : MICRO;
    for (int micro = o->micro ? most : 1; micro <= most; micro *= 2) {
        try_add(&t, "ddp", NULL, micro);
        for (int n = 2; n <= ranks; n++)
            if (ranks % n == 0)
                try_add(&t, "megatron", fmt(o->arena, "tp=%d", n), micro);
        if (ranks == 1)
            continue;
        for (int n = 2; n <= ranks && micro > 1; n++)
            if (ranks % n == 0)
                try_add(&t, "pipeline", fmt(o->arena, "pp=%d", n), micro);
        try_add(&t, "zero", NULL, micro);
        try_add(&t, "zero", "gather=use", micro);
    }
    return t;
}

double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Bytes of params and states of a rank. */
static int64_t leaf_bytes(const Graph *g)
{
    int64_t n = 0;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_param || g->node[r].op == OP_state)
            n += type_bytes(&g->mesh, &g->node[r].type);
    return n;
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

static int64_t memory_all(const Priced *p)
{
    return p->leaves + p->arena + p->io;
}

/* Of the role that computes longest, and of the one that holds most. */
void plan_price(const Options *o, const Graph *g, Priced *p)
{
    Job job = job_open(o, p->plan);
    int n;
    Graph **done = run_roles(g, &job, &n);
    const Timeline *t = roles_timed(done, n, &job);
    p->spent = t[0].spent;
    p->fits = true;
    for (int i = 0; i < n; i++) {
        Priced one = { .plan = NULL };
        memory_price(done[i], &job, &one);
        if (memory_all(&one) > memory_all(p))
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

static Priced try_price(const Options *o, const Try *t, Graph *const *entry,
                        int n)
{
    Options mine = *o;
    mine.partitioner = t->partitioner, mine.set = t->set;
    mine.micro = t->micro, mine.plan = NULL, mine.exact = false;
    Priced p = { .name = fmt(o->arena, "%s%s%s", t->partitioner,
                             t->set.n ? " -P " : "",
                             t->set.n ? t->set.at[0] : ""),
                 .micro = t->micro };
    ErrTrap trap;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        p.plan = plan_open(&mine, entry, n);
        plan_price(&mine, plan_entry(entry, n), &p);
        err_pop();
    } else
        p.why = fmt(o->arena, "%.*s", (int)strcspn(trap.text, "\n"),
                    trap.text);
    return p;
}

static int by_step(const void *a, const void *b)
{
    const Priced *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? 1 : -1;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    int64_t m = x->leaves + x->arena + x->io, n = y->leaves + y->arena + y->io;
    if (!x->fits && m != n)
        return (m > n) - (m < n);
    return (x->spent.step > y->spent.step) - (x->spent.step < y->spent.step);
}

Priced *plans_auto(const Options *o, Graph *const *entry, int nentry,
                   uint32_t *n)
{
    if (o->set.n)
        usage("-P %s: auto sets the options of those it tries itself",
              o->set.at[0]);
    Tries t = tries_of(o, ranks_wanted(o));
    Priced *p = alloc(o->arena, t.n * sizeof *p);
    for (uint32_t i = 0; i < t.n; i++)
        p[i] = try_price(o, &t.at[i], entry, nentry);
    qsort(p, t.n, sizeof *p, by_step);
    *n = t.n;
    return p;
}

void plans_print(const Priced *p, uint32_t n, FILE *out)
{
    fprintf(out, "%-22s %5s %10s %9s %9s %9s %9s %9s\n", "plan", "micro",
            "step ms", "compute", "send", "exposed", "leaf MiB", "arena MiB");
    for (uint32_t i = 0; i < n; i++) {
        const Spent *s = &p[i].spent;
        fprintf(out, "%-22s %5d ", p[i].name, p[i].micro);
        if (p[i].why)
            fprintf(out, "refused: %s\n", p[i].why);
        else
            fprintf(out, "%10.3f %9.3f %9.3f %9.3f %9.1f %9.1f%s\n",
                    1e3 * s->step, 1e3 * s->compute, 1e3 * s->communicate,
                    1e3 * spent_exposed(s), mib(p[i].leaves), mib(p[i].arena),
                    p[i].fits ? "" : "  does not fit");
    }
}

/* Exit 3: what comes nearest, and 4: nobody has a plan at all. */
const Priced *plans_best(const Options *o, const Priced *p, uint32_t n)
{
    if (n && !p[0].why && p[0].fits)
        return p;
    if (!n || p[0].why)
        err_code(4, o->file[0], "no partitioner has a plan for %lld ranks: %s",
                 (long long)o->ranks, n ? p[0].why : "none was tried");
    Str near = { .arena = o->arena };
    for (uint32_t i = 0; i < n && i < 3 && !p[i].why; i++)
        str_add(&near, "%s%s --micro %d: %.0f MiB", i ? "; " : "", p[i].name,
                p[i].micro, mib(p[i].leaves + p[i].arena + p[i].io));
    err_code(3, o->file[0], "no plan fits the memory of a rank; nearest: %s",
             near.p);
}
