/* test_base.c -- arena, errors, names, expressions, splits. */
#include "ir/expr.h"
#include "ir/graph.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static Arena *arena;

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

/* ---- memory ---- */

static void memory_is_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    enum { N = 2000 };
    unsigned char *p[N];
    size_t size[N];
    uint32_t seed = 1;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        size[i] = i % 97 == 0 ? 50000 + (seed >> 12) % 100000
                              : (seed >> 16) % 300;
        p[i] = alloc(arena, size[i]);
        assert_int_equal((uintptr_t)p[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], i & 255, size[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], i & 255);
}

static void a_rewind_forgets_what_came_after_the_mark(void **state)
{
    (void)state;
    char *before = alloc(arena, 100), *first = NULL;
    memset(before, 7, 100);
    for (int round = 0; round < 3; round++) {
        ArenaMark m = arena_mark(arena);
        for (int i = 0; i < 300; i++) {
            size_t n = i % 50 == 9 ? 70000 : 1000;
            char *p = alloc(arena, n);
            first = round || i ? first : p;
            assert_true(i || p == first);
            for (size_t k = 0; k < n; k++)
                assert_int_equal(p[k], 0);
            memset(p, 9, n);
        }
        arena_rewind(arena, m);
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(before[i], 7);
}

static void arrays_grow_and_keep_their_elements(void **state)
{
    (void)state;
    int *v = NULL;
    uint32_t cap = 0;
    for (int i = 0; i < 10000; i++) {
        GROW(arena, v, i, cap);
        v[i] = i;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(v[i], i);
}

static void one_spelling_is_one_pointer(void **state)
{
    (void)state;
    const char *first[1000];
    for (int i = 0; i < 1000; i++)
        first[i] = intern(arena, fmt(arena, "name%d", i));
    for (int i = 0; i < 1000; i++) {
        assert_ptr_equal(intern(arena, fmt(arena, "name%d", i)), first[i]);
        assert_string_equal(first[i], fmt(arena, "name%d", i));
    }
    assert_ptr_equal(intern(arena, ""), intern(arena, ""));
}

static void texts_grow_by_pieces_of_any_length(void **state)
{
    (void)state;
    Str s = { .arena = arena };
    size_t n = 0;
    for (int i = 0; i < 300; i++, n += (size_t)i - 1)
        str_add(&s, "%.*s", i, fmt(arena, "%300s", ""));
    assert_int_equal(s.n, n);
    assert_int_equal(strlen(s.p), n);
}

static void numbers_read_back_to_the_bit(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252u;
    char text[32];
    double v;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        memcpy(&v, &bits, sizeof v);
        double back = strtod(num_text(text, v), NULL);
        assert_true(isnan(v) ? isnan(back) : back == v);
    }
    assert_string_equal(num_text(text, 0.1), "0.1");
    assert_string_equal(num_text(text, -3), "-3");
    assert_string_equal(num_text(text, 1.1283791670955126),
                        "1.1283791670955126");
}

/* The first of 15, 16 and 17 digits that reads back. */
static const char *shortest(double v)
{
    static char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return text;
}

static void numbers_are_as_printf_has_them(void **state)
{
    (void)state;
    uint64_t bits = 1234567891234567u;
    char text[32];
    static const double ends[] = {
        0, 1e15, 1e15 - 1, 1e16, 1e17, 123456789012345678, 1e22, 1e-4, 1e-5,
        0.00012345, 1e-10, 9.999999999999999e-11, 0.1 + 0.2, 5e-324, 0.5,
        999999999999999.9, 0.9999999999999999, 1.0000000000000002,
        9007199254740993, INFINITY
    };
    for (int i = 0; i < 2 * COUNT(ends); i++) {
        double v = i % 2 ? -ends[i / 2] : ends[i / 2];
        assert_string_equal(num_text(text, v), shortest(v));
    }
    for (int i = 0; i < 40000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double unit = (double)(bits >> 11) / 9007199254740992.0;
        double few = (double)(bits >> 44) / 1000, any;
        memcpy(&any, &bits, sizeof any);
        double v = i % 4 == 0 ? cos(1e5 * unit) : i % 4 == 1 ? exp(80 * unit)
                 : i % 4 == 2 ? few : isnan(any) ? (float)unit : any;
        assert_string_equal(num_text(text, v), shortest(v));
    }
}

static void common_directives_print_as_printf_does(void **state)
{
    (void)state;
    char want[256];
    static const long long v[] = { 0, 9, -10, INT32_MAX, INT32_MIN };
    for (int i = 0; i < COUNT(v); i++) {
        snprintf(want, sizeof want, "%d|%u|%lld|%c%%|%s|%5.2f %s", (int)v[i],
                 (unsigned)v[i], v[i], 'x', "", 1.5, "end");
        assert_string_equal(fmt(arena, "%d|%u|%lld|%c%%|%s|%5.2f %s",
                                (int)v[i], (unsigned)v[i], v[i], 'x', "", 1.5,
                                "end"), want);
    }
    assert_string_equal(fmt(arena, "%lld", (long long)INT64_MIN),
                        "-9223372036854775808");
    assert_string_equal(fmt(arena, "%s", ""), "");
}

/* ---- errors ---- */

static void an_error_returns_to_its_trap_with_its_notes(void **state)
{
    (void)state;
    ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        note("b.lua:2", "the other %s", "one");
        err("a.lua:1", "add: dimension is %d and %d", 3, 4);
    }
    assert_int_equal(t.code, 1);
    assert_string_equal(t.text, "a.lua:1: error: add: dimension is 3 and 4\n"
                                "b.lua:2: note: the other one");
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        err_code(5, NULL, "no compiler");
    }
    assert_int_equal(t.code, 5);
    assert_string_equal(t.text, "dpc: error: no compiler");
}

static void traps_nest(void **state)
{
    (void)state;
    ErrTrap outer, inner;
    if (setjmp(outer.jump) == 0) {
        err_push(&outer);
        if (setjmp(inner.jump) == 0) {
            err_push(&inner);
            err("x:1", "in");
        }
        assert_string_equal(inner.text, "x:1: error: in");
        err("x:2", "out");
    }
    assert_string_equal(outer.text, "x:2: error: out");
}

/* Bytes more that are held after an error in what makes an arena, 64 KiB, in
 * so many traps, of which the inner one closes. */
static size_t held_by_error(int traps)
{
    size_t before = mallinfo2().uordblks;
    ErrTrap outer, inner;
    if (setjmp(outer.jump) == 0) {
        err_push(&outer);
        if (traps > 1)
            err_push(&inner);
        alloc(arena_new(), 1 << 15);
        if (traps > 1)
            err_pop();
        err(NULL, "no");
    }
    return mallinfo2().uordblks - before;
}

static void what_a_trap_made_goes_with_its_error(void **state)
{
    (void)state;
    ErrTrap t;
    Arena *before = arena_new(), *within = NULL;
    assert_true(held_by_error(1) < 1 << 15);
    assert_true(held_by_error(2) < 1 << 15);
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        within = arena_new();
        assert_true(held_by_error(1) < 1 << 15);
        err_pop();
    }
    memset(alloc(before, 100), 1, 100);
    memset(alloc(within, 100), 1, 100);
    arena_free(before);
    assert_true(held_by_error(1) < 1 << 15);
    memset(alloc(within, 1 << 16), 1, 1 << 16);
    arena_free(within);
}

static void a_long_message_is_cut(void **state)
{
    (void)state;
    ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        err("x:1", "%9000d", 1);
    }
    assert_int_equal(strlen(t.text), sizeof t.text - 1);
}

/* Exit code of f in a process of its own; its stderr in text. */
static int exit_of(void (*f)(void), char *text, size_t size)
{
    int to[2], status;
    fflush(NULL);
    assert_int_equal(pipe(to), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[1], 2);
        f();
        _exit(0);
    }
    close(to[1]);
    size_t n = 0;
    for (ssize_t k; (k = read(to[0], text + n, size - 1 - n)) > 0; )
        n += (size_t)k;
    text[n] = 0;
    close(to[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void user_error(void) { err("m.lua:7", "no such op \"%s\"", "f"); }
static void our_error(void) { die("lost node %d", 3); }
static void no_operand(void) { expr_parse(arena, "a + * b", "EXPR of f"); }
static void not_closed(void) { expr_parse(arena, "f(a, b", "VJP of f"); }
static void two_exprs(void) { expr_parse(arena, "a, b", "EXPR of f"); }
static void left_over(void) { expr_parse(arena, "a b", "EXPR of f"); }

static void errors_exit_1_and_bugs_70(void **state)
{
    (void)state;
    char text[1000];
    assert_int_equal(exit_of(user_error, text, sizeof text), 1);
    assert_string_equal(text, "m.lua:7: error: no such op \"f\"\n");
    assert_int_equal(exit_of(our_error, text, sizeof text), 70);
    assert_non_null(strstr(text, ": internal error: lost node 3\n"));
}

static void a_wrong_expression_names_row_and_column(void **state)
{
    (void)state;
    static const struct { void (*f)(void); const char *want; } cases[] = {
        { no_operand, "EXPR of f: column 5 of \"a + * b\": expected a number, "
                      "a name or \"(\"\n" },
        { not_closed, "VJP of f: column 7 of \"f(a, b\": expected \",\" or "
                      "\")\"\n" },
        { two_exprs, "EXPR of f: \"a, b\": expected one expression, found 2\n" },
        { left_over, "EXPR of f: column 3 of \"a b\": expected an operator or "
                     "the end\n" },
    };
    char text[1000];
    for (int i = 0; i < COUNT(cases); i++) {
        assert_int_equal(exit_of(cases[i].f, text, sizeof text), 70);
        assert_non_null(strstr(text, cases[i].want));
    }
}

/* ---- expressions ---- */

static void expressions_print_as_c_with_few_parentheses(void **state)
{
    (void)state;
    static const char *const cases[][3] = {        /* text, f32, f64 */
        { "a+b*c-d", "a + b * c - d", "a + b * c - d" },
        { "(a+b)*c", "(a + b) * c", "(a + b) * c" },
        { "a-(b-c)", "a - (b - c)", "a - (b - c)" },
        { "(a-b)-c", "a - b - c", "a - b - c" },
        { "a/b/c", "a / b / c", "a / b / c" },
        { "a/(b*c)", "a / (b * c)", "a / (b * c)" },
        { "-a*b", "-a * b", "-a * b" },
        { "-(a*b)", "-(a * b)", "-(a * b)" },
        { "- -a", "-(-a)", "-(-a)" },
        { "a - -b", "a - -b", "a - -b" },
        { "1/3", "1.f / 3.f", "1. / 3." },
        { "0.5*a", "0.5f * a", "0.5 * a" },
        { "1e-7", "1e-07f", "1e-07" },
        { "1.1283791670955126", "1.1283792f", "1.1283791670955126" },
        { "exp(-a)", "expf(-a)", "exp(-a)" },
        { "(a>0)-(a<0)", "(float)(a > 0.f) - (float)(a < 0.f)",
          "(double)(a > 0.) - (double)(a < 0.)" },
        { "a<b?c:d", "a < b ? c : d", "a < b ? c : d" },
        { "a?b:c?d:e", "a ? b : c ? d : e", "a ? b : c ? d : e" },
        { "(a?b:c)+1", "(a ? b : c) + 1.f", "(a ? b : c) + 1." },
        { "a==b<c", "(float)(a == (float)(b < c))",
          "(double)(a == (double)(b < c))" },
        { "isfinite(a)", "(float)(isfinite(a) != 0)",
          "(double)(isfinite(a) != 0)" },
        { "isfinite(a)?a:0", "isfinite(a) ? a : 0.f", "isfinite(a) ? a : 0." },
        { "a&&b", "a ? b ? 1.f : 0.f : 0.f", "a ? b ? 1. : 0. : 0." },
        { "a||b", "a ? 1.f : b ? 1.f : 0.f", "a ? 1. : b ? 1. : 0." },
    };
    for (int i = 0; i < COUNT(cases); i++) {
        Expr *e = expr_parse(arena, cases[i][0], "test");
        assert_string_equal(expr_text(arena, e, "f", NULL, NULL), cases[i][1]);
        assert_string_equal(expr_text(arena, e, NULL, NULL, NULL),
                            cases[i][2]);
    }
}

static bool same(const Expr *a, const Expr *b)
{
    if (a->kind != b->kind || a->num != b->num || a->name != b->name
        || a->narg != b->narg)
        return false;
    for (int i = 0; i < a->narg; i++)
        if (!same(a->arg[i], b->arg[i])
            || (a->key && a->key[i] != b->key[i]))
            return false;
    return true;
}

/* A VJP holds no comparison, so its text in doubles is its own language. */
static void every_vjp_reads_back_from_its_text(void **state)
{
    (void)state;
    for (Op o = 0; o < OP_COUNT; o++) {
        int n, m;
        Expr **e = expr_parse_list(arena, ops[o].vjp, ops[o].name, &n);
        for (int i = 0; i < n; i++) {
            char *text = expr_text(arena, e[i], "", NULL, NULL);
            Expr **back = expr_parse_list(arena, text, ops[o].name, &m);
            assert_int_equal(m, 1);
            assert_true(same(e[i], back[0]));
        }
    }
}

static void keys_of_arguments_are_kept(void **state)
{
    (void)state;
    Expr *e = expr_parse(arena, "slice(dy, at=0, size = a, a == b)", "test");
    assert_int_equal(e->kind, EXPR_CALL);
    assert_int_equal(e->narg, 4);
    assert_null(e->key[0]);
    assert_ptr_equal(e->key[1], intern(arena, "at"));
    assert_ptr_equal(e->key[2], intern(arena, "size"));
    assert_null(e->key[3]);
    assert_int_equal(e->arg[3]->kind, EXPR_EQ);
}

static void a_blank_column_is_no_expression(void **state)
{
    (void)state;
    int n;
    assert_null(expr_parse(arena, "", "test"));
    assert_null(expr_parse(arena, NULL, "test"));
    assert_null(expr_parse_list(arena, "  ", "test", &n));
    assert_int_equal(n, 0);
}

static const char *renamed(void *arg, const char *name)
{
    return fmt(arg, "%s[i]", name);
}

static void names_print_as_the_caller_says(void **state)
{
    (void)state;
    Expr *e = expr_parse(arena, "a * exp(b)", "test");
    assert_string_equal(expr_text(arena, e, "f", renamed, arena),
                        "a[i] * expf(b[i])");
}

/* ---- the op table ---- */

static void lin_groups_say_what_is_linear_together(void **state)
{
    (void)state;
    assert_true(op_linear(OP_add, 0, 1));
    assert_true(op_linear(OP_mul, 0, 0));
    assert_false(op_linear(OP_mul, 0, 1));
    assert_false(op_linear(OP_where, 0, 0));
    assert_true(op_linear(OP_where, 1, 2));
    assert_true(op_linear(OP_div, 0, 0));
    assert_false(op_linear(OP_div, 1, 1));
    assert_true(op_linear(OP_total, 0, 5));
    assert_false(op_linear(OP_exp, 0, 0));
}

static void arity_and_keys_follow_from_the_row(void **state)
{
    (void)state;
    assert_int_equal(ops[OP_where].arity, 3);
    assert_int_equal(ops[OP_dot].arity, 2);
    assert_int_equal(ops[OP_total].arity, -1);
    assert_int_equal(ops[OP_param].arity, 0);
    assert_true(ops[OP_param].leaf);
    assert_false(ops[OP_total].leaf);
    assert_true(op_has_key(OP_slice, "at"));
    assert_false(op_has_key(OP_slice, "a"));
    assert_false(op_has_key(OP_add, "at"));
    for (Op o = 0; o < OP_COUNT; o++)
        assert_int_equal(op_find(ops[o].name), o);
    assert_int_equal(op_find("nosuch"), OP_COUNT);
    for (DType d = 0; d < NDTYPE; d++)
        assert_int_equal(dtype_find(dtype_name(d)), d);
    assert_int_equal(dtype_find("f31"), NDTYPE);
}

/* ---- splits ---- */

static const Mesh mesh = { 4, { { "x", 2, SPACE }, { "y", 3, SPACE },
                                { "s", 4, STAGE }, { "t", 5, TIME } } };

static void a_split_lists_its_axes_major_first(void **state)
{
    (void)state;
    Split s = split_push(split_push(0, 1), 0);       /* /y/x */
    assert_int_equal(s, 0x12);
    assert_int_equal(split_axes(s), 3);
    assert_int_equal(split_parts(&mesh, s), 6);
    assert_int_equal(split_minor(s), 0);
    assert_int_equal(split_minor(0), -1);
    assert_int_equal(split_without(s, 1), split_push(0, 1));
    assert_int_equal(split_without(s, 2), split_push(0, 0));
    for (int y = 0; y < 3; y++)
        for (int x = 0; x < 2; x++)
            assert_int_equal(split_index(&mesh, s, (int[]){ x, y, 0, 0 }),
                             2 * y + x);
}

static void a_part_is_rounded_up_and_holds_its_halo(void **state)
{
    (void)state;
    Type t = { .dtype = BF16, .ndim = 2, .dim = { 100, 10 },
               .split = { split_push(split_push(0, 1), 3), split_push(0, 0) },
               .lo = { 0, 1 }, .hi = { 0, 2 }, .partial = 4 };
    Type part = type_local(&mesh, &t);
    assert_int_equal(part.dim[0], 7);                /* 100 / 15 */
    assert_int_equal(part.dim[1], 8);                /* 5 + 1 + 2 */
    assert_int_equal(type_bytes(&mesh, &t), 7 * 8 * 2);
    assert_int_equal(type_volume(&t), 1000);
    assert_int_equal(type_axes(&t), 15);
    assert_string_equal(type_text(arena, &mesh, &t),
                        "bf16[100/y/t,10/x:1:2]+s");
    assert_int_equal(mesh_axes(&mesh, TIME), 8);
    assert_int_equal(mesh_size(&mesh, 3), 6);
    assert_int_equal(mesh_find(&mesh, "s"), 2);
    assert_int_equal(mesh_find(&mesh, "z"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(a_rewind_forgets_what_came_after_the_mark),
        cmocka_unit_test(arrays_grow_and_keep_their_elements),
        cmocka_unit_test(one_spelling_is_one_pointer),
        cmocka_unit_test(texts_grow_by_pieces_of_any_length),
        cmocka_unit_test(numbers_read_back_to_the_bit),
        cmocka_unit_test(numbers_are_as_printf_has_them),
        cmocka_unit_test(common_directives_print_as_printf_does),
        cmocka_unit_test(an_error_returns_to_its_trap_with_its_notes),
        cmocka_unit_test(traps_nest),
        cmocka_unit_test(what_a_trap_made_goes_with_its_error),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(errors_exit_1_and_bugs_70),
        cmocka_unit_test(a_wrong_expression_names_row_and_column),
        cmocka_unit_test(expressions_print_as_c_with_few_parentheses),
        cmocka_unit_test(every_vjp_reads_back_from_its_text),
        cmocka_unit_test(keys_of_arguments_are_kept),
        cmocka_unit_test(a_blank_column_is_no_expression),
        cmocka_unit_test(names_print_as_the_caller_says),
        cmocka_unit_test(lin_groups_say_what_is_linear_together),
        cmocka_unit_test(arity_and_keys_follow_from_the_row),
        cmocka_unit_test(a_split_lists_its_axes_major_first),
        cmocka_unit_test(a_part_is_rounded_up_and_holds_its_halo),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
