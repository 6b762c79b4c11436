/* test_stage.c -- pipelines: their orders, and the schedules that come out.
 *
 * The bubbles of 1F1B, interleaved and ZB-H1 are known where all stages cost
 * alike: (p-1)/(m+p-1), (p-1)/(vm+p-1), (p-1)/(3m+p-1) of a step on p roles
 * with m micro-batches and v stages a role.  They are looked for twice: in the
 * list of chunks, and on the clock that runs the emitted schedules of all
 * roles, with hops, streams and events.  There a gradient of data is sent as
 * soon as it is made, before those of its stage's weights are: 1F1B's bubble is
 * that of the formula where weights are frozen, and smaller where not. */
#include "compiler/lua.h"
#include "passes/chunk.h"
#include "passes/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char home[4096];
static Arena *arena;

static double formula(Pattern pattern, int p, int m, int v)
{
    double n = pattern == ZB_H1 ? 3 * m : pattern == INTERLEAVED ? v * m : m;
    return (p - 1) / (n + p - 1);
}

/* ---- orders ---- */

/* A row of p * v stages that cost alike, backward as much as forward. */
static Pipe row(int p, int m, int v, bool split)
{
    int n = p * v;
    int *role = alloc(arena, (size_t)n * sizeof *role);
    double *cost = alloc(arena, (size_t)n * NSEGMENT * sizeof *cost);
    uint8_t *feeds = alloc(arena, (size_t)n * (size_t)n);
    for (int s = 0; s < n; s++) {
        role[s] = s % p;
        cost[s * NSEGMENT] = cost[s * NSEGMENT + 1] = 1;
        cost[s * NSEGMENT + 2] = split ? 1 : -1;
        if (s + 1 < n) {
            feeds[s * n + s + 1] = FEEDS_FORWARD;
            feeds[(s + 1) * n + s] = FEEDS_BACKWARD;
        }
    }
    return (Pipe){ n, p, m, role, cost, feeds, 0 };
}

static void bubbles_are_the_formulas(void **state)
{
    (void)state;
    static const struct { Pattern pattern; int v; } kinds[] = {
        { GPIPE, 1 }, { ONE_F_ONE_B, 1 }, { INTERLEAVED, 2 },
        { INTERLEAVED, 3 }, { ZB_H1, 1 },
    };
    static const int sizes[][2] = { { 2, 4 }, { 4, 8 }, { 8, 32 }, { 3, 9 } };
    for (int k = 0; k < COUNT(kinds); k++)
        for (int i = 0; i < COUNT(sizes); i++) {
            int p = sizes[i][0], m = sizes[i][1], v = kinds[k].v;
            Pipe q = row(p, m, v, order_splits(kinds[k].pattern));
            Timetable t = pipe_order(&q, kinds[k].pattern, arena);
            assert_true(fabs(t.bubble - formula(kinds[k].pattern, p, m, v))
                        < 1e-9);
            if (v == 1)
                assert_int_equal(t.alive, kinds[k].pattern == GPIPE ? m : p);
        }
}

/* Any number of turns and roles: each chunk once, behind what it reads. */
static void orders_hold_every_chunk_in_its_turn(void **state)
{
    (void)state;
    int tried = 0;
    for (Pattern k = 0; k < GIVEN; k++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 7; m += 2)
                for (int v = 1; v <= 3; v++, tried++) {
                    Pipe q = row(p, m, v, order_splits(k));
                    Timetable t = pipe_order(&q, k, arena);
                    int done[3][16] = { 0 };
                    for (uint32_t i = 0; i < t.n; i++) {
                        const Chunk *c = &t.chunk[i];
                        int seg = (int)(c->segment - FORWARD);
                        assert_int_equal(done[seg][c->stage]++, c->turn);
                        if (!seg && c->stage)
                            assert_true(done[0][c->stage - 1] > c->turn);
                        if (seg)
                            assert_true(done[seg - 1][c->stage] > c->turn);
                        if (seg == 1 && c->stage + 1 < p * v)
                            assert_true(done[1][c->stage + 1] > c->turn);
                    }
                    assert_int_equal(t.n, (order_splits(k) ? 3 : 2) * p * v
                                     * m);
                }
    print_message("  %d orders\n", tried);
}

/* No more forwards ahead than it may, and never slower than those it tries. */
static void auto_keeps_its_limit(void **state)
{
    (void)state;
    double before = INFINITY;
    for (int alive = 2; alive <= 8; alive++) {
        Pipe q = row(4, 8, 1, true);
        q.alive = alive;
        Timetable t = pipe_order(&q, AUTO, arena);
        assert_true(t.alive <= alive && t.step <= before);
        before = t.step;
    }
    assert_true(before == 27);            /* 3m + p - 1 */
}

/* A frozen model's forward stands in no list: it runs in what would be
 * bubble, and the step is no longer. */
static void frozen_forward_fills_bubbles(void **state)
{
    (void)state;
    enum { P = 4, M = 8, N = P + 1 };
    Pipe q = row(P, M, 1, false);
    double plain = pipe_order(&q, ONE_F_ONE_B, arena).step;
    int role[N] = { 0, 1, 2, 3, 3 };
    double cost[N * NSEGMENT];
    uint8_t feeds[N * N] = { 0 };
    for (int s = 0; s < P; s++)
        for (int t = 0; t < P; t++)
            feeds[s * N + t] = q.feeds[s * P + t];
    memcpy(cost, q.cost, sizeof cost - NSEGMENT * sizeof *cost);
    cost[P * NSEGMENT] = 0.25;            /* of the last role, read by it */
    cost[P * NSEGMENT + 1] = cost[P * NSEGMENT + 2] = -1;
    feeds[P * N + P - 1] = FEEDS_FORWARD;
    Pipe w = { N, P, M, role, cost, feeds, 0 };
    Timetable t = pipe_order(&w, ONE_F_ONE_B, arena);
    assert_true(t.step == plain);
}

/* ---- emitted schedules ---- */

/* Only products take time: 1e9 flops a second. */
static Cluster products_only(void)
{
    Cluster c = *cluster_read(home, NULL, arena);
    c.rates.flops[F32] = 1e9, c.rates.bandwidth = 1e30;
    c.rates.launch = 1e-15, c.rates.work = 0;
    for (int i = 0; i < c.nlevel; i++)
        c.level[i].bandwidth = 1e30, c.level[i].latency = 1e-15;
    return c;
}

static Graph **roles_of(const char *model, ModelOptions *o, PlanOptions *q,
                        Job *j, int *n)
{
    o->home = q->home = home, q->file = "pipeline", q->compute = F32;
    Model *m = model_load(model, o, arena);
    j->keep = arena, j->target = target_find("host");
    j->plan = plan_partition(q, m->entry, m->nentry, arena);
    return run_roles(model_entry(m, "train"), j, n);
}

static double bubble(Pattern pattern, int p, int m, int v)
{
    bool weights = order_splits(pattern);
    const char *const define[] = { "layers=8", "width=256", "batch=4096",
                                   weights ? "weights=true"
                                           : "weights=false" };
    const char *set[] = { fmt(arena, "v=%d", v),
                          fmt(arena, "order=%s", pattern_names[pattern]) };
    ModelOptions o = { .define = define, .ndefine = 4 };
    PlanOptions q = { .ranks = p, .micro = m, .define = set, .ndefine = 2 };
    Cluster c = products_only();
    Job j = { .cluster = &c };
    int n;
    Graph **role = roles_of("tests/models/pipe.lua", &o, &q, &j, &n);
    Timeline *t = alloc(arena, (size_t)n * sizeof *t);
    j.scratch = arena;
    double work = 0;
    for (int i = 0; i < n; i++)
        t[i].g = role[i];
    double step = clock_roles(t, n, &j);
    for (int i = 0; i < n; i++)
        work += t[i].spent.compute;
    return 1 - work / (n * step);
}

static void schedules_have_those_bubbles(void **state)
{
    (void)state;
    static const struct { Pattern pattern; int v; } kinds[] = {
        { ONE_F_ONE_B, 1 }, { INTERLEAVED, 2 }, { ZB_H1, 1 },
    };
    for (int k = 0; k < COUNT(kinds); k++) {
        double have = bubble(kinds[k].pattern, 4, 8, kinds[k].v);
        double want = formula(kinds[k].pattern, 4, 8, kinds[k].v);
        print_message("  %s: bubble %.1f %%, by the formula %.1f %%\n",
                      pattern_names[kinds[k].pattern], 100 * have,
                      100 * want);
        assert_true(fabs(have - want) < 0.003);
    }
}

/* Has that role a launch of the same hops? */
static bool has_group(const Graph *g, const Graph *of, const Launch *l)
{
    for (uint32_t k = 0; k < g->sched->nlaunch; k++) {
        const Launch *q = &g->sched->launch[k];
        bool same = q->n == l->n;
        for (int i = 0; same && i < q->n; i++) {
            const Node *x = &g->node[q->node[i]], *y = &of->node[l->node[i]];
            same = x->attr.id == y->attr.id
                && (x->op == OP_recv || x->op == OP_send) && x->op != y->op;
        }
        if (same)
            return true;
    }
    return false;
}

/* What a chunk makes for the next role, a running sum and keys, or gradients
 * of both, goes there in one launch, and comes in one: of one latency. */
static void values_of_a_seam_go_at_once(void **state)
{
    (void)state;
    ModelOptions o = { 0 };
    PlanOptions q = { .ranks = 2, .micro = 2 };
    Cluster c = *cluster_read(home, NULL, arena);
    Job j = { .cluster = &c };
    int n, groups = 0;
    Graph **role = roles_of("tests/models/attn.lua", &o, &q, &j, &n);
    for (uint32_t k = 0; k < role[0]->sched->nlaunch; k++) {
        const Launch *l = &role[0]->sched->launch[k];
        if (launch_stream(role[0], l) != STREAM_HOP || l->n < 2)
            continue;
        assert_true(has_group(role[1], role[0], l));
        double each = 0, latency = hops_seconds(role[0], NULL, 0, &c);
        for (int i = 0; i < l->n; i++)
            each += transfer_seconds(role[0], l->node[i], &c);
        each -= (l->n - 1) * latency;
        assert_true(latency > 0);
        assert_true(fabs(launch_seconds(role[0], l, &j) / each - 1) < 1e-9);
        groups++;
    }
    assert_int_equal(groups, 2);
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
    if (!getcwd(home, sizeof home))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_the_formulas),
        cmocka_unit_test(orders_hold_every_chunk_in_its_turn),
        cmocka_unit_test(auto_keeps_its_limit),
        cmocka_unit_test(frozen_forward_fills_bubbles),
        cmocka_unit_test(schedules_have_those_bubbles),
        cmocka_unit_test(values_of_a_seam_go_at_once),
    };
    op_init();
    return cmocka_run_group_tests(tests, setup, teardown);
}
