/* ring.c -- a contraction whose parts come round, a turn each.
 *
 * An axis of ranks may have a time twin: sp and sp'.  Where two letters of an
 * attention lie over sp, one of them lies over sp' instead: at turn t of its
 * ring rank i has the block of keys of rank t, and no other.  What is folded
 * over keys is owed over sp', and the turns add it up; what keeps keys (their
 * gradient) is owed over sp, block by block, and goes back to who keeps it,
 * turn by turn.  Both ways are one exchange: rank i at turn t has what rank t
 * has at turn i (architecture.md, case c; Liu, Zaharia, Abbeel, "Ring
 * attention", 2023).  At run time rank i counts its turns as t = (step - i)
 * mod n, so that i and t are partners at one step and each has one (collect.c);
 * the order of a sum is all that this changes. */
#include "passes/ring.h"

Axes ring_twins(const Mesh *m)
{
    Axes twins = 0;
    for (int i = 0; i < m->naxis; i++)
        twins |= mesh_ring(m, i) & (Axes)~(1u << i);
    return twins;
}

Split ring_split(const Mesh *m, Split s)
{
    Split to = 0;
    for (; s; s >>= 4) {
        int axis = (int)(s & 15) - 1, twin = mesh_twin(m, axis);
        to = split_push(to, twin < 0 ? axis : twin);
    }
    return to;
}

bool ring_between(const Mesh *m, const Type *have, const Type *want)
{
    bool round = false;
    for (int d = 0; d < want->ndim; d++)
        round |= have->split[d] != want->split[d]
            && ring_split(m, have->split[d]) == want->split[d];
    return round;
}

Type ring_left(const Mesh *m, const Type *of)
{
    Type t = *of;
    Axes twins = ring_twins(m);
    for (int i = 0; i < m->naxis; i++) {
        Axes ring = mesh_ring(m, i), space = ring & (Axes)(1u << i);
        Type home = type_swap(&t, ring);
        for (int d = 0; ring && d < t.ndim; d++)
            if (split_axes(t.split[d]) & ring & twins) {
                t.split[d] = t.partial & space ? home.split[d]
                           : split_without(t.split[d], ring);
                t.partial &= (Axes)~space;
            }
    }
    t.partial &= (Axes)~twins;
    t.fold = t.partial ? t.fold : FOLD_SUM;
    return t;
}
