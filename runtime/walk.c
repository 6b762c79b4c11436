/* walk.c -- runs steps: one, a stream of them, or all under a magnifier.
 *
 * dpc_rt_hunt is what the NaN policy calls when a step came out wrong: it
 * runs the same step once more, one op after the other, and looks at every
 * float operand after each.  All ranks walk to the end, whatever they find,
 * because collectives need them; then the earliest finding wins. */
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
        s = dpc_collect_run(rt, t->call + i / 2, a[i], a[i + 1]);
    rt->times.comm += dpc_now() - begin;
    return s;
}

/* A kernel that wants scratch has it as its last operand. */
static void kernel(DpcRt *rt, uint32_t program, uint32_t step,
                   uint64_t number)
{
    const DpcWalk *w = &rt->walk[program];
    const DpcStep *t = &rt->unit->program[program].step[step];
    void **a = w->p + w->first[step];
    const DpcEnv env = {.seed = rt->seed, .step = number,
                        .pos = w->pos + w->first_pos[step],
                        .nthread = rt->threads,
                        .scratch = t->narg ? a[t->narg - 1] : NULL};
    rt->unit->kernel[t->call].fn(a, &env);
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

static DpcStatus step_run(DpcRt *rt, uint32_t program, uint32_t s,
                          uint64_t number)
{
    const DpcStep *t = &rt->unit->program[program].step[s];
    if (t->kind != DPC_STEP_COLL || !rt->has_thread)
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
                       : step_run(rt, program, s, number);
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

/* ---- the hunt ---- */

enum Bad { GOOD, INFINITE, NAN_HERE };

/* Exponent all ones: an infinity, or, with a fraction, a NaN. */
static enum Bad scan(const void *p, int dtype, int64_t bytes)
{
    enum Bad worst = GOOD;
    const uint32_t *f = p;
    const uint16_t *h = p;
    int64_t n = bytes / (dtype == DPC_F32 ? 4 : 2);
    for (int64_t i = 0; i < n && worst != NAN_HERE; i++) {
        uint32_t u = dtype == DPC_F32 ? f[i] : (uint32_t)h[i] << 16;
        if ((u & 0x7f800000) == 0x7f800000)
            worst = u & 0x7fffff ? NAN_HERE : INFINITE;
    }
    return worst;
}

static bool is_float(int dtype)
{
    return dtype == DPC_F32 || dtype == DPC_BF16;
}

static enum Bad scan_step(const DpcRt *rt, uint32_t program, uint32_t step)
{
    const DpcProgram *p = &rt->unit->program[program];
    const DpcStep *t = &p->step[step];
    void **a = rt->walk[program].p + rt->walk[program].first[step];
    enum Bad worst = GOOD;
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcBuf *b = &p->buf[p->arg[t->arg + i]];
        int dtype = b->dtype ? b->dtype - 1 : DPC_NDTYPE;
        enum Bad bad = is_float(dtype) ? scan(a[i], dtype, b->size) : GOOD;
        worst = bad > worst ? bad : worst;
    }
    return worst;
}

static void tell(const DpcRt *rt, uint32_t program, int64_t step,
                 const char *what, char *text, size_t size)
{
    const DpcProgram *p = &rt->unit->program[program];
    const DpcNode *n = &p->node[p->step[step].node];
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s%s: %s '%s': first %s, in turn %u, on "
             "rank %d", len ? "\n" : "", n->loc, n->op, n->name, what,
             p->step[step].turn, rt->comm->rank);
}

/* Leaves that are wrong before the step began. */
static bool leaves_bad(const DpcRt *rt, char *text, size_t size)
{
    for (uint32_t i = 0; i < rt->unit->nleaf; i++) {
        const DpcLeaf *l = &rt->unit->leaf[i];
        if (l->kind > DPC_STATE || !is_float(l->dtype) ||
            scan(rt->space[DPC_LEAVES] + l->at, l->dtype, l->bytes) == GOOD)
            continue;
        snprintf(text, size, "%s: %s: not finite before the step, on rank %d",
                 l->loc, l->name, rt->comm->rank);
        return true;
    }
    return false;
}

/* The earliest finding of all ranks speaks; of equals the lowest rank. */
static DpcStatus earliest(DpcRt *rt, int64_t mine, bool *speak)
{
    int32_t v = mine < 0 ? INT32_MIN : (int32_t)-mine, best = v;
    DpcStatus s = dpc_rt_vote(rt, &best);
    bool equal = mine >= 0 && best == v;
    int32_t rank = equal ? -rt->comm->rank : INT32_MIN, low = rank;
    if (!s)
        s = dpc_rt_vote(rt, &low);
    *speak = equal && low == rank;
    return s;
}

DpcStatus dpc_rt_hunt(DpcRt *rt, uint32_t program, uint64_t number, char *text,
                      size_t size)
{
    const DpcProgram *p = &rt->unit->program[program];
    int64_t nan = -1, inf = -1;
    text[0] = 0;
    bool before = leaves_bad(rt, text, size), speak;
    for (uint32_t s = 0; s < p->nstep; s++) {
        DpcStatus e = step_run(rt, program, s, number);
        if (e)
            return e;
        enum Bad bad = before ? GOOD : scan_step(rt, program, s);
        if (bad == NAN_HERE && nan < 0)
            nan = s;
        if (bad == INFINITE && inf < 0)
            inf = s;
    }
    int64_t first = before ? 0 : nan >= 0 ? nan : inf;
    DpcStatus e = earliest(rt, first, &speak);
    if (e || !speak || before)
        return e;
    if (inf >= 0 && (nan < 0 || inf < nan))
        tell(rt, program, inf, "infinity", text, size);
    if (nan >= 0)
        tell(rt, program, nan, "NaN", text, size);
    return DPC_OK;
}
