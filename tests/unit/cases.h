/* cases.h -- calls of every row of the op table, made from its signature:
 * operand types, graphs of one node, numbers.  For test programs. */
#ifndef DPC_CASES_H
#define DPC_CASES_H

#include "ir/eval.h"
#include "passes/pass.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LOC "test_ops.c:1"

typedef struct Case {
    Op op;
    Attr attr;
    int nin;
    Type in[NIN];
} Case;

enum { NCASE = 16 };
static Arena *arena;

/* ---- operands from signatures ---- */

static int64_t size_of(char c, bool odd)
{
    switch (c) {
    case 'b': case 'c': case 'e': return odd ? 3 : 2;
    case 'k': case 'l': return 3;
    case 'n': case 'v': return odd ? 7 : 6;
    default: return odd ? 5 : 4;
    }
}

static int64_t window(const Attr *a, char h, char k, bool odd)
{
    int64_t s = a->stride ? a->stride : 1, d = a->dilate ? a->dilate : 1;
    return (size_of(h, odd) - 1) * s + (size_of(k, odd) - 1) * d + 1
           - 2 * a->pad + (s - 1);
}

/* One term, "..." being two dimensions. */
static const char *operand(const char *p, const Attr *a, bool odd, Type *t)
{
    int64_t lead[2] = { odd ? 3 : 4, odd ? 5 : 2 };
    for (; *p && *p != ',' && strncmp(p, "->", 2) != 0; p++) {
        bool around = strncmp(p, "..", 2) == 0 && p[2] != '.';
        if (*p == '#') {
            t->dtype = I32;
        } else if (*p == '(') {
            bool win = p[2] == '+', may = p[2] == '?';
            t->dim[t->ndim] = win ? window(a, p[1], p[3], odd)
                : may ? size_of(p[3], odd) * (a->nletter ? 2 : 1)
                : size_of(p[1], odd) * size_of(p[2], odd);
            t->ndim++, p = strchr(p, ')');
        } else if (*p == '.') {
            for (int i = 0; i < 2 + around; i++)
                t->dim[t->ndim++] = !around ? lead[i]
                    : i == a->dim ? size_of(p[2], odd) : lead[i > a->dim];
            p = around ? strstr(p + 2, "..") + 1 : p + 2;
        } else if (isalpha((unsigned char)*p)) {
            t->dim[t->ndim++] = size_of(*p, odd);
        }
    }
    return p + (*p == ',');
}

static void add_case(Case *c, int *n, Op op, Attr a, bool odd)
{
    const char *p = a.sig ? a.sig : ops[op].sig;
    assert_true(*n < NCASE);
    Case *k = &c[(*n)++];
    *k = (Case){ .op = op, .attr = a };
    k->nin = ops[op].arity < 0 ? 3 : ops[op].arity;
    for (int i = 0; i < k->nin && ops[op].arity > 0; i++)
        p = operand(p, &a, odd, &k->in[i]);
}

/* Letters of the signature that operands do not size. */
static Attr own(const char *sig, const char *letters, bool odd)
{
    Attr a = { .sig = sig };
    a.letter = alloc(arena, 8 * sizeof *a.letter);
    for (; *letters; letters++)
        a.letter[a.nletter++] = (Letter){ *letters, size_of(*letters, odd), 0 };
    return a;
}

/* A letter of the result alone: what folds otherwise does not repeat. */
static bool repeats(const char *sig)
{
    const char *right = strstr(sig, "->") + 2;
    for (; *right; right++)
        if (isalpha((unsigned char)*right) && strchr(sig, *right) == right)
            return true;
    return false;
}

/* Heads with keys of their own and shared ones; a mask of keys, of both. */
static int attention_cases(Op op, Case *c, bool odd)
{
    static const char *const q = "bhqd", *const y = "bhqe", *const lse = "bhq",
        *const own[][3] = { { "bhsd", "bhse", "bs" },
                            { "bsd", "bse", "bqs" } };
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const char *k = own[i][0], *v = own[i][1], *m = own[i][2];
        const char *sig = op == OP_attn ? fmt(arena, "%s,%s,%s,%s->%s", q, k,
                                              v, m, y)
            : op == OP_attn_lse ? fmt(arena, "%s,%s,%s->%s", q, k, m, lse)
            : op == OP_attn_out ? fmt(arena, "%s,%s,%s,%s,%s->%s", q, k, v, m,
                                      lse, y)
            : op == OP_attn_dv ? fmt(arena, "%s,%s,%s,%s,%s->%s", q, k, m,
                                     lse, y, v)
            : fmt(arena, "%s,%s,%s,%s,%s,%s,%s->%s", q, k, v, m, lse, y, y,
                  op == OP_attn_dq ? q : k);
        add_case(c, &n, op, (Attr){ .sig = sig }, odd);
    }
    return n;
}

static int own_cases(Op op, Case *c, bool odd)
{
    static const char *const one[][2] = {
        { "abc->cab", "" }, { "abc->b", "" }, { "ab->", "" },
        { "ab->adb", "d" }, { "(ab)c->acb", "b" }, { "abc->(ab)c", "" },
        { "->ab", "ab" }, { "ab(cd)->b", "d" },
    }, *const two[][2] = {
        { "bnk,km->bnm", "" }, { "abmd,abnd->abmn", "" }, { "a,b->ab", "" },
        { "ab,ab->", "" }, { "ab,b->ab", "" }, { "ab,(bc)d->acd", "" },
        { "ab,b->dab", "d" },
    };
    int n = 0, arity = ops[op].arity;
    if (ops[op].family == FAMILY_attention)
        return attention_cases(op, c, odd);
    for (int i = 0; arity == 1 && i < COUNT(one); i++)
        if (ops[op].fold == FOLD_SUM || !repeats(one[i][0]))
            add_case(c, &n, op, own(one[i][0], one[i][1], odd), odd);
    for (int i = 0; arity == 2 && i < COUNT(two); i++)
        add_case(c, &n, op, own(two[i][0], two[i][1], odd), odd);
    return n;
}

/* Ways to call the row; none for leaves, grad, and what is not one rank's. */
static int cases_of(Op op, Case *c, bool odd)
{
    static const int windows[][3] = {     /* stride, pad, dilate */
        { 1, 0, 1 }, { 1, 1, 1 }, { 2, 1, 1 }, { 1, 1, 2 }, { 2, 0, 2 },
    };
    int n = 0;
    if (ops[op].leaf || op == OP_grad || ops[op].family == FAMILY_collective
        || op == OP_recv)
        return 0;
    if (ops[op].sig[0] == '@')
        return own_cases(op, c, odd);
    if (op_has_key(op, "stride") && ops[op].arity > 1) {
        static Letter groups[] = { { 'g', 2, 0 } };
        for (int i = 0; i < COUNT(windows); i++)
            add_case(c, &n, op, (Attr){ .stride = windows[i][0],
                     .pad = windows[i][1], .dilate = windows[i][2] }, odd);
        for (int i = 1; i < 3; i++)
            add_case(c, &n, op, (Attr){ .stride = i, .pad = 1, .nletter = 1,
                     .letter = groups }, odd);
        return n;
    }
    for (int dim = 0; dim < (op_has_key(op, "dim") ? 3 : 1); dim++) {
        Attr a = { .dim = dim, .at = op_has_key(op, "at") };
        a.size = op_has_key(op, "size") ? size_of('m', odd) : 0;
        add_case(c, &n, op, a, odd);
    }
    return n;
}

/* ---- graphs and numbers ---- */

static const Mesh alone;

/* The row on input leaves "a", "b", ...; the node is the last. */
static Graph *build(const Case *c, const Mesh *mesh, Ref *in)
{
    Graph *g = graph_new(arena, mesh);
    for (int i = 0; i < c->nin; i++)
        in[i] = emit_typed(g, OP_input, NULL, c->in[i], NULL, 0,
                           fmt(arena, "%c", 'a' + i), LOC);
    emit(g, c->op, &c->attr, in, c->nin, LOC);
    return g;
}

static double noise(uint64_t *s)          /* in [0, 1) */
{
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ldexp((double)(*s >> 11), -53);
}

/* Values away from 0; MASKED: SIGNED, of which the test makes conditions;
 * WHOLE: of -2, -1, 1, 2, so that some are equal. */
enum Sort { POSITIVE, SIGNED, MASKED, WHOLE };

static Num *values(const Type *t, enum Sort sort, uint64_t seed)
{
    int64_t n = type_volume(t);
    Num *x = alloc(arena, (size_t)(n + 1) * sizeof *x);
    noise(&seed), noise(&seed);
    for (int64_t i = 0; i < n; i++) {
        double u = noise(&seed), v = noise(&seed);
        x[i].r = t->dtype == I32 ? floor(8 * u) : 0.3 + u;
        if (sort == WHOLE && t->dtype != I32)
            x[i].r = u < 0.5 ? 1 : 2;
        if (sort != POSITIVE && t->dtype != I32 && v < 0.5)
            x[i].r = -x[i].r;
    }
    return x;
}

static int64_t volume(const Graph *g, Ref r)
{
    return type_volume(&g->node[r].type);
}

/* Operands that a number may be added to. */
static bool moves(const Graph *g, const Case *c, const Ref *in, int i)
{
    Sig s = sig_bind(g, c->op, &c->attr, in, c->nin, LOC);
    return ops[c->op].arity < 0 || !(s.in[i].unread || s.in[i].integer);
}

#endif
