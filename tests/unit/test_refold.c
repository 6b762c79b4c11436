/* test_refold.c -- sums in two folds: which, and that nothing else changes. */
#include "ir/eval.h"
#include "passes/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static Arena *arena;

/* Backward of a norm over the last dimension, and what its gain gets. */
#define NORM(b, gain, label)                                             \
    "x = input : f32[" b ",12,128]" label "\n"                           \
    "dy = input : f32[" b ",12,128]" label "\n"                          \
    "p = mul x, dy" label "\n"                                           \
    "a = move p \"bnd -> bn\"" label "\n"                                \
    "t = tanh a" label "\n"                                              \
    "tt = move t \"bn -> bnd\" d=128" label "\n"                         \
    "u = mul x, tt" label "\n"                                           \
    "dx = sub dy, u" label "\n"                                          \
    "dg = move p \"" gain "\"" label "\n"                                \
    "return dx=dx dg=dg\n"

static Graph *refolded(const char *text, const Plan *plan)
{
    Job j = { .keep = arena, .target = target_find("host"), .plan = plan };
    Graph *g = graph_parse(arena, text, "test");
    g->phase = PHASE_LOCAL;
    Graph *out = run_passes("refold", g, &j);
    Eval *was = eval_new(g, FIELD, 42, 3), *is = eval_new(out, FIELD, 42, 3);
    eval_run(was);
    eval_run(is);
    for (uint32_t i = 0; i < g->nout; i++) {
        int64_t n = type_volume(&g->node[g->out[i].ref].type);
        const Num *x = eval_get(was, g->out[i].ref);
        const Num *y = eval_get(is, out->out[i].ref);
        assert_true(type_equal(&g->node[g->out[i].ref].type,
                               &out->node[out->out[i].ref].type));
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
    eval_free(was);
    eval_free(is);
    return out;
}

/* Signature of the last node but `back` of them. */
static void check_sig(const Graph *g, uint32_t back, const char *sig)
{
    const Node *n = &g->node[g->n - 1 - back];
    assert_int_equal(n->op, OP_move);
    assert_string_equal(n->attr.sig, sig);
}

static void columns_beside_rows_are_summed_in_two(void **state)
{
    (void)state;
    Graph *g = refolded(NORM("64", "bnd -> d", ""), NULL);
    check_sig(g, 1, "bnd->bd");
    check_sig(g, 0, "ab->b");
}

static void rows_are_cut_where_no_letter_is_left(void **state)
{
    (void)state;
    Graph *g = refolded("x = input : f32[512,256]\n"
                        "s = move x \"nd -> n\"\n"
                        "t = move s \"n -> nd\" d=256\n"
                        "y = mul x, t\n"
                        "c = move y \"nd -> d\"\n"
                        "return y=y c=c\n", NULL);
    check_sig(g, 1, "(nA)d->nd");
    assert_int_equal(g->node[g->n - 2].type.dim[0], 64);
}

static void channels_last_is_cut_at_its_outermost(void **state)
{
    (void)state;
    Graph *g = refolded("x = input : f32[16,32,9,9] layout=0231\n"
                        "s = move x \"b(gc)hw -> bg\" g=8\n"
                        "t = move s \"bg -> b(gc)hw\" c=4 h=9 w=9\n"
                        "y = mul x, t layout=0231\n"
                        "c = move y \"bchw -> c\"\n"
                        "return y=y c=c\n", NULL);
    check_sig(g, 1, "bchw->bc");
    check_sig(g, 0, "ab->b");
}

static void parts_keep_their_splits(void **state)
{
    (void)state;
    Graph *g = refolded("mesh r=2 m=2:time\n"
                        NORM("64/r/m", "bnd -> d", " loop=m"), NULL);
    const Type *first = &g->node[g->n - 2].type, *last = &g->node[g->n - 1].type;
    assert_int_equal(first->partial, 0);
    assert_int_equal(split_parts(&g->mesh, first->split[0]), 4);
    assert_int_equal(last->partial, 3);
}

static void a_sum_without_company_stays(void **state)
{
    (void)state;
    Graph *g = refolded("x = input : f32[64,12,128]\n"
                        "y = tanh x\n"
                        "c = move y \"bnd -> d\"\n"
                        "return y=y c=c\n", NULL);
    check_sig(g, 0, "bnd -> d");
}

/* A clone without company would not be what its original has become. */
static void what_is_made_again_stays(void **state)
{
    (void)state;
    Graph *g = refolded(NORM("64", "bnd -> d", "")
                        "k = move p \"bnd -> d\" again=dg\n"
                        "return k=k\n", NULL);
    check_sig(g, 0, "bnd -> d");
    check_sig(g, 1, "bnd -> d");
    assert_int_equal(g->node[g->n - 1].again, g->n - 2);
}

static void few_rows_stay(void **state)
{
    (void)state;
    check_sig(refolded(NORM("8", "bnd -> d", ""), NULL), 0, "bnd -> d");
}

static void rows_sums_stay(void **state)
{
    (void)state;
    check_sig(refolded(NORM("64", "bnd -> bn", ""), NULL), 0, "bnd -> bn");
}

static void an_exact_plan_keeps_its_sums(void **state)
{
    (void)state;
    Plan exact = { .exact = true };
    check_sig(refolded(NORM("64", "bnd -> d", ""), &exact), 0, "bnd -> d");
}

static int setup(void **state)
{
    (void)state;
    op_init();
    arena = arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_beside_rows_are_summed_in_two),
        cmocka_unit_test(rows_are_cut_where_no_letter_is_left),
        cmocka_unit_test(channels_last_is_cut_at_its_outermost),
        cmocka_unit_test(parts_keep_their_splits),
        cmocka_unit_test(a_sum_without_company_stays),
        cmocka_unit_test(what_is_made_again_stays),
        cmocka_unit_test(few_rows_stay),
        cmocka_unit_test(rows_sums_stay),
        cmocka_unit_test(an_exact_plan_keeps_its_sums),
    };
    return cmocka_run_group_tests_name("refold", tests, setup, teardown);
}
