/* apart.c -- pieces of work that share nothing, in a process each.
 *
 * A compile keeps what it says, and where it stops, in globals, so the cores
 * are not threads.  What a piece says is kept until those before it are over:
 * the order of the lines is that of one process, whatever the cores. */
#include "compiler/apart.h"
#include "ir/base.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Piece {
    pid_t pid;                            /* 0: not begun */
    FILE *said;                           /* what stderr was there */
    bool over;
    int code;                             /* with which it ended */
} Piece;

static void piece_begin(Piece *p, ApartFn *fn, void *arg, int i)
{
    fflush(NULL);
    p->said = tmpfile();
    p->pid = p->said ? fork() : -1;
    if (p->pid < 0)
        err_code(5, "dpc", "no process: %s", strerror(errno));
    if (p->pid > 0)
        return;
    if (dup2(fileno(p->said), 2) < 0)
        _exit(5);
    fn(arg, i);
    fflush(NULL);
    _exit(0);
}

/* Waits for any. */
static void piece_wait(Piece *p, int n)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    for (int i = 0; i < n; i++)
        if (pid > 0 && p[i].pid == pid) {
            p[i].over = true;
            p[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 70;
        }
    if (pid < 0)
        die("no process to wait for: %s", strerror(errno));
}

static void say(Piece *p)
{
    int c;
    rewind(p->said);
    while ((c = getc(p->said)) != EOF)
        putc(c, stderr);
    fclose(p->said);
}

/* Says what the next ones said that are over; ends with the first that
 * failed, and ends those that run on. */
static int said_all(Piece *p, int n, int next)
{
    for (; next < n && p[next].over; next++) {
        say(&p[next]);
        if (!p[next].code)
            continue;
        for (int i = 0; i < n; i++)
            if (p[i].pid && !p[i].over) {
                kill(p[i].pid, SIGKILL);
                waitpid(p[i].pid, NULL, 0);
            }
        exit(p[next].code);
    }
    return next;
}

void apart_run(const int *order, int n, ApartFn *fn, void *arg)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    Piece *p = n > 1 && cores > 1 ? calloc((size_t)n, sizeof *p) : NULL;
    for (int i = 0; !p && i < n; i++)
        fn(arg, i);
    if (!p)
        return;
    for (int begun = 0, said = 0; said < n; said = said_all(p, n, said))
        if (begun < n && running < cores) {
            int i = order[begun++];
            piece_begin(&p[i], fn, arg, i);
            running++;
        } else {
            piece_wait(p, n);
            running--;
        }
    free(p);
}

void *apart_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        err_code(5, "dpc", "no memory: %s", strerror(errno));
    return p;
}

void apart_free(void *p, size_t bytes)
{
    munmap(p, bytes);
}
