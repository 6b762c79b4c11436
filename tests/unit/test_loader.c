/* test_loader.c -- the order of samples, and reading a step ahead. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "runtime/loader.h"
#include "tests/unit/temp.h"

/* ---- the order ---- */

static void each_epoch_is_a_permutation(void **state)
{
    (void)state;
    static const int64_t count[] = { 1, 2, 3, 4, 5, 7, 16, 17, 1000, 60000 };
    uint8_t *seen = malloc(60000);
    for (size_t c = 0; c < sizeof count / sizeof *count; c++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)count[c]);
            for (int64_t k = 0; k < count[c]; k++) {
                int64_t i = dpc_data_index(5, count[c], epoch * count[c] + k);
                assert_in_range(i, 0, count[c] - 1);
                assert_int_equal(seen[i]++, 0);
            }
        }
    free(seen);
}

static void order_differs_by_epoch_and_seed(void **state)
{
    (void)state;
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (int64_t k = 0; k < 1000; k++) {
        int64_t i = dpc_data_index(1, 1000, k);
        same_epoch += i == dpc_data_index(1, 1000, 1000 + k);
        same_seed += i == dpc_data_index(2, 1000, k);
        fixed += i == k;
    }
    assert_in_range(same_epoch, 0, 9);
    assert_in_range(same_seed, 0, 9);
    assert_in_range(fixed, 0, 9);
}

/* 24 orders of 4 samples, 100 each expected: 5 sigma is 49. */
static void small_orders_are_equally_likely(void **state)
{
    (void)state;
    int n[256] = { 0 }, seen = 0;
    for (int64_t epoch = 0; epoch < 2400; epoch++) {
        int code = 0;
        for (int64_t k = 0; k < 4; k++)
            code = code << 2 | (int)dpc_data_index(9, 4, epoch * 4 + k);
        n[code]++;
    }
    for (int i = 0; i < 256; i++)
        if (n[i]) {
            seen++;
            assert_in_range(n[i], 51, 149);
        }
    assert_int_equal(seen, 24);
}

static void huge_positions_stay_in_range(void **state)
{
    (void)state;
    int64_t n = (int64_t)1 << 61;
    for (int64_t k = 0; k < 100; k++)
        assert_in_range(dpc_data_index(3, n, INT64_MAX - k), 0, n - 1);
}

/* ---- the loader ---- */

static void put_numbers(void)
{
    int32_t n[50];
    float x[50];
    for (int i = 0; i < 50; i++)
        n[i] = i, x[i] = (float)i / 2;
    put_npy("n.npy", 1, HEAD("<i4", "(25, 2)"), n, sizeof n);
    put_npy("x.npy", 1, HEAD("<f4", "(25, 2)"), x, sizeof x);
}

static void equals_direct_reads(DpcOrder order)
{
    enum { BATCH = 8, NROW = 3, STEPS = 40 };
    static const int64_t row[NROW] = { 6, 1, 2 };
    put_numbers();
    char spec[1200];
    snprintf(spec, sizeof spec, "%s,%s", at("n.npy"), at("x.npy"));
    DpcData *d, *own;
    DpcLoader *l;
    opens(spec, 0, &d);
    opens(spec, 0, &own);
    int field[] = { dpc_data_find(d, "x"), dpc_data_find(d, "n") };
    assert_int_equal(dpc_loader_open(d, order, BATCH, row, NROW, field,
                                     2, &l), DPC_OK);
    assert_in_range(dpc_loader_bytes(l), 2 * 2 * NROW * 8, 4096);
    for (int64_t s = order.start; s < order.start + STEPS; s++) {
        int64_t at = order.cycle ? s % order.cycle : s;
        const void *p[2];
        double waited = -1;
        assert_int_equal(dpc_loader_next(l, p, &waited), DPC_OK);
        assert_true(waited >= 0);
        for (int r = 0; r < NROW; r++) {
            int64_t i = dpc_data_index(order.seed, 25, at * BATCH + row[r]);
            uint8_t want[8];
            for (int f = 0; f < 2; f++) {
                assert_int_equal(dpc_data_read(own, i, field[f], want, 8), 0);
                assert_memory_equal((const uint8_t *)p[f] + 8 * r, want, 8);
            }
        }
    }
    dpc_loader_close(l);
    dpc_data_close(d);
    dpc_data_close(own);
}

static void loader_equals_direct_reads(void **state)
{
    (void)state;
    equals_direct_reads((DpcOrder){ .seed = 11, .start = 5 });
    equals_direct_reads((DpcOrder){ .seed = 0, .cycle = 3 });
    equals_direct_reads((DpcOrder){ .seed = 2, .start = 1, .cycle = 1 });
}

static void loader_hands_on_an_error_and_closes_early(void **state)
{
    (void)state;
    put_npy("i.npy", 1, HEAD("<i8", "(1,)"),
            (int64_t[]){ (int64_t)1 << 40 }, 8);
    DpcData *d;
    DpcLoader *l;
    const void *p;
    double waited;
    opens(at("i.npy"), 0, &d);
    assert_int_equal(dpc_loader_open(d, (DpcOrder){ 0 }, 1,
                                     (int64_t[]){ 0 }, 1, (int[]){ 0 }, 1,
                                     &l), DPC_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dpc_loader_next(l, &p, &waited), DPC_USER);
        says("beyond 32 bits");
    }
    dpc_loader_close(l);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(dpc_loader_open(d, (DpcOrder){ 0 }, 1,
                                         (int64_t[]){ 0 }, 1, (int[]){ 0 }, 1,
                                         &l), DPC_OK);
        dpc_loader_close(l);
    }
    assert_int_equal(dpc_loader_open(d, (DpcOrder){ 0 }, 4,
                                     (int64_t[]){ 4 }, 1, (int[]){ 0 }, 1,
                                     &l), DPC_BUG);
    assert_null(l);
    dpc_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_epoch_is_a_permutation),
        CASE(order_differs_by_epoch_and_seed),
        CASE(small_orders_are_equally_likely),
        CASE(huge_positions_stay_in_range),
        CASE(loader_equals_direct_reads),
        CASE(loader_hands_on_an_error_and_closes_early),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
