/* comm_part.h -- what a group has on each node. */
#ifndef DPC_COMM_PART_H
#define DPC_COMM_PART_H

#include "runtime/comm.h"

/* Where a rank is: its node, by the first rank there, and its number on it. */
typedef struct DpcPlace { int32_t node, local; } DpcPlace;

/* What a group has on this node. */
typedef struct DpcPart {
    int32_t n, me;                        /* members; which one this rank is */
    int32_t *rank;                        /* their numbers on the node */
    bool whole;                           /* there are no others */
    int32_t outer;                        /* MPI's group of those at this place
                                             on all nodes; -1: there is none */
    int32_t nodes, *at;                   /* of an even group: see below */
} DpcPart;

/* Of a list of ranks those that are on the node of rank `me`.  *even: it has as
 * many on each node.  False: no memory. */
bool dpc_part_make(const DpcPlace *, int32_t me, const int32_t *list,
                   int32_t size, DpcPart *, bool *even);
void dpc_part_free(DpcPart *);
/* The place in the list of member m of the k-th node that has one, in the
 * order of the list. */
int64_t dpc_part_at(const DpcPart *, int32_t m, int32_t k);

#endif
