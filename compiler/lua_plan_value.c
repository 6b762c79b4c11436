/* lua_plan_value.c -- `value` of a plan: how values between leaves lie.
 *
 *     value = {
 *         ["block*.attn.out"] = { "*", "tp" },
 *         ["block*.norm1"] = { "*", "", grad = { "*", "tp" } },
 *     }
 *
 * A name is a pattern (passes/constrain.c).  Of each dimension: "*" or nothing
 * leaves it as it comes, "" makes it whole, else it lies over these axes; a
 * twin, "tp'", says that products read it a part a turn.
 * `grad` says the same of the value's gradient, which else lies alike. */
#include "compiler/lua_plan.h"
#include <stdlib.h>

/* The list on top, as splits of `what`. */
static Lie lie_read(lua_State *L, const Planning *p, const char *what)
{
    Lie l = { .ndim = (int)luaL_len(L, -1) };
    Axes taken = 0;
    if (l.ndim > NDIM)
        plan_fail(L, p, "%s: %d splits; a tensor has at most %d dimensions",
                what, l.ndim, NDIM);
    for (int d = 0; d < l.ndim; d++) {
        int t = lua_geti(L, -1, d + 1);
        const char *s = text_at(L, -1);
        if (t != LUA_TNIL && t != LUA_TSTRING)
            plan_fail(L, p, "%s: the split of dimension %d is a %s", what,
                    d, lua_typename(L, t));
        l.free[d] = t == LUA_TNIL || strcmp(s, "*") == 0;
        if (!l.free[d])
            l.split[d] = split_read(L, p, what, s, &taken);
        lua_pop(L, 1);
    }
    Axes turns = taken & mesh_axes(&p->plan->mesh, TIME);
    for (int i = 0; i < p->plan->mesh.naxis; i++)
        if (mesh_home(&p->plan->mesh, i) >= 0)
            turns &= (Axes)~(1u << i);
    if (turns)
        plan_fail(L, p, "%s: \"%s\" is turns, and the batch alone says "
                "which turn has what", what,
                p->plan->mesh.axis[__builtin_ctz(turns)].name);
    return l;
}

static void keys_check(lua_State *L, const Planning *p, const char *what)
{
    lua_Integer n = luaL_len(L, -1);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        bool place = lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1
            && lua_tointeger(L, -2) <= n;
        if (!place && strcmp(text_at(L, -2), "grad") != 0)
            plan_fail(L, p, "%s: a list of splits and \"grad\" are wanted, "
                    "not \"%s\"", what, luaL_tolstring(L, -2, NULL));
    }
}

/* The value of that name, from the table on top. */
static void value_read(lua_State *L, Planning *p, const char *name)
{
    Plan *plan = p->plan;
    Arena *a = front_of(L)->a;
    const char *what = fmt(a, "value \"%s\"", name);
    ValuePlan v = { .name = intern(a, name), .loc = plan_loc(L, p, what) };
    if (!lua_istable(L, -1))
        plan_fail(L, p, "%s: a list of splits is wanted, this is %s", what,
                luaL_typename(L, -1));
    keys_check(L, p, what);
    v.grad = v.lie = lie_read(L, p, what);
    if (lua_getfield(L, -1, "grad") == LUA_TTABLE)
        v.grad = lie_read(L, p, fmt(a, "%s: grad", what));
    else if (!lua_isnil(L, -1))
        plan_fail(L, p, "%s: grad: a list of splits is wanted, this is %s",
                what, luaL_typename(L, -1));
    lua_pop(L, 1);
    GROW(a, plan->value, plan->nvalue, plan->valuecap);
    plan->value[plan->nvalue++] = v;
}

static bool lie_equal(const Lie *a, const Lie *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->free[d] == b->free[d] && a->split[d] == b->split[d];
    return same;
}

/* A name that means nothing, or more than the value can be, is an error; so
 * are two that disagree about one value. */
static void names_check(lua_State *L, const Planning *p, const Graph *g,
                        bool *met)
{
    const Plan *plan = p->plan;
    ValueNames *names = value_names(plan, front_of(L)->a);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        const ValuePlan *by = NULL;
        const uint32_t *which;
        uint32_t count = values_naming(names, g, r, &which);
        for (uint32_t i = 0; i < count; i++) {
            const ValuePlan *v = &plan->value[which[i]];
            met[which[i]] = true;
            if (v->lie.ndim > n->type.ndim || v->grad.ndim > n->type.ndim)
                plan_fail(L, p, "value \"%s\": %d splits, but the value at "
                        "%s is %s", v->name, v->lie.ndim > v->grad.ndim
                        ? v->lie.ndim : v->grad.ndim, n->loc,
                        type_text(front_of(L)->a, &g->mesh, &n->type));
            if (by && (!lie_equal(&by->lie, &v->lie)
                       || !lie_equal(&by->grad, &v->grad)))
                plan_fail(L, p, "values \"%s\" and \"%s\" are one, at %s, "
                        "and should lie in two ways", by->name, v->name,
                        n->loc);
            by = v;
        }
    }
}

static int by_name(const void *a, const void *b)
{
    const ValuePlan *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void values_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    int t = lua_getfield(L, i, "value");
    if (t != LUA_TNIL && t != LUA_TTABLE)
        plan_fail(L, p, "value: a table by name is wanted, this is %s",
                lua_typename(L, t));
    for (lua_pushnil(L); t == LUA_TTABLE && lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            plan_fail(L, p, "value: \"%s\" is no name",
                    luaL_tolstring(L, -2, NULL));
        value_read(L, p, text_at(L, -2));
    }
    lua_pop(L, 1);
    if (plan->nvalue)
        qsort(plan->value, plan->nvalue, sizeof *plan->value, by_name);
    bool *met = alloc(front_of(L)->a, plan->nvalue + 1);
    for (int e = 0; plan->nvalue && e < p->nentry; e++)
        names_check(L, p, p->entry[e], met);
    for (uint32_t k = 0; k < plan->nvalue; k++)
        if (!met[k])
            plan_fail(L, p, "the model has no value \"%s\"; names are those "
                    "of scopes, as `dpc print` shows them",
                    plan->value[k].name);
}

void values_thin(Plan *plan, const int *to)
{
    for (uint32_t i = 0; i < plan->nvalue; i++)
        for (int d = 0; d < NDIM; d++) {
            ValuePlan *v = &plan->value[i];
            v->lie.split[d] = split_thin(v->lie.split[d], to);
            v->grad.split[d] = split_thin(v->grad.split[d], to);
        }
}

static void lie_print(const Mesh *m, const Lie *l, FILE *out)
{
    for (int d = 0; d < l->ndim; d++) {
        fputs(d ? ", " : "", out);
        if (l->free[d])
            fputs("\"*\"", out);
        else
            split_print(m, l->split[d], out);
    }
}

void values_print(const Plan *p, FILE *out)
{
    if (p->nvalue)
        fputs("    value = {\n", out);
    for (uint32_t i = 0; i < p->nvalue; i++) {
        const ValuePlan *v = &p->value[i];
        fprintf(out, "        [\"%s\"] = {", v->name);
        lie_print(&p->mesh, &v->lie, out);
        if (!lie_equal(&v->lie, &v->grad)) {
            fprintf(out, "%sgrad = {", v->lie.ndim ? ", " : "");
            lie_print(&p->mesh, &v->grad, out);
            fputs("}", out);
        }
        fputs("},\n", out);
    }
    if (p->nvalue)
        fputs("    },\n", out);
}
