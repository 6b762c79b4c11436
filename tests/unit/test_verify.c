/* test_verify.c -- each invariant: a right graph passes, one with one thing
 * broken dies, naming the pass, the rule and the node. */
#include "ir/sched.h"

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

static const char *const text =
    "mesh x=2 y=3 s=2:stage t=4:time\n"
    "phase local\n"
    "a = input : f32[24/x/t,12] loop=t\n"
    "w = param : f32[12,30/y]\n"
    "m = state : f32[12,30/y]\n"
    "p = dot a, w \"bk,kn->bn\" : f32[24/x/t,30/y] loop=t\n"
    "q = exp p : f32[24/x/t,30/y] loop=t\n"
    "q1 = exp p : f32[24/x/t,30/y] loop=t again=q\n"
    "dw = dot a, q1 \"bk,bn->kn\" : f32[12,30/y]+x+t loop=t\n"
    "ds = all_reduce dw axes=t : f32[12,30/y]+x loop=t\n"
    "dr = all_reduce ds axes=x : f32[12,30/y]\n"
    "w1 = add w, dr : f32[12,30/y]\n"
    "b = const value=1 : f32[3] loop=t\n"
    "d = sin b : f32[3] loop=t\n"
    "c = const data=1,2,3 : f32[3]\n"
    "e = exp c : f32[3]\n"
    "set w = w1\n"
    "set m = dr\n"
    "return e=e\n";

static Node *named(Graph *g, const char *name)
{
    for (Ref r = 0; r < g->n; r++)
        if (strcmp(g->node[r].name, name) == 0)
            return &g->node[r];
    fail_msg("no node %s", name);
    return NULL;
}

/* Exit code of verify, and what it said. */
static int verdict(const Graph *g, char *out, size_t size)
{
    int to[2], status;
    fflush(NULL);
    assert_int_equal(pipe(to), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[1], 2);
        verify(g, "some");
        _exit(0);
    }
    close(to[1]);
    size_t n = 0;
    for (ssize_t k; (k = read(to[0], out + n, size - 1 - n)) > 0; )
        n += (size_t)k;
    out[n] = 0;
    close(to[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void breaks(void (*how)(Graph *), const char *rule, const char *node)
{
    char out[4096];
    Graph *g = graph_parse(arena, text, "v.ir");
    how(g);
    assert_int_equal(verdict(g, out, sizeof out), 70);
    if (!strstr(out, "after \"some\": ") || !strstr(out, rule)
        || !strstr(out, node))
        fail_msg("wanted \"%s\" and \"%s\" in: %s", rule, node, out);
}

static void a_right_graph_passes(void **state)
{
    (void)state;
    char out[4096];
    Graph *g = graph_parse(arena, text, "v.ir");
    assert_int_equal(verdict(g, out, sizeof out), 0);
    assert_string_equal(out, "");
}

static void v1_twice(Graph *g) { named(g, "a")->type.split[1] = 1; }
static void v1_pending(Graph *g) { named(g, "a")->type.partial = 1; }

static void v1_an_axis_stands_once(void **state)
{
    (void)state;
    breaks(v1_twice, "V1: a mesh axis stands twice", "a = input");
    breaks(v1_pending, "V1: a mesh axis stands twice", "a = input");
}

static void v2_forgotten(Graph *g) { named(g, "dw")->type.partial = 8; }
static void v2_clash(Graph *g) { named(g, "a")->type.split[1] = 2; }
static void v2_size(Graph *g) { named(g, "q")->type.dim[1] = 31; }
static void v2_dtype(Graph *g) { named(g, "w1")->type.dtype = BF16; }

static void v2_types_follow_from_rows(void **state)
{
    (void)state;
    breaks(v2_forgotten, "V2: its row gives f32[12,30/y]+x+t", "dw = dot");
    breaks(v2_clash, "V2", "p = dot");
    breaks(v2_size, "V2: its row gives f32[24/x/t,30/y]", "q = exp");
    breaks(v2_dtype, "V2: its row gives f32[12,30/y]", "w1 = add");
}

static void v3_early(Graph *g) { named(g, "w1")->in[1] = 7; }

static void v3_a_pending_sum_enters_only_linear_groups(void **state)
{
    (void)state;
    breaks(v3_early, "owe", "w1 = add w, ds");
}

static void v4_none(Graph *g) { named(g, "dr")->attr.axes = 2; }

static void v4_a_collective_does_what_its_axes_say(void **state)
{
    (void)state;
    breaks(v4_none, "V2-V4", "dr = all_reduce");
}

static void v5_type(Graph *g) { g->set[0].value = 7; }
static void v5_twice(Graph *g) { g->set[1].leaf = g->set[0].leaf; }
static void v5_input(Graph *g) { g->set[0] = (Set){ 0, 0 }; }

static void v5_a_leaf_is_set_once_to_its_type(void **state)
{
    (void)state;
    breaks(v5_type, "V5: is set to \"w\", which is f32[12,30/y]",
           "ds = all_reduce");
    breaks(v5_twice, "V5: the leaf is set twice", "w = param");
    breaks(v5_input, "V5: only a param or a state", "a = input");
}

static void v6_far(Graph *g) { named(g, "c")->stage = 1; }

static void v6_stages_meet_in_copies_only(void **state)
{
    (void)state;
    breaks(v6_far, "V6: reads \"c\" of stage 1", "e = exp c");
}

static void v7_lacks(Graph *g) { named(g, "ds")->loop = 0; }
static void v7_space(Graph *g) { named(g, "e")->loop = 1; }
static void v7_anew(Graph *g) { named(g, "d")->loop = 0; }
static void v7_kept(Graph *g) { named(g, "w1")->loop = 8; }
static void v7_sent(Graph *g) { named(g, "e")->loop = 8; }

static void v7_loop_holds_the_time_axes(void **state)
{
    (void)state;
    breaks(v7_lacks, "V7: loop lacks", "ds = all_reduce");
    breaks(v7_space, "V7: loop names", "e = exp");
    breaks(v7_anew, "V7: loop lacks a turn in which \"b\" is", "d = sin");
    breaks(v7_kept, "V7: is made anew in each turn", "w1 = add");
    breaks(v7_sent, "V7: is made anew in each turn", "e = exp");
}

static void v8_attr(Graph *g) { named(g, "q1")->attr.frozen = 1; }
static void v8_op(Graph *g) { named(g, "q1")->op = OP_sin; }

static void v8_a_clone_equals_its_original(void **state)
{
    (void)state;
    breaks(v8_attr, "V8: differs from what it clones, q = exp", "q1 = exp");
    breaks(v8_op, "V8: differs from what it clones, q = exp", "q1 = sin");
}

static void v9_halo(Graph *g) { named(g, "c")->type.lo[0] = 1; }

static void v9_leaves_hold_no_halos(void **state)
{
    (void)state;
    breaks(v9_halo, "V9: a leaf has no rows of neighbours", "c = const");
}

static void order(Graph *g) { named(g, "q")->in[0] = 9; }
static void self(Graph *g) { named(g, "q")->in[0] = 4; }
static void name(Graph *g) { named(g, "q1")->name = "q"; }
static void nameless(Graph *g) { named(g, "q1")->name = NULL; }
static void arity(Graph *g) { named(g, "q")->nin = 0; }
static void empty(Graph *g) { named(g, "c")->type.dim[0] = 0; }
static void data(Graph *g) { named(g, "c")->attr.ndata = 2; }
static void axis(Graph *g) { named(g, "c")->type.partial = 16; }
static void ndim(Graph *g) { named(g, "c")->type.ndim = NDIM + 1; }
static void again(Graph *g) { named(g, "q1")->again = 99; }
static void set(Graph *g) { g->set[0].value = 99; }
static void out(Graph *g) { g->out[0].ref = 99; }
static void no_sched(Graph *g) { g->phase = PHASE_SCHED; }

static void what_the_structs_promise_is_held(void **state)
{
    (void)state;
    breaks(order, "reads a node that comes later", "q");
    breaks(self, "reads a node that comes later", "q");
    breaks(name, "another node has this name", "q = exp p");
    breaks(nameless, "no name", "node 5");
    breaks(arity, "the number of operands is not the op's", "q = exp");
    breaks(empty, "a dimension is empty", "c = const");
    breaks(data, "another number of elements", "c = const");
    breaks(axis, "out of range", "c");
    breaks(ndim, "out of range", "c");
    breaks(again, "again is out of range", "q1");
    breaks(set, "set 0 is out of range", "");
    breaks(out, "result 0 is out of range", "");
    breaks(no_sched, "there is no schedule", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_graph_passes),
        cmocka_unit_test(v1_an_axis_stands_once),
        cmocka_unit_test(v2_types_follow_from_rows),
        cmocka_unit_test(v3_a_pending_sum_enters_only_linear_groups),
        cmocka_unit_test(v4_a_collective_does_what_its_axes_say),
        cmocka_unit_test(v5_a_leaf_is_set_once_to_its_type),
        cmocka_unit_test(v6_stages_meet_in_copies_only),
        cmocka_unit_test(v7_loop_holds_the_time_axes),
        cmocka_unit_test(v8_a_clone_equals_its_original),
        cmocka_unit_test(v9_leaves_hold_no_halos),
        cmocka_unit_test(what_the_structs_promise_is_held),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
