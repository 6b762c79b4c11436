/* place.c -- offsets for what shares one arena.
 *
 * Items that never live at one moment may share bytes.  Placing them is
 * dynamic storage allocation (NP-hard; Buchsbaum et al., "OPT versus LOAD",
 * STOC 2003): first fit is run in several orders and the lowest peak wins.
 * The largest sum of live bytes is a lower bound.
 *
 * The items placed so far are found by time: the steps are cut into windows,
 * each with the items that live in it, so that an item meets those near it
 * and the few that live long, not all. */
#include "passes/place.h"
#include <stdlib.h>

enum { NWINDOW = 256 };

typedef struct Window { uint32_t *item; uint32_t n, cap; } Window;

typedef struct Place {
    Item *item;
    uint32_t n, nstep, width;             /* steps of a window */
    Arena *arena;
    Window window[NWINDOW];
    uint32_t *seen, stamp;                /* by item: last search that met it */
    Item **hit;
} Place;

static bool overlap(const Item *a, const Item *b)
{
    uint32_t i = 0, k = 0;
    while (i < a->nspan && k < b->nspan) {
        const Span *p = &a->span[i], *q = &b->span[k];
        if (p->to < q->from)
            i++;
        else if (q->to < p->from)
            k++;
        else
            return true;
    }
    return false;
}

/* ---- the order of placing ---- */

typedef enum How { BY_SIZE, BY_LENGTH, BY_AREA, BY_BIRTH, NHOW } How;
typedef struct Rank { int64_t weight, size; uint32_t item; } Rank;

static int64_t weight(const Item *it, How how)
{
    int64_t from = it->nspan ? it->span[0].from : 0;
    int64_t length = it->nspan ? it->span[it->nspan - 1].to - from + 1 : 0;
    return how == BY_SIZE ? it->size : how == BY_LENGTH ? length
         : how == BY_AREA ? it->size / 64 * length : -from;
}

static int heavier(const void *a, const void *b)
{
    const Rank *x = a, *y = b;
    if (x->weight != y->weight)
        return (x->weight < y->weight) - (x->weight > y->weight);
    if (x->size != y->size)
        return (x->size < y->size) - (x->size > y->size);
    return (x->item > y->item) - (x->item < y->item);
}

static int lower_at(const void *a, const void *b)
{
    const Item *x = *(Item *const *)a, *y = *(Item *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

/* ---- first fit ---- */

static void remember(Place *p, uint32_t i)
{
    const Item *it = &p->item[i];
    uint32_t next = 0;                    /* first window without it */
    for (uint32_t k = 0; k < it->nspan; k++) {
        uint32_t from = it->span[k].from / p->width;
        uint32_t to = it->span[k].to / p->width;
        for (uint32_t w = from < next ? next : from; w <= to; w++) {
            Window *x = &p->window[w];
            GROW(p->arena, x->item, x->n, x->cap);
            x->item[x->n++] = i;
        }
        next = to + 1 > next ? to + 1 : next;
    }
}

/* The placed items that live while `it` does, in p->hit; how many. */
static uint32_t neighbours(Place *p, const Item *it)
{
    uint32_t n = 0;
    p->stamp++;
    for (uint32_t k = 0; k < it->nspan; k++)
        for (uint32_t w = it->span[k].from / p->width;
             w <= it->span[k].to / p->width; w++)
            for (uint32_t i = 0; i < p->window[w].n; i++) {
                uint32_t q = p->window[w].item[i];
                if (p->seen[q] == p->stamp)
                    continue;
                p->seen[q] = p->stamp;
                if (overlap(it, &p->item[q]))
                    p->hit[n++] = &p->item[q];
            }
    return n;
}

/* Lowest place where `it` meets none of the items placed before it. */
static int64_t first_fit(Place *p, const Item *it)
{
    uint32_t n = neighbours(p, it);
    int64_t at = 0;
    qsort(p->hit, n, sizeof *p->hit, lower_at);
    for (uint32_t i = 0; i < n; i++) {
        if (p->hit[i]->at - at >= it->size)
            break;
        if (p->hit[i]->at + p->hit[i]->size > at)
            at = p->hit[i]->at + p->hit[i]->size;
    }
    return at;
}

static int64_t place_all(Place *p, How how, int64_t *at)
{
    Rank *rank = alloc(p->arena, (p->n + 1) * sizeof *rank);
    int64_t peak = 0;
    memset(p->window, 0, sizeof p->window);
    for (uint32_t i = 0; i < p->n; i++)
        rank[i] = (Rank){ weight(&p->item[i], how), p->item[i].size, i };
    qsort(rank, p->n, sizeof *rank, heavier);
    for (uint32_t i = 0; i < p->n; i++) {
        Item *it = &p->item[rank[i].item];
        it->at = first_fit(p, it);
        remember(p, rank[i].item);
        if (it->at + it->size > peak)
            peak = it->at + it->size;
    }
    for (uint32_t i = 0; i < p->n; i++)
        at[i] = p->item[i].at;
    return peak;
}

static int64_t lower_bound(Place *p, uint32_t *when)
{
    int64_t *delta = alloc(p->arena, (p->nstep + 2) * sizeof *delta);
    int64_t sum = 0, lower = 0;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->item[i].nspan; k++) {
            delta[p->item[i].span[k].from] += p->item[i].size;
            delta[p->item[i].span[k].to + 1] -= p->item[i].size;
        }
    for (uint32_t k = 0; k < p->nstep; k++) {
        sum += delta[k];
        if (sum > lower)
            lower = sum, *when = k;
    }
    return lower;
}

int64_t place_items(Item *item, uint32_t n, uint32_t nstep, int64_t *lower,
                    uint32_t *when)
{
    Arena *arena = arena_new();
    Place *p = alloc(arena, sizeof *p);
    int64_t *best = NULL, least = 0;
    *p = (Place){ .item = item, .n = n, .nstep = nstep,
                  .width = nstep / NWINDOW + 1, .arena = arena };
    p->seen = alloc(arena, (n + 1) * sizeof *p->seen);
    p->hit = alloc(arena, (n + 1) * sizeof *p->hit);
    *lower = lower_bound(p, when);
    for (How how = BY_SIZE; how < NHOW; how++) {
        int64_t *at = alloc(arena, (n + 1) * sizeof *at);
        int64_t peak = place_all(p, how, at);
        if (!best || peak < least)
            best = at, least = peak;
        if (least == *lower)
            break;
    }
    for (uint32_t i = 0; i < n; i++)
        item[i].at = best[i];
    arena_free(arena);
    return least;
}
