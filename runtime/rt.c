/* rt.c -- opens a unit on a rank: memory, addresses, positions.
 *
 * Every address is a constant of (rank, step), because a step names its
 * turn.  So all of them are worked out here, once, and the walk only reads
 * them.  The spaces are mapped once: leaves as large as the unit says, the
 * arena as the largest program says, and IO as the sum over the programs, so
 * that inputs of one outlive a run of another.
 *
 * Where a mesh has stages, a rank sees the unit as its role does: the same
 * leaves, but the role's own programs only. */
#include "runtime/rt.h"
#include "runtime/box.h"
#include "runtime/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Of the OpenMP library, where one is linked.  oneDNN's scratch depends on the
 * number of threads, so a unit runs with the one it was planned for. */
extern void omp_set_num_threads(int) __attribute__((weak));

double dpc_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- names ---- */

int32_t dpc_rt_entry(const DpcUnit *u, const char *entry)
{
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (!strcmp(u->program[i].entry, entry))
            return (int32_t)i;
    return -1;
}

int32_t dpc_rt_find(const DpcUnit *u, const char *leaf)
{
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (!strcmp(u->leaf[i].name, leaf))
            return (int32_t)i;
    return -1;
}

void *dpc_rt_leaf(DpcRt *rt, const char *name)
{
    int32_t i = dpc_rt_find(rt->unit, name);
    if (i < 0 || rt->unit->leaf[i].kind > DPC_STATE
        || !dpc_leaf_here(&rt->unit->leaf[i], rt->role))
        return NULL;
    return rt->space[rt->unit->leaf[i].space] + rt->unit->leaf[i].at;
}

const DpcBuf *dpc_rt_port_buf(const DpcRt *rt, uint32_t program,
                              const char *name)
{
    const DpcProgram *p = &rt->unit->program[program];
    for (uint32_t i = 0; i < p->nport; i++)
        if (!strcmp(rt->unit->leaf[p->port[i].leaf].name, name))
            return &p->buf[p->port[i].buf];
    return NULL;
}

/* Slot `turn` of a buffer of a program. */
static char *address(const DpcRt *rt, uint32_t program, const DpcBuf *b,
                     int32_t turn)
{
    int64_t at = b->at + turn % (b->slots ? b->slots : 1) * b->stride;
    if (b->space == DPC_IO)
        at += rt->walk[program].io;
    return rt->space[b->space] + at;
}

void *dpc_rt_port_at(DpcRt *rt, uint32_t program, uint32_t port, int32_t slot)
{
    const DpcProgram *p = &rt->unit->program[program];
    return address(rt, program, &p->buf[p->port[port].buf], slot);
}

void *dpc_rt_port(DpcRt *rt, uint32_t program, const char *name, int32_t slot)
{
    const DpcBuf *b = dpc_rt_port_buf(rt, program, name);
    return b ? address(rt, program, b, slot) : NULL;
}

/* ---- coordinates ---- */

/* Coordinate of `turn` on time axis `axis`: row-major over the time axes. */
static int32_t turn_coord(const DpcUnit *u, uint32_t axis, int32_t turn)
{
    for (uint32_t i = u->naxis; i-- > axis + 1;)
        if (u->axis[i].kind == DPC_TIME)
            turn /= u->axis[i].size;
    return turn % u->axis[axis].size;
}

/* A rank begins a ring at its own place, so that two are partners at a turn:
 * where one is i and sees t, the other is t and sees i. */
static int32_t ring_coord(const DpcRt *rt, uint32_t axis, int32_t turn)
{
    int32_t of = rt->unit->axis[axis].twin, n = rt->unit->axis[axis].size;
    int32_t at = turn_coord(rt->unit, axis, turn);
    return of ? (at + n - rt->coord[of - 1]) % n : at;
}

int32_t dpc_rt_partner(const DpcRt *rt, DpcAxes axes, int32_t turn)
{
    for (uint32_t i = 0; i < rt->unit->naxis; i++)
        if (rt->unit->axis[i].twin
            && axes >> (rt->unit->axis[i].twin - 1) & 1)
            return ring_coord(rt, i, turn);
    return 0;
}

static void coord_at(const DpcRt *rt, int32_t turn, int32_t *coord)
{
    for (uint32_t i = 0; i < rt->unit->naxis; i++)
        coord[i] = rt->unit->axis[i].kind == DPC_TIME
                       ? ring_coord(rt, i, turn) : rt->coord[i];
}

/* "dp=2 tp=4" of the axes over ranks. */
static void mesh_text(const DpcUnit *u, char *to, size_t size)
{
    size_t n = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < u->naxis && n < size; i++)
        if (u->axis[i].kind != DPC_TIME)
            n += (size_t)snprintf(to + n, size - n, "%s%s=%d", n ? " " : "",
                                  u->axis[i].name, u->axis[i].size);
}

/* This rank's coordinates, row-major over the axes that ranks make up. */
static DpcStatus place(DpcRt *rt)
{
    const DpcUnit *u = rt->unit;
    char mesh[160];
    int64_t ranks = 1;
    int32_t rest = rt->comm->rank;
    rt->turns = 1;
    for (uint32_t i = u->naxis; i-- > 0;) {
        if (u->axis[i].kind == DPC_TIME) {
            rt->turns *= u->axis[i].size;
            continue;
        }
        rt->coord[i] = rest % u->axis[i].size;
        rest /= u->axis[i].size;
        ranks *= u->axis[i].size;
    }
    rt->role = dpc_role_at(u, rt->coord);
    if (ranks == rt->comm->size)
        return DPC_OK;
    mesh_text(u, mesh, sizeof mesh);
    return dpc_fail(DPC_USER, "%s: error: ranks: the plan is for %lld (%s) "
        "but %d came; start it with mpirun -n %lld, or compile a plan for %d",
        u->model, (long long)ranks, *mesh ? mesh : "no axis over ranks",
        rt->comm->size, (long long)ranks, rt->comm->size);
}

/* The role's own programs, under the numbers that this rank uses. */
static DpcStatus own_make(DpcRt *rt)
{
    const DpcUnit *u = rt->whole;
    DpcProgram *p = calloc(u->nprogram + 1, sizeof *p);
    rt->own = *u;
    rt->own.program = p;
    rt->own.nprogram = 0;
    rt->number = calloc(u->nprogram + 1, sizeof *rt->number);
    if (!p || !rt->number) {
        free(p);
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    }
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (u->program[i].role < 0 || u->program[i].role == rt->role) {
            rt->number[rt->own.nprogram] = i;
            p[rt->own.nprogram++] = u->program[i];
        }
    rt->unit = &rt->own;
    rt->walk = calloc(rt->own.nprogram + 1, sizeof *rt->walk);
    return rt->walk ? DPC_OK
         : dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
}

/* ---- memory ---- */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

void dpc_rt_planned(const DpcUnit *u, int32_t role, int64_t bytes[DPC_NSPACE])
{
    bytes[DPC_LEAVES] = u->leaves[role];
    bytes[DPC_HOST_LEAVES] = u->host_leaves ? u->host_leaves[role] : 0;
    bytes[DPC_ARENA] = bytes[DPC_IO] = bytes[DPC_HOST_ARENA] = 0;
    for (uint32_t i = 0; i < u->nprogram; i++) {
        const DpcProgram *p = &u->program[i];
        if (p->role >= 0 && p->role != role)
            continue;
        if (p->arena > bytes[DPC_ARENA])
            bytes[DPC_ARENA] = p->arena;
        if (p->host > bytes[DPC_HOST_ARENA])
            bytes[DPC_HOST_ARENA] = p->host;
        bytes[DPC_IO] += round_up(p->io, 64);
    }
}

/* The programs' IO lie one after the other, on lines of their own. */
static void spaces_size(DpcRt *rt)
{
    const DpcUnit *u = rt->unit;
    int64_t io = 0;
    dpc_rt_planned(u, rt->role, rt->bytes);
    for (uint32_t i = 0; i < u->nprogram; i++) {
        rt->walk[i].io = io;
        io += round_up(u->program[i].io, 64);
    }
}

static DpcStatus spaces_map(DpcRt *rt)
{
    static const char *const name[] = {"params and states", "arena", "io",
        "params and states of the host", "arena of the host"};
    for (int i = 0; i < DPC_NSPACE; i++) {
        size_t n = (size_t)round_up(rt->bytes[i], 4096);
        if (!n)
            continue;
        void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return dpc_fail(DPC_MEMORY, "%s: error: %s: %.1f MiB do not fit "
                "this machine; compile for more ranks, or with less batch",
                rt->unit->model, name[i], (double)n / 1048576);
#ifdef MADV_HUGEPAGE
        madvise(p, n, MADV_HUGEPAGE);     /* fewer faults; may be refused */
#endif
        rt->space[i] = p;
    }
    return DPC_OK;
}

/* ---- steps ---- */

static DpcStatus kernels_here(const DpcUnit *u)
{
    for (uint32_t i = 0; i < u->nkernel; i++)
        if (!u->kernel[i].fn)
            return dpc_fail(DPC_USER, "%s: error: kernel '%s' was not "
                            "compiled for this machine", u->model,
                            u->kernel[i].name);
    return DPC_OK;
}

static void walk_size(DpcRt *rt, uint32_t program, uint32_t *narg,
                      uint32_t *npos)
{
    const DpcProgram *p = &rt->unit->program[program];
    for (uint32_t s = 0; s < p->nstep; s++) {
        *narg += p->step[s].narg;
        *npos += p->step[s].npos;
    }
}

static void walk_fill(DpcRt *rt, uint32_t program)
{
    const DpcProgram *p = &rt->unit->program[program];
    DpcWalk *w = &rt->walk[program];
    uint32_t narg = 0, npos = 0;
    for (uint32_t s = 0; s < p->nstep; s++) {
        const DpcStep *t = &p->step[s];
        w->first[s] = narg;
        w->first_pos[s] = npos;
        w->uses[t->stream] = true;
        for (uint32_t i = 0; i < t->narg; i++)
            w->p[narg++] = address(rt, program, &p->buf[p->arg[t->arg + i]],
                                   t->turn);
        for (uint32_t i = 0; i < t->npos; i++) {
            const DpcPos *q = &p->pos[t->pos + i];
            int32_t coord[DPC_NAXIS];
            coord_at(rt, t->turn, coord);
            DpcPart part = dpc_part_of(rt->unit, q->split, q->size, coord);
            w->pos[npos++] = q->held || !q->split ? part.n : part.at;
        }
    }
}

static DpcStatus walk_open(DpcRt *rt, uint32_t program)
{
    const DpcProgram *p = &rt->unit->program[program];
    DpcWalk *w = &rt->walk[program];
    uint32_t narg = 0, npos = 0;
    walk_size(rt, program, &narg, &npos);
    w->p = calloc(narg + 1, sizeof *w->p);
    w->pos = calloc(npos + 1, sizeof *w->pos);
    w->first = calloc(p->nstep + 1, sizeof *w->first);
    w->first_pos = calloc(p->nstep + 1, sizeof *w->first_pos);
    w->event = calloc(p->nevent + 1, sizeof *w->event);
    if (!w->p || !w->pos || !w->first || !w->first_pos || !w->event)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for %u steps",
                        rt->unit->model, p->nstep);
    walk_fill(rt, program);
    return DPC_OK;
}

static bool needs_dnn(const DpcUnit *u)
{
    return u->ndot || u->nconv;
}

static DpcStatus open_parts(DpcRt *rt)
{
    DpcStatus s = place(rt);
    if (!s)
        s = kernels_here(rt->whole);
    if (!s)
        s = dpc_check(rt->whole);
    if (!s)
        s = own_make(rt);
    if (s)
        return s;
    const DpcUnit *u = rt->unit;
    if (u->threads > 0 && omp_set_num_threads)
        omp_set_num_threads(u->threads);
    spaces_size(rt);
    s = spaces_map(rt);
    if (!s)
        s = dpc_guard_open(rt);
    for (uint32_t i = 0; !s && i < u->nprogram; i++)
        s = walk_open(rt, i);
    if (!s && needs_dnn(u))
        s = dpc_dnn_open(u, &rt->dnn);
    if (!s)
        s = dpc_collect_open(rt);
    if (!s)
        s = dpc_stream_open(rt);
    dpc_small_open();
    return s;
}

/* Nothing else of a unit of another layout can be read, its name neither. */
DpcStatus dpc_rt_fits(const DpcUnit *u)
{
    return u->abi == DPC_ABI ? DPC_OK
        : dpc_fail(DPC_USER, "unit: error: it has layout %d but this runtime "
                   "knows %d; ./build.sh, then compile it again", u->abi,
                   DPC_ABI);
}

DpcStatus dpc_rt_open(const DpcUnit *u, DpcComm *comm, DpcRt **out)
{
    *out = NULL;
    DpcStatus fits = dpc_rt_fits(u);
    if (fits)
        return fits;
    DpcRt *rt = calloc(1, sizeof *rt);
    if (!rt)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    rt->unit = rt->whole = u;
    rt->comm = comm;
    rt->mark = &rt->own_mark;
    rt->threads = 1;
    DpcStatus s = open_parts(rt);
    if (s) {
        dpc_rt_close(rt);
        return s;
    }
    *out = rt;
    return DPC_OK;
}

void dpc_rt_close(DpcRt *rt)
{
    if (!rt)
        return;
    dpc_stream_close(rt);
    if (rt->dnn)
        dpc_dnn_close(rt->dnn);
    for (uint32_t i = 0; rt->walk && i < rt->unit->nprogram; i++) {
        DpcWalk *w = &rt->walk[i];
        free(w->p);
        free(w->pos);
        free(w->first);
        free(w->first_pos);
        free(w->event);
    }
    for (int i = 0; i < DPC_NSPACE; i++)
        if (rt->space[i])
            munmap(rt->space[i], (size_t)round_up(rt->bytes[i], 4096));
    dpc_guard_close(rt);
    free(rt->stage);
    free(rt->group);
    free(rt->walk);
    free(rt->number);
    free((void *)rt->own.program);
    free(rt);
}
