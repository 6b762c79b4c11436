/* place.h -- offsets for what shares one arena. */
#ifndef DPC_PLACE_H
#define DPC_PLACE_H

#include "ir/graph.h"

typedef struct Span { uint32_t from, to; } Span;      /* steps, both included */

typedef struct Item {                     /* bytes that live together */
    Ref node;                             /* or NONE: scratch */
    uint32_t index;                       /* instance of it; step of scratch */
    int64_t size, at;
    Span life;
} Item;

static inline bool item_meets(const Item *a, const Item *b)
{
    return a->life.from <= b->life.to && b->life.from <= a->life.to;
}

/* Gives each of the n items its `at`, so that no two that live at one of the
 * nstep steps share bytes.  The peak.  *lower: the largest sum of live sizes,
 * at step *when.  enough: no search for less than that, nor, where the bound is
 * above it, for more than one sweep; 0: as little as can be found. */
int64_t place_items(Item *, uint32_t n, uint32_t nstep, int64_t enough,
                    int64_t *lower, uint32_t *when);

/* Bytes that items have taken, by step: place_shelf.c. */
typedef struct Shelf Shelf;
Shelf *shelf_new(Arena *, uint32_t nstep);
void shelf_clear(Shelf *);
void shelf_take(Shelf *, const Item *);
/* The lowest place where the item meets no taken byte in its steps. */
int64_t shelf_first(const Shelf *, const Item *);

/* As place_items, below `limit`, by piling, preferring items early in `order`
 * (place_pile.c); false when no way was found in so many visits: then `at` is
 * undefined. */
bool place_pile(Item *, uint32_t n, uint32_t nstep, const uint32_t *order,
                int64_t limit, uint32_t visits);

#endif
