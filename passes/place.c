/* place.c -- offsets for what shares one arena.
 *
 * Items that never live at one moment may share bytes.  Placing them is
 * dynamic storage allocation (NP-hard; Buchsbaum et al., "OPT versus LOAD",
 * STOC 2003): first fit is run in several orders, and each is improved by
 * placing what reaches the peak before something that it meets, as long as
 * the peak is no higher (the hill climbing of TVM's memory planner,
 * apache/tvm, src/tir/usmp/algo/hill_climb.cc).  The largest sum of live bytes
 * is a lower bound; the search ends within a hundredth of it.
 *
 * The items placed so far are found by time: the steps are cut into windows,
 * each with the items that live in it, so that an item meets those near it
 * and the few that live long, not all. */
#include "passes/place.h"
#include <stdlib.h>

enum { NWINDOW = 256, BUDGET = 25000 };   /* items placed, from each start */

typedef struct Window { uint32_t *item; uint32_t n, cap; } Window;

typedef struct Place {
    Item *item;
    uint32_t n, nstep, width;             /* steps of a window */
    Arena *arena;
    Window window[NWINDOW];
    uint32_t *seen, stamp;                /* by item: last search that met it */
    uint32_t *placed, nplaced;            /* items by rising `at` */
    uint32_t *best;                       /* the order of the lowest peak */
    int64_t least;
    int64_t *live;                        /* bytes, by step */
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

typedef enum How { BY_BREADTH, BY_LENGTH, BY_AREA, BY_SIZE, NHOW } How;
typedef struct Rank { int64_t weight, size; uint32_t item; } Rank;

/* Most bytes alive at a moment of its life: those that make the peak are
 * placed first, when nothing is in their way (greedy by breadth of Pisarchyk
 * and Lee, "Efficient Memory Management for Deep Neural Net Inference"). */
static int64_t breadth(const Place *p, const Item *it)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < it->nspan; k++)
        for (uint32_t t = it->span[k].from; t <= it->span[k].to; t++)
            most = p->live[t] > most ? p->live[t] : most;
    return most;
}

static int64_t weight(const Place *p, const Item *it, How how)
{
    int64_t length = it->nspan ? it->span[it->nspan - 1].to
        - it->span[0].from + 1 : 0;
    return how == BY_SIZE ? it->size : how == BY_LENGTH ? length
         : how == BY_AREA ? it->size / 64 * length : breadth(p, it);
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

/* ---- first fit ---- */

static void remember(Place *p, uint32_t i)
{
    const Item *it = &p->item[i];
    uint32_t next = 0, lo = 0, hi = p->nplaced;   /* next: window without it */
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
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (p->item[p->placed[mid]].at <= it->at)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(p->placed + lo + 1, p->placed + lo,
            (p->nplaced++ - lo) * sizeof *p->placed);
    p->placed[lo] = i;
}

/* Stamp the placed items that live while `it` does; how many. */
static uint32_t neighbours(Place *p, const Item *it)
{
    uint32_t n = 0;
    p->stamp++;
    for (uint32_t k = 0; k < it->nspan; k++)
        for (uint32_t w = it->span[k].from / p->width;
             w <= it->span[k].to / p->width; w++)
            for (uint32_t i = 0; i < p->window[w].n; i++) {
                uint32_t q = p->window[w].item[i];
                if (p->seen[q] == p->stamp || !overlap(it, &p->item[q]))
                    continue;
                p->seen[q] = p->stamp;
                n++;
            }
    return n;
}

/* Lowest place where `it` meets none of the items placed before it. */
static int64_t first_fit(Place *p, const Item *it)
{
    uint32_t n = neighbours(p, it);
    int64_t at = 0;
    for (uint32_t i = 0; n && i < p->nplaced; i++) {
        const Item *x = &p->item[p->placed[i]];
        if (p->seen[p->placed[i]] != p->stamp)
            continue;
        if (x->at - at >= it->size)
            break;
        if (x->at + x->size > at)
            at = x->at + x->size;
        n--;
    }
    return at;
}

/* First fit in that order; the peak. */
static int64_t place_all(Place *p, const uint32_t *order)
{
    int64_t peak = 0;
    p->nplaced = 0;
    for (int w = 0; w < NWINDOW; w++)
        p->window[w].n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        Item *it = &p->item[order[i]];
        it->at = first_fit(p, it);
        remember(p, order[i]);
        if (it->at + it->size > peak)
            peak = it->at + it->size;
    }
    return peak;
}

static void sort_by(const Place *p, How how, uint32_t *order)
{
    Rank *rank = alloc(p->arena, (p->n + 1) * sizeof *rank);
    for (uint32_t i = 0; i < p->n; i++)
        rank[i] = (Rank){ weight(p, &p->item[i], how), p->item[i].size, i };
    qsort(rank, p->n, sizeof *rank, heavier);
    for (uint32_t i = 0; i < p->n; i++)
        order[i] = rank[i].item;
}

/* ---- better orders ---- */

/* Place what is at the peak before one of those that it met, by lot. */
static void promote(Place *p, uint32_t *order, int64_t peak, uint64_t *lot)
{
    uint32_t k = 0, met = 0, to = 0;
    while (p->item[order[k]].at + p->item[order[k]].size != peak)
        k++;
    const Item *it = &p->item[order[k]];
    for (uint32_t i = 0; i < k; i++) {
        *lot = *lot * 6364136223846793005u + 1442695040888963407u;
        if (overlap(it, &p->item[order[i]]) && (*lot >> 33) % ++met == 0)
            to = i;
    }
    uint32_t x = order[k];
    memmove(order + to + 1, order + to, (k - to) * sizeof *order);
    order[to] = x;
}

/* From one order on; keeps the best of all. */
static void climb(Place *p, uint32_t *order, int64_t lower)
{
    uint32_t *best = alloc(p->arena, (p->n + 1) * sizeof *best);
    uint64_t lot = 1;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; p->least > lower && i < BUDGET / p->n + 1; i++) {
        int64_t peak = place_all(p, order);
        if (peak > least) {               /* no: once more from the best */
            memcpy(order, best, p->n * sizeof *order);
            peak = place_all(p, order);
        }
        memcpy(best, order, p->n * sizeof *order);
        least = peak;
        if (peak < p->least) {
            p->least = peak;
            memcpy(p->best, order, p->n * sizeof *order);
        }
        promote(p, order, peak, &lot);
    }
}

static int64_t lower_bound(Place *p, uint32_t *when)
{
    int64_t lower = 0, sum = 0, *live = p->live;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->item[i].nspan; k++) {
            live[p->item[i].span[k].from] += p->item[i].size;
            live[p->item[i].span[k].to + 1] -= p->item[i].size;
        }
    for (uint32_t k = 0; k < p->nstep; k++) {
        live[k] = sum += live[k];
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
    *p = (Place){ .item = item, .n = n, .nstep = nstep,
                  .width = nstep / NWINDOW + 1, .arena = arena };
    p->seen = alloc(arena, (n + 1) * sizeof *p->seen);
    p->placed = alloc(arena, (n + 1) * sizeof *p->placed);
    p->best = alloc(arena, (n + 1) * sizeof *p->best);
    p->live = alloc(arena, (nstep + 2) * sizeof *p->live);
    p->least = INT64_MAX;
    *lower = lower_bound(p, when);
    for (How how = 0; n && how < NHOW && p->least > *lower + *lower / 100;
         how++) {
        uint32_t *order = alloc(arena, (n + 1) * sizeof *order);
        sort_by(p, how, order);
        climb(p, order, *lower);
    }
    int64_t peak = n ? place_all(p, p->best) : 0;
    arena_free(arena);
    return peak;
}
