/* test_rt.c -- units written by hand, on threads as ranks. */
#include "runtime/rt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- allocations are counted ---- */

static _Atomic long allocations;
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(SANITIZED) || defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { CAN_COUNT = 0 };
#else
enum { CAN_COUNT = 1 };
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    allocations++;
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}
#endif

/* ---- a unit: w += sum over ranks and turns of (x + its position) ---- */

enum { ROWS = 2, MOST = 8, RANKS = 4 };

static void k_zero(void *const *p, const DpcEnv *e)
{
    (void)e;
    *(float *)p[0] = 0;
}

/* x f32[ROWS], sum f32[] */
static void k_sum(void *const *p, const DpcEnv *e)
{
    const float *x = p[0];
    for (int i = 0; i < ROWS; i++)
        *(float *)p[1] += x[i] + (float)(e->pos[0] + i);
}

/* sum, w, loss, all f32[] */
static void k_step(void *const *p, const DpcEnv *e)
{
    (void)e;
    *(float *)p[1] += *(float *)p[0];
    *(float *)p[2] = *(float *)p[0];
}

static void k_log(void *const *p, const DpcEnv *e)
{
    (void)e;
    *(float *)p[0] = logf(*(float *)p[0] - 1e9f);
}

typedef struct Toy {
    DpcUnit unit;
    DpcAxis axis[2];
    DpcLeaf leaf[3];
    DpcProgram program;
    DpcStep step[MOST + 4];
    DpcBuf buf[5];
    DpcPos pos;
} Toy;

static const DpcKernel kernels[] = {
    {.name = "zero", .fn = k_zero},
    {.name = "sum", .fn = k_sum},
    {.name = "step", .fn = k_step},
    {.name = "log", .fn = k_log},
};
static const DpcColl colls[] = {{.kind = DPC_ALL_REDUCE, .axes = 1,
                                 .outer = 1, .size = 1, .inner = 1}};
static const DpcNode nodes[] = {{"acc", "add", "toy.lua:3"},
                                {"loss", "all_reduce", "toy.lua:4"},
                                {"bad", "log", "toy.lua:5"},
                                {"zero", "const", "toy.lua:6"},
                                {"new", "add", "toy.lua:7"}};
enum { X, ACC, W, LOSS, SUM };
static const uint32_t args[] = {ACC, X, ACC, ACC, SUM, SUM, W, LOSS};
enum { R = DPC_READ, RW = DPC_READ | DPC_WRITE };
static const uint8_t hows[] = {DPC_WRITE, R, RW, R, DPC_WRITE, R, RW,
                               DPC_WRITE};
static const DpcHeld helds[] = {{0, W + 1, W + 1}};
static const uint32_t waits[] = {0, 1};
static const DpcPort ports[] = {{1, X}, {2, LOSS}};

static DpcStep kernel_step(uint32_t call, uint32_t arg, uint32_t narg)
{
    return (DpcStep){.kind = DPC_STEP_KERNEL, .call = call, .arg = arg,
                     .narg = narg, .event = -1};
}

/* Steps: zero, one sum a turn, all_reduce on stream 1, update. */
static void steps_fill(Toy *t, int turns)
{
    int n = 0;
    t->step[n] = kernel_step(0, 0, 1);
    t->step[n++].node = 3;
    for (int k = 0; k < turns; k++) {
        t->step[n] = kernel_step(1, 1, 2);
        t->step[n].turn = (uint16_t)k;
        t->step[n++].npos = 1;
    }
    t->step[n - 1].event = 0;
    t->step[n++] = (DpcStep){.kind = DPC_STEP_COLL, .stream = 1, .arg = 3,
                             .narg = 2, .node = 1, .nwait = 1, .event = 1};
    t->step[n] = kernel_step(2, 5, 3);
    t->step[n].wait = 1;
    t->step[n].node = 4;
    t->step[n++].nwait = 1;
    t->program.nstep = (uint32_t)n;
}

static const int64_t leaf_bytes[] = {64};

static void toy_make(Toy *t, int ranks, int turns)
{
    *t = (Toy){0};
    t->axis[0] = (DpcAxis){"dp", ranks, DPC_SPACE, 0};
    t->axis[1] = (DpcAxis){"mb", turns, DPC_TIME, 0};
    t->leaf[0] = (DpcLeaf){.name = "w", .loc = "toy.lua:1", .bytes = 4};
    t->leaf[1] = (DpcLeaf){.name = "x", .kind = DPC_INPUT, .ndim = 1,
        .dim = {(int64_t)ranks * turns * ROWS}, .split = {0x21}};
    t->leaf[2] = (DpcLeaf){.name = "loss", .kind = DPC_OUTPUT};
    t->pos = (DpcPos){0x21, (int64_t)ranks * turns * ROWS, false};
    t->buf[X] = (DpcBuf){0, 8, 64, (uint16_t)turns, DPC_IO, DPC_F32 + 1,
        X + 1, 0, 0, 0, 2};
    t->buf[ACC] = (DpcBuf){64, 4, 0, 1, DPC_ARENA, DPC_F32 + 1,
        ACC + 1, 0, 0, 1, 0};
    t->buf[SUM] = (DpcBuf){64, 4, 0, 1, DPC_ARENA, DPC_F32 + 1,
        SUM + 1, 0, 0, 0, 0};
    t->buf[W] = (DpcBuf){0, 4, 0, 1, DPC_LEAVES, DPC_F32 + 1,
        W + 1, 0, 0, 0, 0};
    t->buf[LOSS] = (DpcBuf){64 * turns, 4, 0, 1, DPC_IO, DPC_F32 + 1,
        LOSS + 1, 0, 0, 0, 0};
    steps_fill(t, turns);
    t->program = (DpcProgram){.entry = "train", .nstep = t->program.nstep,
        .nbuf = 5, .nnode = 5, .nport = 2, .nevent = 2, .nheld = 1,
        .step = t->step, .buf = t->buf, .node = nodes, .port = ports,
        .held = helds, .arg = args, .how = hows, .wait = waits, .pos = &t->pos,
        .arena = 128, .io = 64 * turns + 64};
    t->unit = (DpcUnit){.abi = DPC_ABI, .model = "toy", .naxis = 2,
        .nleaf = 3, .nprogram = 1, .nkernel = 4, .ncoll = 1, .axis = t->axis,
        .leaf = t->leaf, .program = &t->program, .kernel = kernels,
        .coll = colls, .leaves = leaf_bytes};
}

/* ---- ranks as threads ---- */

typedef struct Rank {
    const DpcUnit *unit;
    DpcComm *comm;
    DpcStatus (*body)(DpcRt *, struct Rank *);
    DpcStatus status;
    float w, loss;
    char text[512];
} Rank;

static void *rank_main(void *arg)
{
    Rank *r = arg;
    DpcRt *rt;
    r->status = dpc_rt_open(r->unit, r->comm, &rt);
    if (!r->status)
        r->status = r->body(rt, r);
    if (r->status) {
        snprintf(r->text, sizeof r->text, "%s", dpc_last_error());
        r->comm->ops->abort(r->comm, 5);
    }
    dpc_rt_close(rt);
    r->comm->ops->close(r->comm);
    return NULL;
}

static void world_run(const DpcUnit *u, int size, Rank *r,
                      DpcStatus (*body)(DpcRt *, Rank *))
{
    DpcLocal *world;
    DpcComm *comm[MOST];
    pthread_t t[MOST];
    assert_int_equal(dpc_local_open(size, 0, &world, comm), DPC_OK);
    for (int i = 0; i < size; i++) {
        r[i] = (Rank){.unit = u, .comm = comm[i], .body = body};
        assert_int_equal(pthread_create(&t[i], NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(t[i], NULL);
    dpc_local_close(world);
}

/* x[i] = 1 for all i; `steps` steps. */
static DpcStatus train(DpcRt *rt, Rank *r, int steps)
{
    DpcStatus s = DPC_OK;
    for (int k = 0; k < rt->turns; k++)
        for (int i = 0; i < ROWS; i++)
            ((float *)dpc_rt_port(rt, 0, "x", k))[i] = 1;
    for (int i = 0; !s && i < steps; i++)
        s = dpc_rt_run(rt, 0, (uint64_t)i);
    r->w = *(float *)dpc_rt_leaf(rt, "w");
    r->loss = *(float *)dpc_rt_port(rt, 0, "loss", 0);
    return s;
}

static DpcStatus three(DpcRt *rt, Rank *r)
{
    return train(rt, r, 3);
}

static void any_split_gives_the_same_sum(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {1, 4}, {2, 1}, {2, 2}, {4, 1},
                                   {4, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Toy t;
        Rank r[MOST];
        int n = sizes[i][0] * sizes[i][1] * ROWS;
        float sum = (float)(n + n * (n - 1) / 2);
        toy_make(&t, sizes[i][0], sizes[i][1]);
        world_run(&t.unit, sizes[i][0], r, three);
        for (int k = 0; k < sizes[i][0]; k++) {
            assert_int_equal(r[k].status, DPC_OK);
            assert_float_equal(r[k].loss, sum, 0);
            assert_float_equal(r[k].w, 3 * sum, 0);
        }
    }
}

static long counted[2];

static DpcStatus count_steps(DpcRt *rt, Rank *r)
{
    DpcStatus s = train(rt, r, 2);
    if (!s)
        s = dpc_rt_vote(rt, &(int32_t){0});
    counted[0] = allocations;
    for (int i = 2; !s && i < 100; i++)
        s = dpc_rt_run(rt, 0, (uint64_t)i);
    if (!s)
        s = dpc_rt_vote(rt, &(int32_t){0});
    counted[1] = allocations;
    return s ? s : dpc_rt_vote(rt, &(int32_t){0});
}

static void no_memory_is_taken_between_steps_2_and_100(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    if (!CAN_COUNT)
        skip();
    toy_make(&t, RANKS, 2);
    world_run(&t.unit, RANKS, r, count_steps);
    assert_int_equal(r[0].status, DPC_OK);
    assert_int_equal(counted[1] - counted[0], 0);
}

static void a_world_of_the_wrong_size_is_told_both_numbers(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    toy_make(&t, 4, 1);
    world_run(&t.unit, 2, r, three);
    assert_int_equal(r[0].status, DPC_USER);
    assert_string_equal(r[0].text, "toy: error: ranks: the plan is for 4 "
        "(dp=4) but 2 came; start it with mpirun -n 4, or compile a plan "
        "for 2");
}

static void spaces_are_as_large_as_the_table_says(void **state)
{
    (void)state;
    Toy t;
    DpcComm *c;
    DpcRt *rt;
    toy_make(&t, 1, 4);
    assert_int_equal(dpc_single_open(&c), DPC_OK);
    assert_int_equal(dpc_rt_open(&t.unit, c, &rt), DPC_OK);
    assert_int_equal(rt->bytes[DPC_LEAVES], t.unit.leaves[0]);
    assert_int_equal(rt->bytes[DPC_ARENA], t.program.arena);
    char *x0 = dpc_rt_port(rt, 0, "x", 0), *x3 = dpc_rt_port(rt, 0, "x", 3);
    assert_int_equal(x3 - x0, 192);
    dpc_rt_close(rt);
    c->ops->close(c);
}

static void a_buffer_outside_its_space_is_refused(void **state)
{
    (void)state;
    Toy t;
    DpcComm *c;
    DpcRt *rt;
    toy_make(&t, 1, 1);
    t.buf[ACC].at = 126;
    assert_int_equal(dpc_single_open(&c), DPC_OK);
    assert_int_equal(dpc_rt_open(&t.unit, c, &rt), DPC_BUG);
    assert_null(rt);
    c->ops->close(c);
}

static DpcStatus hunt(DpcRt *rt, Rank *r)
{
    DpcStatus s = train(rt, r, 1);
    return s ? s : dpc_rt_hunt(rt, 0, 0, r->text, sizeof r->text);
}

static void the_hunt_names_the_first_op_that_made_a_nan(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    toy_make(&t, 2, 1);
    t.program.nstep++;                    /* the last step becomes: log, step */
    t.step[4] = t.step[3];
    t.step[3] = kernel_step(3, 5, 1);
    t.step[3].wait = 1;
    t.step[3].nwait = 1;
    t.step[3].node = 2;
    t.step[4].arg = 5;
    uint8_t only[sizeof hows];            /* keep the leaf sound: w elsewhere */
    memcpy(only, hows, sizeof hows);
    only[5] = RW, only[6] = DPC_WRITE;
    t.program.how = only;
    t.buf[W].space = DPC_IO;
    t.buf[W].at = t.buf[LOSS].at + 16;
    world_run(&t.unit, 2, r, hunt);
    assert_int_equal(r[0].status, DPC_OK);
    assert_string_equal(r[0].text, "toy.lua:5: log 'bad': first NaN, in turn 0, "
                        "on rank 0");
}

/* ---- collectives ---- */

/* Only the main thread may assert: the others count. */
static DpcStatus collectives(DpcRt *rt, Rank *r)
{
    float in[12], out[12];                /* [2, 3, 1] over 2 ranks */
    float x[16], y[12];                   /* [2, 2, 4] -> [2, 3, 2] */
    int me = rt->comm->rank, wrong = 0;
    DpcStatus s = DPC_OK;
    for (int i = 0; i < 12; i++)
        in[i] = (float)(i + 100 * me);
    if ((s = dpc_collect_run(rt, 0, 0, in, out)))    /* all_gather, part 2 */
        return s;
    for (int o = 0; o < 2; o++) {
        wrong += out[o * 3] != (float)(o * 2);
        wrong += out[o * 3 + 1] != (float)(o * 2 + 1);
        wrong += out[o * 3 + 2] != (float)(100 + o * 2);
    }
    if ((s = dpc_collect_run(rt, 1, 0, in, out)))    /* reduce_scatter */
        return s;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < 2; i++) {
            int whole = me * 2 + i;       /* row 3 is padding */
            float want = whole < 3 ? (float)(2 * (o * 3 + whole) + 100) : 0;
            wrong += out[o * 2 + i] != want;
        }
    for (int i = 0; i < 16; i++) {
        int row = me * 2 + i / 4 % 2;
        x[i] = row < 3 ? (float)(i / 8 * 12 + row * 4 + i % 4) : -1;
    }
    if ((s = dpc_collect_run(rt, 2, 0, x, y)))       /* all_to_all */
        return s;
    for (int i = 0; i < 12; i++)
        wrong += y[i] != (float)(i / 6 * 12 + i / 2 % 3 * 4 + me * 2 + i % 2);
    r->w = (float)wrong;
    r->loss = 1;
    return DPC_OK;
}

static void collectives_work_on_inner_and_uneven_dimensions(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    DpcColl c[] = {
        {.kind = DPC_ALL_GATHER, .axes = 1, .outer = 2, .size = 3, .inner = 1},
        {.kind = DPC_REDUCE_SCATTER, .axes = 1, .outer = 2, .size = 3,
         .inner = 1},
        {.kind = DPC_ALL_TO_ALL, .axes = 1, .outer = 2, .size = 3, .inner = 2,
         .to_outer = 4, .to_size = 4, .to_inner = 1, .ranks = 2}};
    toy_make(&t, 2, 1);
    t.unit.coll = c;
    t.unit.ncoll = 3;
    t.program.nstep = 1;                  /* zero only: no loss */
    t.program.nport = 0;
    world_run(&t.unit, 2, r, collectives);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(r[i].text, "");
        assert_float_equal(r[i].loss, 1, 0);
        assert_float_equal(r[i].w, 0, 0);
    }
}

/* Three ranks hold two rows each, of two pictures: of six in all, which get one
 * from before and two from behind; and of five, the last one padding, which
 * get parts of three, and three rows from before: of two ranks. */
static const DpcColl row_coll[] = {
    {.kind = DPC_HALO, .dtype = DPC_F32, .axes = 1, .outer = 2, .size = 2,
     .inner = 2, .lo = 1, .hi = 2, .rows = 6, .step = 2},
    {.kind = DPC_HALO, .dtype = DPC_F32, .axes = 1, .outer = 2, .size = 2,
     .inner = 2, .lo = 3, .hi = 1, .rows = 5, .step = 3}};

static DpcStatus neighbours(DpcRt *rt, Rank *r)
{
    DpcStatus s = DPC_OK;
    int me = rt->comm->rank, wrong = 0;
    for (uint32_t k = 0; k < 2 && !s; k++) {
        const DpcColl *c = &row_coll[k];
        int rows = (int)(c->lo + c->step + c->hi), whole = (int)c->rows;
        float in[8], out[28];
        for (int i = 0; i < 8; i++)
            in[i] = 2 * me + i % 4 / 2 < whole
                ? (float)(100 * (i / 4) + 4 * me + i % 4 + 1) : NAN;
        s = dpc_collect_run(rt, k, 0, in, out);
        for (int i = 0; i < 4 * rows && !s; i++) {
            int at = 2 * (me * (int)c->step - c->lo) + i % (2 * rows);
            float want = (float)(100 * (i / (2 * rows)) + at + 1);
            wrong += out[i] != (at < 0 || at >= 2 * whole ? 0 : want);
        }
    }
    r->w = (float)wrong;
    r->loss = 1;
    return s;
}

static void neighbours_give_each_other_rows(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    toy_make(&t, 3, 1);
    t.unit.coll = row_coll;
    t.unit.ncoll = 2;
    t.program.nstep = 1;
    t.program.nport = 0;
    world_run(&t.unit, 3, r, neighbours);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(r[i].text, "");
        assert_float_equal(r[i].loss, 1, 0);
        assert_float_equal(r[i].w, 0, 0);
    }
}

static void k_past(void *const *p, const DpcEnv *e)
{
    k_step(p, e);
    ((float *)p[2])[1] = 5;
}

static void k_nothing(void *const *p, const DpcEnv *e)
{
    (void)p, (void)e;
}

/* The toy, guarded, with another function for one of its kernels. */
static Rank guarded(int kernel, DpcKernelFn *fn)
{
    Toy t;
    Rank r[MOST];
    DpcKernel k[sizeof kernels / sizeof *kernels];
    memcpy(k, kernels, sizeof k);
    k[kernel].fn = fn;
    toy_make(&t, 2, 2);
    t.unit.kernel = k;
    setenv("DPC_GUARD", "1", 1);
    world_run(&t.unit, 2, r, three);
    unsetenv("DPC_GUARD");
    return r[0].status == DPC_ENV ? r[1] : r[0];  /* the other gave up first */
}

static void a_guarded_step_writes_its_results_and_all_of_them(void **state)
{
    (void)state;
    Rank good = guarded(2, k_step), past = guarded(2, k_past);
    Rank none = guarded(0, k_nothing);
    assert_int_equal(good.status, DPC_OK);
    assert_float_equal(good.loss, 36, 0);
    assert_int_equal(past.status, DPC_BUG);
    assert_non_null(strstr(past.text, "toy.lua:7: error: add 'new': turn 0 of "
                           "it changed 2 bytes outside of its results, from "
                           "byte 134 of space 2"));
    assert_int_equal(none.status, DPC_OK);
    assert_true(isnan(none.loss));
}

static DpcStatus one_fails(DpcRt *rt, Rank *r)
{
    if (rt->comm->rank == 1)
        return dpc_fail(DPC_NUMERICS, "toy: error: rank 1 stops");
    return train(rt, r, 1);
}

static void a_rank_that_gives_up_ends_the_others(void **state)
{
    (void)state;
    Toy t;
    Rank r[MOST];
    toy_make(&t, 4, 1);
    world_run(&t.unit, 4, r, one_fails);
    assert_int_equal(r[0].status, DPC_ENV);
    assert_non_null(strstr(r[0].text, "rank 1 gave up"));
    assert_int_equal(r[1].status, DPC_NUMERICS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_gives_the_same_sum),
        cmocka_unit_test(no_memory_is_taken_between_steps_2_and_100),
        cmocka_unit_test(a_world_of_the_wrong_size_is_told_both_numbers),
        cmocka_unit_test(spaces_are_as_large_as_the_table_says),
        cmocka_unit_test(a_buffer_outside_its_space_is_refused),
        cmocka_unit_test(the_hunt_names_the_first_op_that_made_a_nan),
        cmocka_unit_test(collectives_work_on_inner_and_uneven_dimensions),
        cmocka_unit_test(neighbours_give_each_other_rows),
        cmocka_unit_test(a_guarded_step_writes_its_results_and_all_of_them),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
