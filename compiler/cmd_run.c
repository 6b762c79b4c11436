/* cmd_run.c -- dpc run: a binary on ranks of this machine.
 *
 * mpirun refuses root and more ranks than cores unless its environment says
 * otherwise; flags would differ between versions, so the environment it is.
 *
 * Asked to end, mpirun kills its ranks and fails, whatever they answer.  But it
 * passes SIGUSR1 on, which asks a binary the same: save and leave.  So that is
 * what it gets here for the first SIGTERM or SIGINT, the second is its own.  It
 * runs in a process group of its own, or the terminal would send it both. */
#include "compiler/options.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void environment(const Options *o, int64_t ranks)
{
    static const char *const pair[][2] = {
        { "OMPI_ALLOW_RUN_AS_ROOT", "1" },
        { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "OMPI_MCA_rmaps_base_oversubscribe", "1" },
        { "OMPI_MCA_hwloc_base_binding_policy", "none" },
        { "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" },
    };
    for (int i = 0; i < COUNT(pair); i++)
        setenv(pair[i][0], pair[i][1], 0);
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN) / ranks;
    setenv("OMP_NUM_THREADS", fmt(o->arena, "%lld",
                                  (long long)(cores > 1 ? cores : 1)), 0);
}

static volatile pid_t launcher;

static void pass_on(int sig)
{
    static volatile sig_atomic_t asked;
    kill(launcher, asked || (sig != SIGTERM && sig != SIGINT) ? sig : SIGUSR1);
    asked |= sig == SIGTERM || sig == SIGINT;
}

/* All signals that are passed on; how: SIG_BLOCK or SIG_UNBLOCK. */
static void signals_mask(int how)
{
    static const int all[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
    struct sigaction act = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < COUNT(all); i++) {
        sigaddset(&set, all[i]);
        if (how == SIG_UNBLOCK && launcher > 0)
            sigaction(all[i], &act, NULL);
    }
    sigprocmask(how, &set, NULL);
}

_Noreturn static void start(const char **arg)
{
    execvp(arg[0], (char **)arg);
    err_code(5, arg[0], "cannot be started: %s; see dpc doctor",
             strerror(errno));
}

/* Runs mpirun; its exit code. */
static int launch(const char **arg)
{
    int status = 0;
    signals_mask(SIG_BLOCK);
    launcher = fork();
    if (launcher < 0)
        err_code(5, arg[0], "cannot be started: %s", strerror(errno));
    if (launcher == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        setpgid(0, 0);
        if (!freopen("/dev/null", "r", stdin))
            _exit(5);
        signals_mask(SIG_UNBLOCK);
        start(arg);
    }
    signals_mask(SIG_UNBLOCK);
    while (waitpid(launcher, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* mpirun keeps what each rank says in DIR/1/rank.N/std{out,err}. */
static int log_to(const Options *o, const char **arg)
{
    struct stat st;
    if (mkdir(o->log_dir, 0777) != 0
        && (stat(o->log_dir, &st) != 0 || !S_ISDIR(st.st_mode)))
        err_code(5, o->log_dir, "no folder for logs: %s", strerror(errno));
    arg[0] = "--output-filename", arg[1] = o->log_dir;
    return 2;
}

/* mpirun's words, up to the number of ranks.  Without -v it adds none to what
 * they say when one fails. */
static int launcher_words(const Options *o, int64_t ranks, const char **arg)
{
    int n = 0;
    arg[n++] = "mpirun";
    if (!o->verbose)
        arg[n++] = "--quiet";
    if (o->log_dir)
        n += log_to(o, arg + n);
    arg[n++] = "-n", arg[n++] = fmt(o->arena, "%lld", (long long)ranks);
    return n;
}

int cmd_run(const Options *o)
{
    int64_t ranks = o->ranks_n ? o->ranks_n : 1;
    const char **arg = alloc(o->arena, (size_t)(o->nfile + 8) * sizeof *arg);
    int n = 0;
    const char *bin = o->file[0];
    if (access(bin, X_OK) != 0)
        err(bin, "cannot be run: %s", strerror(errno));
    if (!strchr(bin, '/'))
        bin = fmt(o->arena, "./%s", bin);
    bool many = ranks > 1 || o->log_dir;
    if (many)
        n = launcher_words(o, ranks, arg);
    arg[n++] = bin;
    for (int i = 1; i < o->nfile; i++)
        arg[n++] = o->file[i];
    environment(o, ranks);
    for (int i = 0; o->verbose && i < n; i++)
        fprintf(stderr, "%s%s", arg[i], i + 1 < n ? " " : "\n");
    if (many)
        return launch(arg);
    start(arg);
}
