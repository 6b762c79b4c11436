/* stream.c -- the streams beside: threads that communicate, and events.
 *
 * DPC_COMPUTE is the thread that called dpc_rt_run; each other stream walks
 * its steps of the same program at the same time.  They meet by events only:
 * an event holds the number of the run that set it last, so nothing is ever
 * cleared.  Waiting looks a few times and then sleeps: a waiting thread must
 * leave its core to the others.  Hops have a stream of their own, since they
 * wait for another role, and sums would have to wait behind them.  Votes,
 * barriers and checkpoints are calls on the thread of collectives, between
 * runs.  A stream without steps has no thread; in a world of one calls run in
 * place.  The first stream that fails tells why, and the transport gives up,
 * so that no other waits in vain. */
#include "runtime/launch.h"
#include "runtime/rt.h"

#include <stdio.h>
#include <string.h>

enum { LOOKS = 64 };

void dpc_event_set(DpcRt *rt, _Atomic uint32_t *e, uint32_t round)
{
    atomic_store(e, round);
    if (!atomic_load(&rt->waiting))
        return;
    pthread_mutex_lock(&rt->lock);
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
}

/* DPC_ENV when another stream failed instead of setting it. */
DpcStatus dpc_event_await(DpcRt *rt, _Atomic uint32_t *e, uint32_t round)
{
    for (int i = 0; i < LOOKS; i++)
        if (atomic_load_explicit(e, memory_order_acquire) == round)
            return DPC_OK;
    pthread_mutex_lock(&rt->lock);
    atomic_fetch_add(&rt->waiting, 1);
    while (atomic_load(e) != round && !atomic_load(&rt->failed))
        pthread_cond_wait(&rt->bell, &rt->lock);
    atomic_fetch_sub(&rt->waiting, 1);
    pthread_mutex_unlock(&rt->lock);
    if (atomic_load(e) != round)
        return dpc_fail(DPC_ENV, "rank %d: error: another stream failed",
                        rt->comm->rank);
    return DPC_OK;
}

/* The first failure of a run counts, and ends the others' waits; under the
 * lock. */
static void fail_first(DpcRt *rt, int stream, DpcStatus s)
{
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&rt->failed, &none, stream + 1))
        rt->comm->ops->abort(rt->comm, dpc_exit_code(s));
    pthread_cond_broadcast(&rt->bell);
}

/* Does the job that was asked for; its failure is kept with its text, since
 * dpc_last_error is of this thread. */
static void job_do(DpcStream *t)
{
    DpcRt *rt = t->rt;
    DpcStatus s = t->call ? t->call(rt->comm, t->call_arg)
                          : dpc_walk_stream(rt, rt->program, t->number,
                                            rt->round, rt->step);
    pthread_mutex_lock(&rt->lock);
    t->status = s;
    if (s)
        snprintf(t->text, sizeof t->text, "%s", dpc_last_error());
    if (s && !t->call)
        fail_first(rt, t->number, s);
    t->answered = t->asked;
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
}

static void *stream_main(void *arg)
{
    DpcStream *t = arg;
    DpcRt *rt = t->rt;
    for (;;) {
        pthread_mutex_lock(&rt->lock);
        while (t->asked == t->answered && !rt->quit)
            pthread_cond_wait(&rt->bell, &rt->lock);
        bool quit = rt->quit;
        pthread_mutex_unlock(&rt->lock);
        if (quit)
            return NULL;
        job_do(t);
    }
}

static void ask(DpcStream *t, DpcCall *fn, void *arg)
{
    pthread_mutex_lock(&t->rt->lock);
    t->call = fn;
    t->call_arg = arg;
    t->asked++;
    pthread_cond_broadcast(&t->rt->bell);
    pthread_mutex_unlock(&t->rt->lock);
}

static DpcStatus answer(DpcStream *t)
{
    pthread_mutex_lock(&t->rt->lock);
    while (t->asked != t->answered)
        pthread_cond_wait(&t->rt->bell, &t->rt->lock);
    DpcStatus s = t->status;
    pthread_mutex_unlock(&t->rt->lock);
    return s ? dpc_fail(s, "%s", t->text) : DPC_OK;
}

static bool needed(const DpcRt *rt, int stream)
{
    bool any = stream == DPC_COLLECT && rt->comm->size > 1;
    for (uint32_t i = 0; i < rt->unit->nprogram; i++)
        any |= rt->walk[i].uses[stream];
    return any;
}

DpcStatus dpc_stream_open(DpcRt *rt)
{
    rt->serial = rt->guard || dpc_launch_flag("DPC_SERIAL");
    pthread_mutex_init(&rt->lock, NULL);
    pthread_cond_init(&rt->bell, NULL);
    for (int i = DPC_COMPUTE + 1; i < DPC_NSTREAM; i++) {
        DpcStream *t = &rt->stream[i];
        t->rt = rt, t->number = i;
        if (!needed(rt, i))
            continue;
        if (pthread_create(&t->thread, NULL, stream_main, t))
            return dpc_fail(DPC_ENV, "rank %d: error: cannot start a thread "
                            "for communication", rt->comm->rank);
        t->open = true;
    }
    return DPC_OK;
}

void dpc_stream_close(DpcRt *rt)
{
    bool any = false;
    for (int i = 0; i < DPC_NSTREAM; i++)
        any |= rt->stream[i].open;
    if (!any)
        return;
    pthread_mutex_lock(&rt->lock);
    rt->quit = true;
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
    for (int i = 0; i < DPC_NSTREAM; i++)
        if (rt->stream[i].open)
            pthread_join(rt->stream[i].thread, NULL);
    memset(rt->stream, 0, sizeof rt->stream);
}

DpcStatus dpc_rt_call(DpcRt *rt, DpcCall *fn, void *arg)
{
    DpcStream *t = &rt->stream[DPC_COLLECT];
    if (!t->open)
        return fn(rt->comm, arg);
    int32_t was = atomic_exchange(&rt->mark->state, DPC_MARK_CALLS);
    ask(t, fn, arg);
    DpcStatus s = answer(t);
    atomic_store(&rt->mark->state, was);
    return s;
}

static DpcStatus vote(DpcComm *c, void *value)
{
    return c->ops->vote(c, value);
}

DpcStatus dpc_rt_vote(DpcRt *rt, int32_t *value)
{
    return rt->comm->size > 1 ? dpc_rt_call(rt, vote, value) : DPC_OK;
}

/* All streams, joined at the end, so that the next run finds all written. */
static DpcStatus run_beside(DpcRt *rt, uint32_t program, uint64_t step)
{
    const bool *uses = rt->walk[program].uses;
    char why[sizeof rt->stream->text];
    rt->program = program;
    rt->step = step;
    for (int i = DPC_COMPUTE + 1; i < DPC_NSTREAM; i++)
        if (uses[i])
            ask(&rt->stream[i], NULL, NULL);
    DpcStatus s = dpc_walk_stream(rt, program, DPC_COMPUTE, rt->round, step);
    snprintf(why, sizeof why, "%s", s ? dpc_last_error() : "");
    pthread_mutex_lock(&rt->lock);
    if (s)
        fail_first(rt, DPC_COMPUTE, s);
    pthread_mutex_unlock(&rt->lock);
    for (int i = DPC_COMPUTE + 1; i < DPC_NSTREAM; i++) {
        DpcStatus other = uses[i] ? answer(&rt->stream[i]) : DPC_OK;
        if (other && atomic_load(&rt->failed) == i + 1) {
            s = other;
            snprintf(why, sizeof why, "%s", dpc_last_error());
        }
    }
    return s ? dpc_fail(s, "%s", why) : DPC_OK;
}

/* One step after the other, in the order of the list: to see what the streams
 * gain, or what a step writes. */
static DpcStatus run_serial(DpcRt *rt, uint32_t program, uint64_t step)
{
    DpcStatus s = DPC_OK;
    if (rt->guard)
        dpc_guard_begin(rt, program);
    for (uint32_t k = 0; !s && k < rt->unit->program[program].nstep; k++) {
        if (rt->guard)
            dpc_guard_fill(rt, program, k);
        s = dpc_walk_alone(rt, program, k, step);
        if (!s && rt->guard)
            s = dpc_guard_look(rt, program, k);
    }
    if (s)
        rt->comm->ops->abort(rt->comm, dpc_exit_code(s));
    return s;
}

DpcStatus dpc_rt_run(DpcRt *rt, uint32_t program, uint64_t step)
{
    double t = dpc_now();
    DpcStatus s;
    rt->round++;
    atomic_store(&rt->mark->runs, rt->round);
    atomic_store(&rt->mark->program, rt->number[program]);
    atomic_store(&rt->mark->step, step);
    atomic_store(&rt->mark->state, DPC_MARK_RUNS);
    if (rt->serial)
        s = run_serial(rt, program, step);
    else
        s = run_beside(rt, program, step);
    atomic_store(&rt->mark->state, DPC_MARK_IDLE);
    rt->times.run += dpc_now() - t;
    return s;
}
