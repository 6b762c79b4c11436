/* test_lua.c -- models in Lua: what traces, what is refused, what escapes. */
#include "compiler/lua.h"
#include "ir/eval.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static Arena *a;
static char dir[64], home[4096];

static const char *file_write(const char *name, const char *text, size_t n)
{
    const char *path = fmt(a, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(text, 1, n, f);
    fclose(f);
    return path;
}

static Model *load_text(const char *text, const char *define)
{
    const char *const defines[] = { define };
    ModelOptions o = { .home = home, .define = defines, .ndefine = define != 0,
                       .memory = 32 << 20, .instructions = 2e5 };
    return model_load(file_write("m.lua", text, strlen(text)), &o, a);
}

/* The first line of the error without its place; NULL: there is none. */
static const char *refusal(const char *text, const char *define)
{
    static ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        load_text(text, define);
        err_pop();
        return NULL;
    }
    const char *p = strstr(t.text, ": error: ");
    return p ? p + 9 : t.text;
}

#define ENTRY(body) "return { entries = { train = function() " body " end } }"

static void refuses(const char *text, const char *want)
{
    const char *got = refusal(text, NULL);
    if (!got || strncmp(got, want, strlen(want)) != 0)
        fail_msg("%s\n  wanted: %s\n  got: %s", text, want,
                 got ? got : "no error");
}

static int setup(void **state)
{
    (void)state;
    a = arena_new();
    op_init();
    strcpy(dir, "/tmp/dpc-lua-XXXXXX");
    return !mkdtemp(dir) || !getcwd(home, sizeof home);
}

static int teardown(void **state)
{
    (void)state;
    unlink(fmt(a, "%s/m.lua", dir));
    rmdir(dir);
    arena_free(a);
    return 0;
}

/* ---- what traces ---- */

static const Node *out_node(const Model *m, const char *entry, int i)
{
    const Graph *g = model_entry(m, entry);
    assert_non_null(g);
    return &g->node[g->out[i].ref];
}

static void an_operator_lifts_numbers_and_broadcasts(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local x = dpc.input('x', {2, 3, 4})"
        "local y, z = dpc.input('y', {3, 1}), dpc.input('z', {})"
        "return { a = 2 * x + y, b = -(x / 3) ^ 2 - z, c = 1 - z }"), NULL);
    const Type *t = &out_node(m, "train", 0)->type;
    assert_int_equal(t->ndim, 3);
    assert_int_equal(type_volume(t), 24);
    assert_int_equal(out_node(m, "train", 1)->type.ndim, 3);
    assert_int_equal(out_node(m, "train", 2)->type.ndim, 0);
    verify(model_entry(m, "train"), "test");
}

static void a_broadcast_repeats_what_numpy_would(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local i = dpc.iota({2, 3}, 1) + dpc.const({{10}, {20}})"
        "return { y = i }"), NULL);
    const Graph *g = model_entry(m, "train");
    static const double want[] = { 10, 11, 12, 20, 21, 22 };
    Eval *e = eval_new(g, REAL, 0, 0);
    eval_run(e);
    const Num *y = eval_get(e, g->out[0].ref);
    for (int i = 0; i < 6; i++)
        assert_true(y[i].r == want[i]);
    eval_free(e);
}

static void every_row_without_its_own_signature_is_a_method(void **state)
{
    (void)state;
    for (Op op = 0; op < OP_COUNT; op++) {
        bool plain = strcmp(ops[op].sig, "... -> ...") == 0 &&
                     (!ops[op].keys || !*ops[op].keys) &&
                     ops[op].family == FAMILY_nest;
        if (!plain)
            continue;
        Model *m = load_text(fmt(a, ENTRY("return { y = dpc.input('x', {3}):"
                                          "%s() }"), ops[op].name), NULL);
        assert_int_equal(out_node(m, "train", 0)->op, op);
    }
}

static void keys_and_letters_reach_the_node(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local x = dpc.input('x', {2, 3, 8, 8})"
        "local w = dpc.param('w', {5, 3, 3, 3})"
        "return { a = x:conv(w, {stride = 2, pad = 1}), "
        "b = x:slice{dim = -1, at = 2, size = 4}, c = x:cast('bf16'), "
        "d = x:move('b c (h p) w -> b (c p) h w', {p = 2}) }"), NULL);
    const Node *n = out_node(m, "train", 0);
    assert_int_equal(n->type.dim[2], 4);
    assert_int_equal(n->attr.stride, 2);
    assert_int_equal(out_node(m, "train", 1)->type.dim[3], 4);
    assert_int_equal(out_node(m, "train", 2)->type.dtype, BF16);
    assert_int_equal(out_node(m, "train", 3)->type.dim[1], 6);
    assert_string_equal(out_node(m, "train", 3)->attr.sig,
                        "bc(hp)w->b(cp)hw");
}

static void a_scope_names_params_and_nodes(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local w, v = dpc.scope('a', function() "
        "return dpc.scope('b', function() return dpc.param('w', {2}) end),"
        " dpc.param('v', {2}) end)"
        "local ps = dpc.params()"
        "assert(#ps == 2 and ps[1]:name() == 'a.b.w')"
        "assert(#dpc.params('a.b') == 1 and #dpc.params('a.bb') == 0)"
        "return { y = w + v, z = dpc.leaf('a.v') }"), NULL);
    const Graph *g = model_entry(m, "train");
    Ref r = graph_leaf(g, "a.b.w");
    assert_true(r != NONE);
    assert_string_equal(g->node[r].scope, "a.b");
}

static void a_scope_without_a_name_is_outside_of_all(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local w, v = dpc.scope('a', function() "
        "local w = dpc.scope(nil, function() "
        "return dpc.scope('b', function() return dpc.param('w', {2}) end) end)"
        "return w, dpc.param('v', {2}) end)"
        "assert(w:name() == 'b.w' and v:name() == 'a.v')"
        "return { y = w + v }"), NULL);
    assert_true(graph_leaf(model_entry(m, "train"), "b.w") != NONE);
}

static void init_sets_each_leaf_once_and_states_follow(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local w = dpc.param('w', {4}, {init = function(d) "
        "return dpc.random('normal', d) * 0.5 end})"
        "local e = dpc.state('e', {4}, {init = w})"
        "local c = dpc.state('c', {}, {init = 3})"
        "local z = dpc.state('z', {4}, {init = w * 2 + 1})"
        "dpc.set(e, e + w) dpc.set(c, c + 1)"
        "return { y = w }"), NULL);
    const Graph *g = model_entry(m, "init");
    assert_int_equal(g->nset, 4);
    Eval *ev = eval_new(g, REAL, 1, 0);
    eval_run(ev);
    const Num *w = eval_get(ev, g->set[0].value);
    const Num *e = eval_get(ev, g->set[1].value);
    const Num *z = eval_get(ev, g->set[3].value);
    for (int i = 0; i < 4; i++) {
        assert_true(w[i].r == e[i].r);
        assert_true(fabs(z[i].r - (w[i].r * 2 + 1)) < 1e-12);
    }
    assert_true(eval_get(ev, g->set[2].value)->r == 3);
    eval_free(ev);
}

static void an_option_is_read_by_the_type_of_its_default(void **state)
{
    (void)state;
    const char *text =
        "local n = dpc.option('n', 4) local s = dpc.option('s', 'x')"
        "local b = dpc.option('b', false)"
        ENTRY("return { y = dpc.input(s, {b and 100 or n}) }");
    assert_int_equal(out_node(load_text(text, "n=7"), "train", 0)->type.dim[0],
                     7);
    assert_int_equal(out_node(load_text(text, "b=yes"), "train", 0)
                     ->type.dim[0], 100);
    assert_string_equal(out_node(load_text(text, "s=q"), "train", 0)->name,
                        "q");
    assert_non_null(refusal(text, "b=maybe"));
    assert_non_null(refusal(text, "nn=3"));
    assert_non_null(refusal(text, "n=1.5"));
}

static void pairs_walks_in_the_order_of_the_keys(void **state)
{
    (void)state;
    Model *m = load_text(
        "local s = '' for k, v in pairs{z = 1, a = 2, [10] = 3, [2] = 4, "
        "mm = 5, [1.5] = 6} do s = s .. k .. '=' .. v .. ' ' end "
        "assert(s == '1.5=6 2=4 10=3 a=2 mm=5 z=1 ', s)"
        "local t = {a = 1, b = 2} for k in pairs(t) do t[k] = nil end "
        "for k in pairs(t) do error(k) end "
        ENTRY("return { y = dpc.input('x', {1}) }"), NULL);
    assert_int_equal(m->nentry, 1);
}

static void meta_and_runs_become_json_and_rows(void **state)
{
    (void)state;
    Model *m = load_text(
        "return { name = 'n', meta = {b = {1, 2.5, true}, a = 'q\"'}, "
        "runs = { sample = { 'one', {'two', times = 3}, "
        "{'two', times = 'k'} } }, entries = { "
        "one = function() return { y = dpc.scalar('k', 4, 'turns') } end, "
        "two = function() return { y = dpc.scalar('k', 4, 'turns') } end } }",
        NULL);
    assert_string_equal(m->meta, "{\"a\":\"q\\\"\",\"b\":[1,2.5,true]}");
    assert_int_equal(m->nrun, 3);
    assert_int_equal(m->run[1].times, 3);
    assert_string_equal(m->run[2].count, "k");
    assert_null(m->run[1].count);
}

static void the_same_file_gives_the_same_text(void **state)
{
    (void)state;
    const char *text = ENTRY(
        "local t = {} for i = 1, 50 do t['k' .. i] = dpc.param('p' .. i, {i}) "
        "end local s = dpc.const(0) for k, v in pairs(t) do "
        "s = s + v:move('a->') end return { y = s }");
    char *one = NULL, *two = NULL;
    size_t n, k;
    FILE *f = open_memstream(&one, &n);
    graph_print(load_text(text, NULL)->entry[0], f);
    fclose(f);
    f = open_memstream(&two, &k);
    graph_print(load_text(text, NULL)->entry[0], f);
    fclose(f);
    assert_string_equal(one, two);
    free(one), free(two);
}

static void a_traced_graph_reads_back_from_its_text(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "local x = dpc.input('x', {4, 3})"
        "local w = dpc.param('w', {3, 2}, {frozen = true})"
        "return { y = x:dot(w, 'bk,kn->bn'):tanh() }"), NULL);
    char *one = NULL, *two = NULL;
    size_t n;
    FILE *f = open_memstream(&one, &n);
    graph_print(m->entry[0], f);
    fclose(f);
    f = open_memstream(&two, &n);
    graph_print(graph_parse(a, one, "t.ir"), f);
    fclose(f);
    assert_string_equal(one, two);
    free(one), free(two);
}

/* ---- what is refused ---- */

static void a_wrong_model_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        { "return 3", "the file returns number" },
        { "return {}", "the model has no table \"entries\"" },
        { "return { entries = {} }", "the model has no entries" },
        { "return { name = '../x', entries = { t = function() return "
          "{ y = dpc.const(1) } end } }", "model \"../x\": letters" },
        { "return { entries = { ['a/b'] = function() end } }",
          "entry \"a/b\": letters" },
        { "return { entries = { init = function() end } }",
          "entry \"init\" is made by dpc" },
        { ENTRY("return 3"), "entry \"train\" returns number" },
        { ENTRY(""), "entry \"train\" returns nothing" },
        { "dpc.input('x', {1})", "input: only inside of an entry" },
        { ENTRY("return { y = dpc.input('x', {0}) }"), "input: size 1 is 0" },
        { ENTRY("return { y = dpc.input('x', {1,1,1,1,1,1,1,1,1}) }"),
          "input: 9 dimensions; at most 8" },
        { ENTRY("return { y = dpc.input('x y', {1}) }"),
          "input: \"x y\" is no name" },
        { ENTRY("return { y = dpc.input('x', {1}, 'f33') }"),
          "input: \"f33\" is no dtype" },
        { ENTRY("return { y = dpc.const({1, 2, 3}, {2}) }"),
          "const: 3 numbers for f32[2]" },
        { ENTRY("return { y = dpc.const({{1, 2}, {3}}) }"),
          "const: rows of 2 and of 1" },
        { ENTRY("return { y = dpc.random('cauchy', {2}) }"),
          "random: \"cauchy\" is neither" },
        { ENTRY("return { y = dpc.input('x', {2}):exp(3) }"),
          "exp: argument 2 is one too many" },
        { ENTRY("return { y = dpc.input('x', {2}):dot(3, 'a,a->a') }"),
          "dot: a value is wanted, this is number" },
        { ENTRY("return { y = dpc.input('x', {2}):move() }"),
          "move: a signature such as" },
        { ENTRY("local x = dpc.input('x', {2}) x.y = 3 return { y = x }"),
          "a value cannot be changed" },
        { ENTRY("local x = dpc.input('x', {2}) dpc.set(x, x)"),
          "set: \"x\" is no param or state" },
        { ENTRY("local x = dpc.param('x', {2}) dpc.set(x, 1) dpc.set(x, 2)"),
          "set: \"x\" is set a second time" },
        { ENTRY("local x = dpc.param('x', {2}, {init = dpc.input('i', {2})}) "
                "return { y = x }"),
          "param: the init of \"x\" reads input \"i\"" },
        { ENTRY("return { y = dpc.leaf('q') }"), "leaf: no \"q\" so far" },
        { "return { runs = { a = 3 }, " "entries = { t = function() return "
          "{ y = dpc.const(1) } end } }", "run \"a\" is a number" },
        { "return { meta = { f = print }, entries = { t = function() return "
          "{ y = dpc.const(1) } end } }", "meta: a function has no JSON" },
    };
    for (int i = 0; i < COUNT(pair); i++)
        refuses(pair[i][0], pair[i][1]);
}

static void what_no_machine_holds_is_refused_at_once(void **state)
{
    (void)state;
    refuses(ENTRY("return { y = dpc.const(1, {1000000, 1000000}) }"),
            "const: 1e+12 elements");
    refuses(ENTRY("return { y = dpc.param('w', {9223372036854775807, 4}) }"),
            "param: 3.689e+19 elements");
    refuses(ENTRY("return { y = dpc.const(1):move('->abc', "
                  "{a=2000000000, b=2000000000, c=2000000000}) }"), "move: ");
    refuses(ENTRY("local x = dpc.input('x', {1}) while true do x = -x end"),
            "more than 2e+05 instructions");
}

/* ---- what escapes ---- */

static void nothing_of_the_system_is_reachable(void **state)
{
    (void)state;
    static const char *const name[] = {
        "io", "os", "debug", "package", "load", "loadstring", "loadfile",
        "dofile", "collectgarbage", "getmetatable", "next", "_ENV.io",
        "math.random", "math.randomseed", "string.dump", "string.pack",
        "coroutine.close", "string.unpack", "utf8", "_VERSION",
    };
    for (int i = 0; i < COUNT(name); i++)
        assert_null(refusal(fmt(a, "assert(%s == nil, '%s') " ENTRY(
            "return { y = dpc.const(1) }"), name[i], name[i]), NULL));
}

static void ways_out_of_the_sandbox_are_closed(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        { "setmetatable({}, {__gc = function() end})",
          "setmetatable: __gc is not allowed" },
        { "setmetatable('', {})", "bad argument" },
        { "require '../../etc/passwd'", "require: \"../../etc/passwd\" is no" },
        { "require '/etc/passwd'", "require: \"/etc/passwd\" is no" },
        { "require 'no_such_module'", "require: no \"no_such_module.lua\"" },
        { "('x'):rep(1e10)", "rep: the result has more than" },
        { "('x'):rep(1e7, ('y'):rep(100))", "rep: the result has more than" },
        { "string.format('%p', {})", "format: %p shows an address" },
        { "string.format('%999d', 3)", "invalid conversion" },
        { "(('a'):rep(100000)):find(('a*'):rep(30) .. 'b')", "\"a*a*" },
        { "table.move({}, 1, 1e15, 2)", "a table of more than" },
        { "table.concat({}, '', 1, 1e15)", "a table of more than" },
        { "table.insert(setmetatable({}, {__len = function() return 1e15 "
          "end}), 1, 2)", "a table of more than" },
        { "for k in pairs{[{}] = 1} do end", "pairs: a table as key" },
        { "local function f() return f() + 1 end f()", "more than 2e+05" },
        { "local t = {} while true do t[#t + 1] = ('x'):rep(9999 + #t) end",
          "the file's Lua needs more than 32 MiB" },
        { "while true do pcall(function() while true do end end) end",
          "more than 2e+05 instructions" },
        { "local function f() while true do pcall(error) end end "
          "coroutine.wrap(f)()", "more than 2e+05 instructions" },
        { "while true do coroutine.wrap(function() end)() end",
          "more than 2e+05 instructions" },
    };
    for (int i = 0; i < COUNT(pair); i++)
        refuses(pair[i][0], pair[i][1]);
}

static void addresses_are_never_shown(void **state)
{
    (void)state;
    assert_null(refusal(
        "local co = coroutine.create(function() end) "
        "for _, v in ipairs{ {}, print, dpc, co } do "
        "assert(not tostring(v):find('0x')) "
        "assert(not string.format('%s', v):find('0x')) end "
        ENTRY("return { y = dpc.const(1) }"), NULL));
}

static void compiled_lua_is_not_read(void **state)
{
    (void)state;
    static const char code[] = "\x1bLuaS\0\x19\x93\r\n\x1a\n";
    static ErrTrap t;
    const char *path = file_write("m.lua", code, sizeof code - 1);
    ModelOptions o = { 0 };
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        model_load(path, &o, a);
        err_pop();
        fail();
    }
    assert_non_null(strstr(t.text, "is compiled Lua; only text is read"));
}

static void pcall_catches_what_is_not_a_limit(void **state)
{
    (void)state;
    assert_null(refusal(
        "local ok, e = pcall(error, 'x') assert(not ok and e == 'x') "
        ENTRY("local ok, e = pcall(function() return dpc.input('x', {0}) end) "
              "assert(not ok and tostring(e):find('size 1 is 0')) "
              "return { y = dpc.const(1) }"), NULL));
}

/* ---- plans ---- */

static void a_plan_prints_and_reads_back(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY(
        "return { y = dpc.input('x', {8, 4}) + dpc.param('w', {4}) }"), NULL);
    PlanOptions o = { .home = home, .file = "ddp", .ranks = 2, .micro = 2 };
    Plan *p = plan_partition(&o, m->entry, m->nentry, a);
    assert_int_equal(plan_ranks(p), 2);
    assert_int_equal(p->nleaf, 1);
    char *one = NULL, *two = NULL;
    size_t n, k;
    FILE *f = open_memstream(&one, &n);
    plan_print(p, f);
    fclose(f);
    o.file = file_write("p.lua", one, n);
    Plan *q = plan_read(&o, m->entry, m->nentry, a);
    f = open_memstream(&two, &k);
    plan_print(q, f);
    fclose(f);
    assert_string_equal(one, two);
    unlink(o.file);
    free(one), free(two);
}

static void axes_of_one_are_dropped(void **state)
{
    (void)state;
    Model *m = load_text(ENTRY("return { y = dpc.input('x', {8, 4}) }"), NULL);
    PlanOptions o = { .home = home, .file = "ddp", .ranks = 1, .micro = 4 };
    Plan *p = plan_partition(&o, m->entry, m->nentry, a);
    assert_int_equal(p->mesh.naxis, 1);
    assert_int_equal(p->mesh.axis[0].kind, TIME);
    assert_int_equal(split_parts(&p->mesh, p->leaf[0].split[0]), 4);
}

static void a_cluster_knows_this_machine(void **state)
{
    (void)state;
    Cluster *c = cluster_read(home, NULL, a);
    assert_string_equal(c->target, "host");
    assert_true(c->cores >= 1 && c->memory > 0 && c->nlevel == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operator_lifts_numbers_and_broadcasts),
        cmocka_unit_test(a_broadcast_repeats_what_numpy_would),
        cmocka_unit_test(every_row_without_its_own_signature_is_a_method),
        cmocka_unit_test(keys_and_letters_reach_the_node),
        cmocka_unit_test(a_scope_names_params_and_nodes),
        cmocka_unit_test(a_scope_without_a_name_is_outside_of_all),
        cmocka_unit_test(init_sets_each_leaf_once_and_states_follow),
        cmocka_unit_test(an_option_is_read_by_the_type_of_its_default),
        cmocka_unit_test(pairs_walks_in_the_order_of_the_keys),
        cmocka_unit_test(meta_and_runs_become_json_and_rows),
        cmocka_unit_test(the_same_file_gives_the_same_text),
        cmocka_unit_test(a_traced_graph_reads_back_from_its_text),
        cmocka_unit_test(a_wrong_model_is_refused_with_its_reason),
        cmocka_unit_test(what_no_machine_holds_is_refused_at_once),
        cmocka_unit_test(nothing_of_the_system_is_reachable),
        cmocka_unit_test(ways_out_of_the_sandbox_are_closed),
        cmocka_unit_test(addresses_are_never_shown),
        cmocka_unit_test(compiled_lua_is_not_read),
        cmocka_unit_test(pcall_catches_what_is_not_a_limit),
        cmocka_unit_test(a_plan_prints_and_reads_back),
        cmocka_unit_test(axes_of_one_are_dropped),
        cmocka_unit_test(a_cluster_knows_this_machine),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
