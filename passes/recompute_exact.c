/* recompute_exact.c -- branch and bound, and what no choice is below.
 *
 * Values are decided one by one, those that weigh most first.  A branch is
 * left when what is decided costs too much already, or too much has to live:
 * at a late moment what it reads, and what will wait for a later one.  Below
 * the last decision the choice is tried.
 *
 * The bound for large questions looks at one late moment.  Of the values that
 * later ones read each either lives at that moment or is made again after
 * it; those that live must fit the limit.  Dropping the cheapest seconds a
 * byte first, the last one in part, is the least that this knapsack takes
 * (Dantzig, "Discrete-variable extremum problems", 1957). */
#include "passes/recompute.h"
#include <stdlib.h>

typedef enum Fate { OPEN, WAITS, GONE } Fate;

typedef struct Branch {
    const Question *q;
    Trial *trial;
    int64_t limit;
    uint32_t *order, left;                /* values; branches to go */
    uint8_t *fate;                        /* by value */
    bool *keep, *counted;
    uint32_t *last;                       /* by value: last late moment that */
    Chosen *best;                         /* reads it, + 1 */
    int64_t *living;                      /* by late moment: bytes of what */
    int64_t *more;                        /* lives there whatever is still
                                             open; by value, then moment: what
                                             it adds to that when it waits */
} Branch;

/* ---- the bounds of a branch ---- */

/* Seconds of v, which is gone, and of what is gone that it is made of. */
static double made_again(Branch *b, uint32_t v)
{
    const Value *x = &b->q->value[v];
    if (b->fate[v] != GONE || b->counted[v])
        return 0;
    b->counted[v] = true;
    double sum = x->cost;
    for (uint32_t i = 0; i < x->nin; i++)
        sum += made_again(b, x->in[i]);
    return sum;
}

static double seconds(Branch *b)
{
    double sum = 0;
    memset(b->counted, 0, b->q->n);
    for (uint32_t v = 0; v < b->q->n; v++)
        if (b->last[v])
            sum += made_again(b, v);
    return sum;
}

/* What a late moment reads lives there; so does what waits for a later one. */
static void living_count(Branch *b)
{
    const Question *q = b->q;
    b->living = alloc(q->arena, (q->nmoment + 1) * sizeof *b->living);
    b->more = alloc(q->arena, ((size_t)q->n * q->nmoment + 1)
                    * sizeof *b->more);
    for (uint32_t k = 0; k < q->nmoment; k++) {
        const Moment *m = &q->moment[k];
        b->living[k] = m->other;
        for (uint32_t v = 0; m->late && v < q->n; v++)
            if (b->last[v] > k + 1)
                b->more[v * q->nmoment + k] = q->value[v].bytes;
        for (uint32_t i = 0; m->late && i < m->nread; i++) {
            uint32_t v = m->read[i];
            b->living[k] += q->value[v].bytes;
            if (b->last[v] > k + 1)
                b->more[v * q->nmoment + k] -= q->value[v].bytes;
        }
    }
}

static void wait_or_not(Branch *b, uint32_t v, Fate f)
{
    const int64_t *more = &b->more[v * b->q->nmoment];
    int sign = (f == WAITS) - (b->fate[v] == WAITS);
    b->fate[v] = (uint8_t)f;
    for (uint32_t k = 0; sign && k < b->q->nmoment; k++)
        b->living[k] += sign * more[k];
}

static bool hopeless(Branch *b)
{
    if (b->best->fits && seconds(b) >= b->best->answer.cost)
        return true;
    for (uint32_t k = 0; k < b->q->nmoment; k++)
        if (b->q->moment[k].late && b->living[k] > b->limit)
            return true;
    return false;
}

/* ---- branches ---- */

static void try_whole(Branch *b)
{
    Chosen *c = b->best;
    for (uint32_t v = 0; v < b->q->n; v++)
        b->keep[v] = b->fate[v] != GONE;
    Answer a = trial_run(b->trial, b->keep, b->limit);
    if (a.peak > b->limit || (c->fits && a.cost >= c->answer.cost))
        return;
    memcpy(c->keep, b->keep, b->q->n);
    c->answer = a;
    c->fits = true;
}

static void decide(Branch *b, uint32_t depth)
{
    if (!b->left || hopeless(b))
        return;
    b->left--;
    if (depth == b->q->n) {
        try_whole(b);
        return;
    }
    uint32_t v = b->order[depth];
    for (Fate f = WAITS; f <= (b->q->value[v].waits ? WAITS : GONE); f++) {
        wait_or_not(b, v, f);
        decide(b, depth + 1);
    }
    wait_or_not(b, v, OPEN);
}

static uint32_t *last_late(const Question *q)
{
    uint32_t *last = alloc(q->arena, (q->n + 1) * sizeof *last);
    for (uint32_t k = 0; k < q->nmoment; k++)
        for (uint32_t i = 0; q->moment[k].late && i < q->moment[k].nread; i++)
            last[q->moment[k].read[i]] = k + 1;
    return last;
}

typedef struct Rank { double weight; uint32_t value; } Rank;

static int heavier(const void *a, const void *b)
{
    const Rank *x = a, *y = b;
    if (x->weight != y->weight)
        return (x->weight < y->weight) - (x->weight > y->weight);
    return (x->value > y->value) - (x->value < y->value);
}

static uint32_t *by_bytes(const Question *q)
{
    uint32_t *order = alloc(q->arena, (q->n + 1) * sizeof *order);
    Rank *rank = alloc(q->arena, (q->n + 1) * sizeof *rank);
    for (uint32_t v = 0; v < q->n; v++)
        rank[v] = (Rank){ (double)q->value[v].bytes, v };
    qsort(rank, q->n, sizeof *rank, heavier);
    for (uint32_t i = 0; i < q->n; i++)
        order[i] = rank[i].value;
    return order;
}

void recompute_exact(const Question *q, int64_t limit, Chosen *c,
                     uint32_t branches)
{
    Branch b = { .q = q, .trial = trial_new(q), .limit = limit, .best = c,
                 .left = branches, .order = by_bytes(q),
                 .last = last_late(q) };
    b.fate = alloc(q->arena, q->n + 1);
    b.keep = alloc(q->arena, q->n + 1);
    b.counted = alloc(q->arena, q->n + 1);
    living_count(&b);
    decide(&b, 0);
    c->exact = b.left > 0;
    if (c->exact && c->fits)
        c->least = c->answer.cost;
}

/* ---- the bound of a large question ---- */

/* At late moment k: values that it does not read, but later ones do. */
static double least_at(const Question *q, const uint32_t *last, uint32_t k,
                       int64_t limit, Rank *rank)
{
    const Moment *m = &q->moment[k];
    int64_t over = m->other - limit;
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nread; i++)
        over += q->value[m->read[i]].bytes;
    for (uint32_t v = 0; v < q->n; v++) {
        const Value *x = &q->value[v];
        bool reads = false;
        for (uint32_t i = 0; i < m->nread; i++)
            reads |= m->read[i] == v;
        if (reads || last[v] <= k + 1)
            continue;
        over += x->bytes;
        if (!x->waits && x->bytes)
            rank[n++] = (Rank){ -x->cost / (double)x->bytes, v };
    }
    qsort(rank, n, sizeof *rank, heavier);
    for (uint32_t i = 0; i < n && over > 0; i++) {
        const Value *x = &q->value[rank[i].value];
        double part = over < x->bytes ? (double)over / (double)x->bytes : 1;
        sum += part * x->cost;
        over -= x->bytes;
    }
    return sum;
}

double recompute_least(const Question *q, int64_t limit)
{
    const uint32_t *last = last_late(q);
    Rank *rank = alloc(q->arena, (q->n + 1) * sizeof *rank);
    double most = 0;
    for (uint32_t k = 0; k < q->nmoment; k++) {
        double s = q->moment[k].late ? least_at(q, last, k, limit, rank) : 0;
        most = s > most ? s : most;
    }
    return most;
}
