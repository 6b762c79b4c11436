/* comm.h -- what ranks say to each other, whoever carries it.
 *
 * A transport is a table of functions over one DpcComm.  Group 0 is the
 * world; `group` makes others once, while the unit is opened.  Collectives on
 * one DpcComm come from one thread at a time, in the same order on all
 * members, and so do exchanges, from another thread perhaps: those orders are
 * the schedule's, so nothing here can deadlock that the checker let pass.
 * Counts are elements. */
#ifndef DPC_COMM_H
#define DPC_COMM_H

#include "runtime/dpc_rt.h"

enum { DPC_NGROUP = 64 };

typedef struct DpcComm DpcComm;

/* Operands of one collective.  in == out: in place.  `count`: of the whole
 * vector for all_reduce, else of the part of one member. */
typedef struct DpcWire {
    uint8_t dtype, fold;                  /* DpcDtype, DpcFold */
    int32_t group;
    int64_t count;
    const void *in;
    void *out;
} DpcWire;

/* One end of a transfer between two members of a group. */
typedef struct DpcHop {
    int32_t group, peer;                  /* peer: index in the group */
    int64_t bytes;
    bool send;
    void *at;                             /* read, or written */
} DpcHop;

typedef struct DpcCommOps {
    const char *name;                     /* "mpi", "local" */
    /* Ranks that give the same color form a group, ordered by key.  Every
     * rank of the world calls it. */
    DpcStatus (*group)(DpcComm *, int32_t color, int32_t key, int32_t *group);
    /* Zeroed memory that all ranks of this node see, of whole pages.  It goes
     * with the process, or with the last comm of a local world. */
    DpcStatus (*share)(DpcComm *, size_t bytes, void **page);
    DpcStatus (*all_reduce)(DpcComm *, const DpcWire *);
    DpcStatus (*reduce_scatter)(DpcComm *, const DpcWire *);
    DpcStatus (*all_gather)(DpcComm *, const DpcWire *);
    DpcStatus (*all_to_all)(DpcComm *, const DpcWire *);
    /* Sends and receives all of at most DPC_NHOP at the same time; over when
     * the other ends have them, so that their bytes may change.  Between two
     * ranks the k-th that one sends is the k-th that the other receives. */
    DpcStatus (*exchange)(DpcComm *, const DpcHop *, int32_t n);
    DpcStatus (*barrier)(DpcComm *);
    DpcStatus (*vote)(DpcComm *, int32_t *value);   /* largest of all ranks */
    /* Gives up: waiting ends now on this rank, and on the others at the
     * latest when this rank closes.  Any thread may call it. */
    void (*abort)(DpcComm *, int code);
    void (*close)(DpcComm *);
} DpcCommOps;

struct DpcComm {
    const DpcCommOps *ops;
    int32_t rank, size;                   /* in the world */
    int32_t local_rank, local_size;       /* on this node */
    int32_t ngroup;
    int32_t members[DPC_NGROUP];          /* of each group */
    int32_t index[DPC_NGROUP];            /* of this rank in each */
};

/* Joins the MPI world, or is a world of one when no launcher started us.
 * Ranks of one node then talk by shared memory, unless DPC_COMM=mpi.
 * DPC_ENV when the launcher's environment and MPI disagree. */
DpcStatus dpc_mpi_open(DpcComm **);

/* A world of one that needs no library. */
DpcStatus dpc_single_open(DpcComm **);

/* Threads of this process as ranks: one DpcComm each, closed by its thread.
 * bytes_per_s > 0 makes a transfer last as long as on such a network. */
typedef struct DpcLocal DpcLocal;
DpcStatus dpc_local_open(int32_t size, double bytes_per_s, DpcLocal **,
                         DpcComm **comm);
/* From the next transfer on; a rate of 0: at once. */
void dpc_local_link(DpcLocal *, double bytes_per_s, double latency);
void dpc_local_close(DpcLocal *);

#endif
