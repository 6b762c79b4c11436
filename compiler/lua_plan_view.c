/* lua_plan_view.c -- the model as a partitioner sees it: g, read only, with
 * what it may ask (docs/plans.md). */
#include "compiler/lua_plan.h"

bool is_leaf(const Node *n)
{
    return n->op == OP_input || n->op == OP_param || n->op == OP_state;
}

/* The first dimension of an entry's inputs, as its first input has it. */
static int64_t entry_batch(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_input && g->node[r].type.ndim)
            return g->node[r].type.dim[0];
    return 0;
}

void leaf_push(lua_State *L, const Graph *g, const Node *n)
{
    lua_createtable(L, 0, 6);
    lua_pushstring(L, ops[n->op].name), lua_setfield(L, -2, "op");
    lua_pushstring(L, n->name), lua_setfield(L, -2, "name");
    lua_pushstring(L, g->entry ? g->entry : ""), lua_setfield(L, -2, "entry");
    lua_pushstring(L, dtype_name(n->type.dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushboolean(L, n->op == OP_param && !n->attr.frozen);
    lua_setfield(L, -2, "trainable");
    lua_pushboolean(L, n->op == OP_input && n->type.ndim
                    && n->type.dim[0] == entry_batch(g));
    lua_setfield(L, -2, "batch");
    lua_createtable(L, n->type.ndim, 0);
    for (int d = 0; d < n->type.ndim; d++) {
        lua_pushinteger(L, n->type.dim[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "dims");
}

bool is_new(lua_State *L, int i, const char *name)
{
    bool met = lua_getfield(L, i, name) != LUA_TNIL;
    lua_pop(L, 1);
    lua_pushboolean(L, true);
    lua_setfield(L, i, name);
    return !met;
}

/* ---- g's functions ---- */

/* g.nodes(entry): its nodes, operands first. */
static int view_nodes(lua_State *L)
{
    const Planning *p = lua_touserdata(L, lua_upvalueindex(1));
    const char *name = luaL_checkstring(L, 1);
    Str have = { .arena = front_of(L)->a };
    for (int e = 0; e < p->nentry; e++)
        if (p->entry[e]->entry && strcmp(p->entry[e]->entry, name) == 0) {
            nodes_push(L, p->entry[e]);
            return 1;
        } else
            str_add(&have, "%s%s", e ? ", " : "", p->entry[e]->entry
                    ? p->entry[e]->entry : "one without a name");
    fail(L, "nodes: the model has no entry \"%s\"; there are %s", name,
         have.p);
}

/* g.refuse(text): there is no such plan; exit 4. */
static int view_refuse(lua_State *L)
{
    fail_code(L, 4, luaL_checkstring(L, 1));
}

typedef struct Ask { const PlanOptions *o; Plan *plan; PlanCost cost; } Ask;

static void cost_ask(void *arg)
{
    Ask *a = arg;
    a->cost = a->o->cost(a->o->arg, a->plan);
}

static void cost_push(lua_State *L, const PlanCost *c)
{
    const struct { const char *key; double x; } word[] = {
        { "step", c->step }, { "compute", c->compute },
        { "communicate", c->communicate }, { "exposed", c->exposed } };
    const struct { const char *key; int64_t n; } bytes[] = {
        { "memory", c->leaves + c->arena + c->io }, { "leaves", c->leaves },
        { "arena", c->arena } };
    lua_createtable(L, 0, 8);
    for (int i = 0; i < COUNT(word); i++)
        lua_pushnumber(L, word[i].x), lua_setfield(L, -2, word[i].key);
    for (int i = 0; i < COUNT(bytes); i++) {
        lua_pushinteger(L, bytes[i].n);
        lua_setfield(L, -2, bytes[i].key);
    }
    lua_pushboolean(L, c->fits), lua_setfield(L, -2, "fits");
}

/* g.cost(plan): what a step of it costs, by all passes and the clock; nil and
 * the reason where they refuse it. */
static int view_cost(lua_State *L)
{
    const Planning *p = lua_touserdata(L, lua_upvalueindex(1));
    Planning mine = *p;
    if (!p->o->cost)
        fail(L, "cost: nothing prices a plan here");
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    mine.loc = user_loc(L);
    mine.plan = plan_begin(p->o->compute, front_of(L)->a);
    table_read(L, &mine, 1);
    Ask a = { .o = p->o, .plan = mine.plan };
    guarded(L, cost_ask, &a);
    if (a.cost.why) {
        lua_pushnil(L);
        lua_pushstring(L, a.cost.why);
        return 2;
    }
    cost_push(L, &a.cost);
    return 1;
}

/* ---- the view, read only ---- */

static int write_refuse(lua_State *L)
{
    fail(L, "the view of the model is read only: \"%s\" cannot be set",
         luaL_tolstring(L, 2, NULL));
}

static int view_length(lua_State *L)
{
    lua_pushinteger(L, luaL_len(L, lua_upvalueindex(1)));
    return 1;
}

static int view_pairs(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

/* In place of the table on top, one that reads as it does. */
static void seal(lua_State *L)
{
    lua_newtable(L);
    lua_createtable(L, 0, 5);
    lua_pushvalue(L, -3), lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, write_refuse), lua_setfield(L, -2, "__newindex");
    lua_pushvalue(L, -3), lua_pushcclosure(L, view_length, 1);
    lua_setfield(L, -2, "__len");
    lua_pushvalue(L, -3), lua_pushcclosure(L, view_pairs, 1);
    lua_setfield(L, -2, "__pairs");
    lua_pushboolean(L, false), lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

void view_push(lua_State *L, Planning *p)
{
    lua_Integer n = 0;
    luaL_checkstack(L, 12, NULL);
    lua_createtable(L, 0, 9);
    lua_createtable(L, p->nentry, 0);
    for (int e = 0; e < p->nentry; e++) {
        lua_pushstring(L, p->entry[e]->entry ? p->entry[e]->entry : "");
        lua_rawseti(L, -2, e + 1);
    }
    seal(L);
    lua_setfield(L, -2, "entries");
    lua_pushlightuserdata(L, p);
    lua_pushcclosure(L, view_cost, 1), lua_setfield(L, -2, "cost");
    lua_pushlightuserdata(L, p);
    lua_pushcclosure(L, view_nodes, 1), lua_setfield(L, -2, "nodes");
    lua_pushcfunction(L, option_ask), lua_setfield(L, -2, "option");
    lua_pushcfunction(L, view_refuse), lua_setfield(L, -2, "refuse");
    lua_pushinteger(L, p->o->ranks), lua_setfield(L, -2, "ranks");
    lua_pushinteger(L, p->o->micro), lua_setfield(L, -2, "micro");
    lua_newtable(L);
    lua_newtable(L);
    int names = lua_gettop(L);
    for (int e = 0; e < p->nentry; e++)
        for (Ref r = 0; r < p->entry[e]->n; r++) {
            const Node *node = &p->entry[e]->node[r];
            if (!is_leaf(node) || !is_new(L, names, node->name))
                continue;
            leaf_push(L, p->entry[e], node);
            seal(L);
            lua_rawseti(L, names - 1, ++n);
        }
    lua_pop(L, 1);
    seal(L);
    lua_setfield(L, -2, "leaves");
    seal(L);
}
