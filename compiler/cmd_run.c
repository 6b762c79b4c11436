/* cmd_run.c -- dpc run: a binary on ranks of this machine.
 *
 * mpirun refuses root and more ranks than cores unless its environment says
 * otherwise; flags would differ between versions, so the environment it is. */
#include "compiler/options.h"
#include <errno.h>
#include <stdlib.h>
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
    if (ranks > 1) {
        arg[n++] = "mpirun", arg[n++] = "-n";
        arg[n++] = fmt(o->arena, "%lld", (long long)ranks);
    }
    arg[n++] = bin;
    for (int i = 1; i < o->nfile; i++)
        arg[n++] = o->file[i];
    environment(o, ranks);
    for (int i = 0; o->verbose && i < n; i++)
        fprintf(stderr, "%s%s", arg[i], i + 1 < n ? " " : "\n");
    execvp(arg[0], (char **)arg);
    err_code(5, arg[0], "cannot be started: %s%s", strerror(errno),
             ranks > 1 ? "; see dpc doctor" : "");
}
