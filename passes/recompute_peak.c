/* recompute_peak.c -- bytes and seconds of one choice of what waits.
 *
 * The moments are walked in order; before a late one what it lacks is made,
 * operands first, each value at most once.  That gives a row of operations,
 * and each instance of a value, the first and the one made again, lives from
 * the operation that makes it to the last that reads it. */
#include "passes/recompute.h"

enum { FIRST, AGAIN };

typedef struct Life { uint32_t from, to; } Life;

struct Trial {
    const Question *q;
    const bool *keep;
    Life *life[2];                        /* by value: FIRST, AGAIN */
    bool *made;                           /* by value: again, by now */
    int64_t *other, *change;              /* by operation */
    uint32_t nop;
    double cost;
};

Trial *trial_new(const Question *q)
{
    Trial *t = alloc(q->arena, sizeof *t);
    size_t most = (size_t)q->n + q->nmoment + 2;
    t->q = q;
    for (int i = 0; i < 2; i++)
        t->life[i] = alloc(q->arena, (q->n + 1) * sizeof *t->life[i]);
    t->made = alloc(q->arena, q->n + 1);
    t->other = alloc(q->arena, most * sizeof *t->other);
    t->change = alloc(q->arena, most * sizeof *t->change);
    return t;
}

static void read_late(Trial *t, uint32_t v)
{
    bool first = t->keep[v] || t->q->value[v].waits;
    t->life[first ? FIRST : AGAIN][v].to = t->nop;
}

/* Makes what is lacking, and all that it is made of. */
static void provide(Trial *t, uint32_t v, const Moment *m)
{
    const Value *x = &t->q->value[v];
    if (x->waits || t->keep[v] || t->made[v])
        return;
    for (uint32_t i = 0; i < x->nin; i++)
        provide(t, x->in[i], m);
    for (uint32_t i = 0; i < x->nin; i++)
        read_late(t, x->in[i]);
    t->made[v] = true;
    t->life[AGAIN][v] = (Life){ t->nop, t->nop };
    t->cost += x->cost;
    t->other[t->nop++] = m->before;
}

static void walk(Trial *t)
{
    const Question *q = t->q;
    for (uint32_t k = 0; k < q->nmoment; k++) {
        const Moment *m = &q->moment[k];
        for (uint32_t i = 0; m->late && i < m->nread; i++)
            provide(t, m->read[i], m);
        for (uint32_t i = 0; i < m->nmade; i++)
            t->life[FIRST][m->made[i]] = (Life){ t->nop, t->nop };
        for (uint32_t i = 0; i < m->nread; i++)
            if (m->late)
                read_late(t, m->read[i]);
            else
                t->life[FIRST][m->read[i]].to = t->nop;
        t->other[t->nop++] = m->other;
    }
}

Answer trial_run(Trial *t, const bool *keep, int64_t limit)
{
    const Question *q = t->q;
    Answer a = { 0 };
    t->keep = keep, t->nop = 0, t->cost = 0;
    memset(t->made, 0, q->n);
    walk(t);
    memset(t->change, 0, (t->nop + 1) * sizeof *t->change);
    for (uint32_t v = 0; v < q->n; v++)
        for (int i = FIRST; i <= (t->made[v] ? AGAIN : FIRST); i++) {
            t->change[t->life[i][v].from] += q->value[v].bytes;
            t->change[t->life[i][v].to + 1] -= q->value[v].bytes;
        }
    int64_t live = 0;
    for (uint32_t k = 0; k < t->nop; k++) {
        live += t->change[k];
        int64_t all = live + t->other[k];
        a.peak = all > a.peak ? all : a.peak;
        a.excess += all > limit ? (double)(all - limit) : 0;
    }
    a.cost = t->cost;
    return a;
}
