/* hunt.c -- which op made the first number that is none.
 *
 * When a step came out wrong it is run once more, one op after the other, and
 * every float result is looked at.  A fused kernel is watched before it runs:
 * dpc_blame follows what it would store back to the operation that made a NaN
 * or an infinity of finite operands, so an infinity that is a mask, or a NaN
 * that `where` leaves out, is nobody's fault.  All ranks walk to the end,
 * whatever they find, because collectives need them; then the earliest
 * finding wins. */
#include "runtime/box.h"
#include "runtime/rt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum Bad { GOOD, INFINITE, NAN_HERE };

typedef struct Found {
    int64_t step;                         /* -1: nothing */
    uint32_t node;
    bool infinity;                        /* it made one, not a NaN */
    bool outside;                         /* of an infinity from before */
} Found;

typedef struct Hunt {
    DpcRt *rt;
    const DpcProgram *p;
    uint32_t program;
    uint64_t number;
    Found nan, inf;
    bool heard;                           /* another role sent what is wrong */
} Hunt;

/* ---- blame ---- */

/* own * 2, and 1 for an infinity: what dpc_see keeps, with its sign. */
int32_t dpc_blame(int32_t own, float value, float a, int32_t blame_a, float b,
                  int32_t blame_b, float c, int32_t blame_c)
{
    const float x[] = {a, b, c};
    const int32_t blame[] = {blame_a, blame_b, blame_c};
    bool outside = false, nan = false, bad = false;
    for (int i = 0; i < 3; i++) {
        if (isfinite(x[i]))
            continue;
        if (blame[i] && blame[i] != DPC_OUTSIDE)
            return blame[i];
        bad = true;
        nan |= isnan(x[i]);
        outside |= blame[i] == DPC_OUTSIDE;
    }
    if (isnan(value) && !nan)
        return outside ? -2 * own : 2 * own;
    if (bad)
        return outside ? DPC_OUTSIDE : 0;
    return 2 * own + 1;
}

void dpc_trace(const DpcMade *made, int n, int32_t shift, const float *x,
               int32_t *w)
{
    for (int v = 0; v < n; v++) {
        const DpcMade *m = &made[v];
        float a[3] = {0};
        int32_t blame[3] = {0};
        for (int i = 0; i < 3; i++)
            if (m->arg[i])
                a[i] = x[m->arg[i] - 1], blame[i] = w[m->arg[i] - 1];
        if (m->kind == DPC_LOADED)
            w[v] = DPC_OUTSIDE;
        else if (m->kind == DPC_MADE)
            w[v] = isfinite(x[v]) ? 0 : dpc_blame(m->own + shift, x[v], a[0],
                       blame[0], a[1], blame[1], a[2], blame[2]);
    }
}

void dpc_see(DpcSeen *s, float value, int32_t blame)
{
    int32_t *first = isnan(value) ? &s->nan : &s->inf;
    int32_t was = *first < 0 ? -*first : *first;
    if (!blame || blame == DPC_OUTSIDE || (first == &s->inf && blame < 0))
        return;
    if (!was || (blame < 0 ? -blame : blame) < was)
        *first = blame;
}

/* ---- looking ---- */

/* Exponent all ones: an infinity, or, with a fraction, a NaN. */
static enum Bad scan(const void *p, int dtype, int64_t bytes)
{
    enum Bad worst = GOOD;
    const uint32_t *f = p;
    const uint16_t *h = p;
    int64_t n = bytes / (dtype == DPC_F32 ? 4 : 2);
    for (int64_t i = 0; i < n && worst != NAN_HERE; i++) {
        uint32_t u = dtype == DPC_F32 ? f[i] : (uint32_t)h[i] << 16;
        if ((u & 0x7f800000) == 0x7f800000)
            worst = u & 0x7fffff ? NAN_HERE : INFINITE;
    }
    return worst;
}

static bool is_float(int dtype)
{
    return dtype == DPC_F32 || dtype == DPC_BF16;
}

/* The operands that a step reads, or those that it writes. */
static enum Bad scan_step(const Hunt *h, uint32_t step, int how)
{
    const DpcStep *t = &h->p->step[step];
    const DpcWalk *w = &h->rt->walk[h->program];
    void **a = w->p + w->first[step];
    enum Bad worst = GOOD;
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcBuf *b = &h->p->buf[h->p->arg[t->arg + i]];
        int dtype = b->dtype ? b->dtype - 1 : DPC_NDTYPE;
        if (!is_float(dtype) || !(h->p->how[t->arg + i] & how))
            continue;
        enum Bad bad = scan(a[i], dtype, b->size);
        worst = bad > worst ? bad : worst;
    }
    return worst;
}

/* False: the kernel has no watch, or it is none. */
static bool watch(const Hunt *h, uint32_t step, DpcSeen *seen)
{
    const DpcUnit *u = h->rt->unit;
    const DpcStep *t = &h->p->step[step];
    const DpcWalk *w = &h->rt->walk[h->program];
    if (t->kind != DPC_STEP_KERNEL || !u->watch || !u->watch[t->call])
        return false;
    const DpcEnv env = dpc_walk_env(h->rt, h->program, step, h->number);
    u->watch[t->call](w->p + w->first[step], &env, seen);
    return true;
}

static void found(const Hunt *h, Found *f, uint32_t step, int32_t blame,
                  bool infinity, bool outside)
{
    uint32_t at = h->p->watch ? h->p->watch[step] : 0;
    *f = (Found){step, h->p->step[step].node, infinity, outside};
    if (!blame)
        return;
    int32_t own = blame < 0 ? -blame : blame;
    f->node = h->p->watched[at + (uint32_t)(own / 2) - 1];
    f->infinity = own % 2;
    f->outside = blame < 0;
}

/* Runs a step and notes what it did first. */
static DpcStatus step_look(Hunt *h, uint32_t s)
{
    DpcSeen seen = {0};
    bool open = h->nan.step < 0 && !h->heard;
    bool watched = open && watch(h, s, &seen);
    enum Bad before = open ? scan_step(h, s, DPC_READ) : GOOD;
    DpcStatus e = dpc_walk_alone(h->rt, h->program, s, h->number);
    enum Bad after = e || !open ? GOOD : scan_step(h, s, DPC_WRITE);
    if (h->p->step[s].kind == DPC_STEP_HOP) {
        h->heard |= after == NAN_HERE;    /* they tell who made it */
        return e;
    }
    if (after == NAN_HERE)
        found(h, &h->nan, s, seen.nan, false, before == INFINITE);
    bool made = watched ? seen.inf > 0 : before == GOOD;
    if (after == INFINITE && made && h->inf.step < 0)
        found(h, &h->inf, s, seen.inf, true, false);
    return e;
}

/* Numbers that are wrong before the step begins: who holds them. */
static bool wrong_before(const Hunt *h, char *text, size_t size)
{
    const DpcUnit *u = h->rt->unit;
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        if (l->kind > DPC_STATE || !is_float(l->dtype) ||
            !dpc_leaf_here(l, h->rt->role) ||
            scan(h->rt->space[l->space] + l->at, l->dtype, l->bytes) == GOOD)
            continue;
        snprintf(text, size, "%s: %s: not finite before the step, on rank %d",
                 l->loc, l->name, h->rt->comm->rank);
        return true;
    }
    for (uint32_t i = 0; i < h->p->nport; i++) {
        const DpcLeaf *l = &u->leaf[h->p->port[i].leaf];
        const DpcBuf *b = &h->p->buf[h->p->port[i].buf];
        if (l->kind == DPC_OUTPUT || !is_float(l->dtype))
            continue;
        for (int32_t k = 0; k < (b->slots ? b->slots : 1); k++)
            if (scan(dpc_rt_port_at(h->rt, h->program, i, k), l->dtype,
                     b->size) != GOOD) {
                snprintf(text, size, "%s: %s '%s' was given a number that is "
                         "not finite, on rank %d", l->loc,
                         l->kind == DPC_INPUT ? "input" : "scalar", l->name,
                         h->rt->comm->rank);
                return true;
            }
    }
    return false;
}

/* ---- telling ---- */

int32_t dpc_rt_spoilt(const DpcRt *rt, bool frozen)
{
    for (uint32_t i = 0; i < rt->unit->nleaf; i++) {
        const DpcLeaf *l = &rt->unit->leaf[i];
        if (l->kind == DPC_PARAM && is_float(l->dtype) &&
            dpc_leaf_here(l, rt->role) && !(frozen && l->trainable) &&
            scan(rt->space[l->space] + l->at, l->dtype, l->bytes) != GOOD)
            return (int32_t)i;
    }
    return -1;
}

static void tell(const Hunt *h, const Found *f, const Found *then, char *text,
                 size_t size)
{
    const DpcNode *n = &h->p->node[f->node];
    int len = snprintf(text, size, "%s: %s '%s': first %s, in turn %u, on "
                       "rank %d", n->loc, n->op, n->name,
                       f->infinity ? "infinity" : "NaN",
                       h->p->step[f->step].turn, h->rt->comm->rank);
    if (!then || len < 0 || (size_t)len >= size)
        return;
    n = &h->p->node[then->node];
    snprintf(text + len, size - (size_t)len, "; it made a NaN in %s: %s '%s'",
             n->loc, n->op, n->name);
}

/* The earliest finding of all ranks speaks; of equals the lowest rank. */
static DpcStatus earliest(DpcRt *rt, int64_t mine, bool *speak)
{
    int32_t v = mine < 0 ? INT32_MIN : (int32_t)-mine, best = v;
    DpcStatus s = dpc_rt_vote(rt, &best);
    bool equal = mine >= 0 && best == v;
    int32_t rank = equal ? -rt->comm->rank : INT32_MIN, low = rank;
    if (!s)
        s = dpc_rt_vote(rt, &low);
    *speak = equal && low == rank;
    return s;
}

DpcStatus dpc_rt_hunt(DpcRt *rt, uint32_t program, uint64_t number, char *text,
                      size_t size)
{
    Hunt h = {.rt = rt, .p = &rt->unit->program[program], .program = program,
              .number = number, .nan.step = -1, .inf.step = -1};
    DpcStatus e = DPC_OK;
    bool speak;
    text[0] = 0;
    bool before = wrong_before(&h, text, size);
    if (before)
        h.nan.step = 0;                   /* walk, but look no further */
    for (uint32_t s = 0; !e && s < h.p->nstep; s++)
        e = step_look(&h, s);
    bool of_inf = h.nan.step < 0 || (h.nan.outside && h.inf.step >= 0);
    const Found *first = !before && of_inf ? &h.inf : &h.nan;
    if (!e)
        e = earliest(rt, first->step, &speak);
    if (!e && !speak)
        text[0] = 0;
    else if (!e && !before)
        tell(&h, first, first == &h.inf && h.nan.step >= 0 ? &h.nan : NULL,
             text, size);
    return e;
}
