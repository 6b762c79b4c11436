/* lua_leaf.c -- the leaves of a unit, and the rest of the table `dpc`.
 *
 * A leaf belongs to the unit: entries that name it share it, so its op, dtype
 * and sizes are the same in all of them. */
#include "compiler/lua_front.h"
#include "runtime/dpc_rt.h"
#include <math.h>
#include <stdlib.h>

enum { CONST_MAX = 1 << 24 };
static const double LEAF_MAX = 68719476736.0;             /* 2^36 elements */
static const char made[] = "dpc.made";    /* registry: name -> Ref here */
static const char index_[] = "dpc.index"; /* registry: name -> UnitLeaf */

/* ---- arguments ---- */

DType dtype_check(lua_State *L, int i, DType otherwise, const char *what)
{
    if (lua_isnoneornil(L, i) && otherwise != NDTYPE)
        return otherwise;
    const char *s = lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : "";
    DType t = dtype_find(s);
    if (t == NDTYPE)
        fail(L, "%s: \"%s\" is no dtype; there are f32, bf16, i32, u8", what,
             s);
    return t;
}

Type dims_check(lua_State *L, int i, DType dtype, const char *what)
{
    Type t = { .dtype = dtype };
    if (!lua_istable(L, i))
        fail(L, "%s: a table of sizes is wanted, this is %s", what,
             lua_isnone(L, i) ? "nothing" : luaL_typename(L, i));
    lua_Integer n = luaL_len(L, i);
    if (n > NDIM)
        fail(L, "%s: %lld dimensions; at most %d", what, n, NDIM);
    double all = 1;
    for (t.ndim = 0; t.ndim < n; t.ndim++) {
        int whole;
        lua_geti(L, i, t.ndim + 1);
        t.dim[t.ndim] = lua_tointegerx(L, -1, &whole);
        if (!whole || t.dim[t.ndim] < 1)
            fail(L, "%s: size %d is %s, not a whole number from 1", what,
                 t.ndim + 1, luaL_tolstring(L, -1, NULL));
        all *= (double)t.dim[t.ndim];
        lua_pop(L, 1);
    }
    if (all > LEAF_MAX)
        fail(L, "%s: %.4g elements; at most %.4g", what, all, LEAF_MAX);
    return t;
}

const char *name_check(lua_State *L, int i, const char *what)
{
    if (lua_type(L, i) != LUA_TSTRING)
        fail(L, "%s: a name is wanted, this is %s", what,
             lua_isnone(L, i) ? "nothing" : luaL_typename(L, i));
    const char *s = lua_tostring(L, i);
    if (!*s || strlen(s) > 200 || s[strspn(s, "abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")])
        fail(L, "%s: \"%s\" is no name: letters, digits, '_' and '.'", what,
             s);
    return intern(front_of(L)->a, s);
}

static const char *scoped(Front *f, const char *name)
{
    return *f->scope ? intern(f->a, fmt(f->a, "%s.%s", f->scope, name)) : name;
}

/* ---- the unit's leaves ---- */

UnitLeaf *leaf_find(lua_State *L, const char *name)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, index_);
    lua_getfield(L, -1, name);
    UnitLeaf *u = lua_isnil(L, -1) ? NULL
                : &front_of(L)->leaf[lua_tointeger(L, -1)];
    lua_pop(L, 2);
    return u;
}

static Ref made_find(lua_State *L, const char *name)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, made);
    lua_getfield(L, -1, name);
    Ref r = lua_isnil(L, -1) ? NONE : (Ref)lua_tointeger(L, -1);
    lua_pop(L, 2);
    return r;
}

static void map_put(lua_State *L, const char *table, const char *name,
                    lua_Integer n)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, table);
    lua_pushinteger(L, n);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

static void leaf_same(lua_State *L, const UnitLeaf *u, Op op, const Type *t,
                      const Attr *attr)
{
    const char *loc = user_loc(L);
    if (u->op != op || !type_equal(&u->type, t))
        fail(L, "%s: \"%s\" is %s here, and %s %s at %s", ops[op].name,
             u->name, type_show(L, t), ops[u->op].name,
             type_show(L, &u->type), u->loc);
    if (u->attr.value != attr->value || u->attr.frozen != attr->frozen)
        fail(L, "%s: \"%s\" is another %s at %s and here (%s)", ops[op].name,
             u->name, op == OP_scalar ? "default" : "\"frozen\"", u->loc, loc);
}

/* This entry's node of a leaf: made at its first mention. */
Ref leaf_node(lua_State *L, const UnitLeaf *u)
{
    Front *f = front_of(L);
    Ref r = made_find(L, u->name);
    if (r != NONE)
        return r;
    const char *scope = f->scope;
    f->scope = u->scope;
    r = node_typed(L, u->op, &u->attr, u->type, u->name);
    f->scope = scope;
    map_put(L, made, u->name, r);
    if (u->op == OP_param && !u->attr.frozen) {
        GROW(f->a, f->param, f->nparam, f->paramcap);
        f->param[f->nparam++] = r;
    }
    return r;
}

/* One of several sizes of an entry: "train-512x512". */
static bool is_sized(const Graph *g) { return strchr(g->entry, '-') != NULL; }

/* What the index calls a leaf: its name; an input of another size of an entry
 * has its type there too. */
static const char *leaf_key(lua_State *L, Op op, const char *name,
                            const Type *t)
{
    Front *f = front_of(L);
    const UnitLeaf *u = leaf_find(L, name);
    bool other = u && op == OP_input && u->op == op
              && u->type.dtype == t->dtype && !type_equal(&u->type, t)
              && (is_sized(f->g) || is_sized(u->init_graph))
              && made_find(L, name) == NONE;
    return other ? fmt(f->a, "%s %s", name, type_show(L, t)) : name;
}

/* init on top of the stack, popped: a function, value, number or nil. */
static void leaf_get(lua_State *L, Op op, const char *name, Type t, Attr attr)
{
    Front *f = front_of(L);
    const char *key = leaf_key(L, op, name, &t);
    UnitLeaf *u = leaf_find(L, key);
    if (u) {
        leaf_same(L, u, op, &t, &attr);
        lua_pop(L, 1);
    } else {
        GROW(f->a, f->leaf, f->nleaf, f->leafcap);
        u = &f->leaf[f->nleaf];
        *u = (UnitLeaf){ .op = op, .name = name, .loc = user_loc(L),
                         .scope = f->scope, .type = t, .attr = attr,
                         .init_graph = f->g, .set = NONE };
        u->init = lua_isnil(L, -1) ? (lua_pop(L, 1), LUA_NOREF)
                : luaL_ref(L, LUA_REGISTRYINDEX);
        map_put(L, index_, key, f->nleaf++);
    }
    value_push(L, leaf_node(L, u));
}

void leaf_input_push(lua_State *L, const char *name, Type t)
{
    lua_pushnil(L);
    leaf_get(L, OP_input, intern(front_of(L)->a, name), t, (Attr){ 0 });
}

static int leaf_input(lua_State *L)
{
    const char *name = name_check(L, 1, "input");
    front_graph(L, "input");
    leaf_input_push(L, name, dims_check(L, 2, dtype_check(L, 3, F32, "input"),
                                        "input"));
    return 1;
}

/* The table of a param or state: init, frozen, dtype and nothing else. */
static void options_check(lua_State *L, Op op, int i)
{
    static const char *const known[] = { "init", "dtype", "frozen" };
    int n = op == OP_param ? 3 : 2;
    if (lua_isnoneornil(L, i))
        return;
    if (!lua_istable(L, i))
        fail(L, "%s: after the sizes a table {init=...} is wanted",
             ops[op].name);
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "1";
        int k = 0;
        while (k < n && strcmp(known[k], key) != 0)
            k++;
        const char *near = k < n ? NULL : near_name(key, known, n);
        if (k == n)
            fail(L, "%s: no key \"%s\"; %s%s", ops[op].name, key,
                 near ? fmt(front_of(L)->a, "did you mean \"%s\"?", near)
                 : "it takes init, dtype",
                 !near && n == 3 ? ", frozen" : "");
    }
}

static int leaf_kept(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    Front *f = front_of(L);
    const char *name = scoped(f, name_check(L, 1, ops[op].name));
    Attr attr = { 0 };
    DType dtype = F32;
    front_graph(L, ops[op].name);
    options_check(L, op, 3);
    lua_settop(L, 3);
    if (lua_istable(L, 3)) {
        lua_getfield(L, 3, "frozen");
        attr.frozen = lua_toboolean(L, -1);
        lua_getfield(L, 3, "dtype");
        dtype = dtype_check(L, -1, F32, ops[op].name);
        lua_getfield(L, 3, "init");
    } else
        lua_pushnil(L);
    leaf_get(L, op, name, dims_check(L, 2, dtype, ops[op].name), attr);
    return 1;
}

static int leaf_scalar(lua_State *L)
{
    const char *name = name_check(L, 1, "scalar");
    Attr attr = { .value = luaL_checknumber(L, 2) };
    front_graph(L, "scalar");
    if (!isfinite(attr.value))
        fail(L, "scalar: the default of \"%s\" is %g, not a finite number",
             name, attr.value);
    if (dpc_option_taken(name))
        fail(L, "scalar: \"%s\" is an option of every binary; give it another "
             "name", name);
    attr.doc = intern(front_of(L)->a, luaL_optstring(L, 3, ""));
    if (!*attr.doc)
        attr.doc = NULL;
    lua_pushnil(L);
    leaf_get(L, OP_scalar, name, (Type){ .dtype = F32 }, attr);
    return 1;
}

/* ---- const, random, iota ---- */

typedef struct Data { double *at; int64_t n, cap; Arena *a; } Data;

static void data_put(lua_State *L, Data *d, double x)
{
    if (d->n == CONST_MAX)
        fail(L, "const: more than %d numbers in a table", CONST_MAX);
    if (d->n == d->cap) {
        int64_t cap = d->cap ? 2 * d->cap : 64;
        double *p = alloc(d->a, (size_t)cap * sizeof *p);
        if (d->n)
            memcpy(p, d->at, (size_t)d->n * sizeof *p);
        d->at = p, d->cap = cap;
    }
    d->at[d->n++] = x;
}

/* Numbers of the nested table on top; its sizes into t from dimension d. */
static void data_read(lua_State *L, Data *data, Type *t, int d)
{
    lua_Integer n = luaL_len(L, -1);
    if (d == NDIM || n < 1)
        fail(L, "const: a table %s", n < 1 ? "without numbers" : "too deep");
    if (d == t->ndim)
        t->ndim++, t->dim[d] = n;
    if (t->dim[d] != n)
        fail(L, "const: rows of %lld and of %lld", (long long)t->dim[d], n);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        if (lua_istable(L, -1)) {
            luaL_checkstack(L, 4, "const");
            data_read(L, data, t, d + 1);
        } else if (lua_isnumber(L, -1) && d + 1 >= t->ndim)
            data_put(L, data, lua_tonumber(L, -1));
        else
            fail(L, "const: element %lld is %s", i, luaL_typename(L, -1));
        lua_pop(L, 1);
    }
}

static int leaf_const(lua_State *L)
{
    Arena *a = front_graph(L, "const")->arena;
    bool sized = !lua_isnoneornil(L, 2);
    Type t = { .dtype = F32 };
    Attr attr = { 0 };
    if (sized)
        t = dims_check(L, 2, F32, "const");
    if (lua_istable(L, 1)) {
        Type own = { .dtype = F32 };
        Data data = { .a = a };
        lua_settop(L, 2);
        lua_pushvalue(L, 1);
        data_read(L, &data, &own, 0);
        if (!sized)
            t = own;
        if (type_volume(&t) != data.n)
            fail(L, "const: %lld numbers for %s", (long long)data.n,
                 type_show(L, &t));
        attr.data = data.at, attr.ndata = data.n;
    } else
        attr.value = luaL_checknumber(L, 1);
    value_push(L, node_typed(L, OP_const, &attr, t, NULL));
    return 1;
}

static int leaf_random(lua_State *L)
{
    Front *f = front_of(L);
    const char *dist = luaL_checkstring(L, 1);
    front_graph(L, "random");
    if (strcmp(dist, "uniform") != 0 && strcmp(dist, "normal") != 0)
        fail(L, "random: \"%s\" is neither \"uniform\" nor \"normal\"", dist);
    Attr attr = { .dist = intern(f->a, dist), .id = f->nrandom++ };
    Type t = dims_check(L, 2, F32, "random");
    if (f->draws && strcmp(dist, "normal") == 0) {
        leaf_input_push(L, fmt(f->a, "%s%d", f->draws, f->ndraw++), t);
        return 1;
    }
    value_push(L, node_typed(L, OP_random, &attr, t, NULL));
    return 1;
}

static int leaf_iota(lua_State *L)
{
    front_graph(L, "iota");
    Type t = dims_check(L, 1, F32, "iota");
    Attr attr = { .dim = (int)luaL_optinteger(L, 2, 0) };
    if (attr.dim < 0)
        attr.dim += t.ndim;
    if (attr.dim < 0 || attr.dim >= t.ndim)
        fail(L, "iota: dim %d of %s", attr.dim, type_show(L, &t));
    value_push(L, node_typed(L, OP_iota, &attr, t, NULL));
    return 1;
}

/* ---- grad, set, scope, params, leaf ---- */

static int dpc_grad(lua_State *L)
{
    Ref in[2] = { value_check(L, 1, "grad") };
    const Type *t = &front_of(L)->g->node[in[0]].type;
    if (t->ndim)
        fail(L, "grad: the loss is %s; fold it to one number", type_show(L, t));
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 2);
    lua_newtable(L);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 2, i);
        in[1] = value_check(L, -1, "grad");
        lua_pop(L, 1);
        value_push(L, node_new(L, OP_grad, NULL, in, 2));
        lua_rawseti(L, -2, i);
    }
    return 1;
}

static int dpc_set(lua_State *L)
{
    Ref leaf = value_check(L, 1, "set");
    Graph *g = front_of(L)->g;
    const Node *n = &g->node[leaf];
    if (n->op != OP_param && n->op != OP_state)
        fail(L, "set: \"%s\" is no param or state", n->name);
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == leaf)
            fail(L, "set: \"%s\" is set a second time, after %s", n->name,
                 g->node[g->set[i].value].loc);
    Type t = n->type;
    graph_set(g, leaf, value_fit(L, 2, &t, "set"));
    return 0;
}

static int dpc_scope(lua_State *L)
{
    Front *f = front_of(L);
    const char *outer = f->scope;
    f->scope = lua_isnil(L, 1) ? "" : scoped(f, name_check(L, 1, "scope"));
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_call(L, 0, LUA_MULTRET);
    tap_results(L, 2);
    f->scope = outer;
    return lua_gettop(L) - 1;
}

static bool starts(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return !n || (strncmp(name, prefix, n) == 0 &&
                  (!name[n] || name[n] == '.'));
}

static int dpc_params(lua_State *L)
{
    Front *f = front_of(L);
    const char *prefix = luaL_optstring(L, 1, "");
    Graph *g = front_graph(L, "params");
    lua_Integer n = 0;
    lua_newtable(L);
    for (uint32_t i = 0; i < f->nparam; i++)
        if (starts(g->node[f->param[i]].name, prefix)) {
            value_push(L, f->param[i]);
            lua_rawseti(L, -2, ++n);
        }
    return 1;
}

static int dpc_leaf(lua_State *L)
{
    Front *f = front_of(L);
    const char *name = luaL_checkstring(L, 1);
    front_graph(L, "leaf");
    const UnitLeaf *u = leaf_find(L, name);
    if (!u) {
        const char **have = alloc(f->a, (f->nleaf + 1) * sizeof *have);
        for (uint32_t i = 0; i < f->nleaf; i++)
            have[i] = f->leaf[i].name;
        fail(L, "leaf: no \"%s\" so far%s", name,
             near_hint(name, have, (int)f->nleaf));
    }
    value_push(L, leaf_node(L, u));
    return 1;
}

static int model_fail(lua_State *L)
{
    if (lua_isstring(L, 2))
        fail_at(L, intern(front_of(L)->a, lua_tostring(L, 2)), "%s",
                luaL_checkstring(L, 1));
    fail(L, "%s", luaL_checkstring(L, 1));
}

/* ---- the table ---- */

void leaf_entry(lua_State *L)
{
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, made);
    front_of(L)->nparam = front_of(L)->nmask = 0;
}

void leaf_open(lua_State *L)
{
    static const luaL_Reg own[] = {
        { "input", leaf_input }, { "scalar", leaf_scalar },
        { "const", leaf_const }, { "random", leaf_random },
        { "iota", leaf_iota }, { "grad", dpc_grad }, { "set", dpc_set },
        { "scope", dpc_scope }, { "tap", tap_named }, { "params", dpc_params },
        { "leaf", dpc_leaf }, { "option", option_ask }, { "fail", model_fail },
        { "mask", mask_declare }, { "reached", values_reached },
        { NULL, NULL },
    };
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, index_);
    leaf_entry(L);
    lua_newtable(L);
    luaL_setfuncs(L, own, 0);
    for (Op op = OP_param; op <= OP_state; op++) {
        lua_pushinteger(L, op);
        lua_pushcclosure(L, leaf_kept, 1);
        lua_setfield(L, -2, ops[op].name);
    }
}
