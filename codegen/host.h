/* host.h -- between the files that print kernels as C. */
#ifndef DPC_HOST_H
#define DPC_HOST_H

#include "codegen/kernel.h"

/* "for (long i3 = 0; i3 < 64L; i3++)" of the atom at this place. */
void host_loop(Text *, const Kernel *, int at, int depth);
/* Places in the order of the atoms of a set. */
int host_places(const Kernel *, Atoms set, int *out);
/* The pragma over the n outermost loops, if the work is worth threads. */
void host_parallel(Text *, const Kernel *, int n, bool simd);
void host_stores(Text *, const Kernel *, const int *store, int n, int depth);
/* Number of the point (places at[0..n)) in a buffer of the row. */
void host_place(Text *, const Kernel *, const int *at, int n);

/* The rows, or columns, of groups side by side in one vector, where that is
 * possible: else false, and nothing is printed. */
bool host_lanes(Text *, const Kernel *);
bool host_lane_columns(Text *, const Kernel *);

#endif
