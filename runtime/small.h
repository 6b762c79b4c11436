/* small.h -- blocks for what C++ libraries allocate within a step. */
#ifndef RUNTIME_SMALL_H
#define RUNTIME_SMALL_H

#include <stdint.h>

/* From now on `operator new` of up to 256 bytes takes a block; once a
 * process, when all that lives long has been made. */
void dpc_small_open(void);
int64_t dpc_small_bytes(void);            /* reserved for blocks */
/* Calls since dpc_small_open that had to go to the heap. */
int64_t dpc_small_missed(void);

#endif
