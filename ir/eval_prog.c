/* eval_prog.c -- EXPR as a flat program over strips of points.
 *
 * An expression becomes a list of instructions in the order of its tree,
 * each the maker of one register of STRIP numbers; the loops over a strip are
 * short enough for the compiler to make vectors of.  Field division inverts
 * a whole strip with one inversion (Montgomery's trick). */
#include "ir/eval_node.h"
#include "ir/expr.h"
#include "ir/field.h"

#include <math.h>
#include <stdlib.h>

typedef enum Code {
    NUM, ARG, NEG, ADD, SUB, MUL, DIV, LT, LE, EQ, COND,
    MAX, MIN, ONE, BUCKET,                /* field: 1; a hash of 20 bits */
    CALL1, CALL2,                         /* real */
    HASH                                  /* field: of narg registers */
} Code;

enum { NINS = 48, NARG = 4 };

typedef struct Ins {
    Code code;
    int narg, arg[NARG];                  /* registers; ARG: the operand */
    Num num;                              /* NUM; calls: the hash key */
    double (*f1)(double);
    double (*f2)(double, double);
} Ins;

struct Prog {
    Domain domain;
    int n;
    Ins ins[NINS];
};

struct Regs {
    const Prog *prog;
    const Num *at[NINS];
    Num own[NINS][STRIP];
};

static double logaddexp(double a, double b)
{
    double hi = fmax(a, b), lo = fmin(a, b);
    return lo == -INFINITY ? hi : hi + log1p(exp(lo - hi));
}

static double is_finite(double a) { return isfinite(a) ? 1 : 0; }

/* Functions of the REAL domain; in the FIELD all that have no code of their
 * own there (field) are keyed hashes. */
static const struct Function {
    const char *name;
    int narg;
    double (*f1)(double);
    double (*f2)(double, double);
    Code real, field;
} functions[] = {
    { "exp",   1, exp,   NULL, CALL1, HASH },
    { "exp2",  1, exp2,  NULL, CALL1, HASH },
    { "expm1", 1, expm1, NULL, CALL1, HASH },
    { "log",   1, log,   NULL, CALL1, HASH },
    { "log2",  1, log2,  NULL, CALL1, HASH },
    { "log1p", 1, log1p, NULL, CALL1, HASH },
    { "sqrt",  1, sqrt,  NULL, CALL1, HASH },
    { "sin",   1, sin,   NULL, CALL1, HASH },
    { "cos",   1, cos,   NULL, CALL1, HASH },
    { "tan",   1, tan,   NULL, CALL1, HASH },
    { "tanh",  1, tanh,  NULL, CALL1, HASH },
    { "erf",   1, erf,   NULL, CALL1, HASH },
    { "fabs",  1, fabs,  NULL, CALL1, HASH },
    { "round", 1, round, NULL, CALL1, HASH },
    { "rint",  1, rint,  NULL, CALL1, HASH },
    { "floor", 1, floor, NULL, CALL1, BUCKET },
    { "isfinite", 1, is_finite, NULL, CALL1, ONE },
    { "pow",   2, NULL, pow,   CALL2, HASH },
    { "atan2", 2, NULL, atan2, CALL2, HASH },
    { "fmod",  2, NULL, fmod,  CALL2, HASH },
    { "fmax",  2, NULL, NULL,  MAX,   MAX },
    { "fmin",  2, NULL, NULL,  MIN,   MIN },
    { "logaddexp", 2, NULL, logaddexp, CALL2, ADD },
};

/* ---- numbers ---- */

Num num_of(Domain domain, double v)
{
    return domain == REAL ? (Num){ .r = v } : (Num){ .f = field_of(v) };
}

Num num_fold(Domain domain, Fold fold, Num a, Num b)
{
    if (domain == FIELD)
        return (Num){ .f = fold != FOLD_MAX ? field_add(a.f, b.f)
                         : field_max(a.f, b.f) };
    return (Num){ .r = fold == FOLD_SUM ? a.r + b.r
                     : fold == FOLD_MAX ? (a.r > b.r || isnan(a.r) ? a.r : b.r)
                     : logaddexp(a.r, b.r) };
}

Num num_identity(Domain domain, Fold fold)
{
    return domain == FIELD || fold == FOLD_SUM ? num_of(domain, 0)
         : (Num){ .r = -INFINITY };
}

/* ---- compiling ---- */

static int add(Prog *p, Ins ins, const char *op)
{
    if (p->n == NINS)
        die("%s: expression of more than %d steps", op, NINS);
    p->ins[p->n] = ins;
    return p->n++;
}

static int compile(Prog *, const Expr *, const char *op);

static int call(Prog *p, const Expr *e, const char *op, Ins ins)
{
    for (int i = 0; i < COUNT(functions); i++) {
        const struct Function *f = &functions[i];
        if (strcmp(f->name, e->name) != 0)
            continue;
        if (f->narg != e->narg)
            die("%s: %s takes %d arguments", op, f->name, f->narg);
        ins.code = p->domain == REAL ? f->real : f->field;
        ins.f1 = f->f1, ins.f2 = f->f2;
        ins.num.f = field_key(f->name);
        return add(p, ins, op);
    }
    die("%s: the evaluator knows no function \"%s\"", op, e->name);
}

static int name(Prog *p, const Expr *e, const char *op)
{
    int i = e->name[0] - 'a';
    if (e->name[1] || i < 0 || i >= NIN)
        die("%s: the evaluator knows no name \"%s\"", op, e->name);
    return add(p, (Ins){ .code = ARG, .arg = { i } }, op);
}

/* Append the code of e; its register. */
static int compile(Prog *p, const Expr *e, const char *op)
{
    static const Code code[] = {
        [EXPR_NEG] = NEG, [EXPR_ADD] = ADD, [EXPR_SUB] = SUB, [EXPR_MUL] = MUL,
        [EXPR_DIV] = DIV, [EXPR_LT] = LT, [EXPR_LE] = LE, [EXPR_GT] = LT,
        [EXPR_GE] = LE, [EXPR_EQ] = EQ, [EXPR_COND] = COND,
    };
    Ins ins = { .narg = e->narg };

    if (e->kind == EXPR_NUM)
        return add(p, (Ins){ .code = NUM, .num = num_of(p->domain, e->num) },
                   op);
    if (e->kind == EXPR_NAME)
        return name(p, e, op);
    if (e->narg > NARG)
        die("%s: more than %d arguments", op, NARG);
    for (int i = 0; i < e->narg; i++)
        ins.arg[i] = compile(p, e->arg[i], op);
    if (e->kind == EXPR_CALL)
        return call(p, e, op, ins);
    ins.code = code[e->kind];
    if (e->kind == EXPR_GT || e->kind == EXPR_GE) {   /* a > b is b < a */
        int a = ins.arg[0];
        ins.arg[0] = ins.arg[1], ins.arg[1] = a;
    }
    return add(p, ins, op);
}

const Prog *prog_of(Op op, Domain domain)
{
    static const Prog *cache[OP_COUNT][2];
    static Arena *arena;

    if (cache[op][domain])
        return cache[op][domain];
    if (!arena)
        arena = arena_lasting();
    const OpInfo *info = &ops[op];
    bool own = domain == FIELD && info->field && *info->field;
    Expr *e = expr_parse(arena, own ? info->field : info->expr, info->name);
    if (!e)
        die("%s has no EXPR", info->name);
    Prog *p = alloc(arena, sizeof *p);
    p->domain = domain;
    compile(p, e, info->name);
    return cache[op][domain] = p;
}

bool prog_reads(const Prog *p, int operand)
{
    for (int i = 0; i < p->n; i++)
        if (p->ins[i].code == ARG && p->ins[i].arg[0] == operand)
            return true;
    return false;
}

bool prog_product(const Prog *p, int factor[2])
{
    const Ins *last = &p->ins[p->n - 1];
    for (int i = 0; i < 2 && last->code == MUL; i++) {
        if (p->ins[last->arg[i]].code != ARG)
            return false;
        factor[i] = p->ins[last->arg[i]].arg[0];
    }
    return last->code == MUL;
}

/* ---- running ---- */

Regs *regs_new(const Prog *p)
{
    Regs *r = malloc(sizeof *r);
    if (!r)
        die("out of memory");
    r->prog = p;
    for (int i = 0; i < p->n; i++) {
        r->at[i] = r->own[i];
        for (int k = 0; p->ins[i].code == NUM && k < STRIP; k++)
            r->own[i][k] = p->ins[i].num;
    }
    return r;
}

void regs_free(Regs *r) { free(r); }

void regs_arg(Regs *r, int operand, const Num *at)
{
    for (int i = 0; i < r->prog->n; i++)
        if (r->prog->ins[i].code == ARG && r->prog->ins[i].arg[0] == operand)
            r->at[i] = at;
}

#define EACH(e) for (int k = 0; k < n; k++) e; break

static void real(const Ins *s, const Num *a, const Num *b, const Num *c,
                 int n, Num *y)
{
    switch (s->code) {
    case NEG:   EACH(y[k].r = -a[k].r);
    case ADD:   EACH(y[k].r = a[k].r + b[k].r);
    case SUB:   EACH(y[k].r = a[k].r - b[k].r);
    case MUL:   EACH(y[k].r = a[k].r * b[k].r);
    case DIV:   EACH(y[k].r = a[k].r / b[k].r);
    case LT:    EACH(y[k].r = a[k].r < b[k].r);
    case LE:    EACH(y[k].r = a[k].r <= b[k].r);
    case EQ:    EACH(y[k].r = a[k].r == b[k].r);
    case COND:  EACH(y[k].r = a[k].r != 0 ? b[k].r : c[k].r);
    case MAX:   EACH(y[k].r = fmax(a[k].r, b[k].r));
    case MIN:   EACH(y[k].r = fmin(a[k].r, b[k].r));
    case CALL1: EACH(y[k].r = s->f1(a[k].r));
    case CALL2: EACH(y[k].r = s->f2(a[k].r, b[k].r));
    default:    die("no real code %d", s->code);
    }
}

/* y = a / b: prefix products, one inversion, then back.  a / 0 is 0. */
static void divide(const Num *a, const Num *b, int n, Num *y)
{
    uint64_t before[STRIP], all = 1;

    for (int k = 0; k < n; k++) {
        before[k] = all;
        all = b[k].f ? field_mul(all, b[k].f) : all;
    }
    all = field_inv(all);
    for (int k = n; k-- > 0;) {
        uint64_t d = b[k].f;
        y[k].f = d ? field_mul(a[k].f, field_mul(all, before[k])) : 0;
        all = d ? field_mul(all, d) : all;
    }
}

static uint64_t hash(const Ins *s, const Num *const *x, int k)
{
    uint64_t h = s->num.f;
    for (int i = 0; i < s->narg; i++)
        h = field_hash(h, x[i][k].f);
    return field_mod(h);
}

static void field(const Ins *s, const Num *const *x, int n, Num *y)
{
    const Num *a = x[0], *b = x[1], *c = x[2];

    switch (s->code) {
    case NEG:  EACH(y[k].f = field_neg(a[k].f));
    case ADD:  EACH(y[k].f = field_add(a[k].f, b[k].f));
    case SUB:  EACH(y[k].f = field_sub(a[k].f, b[k].f));
    case MUL:  EACH(y[k].f = field_mul(a[k].f, b[k].f));
    case DIV:  divide(a, b, n, y); break;
    case LT:   EACH(y[k].f = a[k].f < b[k].f);
    case LE:   EACH(y[k].f = a[k].f <= b[k].f);
    case EQ:   EACH(y[k].f = a[k].f == b[k].f);
    case COND: EACH(y[k].f = a[k].f ? b[k].f : c[k].f);
    case MAX:  EACH(y[k].f = field_max(a[k].f, b[k].f));
    case MIN:  EACH(y[k].f = field_max(a[k].f, b[k].f) == a[k].f ? b[k].f
                           : a[k].f);
    case ONE:  EACH(y[k].f = 1);
    case BUCKET:
        EACH(y[k].f = field_hash(s->num.f, a[k].f) >> 44);
    case HASH: EACH(y[k].f = hash(s, x, k));
    default:   die("no field code %d", s->code);
    }
}

void prog_run(const Prog *p, Regs *r, int n, Num *out)
{
    for (int i = 0; i < p->n; i++) {
        const Ins *s = &p->ins[i];
        bool last = i == p->n - 1;
        if (s->code == ARG || s->code == NUM) {
            if (last)
                memcpy(out, r->at[i], (size_t)n * sizeof *out);
            continue;
        }
        const Num *x[NARG] = {0};
        for (int k = 0; k < s->narg; k++)
            x[k] = r->at[s->arg[k]];
        Num *y = last ? out : r->own[i];
        if (p->domain == REAL)
            real(s, x[0], x[1], x[2], n, y);
        else
            field(s, x, n, y);
    }
}
