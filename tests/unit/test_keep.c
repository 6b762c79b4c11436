/* test_keep.c -- what waits and what is made again, beside brute force. */
#include "passes/recompute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static Arena *arena;
static uint64_t lot;

static uint32_t draw(uint32_t n)
{
    lot = lot * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(lot >> 33) % n;
}

static void list_put(uint32_t **list, uint32_t *n, uint32_t v)
{
    for (uint32_t i = 0; i < *n; i++)
        if ((*list)[i] == v)
            return;
    if (!*list)
        *list = alloc(arena, 64 * sizeof **list);
    (*list)[(*n)++] = v;
}

/* n values; each is made of up to three earlier ones, and read by backward
 * in about the opposite order. */
static Question random_question(uint32_t n)
{
    Question q = { .arena = arena, .n = n, .nmoment = 2 * n };
    q.value = alloc(arena, n * sizeof *q.value);
    q.moment = alloc(arena, 2 * n * sizeof *q.moment);
    for (uint32_t v = 0; v < n; v++) {
        Value *x = &q.value[v];
        Moment *m = &q.moment[v], *b = &q.moment[2 * n - 1 - v];
        *x = (Value){ .bytes = 1 + draw(9), .cost = 1 + draw(9), .twin = v,
                      .waits = draw(10) == 0 };
        *m = (Moment){ .other = draw(4), .before = draw(3) };
        *b = (Moment){ .other = draw(6), .before = draw(3), .late = true };
        list_put(&m->made, &m->nmade, v);
        for (uint32_t i = draw(4); v && i > 0; i--)
            list_put(&x->in, &x->nin, draw(2) ? v - 1 : draw(v));
        for (uint32_t i = 0; i < x->nin; i++)
            list_put(&m->read, &m->nread, x->in[i]);
        for (uint32_t i = draw(3); i > 0; i--)
            list_put(&b->read, &b->nread, draw(3) ? v : draw(n));
    }
    return q;
}

/* A chain: each value made of the one before, and read with it. */
static Question chain(uint32_t n)
{
    Question q = { .arena = arena, .n = n, .nmoment = 2 * n };
    q.value = alloc(arena, n * sizeof *q.value);
    q.moment = alloc(arena, 2 * n * sizeof *q.moment);
    for (uint32_t v = 0; v < n; v++) {
        Moment *m = &q.moment[v], *b = &q.moment[2 * n - 1 - v];
        q.value[v] = (Value){ .bytes = 1 + draw(9), .cost = 1 + draw(9),
                              .twin = v };
        b->late = true;
        list_put(&m->made, &m->nmade, v);
        list_put(&b->read, &b->nread, v);
        if (!v)
            continue;
        list_put(&q.value[v].in, &q.value[v].nin, v - 1);
        list_put(&m->read, &m->nread, v - 1);
        list_put(&b->read, &b->nread, v - 1);
    }
    return q;
}

/* ---- the same by brute force, step by step ---- */

enum { MOST = 64 };

typedef struct Event { int64_t other; int make; bool again; int n;
                       uint32_t read[MOST]; bool old[MOST]; } Event;

static Event event[4 * MOST];
static int nevent;
static bool have[MOST];

static void make(const Question *q, unsigned keep, uint32_t v, int64_t before)
{
    const Value *x = &q->value[v];
    if (x->waits || keep >> v & 1 || have[v])
        return;
    for (uint32_t i = 0; i < x->nin; i++)
        make(q, keep, x->in[i], before);
    Event *e = &event[nevent++];
    *e = (Event){ .other = before, .make = (int)v, .again = true };
    for (uint32_t i = 0; i < x->nin; i++) {
        e->read[e->n] = x->in[i];
        e->old[e->n++] = q->value[x->in[i]].waits || keep >> x->in[i] & 1;
    }
    have[v] = true;
}

/* Does an event after k read that one of the two? */
static bool wanted(int k, uint32_t v, bool old)
{
    for (int i = k; i < nevent; i++)
        for (int r = 0; r < event[i].n; r++)
            if (event[i].read[r] == v && event[i].old[r] == old)
                return true;
    return false;
}

static double play(const Question *q, unsigned keep, int64_t *peak)
{
    double cost = 0;
    nevent = 0, *peak = 0;
    memset(have, 0, sizeof have);
    for (uint32_t k = 0; k < q->nmoment; k++) {
        const Moment *m = &q->moment[k];
        for (uint32_t i = 0; m->late && i < m->nread; i++)
            make(q, keep, m->read[i], m->before);
        Event *e = &event[nevent++];
        *e = (Event){ .other = m->other,
                      .make = m->nmade ? (int)*m->made : -1 };
        for (uint32_t i = 0; i < m->nread; i++) {
            uint32_t v = m->read[i];
            e->read[e->n] = v;
            e->old[e->n++] = !m->late || q->value[v].waits || keep >> v & 1;
        }
    }
    bool there[2][MOST] = {0};
    for (int k = 0; k < nevent; k++) {
        int64_t sum = event[k].other;
        if (event[k].make >= 0)
            there[!event[k].again][event[k].make] = true;
        cost += event[k].again ? q->value[event[k].make].cost : 0;
        for (uint32_t v = 0; v < q->n; v++)
            for (int old = 0; old < 2; old++) {
                bool new = event[k].make == (int)v && event[k].again == !old;
                if (there[old][v] && (new || wanted(k, v, old)))
                    sum += q->value[v].bytes;
            }
        *peak = sum > *peak ? sum : *peak;
    }
    return cost;
}

/* Fewest seconds below the limit, -1: none; the lowest peak. */
static double brute(const Question *q, int64_t limit, int64_t *lowest)
{
    double least = -1;
    *lowest = INT64_MAX;
    for (unsigned keep = 0; keep < 1u << q->n; keep++) {
        int64_t peak;
        double cost = play(q, keep, &peak);
        *lowest = peak < *lowest ? peak : *lowest;
        if (peak <= limit && (least < 0 || cost < least))
            least = cost;
    }
    return least;
}

static void agrees(const Question *q)
{
    int64_t all, lowest;
    play(q, ~0u, &all);
    int64_t limit = all / 3 + draw((uint32_t)all);
    double least = brute(q, limit, &lowest);
    Chosen c = recompute_choose(q, limit);
    unsigned keep = 0;
    int64_t peak;
    for (uint32_t v = 0; v < q->n; v++)
        keep |= (unsigned)c.keep[v] << v;
    assert_true(c.exact);
    assert_int_equal(c.fits, least >= 0);
    assert_true(recompute_least(q, limit) <= (least < 0 ? 1e9 : least));
    double cost = play(q, keep, &peak);
    assert_int_equal(peak, c.answer.peak);
    assert_true(cost == c.answer.cost);
    if (c.fits)
        assert_true(c.answer.cost == least && peak <= limit);
}

static void five_hundred_random_graphs_as_brute_force(void **state)
{
    (void)state;
    lot = 1;
    for (int i = 0; i < 500; i++) {
        Question q = random_question(2 + draw(11));
        agrees(&q);
    }
}

static void chains_as_brute_force(void **state)
{
    (void)state;
    lot = 2;
    for (int i = 0; i < 50; i++) {
        Question q = chain(2 + draw(10));
        agrees(&q);
    }
}

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_hundred_random_graphs_as_brute_force),
        cmocka_unit_test(chains_as_brute_force),
    };
    return cmocka_run_group_tests_name("keep", tests, setup, teardown);
}
