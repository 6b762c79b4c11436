/* test_partition.c -- n ranks and k turns mean what one rank means; plans
 * that cannot be are refused with both numbers. */
#include "tests/unit/passrun.h"

static Arena *arena;

static void ranks_and_turns_mean_what_one_rank_means(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < COUNT(ways); k++) {
            Seen s = { 0 };
            Graph *g = model_graph(arena, &models[i]);
            Job j = { .keep = arena, .plan = way_plan(arena, &ways[k], g),
                      .target = target_of_test(), .check = check_pass,
                      .check_arg = &s, .look_back = true };
            const Graph *out = run_passes(NULL, g, &j);
            j.check = NULL, j.stop_after = "tidy";
            same_meaning(ways[k].name, run_passes(NULL, g, &j), out);
            assert_int_equal(s.passes, npass);
        }
}

/* ---- refused ---- */

static const char *plan_error(const Model *m, const Way *w, const char *leaf,
                              int dim, const char *axes)
{
    static ErrTrap t;
    Graph *g = model_graph(arena, m);
    Plan *p = way_plan(arena, w, g);
    for (uint32_t i = 0; i < p->nleaf; i++)
        if (strcmp(p->leaf[i].name, leaf) == 0 && dim < 0)
            p->leaf[i].ndim++;
        else if (strcmp(p->leaf[i].name, leaf) == 0)
            p->leaf[i].split[dim] = way_split(&p->mesh, axes);
    Job j = { .keep = arena, .plan = p, .target = target_of_test() };
    if (setjmp(t.jump))
        return t.text;
    err_push(&t);
    run_passes(NULL, g, &j);
    err_pop();
    return "accepted";
}

static void says(const char *text, const char *a, const char *b)
{
    if (!strstr(text, a) || !strstr(text, b))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", text, a, b);
}

static void a_plan_of_another_shape_is_refused(void **state)
{
    (void)state;
    says(plan_error(&models[0], &ways[1], "w1", -1, ""), "2 dimensions",
         "splits 3");
}

static void an_axis_may_not_split_two_dimensions(void **state)
{
    (void)state;
    const Way w = { "", "r=2", "", "r", "" };
    says(plan_error(&models[0], &w, "w1", 1, "r"), "\"w1\"", "\"r\"");
}

static void what_outlives_a_turn_is_not_split_over_turns(void **state)
{
    (void)state;
    const Way w = { "", "r=2 t=2:time", "rt", "", "" };
    says(plan_error(&models[0], &w, "w1", 0, "t"), "\"w1\"", "\"t\"");
}

/* ---- the three silent wrong types of architecture.md ---- */

static const char *line_error(const char *lines)
{
    static ErrTrap t;
    if (setjmp(t.jump))
        return t.text;
    err_push(&t);
    graph_parse(arena, fmt(arena, "mesh r=2 c=2\nentry train\nphase tensor\n%s",
                           lines), "t.ir");
    err_pop();
    return "accepted";
}

static void axes_never_stand_twice_in_a_type(void **state)
{
    (void)state;
    const char *const bad[] = {
        /* V1: folded and pending over one axis */
        "x = input : f32[64,512]+c\nw = param : f32[512,256/c]\n"
        "y = dot x, w \"bk,kn->bn\"\n",
        "x = input : f32[64,512/r]+r\ny = move x \"bk->b\"\n",
        /* V2: one letter, two splits; two letters, one axis */
        "x = input : f32[64/r,512]\nw = param : f32[512/r,256]\n"
        "y = dot x, w \"bk,kn->bn\"\n",
        "x = input : f32[64/r,8]\ny = input : f32[64/c,8]\nz = add x, y\n",
        /* V3: pending where the row is not linear; members that owe unlike */
        "x = input : f32[64]+r\ny = exp x\n",
        "x = input : f32[64]+r\ny = input : f32[64]\nz = add x, y\n",
        "x = input : f32[64]+r\ny = input : f32[64]+r\nz = mul x, y\n",
    };
    for (int i = 0; i < COUNT(bad); i++)
        says(line_error(bad[i]), "error", "t.ir");
}

static void linear_rows_let_pending_sums_pass(void **state)
{
    (void)state;
    assert_string_equal(line_error(
        "x = input : f32[64]+r\ny = input : f32[64]+r\nz = add x, y\n"
        "s = input : f32[64]\nm = mul z, s\nn = neg m\nk = move n \"i->\"\n"),
        "accepted");
}

/* ---- what a plan costs ---- */

static int count(const Graph *g, Op op)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].op == op;
    return n;
}

static const Graph *localized(const Model *m, const Way *w)
{
    Graph *g = model_graph(arena, m);
    Job j = { .keep = arena, .plan = way_plan(arena, w, g),
              .stop_after = "local" };
    return run_passes(NULL, g, &j);
}

static void split_states_cost_one_scatter_and_one_gather_each(void **state)
{
    (void)state;
    const Way w = { "", "r=2 t=2:time", "rt", "r", "" };
    const Graph *g = localized(&models[0], &w);
    assert_int_equal(count(g, OP_reduce_scatter), 3);     /* gradients */
    assert_int_equal(count(g, OP_all_gather), 3);         /* weights */
    assert_int_equal(count(g, OP_all_to_all), 0);
    for (Ref r = 0; r < g->n; r++)        /* the update works on parts */
        if (g->node[r].segment == UPDATE && g->node[r].op == OP_sqrt
            && g->node[r].type.ndim)
            assert_int_equal(g->node[r].type.split[0], split_push(0, 0));
}

static void random_numbers_and_constants_are_never_sent(void **state)
{
    (void)state;
    const Graph *g = localized(&models[6], &ways[2]);
    for (Ref r = 0; r < g->n; r++)
        if (ops[g->node[r].op].family == FAMILY_collective)
            assert_true(g->node[g->node[r].in[0]].type.partial);
}

int main(void)
{
    op_init();
    arena = arena_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_turns_mean_what_one_rank_means),
        cmocka_unit_test(a_plan_of_another_shape_is_refused),
        cmocka_unit_test(an_axis_may_not_split_two_dimensions),
        cmocka_unit_test(what_outlives_a_turn_is_not_split_over_turns),
        cmocka_unit_test(axes_never_stand_twice_in_a_type),
        cmocka_unit_test(linear_rows_let_pending_sums_pass),
        cmocka_unit_test(split_states_cost_one_scatter_and_one_gather_each),
        cmocka_unit_test(random_numbers_and_constants_are_never_sent),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
