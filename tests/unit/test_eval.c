/* test_eval.c -- the evaluator itself: field, Philox, a step on a mesh. */
#include "ir/eval.h"
#include "ir/field.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define LOC "test_eval.c:1"
static Arena *arena;

/* ---- numbers ---- */

static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    const uint32_t ctr[2][4] = { { 0 }, { ~0u, ~0u, ~0u, ~0u } };
    const uint32_t key[2][2] = { { 0 }, { ~0u, ~0u } };
    const uint32_t want[2][4] = {         /* Random123's kat_vectors */
        { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
    };
    for (int i = 0; i < 2; i++) {
        uint32_t out[4];
        philox(out, ctr[i], key[i]);
        assert_memory_equal(out, want[i], sizeof out);
    }
}

static void field_laws_hold(void **state)
{
    (void)state;
    uint64_t x = 12345;
    for (int i = 0; i < 2000; i++) {
        uint64_t v[3];
        for (int k = 0; k < 3; k++)
            v[k] = field_mod(x = field_mix(x + 1));
        uint64_t a = i ? v[0] : FIELD_P - 1, b = i == 1 ? 0 : v[1], c = v[2];
        assert_true(a < FIELD_P && field_mul(a, b) < FIELD_P);
        assert_int_equal(field_mul(a, field_add(b, c)),
                         field_add(field_mul(a, b), field_mul(a, c)));
        assert_int_equal(field_mul(field_mul(a, b), c),
                         field_mul(a, field_mul(b, c)));
        assert_int_equal(field_add(a, field_neg(a)), 0);
        assert_int_equal(field_sub(a, b), field_add(a, field_neg(b)));
        assert_int_equal(field_mul(c, field_inv(c)), 1);
        unsigned __int128 w = (unsigned __int128)a * b % FIELD_P;
        assert_int_equal(field_mul(a, b), (uint64_t)w);
    }
    assert_int_equal(field_inv(0), 0);
}

static void doubles_are_dyadic_rationals(void **state)
{
    (void)state;
    const double x[] = { 0, 1, -1, 0.5, -0.375, 0.1, 1e-3, 3e20, 7e-290 };
    assert_int_equal(field_of(5), 5);
    assert_int_equal(field_of(-5), FIELD_P - 5);
    assert_int_equal(field_mul(field_of(0.5), 2), 1);
    assert_int_equal(field_mul(field_of(0x1p-80), field_of(0x1p80)), 1);
    for (int i = 0; i < COUNT(x); i++) {
        assert_int_equal(field_of(2 * x[i]), field_mul(2, field_of(x[i])));
        if (i < 5)                        /* else 3 x is rounded */
            assert_int_equal(field_of(3 * x[i]), field_mul(3, field_of(x[i])));
        assert_int_equal(field_of(-x[i]), field_neg(field_of(x[i])));
    }
}

static void random_is_uniform_and_normal(void **state)
{
    (void)state;
    const double want[2][2] = { { 0.5, 1 / 12.0 }, { 0, 1 } };
    for (int k = 0; k < 2; k++) {
        enum { N = 20000 };
        Graph *g = graph_new(arena, &(Mesh){ 0 });
        Attr a = { .dist = k ? "normal" : "uniform", .id = 3 };
        Type t = { .ndim = 1, .dim = { N } };
        Ref r = emit_typed(g, OP_random, &a, t, NULL, 0, "r", LOC);
        Eval *e = eval_new(g, REAL, 7, 1);
        eval_run(e);
        const Num *x = eval_get(e, r);
        double s = 0, q = 0;
        for (int i = 0; i < N; i++)
            s += x[i].r, q += x[i].r * x[i].r;
        assert_true(fabs(s / N - want[k][0]) < 0.03);
        assert_true(fabs(q / N - s / N * s / N - want[k][1]) < 0.04);
        eval_free(e);
    }
}

/* ---- a step by hand on 2 ranks x 2 ranks x 2 turns ---- */

typedef enum Bug {
    RIGHT, NO_COLUMN_SUM, NO_TURN_SUM, NO_ROW_SUM, WRONG_SHARD, NO_GATHER, NBUG
} Bug;

enum { DP, TP, MB };                      /* mesh axes of the split step */

static Split split(int axis, int minor)
{
    Split s = axis < 0 ? 0 : split_push(0, axis);
    return minor < 0 ? s : split_push(s, minor);
}

static Ref leaf(Graph *g, const char *name, int64_t n, Split a, int64_t m,
                Split b)
{
    Type t = { .ndim = 2, .dim = { n, m }, .split = { a, b } };
    return emit_typed(g, OP_input, NULL, t, NULL, 0, name, LOC);
}

static Ref coll(Graph *g, Op op, Axes axes, int dim, Ref x)
{
    Attr a = { .axes = axes, .dim = dim };
    return emit_typed(g, op, &a, coll_type(g, op, &a, x, LOC), &x, 1, NULL,
                      LOC);
}

/* A planner's mistake: x goes on as if it were of type t. */
static Ref pretend(Graph *g, Ref x, Type t)
{
    Attr a = { .axes = 0 };
    return emit_typed(g, OP_copy, &a, t, &x, 1, NULL, LOC);
}

static Ref dot(Graph *g, const char *sig, Ref a, Ref b)
{
    return EMIT(g, OP_dot, &(Attr){ .sig = sig }, LOC, a, b);
}

/* What one op did, undone on purpose: the operand with the result's type. */
static Ref without(Graph *g, Ref done)
{
    return pretend(g, g->node[done].in[0], g->node[done].type);
}

typedef struct Gradients { Graph *g; Ref loss, dw, du; } Gradients;

/* x[8,4] w[4,8] tanh u[8,3], loss = sum of squares, and two gradients.
 * Split: rows over DP and turns MB, columns of w and rows of u over TP. */
static Gradients step(const Mesh *m, Bug bug)
{
    bool on = m->naxis > 0;
    enum { T = 1 << TP, D = 1 << DP, M = 1 << MB };
    Graph *g = graph_new(arena, m);
    Split rows = on ? split(DP, MB) : 0, tp = on ? split(TP, -1) : 0;
    Ref x = leaf(g, "x", 8, rows, 4, 0), w = leaf(g, "w", 4, 0, 8, tp);
    Ref u = leaf(g, "u", 8, on ? split(TP, DP) : 0, 3, 0);
    Ref ug = on ? coll(g, OP_all_gather, D, 0, u) : u;
    if (bug == NO_GATHER) {               /* own part twice */
        Ref half = EMIT(g, OP_concat, &(Attr){ .dim = 0 }, LOC,
                        pretend(g, u, (Type){ .ndim = 2, .dim = { 2, 3 } }),
                        pretend(g, u, (Type){ .ndim = 2, .dim = { 2, 3 } }));
        ug = pretend(g, half, g->node[ug].type);
    }
    Ref h = EMIT(g, OP_tanh, NULL, LOC, dot(g, "bk,kn->bn", x, w));
    Ref y = dot(g, "bn,nm->bm", h, ug);
    if (on)
        y = coll(g, OP_all_reduce, T, 0, y);
    if (bug == NO_COLUMN_SUM)
        y = without(g, y);
    Ref loss = dot(g, "bm,bm->", y, y);
    if (on)
        loss = coll(g, OP_all_reduce, D, 0,
                    coll(g, OP_all_reduce, M, 0, loss));
    Ref dy = EMIT(g, OP_add, NULL, LOC, y, y);
    Ref du = dot(g, "bn,bm->nm", h, dy);
    Ref dh = dot(g, "bm,nm->bn", dy, ug);
    Ref slope = EMIT(g, OP_sub, NULL, LOC,
                     emit_const(g, 1, &g->node[h].type, LOC),
                     EMIT(g, OP_mul, NULL, LOC, h, h));
    Ref dw = dot(g, "bk,bn->kn", x, EMIT(g, OP_mul, NULL, LOC, dh, slope));
    if (on) {
        du = coll(g, OP_all_reduce, M, 0, du);
        if (bug == NO_TURN_SUM)
            du = without(g, du);
        du = coll(g, OP_reduce_scatter, D, 0, du);
        dw = coll(g, OP_all_reduce, D, 0, coll(g, OP_all_reduce, M, 0, dw));
        if (bug == NO_ROW_SUM)
            dw = without(g, dw);
    }
    if (bug == WRONG_SHARD)               /* TP and DP exchanged */
        g->node[du].type.split[0] = split(DP, TP);
    return (Gradients){ g, loss, dw, du };
}

static bool equal(Eval *e, Ref a, Eval *f, Ref b, int64_t n)
{
    return memcmp(eval_get(e, a), eval_get(f, b), (size_t)n * sizeof(Num)) == 0;
}

static const Mesh mesh = { 3, { { "rows", 2, SPACE }, { "cols", 2, SPACE },
                                { "turns", 2, TIME } } };

static bool same(Bug bug)
{
    Gradients one = step(&(Mesh){ 0 }, RIGHT), many = step(&mesh, bug);
    if (bug == RIGHT)
        verify(many.g, "hand");
    Eval *e = eval_new(one.g, FIELD, 0, 0), *f = eval_new(many.g, FIELD, 0, 0);
    eval_run(e), eval_run(f);
    bool ok = equal(e, one.loss, f, many.loss, 1)
              && equal(e, one.dw, f, many.dw, 32)
              && equal(e, one.du, f, many.du, 24);
    eval_free(e), eval_free(f);
    return ok;
}

static void ranks_and_turns_equal_one_rank_bit_for_bit(void **state)
{
    (void)state;
    assert_true(same(RIGHT));
}

static void seeded_bugs_differ(void **state)
{
    (void)state;
    for (Bug b = RIGHT + 1; b < NBUG; b++)
        if (same(b))
            fail_msg("bug %d is not seen", b);
}

/* Of graphs that differ in one place most is found, and nothing wrongly. */
static void what_runs_share_is_what_each_has_alone(void **state)
{
    (void)state;
    EvalMemo *memo = eval_memo_new();
    for (Bug b = RIGHT; b < NBUG; b++) {
        int64_t found = eval_memo_found(memo);
        Gradients many = step(&mesh, b);
        Eval *e = eval_new(many.g, FIELD, 0, 0);
        Eval *f = eval_new(many.g, FIELD, 0, 0);
        eval_share(e, memo);
        eval_run(e), eval_run(f);
        assert_true(equal(e, many.loss, f, many.loss, 1)
                    && equal(e, many.dw, f, many.dw, 32)
                    && equal(e, many.du, f, many.du, 24));
        assert_true(b == RIGHT || eval_memo_found(memo) > found);
        eval_free(e), eval_free(f);
    }
    eval_memo_free(memo);
}

static void reals_agree_to_rounding(void **state)
{
    (void)state;
    Gradients one = step(&(Mesh){ 0 }, RIGHT), many = step(&mesh, RIGHT);
    Eval *e = eval_new(one.g, REAL, 0, 0), *f = eval_new(many.g, REAL, 0, 0);
    eval_run(e), eval_run(f);
    const Num *a = eval_get(e, one.dw), *b = eval_get(f, many.dw);
    for (int i = 0; i < 32; i++)
        assert_true(fabs(a[i].r - b[i].r) < 1e-12);
    eval_free(e), eval_free(f);
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_node(const char *what, Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, LOC);
    double points = sig_points(&s), ns[2];
    size_t size_out = (size_t)type_volume(&n->type) * sizeof(Num);
    Num *in[NIN], *out = alloc(arena, size_out);
    for (int i = 0; i < n->nin; i++) {
        int64_t size = type_volume(&g->node[n->in[i]].type);
        in[i] = alloc(arena, (size_t)size * sizeof(Num));
        for (int64_t k = 0; k < size; k++)
            in[i][k].f = field_of(1 + (double)(k % 7) / 8);
    }
    for (Domain d = REAL; d <= FIELD; d++) {
        for (int i = 0; d == REAL && i < n->nin; i++)
            for (int64_t k = 0; k < type_volume(&g->node[n->in[i]].type); k++)
                in[i][k].r = 1 + (double)(k % 7) / 8;
        double t = seconds();
        eval_node(g, r, d, (const Num *const *)in, out);
        ns[d] = 1e9 * (seconds() - t) / points;
    }
    print_message("  %-10s %5.2f ns a point, field %5.2f\n", what, ns[REAL],
                  ns[FIELD]);
}

static void a_point_takes_nanoseconds(void **state)
{
    (void)state;
    Graph *g = graph_new(arena, &(Mesh){ 0 });
    Type pic = { .ndim = 4, .dim = { 2, 16, 34, 34 } };
    Type filter = { .ndim = 4, .dim = { 16, 16, 3, 3 } };
    Attr swap = { .sig = "ab->ba" }, sum = { .sig = "ab->a" };
    Ref a = leaf(g, "a", 256, 0, 256, 0), b = leaf(g, "b", 256, 0, 256, 0);
    Ref x = emit_typed(g, OP_input, NULL, pic, NULL, 0, "p", LOC);
    Ref w = emit_typed(g, OP_input, NULL, filter, NULL, 0, "f", LOC);
    Ref c = EMIT(g, OP_conv, NULL, LOC, x, w);
    time_node("add", g, EMIT(g, OP_add, NULL, LOC, a, b));
    time_node("div", g, EMIT(g, OP_div, NULL, LOC, a, b));
    time_node("tanh", g, EMIT(g, OP_tanh, NULL, LOC, a));
    time_node("transpose", g, EMIT(g, OP_move, &swap, LOC, a));
    time_node("sum", g, EMIT(g, OP_move, &sum, LOC, a));
    time_node("dot nn", g, dot(g, "mk,kn->mn", a, b));
    time_node("dot nt", g, dot(g, "mk,nk->mn", a, b));
    time_node("conv", g, c);
    time_node("conv_dx", g, EMIT(g, OP_conv_dx, NULL, LOC, c, w, x));
    time_node("conv_dw", g, EMIT(g, OP_conv_dw, NULL, LOC, x, c, w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(field_laws_hold),
        cmocka_unit_test(doubles_are_dyadic_rationals),
        cmocka_unit_test(random_is_uniform_and_normal),
        cmocka_unit_test(ranks_and_turns_equal_one_rank_bit_for_bit),
        cmocka_unit_test(seeded_bugs_differ),
        cmocka_unit_test(what_runs_share_is_what_each_has_alone),
        cmocka_unit_test(reals_agree_to_rounding),
        cmocka_unit_test(a_point_takes_nanoseconds),
    };
    op_init();
    arena = arena_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}
