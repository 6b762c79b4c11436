/* rt.h -- one rank at work: memory, steps, streams.
 *
 * dpc_rt_open takes a unit and a world, allocates each space once and works
 * out everything that a step needs to know: pointers, positions, groups of
 * ranks.  After that dpc_rt_run only walks lists. */
#ifndef DPC_RT_RT_H
#define DPC_RT_RT_H

#include "runtime/comm.h"
#include "runtime/dpc_rt.h"

#include <pthread.h>
#include <stdatomic.h>

/* Where a rank is, for whoever watches it; one page a node holds all. */
typedef struct DpcMark {
    _Atomic int32_t pid;                  /* 0: has not come yet */
    _Atomic int32_t rank;
    _Atomic int32_t state;                /* DpcMarkState */
    _Atomic uint64_t step;
    _Atomic uint32_t program;
    _Atomic uint32_t at[DPC_NSTREAM];     /* step under way, a stream */
    _Atomic uint32_t runs;                /* begun so far */
} DpcMark;
enum { DPC_MARK_IDLE, DPC_MARK_RUNS, DPC_MARK_CALLS, DPC_MARK_LEFT,
       DPC_MARK_FAILED };                 /* calls: votes, shares, gathers */

/* A program with its addresses filled in; index s is the program's step. */
typedef struct DpcWalk {
    void **p;                             /* operands of all steps */
    uint32_t *first;                      /* [nstep] of them in p */
    int64_t *pos;                         /* [npos of all steps] */
    uint32_t *first_pos;                  /* [nstep] */
    _Atomic uint32_t *event;              /* [nevent] run that set it last */
    int64_t io;                           /* where its IO begins */
    bool uses[DPC_NSTREAM];               /* has steps on that stream */
} DpcWalk;

/* What the thread that has the collectives may be asked to do. */
typedef DpcStatus DpcCall(DpcComm *, void *);

/* A stream beside that of the caller: a thread and its jobs; all under the
 * lock. */
typedef struct DpcStream {
    struct DpcRt *rt;
    int number;
    pthread_t thread;
    bool open;
    uint32_t asked, answered;             /* jobs */
    DpcCall *call;                        /* job: NULL: walk `program` */
    void *call_arg;
    DpcStatus status;                     /* of the last job */
    char text[1024];                      /* why it failed */
} DpcStream;

struct DpcProfile;

/* Seconds since they were last zeroed. */
typedef struct DpcTimes {
    double run, comm, wait;               /* of runs, in collectives, waiting */
} DpcTimes;

typedef struct DpcRt {
    const DpcUnit *unit;                  /* what this rank runs: `own`, */
    const DpcUnit *whole;                 /* which is that unit with its */
    DpcUnit own;                          /* role's programs only */
    uint32_t *number;                     /* [nprogram] of the whole unit */
    int32_t role;
    DpcComm *comm;                        /* not owned */
    DpcDnn *dnn;                          /* NULL: nothing needs it */
    char *space[DPC_NSPACE];
    int64_t bytes[DPC_NSPACE];            /* planned, and what was mapped */
    char *stage;                          /* collectives on inner dimensions */
    int64_t stage_bytes;
    int32_t coord[DPC_NAXIS];             /* 0 on time axes */
    int32_t turns;                        /* product of the time axes */
    int32_t *group;                       /* [ncoll] */
    DpcWalk *walk;                        /* [nprogram] */
    DpcMark *mark, own_mark;
    DpcTimes times;
    struct DpcGuard *guard;               /* NULL: nobody looks */
    struct DpcProfile *profile;           /* not owned; NULL: none is made */
    int32_t threads;                      /* of a kernel */
    uint64_t seed;

    /* the other streams; all under `lock` but `failed` and the events */
    DpcStream stream[DPC_NSTREAM];        /* [0] is the caller's: not open */
    pthread_mutex_t lock;
    pthread_cond_t bell;                  /* work came, or an event is set */
    bool quit, serial;                    /* serial: no stream beside */
    uint32_t program, round;              /* round: number of this run */
    uint64_t step;
    _Atomic int32_t failed, waiting;      /* failed: stream + 1; the first */
} DpcRt;

/* DPC_USER: the world has the wrong size, or the unit is for another
 * target; DPC_MEMORY; DPC_BUG: tables that make no sense. */
DpcStatus dpc_rt_fits(const DpcUnit *);   /* DPC_USER: of another layout */
DpcStatus dpc_rt_open(const DpcUnit *, DpcComm *, DpcRt **);
/* Bytes of each space on a rank of that role. */
void dpc_rt_planned(const DpcUnit *, int32_t role, int64_t bytes[DPC_NSPACE]);
void dpc_rt_close(DpcRt *);

/* This rank's part of a param or state; NULL: no such leaf here. */
void *dpc_rt_leaf(DpcRt *, const char *name);
/* Index of an entry, or of a leaf; -1: none. */
int32_t dpc_rt_entry(const DpcUnit *, const char *entry);
int32_t dpc_rt_find(const DpcUnit *, const char *leaf);
/* Slot of the buffer of an input, scalar or output; NULL: not a port. */
void *dpc_rt_port(DpcRt *, uint32_t program, const char *name, int32_t slot);
/* The same by number: an output may share its name with a scalar. */
void *dpc_rt_port_at(DpcRt *, uint32_t program, uint32_t port, int32_t slot);
const DpcBuf *dpc_rt_port_buf(const DpcRt *, uint32_t program,
                              const char *name);

/* Runs a program once: all of its turns, on all streams.  A rank that fails
 * makes the others fail too. */
DpcStatus dpc_rt_run(DpcRt *, uint32_t program, uint64_t step);
/* Runs it again one step after the other, checks every float result, and
 * writes into `text` which op made the first NaN, or the infinity that led to
 * it; "": another rank tells. */
DpcStatus dpc_rt_hunt(DpcRt *, uint32_t program, uint64_t step, char *text,
                      size_t size);
/* The first param of this rank, or of those that no step trains, that is not
 * finite; -1: none. */
int32_t dpc_rt_spoilt(const DpcRt *, bool frozen);
/* Calls fn where communication is allowed, and waits for it. */
DpcStatus dpc_rt_call(DpcRt *, DpcCall *fn, void *arg);
DpcStatus dpc_rt_vote(DpcRt *, int32_t *value);

/* walk.c: one step; steps of a stream in order. */
DpcStatus dpc_walk_step(DpcRt *, uint32_t program, uint32_t step,
                        uint64_t number);
/* The same where nothing else runs: it may communicate. */
DpcStatus dpc_walk_alone(DpcRt *, uint32_t program, uint32_t step,
                         uint64_t number);
/* What a kernel knows in that step. */
DpcEnv dpc_walk_env(const DpcRt *, uint32_t program, uint32_t step,
                    uint64_t number);
DpcStatus dpc_walk_stream(DpcRt *, uint32_t program, int stream,
                          uint32_t round, uint64_t number);
/* guard.c: with DPC_GUARD=1, in runs of one step after the other: all memory
 * as it is now; a step's results, filled before it; DPC_BUG when it has changed
 * anything else. */
DpcStatus dpc_guard_open(DpcRt *);
void dpc_guard_close(DpcRt *);
void dpc_guard_begin(DpcRt *, uint32_t program);
void dpc_guard_fill(DpcRt *, uint32_t program, uint32_t step);
DpcStatus dpc_guard_look(DpcRt *, uint32_t program, uint32_t step);
/* collect.c: groups of ranks, and one collective. */
DpcStatus dpc_collect_open(DpcRt *);
DpcStatus dpc_collect_run(DpcRt *, uint32_t call, int32_t turn,
                          const void *in, void *out);
/* Its coordinate in the turns of a ring over `axes`: also that of the rank
 * which it meets in that turn. */
int32_t dpc_rt_partner(const DpcRt *, DpcAxes axes, int32_t turn);
/* n hops from row `call` on, all at once; at[i]: what the i-th sends or
 * gets. */
DpcStatus dpc_collect_hops(DpcRt *, uint32_t call, uint32_t n, void **at);
/* stream.c: the threads beside, and events. */
DpcStatus dpc_stream_open(DpcRt *);
void dpc_stream_close(DpcRt *);
void dpc_event_set(DpcRt *, _Atomic uint32_t *, uint32_t round);
DpcStatus dpc_event_await(DpcRt *, _Atomic uint32_t *, uint32_t round);

double dpc_now(void);                     /* seconds, monotonic */

#endif
