/* comm_own.h -- what the transports share among themselves. */
#ifndef DPC_COMM_OWN_H
#define DPC_COMM_OWN_H

#include "runtime/comm.h"

/* Ranks of one node: `out` carries what MPI would, by shared memory, and owns
 * `mpi`; it is `mpi` itself where ranks may not read each other's memory. */
DpcStatus dpc_node_open(DpcComm *mpi, DpcComm **out);

#endif
