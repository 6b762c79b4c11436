/* toy.h -- a unit by hand: w learns 3 from x, on TOY_RANKS ranks, in two
 * turns.  loss = mean of (w x - 3 x)^2 over a batch of 8 rows. */
#ifndef TOY_H
#define TOY_H

#include "runtime/dpc_rt.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOY_BATCH = 8, TOY_TURNS = 2, TOY_TOKENS = 3, TOY_SIDE = 8 };
enum { TOY_W, TOY_X, TOY_LR, TOY_STEPS, TOY_STEP, TOY_POISON, TOY_SLOW,
       TOY_LOSS, TOY_TOKEN, TOY_PICTURE, TOY_NLEAF };

static int64_t toy_rows;                  /* of a rank and turn */

static void toy_init(void *const *p, const DpcEnv *e)
{
    *(float *)p[0] = (float)e->seed;
}

static void toy_zero(void *const *p, const DpcEnv *e)
{
    (void)e;
    ((float *)p[0])[0] = ((float *)p[0])[1] = 0;
}

/* x f32[rows], w f32[], sum f32[2] */
static void toy_grad(void *const *p, const DpcEnv *e)
{
    const float *x = p[0], w = *(float *)p[1];
    float *sum = p[2];
    (void)e;
    for (int64_t i = 0; i < toy_rows; i++) {
        float d = w * x[i] - 3 * x[i];
        sum[0] += 2 * d * x[i] / TOY_BATCH;
        sum[1] += d * d / TOY_BATCH;
    }
}

/* sum f32[2], step, poison, slow */
static void toy_bad(void *const *p, const DpcEnv *e)
{
    (void)e;
    if (*(float *)p[1] == *(float *)p[2])
        *(float *)p[0] = logf(-1);
    if (*(float *)p[3] > 0)
        usleep((unsigned)(*(float *)p[3] * 1000));
}

/* sum f32[2], w, lr, loss */
static void toy_update(void *const *p, const DpcEnv *e)
{
    const float *sum = p[0];
    (void)e;
    if (isfinite(sum[0]))
        *(float *)p[1] -= *(float *)p[2] * sum[0];
    *(float *)p[3] = isfinite(sum[0]) ? sum[1] : sum[0];
}

/* sum f32[2], loss */
static void toy_loss(void *const *p, const DpcEnv *e)
{
    (void)e;
    *(float *)p[1] = ((float *)p[0])[1];
}

/* tokens i32[4, 3], picture f32[4, 8, 8, 1]: as bright as its tokens */
static void toy_draw(void *const *p, const DpcEnv *e)
{
    const int32_t *t = p[0];
    (void)e;
    for (int i = 0; i < 4 * TOY_SIDE * TOY_SIDE; i++) {
        const int32_t *row = t + i / (TOY_SIDE * TOY_SIDE) * TOY_TOKENS;
        ((float *)p[1])[i] = (float)(row[0] + row[1] + row[2]) / 10;
    }
}

static const DpcKernel toy_kernels[] = {
    {.name = "init", .fn = toy_init},
    {.name = "zero", .fn = toy_zero},
    {.name = "grad", .fn = toy_grad},
    {.name = "bad", .fn = toy_bad},
    {.name = "update", .fn = toy_update},
    {.name = "loss", .fn = toy_loss},
    {.name = "draw", .fn = toy_draw},
};
static const DpcColl toy_colls[] = {
    {.kind = DPC_ALL_REDUCE, .axes = 1, .outer = 1, .size = 2, .inner = 1}};
static const DpcNode toy_nodes[] = {
    {"grad", "dot", "toy.lua:10"}, {"bad", "log", "toy.lua:11"},
    {"sum", "all_reduce", "toy.lua:12"}, {"new", "sub", "toy.lua:13"},
    {"zero", "const", "toy.lua:9"}};
enum { B_X, B_SUM, B_W, B_LR, B_STEP, B_POISON, B_SLOW, B_LOSS, B_TOKEN,
       B_PICTURE, B_ALL, B_N };
static const uint32_t toy_args[] = {
    B_SUM, B_X, B_W, B_SUM,                       /* 0 zero, 1 grad */
    B_SUM, B_STEP, B_POISON, B_SLOW,              /* 4 bad */
    B_SUM, B_ALL,                                 /* 8 all_reduce */
    B_ALL, B_W, B_LR, B_LOSS,                     /* 10 update */
    B_ALL, B_LOSS, B_TOKEN, B_PICTURE};           /* 14 loss, 16 draw */
enum { R_ = DPC_READ, W_ = DPC_WRITE, A_ = DPC_READ | DPC_WRITE };
static const uint8_t toy_hows[] = {
    W_, R_, R_, A_, A_, R_, R_, R_, R_, W_, R_, A_, R_, W_, R_, W_, R_, W_};
static const uint8_t toy_hows_init[] = {W_, R_, W_};
static const DpcHeld toy_held[] = {{TOY_W, B_W + 1, B_W + 1}};
static const uint32_t toy_waits[] = {0, 1};
static const DpcPort toy_ports[] = {
    {TOY_X, B_X}, {TOY_LR, B_LR}, {TOY_STEP, B_STEP}, {TOY_POISON, B_POISON},
    {TOY_SLOW, B_SLOW}, {TOY_LOSS, B_LOSS}, {TOY_TOKEN, B_TOKEN},
    {TOY_PICTURE, B_PICTURE}};
static const DpcRun toy_runs[] = {
    {"train", "init", NULL, 1}, {"train", "train", "steps", 1},
    {"eval", "eval", NULL, 1}, {"sample", "draw", NULL, 1}};

#define TOY_STEP_OF(node_, call_, arg_, narg_) \
    {.node = node_, .call = call_, .arg = arg_, .narg = narg_, .event = -1}
static const DpcStep toy_train[] = {
    TOY_STEP_OF(4, 1, 0, 1),
    {.node = 0, .call = 2, .arg = 1, .narg = 3, .event = -1, .turn = 0},
    {.node = 0, .call = 2, .arg = 1, .narg = 3, .event = -1, .turn = 1},
    {.node = 1, .call = 3, .arg = 4, .narg = 4, .event = 0},
    {.kind = DPC_STEP_COLL, .stream = 1, .node = 2, .arg = 8, .narg = 2,
     .nwait = 1, .event = 1},
    {.node = 3, .call = 4, .arg = 10, .narg = 4, .wait = 1, .nwait = 1,
     .event = -1}};
static const DpcStep toy_eval[] = {
    TOY_STEP_OF(4, 1, 0, 1),
    {.node = 0, .call = 2, .arg = 1, .narg = 3, .event = -1, .turn = 0},
    {.node = 0, .call = 2, .arg = 1, .narg = 3, .event = 0, .turn = 1},
    {.kind = DPC_STEP_COLL, .stream = 1, .node = 2, .arg = 8, .narg = 2,
     .nwait = 1, .event = 1},
    {.node = 3, .call = 5, .arg = 14, .narg = 2, .wait = 1, .nwait = 1,
     .event = -1}};
static const DpcStep toy_first[] = {TOY_STEP_OF(3, 0, 2, 1)};
static const DpcStep toy_picture[] = {TOY_STEP_OF(3, 6, 16, 2)};

static DpcBuf toy_buf[B_N];
static DpcAxis toy_axis[2];
static DpcLeaf toy_leaf[TOY_NLEAF];
static DpcProgram toy_program[4];
static DpcUnit toy;

static DpcLeaf toy_scalar(const char *name, const char *doc, double value)
{
    return (DpcLeaf){.name = name, .loc = "toy.lua:2", .doc = doc,
                     .kind = DPC_SCALAR, .value = value};
}

static void toy_leaves_make(void)
{
    toy_leaf[TOY_W] = (DpcLeaf){.name = "w", .loc = "toy.lua:1", .bytes = 4,
                                .trainable = true};
    toy_leaf[TOY_X] = (DpcLeaf){.name = "x", .loc = "toy.lua:3", .ndim = 2,
        .kind = DPC_INPUT, .dim = {TOY_BATCH, 1}, .split = {0x21}};
    toy_leaf[TOY_LR] = toy_scalar("lr", "learning rate", 0.1);
    toy_leaf[TOY_STEPS] = toy_scalar("steps", "steps of training", 20);
    toy_leaf[TOY_STEP] = toy_scalar("step", NULL, 0);
    toy_leaf[TOY_POISON] = toy_scalar("poison", "step that fails", -1);
    toy_leaf[TOY_SLOW] = toy_scalar("slow", "milliseconds of a step", 0);
    toy_leaf[TOY_LOSS] = (DpcLeaf){.name = "loss", .loc = "toy.lua:4",
                                   .kind = DPC_OUTPUT};
    toy_leaf[TOY_TOKEN] = (DpcLeaf){.name = "tokens", .loc = "toy.lua:5",
        .kind = DPC_INPUT, .dtype = DPC_I32, .ndim = 2, .dim = {4, 3}};
    toy_leaf[TOY_PICTURE] = (DpcLeaf){.name = "picture", .ndim = 4,
        .loc = "toy.lua:6", .kind = DPC_OUTPUT,
        .dim = {4, TOY_SIDE, TOY_SIDE, 1}};
}

static DpcProgram toy_entry(const char *entry, const DpcStep *s, uint32_t n,
                            const DpcPort *port, uint32_t nport)
{
    return (DpcProgram){.entry = entry, .nstep = n, .nbuf = B_N, .nnode = 5,
        .nport = nport, .nevent = 2, .nheld = 1, .step = s, .buf = toy_buf,
        .node = toy_nodes, .port = port, .held = toy_held, .arg = toy_args,
        .how = nport ? toy_hows : toy_hows_init, .wait = toy_waits,
        .arena = 4096, .io = 8192, .batch = nport > 2 ? TOY_BATCH : 0};
}

static const DpcUnit *toy_make(int ranks)
{
    static const int64_t leaf_bytes[] = {64};
    static const DpcPort eval_ports[] = {
        {TOY_X, B_X}, {TOY_LOSS, B_LOSS}, {TOY_LR, B_LR}};
    toy_rows = TOY_BATCH / TOY_TURNS / ranks;
    toy_axis[0] = (DpcAxis){"data", ranks, DPC_SPACE, 0};
    toy_axis[1] = (DpcAxis){"turn", TOY_TURNS, DPC_TIME, 0};
    toy_leaves_make();
    for (int i = 0; i < B_N; i++)
        toy_buf[i] = (DpcBuf){64 * i, 4, 0, 1, DPC_IO, DPC_F32 + 1,
                               (uint32_t)i + 1, 0, 0, 0, 0};
    toy_buf[B_X] = (DpcBuf){1024, toy_rows * 4, 64, TOY_TURNS, DPC_IO, 1,
                             B_X + 1, 0, 0, 0, 2};
    toy_buf[B_SUM] = (DpcBuf){0, 8, 0, 1, DPC_ARENA, DPC_F32 + 1,
                               B_SUM + 1, 0, 0, 1, 0};
    toy_buf[B_ALL] = (DpcBuf){0, 8, 0, 1, DPC_ARENA, DPC_F32 + 1,
                               B_ALL + 1, 0, 0, 0, 0};
    toy_buf[B_W].space = DPC_LEAVES;
    toy_buf[B_W].at = 0;
    toy_buf[B_TOKEN] = (DpcBuf){2048, 48, 0, 1, DPC_IO, DPC_I32 + 1,
                                 B_TOKEN + 1, 0, 0, 0, 0};
    toy_buf[B_PICTURE] = (DpcBuf){4096, 1024, 0, 1, DPC_IO, DPC_F32 + 1,
                                   B_PICTURE + 1, 0, 0, 0, 0};
    toy_program[0] = toy_entry("init", toy_first, 1, NULL, 0);
    toy_program[1] = toy_entry("train", toy_train, 6, toy_ports, 6);
    toy_program[2] = toy_entry("eval", toy_eval, 5, eval_ports, 3);
    toy_program[3] = toy_entry("draw", toy_picture, 1, toy_ports + 6, 2);
    toy = (DpcUnit){.abi = DPC_ABI, .model = "toy", .version = "0",
        .hash = "00", .naxis = 2, .nleaf = TOY_NLEAF, .nprogram = 4,
        .nkernel = 7, .ncoll = 1, .nrun = 4, .axis = toy_axis,
        .leaf = toy_leaf, .program = toy_program, .kernel = toy_kernels,
        .coll = toy_colls, .run = toy_runs, .leaves = leaf_bytes,
        .meta = "{\"caption\": {\"input\": \"tokens\", \"length\": 3, "
                "\"vocab\": {\"red\": 1, \"boot\": 2, \"shirt\": 3}}}"};
    return &toy;
}

#endif
