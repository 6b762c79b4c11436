/* check_call.c -- the shape of a schedule: indices, sizes, once a turn.
 *
 * What a call reads and writes at most follows from its row, so an operand
 * that is too small shows here and not as another value's spoilt bytes.
 * Kernels do not say how far they reach: tests of the emitter do. */
#include "runtime/check_own.h"

#include <stdlib.h>

/* ---- how large operands must be ---- */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements from the first to the last that strided loops reach. */
static int64_t reach(const DpcDot *d, int64_t n, int64_t step, int64_t m,
                     int64_t step_m, const int64_t *batch)
{
    int64_t last = (n - 1) * step + (m - 1) * step_m;
    for (int i = 0; i < d->nbatch; i++)
        last += (d->batch[i] - 1) * batch[i];
    return last + 1;
}

static int64_t dot_bytes(const DpcDot *d, uint32_t arg)
{
    switch (arg) {
    case 0:
        return reach(d, d->m, d->a_m, d->k, d->a_k, d->a_batch)
             * dpc_dtype_size(d->dtype_a);
    case 1:
        return reach(d, d->k, d->b_k, d->n, d->b_n, d->b_batch)
             * dpc_dtype_size(d->dtype_b);
    case 2:
        return reach(d, d->m, d->c_m, d->n, d->c_n, d->c_batch)
             * dpc_dtype_size(d->dtype_c);
    default:
        return 0;
    }
}

enum { PICTURE, FILTER, RESULT };

static int64_t conv_part(const DpcConv *v, int part)
{
    switch (part) {
    case PICTURE:
        return v->batch * v->c * v->h * v->w * dpc_dtype_size(v->dtype_x);
    case FILTER:
        return v->packed ? dpc_conv_pack_bytes(v)
             : v->o * (v->c / most(v->groups, 1)) * v->kh * v->kw
               * dpc_dtype_size(v->dtype_w);
    default:
        return v->batch * v->o * v->oh * v->ow * dpc_dtype_size(v->dtype_y);
    }
}

static int64_t conv_bytes(const DpcConv *v, uint32_t arg)
{
    static const uint8_t part[3][3] = {
        [DPC_CONV] = {PICTURE, FILTER, RESULT},
        [DPC_CONV_DX] = {RESULT, FILTER, PICTURE},
        [DPC_CONV_DW] = {PICTURE, RESULT, FILTER},
    };
    return arg < 3 && v->kind < 3 ? conv_part(v, part[v->kind][arg]) : 0;
}

static int64_t group_size(const DpcUnit *u, DpcAxes axes)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (axes >> i & 1)
            n *= u->axis[i].size;
    return n;
}

/* The side of a collective that holds parts has a group'th of its dimension,
 * the last one padded. */
static int64_t coll_bytes(const DpcUnit *u, const DpcColl *k, bool out)
{
    int64_t size = k->size, n = most(group_size(u, k->axes), 1);
    if (k->kind == DPC_HALO && out)
        size = k->lo + k->step + k->hi;
    if (k->kind == DPC_ALL_TO_ALL && !out)
        return k->to_outer * k->to_size * k->to_inner
             * dpc_dtype_size(k->dtype);
    if ((k->kind == DPC_REDUCE_SCATTER && out)
        || (k->kind == DPC_ALL_GATHER && !out))
        size = (size + n - 1) / n;
    return k->outer * size * k->inner * dpc_dtype_size(k->dtype);
}

/* Ranks of one role meet; turns and roles do not. */
static bool coll_axes_ok(const DpcUnit *u, const DpcColl *k)
{
    int64_t ranks = group_size(u, k->axes);
    if (k->kind == DPC_ALL_TO_ALL && k->ranks != ranks)
        return false;
    if (k->kind == DPC_HALO && (k->lo < 0 || k->hi < 0 || k->rows < 1
                                || k->step < 1 || k->size * ranks < k->rows))
        return false;
    for (uint32_t i = 0; i < 16; i++)
        if (k->axes >> i & 1
            && (i >= u->naxis || u->axis[i].kind != DPC_SPACE))
            return false;
    return k->axes != 0;
}

static DpcAxes swapped(DpcAxes a, DpcAxes ring)
{
    DpcAxes both = a & ring;
    return both && both != ring ? a ^ ring : a;
}

/* A ring: its axis and the twin of that change places. */
static bool ring_types_ok(const DpcUnit *u, const DpcColl *k,
                          const DpcBuf *in, const DpcBuf *out)
{
    DpcAxes ring = 0;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].twin > 0 && u->axis[i].kind == DPC_TIME
            && k->axes == (DpcAxes)(1u << (u->axis[i].twin - 1))
            && u->axis[u->axis[i].twin - 1].size == u->axis[i].size)
            ring = k->axes | (DpcAxes)(1u << i);
    return ring && (in->split & ring)
        && out->split == swapped(in->split, ring)
        && out->pending == swapped(in->pending, ring);
}

/* A reduction ends a fold that its operand owes, a gather a split, and all
 * else stays. */
static bool coll_types_ok(const DpcColl *k, const DpcBuf *in,
                          const DpcBuf *out)
{
    bool folds = k->kind == DPC_ALL_REDUCE || k->kind == DPC_REDUCE_SCATTER;
    DpcAxes ends = folds ? k->axes : 0;
    DpcAxes parts = k->kind == DPC_REDUCE_SCATTER ? k->axes : 0;
    DpcAxes joins = k->kind == DPC_ALL_GATHER ? k->axes : 0;
    bool meets = k->kind == DPC_ALL_TO_ALL || k->kind == DPC_HALO;
    DpcAxes wants = meets ? k->axes : joins;
    return (k->kind <= DPC_ALL_TO_ALL || k->kind == DPC_HALO)
        && (in->pending & ends) == ends
        && (in->split & wants) == wants && !(in->split & parts)
        && out->pending == (DpcAxes)(in->pending & ~ends)
        && out->split == (DpcAxes)((in->split & ~joins) | parts);
}

static int64_t bytes_wanted(const DpcCheck *c, const DpcStep *t, uint32_t arg)
{
    switch (t->kind) {
    case DPC_STEP_DOT:
        return dot_bytes(&c->u->dot[t->call], arg);
    case DPC_STEP_CONV:
        return conv_bytes(&c->u->conv[t->call], arg);
    default:
        return 0;
    }
}

/* ---- one step ---- */

static uint32_t calls_of(const DpcUnit *u, int kind)
{
    switch (kind) {
    case DPC_STEP_KERNEL: return u->nkernel;
    case DPC_STEP_DOT: return u->ndot;
    case DPC_STEP_CONV: case DPC_STEP_PACK: case DPC_STEP_UNPACK:
        return u->nconv;
    case DPC_STEP_COLL: case DPC_STEP_HOP:
        return u->ncoll;
    default: return UINT32_MAX;
    }
}

static uint32_t args_of(int kind)
{
    return kind == DPC_STEP_DOT || kind == DPC_STEP_CONV ? 3
         : kind == DPC_STEP_KERNEL ? 0 : kind == DPC_STEP_HOP ? 1 : 2;
}

static bool indices_ok(const DpcCheck *c, const DpcStep *t)
{
    const DpcProgram *p = c->p;
    uint32_t calls = t->kind == DPC_STEP_COLL ? t->narg / 2
                   : t->kind == DPC_STEP_HOP ? t->narg : 1;
    bool ok = t->kind < DPC_NSTEPKIND && t->stream < DPC_NSTREAM
           && t->call + (uint64_t)calls <= calls_of(c->u, t->kind)
           && t->node < p->nnode && t->narg >= args_of(t->kind)
           && (t->kind != DPC_STEP_COLL || t->narg % 2 == 0)
           && t->event < (int64_t)p->nevent && t->turn < c->turns;
    for (uint32_t i = 0; ok && i < t->nwait; i++)
        ok = p->wait[t->wait + i] < p->nevent;
    for (uint32_t i = 0; ok && i < t->narg; i++)
        ok = p->arg[t->arg + i] < p->nbuf;
    return ok;
}

/* What a library call writes is known by its place: the result, and what lies
 * behind it as scratch. */
static bool how_ok(const DpcCheck *c, const DpcStep *t, uint32_t arg)
{
    uint8_t how = c->p->how[t->arg + arg];
    bool scratch = !c->p->buf[c->p->arg[t->arg + arg]].value;
    if (scratch || t->kind == DPC_STEP_KERNEL)
        return how && how <= (DPC_READ | DPC_WRITE);
    if (t->kind == DPC_STEP_DOT || t->kind == DPC_STEP_CONV)
        return arg == 2 ? how & DPC_WRITE : how == DPC_READ;
    if (t->kind == DPC_STEP_HOP)
        return how == (c->u->coll[t->call + arg].kind == DPC_SEND
                       ? DPC_READ : DPC_WRITE);
    return arg % 2 ? how & DPC_WRITE : how == DPC_READ;
}

/* The instance of a value is a step's turn, counted along the value's own
 * time axes. */
static bool instance_ok(const DpcCheck *c, const DpcStep *t, uint32_t arg)
{
    const DpcBuf *b = &c->p->buf[c->p->arg[t->arg + arg]];
    uint32_t turn = t->turn, k = 0, times = 1;
    for (uint32_t i = c->u->naxis; i-- > 0;) {
        uint32_t n = (uint32_t)c->u->axis[i].size;
        if (c->u->axis[i].kind != DPC_TIME || !n)
            continue;
        if (b->along >> i & 1)
            k += turn % n * times, times *= n;
        turn /= n;
    }
    return !b->value || k == b->instance + t->turn % (b->slots ? b->slots : 1);
}

static bool of_host(const DpcBuf *b)
{
    return b->space == DPC_HOST_LEAVES || b->space == DPC_HOST_ARENA;
}

static DpcStatus step_ok(const DpcCheck *c, uint32_t s)
{
    const DpcStep *t = &c->p->step[s];
    if (!indices_ok(c, t))
        return dpc_check_fault(c, s, "names what the tables do not have");
    for (uint32_t i = 0; i < t->narg; i++) {
        int64_t has = c->p->buf[c->p->arg[t->arg + i]].size;
        int64_t wants = bytes_wanted(c, t, i);
        if (!instance_ok(c, t, i))
            return dpc_check_fault(c, s, "operand %u is of another turn", i);
        if (t->kind != DPC_STEP_COPY
            && of_host(&c->p->buf[c->p->arg[t->arg + i]]))
            return dpc_check_fault(c, s, "operand %u is in the host's memory, "
                                   "which only copies reach", i);
        if (!how_ok(c, t, i))
            return dpc_check_fault(c, s, "operand %u is read or written as "
                                   "its call does not", i);
        if (has < wants)
            return dpc_check_fault(c, s, "operand %u has %lld bytes, its call "
                                   "touches %lld", i, (long long)has,
                                   (long long)wants);
    }
    return DPC_OK;
}

static DpcStatus copy_ok(const DpcCheck *c, uint32_t s)
{
    const DpcStep *t = &c->p->step[s];
    if (t->kind != DPC_STEP_COPY)
        return DPC_OK;
    const DpcBuf *from = &c->p->buf[c->p->arg[t->arg]];
    const DpcBuf *to = &c->p->buf[c->p->arg[t->arg + 1]];
    return from->size == to->size ? DPC_OK
         : dpc_check_fault(c, s, "copies %lld bytes to %lld",
                           (long long)from->size, (long long)to->size);
}

static DpcStatus coll_ok(const DpcCheck *c, uint32_t s)
{
    const DpcStep *t = &c->p->step[s];
    for (uint32_t i = 0; t->kind == DPC_STEP_COLL && i < t->narg; i += 2) {
        const DpcColl *k = &c->u->coll[t->call + i / 2];
        const DpcBuf *in = &c->p->buf[c->p->arg[t->arg + i]];
        const DpcBuf *out = &c->p->buf[c->p->arg[t->arg + i + 1]];
        bool types = k->kind == DPC_RING ? ring_types_ok(c->u, k, in, out)
                   : coll_types_ok(k, in, out);
        if (!coll_axes_ok(c->u, k) || !types)
            return dpc_check_fault(c, s, "operand %u: the collective's axes "
                                   "are not those of its parts or folds", i);
        if (in->size != coll_bytes(c->u, k, false)
            || out->size != coll_bytes(c->u, k, true))
            return dpc_check_fault(c, s, "operand %u: %lld and %lld bytes, "
                "the collective takes %lld and leaves %lld", i,
                (long long)in->size, (long long)out->size,
                (long long)coll_bytes(c->u, k, false),
                (long long)coll_bytes(c->u, k, true));
    }
    return DPC_OK;
}

/* The other end's role differs in the stage axes alone, and the operand is
 * what the row says it is. */
static bool hop_row_ok(const DpcCheck *c, const DpcColl *k, const DpcBuf *b)
{
    DpcAxes stages = 0;
    for (uint32_t i = 0; i < c->u->naxis; i++)
        if (c->u->axis[i].kind == DPC_STAGE)
            stages |= (DpcAxes)(1u << i);
    return (k->kind == DPC_SEND || k->kind == DPC_RECV) && c->p->role >= 0
        && k->peer >= 0 && k->peer < dpc_roles(c->u)
        && k->peer != c->p->role && k->axes == stages
        && b->value && b->dtype == k->dtype + 1;
}

static DpcStatus hop_ok(const DpcCheck *c, uint32_t s)
{
    const DpcStep *t = &c->p->step[s];
    if (t->kind != DPC_STEP_HOP)
        return DPC_OK;
    if (t->narg > DPC_NHOP)
        return dpc_check_fault(c, s, "has %u hops, %d are the most", t->narg,
                               DPC_NHOP);
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcColl *k = &c->u->coll[t->call + i];
        const DpcBuf *b = &c->p->buf[c->p->arg[t->arg + i]];
        int64_t bytes = coll_bytes(c->u, k, true);
        if (!hop_row_ok(c, k, b))
            return dpc_check_fault(c, s, "operand %u: no hop between this "
                                   "role and role %d", i, k->peer);
        if (b->size != bytes)
            return dpc_check_fault(c, s, "operand %u: %lld bytes, the hop "
                                   "takes %lld", i, (long long)b->size,
                                   (long long)bytes);
    }
    return DPC_OK;
}

/* ---- all of them ---- */

static bool buf_ok(const DpcCheck *c, const DpcBuf *b)
{
    if (b->space >= DPC_NSPACE || b->at < 0 || b->size < 0 || b->stride < 0)
        return false;
    const int64_t rooms[] = {
        [DPC_LEAVES] = c->leaves, [DPC_ARENA] = c->p->arena,
        [DPC_IO] = c->p->io, [DPC_HOST_LEAVES] = c->host_leaves,
        [DPC_HOST_ARENA] = c->p->host };
    int64_t room = rooms[b->space];
    int64_t slots = b->slots > 1 ? b->slots - 1 : 0;
    return b->at <= room && b->size <= room && b->stride <= room
        && b->at + slots * b->stride + b->size <= room;
}

/* Turns that run number a product of time axes: then none was left out. */
static bool count_ok(const DpcUnit *u, uint32_t axis, int32_t n)
{
    for (; axis < u->naxis; axis++)
        if (u->axis[axis].kind == DPC_TIME && u->axis[axis].size
            && n % u->axis[axis].size == 0
            && count_ok(u, axis + 1, n / u->axis[axis].size))
            return true;
    return n == 1;
}

/* In how many turns a step must run: operands that are others in each turn of
 * some axes are all read, or written. */
static int32_t turns_of_step(const DpcCheck *c, const DpcStep *t)
{
    DpcAxes along = 0;
    for (uint32_t i = 0; i < t->narg; i++)
        along |= c->p->buf[c->p->arg[t->arg + i]].along;
    return (int32_t)group_size(c->u, along);
}

static DpcStatus once_a_turn(const DpcCheck *c, int32_t *runs, bool *ran)
{
    for (uint32_t s = 0; s < c->p->nstep; s++) {
        const DpcStep *t = &c->p->step[s];
        bool *at = &ran[(size_t)t->node * (size_t)c->turns + t->turn];
        if (*at)
            return dpc_check_fault(c, s, "runs a second time in its turn");
        *at = true;
        runs[t->node]++;
    }
    for (uint32_t s = 0; s < c->p->nstep; s++)
        if (!count_ok(c->u, 0, runs[c->p->step[s].node])
            || runs[c->p->step[s].node] % turns_of_step(c, &c->p->step[s]))
            return dpc_check_fault(c, s, "runs in %d of %d turns",
                                   runs[c->p->step[s].node], c->turns);
    return DPC_OK;
}

/* Does the step read, or write, that instance of a value? */
static bool touches(const DpcCheck *c, const DpcStep *t, const DpcBuf *b,
                    uint8_t how)
{
    bool does = false;
    for (uint32_t i = 0; i < t->narg && !does; i++) {
        const DpcBuf *x = &c->p->buf[c->p->arg[t->arg + i]];
        does = x->value == b->value && x->instance == b->instance
            && c->p->how[t->arg + i] & how;
    }
    return does;
}

/* What turns add up is read when all have been added: a step that both reads
 * and writes an instance comes before those that read it only.  A leaf may be
 * updated in its place.  by: a step + 1 by value and instance. */
static DpcStatus sums_whole(const DpcCheck *c, uint32_t *by)
{
    char place[DPC_PLACE];
    for (uint32_t s = 0; s < c->p->nstep; s++) {
        const DpcStep *t = &c->p->step[s];
        for (uint32_t i = 0; i < t->narg; i++) {
            const DpcBuf *b = &c->p->buf[c->p->arg[t->arg + i]];
            uint32_t *at = &by[(size_t)b->value * (size_t)c->turns
                               + b->instance % (uint32_t)c->turns];
            if (!b->value || b->space != DPC_ARENA
                || !(c->p->how[t->arg + i] & DPC_READ))
                continue;
            if (!touches(c, t, b, DPC_WRITE))
                *at = s + 1;
            else if (*at)
                return dpc_check_fault(c, s, "operand %u: adds to what was "
                    "read by %s", i, dpc_check_place(c, *at - 1, place));
        }
    }
    return DPC_OK;
}

static DpcStatus sums_check(const DpcCheck *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->p->nbuf; i++)
        most = c->p->buf[i].value > most ? c->p->buf[i].value : most;
    uint32_t *by = calloc(((size_t)most + 1) * (size_t)c->turns, sizeof *by);
    DpcStatus e = by ? sums_whole(c, by)
        : dpc_fail(DPC_MEMORY, "%s: error: no memory", c->u->model);
    free(by);
    return e;
}

DpcStatus dpc_check_calls(const DpcCheck *c)
{
    const DpcProgram *p = c->p;
    for (uint32_t i = 0; i < p->nbuf; i++)
        if (!buf_ok(c, &p->buf[i]))
            return dpc_fail(DPC_BUG, "%s: internal error: schedule of '%s': "
                            "buffer %u leaves its space", c->u->model,
                            p->entry, i);
    for (uint32_t s = 0; s < p->nstep; s++) {
        DpcStatus e = step_ok(c, s);
        if (!e)
            e = coll_ok(c, s);
        if (!e)
            e = copy_ok(c, s);
        if (!e)
            e = hop_ok(c, s);
        if (e)
            return e;
    }
    int32_t *runs = calloc(p->nnode + 1, sizeof *runs);
    bool *ran = calloc((size_t)p->nnode * (size_t)c->turns + 1, 1);
    DpcStatus e = runs && ran ? once_a_turn(c, runs, ran)
        : dpc_fail(DPC_MEMORY, "%s: error: no memory", c->u->model);
    free(runs);
    free(ran);
    return e ? e : sums_check(c);
}
