/* test_clock.c -- transfers behind computing: the decoder on two ranks, on a
 * network as slow as makes both last as long, by the compiler's own seconds
 * and the waits of the schedule (bench_overlap.c measures). */
#include "compiler/lua.h"
#include "passes/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char home[4096];

typedef struct Spent { double compute, comm, step, least; } Spent;

/* Both streams, each step after what it waits for. */
static Spent run(const Graph *g, const Job *j)
{
    const Sched *s = g->sched;
    double now[2] = { 0, 0 }, *done = calloc((size_t)s->nevent + 1,
                                             sizeof *done);
    double *takes = calloc((size_t)s->nstep + 1, sizeof *takes);
    Spent all = { 0 };
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Step *q = &s->step[k];
        double t = launch_seconds(g, &s->launch[q->launch], j);
        takes[k] = t;
        double *at = &now[q->stream];
        for (uint32_t i = 0; i < q->nwait; i++)
            *at = done[q->wait[i]] > *at ? done[q->wait[i]] : *at;
        *at += t;
        *(q->stream ? &all.comm : &all.compute) += t;
        if (q->event >= 0)
            done[q->event] = *at;
    }
    all.step = now[0] > now[1] ? now[0] : now[1];
    all.least = clock_least(g, takes, j->keep);
    free(done);
    free(takes);
    return all;
}

static Spent step(const char *partitioner, int micro, double bandwidth)
{
    Arena *a = arena_new();
    const char *const define[] = { "batch=64" };
    ModelOptions o = { .home = home, .define = define, .ndefine = 1 };
    Model *m = model_load("models/dalle2/decoder.lua", &o, a);
    PlanOptions p = { .home = home, .file = partitioner, .ranks = 2,
                      .micro = micro, .compute = F32 };
    Cluster c = *cluster_read(home, NULL, a);
    c.level[0].bandwidth = bandwidth;
    c.level[0].latency = 0;
    Job j = { .keep = a, .target = target_find("host"), .cluster = &c,
              .plan = plan_partition(&p, m->entry, m->nentry, a) };
    Spent s = run(run_passes(NULL, model_entry(m, "train"), &j), &j);
    arena_free(a);
    return s;
}

/* Share of the communication that a step shows. */
static double exposed(const char *partitioner, int micro)
{
    Spent s = step(partitioner, micro, 1e9);
    s = step(partitioner, micro, 1e9 * s.comm / s.compute);
    double share = (s.step - s.compute) / s.comm;
    print_message("%s, %d turns: compute %.1f ms, transfers %.1f ms, "
                  "exposed %.2f, %.2f at the least\n", partitioner, micro,
                  1e3 * s.compute, 1e3 * s.comm, share,
                  (s.least - s.compute) / s.comm);
    assert_true(s.least <= s.step * 1.000001);
    return share;
}

static void weights_in_parts_hide_their_transfers(void **state)
{
    (void)state;
    assert_true(exposed("zero", 1) <= 0.4);
}

/* Nothing can be sent before the first gradient: forward stays bare. */
static void gradients_are_summed_behind_backward(void **state)
{
    (void)state;
    assert_true(exposed("ddp", 1) <= 0.55);
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
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
