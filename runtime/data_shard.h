/* data_shard.h -- one field in many .npy files. */
#ifndef DPC_DATA_SHARD_H
#define DPC_DATA_SHARD_H

#include "runtime/data_reader.h"

typedef struct DpcShards DpcShards;

/* The number at the end of a file's name, without its ".ext"; -1: none. */
int64_t dpc_shard_number(const char *path);
/* `where` is a folder, a file, or a name with "{00..99}".  DPC_USER: no sound
 * file, unlike types, one number twice. */
DpcStatus dpc_shards_open(const char *name, const char *where, DpcShards **);
void dpc_shards_close(DpcShards *);       /* NULL is fine */
const DpcField *dpc_shards_field(const DpcShards *);
int64_t dpc_shards_bytes(const DpcShards *);    /* memory held */
/* Makes a row ready.  DPC_USER: there is no such shard or row. */
DpcStatus dpc_shards_seek(DpcShards *, int64_t number, int64_t row);
bool dpc_shards_zero(const DpcShards *);  /* the row is real, and all zero */
void dpc_shards_read(const DpcShards *, void *to);

/* "NAME=WHERE,NAME=WHERE" as a data set; the list is cut. */
DpcStatus dpc_shards_data(char *list, DpcData *);

#endif
