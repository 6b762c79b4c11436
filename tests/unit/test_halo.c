/* test_halo.c -- pictures whose rows (and columns) lie in parts: a training
 * step through windows of every kind means what one rank means, and its
 * convolutions do work on parts. */
#include "tests/unit/passrun.h"

static Arena *arena;

/* A chain of windows over pictures of 2 channels and `rows` x 8, also of 14 and
 * 28, whose levels are odd, unless it says its size. */
typedef struct Chain {
    const char *name, *text, *train;
    int rows;
    bool sized;
} Chain;

#define LOSS "y2 = mul y, y\nloss = move y2 \"bchw->\"\n"
static const Chain chains[] = {
    { "3x3", "w1 = param : f32[2,2,3,3]\nw2 = param : f32[2,2,3,3]\n"
      "a = conv x, w1 pad=1\nr = tanh a\ny = conv r, w2 pad=1\n" LOSS,
      "w1 2 2 3 3\nw2 2 2 3 3\n", 24, false },
    { "stride", "w1 = param : f32[2,2,3,3]\nw2 = param : f32[2,2,4,4]\n"
      "w3 = param : f32[2,2,2,2]\n"
      "a = conv x, w1 pad=1 stride=2\nr = tanh a\n"
      "b = conv r, w2 pad=1 stride=2\ns = relu b\n"
      "y = conv s, w3 stride=2\n" LOSS,
      "w1 2 2 3 3\nw2 2 2 4 4\nw3 2 2 2 2\n", 48, false },
    { "1x1 and one of a kind", "w1 = param : f32[2,2,1,1]\n"
      "w2 = param : f32[2,2,5,5]\nw3 = param : f32[2,1,3,3]\n"
      "a = conv x, w1\nr = tanh a\nb = conv r, w2 pad=4 dilate=2\n"
      "y = conv b, w3 pad=1 g=2\n" LOSS,
      "w1 2 2 1 1\nw2 2 2 5 5\nw3 2 1 3 3\n", 24, false },
    { "up and transposed", "w1 = param : f32[2,2,3,3]\n"
      "w2 = param : f32[2,2,4,4]\nw3 = param : f32[8,2,3,3]\n"
      "z = const value=0 : f32[2,2,96,32]\n"
      "u = move x \"bchw->bc(hr)(ws)\" r=2 s=2\na = conv u, w1 pad=1\n"
      "r = tanh a\nt = conv_dx r, w2, z pad=1 stride=2\n"
      "p = conv t, w3 pad=1\ny = move p \"b(crs)hw->bc(hr)(ws)\" r=2 s=2\n"
      LOSS,
      "w1 2 2 3 3\nw2 2 2 4 4\nw3 8 2 3 3\n", 24, true },
    { "even filters", "w1 = param : f32[2,2,2,2]\nw2 = param : f32[2,2,6,6]\n"
      "a = conv x, w1 stride=2\nr = tanh a\n"
      "y = conv r, w2 pad=2 stride=2\n" LOSS,
      "w1 2 2 2 2\nw2 2 2 6 6\n", 24, false },
};

static Graph *chain_graph(const Chain *c, int rows)
{
    Model m = { c->name, fmt(arena, "x = input : f32[2,2,%d,8]\n%s", rows,
                             c->text), c->train };
    return model_graph(arena, &m);
}

/* The plan that splits batch, rows and columns of x. */
static Plan *plan_of(const Graph *g, const char *mesh, const char *batch,
                     const char *rows, const char *columns)
{
    Way w = { "", mesh, batch, "", "" };
    Plan *p = way_plan(arena, &w, g);
    for (uint32_t i = 0; i < p->nleaf; i++)
        if (strcmp(p->leaf[i].name, "x") == 0) {
            p->leaf[i].split[2] = way_split(&p->mesh, rows);
            p->leaf[i].split[3] = way_split(&p->mesh, columns);
        }
    return p;
}

static bool is_conv(const Node *n)
{
    return ops[n->op].family == FAMILY_conv;
}

/* Convolutions that name the axis: in parts of it, or a sum over it. */
static int cut_along(const Graph *g, int axis, int *all)
{
    int n = 0;
    *all = 0;
    for (Ref r = 0; r < g->n; r++) {
        *all += is_conv(&g->node[r]);
        n += is_conv(&g->node[r])
            && (type_axes(&g->node[r].type) >> axis & 1);
    }
    return n;
}

static const Graph *same_as_one_rank(const Graph *g, const Plan *plan,
                                     const char *what)
{
    Job j = { .keep = arena, .plan = plan, .target = target_of_test() };
    const Graph *out = run_passes(NULL, g, &j);
    j.stop_after = "tidy";
    same_meaning(what, run_passes(NULL, g, &j), out);
    return out;
}

static void parts_of_rows_mean_the_whole(void **state)
{
    (void)state;
    const int ranks[] = { 2, 3, 4, 5, 6, 7 }, rows[] = { 0, 14, 28 };
    for (int i = 0; i < COUNT(chains) * COUNT(ranks) * COUNT(rows); i++) {
        const Chain *c = &chains[i / COUNT(ranks) / COUNT(rows)];
        int n = ranks[i % COUNT(ranks)], all;
        int high = rows[i / COUNT(ranks) % COUNT(rows)];
        if (high && c->sized)
            continue;
        Graph *g = chain_graph(c, high ? high : c->rows);
        const Graph *out = same_as_one_rank(g, plan_of(g, fmt(arena, "s=%d", n),
                                            "", "s", ""), c->name);
        int cut = cut_along(out, 0, &all);
        if (cut != all)
            fail_msg("%s of %d rows on %d ranks: %d of %d in parts", c->name,
                     high, n, cut, all);
    }
}

static void they_compose_with_other_axes(void **state)
{
    (void)state;
    static const char *const way[][4] = {
        { "d=2 s=2", "d", "s", "" }, { "s=2 t=2:time", "t", "s", "" },
        { "s=2 c=2", "", "s", "c" },      /* corners come from the diagonal */
        { "s=2 c=3", "", "sc", "" },      /* two axes of one dimension, */
        { "s=2 c=3", "", "cs", "" },      /* in another order: joined */
        { "d=3 s=2", "d", "s", "" },      /* an uneven batch */
        { "s=1 d=2", "d", "s", "" }, { "d=2 s=2 t=2:time", "dt", "", "s" },
    };
    for (int i = 0; i < COUNT(chains); i++)
        for (int k = 0; k < COUNT(way); k++) {
            Graph *g = chain_graph(&chains[i], chains[i].rows);
            same_as_one_rank(g, plan_of(g, way[k][0], way[k][1], way[k][2],
                                            way[k][3]), chains[i].name);
        }
}

int main(void)
{
    op_init();
    arena = arena_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_rows_mean_the_whole),
        cmocka_unit_test(they_compose_with_other_axes),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
