/* strand.c -- how a value lies in memory, seen through views.
 *
 * A `move` that permutes, splits, merges or repeats dimensions need not be
 * carried out: whoever reads it can walk the original bytes with other
 * strides.  A dimension that was merged from parts that are not neighbours is
 * several loops. */
#include "codegen/library.h"

static void strand_add(Strand *s, int64_t size, int64_t stride)
{
    if (size == 1)
        return;
    if (s->n && s->stride[s->n - 1] == size * stride) {
        s->size[s->n - 1] *= size;        /* neighbours: one loop */
        s->stride[s->n - 1] = stride;
        return;
    }
    if (s->n < NSTRAND) {
        s->size[s->n] = size;
        s->stride[s->n++] = stride;
    }
}

bool strand_cut(const Strand *from, const int64_t *size, int n, Strand *part)
{
    int k = from->n - 1;
    int64_t left = k >= 0 ? from->size[k] : 1;
    int64_t stride = k >= 0 ? from->stride[k] : 0;
    for (int i = n; i-- > 0;) {
        Strand back = {0};                /* inner first */
        int64_t want = size[i];
        while (want > 1) {
            while (left == 1 && k > 0)
                k--, left = from->size[k], stride = from->stride[k];
            int64_t take = left < want ? left : want;
            if (left == 1 || left % take || want % take || back.n == NSTRAND)
                return false;
            back.size[back.n] = take, back.stride[back.n++] = stride;
            left /= take, want /= take, stride *= take;
        }
        part[i] = (Strand){0};
        for (int m = back.n; m-- > 0;)
            strand_add(&part[i], back.size[m], back.stride[m]);
    }
    return left == 1 && k <= 0;
}

/* A value that has bytes of its own: dense, in its memory order. */
static void strand_dense(const Graph *g, Ref r, Strand *dim)
{
    const Node *n = &g->node[r];
    Type t = type_local(&g->mesh, &n->type);
    int order[NDIM], code = n->layout;
    for (int d = t.ndim; d-- > 0; code /= 10)
        order[d] = n->layout ? code % 10 : d;
    int64_t stride = 1;
    for (int i = t.ndim; i-- > 0;) {
        int d = order[i];
        dim[d] = (Strand){0};
        strand_add(&dim[d], t.dim[d], stride);
        stride *= t.dim[d];
    }
}

static int64_t local_size(const Graph *g, const Sig *s, int c)
{
    int64_t parts = split_parts(&g->mesh, s->split[c]);
    return (s->size[c] + parts - 1) / parts;
}

static bool strand_view(const Graph *g, const Node *n, const Strand *in,
                        Strand *out)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    Strand of[NLETTER] = {0};
    bool bound[NLETTER] = {0};
    if (!sig_split(&s, g, n->in))
        return false;
    for (int d = 0; d < s.out.ndim; d++)
        s.split[(int)s.out.dim[d].c[0]] = n->type.split[d];
    for (int d = 0; d < s.in[0].ndim; d++) {
        const Dim *m = &s.in[0].dim[d];
        int64_t size[NDIM];
        Strand part[NDIM];
        for (int i = 0; i < m->n; i++)
            size[i] = local_size(g, &s, m->c[i]);
        if (m->window || !strand_cut(&in[d], size, m->n, part))
            return false;
        for (int i = 0; i < m->n; i++)
            of[(int)m->c[i]] = part[i], bound[(int)m->c[i]] = true;
    }
    for (int c = 0; c < NLETTER; c++) {
        if (s.folded[c] && s.size[c] > 1)
            return false;
        if (!bound[c] && s.size[c])
            strand_add(&of[c], local_size(g, &s, c), 0);
    }
    for (int d = 0; d < s.out.ndim; d++) {
        out[d] = (Strand){0};
        for (int i = 0; i < s.out.dim[d].n; i++) {
            const Strand *p = &of[(int)s.out.dim[d].c[i]];
            for (int k = 0; k < p->n; k++)
                strand_add(&out[d], p->size[k], p->stride[k]);
        }
    }
    return true;
}

bool strand_of(const Graph *g, Ref r, Strand *dim)
{
    const Node *n = &g->node[r];
    Strand in[NDIM];
    if (!node_is_view(n)) {
        strand_dense(g, r, dim);
        return true;
    }
    return strand_of(g, n->in[0], in) && strand_view(g, n, in, dim);
}
