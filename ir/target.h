/* target.h -- what a pass may ask of the machine.  Declared here, filled in
 * codegen/: passes and codegen never see each other. */
#ifndef DPC_TARGET_H
#define DPC_TARGET_H

#include "ir/sched.h"

typedef struct Level {
    const char *name;
    int fanout;
    double bandwidth, latency;
} Level;
enum { NLEVEL = 4 };

typedef struct Cluster {
    const char *name, *target, *march;    /* "host", "native" */
    int cores;                            /* of one rank */
    int64_t memory;                       /* bytes of one rank */
    double flops[NDTYPE], bandwidth;      /* a second, one rank; 0: as the */
    double launch;                        /* target has it; seconds */
    int nlevel;
    Level level[NLEVEL];                  /* inner first: bytes/s, seconds */
} Cluster;

typedef struct Target {
    const char *name;
    double flops[NDTYPE], bandwidth;      /* a second, one rank */
    double launch;                        /* seconds a kernel costs to start */
    /* Seconds of these nodes (ascending, one segment) as one kernel;
     * INFINITY when the target cannot, and then *why says so. */
    double (*cost)(const Graph *, const Ref *, int n, const char **why);
    /* Memory order that the node's result should have: 0 row-major. */
    int (*layout)(const Graph *, Ref);
    /* Bytes that a pack node's result takes; scratch of a launch; uses: of
     * graph_uses. */
    int64_t (*pack_bytes)(const Graph *, Ref);
    int64_t (*scratch)(const Graph *, const Ref *, int n,
                       const uint32_t *uses);
} Target;

const Target *target_find(const char *name);  /* NULL; defined in codegen */

#endif
