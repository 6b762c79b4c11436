/* test_ring.c -- attention whose keys come round means the same, on the whole
 * pipeline, and so do products whose operands do; what they hold and send;
 * axes that are no twins. */
#include "tests/unit/models.h"
#include "tests/unit/passrun.h"

static Arena *arena;

static const char attention[] =
    "entry train\nphase tensor\n"
    "x = input : f32[4,12,8]\nm = input : f32[12,12]\n"
    "wq = param : f32[8,8]\nwk = param : f32[8,8]\nwv = param : f32[8,8]\n"
    "q = dot x, wq \"bqd,dh->bqh\"\nk = dot x, wk \"bqd,dh->bqh\"\n"
    "v = dot x, wv \"bqd,dh->bqh\"\n"
    "o = attn q, k, v, m \"bqd,bsd,bse,qs->bqe\"\n"
    "o2 = mul o, o\nloss = move o2 \"bqe->\"\n"
    "gq = grad loss, wq : f32[8,8]\ngk = grad loss, wk : f32[8,8]\n"
    "gv = grad loss, wv : f32[8,8]\n"
    "return loss=loss gq=gq gk=gk gv=gv\n";

static Plan *plan_of(const char *mesh, const char *batch, const char *tokens)
{
    Plan *p = alloc(arena, sizeof *p);
    *p = (Plan){ .compute = F32 };
    p->mesh = graph_parse(arena, fmt(arena, "mesh %s\nentry train\n"
                                     "phase tensor\n", mesh), "plan")->mesh;
    p->leaf = alloc(arena, sizeof *p->leaf);
    p->nleaf = 1;
    *p->leaf = (LeafPlan){ .name = "x", .ndim = 3 };
    if (*batch)
        p->leaf->split[0] = split_push(0, mesh_find(&p->mesh, batch));
    p->leaf->split[1] = split_push(0, mesh_find(&p->mesh, tokens));
    return p;
}

static Graph *planned_of(const char *model, const Plan *p, const char *stop)
{
    Job j = { .keep = arena, .plan = p, .target = target_of_test(),
              .stop_after = stop };
    return run_passes(NULL, graph_parse(arena, model, "model"), &j);
}

static Graph *planned(const Plan *p, const char *stop)
{
    return planned_of(attention, p, stop);
}

static int count(const Graph *g, Op op)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].op == op;
    return n;
}

static void it_means_what_one_rank_means(void **state)
{
    static const char *const way[][3] = {
        { "s=2 s'=2:time", "", "s" }, { "s=4 s'=4:time", "", "s" },
        { "s=5 s'=5:time", "", "s" }, { "r=2 s=3 s'=3:time", "r", "s" },
        { "s=2 t=2:time s'=2:time", "t", "s" },
        { "s=2 s'=2:time t=4:time", "t", "s" },
    };
    (void)state;
    for (int i = 0; i < COUNT(way); i++) {
        Plan *p = plan_of(way[i][0], way[i][1], way[i][2]);
        const Graph *out = planned(p, NULL);
        same_meaning(way[i][0], planned(p, "tidy"), out);
        assert_int_equal(count(out, OP_ring), 7);
    }
}

/* Does that launch read, or make, node r? */
static bool touches(const Graph *g, const Launch *l, Ref r, bool reads)
{
    bool yes = false;
    for (int i = 0; i < l->n; i++) {
        const Node *n = &g->node[l->node[i]];
        yes |= !reads && l->node[i] == r;
        for (int k = 0; reads && k < n->nin; k++)
            yes |= view_root(g, n->in[k]) == r;
    }
    return yes;
}

/* Most blocks of r that wait for a reader, or are read, at one time. */
static int most_alive(const Graph *g, Ref r)
{
    enum { TURNS = 4 };
    const Sched *s = g->sched;
    int64_t born[TURNS] = { 0 }, dies[TURNS] = { 0 };
    int most = 0;
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Launch *l = &s->launch[s->step[k].launch];
        if (touches(g, l, r, false))
            born[s->step[k].turn] = k;
        if (touches(g, l, r, true))
            dies[s->step[k].turn] = k;
    }
    for (int64_t k = 0; k < s->nstep; k++) {
        int alive = 0;
        for (int t = 0; t < TURNS; t++)
            alive += born[t] <= k && k <= dies[t];
        most = alive > most ? alive : most;
    }
    return most;
}

/* Of the keys of 4 ranks a rank has the block that it reads and the next;
 * without a twin it has all. */
static void few_blocks_are_held(void **state)
{
    (void)state;
    int rings = 0;
    const Graph *g = planned(plan_of("s=4 s'=4:time", "", "s"), "memory");
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (n->op != OP_ring || n->type.partial)
            continue;
        rings++;
        assert_int_equal(most_alive(g, r), 2);
        assert_int_equal(type_bytes(&g->mesh, &n->type), 4 * 3 * 8 * 4);
    }
    assert_int_equal(rings, 5);
    g = planned(plan_of("s=4", "", "s"), "local");
    assert_true(count(g, OP_all_gather) >= 2);
    assert_int_equal(count(g, OP_ring), 0);
}

/* Of the products of queries and keys, tiles at most, in one kernel: of the
 * scores of one turn, let alone of all, nothing has bytes. */
static void no_scores_are_held(void **state)
{
    (void)state;
    Model m = { "long", "x = input : f32[4,96,8]\nm = const value=1 : f32[96,96]\n"
        "w = param : f32[8,8]\nq = dot x, w \"bqd,dh->bqh\"\n"
        "o = attn q, q, q, m \"bqd,bsd,bse,qs->bqe\"\n"
        "o2 = mul o, o\nloss = move o2 \"bqe->\"\n", "w 8 8\n" };
    Plan *p = plan_of("s=4 s'=4:time", "", "s");
    Job j = { .keep = arena, .plan = p, .target = target_of_test(),
              .stop_after = "memory" };
    const Graph *g = run_passes(NULL, model_graph(arena, &m), &j);
    assert_true(count(g, OP_attn_out) && count(g, OP_attn_dk));
    for (Ref r = 0; r < g->n; r++)
        if (g->sched->buf[r].used && g->sched->buf[r].space == ARENA)
            assert_true(g->sched->buf[r].size < 4 * 24 * 24 * 4);
}

/* Two products, the first weight by columns, the second by rows. */
static const char products[] =
    "entry train\nphase tensor\n"
    "x = input : f32[4,12,8]\n"
    "w = param : f32[8,20]\nu = param : f32[20,8]\n"
    "a = exp x\nb = dot a, w \"bsd,df->bsf\"\n"
    "c = exp b\ny = dot c, u \"bsf,fd->bsd\"\n"
    "y2 = mul y, y\nloss = move y2 \"bsd->\"\n"
    "gw = grad loss, w : f32[8,20]\ngu = grad loss, u : f32[20,8]\n"
    "return loss=loss gw=gw gu=gu\n";

static Lie tokens(const Plan *p, const char *axis)
{
    Lie l = { .ndim = 2, .free = { true, !*axis } };
    if (*axis)
        l.split[1] = split_push(0, mesh_find(&p->mesh, axis));
    return l;
}

/* What begins and ends the pair comes round, forward and backward. */
static Plan *plan_of_products(const char *mesh, const char *batch)
{
    static const char *const way[][3] = {
        { "a", "s'", "" }, { "b", "", "s'" }, { "c", "s'", "" },
        { "y", "s", "s'" },
    };
    Plan *p = plan_of(mesh, batch, "s");
    LeafPlan x = *p->leaf;
    p->leaf = alloc(arena, 3 * sizeof *p->leaf);
    p->leaf[0] = x;
    p->leaf[1] = (LeafPlan){ .name = "w", .ndim = 2 };
    p->leaf[2] = (LeafPlan){ .name = "u", .ndim = 2 };
    p->leaf[1].split[1] = p->leaf[2].split[0] = x.split[1];
    p->nleaf = 3;
    p->value = alloc(arena, sizeof *p->value * COUNT(way));
    p->nvalue = COUNT(way);
    for (int i = 0; i < COUNT(way); i++)
        p->value[i] = (ValuePlan){ way[i][0], "test", tokens(p, way[i][1]),
                                   tokens(p, way[i][2]) };
    return p;
}

static void products_mean_the_same(void **state)
{
    static const char *const way[][2] = {
        { "s=2 s'=2:time", "" }, { "s=4 s'=4:time", "" },
        { "s=5 s'=5:time", "" }, { "r=2 s=3 s'=3:time", "r" },
        { "s=2 t=2:time s'=2:time", "t" },
    };
    (void)state;
    for (int i = 0; i < COUNT(way); i++) {
        const Plan *p = plan_of_products(way[i][0], way[i][1]);
        same_meaning(way[i][0], planned_of(products, NULL, "tidy"),
                     planned_of(products, p, NULL));
    }
}

/* Only the two gradients that are returned are gathered: tokens come to the first product, and
 * for its weight's gradient again; results of the second go, gradients come to
 * both of what follows it, at once.  What stands between the two goes on in their
 * turns, and nothing is joined. */
static void products_gather_nothing(void **state)
{
    (void)state;
    const char *mesh = "s=4 s'=4:time";
    Graph *g = planned_of(products, plan_of_products(mesh, ""), "memory");
    int gathers = 0;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        gathers += n->op == OP_all_gather;
        if (n->op == OP_ring && !n->type.partial)
            assert_int_equal(most_alive(g, r), 2);
    }
    assert_int_equal(gathers, 2);
    assert_int_equal(count(g, OP_reduce_scatter), 0);
    assert_int_equal(count(g, OP_ring), 4);
}

/* Where no other letter lies over the ring, a product reads what it has. */
static void nothing_comes_for_nothing(void **state)
{
    (void)state;
    Plan *p = plan_of_products("s=4 s'=4:time", "");
    p->nleaf = 1;
    assert_int_equal(count(planned_of(products, p, "local"), OP_ring), 0);
}

static void it_is_exchanged_twice(void **state)
{
    (void)state;
    Graph *g = planned(plan_of("s=4 s'=4:time", "", "s"), "local");
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (n->op != OP_ring)
            continue;
        Attr a = n->attr;
        Ref back = emit_typed(g, OP_ring, &a, coll_type(g, OP_ring, &a, r, ""),
                              &r, 1, NULL, "");
        assert_true(type_equal(&g->node[back].type,
                               &g->node[n->in[0]].type));
        return;
    }
    fail_msg("no ring");
}

static void what_is_no_twin_is_refused(void **state)
{
    static ErrTrap t;
    (void)state;
    if (setjmp(t.jump)) {
        assert_non_null(strstr(t.text, "no axis of"));
        return;
    }
    err_push(&t);
    graph_parse(arena, "mesh s=2 u=2:time\nphase local\n"
                "x = input : f32[4/s]\ny = ring x axes=s,u : f32[4/u]\n", "g");
    err_pop();
    fail_msg("accepted");
}

static int make_arena(void **state)
{
    (void)state;
    op_init();
    arena = arena_new();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_means_what_one_rank_means),
        cmocka_unit_test(few_blocks_are_held),
        cmocka_unit_test(no_scores_are_held),
        cmocka_unit_test(products_mean_the_same),
        cmocka_unit_test(products_gather_nothing),
        cmocka_unit_test(nothing_comes_for_nothing),
        cmocka_unit_test(it_is_exchanged_twice),
        cmocka_unit_test(what_is_no_twin_is_refused),
    };
    return cmocka_run_group_tests(tests, make_arena, NULL);
}
