/* place_pile.c -- items piled up, to stay below a given height.
 *
 * An item comes to lie on what is under it already, in any of its steps; what
 * stays empty below is lost.  The next one lies no lower than the last, so
 * each packing is met in one order only, and it lies lower than the top of
 * any that could come instead, or that one would fit beneath it.  Where a
 * step's pile and the bytes still to come in it are too high together, the
 * search turns back.  (Moffitt, "MiniMalloc: A Lightweight Memory Allocator
 * for Hardware-Accelerated Machine Learning", ASPLOS 2023.) */
#include "passes/place.h"

typedef struct Frame {                    /* one item that was laid */
    uint32_t next;                        /* rank that is tried after it */
    uint32_t item;
    uint32_t undo;                        /* changes made before it */
    int64_t at, bound;                    /* its place; highest one allowed */
} Frame;
typedef struct Change { int64_t *where, was; } Change;

typedef struct Pile {
    Item *item;
    const uint32_t *order;
    uint32_t n, nstep;
    int64_t limit;
    int64_t *top, *rest;                  /* by step: height; yet to come */
    int64_t *low;                         /* by item: where it would lie */
    bool *laid;
    Frame *frame;
    Change *change;
    uint32_t nchange, changecap;
    Arena *arena;
} Pile;

static void change(Pile *p, int64_t *where, int64_t to)
{
    GROW(p->arena, p->change, p->nchange, p->changecap);
    p->change[p->nchange++] = (Change){ where, *where };
    *where = to;
}

static void undo(Pile *p, const Frame *f)
{
    while (p->nchange > f->undo) {
        const Change *c = &p->change[--p->nchange];
        *c->where = c->was;
    }
    p->laid[f->item] = false;
}

/* The highest place that the next item may take: below the top of each that
 * is left, and so that what is left in any step fits above it. */
static int64_t bound(const Pile *p)
{
    int64_t most = p->limit;
    for (uint32_t t = 0; t < p->nstep; t++)
        if (p->rest[t] && p->limit - p->rest[t] < most)
            most = p->limit - p->rest[t];
    for (uint32_t i = 0; i < p->n; i++)
        if (!p->laid[i] && p->low[i] + p->item[i].size <= most)
            most = p->low[i] + p->item[i].size - 1;
    return most;
}

static void lay(Pile *p, Frame *f, uint32_t i, int64_t at)
{
    const Item *it = &p->item[i];
    int64_t top = at + it->size;
    f->item = i, f->at = at, f->undo = p->nchange;
    p->laid[i] = true;
    for (uint32_t t = it->life.from; t <= it->life.to; t++) {
        change(p, &p->top[t], top);
        change(p, &p->rest[t], p->rest[t] - it->size);
    }
    for (uint32_t k = 0; k < p->n; k++)
        if (!p->laid[k] && p->low[k] < top && item_meets(it, &p->item[k]))
            change(p, &p->low[k], top);
}

/* Lay the next item that f has not tried; false: there is none. */
static bool try_next(Pile *p, Frame *f, const Frame *before)
{
    for (; f->next < p->n; f->next++) {
        uint32_t i = p->order[f->next];
        int64_t at = p->low[i];
        if (before && at < before->at)
            at = before->at;
        bool met = before && at == before->at && f->next < before->next;
        if (p->laid[i] || at > f->bound || met)
            continue;
        f->next++;
        lay(p, f, i, at);
        return true;
    }
    return false;
}

static bool search(Pile *p, uint32_t visits)
{
    uint32_t depth = 0;
    for (; p->n; visits--) {
        Frame *f = &p->frame[depth];
        *f = (Frame){ .bound = bound(p) };
        while (!try_next(p, f, depth ? f - 1 : NULL)) {
            if (!depth)
                return false;
            undo(p, &p->frame[--depth]);
            f = &p->frame[depth];
        }
        if (++depth == p->n)
            break;
        if (!visits)
            return false;
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->item[p->frame[i].item].at = p->frame[i].at;
    return true;
}

bool place_pile(Item *item, uint32_t n, uint32_t nstep, const uint32_t *order,
                int64_t limit, uint32_t visits)
{
    Arena *a = arena_new();
    Pile p = { .item = item, .order = order, .n = n, .nstep = nstep,
               .limit = limit, .arena = a };
    p.top = alloc(a, (nstep + 1) * sizeof *p.top);
    p.rest = alloc(a, (nstep + 1) * sizeof *p.rest);
    p.low = alloc(a, (n + 1) * sizeof *p.low);
    p.laid = alloc(a, n + 1);
    p.frame = alloc(a, (n + 1) * sizeof *p.frame);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = item[i].life.from; t <= item[i].life.to; t++)
            p.rest[t] += item[i].size;
    bool found = search(&p, visits);
    arena_free(a);
    return found;
}
