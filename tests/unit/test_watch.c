/* test_watch.c -- watched kernels blame the operation that made a NaN. */
#include "codegen/watch.h"
#include "tests/unit/kernel_cases.h"

/* Emitted files find these in the runtime; here they are told. */
static const char prelude[] =
    "#include \"runtime/dpc_rt.h\"\n"
    "int (*test_blame)(int, float, float, int, float, int, float, int);\n"
    "void (*test_see)(DpcSeen *, float, int);\n"
    "void (*test_trace)(const DpcMade *, int, int, const float *, int *);\n"
    "#define dpc_trace test_trace\n"
    "#define dpc_blame test_blame\n"
    "#define dpc_see test_see\n";

static bool by_tcc;

static void *watch_compile(const char *text)
{
    void *lib = compile(fmt(arena, "%s%s%s%s", prelude, watch_head,
                            host_prelude, text),
                        by_tcc ? "-I."
                        : fmt(arena, "%s %s -I.", host_flags, watch_flags));
    assert_non_null(lib);
    int32_t (*blame)(int32_t, float, float, int32_t, float, int32_t, float,
                     int32_t) = dpc_blame;
    void (*see)(DpcSeen *, float, int32_t) = dpc_see;
    void (*trace)(const DpcMade *, int, int32_t, const float *, int32_t *) =
        dpc_trace;
    memcpy(dlsym(lib, "test_trace"), &trace, sizeof trace);
    memcpy(dlsym(lib, "test_blame"), &blame, sizeof blame);
    memcpy(dlsym(lib, "test_see"), &see, sizeof see);
    return lib;
}

static void watch_call(void *lib, const char *name, void **p,
                       const DpcEnv *env, DpcSeen *seen)
{
    DpcWatchFn *f;
    void *fn = dlsym(lib, name);
    assert_non_null(fn);
    memcpy(&f, &fn, sizeof f);
    f(p, env, seen);
}

/* ---- all cases: what is finite has no blame ---- */

static void *lib_of_all;

static void call_watch(const Run *r, void *fn, void **p, const DpcEnv *env)
{
    DpcKernelFn *kernel;
    DpcSeen seen = {0};
    int64_t n = 0;
    bool finite = true;
    watch_call(lib_of_all, watch_text(arena, r->k).name, p, env, &seen);
    memcpy(&kernel, &fn, sizeof kernel);
    kernel((void *const *)p, env);
    for (int i = 0; i < r->k->nout; i++) {
        const Type *t = &r->g->node[r->k->out[i]].type;
        Type part = type_local(&r->g->mesh, t);
        n = type_volume(&part);
        for (int64_t x = 0; x < n; x++)
            finite &= isfinite(from_memory(p[r->k->nin + i], t->dtype, x));
    }
    if (finite && (seen.nan || seen.inf))
        fail_msg("%s: blames %d, %d, but all is finite", r->c->name, seen.nan,
                 seen.inf);
}

static int watched_cases(const Case *c, int n)
{
    Text t = { .arena = arena };
    Run *run = alloc(arena, (size_t)n * sizeof *run);
    int k = 0;
    for (int i = 0; i < n; i++) {
        run[k] = run_new(&c[i], 7, 129);
        run[k].text = kernel_host(arena, run[k].k);
        if (!watch_worth(run[k].k))
            continue;
        text_add(&t, "%s\n%s\n", run[k].text.text,
                 watch_text(arena, run[k].k).text);
        k++;
    }
    lib_of_all = watch_compile(t.p);
    for (int i = 0; i < k; i++)
        run_compare(&run[i], lib_of_all, call_watch);
    return k;
}

static void finite_kernels_blame_nobody(void **state)
{
    (void)state;
    assert_true(watched_cases(maps, COUNT(maps)) > 5);
    assert_true(watched_cases(folds, COUNT(folds)) > 5);
}

/* ---- by hand ---- */

typedef struct Trap {
    const char *text;                     /* of x : f32[2,4] */
    float x;                              /* its last element; others are 1 */
    const char *blame;                    /* node; NULL: nobody */
    bool nan, infinity, outside;
} Trap;

static const Trap traps[] = {
    { "a = log x\nb = exp a\nc = neg b\nreturn c=c\n", -1, "a", true, false,
      false },
    { "a = exp x\nb = sub a, a\nc = neg b\nreturn c=c\n", 1000, "a", true,
      true, false },
    { "a = exp x\nb = neg a\nreturn b=b\n", 1000, "a", false, true, false },
    { "a = neg x\nb = sub x, x\nc = exp b\nreturn c=c\n", INFINITY, "b", true,
      false, true },
    { "a = neg x\nb = exp a\nreturn a=a b=b\n", INFINITY, NULL, false, false,
      false },
    { "a = log x\nz = const value=0 : f32[2,4]\nl = lt x, z\n"
      "w = where l, z, a\nb = exp w\nreturn b=b\n", -1, NULL, false, false,
      false },
    { "i = const value=-inf : f32[2,4]\nz = const value=0 : f32[2,4]\n"
      "l = lt x, z\nw = where l, i, x\nb = neg w\nreturn b=b\n", -1, NULL,
      false, false, false },
    { "s = sqrt x\nm = move s \"ab -> a\"\nr = move m \"a -> a b\" b=4\n"
      "d = sub x, r\ne = move d \"ab -> a\"\nreturn d=d e=e\n", -1, "s", true,
      false, false },
    { "c = const value=2e38 : f32[2,4]\ny = add x, c\n"
      "m = move y \"ab -> a\"\nr = move m \"a -> a b\" b=4\nd = sub y, r\n"
      "return d=d\n", 1, "m", false, true, false },
    { "y = neg x\nz = sqrt y\nm = move z \"ab -> b\"\nreturn m=m\n", 1, "z",
      true, false, false },
};

static DpcSeen watched(const Trap *t, const Kernel *k, void *lib,
                       const char *name)
{
    float x[8], out[2][8] = {{0}};
    int64_t pos[] = { kernel_open(k) ? k->extent[k->order[0]] : 1, 8, 8 };
    char scratch[4096];
    void *p[] = { x, out[0], out[1] };
    DpcEnv env = { .pos = pos, .nthread = 1, .scratch = scratch };
    DpcSeen seen = {0};
    for (int i = 0; i < 8; i++)
        x[i] = i == 7 ? t->x : 1;
    watch_call(lib, name, p, &env, &seen);
    return seen;
}

static void trap_check(const Trap *t)
{
    const char *why;
    Graph *g = graph_parse(arena, fmt(arena, "x = input : f32[2,4]\n%s",
                                      t->text), "trap");
    Kernel *k = describe(g, &why);
    Ref *node;
    assert_non_null(k);
    assert_true(watch_nodes(k, &node) > 0);
    KernelText w = watch_text(arena, k);
    DpcSeen s = watched(t, k, watch_compile(w.text), w.name);
    int32_t blame = t->nan ? s.nan : s.inf, own = blame < 0 ? -blame : blame;
    const char *name = blame ? g->node[node[own / 2 - 1]].name : "nobody";
    assert_string_equal(name, t->blame ? t->blame : "nobody");
    if (!t->blame)
        return;
    assert_int_equal(own % 2, t->infinity);
    assert_int_equal(blame < 0, t->outside);
}

static void the_operation_that_made_it_is_blamed(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(traps); i++)
        trap_check(&traps[i]);
}

static void a_list_blames_its_member(void **state)
{
    (void)state;
    const char *why;
    Graph *g = graph_parse(arena, "x = input : f32[4]\na = sqrt x\nb = neg a\n"
                           "return b=b\n", "list");
    Kernel *k = describe(g, &why);
    float x[4] = { 1, 2, 3, 4 }, y[2] = { 1, -1 }, out[4];
    void *p[] = { x, out, y, out };
    int64_t pos[] = { 2, 4, 2, 6 };
    DpcEnv env = { .pos = pos, .nthread = 1 };
    DpcSeen seen = {0};
    Ref *node;
    assert_true(kernel_flat(k));
    assert_int_equal(watch_nodes(k, &node), 2);
    KernelText w = watch_text(arena, k);
    watch_call(watch_compile(w.text), w.name, p, &env, &seen);
    assert_int_equal(seen.nan, 2 * (2 + 1));  /* the first of the second */
}

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* A compile takes it for watches, where it is. */
static int setup_tcc(void **state)
{
    by_tcc = true;
    return setup(state) || setenv("CC", "tcc", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_kernels_blame_nobody),
        cmocka_unit_test(the_operation_that_made_it_is_blamed),
        cmocka_unit_test(a_list_blames_its_member),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return system("tcc -v > /dev/null 2>&1") ? failed
        : failed + cmocka_run_group_tests_name("tcc", tests, setup_tcc,
                                               teardown);
}
