/* test_check_roles.c -- the checker of all roles together, held against
 * damaged pipelines.
 *
 * As test_check.c does for one role: what the checker lets pass is run as
 * hashes of bytes, all roles side by side in random orders that streams,
 * events and hops allow.  Where one of them ends with other bytes than the
 * whole pipeline does, or does not end, the checker was wrong. */
#include "runtime/rt.h"
#include "tests/unit/pipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { ROLES = 4, MUTANTS = 1000 };

static uint64_t rng;

static uint32_t draw(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)((rng >> 33) % n) : 0;
}

/* ---- damage ---- */

/* A pipeline whose rows may be changed; it is made anew for each. */
typedef struct Damaged {
    Pipe p;
    DpcColl *coll;
    DpcProgram *program;
} Damaged;

static DpcColl *row_new(Damaged *d, DpcStep *t)
{
    DpcColl *c = &d->coll[d->p.unit.ncoll];
    *c = d->coll[t->call];
    t->call = d->p.unit.ncoll++;
    return c;
}

/* A hop of any role, and whose; there is one in all that are made here. */
static DpcStep *any_hop(Damaged *d, int *role, uint32_t *at)
{
    for (;;) {
        *role = (int)draw((uint32_t)d->p.roles);
        *at = draw(d->p.program[*role].nstep);
        DpcStep *t = &d->p.role[*role].step[*at];
        if (t->kind == DPC_STEP_HOP)
            return t;
    }
}

static void step_remove(Damaged *d, int role, uint32_t at)
{
    DpcStep *s = d->p.role[role].step;
    uint32_t n = --d->p.program[role].nstep;
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
    const DpcProgram *q = &d->program[c->peer];
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
    n = d->program[role].nstep;
    uint32_t to = draw(n);
    step_remove(d, role, at);
    DpcStep *s = d->p.role[role].step;
    memmove(&s[to + 1], &s[to], (n - 1 - to) * sizeof *s);
    s[to] = t;
    d->program[role].nstep = n;
    return to != at;
}

static bool a_hop_has_another_peer(Damaged *d)
{
    int role;
    uint32_t at;
    DpcColl *c = row_new(d, any_hop(d, &role, &at));
    int32_t was = c->peer;
    c->peer = (int32_t)draw((uint32_t)d->p.roles);
    return c->peer != was;
}

static bool a_hop_is_of_another_turn(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    uint16_t was = t->turn;
    t->turn = (uint16_t)draw((uint32_t)d->p.turns);
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
    d->p.role[role].arg[a->arg] = d->p.role[role].arg[b->arg];
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
    d->p.role[role].how[t->arg] = c->kind == DPC_SEND ? DPC_READ : DPC_WRITE;
    return true;
}

static bool a_hop_has_another_size(Damaged *d)
{
    int role;
    uint32_t at;
    DpcStep *t = any_hop(d, &role, &at);
    DpcBuf *b = &d->p.role[role].buf[d->p.role[role].arg[t->arg]];
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
    DpcBuf *b = &d->p.role[role].buf[d->p.role[role].arg[t->arg]];
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
    const PipeRole *r = &d->p.role[role];
    if (t->nwait) {
        t->nwait = 0;
        return true;
    }
    for (uint32_t i = 0; i < d->program[role].nstep; i++)
        if (r->step[i].nwait && t->event >= 0
            && r->wait[r->step[i].wait] == (uint32_t)t->event) {
            r->step[i].nwait = 0;
            return true;
        }
    return false;
}

static bool two_roles_change_places(Damaged *d)
{
    uint32_t a = draw((uint32_t)d->p.roles), b = draw((uint32_t)d->p.roles);
    int32_t role = d->program[a].role;
    d->program[a].role = d->program[b].role;
    d->program[b].role = role;
    return a != b;
}

static bool a_role_has_the_program_of_another(Damaged *d)
{
    uint32_t a = draw((uint32_t)d->p.roles), b = draw((uint32_t)d->p.roles);
    int32_t role = d->program[a].role;
    d->program[a] = d->program[b];
    d->program[a].role = draw(2) ? role : (int32_t)b;
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

/* ---- roles as hashes of bytes ---- */

typedef struct Run {
    const DpcUnit *u;
    int role;
    const DpcProgram *p;
    uint64_t *byte[DPC_NSPACE];
    bool *set;                            /* by event */
    uint32_t pc[DPC_NSTREAM];
    const DpcStep *hop;                   /* that waits for the other end */
} Run;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static int64_t space_bytes(const Run *r, int space)
{
    int64_t bytes[DPC_NSPACE];
    dpc_rt_planned(r->u, r->role, bytes);
    return bytes[space];
}

static void run_open(Run *r, const DpcUnit *u, int role)
{
    *r = (Run){.u = u, .role = role};
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (u->program[i].role == role)
            r->p = &u->program[i];
    for (int k = 0; k < DPC_NSPACE; k++) {
        int64_t n = space_bytes(r, k) + 1;
        r->byte[k] = calloc((size_t)n, sizeof *r->byte[k]);
        for (int64_t i = 0; i < n; i++)
            r->byte[k][i] = mix((uint64_t)(k + 3 * role + 1), (uint64_t)i);
    }
    r->set = calloc(r->p->nevent + 1, 1);
}

static void run_close(Run *r)
{
    for (int k = 0; k < DPC_NSPACE; k++)
        free(r->byte[k]);
    free(r->set);
}

static uint64_t *bytes_of(const Run *r, const DpcStep *t, uint32_t arg)
{
    const DpcBuf *b = &r->p->buf[r->p->arg[t->arg + arg]];
    uint32_t slot = t->turn % (b->slots ? b->slots : 1);
    return r->byte[b->space] + b->at + slot * b->stride;
}

static int64_t size_of(const Run *r, const DpcStep *t, uint32_t arg)
{
    return r->p->buf[r->p->arg[t->arg + arg]].size;
}

static void step_end(Run *r, const DpcStep *t)
{
    if (t->event >= 0)
        r->set[t->event] = true;
    r->pc[t->stream]++;
}

static void step_exec(Run *r, const DpcStep *t)
{
    uint64_t h = mix(mix(t->kind, t->node), t->turn);
    for (uint32_t i = 0; i < t->narg; i++) {
        const uint64_t *x = bytes_of(r, t, i);
        for (int64_t k = 0; r->p->how[t->arg + i] & DPC_READ
                            && k < size_of(r, t, i); k++)
            h = mix(h, x[k]);
    }
    for (uint32_t i = 0; i < t->narg; i++) {
        uint64_t *x = bytes_of(r, t, i);
        for (int64_t k = 0; r->p->how[t->arg + i] & DPC_WRITE
                            && k < size_of(r, t, i); k++)
            x[k] = mix(mix(h, i), (uint64_t)k);
    }
    step_end(r, t);
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

/* Both ends wait: the bytes move, as they are now. */
static bool meet(Run *a, Run *role, int n)
{
    const DpcColl *c = &a->u->coll[a->hop->call];
    if (c->peer < 0 || c->peer >= n || c->kind != DPC_SEND)
        return false;
    Run *b = &role[c->peer];
    const DpcColl *k = b->hop ? &b->u->coll[b->hop->call] : NULL;
    if (!k || k->kind != DPC_RECV || k->peer != a->role)
        return false;
    if (size_of(a, a->hop, 0) != size_of(b, b->hop, 0))
        return false;                     /* a transport refuses */
    memcpy(bytes_of(b, b->hop, 0), bytes_of(a, a->hop, 0),
           (size_t)size_of(a, a->hop, 0) * sizeof(uint64_t));
    step_end(a, a->hop);
    step_end(b, b->hop);
    a->hop = b->hop = NULL;
    return true;
}

static bool stream_go(Run *role, int n, int r, int stream)
{
    const DpcStep *t = next_of(&role[r], stream);
    if (!t)
        return false;
    if (t->kind != DPC_STEP_HOP) {
        step_exec(&role[r], t);
        return true;
    }
    bool new = !role[r].hop;
    role[r].hop = t;
    return meet(&role[r], role, n) || new;
}

/* 0: it does not end. */
static uint64_t run_random(const DpcUnit *u)
{
    Run role[ROLES];
    int n = dpc_roles(u);
    uint64_t h = 1;
    for (int r = 0; r < n; r++)
        run_open(&role[r], u, r);
    int all = DPC_NSTREAM * n;
    for (int idle = 0; idle < all;) {
        int first = (int)draw((uint32_t)all), moved = 0;
        for (idle = 0; idle < all && !moved; idle++) {
            int k = (first + idle) % all;
            moved = stream_go(role, n, k / DPC_NSTREAM, k % DPC_NSTREAM);
        }
        idle -= moved;
    }
    for (int r = 0; r < n; r++) {
        bool through = true;
        for (int k = 0; k < DPC_NSTREAM; k++)
            through &= role[r].pc[k] >= role[r].p->nstep;
        for (int64_t i = 0; i < u->leaves[r]; i++)
            h = mix(h, role[r].byte[DPC_LEAVES][i]);
        h = through ? h : 0;
        run_close(&role[r]);
        if (!through) {
            for (r++; r < n; r++)
                run_close(&role[r]);
            return 0;
        }
    }
    return h;
}

static bool runs_alike(const DpcUnit *u, uint64_t want)
{
    for (int k = 0; k < 30; k++)
        if (run_random(u) != want)
            return false;
    return true;
}

/* ---- tests ---- */

static const struct { int roles, data, turns, depth; } pipes[] = {
    {2, 1, 3, 1}, {3, 2, 4, 1}, {4, 1, 6, 2}, {2, 2, 2, 3}, {4, 1, 2, 1},
};

static void damaged_open(Damaged *d, int k)
{
    pipe_make(&d->p, pipes[k].roles, pipes[k].data, pipes[k].turns,
              pipes[k].depth);
    DpcColl *c = realloc(d->p.coll, (d->p.unit.ncoll + 8) * sizeof *c);
    assert_non_null(c);
    d->p.coll = d->coll = c;
    d->p.unit.coll = c;
    d->program = d->p.program;
}

static void every_pipeline_passes(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(pipes); k++) {
        Damaged d;
        damaged_open(&d, k);
        if (dpc_check(&d.p.unit))
            fail_msg("%s", dpc_last_error());
        uint64_t want = run_random(&d.p.unit);
        assert_true(want && runs_alike(&d.p.unit, want));
        pipe_free(&d.p);
    }
}

static void what_differs_in_some_run_is_refused(void **state)
{
    (void)state;
    uint32_t missed = 0;
    rng = 1;
    for (int c = 0; c < COUNT(damages); c++) {
        uint32_t killed = 0, alike = 0;
        for (uint32_t made = 0; made < MUTANTS;) {
            Damaged d;
            damaged_open(&d, (int)(made % (uint32_t)COUNT(pipes)));
            uint64_t want = 0;
            if (damages[c].make(&d)) {
                made++;
                if (dpc_check(&d.p.unit)) {
                    killed++;
                } else {
                    Damaged whole;
                    damaged_open(&whole, (int)((made - 1)
                                               % (uint32_t)COUNT(pipes)));
                    want = run_random(&whole.p.unit);
                    pipe_free(&whole.p);
                    if (runs_alike(&d.p.unit, want))
                        alike++;
                    else if (missed++ < 5)
                        print_message("missed %s\n", damages[c].name);
                }
            }
            pipe_free(&d.p);
        }
        print_message("%-40s %4u refused, %4u harmless\n", damages[c].name,
                      killed, alike);
        assert_true(killed > 0);
    }
    assert_int_equal(missed, 0);
}

static void refused(Damaged *d, const char *text)
{
    assert_int_equal(dpc_check(&d->p.unit), DPC_BUG);
    if (!strstr(dpc_last_error(), text))
        fail_msg("%s", dpc_last_error());
    pipe_free(&d->p);
}

static void a_refusal_names_both_ends(void **state)
{
    (void)state;
    Damaged d;
    damaged_open(&d, 0);
    d.coll[pipe_row(&d.p, 0, 0, true)].hop = 9;
    refused(&d, "send 'h' (pipe.lua:1), step 1 in turn 0 of role 0: meets "
            "recv 'a' (pipe.lua:1), step 0 in turn 0 of role 1, which is of "
            "another value");
    damaged_open(&d, 0);                  /* 0 sends h 0, h 1, gets g 0 */
    DpcStep *s = d.p.role[0].step, *hop[3] = {NULL};
    for (uint32_t i = 0, n = 0; n < 3; i++)
        if (s[i].kind == DPC_STEP_HOP)
            hop[n++] = &s[i];
    DpcStep t = *hop[1];
    *hop[1] = *hop[2];
    *hop[2] = t;
    refused(&d, "recv 'g' (pipe.lua:1), step 3 in turn 0 of role 0: waits for "
            "role 1 to send, which never gets beyond recv 'a' (pipe.lua:1), "
            "step 2 in turn 1 of role 1: deadlock");
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
        cmocka_unit_test(a_thousand_ranks_are_checked_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
