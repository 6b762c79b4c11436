/* walk.c -- runs steps: one, or a stream of them. */
#include "runtime/profile.h"

#include <stdio.h>
#include <string.h>

static DpcStatus copy(const DpcProgram *p, const DpcStep *t, void **a)
{
    int64_t from = p->buf[p->arg[t->arg]].size;
    int64_t to = p->buf[p->arg[t->arg + 1]].size;
    if (a[0] != a[1])
        memmove(a[1], a[0], (size_t)(from < to ? from : to));
    return DPC_OK;
}

static DpcStatus collect(DpcRt *rt, const DpcStep *t, void **a)
{
    double begin = dpc_now();
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i + 1 < t->narg; i += 2)
        s = dpc_collect_run(rt, t->call + i / 2, t->turn, a[i],
                            a[i + 1]);
    rt->times.comm += dpc_now() - begin;
    return s;
}

/* A kernel that wants scratch has it as its last operand. */
DpcEnv dpc_walk_env(const DpcRt *rt, uint32_t program, uint32_t step,
                    uint64_t number)
{
    const DpcWalk *w = &rt->walk[program];
    const DpcStep *t = &rt->unit->program[program].step[step];
    void **a = w->p + w->first[step];
    return (DpcEnv){.seed = rt->seed, .step = number,
                    .pos = w->pos + w->first_pos[step],
                    .nthread = rt->threads,
                    .scratch = t->narg ? a[t->narg - 1] : NULL};
}

static void kernel(DpcRt *rt, uint32_t program, uint32_t step,
                   uint64_t number)
{
    const DpcWalk *w = &rt->walk[program];
    const DpcEnv env = dpc_walk_env(rt, program, step, number);
    uint32_t call = rt->unit->program[program].step[step].call;
    rt->unit->kernel[call].fn(w->p + w->first[step], &env);
}

DpcStatus dpc_walk_step(DpcRt *rt, uint32_t program, uint32_t step,
                        uint64_t number)
{
    const DpcProgram *p = &rt->unit->program[program];
    const DpcStep *t = &p->step[step];
    void **a = rt->walk[program].p + rt->walk[program].first[step];
    void *scratch = t->narg > 3 ? a[3] : NULL;
    switch (t->kind) {
    case DPC_STEP_KERNEL:
        kernel(rt, program, step, number);
        return DPC_OK;
    case DPC_STEP_DOT:
        return dpc_dnn_dot(rt->dnn, t->call, a[0], a[1], a[2], scratch);
    case DPC_STEP_CONV:
        return dpc_dnn_conv(rt->dnn, t->call, a[0], a[1], a[2], scratch);
    case DPC_STEP_PACK:
        return dpc_dnn_pack(rt->dnn, t->call, a[0], a[1]);
    case DPC_STEP_UNPACK:
        return dpc_dnn_unpack(rt->dnn, t->call, a[0], a[1]);
    case DPC_STEP_COLL:
        return collect(rt, t, a);
    case DPC_STEP_HOP:
        return dpc_collect_hops(rt, t->call, t->narg, a);
    default:
        return copy(p, t, a);
    }
}

/* Awaits what a step waits for.  Only the compute stream's waits are lost
 * time worth counting. */
static DpcStatus await(DpcRt *rt, uint32_t program, const DpcStep *t,
                       uint32_t round)
{
    const uint32_t *wait = rt->unit->program[program].wait + t->wait;
    if (!t->nwait)
        return DPC_OK;
    double begin = dpc_now();
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < t->nwait; i++)
        s = dpc_event_await(rt, &rt->walk[program].event[wait[i]], round);
    if (t->stream == 0)
        rt->times.wait += dpc_now() - begin;
    return s;
}

static bool communicates(const DpcStep *t)
{
    return t->kind == DPC_STEP_COLL || t->kind == DPC_STEP_HOP;
}

/* A collective on stream 0 runs on the thread that may communicate. */
typedef struct Errand {
    DpcRt *rt;
    uint32_t program, step;
    uint64_t number;
} Errand;

static DpcStatus errand(DpcComm *c, void *arg)
{
    Errand *e = arg;
    (void)c;
    return dpc_walk_step(e->rt, e->program, e->step, e->number);
}

DpcStatus dpc_walk_alone(DpcRt *rt, uint32_t program, uint32_t s,
                         uint64_t number)
{
    const DpcStep *t = &rt->unit->program[program].step[s];
    if (!communicates(t) || !rt->stream[DPC_COLLECT].open)
        return dpc_walk_step(rt, program, s, number);
    Errand e = {rt, program, s, number};
    return dpc_rt_call(rt, errand, &e);
}

DpcStatus dpc_walk_stream(DpcRt *rt, uint32_t program, int stream,
                          uint32_t round, uint64_t number)
{
    const DpcProgram *p = &rt->unit->program[program];
    DpcWalk *w = &rt->walk[program];
    for (uint32_t s = 0; s < p->nstep; s++) {
        const DpcStep *t = &p->step[s];
        if (t->stream != stream)
            continue;
        atomic_store_explicit(&rt->mark->at[stream], s, memory_order_relaxed);
        DpcStatus e = await(rt, program, t, round);
        DpcSpan begin = {0};
        if (rt->profile)
            begin = dpc_profile_now();
        if (!e)
            e = stream ? dpc_walk_step(rt, program, s, number)
                       : dpc_walk_alone(rt, program, s, number);
        if (e)
            return e;
        if (rt->profile)
            dpc_profile_note(rt->profile, program, s,
                             dpc_profile_since(begin));
        if (t->event >= 0)
            dpc_event_set(rt, &w->event[t->event], round);
    }
    return DPC_OK;
}
