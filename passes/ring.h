/* ring.h -- what rings do to types: `propagate` asks. */
#ifndef DPC_RING_H
#define DPC_RING_H

#include "passes/pass.h"

/* The time axes that are some axis' twin. */
Axes ring_twins(const Mesh *);
/* The split with twins in place of the axes that have one. */
Split ring_split(const Mesh *, Split);
/* Of a value that lies so and shall come round: where it lies meanwhile, and
 * how it is read then.  `said` names the twins. */
Split ring_home(const Mesh *, Split said, Split have);
Split ring_round(const Mesh *, Split said, Split have);
/* What the plan says of a `constrain`; NULL: nothing. */
const Lie *ring_lie(const Plan *, const Node *);
/* Does that leave a value in the turns of a ring, which is `home` when it has
 * left, as it is? */
bool ring_keeps(const Mesh *, const Lie *, const Type *, const Type *home);
/* What the plan says of a `constrain` where its value shall come round, of
 * the result of an operation on such a value (a cast, movement); NULL: it
 * does not. */
const Lie *ring_said(const Plan *, const Node *);
const Lie *ring_through(Op, const Sig *, const Lie *, Arena *);
/* Is it worth that operand i of a product comes round as said?  Then `t`, how
 * it lies, becomes how it is read. */
bool ring_reads(const Graph *, const Sig *, const Ref *in, int i, const Lie *,
                Type *t);
/* May the node's operands, some of which are in the turns of a ring, be read
 * there?  want[nin]: how they all lie then. */
bool ring_goes_on(const Graph *, const Sig *, Op, const Ref *in, Type *want);
/* Do parts come round from `have` to `want`? */
bool ring_between(const Mesh *, const Type *have, const Type *want);
/* The type once the turns of all rings are over: what they owe is summed, and
 * parts that went round are with who keeps them. */
Type ring_left(const Mesh *, const Type *);

#endif
