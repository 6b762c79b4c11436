/* twins.h -- kernels of one body, for bucket.c. */
#ifndef DPC_TWINS_H
#define DPC_TWINS_H

#include "passes/pass.h"

/* Label the nodes of kernels that can go as one launch: of[node] = a bucket,
 * numbered from `bucket` on.  Returns the next number; other members of `of`
 * are left as they are. */
int twins_label(const Graph *, Arena *scratch, const int *depth, int bucket,
                int *of);

#endif
