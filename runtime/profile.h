/* profile.h -- where the time of a run goes, step by step. */
#ifndef DPC_PROFILE_H
#define DPC_PROFILE_H

#include "runtime/rt.h"

typedef struct DpcProfile DpcProfile;

/* Room for the last runs of every step of the unit.  DPC_MEMORY. */
DpcStatus dpc_profile_open(const DpcUnit *, DpcProfile **);

/* Seconds: passed, and computed by all threads of the process. */
typedef struct DpcSpan { double wall, cpu; } DpcSpan;
DpcSpan dpc_profile_now(void);
DpcSpan dpc_profile_since(DpcSpan begin);
/* A step has taken so long; allocates nothing. */
void dpc_profile_note(DpcProfile *, uint32_t program, uint32_t step, DpcSpan);

/* The table: `path` "-": to stdout for people, sums by kind and the slowest
 * steps; else all steps in order, tab-separated.  DPC_USER: no such file;
 * DPC_ENV: the disk is full. */
DpcStatus dpc_profile_write(DpcProfile *, const char *path);
void dpc_profile_close(DpcProfile *);     /* may be NULL */

#endif
