/* loader.h -- reads the samples of step k + 1 while step k runs. */
#ifndef DPC_LOADER_H
#define DPC_LOADER_H

#include "runtime/data.h"

typedef struct DpcLoader DpcLoader;

/* Which samples a step takes. */
typedef struct DpcOrder {
    uint64_t seed;
    int64_t start;                        /* the first step */
    int64_t cycle;                        /* steps, then as from 0 again; 0:
                                             never */
} DpcOrder;

/* Starts a thread that reads `data`.  Row r of this rank holds position row[r]
 * of each global batch of `batch` samples, so at step s it is sample
 * dpc_data_index(seed, count, s * batch + row[r]).  All memory is taken
 * here. */
DpcStatus dpc_loader_open(DpcData *data, DpcOrder, int64_t batch,
                          const int64_t *row, int64_t nrow, const int *field,
                          int nfield, DpcLoader **);
/* of_field[i]: nrow samples of field[i], one after the other, for the next
 * step; they stay until the next call.  *waited_s: seconds this call waited
 * for them.  Fails as dpc_data_read did, and then again at each call. */
DpcStatus dpc_loader_next(DpcLoader *, const void **of_field,
                          double *waited_s);
int64_t dpc_loader_bytes(const DpcLoader *);    /* memory held */
void dpc_loader_close(DpcLoader *);             /* NULL is fine */

#endif
