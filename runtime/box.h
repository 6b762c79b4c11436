/* box.h -- which part of a tensor a rank holds, and copies between parts. */
#ifndef DPC_BOX_H
#define DPC_BOX_H

#include "runtime/dpc_rt.h"

typedef struct DpcBox {
    int ndim;
    int64_t at[DPC_NDIM], size[DPC_NDIM]; /* elements of the whole tensor */
} DpcBox;

/* The part of n elements at `coord` (see ir/type.c): where it begins, how many
 * it holds, for how many it has room. */
typedef struct DpcPart { int64_t at, n, room; } DpcPart;
DpcPart dpc_part_of(const DpcUnit *, DpcSplit, int64_t n,
                    const int32_t *coord);
/* The part of `leaf` at `coord`, which may be empty in a dimension that does
 * not divide; `local`: sizes of the buffer that holds it, padding included. */
DpcBox dpc_box_of(const DpcUnit *, const DpcLeaf *leaf, const int32_t *coord,
                  int64_t local[DPC_NDIM]);
DpcBox dpc_box_whole(int ndim, const int64_t *dim);
bool dpc_leaf_split(const DpcLeaf *);     /* any dimension is */
/* Of the ranks that hold the same part, the one that writes it: it stands at
 * 0 on every axis that does not split the leaf. */
/* The role of a rank: its coordinates on stage axes.  Whether a leaf lives on
 * its ranks. */
int32_t dpc_role_at(const DpcUnit *, const int32_t *coord);
bool dpc_leaf_here(const DpcLeaf *, int32_t role);
bool dpc_leaf_owner(const DpcUnit *, const DpcLeaf *, const int32_t *coord);

int64_t dpc_box_count(const DpcBox *);    /* elements */
/* What both hold; its count is 0 when that is nothing. */
DpcBox dpc_box_meet(const DpcBox *, const DpcBox *);

/* Walks what boxes a and b share in the longest runs that are contiguous in
 * both; each box lies row-major in a buffer of the sizes ext. */
typedef struct DpcRuns {
    DpcBox meet;
    int outer;                            /* dimensions walked one by one */
    int64_t run;                          /* elements of a run */
    int64_t i[DPC_NDIM], a[DPC_NDIM], b[DPC_NDIM];     /* strides a, b */
    int64_t a0, b0;
    bool done;
} DpcRuns;
DpcRuns dpc_runs(const DpcBox *a, const int64_t *ext_a, const DpcBox *b,
                 const int64_t *ext_b);
/* Elements from the start of either buffer; false: no more. */
bool dpc_runs_next(DpcRuns *, int64_t *at_a, int64_t *at_b);

#endif
