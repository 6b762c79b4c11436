/* watch.c -- signals, dead ranks, hangs.
 *
 * The schedule is static, so where a rank is fits in three numbers, which it
 * writes into a page of its node at each step of the walk.  A thread of every
 * rank looks at the page ten times a second: a rank whose process is gone
 * without having left is dead, and its last numbers say in which op.  The
 * thread calls neither MPI nor the walk and takes no lock that they hold, so
 * it is not stuck when they are; it ends the process by _exit, since a rank
 * in a collective with a dead one can't be brought back.  When the launcher
 * dies its ranks have another parent, and leave too. */
#include "runtime/watch.h"
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 100000000, GRACE_LOOKS = 20 };

typedef struct Page {
    _Atomic uint32_t said;                /* bit s: status s was told */
    DpcMark mark[];                       /* [local_size] */
} Page;

struct DpcWatch {
    DpcRt *rt;
    Page *page;
    int32_t n, me;
    double timeout;
    pid_t parent;                         /* 0: nobody launched us */
    pthread_t thread;
    _Atomic int quit;
    bool started;
    uint64_t seen[4];                     /* progress at the last look */
    double since;                         /* when it last changed */
    int failed_looks;
};

static volatile sig_atomic_t stop_asked, dump_asked;

static void on_signal(int sig)
{
    if (sig == SIGUSR2)
        dump_asked = 1;
    else if (sig == SIGINT && stop_asked)
        _exit(130);                       /* twice: now */
    else
        stop_asked = 1;
}

bool dpc_watch_stop(void)
{
    return stop_asked != 0;
}

static void signals_catch(void)
{
    static const int all[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    stop_asked = dump_asked = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sigaction(all[i], &a, NULL);
}

/* ---- where ---- */

static const DpcNode *node_at(const DpcProgram *p, uint32_t step)
{
    return step < p->nstep ? &p->node[p->step[step].node] : NULL;
}

void dpc_watch_where(const DpcUnit *u, const DpcMark *m, char *to, size_t size)
{
    uint32_t program = atomic_load(&m->program);
    const DpcNode *n = NULL;
    if (program < u->nprogram)
        n = node_at(&u->program[program], atomic_load(&m->at[0]));
    int32_t state = atomic_load(&m->state);
    if (state != DPC_MARK_RUNS || !n)
        snprintf(to, size, "after step %llu, %s",
                 (unsigned long long)atomic_load(&m->step),
                 state == DPC_MARK_CALLS ? "talking with the others"
                                         : "outside of any op");
    else
        snprintf(to, size, "at step %llu of '%s' in op '%s' (%s)",
                 (unsigned long long)atomic_load(&m->step),
                 u->program[program].entry, n->name, n->loc);
}

static void dump(const DpcWatch *w)
{
    char where[512];
    for (int32_t i = 0; i < w->n; i++) {
        dpc_watch_where(w->rt->whole, &w->page->mark[i], where,
                        sizeof where);
        fprintf(stderr, "note: rank %d (pid %d) is %s\n",
                atomic_load(&w->page->mark[i].rank),
                atomic_load(&w->page->mark[i].pid), where);
    }
}

/* ---- death ---- */

/* No such process, or one that only waits to be buried. */
static bool gone(pid_t pid)
{
    char path[40], text[256];
    if (kill(pid, 0) && errno == ESRCH)
        return true;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    text[n] = 0;
    const char *p = strrchr(text, ')');
    return p && p[1] && (p[2] == 'Z' || p[2] == 'X');
}

static void death_tell(DpcWatch *w, const DpcMark *m)
{
    char where[512];
    if (!dpc_watch_first(w, DPC_ENV))
        return;
    dpc_watch_where(w->rt->whole, m, where, sizeof where);
    fprintf(stderr, "error: rank %d (pid %d) died %s; the others stop; start "
            "again with --resume auto\n", atomic_load(&m->rank),
            atomic_load(&m->pid), where);
}

static void peers_look(DpcWatch *w)
{
    for (int32_t i = 0; i < w->n; i++) {
        const DpcMark *m = &w->page->mark[i];
        int32_t pid = atomic_load(&m->pid), state = atomic_load(&m->state);
        if (i == w->me || !pid || state == DPC_MARK_LEFT)
            continue;
        if (state == DPC_MARK_FAILED && ++w->failed_looks > GRACE_LOOKS)
            _exit(dpc_exit_code(DPC_ENV));
        if (state == DPC_MARK_FAILED || !gone(pid))
            continue;
        death_tell(w, m);
        _exit(dpc_exit_code(DPC_ENV));
    }
    if (w->parent && getppid() != w->parent)
        _exit(dpc_exit_code(DPC_ENV));
}

/* ---- hangs ---- */

static void progress_look(DpcWatch *w)
{
    const DpcMark *m = w->rt->mark;
    uint64_t now[4] = {atomic_load(&m->step), atomic_load(&m->at[0]),
                       atomic_load(&m->at[1]) + atomic_load(&m->at[2]),
                       atomic_load(&m->runs)};
    int32_t state = atomic_load(&m->state);
    bool runs = state == DPC_MARK_RUNS || state == DPC_MARK_CALLS;
    if (!runs || memcmp(now, w->seen, sizeof now)) {
        memcpy(w->seen, now, sizeof now);
        w->since = dpc_now();
        return;
    }
    if (w->timeout <= 0 || dpc_now() - w->since < w->timeout)
        return;
    if (dpc_watch_first(w, DPC_ENV)) {
        fprintf(stderr, "error: nothing moved for %.0f s (--timeout)\n",
                w->timeout);
        dump(w);
    }
    _exit(dpc_exit_code(DPC_ENV));
}

static void *watch_main(void *arg)
{
    DpcWatch *w = arg;
    const struct timespec nap = {0, LOOK_NS};
    while (!atomic_load(&w->quit)) {
        peers_look(w);
        progress_look(w);
        if (dump_asked) {
            dump_asked = 0;
            if (w->me == 0)
                dump(w);
        }
        nanosleep(&nap, NULL);
    }
    return NULL;
}

/* ---- opening ---- */

static DpcStatus share(DpcComm *c, void *arg)
{
    DpcWatch *w = arg;
    size_t n = sizeof *w->page + sizeof *w->page->mark * (size_t)w->n;
    return c->ops->share(c, n, (void **)&w->page);
}

static void join_page(DpcWatch *w)
{
    DpcMark *m = &w->page->mark[w->me];
    atomic_store(&m->rank, w->rt->comm->rank);
    atomic_store(&m->state, DPC_MARK_IDLE);
    atomic_store(&m->pid, (int32_t)getpid());
    w->rt->mark = m;
}

DpcStatus dpc_watch_open(DpcRt *rt, double timeout_s, DpcWatch **out)
{
    DpcWatch *w = calloc(1, sizeof *w);
    if (!w)
        return dpc_fail(DPC_MEMORY, "watch: error: no memory");
    w->rt = rt;
    w->n = rt->comm->local_size;
    w->me = rt->comm->local_rank;
    w->timeout = timeout_s;
    w->parent = dpc_launch_detect().by ? getppid() : 0;
    w->since = dpc_now();
    DpcStatus s = dpc_rt_call(rt, share, w);
    if (s) {
        free(w);
        return s;
    }
    join_page(w);
    signals_catch();
    w->started = !pthread_create(&w->thread, NULL, watch_main, w);
    *out = w;
    return w->started ? DPC_OK
        : dpc_fail(DPC_ENV, "watch: error: cannot start a thread");
}

bool dpc_watch_first(DpcWatch *w, DpcStatus s)
{
    uint32_t bit = 1u << s;
    return !(atomic_fetch_or(&w->page->said, bit) & bit);
}

void dpc_watch_leave(DpcWatch *w, bool failed)
{
    if (w)
        atomic_store(&w->rt->mark->state,
                     failed ? DPC_MARK_FAILED : DPC_MARK_LEFT);
}

void dpc_watch_close(DpcWatch *w)
{
    if (!w)
        return;
    atomic_store(&w->quit, 1);
    if (w->started)
        pthread_join(w->thread, NULL);
    w->rt->mark = &w->rt->own_mark;
    free(w);
}
