/* sched.h -- the static schedule: order, then bytes, then events.
 *
 * A launch is what runs at once: the nodes of one kernel label, or one node
 * that needs a launch of its own, or several launches of one bucket.  `order`
 * lists (launch, turn) once and for all ranks of the role; `memory` gives
 * every materialised value its place on that order; `events` makes the waits
 * between streams, from byte ranges, and is the only pass that does. */
#ifndef DPC_SCHED_H
#define DPC_SCHED_H

#include "ir/graph.h"

typedef enum Space {                      /* as DpcSpace */
    LEAVES, ARENA, IO, HOST_LEAVES, HOST_ARENA, NSPACE
} Space;

/* Where the value of a node lives: of its instances (turn_instance) the k-th
 * in slot k % slots.  Slots lie `stride` apart, or where `place` says. */
typedef struct Buf {
    bool used;                            /* false: lives in registers only */
    Space space;
    int64_t at, size, stride;             /* bytes; -1 at: not placed yet */
    int slots;
    int64_t *place;                       /* of each slot; NULL: even steps */
    Ref root;                             /* alias of that node's bytes, */
    int64_t off;                          /* at this offset; root self: none */
    uint32_t born, dies;                  /* steps of the order */
} Buf;

typedef struct Launch {
    int n;
    Ref *node;                            /* ascending; one kernel label */
    int64_t scratch;                      /* bytes; of the target */
} Launch;

typedef struct Step {
    uint32_t launch;
    int turn;                             /* row-major over the time axes */
    int stream;                           /* of NSTREAM, as DPC_NSTREAM */
    int event;                            /* that it sets when done; -1 */
    int64_t scratch_at;                   /* in ARENA, if it wants any */
    uint32_t nwait;
    int *wait;
} Step;

/* One computes, one sums and gathers, one has the hops between roles: those
 * wait for another role, and nothing else should wait with them.  One copies
 * between the host's memory and the device's. */
enum { STREAM_COMPUTE, STREAM_COLLECT, STREAM_HOP, STREAM_COPY, NSTREAM };

typedef struct Sched {
    Launch *launch;
    uint32_t nlaunch, launchcap;
    Step *step;
    uint32_t nstep, stepcap;
    Buf *buf;                             /* by node */
    int nevent;
    int64_t bytes[NSPACE];
    int64_t lower;                        /* largest sum of live ARENA bytes */
    uint32_t peak;                        /* the step at which ARENA peaks */
    int64_t host_lower;                   /* the same of HOST_ARENA */
    uint32_t host_peak;
} Sched;

/* Group the nodes into launches: those of one bucket, of one kernel, and
 * alone.  A launch is numbered by its first node. */
Sched *sched_new(const Graph *, Arena *);
uint32_t launch_add(Sched *, Arena *, const Ref *node, int n);
/* Does any step work on another stream than that which computes? */
bool sched_transfers(const Sched *);
/* A `move` that fuse left without a kernel only reads another value's bytes
 * in another way: never launched, no buffer. */
bool node_is_view(const Node *);
/* A number that is spread over all elements. */
bool node_is_spread(const Node *);
/* Does a pointwise node read each operand at the index that it writes?  Not
 * one that lies in another order, or through a view. */
bool node_aligned(const Graph *, const Node *);
Ref view_root(const Graph *, Ref);        /* the value whose bytes it reads */
/* Bytes of params and states that a rank holds on the device. */
int64_t leaf_bytes(const Graph *);
/* Does it bring together what ranks have?  Over turns alone nothing is sent. */
bool node_over_ranks(const Graph *, const Node *);
/* Does the node copy between the host's memory and the device's? */
bool node_moves(const Graph *, Ref);
static inline bool space_leaves(Space s)
{
    return s == LEAVES || s == HOST_LEAVES;
}
int64_t buf_place(const Buf *, int instance);   /* first byte of that one */
/* At least as many as either of the next two finds: room for its answer. */
int launch_operands(const Graph *, const Launch *);
/* Nodes outside the launch whose value it reads, and those of it whose value
 * others read (or are set, returned, or reused in a later turn). */
int launch_inputs(const Graph *, const Launch *, Ref *out, int max);
int launch_outputs(const Graph *, const Launch *, const uint32_t *uses,
                   Ref *out, int max);
/* Time axes along which a value has an instance a turn: those that it names,
 * and those along which it is made anew though nothing changes (C4: loop). */
Axes node_along(const Graph *, Ref);
int graph_turns(const Graph *, Axes loop);    /* product of its time axes */
/* A turn is a number, row-major over all time axes of the mesh.  Of a value
 * that names only some of them, it is so many'th instance. */
void turn_coord(const Mesh *, int turn, int *coord);
int turn_instance(const Mesh *, Axes has, int turn);

#endif
