/* test_ops_grad.c -- gradients of the op table: every row against central
 * differences, and once more, and that a row named in one has its own. */
#include "ir/expr.h"
#include "tests/unit/cases.h"

/* ---- VJP against differences ---- */

static double inner(const Num *a, const Num *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i].r * b[i].r;
    return s;
}

static bool near(double a, double b, double tol)
{
    return fabs(a - b) <= tol * (1 + fabs(a) + fabs(b));
}

static const Expr *rule_of(Op op, int i)
{
    int n;
    Expr **e = expr_parse_list(arena, ops[op].vjp, ops[op].name, &n);
    assert_true(n > 0);
    return e[n == 1 ? 0 : i];
}

static bool none(const Expr *e)
{
    return e->kind == EXPR_NAME && strcmp(e->name, "none") == 0;
}

typedef struct Probe {                    /* a row, its numbers, gradients */
    const Case *c;
    Graph *g;
    Ref in[NIN + 1], y, d[NIN + 1];       /* in[nin]: dy */
    Num *x[NIN + 1], *out;
    unsigned still;                       /* operands that are not moved */
} Probe;

/* Operands that only choose, as the first of `where`: no gradient, and yet
 * not linear. */
static unsigned conditions(const Case *c)
{
    unsigned set = 0;
    for (int i = 0; i < c->nin; i++)
        if (c->in[i].dtype != I32 && none(rule_of(c->op, i))
            && !op_linear(c->op, i, i))
            set |= 1u << i;
    return set;
}

/* Conditions 0 or 1, for rows that have some beside operands. */
static bool mask(Probe *p)
{
    unsigned set = conditions(p->c);
    for (int i = 0; i < p->c->nin; i++)
        for (int64_t k = 0; set >> i & 1 && k < volume(p->g, p->in[i]); k++)
            p->x[i][k].r = p->x[i][k].r > 0.8;
    p->still |= set;
    return set && set != (1u << p->c->nin) - 1;
}

/* False when the row has no finite value there, or none that are MASKED. */
static bool probe(Probe *p, const Case *c, enum Sort sort)
{
    *p = (Probe){ .c = c };
    p->g = build(c, &alone, p->in);
    p->y = p->g->n - 1;
    for (int i = 0; i < c->nin; i++)
        p->x[i] = values(&c->in[i], sort, (uint64_t)i + 1);
    for (int i = 0; i < c->nin; i++)
        p->still |= (unsigned)!moves(p->g, c, p->in, i) << i;
    if (sort == MASKED && !mask(p))
        return false;
    Type t = p->g->node[p->y].type;
    p->x[c->nin] = values(&t, SIGNED, 99);
    p->in[c->nin] = emit_typed(p->g, OP_input, NULL, t, NULL, 0, "dy", LOC);
    int64_t n = type_volume(&t);
    p->out = alloc(arena, (size_t)(n + 1) * sizeof *p->out);
    eval_node(p->g, p->y, REAL, (const Num *const *)p->x, p->out);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(p->out[i].r))
            return false;
    return true;
}

static const Num *run(Eval *e, const Probe *p, Ref r)
{
    for (int i = 0; i <= p->c->nin; i++)
        eval_set(e, p->in[i], p->x[i]);
    eval_run(e);
    return eval_get(e, r);
}

/* d <dy, y> / d x[i][k] by central differences. */
static double slope(Probe *p, int i, int64_t k)
{
    const double h = 1e-5, x = p->x[i][k].r;
    const Num *const *in = (const Num *const *)p->x;
    int64_t n = volume(p->g, p->y);
    p->x[i][k].r = x + h;
    eval_node(p->g, p->y, REAL, in, p->out);
    double up = inner(p->out, p->x[p->c->nin], n);
    p->x[i][k].r = x - h;
    eval_node(p->g, p->y, REAL, in, p->out);
    double down = inner(p->out, p->x[p->c->nin], n);
    p->x[i][k].r = x;
    return (up - down) / (2 * h);
}

static int check_vjp(Probe *p)
{
    const Case *c = p->c;
    int pairs = 0;
    grad_append(p->g, p->y, p->in[c->nin], p->in, c->nin, p->d, arena);
    for (int i = 0; i < c->nin; i++) {
        bool zero = none(rule_of(c->op, i));
        assert_true(zero == (p->d[i] == NONE));
        if (!zero && !moves(p->g, c, p->in, i))
            fail_msg("%s: operand %d is not moved, yet has a gradient",
                     ops[c->op].name, i);
        /* a declared stop: linear, and yet no gradient */
        if ((zero && op_linear(c->op, i, i)) || p->still >> i & 1)
            continue;
        Eval *e = eval_new(p->g, REAL, 0, 0);
        const Num *d = zero ? NULL : run(e, p, p->d[i]);
        for (int64_t k = 0; k < volume(p->g, p->in[i]); k++, pairs++) {
            double want = slope(p, i, k), got = d ? d[k].r : 0;
            if (!near(got, want, 1e-6))
                fail_msg("%s %s: d operand %d [%d]: %.9g, differences %.9g",
                         ops[c->op].name, c->attr.sig ? c->attr.sig : "", i,
                         (int)k, got, want);
        }
        eval_free(e);
    }
    return pairs;
}

/* Does a rule of the row name one that is differentiated once only? */
static bool once(const Expr *e)
{
    bool found = e->kind == EXPR_CALL && ops[op_find(e->name)].once;
    for (int i = 0; i < e->narg; i++)
        found |= once(e->arg[i]);
    return found;
}

/* 2: derivatives of gradients, along one direction of everything. */
static int check_second(Probe *p)
{
    const Case *c = p->c;
    int n = c->nin + 1, pairs = 0;
    for (int i = 0; i < c->nin; i++) {
        Ref d2[NIN + 1], w;
        if (p->d[i] == NONE || once(rule_of(c->op, i)))
            continue;
        Type t = p->g->node[p->d[i]].type;
        w = emit_typed(p->g, OP_input, NULL, t, NULL, 0,
                       fmt(arena, "w%d", i), LOC);
        grad_append(p->g, p->d[i], w, p->in, n, d2, arena);
        double got = 0, f[2];
        Eval *e = eval_new(p->g, REAL, 0, 0);
        Num *dir[NIN + 1];
        run(e, p, w);
        for (int k = 0; k < n; k++) {
            dir[k] = values(&p->g->node[p->in[k]].type, SIGNED, 7);
            if (d2[k] != NONE && !(p->still >> k & 1))
                got += inner(eval_get(e, d2[k]), dir[k],
                             volume(p->g, p->in[k]));
        }
        eval_free(e);
        for (int side = 0; side < 2; side++) {
            double h = side ? -1e-5 : 1e-5;
            Probe q = *p;
            for (int k = 0; k < n; k++) {
                int64_t size = volume(p->g, p->in[k]);
                q.x[k] = alloc(arena, (size_t)(size + 1) * sizeof(Num));
                bool still = p->still >> k & 1;
                for (int64_t j = 0; j < size; j++)
                    q.x[k][j].r = p->x[k][j].r + (still ? 0 : h * dir[k][j].r);
            }
            e = eval_new(p->g, REAL, 0, 0);
            const Num *d = run(e, &q, p->d[i]);
            f[side] = inner(d, eval_get(e, w), type_volume(&t));
            eval_free(e);
        }
        if (!near(got, (f[0] - f[1]) / 2e-5, 1e-5))
            fail_msg("%s: second order of operand %d: %.9g, differences %.9g",
                     ops[c->op].name, i, got, (f[0] - f[1]) / 2e-5);
        pairs++;
    }
    return pairs;
}

static void gradients_equal_differences(void **state)
{
    (void)state;
    int rows = 0, pairs = 0, second = 0;
    Case c[NCASE];
    for (Op op = 0; op < OP_COUNT; op++) {
        int n = ops[op].vjp && *ops[op].vjp ? cases_of(op, c, false) : 0;
        bool ever = n == 0;
        rows += n > 0;
        for (int i = 0; i < n; i++)
            for (enum Sort k = POSITIVE; k <= MASKED; k++) {
                Probe p;
                if (!probe(&p, &c[i], k))
                    continue;
                ever = true;
                pairs += check_vjp(&p);
                second += check_second(&p);
            }
        if (!ever)
            fail_msg("%s is finite nowhere", ops[op].name);
    }
    print_message("  %d rows: %d elements, %d second derivatives\n", rows,
                  pairs, second);
}

static int named(const Expr *e, Op row)
{
    int n = 0;
    for (int i = 0; i < e->narg; i++)
        n += named(e->arg[i], row);
    if (e->kind != EXPR_CALL)
        return n;
    Op op = op_find(e->name);
    if (op == OP_COUNT)
        fail_msg("VJP of %s names no row: %s", ops[row].name, e->name);
    if (!ops[op].vjp && !ops[op].once)
        fail_msg("VJP of %s: %s has no VJP", ops[row].name, e->name);
    return n + 1;
}

static void rows_named_in_a_gradient_have_one(void **state)
{
    (void)state;
    int n = 0;
    for (Op op = 0; op < OP_COUNT; op++)
        for (int i = 0; ops[op].vjp && *ops[op].vjp && i < ops[op].arity; i++)
            n += named(rule_of(op, i), op);
    print_message("  %d calls\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(rows_named_in_a_gradient_have_one),
    };
    op_init();
    arena = arena_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}
