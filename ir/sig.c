/* sig.c -- shape, sharding and work of a node, all from its op's signature.
 *
 * A signature such as "...mk, kn -> ...mn" names the dimensions of operands
 * and result.  Binding it to real operands gives each letter a size (the
 * shape rule), each letter an ordered split (the sharding rule, sig_type.c)
 * and the volume of the whole space (the cost).  The einsum view of sharding
 * is Shardy's (openxla/shardy, docs/propagation.md); windows and groups make
 * convolution and reshape ordinary rows. */
#include "ir/graph.h"
#include <ctype.h>
#include <stdlib.h>

typedef struct Reader {
    const char *p;                        /* what is left of the text */
    const char *op, *sig, *loc;           /* for messages */
    Sig *s;
    const Attr *attr;                     /* dim, for "..n.."; letters */
} Reader;

static void blank(Reader *r)
{
    r->p += strspn(r->p, " ");
}

static Dim *dim_new(Reader *r, Term *t)
{
    if (t->ndim == NDIM)
        err(r->loc, "%s: more than %d dimensions in \"%s\"", r->op, NDIM,
            r->sig);
    return &t->dim[t->ndim++];
}

static void dim_letter(Reader *r, Term *t, char c)
{
    Dim *d = dim_new(r, t);
    d->n = 1, d->c[0] = c;
}

/* "g?": there where the node gives its size. */
static bool is_absent(Reader *r)
{
    char c = r->p[0];
    if (r->p[1] != '?')
        return false;
    r->p++;
    for (int i = 0; i < r->attr->nletter; i++)
        if (r->attr->letter[i].c == c)
            return false;
    return true;
}

/* "(h d)" or "(h+k)", from after the parenthesis to after the other. */
static void dim_group(Reader *r, Term *t)
{
    Dim *d = dim_new(r, t);
    for (blank(r); *r->p && *r->p != ')'; r->p++, blank(r)) {
        if (*r->p == '+') {
            d->window = true;
            continue;
        }
        if (!isalpha((unsigned char)*r->p) || d->n == NDIM)
            err(r->loc, "%s: \"%s\" has a group that is not letters", r->op,
                r->sig);
        char c = *r->p;
        if (!is_absent(r))
            d->c[d->n++] = c;
    }
    if (!d->n || (d->window && d->n != 2) || *r->p != ')')
        err(r->loc, "%s: \"%s\" has a group that is not closed, or a window "
            "of other than two letters", r->op, r->sig);
    r->p++;
    if (d->window)
        r->s->fixed[(int)d->c[1]] = true;
}

/* Dimensions of the term that starts at p, each "..." as none. */
static int term_fixed_dims(const char *p)
{
    int n = 0, in = 0;
    for (; *p && *p != ',' && strncmp(p, "->", 2) != 0; p++) {
        n += (*p == '(') || (!in && isalpha((unsigned char)*p));
        in += *p == '(' ? 1 : *p == ')' ? -1 : 0;
    }
    return n;
}

/* "...": lead dimensions '0', '1', ...;  "..n!..": all, n at dim. */
static void dim_dots(Reader *r, Term *t, int lead)
{
    bool around = r->p[1] == '.' && isalpha((unsigned char)r->p[2]);
    const char *end = around ? r->p + 3 + (r->p[3] == '!') : r->p + 1;
    char c = around ? r->p[2] : 0;
    if (strncmp(end, "..", 2) != 0)
        err(r->loc, "%s: \"%s\" has dots that are not \"...\"", r->op, r->sig);
    for (int i = 0; i < lead + around; i++)
        dim_letter(r, t, around && i == r->attr->dim ? c : (char)('0' + i));
    if (around && r->p[3] == '!')
        r->s->fixed[(int)c] = true;
    r->p = end + 2;
}

/* A letter is one loop: a diagonal has no sharding. */
static void letters_once(const Reader *r, const Term *t)
{
    bool seen[NLETTER] = {0};
    for (int d = 0; d < t->ndim; d++)
        for (int k = 0; k < t->dim[d].n; k++) {
            bool *s = &seen[(int)t->dim[d].c[k]];
            if (*s)
                err(r->loc, "%s: \"%s\" names %c twice in one term", r->op,
                    r->sig, t->dim[d].c[k]);
            *s = true;
        }
}

/* Read one term; an operand of ndim dimensions leaves the rest to "...". */
static void term_read(Reader *r, Term *t, int lead)
{
    char last = 0;
    for (blank(r); *r->p && *r->p != ',' && strncmp(r->p, "->", 2) != 0;
         blank(r)) {
        if (*r->p == '.')
            dim_dots(r, t, lead);
        else if (*r->p == '(')
            r->p++, dim_group(r, t);
        else if (*r->p == '~')
            t->unread = true, r->p++;
        else if (*r->p == '#')
            t->integer = true, r->p++;
        else if (*r->p == '!')
            r->s->fixed[(int)last] = true, r->p++;
        else if (isalpha((unsigned char)*r->p))
            dim_letter(r, t, last = *r->p++);
        else
            err(r->loc, "%s: \"%s\" has an unexpected '%c'", r->op, r->sig,
                *r->p);
    }
    letters_once(r, t);
}

static void letter_size(Reader *r, char c, int64_t n)
{
    int64_t *size = &r->s->size[(int)c];
    if (*size && *size != n)
        err(r->loc, "%s: dimension %c is %lld in one operand and %lld in "
            "another", r->op, c, (long long)*size, (long long)n);
    *size = n;
}

/* The one letter of a group that has no size yet follows from the others. */
static void group_size(Reader *r, const Dim *d, int64_t n)
{
    int64_t known = 1;
    int unknown = -1;
    for (int i = 0; i < d->n; i++) {
        int64_t size = r->s->size[(int)d->c[i]];
        if (size)
            known *= size;
        else if (unknown >= 0)
            err(r->loc, "%s: \"%s\": the sizes of %c and %c do not follow from "
                "%lld; give one of them", r->op, r->sig, d->c[unknown], d->c[i],
                (long long)n);
        else
            unknown = i;
    }
    if (unknown >= 0 ? n % known != 0 : n != known)
        err(r->loc, "%s: \"%s\": a dimension of %lld cannot be %lld by the "
            "other letters of its group", r->op, r->sig, (long long)n,
            (long long)known);
    if (unknown >= 0)
        r->s->size[(int)d->c[unknown]] = n / known;
}

/* A window of extent n: the letter of places follows from the filter's. */
static void window_size(Reader *r, const Dim *d, int64_t n)
{
    Sig *s = r->s;
    int64_t k = s->size[(int)d->c[1]], *h = &s->size[(int)d->c[0]];
    if (!k)
        err(r->loc, "%s: \"%s\": no operand gives the size of %c", r->op,
            r->sig, d->c[1]);
    if (s->stride < 1 || s->dilate < 1 || s->pad < 0)
        err(r->loc, "%s: stride %d, dilate %d and pad %d; the least are 1, 1 "
            "and 0", r->op, s->stride, s->dilate, s->pad);
    int64_t span = n + 2 * s->pad - s->dilate * (k - 1) - 1;
    int64_t places = span < 0 ? 0 : span / s->stride + 1;
    if (places < 1)
        err(r->loc, "%s: a window of %lld does not fit into %lld with pad %d",
            r->op, (long long)(s->dilate * (k - 1) + 1), (long long)n, s->pad);
    if (*h && *h != places)
        err(r->loc, "%s: a window over %lld has %lld places, the other operand "
            "has %lld", r->op, (long long)n, (long long)places, (long long)*h);
    *h = places;
    s->extent[(int)d->c[0]] = n;
    s->windows = true;
}

enum { PLAIN, GROUPS, WINDOWS };

static void term_sizes(Reader *r, const Term *t, const Type *u, int what)
{
    for (int d = 0; d < t->ndim; d++) {
        const Dim *m = &t->dim[d];
        int kind = m->window ? WINDOWS : m->n > 1 ? GROUPS : PLAIN;
        if (kind != what)
            continue;
        if (what == PLAIN)
            letter_size(r, m->c[0], u->dim[d]);
        else if (what == GROUPS)
            group_size(r, m, u->dim[d]);
        else
            window_size(r, m, u->dim[d]);
    }
}

static void operand_terms(Reader *r, const Graph *g, Op op, const Ref *in,
                          int nin, int *lead)
{
    int want = ops[op].arity;
    for (int i = 0; i < nin; i++) {
        const Type *t = &g->node[in[i]].type;
        int rest = t->ndim - term_fixed_dims(r->p);
        bool around = strstr(r->p, "..") && strstr(r->p, "...") == NULL;
        term_read(r, &r->s->in[i], rest > 0 ? rest : 0);
        if (rest > *lead)
            *lead = rest;
        if (r->s->in[i].ndim != t->ndim)
            err(r->loc, "%s: operand %d has %d dimensions, \"%s\" wants %d",
                r->op, i + 1, t->ndim, r->sig, r->s->in[i].ndim);
        if (around && (r->attr->dim < 0 || r->attr->dim >= t->ndim))
            err(r->loc, "%s: dim=%d, but the operand has %d dimensions", r->op,
                r->attr->dim, t->ndim);
        if ((*r->p == ',') != (i + 1 < want))
            err(r->loc, "%s takes %d operands, \"%s\" names another number",
                r->op, want, r->sig);
        r->p += *r->p == ',';
    }
}

/* "@4 d!": letters of the node's signature that the row does not split. */
static void mark_fixed(Sig *s, Op op)
{
    const char *p = strchr(ops[op].sig, ' ');
    for (; ops[op].sig[0] == '@' && p && p[1]; p += 2)
        s->fixed[(int)p[1]] = true;
}

static void mark_folded(Sig *s)
{
    bool left[NLETTER] = {0}, right[NLETTER] = {0};
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim && !s->in[i].unread; d++)
            for (int k = 0; k < s->in[i].dim[d].n; k++)
                left[(int)s->in[i].dim[d].c[k]] = true;
    for (int d = 0; d < s->out.ndim; d++)
        for (int k = 0; k < s->out.dim[d].n; k++)
            right[(int)s->out.dim[d].c[k]] = true;
    for (int c = 0; c < NLETTER; c++)
        s->folded[c] = left[c] && !right[c];
}

/* slice and pad, concat: their letters m, k are sized by the attributes. */
static void index_sizes(Reader *r, Op op, const Attr *a)
{
    int64_t *size = r->s->size, n = size['n'], m = size['m'];
    if (op == OP_slice) {
        if (a->at < 0 || a->size < 1 || a->at + a->size > n)
            err(r->loc, "slice: %lld elements from %lld of a dimension of %lld",
                (long long)a->size, (long long)a->at, (long long)n);
        size['m'] = a->size;
    }
    if (op == OP_pad && (a->at < 0 || a->at + m > n))
        err(r->loc, "pad: %lld elements from %lld do not fit into %lld",
            (long long)m, (long long)a->at, (long long)n);
    if (op == OP_concat)
        size['k'] = m + n;
}

static void all_sized(const Reader *r)
{
    const Term *t = &r->s->out;
    for (int d = 0; d < t->ndim; d++) {
        if (t->dim[d].window && !r->s->extent[(int)t->dim[d].c[0]])
            err(r->loc, "%s: \"%s\": no operand gives the length under the "
                "window of %c", r->op, r->sig, t->dim[d].c[0]);
        for (int k = 0; k < t->dim[d].n; k++)
            if (!r->s->size[(int)t->dim[d].c[k]])
                err(r->loc, "%s: \"%s\": nothing gives the size of %c; write "
                    "%c=...", r->op, r->sig, t->dim[d].c[k], t->dim[d].c[k]);
    }
}

/* total: any number of scalars, one result. */
static Sig bind_variadic(const Graph *g, Op op, const Ref *in, int nin,
                         const char *loc)
{
    Sig s = { .nin = 1, .nop = nin, .stride = 1, .dilate = 1 };
    if (nin < 1)
        err(loc, "%s wants at least one operand", ops[op].name);
    for (int i = 0; i < nin; i++)
        if (g->node[in[i]].type.ndim)
            err(loc, "%s: operand %d has %d dimensions, only scalars are "
                "summed", ops[op].name, i + 1, g->node[in[i]].type.ndim);
    return s;
}

static Sig bind(const Graph *g, Op op, const Attr *a, const Ref *in, int nin,
                const char *loc)
{
    Sig s = { .nin = nin, .nop = nin, .stride = a->stride ? a->stride : 1,
              .pad = a->pad, .dilate = a->dilate ? a->dilate : 1,
              .uneven = op == OP_move };
    bool own = ops[op].sig[0] == '@';
    Reader r = { own ? a->sig : ops[op].sig, ops[op].name, NULL, loc, &s,
                 a };
    int lead = 0;

    if (nin != ops[op].arity)
        err(loc, "%s takes %d operands, not %d", r.op, ops[op].arity, nin);
    if (!r.p || !strstr(r.p, "->"))
        err(loc, "%s wants a signature such as \"bnk,km->bnm\"", r.op);
    r.sig = r.p;
    operand_terms(&r, g, op, in, nin, &lead);
    blank(&r);
    r.p += 2;
    term_read(&r, &s.out, lead);
    for (int i = 0; i < a->nletter; i++)
        letter_size(&r, a->letter[i].c, a->letter[i].size);
    for (int what = PLAIN; what <= WINDOWS; what++)
        for (int i = 0; i < nin; i++)
            term_sizes(&r, &s.in[i], &g->node[in[i]].type, what);
    index_sizes(&r, op, a);
    all_sized(&r);
    if (own)
        mark_fixed(&s, op);
    mark_folded(&s);
    return s;
}

/* ---- what was bound before ---- */

enum { BOUND = 1 << 10, TEXT = 64, LETTERS = 6 };   /* BOUND: a power of two */

/* A binding follows from sizes and attributes alone, and a network of equal
 * blocks has few of them: the last of each hash is kept. */
typedef struct Bound {
    Op op;
    int nin, nletter, ndim[NIN], rest[4];
    int64_t dim[NIN][NDIM], at, size;
    char sig[TEXT], c[LETTERS];
    int64_t letter[LETTERS];
    bool known;
    Sig s;
} Bound;

static uint64_t bound_hash(const Graph *g, Op op, const Attr *a, const Ref *in,
                           int nin)
{
    uint64_t h = op, by = 0x9e3779b97f4a7c15u;
    for (const char *p = a->sig; p && *p; p++)
        h = (h ^ (uint8_t)*p) * by;
    for (int i = 0; i < nin; i++) {
        const Type *t = &g->node[in[i]].type;
        for (int d = 0; d < t->ndim; d++)
            h = (h ^ (uint64_t)t->dim[d]) * by;
        h = (h ^ (uint64_t)t->ndim) * by;
    }
    for (int i = 0; i < a->nletter; i++)
        h = (h ^ (uint64_t)a->letter[i].size) * by;
    return (h ^ (uint64_t)(a->at + 64 * a->dim)) * by;
}

static bool bound_equal(const Bound *b, const Graph *g, Op op, const Attr *a,
                        const Ref *in, int nin)
{
    bool same = b->known && b->op == op && b->nin == nin && b->at == a->at
        && b->nletter == a->nletter && b->size == a->size
        && b->rest[0] == a->dim && b->rest[1] == a->stride
        && b->rest[2] == a->pad && b->rest[3] == a->dilate
        && strcmp(b->sig, a->sig ? a->sig : "") == 0;
    for (int i = 0; same && i < a->nletter; i++)
        same = b->c[i] == a->letter[i].c && b->letter[i] == a->letter[i].size;
    for (int i = 0; same && i < nin; i++) {
        const Type *t = &g->node[in[i]].type;
        same = b->ndim[i] == t->ndim
            && memcmp(b->dim[i], t->dim, (size_t)t->ndim * sizeof *t->dim) == 0;
    }
    return same;
}

static void bound_keep(Bound *b, const Graph *g, Op op, const Attr *a,
                       const Ref *in, int nin)
{
    b->known = nin <= NIN && a->nletter <= LETTERS
        && (!a->sig || strlen(a->sig) < TEXT);
    if (!b->known)
        return;
    b->op = op, b->nin = nin, b->nletter = a->nletter;
    b->at = a->at, b->size = a->size;
    b->rest[0] = a->dim, b->rest[1] = a->stride;
    b->rest[2] = a->pad, b->rest[3] = a->dilate;
    strcpy(b->sig, a->sig ? a->sig : "");
    for (int i = 0; i < a->nletter; i++)
        b->c[i] = a->letter[i].c, b->letter[i] = a->letter[i].size;
    for (int i = 0; i < nin; i++) {
        b->ndim[i] = g->node[in[i]].type.ndim;
        memcpy(b->dim[i], g->node[in[i]].type.dim, sizeof b->dim[i]);
    }
}

Sig sig_bind(const Graph *g, Op op, const Attr *a, const Ref *in, int nin,
             const char *loc)
{
    static _Thread_local Bound bound[BOUND];
    static const Attr none;
    a = a ? a : &none;
    if (ops[op].arity < 0)
        return bind_variadic(g, op, in, nin, loc);
    Bound *b = &bound[bound_hash(g, op, a, in, nin) >> 32 & (BOUND - 1)];
    if (bound_equal(b, g, op, a, in, nin))
        return b->s;
    Sig s = bind(g, op, a, in, nin, loc);
    bound_keep(b, g, op, a, in, nin);
    if (b->known)
        b->s = s;
    return s;
}

bool sig_folds(const Sig *s)
{
    for (int c = 0; c < NLETTER; c++)
        if (s->folded[c])
            return true;
    return false;
}

double sig_points(const Sig *s)
{
    double v = 1;
    for (int c = 0; c < NLETTER; c++)
        if (s->size[c])
            v *= (double)s->size[c];
    return v;
}

/* One product of the polynomial at *p, and what stands behind it; letters that
 * no product names count in all. */
static double product(const char *poly, const char **p, const int64_t *size)
{
    char *end;
    double v = strtod(*p, &end);
    *p = end;
    for (; isalpha((unsigned char)**p); ++*p)
        v *= (double)size[(int)**p];
    *p += **p == '+';
    for (int c = 0; c < NLETTER; c++)
        if (size[c] && !(isalpha(c) && strchr(poly, c)))
            v *= (double)size[c];
    return v;
}

static double sig_flops(const Sig *s, Op op)
{
    const char *poly = ops[op].flops, *p = poly;
    double v = 0;
    if (!poly)
        return ops[op].work * sig_points(s);
    while (*p)
        v += product(poly, &p, s->size);
    return v;
}

double node_flops(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    if (n->nin == 0 || ops[n->op].family == FAMILY_collective)
        return 0;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    double v = sig_flops(&s, n->op);
    sig_split(&s, g, n->in);
    for (int c = 0; c < NLETTER; c++)
        if (s.split[c])
            v /= (double)split_parts(&g->mesh, s.split[c]);
    return v;
}

/* ---- transposing: the VJP "T" ---- */

static int term_text(const Term *t, char *p)
{
    int n = 0;
    for (int d = 0; d < t->ndim; d++) {
        const Dim *m = &t->dim[d];
        if (m->n > 1)
            p[n++] = '(';
        for (int k = 0; k < m->n; k++) {
            if (m->window && k)
                p[n++] = '+';
            p[n++] = m->c[k];
        }
        if (m->n > 1)
            p[n++] = ')';
    }
    return n;
}

/* Lead dimensions are digits inside; a text wants letters that are free. */
static void spell_digits(Sig *s)
{
    char as[NLETTER] = {0}, next = 'A';
    Term *t[NTERM + 1];
    int n = 0;
    for (int i = 0; i < s->nin; i++)
        t[n++] = &s->in[i];
    t[n++] = &s->out;
    for (int i = 0; i < n; i++)
        for (int d = 0; d < t[i]->ndim; d++)
            for (int k = 0; k < t[i]->dim[d].n; k++) {
                char *c = &t[i]->dim[d].c[k];
                if (!isdigit((unsigned char)*c))
                    continue;
                while (!as[(int)*c] && s->size[(int)next])
                    next++;
                if (!as[(int)*c]) {
                    as[(int)*c] = next;
                    s->size[(int)next] = s->size[(int)*c];
                }
                *c = as[(int)*c];
            }
}

Attr sig_attr(const Sig *given, Arena *arena)
{
    Sig s = *given;
    Attr a = {0};
    char text[256], *p = text;
    bool bound[NLETTER] = {0};

    spell_digits(&s);
    for (int k = 0; k < s.nin; k++) {
        if (k)
            *p++ = ',';
        p += term_text(&s.in[k], p);
        for (int d = 0; d < s.in[k].ndim; d++)
            if (s.in[k].dim[d].n == 1)
                bound[(int)s.in[k].dim[d].c[0]] = true;
    }
    *p++ = '-', *p++ = '>';
    p += term_text(&s.out, p);
    *p = 0;
    a.sig = fmt(arena, "%s", text);
    a.letter = alloc(arena, NLETTER / 2 * sizeof *a.letter);
    for (int c = 'A'; c <= 'z'; c++) {
        bool used = strchr(text, c) != NULL;
        if (used && isalpha(c) && s.size[c] && !bound[c])
            a.letter[a.nletter++] = (Letter){ (char)c, s.size[c], 0 };
    }
    return a;
}

Attr sig_transpose(const Sig *given, Arena *arena, int i)
{
    Sig s = *given;
    s.in[i] = given->out, s.out = given->in[i];
    return sig_attr(&s, arena);
}
