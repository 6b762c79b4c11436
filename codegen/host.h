/* host.h -- between the files that print kernels as C. */
#ifndef DPC_HOST_H
#define DPC_HOST_H

#include "codegen/kernel.h"

/* "for (long i3 = 0; i3 < 64L; i3++)" of the atom at this place; the first
 * goes to n0 where its length is data. */
void host_loop(Text *, const Kernel *, int at, int depth);
/* "const long n0 = ...", where the first loop's length is data. */
void host_open(Text *, const Kernel *);
/* Places in the order of the atoms of a set. */
int host_places(const Kernel *, Atoms set, int *out);
/* Points of the loops, by the values made at each, 0 where all are one
 * worker's: threads share a kernel of HOST_SHARED and more. */
enum { HOST_SHARED = 1 << 15 };
double host_points(const Kernel *);
/* The pragma over the n outermost loops, if the work is worth threads. */
void host_parallel(Text *, const Kernel *, int n, bool simd);
void host_stores(Text *, const Kernel *, const int *store, int n, int depth);
/* Number of the point (places at[0..n)) in a buffer of the row. */
void host_place(Text *, const Kernel *, const int *at, int n);

/* Member c of a flat kernel's list: its buffers, and its data. */
void host_flat_member(Text *, const Kernel *);

/* The rows, or columns, of groups side by side in one vector, where that is
 * possible: else false, and nothing is printed. */
bool host_lanes(Text *, const Kernel *);
bool host_lane_columns(Text *, const Kernel *);

/* Where a nest of n loops begins to sum into fresh accumulators, which are
 * added to the outer ones whenever that part of the nest ends. */
typedef struct Cascade {
    int at;                               /* loops outside of it; -1: none */
    bool block;                           /* the last loop runs in blocks */
} Cascade;

/* lanes: sums side by side in the last loop, 0 for those of a vector. */
Cascade host_cascade(const Kernel *, const Loop *, const int *at, int n,
                     int64_t lanes);
/* Before the nest: the outer sums. */
void host_cascade_begin(Text *, const Kernel *, const Loop *, Cascade,
                        int depth);
/* Behind the inner part: it is added; behind the nest: the sums have their
 * names again. */
void host_cascade_add(Text *, const Kernel *, const Loop *, int depth);
void host_cascade_end(Text *, const Loop *, Cascade, int depth);
/* A loop of a nest, over this chunk's part if chunks cut it; block: over the
 * places of one block of the loop that the other prints. */
void host_nest_loop(Text *, const Kernel *, int at, bool block, int depth);
void host_block_loop(Text *, const Kernel *, int at, int depth);

/* The loops of one Loop, to be printed around a body. */
typedef struct Nest {
    const Kernel *k;
    const Loop *l;
    Loop plain;                           /* the same, without its tables */
    int at[KATOM], n;                     /* places, outermost first */
    int64_t lanes;                        /* see host_cascade */
    Cascade v;
} Nest;

/* Its heads, and what begins between them; the depth inside.  Its ends, and
 * what is added up behind them. */
int host_nest_open(Text *, const Nest *, int depth);
void host_nest_close(Text *, const Nest *, int depth);
void host_rows(Text *, const Kernel *);

#endif
