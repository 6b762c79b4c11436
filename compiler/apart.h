/* apart.h -- pieces of work that share nothing, in a process each. */
#ifndef DPC_APART_H
#define DPC_APART_H

#include <stddef.h>

typedef void ApartFn(void *arg, int i);

/* fn(arg, i) for all i < n, as many at a time as there are cores, begun in
 * that order; nothing that one does in memory is seen by another, or here, but
 * in apart_memory.
 * The first, by i, that fails ends this process as it ended. */
void apart_run(const int *order, int n, ApartFn *fn, void *arg);

/* Zeros, where what a piece writes is seen by all. */
void *apart_memory(size_t bytes);
void apart_free(void *, size_t bytes);

#endif
