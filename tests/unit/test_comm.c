/* test_comm.c -- every transport gives the same sums.
 *
 * With COMM_RANKS set the program is one rank under mpirun; else it starts
 * itself so, over shared memory and over MPI, and runs threads as ranks. */
#include "runtime/comm.h"
#include "runtime/rt.h"
#include "runtime/fold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 600000, LARGE = 140000, RANKS = 3 };

typedef struct Bench {
    DpcComm *c;
    char *in, *out;
    int wrong;
} Bench;

/* Element i of rank r: small whole numbers, so every order sums alike. */
static float value(int32_t r, int64_t i)
{
    return (float)((i * 7 + r * 5) % 11 - 3);
}

static void put(int dtype, void *to, int64_t i, float v)
{
    if (dtype == DPC_I32)
        ((int32_t *)to)[i] = (int32_t)v;
    else
        dpc_fold_store(dtype, (char *)to + i * dpc_dtype_size(dtype), &v, 1);
}

static float get(int dtype, const void *from, int64_t i)
{
    float v;
    if (dtype == DPC_I32)
        return (float)((const int32_t *)from)[i];
    dpc_fold_load(dtype, &v, (const char *)from + i * dpc_dtype_size(dtype),
                  1);
    return v;
}

static float folded(int fold, int32_t size, int64_t i)
{
    float v = value(0, i);
    for (int32_t r = 1; r < size; r++)
        v = dpc_fold1(fold, v, value(r, i));
    return v;
}

static bool near(float a, float b, int dtype)
{
    return fabsf(a - b) <= (dtype == DPC_BF16 ? 0.1f : 1e-5f);
}

static DpcStatus reduce(Bench *b, DpcWire w, bool in_place)
{
    DpcStatus s;
    for (int64_t i = 0; i < w.count; i++)
        put(w.dtype, b->in, i, value(b->c->rank, i));
    w.in = b->in;
    w.out = in_place ? b->in : b->out;
    if ((s = b->c->ops->all_reduce(b->c, &w)))
        return s;
    for (int64_t i = 0; i < w.count; i++)
        b->wrong += !near(get(w.dtype, w.out, i),
                          folded(w.fold, b->c->size, i), w.dtype);
    return DPC_OK;
}

static DpcStatus scatter(Bench *b, DpcWire w)
{
    DpcStatus s;
    for (int64_t i = 0; i < w.count * b->c->size; i++)
        put(w.dtype, b->in, i, value(b->c->rank, i));
    w.in = b->in;
    w.out = b->out;
    if ((s = b->c->ops->reduce_scatter(b->c, &w)))
        return s;
    for (int64_t i = 0; i < w.count; i++)
        b->wrong += !near(get(w.dtype, w.out, i), folded(w.fold, b->c->size,
                              w.count * b->c->rank + i), w.dtype);
    return DPC_OK;
}

static DpcStatus gather(Bench *b, DpcWire w, bool in_place)
{
    int64_t own = in_place ? w.count * b->c->rank : 0;
    char *in = in_place ? b->out : b->in;
    DpcStatus s;
    for (int64_t i = 0; i < w.count; i++)
        put(w.dtype, in, own + i, value(b->c->rank, i));
    w.in = in + own * dpc_dtype_size(w.dtype);
    w.out = b->out;
    if ((s = b->c->ops->all_gather(b->c, &w)))
        return s;
    for (int64_t i = 0; i < w.count * b->c->size; i++)
        b->wrong += get(w.dtype, w.out, i) !=
                    value((int32_t)(i / w.count), i % w.count);
    return DPC_OK;
}

static DpcStatus exchange(Bench *b, DpcWire w)
{
    DpcStatus s;
    for (int64_t i = 0; i < w.count * b->c->size; i++)
        put(w.dtype, b->in, i, value(b->c->rank, i));
    w.in = b->in;
    w.out = b->out;
    if ((s = b->c->ops->all_to_all(b->c, &w)))
        return s;
    for (int64_t i = 0; i < w.count * b->c->size; i++)
        b->wrong += get(w.dtype, w.out, i) != value((int32_t)(i / w.count),
            w.count * b->c->rank + i % w.count);
    return DPC_OK;
}

static DpcStatus all_kinds(Bench *b, int dtype, int64_t count)
{
    DpcWire w = {.dtype = (uint8_t)dtype, .count = count};
    int last = dtype == DPC_I32 ? DPC_MAX : DPC_LSE;
    DpcStatus s = DPC_OK;
    for (int f = DPC_SUM; !s && f <= last; f++) {
        w.fold = (uint8_t)f;
        s = reduce(b, w, false);
        s = s ? s : reduce(b, w, true);
        s = s ? s : scatter(b, w);
    }
    s = s ? s : gather(b, w, false);
    s = s ? s : gather(b, w, true);
    return s ? s : exchange(b, w);
}

/* Parts that go over the nodes in slices. */
static DpcStatus large_parts(Bench *b)
{
    DpcWire w = {.dtype = DPC_F32, .fold = DPC_SUM, .count = LARGE};
    DpcStatus s = scatter(b, w);
    s = s ? s : gather(b, w, false);
    return s ? s : gather(b, w, true);
}

/* Ranks 0 and 2 apart from 1, in falling order: a group of its own. */
static DpcStatus some_ranks(Bench *b)
{
    int32_t g, odd = b->c->rank & 1;
    DpcStatus s = b->c->ops->group(b->c, odd, -b->c->rank, &g);
    if (s)
        return s;
    b->wrong += b->c->members[g] != (b->c->size + 1 - odd) / 2;
    float x = (float)b->c->rank, y[RANKS + 1];
    DpcWire w = {.dtype = DPC_F32, .group = g, .count = 1, .in = &x,
                 .out = y};
    if ((s = b->c->ops->all_gather(b->c, &w)))
        return s;
    for (int32_t i = 0; i < b->c->members[g]; i++)
        b->wrong += y[i] != (float)(odd + 2 * (b->c->members[g] - 1 - i));
    return DPC_OK;
}

/* Byte i of the k-th transfer from one rank to another. */
static char sent(int32_t from, int32_t to, int32_t k, int64_t i)
{
    return (char)(from * 37 + to * 11 + k * 5 + i);
}

/* Each sends PAIR transfers to each, of sizes that differ, all at once or one
 * at a time: then who comes first waits for the others to come around. */
static DpcStatus hops(Bench *b, bool together)
{
    enum { PAIR = 3 };
    DpcHop h[2 * PAIR * (RANKS + 1)];
    int32_t me = b->c->rank, n = 0;
    int64_t at[2] = {0, 0};               /* received, sent */
    for (int32_t k = 0; k < PAIR; k++)
        for (int32_t r = 0; r < 2 * b->c->size; r++) {
            bool send = r / b->c->size ^ (r % b->c->size < me);
            int32_t to = r % b->c->size, from = send ? me : to;
            if (to == me)
                continue;
            h[n] = (DpcHop){0, to, 1 + k * 2000, send,
                            (send ? b->in : b->out) + at[send]};
            for (int64_t i = 0; send && i < h[n].bytes; i++)
                b->in[at[1] + i] = sent(from, to, k, i);
            at[send] += h[n++].bytes;
        }
    DpcStatus s = DPC_OK;
    for (int32_t i = 0; !s && i < n; i += together ? n : 1)
        s = b->c->ops->exchange(b->c, h + i, together ? n : 1);
    for (int32_t i = 0, k = 0; !s && i < n; i++)
        for (int64_t x = 0; !h[i].send && x < h[i].bytes; x++) {
            k = (int32_t)(h[i].bytes / 2000);
            b->wrong += ((char *)h[i].at)[x] != sent(h[i].peer, me, k, x);
        }
    return s;
}

static DpcStatus everything(Bench *b)
{
    static const int64_t counts[] = {1, 100, 1023, 5000, 20000};
    DpcStatus s = DPC_OK;
    for (int d = DPC_F32; !s && d <= DPC_I32; d++)
        for (int i = 0; !s && i < 5; i++)
            s = all_kinds(b, d, counts[i]);
    s = s ? s : large_parts(b);
    s = s ? s : some_ranks(b);
    s = s ? s : hops(b, true);
    s = s ? s : hops(b, false);
    int32_t vote = b->c->rank * 3;
    s = s ? s : b->c->ops->vote(b->c, &vote);
    b->wrong += vote != 3 * (b->c->size - 1);
    return s ? s : b->c->ops->barrier(b->c);
}

static DpcStatus bench_run(Bench *b)
{
    b->in = malloc(MOST * 4);
    b->out = malloc(MOST * 4);
    DpcStatus s = b->in && b->out ? everything(b) : DPC_MEMORY;
    free(b->in);
    free(b->out);
    return s;
}

/* ---- as a rank ---- */

static int rank_main(const char *name)
{
    Bench b = {0};
    DpcStatus s = dpc_mpi_open(&b.c);
    if (!s)
        s = bench_run(&b);
    if (s)
        printf("%s\n", dpc_last_error());
    if (b.wrong)
        printf("rank %d: %d wrong\n", b.c->rank, b.wrong);
    if (!s && strcmp(b.c->ops->name, name))
        printf("skip: transport is %s\n", b.c->ops->name);
    if (b.c)
        b.c->ops->close(b.c);
    return s || b.wrong;
}

static void *thread_main(void *arg)
{
    Bench *b = arg;
    b->wrong += bench_run(b) != DPC_OK;
    b->c->ops->close(b->c);
    return NULL;
}

/* ---- tests ---- */

static void threads_as_ranks_agree(void **state)
{
    (void)state;
    DpcLocal *world;
    DpcComm *c[RANKS];
    Bench b[RANKS] = {{0}};
    pthread_t t[RANKS];
    assert_int_equal(dpc_local_open(RANKS, 0, &world, c), DPC_OK);
    for (int i = 0; i < RANKS; i++) {
        b[i].c = c[i];
        assert_int_equal(pthread_create(&t[i], NULL, thread_main, &b[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(b[i].wrong, 0);
    dpc_local_close(world);
}

/* Sums 1000 bytes twice; the thread's answer is what was wrong. */
static void *link_main(void *arg)
{
    DpcComm *c = arg;
    float in[250] = {1}, out[250];
    DpcWire w = {.dtype = DPC_F32, .fold = DPC_SUM, .count = 250, .in = in,
                 .out = out};
    double begin = dpc_now();
    DpcStatus s = c->ops->all_reduce(c, &w);
    w.in = w.out;
    s = s ? s : c->ops->all_reduce(c, &w);
    double took = dpc_now() - begin;
    c->ops->close(c);
    return s ? "failed" : out[0] != 4 ? "sum"
         : took < 2 * (0.01 + 0.005) ? "too quick" : NULL;
}

/* 1000 bytes there and 1000 back at the same time, then one way. */
static void *hop_main(void *arg)
{
    DpcComm *c = arg;
    char in[1000] = {5}, out[1000] = {0};
    DpcHop h[2] = {{0, !c->rank, 1000, true, in},
                   {0, !c->rank, 1000, false, out}};
    double begin = dpc_now();
    DpcStatus s = c->ops->exchange(c, h, 2);
    s = s ? s : c->ops->exchange(c, h + c->rank, 1);
    double took = dpc_now() - begin;
    c->ops->close(c);
    return s ? "failed" : out[0] != 5 ? "bytes"
         : took < 2 * (0.01 + 0.005) ? "too quick" : NULL;
}

static void two_ranks(void *(*fn)(void *))
{
    DpcLocal *world;
    DpcComm *c[2];
    pthread_t t[2];
    void *wrong;
    assert_int_equal(dpc_local_open(2, 0, &world, c), DPC_OK);
    dpc_local_link(world, 1e5, 0.005);    /* 1000 bytes: 10 ms */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, fn, c[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &wrong);
        if (wrong)
            fail_msg("rank %d: %s", i, (const char *)wrong);
    }
    dpc_local_close(world);
}

static void a_transfer_lasts_as_long_as_on_its_link(void **state)
{
    (void)state;
    two_ranks(link_main);
}

static void a_hop_lasts_as_long_as_on_its_link(void **state)
{
    (void)state;
    two_ranks(hop_main);
}

/* The one receives what the other never sends. */
static void *alone_main(void *arg)
{
    DpcComm *c = arg;
    char out[8];
    DpcHop h = {0, 1, 8, false, out};
    DpcStatus s = DPC_ENV;
    if (c->rank)
        c->ops->abort(c, 5);
    else
        s = c->ops->exchange(c, &h, 1);
    c->ops->close(c);
    return s == DPC_ENV ? NULL : "did not end";
}

static void a_hop_ends_when_the_other_gives_up(void **state)
{
    (void)state;
    two_ranks(alone_main);
}

/* node: ranks that count as one; 0: all. */
static void under_mpirun(const char *name, int ranks, int node)
{
    char self[2048], line[4096], text[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0 || system("command -v mpirun > /dev/null"))
        skip();
    self[n] = 0;
    snprintf(line, sizeof line, "OMPI_ALLOW_RUN_AS_ROOT=1 "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 COMM_RANKS=%s DPC_COMM=%s "
        "DPC_NODE=%d OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n %d %s 2>&1",
        name, name, node, ranks, self);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    if (pclose(f))
        fail_msg("%s", text);
    if (strstr(text, "skip"))
        skip();                           /* ranks may not read each other */
}

static void ranks_of_a_node_agree_over_shared_memory(void **state)
{
    (void)state;
    under_mpirun("node", RANKS, 0);
}

static void ranks_agree_over_mpi(void **state)
{
    (void)state;
    under_mpirun("mpi", RANKS, 0);
}

/* Two and two: sums go up, over and down.  Two and one: they cannot. */
static void ranks_of_several_nodes_agree(void **state)
{
    (void)state;
    under_mpirun("node", 4, 2);
    under_mpirun("node", RANKS, 2);
}

int main(void)
{
    const char *name = getenv("COMM_RANKS");
    if (name)
        return rank_main(name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_as_ranks_agree),
        cmocka_unit_test(a_transfer_lasts_as_long_as_on_its_link),
        cmocka_unit_test(a_hop_lasts_as_long_as_on_its_link),
        cmocka_unit_test(a_hop_ends_when_the_other_gives_up),
        cmocka_unit_test(ranks_of_a_node_agree_over_shared_memory),
        cmocka_unit_test(ranks_agree_over_mpi),
        cmocka_unit_test(ranks_of_several_nodes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
