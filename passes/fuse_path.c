/* fuse_path.c -- which groups may be one: none out of which a path leads back.
 *
 * Groups stand in a line, each behind all that it reads.  So between two of
 * them a path leads one way only, over groups that stand between; it is looked
 * for from both ends in turn, until one end has met all it can: a value that
 * many read has few operands.  When there is none, the groups that this end
 * met step over it, and the merged group takes its place: they read, or are
 * read by, nothing else between the two, so the line is in order again.
 *
 * Places are numbers with gaps; where one is full, the numbers around it are
 * spread over the least aligned span of which they fill a square root.
 * (Pearce and Kelly, "A dynamic topological sort algorithm for directed
 * acyclic graphs", 2006; Haeupler et al., "Incremental cycle detection,
 * topological ordering, and strong component maintenance", 2012, for two ends
 * and merges; Bender et al., "Two simplified algorithms for maintaining order
 * in a list", 2002.) */
#include "passes/fuse.h"
#include <stdlib.h>

enum { VISIT = 4000 };                    /* groups; then there is a path */

/* ---- the line; its two ends are one place, of number n ---- */

void fuse_line_up(Fuse *f)
{
    int n = (int)f->g->n;
    f->place = alloc(f->arena, ((size_t)n + 1) * sizeof *f->place);
    for (int i = 0; i < n; i++) {
        f->place[i] = (Place){ (uint64_t)(i + 1) * (UINT64_MAX / (n + 1u)),
                               i ? i - 1 : n, i + 1 };
    }
    f->place[n] = (Place){ 0, n ? n - 1 : 0, 0 };
}

static uint64_t gap_after(const Fuse *f, int i)
{
    int next = f->place[i].after;
    return (next == (int)f->g->n ? UINT64_MAX : f->place[next].at)
        - f->place[i].at;
}

/* Makes a gap of two or more behind place i. */
static void spread(Fuse *f, int i)
{
    Place *p = f->place;
    int end = (int)f->g->n, first = i, last = i;
    uint64_t lo, span = 16, n = 1;
    for (;; span *= 2) {
        lo = p[i].at & ~(span - 1);
        for (; p[first].before != end && p[p[first].before].at >= lo; n++)
            first = p[first].before;
        for (; p[last].after != end && p[p[last].after].at - lo < span; n++)
            last = p[last].after;
        if (n * n < span)
            break;
    }
    for (uint64_t k = 1; k <= n; k++, first = p[first].after)
        p[first].at = lo + k * (span / (n + 1));
}

static void take_out(Fuse *f, int i)
{
    Place *p = f->place;
    p[p[i].before].after = p[i].after;
    p[p[i].after].before = p[i].before;
}

static void put_behind(Fuse *f, int i, int other)
{
    Place *p = f->place;
    if (gap_after(f, other) < 2)
        spread(f, other == (int)f->g->n ? p[other].after : other);
    p[i] = (Place){ p[other].at + gap_after(f, other) / 2, other,
                    p[other].after };
    p[p[i].after].before = p[other].after = i;
}

/* ---- paths ---- */

/* A search from one group towards another, along edges or against them. */
typedef struct Way {
    const List *edge;                     /* f->to or f->from */
    int from, goal;
    List *met;                            /* groups, the first of them `from` */
    uint32_t next;                        /* of those, to look around */
    uint32_t stamp, other;                /* of what this one, the other met */
} Way;

/* Does group q stand between the ends? */
static bool between(const Fuse *f, const Way *w, int q)
{
    uint64_t goal = f->place[w->goal].at, at = f->place[q].at;
    return w->edge == f->to ? at < goal : at > goal;
}

/* Looks around one group; true: there is a path. */
static bool look(Fuse *f, Way *w)
{
    int at = (int)w->met->at[w->next++];
    const List *node = &f->group[at].node;
    for (uint32_t i = 0; i < node->n; i++) {
        const List *next = &w->edge[node->at[i]];
        for (uint32_t k = 0; k < next->n; k++) {
            int q = fuse_group(f, next->at[k]);
            if (q == w->goal && at != w->from)
                return true;
            if (f->seen[q] == w->stamp || !between(f, w, q))
                continue;
            if (f->seen[q] == w->other)
                return true;
            f->seen[q] = w->stamp;
            list_add(f->arena, w->met, (Ref)q);
        }
    }
    return false;
}

/* The way that met all it can, and no path; NULL: there is one. */
static Way *search(Fuse *f, Way w[2])
{
    for (int k = 0; k < 2; k++) {
        w[k].met->n = 0;
        list_add(f->arena, w[k].met, (Ref)w[k].from);
        f->seen[w[k].from] = w[k].stamp;
    }
    for (int k = 1; !look(f, &w[k]); k = !k) {
        if (w[k].next == w[k].met->n)
            return &w[k];
        if (w[0].met->n + w[1].met->n > VISIT)
            break;
    }
    return NULL;
}

static int by_place(const void *p, const void *q)
{
    const Move *x = p, *y = q;
    return (x->at > y->at) - (x->at < y->at);
}

/* All that a way met step over where it goes to, in their order. */
static void step_over(Fuse *f, const Way *w)
{
    int n = (int)w->met->n - 1;
    GROW(f->arena, f->move, (uint32_t)n, f->movecap);
    Move *s = f->move;
    for (int i = 0; i < n; i++) {
        int group = (int)w->met->at[i + 1];
        s[i] = (Move){ f->place[group].at, group };
    }
    qsort(s, (size_t)n, sizeof *s, by_place);
    for (int i = 0, last = w->goal; i < n; last = s[i++].group) {
        take_out(f, s[i].group);
        put_behind(f, s[i].group,
                   w->edge == f->to ? last : f->place[w->goal].before);
    }
}

bool fuse_join(Fuse *f, int a, int b)
{
    bool ahead = f->place[a].at < f->place[b].at;
    int lo = ahead ? a : b, hi = ahead ? b : a;
    Way w[2] = {
        { f->to, lo, hi, &f->met[0], 0, f->stamp + 1, f->stamp + 2 },
        { f->from, hi, lo, &f->met[1], 0, f->stamp + 2, f->stamp + 1 },
    };
    f->stamp += 2;
    Way *done = search(f, w);
    if (!done)
        return false;
    step_over(f, done);
    if (done->goal == b) {
        take_out(f, a);
        put_behind(f, a, b);
    }
    take_out(f, b);
    f->group[b].same = a;
    return true;
}
