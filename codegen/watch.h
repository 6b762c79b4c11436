/* watch.h -- kernels that find out which operation made a NaN. */
#ifndef DPC_WATCH_H
#define DPC_WATCH_H

#include "codegen/kernel.h"

/* The node of each value that may be blamed, in order: as many for each kernel
 * of that text. */
int watch_nodes(const Kernel *, Ref **node);
/* False: the kernel's step says it all. */
bool watch_worth(const Kernel *);
/* A DpcWatchFn; a list like the kernel itself, where that is flat.  It blames
 * values by their place in watch_nodes, from 1. */
KernelText watch_text(Arena *, const Kernel *);

extern const char watch_flags[];          /* for cc, after those of kernels */
extern const char watch_head[];           /* before host_prelude, for tcc */

#endif
