/* test_text.c -- what a graph prints, reads back: every row of the op table,
 * every attribute, every label, the schedule; and what is no graph, is told
 * where and why. */
#include "ir/text.h"

/* Of cases.h only the making of calls is used here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "tests/unit/cases.h"

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

static uint64_t seed = 7;

static int dice(int n)                    /* 0 .. n - 1 */
{
    return (int)(noise(&seed) * n);
}

static char *print(const Graph *g)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    graph_print(g, f);
    fclose(f);
    char *kept = fmt(arena, "%s", text);
    free(text);
    return kept;
}

/* ---- deep equality: a field that is neither printed nor read differs ---- */

static void same_text(const char *a, const char *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a)
        assert_string_equal(a, b);
}

static void same_data(const Attr *a, const Attr *b)
{
    assert_int_equal(a->ndata, b->ndata);
    if (a->ndata)
        assert_memory_equal(a->data, b->data,
                            (size_t)a->ndata * sizeof *a->data);
}

static void same_attr(const Attr *a, const Attr *b)
{
#define SAME_REAL(f) assert_memory_equal(&a->f, &b->f, sizeof a->f);
#define SAME_REALS(f) same_data(a, b);
#define SAME_WORD(f) same_text(a->f, b->f);
#define SAME_TEXT(f) same_text(a->f, b->f);
#define SAME_INT(f) assert_true(a->f == b->f);
#define SAME_DTYPE(f) assert_int_equal(a->f, b->f);
#define SAME_AXES(f) assert_int_equal(a->f, b->f);
#define ATTR(key, field, kind) SAME_##kind(field)
#include "ir/attrs.def"
    same_text(a->sig, b->sig);
    assert_int_equal(a->nletter, b->nletter);
    for (int i = 0; i < a->nletter; i++) {
        assert_int_equal(a->letter[i].c, b->letter[i].c);
        assert_int_equal(a->letter[i].size, b->letter[i].size);
        assert_int_equal(a->letter[i].split, b->letter[i].split);
    }
}

static void same_node(const Node *a, const Node *b)
{
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->nin, b->nin);
    for (int i = 0; i < a->nin; i++)
        assert_int_equal(a->in[i], b->in[i]);
    assert_true(type_equal(&a->type, &b->type));
    same_attr(&a->attr, &b->attr);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->scope, b->scope);
    assert_string_equal(a->loc, b->loc);
    assert_int_equal(a->again, b->again);
    assert_int_equal(a->segment, b->segment);
    assert_int_equal(a->loop, b->loop);
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->layout, b->layout);
    assert_int_equal(a->kernel, b->kernel);
    assert_int_equal(a->bucket, b->bucket);
    assert_int_equal(a->stream, b->stream);
}

static void same_ends(const Graph *a, const Graph *b)
{
    assert_int_equal(a->nset, b->nset);
    for (uint32_t i = 0; i < a->nset; i++) {
        assert_int_equal(a->set[i].leaf, b->set[i].leaf);
        assert_int_equal(a->set[i].value, b->set[i].value);
    }
    assert_int_equal(a->nout, b->nout);
    for (uint32_t i = 0; i < a->nout; i++) {
        assert_string_equal(a->out[i].name, b->out[i].name);
        assert_int_equal(a->out[i].ref, b->out[i].ref);
    }
}

static void same_mesh(const Mesh *a, const Mesh *b)
{
    assert_int_equal(a->naxis, b->naxis);
    for (int i = 0; i < a->naxis; i++) {
        assert_string_equal(a->axis[i].name, b->axis[i].name);
        assert_int_equal(a->axis[i].size, b->axis[i].size);
        assert_int_equal(a->axis[i].kind, b->axis[i].kind);
    }
}

/* Print, read, print: the same bytes, and the same graph. */
static Graph *read_back(const Graph *g)
{
    char *text = print(g);
    Graph *h = graph_parse(arena, text, "back.ir");
    assert_string_equal(print(h), text);
    assert_int_equal(g->phase, h->phase);
    assert_string_equal(g->entry, h->entry);
    assert_int_equal(g->n, h->n);
    same_mesh(&g->mesh, &h->mesh);
    for (Ref r = 0; r < g->n; r++)
        same_node(&g->node[r], &h->node[r]);
    same_ends(g, h);
    return h;
}

/* ---- graphs made at random ---- */

static const Mesh mesh = { 4, { { "x", 2, SPACE }, { "y'", 3, SPACE },
                                { "s", 4, STAGE }, { "t", 5, TIME } } };

static void random_labels(Graph *g, Ref r)
{
    static const char *const odd[] = {
        "", "blocks.17.to_q", "a b", "say \"x\"", "back\\slash", "two\nlines",
        "tab\t", "\xc3\xa9t\xc3\xa9", "#no comment", "k=v", "m.lua:41", ":", ",",
    };
    Node *n = &g->node[r];
    n->segment = (Segment)dice(UPDATE + 1);
    n->loop = (Axes)(dice(2) << 3);
    n->stage = dice(4) - 1;
    n->layout = n->type.ndim == 4 ? (int[]){ 0, 231, 3210 }[dice(3)] : 0;
    n->kernel = dice(5) - 1, n->bucket = dice(3) - 1, n->stream = dice(2);
    n->again = r && dice(2) ? (Ref)dice((int)r) : NONE;
    n->scope = odd[dice(COUNT(odd))];
    n->loc = odd[dice(COUNT(odd))];
}

/* Attributes that no rule of the row reads. */
static void random_attributes(Attr *a)
{
    static const double values[] = { 0, -0.0, 1, 0.1, -1e-300, INFINITY, NAN };
    a->value = values[dice(COUNT(values))];
    a->dist = dice(2) ? NULL : "normal";
    a->doc = dice(2) ? NULL : "learning rate, \"peak\"";
    a->id = dice(2) ? 0 : INT64_MIN + dice(9);
    a->use = dice(3), a->frozen = dice(2);
    if (dice(2)) {
        double *v = alloc(arena, 3 * sizeof *v);
        v[0] = noise(&seed), v[1] = -noise(&seed), v[2] = dice(9);
        a->data = v, a->ndata = 3;
    }
}

static void every_call_of_every_row_reads_back(void **state)
{
    (void)state;
    int called = 0;
    for (Op o = 0; o < OP_COUNT; o++)
        for (int odd = 0; odd < 2; odd++) {
            Case c[NCASE];
            int n = cases_of(o, c, odd);
            for (int i = 0; i < n; i++, called++) {
                Ref in[NIN];
                Graph *g = build(&c[i], &mesh, in);
                random_attributes(&g->node[g->n - 1].attr);
                for (Ref r = 0; r < g->n; r++)
                    random_labels(g, r);
                g->phase = (Phase)dice(2);
                read_back(g);
            }
        }
    assert_true(called > 2 * 50);
}

static Type random_type(void)
{
    Type t = { .dtype = (DType)dice(NDTYPE), .ndim = dice(NDIM + 1) };
    int order[] = { dice(4), 0, 0 };
    order[1] = (order[0] + 1) % 4, order[2] = (order[0] + 2) % 4;
    for (int d = 0; d < t.ndim; d++) {
        t.dim[d] = 1 + dice(60);
        if (dice(3) == 0)
            t.lo[d] = (uint8_t)dice(256), t.hi[d] = (uint8_t)dice(256);
        if (dice(3) == 0)
            t.step[d] = 1 + dice(1 << 20);
    }
    for (int i = 0; i < 3 && t.ndim; i++)
        if (dice(2)) {
            Split *s = &t.split[dice(t.ndim)];
            *s = split_push(*s, order[i]);
        }
    t.partial = (Axes)dice(16);
    t.fold = t.partial ? (Fold)dice(3) : FOLD_SUM;
    return t;
}

static void leaves_of_every_type_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        Graph *g = graph_new(arena, &mesh);
        for (Op o = 0; o < OP_COUNT; o++)
            if (ops[o].leaf) {
                Attr a = { .dim = dice(3), .axes = (Axes)dice(16) };
                random_attributes(&a);
                Ref r = emit_typed(g, o, &a, random_type(), NULL, 0,
                                   dice(2) ? NULL : ops[o].name, "");
                random_labels(g, r);
            }
        g->node[2].type = g->node[1].type;
        graph_set(g, 1, 2);
        graph_out(g, "loss", 0);
        graph_out(g, "an odd name", 1);
        read_back(g);
    }
}

static void collectives_read_back(void **state)
{
    (void)state;
    Graph *g = graph_new(arena, &mesh);
    Type t = { .ndim = 2, .dim = { 12, 24 }, .partial = 1 };
    Ref r = emit_typed(g, OP_input, NULL, t, NULL, 0, "in", "");
    static const struct { Op op; Axes axes; int dim, to; } way[] = {
        { OP_all_reduce, 1, 0, 0 }, { OP_shard, 3, 1, 0 },
        { OP_all_to_all, 2, 1, 0 }, { OP_all_gather, 2, 0, 0 },
        { OP_own, 2, 0, 0 }, { OP_reduce_scatter, 2, 0, 0 },
    };
    for (int i = 0; i < COUNT(way); i++) {
        Attr a = { .axes = way[i].axes, .dim = way[i].dim, .to = way[i].to };
        r = emit_typed(g, way[i].op, &a, coll_type(g, way[i].op, &a, r, "x:1"),
                       &r, 1, NULL, "");
    }
    emit_typed(g, OP_reshard, NULL, t, &r, 1, NULL, "");
    read_back(g);
}

static const char *const sched_text =
    "mesh x=2 t=4:time\n"
    "entry train\n"
    "phase sched\n"
    "a = state : f32[8,4] loop=t\n"
    "b = neg a : f32[8,4] loop=t kernel=0\n"
    "c = exp b : f32[8,4] loop=t kernel=0\n"
    "d = copy c : f32[8,4] loop=t stream=1\n"
    "set a = d\n"
    "return c=c\n"
    "sched leaves=12 arena=4096 io=128 lower=4000 peak=3 events=2\n"
    "buf a io size=128 born=0 dies=3\n"
    "buf c arena at=64 size=128 stride=128 slots=3 places=64,320,192 "
    "born=1 dies=4\n"
    "buf d arena at=192 size=128 root=c off=128 born=2 dies=4\n"
    "launch 0 = b, c scratch=100\n"
    "launch 1 = d\n"
    "step 0.0 event=0 at=512\n"
    "step 1.0 stream=1 wait=0 event=1\n"
    "step 0.1 wait=0,1\n";

static void the_schedule_reads_back(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena, sched_text, "s.ir");
    assert_string_equal(print(g), sched_text);
    const Sched *s = g->sched;
    assert_int_equal(s->nlaunch, 2);
    assert_int_equal(s->nstep, 3);
    assert_int_equal(s->nevent, 2);
    assert_int_equal(s->bytes[ARENA], 4096);
    assert_int_equal(s->lower, 4000);
    assert_int_equal(s->peak, 3);
    assert_int_equal(s->buf[0].at, -1);
    assert_int_equal(s->buf[2].slots, 3);
    assert_int_equal(s->buf[3].root, 2);
    assert_int_equal(s->buf[3].off, 128);
    assert_false(s->buf[1].used);
    assert_int_equal(s->step[0].scratch_at, 512);
    assert_int_equal(s->buf[2].place[1], 320);
    assert_int_equal(s->step[1].stream, 1);
    assert_int_equal(s->step[2].wait[1], 1);
    assert_int_equal(s->step[2].event, -1);
}

/* ---- what hands write ---- */

static void a_type_left_out_follows_from_the_row(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena,
        "mesh x=2 t=4:time   # a comment\n"
        "\n"
        "a = input : f32[64/x/t,8]\n"
        "w = param : f32[8,16]\n"
        "y = dot a, w \"bk,kn->bn\"\n"
        "dw = dot a, y \"bk,bn->kn\" # another\r\n"
        "r = all_reduce dw axes=t\n"
        "c=cast r dtype=bf16 seg=update", "t.ir");
    assert_string_equal(print(g),
        "mesh x=2 t=4:time\n"
        "entry train\n"
        "phase tensor\n"
        "a = input : f32[64/x/t,8]\n"
        "w = param : f32[8,16]\n"
        "y = dot a, w \"bk,kn->bn\" : f32[64/x/t,16]\n"
        "dw = dot a, y \"bk,bn->kn\" : f32[8,16]+x+t\n"
        "r = all_reduce dw axes=t : f32[8,16]+x\n"
        "c = cast r dtype=bf16 : bf16[8,16]+x seg=update\n");
}

static void names_made_equal_are_told_apart(void **state)
{
    (void)state;
    Graph *g = graph_new(arena, NULL);
    Type t = { .ndim = 0 };
    Ref a = emit_typed(g, OP_const, NULL, t, NULL, 0, "w", "");
    emit_typed(g, OP_param, NULL, t, NULL, 0, "w", "");
    emit_typed(g, OP_neg, NULL, t, &a, 1, "q", "");
    emit_typed(g, OP_exp, NULL, t, &a, 1, "q", "");
    emit_typed(g, OP_sin, NULL, t, &a, 1, "q", "");
    graph_name(g);
    static const char *const want[] = { "w.1", "w", "q", "q.1", "q.2" };
    for (Ref r = 0; r < g->n; r++)
        assert_string_equal(g->node[r].name, want[r]);
}

/* ---- what is no graph ---- */

static const char *error_of(const char *text)
{
    static ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        graph_parse(arena, text, "e.ir");
        err_pop();
        return "no error";
    }
    return t.text;
}

#define A "a = input : f32[4,6]\n"
#define M "mesh x=2 y=3\n"

static const char *const wrong[][2] = {
    { "foo\n", "1: error: expected \"=\" after \"foo\", found the end of the "
      "line" },
    { "\n# x\n= 3\n", "3: error: expected a name, found \"=\"" },
    { "y = nosuch\n", "1: error: unknown op \"nosuch\"; see \"dpc ops\"" },
    { "y =\n", "1: error: expected an op, found the end of the line" },
    { A "y = neg b\n", "2: error: unknown node \"b\"; a node stands before its "
      "readers" },
    { A "y = add a\n", "2: error: add takes 2 operands, found 1" },
    { A "y = add a, a, a\n", "2: error: add takes 2 operands, found 3" },
    { A "y = neg a a\n", "2: error: expected key=value or \": type\", found "
      "\"a\"" },
    { A A, "2: error: the name \"a\" is taken; names are unique" },
    { "a = input\n", "1: error: input: its type does not follow; write "
      "\": f32[...]\"" },
    { "a = input : f31[4]\n", "1: error: unknown dtype \"f31\"; there are: "
      "f32, bf16, i32, u8" },
    { "a = input : f32\n", "1: error: expected \"[\" and the sizes, found the "
      "end of the line" },
    { "a = input : f32[4 6]\n", "1: error: expected \",\" or \"]\", found "
      "\"6\"" },
    { "a = input : f32[0]\n", "1: error: \"0\" is not from 1 to "
      "9223372036854775807" },
    { "a = input : f32[,]\n", "1: error: expected a number, found \",\"" },
    { "a = input : f32[1,1,1,1,1,1,1,1,1]\n", "1: error: a type has at most 8 "
      "dimensions" },
    { "a = input : f32[4000000000,4000000000]\n", "1: error: a tensor of this "
      "size is out of reach" },
    { M "a = input : f32[4/z]\n", "2: error: unknown mesh axis \"z\"" },
    { M "a = input : f32[4/x/x]\n", "2: error: mesh axis \"x\" splits one "
      "dimension twice" },
    { M "a = input : f32[4]+x~y\n", "2: error: one type waits for two kinds "
      "of fold" },
    { M "a = input : f32[4:1]\n", "2: error: expected \":\" and the rows "
      "above, found \"]\"" },
    { M "a = input : f32[8/x,6]\nb = halo a axes=x dim=99999999\n",
      "3: error: halo: 0 and 0 rows of others, and parts of 0, along dimension "
      "99999999 of f32[8/x,6]" },
    { M "a = input : f32[8/x,6]\nb = halo a axes=x dim=0 lo=256\n",
      "3: error: halo: 256 and 0 rows of others, and parts of 0, along dimension "
      "0 of f32[8/x,6]" },
    { M "a = input : f32[8/x,6]\nb = halo a axes=x dim=0 lo=1 hi=2\n"
      "c = neg b\n", "4: error: neg: V9: operand 1 has 1 and 2 rows of "
      "others in parts of 4, and 0 and 0 in parts of 4 are read" },
    { M "a = input : f32[1,2,8/x,6]\nk = input : f32[3,2,3,3]\n"
      "b = conv a, k pad=1\n", "4: error: conv: V9: operand 1 has 0 and 0 "
      "rows of others in parts of 4, and 1 and 1 in parts of 4 are read" },
    { M M, "2: error: the mesh comes first, and once" },
    { "mesh x=2 x=3\n", "1: error: mesh axis \"x\" stands twice" },
    { "mesh x=2:space\n", "1: error: unknown kind of axis \"space\"; there "
      "are: stage, time" },
    { "mesh x\n", "1: error: expected \"=\" and the size of the axis, found "
      "the end of the line" },
    { "phase late\n", "1: error: unknown phase \"late\"; there are: tensor, "
      "local, sched" },
    { A "y = neg a : f32[4]\n", "2: error: neg: its operands give f32[4,6], "
      "the text says f32[4]" },
    { A "y = neg a nosuch=3\n", "2: error: unknown key \"nosuch\"" },
    { A "y = neg a seg=later\n", "2: error: unknown segment \"later\"; there "
      "are: init, begin, forward, backward, weight, update" },
    { A "y = neg a kernel=x\n", "2: error: expected a number, found \"x\"" },
    { A "y = neg a again=z\n\n", "2: error: again: unknown node \"z\"" },
    { A "y = move a \"ab->ba\n", "2: error: expected a closing quote, found "
      "the end of the line" },
    { A "y = neg a scope=\"\\q\"\n", "2: error: expected n, x01 to xff, a "
      "quote or a backslash after \"\\\", found \"q\"" },
    { A "y = slice a dim=0 at=2 size=99999999999999999999\n",
      "2: error: \"99999999999999999999\" is not from -9223372036854775808 to "
      "9223372036854775807" },
    { A "y = neg a stride=2147483648\n", "2: error: \"2147483648\" is not "
      "from -2147483648 to 2147483647" },
    { A "y = dot a, a \"ab,bc->ac\"\n", "2: error: dot: dimension b is 6 in "
      "one operand and 4 in another" },
    { A "set b = a\n", "2: error: unknown node \"b\"; a node stands before "
      "its readers" },
    { "a = param : f32[4,6]\nset a a\n", "2: error: expected \"=\" and the new value, found "
      "\"a\"" },
    { A "return\n", "2: error: expected name=node, found the end of the "
      "line" },
    { A "buf a arena\n", "2: error: a line \"sched\" comes before the "
      "schedule's lines" },
    { A "sched\nb = neg a\n", "3: error: nodes come before the schedule" },
    { A "sched\nbuf a there\n", "3: error: unknown space \"there\"; there "
      "are: leaves, arena, io, host_leaves, host_arena" },
    { A "sched\nlaunch 1 = a\n", "3: error: expected launch 0, the next one" },
    { A "sched\nstep 0.0\n", "3: error: unknown launch 0; there are 0" },
    { A "sched\nlaunch 0 = a\nstep 0 0\n", "4: error: expected \".\" and the "
      "turn, found \"0\"" },
};

static void errors_say_where_what_was_expected_and_found(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(wrong); i++)
        assert_string_equal(error_of(wrong[i][0]),
                            fmt(arena, "e.ir:%s", wrong[i][1]));
}

/* Every cut and every changed byte of a good text is read or refused. */
static void broken_texts_are_refused_not_followed(void **state)
{
    (void)state;
    size_t n = strlen(sched_text);
    char *text = alloc(arena, n + 1);
    for (size_t cut = 0; cut < n; cut++) {
        memcpy(text, sched_text, n + 1);
        text[cut] = 0;
        error_of(text);
    }
    for (int i = 0; i < 3000; i++) {
        memcpy(text, sched_text, n + 1);
        for (int k = 0; k < 1 + dice(3); k++)
            text[dice((int)n)] = (char)(1 + dice(126));
        error_of(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_every_row_reads_back),
        cmocka_unit_test(leaves_of_every_type_read_back),
        cmocka_unit_test(collectives_read_back),
        cmocka_unit_test(the_schedule_reads_back),
        cmocka_unit_test(a_type_left_out_follows_from_the_row),
        cmocka_unit_test(names_made_equal_are_told_apart),
        cmocka_unit_test(errors_say_where_what_was_expected_and_found),
        cmocka_unit_test(broken_texts_are_refused_not_followed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
