/* fuse.c -- labels the nodes that share a kernel.
 *
 * Nodes that cost nothing where they are read (numbers, movement, slices,
 * wider copies of narrow data) are free: each kernel that reads one gets its
 * own copy.  The others start as groups of one; in graph order each node
 * joins the groups of its operands, best gain first, while
 * cost(A) + cost(B) - cost(A and B) is positive by the target's seconds;
 * then groups that read one value do.  A merged group has to stay convex: no
 * path out of it and back, or its launch would wait for itself (fuse_path.c).
 *
 * Costs are asked about small graphs made of a group and its operands, so a
 * question does not depend on the size of the model. */
#include "passes/fuse.h"
#include <math.h>
#include <stdlib.h>

enum { GROUP = 48, SIBLINGS = 6, SHARE = 32 };

/* ---- edges, seen through free nodes and views ---- */

static void through(Fuse *f, Ref r, List *to, int reader)
{
    if (fuse_free(f, r, reader)) {
        const Node *n = &f->g->node[r];
        for (int i = 0; i < n->nin; i++)
            through(f, n->in[i], to, reader);
        return;
    }
    for (uint32_t i = 0; i < to->n; i++)
        if (to->at[i] == r)
            return;
    list_add(f->arena, to, r);
}

static void list_remove(List *l, Ref r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->at[i] != r)
            l->at[n++] = l->at[i];
    l->n = n;
}

/* Nodes whose readers all compute them again are left out. */
static void drop_unread(Fuse *f)
{
    for (Ref r = f->g->n; r-- > 0;) {
        if (f->kind[r] != PLAIN || f->to[r].n || f->kept[r])
            continue;
        f->kind[r] = FREE;
        for (uint32_t i = 0; i < f->from[r].n; i++)
            list_remove(&f->to[f->from[r].at[i]], r);
    }
}

static void add_edge(Fuse *f, Ref from, Ref to)
{
    list_add(f->arena, &f->from[to], from);
    list_add(f->arena, &f->to[from], to);
}

static void find_edges(Fuse *f)
{
    const Graph *g = f->g;
    const Ref *before = transfers_before(g, f->arena);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (f->kind[r] == FREE || f->kind[r] == VIEW)
            continue;
        int reader = f->kind[r] == OWN ? SEG_NONE : node_phase(n);
        for (int i = 0; i < n->nin; i++)
            if (!op_unread(n->op, i) || !fuse_free(f, n->in[i], reader))
                through(f, n->in[i], &f->from[r], reader);
        for (uint32_t i = 0; i < f->from[r].n; i++)
            list_add(f->arena, &f->to[f->from[r].at[i]], r);
        if (before[r] != NONE)
            add_edge(f, before[r], r);
    }
}

/* ---- groups ---- */

int fuse_group(Fuse *f, Ref r)
{
    int i = (int)r;
    while (f->group[i].same != i)
        i = f->group[i].same = f->group[f->group[i].same].same;
    return i;
}

static void groups_begin(Fuse *f)
{
    for (Ref r = 0; r < f->g->n; r++) {
        Group *p = &f->group[r];
        p->same = (int)r;
        list_add(f->arena, &p->node, r);
        p->cost = -1;
    }
    fuse_line_up(f);
}

static double cost_of(Fuse *f, int i)
{
    Group *p = &f->group[i];
    if (p->cost < 0)
        p->cost = fuse_cost(f, &p->node, &p->why);
    return p->cost;
}

static List merged(Fuse *f, int a, int b)
{
    const List *x = &f->group[a].node, *y = &f->group[b].node;
    List all = {0};
    for (uint32_t i = 0, k = 0; i < x->n || k < y->n;)
        list_add(f->arena, &all, k == y->n || (i < x->n && x->at[i] < y->at[k])
                 ? x->at[i++] : y->at[k++]);
    return all;
}

/* Is the group one value that has a moment of its own: made again, from what
 * waits, for library calls alone; or a slice that is copied in time? */
static bool alone(const Fuse *f, const Group *p)
{
    Ref r = p->node.at[0];
    Ref from = f->large[r];
    bool own = f->g->node[r].again != NONE && !f->g->node[r].moment
        && (from == NONE || f->g->node[from].again == NONE);
    const List *to = &f->to[r];
    for (uint32_t i = 0; i < to->n; i++)
        own &= f->kind[to->at[i]] == OWN;
    return p->node.n == 1 && (own || f->apart[r]);
}

static const char *unlike(const Fuse *f, const Group *a, const Group *b)
{
    const Node *x = &f->g->node[a->node.at[0]];
    const Node *y = &f->g->node[b->node.at[0]];
    return x->segment != y->segment ? "they work in different segments"
         : x->moment != y->moment ? "they are made at different moments"
         : x->loop != y->loop ? "they run in different turns"
         : alone(f, a) || alone(f, b)
         ? "one is made when its memory wants it"
         : x->stage != y->stage ? "they are on different stages" : NULL;
}

/* Merge groups a and b if that gains; the reason when it does not. */
static const char *try_merge(Fuse *f, int a, int b)
{
    Group *x = &f->group[a], *y = &f->group[b];
    const char *why = unlike(f, x, y);
    if (why)
        return why;
    if (x->node.n + y->node.n > GROUP)
        return "the kernel is large enough";
    double apart = cost_of(f, a) + cost_of(f, b);
    List all = merged(f, a, b);
    double one = fuse_cost(f, &all, &why);
    if (!(one < apart))
        return why ? why : "it would not be faster";
    if (!fuse_join(f, a, b))
        return "a path leads out of the kernel and back";
    x->node = all;
    x->cost = one;
    return NULL;
}

typedef struct Cand { int group; double cost; } Cand;

/* Dearest operands first: most is gained where most bytes flow. */
static int by_bytes(const void *p, const void *q)
{
    const Cand *x = p, *y = q;
    return x->cost != y->cost ? (x->cost < y->cost) - (x->cost > y->cost)
         : (x->group > y->group) - (x->group < y->group);
}

static void note_edge(Fuse *f, Ref from, Ref to, const char *why)
{
    GROW(f->arena, f->miss, f->nmiss, f->misscap);
    f->miss[f->nmiss++] = (Miss){ from, to, why };
}

static void join_operands(Fuse *f, Ref r)
{
    const List *from = &f->from[r];
    Cand *c = alloc(f->arena, (from->n + 1) * sizeof *c);
    int n = 0;
    for (uint32_t i = 0; i < from->n; i++)
        if (f->kind[from->at[i]] == PLAIN)
            c[n++] = (Cand){ (int)from->at[i], (double)type_bytes(
                &f->g->mesh, &f->g->node[from->at[i]].type) };
    qsort(c, (size_t)n, sizeof *c, by_bytes);
    for (int i = 0; i < n; i++) {
        int a = fuse_group(f, (Ref)c[i].group), b = fuse_group(f, r);
        const char *why = a == b ? NULL : try_merge(f, a, b);
        if (why)
            note_edge(f, (Ref)c[i].group, r, why);
    }
}

/* Is r so little of what q makes that reading it once is no reason to hold
 * the values of two branches at once? */
static bool little(const Fuse *f, Ref r, Ref q)
{
    const Node *node = f->g->node;
    return type_volume(&node[r].type) * SHARE < type_volume(&node[q].type);
}

/* Groups that read one value: it is read once. */
static void join_siblings(Fuse *f, Ref r, unsigned segments)
{
    int seen[SIBLINGS], n = 0;
    for (uint32_t i = 0; i < f->to[r].n && n < SIBLINGS; i++) {
        Ref q = f->to[r].at[i];
        int b = fuse_group(f, q);
        bool met = f->kind[q] != PLAIN || little(f, r, q)
            || !(segments >> f->g->node[q].segment & 1);
        for (int k = 0; k < n && !met; k++)
            met = fuse_group(f, (Ref)seen[k]) == b;
        for (int k = 0; k < n && !met; k++)
            met = !try_merge(f, fuse_group(f, (Ref)seen[k]), b);
        if (!met)
            seen[n++] = (int)q;
    }
}

Fuse *fuse_run(const Graph *in, Job *j)
{
    return fuse_run_in(in, j, ~0u);
}

Fuse *fuse_run_in(const Graph *in, Job *j, unsigned segments)
{
    Fuse *f = fuse_new(in, j);
    const Graph *g = f->g;
    fuse_lie(f);
    fuse_sort(f);
    find_edges(f);
    drop_unread(f);
    groups_begin(f);
    for (Ref r = 0; r < g->n; r++)
        if (f->kind[r] == PLAIN && segments >> g->node[r].segment & 1)
            join_operands(f, r);
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].type.ndim && f->to[r].n > 1)
            join_siblings(f, r, segments);
    return f;
}
