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
 *   DIR, A.tar,B.tar, s-{00..99}.tar    archives, ?size=HxW&text=N
 *   NAME=DIR,NAME=DIR                   .npy shards, a folder for each field
 * docs/data.md has all that may stand behind '?'.  Up to `budget_bad` corrupt
 * samples are replaced before reading fails.
 * DPC_USER: an input is wrong; DPC_MEMORY: no room; DPC_ENV: I/O. */
DpcStatus dpc_data_open(const char *spec, int64_t budget_bad, DpcData **);
/* A budget for those who look: each corrupt sample is named, none too many. */
enum { DPC_DATA_ALL = INT32_MAX };
int64_t dpc_data_count(const DpcData *);
int dpc_data_nfield(const DpcData *);
const DpcField *dpc_data_field(const DpcData *, int i);
int dpc_data_find(const DpcData *, const char *name);   /* -1: no such field */
/* Before dpc_data_encode: records of a field of rows may have up to `rows`, and
 * are filled up; fields NAME_length and NAME_mask are added.  Nothing happens
 * where the data have such fields of their own, or samples of one size. */
DpcStatus dpc_data_pad(DpcData *, int field, int64_t rows);
/* Undoes what an index alone says: records of other sizes are corrupt again. */
void dpc_data_unpad(DpcData *, int field);
/* Before the first read: a sample is corrupt that has a number outside of
 * 0 .. limit - 1 in this field; `why` ends the message. */
DpcStatus dpc_data_limit(DpcData *, int field, int64_t limit,
                         const char *why);
/* Whether corrupt samples are named, as they are at first; they count either
 * way. */
void dpc_data_tell(DpcData *, bool tell);
/* Text to a row of ids, of which *used are the text's. */
typedef DpcStatus DpcEncode(void *arg, const char *text, int64_t n,
                            int64_t length, int32_t *row, int64_t *used);
/* Adds fields made of a field of text: NAME i32[length], NAME_length i32,
 * NAME_mask u8[length].  `arg` stays the caller's. */
DpcStatus dpc_data_encode(DpcData *, int from, const char *name,
                          int64_t length, DpcEncode *, void *arg);
/* Bytes of one sample of the field. */
int64_t dpc_field_bytes(const DpcField *);
/* "f32[3,4]"; what does not fit is cut. */
void dpc_field_text(const DpcField *, char *to, size_t size);

/* Copies a field of a sample to `to`, which holds `bytes`.  All fields of a
 * corrupt sample come from the next sound one, whoever reads it.  One thread
 * may read at a time.  DPC_USER: more corrupt samples than the budget. */
DpcStatus dpc_data_read(DpcData *, int64_t sample, int field, void *to,
                        int64_t bytes);
int64_t dpc_data_bad(const DpcData *);    /* corrupt samples so far */
int64_t dpc_data_bytes(const DpcData *);  /* memory held, at most */
void dpc_data_close(DpcData *);           /* NULL is fine */

/* Archives have an index beside them (data_index.c), which says what they
 * were when it was made.  Writes it anew; *where: its path, until the next
 * call.  DPC_USER: the data are no archives, or not of one folder. */
DpcStatus dpc_data_index_write(DpcData *, const char **where);
const char *dpc_data_hash(const DpcData *);     /* of its index; "": none */
/* DPC_USER: a record's bytes are not those of its index; *known: it has
 * one. */
DpcStatus dpc_data_index_check(DpcData *, int64_t sample, bool *known);

/* Archives of the files below a folder: those of one name up to its first dot
 * are a record (data_pack.c). */
typedef struct DpcPack {
    const char *out, *prefix;             /* folder; PREFIX000000.tar */
    int64_t records, bytes;               /* of an archive, at most; about */
} DpcPack;
typedef struct DpcPackTold { int64_t records, archives, bytes; } DpcPackTold;
DpcStatus dpc_data_pack(const char *dir, const DpcPack *, DpcPackTold *);

/* The sample at place k of the endless sequence of epochs: epoch k / count is
 * a permutation of all samples, chosen by (seed, epoch).  count > 0, k >= 0;
 * constant time, no table. */
int64_t dpc_data_index(uint64_t seed, int64_t count, int64_t k);

#endif
