/* fuse_report.c -- how well a graph was fused, in launches and in bytes.
 *
 * Bytes of a kernel: each value that it reads from memory and each that it
 * leaves there, once.  What is compulsory: a contraction, a collective or a
 * number that sums up all there is ends a kernel, whatever a compiler does.
 * So every node has a *level*, the number of such ends on the longest way to
 * it, and an ideal kernel does all pointwise and fold work of one level at
 * once: it reads each value of other levels once, and leaves once what other
 * levels, launches of their own and the outside want.  A node may also work
 * later than it could; of two ways to place the nodes, the better counts: by
 * node (levels_rise, levels_sink), and by the kernels that there are
 * (levels_joined).  Values that this compiler computes again are computed
 * again by the ideal too. */
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

/* Bytes that kernels move of each value: one write, if it leaves, and a read
 * for each kernel elsewhere. */
static int64_t *bytes_moved(const Levels *l)
{
    Fuse *f = l->f;
    int64_t *moved = alloc(f->arena, (f->g->n + 1) * sizeof *moved);
    Read *read = NULL;
    uint32_t n = 0, cap = 0;
    for (Ref r = 0; r < f->g->n; r++) {
        if (f->kind[r] != PLAIN)
            continue;
        moved[r] += leaves(l, r) ? bytes_of(f, r) : 0;
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
            moved[read[i].value] += bytes_of(f, read[i].value);
    return moved;
}

static Levels levels_real(Fuse *f) { return (Levels){ .f = f }; }

static int64_t bytes_all(const Levels *l)
{
    int64_t *moved = bytes_moved(l), all = 0;
    for (Ref r = 0; r < l->f->g->n; r++)
        all += moved[r];
    return all;
}

static Levels levels_new(Fuse *f)
{
    return (Levels){ f, alloc(f->arena, (f->g->n + 1) * sizeof(int)) };
}

/* Kernels as they are, each as early as it can be; those of a level are one.
 * So never more bytes than this compiler's kernels move. */
static Levels levels_joined(Fuse *f)
{
    Levels l = levels_new(f);
    for (bool again = true; again;) {
        again = false;
        for (Ref r = 0; r < f->g->n; r++)
            for (uint32_t i = 0; i < f->from[r].n; i++) {
                Ref x = f->from[r].at[i], to = (Ref)fuse_group(f, r);
                int at = l.level[fuse_group(f, x)] + ends(f, x);
                if (fuse_group(f, x) == (int)to || at <= l.level[to])
                    continue;
                l.level[to] = at;
                again = true;
            }
    }
    for (Ref r = 0; r < f->g->n; r++)
        l.level[r] = l.level[fuse_group(f, r)];
    return l;
}

static Levels levels_ideal(Fuse *f)
{
    Levels by_node = levels_new(f), by_kernel = levels_joined(f);
    levels_rise(&by_node);
    levels_sink(&by_node);
    return bytes_all(&by_node) < bytes_all(&by_kernel) ? by_node : by_kernel;
}

/* ---- the figures ---- */

static Fusion figures(Fuse *f)
{
    Fusion s = {0};
    Levels real = levels_real(f), ideal = levels_ideal(f);
    int64_t *moved = bytes_moved(&real), *least = bytes_moved(&ideal);
    for (Ref r = 0; r < f->g->n; r++) {
        s.nodes += (f->kept[r] || f->read[r])
            && computes(f->g, &f->g->node[r]);
        s.launches += f->kind[r] == PLAIN && fuse_group(f, r) == (int)r;
        s.bytes += moved[r];
        s.compulsory += least[r];
    }
    return s;
}

Fusion fuse_figures(const Graph *g, Job *j)
{
    return figures(fuse_run(g, j));
}

/* ---- the chains ---- */

enum { WORTH = 500 };                     /* a line: that part of the bytes */

typedef struct Surplus { Ref value; int64_t bytes; } Surplus;

static int by_surplus(const void *a, const void *b)
{
    const Surplus *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
         : (x->value > y->value) - (x->value < y->value);
}

static void surplus_line(Fuse *f, Surplus s, FILE *to)
{
    List seen = {0};
    fprintf(to, "%s: %.1f kB more than compulsory; kernels with",
            f->g->node[s.value].name, 1e-3 * (double)s.bytes);
    for (uint32_t i = 0; i < f->to[s.value].n; i++) {
        Ref q = f->to[s.value].at[i], group = (Ref)fuse_group(f, q);
        bool met = f->kind[q] != PLAIN;
        for (uint32_t k = 0; k < seen.n && !met; k++)
            met = seen.at[k] == group;
        if (met)
            continue;
        fprintf(to, "%s %s", seen.n ? "," : "", f->g->node[q].name);
        list_add(f->arena, &seen, group);
    }
    fprintf(to, "%s\n", seen.n ? " read it" : " none read it");
}

/* Values that kernels move more often than they must, worst first. */
static void report_bytes(Fuse *f, FILE *to)
{
    Levels real = levels_real(f), ideal = levels_ideal(f);
    int64_t *moved = bytes_moved(&real), *least = bytes_moved(&ideal), all = 0;
    Surplus *s = alloc(f->arena, (f->g->n + 1) * sizeof *s);
    int n = 0;
    for (Ref r = 0; r < f->g->n; r++) {
        all += least[r];
        if (moved[r] > least[r])
            s[n++] = (Surplus){ r, moved[r] - least[r] };
    }
    qsort(s, (size_t)n, sizeof *s, by_surplus);
    for (int i = 0; i < n && s[i].bytes * WORTH >= all; i++)
        surplus_line(f, s[i], to);
}

void fuse_report(const Graph *g, Job *j, FILE *to)
{
    Fuse *f = fuse_run(g, j);
    for (uint32_t i = 0; i < f->nmiss; i++) {
        const Miss *m = &f->miss[i];
        if (fuse_group(f, m->from) != fuse_group(f, m->to))
            fprintf(to, "%s -> %s: not fused: %s\n", g->node[m->from].name,
                    g->node[m->to].name, m->why);
    }
    report_bytes(f, to);
}
