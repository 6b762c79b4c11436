/* eval_own.c -- ops that are no loop nest: leaves, index, take and put. */
#include "ir/eval_node.h"
#include "ir/field.h"

#include <math.h>

/* ---- leaves ---- */

/* Philox at counter {index, step, id}; uniform in [0, 1) with 24 bits, or
 * normal by Box and Muller. */
static Num draw(const Node *n, Domain domain, const Place *p, int64_t index)
{
    uint64_t i = (uint64_t)index;
    uint32_t x[4], ctr[4] = { (uint32_t)i, (uint32_t)(i >> 32),
                              (uint32_t)p->step, (uint32_t)n->attr.id };
    uint32_t key[2] = { (uint32_t)p->seed, (uint32_t)(p->seed >> 32) };
    const char *dist = n->attr.dist ? n->attr.dist : "uniform";

    philox(x, ctr, key);
    if (strcmp(dist, "uniform") == 0)
        return num_of(domain, ldexp(x[0] >> 8, -24));
    if (strcmp(dist, "normal") != 0)
        die("%s: random has no distribution \"%s\"", n->name, dist);
    if (domain == FIELD)
        return (Num){ .f = field_mod((uint64_t)x[0] << 32 | x[1]) };
    double u = ldexp((double)(x[0] >> 8) + 1, -24), v = ldexp(x[1] >> 8, -24);
    return (Num){ .r = sqrt(-2 * log(u)) * cos(2 * M_PI * v) };
}

/* The same whatever the mesh: floats in [-1/2, 1/2), integers 0..9. */
static Num by_name(const Node *n, Domain domain, uint64_t key, int64_t index)
{
    uint64_t h = field_hash(key, (uint64_t)index);

    if (n->attr.residual)                 /* what a plan adds adds nothing */
        return num_of(domain, 0);
    if (n->type.dtype == I32 || n->type.dtype == U8)
        return num_of(domain, (double)(h % 10));
    if (domain == FIELD)
        return (Num){ .f = field_mod(h) };
    return (Num){ .r = ldexp((double)(h >> 11), -53) - 0.5 };
}

static int64_t iota(const Type *t, int dim, int64_t index)
{
    for (int d = t->ndim; --d > dim;)
        index /= t->dim[d];
    return index % t->dim[dim];
}

static Num element(const Node *n, Domain domain, const Place *p, uint64_t key,
                   int64_t index)
{
    switch (n->op) {
    case OP_const:
        return num_of(domain, n->attr.ndata ? n->attr.data[index]
                                            : n->attr.value);
    case OP_scalar:
        if (domain == REAL)
            return num_of(domain, n->attr.value);
        return by_name(n, domain, key, index);
    case OP_iota:
        return num_of(domain, (double)iota(&n->type, n->attr.dim, index));
    case OP_random:
        return draw(n, domain, p, index);
    default:
        return by_name(n, domain, key, index);
    }
}

void eval_leaf(const Node *node, Domain domain, const Place *p, int64_t index,
               int64_t n, Num *out)
{
    uint64_t key = field_key(node->name) + p->seed * 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < n; i++)
        out[i] = element(node, domain, p, key, index + i);
}

/* ---- slice, pad, concat: blocks along a dimension that is not split ---- */

/* Copy `size` places of dim from one tensor to the other. */
static void blocks(const Type *from, int64_t at, const Num *x, const Type *to,
                   int64_t put, Num *y, int dim, int64_t size)
{
    int64_t outer = 1, inner = 1, n = from->dim[dim], m = to->dim[dim];

    for (int d = 0; d < dim; d++)
        outer *= to->dim[d];
    for (int d = dim + 1; d < to->ndim; d++)
        inner *= to->dim[d];
    for (int64_t i = 0; i < outer; i++)
        memcpy(y + (i * m + put) * inner, x + (i * n + at) * inner,
               (size_t)(size * inner) * sizeof *y);
}

void eval_index(const Graph *g, Ref r, const Num *const *in, Num *out)
{
    const Node *n = &g->node[r];
    const Attr *a = &n->attr;
    Type t = type_local(&g->mesh, &n->type);
    Type u = type_local(&g->mesh, &g->node[n->in[0]].type);

    memset(out, 0, (size_t)type_volume(&t) * sizeof *out);
    if (n->op == OP_slice) {
        blocks(&u, a->at, in[0], &t, 0, out, a->dim, a->size);
        return;
    }
    blocks(&u, 0, in[0], &t, n->op == OP_pad ? a->at : 0, out, a->dim,
           u.dim[a->dim]);
    if (n->op == OP_concat) {
        Type v = type_local(&g->mesh, &g->node[n->in[1]].type);
        blocks(&v, 0, in[1], &t, u.dim[a->dim], out, a->dim, v.dim[a->dim]);
    }
}

/* ---- take and put ---- */

/* Row of the whole table that an index means; -1: none. */
static int64_t row(Domain domain, Num index, int64_t rows)
{
    if (domain == FIELD)
        return (int64_t)(index.f % (uint64_t)rows);
    return index.r >= 0 && index.r < (double)rows ? (int64_t)index.r : -1;
}

/* Does place i of a part of the indices hold an element, not padding? */
static bool holds(const Type *part, const int64_t *size, int64_t i)
{
    for (int d = part->ndim; d-- > 0; i /= part->dim[d])
        if (i % part->dim[d] >= size[d])
            return false;
    return true;
}

/* take: row of the table to place; put: the other way, summed.  Rows that
 * another rank holds give nothing, so that a split table leaves a sum. */
void eval_take(const Graph *g, Ref r, Domain domain, const Place *p,
               const Num *const *in, Num *out)
{
    const Node *n = &g->node[r];
    Sig s = eval_sig(g, r);
    bool put = n->op == OP_put;
    const Type *whole = &g->node[n->in[1]].type;
    Type t = type_local(&g->mesh, &n->type);
    Type places = type_local(&g->mesh, whole);
    int64_t d = t.dim[t.ndim - 1], size[NDIM], at, first;
    int64_t count = type_volume(&places), rows = s.size['v'];
    int64_t mine = eval_extent(&g->mesh, s.split['v'], rows, p->coord, &first);

    for (int i = 0; i < places.ndim; i++)
        size[i] = eval_extent(&g->mesh, whole->split[i], whole->dim[i],
                              p->coord, &at);
    memset(out, 0, (size_t)type_volume(&t) * sizeof *out);
    for (int64_t i = 0; i < count; i++) {
        int64_t v = row(domain, in[1][i], rows) - first;
        if (!holds(&places, size, i) || v < 0 || v >= mine)
            continue;
        const Num *x = in[0] + (put ? i : v) * d;
        Num *y = out + (put ? v : i) * d;
        for (int64_t k = 0; k < d; k++)
            y[k] = put ? num_fold(domain, FOLD_SUM, y[k], x[k]) : x[k];
    }
}
