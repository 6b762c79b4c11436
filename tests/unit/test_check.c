/* test_check.c -- the checker of schedules lets pass every one that the planner
 * makes, and says what is wrong with others.  Damaged ones by the thousand:
 * test_mutants.c. */
#define HOST_TARGET
#include "codegen/unit.h"
#include "tests/unit/mutants.h"
#include "tests/unit/passrun.h"

static Arena *arena;

/* ---- schedules ---- */

static DpcUnit rows_of(const Model *m, const Way *w)
{
    Graph *g = model_graph(arena, m);
    Job j = { .keep = arena, .plan = way_plan(arena, w, g),
              .target = target_of_test() };
    Graph *s = run_passes(NULL, g, &j);
    Unit *u = unit_new(&s, 1, false, arena);
    DpcUnit rows = unit_rows(u, m->name);
    return rows;
}

static void every_schedule_of_the_planner_passes(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 0; k < COUNT(ways); k++) {
            DpcUnit u = rows_of(&models[i], &ways[k]);
            if (dpc_check(&u))
                fail_msg("%s: %s", ways[k].name, dpc_last_error());
        }
}

static void a_refusal_names_both_steps_and_their_lines(void **state)
{
    (void)state;
    DpcUnit u = rows_of(&models[0], &ways[1]);
    for (uint32_t i = 0; i < u.program[0].nstep; i++) {
        Damaged *d = damaged_new(&u, arena);
        DpcStep *t = &d->t[0].step[i];
        t->nwait = 0;
        if (!dpc_check(&d->unit))
            continue;
        const char *first = strstr(dpc_last_error(), "step ");
        assert_non_null(first);
        assert_non_null(strstr(first + 1, "step "));
        assert_non_null(strstr(first, "no wait orders the two"));
        return;
    }
    fail();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_of_the_planner_passes),
        cmocka_unit_test(a_refusal_names_both_steps_and_their_lines),
    };
    fuse_chains = false;                  /* of the stand-in, not used here */
    arena = arena_new();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
