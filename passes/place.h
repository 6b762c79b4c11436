/* place.h -- offsets for what shares one arena. */
#ifndef DPC_PLACE_H
#define DPC_PLACE_H

#include "ir/graph.h"

typedef struct Span { uint32_t from, to; } Span;      /* steps, both included */

typedef struct Item {                     /* bytes that live together */
    Ref node;                             /* or NONE: scratch */
    uint32_t index;                       /* instance of it; step of scratch */
    int64_t size, at;
    Span *span;                           /* ascending, disjoint */
    uint32_t nspan, cap;
} Item;

/* Gives each of the n items its `at`, so that no two that live at one of the
 * nstep steps share bytes.  The peak.  *lower: the largest sum of live sizes,
 * at step *when. */
int64_t place_items(Item *, uint32_t n, uint32_t nstep, int64_t *lower,
                    uint32_t *when);

#endif
