/* eval_node.c -- one op on one rank and turn: a loop nest over its letters.
 *
 * Every letter of the signature is a loop; an operand's address, the result's
 * address and the position in each window are linear in the loop counters.
 * Points outside a window are skipped, letters that the result does not have
 * are folded.  Loops that lie one behind the other in all operands are
 * merged, the longest goes innermost and is cut into strips, on which the
 * op's program runs.  Sums of products, which contractions are, take the
 * numbers where they lie.  Nothing here knows an op by name but `total`-like
 * rows of any number of operands.
 *
 * Where a letter is split and its size is no multiple, loops end at the
 * tensor's end: padding is never read into a fold. */
#include "ir/eval_node.h"
#include "ir/field.h"

#include <math.h>

/* What moves with the loops: operands, the result, positions in windows. */
enum { RESULT = NIN, WINDOW = NIN + 1, NSLOT = WINDOW + 2 * NDIM };
enum { NLOOP = 32 };

typedef struct Loop { int64_t n, step[NSLOT]; } Loop;

typedef struct Nest {
    Domain domain;
    Fold fold;
    int nin, nloop, nwindow;
    Loop loop[NLOOP];                     /* innermost last */
    int64_t off[NSLOT];                   /* where the counters stand */
    int64_t limit[NSLOT];                 /* of windows */
    bool pure;                            /* each result point visited once */
    bool products;                        /* sums of products of these */
    int factor[2];
    const Prog *prog;
    Regs *regs;
    bool reads[NIN];
    const Num *const *in;
    Num *out;
    Num (*strip)[STRIP];                  /* by operand */
} Nest;

/* ---- making the nest ---- */

Sig eval_sig(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);

    sig_split(&s, g, n->in);
    for (int i = 0; i < n->attr.nletter; i++) {
        const Letter *l = &n->attr.letter[i];
        if (l->split)
            s.split[(int)l->c] = l->split;
    }
    return s;
}

int64_t eval_extent(const Mesh *m, Split split, int64_t n, const int *coord,
                    int64_t *at)
{
    Part p = split_part(m, split, n, coord);
    *at = p.at;
    return p.n;
}

/* Loop of each letter that the nest has: those of the result first. */
typedef struct Letters { int loop[NLETTER]; } Letters;

/* Do places c, of others too, make rows of the result? */
static bool makes_rows(const Sig *s, int c)
{
    for (int d = 0; d < s->out.ndim; d++)
        if (s->out.dim[d].window && s->out.dim[d].c[0] == c)
            return true;
    return false;
}

static void term_loops(Nest *t, Letters *l, const Sig *s, const Term *term,
                       const Graph *g, const Place *p)
{
    int64_t at;
    for (int d = 0; d < term->ndim; d++)
        for (int k = 0; k < term->dim[d].n; k++) {
            int c = term->dim[d].c[k];
            if (l->loop[c] >= 0)
                continue;
            if (t->nloop == NLOOP)
                die("more than %d letters", NLOOP);
            l->loop[c] = t->nloop++;
            int64_t mine = eval_extent(&g->mesh, s->split[c], s->size[c],
                                       p->coord, &at);
            int64_t room = sig_extent(s, &g->mesh, c);
            t->loop[l->loop[c]].n = makes_rows(s, c) ? room : mine;
        }
}

static void window_slots(Nest *t, const Letters *l, const Sig *s,
                         const Dim *m, int64_t size, int slot, int64_t stride)
{
    Loop *h = &t->loop[l->loop[(int)m->c[0]]];
    Loop *k = &t->loop[l->loop[(int)m->c[1]]];
    int w = WINDOW + t->nwindow++;

    if (w >= NSLOT)
        die("too many windows");
    h->step[slot] += stride * s->stride, k->step[slot] += stride * s->dilate;
    h->step[w] = s->stride, k->step[w] = s->dilate;
    t->off[slot] -= stride * sig_pad(s, m->c[0]);
    t->off[w] = -sig_pad(s, m->c[0]);
    t->limit[w] = size;
}

/* Strides of one operand or of the result, of type w; of the result, rows of
 * padding are not made. */
static void term_steps(Nest *t, const Letters *l, const Graph *g,
                       const Sig *s, const Term *term, const Type *w, int slot,
                       const int *coord)
{
    Type local = type_local(&g->mesh, w), *u = &local;
    int64_t stride = 1;
    for (int d = term->ndim; d-- > 0; stride *= u->dim[d]) {
        const Dim *m = &term->dim[d];
        if (m->window) {
            int64_t rows = slot == RESULT
                ? type_part(&g->mesh, w, d, coord).n : u->dim[d];
            window_slots(t, l, s, m, rows, slot, stride);
            continue;
        }
        int64_t inner = stride;
        for (int k = m->n; k-- > 0;) {
            int c = m->c[k];
            t->loop[l->loop[c]].step[slot] += inner;
            inner *= sig_extent(s, &g->mesh, c);
        }
        if (inner != stride * u->dim[d])
            die("letters of dimension %d span %lld, the part has %lld", d,
                (long long)(inner / stride), (long long)u->dim[d]);
    }
}

static bool mergeable(const Nest *t, const Loop *outer, const Loop *inner)
{
    for (int i = 0; i < WINDOW + t->nwindow; i++)
        if (outer->step[i] != inner->step[i] * inner->n)
            return false;
    return true;
}

/* Loops of one turn vanish, neighbours that are one line become one loop. */
static void merge(Nest *t)
{
    int n = 0;
    for (int i = 0; i < t->nloop; i++) {
        if (t->loop[i].n == 1)
            continue;
        if (n && mergeable(t, &t->loop[n - 1], &t->loop[i])) {
            t->loop[i].n *= t->loop[n - 1].n;
            n--;
        }
        t->loop[n++] = t->loop[i];
    }
    if (n == 0)
        t->loop[n++] = (Loop){ .n = 1 };
    t->nloop = n;
}

/* The longest goes innermost; of equals the one along the result's memory. */
static void choose_inner(Nest *t)
{
    int best = 0;
    int64_t most = -1;

    for (int i = 0; i < t->nloop; i++) {
        const Loop *l = &t->loop[i];
        int64_t score = 4 * (l->n < STRIP / 2 ? l->n : STRIP / 2)
                        + 2 * (l->step[RESULT] == 1) + (l->step[0] == 1);
        if (score >= most)
            best = i, most = score;
    }
    Loop inner = t->loop[best];
    for (int i = best; i + 1 < t->nloop; i++)
        t->loop[i] = t->loop[i + 1];
    t->loop[t->nloop - 1] = inner;
}

static void build(Nest *t, const Graph *g, Ref r, const Place *p)
{
    const Node *n = &g->node[r];
    Sig s = eval_sig(g, r);
    Letters l;

    memset(l.loop, -1, sizeof l.loop);
    term_loops(t, &l, &s, &s.out, g, p);
    int kept = t->nloop;
    for (int i = 0; i < s.nin; i++)
        if (t->reads[i])
            term_loops(t, &l, &s, &s.in[i], g, p);
    t->pure = kept == t->nloop;
    term_steps(t, &l, g, &s, &s.out, &n->type, RESULT, p->coord);
    for (int i = 0; i < s.nin; i++)
        if (t->reads[i])
            term_steps(t, &l, g, &s, &s.in[i], &g->node[n->in[i]].type, i,
                       p->coord);
    t->pure &= t->nwindow == 0;
}

/* ---- walking it ---- */

/* Part of the strip [from, to) of the innermost loop inside all windows. */
static void inside(const Nest *t, int64_t *from, int64_t *to)
{
    const Loop *l = &t->loop[t->nloop - 1];
    for (int w = WINDOW; w < WINDOW + t->nwindow; w++) {
        int64_t at = t->off[w], step = l->step[w], end = t->limit[w] - at;
        if (step == 0) {
            if (at < 0 || end <= 0)
                *to = *from;
            continue;
        }
        int64_t lo = at < 0 ? (-at + step - 1) / step : 0;
        int64_t hi = end <= 0 ? 0 : (end + step - 1) / step;
        *from = lo > *from ? lo : *from;
        *to = hi < *to ? hi : *to;
    }
}

static void load(Nest *t, int64_t from, int n)
{
    const Loop *l = &t->loop[t->nloop - 1];
    for (int i = 0; i < t->nin; i++) {
        if (!t->reads[i])
            continue;
        int64_t step = l->step[i];
        const Num *x = t->in[i] + t->off[i] + from * step;
        Num *to = t->strip[i];
        if (step == 1) {
            regs_arg(t->regs, i, x);
            continue;
        }
        for (int k = 0; k < n; k++)
            to[k] = x[k * step];
        regs_arg(t->regs, i, to);
    }
}

/* The usual folds over a strip, without a call a point. */
static Num fold_strip(const Nest *t, Num acc, const Num *x, int n)
{
    if (t->domain == FIELD && t->fold != FOLD_MAX)
        for (int k = 0; k < n; k++)
            acc.f = field_add(acc.f, x[k].f);
    else if (t->domain == REAL && t->fold == FOLD_SUM)
        for (int k = 0; k < n; k++)
            acc.r += x[k].r;
    else
        for (int k = 0; k < n; k++)
            acc = num_fold(t->domain, t->fold, acc, x[k]);
    return acc;
}

static void fold_into(const Nest *t, Num *to, int64_t step, const Num *x,
                      int n)
{
    if (t->domain == FIELD && t->fold != FOLD_MAX)
        for (int k = 0; k < n; k++)
            to[k * step].f = field_add(to[k * step].f, x[k].f);
    else if (t->domain == REAL && t->fold == FOLD_SUM)
        for (int k = 0; k < n; k++)
            to[k * step].r += x[k].r;
    else
        for (int k = 0; k < n; k++)
            to[k * step] = num_fold(t->domain, t->fold, to[k * step], x[k]);
}

/* Products below 2^122, so many that their sum has 128 bits, and is reduced
 * once. */
enum { WIDE = 32 };

static uint64_t field_dot(uint64_t acc, const Num *x, int64_t sx, const Num *y,
                          int64_t sy, int64_t n)
{
    unsigned __int128 sum = acc;
    for (int64_t k = 0; k < n;) {
        int64_t to = n - k < WIDE ? n : k + WIDE;
        for (; k < to; k++)
            sum += (unsigned __int128)x[k * sx].f * y[k * sy].f;
        sum = (sum & FIELD_P) + (sum >> 61);
    }
    return field_mod((uint64_t)(sum & FIELD_P) + (uint64_t)(sum >> 61));
}

/* The innermost loop of sums of products; the order of sums is that of the
 * strips.  Not inlined: what the walk keeps in registers would lie in theirs. */
__attribute__((noinline)) static void products(const Nest *t, int64_t from, int64_t n)
{
    const Loop *l = &t->loop[t->nloop - 1];
    int a = t->factor[0], b = t->factor[1];
    int64_t sx = l->step[a], sy = l->step[b], step = l->step[RESULT];
    const Num *x = t->in[a] + t->off[a] + from * sx;
    const Num *y = t->in[b] + t->off[b] + from * sy;
    Num *to = t->out + t->off[RESULT] + from * step;

    if (t->domain == FIELD && step == 0)
        to->f = field_dot(to->f, x, sx, y, sy, n);
    else if (t->domain == FIELD)
        for (int64_t k = 0; k < n; k++)
            to[k * step].f = field_add(to[k * step].f,
                                       field_mul(x[k * sx].f, y[k * sy].f));
    else if (step == 0)
        for (int64_t k = 0; k < n; k++)
            to->r += x[k * sx].r * y[k * sy].r;
    else
        for (int64_t k = 0; k < n; k++)
            to[k * step].r += x[k * sx].r * y[k * sy].r;
}

/* The innermost loop at the present counters. */
static void line(Nest *t)
{
    const Loop *l = &t->loop[t->nloop - 1];
    int64_t from = 0, to = l->n, step = l->step[RESULT];
    Num buf[STRIP];

    inside(t, &from, &to);
    if (t->products && from < to) {
        products(t, from, to - from);
        return;
    }
    for (; from < to; from += STRIP) {
        int n = to - from < STRIP ? (int)(to - from) : STRIP;
        Num *out = t->out + t->off[RESULT] + from * step;
        load(t, from, n);
        if (t->pure && step == 1) {
            prog_run(t->prog, t->regs, n, out);
            continue;
        }
        prog_run(t->prog, t->regs, n, buf);
        if (t->pure)
            for (int k = 0; k < n; k++)
                out[k * step] = buf[k];
        else if (step == 0)
            *out = fold_strip(t, *out, buf, n);
        else
            fold_into(t, out, step, buf, n);
    }
}

static void move_on(Nest *t, const Loop *l, int64_t times)
{
    for (int i = 0; i < WINDOW + t->nwindow; i++)
        t->off[i] += l->step[i] * times;
}

static void walk(Nest *t)
{
    int64_t at[NLOOP] = {0};

    for (int i = 0; i < t->nloop; i++)
        if (t->loop[i].n == 0)
            return;
    for (;;) {
        line(t);
        int i = t->nloop - 2;
        for (; i >= 0 && ++at[i] == t->loop[i].n; i--) {
            move_on(t, &t->loop[i], 1 - t->loop[i].n);
            at[i] = 0;
        }
        if (i < 0)
            return;
        move_on(t, &t->loop[i], 1);
    }
}

/* A row of any number of operands: its EXPR joins two at a time. */
static void variadic(const Node *n, Domain domain, const Num *const *in,
                     Num *out)
{
    const Prog *p = prog_of(n->op, domain);
    Regs *regs = regs_new(p);
    Num acc = *in[0], next;

    for (int i = 1; i < n->nin; i++, acc = next) {
        regs_arg(regs, 0, &acc);
        regs_arg(regs, 1, in[i]);
        prog_run(p, regs, 1, &next);
    }
    *out = acc;
    regs_free(regs);
}

static void nest(const Graph *g, Ref r, Domain domain, const Place *p,
                 const Num *const *in, Num *out)
{
    const Node *n = &g->node[r];
    Type u = type_local(&g->mesh, &n->type);
    int64_t volume = type_volume(&u);
    Num strip[NIN][STRIP];
    Nest t = { .domain = domain, .fold = ops[n->op].fold, .nin = n->nin,
               .in = in, .out = out, .prog = prog_of(n->op, domain),
               .strip = strip };

    for (int i = 0; i < n->nin; i++)
        t.reads[i] = prog_reads(t.prog, i);
    build(&t, g, r, p);
    Num identity = num_identity(domain, t.fold);
    for (int64_t i = 0; i < volume; i++)
        out[i] = identity;
    merge(&t);
    choose_inner(&t);
    bool sums = domain == FIELD ? t.fold != FOLD_MAX : t.fold == FOLD_SUM;
    t.products = sums && !t.pure && prog_product(t.prog, t.factor);
    t.regs = regs_new(t.prog);
    walk(&t);
    regs_free(t.regs);
}

/* Line by line of the last dimension, padding 0. */
static void leaf(const Graph *g, Ref r, Domain domain, const Place *p,
                 Num *out)
{
    const Node *n = &g->node[r];
    Type u = type_local(&g->mesh, &n->type);
    int last = u.ndim - 1;
    int64_t volume = type_volume(&u), idx[NDIM] = {0}, lo[NDIM], size[NDIM];
    int64_t line = u.ndim ? u.dim[last] : 1;

    for (int d = 0; d < u.ndim; d++)
        size[d] = eval_extent(&g->mesh, n->type.split[d], n->type.dim[d],
                              p->coord, &lo[d]);
    memset(out, 0, (size_t)volume * sizeof *out);
    for (int64_t i = 0; i < volume; i += line) {
        int64_t at = 0, held = u.ndim ? size[last] : 1;
        for (int d = 0; d < u.ndim; d++) {
            at = at * n->type.dim[d] + lo[d] + idx[d];
            held = idx[d] < size[d] ? held : 0;
        }
        eval_leaf(n, domain, p, at, held, out + i);
        for (int d = last; d-- > 0 && ++idx[d] == u.dim[d];)
            idx[d] = 0;
    }
}

/* Casts to whole numbers: toward zero, NaN is 0, what is too large the
 * largest, as kernels have it.  In the field they are the identity. */
static void to_whole(DType d, int64_t n, Num *x)
{
    double least = d == U8 ? 0 : INT32_MIN, most = d == U8 ? 255 : INT32_MAX;
    for (int64_t i = 0; i < n && (d == U8 || d == I32); i++)
        x[i].r = isnan(x[i].r) ? 0 : trunc(fmin(fmax(x[i].r, least), most));
}

void eval_part(const Graph *g, Ref r, Domain domain, const Place *p,
               const Num *const *in, Num *out)
{
    const Node *n = &g->node[r];
    Type u = type_local(&g->mesh, &n->type);

    if (n->op == OP_grad)
        die("%s: grad nodes have no value before the grad pass", n->name);
    if (ops[n->op].family == FAMILY_collective)
        die("%s: a collective is more than one rank's work", n->name);
    if (ops[n->op].leaf)
        leaf(g, r, domain, p, out);
    else if (ops[n->op].arity < 0)
        variadic(n, domain, in, out);
    else if (ops[n->op].family == FAMILY_index)
        eval_index(g, r, in, out);
    else if (ops[n->op].family == FAMILY_take)
        eval_take(g, r, domain, p, in, out);
    else if (ops[n->op].family == FAMILY_attention)
        eval_attention(g, r, domain, p, in, out);
    else if (ops[n->op].family == FAMILY_pack
             || ops[n->op].family == FAMILY_copy
             || ops[n->op].family == FAMILY_hop)
        memcpy(out, in[0], (size_t)type_volume(&u) * sizeof *out);
    else
        nest(g, r, domain, p, in, out);
    if (n->op == OP_cast && domain == REAL)
        to_whole(n->type.dtype, type_volume(&u), out);
}

void eval_node(const Graph *g, Ref r, Domain domain, const Num *const *in,
               Num *out)
{
    static const int origin[NAXIS];
    eval_part(g, r, domain, &(Place){ .coord = origin }, in, out);
}
