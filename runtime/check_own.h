/* check_own.h -- what the files of the checker share. */
#ifndef DPC_RT_CHECK_OWN_H
#define DPC_RT_CHECK_OWN_H

#include "runtime/dpc_rt.h"

enum { DPC_PLACE = 256 };

typedef struct DpcCheck {
    const DpcUnit *u;
    const DpcProgram *p;
    int32_t turns;                        /* product of the time axes */
    int64_t leaves, host_leaves;          /* bytes that its ranks all have */
} DpcCheck;

/* Fill `to` with "op 'name' (file:line), step 12 in turn 1"; returns it. */
const char *dpc_check_place(const DpcCheck *, uint32_t step,
                            char to[DPC_PLACE]);
/* Set the text of a fault of that step; DPC_BUG. */
DpcStatus dpc_check_fault(const DpcCheck *, uint32_t step, const char *, ...)
    __attribute__((format(printf, 3, 4)));

/* check_call.c: every index is in its table, every operand as large as the
 * call wants, every step runs once a turn. */
DpcStatus dpc_check_calls(const DpcCheck *);
/* Does a leaf have bytes on the ranks of this program? */
bool dpc_check_here(const DpcCheck *, const DpcLeaf *);
/* check_bytes.c: every operand holds the value that it should, in every order
 * that streams and events allow. */
DpcStatus dpc_check_bytes(const DpcCheck *);
/* check_roles.c: what roles send and receive fits, and all of them end.  The
 * programs of one entry, which have passed the others. */
DpcStatus dpc_check_roles(const DpcCheck *role, int32_t n);

#endif
