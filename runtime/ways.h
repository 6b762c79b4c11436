/* ways.h -- the programs that one step may be.
 *
 * A model that is compiled for several sizes has an entry for each,
 * "train-512x512", "train-768x512": ways to make the same step.  Data of each
 * size is a data set of its own; a way is a program and the data set whose
 * fields fit its inputs.  Which one step n takes is a function of (seed, n),
 * each as often as it has batches, so all ranks agree and a resumed run goes
 * on as the broken one would have. */
#ifndef DPC_WAYS_H
#define DPC_WAYS_H

#include "runtime/app.h"

enum { DPC_NWAY = 32 };

/* For what: steps of a training in an order of the seed, going on where it
 * stands; or an evaluation, which reads --val-data if there are any, in the
 * order of seed 0 from its start. */
typedef enum DpcWaysFor { DPC_TO_TRAIN, DPC_TO_EVAL } DpcWaysFor;

typedef struct DpcWay {
    uint32_t program;
    DpcData *data;                        /* NULL: every input is given */
    const char *spec;
    DpcFeed *feed;
    DpcValues values;
    int loss, finite;                     /* of values; -1: none */
    int64_t batches;                      /* of an epoch or an evaluation */
} DpcWay;

typedef struct DpcWays {
    DpcApp *app;
    DpcWaysFor what;
    int n;
    DpcWay way[DPC_NWAY];
    int64_t total;                        /* batches of all */
} DpcWays;

/* Ways of the entry, or, when its name has a '-', of all entries that begin as
 * it does up to there.  DPC_USER: a data set fits no program. */
DpcStatus dpc_ways_open(DpcApp *, const char *entry, DpcWaysFor, DpcWays *);
DpcWay *dpc_ways_at(DpcWays *, int64_t step);
/* eval.c: means over the batches of ways that were opened to evaluate.  The
 * next call sees the same batches. */
DpcStatus dpc_ways_eval(DpcWays *, DpcMeans *);
int64_t dpc_ways_bytes(const DpcWays *);  /* memory of loaders */
void dpc_ways_close(DpcWays *);

#endif
