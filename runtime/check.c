/* check.c -- proves that a schedule can be run, from its tables alone.
 *
 * The planner is large and guesses; this is small and trusts nothing of it
 * but the tables of dpc_rt.h.  The list of steps is the witness: all ranks of
 * a role hold the same one, and when each step awaits only earlier ones, the
 * list itself is an order in which all of them end -- no deadlock.  Walked in
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

const char *dpc_check_place(const DpcCheck *c, uint32_t step,
                            char to[DPC_PLACE])
{
    const DpcStep *t = &c->p->step[step];
    const DpcNode none = {"?", "?", "?"};
    const DpcNode *n = t->node < c->p->nnode ? &c->p->node[t->node] : &none;
    snprintf(to, DPC_PLACE, "%s '%s' (%s), step %u in turn %u", n->op, n->name,
             n->loc, step, t->turn);
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

DpcStatus dpc_check(const DpcUnit *u)
{
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < u->nprogram; i++) {
        const DpcCheck c = {u, &u->program[i], turns_of(u)};
        s = dpc_check_calls(&c);
        if (!s)
            s = dpc_check_bytes(&c);
    }
    return s;
}
