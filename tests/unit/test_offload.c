/* test_offload.c -- what lives in the host's memory. */
#define HOST_TARGET
#include "codegen/unit.h"
#include "tests/unit/passrun.h"

#define MOMENTS "m_*,v_*,ema_*,count"
static Arena *arena;

/* Copies take next to no time on it. */
static const Cluster quick = {
    .name = "quick", .rates = { .copy = 1e30, .launch = 1e-30 },
};

static Graph *scheduled_by(GatherWhen gather, const Cluster *c,
                           const Model *m, const Way *w, const char *offload,
                           Seen *seen)
{
    Graph *g = model_graph(arena, m);
    Plan *p = way_plan(arena, w, g);
    p->offload = offload, p->gather = gather;
    Job j = { .keep = arena, .plan = p, .target = target_of_test(),
              .cluster = c,
              .check = seen ? check_pass : NULL, .check_arg = seen,
              .look_back = seen };
    return run_passes(NULL, g, &j);
}

static Graph *scheduled_on(const Cluster *c, const Model *m, const Way *w,
                           const char *offload, Seen *seen)
{
    return scheduled_by(GATHER_STEP, c, m, w, offload, seen);
}

static Graph *scheduled(const Model *m, const Way *w, const char *offload,
                        Seen *seen)
{
    return scheduled_on(NULL, m, w, offload, seen);
}

static DpcUnit rows_of(Graph *g)
{
    return unit_rows(unit_new(&g, 1, false, arena), "test");
}

/* Every leaf there is, in each pass, under plans of each kind. */
static void moving_all_leaves_changes_no_value(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < 6; k++) {
            Seen seen = { 0 };
            Graph *g = scheduled(&models[i], &ways[k], "**", &seen);
            DpcUnit u = rows_of(g);
            assert_true(seen.compared > 0);
            if (dpc_check(&u))
                fail_msg("%s, %s: %s", models[i].name, ways[k].name,
                         dpc_last_error());
        }
}

/* A copy for a reader of shapes alone would be launched for nothing. */
static void copies_are_made_again_for_who_reads_them(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < 6; k++) {
            DpcUnit u = rows_of(scheduled_by(GATHER_USE, NULL, &models[i],
                                             &ways[k], "**", NULL));
            if (dpc_check(&u))
                fail_msg("%s, %s: %s", models[i].name, ways[k].name,
                         dpc_last_error());
        }
}

/* Each turn reads what was copied for it, so all in between is made in each:
 * once for both segments, or for either.  What is returned is made once more,
 * when the turns are over (V7). */
static void what_a_copy_is_trimmed_to_is_made_with_it(void **state)
{
    (void)state;
    const Graph *g = graph_parse(arena,
        "mesh c=3 t=2:time\nentry train\nphase local\n"
        "x = input : f32[4/t,8/c] seg=forward loop=t\n"
        "w = param : f32[8/c,5] seg=begin place=host\n"
        "in = copy w : f32[8/c,5] seg=begin\n"
        "v = neg in : f32[8/c,5] seg=begin\n"
        "z = trim v : f32[8/c,5] seg=forward\n"
        "y = dot x, z \"bk,kn->bn\" : f32[4/t,5]+c seg=forward loop=t\n"
        "s = all_reduce y axes=c : f32[4/t,5] seg=forward loop=t\n"
        "dx = dot s, z \"bn,kn->bk\" : f32[4/t,8/c] seg=backward loop=t\n"
        "return dx=dx v=v\n", "trim");
    for (GatherWhen when = GATHER_BATCH; when <= GATHER_USE; when++) {
        Plan p = { .gather = when };
        Job j = { .keep = arena, .plan = &p };
        const Graph *out = run_passes("regather", g, &j);
        int copies = 0, trims = 0;
        for (Ref r = 0; r < out->n; r++) {
            const Node *n = &out->node[r];
            copies += n->op == OP_copy, trims += n->op == OP_trim;
            for (int i = 0; i < n->nin; i++)
                assert_false(node_along(out, n->in[i]) & (Axes)~n->loop);
        }
        assert_int_equal(copies, when == GATHER_USE ? 3 : 2);
        assert_int_equal(trims, copies - 1);
        assert_int_equal(node_along(out, value_of(out, "v", NULL)), 0);
    }
}

static int64_t leaf_bytes_of(const Graph *g, Space space)
{
    int64_t sum = 0;
    for (Ref r = 0; r < g->n; r++)
        if ((g->node[r].op == OP_param || g->node[r].op == OP_state)
            && g->sched->buf[r].space == space)
            sum += g->sched->buf[r].size;
    return sum;
}

static int64_t state_bytes(const Graph *g)
{
    int64_t sum = 0;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_state)
            sum += type_bytes(&g->mesh, &g->node[r].type);
    return sum;
}

static void states_leave_the_device_to_the_byte(void **state)
{
    (void)state;
    Graph *here = scheduled(&models[0], &ways[0], NULL, NULL);
    Graph *away = scheduled(&models[0], &ways[0], MOMENTS, NULL);
    int64_t bytes = state_bytes(here);
    assert_true(bytes > 0);
    assert_int_equal(leaf_bytes_of(here, HOST_LEAVES), 0);
    assert_int_equal(leaf_bytes_of(away, HOST_LEAVES), bytes);
    assert_int_equal(leaf_bytes_of(away, LEAVES),
                     leaf_bytes_of(here, LEAVES) - bytes);
    DpcUnit u = rows_of(away);
    assert_true(u.host_leaves[0] >= bytes);
    assert_int_equal(here->sched->bytes[HOST_ARENA], 0);
}

/* A word for all leaves as it is leaves small ones: a copy has a latency. */
static void small_states_stay(void **state)
{
    (void)state;
    Graph *g = scheduled(&models[0], &ways[0], "states,params", NULL);
    assert_int_equal(leaf_bytes_of(g, HOST_LEAVES), 0);
}

static bool copies(const DpcStep *t)
{
    return t->stream == DPC_COPIES;
}

/* The checker sees a copy that begins before what it copies is made. */
static void a_copy_that_does_not_wait_is_refused(void **state)
{
    (void)state;
    DpcUnit u = rows_of(scheduled(&models[0], &ways[0], MOMENTS, NULL));
    DpcProgram p = u.program[0];
    const DpcStep *whole = p.step;
    DpcStep *step = alloc(arena, p.nstep * sizeof *step);
    int refused = 0, waits = 0;
    p.step = step, u.program = &p;
    for (uint32_t k = 0; k < p.nstep; k++) {
        memcpy(step, whole, p.nstep * sizeof *step);
        if (!copies(&step[k]) || !step[k].nwait)
            continue;
        waits++;
        step[k].nwait = 0;
        refused += dpc_check(&u) == DPC_BUG
            && strstr(dpc_last_error(), "no wait orders the two");
    }
    assert_true(waits > 0);
    assert_int_equal(refused, waits);
}

static void a_kernel_on_the_hosts_bytes_is_refused(void **state)
{
    (void)state;
    DpcUnit u = rows_of(scheduled(&models[0], &ways[0], MOMENTS, NULL));
    DpcProgram p = u.program[0];
    DpcStep *step = alloc(arena, p.nstep * sizeof *step);
    memcpy(step, p.step, p.nstep * sizeof *step);
    p.step = step, u.program = &p;
    for (uint32_t k = 0; k < p.nstep; k++)
        if (copies(&step[k])) {
            step[k].kind = DPC_STEP_PACK;
            step[k].call = 0, u.nconv = 1;
            break;
        }
    assert_int_equal(dpc_check(&u), DPC_BUG);
    assert_non_null(strstr(dpc_last_error(), "which only copies reach"));
}

/* ---- what waits for backward ---- */

static int copies_to(const Graph *g, MemoryClass place)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += node_moves(g, r) && g->node[r].place == place;
    return n;
}

static void waiting_in_the_hosts_memory_changes_no_value(void **state)
{
    (void)state;
    static const int some[] = { 0, 2, 13 };
    int moved = 0, turns = 0;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < COUNT(some); k++) {
            Seen seen = { 0 };
            Graph *g = scheduled_on(&quick, &models[i], &ways[some[k]],
                                    "activations", &seen);
            DpcUnit u = rows_of(g);
            if (dpc_check(&u))
                fail_msg("%s, %s: %s", models[i].name, ways[some[k]].name,
                         dpc_last_error());
            assert_int_equal(copies_to(g, HOST), copies_to(g, DEVICE));
            moved += copies_to(g, HOST);
            turns += mesh_axes(&g->mesh, TIME) ? copies_to(g, HOST) : 0;
        }
    assert_true(turns > 20 && moved > turns + 10);
}

/* The call that reads a pack looks for it; what came back is none. */
static void a_pack_stays(void **state)
{
    (void)state;
    Graph *g = graph_parse(arena,
        "entry train\nphase local\n"
        "x = input : f32[2,8,16,16] seg=forward\n"
        "w = param : f32[8,8,3,3]\n"
        "p = pack w for=0 : f32[8,8,3,3] seg=forward\n"
        "y = conv x, p pad=1 : f32[2,8,16,16] seg=forward layout=231\n"
        "h = conv y, p pad=1 : f32[2,8,16,16] seg=forward layout=231\n"
        "k = mul h, h : f32[2,8,16,16] seg=backward layout=231\n"
        "e = conv k, p pad=1 : f32[2,8,16,16] seg=backward layout=231\n"
        "z = mul e, y : f32[2,8,16,16] seg=backward layout=231\n"
        "return z=z\n", "pack");
    Plan p = { .offload = "activations" };
    Job j = { .keep = arena, .plan = &p, .target = target_of_test(),
              .cluster = &quick };
    const Graph *out = run_passes("fuse,spill", g, &j);
    assert_true(copies_to(out, HOST) > 0);
    for (Ref r = 0; r < out->n; r++)
        assert_false(node_moves(out, r)
                     && out->node[out->node[r].in[0]].op == OP_pack);
}

/* Forward's readers read the value, backward's the copy that came back. */
static void backward_reads_the_copy(void **state)
{
    (void)state;
    Graph *g = scheduled_on(&quick, &models[0], &ways[0], "activations", NULL);
    int back = 0;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        for (int i = 0; i < n->nin; i++) {
            Ref x = n->in[i], home;
            if (!node_moves(g, x) || g->node[x].place != DEVICE)
                continue;
            home = g->node[g->node[x].in[0]].in[0];
            assert_true(n->segment >= BACKWARD && n->segment < UPDATE);
            assert_true(g->sched->buf[home].dies < g->sched->buf[x].born);
            back++;
        }
    }
    assert_true(back > 0);
    int64_t most = 0;                     /* at the host's peak */
    for (Ref r = 0; r < g->n; r++) {
        const Buf *b = &g->sched->buf[r];
        bool there = b->born <= g->sched->host_peak
                  && g->sched->host_peak <= b->dies;
        most += b->space == HOST_ARENA && there ? b->stride : 0;
    }
    assert_true(most > 0);
    assert_int_equal(most, g->sched->host_lower);
}

/* Nothing goes that is wanted again before it could be back. */
static void copies_that_take_longer_than_the_rest_are_not_made(void **state)
{
    (void)state;
    Cluster slow = quick;
    slow.rates.copy = 1;
    Graph *g = scheduled_on(&slow, &models[0], &ways[0], "activations", NULL);
    assert_int_equal(copies_to(g, HOST), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moving_all_leaves_changes_no_value),
        cmocka_unit_test(copies_are_made_again_for_who_reads_them),
        cmocka_unit_test(what_a_copy_is_trimmed_to_is_made_with_it),
        cmocka_unit_test(states_leave_the_device_to_the_byte),
        cmocka_unit_test(small_states_stay),
        cmocka_unit_test(a_copy_that_does_not_wait_is_refused),
        cmocka_unit_test(a_kernel_on_the_hosts_bytes_is_refused),
        cmocka_unit_test(waiting_in_the_hosts_memory_changes_no_value),
        cmocka_unit_test(a_pack_stays),
        cmocka_unit_test(backward_reads_the_copy),
        cmocka_unit_test(copies_that_take_longer_than_the_rest_are_not_made),
    };
    fuse_chains = false;                  /* of the stand-in, not used here */
    arena = arena_new();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
