/* test_clock.c -- transfers behind computing: the decoder on two ranks, on a
 * network as slow as makes both last as long, by the compiler's own seconds
 * and the waits of the schedule (bench_overlap.c measures). */
#include "codegen/kernel.h"
#include "compiler/lua.h"
#include "passes/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char home[4096];

/* *least: that no order could undercut. */
static Spent step(const char *partitioner, int micro, double bandwidth,
                  double *least, int64_t *bytes, const char *set)
{
    Arena *a = arena_new();
    const char *const define[] = { "batch=64" };
    ModelOptions o = { .home = home, .define = define, .ndefine = 1 };
    Model *m = model_load("models/dalle2/decoder.lua", &o, a);
    PlanOptions p = { .home = home, .file = partitioner, .ranks = 2,
                      .micro = micro, .compute = F32,
                      .define = &set, .ndefine = set != NULL };
    Cluster c = *cluster_read(home, NULL, a);
    c.level[0].bandwidth = bandwidth;
    c.level[0].latency = 0;
    Job j = { .keep = a, .target = target_find("host"), .cluster = &c,
              .plan = plan_partition(&p, m->entry, m->nentry, a) };
    Graph *g = run_passes(NULL, model_entry(m, "train"), &j);
    double *takes = alloc(a, (g->sched->nstep + 1) * sizeof *takes);
    j.scratch = a;
    Spent s = clock_spent(g, &j, takes);
    *least = clock_least(g, takes, a);
    *bytes = g->sched->bytes[ARENA];
    arena_free(a);
    return s;
}

/* Share of the communication that a step shows. */
static double exposed(const char *partitioner, int micro)
{
    double least;
    int64_t bytes;
    Spent s = step(partitioner, micro, 1e9, &least, &bytes, NULL);
    s = step(partitioner, micro, 1e9 * s.communicate / s.compute, &least,
             &bytes, NULL);
    double share = (s.step - s.compute) / s.communicate;
    assert_true(least <= s.step * 1.000001 && least >= s.compute);
    print_message("%s, %d turns: compute %.1f ms, transfers %.1f ms, "
                  "exposed %.2f, %.2f at the least\n", partitioner, micro,
                  1e3 * s.compute, 1e3 * s.communicate, share,
                  (least - s.compute) / s.communicate);
    return share;
}

/* 0.02 of it is what 5 % less memory costs: results over dying operands have
 * more steps wait for what is still on its way. */
static void weights_in_parts_hide_their_transfers(void **state)
{
    (void)state;
    assert_true(exposed("zero", 1) <= 0.32);
}

/* Nothing can be sent before the first gradient: forward stays bare. */
static void gradients_are_summed_behind_backward(void **state)
{
    (void)state;
    assert_true(exposed("ddp", 1) <= 0.55);
}

/* Half as much is sent again, and less is held. */
static void weights_whole_for_a_use_take_less_memory(void **state)
{
    (void)state;
    double least;
    int64_t once, again;
    Spent s = step("zero", 1, 1e11, &least, &once, "gather=step");
    Spent u = step("zero", 1, 1e11, &least, &again, "gather=use");
    print_message("arena %.1f MB; for a use %.1f MB\n", 1e-6 * (double)once,
                  1e-6 * (double)again);
    assert_true(u.bytes > 1.3 * s.bytes && u.bytes < 1.6 * s.bytes);
    assert_true((double)again < 0.95 * (double)once);
}

/* Waking threads is counted where the text of the kernel does it. */
static void threads_are_woken_where_kernels_share(void **state)
{
    (void)state;
    Arena *a = arena_new();
    ModelOptions o = { .home = home };
    Model *m = model_load("models/dalle2/clip.lua", &o, a);
    PlanOptions p = { .home = home, .file = "ddp", .ranks = 1, .micro = 1,
                      .compute = F32 };
    const Target *host = target_find("host");
    Job j = { .keep = a, .target = host, .scratch = a,
              .plan = plan_partition(&p, m->entry, m->nentry, a) };
    Graph *g = run_passes(NULL, model_entry(m, "train"), &j);
    const uint32_t *uses = graph_uses(g, a);
    Rates r = { .wake = 1 };
    int shared = 0, alone = 0;
    for (uint32_t l = 0; l < g->sched->nlaunch; l++) {
        const Launch *q = &g->sched->launch[l];
        Amount w = launch_amount(g, q, host, uses);
        Kernel *k = w.kind != NESTS || g->node[q->node[0]].bucket >= 0 ? NULL
            : kernel_describe(a, g, q->node, q->n, uses, NULL);
        if (!k)
            continue;
        bool wakes = strstr(kernel_host(a, k).text, "omp parallel") != NULL;
        assert_int_equal(wakes, w.shared);
        assert_int_equal(wakes, amount_seconds(&w, &r, host) > 1);
        shared += wakes, alone += !wakes;
    }
    assert_true(shared > 10 && alone > 10);
    arena_free(a);
}

static int setup(void **state)
{
    (void)state;
    const char *h = getenv("DPC_HOME");
    op_init();
    if (h && *h)
        return snprintf(home, sizeof home, "%s", h) >= (int)sizeof home;
    return !getcwd(home, sizeof home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_in_parts_hide_their_transfers),
        cmocka_unit_test(gradients_are_summed_behind_backward),
        cmocka_unit_test(weights_whole_for_a_use_take_less_memory),
        cmocka_unit_test(threads_are_woken_where_kernels_share),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
