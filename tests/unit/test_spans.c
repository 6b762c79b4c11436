/* What lives when: against a byte by byte count. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "compiler/curve.h"
#include "compiler/spans.h"

enum { BYTES = 64, STEPS = 40, MOST = 30 };

static int64_t counted(const Span *s, uint32_t n, uint32_t step)
{
    bool used[BYTES] = { 0 };
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        for (int64_t b = 0; b < s[i].size; b++)
            if (s[i].first <= step && step <= s[i].last)
                used[s[i].at + b] = true;
    for (int b = 0; b < BYTES; b++)
        sum += used[b];
    return sum;
}

static void test_union(void **state)
{
    (void)state;
    Arena *a = arena_new();
    srand(7);
    for (int k = 0; k < 300; k++) {
        Span s[MOST];
        uint32_t n = (uint32_t)(rand() % MOST), m;
        for (uint32_t i = 0; i < n; i++) {
            s[i].at = rand() % BYTES;
            s[i].size = rand() % (BYTES - (int)s[i].at + 1);
            s[i].first = (uint32_t)(rand() % STEPS);
            s[i].last = s[i].first + (uint32_t)rand()
                % (STEPS - s[i].first);
            s[i].id = i, s[i].instance = 0;
        }
        int64_t *alive = spans_alive(s, n, STEPS, a);
        for (uint32_t t = 0; t < STEPS; t++)
            assert_int_equal(alive[t], counted(s, n, t));
        uint32_t t = (uint32_t)(rand() % STEPS);
        const Span *at = spans_at(s, n, t, &m, a);
        assert_int_equal(alive[t], counted(at, m, t));
        for (uint32_t i = 1; i < m; i++)
            assert_true(at[i - 1].size >= at[i].size);
    }
    arena_free(a);
}

static void test_curve(void **state)
{
    (void)state;
    Arena *a = arena_new();
    double x[] = { 0, 1, 3, 4 }, y[] = { 8, 1, 4 }, none[] = { 0, 0 };
    assert_string_equal(curve_text(a, x, y, 3, 4), "█▁▁▄");
    assert_string_equal(curve_text(a, x, y, 3, 2), "█▄");
    assert_string_equal(curve_text(a, NULL, y, 3, 6), "██▁▁▄▄");
    assert_string_equal(curve_text(a, NULL, none, 2, 3), "   ");
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union),
        cmocka_unit_test(test_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
