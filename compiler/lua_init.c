/* lua_init.c -- the entry "init": what params and states start as.
 *
 * What a leaf holds before the first step is said where it is made: a
 * function of its sizes, called here; or a value, whose nodes are copied here
 * out of the entry that made it (a param read by them becomes what that param
 * starts as); or a number; or nothing: zeros.  Where params are given (cases
 * of parity), only states and what keeps its definition is made. */
#include "compiler/case.h"
#include "compiler/lua_front.h"

static Ref init_value(lua_State *L, UnitLeaf *u);

static bool is_given(const Front *f, const UnitLeaf *u)
{
    return f->filled && u->op == OP_param && !fill_keeps(u->name);
}

/* Copy node r of another entry, and what it reads, into "init". */
static Ref import(lua_State *L, const UnitLeaf *u, const Graph *from, Ref r,
                  Ref *map)
{
    if (map[r] != NONE)
        return map[r];
    const Node *n = &from->node[r];
    if (n->op == OP_param || n->op == OP_state) {
        UnitLeaf *from_leaf = leaf_find(L, n->name);
        return map[r] = is_given(front_of(L), from_leaf)
                      ? leaf_node(L, from_leaf) : init_value(L, from_leaf);
    }
    if (n->op == OP_input || n->op == OP_scalar)
        fail_at(L, u->loc, "%s: the init of \"%s\" reads %s \"%s\"",
                ops[u->op].name, u->name, ops[n->op].name, n->name);
    Ref in[NIN];
    luaL_checkstack(L, 4, "init");
    for (int i = 0; i < n->nin; i++)
        in[i] = import(L, u, from, n->in[i], map);
    return map[r] = n->nin ? node_new(L, n->op, &n->attr, in, n->nin)
                           : node_typed(L, n->op, &n->attr, n->type, NULL);
}

static void init_from_value(lua_State *L, UnitLeaf *u)
{
    Front *f = front_of(L);
    Graph *g = f->g;
    const Graph *from = u->init_graph;
    f->g = u->init_graph;
    Ref r = value_check(L, -1, "init");
    f->g = g;
    Ref *map = lua_newuserdatauv(L, (from->n + 1) * sizeof *map, 0);
    for (uint32_t i = 0; i < from->n; i++)
        map[i] = NONE;
    r = import(L, u, from, r, map);
    lua_pop(L, 2);
    value_push(L, r);
}

/* Push what the leaf starts as, in the current graph. */
static void init_push(lua_State *L, UnitLeaf *u)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, u->init);
    if (value_is(L, -1))
        init_from_value(L, u);
    else if (lua_isfunction(L, -1)) {
        lua_createtable(L, u->type.ndim, 0);
        for (int d = 0; d < u->type.ndim; d++) {
            lua_pushinteger(L, u->type.dim[d]);
            lua_rawseti(L, -2, d + 1);
        }
        lua_call(L, 1, 1);
    }
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushinteger(L, 0);
    }
}

static Ref init_value(lua_State *L, UnitLeaf *u)
{
    if (u->set != NONE)
        return u->set;
    if (u->busy)
        fail_at(L, u->loc, "%s: the init of \"%s\" reads itself",
                ops[u->op].name, u->name);
    u->busy = true;
    Front *f = front_of(L);
    const char *scope = f->scope, *line = f->line;
    uint32_t at = (uint32_t)(u - f->leaf);
    f->scope = u->scope, f->line = u->loc;
    if (u->init == LUA_NOREF)
        lua_pushinteger(L, 0);
    else
        init_push(L, u);
    Ref r = value_fit(L, lua_gettop(L), &u->type,
                      fmt(f->a, "init of \"%s\"", u->name));
    lua_pop(L, 1);
    f->scope = scope, f->line = line;
    return f->leaf[at].set = r;
}

void leaf_init_all(lua_State *L)
{
    Front *f = front_of(L);
    for (uint32_t i = 0; i < f->nleaf; i++) {
        UnitLeaf *u = &f->leaf[i];
        if ((u->op != OP_param && u->op != OP_state) || is_given(f, u))
            continue;
        luaL_checkstack(L, 8, "init");
        Ref r = init_value(L, u);
        f->line = f->leaf[i].loc;
        graph_set(f->g, leaf_node(L, &f->leaf[i]), r);
        f->line = NULL;
    }
}
