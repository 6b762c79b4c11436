/* test_link.c -- seconds of transfers over the levels of a cluster, against
 * the formulas of rings, trees and nests written out by hand. */
#include "passes/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MB = 1 << 20 };
static Arena *a;

/* Four nodes of eight ranks that send 100 GB/s inside and 10 outside. */
static Cluster two_levels(double inner, double outer)
{
    return (Cluster){ .target = "host", .nlevel = 2, .level = {
        { "node", 8, 100e9, inner }, { "net", 4, 10e9, outer } } };
}

/* Seconds of one op over `axes` of a value of so many MiB (a rank's). */
static double seconds(const char *mesh, const char *op, const char *type,
                      const char *axes, const char *more, const Cluster *c)
{
    char *text = fmt(a, "mesh %s\nx = input : %s\ny = %s x axes=%s%s : %s\n"
                     "return y=y\n", mesh, type, op, axes, more,
                     strcmp(op, "all_reduce") == 0 ? "f32[262144]" :
                     strcmp(op, "all_gather") == 0 ? "f32[262144]"
                                                   : "f32[512,512/a]");
    Graph *g = graph_parse(a, text, "text");
    return transfer_seconds(g, 1, c);
}

static double reduce(const char *mesh, const char *axes, const Cluster *c)
{
    return seconds(mesh, "all_reduce", fmt(a, "f32[262144]%s%s",
                   strchr(axes, ',') ? "+a" : "+", strchr(axes, ',') ? "+b"
                   : axes), axes, "", c);
}

static void near(double is, double want)
{
    if (!(fabs(is - want) <= 1e-9 * want))
        fail_msg("%g s, wanted %g", is, want);
}

static void a_ring_in_a_node_sends_twice_all_but_a_part(void **state)
{
    (void)state;
    Cluster c = two_levels(0, 0);
    near(reduce("a=8", "a", &c), 2.0 * 7 / 8 * MB / 100e9);
    near(seconds("a=8", "all_gather", "f32[262144/a]", "a", " dim=0", &c),
         7.0 / 8 * MB / 100e9);
}

static void a_block_shares_its_way_out(void **state)
{
    (void)state;
    Cluster c = two_levels(0, 0);
    near(reduce("a=4 b=8", "a,b", &c), 2.0 * 31 / 32 * MB / 80e9);
}

static void the_last_axis_lies_inside_of_a_node(void **state)
{
    (void)state;
    Cluster c = two_levels(0, 0);
    near(reduce("a=4 b=8", "b", &c), 2.0 * 7 / 8 * MB / 100e9);
    near(reduce("a=4 b=8", "a", &c), 2.0 * 3 / 4 * MB / 10e9);
    near(reduce("a=8 b=4", "b", &c), 2.0 * 3 / 4 * MB / 100e9);
    near(reduce("a=8 b=4", "a", &c), 2.0 * 1 / 2 * MB / 100e9
                                     + 2.0 * 3 / 4 * MB / 2 / 10e9);
    near(reduce("a=4 t=3:time b=8", "a", &c), 2.0 * 3 / 4 * MB / 10e9);
}

/* What is short pays hops: a tree has fewest of the far ones. */
static void short_messages_pay_hops(void **state)
{
    (void)state;
    Cluster c = two_levels(0, 1);
    double s = reduce("a=4 b=8", "a", &c);
    assert_true(s > 4 && s < 4.001);
    c = two_levels(1, 0);
    s = reduce("a=4 b=8", "b", &c);
    assert_true(s > 14 && s < 14.001);
}

static void an_exchange_waits_for_its_slowest_level(void **state)
{
    (void)state;
    Cluster c = two_levels(1e-6, 1e-5);
    near(seconds("a=8", "all_to_all", "f32[512/a,512]", "a", " dim=0 to=1",
                 &c), MB / 8.0 * 7 / 8 / 100e9 + 1e-6);
    near(seconds("a=32", "all_to_all", "f32[512/a,512]", "a", " dim=0 to=1",
                 &c), MB / 32.0 * 24 / 32 / 10e9 + 1.1e-5);
}

static void a_level_without_end_holds_all(void **state)
{
    (void)state;
    Cluster c = { .target = "host", .nlevel = 1,
                  .level = { { "node", 0, 5e9, 0 } } };
    near(reduce("a=64", "a", &c), 2.0 * 63 / 64 * MB / 5e9);
    near(reduce("a=1", "a", &c) + 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_in_a_node_sends_twice_all_but_a_part),
        cmocka_unit_test(a_block_shares_its_way_out),
        cmocka_unit_test(the_last_axis_lies_inside_of_a_node),
        cmocka_unit_test(short_messages_pay_hops),
        cmocka_unit_test(an_exchange_waits_for_its_slowest_level),
        cmocka_unit_test(a_level_without_end_holds_all),
    };
    op_init();
    a = arena_new();
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(a);
    return bad;
}
