/* expr.c -- parser and C printer of the EXPR, FIELD and VJP columns.
 *
 * Precedence climbing over one table of binary operators.  `a && b` and
 * `a || b` are read as conditionals, so that there are fewer kinds.  A
 * comparison is the number 1 or 0. */
#include "ir/expr.h"
#include <ctype.h>
#include <stdlib.h>

/* Levels: the higher binds tighter; all binary operators are left to right. */
enum { TERNARY = 1, OR, AND, EQUAL, ORDER, SUM, PRODUCT, UNARY, ATOM };

static const struct Binary {
    const char *text;
    int level;
    ExprKind kind;
} binary[] = {                            /* longer spellings first */
    { "||", OR, EXPR_COND }, { "&&", AND, EXPR_COND },
    { "==", EQUAL, EXPR_EQ }, { "<=", ORDER, EXPR_LE },
    { ">=", ORDER, EXPR_GE }, { "<", ORDER, EXPR_LT },
    { ">", ORDER, EXPR_GT }, { "+", SUM, EXPR_ADD }, { "-", SUM, EXPR_SUB },
    { "*", PRODUCT, EXPR_MUL }, { "/", PRODUCT, EXPR_DIV },
};

/* ---- parsing ---- */

typedef struct Parser {
    Arena *arena;
    const char *s, *text, *what;
} Parser;

static _Noreturn void wrong(const Parser *p, const char *want)
{
    die("%s: column %d of \"%s\": expected %s", p->what,
        (int)(p->s - p->text) + 1, p->text, want);
}

static void blank(Parser *p)
{
    while (isspace((unsigned char)*p->s))
        p->s++;
}

static bool eat(Parser *p, const char *token)
{
    blank(p);
    size_t n = strlen(token);
    if (strncmp(p->s, token, n) != 0)
        return false;
    p->s += n;
    return true;
}

static Expr *node(Parser *p, ExprKind kind, int narg)
{
    Expr *e = alloc(p->arena, sizeof *e);
    e->kind = kind;
    e->narg = narg;
    if (narg)
        e->arg = alloc(p->arena, (size_t)narg * sizeof *e->arg);
    return e;
}

static Expr *number(Parser *p, double v)
{
    Expr *e = node(p, EXPR_NUM, 0);
    e->num = v;
    return e;
}

static Expr *cond(Parser *p, Expr *a, Expr *b, Expr *c)
{
    Expr *e = node(p, EXPR_COND, 3);
    e->arg[0] = a, e->arg[1] = b, e->arg[2] = c;
    return e;
}

static Expr *expression(Parser *, int level);

static const char *name(Parser *p)
{
    const char *s = p->s;
    while (isalnum((unsigned char)*s) || *s == '_')
        s++;
    const char *word = fmt(p->arena, "%.*s", (int)(s - p->s), p->s);
    p->s = s;
    return intern(p->arena, word);
}

static bool at_name(const Parser *p)
{
    return isalpha((unsigned char)*p->s) || *p->s == '_';
}

/* "key =" of an argument, or NULL and nothing read. */
static const char *argument_key(Parser *p)
{
    blank(p);
    const char *start = p->s;
    if (at_name(p)) {
        const char *key = name(p);
        blank(p);
        if (p->s[0] == '=' && p->s[1] != '=') {
            p->s++;
            return key;
        }
    }
    p->s = start;
    return NULL;
}

static Expr *call(Parser *p, const char *word)
{
    Expr *e = node(p, EXPR_CALL, 0);
    uint32_t ncap = 0, kcap = 0;
    e->name = word;
    if (eat(p, ")"))
        return e;
    do {
        GROW(p->arena, e->arg, e->narg, ncap);
        GROW(p->arena, e->key, e->narg, kcap);
        e->key[e->narg] = argument_key(p);
        e->arg[e->narg++] = expression(p, TERNARY);
    } while (eat(p, ","));
    if (!eat(p, ")"))
        wrong(p, "\",\" or \")\"");
    return e;
}

static Expr *atom(Parser *p)
{
    blank(p);
    if (at_name(p)) {
        const char *word = name(p);
        if (eat(p, "("))
            return call(p, word);
        Expr *e = node(p, EXPR_NAME, 0);
        e->name = word;
        return e;
    }
    if (eat(p, "(")) {
        Expr *e = expression(p, TERNARY);
        if (!eat(p, ")"))
            wrong(p, "\")\"");
        return e;
    }
    if (!isdigit((unsigned char)*p->s) && *p->s != '.')
        wrong(p, "a number, a name or \"(\"");
    char *end;
    double v = strtod(p->s, &end);
    if (end == p->s)
        wrong(p, "a number");
    p->s = end;
    return number(p, v);
}

static Expr *unary(Parser *p)
{
    if (!eat(p, "-"))
        return atom(p);
    Expr *e = node(p, EXPR_NEG, 1);
    e->arg[0] = unary(p);
    return e;
}

static const struct Binary *operator_at(Parser *p, int level)
{
    blank(p);
    for (int i = 0; i < COUNT(binary); i++)
        if (strncmp(p->s, binary[i].text, strlen(binary[i].text)) == 0)
            return binary[i].level >= level ? &binary[i] : NULL;
    return NULL;
}

static Expr *combine(Parser *p, const struct Binary *o, Expr *a, Expr *b)
{
    if (o->kind == EXPR_COND) {
        Expr *truth = cond(p, b, number(p, 1), number(p, 0));
        return o->level == AND ? cond(p, a, truth, number(p, 0))
                               : cond(p, a, number(p, 1), truth);
    }
    Expr *e = node(p, o->kind, 2);
    e->arg[0] = a, e->arg[1] = b;
    return e;
}

static Expr *expression(Parser *p, int level)
{
    Expr *e = unary(p);
    const struct Binary *o;
    while ((o = operator_at(p, level)) != NULL) {
        p->s += strlen(o->text);
        e = combine(p, o, e, expression(p, o->level + 1));
    }
    if (level > TERNARY || !eat(p, "?"))
        return e;
    Expr *yes = expression(p, TERNARY);
    if (!eat(p, ":"))
        wrong(p, "\":\"");
    return cond(p, e, yes, expression(p, TERNARY));
}

Expr **expr_parse_list(Arena *a, const char *text, const char *what, int *n)
{
    Parser p = { a, text ? text : "", text ? text : "", what };
    Expr **list = NULL;
    uint32_t cap = 0;
    *n = 0;
    blank(&p);
    if (!*p.s)
        return NULL;
    do {
        GROW(a, list, *n, cap);
        list[(*n)++] = expression(&p, TERNARY);
    } while (eat(&p, ","));
    blank(&p);
    if (*p.s)
        wrong(&p, "an operator or the end");
    return list;
}

Expr *expr_parse(Arena *a, const char *text, const char *what)
{
    int n;
    Expr **list = expr_parse_list(a, text, what, &n);
    if (n > 1)
        die("%s: \"%s\": expected one expression, found %d", what, text, n);
    return n ? list[0] : NULL;
}

/* ---- printing ---- */

typedef struct Printer {
    Str out;
    bool f32;                             /* suffix f: floats, expf */
    const char *suffix;
    const char *(*name)(void *, const char *);
    void *arg;
} Printer;

/* Precision that a literal needs; a point, so that C divides no integers. */
static void print_number(Printer *p, double v)
{
    char s[32];
    if (p->f32)
        v = (float)v;
    if (v - v != 0) {
        str_add(&p->out, "(%s1.%s / 0.%s)", v < 0 ? "-" : "", p->suffix,
                p->suffix);
        return;
    }
    num_text(s, v);
    for (int digits = 6; p->f32 && digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtof(s, NULL) == (float)v)
            break;
    }
    const char *point = strpbrk(s, ".e") ? "" : ".";
    str_add(&p->out, v < 0 ? "(%s%s%s)" : "%s%s%s", s, point, p->suffix);
}

static void print(Printer *, const Expr *, int level);

static const struct Binary *operator_of(ExprKind kind)
{
    for (int i = 0; i < COUNT(binary); i++)
        if (binary[i].kind == kind && kind != EXPR_COND)
            return &binary[i];
    return NULL;
}

static bool is_comparison(ExprKind kind)
{
    return kind >= EXPR_LT && kind <= EXPR_EQ;
}

/* C's isfinite is a macro for every type, whose result is any int. */
static bool is_predicate(const Expr *e)
{
    return e->kind == EXPR_CALL && strcmp(e->name, "isfinite") == 0;
}

static void print_call(Printer *p, const Expr *e)
{
    bool plain = !p->f32 || is_predicate(e);
    str_add(&p->out, "%s%s(", e->name, plain ? "" : "f");
    for (int i = 0; i < e->narg; i++) {
        if (i)
            str_add(&p->out, ", ");
        if (e->key[i])
            str_add(&p->out, "%s=", e->key[i]);
        print(p, e->arg[i], TERNARY);
    }
    str_add(&p->out, ")");
}

static void print_binary(Printer *p, const Expr *e)
{
    const struct Binary *o = operator_of(e->kind);
    print(p, e->arg[0], o->level);
    str_add(&p->out, " %s ", o->text);
    print(p, e->arg[1], o->level + 1);
}

/* A truth value where C asks for one: no cast. */
static void print_truth(Printer *p, const Expr *e)
{
    if (is_comparison(e->kind))
        print_binary(p, e);
    else if (is_predicate(e))
        print_call(p, e);
    else
        print(p, e, OR);
}

static void print_cond(Printer *p, const Expr *e)
{
    print_truth(p, e->arg[0]);
    str_add(&p->out, " ? ");
    print(p, e->arg[1], TERNARY);
    str_add(&p->out, " : ");
    print(p, e->arg[2], TERNARY);
}

/* The same value as a number: C would make it an int, and int / int. */
static void print_cast(Printer *p, const Expr *e)
{
    str_add(&p->out, p->f32 ? "(float)(" : "(double)(");
    print_truth(p, e);
    str_add(&p->out, is_predicate(e) ? " != 0)" : ")");
}

static int level_of(const Expr *e)
{
    const struct Binary *o = operator_of(e->kind);
    if (is_comparison(e->kind) || is_predicate(e) || e->kind == EXPR_NEG)
        return UNARY;
    return o ? o->level : e->kind == EXPR_COND ? TERNARY : ATOM;
}

static void print(Printer *p, const Expr *e, int level)
{
    bool parens = level_of(e) < level;
    if (parens)
        str_add(&p->out, "(");
    if (e->kind == EXPR_NUM)
        print_number(p, e->num);
    else if (e->kind == EXPR_NAME)
        str_add(&p->out, "%s", p->name ? p->name(p->arg, e->name) : e->name);
    else if (is_comparison(e->kind) || is_predicate(e))
        print_cast(p, e);
    else if (e->kind == EXPR_CALL)
        print_call(p, e);
    else if (e->kind == EXPR_COND)
        print_cond(p, e);
    else if (e->kind == EXPR_NEG) {
        str_add(&p->out, "-");
        print(p, e->arg[0], ATOM);
    } else
        print_binary(p, e);
    if (parens)
        str_add(&p->out, ")");
}

char *expr_text(Arena *a, const Expr *e, const char *suffix,
                const char *(*name_fn)(void *, const char *), void *arg)
{
    Printer p = { .out = { .arena = a }, .name = name_fn, .arg = arg };
    p.suffix = suffix ? suffix : "";
    p.f32 = strcmp(p.suffix, "f") == 0;
    print(&p, e, TERNARY);
    return p.out.p;
}
