/* ring.h -- what rings do to types: `propagate` asks. */
#ifndef DPC_RING_H
#define DPC_RING_H

#include "passes/pass.h"

/* The time axes that are some axis' twin. */
Axes ring_twins(const Mesh *);
/* The split with twins in place of the axes that have one. */
Split ring_split(const Mesh *, Split);
/* Do parts come round from `have` to `want`? */
bool ring_between(const Mesh *, const Type *have, const Type *want);
/* The type once the turns of all rings are over: what they owe is summed, and
 * parts that went round are with who keeps them. */
Type ring_left(const Mesh *, const Type *);

#endif
