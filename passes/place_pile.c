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
    uint32_t next;                        /* item that is tried after it */
    uint32_t item;
    uint32_t undo;                        /* changes made before it */
    int64_t at, bound;                    /* its place; highest one allowed */
} Frame;
typedef struct Change { uint32_t item; int64_t low; } Change;

/* By item, in the order of preference.  Of the steps those count in which an
 * item begins: what lives in another lives in the last of these, too. */
typedef struct Pile {
    uint32_t n, nstep;
    int64_t limit;
    int64_t *size, *low;                  /* low: where it would lie */
    Span *life;
    int64_t *rest;                        /* by step: bytes yet to come */
    Frame *frame;
    Change *change;
    uint32_t nchange, changecap;
    Arena *arena;
} Pile;

/* Where what is laid already would lie: above all bounds. */
static const int64_t FAR = INT64_MAX / 2;

static void change(Pile *p, uint32_t item, int64_t to)
{
    GROW(p->arena, p->change, p->nchange, p->changecap);
    p->change[p->nchange++] = (Change){ item, p->low[item] };
    p->low[item] = to;
}

static void rest_add(Pile *p, uint32_t i, int64_t bytes)
{
    for (uint32_t t = p->life[i].from; t <= p->life[i].to; t++)
        p->rest[t] += bytes;
}

static void undo(Pile *p, const Frame *f)
{
    while (p->nchange > f->undo) {
        const Change *c = &p->change[--p->nchange];
        p->low[c->item] = c->low;
    }
    rest_add(p, f->item, p->size[f->item]);
}

/* The highest place that the next item may take: below the top of each that
 * is left, and so that what is left in any step fits above it. */
static int64_t bound(const Pile *p)
{
    int64_t rest = 0, top = p->limit + 1;
    for (uint32_t t = 0; t < p->nstep; t++)
        rest = p->rest[t] > rest ? p->rest[t] : rest;
    for (uint32_t i = 0; i < p->n; i++) {
        int64_t its = p->low[i] + p->size[i];
        top = its < top ? its : top;
    }
    return p->limit - rest < top - 1 ? p->limit - rest : top - 1;
}

static void lay(Pile *p, Frame *f, uint32_t i, int64_t at)
{
    const Span *life = &p->life[i];
    int64_t top = at + p->size[i];
    f->item = i, f->at = at, f->undo = p->nchange;
    rest_add(p, i, -p->size[i]);
    change(p, i, FAR);
    for (uint32_t k = 0; k < p->n; k++)
        if (p->low[k] < top && p->life[k].from <= life->to
            && life->from <= p->life[k].to)
            change(p, k, top);
}

/* Lay the next item that f has not tried; false: there is none. */
static bool try_next(Pile *p, Frame *f, const Frame *before)
{
    for (; f->next < p->n; f->next++) {
        uint32_t i = f->next;
        int64_t at = p->low[i];
        if (before && at < before->at)
            at = before->at;
        bool met = before && at == before->at && i < before->next;
        if (at > f->bound || met)
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
    return true;
}

/* The items' lives, by the steps that count. */
static void lives(Pile *p, const Item *item, const uint32_t *order,
                  uint32_t nstep)
{
    uint32_t *count = alloc(p->arena, (nstep + 1) * sizeof *count);
    for (uint32_t i = 0; i < p->n; i++)
        count[item[i].life.from] = 1;
    for (uint32_t t = 0; t < nstep; t++)
        count[t] = p->nstep += count[t];
    for (uint32_t i = 0; i < p->n; i++) {
        const Span *life = &item[order[i]].life;
        p->life[i] = (Span){ count[life->from] - 1, count[life->to] - 1 };
    }
}

bool place_pile(Item *item, uint32_t n, uint32_t nstep, const uint32_t *order,
                int64_t limit, uint32_t visits)
{
    Arena *a = arena_new();
    Pile p = { .n = n, .limit = limit, .arena = a };
    p.size = alloc(a, (n + 1) * sizeof *p.size);
    p.low = alloc(a, (n + 1) * sizeof *p.low);
    p.life = alloc(a, (n + 1) * sizeof *p.life);
    p.frame = alloc(a, (n + 1) * sizeof *p.frame);
    p.rest = alloc(a, (nstep + 1) * sizeof *p.rest);
    lives(&p, item, order, nstep);
    for (uint32_t i = 0; i < n; i++) {
        p.size[i] = item[order[i]].size;
        rest_add(&p, i, p.size[i]);
    }
    bool found = search(&p, visits);
    for (uint32_t i = 0; i < n && found; i++)
        item[order[p.frame[i].item]].at = p.frame[i].at;
    arena_free(a);
    return found;
}
