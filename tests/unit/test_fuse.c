/* test_fuse.c -- which nodes share a kernel, and that nothing else changes. */
#include "ir/eval.h"
#include "passes/fuse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static Arena *arena;

static Job job_new(void)
{
    return (Job){ .keep = arena, .target = target_find("host") };
}

static Graph *fused(const char *text)
{
    Job j = job_new();
    Graph *g = graph_parse(arena, text, "test");
    g->phase = PHASE_LOCAL;
    return run_passes("fuse", g, &j);
}

static int kernels(const Graph *g)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n = g->node[r].kernel >= n ? g->node[r].kernel + 1 : n;
    return n;
}

/* Members of kernel k, ascending. */
static int members(const Graph *g, int k, Ref *out)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].kernel == k)
            out[n++] = r;
    return n;
}

static void check(const Graph *g, int want)
{
    Ref *r = alloc(arena, g->n * sizeof *r);
    if (kernels(g) != want)
        graph_print(g, stderr);
    assert_int_equal(kernels(g), want);
    for (int k = 0; k < want; k++) {
        const char *why = NULL;
        int n = members(g, k, r);
        assert_true(n > 0);
        assert_true(isfinite(target_find("host")->cost(g, r, n, &why)));
    }
}

#define NORM(x, y)                                                       \
    y "s = move " x " \"bnd -> bn\"\n"                                   \
    y "i = const value=0.01 : f32[64,128]\n"                             \
    y "m = mul " y "s, " y "i\n"                                         \
    y "mm = move " y "m \"bn -> bnd\" d=512\n"                           \
    y "c = sub " x ", " y "mm\n"                                         \
    y "q = mul " y "c, " y "c\n"                                         \
    y "v = move " y "q \"bnd -> bn\"\n"                                  \
    y "r = rsqrt " y "v\n"                                               \
    y "rr = move " y "r \"bn -> bnd\" d=512\n"                           \
    y " = mul " y "c, " y "rr\n"

static void a_norm_is_one_kernel(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[64,128,512]\n" NORM("x", "y")
                     "z = tanh y\nreturn z=z\n");
    check(g, 1);
}

static void a_dot_reads_through_a_view(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[8,128,512]\n"
                     "w = param : f32[512,512]\n"
                     "h = move x \"bn(hd) -> bhnd\" h=8\n"
                     "k = dot x, w \"bnk,km->bnm\"\n"
                     "kh = move k \"bn(hd) -> bhnd\" h=8\n"
                     "s = dot h, kh \"bhnd,bhmd->bhnm\"\n"
                     "m = max s \"bhnm -> bhn\"\n"
                     "mm = move m \"bhn -> bhnm\" m=128\n"
                     "e = sub s, mm\nf = exp e\n"
                     "t = move f \"bhnm -> bhn\"\n"
                     "tt = move t \"bhn -> bhnm\" m=128\n"
                     "p = div f, tt\n"
                     "o = dot p, kh \"bhnm,bhmd->bhnd\"\n"
                     "oo = move o \"bhnd -> bn(hd)\"\n"
                     "u = dot oo, w \"bnk,km->bnm\"\n"
                     "r = add u, x\nreturn r=r\n");
    check(g, 3);                          /* softmax, oo (k is no one loop), r */
    int views = 0;
    for (Ref r = 0; r < g->n; r++)
        views += node_is_view(&g->node[r]);
    assert_true(views >= 2);
}

static void numbers_are_copied_into_each_kernel(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[1024,1024]\n"
                     "w = param : f32[1024,1024]\n"
                     "h = const value=0.5 : f32[1024,1024]\n"
                     "a = mul x, h\n"
                     "b = dot a, w \"nk,km->nm\"\n"
                     "c = mul b, h\n"
                     "return c=c\n");
    int consts = 0;
    check(g, 2);
    for (Ref r = 0; r < g->n; r++)
        consts += g->node[r].op == OP_const;
    assert_int_equal(consts, 2);
}

static void a_kernel_never_waits_for_itself(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[1024,1024]\n"
                     "w = param : f32[1024,1024]\n"
                     "a = exp x\n"
                     "b = dot a, w \"nk,km->nm\"\n"
                     "c = mul b, a\n"
                     "return c=c\n");
    check(g, 2);
}

static void segments_are_kept_apart(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[1024,1024]\n"
                     "y = input : f32[1024,1024]\n"
                     "a = add x, y seg=forward\n"
                     "b = neg a seg=backward\n"
                     "return b=b\n");
    check(g, 2);
}

/* e and f are functions of c, which is kept; backward meets them again. */
static void backward_computes_again_what_costs_no_bytes(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[1024,1024]\n"
                     "w = param : f32[1024,1024]\n"
                     "c = dot x, w \"nk,km->nm\" seg=forward\n"
                     "e = sigmoid c seg=forward\n"
                     "f = mul c, e seg=forward\n"
                     "l = dot f, w \"nk,km->nm\" seg=forward\n"
                     "d = mul l, e seg=backward\n"
                     "h = mul d, c seg=backward\n"
                     "return h=h l=l\n");
    int sigmoids = 0;
    check(g, 2);
    for (Ref r = 0; r < g->n; r++)
        sigmoids += g->node[r].op == OP_sigmoid;
    assert_int_equal(sigmoids, 2);
}

static void columns_join_the_map_that_they_read(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[4096,512]\n"
                     "dy = input : f32[4096,512]\n"
                     "a = mul x, dy\n"
                     "s = move a \"nd -> d\"\n"
                     "t = move dy \"nd -> d\"\n"
                     "return a=a s=s t=t\n");
    check(g, 1);
}

static int layout_of(const Graph *g, Op op)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == op)
            return g->node[r].layout;
    return -1;
}

static void results_lie_as_their_operands_do(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[2,8,14,14]\n"
                     "w = param : f32[8,8,3,3]\n"
                     "c = conv x, w pad=1 layout=0231\n"
                     "g = move c \"b(gc)hw->bgchw\" g=4\n"
                     "e = exp g\n"
                     "s = max e \"bgchw -> bg\"\n"
                     "t = move s \"bg -> bgchw\" c=2 h=14 w=14\n"
                     "d = sub e, t\n"
                     "m = move d \"bgchw -> b(gc)hw\"\n"
                     "k = tanh m\n"
                     "y = conv k, w pad=1 layout=0231\n"
                     "return y=y\n");
    check(g, 1);
    assert_int_equal(layout_of(g, OP_exp), 3412);
    assert_int_equal(layout_of(g, OP_sub), 3412);
}

/* Its k runs over channels first; nobody else asks for channels last. */
static void what_a_dot_reads_is_row_major(void **state)
{
    (void)state;
    Graph *g = fused("x = input : f32[64,64,7,7]\n"
                     "w = param : f32[64,7,7,64]\n"
                     "e = exp x layout=0231\n"
                     "y = dot e, w \"aklm,klmp->ap\"\n"
                     "return y=y\n");
    check(g, 1);
    assert_int_equal(layout_of(g, OP_exp), 0);
}

static void meaning_is_kept(void **state)
{
    (void)state;
    Job j = job_new();
    Graph *g = graph_parse(arena, "x = input : f32[4,6]\n"
                           "h = const value=0.5 : f32[4,6]\n"
                           "s = slice x dim=1 at=1 size=4\n"
                           "t = neg s\n"
                           "p = pad t, x dim=1 at=2\n"
                           "a = mul p, h\nb = exp a\n"
                           "m = move b \"nd -> dn\"\n"
                           "k = add m, m\nl = sub b, p\n"
                           "return k=k l=l s=s\n", "test");
    g->phase = PHASE_LOCAL;
    const Graph *f = run_passes("fuse", g, &j);
    Eval *x = eval_new(g, FIELD, 1, 2), *y = eval_new(f, FIELD, 1, 2);
    eval_run(x);
    eval_run(y);
    for (uint32_t i = 0; i < g->nout; i++)
        assert_memory_equal(eval_get(x, g->out[i].ref),
                            eval_get(y, f->out[i].ref),
                            (size_t)type_volume(&g->node[g->out[i].ref].type)
                            * sizeof(Num));
    eval_free(x);
    eval_free(y);
}

static void every_edge_that_stays_has_a_reason(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    Job j = job_new();
    j.scratch = arena;
    fuse_report(graph_parse(arena, "x = input : f32[8,16]\n"
                            "y = input : f32[8,16]\n"
                            "a = add x, y seg=forward\n"
                            "b = neg a seg=backward\nreturn b=b\n", "test"),
                &j, f);
    fclose(f);
    assert_string_equal(text, "a -> b: not fused: they work in different "
                        "segments\n"
                        "a: 1.0 kB more than compulsory; kernels with b read "
                        "it\n");
    free(text);
}

static void five_thousand_nodes_take_half_a_second(void **state)
{
    (void)state;
    static const char block[] =           /* @ this block, % the one before */
        "@s = move % \"bnd -> bn\"\n"
        "@i = const value=0.01 : f32[64,128]\n"
        "@m = mul @s, @i\n"
        "@mm = move @m \"bn -> bnd\" d=512\n"
        "@c = sub %, @mm\n"
        "@q = mul @c, @c\n"
        "@v = move @q \"bnd -> bn\"\n"
        "@r = rsqrt @v\n"
        "@rr = move @r \"bn -> bnd\" d=512\n"
        "@n = mul @c, @rr\n"
        "@d = dot @n, w \"bnk,km->bnm\"\n"
        "@t = tanh @d\n"
        "@ = add @t, %\n";
    char *text = NULL, x[16] = "x", y[16];
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    fprintf(f, "x = input : f32[64,128,512]\nw = param : f32[512,512]\n");
    for (int i = 0; i < 385; i++) {
        snprintf(y, sizeof y, "y%d", i);
        for (const char *p = block; *p; p++)
            if (*p == '@' || *p == '%')
                fputs(*p == '@' ? y : x, f);
            else
                fputc(*p, f);
        strcpy(x, y);
    }
    fprintf(f, "return x=%s\n", x);
    fclose(f);
    Job j = job_new();
    Graph *g = graph_parse(arena, text, "test");
    g->phase = PHASE_LOCAL;
    j.scratch = arena;
    clock_t start = clock();
    pass_fuse(g, &j);
    double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("%u nodes: %.3f s\n", g->n, s);
    assert_true(g->n > 5000 && s < 0.5);
    free(text);
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
        cmocka_unit_test(a_norm_is_one_kernel),
        cmocka_unit_test(a_dot_reads_through_a_view),
        cmocka_unit_test(numbers_are_copied_into_each_kernel),
        cmocka_unit_test(a_kernel_never_waits_for_itself),
        cmocka_unit_test(segments_are_kept_apart),
        cmocka_unit_test(backward_computes_again_what_costs_no_bytes),
        cmocka_unit_test(columns_join_the_map_that_they_read),
        cmocka_unit_test(results_lie_as_their_operands_do),
        cmocka_unit_test(what_a_dot_reads_is_row_major),
        cmocka_unit_test(meaning_is_kept),
        cmocka_unit_test(every_edge_that_stays_has_a_reason),
        cmocka_unit_test(five_thousand_nodes_take_half_a_second),
    };
    return cmocka_run_group_tests_name("fuse", tests, setup, teardown);
}
