/* collect.c -- groups of ranks, and collectives on any dimension.
 *
 * The ranks that differ only in a set of axes form a group; sets are few, so
 * each has one communicator.  Transports move whole blocks, one a member.  A
 * dimension that is not outermost, or does not divide, has its parts apart
 * in memory: then blocks are gathered in a stage that is as large as the
 * largest such collective and allocated when the unit is opened.
 *
 *   all_gather      part of `size` a member -> whole
 *   reduce_scatter  whole -> part of `size`
 *   all_to_all      whole `to_size`, part of `size` -> part, whole
 *   ring            this rank's -> its partner's, of this turn
 *   halo            part of `size` -> part of `step`, with rows of others
 *
 * A halo is an exchange between ranks of the group, in rounds: with the two
 * that are one away, then two, as far as rows reach.  Ranks that it joins
 * differ in axes of space, those of a hop in the stage's, so the two never meet
 * between one pair of ranks.
 *
 * A part is ceil(size / members) long; what the last ranks lack is zero. */
#include "runtime/rt.h"

#include <stdlib.h>
#include <string.h>

/* Axes that ranks make up, of this set, that are longer than one. */
static DpcAxes ranks_of(const DpcUnit *u, DpcAxes axes)
{
    DpcAxes r = 0;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (axes >> i & 1 && u->axis[i].kind != DPC_TIME &&
            u->axis[i].size > 1)
            r |= (DpcAxes)(1u << i);
    return r;
}

/* Row-major index of this rank over such axes in, or not in, a set. */
static int32_t index_over(const DpcRt *rt, DpcAxes axes, bool in)
{
    int32_t r = 0;
    for (uint32_t i = 0; i < rt->unit->naxis; i++)
        if (rt->unit->axis[i].kind != DPC_TIME && (axes >> i & 1) == in)
            r = r * rt->unit->axis[i].size + rt->coord[i];
    return r;
}

static DpcStatus coll_check(const DpcUnit *u, const DpcColl *c)
{
    bool folds = c->kind == DPC_ALL_REDUCE || c->kind == DPC_REDUCE_SCATTER;
    if (folds && c->dtype == DPC_U8)
        return dpc_fail(DPC_BUG, "%s: internal error: a fold of u8 over "
                        "ranks", u->model);
    if (c->kind == DPC_ALL_TO_ALL && !c->to_size)
        return dpc_fail(DPC_BUG, "%s: internal error: an all_to_all without "
                        "the dimension that it splits", u->model);
    if (folds && c->fold == DPC_LSE && c->dtype == DPC_I32)
        return dpc_fail(DPC_BUG, "%s: internal error: a log-sum-exp of i32",
                        u->model);
    return DPC_OK;
}

static bool is_hop(const DpcColl *c)
{
    return c->kind == DPC_SEND || c->kind == DPC_RECV;
}

/* A dimension of a row-major tensor: what is before and behind it. */
typedef struct View { int64_t outer, size, inner; } View;

static View joined(const DpcColl *c)
{
    return (View){c->outer, c->size, c->inner};
}

static View divided(const DpcColl *c)
{
    return c->kind == DPC_ALL_TO_ALL
               ? (View){c->to_outer, c->to_size, c->to_inner} : joined(c);
}

static int64_t part_of(View v, int32_t members)
{
    return (v.size + members - 1) / members;
}

/* Elements of one member's block. */
static int64_t block_of(View v, int32_t members)
{
    return v.outer * part_of(v, members) * v.inner;
}

/* Blocks lie as they are in the tensor. */
static bool apart(View v, int32_t members)
{
    return v.outer > 1 || v.size % members != 0;
}

/* Bytes of stage that packing, and then unpacking, take. */
static int64_t pack_bytes(const DpcColl *c, int32_t n)
{
    bool packs = c->kind == DPC_REDUCE_SCATTER || c->kind == DPC_ALL_TO_ALL;
    return packs && apart(divided(c), n)
               ? n * block_of(divided(c), n) * dpc_dtype_size(c->dtype) : 0;
}

static int64_t unpack_bytes(const DpcColl *c, int32_t n)
{
    bool joins = c->kind == DPC_ALL_GATHER || c->kind == DPC_ALL_TO_ALL;
    return joins && apart(joined(c), n)
               ? n * block_of(joined(c), n) * dpc_dtype_size(c->dtype) : 0;
}

/* ---- halos ---- */

/* Rows of the whole: from `at`, so many. */
typedef struct Rows { int64_t at, n; } Rows;

static Rows overlap(Rows a, Rows b)
{
    int64_t at = a.at > b.at ? a.at : b.at;
    int64_t end = a.at + a.n < b.at + b.n ? a.at + a.n : b.at + b.n;
    return (Rows){at, end > at ? end - at : 0};
}

/* Rows that member `from` has of those that member `to` gets. */
static Rows rows_between(const DpcColl *c, int32_t from, int32_t to)
{
    Rows all = {0, c->rows}, has = {from * c->size, c->size};
    Rows gets = {to * c->step - c->lo, c->lo + c->step + c->hi};
    return overlap(overlap(all, has), gets);
}

static int64_t rows_bytes(const DpcColl *c, int64_t rows)
{
    return c->outer * rows * c->inner * dpc_dtype_size(c->dtype);
}

/* Bytes of the rows that pass in the round that needs most stage. */
static int64_t halo_stage(const DpcColl *c, int32_t me, int32_t members)
{
    int64_t most = 0;
    for (int32_t far = 1; far < members; far++) {
        int64_t rows = 0;
        for (int32_t peer = me - far; peer <= me + far; peer += 2 * far)
            if (peer >= 0 && peer < members)
                rows += rows_between(c, me, peer).n
                    + rows_between(c, peer, me).n;
        most = rows > most ? rows : most;
    }
    return rows_bytes(c, most);
}

static DpcStatus group_find(DpcRt *rt, uint32_t call)
{
    const DpcUnit *u = rt->unit;
    DpcAxes axes = ranks_of(u, u->coll[call].axes);
    rt->group[call] = -1;                 /* alone: nothing to say */
    if (!axes)
        return DPC_OK;
    for (uint32_t i = 0; i < call; i++)
        if (ranks_of(u, u->coll[i].axes) == axes) {
            rt->group[call] = rt->group[i];
            return DPC_OK;
        }
    return rt->comm->ops->group(rt->comm, index_over(rt, axes, false),
                                index_over(rt, axes, true), &rt->group[call]);
}

/* The stream that computes must not communicate beside one that does. */
static DpcStatus streams_check(const DpcRt *rt)
{
    for (uint32_t i = 0; i < rt->unit->nprogram; i++) {
        const DpcProgram *p = &rt->unit->program[i];
        bool beside = rt->walk[i].uses[DPC_COLLECT]
                   || rt->walk[i].uses[DPC_HOPS];
        for (uint32_t s = 0; beside && s < p->nstep; s++)
            if ((p->step[s].kind == DPC_STEP_COLL
                 || p->step[s].kind == DPC_STEP_HOP) &&
                p->step[s].stream == 0 && rt->group[p->step[s].call] >= 0)
                return dpc_fail(DPC_BUG, "%s: internal error: step %u of "
                    "'%s' communicates on the compute stream",
                    rt->unit->model, s, p->entry);
    }
    return DPC_OK;
}

DpcStatus dpc_collect_open(DpcRt *rt)
{
    const DpcUnit *u = rt->unit;
    rt->group = calloc(u->ncoll + 1, sizeof *rt->group);
    if (!rt->group)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    for (uint32_t i = 0; i < u->ncoll; i++) {
        const DpcColl *c = &u->coll[i];
        DpcStatus s = coll_check(u, c);
        if (!s)
            s = group_find(rt, i);
        if (s)
            return s;
        if (rt->group[i] < 0 || is_hop(c))
            continue;
        int32_t n = rt->comm->members[rt->group[i]];
        int64_t bytes = pack_bytes(c, n) + unpack_bytes(c, n);
        if (c->kind == DPC_HALO)
            bytes = halo_stage(c, rt->comm->index[rt->group[i]], n);
        if (bytes > rt->stage_bytes)
            rt->stage_bytes = bytes;
    }
    if (rt->stage_bytes && !(rt->stage = malloc((size_t)rt->stage_bytes)))
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for %lld bytes of "
            "communication", u->model, (long long)rt->stage_bytes);
    return streams_check(rt);
}

/* Between [outer, size, inner] and blocks [member, outer, part, inner]. */
static void blocks_move(View v, int64_t dtype_size, int32_t members,
                        char *whole, char *block, bool pack)
{
    int64_t row = v.inner * dtype_size, part = part_of(v, members);
    for (int32_t m = 0; m < members; m++) {
        int64_t left = v.size - m * part;
        int64_t n = left < 0 ? 0 : left < part ? left : part;
        for (int64_t o = 0; o < v.outer; o++) {
            char *w = whole + (o * v.size + m * part) * row;
            char *b = block + (m * v.outer + o) * part * row;
            if (!pack) {
                memcpy(w, b, (size_t)(n * row));
                continue;
            }
            memcpy(b, w, (size_t)(n * row));
            memset(b + n * row, 0, (size_t)((part - n) * row));
        }
    }
}

/* Packs, moves, unpacks; whichever is needed. */
static DpcStatus staged(DpcRt *rt, const DpcColl *c, DpcWire *w, int32_t n,
                        DpcStatus (*move)(DpcComm *, const DpcWire *))
{
    int64_t e = dpc_dtype_size(c->dtype), packed = pack_bytes(c, n);
    void *out = w->out;
    char *blocks = rt->stage + packed;
    if (packed) {
        blocks_move(divided(c), e, n, (char *)(uintptr_t)w->in, rt->stage,
                    true);
        w->in = rt->stage;
    }
    if (!unpack_bytes(c, n))
        return move(rt->comm, w);
    w->out = blocks;
    DpcStatus s = move(rt->comm, w);
    if (!s)
        blocks_move(joined(c), e, n, out, blocks, false);
    return s;
}

/* A group of one: the result is the operand. */
static DpcStatus alone(const DpcColl *c, const void *in, void *out)
{
    int64_t n = c->outer * c->size * c->inner * dpc_dtype_size(c->dtype);
    if (in != out)
        memmove(out, in, (size_t)n);
    return DPC_OK;
}

/* A block of rows of the whole, in each of the outer blocks. */
typedef struct Block { char *p; Rows rows; } Block;

/* Rows r of the whole; zeros where `from` is NULL. */
static void rows_move(const DpcColl *c, Rows r, const Block *from,
                      const Block *to)
{
    int64_t row = c->inner * dpc_dtype_size(c->dtype);
    for (int64_t o = 0; o < c->outer && r.n > 0; o++) {
        char *d = to->p + (o * to->rows.n + r.at - to->rows.at) * row;
        if (from)
            memcpy(d, from->p + (o * from->rows.n + r.at - from->rows.at) * row,
                   (size_t)(r.n * row));
        else
            memset(d, 0, (size_t)(r.n * row));
    }
}

/* The rows that pass between this rank and the two that are `far` away. */
static DpcStatus halo_round(DpcRt *rt, const DpcColl *c, int32_t g,
                            int32_t far, const Block *in, const Block *out)
{
    int32_t me = rt->comm->index[g], members = rt->comm->members[g], n = 0;
    char *at = rt->stage;
    Block got[4];
    DpcHop h[4];
    for (int32_t peer = me - far; peer <= me + far; peer += 2 * far)
        for (int send = 1; send >= 0; send--) {
            if (peer < 0 || peer >= members)
                continue;
            Rows r = send ? rows_between(c, me, peer)
                          : rows_between(c, peer, me);
            if (!r.n)
                continue;
            h[n] = (DpcHop){g, peer, rows_bytes(c, r.n), send, at};
            got[n++] = (Block){at, r};
            if (send)
                rows_move(c, r, in, &got[n - 1]);
            at += rows_bytes(c, r.n);
        }
    DpcStatus s = n ? rt->comm->ops->exchange(rt->comm, h, n) : DPC_OK;
    for (int32_t i = 0; i < n && !s; i++)
        if (!h[i].send)
            rows_move(c, got[i].rows, &got[i], out);
    return s;
}

static DpcStatus halo(DpcRt *rt, const DpcColl *c, int32_t g, const void *in,
                      void *out)
{
    int32_t me = g < 0 ? 0 : rt->comm->index[g];
    int32_t members = g < 0 ? 1 : rt->comm->members[g];
    Block has = {(char *)(uintptr_t)in, {me * c->size, c->size}};
    Block gets = {out, {me * c->step - c->lo, c->lo + c->step + c->hi}};
    Rows before = {INT64_MIN / 2, -(INT64_MIN / 2)};
    Rows behind = {c->rows, INT64_MAX / 2};
    rows_move(c, overlap(before, gets.rows), NULL, &gets);
    rows_move(c, overlap(behind, gets.rows), NULL, &gets);
    rows_move(c, rows_between(c, me, me), &has, &gets);
    DpcStatus s = DPC_OK;
    for (int32_t far = 1; far < members && !s; far++)
        s = halo_round(rt, c, g, far, &has, &gets);
    return s;
}

/* With the rank that this turn makes its partner. */
static DpcStatus ring(DpcRt *rt, const DpcColl *c, int32_t g, int32_t partner,
                      const void *in, void *out)
{
    int64_t bytes = c->outer * c->size * c->inner * dpc_dtype_size(c->dtype);
    DpcHop h[2] = {{g, partner, bytes, true, (void *)(uintptr_t)in},
                   {g, partner, bytes, false, out}};
    if (partner == rt->comm->index[g])
        return alone(c, in, out);
    return rt->comm->ops->exchange(rt->comm, h, 2);
}

DpcStatus dpc_collect_run(DpcRt *rt, uint32_t call, int32_t turn,
                          const void *in, void *out)
{
    const DpcColl *c = &rt->unit->coll[call];
    int32_t g = rt->group[call];
    if (c->kind == DPC_HALO)
        return halo(rt, c, g, in, out);
    if (g < 0)
        return alone(c, in, out);
    if (c->kind == DPC_RING)
        return ring(rt, c, g, dpc_rt_partner(rt, c->axes, turn), in, out);
    int32_t n = rt->comm->members[g];
    DpcWire w = {.dtype = c->dtype, .fold = c->fold, .group = g, .in = in,
                 .out = out, .count = block_of(joined(c), n)};
    const DpcCommOps *ops = rt->comm->ops;
    switch (c->kind) {
    case DPC_ALL_REDUCE:
        w.count = c->outer * c->size * c->inner;
        return ops->all_reduce(rt->comm, &w);
    case DPC_ALL_GATHER:
        return staged(rt, c, &w, n, ops->all_gather);
    case DPC_REDUCE_SCATTER:
        return staged(rt, c, &w, n, ops->reduce_scatter);
    default:
        return staged(rt, c, &w, n, ops->all_to_all);
    }
}

/* A role is its index along the stage axis, so in that axis' group. */
DpcStatus dpc_collect_hops(DpcRt *rt, uint32_t call, uint32_t n, void **at)
{
    DpcHop h[DPC_NHOP];
    for (uint32_t i = 0; i < n; i++) {
        const DpcColl *c = &rt->unit->coll[call + i];
        h[i] = (DpcHop){.group = rt->group[call + i], .peer = c->peer,
            .bytes = c->outer * c->size * c->inner * dpc_dtype_size(c->dtype),
            .send = c->kind == DPC_SEND, .at = at[i]};
    }
    return rt->comm->ops->exchange(rt->comm, h, (int32_t)n);
}
