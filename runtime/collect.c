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
 *   halo            part of `size` -> with rows of both neighbours
 *
 * A halo is an exchange between neighbours of the group; ranks that it joins
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

/* Bytes of `rows` of a halo's dimension. */
static int64_t rows_bytes(const DpcColl *c, int64_t rows)
{
    return c->outer * rows * c->inner * dpc_dtype_size(c->dtype);
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
            bytes = 2 * rows_bytes(c, c->lo + c->hi);
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

/* n rows of each outer block: from row `at` of `rows`, to row `put` of `into`;
 * zeros where `from` is NULL. */
static void rows_move(const DpcColl *c, const char *from, int64_t rows,
                      int64_t at, char *to, int64_t into, int64_t put,
                      int64_t n)
{
    int64_t row = c->inner * dpc_dtype_size(c->dtype);
    for (int64_t o = 0; o < c->outer; o++) {
        char *d = to + (o * into + put) * row;
        if (from)
            memcpy(d, from + (o * rows + at) * row, (size_t)(n * row));
        else
            memset(d, 0, (size_t)(n * row));
    }
}

/* The first rows go to the part before, the last to the one behind. */
static DpcStatus halo(DpcRt *rt, const DpcColl *c, int32_t g, const void *in,
                      void *out)
{
    int32_t me = g < 0 ? 0 : rt->comm->index[g], n = 0;
    bool before = me > 0, behind = g >= 0 && me + 1 < rt->comm->members[g];
    int64_t lo = rows_bytes(c, c->lo), hi = rows_bytes(c, c->hi);
    char *up = rt->stage, *down = up + hi, *above = down + lo;
    char *below = above + lo;
    DpcHop h[4];
    if (before && hi)
        h[n++] = (DpcHop){g, me - 1, hi, true, up};
    if (behind && lo)
        h[n++] = (DpcHop){g, me + 1, lo, true, down};
    if (before && lo)
        h[n++] = (DpcHop){g, me - 1, lo, false, above};
    if (behind && hi)
        h[n++] = (DpcHop){g, me + 1, hi, false, below};
    if (before)
        rows_move(c, in, c->size, 0, up, c->hi, 0, c->hi);
    if (behind)
        rows_move(c, in, c->size, c->size - c->lo, down, c->lo, 0, c->lo);
    DpcStatus s = n ? rt->comm->ops->exchange(rt->comm, h, n) : DPC_OK;
    int64_t all = c->lo + c->size + c->hi;
    rows_move(c, in, c->size, 0, out, all, c->lo, c->size);
    rows_move(c, before ? above : NULL, c->lo, 0, out, all, 0, c->lo);
    rows_move(c, behind ? below : NULL, c->hi, 0, out, all, c->lo + c->size,
              c->hi);
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
