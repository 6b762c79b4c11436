/* like.h -- equal work has equal keys: like.c. */
#ifndef DPC_LIKE_H
#define DPC_LIKE_H

#include "ir/sched.h"
#include "ir/target.h"

typedef struct Key { uint64_t a, b; } Key;    /* two hashes; 0 0: none */

static inline Key key_mix(Key k, uint64_t v)
{
    k.a = (k.a ^ v) * 0x9e3779b97f4a7c15u;
    k.a ^= k.a >> 29;
    k.b = (k.b + v) * 0xff51afd7ed558ccdu;
    k.b ^= k.b >> 32;
    return k;
}

static inline Key key_both(Key k, Key v)
{
    return (Key){ key_mix(k, v.a).a, key_mix(k, v.b).b };
}

static inline bool key_equal(Key a, Key b)
{
    return a.a == b.a && a.b == b.b;
}

static inline bool key_none(Key k)
{
    return !k.a && !k.b;
}

Key key_mesh(const Mesh *, Phase);
Key key_type(const Type *);
/* What a node does to operands: op, type, attributes. */
Key key_work(const Node *);
/* By launch: the first that does the same, to operands that lie the same. */
uint32_t *launches_alike(const Graph *, const Sched *, Arena *);
/* By launch: bytes that it wants while it works; 0 where there is no target. */
int64_t *launches_scratch(const Graph *, const Sched *, const Target *,
                          const uint32_t *uses, Arena *);

#endif
