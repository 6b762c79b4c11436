/* lua_error.c -- errors of a model: at the user's line, with its text.
 *
 * An error is a table { loc, text, tail }, raised as any Lua error, so that
 * pcall in a model can catch it.  What escapes becomes an err of the
 * compiler.  The line is the innermost one that the user wrote: frames of
 * dpc's own models/NAME.lua are skipped, and the innermost of those becomes a
 * note. */
#include "compiler/lua_front.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#define ERROR "dpc.error"

static const Source *source_of(const Front *f, const char *name)
{
    for (uint32_t i = 0; i < f->nsource; i++)
        if (strcmp(f->source[i].name, name) == 0)
            return &f->source[i];
    return NULL;
}

/* The innermost lines of the user's and of the library's; "" if none. */
static void stack_lines(lua_State *L, const char **user, const char **lib)
{
    Front *f = front_of(L);
    lua_Debug ar;
    *user = *lib = "";
    for (int i = 0; !**user && lua_getstack(L, i, &ar); i++) {
        lua_getinfo(L, "Sl", &ar);
        const Source *s = ar.currentline < 0 ? NULL
                        : source_of(f, ar.source + 1);
        if (!s || (s->library && **lib))
            continue;
        *(s->library ? lib : user) =
            fmt(f->a, "%s:%d", s->name, ar.currentline);
    }
}

const char *user_loc(lua_State *L)
{
    const char *user, *lib;
    stack_lines(L, &user, &lib);
    Front *f = front_of(L);
    return intern(f->a, *user ? user : *lib ? lib : f->line ? f->line
                  : f->model ? f->model->path : "plan");
}

/* The text of line n of a file, without end; "" if it cannot be read. */
static char *source_line(Arena *a, const char *path, int n)
{
    char line[1024] = "";
    FILE *in = fopen(path, "r");
    while (in && n-- > 0)
        if (!fgets(line, sizeof line, in))
            line[0] = 0;
    if (in)
        fclose(in);
    line[strcspn(line, "\r\n")] = 0;
    for (char *p = line; *p; p++)
        if (*p == '\t')
            *p = ' ';
    return fmt(a, "%s", line);
}

/* "\n    LINE\n    ^~~~" under the word that the text begins with, or under
 * the whole statement. */
static const char *excerpt(Front *f, const char *loc, const char *text)
{
    const char *colon = strrchr(loc, ':');
    if (!colon)
        return "";
    const Source *s = source_of(f, fmt(f->a, "%.*s", (int)(colon - loc), loc));
    char *line = s ? source_line(f->a, s->path, atoi(colon + 1)) : "";
    int size = (int)strlen(line), at = 0, wide;
    while (isspace((unsigned char)line[at]))
        at++;
    if (!line[at] || size > 200)
        return "";
    int n = (int)strcspn(text, ": ");
    const char *word = fmt(f->a, "%.*s", text[n] == ':' ? n : 0, text);
    const char *hit = *word ? strstr(line, word) : NULL;
    wide = hit ? (int)strlen(word) : size - at;
    at = hit ? (int)(hit - line) : at;
    char *mark = fmt(f->a, "%*s^%*s", at, "", wide - 1, "");
    memset(mark + at + 1, '~', (size_t)wide - 1);
    return fmt(f->a, "\n    %s\n    %s", line, mark);
}

static int error_text(lua_State *L)
{
    lua_getfield(L, 1, "loc"), lua_getfield(L, 1, "text");
    lua_pushfstring(L, "%s: %s", luaL_optstring(L, -2, ""),
                    luaL_optstring(L, -1, ""));
    return 1;
}

void error_open(lua_State *L)
{
    luaL_newmetatable(L, ERROR);
    lua_pushcfunction(L, error_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

static void field(lua_State *L, const char *key, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, key);
}

static void error_push(lua_State *L, const char *loc, const char *text,
                       const char *more)
{
    Front *f = front_of(L);
    const char *user, *lib, *tail = excerpt(f, loc, text);
    stack_lines(L, &user, &lib);
    if (*lib && strcmp(lib, loc) != 0)
        tail = fmt(f->a, "%s\n%s: note: here", tail, lib);
    lua_createtable(L, 0, 3);
    field(L, "loc", loc), field(L, "text", text);
    field(L, "tail", fmt(f->a, "%s%s%s", tail, *more ? "\n" : "", more));
    luaL_setmetatable(L, ERROR);
}

_Noreturn static void raise(lua_State *L)
{
    lua_error(L);
    die("lua_error returned");
}

static char *vfmt(Arena *a, const char *f, va_list ap)
{
    char text[2048];
    vsnprintf(text, sizeof text, f, ap);
    return fmt(a, "%s", text);
}

_Noreturn void fail(lua_State *L, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    char *text = vfmt(front_of(L)->a, f, ap);
    va_end(ap);
    error_push(L, user_loc(L), text, "");
    raise(L);
}

_Noreturn void fail_at(lua_State *L, const char *loc, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    char *text = vfmt(front_of(L)->a, f, ap);
    va_end(ap);
    error_push(L, loc, text, "");
    raise(L);
}

_Noreturn void fail_code(lua_State *L, int code, const char *text)
{
    error_push(L, user_loc(L), text, "");
    lua_pushinteger(L, code), lua_setfield(L, -2, "code");
    raise(L);
}

/* "file:3: error: text\nnotes" as err wrote it, taken apart again. */
static void trap_push(lua_State *L, const ErrTrap *t)
{
    Arena *a = front_of(L)->a;
    const char *mark = strstr(t->text, ": error: ");
    const char *text = mark ? mark + 9 : t->text;
    int n = (int)strcspn(text, "\n");
    char *more = fmt(a, "%s", text + n + (text[n] != 0));
    size_t end = strlen(more);
    while (end && more[end - 1] == '\n')
        more[--end] = 0;
    error_push(L, mark ? fmt(a, "%.*s", (int)(mark - t->text), t->text)
               : user_loc(L), fmt(a, "%.*s", n, text), more);
}

static bool trapped(void (*fn)(void *), void *arg, ErrTrap *t)
{
    if (setjmp(t->jump) != 0)
        return true;
    err_push(t);
    fn(arg);
    err_pop();
    return false;
}

void guarded(lua_State *L, void (*fn)(void *), void *arg)
{
    ErrTrap t;
    if (!trapped(fn, arg, &t))
        return;
    trap_push(L, &t);
    raise(L);
}

void guarded_or_close(lua_State *L, void (*fn)(void *), void *arg)
{
    ErrTrap t;
    if (!trapped(fn, arg, &t))
        return;
    trap_push(L, &t);
    error_throw(L);
}

/* "model.lua:3:" that Lua put before a message of its own. */
static const char *without_place(const char *s)
{
    const char *p = strchr(s, ':');
    if (!p || !isdigit((unsigned char)p[1]))
        return s;
    p += 1 + strspn(p + 1, "0123456789");
    return *p == ':' ? p + 1 + strspn(p + 1, " ") : s;
}

/* One of ours, with its place. */
static bool is_error(lua_State *L, int i)
{
    bool is = lua_istable(L, i) && lua_getmetatable(L, i);
    if (!is)
        return false;
    luaL_getmetatable(L, ERROR);
    is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is;
}

/* "[string \"...\"]" and short names are Lua's; ours pass unchanged. */
int error_handler(lua_State *L)
{
    if (is_error(L, 1))
        return 1;
    Arena *a = front_of(L)->a;
    const char *s = lua_tostring(L, 1);
    s = fmt(a, "%s", s ? s : fmt(a, "a %s was raised", luaL_typename(L, 1)));
    error_push(L, user_loc(L), without_place(s), "");
    return 1;
}

/* A syntax error has no stack: its place stands in the text. */
static const char *place_of(Arena *a, const char *s)
{
    return fmt(a, "%.*s", (int)(without_place(s) - s) - 2, s);
}

_Noreturn void error_throw(lua_State *L)
{
    Arena *a = front_of(L)->a;
    const char *loc = "model", *text = "", *tail = "";
    int code = 1;
    if (lua_istable(L, -1)) {
        if (lua_getfield(L, -1, "code") == LUA_TNUMBER)
            code = (int)lua_tointeger(L, -1);
        lua_pop(L, 1);
        lua_getfield(L, -1, "loc"), lua_getfield(L, -2, "text");
        lua_getfield(L, -3, "tail");
        loc = fmt(a, "%s", luaL_optstring(L, -3, "model"));
        text = fmt(a, "%s", luaL_optstring(L, -2, "a table was raised"));
        tail = fmt(a, "%s", luaL_optstring(L, -1, ""));
    } else {
        const char *s = luaL_optstring(L, -1, "an error without text");
        text = fmt(a, "%s", without_place(s));
        if (without_place(s) != s)
            loc = place_of(a, s), tail = excerpt(front_of(L), loc, "");
    }
    lua_close(L);
    err_code(code, loc, "%s%s", text, tail);
}
