/* recompute_fit.c -- what is made again, by the bytes that a binary takes.
 *
 * The question knows neither how kernels fuse with clones nor at which
 * offsets values come to lie.  So its answers are tried: the passes that are
 * left run on the graph with its clones, and the arena that they place is
 * what counts.  The question's limit moves until that meets the real one:
 * down while the arena is too large, up again while seconds may be saved. */
#include "passes/recompute_graph.h"

enum { TRIES = 7, BELOW = 16 };
enum { MANY = 1 << 14 };                  /* nodes: one answer is dear */

typedef struct Tried {
    Graph *g;                             /* NULL: none yet */
    int64_t arena, lower;                 /* lower: no arena is smaller */
    double cost;
} Tried;

typedef struct Held { int64_t leaves, arena, lower, io; } Held;

/* What a rank holds for this graph, by the passes after this one; enough: of
 * the arena, as a job has it. */
static Held held_by(const Graph *g, const Job *j, int64_t enough)
{
    Job mine = { .keep = arena_new(), .plan = j->plan, .target = j->target,
                 .cluster = j->cluster, .prices = j->prices,
                 .enough = enough };
    Held h = { 0 };
    const Graph *done = run_passes("layout,refold,fuse,bucket,spill,order,"
                                   "memory", g, &mine);
    h.arena = done->sched->bytes[ARENA], h.io = done->sched->bytes[IO];
    h.lower = done->sched->lower;
    h.leaves = leaf_bytes(g);
    arena_free(mine.keep);
    return h;
}

static Tried try_answer(const Asked *a, const Graph *g, const Chosen *c,
                        int64_t enough)
{
    Tried t = { .g = recompute_clone(a, g, c->keep),
                .cost = c->answer.cost };
    t.g->remade = t.cost;
    t.g->remade_least = c->exact && c->fits ? t.cost
                      : recompute_least(&a->q, c->answer.peak);
    Held h = held_by(t.g, a->job, enough);
    t.arena = h.arena, t.lower = h.lower;
    return t;
}

/* The lowest of two answers: what fits the question's lowest limit, and what a
 * limit below it brings down everywhere, since its peak need not be the
 * arena's.  By what is alive at the peak: how near to it an arena comes is
 * luck. */
Graph *recompute_full(Graph *g, Job *j)
{
    prices_of(j);                         /* one list for all trials */
    const Asked *a = recompute_ask(g, j);
    Chosen c = recompute_lowest(&a->q);
    Tried best = try_answer(a, g, &c, 1);
    if (g->n <= MANY) {
        c = recompute_choose(&a->q, c.answer.peak - c.answer.peak / BELOW);
        Tried t = try_answer(a, g, &c, 1);
        best = t.lower < best.lower ? t : best;
    }
    return best.lower < held_by(g, j, 1).lower ? best.g : g;
}

/* The cheapest below so many bytes of arena, from the question's limit at
 * which its own peak would be over by as much; the smallest, if none is. */
static Tried fit(const Asked *a, Graph *g, int64_t now, int64_t want)
{
    Tried best = { .g = g, .arena = now };
    double low = 0, high = (double)recompute_choose(&a->q, INT64_MAX)
        .answer.peak;
    double limit = high * (double)want / (double)now;
    bool nothing = false;                 /* the question has no such answer */
    for (int i = 0; i < TRIES; i++) {
        Chosen c = recompute_choose(&a->q, (int64_t)limit);
        if (!c.fits && nothing)
            break;
        nothing = !c.fits;
        Tried t = try_answer(a, g, &c, want);
        bool fits = t.arena <= want, had = best.arena <= want;
        if (fits && had ? t.cost < best.cost : t.arena < best.arena)
            best = t;
        if (fits)
            low = limit;
        else
            high = limit;
        double guess = limit * (double)want / (double)t.arena;
        limit = guess > low && guess < high && !fits ? guess
              : low > 0 ? (low + high) / 2 : limit * 0.9;
    }
    return best;
}

Graph *recompute_within(Graph *g, Job *j, int64_t bytes)
{
    prices_of(j);
    Held h = held_by(g, j, 0);
    int64_t want = bytes - h.leaves - h.io;
    if (h.arena <= want)
        return g;
    const Asked *a = recompute_ask(g, j);
    return fit(a, g, h.arena, want > 1 ? want : 1).g;
}
