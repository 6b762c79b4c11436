/* comm_own.h -- what the transports share among themselves. */
#ifndef DPC_COMM_OWN_H
#define DPC_COMM_OWN_H

#include "runtime/comm.h"

#include <stdatomic.h>

/* Ranks of a node talk by shared memory, and nodes by `mpi`, which `out` owns;
 * it is `mpi` itself where ranks may not read each other's memory. */
DpcStatus dpc_node_open(DpcComm *mpi, DpcComm **out);

/* ---- post.c: transfers between two ranks that share memory ---- */

typedef struct DpcPost DpcPost;
typedef struct DpcPosts {
    DpcComm *comm;                        /* of this rank */
    int32_t me, size;                     /* among those that share memory */
    _Atomic uint32_t *bell;               /* [size] rung for a rank to look */
    DpcPost *post;                        /* [size, size] from, to */
    const _Atomic int32_t *gone;          /* rank that gave up, + 1 */
    /* A member's number among them; reads what it has at `from`. */
    int32_t (*rank)(const DpcComm *, int32_t group, int32_t member);
    DpcStatus (*copy)(DpcComm *, int32_t rank, uint64_t from, void *to,
                      int64_t bytes);
} DpcPosts;

size_t dpc_posts_bytes(int32_t size);     /* of zeroed shared memory */
void dpc_posts_place(DpcPosts *, void *memory, int32_t size);
/* As DpcCommOps.exchange. */
DpcStatus dpc_posts_exchange(const DpcPosts *, const DpcHop *, int32_t n);

/* Sleeps while *at is `value`, a while at most; wakes all who do. */
void dpc_futex_wait(_Atomic uint32_t *at, uint32_t value);
void dpc_futex_wake(_Atomic uint32_t *at);

#endif
