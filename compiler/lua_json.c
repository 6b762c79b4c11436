/* lua_json.c -- a Lua table as JSON: keys sorted, lists where the keys are
 * 1..n.  An empty table is {}. */
#include "compiler/lua_front.h"
#include <math.h>
#include <stdlib.h>

enum { DEEPEST = 64 };
typedef struct Text { char *s; uint32_t n, cap; Arena *a; } Text;

static void put(Text *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        GROW(t->a, t->s, t->n, t->cap);
        t->s[t->n++] = s[i];
    }
}

static void put_text(Text *t, const char *s)
{
    put(t, s, strlen(s));
}

static void put_string(Text *t, const char *s, size_t n)
{
    put_text(t, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            put(t, "\\", 1), put(t, s + i, 1);
        else if (c == '\n')
            put_text(t, "\\n");
        else if (c < 32)
            put_text(t, fmt(t->a, "\\u%04x", c));
        else
            put(t, s + i, 1);
    }
    put_text(t, "\"");
}

/* The shortest decimal that reads back as x. */
static const char *number(lua_State *L, Arena *a, double x)
{
    if (!isfinite(x))
        fail(L, "meta: %g has no JSON", x);
    for (int digits = 1; digits < 17; digits++) {
        const char *s = fmt(a, "%.*g", digits, x);
        if (strtod(s, NULL) == x)
            return s;
    }
    return fmt(a, "%.17g", x);
}

static void put_value(lua_State *L, Text *t, int deep);

static void put_list(lua_State *L, Text *t, int deep)
{
    lua_Integer n = luaL_len(L, -1);
    put_text(t, "[");
    for (lua_Integer i = 1; i <= n; i++) {
        put_text(t, i > 1 ? "," : "");
        lua_rawgeti(L, -1, i);
        put_value(L, t, deep);
        lua_pop(L, 1);
    }
    put_text(t, "]");
}

/* pairs of the sandbox gives the order. */
static void put_table(lua_State *L, Text *t, int deep)
{
    int n = 0;
    put_text(t, "{");
    lua_getglobal(L, "pairs");
    lua_pushvalue(L, -2);
    lua_call(L, 1, 1);
    for (;; lua_pop(L, 2)) {
        lua_pushvalue(L, -1);
        lua_call(L, 0, 2);
        if (lua_isnil(L, -2))
            break;
        if (lua_type(L, -2) != LUA_TSTRING)
            fail(L, "meta: a table with names and with numbers as keys");
        size_t size;
        const char *key = lua_tolstring(L, -2, &size);
        put_text(t, n++ ? "," : "");
        put_string(t, key, size);
        put_text(t, ":");
        put_value(L, t, deep);
    }
    lua_pop(L, 3);
    put_text(t, "}");
}

static void put_value(lua_State *L, Text *t, int deep)
{
    size_t n;
    if (deep == DEEPEST)
        fail(L, "meta: tables more than %d deep", DEEPEST);
    luaL_checkstack(L, 12, "meta");
    switch (lua_type(L, -1)) {
    case LUA_TTABLE:
        if (luaL_len(L, -1) > 0)
            put_list(L, t, deep + 1);
        else
            put_table(L, t, deep + 1);
        break;
    case LUA_TNUMBER:
        put_text(t, lua_isinteger(L, -1)
                 ? fmt(t->a, "%lld", (long long)lua_tointeger(L, -1))
                 : number(L, t->a, lua_tonumber(L, -1)));
        break;
    case LUA_TBOOLEAN:
        put_text(t, lua_toboolean(L, -1) ? "true" : "false");
        break;
    case LUA_TSTRING: {
        const char *s = lua_tolstring(L, -1, &n);
        put_string(t, s, n);
        break;
    }
    default:
        fail(L, "meta: a %s has no JSON", luaL_typename(L, -1));
    }
}

const char *json_text(lua_State *L, int i, Arena *a)
{
    Text t = { .a = a };
    lua_pushvalue(L, i);
    put_value(L, &t, 0);
    lua_pop(L, 1);
    put(&t, "", 1);
    return t.s;
}
