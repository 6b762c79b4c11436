/* eval.h -- the reference: what a graph means, on all ranks and turns.
 *
 * Two domains.  REAL: doubles, no rounding to the dtype.  FIELD: integers
 * modulo 2^61-1, where sums may be re-associated without a trace, so that a
 * partitioned or rewritten program must equal the original bit for bit;
 * functions that are no field operation are keyed hashes of their operands. */
#ifndef DPC_EVAL_H
#define DPC_EVAL_H

#include "ir/graph.h"

typedef enum Domain { REAL, FIELD } Domain;
typedef union Num { double r; uint64_t f; } Num;

typedef struct Eval Eval;

Eval *eval_new(const Graph *, Domain, uint64_t seed, uint64_t step);
/* Values that runs of one domain, seed and step share, so that what graphs have
 * in common is evaluated once.  The graphs live as long. */
typedef struct EvalMemo EvalMemo;
EvalMemo *eval_memo_new(void);
void eval_memo_free(EvalMemo *);
int64_t eval_memo_found(const EvalMemo *);     /* nodes not evaluated again */
void eval_share(Eval *, EvalMemo *);
/* Give a leaf its whole (global) value; parts are cut for each rank.  Leaves
 * that are not given get values by hash of seed, name and global index (the
 * same whatever the mesh), scalars in the domain REAL their default. */
void eval_set(Eval *, Ref leaf, const Num *whole);
/* From now on what an op of dtype f32 makes is rounded to f32, once: the best
 * that a machine can do which keeps f32. */
void eval_round(Eval *);
void eval_run(Eval *);                    /* every node, rank and turn */
/* The value of a node made whole: parts joined, pending folds finished,
 * turns joined.  Row-major, type_volume elements, in the Eval's memory. */
const Num *eval_get(Eval *, Ref);
/* What the part of one role receives, from a run of the graph of all. */
void eval_receive(Eval *part, Eval *whole);
void eval_free(Eval *);

/* One op on local operands, the heart of it: used by table tests. */
void eval_node(const Graph *, Ref, Domain, const Num *const *in, Num *out);

/* Philox 4x32-10 (Salmon et al., SC11): the definition of `random` for all
 * targets: counter (index lo, hi, step, id), key = seed. */
void philox(uint32_t out[4], const uint32_t ctr[4], const uint32_t key[2]);

#endif
