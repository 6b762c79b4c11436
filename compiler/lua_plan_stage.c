/* lua_plan_stage.c -- `stage`, `role`, `order`, `alive` of a plan: a pipeline.
 *
 *     mesh = {{"pp", 2, "stage"}, ...},
 *     stage = { ["encoder"] = 0, ["decoder"] = 1, ["decoder.out"] = 2 },
 *     role = { 0, 1, 0 },
 *     order = "1f1b",
 *
 * A scope works on its stage, but where a scope in it says another; a leaf
 * lies where its name does.  `role` says which role each stage is of; absent,
 * stages are dealt round.  `order` names a pattern (passes/chunk.h), or lists
 * all chunks, "forward.0.0" for segment, stage and turn, as each begins. */
#include "compiler/lua_plan.h"
#include "ir/text.h"
#include "passes/chunk.h"
#include <stdlib.h>

/* ---- stages ---- */

/* Does the scope, or a leaf's name, stand in the model? */
static bool scope_known(const Planning *p, const char *scope)
{
    size_t n = strlen(scope);
    for (int e = 0; e < p->nentry; e++)
        for (Ref r = 0; r < p->entry[e]->n; r++) {
            const Node *m = &p->entry[e]->node[r];
            const char *name[] = { m->scope, m->name };
            for (int k = 0; k < 1 + ops[m->op].leaf; k++)
                if (!n || (strncmp(name[k], scope, n) == 0
                           && (!name[k][n] || name[k][n] == '.')))
                    return true;
        }
    return false;
}

static void scope_check(lua_State *L, const Planning *p, const char *scope)
{
    const char **have = NULL;
    uint32_t n = 0, cap = 0;
    if (scope_known(p, scope))
        return;
    for (int e = 0; e < p->nentry; e++)
        for (Ref r = 0; r < p->entry[e]->n; r++) {
            GROW(front_of(L)->a, have, n, cap);
            have[n++] = p->entry[e]->node[r].scope;
        }
    plan_fail(L, p, "stage: the model has no scope \"%s\"%s", scope,
            near_hint(scope, have, (int)n));
}

static int by_scope(const void *a, const void *b)
{
    const StagePlan *x = a, *y = b;
    return strcmp(x->scope, y->scope);
}

static void stage_read(lua_State *L, Planning *p)
{
    enum { MOST = 4096 };
    Plan *plan = p->plan;
    Arena *a = front_of(L)->a;
    if (lua_type(L, -2) != LUA_TSTRING)
        plan_fail(L, p, "stage: \"%s\" is no scope",
                luaL_tolstring(L, -2, NULL));
    const char *scope = text_at(L, -2);
    lua_Integer s = lua_tointeger(L, -1);
    if (!lua_isinteger(L, -1) || s < 0 || s >= MOST)
        plan_fail(L, p, "stage: of \"%s\" it is %s; a whole number from 0 "
                "is wanted", scope, luaL_tolstring(L, -1, NULL));
    scope_check(L, p, scope);
    GROW(a, plan->stage, plan->nscope, plan->scopecap);
    plan->stage[plan->nscope++] = (StagePlan){ intern(a, scope), (int)s };
    plan->nstage = s + 1 > plan->nstage ? (int)s + 1 : plan->nstage;
}

static void stages_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    int t = lua_getfield(L, i, "stage");
    if (t != LUA_TNIL && t != LUA_TTABLE)
        plan_fail(L, p, "stage: a table by scope is wanted, this is %s",
                lua_typename(L, t));
    for (lua_pushnil(L); t == LUA_TTABLE && lua_next(L, -2); lua_pop(L, 1))
        stage_read(L, p);
    lua_pop(L, 1);
    if (plan->nscope)
        qsort(plan->stage, plan->nscope, sizeof *plan->stage, by_scope);
    bool *has = alloc(front_of(L)->a, (size_t)plan->nstage + 1);
    for (uint32_t k = 0; k < plan->nscope; k++)
        has[plan->stage[k].stage] = true;
    for (int s = 0; s < plan->nstage; s++)
        if (!has[s])
            plan_fail(L, p, "stage: no scope is of stage %d, and %d is the "
                    "last", s, plan->nstage - 1);
}

/* ---- roles ---- */

static int role_count(const Plan *plan)
{
    return (int)mesh_size(&plan->mesh, mesh_axes(&plan->mesh, STAGE));
}

/* The table of roles on top. */
static void roles_list(lua_State *L, Planning *p)
{
    Plan *plan = p->plan;
    int n = role_count(plan);
    if (luaL_len(L, -1) != plan->nstage)
        plan_fail(L, p, "role: %d numbers, but there are %d stages",
                (int)luaL_len(L, -1), plan->nstage);
    for (int s = 0; s < plan->nstage; s++) {
        lua_geti(L, -1, s + 1);
        lua_Integer r = lua_tointeger(L, -1);
        if (!lua_isinteger(L, -1) || r < 0 || r >= n)
            plan_fail(L, p, "role: of stage %d it is %s; there are roles 0 "
                    "to %d", s, luaL_tolstring(L, -1, NULL), n - 1);
        plan->role_of[s] = (int)r;
        lua_pop(L, 1);
    }
}

static void roles_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    int n = role_count(plan);
    plan->role_of = alloc(front_of(L)->a, ((size_t)plan->nstage + 1)
                          * sizeof *plan->role_of);
    for (int s = 0; s < plan->nstage; s++)
        plan->role_of[s] = s % n;
    int t = lua_getfield(L, i, "role");
    if (t == LUA_TTABLE)
        roles_list(L, p);
    else if (t != LUA_TNIL)
        plan_fail(L, p, "role: a list is wanted, this is %s",
                lua_typename(L, t));
    lua_pop(L, 1);
    bool *has = alloc(front_of(L)->a, (size_t)n + 1);
    for (int s = 0; s < plan->nstage; s++)
        has[plan->role_of[s]] = true;
    for (int r = 0; r < n; r++)
        if (!has[r])
            plan_fail(L, p, "stage: role %d of %d has none of the %d "
                    "stages; the mesh may have %d roles", r, n, plan->nstage,
                    plan->nstage);
}

/* ---- the order ---- */

static Chunk chunk_read(lua_State *L, const Planning *p, const char *s)
{
    Chunk c = { SEG_NONE, -1, -1 };
    for (int seg = FORWARD; seg <= WEIGHT; seg++) {
        size_t n = strlen(segment_names[seg]);
        int end = 0;
        if (strncmp(s, segment_names[seg], n) == 0
            && sscanf(s + n, ".%d.%d%n", &c.stage, &c.turn, &end) == 2
            && !s[n + (size_t)end])
            c.segment = (Segment)seg;
    }
    if (!c.segment || c.stage < 0 || c.stage >= p->plan->nstage || c.turn < 0)
        plan_fail(L, p, "order: \"%s\" is no chunk; \"forward.0.2\" is "
                "segment forward of stage 0 in turn 2", s);
    return c;
}

static void chunks_read(lua_State *L, Planning *p)
{
    Plan *plan = p->plan;
    lua_Integer n = luaL_len(L, -1);
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (!lua_isinteger(L, -2))
            plan_fail(L, p, "order: a list of chunks has no \"%s\"",
                    luaL_tolstring(L, -2, NULL));
    plan->pattern = GIVEN, plan->text = p->text, plan->path = p->loc;
    plan->chunk = alloc(front_of(L)->a, ((size_t)n + 1) * sizeof *plan->chunk);
    for (lua_Integer k = 1; k <= n; k++) {
        lua_geti(L, -1, k);
        plan->chunk[plan->nchunk++] = chunk_read(L, p, text_at(L, -1));
        lua_pop(L, 1);
    }
}

static void order_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    plan->pattern = ONE_F_ONE_B;
    int t = lua_getfield(L, i, "order"), k = 0;
    if (t == LUA_TTABLE)
        chunks_read(L, p);
    else if (t != LUA_TNIL) {
        while (k < GIVEN && strcmp(pattern_names[k], text_at(L, -1)) != 0)
            k++;
        if (k == GIVEN)
            plan_fail(L, p, "order: \"%s\" is none; there are gpipe, 1f1b, "
                    "interleaved, zb-h1, auto, or a list of chunks",
                    luaL_tolstring(L, -1, NULL));
        plan->pattern = (Pattern)k;
    }
    if (lua_getfield(L, i, "alive") != LUA_TNIL) {
        plan->alive = (int)lua_tointeger(L, -1);
        if (!lua_isinteger(L, -1) || plan->alive < 1)
            plan_fail(L, p, "alive: %s; a whole number from 1 is wanted",
                    luaL_tolstring(L, -1, NULL));
        if (plan->pattern != AUTO)
            plan_fail(L, p, "alive: it is a limit of order \"auto\"");
    }
    lua_pop(L, 2);
}

/* ---- all of it ---- */

/* Words of a pipeline where there is none would mean nothing. */
static void idle_check(lua_State *L, const Planning *p, int i)
{
    for (int k = PIPELINE_WORD; k < NPLAN_WORD; k++) {
        if (lua_getfield(L, i, plan_words[k]) != LUA_TNIL)
            plan_fail(L, p, "%s: the mesh has no axis of kind \"stage\"",
                    plan_words[k]);
        lua_pop(L, 1);
    }
}

static void leaves_check(lua_State *L, const Planning *p, Axes stage)
{
    for (uint32_t i = 0; i < p->plan->nleaf; i++)
        for (int d = 0; d < p->plan->leaf[i].ndim; d++)
            if (split_axes(p->plan->leaf[i].split[d]) & stage)
                plan_fail(L, p, "leaf \"%s\": it is split over stages; a "
                        "leaf lies on one of them, or on all",
                        p->plan->leaf[i].name);
}

void pipeline_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    Axes stage = mesh_axes(&plan->mesh, STAGE);
    if (!stage) {
        idle_check(L, p, i);
        return;
    }
    if (stage & (stage - 1))
        plan_fail(L, p, "mesh: two axes are of kind \"stage\"; one holds "
                "all roles");
    leaves_check(L, p, stage);
    if (role_count(plan) == 1)            /* no pipeline; the axis falls off */
        return;
    stages_read(L, p, i);
    if (!plan->nstage)
        plan_fail(L, p, "the mesh has %d roles, but no \"stage\" says what "
                "they do", role_count(plan));
    roles_read(L, p, i);
    order_read(L, p, i);
}

static void chunk_print(const Chunk *c, bool first, FILE *out)
{
    fprintf(out, "%s\"%s.%d.%d\"", first ? "" : ", ",
            segment_names[c->segment], c->stage, c->turn);
}

void pipeline_print(const Plan *p, FILE *out)
{
    if (!p->nstage)
        return;
    fputs("    stage = {\n", out);
    for (uint32_t i = 0; i < p->nscope; i++)
        fprintf(out, "        [\"%s\"] = %d,\n", p->stage[i].scope,
                p->stage[i].stage);
    fputs("    },\n    role = {", out);
    for (int s = 0; s < p->nstage; s++)
        fprintf(out, "%s%d", s ? ", " : "", p->role_of[s]);
    fputs("},\n    order = ", out);
    if (p->pattern != GIVEN)
        fprintf(out, "\"%s\"", pattern_names[p->pattern]);
    else
        fputs("{", out);
    for (uint32_t i = 0; i < p->nchunk; i++)
        chunk_print(&p->chunk[i], i == 0, out);
    fputs(p->pattern == GIVEN ? "},\n" : ",\n", out);
    if (p->alive)
        fprintf(out, "    alive = %d,\n", p->alive);
}
