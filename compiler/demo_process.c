/* demo_process.c -- other programs, run and waited for.
 *
 * A child dies with us: a demo that is killed leaves no rank behind. */
#include "compiler/demo.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double seconds_cpu(void)
{
    struct rusage r;
    getrusage(RUSAGE_CHILDREN, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void redirect(const char *path, int fd)
{
    int to = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : fd;
    if (to < 0 || (to != fd && dup2(to, fd) < 0))
        _exit(127);
    if (to != fd)
        close(to);
}

static void start(Process *p)
{
    fflush(NULL);
    p->seconds = seconds_now();
    p->code = 127;
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    redirect(p->out, 1);
    redirect(p->log, 2);
    execvp(p->arg[0], (char **)p->arg);
    fprintf(stderr, "%s: error: cannot be started: %s\n", p->arg[0],
            strerror(errno));
    _exit(127);
}

/* Waits for one of them; its index. */
static int wait_any(Process *p, int n)
{
    int status;
    for (;;) {
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno != EINTR)
            return -1;
        for (int i = 0; i < n; i++) {
            if (p[i].pid != pid || pid <= 0)
                continue;
            p[i].seconds = seconds_now() - p[i].seconds;
            p[i].code = WIFEXITED(status) ? WEXITSTATUS(status)
                                          : 128 + WTERMSIG(status);
            p[i].pid = 0;
            return i;
        }
    }
}

int processes_run(Process *p, int n, int at_once)
{
    int running = 0, next = 0, failed = 0;
    for (int i = 0; i < n; i++)
        p[i].code = -1, p[i].pid = 0;
    while (running || (next < n && !failed)) {
        while (!failed && next < n && running < at_once) {
            start(&p[next]);
            if (p[next].pid < 0)
                failed++;
            else
                running++;
            next++;
        }
        if (!running)
            break;
        int i = wait_any(p, next);
        running--;
        failed += i < 0 || p[i].code != 0;
    }
    return failed;
}

static bool plain(const char *s)
{
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
                           "XYZ0123456789_-+=:,./@%") == strlen(s);
}

char *process_text(Arena *a, const Process *p)
{
    Str s = { .arena = a };
    for (int i = 0; p->arg[i]; i++)
        str_add(&s, plain(p->arg[i]) ? "%s%s" : "%s'%s'", i ? " " : "",
                p->arg[i]);
    return s.p;
}
