/* test_profile.c -- the table of a run's seconds, step by step. */
#include "runtime/profile.h"
#include "tests/unit/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char path[] = "/tmp/dpc-profile-XXXXXX";

/* Step s of "train" takes s + 1 seconds, but for the first run. */
static DpcProfile *noted(void)
{
    DpcProfile *p;
    assert_int_equal(dpc_profile_open(toy_make(1), &p), DPC_OK);
    for (int run = 0; run < 34; run++)
        for (uint32_t s = 0; s < 6; s++)
            dpc_profile_note(p, 1, s, (DpcSpan){run ? s + 1 : 100, 2});
    return p;
}

static void a_line_a_step_that_ran(void **state)
{
    DpcProfile *p = noted();
    char line[512];
    int n = 0, fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(dpc_profile_write(p, path), DPC_OK);
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "seconds\tbest\tcpu\tbytes"));
    while (fgets(line, sizeof line, f)) {
        char want[64];
        snprintf(want, sizeof want, "%d.000000000\t%d.000000000\t2.0", n + 1,
                 n + 1);
        assert_non_null(strstr(line, want));
        assert_true(n != 4 || strstr(line, "collective\t\tall_reduce\tsum"));
        n++;
    }
    assert_int_equal(n, 6);
    fclose(f);
    unlink(path);
    dpc_profile_close(p);
    (void)state;
}

static void a_median_forgets_the_first_runs(void **state)
{
    DpcProfile *p;
    char line[512] = "";
    snprintf(path, sizeof path, "/tmp/dpc-profile-XXXXXX");
    close(mkstemp(path));
    assert_int_equal(dpc_profile_open(toy_make(1), &p), DPC_OK);
    for (int run = 0; run < 80; run++)
        dpc_profile_note(p, 0, 0,
                         (DpcSpan){run < 48 ? 9 : run % 2 ? 1 : 3, run / 79});
    assert_int_equal(dpc_profile_write(p, path), DPC_OK);
    FILE *f = fopen(path, "r");
    for (int i = 0; i < 2; i++)
        assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "\t2.000000000\t1.000000000\t0.0"));
    assert_non_null(strstr(line, "\t80\n"));
    fclose(f);
    unlink(path);
    dpc_profile_close(p);
    (void)state;
}

static void a_place_that_is_none_is_told(void **state)
{
    DpcProfile *p = noted();
    assert_int_equal(dpc_profile_write(p, "/nowhere/at/all"), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "/nowhere/at/all: error: "));
    dpc_profile_close(p);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_a_step_that_ran),
        cmocka_unit_test(a_median_forgets_the_first_runs),
        cmocka_unit_test(a_place_that_is_none_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
