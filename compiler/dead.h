/* dead.h -- trainable numbers that no gradient reaches. */
#ifndef DPC_DEAD_H
#define DPC_DEAD_H

#include "ir/graph.h"

/* Of a trainable param: so many of its numbers. */
typedef struct Dead {
    const char *name;
    int64_t count, of;
} Dead;

/* In an entry before `grad`, whose dead nodes are gone: params that no loss
 * reads, and of those that losses read by slices alone the rest.  Without a
 * gradient in the entry there are none.  *n: how many. */
Dead *dead_find(const Graph *, Arena *, uint32_t *n);

#endif
