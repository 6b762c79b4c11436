/* stream.c -- the second stream: a thread that communicates, and events.
 *
 * Stream 0 is the thread that called dpc_rt_run; stream 1 walks the other
 * steps of the same program at the same time.  They meet by events only: an
 * event holds the number of the run that set it last, so nothing is ever
 * cleared.  Waiting looks a few times and then sleeps: a waiting thread must
 * leave its core to the other.  Votes, barriers and checkpoints are calls on
 * the same thread, because MPI is touched by one thread only.  A world of
 * one without steps on stream 1 has no thread: calls run in place. */
#include "runtime/rt.h"

#include <stdio.h>
#include <stdlib.h>
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

/* DPC_ENV when the other stream failed instead of setting it. */
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
        return dpc_fail(DPC_ENV, "rank %d: error: the other stream failed",
                        rt->comm->rank);
    return DPC_OK;
}

/* Does the job that was asked for; its failure is kept with its text, since
 * dpc_last_error is of this thread. */
static void job_do(DpcRt *rt)
{
    DpcStatus s = rt->call ? rt->call(rt->comm, rt->call_arg)
                           : dpc_walk_stream(rt, rt->program, 1, rt->round,
                                             rt->step);
    pthread_mutex_lock(&rt->lock);
    rt->status = s;
    if (s) {
        snprintf(rt->text, sizeof rt->text, "%s", dpc_last_error());
        if (!rt->call)
            atomic_store(&rt->failed, 1);
    }
    rt->answered = rt->asked;
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
}

static void *stream_main(void *arg)
{
    DpcRt *rt = arg;
    for (;;) {
        pthread_mutex_lock(&rt->lock);
        while (rt->asked == rt->answered && !rt->quit)
            pthread_cond_wait(&rt->bell, &rt->lock);
        bool quit = rt->quit;
        pthread_mutex_unlock(&rt->lock);
        if (quit)
            return NULL;
        job_do(rt);
    }
}

static void ask(DpcRt *rt, DpcCall *fn, void *arg)
{
    pthread_mutex_lock(&rt->lock);
    rt->call = fn;
    rt->call_arg = arg;
    rt->asked++;
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
}

static DpcStatus answer(DpcRt *rt)
{
    pthread_mutex_lock(&rt->lock);
    while (rt->asked != rt->answered)
        pthread_cond_wait(&rt->bell, &rt->lock);
    DpcStatus s = rt->status;
    pthread_mutex_unlock(&rt->lock);
    return s ? dpc_fail(s, "%s", rt->text) : DPC_OK;
}

DpcStatus dpc_stream_open(DpcRt *rt)
{
    bool both = rt->comm->size > 1;
    for (uint32_t i = 0; i < rt->unit->nprogram; i++)
        both |= rt->walk[i].both;
    const char *serial = getenv("DPC_SERIAL");
    rt->serial = serial && *serial && strcmp(serial, "0");
    pthread_mutex_init(&rt->lock, NULL);
    pthread_cond_init(&rt->bell, NULL);
    if (!both)
        return DPC_OK;
    if (pthread_create(&rt->thread, NULL, stream_main, rt))
        return dpc_fail(DPC_ENV, "rank %d: error: cannot start a thread for "
                        "communication", rt->comm->rank);
    rt->has_thread = true;
    return DPC_OK;
}

void dpc_stream_close(DpcRt *rt)
{
    if (!rt->has_thread)
        return;
    pthread_mutex_lock(&rt->lock);
    rt->quit = true;
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
    pthread_join(rt->thread, NULL);
    rt->has_thread = false;
}

DpcStatus dpc_rt_call(DpcRt *rt, DpcCall *fn, void *arg)
{
    if (!rt->has_thread)
        return fn(rt->comm, arg);
    int32_t was = atomic_exchange(&rt->mark->state, DPC_MARK_CALLS);
    ask(rt, fn, arg);
    DpcStatus s = answer(rt);
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

/* Stream 0 failed first: free the other stream, keep the reason. */
static DpcStatus give_up(DpcRt *rt, DpcStatus s)
{
    char why[sizeof rt->text];
    snprintf(why, sizeof why, "%s", dpc_last_error());
    pthread_mutex_lock(&rt->lock);
    pthread_cond_broadcast(&rt->bell);
    pthread_mutex_unlock(&rt->lock);
    rt->comm->ops->abort(rt->comm, dpc_exit_code(s));
    answer(rt);
    return dpc_fail(s, "%s", why);
}

/* Both streams, joined at the end, so that the next run finds all written. */
static DpcStatus run_both(DpcRt *rt, uint32_t program, uint64_t step)
{
    rt->program = program;
    rt->step = step;
    ask(rt, NULL, NULL);
    DpcStatus s = dpc_walk_stream(rt, program, 0, rt->round, step);
    if (s && !atomic_exchange(&rt->failed, 1))
        return give_up(rt, s);
    DpcStatus other = answer(rt);         /* it has the reason, if any */
    if (other)
        rt->comm->ops->abort(rt->comm, dpc_exit_code(other));
    return other;
}

/* One step after the other, in the order of the list: to see what the streams
 * gain. */
static DpcStatus run_serial(DpcRt *rt, uint32_t program, uint64_t step)
{
    DpcStatus s = DPC_OK;
    for (uint32_t k = 0; !s && k < rt->unit->program[program].nstep; k++)
        s = dpc_walk_alone(rt, program, k, step);
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
    else if (rt->walk[program].both)
        s = run_both(rt, program, step);
    else
        s = dpc_walk_stream(rt, program, 0, rt->round, step);
    atomic_store(&rt->mark->state, DPC_MARK_IDLE);
    rt->times.run += dpc_now() - t;
    return s;
}
