/* fuse_report.c -- how well a graph was fused, in launches and in bytes.
 *
 * Bytes of a kernel: each value that it reads from memory and each that it
 * leaves there, once.  What is compulsory: a contraction, a collective or a
 * number that sums up all there is ends a kernel, whatever a compiler does.
 * So every node has a *level*, the number of such ends on the longest way to
 * it, and an ideal kernel does all pointwise and fold work of one level at
 * once: it reads each value of other levels once, and leaves once what other
 * levels, launches of their own and the outside want.  A node that only a
 * later level wants is done there, if what it reads costs no more.  Values
 * that this compiler computes again are computed again by the ideal too. */
#include "passes/fuse.h"
#include <stdlib.h>

typedef struct Levels {
    Fuse *f;
    int *level;                           /* by node */
} Levels;

static int64_t bytes_of(const Fuse *f, Ref r)
{
    return type_bytes(&f->g->mesh, &f->g->node[r].type);
}

/* Work on numbers, or the sum of them: no movement. */
static bool computes(const Graph *g, const Node *n)
{
    if (fuse_own(g, n) || !n->nin || n->op == OP_stop)
        return false;
    Family f = ops[n->op].family;
    return f == FAMILY_take || n->op == OP_put || fuse_folds(g, n)
        || (f == FAMILY_nest && strncmp(ops[n->op].sig, "...", 3) == 0);
}

/* Does what reads x stand at least one level higher? */
static bool ends(const Fuse *f, Ref x)
{
    const Node *n = &f->g->node[x];
    return f->kind[x] == OWN ? !ops[n->op].leaf
         : !n->type.ndim && n->nin && fuse_folds(f->g, n);
}

static void levels_rise(Levels *l)
{
    const Fuse *f = l->f;
    for (Ref r = 0; r < f->g->n; r++)
        for (uint32_t i = 0; i < f->from[r].n; i++) {
            Ref x = f->from[r].at[i];
            int at = l->level[x] + ends(f, x);
            if (at > l->level[r])
                l->level[r] = at;
        }
}

/* Bytes that r's operands cost, were it done at another level: a read, and,
 * of what its own level makes, a write. */
static int64_t fetched(const Levels *l, Ref r)
{
    const Fuse *f = l->f;
    int64_t n = 0;
    for (uint32_t i = 0; i < f->from[r].n; i++) {
        Ref x = f->from[r].at[i];
        bool here = f->kind[x] == PLAIN && l->level[x] == l->level[r];
        n += (1 + here) * bytes_of(f, x);
    }
    return n;
}

/* Down to its first reader, if that costs no more than r in memory. */
static void levels_sink(Levels *l)
{
    const Fuse *f = l->f;
    for (Ref r = f->g->n; r-- > 0;) {
        if (f->kind[r] != PLAIN || f->kept[r] || !f->to[r].n || ends(f, r))
            continue;
        int first = INT32_MAX;
        for (uint32_t i = 0; i < f->to[r].n; i++) {
            Ref q = f->to[r].at[i];
            int at = f->kind[q] == PLAIN ? l->level[q] : l->level[r];
            first = at < first ? at : first;
        }
        if (fetched(l, r) <= 2 * bytes_of(f, r))
            l->level[r] = first;
    }
}

/* Where a node works: an ideal kernel, or a real one. */
static int place_of(const Levels *l, Ref r)
{
    return l->level ? l->level[r] : fuse_group(l->f, r);
}

typedef struct Read { Ref value; int place; } Read;

static int by_place(const void *a, const void *b)
{
    const Read *x = a, *y = b;
    return x->value != y->value
        ? (x->value > y->value) - (x->value < y->value)
        : (x->place > y->place) - (x->place < y->place);
}

/* Does anyone elsewhere want the value of r? */
static bool leaves(const Levels *l, Ref r)
{
    const Fuse *f = l->f;
    for (uint32_t i = 0; i < f->to[r].n; i++) {
        Ref q = f->to[r].at[i];
        if (f->kind[q] != PLAIN || place_of(l, q) != place_of(l, r))
            return true;
    }
    return f->kept[r];
}

static int64_t bytes_moved(const Levels *l)
{
    Fuse *f = l->f;
    Read *read = NULL;
    uint32_t n = 0, cap = 0;
    int64_t bytes = 0;
    for (Ref r = 0; r < f->g->n; r++) {
        if (f->kind[r] != PLAIN)
            continue;
        bytes += leaves(l, r) ? bytes_of(f, r) : 0;
        for (uint32_t i = 0; i < f->from[r].n; i++) {
            Ref x = f->from[r].at[i];
            if (f->kind[x] == PLAIN && place_of(l, x) == place_of(l, r))
                continue;
            GROW(f->arena, read, n, cap);
            read[n++] = (Read){ x, place_of(l, r) };
        }
    }
    if (n)
        qsort(read, n, sizeof *read, by_place);
    for (uint32_t i = 0; i < n; i++)
        if (!i || by_place(&read[i - 1], &read[i]))
            bytes += bytes_of(f, read[i].value);
    return bytes;
}

/* ---- the figures ---- */

static Fusion figures(Fuse *f)
{
    Fusion s = {0};
    Levels real = { .f = f }, ideal = { .f = f };
    ideal.level = alloc(f->arena, (f->g->n + 1) * sizeof *ideal.level);
    for (Ref r = 0; r < f->g->n; r++) {
        s.nodes += (f->kept[r] || f->read[r])
            && computes(f->g, &f->g->node[r]);
        s.launches += f->kind[r] == PLAIN && fuse_group(f, r) == (int)r;
    }
    levels_rise(&ideal);
    levels_sink(&ideal);
    s.bytes = bytes_moved(&real);
    s.compulsory = bytes_moved(&ideal);
    return s;
}

Fusion fuse_figures(const Graph *g, Job *j)
{
    return figures(fuse_run(g, j));
}

/* ---- the chains ---- */

void fuse_report(const Graph *g, Job *j, FILE *to)
{
    Fuse *f = fuse_run(g, j);
    for (uint32_t i = 0; i < f->nmiss; i++) {
        const Miss *m = &f->miss[i];
        if (fuse_group(f, m->from) != fuse_group(f, m->to))
            fprintf(to, "%s -> %s: not fused: %s\n", g->node[m->from].name,
                    g->node[m->to].name, m->why);
    }
}
