/* test_case.c -- the fill of parity cases. */
#include "compiler/case.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static Arena *arena;

static Type sized(int ndim, int64_t a, int64_t b)
{
    return (Type){ .dtype = F32, .ndim = ndim, .dim = { a, b } };
}

static void hash_is_fnv1a(void **state)
{
    (void)state;
    assert_int_equal(fill_hash("x"), 0xfd0c5087u);
    assert_int_equal(fill_hash(""), 0x811c9dc5u);
}

static void bits_are_those_of_the_fact_sheet(void **state)
{
    static const uint32_t want[] = { 751049067u, 3604028097u, 2560476225u };
    (void)state;
    for (int i = 0; i < COUNT(want); i++)
        assert_int_equal(fill_bits(fill_hash("x"), (uint64_t)i), want[i]);
}

static void floats_are_exact_in_single_precision(void **state)
{
    static const double want[] = { -0.6502655744552612, 0.6782562732696533,
                                   0.19231462478637695 };
    (void)state;
    for (int i = 0; i < COUNT(want); i++) {
        double x = fill_float(fill_hash("x"), (uint64_t)i);
        assert_true(x == want[i]);
        assert_true(x == (double)(float)x);
    }
}

static void params_are_filled_by_their_names(void **state)
{
    static const struct { const char *name; int ndim; double a, b; } row[] = {
        { "norm.g", 1, 1, 0.1 }, { "norm.gamma", 3, 1, 0.1 },
        { "norm.weight", 1, 1, 0.1 }, { "proj.bias", 1, 0, 0.1 },
        { "temperature", 0, 0, 0.1 }, { "proj.weight", 2, 0, 0.5 },
        { "null_kv", 2, 0, 0.5 }, { "img", 2, 0, 0.5 },
    };
    (void)state;
    for (int i = 0; i < COUNT(row); i++) {
        Type t = { .dtype = F32, .ndim = row[i].ndim, .dim = { 2, 4, 1 } };
        double f = fill_float(fill_hash(row[i].name), 1);
        double *x = fill_param(arena, row[i].name, &t);
        if (row[i].ndim)
            assert_true(fabs(x[1] - row[i].a - row[i].b * f) < 1e-15);
    }
}

static void rotary_frequencies_keep_their_definition(void **state)
{
    (void)state;
    assert_true(fill_keeps("layers.0.0.rotary_emb.freqs"));
    assert_true(fill_keeps("rotary_emb.freqs"));
    assert_false(fill_keeps("my_rotary_emb.freqs"));
    assert_false(fill_keeps("layers.0.freqs"));
}

static void specs_scale_then_zero(void **state)
{
    static int64_t zero[1][NDIM] = { { 1, -1 } };
    Type t = sized(2, 2, 3);
    Spec s = { .fill = "x", .scale = 2, .add = 1, .zero = zero, .nzero = 1 };
    double *x = fill_spec(arena, &s, &t, 0);
    (void)state;
    assert_true(x[1] == 2 * 0.6782562732696533 + 1);
    assert_true(x[3] == 0 && x[4] == 0 && x[5] == 0);
}

static void specs_name_the_step(void **state)
{
    Type t = sized(1, 1, 0);
    Spec s = { .fill = "img<s>", .scale = 1 };
    (void)state;
    assert_true(fill_spec(arena, &s, &t, 12)[0] ==
                fill_float(fill_hash("img12"), 0));
}

static void specs_give_whole_numbers_below_a_bound(void **state)
{
    Type t = sized(1, 3, 0);
    Spec s = { .fill = "x", .scale = 1, .below = 50 };
    double *x = fill_spec(arena, &s, &t, 0);
    (void)state;
    assert_true(x[0] == 17 && x[1] == 47 && x[2] == 25);
}

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    op_init();
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
        cmocka_unit_test(hash_is_fnv1a),
        cmocka_unit_test(bits_are_those_of_the_fact_sheet),
        cmocka_unit_test(floats_are_exact_in_single_precision),
        cmocka_unit_test(params_are_filled_by_their_names),
        cmocka_unit_test(rotary_frequencies_keep_their_definition),
        cmocka_unit_test(specs_scale_then_zero),
        cmocka_unit_test(specs_name_the_step),
        cmocka_unit_test(specs_give_whole_numbers_below_a_bound),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
