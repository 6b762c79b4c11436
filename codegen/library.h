/* library.h -- nodes that a library computes, as its descriptions. */
#ifndef DPC_LIBRARY_H
#define DPC_LIBRARY_H

#include "ir/sched.h"
#include "runtime/dpc_rt.h"

enum { NSTRAND = 12 };

/* A dimension as it lies in memory: loops, outer first, with the elements
 * between neighbours of each. */
typedef struct Strand { int n; int64_t size[NSTRAND], stride[NSTRAND]; } Strand;

/* The dimensions of r's value, read through views down to the bytes of
 * view_root(r); false when a view sums or its factors do not fit. */
bool strand_of(const Graph *, Ref r, Strand *dim);
/* Cut `from` into parts of the given sizes, outer first. */
bool strand_cut(const Strand *from, const int64_t *size, int n, Strand *part);

/* A dot, or a convolution, as one call; false and why: then it is a loop
 * nest like any other.  `end`: the node whose value the call stores, the
 * product itself or its rounding. */
bool dot_describe(const Graph *, Ref, Ref end, DpcDot *, const char **why);
bool conv_describe(const Graph *, Ref, Ref end, DpcConv *, const char **why);
bool library_product(const Node *);       /* is it one of these? */
/* The last node of the launch that product r begins. */
Ref call_end(const Graph *, Ref r);
/* The convolution that a pack of filters is for; NONE. */
Ref pack_reader(const Graph *, Ref pack);

#endif
