/* like.c -- repeated blocks are asked about once.
 *
 * A network of sixty equal blocks has sixty twins of each kernel, and what
 * the target or the clock says of one holds for all (architecture.md 5,
 * "60 blocks, O(1)").  Twins are told by keys: two hashes of what is done, in
 * which operands are counted from within, not by their place in the graph.
 * Two hashes of 64 bits: of a million kernels two different ones meet in one
 * of 10^26 compilations. */
#include "passes/like.h"

static Key key_text(Key k, const char *s)
{
    for (; s && *s; s++)
        k = key_mix(k, (uint8_t)*s);
    return k;
}

Key key_mesh(const Mesh *m, Phase phase)
{
    Key k = { (uint64_t)m->naxis + 1, phase };
    for (int i = 0; i < m->naxis; i++)
        k = key_mix(k, (uint64_t)m->axis[i].size << 2 | m->axis[i].kind);
    return k;
}

Key key_type(const Type *t)
{
    Key k = { (uint64_t)t->dtype << 32 | (uint32_t)t->ndim, 1 };
    for (int d = 0; d < t->ndim; d++) {
        k = key_mix(k, (uint64_t)t->dim[d]);
        k = key_mix(k, t->split[d]);
        k = key_mix(k, (uint64_t)(uint32_t)t->step[d] << 16
                    | (uint64_t)t->lo[d] << 8 | t->hi[d]);
    }
    return key_mix(k, (uint64_t)t->partial << 32 | t->fold);
}

static Key key_attr(Key k, const Attr *a)
{
    uint64_t value;
    memcpy(&value, &a->value, sizeof value);
    k = key_text(key_mix(k, value), a->sig);
    for (int i = 0; i < a->nletter; i++) {
        k = key_mix(k, (uint8_t)a->letter[i].c);
        k = key_mix(k, (uint64_t)a->letter[i].size);
        k = key_mix(k, a->letter[i].split);
    }
    const int64_t rest[] = { a->nletter, a->ndata, a->at, a->size,
                             (int64_t)a->dim << 32 | (uint32_t)a->to,
                             (int64_t)a->stride << 32 | (uint32_t)a->pad,
                             (int64_t)a->dilate << 32 | (uint32_t)a->use,
                             (int64_t)a->dtype << 32 | a->axes };
    for (int i = 0; i < COUNT(rest); i++)
        k = key_mix(k, (uint64_t)rest[i]);
    return k;
}

Key key_work(const Node *n)
{
    Key k = key_mix(key_type(&n->type),
                    (uint64_t)n->op << 32 | (uint32_t)n->nin);
    return key_attr(k, &n->attr);
}

/* ---- launches ---- */

static int place_in(const Launch *l, Ref r)
{
    for (int i = 0; i < l->n; i++)
        if (l->node[i] == r)
            return i;
    return -1;
}

/* An operand: which node of the launch, or how it lies outside. */
static Key key_operand(Key k, const Graph *g, const Launch *l, Ref r)
{
    const Node *n = &g->node[r];
    int at = place_in(l, r);
    if (at >= 0)
        return key_mix(k, (uint64_t)at);
    k = key_both(key_mix(k, UINT64_MAX), key_type(&n->type));
    k = key_mix(k, (uint64_t)(uint32_t)n->layout << 32 | n->op);
    return node_is_view(n) ? key_operand(key_both(k, key_work(n)), g, l,
                                         n->in[0]) : k;
}

static Key key_launch(const Graph *g, const Launch *l, const uint32_t *uses,
                      Ref *room)
{
    Key k = { (uint64_t)l->n, 0 };
    for (int i = 0; i < l->n; i++) {
        const Node *n = &g->node[l->node[i]];
        k = key_both(k, key_work(n));
        k = key_mix(k, (uint64_t)(uint32_t)n->layout << 32 | n->loop);
        k = key_mix(k, (uint64_t)(n->kernel < 0) << 1 | (n->bucket < 0));
        for (int o = 0; o < n->nin; o++)
            k = key_operand(k, g, l, n->in[o]);
    }
    int nout = launch_outputs(g, l, uses, room, launch_operands(g, l));
    for (int i = 0; i < nout; i++)
        k = key_mix(k, (uint64_t)place_in(l, room[i]));
    return k;
}

enum { MOST = 64 };                       /* nodes; longer ones are their own */

uint32_t *launches_alike(const Graph *g, const Sched *s, Arena *a)
{
    const uint32_t *uses = graph_uses(g, a);
    uint32_t *like = alloc(a, (s->nlaunch + 1) * sizeof *like), cap = 64;
    while (cap < 2 * (s->nlaunch + 1))
        cap *= 2;
    struct { Key key; uint32_t launch; } *at = alloc(a, cap * sizeof *at);
    int most = 1;
    for (uint32_t l = 0; l < s->nlaunch; l++)
        if (s->launch[l].n <= MOST
            && launch_operands(g, &s->launch[l]) > most)
            most = launch_operands(g, &s->launch[l]);
    Ref *room = alloc(a, (size_t)most * sizeof *room);
    for (uint32_t l = 0; l < s->nlaunch; l++) {
        like[l] = l;
        if (s->launch[l].n > MOST)
            continue;
        Key k = key_launch(g, &s->launch[l], uses, room);
        uint32_t i = (uint32_t)k.a & (cap - 1);
        while (!key_none(at[i].key) && !key_equal(at[i].key, k))
            i = (i + 1) & (cap - 1);
        if (key_none(at[i].key))
            at[i].key = k, at[i].launch = l;
        like[l] = at[i].launch;
    }
    return like;
}

int64_t *launches_scratch(const Graph *g, const Sched *s, const Target *t,
                          const uint32_t *uses, Arena *a)
{
    int64_t *bytes = alloc(a, (s->nlaunch + 1) * sizeof *bytes);
    const uint32_t *like = launches_alike(g, s, a);
    for (uint32_t l = 0; t && t->scratch && l < s->nlaunch; l++) {
        const Launch *q = &s->launch[l];
        if (g->node[q->node[0]].bucket < 0)          /* of a bucket: none */
            bytes[l] = like[l] < l ? bytes[like[l]]
                     : t->scratch(g, q->node, q->n, uses);
    }
    return bytes;
}
