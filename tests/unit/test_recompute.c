/* test_recompute.c -- what is made twice so that it need not wait. */
#include "ir/eval.h"
#include "passes/recompute_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static Arena *arena;

/* h is the activation between two products; the backward pass wants it for
 * w2's gradient, and u, or y, for u's. */
#define LAYER(of)                                                        \
    "x = input : f32[64,512]\n"                                          \
    "w1 = param : f32[512,256]\n"                                        \
    "w2 = param : f32[256,32]\n"                                         \
    "dy = input : f32[64,32]\n"                                          \
    "u = dot x, w1 \"bk,km->bm\" : f32[64,256] seg=forward\n"            \
    "h = sigmoid u : f32[64,256] seg=forward\n"                          \
    "y = dot h, w2 \"bm,mn->bn\" : f32[64,32] seg=forward\n"             \
    "dw2 = dot h, dy \"bm,bn->mn\" : f32[256,32] seg=backward\n"         \
    "dh = dot dy, w2 \"bn,mn->bm\" : f32[64,256] seg=backward\n"         \
    "du = mul dh, " of " : f32[64,256] seg=backward\n"                   \
    "dw1 = dot x, du \"bk,bm->km\" : f32[512,256] seg=backward\n"        \
    "return y=y a=dw1 b=dw2\n"

static Graph *made(const char *text, const Target *target)
{
    Job j = { .keep = arena, .target = target };
    Graph *g = graph_parse(arena, text, "test");
    g->phase = PHASE_LOCAL;
    return run_passes("recompute", g, &j);
}

/* Nothing waits that can be made again. */
static Graph *made_of_all(const char *text)
{
    Job j = { .keep = arena, .scratch = arena, .target = target_find("host") };
    Graph *g = graph_parse(arena, text, "test");
    bool *keep = alloc(arena, g->n);
    return recompute_clone(recompute_ask(g, &j), g, keep);
}

static const Node *named(const Graph *g, const char *name)
{
    for (Ref r = 0; r < g->n; r++)
        if (strcmp(g->node[r].name, name) == 0)
            return &g->node[r];
    return NULL;
}

static const char *operand(const Graph *g, const char *name, int i)
{
    return g->node[named(g, name)->in[i]].name;
}

static void an_activation_is_made_again_for_the_gradient(void **state)
{
    (void)state;
    Graph *g = made(LAYER("u"), target_find("host"));
    const Node *n = named(g, "h.again");
    assert_non_null(n);
    assert_int_equal(n->segment, BACKWARD);
    assert_string_equal(g->node[n->again].name, "h");
    assert_string_equal(operand(g, "dw2", 0), "h.again");
    assert_string_equal(operand(g, "y", 0), "h");
}

/* Scores over what waits take few flops for their bytes. */
static void a_product_of_few_flops_is_made_again(void **state)
{
    (void)state;
    Graph *g = made(
        "q = input : f32[256,8]\nk = input : f32[256,8]\n"
        "dy = input : f32[256,256]\n"
        "s = dot q, k \"nd,md->nm\" : f32[256,256] seg=forward\n"
        "p = sigmoid s : f32[256,256] seg=forward\n"
        "y = move p \"nm->n\" : f32[256] seg=forward\n"
        "ds = mul dy, s : f32[256,256] seg=backward\n"
        "dq = dot ds, k \"nm,md->nd\" : f32[256,8] seg=backward\n"
        "return y=y a=dq\n", target_find("host"));
    assert_non_null(named(g, "s.again"));
    assert_string_equal(operand(g, "ds", 1), "s.again");
    assert_string_equal(operand(g, "p", 0), "s");
}

/* The clone is all there is of what forward makes for backward alone: the
 * first would be launched for nobody. */
static void what_backward_alone_reads_is_made_there(void **state)
{
    (void)state;
    const Graph *product = made(
        "q = input : f32[256,8]\nk = input : f32[256,8]\n"
        "dy = input : f32[256,256]\n"
        "s = dot q, k \"nd,md->nm\" : f32[256,256] seg=forward\n"
        "ds = mul dy, s : f32[256,256] seg=backward\n"
        "dq = dot ds, k \"nm,md->nd\" : f32[256,8] seg=backward\n"
        "return a=dq\n", target_find("host"));
    assert_non_null(named(product, "s.again"));
    assert_null(named(product, "s"));
    const Graph *gather = made_of_all(
        "mesh r=2\nentry train\nphase local\n"
        "x = input : f32[8/r,4]\ndy = input : f32[8,4]\n"
        "h = neg x : f32[8/r,4] seg=forward\n"
        "g = all_gather h axes=r : f32[8,4] seg=forward\n"
        "dw = dot g, dy \"bk,bn->kn\" : f32[4,4] seg=backward\n"
        "return dw=dw\n");
    assert_non_null(named(gather, "g.again"));
    assert_null(named(gather, "g"));
}

static void a_product_of_many_flops_waits(void **state)
{
    (void)state;
    assert_null(named(made(LAYER("u"), target_find("host")), "u.again"));
}

static void nothing_is_kept_longer_for_it(void **state)
{
    (void)state;
    Graph *g = made(LAYER("dh"), target_find("host"));
    assert_null(named(g, "h.again"));
}

static void without_a_target_nothing_happens(void **state)
{
    (void)state;
    assert_null(named(made(LAYER("u"), NULL), "h.again"));
}

static void small_values_may_wait(void **state)
{
    (void)state;
    Graph *g = made(
        "x = input : f32[8,16]\nw = param : f32[16,16]\n"
        "u = dot x, w \"bk,km->bm\" : f32[8,16] seg=forward\n"
        "h = sigmoid u : f32[8,16] seg=forward\n"
        "y = dot h, w \"bk,km->bm\" : f32[8,16] seg=forward\n"
        "d = dot h, x \"bm,bn->mn\" : f32[16,16] seg=backward\n"
        "e = neg u : f32[8,16] seg=backward\n"
        "return y=y d=d e=e\n", target_find("host"));
    assert_null(named(g, "h.again"));
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
        cmocka_unit_test(an_activation_is_made_again_for_the_gradient),
        cmocka_unit_test(a_product_of_few_flops_is_made_again),
        cmocka_unit_test(what_backward_alone_reads_is_made_there),
        cmocka_unit_test(a_product_of_many_flops_waits),
        cmocka_unit_test(nothing_is_kept_longer_for_it),
        cmocka_unit_test(without_a_target_nothing_happens),
        cmocka_unit_test(small_values_may_wait),
    };
    return cmocka_run_group_tests_name("recompute", tests, setup, teardown);
}
