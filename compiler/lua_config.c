/* lua_config.c -- the JSON file of --config, as the Lua table `dpc.config`.
 *
 * Objects and arrays become tables, null becomes `dpc.null`, and the line of
 * every key is kept beside, so that a model can say where a wrong value
 * stands: `dpc.where(t, key)` is "file.json:12".  RFC 8259, strict. */
#include "compiler/lua_front.h"
#include <ctype.h>
#include <stdlib.h>

enum { DEEPEST = 64 };
static const char lines_[] = "dpc.lines"; /* registry: table -> key -> line;
                                             key 0: the table's own */

typedef struct Parser {
    lua_State *L;
    const char *s, *end, *path;
    int line;
} Parser;

_Noreturn static void bad(Parser *p, const char *what)
{
    const char *loc = fmt(front_of(p->L)->a, "%s:%d", p->path, p->line);
    if (p->s == p->end)
        fail_at(p->L, loc, "json: %s, the file ends here", what);
    fail_at(p->L, loc, "json: %s, this is '%c'", what,
            isprint((unsigned char)*p->s) ? *p->s : '?');
}

static void blanks(Parser *p)
{
    for (; p->s < p->end && strchr(" \t\r\n", *p->s) && *p->s; p->s++)
        p->line += *p->s == '\n';
}

static bool next_is(Parser *p, char c)
{
    blanks(p);
    if (p->s == p->end || *p->s != c)
        return false;
    p->s++;
    return true;
}

/* ---- values ---- */

static uint32_t hex4(Parser *p)
{
    uint32_t x = 0;
    for (int i = 0; i < 4; i++, p->s++) {
        if (p->s == p->end || !isxdigit((unsigned char)*p->s))
            bad(p, "\\u wants four hexadecimal digits");
        int c = tolower((unsigned char)*p->s);
        x = 16 * x + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return x;
}

/* Behind "\u": one code point, a surrogate pair joined; as UTF-8. */
static void put_unicode(Parser *p, luaL_Buffer *b)
{
    uint32_t x = hex4(p);
    if (x >= 0xD800 && x < 0xDC00) {
        if (p->end - p->s < 2 || p->s[0] != '\\' || p->s[1] != 'u')
            bad(p, "half of a surrogate pair");
        p->s += 2;
        uint32_t low = hex4(p);
        if (low < 0xDC00 || low > 0xDFFF)
            bad(p, "half of a surrogate pair");
        x = 0x10000 + ((x - 0xD800) << 10) + (low - 0xDC00);
    }
    if (x < 0x80) {
        luaL_addchar(b, (char)x);
        return;
    }
    int more = x < 0x800 ? 1 : x < 0x10000 ? 2 : 3;
    static const int head[] = { 0, 0xC0, 0xE0, 0xF0 };
    luaL_addchar(b, (char)(head[more] | (int)(x >> (6 * more))));
    while (more--)
        luaL_addchar(b, (char)(0x80 | (int)(x >> (6 * more) & 0x3F)));
}

/* Behind the quote. */
static void push_string(Parser *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    luaL_Buffer b;
    luaL_buffinit(p->L, &b);
    for (;; p->s++) {
        if (p->s == p->end || (unsigned char)*p->s < 32)
            bad(p, "a string without its closing quote");
        if (*p->s == '"')
            break;
        if (*p->s != '\\') {
            luaL_addchar(&b, *p->s);
            continue;
        }
        const char *at = ++p->s < p->end && *p->s ? strchr(from, *p->s) : NULL;
        if (at)
            luaL_addchar(&b, to[at - from]);
        else if (p->s < p->end && *p->s == 'u')
            p->s++, put_unicode(p, &b), p->s--;
        else
            bad(p, "no such escape");
    }
    p->s++;
    luaL_pushresult(&b);
}

static int digits(Parser *p)
{
    const char *from = p->s;
    while (p->s < p->end && isdigit((unsigned char)*p->s))
        p->s++;
    return (int)(p->s - from);
}

static void push_number(Parser *p)
{
    const char *from = p->s;
    bool whole = true;
    p->s += *p->s == '-';
    const char *first = p->s;
    int n = digits(p);
    if (!n || (n > 1 && *first == '0'))
        bad(p, n ? "a number that begins with 0" : "a value is wanted");
    if (p->s < p->end && *p->s == '.') {
        p->s++, whole = false;
        if (!digits(p))
            bad(p, "digits are wanted behind the point");
    }
    if (p->s < p->end && (*p->s == 'e' || *p->s == 'E')) {
        p->s++, whole = false;
        p->s += p->s < p->end && (*p->s == '-' || *p->s == '+');
        if (!digits(p))
            bad(p, "digits are wanted in the exponent");
    }
    const char *text = fmt(front_of(p->L)->a, "%.*s", (int)(p->s - from), from);
    if (whole && n < 19)
        lua_pushinteger(p->L, strtoll(text, NULL, 10));
    else
        lua_pushnumber(p->L, strtod(text, NULL));
}

/* A word at the cursor, passed over. */
static bool word(Parser *p, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(p->end - p->s) < n || memcmp(p->s, w, n) != 0)
        return false;
    p->s += n;
    return true;
}

static void push_value(Parser *p, int deep);

/* Table on top: a table of its lines beside it, now on top. */
static void lines_open(Parser *p)
{
    lua_State *L = p->L;
    lua_rawgetp(L, LUA_REGISTRYINDEX, lines_);
    lua_newtable(L);
    lua_pushvalue(L, -3), lua_pushvalue(L, -2);
    lua_rawset(L, -4);
    lua_remove(L, -2);
    lua_pushinteger(L, p->line);
    lua_rawseti(L, -2, 0);
}

/* Key on top, lines and table below; the key is left. */
static void line_keep(Parser *p)
{
    lua_pushvalue(p->L, -1);
    lua_pushinteger(p->L, p->line);
    lua_rawset(p->L, -4);
}

static void push_object(Parser *p, int deep)
{
    lua_State *L = p->L;
    lua_newtable(L);
    lines_open(p);
    for (int n = 0; !next_is(p, '}'); n++) {
        if (n && !next_is(p, ','))
            bad(p, "',' or '}' is wanted");
        if (!next_is(p, '"'))
            bad(p, "a name in quotes is wanted");
        push_string(p);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -3) != LUA_TNIL)
            fail_at(L, fmt(front_of(L)->a, "%s:%d", p->path, p->line),
                    "\"%s\" stands twice; first in line %lld",
                    lua_tostring(L, -2), lua_tointeger(L, -1));
        lua_pop(L, 1);
        line_keep(p);
        if (!next_is(p, ':'))
            bad(p, "':' is wanted");
        push_value(p, deep);
        lua_rawset(L, -4);
    }
    lua_pop(L, 1);
}

static void push_array(Parser *p, int deep)
{
    lua_State *L = p->L;
    lua_newtable(L);
    lines_open(p);
    for (lua_Integer n = 1; !next_is(p, ']'); n++) {
        if (n > 1 && !next_is(p, ','))
            bad(p, "',' or ']' is wanted");
        blanks(p);
        lua_pushinteger(L, n);
        line_keep(p);
        push_value(p, deep);
        lua_rawset(L, -4);
    }
    lua_pop(L, 1);
}

static void push_value(Parser *p, int deep)
{
    if (deep == DEEPEST)
        bad(p, "more than 64 levels");
    luaL_checkstack(p->L, 12, "json");
    if (next_is(p, '{'))
        push_object(p, deep + 1);
    else if (next_is(p, '['))
        push_array(p, deep + 1);
    else if (next_is(p, '"'))
        push_string(p);
    else if (p->s == p->end)
        bad(p, "a value is wanted");
    else if (word(p, "true") || word(p, "false"))
        lua_pushboolean(p->L, p->s[-2] == 'u');
    else if (word(p, "null"))
        lua_pushlightuserdata(p->L, NULL);
    else
        push_number(p);
}

/* ---- the table dpc ---- */

/* dpc.where(t, key): "file.json:12", of the key, or of the table where it has
 * none; nil for a table that is no part of a config. */
static int where(lua_State *L)
{
    Front *f = front_of(L);
    lua_settop(L, 2);
    lua_rawgetp(L, LUA_REGISTRYINDEX, lines_);
    lua_pushvalue(L, 1);
    if (!lua_istable(L, 1) || lua_rawget(L, -2) != LUA_TTABLE)
        return 0;
    if (!lua_isnil(L, 2)) {
        lua_pushvalue(L, 2);
        lua_rawget(L, -2);
    }
    if (!lua_isinteger(L, -1)) {
        lua_settop(L, 4);
        lua_rawgeti(L, -1, 0);
    }
    lua_pushstring(L, fmt(f->a, "%s:%lld", f->config, lua_tointeger(L, -1)));
    return 1;
}

/* dpc.near(word, list): of a list of names the one that was meant, or nil. */
static int near(lua_State *L)
{
    Front *f = front_of(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 2);
    const char **have = alloc(f->a, (size_t)(n + 1) * sizeof *have);
    for (lua_Integer i = 0; i < n; i++) {
        lua_geti(L, 2, i + 1);
        have[i] = intern(f->a, luaL_checkstring(L, -1));
        lua_pop(L, 1);
    }
    lua_pushstring(L, near_name(luaL_checkstring(L, 1), have, (int)n));
    return 1;
}

/* dpc.config: read when the model first asks; nil without --config. */
static int lookup(lua_State *L)
{
    Front *f = front_of(L);
    size_t size;
    const char *key = luaL_optstring(L, 2, "");
    if (strcmp(key, "config") != 0 || !f->config)
        return 0;
    f->config_read = true;
    const char *text = sandbox_read(f, f->config, f->config, &size);
    Parser p = { L, text, text + size, f->config, 1 };
    GROW(f->a, f->source, f->nsource, f->sourcecap);
    f->source[f->nsource++] = (Source){ f->config, f->config, false };
    blanks(&p);
    if (p.s == p.end || *p.s != '{')
        bad(&p, "an object { \"key\": value } is wanted");
    push_value(&p, 0);
    blanks(&p);
    if (p.s != p.end)
        bad(&p, "one value is wanted");
    lua_pushvalue(L, -1);
    lua_setfield(L, 1, "config");
    return 1;
}

void config_open(lua_State *L)
{
    static const luaL_Reg own[] = {
        { "where", where }, { "near", near }, { NULL, NULL },
    };
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, lines_);
    luaL_setfuncs(L, own, 0);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    lua_newtable(L);
    lua_pushcfunction(L, lookup);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}
