/* chunk.h -- which stage does what when: the order of a pipeline. */
#ifndef DPC_CHUNK_H
#define DPC_CHUNK_H

#include "passes/pass.h"

enum { NSEGMENT = 3 };                    /* FORWARD, BACKWARD, WEIGHT */

typedef struct Pipe {
    int nstage, nrole, nturn;
    const int *role_of;                   /* [nstage] */
    /* [nstage][NSEGMENT] seconds of a turn; below 0: the stage has none */
    const double *cost;
    /* [nstage][nstage] bits: what stage s makes is read by stage t, at
     * [s * nstage + t], in the same turn */
    const uint8_t *feeds;
    int alive;                            /* forwards that a role may be ahead
                                             of backward; 0: the order's own */
} Pipe;
enum { FEEDS_FORWARD = 1, FEEDS_BACKWARD = 2, FEEDS_LATER = 4 };
                                          /* LATER: forward to backward */

typedef struct Timetable {
    Chunk *chunk;                         /* of all roles, by their end; of */
    double *begin, *end;                  /* those that end together, by role */
    uint32_t n;
    double step;                          /* until the last end */
    double bubble;                        /* the part of it in which a role
                                             waits, the mean of all */
    int alive;                            /* most forwards ahead of backward
                                             (of weight, where that is split) */
} Timetable;

/* Does the order split the gradients of weights off? */
bool order_splits(Pattern);
extern const char *const pattern_names[NPATTERN];
/* The order by a rough clock on which transfers take no time; never fails. */
Timetable pipe_order(const Pipe *, Pattern, Arena *);

/* Gives a graph with hops its chunks, and the hops their places: hop_order.c.
 * err where the plan's stages or its order cannot be. */
void hop_order(Graph *, const Job *);

#endif
