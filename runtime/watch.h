/* watch.h -- signals, dead ranks, hangs. */
#ifndef DPC_WATCH_H
#define DPC_WATCH_H

#include "runtime/rt.h"

typedef struct DpcWatch DpcWatch;

/* Joins the page that the ranks of this node share, catches signals and
 * starts the thread that looks.  Collective.  When another rank of the node
 * dies, or nothing moves for timeout_s in a run, that thread says who was
 * where and ends the process with exit code 5. */
DpcStatus dpc_watch_open(DpcRt *, double timeout_s, DpcWatch **);
/* SIGTERM, SIGINT or SIGUSR1 came: save and leave. */
bool dpc_watch_stop(void);
/* Tells the others that this rank leaves: in peace, or having failed. */
void dpc_watch_leave(DpcWatch *, bool failed);
/* True for the first rank of the node that asks with this status: one
 * message a problem. */
bool dpc_watch_first(DpcWatch *, DpcStatus);
void dpc_watch_close(DpcWatch *);

/* "in op 'conv1' (model.lua:12)" or "between steps"; for messages. */
void dpc_watch_where(const DpcUnit *, const DpcMark *, char *, size_t);

#endif
