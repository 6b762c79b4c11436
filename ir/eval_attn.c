/* eval_attn.c -- attention, one query at a time.
 *
 * Letters q, s, d and e have their meaning by name; all others are of the
 * batch.  For each batch and query a row of s numbers is made: the products
 * with all keys, then their shares p of the softmax; what an op wants of them
 * is added into its result, where a letter that the result lacks folds by
 * itself.  In the field e to the x is a keyed hash and its logarithm is not
 * taken, so the log-sum is a sum and a share is a quotient. */
#include "ir/eval_node.h"
#include "ir/field.h"

#include <math.h>

enum { TERMS = NIN + 1 };                 /* operands, then the result */

typedef struct Attn {
    Domain domain;
    Op op;
    const Num *const *in;
    Num *out;
    int result;                           /* its number among the terms */
    int64_t size[NLETTER];                /* of this part, padding cut */
    int64_t stride[TERMS][NLETTER];
    int64_t at[TERMS];                    /* of the present batch and query */
    Num *z;                               /* [s]: products, then shares */
} Attn;

static Num times(Domain d, Num a, Num b)
{
    return d == FIELD ? (Num){ .f = field_mul(a.f, b.f) }
                      : (Num){ .r = a.r * b.r };
}

static void add(Domain d, Num *sum, Num x)
{
    *sum = num_fold(d, FOLD_SUM, *sum, x);
}

static Num inner(const Attn *t, int i, int64_t x, int k, int64_t y, int c)
{
    Num sum = num_of(t->domain, 0);
    for (int64_t n = 0; n < t->size[c]; n++)
        add(t->domain, &sum, times(t->domain, t->in[i][x + n * t->stride[i][c]],
                                   t->in[k][y + n * t->stride[k][c]]));
    return sum;
}

static bool masked(Domain d, Num on)
{
    return d == FIELD ? on.f == 0 : on.r == 0;
}

static Num exponential(Domain d, Num z)
{
    static uint64_t key;
    if (d == REAL)
        return (Num){ .r = exp(z.r) };
    key = key ? key : field_key("exp");
    return (Num){ .f = field_mod(field_hash(key, z.f)) };
}

/* The mask of key s, for the present query. */
static Num mask_at(const Attn *t, int mask, int64_t s)
{
    return t->in[mask][t->at[mask] + s * t->stride[mask]['s']];
}

/* The logarithm of the sum without overflow; in the field the sum. */
static Num log_sum(const Attn *t, int mask)
{
    Num sum = num_identity(t->domain, FOLD_LSE);
    for (int64_t s = 0; s < t->size['s']; s++)
        if (!masked(t->domain, mask_at(t, mask, s)))
            sum = num_fold(t->domain, FOLD_LSE, sum, t->domain == REAL
                           ? t->z[s] : exponential(FIELD, t->z[s]));
    return sum;
}

/* The row of products becomes one of shares. */
static void shares(Attn *t, int mask, Num lse)
{
    uint64_t over = t->domain == FIELD ? field_inv(lse.f) : 0;
    for (int64_t s = 0; s < t->size['s']; s++) {
        Num *z = &t->z[s];
        if (masked(t->domain, mask_at(t, mask, s)))
            *z = num_of(t->domain, 0);
        else if (t->domain == REAL)
            z->r = exp(z->r - lse.r);
        else
            z->f = field_mul(exponential(FIELD, *z).f, over);
    }
}

/* result[.. c] += f * operand i[.. c] */
static void add_row(Attn *t, int64_t to, Num f, int i, int64_t from, int c)
{
    for (int64_t n = 0; n < t->size[c]; n++)
        add(t->domain, &t->out[to + n * t->stride[t->result][c]],
            times(t->domain, f, t->in[i][from + n * t->stride[i][c]]));
}

/* The share's cotangent: p (dy v - dy y). */
static Num share_back(const Attn *t, Num p, int64_t v)
{
    enum { V = 2, DY = 5, Y = 6 };
    Num dp = inner(t, DY, t->at[DY], V, v, 'e');
    Num all = inner(t, DY, t->at[DY], Y, t->at[Y], 'e');
    Num d = t->domain == FIELD ? (Num){ .f = field_sub(dp.f, all.f) }
                               : (Num){ .r = dp.r - all.r };
    return times(t->domain, p, d);
}

/* What key k, of share p, adds to the result. */
static void add_key(Attn *t, int64_t k, Num p)
{
    int r = t->result;
    int64_t key = t->at[1] + k * t->stride[1]['s'];
    int64_t value = t->at[2] + k * t->stride[2]['s'];
    int64_t to = t->at[r] + k * t->stride[r]['s'];
    if (t->op == OP_attn || t->op == OP_attn_out)
        add_row(t, to, p, 2, value, 'e');
    else if (t->op == OP_attn_dv)
        add_row(t, to, p, 4, t->at[4], 'e');
    else if (t->op == OP_attn_dq)
        add_row(t, to, share_back(t, p, value), 1, key, 'd');
    else
        add_row(t, to, share_back(t, p, value), 0, t->at[0], 'd');
}

/* One batch and query: what it adds to the result. */
static void query(Attn *t)
{
    bool values = t->op != OP_attn_lse && t->op != OP_attn_dv;
    int mask = values ? 3 : 2, r = t->result;
    for (int64_t k = 0; k < t->size['s']; k++)
        t->z[k] = inner(t, 0, t->at[0], 1, t->at[1] + k * t->stride[1]['s'],
                        'd');
    if (t->op == OP_attn_lse) {
        t->out[t->at[r]] = num_fold(t->domain, FOLD_LSE, t->out[t->at[r]],
                                    log_sum(t, mask));
        return;
    }
    shares(t, mask, t->op == OP_attn ? log_sum(t, mask)
                                     : t->in[mask + 1][t->at[mask + 1]]);
    for (int64_t k = 0; k < t->size['s']; k++)
        add_key(t, k, t->z[k]);
}

/* All letters but s, d and e, one after the other from c on. */
static void walk(Attn *t, int c)
{
    while (c < NLETTER && (!t->size[c] || strchr("sde", c)))
        c++;
    if (c == NLETTER) {
        query(t);
        return;
    }
    for (int64_t i = 0; i < t->size[c]; i++) {
        walk(t, c + 1);
        for (int k = 0; k < TERMS; k++)
            t->at[k] += t->stride[k][c];
    }
    for (int k = 0; k < TERMS; k++)
        t->at[k] -= t->size[c] * t->stride[k][c];
}

static void term_strides(Attn *t, const Graph *g, const Node *n, const Sig *s,
                         int i, const Place *p)
{
    const Term *m = i == n->nin ? &s->out : &s->in[i];
    Type u = type_local(&g->mesh, i == n->nin ? &n->type
                                              : &g->node[n->in[i]].type);
    int64_t stride = 1, at;
    for (int d = u.ndim; d-- > 0; stride *= u.dim[d]) {
        int c = m->dim[d].c[0];
        if (m->dim[d].n != 1)
            err(n->loc, "%s: a dimension is one letter here, not a group",
                ops[n->op].name);
        t->stride[i][c] = stride;
        t->size[c] = eval_extent(&g->mesh, s->split[c], s->size[c], p->coord,
                                 &at);
    }
}

void eval_attention(const Graph *g, Ref r, Domain domain, const Place *p,
                    const Num *const *in, Num *out)
{
    const Node *n = &g->node[r];
    Attn t = { .domain = domain, .op = n->op, .in = in, .out = out,
               .result = n->nin };
    Sig s = eval_sig(g, r);
    Type u = type_local(&g->mesh, &n->type);
    Arena *a = arena_new();

    for (int i = 0; i <= n->nin; i++)
        term_strides(&t, g, n, &s, i, p);
    for (int64_t i = 0; i < type_volume(&u); i++)
        out[i] = num_identity(domain, ops[n->op].fold);
    t.z = alloc(a, (size_t)(t.size['s'] + 1) * sizeof *t.z);
    walk(&t, 0);
    arena_free(a);
}
