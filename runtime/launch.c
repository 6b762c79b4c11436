/* launch.c -- who started us, as which rank, with how many threads.
 *
 * Each launcher names rank and world by its own variables; the first row
 * that is complete wins, so mpirun inside a Slurm job counts as mpirun.
 * A spinning OpenMP pool next to another rank's is not a little slower but a
 * hundred times (measured: 4 instead of 1107 GFLOP/s), hence the passive
 * wait policy and threads = cores / local ranks. */
#define _GNU_SOURCE                       /* sched_getaffinity */
#include "runtime/launch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Launcher {
    const char *by, *rank, *size, *local_rank, *local_size;
} Launcher;

static const Launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE"},
};

/* The number in variable `name`, or -1. */
static int32_t number(const char *name)
{
    const char *s = getenv(name);
    char *end;
    if (!s || !*s)
        return -1;
    errno = 0;
    long v = strtol(s, &end, 10);
    return *end || errno || v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
}

bool dpc_launch_flag(const char *name)
{
    const char *s = getenv(name);
    return s && *s && strcmp(s, "0");
}

/* Slurm sets its variables in the batch script too, outside of srun. */
static bool inside(const Launcher *l)
{
    return strcmp(l->by, "srun") || getenv("SLURM_STEP_ID");
}

DpcLaunch dpc_launch_detect(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const Launcher *l = &launchers[i];
        int32_t rank = number(l->rank), size = number(l->size);
        if (rank < 0 || size < 1 || rank >= size || !inside(l))
            continue;
        int32_t lr = number(l->local_rank), ls = number(l->local_size);
        return (DpcLaunch){l->by, rank, size, lr < 0 ? rank : lr,
                           ls < 1 ? size : ls};
    }
    return (DpcLaunch){NULL, 0, 1, 0, 1};
}

int32_t dpc_launch_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int32_t)n : 1;
}

int32_t dpc_launch_threads(int32_t cores, int32_t local_size)
{
    int32_t n = local_size > 0 ? cores / local_size : cores;
    return n > 1 ? n : 1;
}

/* mpirun binds a rank to its share of the cores when there are enough: then
 * the mask is already divided. */
static int32_t ranks_on_mask(const DpcLaunch *l, int32_t cores)
{
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    return cores * (int64_t)l->local_size <= all ? 1 : l->local_size;
}

void dpc_launch_openmp(char **argv, int32_t planned)
{
    if (getenv("DPC_OPENMP_SET"))
        return;
    setenv("DPC_OPENMP_SET", "1", 1);
    DpcLaunch l = dpc_launch_detect();
    int32_t cores = dpc_launch_cores(), has = number("OMP_NUM_THREADS");
    int32_t share = dpc_launch_threads(cores, ranks_on_mask(&l, cores));
    int32_t threads = planned > 0 ? planned : has > 0 ? has : share;
    if (has == threads && getenv("OMP_WAIT_POLICY"))
        return;
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    execv("/proc/self/exe", argv);        /* on failure: run slower */
}

void dpc_launch_text(char *to, size_t size, int32_t ranks, int32_t nodes)
{
    if (nodes > 0 && ranks % nodes == 0)
        snprintf(to, size, "%d rank%s = %d node%s x %d", ranks,
                 ranks == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
                 ranks / nodes);
    else
        snprintf(to, size, "%d ranks on %d nodes", ranks, nodes);
}
