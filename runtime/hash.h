/* hash.h -- XXH3-128 of a stream, as 32 letters of hex. */
#ifndef DPC_HASH_H
#define DPC_HASH_H

#include <stddef.h>

enum { DPC_HASH = 33 };                   /* chars, with the NUL */

typedef struct DpcHash DpcHash;

DpcHash *dpc_hash_open(void);             /* NULL: no memory */
void dpc_hash_close(DpcHash *);           /* NULL is fine */
void dpc_hash_reset(DpcHash *);
void dpc_hash_add(DpcHash *, const void *, size_t n);
void dpc_hash_hex(const DpcHash *, char hex[DPC_HASH]);      /* of all so far */

#endif
