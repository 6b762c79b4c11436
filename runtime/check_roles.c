/* check_roles.c -- what roles send each other fits, and all of them end.
 *
 * Ranks that differ in the stage axes only talk by hops, and the ranks of one
 * role do the same at the same time, so a role stands for all of its ranks.
 * Its list is an order in which its own steps can run, and its hops are in
 * that order on every rank (check_bytes.c holds that).  So the roles are
 * walked side by side, each through its list up to its next hop.  A hop is
 * over when each of its members has met the other end: of what one role sends
 * another, the k-th is the k-th that is received.  Walked to
 * their ends, the lists are one order of all steps of all roles in which each
 * comes after what it waits for, so no run of the streams can stop; and where
 * they cannot be walked, one step after the other (hunt.c) would not end.
 *
 * Both ends of a hop must be the same hop of the whole graph in the same
 * turn, of the same bytes, parts and folds owed. */
#include "runtime/check_own.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Actor {
    const DpcCheck *c;
    uint32_t at;                          /* step: a hop, or the end */
    uint64_t met;                         /* its members that have, as bits */
} Actor;

static bool at_hop(const Actor *a)
{
    return a->at < a->c->p->nstep
        && a->c->p->step[a->at].kind == DPC_STEP_HOP;
}

/* True: it moved. */
static bool go_on(Actor *a)
{
    uint32_t was = a->at;
    if (at_hop(a)) {
        uint32_t n = a->c->p->step[a->at].narg;
        uint64_t all = n < 64 ? (1ull << n) - 1 : UINT64_MAX;
        if (a->met != all)
            return false;
        a->met = 0, a->at++;
    }
    while (a->at < a->c->p->nstep && !at_hop(a))
        a->at++;
    return a->at != was;
}

static const DpcColl *member(const Actor *a, uint32_t i)
{
    return &a->c->u->coll[a->c->p->step[a->at].call + i];
}

/* The first member that waits for that role to send, or to receive; -1. */
static int32_t waiting(const Actor *a, int32_t peer, uint8_t kind)
{
    if (!at_hop(a))
        return -1;
    for (uint32_t i = 0; i < a->c->p->step[a->at].narg; i++)
        if (!(a->met >> i & 1) && member(a, i)->peer == peer
            && member(a, i)->kind == kind)
            return (int32_t)i;
    return -1;
}

static const DpcBuf *buf_of(const Actor *a, int32_t i)
{
    const DpcProgram *p = a->c->p;
    return &p->buf[p->arg[p->step[a->at].arg + (uint32_t)i]];
}

static DpcStatus unlike(const Actor *a, const Actor *b, const char *what)
{
    char place[DPC_PLACE];
    return dpc_check_fault(a->c, a->at, "meets %s, which is of another %s",
                           dpc_check_place(b->c, b->at, place), what);
}

static DpcStatus ends_fit(const Actor *a, int32_t i, const Actor *b, int32_t k)
{
    const DpcBuf *x = buf_of(a, i), *y = buf_of(b, k);
    const DpcColl *p = member(a, (uint32_t)i), *q = member(b, (uint32_t)k);
    if (p->hop != q->hop)
        return unlike(a, b, "value");
    if (a->c->p->step[a->at].turn != b->c->p->step[b->at].turn)
        return unlike(a, b, "turn");
    if (x->size != y->size || x->dtype != y->dtype)
        return unlike(a, b, "size");
    if (x->split != y->split || x->pending != y->pending)
        return unlike(a, b, "layout");
    return DPC_OK;
}

/* Members of a's hop whose other ends are there. */
static DpcStatus meet(Actor *role, Actor *a, bool *moved)
{
    uint32_t n = at_hop(a) ? a->c->p->step[a->at].narg : 0;
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < n; i++) {
        const DpcColl *c = member(a, i);
        Actor *b = &role[c->peer];
        bool first = waiting(a, c->peer, c->kind) == (int32_t)i;
        int32_t k = waiting(b, a->c->p->role,
                            c->kind == DPC_SEND ? DPC_RECV : DPC_SEND);
        if (!first || k < 0)
            continue;
        s = ends_fit(a, (int32_t)i, b, k);
        a->met |= 1ull << i;
        b->met |= 1ull << k;
        *moved = true;
    }
    return s;
}

/* Of a role that waits in vain: for whom, and what that one does. */
static DpcStatus stuck(Actor *role, int32_t n)
{
    char place[DPC_PLACE];
    for (int32_t r = 0; r < n; r++) {
        Actor *a = &role[r];
        for (uint32_t i = 0; at_hop(a) && i < a->c->p->step[a->at].narg; i++) {
            const Actor *b = &role[member(a, i)->peer];
            if (a->met >> i & 1)
                continue;
            snprintf(place, sizeof place, "the end of role %d",
                     member(a, i)->peer);
            return dpc_check_fault(a->c, a->at, "waits for role %d to %s, "
                "which never gets beyond %s: deadlock", member(a, i)->peer,
                member(a, i)->kind == DPC_SEND ? "receive" : "send",
                at_hop(b) ? dpc_check_place(b->c, b->at, place) : place);
        }
    }
    return DPC_OK;
}

DpcStatus dpc_check_roles(const DpcCheck *c, int32_t n)
{
    Actor *role = calloc((size_t)n + 1, sizeof *role);
    DpcStatus s = DPC_OK;
    if (!role)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", c->u->model);
    for (int32_t r = 0; r < n; r++)
        role[r].c = &c[r];
    for (bool moved = true; !s && moved;) {
        moved = false;
        for (int32_t r = 0; r < n; r++)
            moved |= go_on(&role[r]);
        for (int32_t r = 0; !s && r < n; r++)
            s = meet(role, &role[r], &moved);
    }
    if (!s)
        s = stuck(role, n);
    free(role);
    return s;
}
