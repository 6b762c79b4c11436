/* test_check_roles.c -- the checker of all roles together, held against
 * damaged pipelines.
 *
 * These are made by hand, of one shape each, so that their hops can be damaged
 * at both ends and the checker's words be known; test_mutants.c has schedules
 * as they are compiled.  What the checker lets pass is run in random orders
 * (mutants.h). */
#include "runtime/rt.h"
#include "tests/unit/mutants.h"
#include "tests/unit/pipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

enum { MUTANTS = 1000, RUNS = 30 };

static Arena *arena;
static Pipe whole;                        /* as it was before the damage */

/* ---- damage ---- */

static DpcColl *row_new(Damaged *d, DpcStep *t)
{
    DpcColl *c = &d->coll[d->unit.ncoll];
    *c = d->coll[t->call];
    t->call = d->unit.ncoll++;
    return c;
}

/* A hop of any role, and whose; there is one in all that are made here. */
static DpcStep *any_hop(Damaged *d, int *role, uint32_t *at)
{
    for (;;) {
        *role = (int)draw(d->unit.nprogram);
        *at = draw(d->p[*role].nstep);
        DpcStep *t = &d->t[*role].step[*at];
        if (t->kind == DPC_STEP_HOP)
            return t;
    }
}

static void step_remove(Damaged *d, int role, uint32_t at)
{
    DpcStep *s = d->t[role].step;
    uint32_t n = --d->p[role].nstep;
    memmove(&s[at], &s[at + 1], (n - at) * sizeof *s);
}

static bool a_hop_is_dropped(Damaged *d)
{
    int role;
    uint32_t at;
    any_hop(d, &role, &at);
    step_remove(d, role, at);
    return true;
}

static bool a_hop_is_dropped_at_both_ends(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep t = *any_hop(d, &role, &at);
    const DpcColl *c = &d->coll[t.call];
    step_remove(d, role, at);
    const DpcProgram *q = &d->p[c->peer];
    for (uint32_t i = 0; i < q->nstep; i++)
        if (q->step[i].kind == DPC_STEP_HOP && q->step[i].turn == t.turn
            && d->coll[q->step[i].call].hop == c->hop) {
            step_remove(d, c->peer, i);
            return true;
        }
    return false;
}

static bool two_hops_change_places(Damaged *d)
{
    int role, other;
    uint32_t at, to;
    DpcStep *a = any_hop(d, &role, &at), *b = any_hop(d, &other, &to);
    if (role != other || at == to)
        return false;
    DpcStep t = *a;
    *a = *b;
    *b = t;
    return true;
}

static bool a_hop_comes_sooner_or_later(Damaged *d)
{
    int role;
    uint32_t at, n;
    DpcStep t = *any_hop(d, &role, &at);
    n = d->p[role].nstep;
    uint32_t to = draw(n);
    step_remove(d, role, at);
    DpcStep *s = d->t[role].step;
    memmove(&s[to + 1], &s[to], (n - 1 - to) * sizeof *s);
    s[to] = t;
    d->p[role].nstep = n;
    return to != at;
}

static bool a_hop_has_another_peer(Damaged *d)
{
    int role;
    uint32_t at;
    DpcColl *c = row_new(d, any_hop(d, &role, &at));
    int32_t was = c->peer;
    c->peer = (int32_t)draw(d->unit.nprogram);
    return c->peer != was;
}

static bool a_hop_is_of_another_turn(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    uint16_t was = t->turn;
    t->turn = (uint16_t)draw((uint32_t)whole.turns);
    return t->turn != was;
}

/* Its operand is that of the other turn, too. */
static bool a_hop_takes_the_place_of_another_turn(Damaged *d)
{
    int role, other;
    uint32_t at, to;
    DpcStep *a = any_hop(d, &role, &at), *b = any_hop(d, &other, &to);
    if (role != other || a->call != b->call || a == b)
        return false;
    a->turn = b->turn;
    d->t[role].arg[a->arg] = d->t[role].arg[b->arg];
    return true;
}

static bool a_hop_has_another_number(Damaged *d)
{
    int role;
    uint32_t at;
    DpcColl *c = row_new(d, any_hop(d, &role, &at));
    c->hop += 1 + draw(3);
    return true;
}

static bool a_hop_goes_the_other_way(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    DpcColl *c = row_new(d, t);
    c->kind = c->kind == DPC_SEND ? DPC_RECV : DPC_SEND;
    d->t[role].how[t->arg] = c->kind == DPC_SEND ? DPC_READ : DPC_WRITE;
    return true;
}

static bool a_hop_has_another_size(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    DpcBuf *b = &d->t[role].buf[d->t[role].arg[t->arg]];
    row_new(d, t)->size /= 2;
    if (draw(2))
        b->size /= 2;                     /* of all who name it */
    return true;
}

static bool an_end_has_another_layout(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    DpcBuf *b = &d->t[role].buf[d->t[role].arg[t->arg]];
    if (draw(2))
        b->split ^= 1u << PIPE_DATA;
    else
        b->pending ^= 1u << PIPE_DATA;
    return true;
}

static bool a_wait_around_a_hop_is_dropped(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    const Tables *r = &d->t[role];
    if (t->nwait) {
        t->nwait = 0;
        return true;
    }
    for (uint32_t i = 0; i < d->p[role].nstep; i++)
        if (r->step[i].nwait && t->event >= 0
            && r->wait[r->step[i].wait] == (uint32_t)t->event) {
            r->step[i].nwait = 0;
            return true;
        }
    return false;
}

static bool two_roles_change_places(Damaged *d)
{
    uint32_t a = draw(d->unit.nprogram), b = draw(d->unit.nprogram);
    int32_t role = d->p[a].role;
    d->p[a].role = d->p[b].role;
    d->p[b].role = role;
    return a != b;
}

static bool a_role_has_the_program_of_another(Damaged *d)
{
    uint32_t a = draw(d->unit.nprogram), b = draw(d->unit.nprogram);
    int32_t role = d->p[a].role;
    d->p[a] = d->p[b];
    d->p[a].role = draw(2) ? role : (int32_t)b;
    return a != b;
}

#define DAMAGE(name) { #name, name }
static const struct {
    const char *name;
    bool (*make)(Damaged *);
} damages[] = {
    DAMAGE(a_hop_is_dropped), DAMAGE(a_hop_is_dropped_at_both_ends),
    DAMAGE(two_hops_change_places), DAMAGE(a_hop_comes_sooner_or_later),
    DAMAGE(a_hop_has_another_peer), DAMAGE(a_hop_is_of_another_turn),
    DAMAGE(a_hop_takes_the_place_of_another_turn),
    DAMAGE(a_hop_has_another_number), DAMAGE(a_hop_goes_the_other_way),
    DAMAGE(a_hop_has_another_size), DAMAGE(an_end_has_another_layout),
    DAMAGE(a_wait_around_a_hop_is_dropped), DAMAGE(two_roles_change_places),
    DAMAGE(a_role_has_the_program_of_another),
};

/* ---- tests ---- */

static const struct { int roles, data, turns, depth; } pipes[] = {
    {2, 1, 3, 1}, {3, 2, 4, 1}, {4, 1, 6, 2}, {2, 2, 2, 3}, {4, 1, 2, 1},
};

static Damaged *damaged_open(int k)
{
    pipe_make(&whole, pipes[k].roles, pipes[k].data, pipes[k].turns,
              pipes[k].depth);
    return damaged_new(&whole.unit, arena);
}

static void every_pipeline_passes(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(pipes); k++) {
        Damaged *d = damaged_open(k);
        if (dpc_check(&d->unit))
            fail_msg("%s", dpc_last_error());
        assert_true(runs_alike(&d->unit, &whole.unit, RUNS, arena));
        pipe_free(&whole);
    }
}

typedef struct Kills { uint32_t made, killed, alike, missed; } Kills;

static void mutant_try(int class, Kills *k)
{
    ArenaMark mark = arena_mark(arena);
    Damaged *d = damaged_open((int)(k->made % (uint32_t)COUNT(pipes)));
    if (damages[class].make(d)) {
        k->made++;
        if (dpc_check(&d->unit))
            k->killed++;
        else if (runs_alike(&d->unit, &whole.unit, RUNS, arena))
            k->alike++;
        else
            k->missed++;
    }
    pipe_free(&whole);
    arena_rewind(arena, mark);
}

static void what_differs_in_some_run_is_refused(void **state)
{
    (void)state;
    rng = 1;
    for (int c = 0; c < COUNT(damages); c++) {
        Kills k = { 0 };
        while (k.made < MUTANTS)
            mutant_try(c, &k);
        print_message("%-40s %4u refused, %4u harmless, %u missed\n",
                      damages[c].name, k.killed, k.alike, k.missed);
        assert_true(k.killed > 0);
        assert_int_equal(k.missed, 0);
    }
}

static void refused(const Damaged *d, const char *text)
{
    assert_int_equal(dpc_check(&d->unit), DPC_BUG);
    if (!strstr(dpc_last_error(), text))
        fail_msg("%s", dpc_last_error());
    pipe_free(&whole);
}

static void a_refusal_names_both_ends(void **state)
{
    (void)state;
    Damaged *d = damaged_open(0);
    d->coll[pipe_row(&whole, 0, 0, true)].hop = 9;
    refused(d, "send 'h' (pipe.lua:1), step 1 in turn 0 of role 0: meets "
            "recv 'a' (pipe.lua:1), step 0 in turn 0 of role 1, which is of "
            "another value");
    d = damaged_open(0);                  /* 0 sends h 0, h 1, gets g 0 */
    DpcStep *s = d->t[0].step, *hop[3] = {NULL};
    for (uint32_t i = 0, n = 0; n < 3; i++)
        if (s[i].kind == DPC_STEP_HOP)
            hop[n++] = &s[i];
    DpcStep t = *hop[1];
    *hop[1] = *hop[2];
    *hop[2] = t;
    refused(d, "recv 'g' (pipe.lua:1), step 3 in turn 0 of role 0: waits for "
            "role 1 to send, which never gets beyond recv 'a' (pipe.lua:1), "
            "step 2 in turn 1 of role 1: deadlock");
}

/* Two roles send each other a weight: by themselves each first sends, and
 * neither comes to receive; at once, in whatever order, both have it. */
static DpcStatus exchange_check(bool at_once, bool receive_first)
{
    static const DpcAxis axis[] = {{"pp", 2, DPC_STAGE, 0}};
    static const DpcNode node[] = {{"h", "send", "x.lua:1"},
                                   {"a", "recv", "x.lua:1"}};
    static const DpcLeaf leaf = {.name = "w", .loc = "x.lua:2",
        .kind = DPC_PARAM, .ndim = 1, .dim = {4}, .role = -1, .bytes = 16};
    static const DpcHeld held = {0, 1, 1};
    static const DpcBuf buf[] = {
        {.size = 16, .slots = 1, .dtype = DPC_F32 + 1, .value = 1},
        {.size = 16, .slots = 1, .dtype = DPC_F32 + 1, .value = 2,
         .space = DPC_ARENA}};
    int64_t leaves[2] = {16, 16};
    uint32_t recv = receive_first ? 0 : 1;
    uint32_t arg[2] = {0, 0};
    uint8_t how[2] = {DPC_READ, DPC_READ};
    DpcColl coll[4];
    DpcStep step[4];
    DpcProgram p[2];
    arg[recv] = 1, how[recv] = DPC_WRITE;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t role = i / 2;
        bool is_recv = i % 2 == recv;
        coll[i] = (DpcColl){.kind = is_recv ? DPC_RECV : DPC_SEND, .axes = 1,
            .outer = 1, .size = 4, .inner = 1, .peer = (int32_t)(1 - role),
            .hop = 1 + (is_recv ? 1 - role : role)};
        step[i] = (DpcStep){.kind = DPC_STEP_HOP, .stream = DPC_HOPS,
            .node = is_recv, .call = i, .arg = i % 2,
            .narg = at_once ? 2 : 1, .event = -1};
    }
    for (int r = 0; r < 2; r++)
        p[r] = (DpcProgram){.entry = "train", .role = r,
            .nstep = at_once ? 1 : 2, .nbuf = 2, .nnode = 2, .nheld = 1,
            .step = &step[2 * r], .buf = buf, .node = node, .held = &held,
            .arg = arg, .how = how, .arena = 16};
    return dpc_check(&(DpcUnit){.abi = DPC_ABI, .model = "x", .version = "0",
        .hash = "00", .naxis = 1, .nleaf = 1, .nprogram = 2, .ncoll = 4,
        .axis = axis, .leaf = &leaf, .program = p, .coll = coll,
        .leaves = leaves});
}

static void what_goes_at_once_waits_for_no_other(void **state)
{
    (void)state;
    assert_int_equal(exchange_check(false, false), DPC_BUG);
    assert_non_null(strstr(dpc_last_error(), "deadlock"));
    for (int first = 0; first < 2; first++)
        if (exchange_check(true, first))
            fail_msg("%s", dpc_last_error());
}

/* TP 8 x PP 16 x DP 8 with 32 micro-batches, and as many steps a role as four
 * of sixty blocks have: a role is checked once, whatever ranks it has. */
static void a_thousand_ranks_are_checked_soon(void **state)
{
    (void)state;
    Pipe p;
    struct timespec a, b;
    struct rusage use;
    pipe_make(&p, 16, 64, 32, 4 * 100);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    if (dpc_check(&p.unit))
        fail_msg("%s", dpc_last_error());
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    getrusage(RUSAGE_SELF, &use);
    double took = (double)(b.tv_sec - a.tv_sec)
                + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    uint32_t steps = 0;
    for (int r = 0; r < 16; r++)
        steps += p.program[r].nstep;
    print_message("%u steps, %.2f s of a core, %ld MB\n", steps, took,
                  use.ru_maxrss / 1024);
    assert_true(use.ru_maxrss < 1024 * 1024);
    pipe_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pipeline_passes),
        cmocka_unit_test(what_differs_in_some_run_is_refused),
        cmocka_unit_test(a_refusal_names_both_ends),
        cmocka_unit_test(what_goes_at_once_waits_for_no_other),
        cmocka_unit_test(a_thousand_ranks_are_checked_soon),
    };
    arena = arena_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}
