/* twins.c -- kernels of one body over many parameters go as one launch.
 *
 * An optimizer has the same few lines for each of a hundred parameters.  Their
 * kernels differ in length only; when all that happens in a kernel is
 * pointwise, length is data, and one launch walks a list of pointers
 * (architecture.md C13; the "multi tensor apply" of NVIDIA's apex).  Kernels
 * are twins when their nodes agree one by one, operands counted from within;
 * they share a launch when none of them can wait for another: their longest
 * ways from the leaves are equal, counted in kernels and in collectives, which
 * have buckets of their own. */
#include "passes/twins.h"
#include <stdlib.h>

typedef struct Body {
    Ref *node;                            /* of the kernel, ascending */
    uint32_t n, cap;
    int level;                            /* kernels before it; -1 not known */
    bool open;                            /* level is being asked: a circle */
    uint64_t hash;                        /* 0: no twin of any */
} Body;

typedef struct Twins {
    const Graph *g;
    Arena *scratch;
    Body *body;                           /* by kernel label */
    int n;
    int *leaf_level;                      /* of launches without kernel */
    uint32_t *uses;
    uint32_t *at;                         /* by node: place in its kernel */
    struct Read { int kernel, place; } *read;  /* by node: among what the kernel
                                                  asked last reads; + 1 */
    uint32_t *inside;                     /* by node: uses in its own kernel */
    bool *set;                            /* by node: it goes into a leaf */
} Twins;

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mix_double(uint64_t h, double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return mix(h, u);
}

/* ---- levels ---- */

static int level_of(Twins *t, Ref r);

static int level_of_kernel(Twins *t, int k)
{
    Body *b = &t->body[k];
    int level = 0;
    if (b->level >= 0 || b->open)
        return b->level < 0 ? 0 : b->level;
    b->open = true;
    for (uint32_t i = 0; i < b->n; i++) {
        const Node *n = &t->g->node[b->node[i]];
        for (int o = 0; o < n->nin; o++) {
            if (t->g->node[n->in[o]].kernel == k)
                continue;
            int l = level_of(t, n->in[o]) + 1;
            level = l > level ? l : level;
        }
    }
    b->open = false;
    return b->level = level;
}

static int level_of(Twins *t, Ref r)
{
    const Node *n = &t->g->node[r];
    if (n->kernel >= 0)
        return level_of_kernel(t, n->kernel);
    if (t->leaf_level[r])
        return t->leaf_level[r] - 1;
    int level = 0;
    for (int i = 0; i < n->nin; i++) {
        int l = level_of(t, n->in[i]) + 1;
        level = l > level ? l : level;
    }
    t->leaf_level[r] = level + 1;
    return level;
}

/* ---- bodies ---- */

static bool is_fill(const Node *n)
{
    return n->op == OP_const && n->attr.ndata == 0;
}

/* Place of an operand: within the kernel, or among what it reads. */
static int64_t place(Twins *t, int kernel, Ref r, int *nread)
{
    struct Read *p = &t->read[r];
    if (t->g->node[r].kernel == kernel)
        return t->at[r];
    if (p->kernel != kernel + 1)
        *p = (struct Read){ kernel + 1, (*nread)++ };
    return -1 - p->place;
}

static uint64_t hash_operand(Twins *t, uint64_t h, int kernel, Ref r,
                             int *nread)
{
    const Type *u = &t->g->node[r].type;
    h = mix(h, (uint64_t)place(t, kernel, r, nread));
    return mix(mix(h, u->dtype), u->ndim == 0);
}

enum { BODY = 96 };                       /* nodes; longer ones are left */
enum { LARGE = 1 << 14 };                 /* bytes; such a value does not wait
                                             for its twins to be made */

/* One number for what the body does, lengths aside; 0 when it is not
 * pointwise throughout, or not of the update. */
static uint64_t body_hash(Twins *t, const Body *b)
{
    const Graph *g = t->g;
    int nread = 0;
    uint64_t h = b->n;
    if (b->n == 0 || b->n > BODY)
        return 0;
    int kernel = g->node[b->node[0]].kernel;
    for (uint32_t i = 0; i < b->n; i++) {
        const Node *n = &g->node[b->node[i]];
        bool scalar = n->type.ndim == 0;
        if (n->segment != UPDATE || n->loop || n->layout
            || !(node_aligned(g, n) || node_is_spread(n) || is_fill(n)))
            return 0;
        h = mix(mix(mix(h, n->op), n->type.dtype), scalar);
        h = mix_double(h, n->attr.value);
        for (int o = 0; o < n->nin; o++)
            h = hash_operand(t, h, kernel, n->in[o], &nread);
        bool leaves = t->uses[b->node[i]] > t->inside[b->node[i]];
        if (leaves && (scalar || (!t->set[b->node[i]]
                && type_bytes(&g->mesh, &n->type) > LARGE)))
            return 0;
        h = mix(h, leaves);
    }
    return h ? h : 1;
}

/* All that such a launch reads from the host would have to be there at once. */
static bool reads_moved(const Twins *t, const Body *b)
{
    const Graph *g = t->g;
    for (uint32_t i = 0; i < b->n; i++)
        for (int k = 0; k < g->node[b->node[i]].nin; k++)
            if (node_moves(g, g->node[b->node[i]].in[k]))
                return true;
    return false;
}

static void find_bodies(Twins *t)
{
    const Graph *g = t->g;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].kernel >= t->n)
            t->n = g->node[r].kernel + 1;
    t->body = alloc(t->scratch, (size_t)(t->n + 1) * sizeof *t->body);
    t->leaf_level = alloc(t->scratch, (g->n + 1) * sizeof *t->leaf_level);
    t->at = alloc(t->scratch, (g->n + 1) * sizeof *t->at);
    t->read = alloc(t->scratch, (g->n + 1) * sizeof *t->read);
    t->inside = alloc(t->scratch, (g->n + 1) * sizeof *t->inside);
    t->set = alloc(t->scratch, g->n + 1);
    for (uint32_t i = 0; i < g->nset; i++)
        t->set[g->set[i].value] = true;
    for (Ref r = 0; r < g->n; r++) {
        if (g->node[r].kernel < 0)
            continue;
        Body *b = &t->body[g->node[r].kernel];
        GROW(t->scratch, b->node, b->n, b->cap);
        t->at[r] = b->n;
        b->node[b->n++] = r;
        b->level = -1;
        for (int i = 0; i < g->node[r].nin; i++)
            t->inside[g->node[r].in[i]] +=
                g->node[g->node[r].in[i]].kernel == g->node[r].kernel;
    }
    for (int k = 0; k < t->n; k++) {
        t->body[k].hash = reads_moved(t, &t->body[k]) ? 0
                        : body_hash(t, &t->body[k]);
        if (t->body[k].hash)
            level_of_kernel(t, k);
    }
}

typedef struct Pick { uint64_t hash; int depth, level, kernel; } Pick;

static int pick_order(const void *a, const void *b)
{
    const Pick *x = a, *y = b;
    if (x->depth != y->depth)
        return (x->depth > y->depth) - (x->depth < y->depth);
    if (x->level != y->level)
        return (x->level > y->level) - (x->level < y->level);
    if (x->hash != y->hash)
        return (x->hash > y->hash) - (x->hash < y->hash);
    return (x->kernel > y->kernel) - (x->kernel < y->kernel);
}

static void label(const Twins *t, const Pick *p, int n, int bucket, int *of)
{
    for (int i = 0; i < n; i++) {
        const Body *b = &t->body[p[i].kernel];
        for (uint32_t k = 0; k < b->n; k++)
            of[b->node[k]] = bucket;
    }
}

static bool go_together(const Pick *a, const Pick *b)
{
    return a->hash == b->hash && a->depth == b->depth && a->level == b->level;
}

static int depth_of(const Body *b, const int *depth)
{
    int most = 0;
    for (uint32_t i = 0; i < b->n; i++)
        most = depth[b->node[i]] > most ? depth[b->node[i]] : most;
    return most;
}

int twins_label(const Graph *g, Arena *scratch, const int *depth, int bucket,
                int *of)
{
    Twins t = { .g = g, .scratch = scratch, .uses = graph_uses(g, scratch) };
    int n = 0;
    find_bodies(&t);
    Pick *p = alloc(scratch, (size_t)(t.n + 1) * sizeof *p);
    for (int k = 0; k < t.n; k++)
        if (t.body[k].hash)
            p[n++] = (Pick){ t.body[k].hash, depth_of(&t.body[k], depth),
                             t.body[k].level, k };
    qsort(p, (size_t)n, sizeof *p, pick_order);
    for (int i = 0, k; i < n; i = k) {
        k = i;
        while (k < n && go_together(&p[k], &p[i]))
            k++;
        if (k - i > 1)
            label(&t, p + i, k - i, bucket++, of);
    }
    return bucket;
}
