/* apart.h -- pieces of work that share nothing, in a process each. */
#ifndef DPC_APART_H
#define DPC_APART_H

typedef void ApartFn(void *arg, int i);

/* fn(arg, i) for all i < n, as many at a time as there are cores, begun in
 * that order; nothing that one does in memory is seen by another, or here.
 * The first, by i, that fails ends this process as it ended. */
void apart_run(const int *order, int n, ApartFn *fn, void *arg);

#endif
