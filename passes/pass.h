/* pass.h -- what every pass shares.
 *
 * A pass reads one graph and writes another.  It never edits a node once
 * written, never frees, prints or verifies: run_passes does that for all. */
#ifndef DPC_PASS_H
#define DPC_PASS_H

#include "ir/target.h"

/* The sharding of one leaf: splits in the plan's own mesh. */
typedef struct LeafPlan {
    const char *name;
    int ndim;
    Split split[NDIM];
} LeafPlan;

/* How a value must lie: along the first ndim dimensions, but where `free`,
 * over these axes and no other axis of ranks. */
typedef struct Lie { int ndim; bool free[NDIM]; Split split[NDIM]; } Lie;
typedef struct ValuePlan {
    const char *name, *loc;               /* a pattern (constrain.c); who says */
    Lie lie, grad;                        /* it; and its gradient */
} ValuePlan;

/* Weights in parts are whole for a step, for a turn's forward and backward,
 * or for either. */
typedef enum GatherWhen { GATHER_STEP, GATHER_BATCH, GATHER_USE } GatherWhen;
/* Sums over ranks are made once a step, of what the turns have added up, or
 * in each turn: then a part is what they add to. */
typedef enum ReduceWhen { REDUCE_LATE, REDUCE_EACH } ReduceWhen;

typedef enum Recompute {                  /* what backward makes again: */
    RECOMPUTE_SELECTIVE,                  /* what costs next to nothing */
    RECOMPUTE_NONE,                       /* nothing by a launch of its own */
    RECOMPUTE_FULL,                       /* whatever lowers the peak */
    RECOMPUTE_AUTO                        /* what a limit of bytes asks for */
} Recompute;

/* Which stage works in a scope, and in all within it that say no other. */
typedef struct StagePlan { const char *scope; int stage; } StagePlan;

/* The order of a pipeline's chunks (chunk.c); GIVEN: by the plan's list. */
typedef enum Pattern {
    GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, AUTO, GIVEN, NPATTERN
} Pattern;

typedef struct Plan {
    Mesh mesh;
    LeafPlan *leaf;                       /* in the order of the plan */
    uint32_t nleaf, leafcap;
    ValuePlan *value;
    uint32_t nvalue, valuecap;
    int64_t bucket;                       /* most bytes of a gradient bucket */
    DType compute;                        /* of contractions: F32 or BF16 */
    GatherWhen gather;
    ReduceWhen reduce;
    DType compress[NAXIS];                /* sums of gradients over an axis are
                                             sent as bf16, or as bytes with a
                                             scale (U8); F32: as they are, */
    int64_t least;                        /* as is what has fewer elements */
    bool exact;                           /* sums one axis at a time, minor
                                             first, and one thread a rank: the
                                             same bits on any number of ranks */
    Recompute recompute;
    int64_t bytes;                        /* of AUTO: all that a rank holds */
    const char *offload;                  /* what lives in the host's memory:
                                             words (offload.h); NULL: nothing */
    StagePlan *stage;
    uint32_t nscope, scopecap;
    int nstage, *role_of;                 /* the role of each stage */
    Pattern pattern;
    int alive;                            /* of `auto`: forwards that a role
                                             may be ahead; 0: as 1F1B */
    Chunk *chunk;                         /* of GIVEN, which stand in */
    const char *path, *text;              /* this plan file; NULL */
    uint32_t nchunk;
} Plan;

typedef struct Job {
    Arena *keep, *scratch;                /* scratch: gone after each pass */
    const Plan *plan;                     /* NULL: one rank */
    int role;                             /* the part that `cut` takes */
    const Target *target;
    const Cluster *cluster;
    const char *print_after;              /* a pass, or "all", or NULL */
    FILE *print_to;                       /* of print_after; NULL: stdout */
    bool time;                            /* print seconds a pass to stderr */
    const char *start_from, *stop_after;  /* pass names or NULL */
    /* tests: called around every pass */
    void (*check)(void *, const char *pass, const Graph *before,
                  const Graph *after);
    void *check_arg;
    bool look_back;                       /* check keeps the graphs it sees */
    struct Prices *prices;                /* what fuse has asked the target,
                                             for all graphs of the job */
    int64_t enough;                       /* bytes of ARENA below which less
                                             need not be found; 0: none */
    bool once;                            /* nobody reads the first graph's
                                             nodes again */
} Job;

typedef Graph *PassFn(const Graph *in, Job *);

typedef struct PassInfo {
    const char *name, *what;
    Phase from, to;
    PassFn *fn;
} PassInfo;
extern const PassInfo passes[];
extern const int npass;

/* Copy forward: map[r] is where node r went, NONE if it did not. */
typedef struct Copy { const Graph *in; Graph *out; Ref *map; } Copy;
Copy copy_begin(const Graph *in, Job *);
/* All as it is, its labels free to be changed; operands are shared. */
Graph *copy_whole(const Graph *, Job *);
/* The graph itself: what a pass returns that has nothing to do. */
Graph *copy_none(const Graph *);
Ref copy_node(Copy *, Ref);               /* the same node, operands mapped */
/* Append a node like r with other operands (already in out). */
Ref copy_node_in(Copy *, Ref r, const Ref *in, int nin);
/* A clone of r's copy, "NAME.again", which is still what r is mapped to. */
Ref copy_again(Copy *, Ref r, const Ref *in, int nin, Segment);
Graph *copy_end(Copy *);                  /* sets and outs mapped */

/* Rows named in a list, or NULL for the whole pipeline. */
Graph *run_passes(const char *list, const Graph *, Job *);

/* The whole pipeline, for all roles of the plan's mesh: what they share, up to
 * `local`, once, then each by itself.  *n: how many. */
Graph **run_roles(const Graph *, Job *, int *n);

/* The backward graph of scalar y, appended to g: dwrt[i] = d y / d wrt[i],
 * NONE where no gradient reaches.  dy NONE: one. */
void grad_append(Graph *g, Ref y, Ref dy, const Ref *wrt, int n, Ref *dwrt,
                 Arena *scratch);

/* "*" stands for any letters up to a dot, "**" for dots as well. */
bool name_fits(const char *pattern, const char *name);
/* The values of a plan by name; of node r of a model's graph, those that name
 * it: their places in the plan, ascending, until the next call. */
typedef struct ValueNames ValueNames;
ValueNames *value_names(const Plan *, Arena *);
uint32_t values_naming(ValueNames *, const Graph *, Ref r,
                       const uint32_t **value);

/* simplify's and dce's work as functions, for `tidy` and for tests. */
Graph *graph_simplify(const Graph *, Job *);
Graph *graph_dce(const Graph *, Job *);

/* The memory order that `layout` gives each node. */
int *layout_orders(const Graph *, const Job *);
/* Of each send and recv that is made once, the one that it waits for, though
 * it reads nothing of it: launches that cross such a pair would wait for
 * themselves.  NONE for others. */
Ref *transfers_before(const Graph *, Arena *);

/* How well a graph before `fuse` is fused.  The job needs its scratch. */
typedef struct Fusion {
    int nodes, launches;                  /* pointwise and folds; kernels */
    int64_t bytes, compulsory;            /* kernels move; they must */
} Fusion;
Fusion fuse_figures(const Graph *, Job *);
/* Edges between kernels that were not fused, and why: a line each. */
void fuse_report(const Graph *, Job *, FILE *);

#define PASS(name, from, to, what) PassFn pass_##name;
#include "passes/passes.def"

#endif
