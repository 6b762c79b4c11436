/* data.h -- samples by number: IDX, NumPy arrays, folders of pictures.
 *
 * A data set is `count` samples of a few fields of fixed type and size.  What
 * is read at a step is a function of (seed, step, position in the global
 * batch) alone, so it depends neither on the number of ranks nor on the plan,
 * and a resumed run reads what the broken one would have read. */
#ifndef DPC_DATA_H
#define DPC_DATA_H

#include "runtime/dpc_rt.h"

/* One field of one sample; ndim 0 is a single number.  Fields of text are u8,
 * UTF-8, filled up with zeros. */
typedef struct DpcField {
    const char *name;
    DpcDtype dtype;
    int ndim;
    int64_t dim[DPC_NDIM];
} DpcField;

typedef struct DpcData DpcData;

/* What `spec` may be:
 *   DIR, idx:DIR, DIR:train, DIR:test   IDX files, gzipped or not, e.g.
 *                                       train-images-idx3-ubyte.gz
 *   FILE,FILE,...                       IDX files, or .npy files
 *   DIR, folder:DIR?size=HxW&text=N     pictures below DIR
 *   DIR, A.tar,B.tar, s-{00..99}.tar    WebDataset archives, ?size=HxW&text=N
 * Up to `budget_bad` corrupt samples are replaced before reading fails.
 * DPC_USER: an input is wrong; DPC_MEMORY: no room; DPC_ENV: I/O. */
DpcStatus dpc_data_open(const char *spec, int64_t budget_bad, DpcData **);
int64_t dpc_data_count(const DpcData *);
int dpc_data_nfield(const DpcData *);
const DpcField *dpc_data_field(const DpcData *, int i);
int dpc_data_find(const DpcData *, const char *name);   /* -1: no such field */
/* Bytes of one sample of the field. */
int64_t dpc_field_bytes(const DpcField *);

/* Copies a field of a sample to `to`, which holds `bytes`.  All fields of a
 * corrupt sample come from the next sound one, whoever reads it.  One thread
 * may read at a time.  DPC_USER: more corrupt samples than the budget. */
DpcStatus dpc_data_read(DpcData *, int64_t sample, int field, void *to,
                        int64_t bytes);
int64_t dpc_data_bad(const DpcData *);    /* corrupt samples so far */
int64_t dpc_data_bytes(const DpcData *);  /* memory held, at most */
void dpc_data_close(DpcData *);           /* NULL is fine */

/* The sample at place k of the endless sequence of epochs: epoch k / count is
 * a permutation of all samples, chosen by (seed, epoch).  count > 0, k >= 0;
 * constant time, no table. */
int64_t dpc_data_index(uint64_t seed, int64_t count, int64_t k);

#endif
