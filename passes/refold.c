/* refold.c -- sums over much as two folds, the first within a row.
 *
 * A norm's backward pass folds each row (its mean of dx) and, of the same
 * values, columns over all rows (the gradients of gain and bias).  One kernel
 * cannot do both, since no row sees another's sum; but it can leave a sum of
 * its own, a table of the row (codegen/kernel.h), and a small second fold adds
 * those:
 *
 *     "bchw->c"   becomes   "bchw->bc", then "bc->c"
 *     "nc->c"     becomes   "(pq)c->pc", then "pc->c", of q rows each
 *
 * That saves a pass over memory where the first fold shares a kernel with a
 * fold that keeps rows, and is a launch more where it does not.  So all such
 * sums are written as two, `fuse` is asked what it would do in the segments
 * that have such, and those that found no company are put back.  Sums are only
 * associated anew; where a plan wants the same bits on any number of ranks,
 * they are left alone.  So is what is made again: a clone and what it clones
 * are the same node (V8), and only one of them may have company. */
#include "passes/fuse.h"

enum { SHRINK = 8, ROWS = 16 };           /* least factor; rows of a cut */

typedef struct Halves {                   /* how a sum is cut in two */
    Attr first, second;                   /* their signatures */
    bool ok;
} Halves;

/* ---- is it such a sum, and where is it cut? ---- */

static int64_t local(const Graph *g, const Sig *s, int letter)
{
    int64_t parts = split_parts(&g->mesh, s->split[letter]);
    return s->size[letter] % parts ? 1 : s->size[letter] / parts;
}

/* The outermost letter in memory of which there is more than one. */
static int outermost(const Graph *g, const Sig *s, Ref x)
{
    const Node *n = &g->node[x];
    for (int d = 0, code = n->layout, by = 1; d < n->type.ndim; d++) {
        for (int i = by = 1; i < n->type.ndim - d; i++)
            by *= 10;
        const Dim *m = &s->in[0].dim[code ? code / by % 10 : d];
        for (int i = 0; i < m->n; i++)
            if (local(g, s, m->c[i]) > 1)
                return m->c[i];
    }
    return 0;
}

/* How many of the letter's are summed in each row: the fewest for which the
 * first fold shrinks what it reads; 0 when that would leave few. */
static int64_t share(const Graph *g, const Sig *s, int letter)
{
    int64_t n = local(g, s, letter), shrink = 1;
    for (int c = 0; c < NLETTER; c++)
        if (s->folded[c] && c != letter)
            shrink *= local(g, s, c);
    if (shrink >= SHRINK)
        return 1;
    for (int64_t q = 2; n / q >= ROWS; q++)
        if (n % q == 0 && shrink * q >= SHRINK)
            return q;
    return 0;
}

static int unused(const Sig *s, int from)
{
    while (s->size[from])
        from++;
    return from;
}

static void put_dims(char *to, const Term *t, int cut, int into)
{
    for (int d = 0; d < t->ndim; d++) {
        const Dim *m = &t->dim[d];
        bool group = m->n > 1 || (into && m->n && m->c[0] == cut);
        to += sprintf(to, group ? "(" : "");
        for (int i = 0; i < m->n; i++) {
            *to++ = m->c[i];
            if (into && m->c[i] == cut)
                *to++ = (char)into;
        }
        to += sprintf(to, group ? ")" : "");
    }
    *to = 0;
}

/* "bchw->bc"; with q > 1 "(bq)chw->bc" or the like. */
static Attr first_half(Arena *a, const Sig *s, int cut, int64_t q)
{
    char in[128], out[128];
    int into = q > 1 ? unused(s, 'A') : 0;
    Attr at = {0};
    put_dims(in, &s->in[0], cut, into);
    put_dims(out, &s->out, 0, 0);
    at.sig = fmt(a, "%s->%c%s", in, cut, out);
    if (into) {
        at.letter = alloc(a, sizeof *at.letter);
        at.letter[at.nletter++] = (Letter){ .c = (char)into, .size = q };
    }
    return at;
}

/* "ab->b", of one dimension more than the result. */
static Attr second_half(Arena *a, int ndim)
{
    static const char all[] = "abcdefghij";
    return (Attr){ .sig = fmt(a, "%.*s->%.*s", ndim + 1, all, ndim, all + 1) };
}

/* Sums only: each letter of the result is one of the operand's. */
static bool sums(const Graph *g, const Node *n, const Sig *s)
{
    if (n->op != OP_move || n->type.ndim + 1 > NDIM || n->attr.nletter)
        return false;
    int single = 0;
    for (int d = 0; d < s->in[0].ndim; d++)
        single += s->in[0].dim[d].window;
    return !single && fuse_folds(g, n);
}

static Halves halves(const Graph *g, Ref r, Arena *a)
{
    const Node *n = &g->node[r];
    if (n->op != OP_move)
        return (Halves){0};
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    if (!sums(g, n, &s) || !sig_split(&s, g, n->in))
        return (Halves){0};
    int cut = outermost(g, &s, n->in[0]);
    int64_t q = cut && s.folded[cut] ? share(g, &s, cut) : 0;
    if (!q)
        return (Halves){0};
    return (Halves){ first_half(a, &s, cut, q),
                     second_half(a, n->type.ndim), true };
}

/* ---- rewriting ---- */

static Ref like(Graph *g, const Node *n, Ref r)
{
    Node *m = &g->node[r];
    m->scope = n->scope, m->segment = n->segment, m->loop = n->loop;
    m->stage = n->stage;
    return r;
}

/* The graph with these sums as two folds; first[r]: the first of node r's. */
static Graph *refolded(const Graph *in, Job *j, const Halves *h, Ref *first)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        first[r] = NONE;
        if (!h[r].ok) {
            copy_node(&c, r);
            continue;
        }
        first[r] = like(c.out, n, EMIT(c.out, OP_move, &h[r].first, n->loc,
                                       c.map[n->in[0]]));
        c.map[r] = like(c.out, n, EMIT(c.out, OP_move, &h[r].second, n->loc,
                                       first[r]));
        c.out->node[c.map[r]].name = n->name;
        c.out->node[c.map[r]].layout = n->layout;
    }
    return copy_end(&c);
}

/* Does the kernel of a first half fold rows by itself as well? */
static bool company(Fuse *f, Ref first, const bool *half)
{
    const List *l = &f->group[fuse_group(f, first)].node;
    for (uint32_t i = 0; i < l->n; i++)
        if (!half[l->at[i]] && fuse_folds(f->g, &f->g->node[l->at[i]]))
            return true;
    return false;
}

/* Puts back those without company; are some left? */
static bool worth(const Graph *in, Job *j, Halves *h)
{
    Ref *first = alloc(j->scratch, (in->n + 1) * sizeof *first);
    Graph *all = refolded(in, j, h, first);
    bool *half = alloc(j->scratch, all->n + 1), any = false;
    unsigned segments = 0;
    for (Ref r = 0; r < in->n; r++)
        segments |= h[r].ok ? 1u << in->node[r].segment : 0;
    Fuse *f = fuse_run_in(all, j, segments);
    for (Ref r = 0; r < in->n; r++)
        if (h[r].ok)
            half[first[r]] = half[first[r] + 1] = true;
    for (Ref r = 0; r < in->n; r++) {
        h[r].ok = h[r].ok && company(f, first[r], half);
        any |= h[r].ok;
    }
    arena_drop(j->keep, all->node);
    return any;
}

/* By node: is it a clone, or has it one? */
static bool *cloned(const Graph *g, Arena *a)
{
    bool *is = alloc(a, g->n + 1);
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].again != NONE)
            is[r] = is[g->node[r].again] = true;
    return is;
}

Graph *pass_refold(const Graph *in, Job *j)
{
    bool *fixed = cloned(in, j->scratch);
    Halves *h = alloc(j->scratch, (in->n + 1) * sizeof *h);
    Ref *first = alloc(j->scratch, (in->n + 1) * sizeof *first);
    bool any = false, ask = j->target && j->target->cost
        && !(j->plan && j->plan->exact);
    for (Ref r = 0; r < in->n && ask; r++) {
        h[r] = fixed[r] ? (Halves){0} : halves(in, r, j->keep);
        any |= h[r].ok;
    }
    if (any && !worth(in, j, h))
        memset(h, 0, in->n * sizeof *h);
    return refolded(in, j, h, first);
}
