/* target.h -- what a pass may ask of the machine.  Declared here, filled in
 * codegen/: passes and codegen never see each other. */
#ifndef DPC_TARGET_H
#define DPC_TARGET_H

#include "ir/sched.h"

/* What is between ranks: `fanout` of the level below, or ranks, side by side;
 * 0: as many as there are. */
typedef struct Level {
    const char *name;
    int fanout;
    double bandwidth, latency;            /* bytes a second that each rank
                                             sends; seconds of a hop */
} Level;
enum { NLEVEL = 4, NRATES = 8 };

/* What one rank does in a second; 0: as the target has it. */
typedef struct Rates {
    int threads;                          /* that compute; 0: any number */
    double flops[NDTYPE], conv[NDTYPE];   /* of products, of convolutions; */
    double work;                          /* of loop nests: formulas */
    double bandwidth;                     /* bytes of memory, both ways */
    double copy;                          /* bytes to or from the host's */
    double launch, step;                  /* seconds a kernel costs to start;
                                             a step beside its launches */
    double wake;                          /* more, where threads share it */
} Rates;

typedef struct Cluster {
    const char *name, *target, *march;    /* "host", "native" */
    int cores;                            /* of a node */
    int64_t memory;                       /* bytes: of a node's ranks on the
                                             host, of one GPU else */
    double peak[NDTYPE];                  /* flops a second of one rank, as its
                                             maker says; 0: unknown */
    Rates rates;                          /* that hold */
    int nrates, nlevel;
    Rates measured[NRATES];               /* by threads, to choose from */
    Level level[NLEVEL];                  /* inner first */
} Cluster;

typedef struct Load {
    double bytes, work;                   /* moved; flops of its formulas */
    double points;                        /* of its loops, by the values made
                                             at each */
} Load;

typedef struct Target {
    const char *name;
    double flops[NDTYPE], bandwidth;      /* a second, one rank */
    double launch;                        /* seconds a kernel costs to start */
    /* Seconds of these nodes (ascending, one segment) as one kernel;
     * INFINITY when the target cannot, and then *why says so.  It works in the
     * graph's arena, and leaves that as it was: a small one is quickest. */
    double (*cost)(const Graph *, const Ref *, int n, const char **why);
    /* What such a kernel does. */
    Load (*load)(const Graph *, const Ref *, int n, const uint32_t *uses);
    double shared;                        /* points from which threads share a
                                             launch; 0: they never do */
    /* Memory order that the node's result should have: 0 row-major. */
    int (*layout)(const Graph *, Ref);
    /* Bytes that a pack node's result takes; scratch of a launch; uses: of
     * graph_uses. */
    int64_t (*pack_bytes)(const Graph *, Ref);
    int64_t (*scratch)(const Graph *, const Ref *, int n,
                       const uint32_t *uses);
    /* May the kernel's result `out` take the bytes of its operand `in`?  NULL:
     * never. */
    bool (*over)(const Graph *, const Ref *, int n, const uint32_t *uses,
                 Ref in, Ref out);
} Target;

const Target *target_find(const char *name);  /* NULL; defined in codegen */

#endif
