/* test_place.c -- offsets in one arena, for lives made by lot. */
#include "passes/place.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { STEPS = 200, ITEMS = 300 };

static uint64_t lot;
static uint32_t draw(uint32_t n)
{
    lot = lot * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(lot >> 33) % n;
}

static Item item_of(int64_t size, uint32_t from, uint32_t to)
{
    return (Item){ .size = size, .at = -1, .life = { from, to } };
}

/* A step of training: activations live from forward to backward, gradients
 * from backward to the end, and much lives shortly. */
static void training(Item *it, uint64_t seed)
{
    lot = seed;
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint32_t from = draw(STEPS / 2), size = 64 * (1 + draw(100));
        it[i] = i % 3 == 0 ? item_of(size, from, STEPS - 1 - from)
              : i % 3 == 1 ? item_of(size, STEPS / 2 + from, STEPS - 1)
                           : item_of(size, from, from + draw(9));
    }
}

static int64_t peak_of(const Item *it, uint32_t n)
{
    int64_t peak = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(it[i].at >= 0);
        for (uint32_t k = 0; k < i; k++)
            assert_false(item_meets(&it[i], &it[k])
                         && it[i].at < it[k].at + it[k].size
                         && it[k].at < it[i].at + it[i].size);
        if (it[i].at + it[i].size > peak)
            peak = it[i].at + it[i].size;
    }
    return peak;
}

static void those_that_meet_share_no_byte(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        Item it[ITEMS];
        int64_t lower;
        uint32_t when;
        training(it, seed);
        int64_t peak = place_items(it, ITEMS, STEPS, 0, &lower, &when);
        assert_int_equal(peak, peak_of(it, ITEMS));
        assert_true(peak >= lower);
    }
}

static void a_training_step_is_within_two_percent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        Item it[ITEMS];
        int64_t lower;
        uint32_t when;
        training(it, seed);
        int64_t peak = place_items(it, ITEMS, STEPS, 0, &lower, &when);
        assert_in_range(peak, lower, lower + lower / 50);
    }
}

static void the_same_items_have_the_same_places(void **state)
{
    (void)state;
    Item a[ITEMS], b[ITEMS];
    int64_t lower;
    uint32_t when;
    training(a, 3);
    training(b, 3);
    place_items(a, ITEMS, STEPS, 0, &lower, &when);
    place_items(b, ITEMS, STEPS, 0, &lower, &when);
    assert_memory_equal(a, b, sizeof a);
}

/* Asked for what can be had, for a little less than the bound, for anything. */
static void what_is_enough_ends_the_search_no_lower(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        Item it[ITEMS];
        int64_t lower, peak;
        uint32_t when;
        training(it, seed);
        int64_t least = place_items(it, ITEMS, STEPS, 0, &lower, &when);
        const int64_t enough[] = { lower + lower / 10, lower - 1, 10 * lower };
        for (int i = 0; i < COUNT(enough); i++) {
            peak = place_items(it, ITEMS, STEPS, enough[i], &lower, &when);
            assert_int_equal(peak, peak_of(it, ITEMS));
            assert_true(peak >= least);
            assert_true(enough[i] < lower || peak <= enough[i]);
        }
    }
}

/* The two of size 1 have to lie below, whatever comes first in the order. */
static void a_pile_fits_or_says_no(void **state)
{
    (void)state;
    Item it[] = { item_of(1, 0, 1), item_of(2, 1, 2), item_of(1, 2, 3),
                  item_of(2, 3, 3), item_of(2, 0, 0) };
    const uint32_t order[] = { 3, 1, 4, 0, 2 };
    assert_true(place_pile(it, 5, 4, order, 3, 100));
    assert_int_equal(peak_of(it, 5), 3);
    assert_false(place_pile(it, 5, 4, order, 2, 100));
}

static void nothing_takes_nothing(void **state)
{
    (void)state;
    int64_t lower;
    uint32_t when = 0;
    assert_int_equal(place_items(NULL, 0, 0, 0, &lower, &when), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_meet_share_no_byte),
        cmocka_unit_test(a_training_step_is_within_two_percent),
        cmocka_unit_test(what_is_enough_ends_the_search_no_lower),
        cmocka_unit_test(the_same_items_have_the_same_places),
        cmocka_unit_test(a_pile_fits_or_says_no),
        cmocka_unit_test(nothing_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
