/* pipe.h -- the unit of a pipeline by hand: each role multiplies by its own
 * weight, and learns it.
 *
 *   forward  h = w a, sent to the next role     a of the first role is the x
 *   backward d = w g, sent to the one before    g of the last role is 1
 *   dw = sum over turns and data ranks of g a;  w = w - dw
 *
 * Turns go one forward, one backward (Narayanan et al., SOSP 2019).  Hops are
 * listed as their makers end on a clock that all roles share, so that both
 * ends come in one order and nobody waits in vain. */
#ifndef PIPE_H
#define PIPE_H

#include "runtime/dpc_rt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PIPE_LEN = 4, PIPE_BYTES = 4 * PIPE_LEN };  /* of each value */
enum { PIPE_STAGE, PIPE_DATA, PIPE_TURN, PIPE_NAXIS };
enum { PIPE_COPY, PIPE_TIMES, PIPE_GRAD, PIPE_ZERO, PIPE_ONE, PIPE_LEARN };

static void pipe_copy(void *const *p, const DpcEnv *e)
{
    (void)e;
    memcpy(p[1], p[0], PIPE_BYTES);
}

/* a, w -> w a */
static void pipe_times(void *const *p, const DpcEnv *e)
{
    (void)e;
    for (int i = 0; i < PIPE_LEN; i++)
        ((float *)p[2])[i] = ((float *)p[0])[i] * ((float *)p[1])[i];
}

/* a, g: dw + g a -> dw */
static void pipe_grad(void *const *p, const DpcEnv *e)
{
    (void)e;
    for (int i = 0; i < PIPE_LEN; i++)
        ((float *)p[2])[i] += ((float *)p[0])[i] * ((float *)p[1])[i];
}

static void pipe_zero(void *const *p, const DpcEnv *e)
{
    (void)e;
    memset(p[0], 0, PIPE_BYTES);
}

static void pipe_one(void *const *p, const DpcEnv *e)
{
    (void)e;
    for (int i = 0; i < PIPE_LEN; i++)
        ((float *)p[0])[i] = 1;
}

static void pipe_learn(void *const *p, const DpcEnv *e)
{
    (void)e;
    for (int i = 0; i < PIPE_LEN; i++)
        ((float *)p[1])[i] -= ((float *)p[0])[i];
}

static const DpcKernel pipe_kernels[] = {
    {.name = "copy", .fn = pipe_copy},
    {.name = "times", .fn = pipe_times},
    {.name = "grad", .fn = pipe_grad},
    {.name = "zero", .fn = pipe_zero},
    {.name = "one", .fn = pipe_one},
    {.name = "learn", .fn = pipe_learn},
};

typedef struct PipeRole {
    DpcStep *step;
    DpcBuf *buf;
    DpcNode *node;
    uint32_t nstep, nbuf, nnode, nevent, narg, nwait;
    uint32_t *arg, *wait;
    uint8_t *how;
    int64_t at;                           /* end of the arena so far */
} PipeRole;

typedef struct Pipe {
    int roles, data, turns, depth;        /* depth: kernels of a chunk */
    DpcUnit unit;
    DpcAxis axis[PIPE_NAXIS];
    DpcLeaf *leaf;                        /* w of each role; x */
    DpcProgram *program;
    DpcPort port;
    DpcHeld *held;
    DpcColl *coll;
    int64_t *leaves;
    PipeRole *role;
} Pipe;

/* ---- tables ---- */

static uint32_t pipe_buf(PipeRole *r, uint32_t value, int turn, DpcSpace space)
{
    DpcBuf b = {.size = PIPE_BYTES, .slots = 1, .space = (uint8_t)space,
                .dtype = DPC_F32 + 1, .value = value,
                .instance = turn < 0 ? 0 : (uint32_t)turn,
                .split = turn < 0 ? 0 : 1u << PIPE_DATA,
                .along = turn < 0 ? 0 : 1u << PIPE_TURN};
    if (space == DPC_ARENA) {
        b.at = r->at;
        r->at += PIPE_BYTES;
    }
    r->buf[r->nbuf] = b;
    return r->nbuf++;
}

static void pipe_arg(PipeRole *r, uint32_t buf, uint8_t how)
{
    r->arg[r->narg] = buf;
    r->how[r->narg++] = how;
    r->step[r->nstep - 1].narg++;
}

static DpcStep *pipe_step(PipeRole *r, int kind, int node, int turn,
                          uint32_t call)
{
    r->step[r->nstep] = (DpcStep){.kind = (uint8_t)kind,
        .stream = kind == DPC_STEP_COLL ? DPC_COLLECT
                : kind == DPC_STEP_HOP ? DPC_HOPS : DPC_COMPUTE,
        .turn = (uint16_t)turn, .node = (uint32_t)node, .call = call,
        .arg = r->narg, .wait = r->nwait, .event = -1};
    return &r->step[r->nstep++];
}

/* The last step awaits that event, if there is one. */
static void pipe_wait(PipeRole *r, int32_t event)
{
    if (event < 0)
        return;
    r->wait[r->nwait++] = (uint32_t)event;
    r->step[r->nstep - 1].nwait++;
}

static int32_t pipe_event(PipeRole *r)
{
    return r->step[r->nstep - 1].event = (int32_t)r->nevent++;
}

static uint32_t pipe_last(const PipeRole *r, uint32_t back)
{
    return r->arg[r->narg - 1 - back];
}

/* ---- chunks on a clock ---- */

typedef struct PipeItem {                 /* of the list of all roles */
    int time, hop;                        /* hops go first */
    int role, turn, back;
} PipeItem;

static int pipe_by_time(const void *a, const void *b)
{
    const PipeItem *x = a, *y = b;
    int d = x->time - y->time;
    d = d ? d : y->hop - x->hop;
    d = d ? d : x->back - y->back;
    return d ? d : x->role != y->role ? x->role - y->role : x->turn - y->turn;
}

/* The k-th chunk of a role: its turn, and whether it is backward. */
static void pipe_chunk(const Pipe *p, int role, int k, int *turn, int *back)
{
    int ahead = p->roles - role;
    ahead = ahead < p->turns ? ahead : p->turns;
    int both = p->turns - ahead;          /* pairs of backward, forward */
    *back = k >= ahead && (k >= ahead + 2 * both || (k - ahead) % 2 == 0);
    *turn = k < ahead ? k
          : k >= ahead + 2 * both ? k - ahead - both
          : *back ? (k - ahead) / 2 : ahead + (k - ahead) / 2;
}

/* Chunks, and the hops behind them, as they begin: [2 * chunks]. */
static PipeItem *pipe_order(const Pipe *p, int *n)
{
    int chunks = 2 * p->turns, *done = calloc((size_t)p->roles, sizeof *done);
    int *end = calloc((size_t)(p->roles * chunks), sizeof *end);
    int *free_at = calloc((size_t)p->roles, sizeof *free_at);
    PipeItem *list = calloc((size_t)(2 * p->roles * chunks), sizeof *list);
    *n = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->roles; r++) {
            int turn, back;
            if (done[r] == chunks)
                continue;
            pipe_chunk(p, r, done[r], &turn, &back);
            int from = back ? r + 1 : r - 1;
            int needs = from < 0 || from == p->roles ? 0
                      : end[from * chunks + back * p->turns + turn];
            if (from >= 0 && from < p->roles && !needs)
                continue;
            int begin = needs > free_at[r] ? needs : free_at[r];
            int stop = free_at[r] = begin + 1;
            end[r * chunks + back * p->turns + turn] = stop;
            list[(*n)++] = (PipeItem){begin, 0, r, turn, back};
            if (back ? r > 0 : r + 1 < p->roles)
                list[(*n)++] = (PipeItem){stop, 1, r, turn, back};
            done[r]++;
            moved = true;
        }
    }
    free(done);
    free(end);
    free(free_at);
    qsort(list, (size_t)*n, sizeof *list, pipe_by_time);
    return list;
}

/* ---- a role's steps ---- */

/* Values of a role: w, dw, its sum; then a turn's a, g and what the kernels
 * of its chunks make. */
enum { PIPE_W = 1, PIPE_DW, PIPE_SUM, PIPE_A, PIPE_G, PIPE_MADE };
enum { NODE_RECV_A, NODE_RECV_G, NODE_SEND_H, NODE_SEND_D, NODE_ZERO,
       NODE_GRAD, NODE_SUM, NODE_LEARN, NODE_ONE, NODE_KERNEL };

typedef struct PipeTurn {                 /* buffers, and events of streams */
    uint32_t a, g, out[2];
    int32_t came[2], made[2];
} PipeTurn;

static uint32_t pipe_row(const Pipe *p, int role, int back, bool recv)
{
    return (uint32_t)(1 + 2 * (2 * role + back) + recv) * (p->roles > 1);
}

static void pipe_hop(Pipe *p, PipeTurn *t, const PipeItem *i)
{
    int to = i->role + (i->back ? -1 : 1);
    PipeRole *r = &p->role[i->role], *q = &p->role[to];
    PipeTurn *s = &t[i->role * p->turns + i->turn];
    PipeTurn *d = &t[to * p->turns + i->turn];
    pipe_step(r, DPC_STEP_HOP, i->back ? NODE_SEND_D : NODE_SEND_H, i->turn,
              pipe_row(p, i->role, i->back, false));
    pipe_arg(r, s->out[i->back], DPC_READ);
    pipe_wait(r, s->made[i->back]);
    pipe_step(q, DPC_STEP_HOP, i->back ? NODE_RECV_G : NODE_RECV_A, i->turn,
              pipe_row(p, i->role, i->back, true));
    uint32_t b = pipe_buf(q, i->back ? PIPE_G : PIPE_A, i->turn, DPC_ARENA);
    *(i->back ? &d->g : &d->a) = b;
    pipe_arg(q, b, DPC_WRITE);
    d->came[i->back] = pipe_event(q);
}

/* w times what came, `depth` kernels long. */
static void pipe_product(const Pipe *p, PipeRole *r, const PipeItem *i,
                         uint32_t from, int32_t came)
{
    for (int k = 0; k < p->depth; k++) {
        int made = i->back * p->depth + k;
        pipe_step(r, DPC_STEP_KERNEL, NODE_KERNEL + made, i->turn,
                  k ? PIPE_COPY : PIPE_TIMES);
        pipe_wait(r, k ? -1 : came);
        pipe_arg(r, k ? pipe_last(r, 0) : from, DPC_READ);
        if (!k)
            pipe_arg(r, 0, DPC_READ);     /* w */
        pipe_arg(r, pipe_buf(r, (uint32_t)(PIPE_MADE + made), i->turn,
                             DPC_ARENA), DPC_WRITE);
    }
}

static void pipe_work(Pipe *p, PipeTurn *t, const PipeItem *i)
{
    PipeRole *r = &p->role[i->role];
    PipeTurn *s = &t[i->role * p->turns + i->turn];
    if (i->back && i->role == p->roles - 1) {
        pipe_step(r, DPC_STEP_KERNEL, NODE_ONE, i->turn, PIPE_ONE);
        s->g = pipe_buf(r, PIPE_G, i->turn, DPC_ARENA);
        pipe_arg(r, s->g, DPC_WRITE);
    }
    if (i->back && i->turn == 0) {
        pipe_step(r, DPC_STEP_KERNEL, NODE_ZERO, 0, PIPE_ZERO);
        pipe_arg(r, 1, DPC_WRITE);
    }
    pipe_product(p, r, i, i->back ? s->g : s->a, s->came[i->back]);
    s->out[i->back] = pipe_last(r, 0);
    if (i->back) {
        pipe_step(r, DPC_STEP_KERNEL, NODE_GRAD, i->turn, PIPE_GRAD);
        pipe_arg(r, s->a, DPC_READ);
        pipe_arg(r, s->g, DPC_READ);
        pipe_arg(r, 1, DPC_READ | DPC_WRITE);
    }
    s->made[i->back] = pipe_event(r);
}

static void pipe_update(PipeRole *r, int32_t made)
{
    pipe_step(r, DPC_STEP_COLL, NODE_SUM, 0, 0);
    pipe_arg(r, 1, DPC_READ);
    pipe_arg(r, 2, DPC_WRITE);
    pipe_wait(r, made);
    int32_t came = pipe_event(r);
    pipe_step(r, DPC_STEP_KERNEL, NODE_LEARN, 0, PIPE_LEARN);
    pipe_arg(r, 2, DPC_READ);
    pipe_arg(r, 0, DPC_READ | DPC_WRITE);
    pipe_wait(r, came);
}

/* ---- the unit ---- */

static void pipe_role_open(Pipe *p, int k, PipeTurn *t)
{
    static const char *const op[] = {"recv", "recv", "send", "send", "const",
                                     "dot", "all_reduce", "sub", "const"};
    static const char *const name[] = {"a", "g", "h", "d", "zero", "dw", "sum",
                                       "w1", "one"};
    PipeRole *r = &p->role[k];
    size_t steps = (size_t)(p->turns * (2 * p->depth + 8) + 8);
    r->step = calloc(steps, sizeof *r->step);
    r->buf = calloc(steps + 4, sizeof *r->buf);
    r->arg = calloc(3 * steps, sizeof *r->arg);
    r->how = calloc(3 * steps, sizeof *r->how);
    r->wait = calloc(2 * steps, sizeof *r->wait);
    r->nnode = (uint32_t)(NODE_KERNEL + 2 * p->depth);
    r->node = calloc(r->nnode, sizeof *r->node);
    assert(r->step && r->buf && r->arg && r->how && r->wait && r->node);
    for (uint32_t i = 0; i < r->nnode; i++)
        r->node[i] = (DpcNode){i < NODE_KERNEL ? name[i] : "h",
                               i < NODE_KERNEL ? op[i] : "mul", "pipe.lua:1"};
    pipe_buf(r, PIPE_W, -1, DPC_LEAVES);
    pipe_buf(r, PIPE_DW, -1, DPC_ARENA);
    r->buf[1].pending = 1u << PIPE_DATA;
    pipe_buf(r, PIPE_SUM, -1, DPC_ARENA);
    for (int i = 0; i < p->turns; i++) {
        PipeTurn *s = &t[k * p->turns + i];
        *s = (PipeTurn){.came = {-1, -1}, .made = {-1, -1}};
        if (k == 0) {
            s->a = pipe_buf(r, PIPE_A, i, DPC_IO);
            r->buf[s->a].at = (int64_t)i * PIPE_BYTES;
        }
    }
}

static void pipe_colls(Pipe *p)
{
    p->coll[0] = (DpcColl){.kind = DPC_ALL_REDUCE, .axes = 1u << PIPE_DATA,
                           .outer = 1, .size = PIPE_LEN, .inner = 1};
    for (int r = 0; r < p->roles; r++)
        for (int back = 0; back < 2; back++) {
            int to = r + (back ? -1 : 1);
            DpcColl c = {.kind = DPC_SEND, .axes = 1u << PIPE_STAGE,
                .outer = 1, .size = PIPE_LEN, .inner = 1, .peer = to,
                .hop = (uint32_t)(2 * r + back)};
            if (to < 0 || to == p->roles)
                continue;
            p->coll[pipe_row(p, r, back, false)] = c;
            c.kind = DPC_RECV, c.peer = r;
            p->coll[pipe_row(p, r, back, true)] = c;
        }
}

/* Leaf r is the weight of role r; then the input, whose rows are the turns of
 * the data ranks. */
static void pipe_leaves(Pipe *p)
{
    static char name[64][4];
    for (int r = 0; r < p->roles; r++) {
        name[r % 64][0] = 'w', name[r % 64][1] = (char)('0' + r / 10);
        name[r % 64][2] = (char)('0' + r % 10);
        p->leaf[r] = (DpcLeaf){.name = name[r % 64], .loc = "pipe.lua:2",
            .kind = DPC_PARAM, .ndim = 1, .dim = {PIPE_LEN}, .role = r,
            .trainable = true, .bytes = PIPE_BYTES};
        p->leaves[r] = 64;
        p->held[r] = (DpcHeld){(uint32_t)r, PIPE_W, PIPE_W};
    }
    p->leaf[p->roles] = (DpcLeaf){.name = "x", .loc = "pipe.lua:3",
        .kind = DPC_INPUT, .ndim = 2, .role = -1,
        .dim = {(int64_t)p->data * p->turns, PIPE_LEN},
        .split = {(PIPE_DATA + 1) | (PIPE_TURN + 1) << 4}};
}

static void pipe_program(Pipe *p, int k)
{
    const PipeRole *r = &p->role[k];
    p->program[k] = (DpcProgram){.entry = "train", .role = k,
        .nstep = r->nstep, .nbuf = r->nbuf, .nnode = r->nnode,
        .nport = k == 0, .nevent = r->nevent, .nheld = 1, .step = r->step,
        .buf = r->buf, .node = r->node, .port = &p->port,
        .held = &p->held[k], .arg = r->arg, .wait = r->wait, .how = r->how,
        .arena = r->at, .io = (int64_t)(k == 0) * p->turns * PIPE_BYTES,
        .batch = (int64_t)p->data * p->turns};
}

/* The input's port is one row over all turns. */
static void pipe_port(Pipe *p)
{
    PipeRole *r = &p->role[0];
    DpcBuf b = {.size = PIPE_BYTES, .stride = PIPE_BYTES,
        .slots = (uint16_t)p->turns, .space = DPC_IO, .dtype = DPC_F32 + 1,
        .value = PIPE_A, .split = 1u << PIPE_DATA, .along = 1u << PIPE_TURN};
    p->port = (DpcPort){(uint32_t)p->roles, r->nbuf};
    r->buf[r->nbuf++] = b;
}

static void pipe_make(Pipe *p, int roles, int data, int turns, int depth)
{
    *p = (Pipe){roles, data, turns, depth, .axis = {
        {"pp", roles, DPC_STAGE}, {"dp", data, DPC_SPACE},
        {"mb", turns, DPC_TIME}}};
    size_t n = (size_t)roles;
    PipeTurn *t = calloc(n * (size_t)turns, sizeof *t);
    p->leaf = calloc(n + 1, sizeof *p->leaf);
    p->program = calloc(n, sizeof *p->program);
    p->held = calloc(n, sizeof *p->held);
    p->coll = calloc(4 * n + 1, sizeof *p->coll);
    p->leaves = calloc(n, sizeof *p->leaves);
    p->role = calloc(n, sizeof *p->role);
    assert(t && p->leaf && p->program && p->held && p->coll && p->leaves
           && p->role);
    int items;
    PipeItem *list = pipe_order(p, &items);
    for (int r = 0; r < roles; r++)
        pipe_role_open(p, r, t);
    for (int i = 0; i < items; i++)
        (list[i].hop ? pipe_hop : pipe_work)(p, t, &list[i]);
    for (int r = 0; r < roles; r++)
        pipe_update(&p->role[r], t[r * turns + turns - 1].made[1]);
    pipe_port(p);
    pipe_leaves(p);
    pipe_colls(p);
    for (int r = 0; r < roles; r++)
        pipe_program(p, r);
    p->unit = (DpcUnit){.abi = DPC_ABI, .model = "pipe", .version = "0",
        .hash = "00", .naxis = PIPE_NAXIS, .nleaf = (uint32_t)roles + 1,
        .nprogram = (uint32_t)roles, .nkernel = 6,
        .ncoll = (uint32_t)(4 * roles + 1), .axis = p->axis, .leaf = p->leaf,
        .program = p->program, .kernel = pipe_kernels, .coll = p->coll,
        .leaves = p->leaves};
    free(list);
    free(t);
}

static void pipe_free(Pipe *p)
{
    for (int r = 0; r < p->roles; r++) {
        PipeRole *x = &p->role[r];
        free(x->step), free(x->buf), free(x->arg), free(x->how);
        free(x->wait), free(x->node);
    }
    free(p->leaf), free(p->program), free(p->held), free(p->coll);
    free(p->leaves), free(p->role);
}

#endif
