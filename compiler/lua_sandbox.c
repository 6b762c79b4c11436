/* lua_sandbox.c -- a Lua state that can read text below two folders, and do
 * nothing else.
 *
 * Text chunks only (byte code can corrupt the machine), an environment made
 * from a whitelist, an allocator with a cap, an instruction count that no
 * pcall and no coroutine escapes.  What runs in C beyond the count (patterns,
 * table.move) is bounded by lua_string.c.  Nothing depends on addresses or on
 * the seed of Lua's hashes, so the same model gives the same graph. */
#include "compiler/lua_front.h"
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICK = 10000, FILE_MAX_BYTES = 16 << 20 };

Front *front_of(lua_State *L)
{
    return *(Front **)lua_getextraspace(L);
}

/* ---- memory and time ---- */

static void *capped(void *arg, void *p, size_t old, size_t size)
{
    Front *f = arg;
    size_t held = p ? old : 0;
    if (size > held && f->bytes + (size - held) > f->cap) {
        if (f->state)                     /* looking takes none of Lua's */
            f->starved = user_loc(f->state);
        return NULL;
    }
    f->bytes += size - held;
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

/* Count `n` more instructions; raises for good beyond the limit. */
static void spend(lua_State *L, double n)
{
    Front *f = front_of(L);
    f->steps += n;
    if (f->steps <= f->limit)
        return;
    f->dead = true;
    fail(L, "more than %.4g instructions without an end: an endless loop? "
         "--lua-limit allows more", f->limit);
}

static void hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    spend(L, TICK);
}

/* After a call that catches errors: those of a limit go on. */
static void rethrow(lua_State *L, bool failed)
{
    if (front_of(L)->dead)
        spend(L, 0);
    const char *s = failed && lua_type(L, -1) == LUA_TSTRING
                  ? lua_tostring(L, -1) : "";
    if (strcmp(s, "not enough memory") == 0)
        lua_error(L);
}

static int protected_call(lua_State *L)
{
    Front *f = front_of(L);
    const char *scope = f->scope;
    luaL_checkany(L, 1);
    int rc = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    f->scope = scope;
    rethrow(L, rc != LUA_OK);
    if (rc == LUA_ERRMEM)
        lua_error(L);
    lua_pushboolean(L, rc == LUA_OK);
    lua_insert(L, 1);
    return lua_gettop(L);
}

static int resume(lua_State *L)
{
    int n = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    rethrow(L, !lua_toboolean(L, 1));
    return lua_gettop(L);
}

/* A new coroutine starts its own count: a tick is charged for it. */
static int charged(lua_State *L)
{
    spend(L, TICK);
    int n = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* ---- the environment ---- */

static int set_metatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            fail(L, "setmetatable: __gc is not allowed in a model");
        lua_pop(L, 1);
    }
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        fail(L, "setmetatable: the metatable is protected");
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* Messages of the model for its author: on stderr, stdout is for results. */
static int print(lua_State *L)
{
    for (int i = 1, n = lua_gettop(L); i <= n; i++) {
        lua_pushcfunction(L, sandbox_tostring);
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        fprintf(stderr, "%s%s", i > 1 ? "\t" : "", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    fputc('\n', stderr);
    return 0;
}

/* Copy env[key] = lib[key] for a list of keys; lib on top, env below. */
static void pick(lua_State *L, const char *const *key)
{
    for (; *key; key++) {
        lua_getfield(L, -1, *key);
        lua_setfield(L, -3, *key);
    }
}

static void wrap(lua_State *L, const char *key, lua_CFunction fn)
{
    lua_getfield(L, -1, key);
    lua_pushcclosure(L, fn, 1);
    lua_setfield(L, -2, key);
}

static void library(lua_State *L, const char *name, lua_CFunction open,
                    const char *const *key)
{
    lua_pushcfunction(L, open);
    lua_call(L, 0, 1);
    lua_newtable(L);
    lua_insert(L, -2);
    pick(L, key);
    lua_pop(L, 1);
    lua_setfield(L, -2, name);
}

/* ---- files ---- */

static char *real(Arena *a, const char *path)
{
    char *p = realpath(path, NULL), *s = p ? fmt(a, "%s", p) : NULL;
    free(p);
    return s;
}

static bool below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

const char *sandbox_read(Front *f, const char *path, const char *name,
                         size_t *size)
{
    struct stat st;
    FILE *in = fopen(path, "rb");
    if (!in)
        err(name, "cannot be opened");
    if (fstat(fileno(in), &st) != 0 || !S_ISREG(st.st_mode))
        fclose(in), err(name, "is not a file");
    if (st.st_size > FILE_MAX_BYTES)
        fclose(in), err(name, "has %lld bytes; at most %d are read",
                        (long long)st.st_size, FILE_MAX_BYTES);
    char *text = alloc(f->a, (size_t)st.st_size + 1);
    *size = fread(text, 1, (size_t)st.st_size, in);
    fclose(in);
    return text;
}

typedef struct Read {
    Front *f;
    const char *path, *name, *text;
    size_t size;
} Read;

static void text_read(void *arg)
{
    Read *r = arg;
    r->text = sandbox_read(r->f, r->path, r->name, &r->size);
    if (r->size && r->text[0] == LUA_SIGNATURE[0])
        err(r->name, "is compiled Lua; only text is read");
}

void sandbox_load(lua_State *L, const char *name, const char *path,
                  bool is_library)
{
    Front *f = front_of(L);
    Read r = { .f = f, .path = path, .name = name };
    guarded_or_close(L, text_read, &r);
    GROW(f->a, f->source, f->nsource, f->sourcecap);
    f->source[f->nsource++] = (Source){ name, path, is_library };
    if (luaL_loadbufferx(L, r.text, r.size, fmt(f->a, "@%s", name), "t"))
        error_throw(L);
}

static bool plain_name(const char *s)
{
    return *s && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
                          "WXYZ0123456789_./-")] == 0 &&
           *s != '/' && *s != '.' && !strstr(s, "..");
}

/* DIR/NAME.lua as a real path inside of DIR; NULL. */
static char *lookup(Front *f, const char *dir, const char *name)
{
    char *path = real(f->a, fmt(f->a, "%s/%s.lua", dir, name));
    char *top = real(f->a, dir);
    return path && top && below(path, top) ? path : NULL;
}

/* require "nn": below the file's own folder, then below dpc's models/, or where
 * its partitioners are. */
static int require(lua_State *L)
{
    Front *f = front_of(L);
    char *name = fmt(f->a, "%s", luaL_checkstring(L, 1));
    if (!plain_name(name))
        fail(L, "require: \"%s\" is no module's name", name);
    for (char *p = name; *p; p++)
        if (*p == '.')
            *p = '/';
    char *shown = NULL, *path = lookup(f, f->dir, name);
    const char *models = fmt(f->a, "%s/%s", f->home ? f->home : ".", f->shelf);
    if (path)
        shown = strcmp(f->dir, ".") == 0 ? fmt(f->a, "%s.lua", name)
              : fmt(f->a, "%s/%s.lua", f->dir, name);
    else if (f->home && (path = lookup(f, models, name)))
        shown = fmt(f->a, "%s/%s.lua", f->shelf, name);
    else
        fail(L, "require: no \"%s.lua\" below %s or in dpc's %s/", name,
             f->dir, f->shelf);
    lua_settop(L, 1);
    if (lua_getfield(L, lua_upvalueindex(1), path) == LUA_TTABLE)
        return lua_rawgeti(L, -1, 1), 1;
    if (lua_isboolean(L, -1))
        fail(L, "require: \"%s\" requires itself", name);
    lua_pushboolean(L, true);
    lua_setfield(L, lua_upvalueindex(1), path);
    const char *top = real(f->a, models), *slash = strrchr(path, '/');
    sandbox_load(L, shown, path, top && (size_t)(slash - path) == strlen(top)
                 && below(path, top));
    lua_call(L, 0, 1);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, 1);
    lua_setfield(L, lua_upvalueindex(1), path);
    return 1;
}

/* ---- the state ---- */

static void base(lua_State *L)
{
    static const char *const kept[] = {
        "select", "type", "tonumber", "error", "assert", "ipairs", "rawget",
        "rawset", "rawequal", "rawlen", NULL,
    };
    static const struct luaL_Reg own[] = {
        { "pcall", protected_call }, { "setmetatable", set_metatable },
        { "tostring", sandbox_tostring }, { "print", print }, { NULL, NULL },
    };
    lua_pushcfunction(L, luaopen_base);
    lua_call(L, 0, 1);                    /* the globals themselves */
    lua_newtable(L);
    lua_insert(L, -2);
    pick(L, kept);
    lua_pop(L, 1);
    luaL_setfuncs(L, own, 0);
}

static void libraries(lua_State *L)
{
    static const char *const math[] = {
        "abs", "acos", "asin", "atan", "ceil", "cos", "deg", "exp", "floor",
        "fmod", "huge", "log", "max", "maxinteger", "min", "mininteger",
        "modf", "pi", "rad", "sin", "sqrt", "tan", "tointeger", "type", "ult",
        NULL,
    };
    static const char *const co[] = {
        "create", "isyieldable", "resume", "running", "status", "wrap",
        "yield", NULL,
    };
    library(L, "math", luaopen_math, math);
    library(L, "coroutine", luaopen_coroutine, co);
    lua_getfield(L, -1, "coroutine");
    wrap(L, "create", charged), wrap(L, "wrap", charged);
    wrap(L, "resume", resume);
    lua_pop(L, 1);
}

static int open_all(lua_State *L)
{
    error_open(L);
    base(L);
    libraries(L);
    sandbox_strings(L);
    lua_newtable(L);                      /* modules that were loaded */
    lua_pushcclosure(L, require, 1);
    lua_setfield(L, -2, "require");
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_G");
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    return 0;
}

static int panic(lua_State *L)
{
    die("lua: %s", lua_tostring(L, -1));
}

lua_State *sandbox_new(Front *f)
{
    if (!f->cap)
        f->cap = (size_t)512 << 20;
    if (!(f->limit > 0))
        f->limit = 2e9;
    lua_State *L = lua_newstate(capped, f);
    if (!L)
        err_code(5, "model", "no memory for Lua");
    *(Front **)lua_getextraspace(L) = f;
    f->state = L;
    lua_atpanic(L, panic);
    lua_pushcfunction(L, open_all);
    sandbox_call(L, 0, 0);
    lua_sethook(L, hook, LUA_MASKCOUNT, TICK);
    return L;
}

void sandbox_call(lua_State *L, int nargs, int nresults)
{
    Front *f = front_of(L);
    int at = lua_gettop(L) - nargs;
    lua_pushcfunction(L, error_handler);
    lua_insert(L, at);
    int rc = lua_pcall(L, nargs, nresults, at);
    if (rc == LUA_ERRMEM) {
        const char *path = f->starved ? f->starved
                         : f->model ? f->model->path : "plan";
        size_t cap = f->cap;
        lua_close(L);
        err(path, "the file's Lua needs more than %zu MiB of memory; "
            "--lua-memory allows more", cap >> 20);
    }
    if (rc != LUA_OK)
        error_throw(L);
    lua_remove(L, at);
}
