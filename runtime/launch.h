/* launch.h -- who started us, as which rank, with how many threads. */
#ifndef DPC_LAUNCH_H
#define DPC_LAUNCH_H

#include "runtime/dpc_rt.h"

typedef struct DpcLaunch {
    const char *by;                       /* "mpirun", ...; NULL: nobody */
    int32_t rank, size;
    int32_t local_rank, local_size;       /* on this node */
} DpcLaunch;

/* What the environment says; a world of one when it says nothing. */
DpcLaunch dpc_launch_detect(void);

/* Is that variable of the environment set, and not to 0? */
bool dpc_launch_flag(const char *name);
/* Cores that this process may use. */
int32_t dpc_launch_cores(void);

/* Threads of a rank, at least one: cores are shared evenly by local ranks. */
int32_t dpc_launch_threads(int32_t cores, int32_t local_size);

/* Sets OMP_NUM_THREADS (`planned`, or, when that is 0, what the user set, or
 * an even share of the cores) and OMP_WAIT_POLICY.  libgomp reads them when
 * it is loaded, that is before main: so if one was not so, the process
 * executes itself again, once.  Returns when nothing needs doing. */
void dpc_launch_openmp(char **argv, int32_t planned);

/* "4 ranks = 2 nodes x 2"; uneven nodes are said as "4 ranks on 3 nodes". */
void dpc_launch_text(char *to, size_t size, int32_t ranks, int32_t nodes);

#endif
