/* test_cuda.c -- emitted CUDA C equals the evaluator when a CPU runs it, 64
 * threads a block, and compiles for every architecture. */
#include "tests/unit/cuda_run.h"
#include "tests/unit/kernel_cases.h"

static const int64_t sizes[][2] = { { 1, 1 }, { 7, 129 }, { 129, 7 } };

static void *lib;
static bool down;                         /* threads from the last one on, and
                                             few blocks, of many rows each */

static void launch(const char *name, int64_t grid, void **p, const DpcEnv *env)
{
    void *fn = symbol(lib, name);
    CudaFn *f;
    memcpy(&f, &fn, sizeof f);
    grid_run(f, down && grid > 3 ? 3 : grid, p, env, down);
}

static void call(const Run *r, void *fn, void **p, const DpcEnv *env)
{
    (void)fn;
    launch(r->text.name, r->text.grid, p, env);
    if (r->text.grid2)
        launch(fmt(arena, "%s_end", r->text.name), r->text.grid2, p, env);
}

/* At sizes from s0 up to s1. */
static Run *texts(const Case *c, int n, int s0, int s1, Text *t, int *count)
{
    Run *run = alloc(arena, (size_t)n * COUNT(sizes) * sizeof *run);
    int k = 0;
    text_add(t, "%s", cuda_prelude);
    for (int i = 0; i < n; i++)
        for (int s = s0; s < s1; s++) {
            Run *r = &run[k];
            bool twice = false;
            *r = run_new(&c[i], sizes[s][0], sizes[s][1]);
            r->text = kernel_cuda(arena, r->k);
            for (int q = 0; q < k; q++)
                twice |= strcmp(run[q].text.name, r->text.name) == 0;
            if (!twice)
                text_add(t, "%s\n", r->text.text);
            k++;
        }
    *count = k;
    return run;
}

static void on_cpu(const Case *c, int n)
{
    Text t = { .arena = arena };
    int count;
    Run *run = texts(c, n, 0, COUNT(sizes), &t, &count);
    lib = compile(t.p, "-std=gnu11 -O1 -ffp-contract=off");
    assert_non_null(lib);
    block_open(lib);
    for (int i = 0; i < count; i++)
        for (int order = 0; order < 2; order++) {
            down = order;
            run_compare(&run[i], lib, call);
            if (order && run[i].n == 7)
                run_compare_over(&run[i], lib, call);
        }
}

static void maps_run_on_a_cpu(void **state)
{
    (void)state;
    on_cpu(maps, COUNT(maps));
}

static void folds_run_on_a_cpu(void **state)
{
    (void)state;
    on_cpu(folds, COUNT(folds));
}

static void attentions_run_on_a_cpu(void **state)
{
    (void)state;
    on_cpu(attentions, COUNT(attentions));
}

/* Every third of them: attention is most of NVRTC's time. */
static int thirds(const Case *c, int n, int from, Case *out)
{
    int k = 0;
    for (int i = from; i < n; i += COUNT(sizes))
        out[k++] = c[i];
    return k;
}

/* Maps and folds for every architecture, at size s of three; attentions for
 * one of the three. */
static void compile_for(const char *arch, int s)
{
    const char *log = NULL;
    if (!nvrtc_available(&log)) {
        print_message("skipped: %s\n", log);
        skip();
    }
    Case third[COUNT(attentions)];
    const struct { const Case *c; int n; } all[] = {
        { maps, COUNT(maps) }, { folds, COUNT(folds) },
        { third, thirds(attentions, COUNT(attentions), s, third) },
    };
    for (int i = 0; i < COUNT(all); i++) {
        Text t = { .arena = arena };
        int count;
        size_t bytes = 0;
        texts(all[i].c, all[i].n, s, s + 1, &t, &count);
        const char *cubin = nvrtc_compile(arena, t.p, arch, &bytes, &log);
        if (!cubin)
            fail_msg("%s", log);
        assert_memory_equal(cubin, "\177ELF", 4);
        assert_true(bytes > 1000);
    }
}

static void sm_80_compiles(void **state)
{
    (void)state;
    compile_for("sm_80", 0);
}

static void sm_90_compiles(void **state)
{
    (void)state;
    compile_for("sm_90", 1);
}

static void sm_100_compiles(void **state)
{
    (void)state;
    compile_for("sm_100", 2);
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
        cmocka_unit_test(maps_run_on_a_cpu),
        cmocka_unit_test(folds_run_on_a_cpu),
        cmocka_unit_test(attentions_run_on_a_cpu),
        cmocka_unit_test(sm_80_compiles),
        cmocka_unit_test(sm_90_compiles),
        cmocka_unit_test(sm_100_compiles),
    };
    return cmocka_run_group_tests_name("cuda", tests, setup, teardown);
}
