/* guard.c -- does a step write its results only, and all that is read of them?
 *
 * The schedule is checked before it runs (check.c), but as it says of itself:
 * that a kernel keeps to the bytes of its results is the emitter's promise.
 * With DPC_GUARD=1 steps run one after the other, beside a copy of all memory,
 * and two questions are asked of each:
 *
 *   - A byte that changed outside of its results ends the run: the op, its Lua
 *     line and the value that was hit are named.
 *   - Before it runs its results are filled with ones, which are NaNs, -1 or
 *     255.  What it leaves unwritten, padding for example, then spoils whoever
 *     reads it: the loss shows it.
 *
 * That is what a memory checker does for addresses, for the buffers of a plan,
 * in the manner of Valgrind's memcheck (Seward, Nethercote, USENIX ATC 2005);
 * it costs one pass over all memory a step. */
#include "runtime/launch.h"
#include "runtime/rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNWRITTEN = 0xFF };

typedef struct DpcGuard {
    char *shadow[DPC_NSPACE];             /* all memory as a step found it */
    bool *begun;                          /* [value][turns]: that instance has
                                             a part by now, in this run */
} DpcGuard;

static uint32_t values(const DpcProgram *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nbuf; i++)
        n = p->buf[i].value > n ? p->buf[i].value : n;
    return n + 1;
}

static size_t instances(const DpcRt *rt, uint32_t program)
{
    return (size_t)values(&rt->unit->program[program]) * (size_t)rt->turns;
}

DpcStatus dpc_guard_open(DpcRt *rt)
{
    size_t most = 0;
    if (!dpc_launch_flag("DPC_GUARD"))
        return DPC_OK;
    DpcGuard *g = rt->guard = calloc(1, sizeof *g);
    for (uint32_t i = 0; i < rt->unit->nprogram; i++)
        most = instances(rt, i) > most ? instances(rt, i) : most;
    bool room = g && (g->begun = malloc(most + 1));
    for (int i = 0; i < DPC_NSPACE && room; i++)
        room = (g->shadow[i] = malloc((size_t)rt->bytes[i] + 1));
    return room ? DPC_OK
         : dpc_fail(DPC_MEMORY, "%s: error: DPC_GUARD: memory does not hold "
                    "everything twice", rt->unit->model);
}

void dpc_guard_close(DpcRt *rt)
{
    for (int i = 0; i < DPC_NSPACE && rt->guard; i++)
        free(rt->guard->shadow[i]);
    if (rt->guard)
        free(rt->guard->begun);
    free(rt->guard);
}

void dpc_guard_begin(DpcRt *rt, uint32_t program)
{
    memset(rt->guard->begun, 0, instances(rt, program));
    for (int i = 0; i < DPC_NSPACE; i++)
        if (rt->space[i])
            memcpy(rt->guard->shadow[i], rt->space[i], (size_t)rt->bytes[i]);
}

/* ---- operands of a step ---- */

typedef struct Operand {
    char *p;
    const DpcBuf *buf;
    bool reads, writes;                   /* scratch: it writes */
} Operand;

static Operand operand(const DpcRt *rt, uint32_t program, uint32_t step,
                       uint32_t i)
{
    const DpcProgram *p = &rt->unit->program[program];
    const DpcWalk *w = &rt->walk[program];
    uint32_t arg = p->step[step].arg + i;
    const DpcBuf *b = &p->buf[p->arg[arg]];
    return (Operand){w->p[w->first[step] + i], b, p->how[arg] & DPC_READ,
                     !b->value || p->how[arg] & DPC_WRITE};
}

static bool meet(const Operand *a, const Operand *b)
{
    return a->p < b->p + b->buf->size && b->p < a->p + a->buf->size;
}

/* A result may lie over an operand: then it is not the step's to fill. */
static bool is_read(const DpcRt *rt, uint32_t program, uint32_t step,
                    const Operand *o)
{
    for (uint32_t i = 0; i < rt->unit->program[program].step[step].narg; i++) {
        Operand q = operand(rt, program, step, i);
        if (q.reads && meet(&q, o))
            return true;
    }
    return false;
}

/* Has no step written of that instance?  Turns may each bring a part. */
static bool begins(DpcRt *rt, const DpcStep *t, const DpcBuf *b)
{
    uint32_t k = b->instance + t->turn % (b->slots ? b->slots : 1);
    bool *begun = &rt->guard->begun[b->value * (size_t)rt->turns + k];
    bool first = !b->value || !*begun;
    *begun = true;
    return first;
}

void dpc_guard_fill(DpcRt *rt, uint32_t program, uint32_t step)
{
    const DpcStep *t = &rt->unit->program[program].step[step];
    for (uint32_t i = 0; i < t->narg; i++) {
        Operand o = operand(rt, program, step, i);
        if (o.writes && begins(rt, t, o.buf) && !is_read(rt, program, step, &o))
            memset(o.p, UNWRITTEN, (size_t)o.buf->size);
    }
}

/* ---- what has changed ---- */

/* A value of this program whose bytes lie there; NULL: none's do. */
static const char *owner(const DpcRt *rt, uint32_t program, const char *at)
{
    const DpcProgram *p = &rt->unit->program[program];
    const char *name = NULL;
    for (uint32_t s = 0; s < p->nstep; s++)
        for (uint32_t i = 0; i < p->step[s].narg; i++) {
            Operand o = operand(rt, program, s, i);
            if (at >= o.p && at < o.p + o.buf->size && o.writes && o.buf->value)
                name = p->node[p->step[s].node].name;
        }
    return name;
}

static DpcStatus tell(const DpcRt *rt, uint32_t program, uint32_t step,
                      int space, int64_t at)
{
    const DpcProgram *p = &rt->unit->program[program];
    const DpcNode *n = &p->node[p->step[step].node];
    const char *name = owner(rt, program, rt->space[space] + at);
    int64_t bytes = 0;
    for (int64_t i = at; i < rt->bytes[space]; i++)
        bytes += rt->space[space][i] != rt->guard->shadow[space][i];
    return dpc_fail(DPC_BUG, "%s: error: %s '%s': turn %u of it changed %lld "
                    "bytes outside of its results, from byte %lld of space %d "
                    "on%s%s%s; this is a fault of dpc", n->loc, n->op, n->name,
                    p->step[step].turn, (long long)bytes, (long long)at, space,
                    name ? ", where '" : "", name ? name : "",
                    name ? "' may lie" : "");
}

DpcStatus dpc_guard_look(DpcRt *rt, uint32_t program, uint32_t step)
{
    for (uint32_t i = 0; i < rt->unit->program[program].step[step].narg; i++) {
        Operand o = operand(rt, program, step, i);
        int64_t at = o.p - rt->space[o.buf->space];
        if (o.writes)
            memcpy(rt->guard->shadow[o.buf->space] + at, o.p,
                   (size_t)o.buf->size);
    }
    for (int i = 0; i < DPC_NSPACE; i++) {
        int64_t at = 0, n = rt->space[i] ? rt->bytes[i] : 0;
        if (!n || !memcmp(rt->space[i], rt->guard->shadow[i], (size_t)n))
            continue;
        while (rt->space[i][at] == rt->guard->shadow[i][at])
            at++;
        return tell(rt, program, step, i, at);
    }
    return DPC_OK;
}
