/* test_pipe.c -- roles at work: a pipeline on threads as ranks. */
#include "runtime/comm.h"
#include "runtime/rt.h"
#include "tests/unit/pipe.h"

#include <pthread.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MOST = 8, STEPS = 2 };

typedef struct Rank {
    const Pipe *pipe;
    DpcComm *comm;
    pthread_t thread;
    DpcStatus status;
    char text[1024];
    float w[PIPE_LEN];
    int64_t leaves, arena;
} Rank;

static float weight(int role, int i)
{
    return 1 + (float)role / 8 + (float)i / 4;
}

/* Element i of a data rank's row of that turn. */
static float input(const Pipe *p, int data, int turn, int i)
{
    return (float)((data * p->turns + turn) % 3 + i) / 16;
}

static void fill(Rank *r, DpcRt *rt)
{
    const Pipe *p = r->pipe;
    char name[4] = {'w', (char)('0' + rt->role / 10),
                    (char)('0' + rt->role % 10)};
    float *w = dpc_rt_leaf(rt, name);
    for (int i = 0; i < PIPE_LEN; i++)
        w[i] = weight(rt->role, i);
    for (int t = 0; rt->role == 0 && t < p->turns; t++) {
        float *x = dpc_rt_port(rt, 0, "x", t);
        for (int i = 0; i < PIPE_LEN; i++)
            x[i] = input(p, rt->coord[PIPE_DATA], t, i);
    }
}

static DpcStatus work(Rank *r, DpcRt **rt)
{
    DpcStatus s = dpc_rt_open(&r->pipe->unit, r->comm, rt);
    if (s)
        return s;
    fill(r, *rt);
    for (int k = 0; !s && k < STEPS; k++)
        s = dpc_rt_run(*rt, 0, (uint64_t)k);
    memcpy(r->w, (*rt)->space[DPC_LEAVES], sizeof r->w);
    r->leaves = (*rt)->bytes[DPC_LEAVES];
    r->arena = (*rt)->bytes[DPC_ARENA];
    return s;
}

static void *rank_main(void *arg)
{
    Rank *r = arg;
    DpcRt *rt = NULL;
    r->status = work(r, &rt);
    if (r->status)
        snprintf(r->text, sizeof r->text, "%s", dpc_last_error());
    dpc_rt_close(rt);
    r->comm->ops->close(r->comm);
    return NULL;
}

static void run(Rank *r, const Pipe *p)
{
    DpcLocal *world;
    DpcComm *comm[MOST];
    int n = p->roles * p->data;
    assert_int_equal(dpc_local_open(n, 0, &world, comm), DPC_OK);
    for (int i = 0; i < n; i++) {
        r[i] = (Rank){.pipe = p, .comm = comm[i]};
        assert_int_equal(pthread_create(&r[i].thread, NULL, rank_main, &r[i]),
                         0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(r[i].thread, NULL);
    dpc_local_close(world);
}

/* The weights after a step, of one thing without ranks or turns. */
static void learn(const Pipe *p, float w[][PIPE_LEN])
{
    float dw[MOST][PIPE_LEN] = {{0}};
    for (int k = 0; k < p->data * p->turns; k++)
        for (int i = 0; i < PIPE_LEN; i++) {
            float a = input(p, k / p->turns, k % p->turns, i);
            for (int r = 0; r < p->roles; r++) {
                float g = 1;
                for (int q = r + 1; q < p->roles; q++)
                    g *= w[q][i];
                dw[r][i] += g * a;
                a *= w[r][i];
            }
        }
    for (int r = 0; r < p->roles; r++)
        for (int i = 0; i < PIPE_LEN; i++)
            w[r][i] -= dw[r][i];
}

static void roles_learn_as_one_does(int roles, int data, int turns)
{
    Pipe p;
    Rank r[MOST];
    float w[MOST][PIPE_LEN];
    pipe_make(&p, roles, data, turns, 2);
    run(r, &p);
    for (int k = 0; k < roles; k++)
        for (int i = 0; i < PIPE_LEN; i++)
            w[k][i] = weight(k, i);
    for (int k = 0; k < STEPS; k++)
        learn(&p, w);
    for (int k = 0; k < roles * data; k++) {
        if (r[k].status)
            fail_msg("rank %d: %s", k, r[k].text);
        for (int i = 0; i < PIPE_LEN; i++) {
            float want = w[k / data][i];
            float off = fabsf(r[k].w[i] - want);
            assert_true(off <= 1e-4f * fabsf(want) + 1e-5f);
        }
        assert_int_equal(r[k].leaves, p.leaves[k / data]);
        assert_int_equal(r[k].arena, p.program[k / data].arena);
    }
    pipe_free(&p);
}

static void two_roles(void **state)
{
    (void)state;
    roles_learn_as_one_does(2, 1, 1);
    roles_learn_as_one_does(2, 1, 4);
}

static void roles_of_several_ranks(void **state)
{
    (void)state;
    roles_learn_as_one_does(2, 2, 3);
    roles_learn_as_one_does(4, 2, 8);
}

static void one_role_needs_no_hop(void **state)
{
    (void)state;
    roles_learn_as_one_does(1, 2, 3);
}

static void more_roles_than_turns(void **state)
{
    (void)state;
    roles_learn_as_one_does(8, 1, 2);
}

/* Too few ranks: the message counts roles too. */
static void the_world_must_hold_all_roles(void **state)
{
    (void)state;
    Pipe p;
    DpcComm *comm;
    DpcRt *rt;
    pipe_make(&p, 3, 2, 2, 1);
    assert_int_equal(dpc_single_open(&comm), DPC_OK);
    assert_int_equal(dpc_rt_open(&p.unit, comm, &rt), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "6 (pp=3 dp=2) but 1 came"));
    comm->ops->close(comm);
    pipe_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_roles),
        cmocka_unit_test(roles_of_several_ranks),
        cmocka_unit_test(one_role_needs_no_hop),
        cmocka_unit_test(more_roles_than_turns),
        cmocka_unit_test(the_world_must_hold_all_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
