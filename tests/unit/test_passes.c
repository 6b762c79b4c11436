/* test_passes.c -- every pass keeps the meaning of every graph; gradients
 * are those of central differences; the same text comes out twice. */
#include "tests/unit/passrun.h"

#include <math.h>
#include <time.h>

static Arena *arena;

static Job job_of(const Way *w, DType compute, const Graph *g)
{
    Plan *p = way_plan(arena, w, g);
    p->compute = compute;
    return (Job){ .keep = arena, .plan = p, .target = target_of_test() };
}

static const Graph *run(const Model *m, const Way *w, DType compute,
                        Seen *seen)
{
    Graph *g = model_graph(arena, m);
    Job j = job_of(w, compute, g);
    if (seen)
        j.check = check_pass, j.check_arg = seen, j.look_back = true;
    return run_passes(NULL, g, &j);
}

static const Model *model_named(const char *name)
{
    for (int i = 0; i < COUNT(models); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    fail_msg("no model %s", name);
    return NULL;
}

/* ---- meaning ---- */

static void every_pass_keeps_every_value(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int chains = 0; chains < 2; chains++) {
            Seen s = { 0 };
            fuse_chains = chains;
            run(&models[i], &ways[0], F32, &s);
            assert_int_equal(s.passes, npass);
            assert_true(s.compared > 0);
        }
    fuse_chains = false;
}

static void bf16_is_storage_alone(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < 3; k++) {
            Seen s = { 0 };
            const Graph *g = run(&models[i], &ways[k], BF16, &s);
            for (uint32_t q = 0; q < g->nset; q++)
                assert_int_equal(g->node[g->set[q].value].type.dtype, F32);
        }
    const Graph *g = run(model_named("u-net"), &ways[0], BF16, NULL);
    int narrow = 0;
    for (Ref r = 0; r < g->n; r++)
        if (ops[g->node[r].op].family == FAMILY_conv) {
            assert_int_equal(g->node[g->node[r].in[0]].type.dtype, BF16);
            narrow++;
        }
    assert_true(narrow >= 8);             /* backward convolutions too */
}

/* ---- text ---- */

static void the_same_text_comes_out_twice(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < COUNT(ways); k += 3) {
            const Graph *a = run(&models[i], &ways[k], F32, NULL);
            const Graph *b = run(&models[i], &ways[k], F32, NULL);
            assert_string_equal(graph_string(arena, a),
                                graph_string(arena, b));
        }
}

/* --stop-after=P prints what --start-from=(the next) may read. */
static void a_pass_may_start_from_the_text_before_it(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++) {
        const Way *w = &ways[6];
        char *want = graph_string(arena, run(&models[i], w, F32, NULL));
        for (int k = 0; k + 1 < npass; k++) {
            Graph *g = model_graph(arena, &models[i]);
            Job j = job_of(w, F32, g);
            j.stop_after = passes[k].name;
            char *text = graph_string(arena, run_passes(NULL, g, &j));
            j.stop_after = NULL;
            j.start_from = passes[k + 1].name;
            Graph *again = graph_parse(arena, text, "between");
            char *have = graph_string(arena, run_passes(NULL, again, &j));
            if (strcmp(want, have) != 0)
                fail_msg("%s: text after %s makes another schedule",
                         models[i].name, passes[k].name);
        }
    }
}

static void simplify_shares_equal_work(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena,
        "entry train\nphase tensor\nx = input : f32[4]\na = exp x\nb = exp x\n"
        "z = const value=0 : f32[]\nzs = move z \"->i\" i=4\nc = add a, zs\n"
        "d = mul b, c\nn = neg d\nm = neg n\ni = move m \"i->i\"\n"
        "lost = sin x\nreturn y=i\n", "simplify");
    Job j = { .keep = arena };
    const Graph *s = run_passes("simplify", g, &j);
    assert_int_equal(s->n, 3);            /* x, exp x, its square */
    assert_int_equal(s->node[2].op, OP_mul);
    assert_int_equal(s->node[2].in[0], s->node[2].in[1]);
}

static void slices_are_cut_from_what_lies_in_memory(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena,
        "entry train\nphase tensor\nx = input : f32[4,6]\n"
        "y = input : f32[4,5]\nc = concat x, y dim=1\n"
        "l = input : f32[4,9]\np = pad y, l dim=1 at=3\n"
        "a = slice c dim=1 at=2 size=4\nb = slice a dim=1 at=1 size=2\n"
        "d = slice c dim=1 at=6 size=5\ne = slice c dim=1 at=7 size=3\n"
        "f = slice c dim=1 at=5 size=2\nh = slice p dim=1 at=4 size=2\n"
        "i = slice p dim=1 at=2 size=3\nk = slice d dim=0 at=1 size=2\n"
        "return b=b d=d e=e f=f h=h i=i k=k\n", "simplify");
    static const struct { const char *from; int at; } want[] = {
        { "x", 3 }, { "y", 0 }, { "y", 1 }, { "c", 5 }, { "y", 1 },
        { "p", 2 }, { "y", 1 },
    };
    Job j = { .keep = arena };
    const Graph *s = run_passes("simplify", g, &j);
    Eval *was = eval_new(g, FIELD, 5, 3), *is = eval_new(s, FIELD, 5, 3);
    eval_run(was);
    eval_run(is);
    for (uint32_t i = 0; i < s->nout; i++) {
        const Node *n = &s->node[s->out[i].ref];
        if (n->op == OP_slice)
            n = &s->node[n->in[0]];
        assert_string_equal(n->name, want[i].from);
        if (s->node[s->out[i].ref].op == OP_slice)
            assert_int_equal(s->node[s->out[i].ref].attr.at, want[i].at);
        assert_memory_equal(eval_get(was, g->out[i].ref),
                            eval_get(is, s->out[i].ref),
                            (size_t)type_volume(&g->node[g->out[i].ref].type)
                            * sizeof(Num));
    }
    eval_free(was);
    eval_free(is);
}

/* ---- gradients ---- */

static const Graph *with_gradients(const Model *m)
{
    Graph *g = model_graph(arena, m);
    for (Ref r = 0, n = g->n; r < n; r++)
        if (g->node[r].op == OP_grad)
            graph_out(g, g->node[r].name, r);
    Job j = { .keep = arena, .stop_after = "tidy" };
    return run_passes(NULL, g, &j);
}

/* The scalar "loss" with element i of a leaf moved by h. */
static double loss_at(const Graph *g, Ref leaf, Num *x, int64_t i, double h)
{
    Eval *e = eval_new(g, REAL, 5, 3);
    double was = x[i].r;
    x[i].r += h;
    eval_set(e, leaf, x);
    eval_run(e);
    double y = eval_get(e, value_of(g, "loss", NULL))[0].r;
    eval_free(e);
    x[i].r = was;
    return y;
}

static int compare_gradient(const Model *m, const Graph *g, const char *leaf)
{
    char name[32];
    const double h = 1e-5;
    Eval *e = eval_new(g, REAL, 5, 3);
    Ref x = graph_leaf(g, leaf);
    snprintf(name, sizeof name, "g_%s", leaf);
    eval_run(e);
    const Num *d = eval_get(e, value_of(g, name, NULL)), *v = eval_get(e, x);
    int64_t n = type_volume(&g->node[x].type);
    Num *at = alloc(arena, (size_t)n * sizeof *at);
    memcpy(at, v, (size_t)n * sizeof *at);
    int64_t step = n > 40 ? n / 20 : 1;
    for (int64_t i = 0; i < n; i += step) {
        double slope = (loss_at(g, x, at, i, h) - loss_at(g, x, at, i, -h))
            / (2 * h);
        double scale = 1 + fabs(slope) + fabs(d[i].r);
        if (!(fabs(slope - d[i].r) < 1e-5 * scale))
            fail_msg("%s: d loss / d %s[%d] is %g, differences say %g",
                     m->name, leaf, (int)i, d[i].r, slope);
    }
    eval_free(e);
    return 1;
}

static void gradients_equal_central_differences(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < COUNT(models); i++) {
        Param p;
        const Graph *g = models[i].train ? with_gradients(&models[i]) : NULL;
        for (const char *t = models[i].train; t;) {
            t = param_read(t, &p);
            n += compare_gradient(&models[i], g, p.name);
        }
    }
    assert_true(n > 15);
}

static void gradient_of_a_tensor_is_refused(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena, "entry train\nphase tensor\n"
        "w = param : f32[4]\ny = exp w\nreturn y=y\n", "t.ir");
    Ref w = 0, d;
    ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        grad_append(g, 1, NONE, &w, 1, &d, arena);
        err_pop();
        fail_msg("accepted");
    }
    assert_non_null(strstr(t.text, "f32[4]"));
    assert_non_null(strstr(t.text, "scalar"));
}

static void a_gradient_that_does_not_arrive_is_zero(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena, "entry train\nphase tensor\n"
        "w = param : f32[4]\nu = param : f32[4]\ns = stop u\ny = mul w, s\n"
        "l = move y \"i->\"\ng = grad l, u\nreturn g=g\n", "t.ir");
    Job j = { .keep = arena, .stop_after = "tidy" };
    const Graph *d = run_passes(NULL, g, &j);
    Eval *e = eval_new(d, REAL, 1, 1);
    eval_run(e);
    for (int i = 0; i < 4; i++)
        assert_true(eval_get(e, d->out[0].ref)[i].r == 0);
    eval_free(e);
}

/* ---- segments ---- */

static void segments_follow_from_dependence(void **state)
{
    (void)state;
    Graph *g = model_graph(arena, model_named("mlp"));
    Job j = job_of(&ways[0], BF16, g);
    j.stop_after = "segment";
    const Graph *s = run_passes(NULL, g, &j);
    int seen[UPDATE + 1] = { 0 };
    for (Ref r = 0; r < s->n; r++) {
        const Node *n = &s->node[r];
        seen[n->segment]++;
        assert_int_not_equal(n->segment, SEG_NONE);
        for (int i = 0; i < n->nin; i++) {
            Segment x = s->node[n->in[i]].segment;
            if (n->segment == BEGIN || n->segment == FORWARD)
                assert_true(x <= n->segment);
            if (n->segment == BACKWARD)
                assert_true(x <= BACKWARD);
        }
        if (n->op == OP_cast && s->node[n->in[0]].op == OP_param)
            assert_int_equal(n->segment, BEGIN);
    }
    assert_true(seen[BEGIN] && seen[FORWARD] && seen[BACKWARD]
                && seen[UPDATE]);
}

/* ---- speed ---- */

static Model deep(int blocks)
{
    Str s = { .arena = arena }, t = { .arena = arena };
    str_add(&s, "x = input : f32[8,16]\n");
    for (int i = 0; i < blocks; i++) {
        str_add(&s, "w%1$d = param : f32[16,16]\nb%1$d = param : f32[16]\n"
                "h%1$d = dot %2$s%3$d, w%1$d \"bk,kn->bn\"\n"
                "s%1$d = move b%1$d \"n->bn\" b=8\na%1$d = add h%1$d, s%1$d\n"
                "y%1$d = tanh a%1$d\n", i, i ? "y" : "x0", i ? i - 1 : 0);
        str_add(&t, "w%1$d 16 16\nb%1$d 16\n", i);
    }
    char *text = s.p;
    for (char *q = text; (q = strstr(q, "x00"));)
        memcpy(q, "x  ", 3);
    str_add(&s, "loss = move y%d \"bn->\"\n", blocks - 1);
    return (Model){ "deep", s.p, t.p };
}

static void twenty_thousand_nodes_take_two_seconds(void **state)
{
    (void)state;
    Model m = deep(340);
    Graph *g = model_graph(arena, &m);
    Job j = job_of(&ways[6], F32, g);
    j.time = getenv("DPC_TEST_TIME") != NULL;
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    const Graph *s = run_passes(NULL, g, &j);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    double t = (double)(b.tv_sec - a.tv_sec)
        + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    print_message("%u nodes, %u steps: %.2f s\n", s->n, s->sched->nstep, t);
    assert_true(s->n > 20000);
    assert_true((double)s->sched->bytes[ARENA]
                < 1.05 * (double)s->sched->lower);
    assert_true(t < 10);                  /* 2, but for sanitizers */
}

int main(void)
{
    op_init();
    arena = arena_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_keeps_every_value),
        cmocka_unit_test(bf16_is_storage_alone),
        cmocka_unit_test(the_same_text_comes_out_twice),
        cmocka_unit_test(a_pass_may_start_from_the_text_before_it),
        cmocka_unit_test(simplify_shares_equal_work),
        cmocka_unit_test(slices_are_cut_from_what_lies_in_memory),
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(gradient_of_a_tensor_is_refused),
        cmocka_unit_test(a_gradient_that_does_not_arrive_is_zero),
        cmocka_unit_test(segments_follow_from_dependence),
        cmocka_unit_test(twenty_thousand_nodes_take_two_seconds),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
