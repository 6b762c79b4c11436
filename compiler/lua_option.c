/* lua_option.c -- what a file asks of the command line: -D of a model, -P of a
 * partitioner.  The default gives the type; each option is listed with its
 * text and line, and one that nothing asked for is an error. */
#include "compiler/lua_front.h"
#include <stdlib.h>

void defines_check(const char *flag, const char *const *define, int n)
{
    for (int i = 0; i < n; i++)
        if (!strchr(define[i], '=') || define[i][0] == '=')
            err_code(2, "dpc", "%s %s: NAME=VALUE is wanted", flag, define[i]);
}

static const char *defined(Front *f, const char *name)
{
    size_t n = strlen(name);
    for (int i = f->ndefine - 1; i >= 0; i--)
        if (strncmp(f->define[i], name, n) == 0 && f->define[i][n] == '=') {
            for (int k = 0; k <= i; k++)
                f->used[k] |= strncmp(f->define[k], name, n) == 0 &&
                              f->define[k][n] == '=';
            return f->define[i] + n + 1;
        }
    return NULL;
}

/* Push the text as a value of the type of stack 2. */
static void option_push(lua_State *L, const char *name, const char *text)
{
    static const char *const yes[] = { "true", "yes", "on", "1" };
    static const char *const no[] = { "false", "no", "off", "0" };
    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_pushstring(L, text);
        return;
    }
    if (lua_isnumber(L, 2)) {
        if (!lua_stringtonumber(L, text))
            fail(L, "option: %s %s=%s: a number is wanted",
                 front_of(L)->flag, name, text);
        if (lua_isinteger(L, 2) && !lua_isinteger(L, -1) &&
            lua_tonumber(L, -1) != (double)(int64_t)lua_tonumber(L, -1))
            fail(L, "option: %s %s=%s: a whole number is wanted",
                 front_of(L)->flag, name, text);
        if (lua_isinteger(L, 2))
            lua_pushinteger(L, (lua_Integer)lua_tonumber(L, -1));
        return;
    }
    for (int i = 0; i < COUNT(yes); i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            lua_pushboolean(L, strcmp(text, yes[i]) == 0);
            return;
        }
    fail(L, "option: %s %s=%s: true or false is wanted",
         front_of(L)->flag, name, text);
}

/* The value on top is one that the model takes: stack 4 is the least number,
 * the list of texts, or a function of the value that says what is wrong. */
static void option_check(lua_State *L, const char *name, const char *text)
{
    const char *flag = front_of(L)->flag;
    if (lua_isnumber(L, 4)) {
        if (lua_tonumber(L, -1) < lua_tonumber(L, 4))
            fail(L, "option: %s %s=%s: at least %g is wanted", flag, name,
                 text, lua_tonumber(L, 4));
    } else if (lua_isfunction(L, 4)) {
        lua_pushvalue(L, 4), lua_pushvalue(L, -2);
        lua_call(L, 1, 1);
        if (lua_isstring(L, -1))
            fail(L, "option: %s %s=%s: %s", flag, name, text,
                 lua_tostring(L, -1));
        lua_pop(L, 1);
    } else if (lua_istable(L, 4)) {
        Str all = { .arena = front_of(L)->a };
        for (lua_Integer i = 1; lua_geti(L, 4, i) != LUA_TNIL; i++) {
            if (lua_rawequal(L, -1, -2)) {
                lua_pop(L, 1);
                return;
            }
            str_add(&all, "%s%s", i > 1 ? ", " : "", luaL_tolstring(L, -1,
                                                                    NULL));
            lua_pop(L, 2);
        }
        fail(L, "option: %s %s=%s: one of %s is wanted", flag, name, text,
             all.p ? all.p : "none");
    }
}

int option_ask(lua_State *L)
{
    Front *f = front_of(L);
    lua_settop(L, 4);
    const char *name = name_check(L, 1, "option"), *text = defined(f, name);
    if (lua_type(L, 2) != LUA_TSTRING && !lua_isnumber(L, 2) &&
        !lua_isboolean(L, 2))
        fail(L, "option: \"%s\" needs a default: number, text or boolean",
             name);
    Model *m = f->model;
    const char *doc = luaL_optstring(L, 3, "");
    lua_pushcfunction(L, sandbox_tostring);
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    const char *value = lua_tostring(L, -1);
    uint32_t i = 0;
    while (i < m->noption && strcmp(m->option[i].name, name) != 0)
        i++;
    if (i == m->noption) {
        GROW(f->a, m->option, i, m->optioncap);
        m->option[m->noption++] = (ModelOption){
            name, intern(f->a, value), intern(f->a, doc), user_loc(L) };
    } else if (strcmp(m->option[i].value, value) != 0)
        fail(L, "option: \"%s\" has another default here than at %s", name,
             m->option[i].loc);
    if (text) {
        option_push(L, name, text);
        option_check(L, name, text);
    } else
        lua_pushvalue(L, 2);
    return 1;
}

void options_used(lua_State *L)
{
    Front *f = front_of(L);
    Model *m = f->model;
    for (int i = 0; i < f->ndefine; i++) {
        if (f->used[i])
            continue;
        int n = (int)strcspn(f->define[i], "=");
        const char *name = fmt(f->a, "%.*s", n, f->define[i]);
        const char **have = alloc(f->a, (m->noption + 1) * sizeof *have);
        for (uint32_t k = 0; k < m->noption; k++)
            have[k] = m->option[k].name;
        fail_at(L, m->path, "%s %s: the %s has no option \"%s\"%s",
                f->flag, f->define[i], f->asked, name,
                near_hint(name, have, (int)m->noption));
    }
}
