/* mutants.h -- schedules of all roles as hashes, and as copies to be damaged.
 *
 * Bytes that no buffer tells apart are one cell, which holds a hash of who
 * wrote it and from what, and where in that.  Streams of all roles run side by
 * side, any that may go next; what leaves and outputs hold at the end is one
 * number.  A result over an operand that the kernel reads elsewhere is a
 * number by chance.  Two schedules that give the same in every order compute the same. */
#ifndef DPC_TEST_MUTANTS_H
#define DPC_TEST_MUTANTS_H

#include "ir/base.h"
#include "runtime/dpc_rt.h"

#include <stdlib.h>
#include <string.h>

enum { NROLE = 8 };

static uint64_t rng = 1;

static inline uint32_t draw(uint64_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(n ? (rng >> 33) % n : 0);
}

/* ---- copies ---- */

typedef struct Tables {
    DpcStep *step;
    DpcBuf *buf;
    uint32_t *arg, *wait;
    uint8_t *how;
} Tables;

typedef struct Damaged {
    DpcUnit unit;
    DpcProgram p[NROLE];
    Tables t[NROLE];
    DpcColl *coll;
} Damaged;

static inline void *clone(Arena *a, const void *from, size_t n, size_t size,
                          size_t spare)
{
    char *to = alloc(a, (n + spare) * size + 1);
    if (n)
        memcpy(to, from, n * size);
    return to;
}

/* The programs of one entry, one a role, are all there are. */
static inline Damaged *damaged_new(const DpcUnit *u, Arena *a)
{
    enum { SPARE = 16 };
    Damaged *d = alloc(a, sizeof *d);
    d->unit = *u;
    for (uint32_t k = 0; k < u->nprogram; k++) {
        DpcProgram *p = &d->p[k];
        Tables *t = &d->t[k];
        *p = u->program[k];
        uint32_t narg = 0, nwait = 0;
        for (uint32_t s = 0; s < p->nstep; s++) {
            const DpcStep *x = &p->step[s];
            narg = x->arg + x->narg > narg ? x->arg + x->narg : narg;
            nwait = x->wait + x->nwait > nwait ? x->wait + x->nwait : nwait;
        }
        p->step = t->step = clone(a, p->step, p->nstep, sizeof *p->step, 1);
        p->buf = t->buf = clone(a, p->buf, p->nbuf, sizeof *p->buf, SPARE);
        p->arg = t->arg = clone(a, p->arg, narg, sizeof *p->arg, 1);
        p->how = t->how = clone(a, p->how, narg, 1, 1);
        p->wait = t->wait = clone(a, p->wait, nwait, sizeof *p->wait, 1);
    }
    d->unit.program = d->p;
    d->unit.coll = d->coll = clone(a, u->coll, u->ncoll, sizeof *u->coll,
                                   SPARE * 8);
    return d;
}

/* ---- cells ---- */

typedef struct Cells { int64_t *at; uint32_t n; } Cells;   /* their begins */

typedef struct Edges { int64_t *at; uint32_t n, cap; } Edges;

static inline void edge_add(Edges *e, int64_t at, Arena *a)
{
    GROW(a, e->at, e->n, e->cap);
    e->at[e->n++] = at;
}

static inline int by_place(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static inline int64_t slot_at(const DpcBuf *b, uint32_t turn)
{
    return b->at + (b->slots ? turn % b->slots : 0) * b->stride;
}

/* Of one space of a role, as two units cut it. */
static inline Cells cells_of(const DpcProgram *const p[2], int space, Arena *a)
{
    Edges e = { 0 };
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < p[k]->nbuf; i++) {
            const DpcBuf *b = &p[k]->buf[i];
            for (uint32_t s = 0; b->space == space
                                 && s < (b->slots ? b->slots : 1u); s++) {
                edge_add(&e, slot_at(b, s), a);
                edge_add(&e, slot_at(b, s) + b->size, a);
            }
        }
    if (e.n)
        qsort(e.at, e.n, sizeof *e.at, by_place);
    uint32_t n = 0;
    for (uint32_t i = 0; i < e.n; i++)
        if (!n || e.at[i] != e.at[n - 1])
            e.at[n++] = e.at[i];
    return (Cells){ e.at, n };
}

static inline uint32_t cell_find(const Cells *c, int64_t at)
{
    uint32_t lo = 0, hi = c->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (c->at[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- runs ---- */

static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* What a cell holds: bytes `from`, ... of what a step wrote. */
typedef struct Cell { uint64_t hash; int64_t from; } Cell;
typedef struct Span { Cell *at; uint32_t n; const int64_t *place; } Span;

typedef struct Run {
    const DpcUnit *u;
    int role;
    const DpcProgram *p;
    Cells cells[DPC_NSPACE];
    Cell *cell[DPC_NSPACE];
    bool *set;                            /* by event */
    uint32_t pc[DPC_NSTREAM];
    const DpcStep *hop;                   /* that waits for other ends, */
    uint64_t met;                         /* and which of them it has met */
} Run;

/* The bytes themselves, however they are cut into cells. */
static inline uint64_t span_hash(uint64_t h, const Span *x)
{
    for (uint32_t k = 0; k < x->n; k++) {
        int64_t at = x->place[k] - x->place[0];
        bool goes_on = k && x->at[k].hash == x->at[k - 1].hash
            && x->at[k].from - x->at[k - 1].from
               == x->place[k] - x->place[k - 1];
        if (!goes_on)
            h = mix(mix(mix(h, x->at[k].hash), (uint64_t)x->at[k].from),
                    (uint64_t)at);
    }
    return h;
}

static inline void span_write(const Span *x, uint64_t h)
{
    for (uint32_t k = 0; k < x->n; k++)
        x->at[k] = (Cell){ h, x->place[k] - x->place[0] };
}

static inline void run_begin(Run *r)
{
    for (int k = 0; k < DPC_NSPACE; k++)
        for (uint32_t i = 0; i < r->cells[k].n; i++)
            r->cell[k][i] = (Cell){ (uint64_t)(k + 3 * r->role + 1),
                                    r->cells[k].at[i] };
    memset(r->set, 0, r->p->nevent);
    memset(r->pc, 0, sizeof r->pc);
    r->hop = NULL, r->met = 0;
}

static inline const DpcProgram *program_of(const DpcUnit *u, int role)
{
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (u->program[i].role == role || u->nprogram == 1)
            return &u->program[i];
    return NULL;
}

/* Runs of `u`, its bytes cut as both cut them; false: a role has no program. */
static inline bool runs_open(Run *r, const DpcUnit *u, const DpcUnit *other,
                             Arena *a)
{
    for (int k = 0; k < dpc_roles(u); k++) {
        const DpcProgram *p[2] = { program_of(u, k), program_of(other, k) };
        if (!p[0] || !p[1])
            return false;
        r[k] = (Run){ .u = u, .role = k, .p = p[0] };
        for (int s = 0; s < DPC_NSPACE; s++) {
            r[k].cells[s] = cells_of(p, s, a);
            r[k].cell[s] = alloc(a, (r[k].cells[s].n + 1)
                                 * sizeof *r[k].cell[s]);
        }
        r[k].set = alloc(a, p[0]->nevent + 1);
    }
    return true;
}

static inline Span span_of(const Run *r, const DpcStep *t, uint32_t arg)
{
    const DpcBuf *b = &r->p->buf[r->p->arg[t->arg + arg]];
    int64_t at = slot_at(b, t->turn);
    const Cells *c = &r->cells[b->space];
    uint32_t lo = cell_find(c, at), hi = cell_find(c, at + b->size);
    return (Span){ r->cell[b->space] + lo, hi - lo, c->at + lo };
}

/* What a step is, whatever bytes it reads. */
static inline uint64_t step_hash(const Run *r, const DpcStep *t)
{
    uint64_t h = mix(mix(t->kind, t->node), t->turn);
    for (uint32_t i = 0; t->kind == DPC_STEP_COLL && i < t->narg / 2; i++) {
        const DpcColl *c = &r->u->coll[t->call + i];
        h = mix(mix(h, c->kind), c->axes);
    }
    return h;
}

static inline void step_end(Run *r, const DpcStep *t)
{
    if (t->event >= 0)
        r->set[t->event] = true;
    r->pc[t->stream]++;
}

/* Do two operands of a step share bytes, though its kernel does not say that
 * it goes through them point by point? */
static inline bool clashes(const Run *r, const DpcStep *t, uint32_t out,
                           uint32_t in)
{
    const DpcBuf *a = &r->p->buf[r->p->arg[t->arg + out]];
    const DpcBuf *b = &r->p->buf[r->p->arg[t->arg + in]];
    int64_t x = slot_at(a, t->turn), y = slot_at(b, t->turn);
    if (out == in || a->space != b->space || x >= y + b->size
        || y >= x + a->size)
        return false;
    if (t->kind != DPC_STEP_KERNEL || x != y || a->size != b->size)
        return t->kind != DPC_STEP_COLL && t->kind != DPC_STEP_COPY;
    const DpcKernel *k = &r->u->kernel[t->call];
    uint32_t n = (uint32_t)k->nin + k->nout, first = out - out % n;
    return !k->over || in < first || in >= first + k->nin
        || out % n < k->nin
        || !k->over[(out % n - k->nin) * k->nin + in % n];
}

/* What is written over bytes that are still read is anything. */
static inline uint64_t anything(const Run *r, const DpcStep *t, uint32_t out)
{
    for (uint32_t i = 0; i < t->narg; i++)
        if ((r->p->how[t->arg + i] & DPC_READ) && clashes(r, t, out, i))
            return draw((uint64_t)1 << 31);
    return 0;
}

static inline void step_exec(Run *r, const DpcStep *t)
{
    uint64_t h = step_hash(r, t);
    for (uint32_t i = 0; i < t->narg; i++) {
        Span x = span_of(r, t, i);
        if (r->p->how[t->arg + i] & DPC_READ)
            h = span_hash(h, &x);
    }
    for (uint32_t i = 0; i < t->narg; i++) {
        Span x = span_of(r, t, i);
        if (r->p->how[t->arg + i] & DPC_WRITE)
            span_write(&x, mix(h, i) + anything(r, t, i));
    }
    step_end(r, t);
}

/* The next step of a stream; NULL: it is through, or must wait. */
static inline const DpcStep *next_of(Run *r, int stream)
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

/* The first end, of those that a role waits with, that goes that way to that
 * peer; -1. */
static inline int end_of(const Run *r, int kind, int peer)
{
    for (uint32_t i = 0; r->hop && i < r->hop->narg; i++) {
        const DpcColl *c = &r->u->coll[r->hop->call + i];
        if (!(r->met >> i & 1) && c->kind == kind && c->peer == peer)
            return (int)i;
    }
    return -1;
}

static inline void end_meets(Run *r, int i)
{
    r->met |= (uint64_t)1 << i;
    if (r->met != ((uint64_t)2 << (r->hop->narg - 1)) - 1)
        return;
    step_end(r, r->hop);
    r->hop = NULL, r->met = 0;
}

/* Bytes move from a to b, as they are now. */
static inline bool meet(Run *a, Run *b)
{
    int i = end_of(a, DPC_SEND, b->role), k = end_of(b, DPC_RECV, a->role);
    if (i < 0 || k < 0)
        return false;
    const DpcBuf *x = &a->p->buf[a->p->arg[a->hop->arg + (uint32_t)i]];
    const DpcBuf *y = &b->p->buf[b->p->arg[b->hop->arg + (uint32_t)k]];
    if (x->size != y->size)
        return false;                     /* a transport refuses */
    uint64_t h = a->u->coll[a->hop->call + (uint32_t)i].axes;
    Span from = span_of(a, a->hop, (uint32_t)i);
    Span to = span_of(b, b->hop, (uint32_t)k);
    span_write(&to, span_hash(h, &from));
    end_meets(a, i);
    end_meets(b, k);
    return true;
}

static inline bool stream_go(Run *role, int n, int r, int stream)
{
    if (role[r].hop && stream == role[r].hop->stream) {
        bool moved = false;
        for (int k = 0; k < n && !moved; k++)
            moved = meet(&role[r], &role[k]) || meet(&role[k], &role[r]);
        return moved;
    }
    const DpcStep *t = next_of(&role[r], stream);
    if (!t)
        return false;
    if (t->kind != DPC_STEP_HOP || !t->narg)
        step_exec(&role[r], t);
    else if (role[r].hop)
        return false;
    else
        role[r].hop = t;
    return true;
}

static inline uint64_t space_hash(uint64_t h, const Run *r, int space)
{
    Span all = { r->cell[space], r->cells[space].n, r->cells[space].at };
    return span_hash(h, &all);
}

/* In an order by chance, or one stream first; 0: it does not end. */
static inline uint64_t run_random(Run *role, int n)
{
    int all = DPC_NSTREAM * n;
    uint64_t h = 1;
    int first = (int)draw((uint64_t)all), fair = (int)draw(2);
    for (int r = 0; r < n; r++)
        run_begin(&role[r]);
    for (int idle = 0; idle < all;) {
        bool moved = false;
        first = fair ? (int)draw((uint64_t)all) : first;
        for (idle = 0; idle < all && !moved; idle++) {
            int k = (first + idle) % all;
            moved = stream_go(role, n, k / DPC_NSTREAM, k % DPC_NSTREAM);
        }
        idle -= moved;
    }
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < DPC_NSTREAM; k++) {
            next_of(&role[r], k);
            if (role[r].pc[k] < role[r].p->nstep)
                return 0;
        }
        h = space_hash(h, &role[r], DPC_LEAVES);
        h = space_hash(h, &role[r], DPC_IO);
    }
    return h;
}

/* Does `u` end as `whole` does, in so many orders? */
static inline bool runs_alike(const DpcUnit *u, const DpcUnit *whole, int runs,
                              Arena *a)
{
    Run r[NROLE], w[NROLE];
    int n = dpc_roles(u);
    if (!runs_open(r, u, whole, a) || !runs_open(w, whole, u, a))
        return false;
    uint64_t want = run_random(w, n);
    bool alike = want != 0;
    for (int k = 0; k < runs && alike; k++)
        alike = run_random(r, n) == want;
    return alike;
}

#endif
