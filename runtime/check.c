/* check.c -- proves that a schedule can be run, from its tables alone.
 *
 * The planner is large and guesses; this is small and trusts nothing of it
 * but the tables of dpc_rt.h.  The list of steps is the witness: all ranks of
 * a role hold the same one, and when each step awaits only earlier ones, the
 * list itself is an order in which all of them end -- no deadlock, once the
 * lists of all roles are walked together (check_roles.c).  Walked in
 * that order, each operand must hold the value that its row names; and since
 * any two steps that touch the same bytes, one of them writing, are ordered
 * by streams and events, every other order that the streams allow computes
 * the same (Lamport 1978; happens-before as in ThreadSanitizer).
 *
 * The compiler asks before it writes a binary, and the runtime before it runs
 * one.  Linear in operands x the pieces into which buffers cut each other. */
#include "runtime/check_own.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dpc_check_place(const DpcCheck *c, uint32_t step,
                            char to[DPC_PLACE])
{
    const DpcStep *t = &c->p->step[step];
    const DpcNode none = {"?", "?", "?"};
    const DpcNode *n = t->node < c->p->nnode ? &c->p->node[t->node] : &none;
    int at = snprintf(to, DPC_PLACE, "%s '%s' (%s), step %u in turn %u", n->op,
                      n->name, n->loc, step, t->turn);
    if (c->p->role >= 0 && dpc_roles(c->u) > 1 && at < DPC_PLACE)
        snprintf(to + at, (size_t)(DPC_PLACE - at), " of role %d", c->p->role);
    return to;
}

DpcStatus dpc_check_fault(const DpcCheck *c, uint32_t step, const char *f, ...)
{
    char place[DPC_PLACE], what[512];
    va_list ap;
    va_start(ap, f);
    vsnprintf(what, sizeof what, f, ap);
    va_end(ap);
    return dpc_fail(DPC_BUG, "%s: internal error: schedule of '%s': %s: %s",
                    c->u->model, c->p->entry,
                    dpc_check_place(c, step, place), what);
}

static int32_t turns_of(const DpcUnit *u)
{
    int32_t n = 1;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].kind == DPC_TIME)
            n *= u->axis[i].size;
    return n;
}

bool dpc_check_here(const DpcCheck *c, const DpcLeaf *l)
{
    return l->role < 0 || l->role == c->p->role;
}

static DpcCheck check_of(const DpcUnit *u, uint32_t program)
{
    DpcCheck c = {u, &u->program[program], turns_of(u), INT64_MAX, INT64_MAX};
    for (int32_t r = 0; r < dpc_roles(u); r++) {
        int64_t host = u->host_leaves ? u->host_leaves[r] : 0;
        if (c.p->role >= 0 && c.p->role != r)
            continue;
        c.leaves = u->leaves[r] < c.leaves ? u->leaves[r] : c.leaves;
        c.host_leaves = host < c.host_leaves ? host : c.host_leaves;
    }
    return c;
}

static DpcStatus roles_fault(const DpcCheck *c, const char *what, int32_t role)
{
    return dpc_fail(DPC_BUG, "%s: internal error: schedule of '%s': %s of role "
                    "%d", c->u->model, c->p->entry, what, role);
}

/* The programs of an entry, one a role; role[] is large enough. */
static DpcStatus roles_find(const DpcUnit *u, const char *entry,
                            DpcCheck *role)
{
    int32_t n = dpc_roles(u);
    for (uint32_t i = 0; i < u->nprogram; i++) {
        int32_t r = u->program[i].role;
        DpcCheck c = check_of(u, i);
        if (strcmp(u->program[i].entry, entry))
            continue;
        if (r < 0 || r >= n || role[r].p)
            return roles_fault(&c, "there are two, or too many,", r);
        role[r] = c;
    }
    for (int32_t r = 0; r < n; r++)
        if (!role[r].p)
            return roles_fault(&role[!r], "there is none", r);
    return DPC_OK;
}

/* All roles of the entry of program i, which is its first. */
static DpcStatus entry_check(const DpcUnit *u, uint32_t i)
{
    int32_t n = dpc_roles(u);
    DpcCheck *role = calloc((size_t)n + 1, sizeof *role);
    DpcStatus s = role ? roles_find(u, u->program[i].entry, role)
        : dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    if (!s)
        s = dpc_check_roles(role, n);
    free(role);
    return s;
}

/* Is it the first of its entry's programs, and not the only one, for all? */
static bool is_first(const DpcUnit *u, uint32_t i)
{
    bool alone = u->program[i].role < 0;
    for (uint32_t k = 0; k < u->nprogram; k++)
        if (k != i && !strcmp(u->program[k].entry, u->program[i].entry)) {
            if (k < i)
                return false;
            alone = false;
        }
    return !alone;
}

DpcStatus dpc_check(const DpcUnit *u)
{
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < u->nprogram; i++) {
        const DpcCheck c = check_of(u, i);
        s = dpc_check_calls(&c);
        if (!s)
            s = dpc_check_bytes(&c);
    }
    for (uint32_t i = 0; !s && i < u->nprogram && dpc_roles(u) > 1; i++)
        if (is_first(u, i))
            s = entry_check(u, i);
    return s;
}
