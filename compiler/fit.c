/* fit.c -- what to do about a model that does not fit a rank.
 *
 * Where the plan says offload = "auto", more and more goes to the host's
 * memory until it fits.  Where it does not, other plans of the same model are
 * tried: blocks made again, more turns, leaves and activations in the host's
 * memory, weights in parts over more ranks, products in bf16.  Those that fit
 * are named by the seconds of ranks that a step of them takes; where few fit,
 * the ones that come nearest. */
#include "compiler/planning.h"
#include "passes/offload.h"
#include <stdlib.h>

enum { WAYS = 3 };

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

typedef struct Way {
    const char *text;
    Options options;
    double cost;                          /* seconds of all ranks */
    int64_t bytes;
    bool fits;
} Way;

typedef struct Ways { Way at[16]; int n; } Ways;

static void add(Ways *w, const Options *o, int micro, int ranks,
                const char *partitioner, const char *dtype)
{
    Way *x = &w->at[w->n];
    x->options = *o;
    Str s = { .arena = o->arena };
    str_add(&s, o->plan && !partitioner ? "recompute = \"%s\" in the plan"
            : "--recompute %s", o->recompute);
    if (micro > 1) {
        x->options.micro = micro;
        str_add(&s, " --micro %d", micro);
    }
    if (partitioner) {
        x->options.ranks = ranks, x->options.plan = NULL;
        x->options.partitioner = partitioner, x->options.exact = false;
        str_add(&s, " --ranks %d --partitioner %s", ranks, partitioner);
    }
    if (dtype) {
        x->options.dtype = dtype;
        str_add(&s, " --dtype %s", dtype);
    }
    x->text = s.p;
    w->n++;
}

/* What moves more than the plan has moved. */
static void add_moves(Ways *w, const Options *o, const Plan *p)
{
    for (int i = COUNT(moves) - 1; i > 0; i--) {
        if (p->offload && strcmp(p->offload, moves[i]) == 0)
            return;
        w->at[w->n].options = *o;
        w->at[w->n].options.offload = moves[i];
        w->at[w->n++].text = fmt(o->arena, "--offload %s", moves[i]);
    }
}

static void price(Way *w, Graph *const *entry, int n)
{
    ErrTrap trap;
    w->bytes = INT64_MAX;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        Options o = w->options;
        o.recompute = NULL;               /* a plan file's own may differ */
        Priced p = { .plan = plan_open(&o, entry, n) };
        if (w->options.recompute)
            recompute_read(o.arena, w->options.recompute, p.plan);
        plan_price(&w->options, plan_entry(entry, n), NULL, &p);
        w->bytes = p.leaves + p.arena + p.io;
        w->fits = p.fits;
        w->cost = p.spent.step * plan_ranks(p.plan);
        err_pop();
    }
}

static int better(const void *a, const void *b)
{
    const Way *x = a, *y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    return x->fits ? (x->cost > y->cost) - (x->cost < y->cost)
         : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

char *fit_help(const Options *o, const Plan *p, int64_t limit)
{
    const Model *m = model_open(o);       /* passes have used up the first */
    Ways w = { .n = 0 };
    Options mine = *o;
    int ranks = plan_ranks(p), micro = o->micro ? (int)o->micro : 1;
    mine.offload = p->offload;            /* what "auto" came to */
    if (!p->offload || offload_says(p->offload, "states"))
        add_moves(&w, &mine, p);
    mine.recompute = fmt(o->arena, "auto:%lld", (long long)limit);
    if (p->recompute != RECOMPUTE_AUTO)
        add(&w, &mine, 0, 0, NULL, NULL);
    for (int k = 2; k <= 8 && !o->plan; k *= 2)
        add(&w, &mine, k * micro, 0, NULL, NULL);
    if (p->compute == F32 && !o->plan)
        add(&w, &mine, micro, 0, NULL, "bf16");
    for (int k = ranks > 1 ? 1 : 2; k <= 4 && k * ranks <= ranks_most(o);
         k *= 2)
        add(&w, &mine, micro, k * ranks, "zero3", NULL);
    for (int i = 0; i < w.n; i++)
        price(&w.at[i], m->entry, m->nentry);
    qsort(w.at, (size_t)w.n, sizeof *w.at, better);
    Str s = { .arena = o->arena };
    for (int i = 0; i < w.n && i < WAYS && w.at[i].bytes < INT64_MAX; i++)
        str_add(&s, "%shelp: %s: %.1f MiB a rank%s", i ? "\n" : "",
                w.at[i].text, mib(w.at[i].bytes),
                w.at[i].fits ? "" : ", the nearest that was found");
    return s.p ? s.p : "help: nothing that was tried comes near";
}
