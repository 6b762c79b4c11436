/* dot.c -- a contraction as one batched matrix product.
 *
 * Its letters fall into four classes by the terms they stand in: batch
 * (a, b, c), m (a, c), n (b, c), k (a, b).  Each class is loops with a stride
 * in each operand; neighbouring loops are merged where all operands agree.
 * What is left of m and n beyond one loop becomes batch, with stride 0 in the
 * operand that lacks it; k must be one loop. */
#include "codegen/library.h"

enum { A, B, C, NTERMS };

typedef struct Loops {                    /* of one class, outer first */
    int n;
    int64_t size[NSTRAND], stride[NSTRAND][NTERMS];
} Loops;

typedef struct Dot {
    const Graph *g;
    Sig s;
    Strand of[NTERMS][NLETTER];
    bool in[NTERMS][NLETTER];
    int64_t size[NLETTER];                /* local */
} Dot;

/* Each letter's strand in one term. */
static bool read_term(Dot *d, int t, const Term *term, const Strand *dim)
{
    for (int i = 0; i < term->ndim; i++) {
        const Dim *m = &term->dim[i];
        int64_t size[NDIM];
        Strand part[NDIM];
        for (int k = 0; k < m->n; k++)
            size[k] = d->size[(int)m->c[k]];
        if (m->window || !strand_cut(&dim[i], size, m->n, part))
            return false;
        for (int k = 0; k < m->n; k++) {
            d->of[t][(int)m->c[k]] = part[k];
            d->in[t][(int)m->c[k]] = true;
        }
    }
    return true;
}

/* Innermost loops first: the common refinement of a letter's strands. */
static bool letter_loops(const Dot *d, int c, Loops *back)
{
    int at[NTERMS];
    int64_t done[NTERMS], left = d->size[c];
    for (int t = 0; t < NTERMS; t++)
        at[t] = d->of[t][c].n - 1, done[t] = 1;
    while (left > 1) {
        int64_t take = left;
        for (int t = 0; t < NTERMS; t++) {
            const Strand *p = &d->of[t][c];
            if (!d->in[t][c] || at[t] < 0)
                continue;
            int64_t rest = p->size[at[t]] / done[t];
            take = rest < take ? rest : take;
        }
        if (take <= 1 || left % take || back->n == NSTRAND)
            return false;
        for (int t = 0; t < NTERMS; t++) {
            const Strand *p = &d->of[t][c];
            int64_t *stride = &back->stride[back->n][t];
            *stride = 0;
            if (!d->in[t][c] || at[t] < 0)
                continue;
            if (p->size[at[t]] / done[t] % take)
                return false;
            *stride = p->stride[at[t]] * done[t];
            done[t] *= take;
            if (done[t] == p->size[at[t]])
                at[t]--, done[t] = 1;
        }
        back->size[back->n++] = take;
        left /= take;
    }
    return true;
}

static void merge(Loops *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        bool joins = n > 0;
        for (int t = 0; t < NTERMS && joins; t++)
            joins = l->stride[n - 1][t] == l->stride[i][t] * l->size[i];
        int to = joins ? n - 1 : n++;
        l->size[to] = joins ? l->size[to] * l->size[i] : l->size[i];
        for (int t = 0; t < NTERMS; t++)
            l->stride[to][t] = l->stride[i][t];
    }
    l->n = n;
}

/* The loops of a class, letters in the order of `term`. */
static bool class_loops(const Dot *d, const Term *term, bool a, bool b, bool c,
                        Loops *l)
{
    *l = (Loops){0};
    for (int i = 0; i < term->ndim; i++)
        for (int k = 0; k < term->dim[i].n; k++) {
            int ch = term->dim[i].c[k];
            Loops back = {0};
            if (d->in[A][ch] != a || d->in[B][ch] != b || d->in[C][ch] != c)
                continue;
            if (!letter_loops(d, ch, &back) || l->n + back.n > NSTRAND)
                return false;
            for (int m = back.n; m-- > 0; l->n++) {
                l->size[l->n] = back.size[m];
                memcpy(l->stride[l->n], back.stride[m], sizeof back.stride[m]);
            }
        }
    merge(l);
    return true;
}

/* The loop of a class that the product itself runs: the largest.  It is taken
 * out of the list; none: one turn. */
static int64_t pick(Loops *l, int64_t stride[NTERMS])
{
    int best = -1;
    memset(stride, 0, NTERMS * sizeof *stride);
    for (int i = 0; i < l->n; i++)
        if (best < 0 || l->size[i] > l->size[best])
            best = i;
    if (best < 0)
        return 1;
    int64_t size = l->size[best];
    memcpy(stride, l->stride[best], NTERMS * sizeof *stride);
    for (int i = best; i + 1 < l->n; i++) {
        l->size[i] = l->size[i + 1];
        memcpy(l->stride[i], l->stride[i + 1], sizeof l->stride[i]);
    }
    l->n--;
    return size;
}

static bool add_batch(DpcDot *o, const Loops *l)
{
    for (int i = 0; i < l->n; i++) {
        if (o->nbatch == DPC_NBATCH)
            return false;
        o->batch[o->nbatch] = l->size[i];
        o->a_batch[o->nbatch] = l->stride[i][A];
        o->b_batch[o->nbatch] = l->stride[i][B];
        o->c_batch[o->nbatch++] = l->stride[i][C];
    }
    return true;
}

static bool dot_read(Dot *d, const Graph *g, Ref r, Ref end,
                     const char **why)
{
    const Node *n = &g->node[r];
    Strand dim[NDIM];
    d->s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    sig_split(&d->s, g, n->in);
    for (int c = 0; c < NLETTER; c++) {
        int64_t parts = split_parts(&g->mesh, d->s.split[c]);
        d->size[c] = (d->s.size[c] + parts - 1) / parts;
    }
    for (int i = 0; i < 2; i++)
        if (!strand_of(g, n->in[i], dim)
            || !read_term(d, i, &d->s.in[i], dim)) {
            *why = "an operand does not lie in loops of its letters";
            return false;
        }
    if (!strand_of(g, end, dim) || !read_term(d, C, &d->s.out, dim)) {
        *why = "the result does not lie in loops of its letters";
        return false;
    }
    for (int c = 0; c < NLETTER; c++)
        if (d->s.size[c] > 1 && d->in[A][c] + d->in[B][c] + d->in[C][c] < 2) {
            *why = "a letter stands in one term only";
            return false;
        }
    return true;
}

bool library_product(const Node *n)
{
    return n->op == OP_dot || ops[n->op].family == FAMILY_conv;
}

bool dot_describe(const Graph *g, Ref r, Ref end, DpcDot *o,
                  const char **why)
{
    const Node *n = &g->node[r];
    Dot d = { .g = g };
    Loops batch, m, k, c;
    int64_t sm[NTERMS], sn[NTERMS], sk[NTERMS];
    if (!dot_read(&d, g, r, end, why))
        return false;
    *o = (DpcDot){ .dtype_a = g->node[n->in[0]].type.dtype,
                   .dtype_b = g->node[n->in[1]].type.dtype,
                   .dtype_c = g->node[end].type.dtype };
    *why = "its letters are more loops than a matrix product has";
    if (!class_loops(&d, &d.s.out, true, true, true, &batch)
        || !class_loops(&d, &d.s.out, true, false, true, &m)
        || !class_loops(&d, &d.s.out, false, true, true, &c)
        || !class_loops(&d, &d.s.in[0], true, true, false, &k) || k.n > 1)
        return false;
    o->m = pick(&m, sm), o->a_m = sm[A], o->c_m = sm[C];
    o->n = pick(&c, sn), o->b_n = sn[B], o->c_n = sn[C];
    o->k = pick(&k, sk), o->a_k = sk[A], o->b_k = sk[B];
    return add_batch(o, &batch) && add_batch(o, &m) && add_batch(o, &c);
}
