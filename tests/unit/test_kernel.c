/* test_kernel.c -- emitted C equals the evaluator, at awkward sizes too. */
#include "tests/unit/kernel_cases.h"

static const int64_t sizes[][2] = { { 1, 1 }, { 7, 129 }, { 129, 7 },
                                    { 40, 64 } };

static void call(const Run *r, void *fn, void **p, const DpcEnv *env)
{
    DpcKernelFn *f;
    (void)r;
    memcpy(&f, &fn, sizeof f);
    f((void *const *)p, env);
}

static void all(const Case *c, int n)
{
    Text t = { .arena = arena };
    Run *run = alloc(arena, (size_t)n * COUNT(sizes) * sizeof *run);
    int k = 0;
    text_add(&t, "%s", host_prelude);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < COUNT(sizes); s++) {
            Run *r = &run[k];
            *r = run_new(&c[i], sizes[s][0], sizes[s][1]);
            r->text = kernel_host(arena, r->k);
            bool twice = false;
            for (int q = 0; q < k; q++)
                twice |= strcmp(run[q].text.name, r->text.name) == 0;
            if (!twice)
                text_add(&t, "%s\n", r->text.text);
            k++;
        }
    void *lib = compile(t.p, host_flags);
    assert_non_null(lib);
    for (int i = 0; i < k; i++)
        run_compare(&run[i], lib, call);
}

static void maps_equal_the_evaluator(void **state)
{
    (void)state;
    all(maps, COUNT(maps));
}

static void folds_equal_the_evaluator(void **state)
{
    (void)state;
    all(folds, COUNT(folds));
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
        cmocka_unit_test(maps_equal_the_evaluator),
        cmocka_unit_test(folds_equal_the_evaluator),
    };
    return cmocka_run_group_tests_name("kernel", tests, setup, teardown);
}
