/* place_shelf.c -- which bytes are taken, in which steps.
 *
 * A tree over the steps: each node halves the span of the one above it.  An
 * item's steps are a few nodes' spans, whose `full` lists say which bytes are
 * taken throughout; `any` says it of some step of the span.  So an item looks
 * at the `any` of the nodes that its steps are and at the `full` of those
 * above them, some forty lists at most, and never at items one by one: what
 * lies side by side is one run of bytes, however many items it is.
 * (A segment tree: Bentley, "Solutions to Klee's rectangle problems", 1977.)
 */
#include "passes/place.h"

typedef struct Run { int64_t from, to; } Run;         /* bytes [from, to) */
typedef struct Runs { Run *at; uint32_t n, cap; } Runs;   /* apart, rising */

enum { LISTS = 160 };                     /* 4 a level, of 32 levels */

struct Shelf {
    Arena *arena;
    uint32_t size;                        /* steps; a power of two */
    Runs *full, *any;                     /* by node; the root is 1 */
};

Shelf *shelf_new(Arena *a, uint32_t nstep)
{
    Shelf *s = alloc(a, sizeof *s);
    s->arena = a;
    for (s->size = 1; s->size < nstep;)
        s->size *= 2;
    s->full = alloc(a, 2 * (size_t)s->size * sizeof *s->full);
    s->any = alloc(a, 2 * (size_t)s->size * sizeof *s->any);
    return s;
}

void shelf_clear(Shelf *s)
{
    for (uint32_t i = 0; i < 2 * s->size; i++)
        s->full[i].n = s->any[i].n = 0;
}

/* The first run that ends at or behind `at`. */
static uint32_t run_find(const Runs *l, int64_t at)
{
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (l->at[mid].to < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void runs_add(Shelf *s, Runs *l, Run x)
{
    uint32_t i = run_find(l, x.from), k = i;
    for (; k < l->n && l->at[k].from <= x.to; k++) {
        x.from = l->at[k].from < x.from ? l->at[k].from : x.from;
        x.to = l->at[k].to > x.to ? l->at[k].to : x.to;
    }
    GROW(s->arena, l->at, l->n, l->cap);
    if (k != i + 1)
        memmove(l->at + i + 1, l->at + k, (l->n - k) * sizeof *l->at);
    l->at[i] = x;
    l->n = l->n + 1 - (k - i);
}

/* Node i spans the steps from `first` on, `size` of them. */
static void take(Shelf *s, uint32_t i, uint32_t first, uint32_t size,
                 const Span *life, Run x)
{
    uint32_t half = size / 2;
    runs_add(s, &s->any[i], x);
    if (life->from <= first && life->to >= first + size - 1) {
        runs_add(s, &s->full[i], x);
        return;
    }
    if (life->from < first + half)
        take(s, 2 * i, first, half, life, x);
    if (life->to >= first + half)
        take(s, 2 * i + 1, first + half, half, life, x);
}

void shelf_take(Shelf *s, const Item *it)
{
    take(s, 1, 0, s->size, &it->life, (Run){ it->at, it->at + it->size });
}

static int gather(const Shelf *s, uint32_t i, uint32_t first, uint32_t size,
                  const Span *life, const Runs **out, int n)
{
    uint32_t half = size / 2;
    bool within = life->from <= first && life->to >= first + size - 1;
    const Runs *l = within ? &s->any[i] : &s->full[i];
    if (l->n)
        out[n++] = l;
    if (within || !s->any[i].n)
        return n;
    if (life->from < first + half)
        n = gather(s, 2 * i, first, half, life, out, n);
    if (life->to >= first + half)
        n = gather(s, 2 * i + 1, first + half, half, life, out, n);
    return n;
}

int64_t shelf_first(const Shelf *s, const Item *it)
{
    const Runs *list[LISTS];
    uint32_t next[LISTS];
    int n = gather(s, 1, 0, s->size, &it->life, list, 0);
    int64_t at = 0;
    memset(next, 0, sizeof next);
    for (int i = 0, free = 0; free < n; i = (i + 1) % n) {
        const Runs *l = list[i];
        while (next[i] < l->n && l->at[next[i]].to <= at)
            next[i]++;
        bool meets = next[i] < l->n && l->at[next[i]].from < at + it->size;
        at = meets ? l->at[next[i]].to : at;
        free = meets ? 0 : free + 1;
    }
    return at;
}
