/* lua_string.c -- string, table and pairs for models: bounded, ordered.
 *
 * The instruction count does not see loops inside of C.  So what such a loop
 * walks over is bounded: lengths of tables, repetitions of a pattern against
 * the length of its subject (a match tries at most length^repetitions
 * places), bytes of a result.  pairs walks in the order of the keys, since
 * Lua's own order depends on a random seed. */
#include "compiler/lua_front.h"
#include <math.h>
#include <stdlib.h>

enum { LONGEST = 10000000, RESULT = 16 << 20 };
static const double MATCHES = 1e9;

/* Call the function kept as upvalue 1 with the arguments as they are. */
static int forward(lua_State *L)
{
    int n = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* tostring without addresses: what has no text of its own is its type. */
int sandbox_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    int t = lua_type(L, 1);
    bool plain = t == LUA_TNIL || t == LUA_TBOOLEAN || t == LUA_TNUMBER ||
                 t == LUA_TSTRING;
    if (plain || luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
        luaL_tolstring(L, 1, NULL);
        return 1;
    }
    lua_pushstring(L, lua_typename(L, t));
    return 1;
}

static int string_rep(lua_State *L)
{
    size_t size, sep = 0;
    luaL_checklstring(L, 1, &size);
    lua_Integer n = luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &sep);
    if (n > 0 && (double)n * (double)(size + sep) > RESULT)
        fail(L, "rep: the result has more than %d bytes", RESULT);
    return forward(L);
}

static int string_format(lua_State *L)
{
    const char *s = luaL_checkstring(L, 1);
    for (; *s; s++) {
        if (*s != '%')
            continue;
        s += 1 + strspn(s + 1, "-+ #0123456789.");
        if (*s == 'p')
            fail(L, "format: %%p shows an address, which differs every run");
        if (!*s)
            break;
    }
    for (int i = 2, n = lua_gettop(L); i <= n; i++)
        if (!lua_isnil(L, i) && !lua_isstring(L, i) && !lua_isboolean(L, i)) {
            lua_pushcfunction(L, sandbox_tostring);
            lua_pushvalue(L, i);
            lua_call(L, 1, 1);
            lua_replace(L, i);
        }
    return forward(L);
}

/* find, match, gmatch, gsub */
static int string_match(lua_State *L)
{
    size_t size, length;
    luaL_checklstring(L, 1, &size);
    const char *p = luaL_checklstring(L, 2, &length);
    int many = *p != '^';
    for (size_t i = 0; i < length; i++)
        many += strchr("*+-?", p[i]) != NULL || p[i] == 'b';
    if (pow((double)size + 1, many) * ((double)length + 1) > MATCHES * 100 ||
        size > RESULT)
        fail(L, "\"%s\": a text of %zu bytes is too long for a pattern with "
             "%d repetitions", p, size, many - (*p != '^'));
    return forward(L);
}

/* Functions that loop over a table: its length, and numbers given. */
static int table_bounded(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    bool large = luaL_len(L, 1) > LONGEST;
    int top = lua_toboolean(L, lua_upvalueindex(2)) ? lua_gettop(L) : 0;
    for (int i = 2; i <= top && i <= 4; i++)
        large |= lua_isnumber(L, i) && fabs(lua_tonumber(L, i)) > LONGEST;
    if (large)
        fail(L, "a table of more than %d elements", LONGEST);
    return forward(L);
}

/* ---- pairs in the order of the keys ---- */

typedef struct Key { double num; const char *s; size_t n; int kind; } Key;

static int key_order(const void *pa, const void *pb)
{
    const Key *a = pa, *b = pb;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    if (!a->s)
        return (a->num > b->num) - (a->num < b->num);
    size_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->s, b->s, n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

/* The key on top. */
static Key key_of(lua_State *L)
{
    Key k = { .kind = lua_type(L, -1) };
    if (k.kind == LUA_TNUMBER)
        k.kind = -1, k.num = lua_tonumber(L, -1);
    else if (k.kind == LUA_TSTRING)
        k.s = lua_tolstring(L, -1, &k.n);
    else if (k.kind == LUA_TBOOLEAN)
        k.num = lua_toboolean(L, -1), k.kind = LUA_TSTRING + 100;
    else
        fail(L, "pairs: a %s as key has no order", luaL_typename(L, -1));
    return k;
}

/* upvalues: table, keys, index */
static int pairs_next(lua_State *L)
{
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(3));
    for (;;) {
        lua_settop(L, 0);
        if (lua_rawgeti(L, lua_upvalueindex(2), ++i) == LUA_TNIL)
            return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
            break;
    }
    lua_pushinteger(L, i);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
}

static void key_push(lua_State *L, const Key *k)
{
    if (k->s)
        lua_pushlstring(L, k->s, k->n);
    else if (k->kind > LUA_TSTRING)
        lua_pushboolean(L, k->num != 0);
    else if (k->num == floor(k->num) && fabs(k->num) < 9e15)
        lua_pushinteger(L, (lua_Integer)k->num);
    else
        lua_pushnumber(L, k->num);
}

static int pairs(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (luaL_callmeta(L, 1, "__pairs"))   /* gives the table to walk over */
        lua_replace(L, 1);
    lua_Integer n = 0, i = 0;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1))
        n++;
    Key *key = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *key, 0);
    lua_pushnil(L);
    for (; i < n && lua_next(L, 1); i++) {
        lua_pop(L, 1);
        key[i] = key_of(L);
    }
    qsort(key, (size_t)n, sizeof *key, key_order);
    lua_settop(L, 2);
    lua_pushvalue(L, 1);
    lua_createtable(L, (int)n, 0);
    for (i = 0; i < n; i++) {
        key_push(L, &key[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_next, 3);
    return 1;
}

/* ---- the tables ---- */

typedef struct Bound { const char *key; lua_CFunction fn; bool numbers; } Bound;

static void library(lua_State *L, const char *name, lua_CFunction open,
                    const Bound *b, int n)
{
    lua_pushcfunction(L, open);
    lua_call(L, 0, 1);
    lua_createtable(L, 0, n);
    for (int i = 0; i < n; i++) {
        lua_getfield(L, -2, b[i].key);
        if (b[i].fn) {
            lua_pushboolean(L, b[i].numbers);
            lua_pushcclosure(L, b[i].fn, 2);
        }
        lua_setfield(L, -2, b[i].key);
    }
    lua_setfield(L, -3, name);
    lua_pop(L, 1);
}

/* Methods on strings are the bounded ones, and nobody can change that. */
static void string_methods(lua_State *L)
{
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 2);
    lua_getfield(L, -3, "string");
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

void sandbox_strings(lua_State *L)
{
    static const Bound text[] = {
        { "byte", NULL, 0 }, { "char", NULL, 0 }, { "len", NULL, 0 },
        { "lower", NULL, 0 }, { "upper", NULL, 0 }, { "reverse", NULL, 0 },
        { "sub", NULL, 0 }, { "rep", string_rep, 0 },
        { "format", string_format, 0 }, { "find", string_match, 0 },
        { "match", string_match, 0 }, { "gmatch", string_match, 0 },
        { "gsub", string_match, 0 },
    };
    static const Bound list[] = {
        { "concat", table_bounded, true }, { "insert", table_bounded, false },
        { "move", table_bounded, true }, { "pack", NULL, 0 },
        { "remove", table_bounded, false }, { "sort", table_bounded, false },
        { "unpack", table_bounded, true },
    };
    library(L, "string", luaopen_string, text, COUNT(text));
    library(L, "table", luaopen_table, list, COUNT(list));
    string_methods(L);
    lua_pushcfunction(L, pairs);
    lua_setfield(L, -2, "pairs");
}
