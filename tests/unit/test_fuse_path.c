/* test_fuse_path.c -- which groups may be one, against full reachability. */
#include "passes/fuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 512, SEEDS = 300 };

static Arena *arena;
static uint32_t state_of_random;

static uint32_t below(uint32_t n)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (state_of_random >> 8) % n;
}

/* ---- groups made by hand ---- */

static Fuse *groups(uint32_t n)
{
    Fuse *f = alloc(arena, sizeof *f);
    f->arena = arena;
    f->g = alloc(arena, sizeof *f->g);
    f->g->n = n;
    f->from = alloc(arena, n * sizeof *f->from);
    f->to = alloc(arena, n * sizeof *f->to);
    f->group = alloc(arena, n * sizeof *f->group);
    f->seen = alloc(arena, n * sizeof *f->seen);
    for (Ref r = 0; r < n; r++) {
        f->group[r].same = (int)r;
        list_add(arena, &f->group[r].node, r);
    }
    fuse_line_up(f);
    return f;
}

static void edge(Fuse *f, Ref from, Ref to)
{
    list_add(arena, &f->to[from], to);
    list_add(arena, &f->from[to], from);
}

static bool join(Fuse *f, int a, int b)
{
    if (!fuse_join(f, a, b))
        return false;
    for (uint32_t i = 0; i < f->group[b].node.n; i++)
        list_add(arena, &f->group[a].node, f->group[b].node.at[i]);
    return true;
}

/* Every group stands behind all that it reads. */
static void check_line(Fuse *f)
{
    for (Ref r = 0; r < f->g->n; r++)
        for (uint32_t i = 0; i < f->from[r].n; i++) {
            int at = fuse_group(f, r), x = fuse_group(f, f->from[r].at[i]);
            assert_true(at == x || f->place[x].at < f->place[at].at);
        }
}

/* ---- full reachability ---- */

/* The group of node r, were a and b one. */
static int leader(Fuse *f, Ref r, int a, int b)
{
    int i = fuse_group(f, r);
    return i == b ? a : i;
}

/* Can groups be launched one after the other, those of a and b as one? */
static bool launchable(Fuse *f, int a, int b)
{
    uint32_t n = f->g->n, left = 0, was = n + 1;
    bool done[MOST] = { false };
    for (Ref r = 0; r < n; r++)
        left += leader(f, r, a, b) == (int)r;
    while (left < was) {
        bool waits[MOST] = { false };
        was = left;
        for (Ref r = 0; r < n; r++)
            for (uint32_t i = 0; i < f->from[r].n; i++) {
                int at = leader(f, r, a, b);
                int x = leader(f, f->from[r].at[i], a, b);
                waits[at] |= at != x && !done[x];
            }
        for (Ref r = 0; r < n; r++)
            if (leader(f, r, a, b) == (int)r && !done[r] && !waits[r])
                done[r] = true, left--;
    }
    return !left;
}

static void joins_are_those_that_reachability_allows(void **state)
{
    (void)state;
    int yes = 0, no = 0;
    for (uint32_t seed = 1; seed <= 400; seed++) {
        state_of_random = seed;
        uint32_t n = 4 + below(14);
        Fuse *f = groups(n);
        for (uint32_t i = below(2 * n) + 1; i-- > 0;) {
            Ref to = 1 + below(n - 1);
            edge(f, below(to), to);
        }
        for (int i = 0; i < 24; i++) {
            int a = fuse_group(f, below(n)), b = fuse_group(f, below(n));
            if (a == b)
                continue;
            bool want = launchable(f, a, b);
            assert_int_equal(join(f, a, b), want);
            check_line(f);
            yes += want, no += !want;
        }
    }
    assert_true(yes > 1000 && no > 500);
}

/* a reads nothing that moves and leads on for three groups, so of each pair
 * p -> q it is p that steps over a: always into the same gap. */
static void a_full_place_is_made_wider(void **state)
{
    (void)state;
    enum { PAIRS = 200 };
    Fuse *f = groups(4 + 2 * PAIRS);
    for (Ref r = 0; r < 3; r++)
        edge(f, r, r + 1);
    for (Ref r = 4; r < f->g->n; r += 2)
        edge(f, r, r + 1);
    for (Ref r = 4; r < f->g->n; r += 2) {
        assert_true(join(f, 0, (int)r + 1));
        assert_true(f->place[r].at < f->place[0].at);
        check_line(f);
    }
}

/* ---- the pass ---- */

static Graph *random_graph(uint32_t seed)
{
    Str s = { .arena = arena };
    state_of_random = seed;
    int n = 8 + (int)below(30);
    str_add(&s, "v0 = input : f32[64,64]\nv1 = input : f32[64,64]\n");
    for (int i = 2; i < n; i++) {
        int last = (int)below((uint32_t)i), near = i - 1 - (int)below(2);
        switch (below(5)) {
        case 0:
            str_add(&s, "v%d = dot v%d, v1 \"nk,km->nm\"\n", i, near);
            break;
        case 1:
            str_add(&s, "s%d = move v%d \"nm->n\"\n", i, last);
            str_add(&s, "v%d = move s%d \"n->nm\" m=64\n", i, i);
            break;
        case 2:
            str_add(&s, "v%d = exp v%d\n", i, last);
            break;
        default:
            str_add(&s, "v%d = add v%d, v%d\n", i, last, near);
        }
    }
    str_add(&s, "return y=v%d\nreturn z=v%d\n", n - 1, n - 2);
    Graph *g = graph_parse(arena, s.p, "test");
    g->phase = PHASE_LOCAL;
    return g;
}

static void kernels_of_random_graphs_can_be_launched(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        Job j = { .keep = arena, .scratch = arena,
                  .target = target_find("host") };
        Fuse *f = fuse_run(random_graph(seed), &j);
        if (!launchable(f, 0, 0))
            fail_msg("seed %u: kernels wait for each other", seed);
    }
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_are_those_that_reachability_allows),
        cmocka_unit_test(a_full_place_is_made_wider),
        cmocka_unit_test(kernels_of_random_graphs_can_be_launched),
    };
    return cmocka_run_group_tests_name("fuse_path", tests, setup, teardown);
}
