/* test_lane.c -- short rows of a kernel side by side in one vector. */
#include "tests/unit/kernel_run.h"

static const Case cases[] = {
    /* letters: b picture, p place, g group, c channel of the group */
    { "group norm and silu, channels last",
      "x = input : f32[$N,$M,32]\n"
      "w = param : f32[32]\n"
      "y = move x \"bp(gc) -> bpgc\" g=8\n"
      "s = move y \"bpgc -> bg\"\n"
      "in = const value=0.0078125 : f32[$N,8]\n"
      "m = mul s, in\n"
      "mm = move m \"bg -> bpgc\" p=$M c=4\n"
      "d = sub y, mm\n"
      "q = mul d, d\n"
      "v = move q \"bpgc -> bg\"\n"
      "v1 = mul v, in\n"
      "eps = const value=1e-5 : f32[$N,8]\n"
      "v2 = add v1, eps\n"
      "r = rsqrt v2\n"
      "rr = move r \"bg -> bpgc\" p=$M c=4\n"
      "h = mul d, rr\n"
      "z = move h \"bpgc -> bp(gc)\"\n"
      "ww = move w \"k -> bpk\" b=$N p=$M\n"
      "a = mul z, ww\n"
      "e = sigmoid a\n"
      "o = mul a, e\n"
      "return o=o r=r s=s\n", 2e-5, 0 },
    { "softmax over few",
      "x = input : f32[$N,$M,6]\n"
      "m = max x \"bnd -> bn\"\n"
      "mm = move m \"bn -> bnd\" d=6\n"
      "c = sub x, mm\n"
      "e = exp c\n"
      "s = move e \"bnd -> bn\"\n"
      "ss = move s \"bn -> bnd\" d=6\n"
      "y = div e, ss\n"
      "return y=y\n", 2e-6, 0 },
    { "two inputs joined, then a mean by group",
      "x = input : f32[$N,$M,16]\n"
      "y = input : f32[$N,$M,16]\n"
      "z = concat x, y dim=2\n"
      "u = move z \"bp(gc) -> bpgc\" g=4\n"
      "s = move u \"bpgc -> bg\"\n"
      "ss = move s \"bg -> bpgc\" p=$M c=8\n"
      "d = sub u, ss\n"
      "return d=d\n", 1e-5, 0 },
    { "columns that know of their rows",
      "x = input : f32[$N,$M,32]\n"
      "dy = input : f32[$N,$M,32]\n"
      "m = input : f32[$N,8]\n"
      "y = move x \"bp(gc) -> bpgc\" g=8\n"
      "ee = exp m\n"
      "mm = move ee \"bg -> bpgc\" p=$M c=4\n"
      "d = mul y, mm\n"
      "z = move d \"bpgc -> bp(gc)\"\n"
      "t = mul z, dy\n"
      "a = move t \"bpk -> k\"\n"
      "b = move dy \"bpk -> k\"\n"
      "return t=t a=a b=b\n", 1e-4, 0 },
    { "columns of a picture",
      "x = input : f32[$N,$M,32]\n"
      "m = input : f32[$N,8]\n"
      "y = move x \"bp(gc) -> bpgc\" g=8\n"
      "mm = move m \"bg -> bpgc\" p=$M c=4\n"
      "d = mul y, mm\n"
      "a = move d \"bpgc -> b(gc)\"\n"
      "return a=a d=d\n", 1e-4, 0 },
};

static const int64_t sizes[][2] = { { 16, 1 }, { 17, 7 }, { 64, 129 } };

static void call(const Run *r, void *fn, void **p, const DpcEnv *env)
{
    DpcKernelFn *f;
    (void)r;
    memcpy(&f, &fn, sizeof f);
    f((void *const *)p, env);
}

static void lanes_equal_the_evaluator(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        for (int s = 0; s < COUNT(sizes); s++) {
            Run r = run_new(&cases[i], sizes[s][0], sizes[s][1]);
            r.text = kernel_host(arena, r.k);
            void *lib = compile(fmt(arena, "%s%s", host_prelude, r.text.text),
                                host_flags);
            assert_non_null(lib);
            run_compare(&r, lib, call);
        }
}

/* Text of a case at sizes n, m. */
static const char *text_of(int i, int64_t n, int64_t m)
{
    Run r = run_new(&cases[i], n, m);
    return kernel_host(arena, r.k).text;
}

static void rows_are_spread_where_they_are_short(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        if (i != 1 && !strstr(text_of(i, 64, 129), "aligned(64)"))
            fail_msg("%s: no lanes", cases[i].name);
}

static void few_tasks_stay_apart(void **state)
{
    (void)state;
    assert_null(strstr(text_of(0, 4, 129), "aligned"));
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
        cmocka_unit_test(lanes_equal_the_evaluator),
        cmocka_unit_test(rows_are_spread_where_they_are_short),
        cmocka_unit_test(few_tasks_stay_apart),
    };
    return cmocka_run_group_tests_name("lane", tests, setup, teardown);
}
