/* recompute_search.c -- a choice of what waits, for questions of any size.
 *
 * From all waiting on: of all changes of one value's fate, and of all its
 * twins' at once, those that take most bytes over the limit away for each
 * second that they add, until none are over.  Bytes over are summed over all
 * operations, not looked at where they are most: so a change counts that
 * lowers one of two peaks.  Then each that is made again waits after all, the
 * dearest first, if that still fits and saves seconds.  Twins first: repeated
 * blocks are decided alike while that is enough, and looked at once.
 *
 * Small questions are then finished by branch and bound, and the seconds are
 * compared with what no answer is below: the gap is stated. */
#include "passes/recompute.h"
#include <stdlib.h>

enum { BRANCHES = 60000, SMALL = 24 };
enum { WORK = 300 << 20 };                /* operations walked in all */
enum { HALVES = 12 };                     /* steps towards the lowest limit */
enum { FEW = 8 };                         /* one in so many changes at once */

typedef struct Twins { uint32_t n, cap, *value; } Twins;

typedef struct Search {
    const Question *q;
    Trial *trial;
    int64_t limit, work;
    bool *keep;
    Answer now;
    Twins *twins;                         /* by number; then one by one; */
    uint32_t ntwins, npair;               /* then a value and one that it is */
} Search;                                 /* made of */

static void flip(Search *s, const Twins *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!s->q->value[t->value[i]].waits)
            s->keep[t->value[i]] ^= true;
}

static Answer ask(Search *s)
{
    s->work -= s->q->n + s->q->nmoment;
    return trial_run(s->trial, s->keep, s->limit);
}

/* Bytes over the limit, taken away, for a second; negative: not better. */
static double gain(const Answer *now, const Answer *then)
{
    double less = now->excess - then->excess, more = then->cost - now->cost;
    if (less <= 0)
        return -1;
    return more <= 0 ? 1e30 * (1 + less) : less / more;
}

typedef struct Gain { double gain; uint32_t set; } Gain;

static int more(const void *a, const void *b)
{
    const Gain *x = a, *y = b;
    if (x->gain != y->gain)
        return (x->gain < y->gain) - (x->gain > y->gain);
    return (x->set > y->set) - (x->set < y->set);
}

/* The change, if it still gains half of what it did. */
static bool take(Search *s, const Twins *set, double gained)
{
    flip(s, set);
    Answer a = ask(s);
    if (gain(&s->now, &a) >= gained / 2) {
        s->now = a;
        return true;
    }
    flip(s, set);
    return false;
}

/* The best changes of those sets, a few at a time; false: there is none. */
static bool improve(Search *s, const Twins *set, uint32_t n)
{
    Gain *all = alloc(s->q->arena, (n + 1) * sizeof *all);
    uint32_t some = 0;
    for (uint32_t i = 0; i < n && s->work > 0; i++) {
        if (!set[i].n)
            continue;
        flip(s, &set[i]);
        Answer a = ask(s);
        double g = gain(&s->now, &a);
        if (g > 0)
            all[some++] = (Gain){ g, i };
        flip(s, &set[i]);
    }
    qsort(all, some, sizeof *all, more);
    bool any = false;
    for (uint32_t i = 0; i < some && i <= some / FEW && s->now.excess > 0; i++)
        any |= take(s, &set[all[i].set], all[i].gain);
    return any;
}

typedef struct Dear { double cost; uint32_t value; } Dear;

static int dearer(const void *a, const void *b)
{
    const Dear *x = a, *y = b;
    if (x->cost != y->cost)
        return (x->cost < y->cost) - (x->cost > y->cost);
    return (x->value > y->value) - (x->value < y->value);
}

/* Take back what is not needed; twins by themselves. */
static void take_back(Search *s)
{
    Dear *dear = alloc(s->q->arena, (s->q->n + 1) * sizeof *dear);
    uint32_t n = 0;
    for (uint32_t v = 0; v < s->q->n; v++)
        if (!s->keep[v])
            dear[n++] = (Dear){ s->q->value[v].cost, v };
    qsort(dear, n, sizeof *dear, dearer);
    for (uint32_t i = 0; i < n && s->work > 0; i++) {
        s->keep[dear[i].value] = true;
        Answer a = ask(s);
        if (a.excess <= s->now.excess && a.cost < s->now.cost)
            s->now = a;
        else
            s->keep[dear[i].value] = false;
    }
}

static void add(const Search *s, Twins *t, uint32_t v)
{
    GROW(s->q->arena, t->value, t->n, t->cap);
    t->value[t->n++] = v;
}

static void find_twins(Search *s)
{
    const Question *q = s->q;
    for (uint32_t v = 0; v < q->n; v++)
        if (q->value[v].twin >= s->ntwins)
            s->ntwins = q->value[v].twin + 1;
    for (uint32_t v = 0; v < q->n; v++)
        s->npair += q->value[v].nin;
    s->twins = alloc(q->arena, (s->ntwins + q->n + s->npair + 1)
                     * sizeof *s->twins);
    Twins *pair = s->twins + s->ntwins + q->n;
    for (uint32_t v = 0; v < q->n; v++) {
        add(s, &s->twins[q->value[v].twin], v);
        add(s, &s->twins[s->ntwins + v], v);
        for (uint32_t i = 0; i < q->value[v].nin; i++, pair++)
            add(s, pair, v), add(s, pair, q->value[v].in[i]);
    }
}

static Search search_new(const Question *q, int64_t limit)
{
    Search s = { .q = q, .limit = limit, .work = WORK };
    s.trial = trial_new(q);
    s.keep = alloc(q->arena, q->n + 1);
    memset(s.keep, 1, q->n);
    find_twins(&s);
    s.now = ask(&s);
    return s;
}

Chosen recompute_choose(const Question *q, int64_t limit)
{
    Search s = search_new(q, limit);
    const Twins *one = s.twins + s.ntwins;
    while (s.now.excess > 0 && improve(&s, s.twins, s.ntwins))
        ;
    while (s.now.excess > 0 && (improve(&s, one, q->n)
                                || improve(&s, one + q->n, s.npair)))
        ;
    take_back(&s);
    Chosen c = { .keep = s.keep, .answer = s.now,
                 .fits = s.now.peak <= limit };
    if (q->n <= SMALL)
        recompute_exact(q, limit, &c, BRANCHES);
    if (!c.exact)
        c.least = recompute_least(q, limit);
    return c;
}

Chosen recompute_lowest(const Question *q)
{
    Chosen best = recompute_choose(q, INT64_MAX);
    int64_t low = 0, high = best.answer.peak;
    for (int i = 0; i < HALVES && low + 1 < high; i++) {
        int64_t limit = low + (high - low) / 2;
        Chosen c = recompute_choose(q, limit);
        if (c.fits)
            best = c, high = c.answer.peak;
        else
            low = limit;
    }
    return best;
}
