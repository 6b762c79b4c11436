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

/* How many lay over an operand. */
static int all(const Case *c, int n)
{
    int count = 0;
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
    for (int i = 0; i < k; i++) {
        run_compare(&run[i], lib, call);
        count += run_compare_over(&run[i], lib, call);
    }
    return count;
}

static void maps_equal_the_evaluator(void **state)
{
    (void)state;
    assert_true(all(maps, COUNT(maps)) > 0);
}

static void folds_equal_the_evaluator(void **state)
{
    (void)state;
    assert_true(all(folds, COUNT(folds)) > 0);
}

static void attentions_equal_the_evaluator(void **state)
{
    (void)state;
    assert_int_equal(all(attentions, COUNT(attentions)), 0);
}

static bool over_first(const char *text)
{
    const char *why;
    Kernel *k = describe(graph_parse(arena, text, "test"), &why);
    assert_non_null(k);
    return kernel_over(k, 0, 0);
}

#define ONE(op, type) "entry train\nphase local\nmesh\n" \
    "x = input : f32[8,8]\ny = " op " : " type "\nreturn y=y\n"

static void only_what_goes_point_by_point_lies_over(void **state)
{
    (void)state;
    assert_true(over_first(ONE("exp x", "f32[8,8]")));
    assert_false(over_first(ONE("move x \"ab->ba\"", "f32[8,8]")));
    assert_false(over_first(ONE("cast x dtype=bf16", "bf16[8,8]")));
    assert_false(over_first(ONE("max x \"ab->a\"", "f32[8]")));
}

static const char *name_of(const char *text)
{
    const char *why;
    Kernel *k = describe(graph_parse(arena, text, "test"), &why);
    assert_non_null(k);
    return kernel_host(arena, k).name;
}

static void equal_kernels_have_one_name(void **state)
{
    (void)state;
    const char *a = name_of("x = input : f32[4,6]\ny = exp x\nreturn y=y\n");
    const char *b = name_of("q = param : f32[24]\np = exp q\nreturn z=p\n");
    const char *c = name_of("x = input : f32[4,7]\ny = exp x\nreturn y=y\n");
    const char *d = name_of("x = input : f32[4,6]\ny = log x\nreturn y=y\n");
    const char *fold[2] = {
        name_of("x = input : f32[4,6]\ny = move x \"ab->a\"\nreturn y=y\n"),
        name_of("x = input : f32[4,7]\ny = move x \"ab->a\"\nreturn y=y\n"),
    };
    assert_string_equal(a, b);
    assert_string_equal(a, c);            /* a pointwise length is data */
    assert_string_not_equal(a, d);
    assert_string_not_equal(fold[0], fold[1]);
}

#define DRAW(id, scale, size) "r = random id=" id " dist=normal : f32[" size \
    "]\ns = const value=" scale " : f32[" size "]\ny = mul r, s\n"           \
    "return y=y\n"

static void draws_of_any_scale_are_one_kernel(void **state)
{
    (void)state;
    const char *a = name_of(DRAW("7", "0.02", "4,6"));
    assert_string_equal(a, name_of(DRAW("8", "0.5", "90")));
    assert_string_not_equal(a, name_of("r = random id=7 dist=normal : f32[8]\n"
                                       "y = add r, r\nreturn y=y\n"));
}

static void what_is_no_nest_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "x = input : f32[6,6]\ny = exp x\n"
          "z = move y \"ab -> ba\"\nw = add y, z\nreturn w=w\n",
          "two dimensions would be one loop" },
        { "x = input : f32[90,70]\ny = exp x\n"
          "s = move y \"ab -> a\"\nt = move y \"ab -> b\"\n"
          "return s=s t=t\n", "folds keep different dimensions" },
        { "x = input : f32[6,7]\ny = exp x\n"
          "s = slice y dim=0 at=1 size=2\nreturn s=s\n",
          "a shifted or indexed operand is read from memory" },
        { "x = input : f32[4]\ny = input : f32[5]\n"
          "a = exp x\nb = exp y\nreturn a=a b=b\n",
          "results span different loops" },
    };
    for (int i = 0; i < COUNT(bad); i++) {
        const char *why = NULL;
        assert_null(describe(graph_parse(arena, bad[i][0], "test"), &why));
        assert_string_equal(why, bad[i][1]);
    }
}

static void env_is_that_of_the_runtime(void **state)
{
    (void)state;
    static const size_t want[] = {
        sizeof(DpcEnv), offsetof(DpcEnv, seed), offsetof(DpcEnv, step),
        offsetof(DpcEnv, pos), offsetof(DpcEnv, thread),
        offsetof(DpcEnv, nthread), offsetof(DpcEnv, scratch),
    };
    const char *preludes[] = { host_prelude, cuda_prelude };
    for (int i = 0; i < 2; i++) {
        void *lib = compile(fmt(arena, "%sunsigned long env[] = { "
            "sizeof(DpcEnv), __builtin_offsetof(DpcEnv, seed),"
            "__builtin_offsetof(DpcEnv, step),"
            "__builtin_offsetof(DpcEnv, pos),"
            "__builtin_offsetof(DpcEnv, thread),"
            "__builtin_offsetof(DpcEnv, nthread),"
            "__builtin_offsetof(DpcEnv, scratch) };\n", preludes[i]), "-O0");
        assert_non_null(lib);
        assert_memory_equal(dlsym(lib, "env"), want, sizeof want);
    }
}

/* ---- the functions of the prelude ---- */

static const struct Function {
    const char *name;
    double (*f)(double);
    double lo, hi, tol;
    bool absolute;
} functions[] = {
    { "exp",  exp,  -86, 88,   1e-6, false },
    { "log",  log,  1e-30, 2,  1e-6, false },
    { "log",  log,  0.5, 1e6,  1e-6, false },
    { "tanh", tanh, -12, 12,   1e-6, false },
    { "erf",  erf,  -6, 6,     1e-6, false },
    { "sin",  sin,  -2e4, 2e4, 1e-6, true },
    { "cos",  cos,  -2e4, 2e4, 1e-6, true },
};

enum { POINTS = 20000 };

static void functions_are_right_to_a_millionth(void **state)
{
    (void)state;
    Text t = { .arena = arena };
    float *x = alloc(arena, POINTS * sizeof *x);
    float *y = alloc(arena, POINTS * sizeof *y);
    text_add(&t, "%s", host_prelude);
    for (int i = 0; i < COUNT(functions); i++)
        text_add(&t, "void f%d(float *y, const float *x)\n"
                 "{ for (int i = 0; i < %d; i++) y[i] = dpc_%s(x[i]); }\n",
                 i, POINTS, functions[i].name);
    void *lib = compile(t.p, host_flags);
    assert_non_null(lib);
    for (int i = 0; i < COUNT(functions); i++) {
        const struct Function *f = &functions[i];
        void (*run)(float *, const float *);
        void *sym = dlsym(lib, fmt(arena, "f%d", i));
        memcpy(&run, &sym, sizeof run);
        for (int k = 0; k < POINTS; k++)
            x[k] = (float)(f->lo + (f->hi - f->lo) * k / (POINTS - 1));
        run(y, x);
        for (int k = 0; k < POINTS; k++) {
            double want = f->f(x[k]), d = fabs(y[k] - want);
            if (!(d <= f->tol * (f->absolute ? 1 : fabs(want) + 1e-6)))
                fail_msg("%s(%.9g) is %.9g, not %.9g", f->name, x[k], y[k],
                         want);
        }
    }
}

static void functions_end_where_numbers_do(void **state)
{
    (void)state;
    void *lib = compile(fmt(arena, "%s"
        "float exp_(float x) { return dpc_exp(x); }\n"
        "float log_(float x) { return dpc_log(x); }\n"
        "float tanh_(float x) { return dpc_tanh(x); }\n"
        "float bf_(float x) { return dpc_round_bf(x); }\n", host_prelude),
        host_flags);
    float (*e)(float), (*l)(float), (*h)(float), (*b)(float);
    assert_non_null(lib);
    void *p[] = { dlsym(lib, "exp_"), dlsym(lib, "log_"), dlsym(lib, "tanh_"),
                  dlsym(lib, "bf_") };
    memcpy(&e, &p[0], sizeof e);
    memcpy(&l, &p[1], sizeof l);
    memcpy(&h, &p[2], sizeof h);
    memcpy(&b, &p[3], sizeof b);
    assert_true(e(-INFINITY) == 0 && e(-1e9f) == 0 && isinf(e(1e9f)));
    assert_true(isinf(e(INFINITY)) && isnan(e(NAN)) && e(0) == 1);
    assert_true(l(0) == -INFINITY && isnan(l(-1)) && isinf(l(INFINITY)));
    assert_true(isnan(l(NAN)) && l(1) == 0);
    assert_true(h(INFINITY) == 1 && h(-INFINITY) == -1 && isnan(h(NAN)));
    assert_true(isnan(b(NAN)) && isinf(b(INFINITY)) && b(1.0f) == 1);
    assert_true(b(1.00390625f) == 1 && b(1.01171875f) == 1.015625f);
}

/* Of nine values in parts of three the fourth part is empty, though three
 * divides nine: it is written nowhere, and read as zeros. */
static void a_part_behind_the_end_touches_nothing(void **state)
{
    (void)state;
    static const char *const text[] = {
        "mesh t=4:time\nentry train\nphase local\nx = input : f32[9/t] loop=t\n"
        "y = all_gather x axes=t : f32[9] loop=t\nreturn y=y\n",
        "mesh r=4\nentry train\nphase local\nx = input : f32[9]\n"
        "y = shard x axes=r : f32[9/r]\nreturn y=y\n",
    };
    KernelText k[2];
    for (int i = 0; i < 2; i++) {
        const char *why;
        k[i] = kernel_host(arena, describe(graph_parse(arena, text[i], "test"),
                                           &why));
    }
    void *lib = compile(fmt(arena, "%s%s%s", host_prelude, k[0].text,
                            k[1].text), host_flags);
    for (int64_t part = 0; part < 4; part++) {
        float in[12], out[12];
        for (int i = 0; i < 12; i++)
            in[i] = 1, out[i] = 7;
        void *p[] = { in, out };
        DpcEnv env = { .pos = (long[]){ part * 3 } };
        call(NULL, dlsym(lib, k[0].name), p, &env);
        for (int i = 0; i < 12; i++)
            assert_true(out[i] == (part < 3 && i / 3 == part ? 1 : 7));
        call(NULL, dlsym(lib, k[1].name), p, &env);
        for (int i = 0; i < 3; i++)
            assert_true(out[i] == (part < 3));
    }
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
        cmocka_unit_test(attentions_equal_the_evaluator),
        cmocka_unit_test(only_what_goes_point_by_point_lies_over),
        cmocka_unit_test(a_part_behind_the_end_touches_nothing),
        cmocka_unit_test(equal_kernels_have_one_name),
        cmocka_unit_test(draws_of_any_scale_are_one_kernel),
        cmocka_unit_test(what_is_no_nest_is_refused_with_a_reason),
        cmocka_unit_test(env_is_that_of_the_runtime),
        cmocka_unit_test(functions_are_right_to_a_millionth),
        cmocka_unit_test(functions_end_where_numbers_do),
    };
    return cmocka_run_group_tests_name("kernel", tests, setup, teardown);
}
