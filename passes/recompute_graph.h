/* recompute_graph.h -- between recompute.c, _graph.c and _fit.c. */
#ifndef DPC_RECOMPUTE_GRAPH_H
#define DPC_RECOMPUTE_GRAPH_H

#include "passes/fuse.h"
#include "passes/recompute.h"

typedef struct Asked {
    Fuse *f;                              /* of the graph as it is */
    Job *job;
    Question q;
    uint32_t *unit;                       /* by node: its launch; NONE */
    List *member;                         /* by launch: nodes, ascending */
    bool *stored;                         /* by node: lies in memory */
    uint32_t *moment, *order;             /* of a launch; launch of a moment */
    uint32_t *value;                      /* by node: which value, + 1 */
    int64_t least;                        /* bytes worth a choice */
    uint32_t *seen, stamp;                /* by node: of a search */
} Asked;

/* In the job's scratch. */
Asked *recompute_ask(const Graph *, Job *);
/* The graph, backward reading clones of the values that are not kept; those
 * that it alone has read are gone. */
Graph *recompute_clone(const Asked *, const Graph *, const bool *keep);

/* ---- recompute_fit.c ---- */

/* Backward of the graph makes again what lowers its peak most; what is
 * needed, for the fewest seconds, so that a rank holds so many bytes; where
 * it finds no way, what comes nearest. */
Graph *recompute_full(Graph *, Job *);
Graph *recompute_within(Graph *, Job *, int64_t bytes);

#endif
