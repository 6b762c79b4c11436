/* place.c -- offsets for what shares one arena.
 *
 * Items that never live at one moment may share bytes.  Placing them is
 * dynamic storage allocation (NP-hard; Buchsbaum et al., "OPT versus LOAD",
 * STOC 2003).  The largest sum of live bytes is a lower bound, and what comes
 * within a part in two thousand of it is good; where that is not found, within
 * a hundredth; then two.  No one way is good for all plans, so they are tried
 * in turn, the cheap ones first, until one is:
 *
 *   first fit      in several orders
 *   piling         in the same ones (place_pile.c), within that
 *   piling         of the large ones, in orders that are shaken by lot; small
 *                  ones then fill what is left between them
 *   climbing       first fit, or the fit that touches most neighbours, then
 *                  again with what reaches the peak placed before something
 *                  that it meets, as long as the peak is no higher (the hill
 *                  climbing of TVM's memory planner, apache/tvm,
 *                  src/tir/usmp/algo/hill_climb.cc)
 *
 * Small arenas get less of it: a search is worth no more than its bytes.
 *
 * First fit looks at taken bytes (place_shelf.c).  A fit that looks at the
 * items placed so far finds them by time: the steps are cut into windows,
 * each with the items that live in it, so that an item meets those near it
 * and the few that live long, not all. */
#include "passes/place.h"
#include <stdlib.h>

enum { NWINDOW = 256, CLIMB = 4000 };    /* items placed, from each start */
enum { SHAKE = 64 << 20 };                /* items looked at, by piling, */
enum { STEPS = 3 };                       /* times that with all steps, */
enum { RUNS = 1024 };                     /* and runs of so many, by fits; */
enum { WORTH = 32 };                      /* at most so many a byte placed */
enum { LARGE = 512 };                     /* parts of the bound: at least one */

typedef struct Window { uint32_t *item; uint32_t n, cap; } Window;

typedef struct Place {
    Item *item;
    uint32_t n, nstep, width;             /* steps of a window */
    Arena *arena, *work;                  /* work: of one try */
    Shelf *shelf;
    Window window[NWINDOW];
    uint32_t *seen, stamp;                /* by item: last search that met it */
    uint32_t *placed, nplaced;            /* items by rising `at` */
    uint32_t *met;                        /* of those, what an item meets */
    int64_t *best, least;                 /* places of the lowest peak */
    int64_t *live;                        /* bytes, by step */
    int64_t good, enough;                 /* no need to be lower than these */
    uint64_t lot;
} Place;

/* ---- the order of placing ---- */

/* BY_CROWD: by area, and how full it is meanwhile. */
typedef enum How {
    BY_BREADTH, BY_LENGTH, BY_AREA, BY_SIZE, BY_CROWD, NHOW
} How;
typedef struct Rank { int64_t weight, size; uint32_t item; } Rank;

static uint32_t draw(Place *p)
{
    p->lot = p->lot * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(p->lot >> 33);
}

/* Most bytes alive at a moment of its life: those that make the peak are
 * placed first, when nothing is in their way (greedy by breadth of Pisarchyk
 * and Lee, "Efficient Memory Management for Deep Neural Net Inference"). */
static int64_t breadth(const Place *p, const Item *it)
{
    int64_t most = 0;
    for (uint32_t t = it->life.from; t <= it->life.to; t++)
        most = p->live[t] > most ? p->live[t] : most;
    return most;
}

static int64_t weight(const Place *p, const Item *it, How how)
{
    int64_t length = it->life.to - it->life.from + 1;
    double full = how == BY_CROWD
        ? (double)breadth(p, it) / (double)p->good : 0;
    return how == BY_SIZE ? it->size : how == BY_LENGTH ? length
         : how == BY_CROWD ? (int64_t)((double)(it->size / 64 * length)
                                       * full * full * full * full)
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

/* With `shake` permille, weights are changed by up to half as much, by lot. */
static uint32_t *sorted(Place *p, How how, int64_t shake)
{
    uint32_t *order = alloc(p->work, (p->n + 1) * sizeof *order);
    Rank *rank = alloc(p->work, (p->n + 1) * sizeof *rank);
    for (uint32_t i = 0; i < p->n; i++) {
        int64_t w = weight(p, &p->item[i], how);
        if (shake)
            w = w / 1000 * (1000 - shake + draw(p) % (2 * shake));
        rank[i] = (Rank){ w, p->item[i].size, i };
    }
    qsort(rank, p->n, sizeof *rank, heavier);
    for (uint32_t i = 0; i < p->n; i++)
        order[i] = rank[i].item;
    return order;
}

/* ---- what is placed ---- */

static void remember(Place *p, uint32_t i)
{
    const Item *it = &p->item[i];
    uint32_t lo = 0, hi = p->nplaced;
    for (uint32_t w = it->life.from / p->width; w <= it->life.to / p->width;
         w++) {
        Window *x = &p->window[w];
        GROW(p->arena, x->item, x->n, x->cap);
        x->item[x->n++] = i;
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

/* The placed items that live while `it` does, by rising place. */
static uint32_t neighbours(Place *p, const Item *it)
{
    uint32_t n = 0, left = 0;
    p->stamp++;
    for (uint32_t w = it->life.from / p->width; w <= it->life.to / p->width;
         w++)
        for (uint32_t i = 0; i < p->window[w].n; i++) {
            uint32_t q = p->window[w].item[i];
            if (p->seen[q] == p->stamp || !item_meets(it, &p->item[q]))
                continue;
            p->seen[q] = p->stamp;
            left++;
        }
    for (uint32_t i = 0; n < left; i++)
        if (p->seen[p->placed[i]] == p->stamp)
            p->met[n++] = p->placed[i];
    return n;
}

/* ---- a place for one ---- */

typedef enum Fit { FIRST, TOUCH } Fit;

/* Steps in which `it` would touch a neighbour, the floor or the ceiling. */
static int64_t touched(const Place *p, const Item *it, uint32_t n, int64_t at)
{
    int64_t top = at + it->size, steps = it->life.to - it->life.from + 1;
    int64_t sum = ((at == 0) + (top == p->good)) * steps;
    for (uint32_t i = 0; i < n; i++) {
        const Item *x = &p->item[p->met[i]];
        const Span *a = &it->life, *b = &x->life;
        if (x->at + x->size == at || x->at == top)
            sum += (a->to < b->to ? a->to : b->to)
                - (int64_t)(a->from > b->from ? a->from : b->from) + 1;
    }
    return sum;
}

/* At the end of a gap where it touches most: items of like lives then lie
 * side by side, and leave one gap when they die. */
static int64_t touch_fit(Place *p, const Item *it)
{
    uint32_t n = neighbours(p, it);
    int64_t from = 0, most = -1, at = 0;
    for (uint32_t i = 0; i <= n; i++) {
        const Item *x = i < n ? &p->item[p->met[i]] : NULL;
        int64_t to = x ? x->at : p->good;
        for (int end = 0; end < 2 && to - from >= it->size; end++) {
            int64_t here = end ? to - it->size : from;
            int64_t sum = touched(p, it, n, here);
            if (sum > most)
                most = sum, at = here;
        }
        if (x && x->at + x->size > from)
            from = x->at + x->size;
    }
    return most < 0 ? from : at;
}

/* ---- a place for all ---- */

/* Keep the places, if their peak is the lowest yet. */
static int64_t keep(Place *p)
{
    int64_t peak = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->item[i].at + p->item[i].size > peak)
            peak = p->item[i].at + p->item[i].size;
    if (peak < p->least) {
        p->least = peak;
        for (uint32_t i = 0; i < p->n; i++)
            p->best[i] = p->item[i].at;
    }
    return peak;
}

static void forget(Place *p)
{
    p->nplaced = 0;
    for (int w = 0; w < NWINDOW; w++)
        p->window[w].n = 0;
    shelf_clear(p->shelf);
}

/* One by one in that order; the peak. */
static int64_t fit_all(Place *p, const uint32_t *order, Fit fit)
{
    forget(p);
    for (uint32_t i = 0; i < p->n; i++) {
        Item *it = &p->item[order[i]];
        if (fit == FIRST) {
            it->at = shelf_first(p->shelf, it);
            shelf_take(p->shelf, it);
        } else {
            it->at = touch_fit(p, it);
            remember(p, order[i]);
        }
    }
    return keep(p);
}

static bool good(const Place *p)
{
    return p->least <= p->good || p->least <= p->enough;
}

/* Place what is at the peak before one of those that it met, by lot. */
static void promote(Place *p, uint32_t *order, int64_t peak)
{
    uint32_t k = 0, met = 0, to = 0;
    while (p->item[order[k]].at + p->item[order[k]].size != peak)
        k++;
    uint32_t x = order[k];
    for (uint32_t i = 0; i < k; i++)
        if (item_meets(&p->item[x], &p->item[order[i]])
            && draw(p) % ++met == 0)
            to = i;
    memmove(order + to + 1, order + to, (k - to) * sizeof *order);
    order[to] = x;
}

/* The order, and where its items lie. */
typedef struct Fitted { uint32_t *order; int64_t *at; } Fitted;

static void fitted_keep(Fitted *f, const Place *p, const uint32_t *order)
{
    memcpy(f->order, order, p->n * sizeof *order);
    for (uint32_t i = 0; i < p->n; i++)
        f->at[i] = p->item[i].at;
}

static void fitted_back(const Fitted *f, Place *p, uint32_t *order)
{
    memcpy(order, f->order, p->n * sizeof *order);
    for (uint32_t i = 0; i < p->n; i++)
        p->item[i].at = f->at[i];
}

static void climb(Place *p, How how, Fit fit)
{
    uint32_t *order = sorted(p, how, 0);
    Fitted best = { alloc(p->arena, (p->n + 1) * sizeof *best.order),
                    alloc(p->arena, (p->n + 1) * sizeof *best.at) };
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; !good(p) && i < CLIMB / p->n + 4; i++) {
        int64_t peak = fit_all(p, order, fit);
        if (peak > least) {
            fitted_back(&best, p, order);
        } else {
            fitted_keep(&best, p, order);
            least = peak;
        }
        promote(p, order, least);
    }
}

static void pile(Place *p, How how)
{
    const uint32_t *order = sorted(p, how, 0);
    if (place_pile(p->item, p->n, p->nstep, order, p->good, 2 * p->n))
        keep(p);
}

static bool is_large(const Place *p, uint32_t i)
{
    return p->item[i].size >= p->good / LARGE;
}

/* The large ones, that come first in `order`, below the limit; then the small
 * ones, each in the lowest gap. */
static void pile_large(Place *p, How how, int64_t shake, int64_t limit)
{
    const uint32_t *order = sorted(p, how, shake);
    uint32_t n = 0, k = 0;
    uint32_t *large = alloc(p->work, (p->n + 1) * sizeof *large);
    Item *item = alloc(p->work, (p->n + 1) * sizeof *item);
    for (uint32_t i = 0; i < p->n; i++)
        if (is_large(p, order[i])) {
            item[n] = p->item[order[i]];
            large[n] = n, n++;
        }
    if (!place_pile(item, n, p->nstep, large, limit, 2 * n))
        return;
    forget(p);
    for (uint32_t i = 0; i < p->n; i++)
        if (is_large(p, order[i])) {
            p->item[order[i]].at = item[k++].at;
            shelf_take(p->shelf, &p->item[order[i]]);
        }
    for (uint32_t i = 0; i < p->n; i++)
        if (!is_large(p, order[i])) {
            Item *it = &p->item[order[i]];
            it->at = shelf_first(p->shelf, it);
            if (it->at + it->size >= p->least)
                return;
            shelf_take(p->shelf, it);
        }
    keep(p);
}

static int64_t count_large(const Place *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += is_large(p, i);
    return n;
}

static void pile_shaken(Place *p)
{
    static const How shaken[] = { BY_CROWD, BY_AREA };
    int64_t n = count_large(p), all = p->n;
    int64_t looks = p->good < SHAKE / WORTH ? WORTH * p->good : SHAKE;
    int64_t rounds = looks / (2 * n * n + all * all / RUNS + 1);
    for (int64_t i = 0; i < rounds && !good(p); i++) {
        ArenaMark m = arena_mark(p->work);
        pile_large(p, shaken[i % 2], i < 2 ? 0 : i % 4 < 2 ? 100 : 300,
                   p->good);
        arena_rewind(p->work, m);
    }
}

/* Piling looks at all items and steps, twice for each that it lays; where there
 * are too many for that, only first fit is tried. */
static bool is_small(const Place *p)
{
    int64_t n = p->n;
    return NHOW * 2 * n * (n + p->nstep) <= STEPS * (int64_t)SHAKE;
}

/* Within one part in two thousand of the bound, in a hundred, in fifty.  What
 * is enough ends the search, but changes none of its steps: without it the
 * result is no larger. */
static void search(Place *p, int64_t lower)
{
    static const int parts[] = { 1, 20, 40 };
    for (int i = 0; i < COUNT(parts) && !good(p); i++) {
        p->good = lower + lower / 2000 * parts[i];
        for (How how = 0; !i && how < NHOW && !good(p); how++)
            fit_all(p, sorted(p, how, 0), FIRST);
        if (p->enough && lower > p->enough)
            return;
        for (How how = 0; is_small(p) && how < NHOW && !good(p); how++)
            pile(p, how);
        if (is_small(p))
            pile_shaken(p);
    }
    for (How how = 0; how < NHOW && !good(p); how++) {
        if (is_small(p))
            climb(p, how, TOUCH);
        climb(p, how, FIRST);
    }
}

static int64_t lower_bound(Place *p, uint32_t *when)
{
    int64_t lower = 0, sum = 0, *live = p->live;
    for (uint32_t i = 0; i < p->n; i++) {
        live[p->item[i].life.from] += p->item[i].size;
        live[p->item[i].life.to + 1] -= p->item[i].size;
    }
    for (uint32_t k = 0; k < p->nstep; k++) {
        live[k] = sum += live[k];
        if (sum > lower)
            lower = sum, *when = k;
    }
    return lower;
}

int64_t place_items(Item *item, uint32_t n, uint32_t nstep, int64_t enough,
                    int64_t *lower, uint32_t *when)
{
    Arena *arena = arena_new();
    Place *p = alloc(arena, sizeof *p);
    *p = (Place){ .item = item, .n = n, .nstep = nstep, .lot = 1,
                  .enough = enough,
                  .width = nstep / NWINDOW + 1, .arena = arena,
                  .work = arena_new() };
    p->shelf = shelf_new(arena, nstep);
    p->seen = alloc(arena, (n + 1) * sizeof *p->seen);
    p->placed = alloc(arena, (n + 1) * sizeof *p->placed);
    p->met = alloc(arena, (n + 1) * sizeof *p->met);
    p->best = alloc(arena, (n + 1) * sizeof *p->best);
    p->live = alloc(arena, (nstep + 2) * sizeof *p->live);
    p->least = INT64_MAX;
    *lower = lower_bound(p, when);
    if (n)
        search(p, *lower);
    for (uint32_t i = 0; i < n; i++)
        item[i].at = p->best[i];
    int64_t peak = n ? p->least : 0;
    arena_free(p->work);
    arena_free(arena);
    return peak;
}
