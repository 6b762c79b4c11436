/* text.c -- values, stores and indices as C that both targets understand.
 *
 * The names are by position (a0, o0, i0, v0), so that equal kernels are equal
 * texts; the prelude of the target says what dpc_exp, DPC_ENV or DPC_TABLE
 * are.  A value is loaded or computed once a loop, before the loop's stores:
 * that is what lets an output lie over an input. */
#include "codegen/kernel.h"
#include "ir/expr.h"
#include <math.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

void text_add(Text *t, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    str_addv(t, f, &ap);
    va_end(ap);
}

void text_line(Text *t, int depth, const char *f, ...)
{
    va_list ap;
    char s[512];
    va_start(ap, f);
    int n = vsnprintf(s, sizeof s, f, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof s)
        die("a line of %d characters", n);
    text_indent(t, depth);
    text_add(t, "%s\n", s);
}

void text_indent(Text *t, int depth)
{
    text_add(t, "%*s", 4 * depth, "");
}

const char *text_ctype(DType d)
{
    return d == I32 || d == U8 ? "int" : "float";
}

const char *text_memtype(DType d)
{
    static const char *const name[] = { "float", "dpc_u16", "int", "dpc_u8" };
    return name[d];
}

int kernel_place(const Kernel *k, int atom)
{
    int i = 0;
    while (k->order[i] != atom)
        i++;
    return i;
}

/* ---- indices ---- */

static void term(Text *t, bool *first, int64_t coef, const char *name, int i)
{
    if (!coef)
        return;
    if (!*first)
        text_add(t, coef < 0 ? " - " : " + ");
    else if (coef < 0)
        text_add(t, "-");
    *first = false;
    coef = coef < 0 ? -coef : coef;
    if (coef == 1)
        text_add(t, name, i);
    else {
        text_add(t, name, i);
        text_add(t, " * %lldL", (long long)coef);
    }
}

void text_affine(Text *t, const Kernel *k, const Affine *a)
{
    bool first = true;
    for (int i = 0; i < k->norder; i++)
        term(t, &first, a->coef[k->order[i]], "i%d", i);
    for (int i = 0; i < KPOS; i++)
        term(t, &first, a->pos[i], "DPC_ENV.pos[%d]", i);
    if (a->at || first)
        text_add(t, first ? "%lldL" : a->at < 0 ? " - %lldL" : " + %lldL",
                 first || a->at > 0 ? (long long)a->at : -(long long)a->at);
}

/* lo <= of < hi; a side that the loops guarantee is still said: cheap. */
static void guards(Text *t, const Kernel *k, const Guard *g, int n)
{
    for (int i = 0; i < n; i++) {
        const char *and = i ? " && " : "";
        text_add(t, "%s(", and);
        text_affine(t, k, &g[i].of);
        text_add(t, ") >= %lldL && (", (long long)g[i].lo);
        text_affine(t, k, &g[i].of);
        text_add(t, ") < %lldL", (long long)g[i].hi);
        if (g[i].by > 1) {
            text_add(t, " && (");
            text_affine(t, k, &g[i].of);
            text_add(t, ") %% %lldL == 0", (long long)g[i].by);
        }
    }
}

/* ---- values ---- */

static void number(Text *t, DType d, double x)
{
    char s[40];
    if (d == I32 || d == U8) {
        text_add(t, "%lld", (long long)x);
        return;
    }
    x = (double)(float)x;                 /* 1e39 is infinity */
    if (isnan(x) || isinf(x)) {
        text_add(t, isnan(x) ? "DPC_NAN" : x < 0 ? "-DPC_INF" : "DPC_INF");
        return;
    }
    snprintf(s, sizeof s, "%.9g", x);
    text_add(t, "%s%sf", s, strpbrk(s, ".e") ? "" : ".0");
}

static void expr(Text *t, const Value *v, const Expr *e)
{
    static const char *const op[] = {
        [EXPR_ADD] = "+", [EXPR_SUB] = "-", [EXPR_MUL] = "*",
        [EXPR_DIV] = "/", [EXPR_LT] = "<", [EXPR_LE] = "<=",
        [EXPR_GT] = ">", [EXPR_GE] = ">=", [EXPR_EQ] = "==",
    };
    if (e->kind == EXPR_NUM)
        number(t, v->dtype, e->num);
    else if (e->kind == EXPR_NAME)
        text_add(t, "v%d", v->arg[e->name[0] - 'a']);
    else if (e->kind == EXPR_CALL) {
        text_add(t, "dpc_%s(", e->name);
        for (int i = 0; i < e->narg; i++) {
            text_add(t, i ? ", " : "");
            expr(t, v, e->arg[i]);
        }
        text_add(t, ")");
    } else if (e->kind == EXPR_NEG || e->kind == EXPR_COND) {
        text_add(t, e->kind == EXPR_NEG ? "(-" : "(");
        expr(t, v, e->arg[0]);
        for (int i = 1; i < e->narg; i++) {
            text_add(t, i == 1 ? " != 0 ? " : " : ");
            expr(t, v, e->arg[i]);
        }
        text_add(t, ")");
    } else {
        text_add(t, "(");
        expr(t, v, e->arg[0]);
        text_add(t, " %s ", op[e->kind]);
        expr(t, v, e->arg[1]);
        text_add(t, ")");
    }
}

/* The EXPR column of an op, parsed once. */
static const Expr *expr_of(Op op)
{
    static const Expr *cache[OP_COUNT];
    static Arena *arena;
    arena = arena ? arena : arena_lasting();
    if (!cache[op])
        cache[op] = expr_parse(arena, ops[op].expr, ops[op].name);
    return cache[op];
}

static void element(Text *t, const Kernel *k, int v)
{
    const Value *x = &k->value[v];
    if (x->nguard) {
        text_add(t, "(");
        guards(t, k, x->guard, x->nguard);
        text_add(t, ") ? ");
    }
    if (x->row >= 0)
        text_add(t, "(r%d >= 0 && r%d < %lldL) ? ", v, v, (long long)x->rows);
    if (x->kind == VAL_TABLE)
        text_add(t, "@_t%d[", x->buf);
    else
        text_add(t, x->dtype == BF16 ? "dpc_from_bf(a%d[" : "a%d[", x->buf);
    text_affine(t, k, &x->at);
    for (int i = 0; i < x->nquot; i++) {
        text_add(t, " + (");
        text_affine(t, k, &x->quot[i].of);
        text_add(t, ") / %lldL * %lldL", (long long)x->quot[i].by,
                 (long long)x->quot[i].mul);
    }
    if (x->row >= 0)
        text_add(t, " + r%d * %lldL", v, (long long)x->row_stride);
    text_add(t, x->kind == VAL_LOAD && x->dtype == BF16 ? "])" : "]");
    if (x->nguard || x->row >= 0)
        text_add(t, " : 0");
}

enum { FEW = 2048 };

/* Of a few points, draws are called one by one; a list's length is not known
 * here. */
static void draw(Text *t, const Kernel *k, int v)
{
    const Value *x = &k->value[v];
    bool few = !k->list && kernel_points(k, k->outer | x->atoms) < FEW;
    text_add(t, few ? "dpc_few_%s(" : "dpc_%s(", x->dist);
    text_affine(t, k, &x->at);
    if (k->list)
        text_add(t, ", DPC_ENV.step, (unsigned)d[%d], DPC_ENV.seed)",
                 kernel_datum(k, v));
    else
        text_add(t, ", DPC_ENV.step, %lldu, DPC_ENV.seed)",
                 (long long)(uint32_t)x->id);
}

/* An op's EXPR; to whole numbers no conversion of C's, which has no meaning
 * out of their range. */
static void op_body(Text *t, const Kernel *k, const Value *x)
{
    DType from = x->narg ? k->value[x->arg[0]].dtype : x->dtype;
    bool whole = from == I32 || from == U8;
    const char *cast = x->dtype == U8 && from != U8 ? "dpc_to_u8("
                     : x->dtype == I32 && !whole ? "dpc_to_i32(" : NULL;
    text_add(t, "%s", cast ? cast : "");
    expr(t, x, expr_of(x->op));
    text_add(t, "%s", cast ? ")" : "");
}

static void body(Text *t, const Kernel *k, int v)
{
    const Value *x = &k->value[v];
    switch (x->kind) {
    case VAL_CONST:
        if (k->list && kernel_datum(k, v) >= 0)
            text_add(t, "dpc_float((unsigned)d[%d])", kernel_datum(k, v));
        else
            number(t, x->dtype, x->num);
        break;
    case VAL_LOAD:
    case VAL_TABLE:
        element(t, k, v);
        break;
    case VAL_EXPR:
        op_body(t, k, x);
        break;
    case VAL_INDEX:
        text_add(t, "(%s)(", text_ctype(x->dtype));
        text_affine(t, k, &x->at);
        text_add(t, ")");
        break;
    case VAL_RANDOM:
        draw(t, k, v);
        break;
    case VAL_PICK:
        text_add(t, "(");
        guards(t, k, x->guard, x->nguard);
        text_add(t, ") ? v%d : v%d", x->arg[0], x->arg[1]);
        break;
    case VAL_FOLD:
        die("a fold is no value of a loop");
    }
}

void text_values(Text *t, const Kernel *k, const int *list, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        int v = list[i];
        const Value *x = &k->value[v];
        text_indent(t, depth);
        if (x->row >= 0) {
            text_add(t, "const long r%d = (long)v%d", v, x->row);
            if (x->row_pos >= 0)
                text_add(t, " - DPC_ENV.pos[%d]", x->row_pos);
            text_add(t, ";\n");
            text_indent(t, depth);
        }
        text_add(t, "const %s v%d = ", text_ctype(x->dtype), v);
        if (x->dtype == BF16 && (x->round || x->kind == VAL_CONST)) {
            text_add(t, "dpc_round_bf(");
            body(t, k, v);
            text_add(t, ");\n");
        } else {
            body(t, k, v);
            text_add(t, ";\n");
        }
    }
}

void text_store(Text *t, const Kernel *k, const Store *s, int depth)
{
    DType d = k->out_dtype[s->out];
    text_indent(t, depth);
    if (s->cut) {
        text_add(t, "if (");
        guards(t, k, &s->in, 1);
        text_add(t, ")\n");
        text_indent(t, depth + 1);
    }
    text_add(t, "o%d[", s->out);
    text_affine(t, k, &s->at);
    bool exact = k->value[s->value].dtype == BF16;   /* it was rounded */
    text_add(t, d == BF16 ? exact ? "] = dpc_cut_bf(v%d);\n"
                                  : "] = dpc_to_bf(v%d);\n" : d == U8
             ? "] = (dpc_u8)v%d;\n" : "] = v%d;\n", s->value);
}

/* ---- folds, buffers, tables ---- */

const char *text_identity(const Value *v)
{
    return v->fold == FOLD_MAX ? "-DPC_INF" : "0.0f";
}

void text_fold(Text *t, const Value *v, const char *acc, const char *x)
{
    if (v->fold == FOLD_MAX)
        text_add(t, "%s = dpc_fmax(%s, %s);\n", acc, acc, x);
    else
        text_add(t, "%s = %s + %s;\n", acc, acc, x);
}

void text_table(Text *t, const Kernel *k, int v)
{
    Atoms kept = k->value[v].atoms & ~k->outer;
    text_add(t, "t%d[", v);
    for (int i = 0; i < k->norder; i++)
        text_add(t, kept >> k->order[i] & 1 ? "(" : "");
    text_add(t, "0");
    for (int i = 0; i < k->norder; i++)
        if (kept >> k->order[i] & 1)
            text_add(t, ") * %lldL + i%d", (long long)k->extent[k->order[i]],
                     i);
    text_add(t, "]");
}

const char *text_restrict(const Kernel *k, int at)
{
    bool over = false;
    for (int i = 0; i < k->nin; i++)
        for (int o = 0; o < k->nout; o++)
            if (at == i || at == k->nin + o)
                over |= kernel_over(k, i, o);
    return over ? "" : "DPC_RESTRICT ";
}

void text_buffers(Text *t, const Kernel *k)
{
    for (int i = 0; i < k->nin; i++) {
        const char *m = text_memtype(k->g->node[k->in[i]].type.dtype);
        text_add(t, "    const %s *%sa%d = (const %s *)p[%d];\n", m,
                 text_restrict(k, i), i, m, i);
    }
    for (int i = 0; i < k->nout; i++) {
        const char *m = text_memtype(k->out_dtype[i]);
        text_add(t, "    %s *%so%d = (%s *)p[%d];\n", m,
                 text_restrict(k, k->nin + i), i, m, k->nin + i);
    }
    text_add(t, "    (void)p; (void)DPC_ENV;\n");
}

void text_tables(Text *t, const Kernel *k)
{
    for (int i = 0; i < k->ntable; i++) {
        const Node *n = &k->g->node[k->table[i]];
        text_add(t, "DPC_TABLE %s @_t%d[] = {", text_ctype(n->type.dtype), i);
        for (int64_t e = 0; e < n->attr.ndata; e++) {
            text_add(t, e % 6 ? " " : "\n    ");
            number(t, n->type.dtype, n->attr.data[e]);
            text_add(t, ",");
        }
        text_add(t, "\n};\n");
    }
}

char *text_rename(Arena *a, const Text *t, const char *name)
{
    Text named = { .arena = a };
    for (const char *p = t->p; *p;) {
        size_t n = strcspn(p, "@");
        text_add(&named, "%.*s%s", (int)n, p, p[n] ? name : "");
        p += n + (p[n] != 0);
    }
    return named.p;
}

KernelText text_named(Arena *a, const Text *t)
{
    KernelText r = {0};
    r.name = fmt(a, "k_%016llx",
                 (unsigned long long)XXH3_64bits(t->p, t->n));
    r.text = text_rename(a, t, r.name);
    return r;
}
