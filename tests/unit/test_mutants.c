/* test_mutants.c -- the checker of schedules, held against damaged ones.
 *
 * The schedules are those of drawn pairs of model and plan, as `dpc verify
 * --fuzz` draws them, pipelines with all their roles included.  Each is
 * damaged in every way below; the checker must refuse.  One that it lets pass
 * is run in random orders (mutants.h): when one of them ends otherwise than
 * the whole schedule, the checker was wrong (reliability.md 4.5, 4.10).
 *
 * DPC_MUTANTS: of each class, DPC_RUNS: random orders of one that passed. */
#include "tests/unit/mutants.h"

#include "codegen/unit.h"
#include "compiler/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static Arena *arena;

/* ---- parts of a schedule, by chance ---- */

enum { LOOKS = 200 };

static int any_program(const Damaged *d)
{
    return (int)draw(d->unit.nprogram);
}

static DpcStep *any_step(Damaged *d, int k)
{
    return &d->t[k].step[draw(d->p[k].nstep)];
}

/* A step with waits; NULL: none was found. */
static DpcStep *any_waiter(Damaged *d, int k)
{
    for (int i = 0; i < LOOKS; i++) {
        DpcStep *t = any_step(d, k);
        if (t->nwait)
            return t;
    }
    return NULL;
}

/* An operand in the arena. */
static DpcBuf *any_buf(Damaged *d, int k)
{
    for (int i = 0; i < LOOKS; i++) {
        DpcStep *t = any_step(d, k);
        DpcBuf *b = t->narg
            ? &d->t[k].buf[d->t[k].arg[t->arg + draw(t->narg)]] : NULL;
        if (b && b->space == DPC_ARENA && b->size)
            return b;
    }
    return NULL;
}

/* A hop of any role, and where; NULL: one role has none. */
typedef struct Hop { DpcStep *step; int program; uint32_t at, i; } Hop;

static bool any_hop(Damaged *d, Hop *h)
{
    for (int i = 0; i < LOOKS && d->unit.nprogram > 1; i++) {
        h->program = any_program(d);
        h->at = draw(d->p[h->program].nstep);
        h->step = &d->t[h->program].step[h->at];
        h->i = draw(h->step->narg);
        if (h->step->kind == DPC_STEP_HOP && h->step->narg)
            return true;
    }
    return false;
}

/* The hop's row, of this step alone. */
static DpcColl *hop_row(Damaged *d, const Hop *h)
{
    uint32_t to = d->unit.ncoll;
    memcpy(&d->coll[to], &d->coll[h->step->call],
           h->step->narg * sizeof *d->coll);
    d->unit.ncoll += h->step->narg;
    h->step->call = to;
    return &d->coll[to + h->i];
}

static DpcBuf *hop_buf(Damaged *d, const Hop *h)
{
    return &d->t[h->program].buf[d->t[h->program].arg[h->step->arg + h->i]];
}

static void step_remove(Damaged *d, int k, uint32_t at)
{
    DpcStep *s = d->t[k].step;
    uint32_t n = --d->p[k].nstep;
    memmove(&s[at], &s[at + 1], (n - at) * sizeof *s);
}

static DpcColl *any_coll(Damaged *d)
{
    for (int i = 0; i < LOOKS; i++) {
        int k = any_program(d);
        DpcStep *t = any_step(d, k);
        if (t->kind == DPC_STEP_COLL && t->narg)
            return &d->coll[t->call + draw(t->narg / 2)];
    }
    return NULL;
}

/* ---- damage to one role ---- */

static bool a_wait_is_dropped(Damaged *d)
{
    int k = any_program(d);
    DpcStep *t = any_waiter(d, k);
    if (!t)
        return false;
    uint32_t i = draw(t->nwait--);
    d->t[k].wait[t->wait + i] = d->t[k].wait[t->wait + t->nwait];
    return true;
}

static bool another_event_is_awaited(Damaged *d)
{
    int k = any_program(d);
    DpcStep *t = any_waiter(d, k);
    uint32_t n = d->p[k].nevent;
    if (!t || n < 2)
        return false;
    uint32_t *w = &d->t[k].wait[t->wait + draw(t->nwait)];
    *w = (*w + 1 + draw(n - 1)) % n;
    return true;
}

static bool an_event_is_set_elsewhere(Damaged *d)
{
    int k = any_program(d);
    DpcStep *from = any_step(d, k), *to = any_step(d, k);
    for (int i = 0; i < LOOKS && from->event < 0; i++)
        from = any_step(d, k);
    if (from->event < 0 || to->event >= 0)
        return false;
    to->event = from->event;
    from->event = -1;
    return true;
}

static bool two_steps_change_places(Damaged *d)
{
    int k = any_program(d);
    uint32_t i = draw(d->p[k].nstep), to = i + 1 + draw(4);
    DpcStep *s = d->t[k].step, t = s[i];
    if (to >= d->p[k].nstep)
        return false;
    s[i] = s[to];
    s[to] = t;
    return true;
}

static bool a_step_is_left_out(Damaged *d)
{
    int k = any_program(d);
    step_remove(d, k, draw(d->p[k].nstep));
    return true;
}

static bool a_step_runs_twice(Damaged *d)
{
    int k = any_program(d);
    DpcStep *a = any_step(d, k), *b = any_step(d, k);
    if (a == b)
        return false;
    *b = *a;
    return true;
}

static bool a_step_changes_its_stream(Damaged *d)
{
    DpcStep *t = any_step(d, any_program(d));
    t->stream = (uint8_t)((t->stream + 1 + draw(DPC_NSTREAM - 1))
                          % DPC_NSTREAM);
    return true;
}

static bool a_buffer_moves(Damaged *d)
{
    DpcBuf *b = any_buf(d, any_program(d));
    int64_t by = (1 + (int64_t)draw(4)) * 4;
    if (b)
        b->at += draw(2) ? by : -by;
    return b;
}

static bool a_buffer_takes_the_place_of_another(Damaged *d)
{
    int k = any_program(d);
    DpcBuf *a = any_buf(d, k), *b = any_buf(d, k);
    if (!a || a->at == b->at)
        return false;
    a->at = b->at;
    return true;
}

static bool a_result_lies_over_an_operand(Damaged *d)
{
    int k = any_program(d);
    for (int i = 0; i < LOOKS; i++) {
        const DpcStep *t = any_step(d, k);
        if (!t->narg)
            continue;
        uint32_t in = draw(t->narg), out = draw(t->narg);
        DpcBuf *a = &d->t[k].buf[d->t[k].arg[t->arg + in]];
        DpcBuf *b = &d->t[k].buf[d->t[k].arg[t->arg + out]];
        if (d->t[k].how[t->arg + in] != DPC_READ
            || d->t[k].how[t->arg + out] != DPC_WRITE
            || a->space != DPC_ARENA || b->space != DPC_ARENA
            || a->size != b->size || a->at == b->at)
            continue;
        b->at = a->at;
        return true;
    }
    return false;
}

static bool an_operand_is_too_large(Damaged *d)
{
    int k = any_program(d);
    DpcStep *t = any_step(d, k);
    if (!t->narg)
        return false;
    uint32_t *a = &d->t[k].arg[t->arg + draw(t->narg)];
    DpcBuf *b = d->t[k].buf;
    b[d->p[k].nbuf] = b[*a];
    *a = d->p[k].nbuf++;
    b[*a].size += 64 + (int64_t)draw(4) * 64;
    return true;
}

static bool an_operand_is_of_another_turn(Damaged *d)
{
    int k = any_program(d);
    const DpcBuf *b = d->t[k].buf;
    for (int i = 0; i < LOOKS; i++) {
        DpcStep *t = any_step(d, k);
        uint32_t *a = &d->t[k].arg[t->arg + draw(t->narg)];
        for (uint32_t x = 0; t->narg && b[*a].value && x < d->p[k].nbuf; x++)
            if (b[x].value == b[*a].value && b[x].instance != b[*a].instance) {
                *a = x;
                return true;
            }
    }
    return false;
}

static bool a_collective_has_other_ranks(Damaged *d)
{
    DpcColl *c = any_coll(d);
    if (c)
        c->axes ^= (DpcAxes)(1u << draw(d->unit.naxis));
    return c;
}

static bool a_collective_is_of_another_kind(Damaged *d)
{
    DpcColl *c = any_coll(d);
    if (c)
        c->kind = (uint8_t)((c->kind + 1 + draw(3)) % 4);
    return c;
}

/* ---- damage to what roles say to each other ---- */

static bool a_hop_is_dropped(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    step_remove(d, h.program, h.at);
    return true;
}

static bool two_hops_change_places(Damaged *d)
{
    Hop a, b;
    if (!any_hop(d, &a) || !any_hop(d, &b) || a.program != b.program
        || a.at == b.at)
        return false;
    DpcStep t = *a.step;
    *a.step = *b.step;
    *b.step = t;
    return true;
}

static bool a_hop_comes_sooner_or_later(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    DpcStep t = *h.step, *s = d->t[h.program].step;
    uint32_t n = d->p[h.program].nstep, to = draw(n);
    step_remove(d, h.program, h.at);
    memmove(&s[to + 1], &s[to], (n - 1 - to) * sizeof *s);
    s[to] = t;
    d->p[h.program].nstep = n;
    return to != h.at;
}

static bool a_hop_has_another_peer(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    DpcColl *c = hop_row(d, &h);
    int32_t was = c->peer;
    c->peer = (int32_t)draw((uint64_t)dpc_roles(&d->unit));
    return c->peer != was;
}

static bool a_hop_is_of_another_turn(Damaged *d)
{
    Hop h, other;
    if (!any_hop(d, &h) || !any_hop(d, &other))
        return false;
    uint16_t was = h.step->turn;
    h.step->turn = other.step->turn;
    return h.step->turn != was;
}

static bool a_hop_has_another_number(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    hop_row(d, &h)->hop += 1 + draw(3);
    return true;
}

static bool a_hop_goes_the_other_way(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    DpcColl *c = hop_row(d, &h);
    c->kind = c->kind == DPC_SEND ? DPC_RECV : DPC_SEND;
    d->t[h.program].how[h.step->arg + h.i] =
        c->kind == DPC_SEND ? DPC_READ : DPC_WRITE;
    return true;
}

static bool a_hop_has_another_size(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    hop_row(d, &h)->size /= 2;
    if (draw(2))
        hop_buf(d, &h)->size /= 2;        /* of all who name it */
    return true;
}

static bool an_end_has_another_layout(Damaged *d)
{
    Hop h;
    if (!any_hop(d, &h))
        return false;
    DpcAxes axis = (DpcAxes)(1u << draw(d->unit.naxis));
    DpcBuf *b = hop_buf(d, &h);
    if (draw(2))
        b->split ^= axis;
    else
        b->pending ^= axis;
    return true;
}

static bool two_roles_change_places(Damaged *d)
{
    int a = any_program(d), b = any_program(d);
    int32_t role = d->p[a].role;
    d->p[a].role = d->p[b].role;
    d->p[b].role = role;
    return a != b;
}

#define DAMAGE(name) { #name, name }
static const struct {
    const char *name;
    bool (*make)(Damaged *);
} damages[] = {
    DAMAGE(a_wait_is_dropped), DAMAGE(another_event_is_awaited),
    DAMAGE(an_event_is_set_elsewhere), DAMAGE(two_steps_change_places),
    DAMAGE(a_step_is_left_out), DAMAGE(a_step_runs_twice),
    DAMAGE(a_step_changes_its_stream), DAMAGE(a_buffer_moves),
    DAMAGE(a_buffer_takes_the_place_of_another),
    DAMAGE(a_result_lies_over_an_operand),
    DAMAGE(an_operand_is_too_large),
    DAMAGE(an_operand_is_of_another_turn),
    DAMAGE(a_collective_has_other_ranks),
    DAMAGE(a_collective_is_of_another_kind), DAMAGE(a_hop_is_dropped),
    DAMAGE(two_hops_change_places), DAMAGE(a_hop_comes_sooner_or_later),
    DAMAGE(a_hop_has_another_peer), DAMAGE(a_hop_is_of_another_turn),
    DAMAGE(a_hop_has_another_number), DAMAGE(a_hop_goes_the_other_way),
    DAMAGE(a_hop_has_another_size), DAMAGE(an_end_has_another_layout),
    DAMAGE(two_roles_change_places),
};
enum { NDAMAGE = sizeof damages / sizeof *damages };

/* ---- drawn schedules ---- */

static int asked(const char *name, int usual)
{
    const char *s = getenv(name);
    return s && *s ? atoi(s) : usual;
}

/* Small, for their runs take long: a few hundred steps.  Searches for what to
 * make again are left out. */
static bool unit_draw(int64_t seed, Arena *a, DpcUnit *u)
{
    enum { NODES = 700, STEPS = 900 };
    Options o = { .arena = a, .home = getenv("DPC_HOME"), .seed = seed };
    uint32_t steps = 0;
    int roles;
    o.home = o.home ? o.home : ".";
    Pair p = pair_draw(&o, 0, 0);
    if (p.g->n > NODES)
        return false;
    if (p.plan->recompute == RECOMPUTE_AUTO)
        p.plan->recompute = RECOMPUTE_SELECTIVE;
    Job job = job_open(&o, p.plan);
    Graph **g = run_roles(p.g, &job, &roles);
    *u = unit_rows(unit_new(g, roles, false, a), p.m->name);
    for (int k = 0; k < roles; k++)
        steps += g[k]->sched->nstep;
    return steps <= STEPS && roles <= NROLE;
}

/* False also where the compiler refuses the plan. */
static bool unit_try(int64_t seed, Arena *a, DpcUnit *u)
{
    ErrTrap t;
    if (setjmp(t.jump))
        return false;
    err_push(&t);
    bool small = unit_draw(seed, a, u);
    err_pop();
    return small;
}

typedef struct Kills { uint32_t made, killed, alike, missed; } Kills;

static void mutant_try(const DpcUnit *u, int class, int runs, int64_t seed,
                       Kills *k)
{
    Damaged *d = damaged_new(u, arena);
    if (!damages[class].make(d))
        return;
    k->made++;
    if (dpc_check(&d->unit)) {
        k->killed++;
    } else if (runs_alike(&d->unit, u, runs, arena)) {
        k->alike++;
    } else {
        k->missed++;
        print_message("missed: seed %lld, %s\n", (long long)seed,
                      damages[class].name);
    }
}

/* Of each class so many more, where the schedule has what it damages. */
static void unit_damage(const DpcUnit *u, uint32_t want, int runs,
                        int64_t seed, Kills *all)
{
    for (int c = 0; c < NDAMAGE; c++) {
        uint32_t end = all[c].made + want;
        for (uint32_t i = 0; all[c].made < end && i < 3 * want; i++) {
            ArenaMark mark = arena_mark(arena);
            mutant_try(u, c, runs, seed, &all[c]);
            arena_rewind(arena, mark);
        }
    }
}

static uint32_t fewest(const Kills *all)
{
    uint32_t n = UINT32_MAX;
    for (int c = 0; c < NDAMAGE; c++)
        n = all[c].made < n ? all[c].made : n;
    return n;
}

static double rate(const Kills *k)
{
    uint32_t count = k->killed + k->missed;
    return count ? (double)k->killed / count : 1;
}

static void table_print(const Kills *all)
{
    print_message("%-36s %7s %7s %10s %6s\n", "class", "mutants", "killed",
                  "equivalent", "rate");
    for (int c = 0; c < NDAMAGE; c++)
        print_message("%-36s %7u %7u %10u %5.1f%%\n", damages[c].name,
                      all[c].made, all[c].killed, all[c].alike,
                      100 * rate(&all[c]));
}

static void what_differs_in_some_run_is_refused(void **state)
{
    uint32_t want = (uint32_t)asked("DPC_MUTANTS", 12);
    int runs = asked("DPC_RUNS", 12), units = 0;
    uint32_t share = want / 20 + 3;
    Kills all[NDAMAGE] = { 0 };
    (void)state;
    for (int64_t seed = 1; fewest(all) < want && seed < 1000; seed++) {
        DpcUnit u;
        arena = arena_new();
        if (unit_try(seed, arena, &u)) {
            if (dpc_check(&u))
                fail_msg("seed %d: %s", (int)seed, dpc_last_error());
            if (!runs_alike(&u, &u, runs, arena))
                fail_msg("seed %d: runs differ", (int)seed);
            unit_damage(&u, share, runs, seed, all);
            units++;
        }
        arena_free(arena);
    }
    print_message("%d schedules\n", units);
    table_print(all);
    for (int c = 0; c < NDAMAGE; c++)
        assert_true(all[c].made >= want && all[c].killed
                    && rate(&all[c]) >= 0.99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs_in_some_run_is_refused),
    };
    op_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
