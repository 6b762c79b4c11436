/* test_check.c -- the checker of schedules, held against damaged ones.
 *
 * Every schedule that the planner makes passes.  Then each is damaged in one
 * of the ways below, some hundred times; the checker must refuse.  A damaged
 * schedule that it lets pass is run as hashes of bytes, in random orders that
 * streams and events allow: when one of them ends with other bytes than the
 * whole schedule does, the checker was wrong (reliability.md 4.5, 4.10). */
#define HOST_TARGET
#include "codegen/unit.h"
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

/* ---- damage ---- */

typedef struct Damaged {
    DpcUnit unit;
    DpcProgram p;
    DpcStep *step;
    DpcBuf *buf;
    uint32_t *arg, *wait;
    uint8_t *how;
    DpcColl *coll;
    uint32_t nwait;
} Damaged;

#define CLONE(from, n)                                                   \
    memcpy(alloc(arena, ((size_t)(n) + 1) * sizeof *(from)), from,       \
           (size_t)(n) * sizeof *(from))

static Damaged copy_of(const DpcUnit *u)
{
    Damaged d = { .unit = *u, .p = u->program[0] };
    uint32_t narg = 0;
    for (uint32_t s = 0; s < d.p.nstep; s++) {
        const DpcStep *t = &d.p.step[s];
        narg = t->arg + t->narg > narg ? t->arg + t->narg : narg;
        d.nwait = t->wait + t->nwait > d.nwait ? t->wait + t->nwait : d.nwait;
    }
    d.step = CLONE(d.p.step, d.p.nstep);
    d.buf = CLONE(d.p.buf, d.p.nbuf);
    d.arg = CLONE(d.p.arg, narg);
    d.how = CLONE(d.p.how, narg);
    d.wait = d.nwait ? CLONE(d.p.wait, d.nwait) : alloc(arena, 4);
    d.coll = u->ncoll ? CLONE(u->coll, u->ncoll) : NULL;
    d.p.step = d.step, d.p.buf = d.buf, d.p.arg = d.arg, d.p.how = d.how;
    d.p.wait = d.wait, d.unit.coll = d.coll;
    return d;
}

static uint64_t rng;

static uint64_t draw(uint64_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return n ? (rng >> 33) % n : 0;
}

static DpcStep *any_step(Damaged *d)
{
    return &d->step[draw(d->p.nstep)];
}

/* A step with waits; NULL: none was found. */
static DpcStep *any_waiter(Damaged *d)
{
    for (int k = 0; k < 200; k++) {
        DpcStep *t = any_step(d);
        if (t->nwait)
            return t;
    }
    return NULL;
}

/* An operand in the arena. */
static DpcBuf *any_buf(Damaged *d, DpcStep **step)
{
    for (int k = 0; k < 200; k++) {
        DpcStep *t = any_step(d);
        DpcBuf *b = t->narg ? &d->buf[d->arg[t->arg + draw(t->narg)]] : NULL;
        *step = t;
        if (b && b->space == DPC_ARENA && b->size)
            return b;
    }
    return NULL;
}

static bool a_wait_is_dropped(Damaged *d)
{
    DpcStep *t = any_waiter(d);
    if (!t)
        return false;
    uint32_t i = (uint32_t)draw(t->nwait--);
    d->wait[t->wait + i] = d->wait[t->wait + t->nwait];
    return true;
}

static bool another_event_is_awaited(Damaged *d)
{
    DpcStep *t = any_waiter(d);
    if (!t || d->p.nevent < 2)
        return false;
    uint32_t *w = &d->wait[t->wait + draw(t->nwait)];
    *w = (*w + 1 + (uint32_t)draw(d->p.nevent - 1)) % d->p.nevent;
    return true;
}

static bool an_event_is_set_elsewhere(Damaged *d)
{
    DpcStep *from = NULL, *to = any_step(d);
    for (int k = 0; k < 200 && (!from || from->event < 0); k++)
        from = any_step(d);
    if (from->event < 0 || to->event >= 0)
        return false;
    to->event = from->event;
    from->event = -1;
    return true;
}

static bool two_steps_change_places(Damaged *d)
{
    uint32_t i = (uint32_t)draw(d->p.nstep);
    uint32_t k = i + 1 + (uint32_t)draw(4);
    if (k >= d->p.nstep)
        return false;
    DpcStep t = d->step[i];
    d->step[i] = d->step[k];
    d->step[k] = t;
    return true;
}

static bool a_buffer_moves(Damaged *d)
{
    DpcStep *t;
    DpcBuf *b = any_buf(d, &t);
    if (!b)
        return false;
    int64_t by = (1 + (int64_t)draw(4)) * 4;
    b->at += draw(2) ? by : -by;
    return true;
}

static bool a_buffer_takes_the_place_of_another(Damaged *d)
{
    DpcStep *t;
    DpcBuf *a = any_buf(d, &t), *b = any_buf(d, &t);
    if (!a || a->at == b->at)
        return false;
    a->at = b->at;
    return true;
}

static bool an_operand_is_too_large(Damaged *d)
{
    DpcStep *t = any_step(d);
    if (!t->narg)
        return false;
    uint32_t *a = &d->arg[t->arg + draw(t->narg)];
    d->buf[d->p.nbuf] = d->buf[*a];
    *a = d->p.nbuf++;
    d->buf[*a].size += 64 + (int64_t)draw(4) * 64;
    return true;
}

static bool a_step_is_left_out(Damaged *d)
{
    uint32_t i = (uint32_t)draw(d->p.nstep--);
    memmove(&d->step[i], &d->step[i + 1], (d->p.nstep - i) * sizeof *d->step);
    return true;
}

static bool a_step_runs_twice(Damaged *d)
{
    uint32_t i = (uint32_t)draw(d->p.nstep), k = (uint32_t)draw(d->p.nstep);
    if (i == k)
        return false;
    d->step[k] = d->step[i];
    return true;
}

static bool a_step_changes_its_stream(Damaged *d)
{
    any_step(d)->stream ^= 1;
    return true;
}

static bool an_operand_is_of_another_turn(Damaged *d)
{
    for (int k = 0; k < 200; k++) {
        DpcStep *t = any_step(d);
        uint32_t *a = &d->arg[t->arg + draw(t->narg ? t->narg : 1)];
        for (uint32_t i = 0; t->narg && i < d->p.nbuf; i++)
            if (d->buf[i].value == d->buf[*a].value && d->buf[i].value
                && d->buf[i].instance != d->buf[*a].instance) {
                *a = i;
                return true;
            }
    }
    return false;
}

static bool a_collective_has_other_ranks(Damaged *d)
{
    if (!d->unit.ncoll)
        return false;
    DpcColl *c = &d->coll[draw(d->unit.ncoll)];
    DpcAxes was = c->axes;
    c->axes ^= (DpcAxes)(1u << draw(d->unit.naxis));
    return c->axes != was;
}

static bool a_collective_is_of_another_kind(Damaged *d)
{
    if (!d->unit.ncoll)
        return false;
    DpcColl *c = &d->coll[draw(d->unit.ncoll)];
    c->kind = (uint8_t)((c->kind + 1 + draw(3)) % 4);
    return true;
}

#define DAMAGE(name) { #name, name }
static const struct {
    const char *name;
    bool (*make)(Damaged *);
} damages[] = {
    DAMAGE(a_wait_is_dropped), DAMAGE(another_event_is_awaited),
    DAMAGE(an_event_is_set_elsewhere), DAMAGE(two_steps_change_places),
    DAMAGE(a_buffer_moves), DAMAGE(a_buffer_takes_the_place_of_another),
    DAMAGE(an_operand_is_too_large), DAMAGE(a_step_is_left_out),
    DAMAGE(a_step_runs_twice), DAMAGE(a_step_changes_its_stream),
    DAMAGE(an_operand_is_of_another_turn),
    DAMAGE(a_collective_has_other_ranks),
    DAMAGE(a_collective_is_of_another_kind),
};

/* ---- a schedule as hashes of bytes ---- */

typedef struct Run {
    const DpcUnit *u;
    const DpcProgram *p;
    uint64_t *byte[DPC_NSPACE];
    bool *set;                            /* by event */
    uint32_t pc[2];
} Run;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static int64_t space_bytes(const DpcUnit *u, int space)
{
    return space == DPC_LEAVES ? u->leaves[0] : space == DPC_ARENA
         ? u->program[0].arena : u->program[0].io;
}

static Run run_new(const DpcUnit *u)
{
    Run r = { .u = u, .p = &u->program[0] };
    for (int k = 0; k < DPC_NSPACE; k++) {
        int64_t n = space_bytes(u, k) + 1;
        r.byte[k] = alloc(arena, (size_t)n * sizeof *r.byte[k]);
        for (int64_t i = 0; i < n; i++)
            r.byte[k][i] = mix((uint64_t)k + 1, (uint64_t)i);
    }
    r.set = alloc(arena, r.p->nevent + 1);
    return r;
}

static uint64_t *bytes_of(const Run *r, const DpcStep *t, const DpcBuf *b)
{
    uint32_t slot = t->turn % (b->slots ? b->slots : 1);
    return r->byte[b->space] + b->at + slot * b->stride;
}

/* What a step is, whatever bytes it reads. */
static uint64_t step_hash(const Run *r, const DpcStep *t)
{
    uint64_t h = mix(mix(t->kind, t->node), t->turn);
    for (uint32_t i = 0; t->kind == DPC_STEP_COLL && i < t->narg / 2; i++) {
        const DpcColl *c = &r->u->coll[t->call + i];
        h = mix(mix(h, c->kind), c->axes);
    }
    return h;
}

static void step_exec(Run *r, const DpcStep *t)
{
    uint64_t h = step_hash(r, t);
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcBuf *b = &r->p->buf[r->p->arg[t->arg + i]];
        const uint64_t *x = bytes_of(r, t, b);
        for (int64_t k = 0; r->p->how[t->arg + i] & DPC_READ && k < b->size;
             k++)
            h = mix(h, x[k]);
    }
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcBuf *b = &r->p->buf[r->p->arg[t->arg + i]];
        uint64_t *x = bytes_of(r, t, b);
        for (int64_t k = 0; r->p->how[t->arg + i] & DPC_WRITE && k < b->size;
             k++)
            x[k] = mix(mix(h, i), (uint64_t)k);
    }
    if (t->event >= 0)
        r->set[t->event] = true;
}

/* The next step of a stream; NULL: it is through, or must wait. */
static const DpcStep *next_of(Run *r, int stream)
{
    uint32_t *pc = &r->pc[stream];
    while (*pc < r->p->nstep && r->p->step[*pc].stream != stream)
        ++*pc;
    if (*pc == r->p->nstep)
        return NULL;
    const DpcStep *t = &r->p->step[*pc];
    for (uint32_t i = 0; i < t->nwait; i++)
        if (!r->set[r->p->wait[t->wait + i]])
            return NULL;
    return t;
}

/* 0: it never ends. */
static uint64_t run_random(const DpcUnit *u)
{
    Run r = run_new(u);
    int likely = (int)draw(3);            /* fair, or one stream first */
    for (;;) {
        const DpcStep *t[2] = { next_of(&r, 0), next_of(&r, 1) };
        if (!t[0] && !t[1])
            break;
        int k = likely == 2 ? (int)draw(2) : likely;
        k = t[k] ? k : !k;
        step_exec(&r, t[k]);
        r.pc[k]++;
    }
    if (r.pc[0] < r.p->nstep || r.pc[1] < r.p->nstep)
        return 0;
    uint64_t h = 1;
    for (int64_t i = 0; i < u->leaves[0]; i++)
        h = mix(h, r.byte[DPC_LEAVES][i]);
    for (int64_t i = 0; i < u->program[0].io; i++)
        h = mix(h, r.byte[DPC_IO][i]);
    return h;
}

/* One stream leaves no choice. */
static bool one_stream(const DpcProgram *p)
{
    uint32_t k = 0;
    while (k < p->nstep && p->step[k].stream == p->step[0].stream)
        k++;
    return k == p->nstep;
}

/* So many mutants of each class, and random runs of one that is let pass;
 * DPC_MUTANTS=1000 DPC_RUNS=1000 is what `build.sh mutants` says. */
static int asked(const char *name, int usual)
{
    const char *s = getenv(name);
    return s && *s ? atoi(s) : usual;
}

static bool runs_alike(const DpcUnit *u, uint64_t want)
{
    int runs = one_stream(&u->program[0]) ? 1 : asked("DPC_RUNS", 30);
    bool alike = true;
    for (int k = 0; k < runs && alike; k++) {
        ArenaMark mark = arena_mark(arena);
        alike = run_random(u) == want;
        arena_rewind(arena, mark);
    }
    return alike;
}

typedef struct Kills { uint32_t made, killed, alike, missed; } Kills;

static void mutant_try(const DpcUnit *u, uint64_t want, int class, Kills *k)
{
    Damaged d = copy_of(u);
    if (!damages[class].make(&d))
        return;
    d.unit.program = &d.p;
    k->made++;
    if (dpc_check(&d.unit))
        k->killed++;
    else if (runs_alike(&d.unit, want))
        k->alike++;
    else
        k->missed++;
}

/* Mutants of one schedule, until each class has its share of them. */
static void schedule_damage(const Model *m, const Way *w, uint32_t share,
                            Kills *all)
{
    Arena *outer = arena;
    arena = arena_new();
    DpcUnit u = rows_of(m, w);
    uint64_t want = run_random(&u);
    assert_true(want && runs_alike(&u, want));
    for (int c = 0; c < COUNT(damages); c++) {
        uint32_t end = all[c].made + share;
        for (int tries = 0; all[c].made < end && tries < 20; tries++) {
            ArenaMark mark = arena_mark(arena);
            mutant_try(&u, want, c, &all[c]);
            arena_rewind(arena, mark);
        }
    }
    arena_free(arena);
    arena = outer;
}

static double rate(const Kills *k)
{
    uint32_t count = k->killed + k->missed;
    return count ? (double)k->killed / count : 1;
}

static void what_differs_in_some_run_is_refused(void **state)
{
    (void)state;
    static const int with[] = { 1, 2, 6, 7, 14 };
    uint32_t want = (uint32_t)asked("DPC_MUTANTS", 60), share = want / 25 + 1;
    Kills all[COUNT(damages)] = {0};
    rng = 1;
    for (int k = 0; k < 4 * 5 * COUNT(with); k++) {
        uint32_t least = UINT32_MAX;
        for (int c = 0; c < COUNT(damages); c++)
            least = all[c].made < least ? all[c].made : least;
        if (least < want)
            schedule_damage(&models[k % 5], &ways[with[k / 5 % COUNT(with)]],
                            share, all);
    }
    for (int c = 0; c < COUNT(damages); c++) {
        print_message("%-40s %4u made, %4u refused, %4u harmless, %u missed: "
                      "%.2f %%\n", damages[c].name, all[c].made,
                      all[c].killed, all[c].alike, all[c].missed,
                      100 * rate(&all[c]));
        assert_true(all[c].made >= want / 2 && all[c].killed > 0);
        assert_true(rate(&all[c]) >= 0.99);
    }
}

static void a_refusal_names_both_steps_and_their_lines(void **state)
{
    (void)state;
    DpcUnit u = rows_of(&models[0], &ways[1]);
    rng = 5;
    for (int k = 0; k < 100; k++) {
        Damaged d = copy_of(&u);
        d.unit.program = &d.p;
        if (!a_wait_is_dropped(&d) || !dpc_check(&d.unit))
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
        cmocka_unit_test(what_differs_in_some_run_is_refused),
        cmocka_unit_test(a_refusal_names_both_steps_and_their_lines),
    };
    fuse_chains = false;                  /* of the stand-in, not used here */
    arena = arena_new();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
