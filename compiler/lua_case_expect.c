/* lua_case_expect.c -- what a case expects: numbers, digests, groups of them,
 * docs/parity.md. */
#include "compiler/lua_case.h"
#include <math.h>
#include <stdlib.h>

/* Half a unit of the last digit of "-1.25e-3"; 0 for whole numbers. */
static double half_unit(const char *s)
{
    const char *point = strchr(s, '.'), *e = strpbrk(s, "eE");
    if (!point)
        return 0;
    int digits = (int)strspn(point + 1, "0123456789");
    return 0.5 * pow(10, (e ? atoi(e + 1) : 0) - digits);
}

/* A number, or a text that keeps its last zeros; on top, popped. */
static double value_pop(lua_State *L, const Reading *r, const char *what,
                        double *half)
{
    char text[32], *end;
    const char *s = text;
    if (lua_type(L, -1) == LUA_TSTRING)
        s = lua_tostring(L, -1);
    else if (lua_type(L, -1) == LUA_TNUMBER)
        num_text(text, lua_tonumber(L, -1));
    else
        WRONG(L, r, what, "expect: %s: a number is wanted, this is a %s",
              what, luaL_typename(L, -1));
    double x = strtod(s, &end);
    if (*end || !isfinite(x))
        WRONG(L, r, what, "expect: %s: \"%s\" is no number", what, s);
    *half = half_unit(s);
    lua_pop(L, 1);
    return x;
}

/* The number on top is wanted of `of`; popped. */
static void want_pop(lua_State *L, const Reading *r, Want w)
{
    Case *c = r->c;
    w.value = value_pop(L, r, w.text, &w.half);
    w.f32 = w.value;
    GROW(r->f->a, c->want, c->nwant, c->wantcap);
    c->want[c->nwant++] = w;
}

static const char *const groups[] = { "grads", "input_grads", "norm",
                                      "leaves" };

/* The table on top holds nothing of a digest: was a group meant? */
static void group_meant(lua_State *L, const Reading *r, const char *of,
                        const char *const *known, int n)
{
    const char *near = near_name(of, groups, COUNT(groups));
    bool digest = false;
    for (int k = 0; k < n; k++) {
        digest |= lua_getfield(L, -1, known[k]) != LUA_TNIL;
        lua_pop(L, 1);
    }
    if (near && !digest)
        WRONG(L, r, of, "expect has no \"%s\"; did you mean \"%s\"?", of, near);
}

/* { sum =, abs =, first = {...}, last = } of out `of`; on top. */
static void digest_read(lua_State *L, const Reading *r, const char *of,
                        int step, const char *at)
{
    static const char *const known[] = { "sum", "abs", "first", "last" };
    static const WantKind kind[] = { WANT_SUM, WANT_ABS, 0, WANT_ELEMENT };
    Arena *a = r->f->a;
    int top = lua_gettop(L);
    group_meant(L, r, of, known, 4);
    case_keys(L, r, top, fmt(a, "expect: \"%s\"", of), false, known, 4);
    for (int k = 0; k < 4; k++) {
        Want w = { kind[k], of, fmt(a, "%s%s.%s", at, of, known[k]), -1,
                   step, 0, 0, 0 };
        int t = lua_getfield(L, top, known[k]);
        if (t == LUA_TNIL || k == 2)
            lua_pop(L, 1);
        else
            want_pop(L, r, w);
    }
    if (!case_table(L, r, top, "first"))
        return;
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        want_pop(L, r, (Want){ WANT_ELEMENT, of, fmt(a, "%s%s[%lld]", at, of,
                 i - 1), i - 1, step, 0, 0, 0 });
    }
    lua_pop(L, 1);
}

/* One member of an `expect`: a number or a digest; on top, popped. */
static void member_read(lua_State *L, const Reading *r, const char *of,
                        WantKind kind, int step, const char *at)
{
    if (!lua_istable(L, -1)) {
        want_pop(L, r, (Want){ kind, of, fmt(r->f->a, "%s%s", at, of), 0, step,
                 0, 0, 0 });
        return;
    }
    digest_read(L, r, of, step, at);
    lua_pop(L, 1);
}

/* grads, input_grads, norm, leaves: names below a word; on top. */
static void group_read(lua_State *L, const Reading *r, const char *group,
                       int step, const char *at)
{
    uint32_t n;
    const char **name = case_names(L, r, -1, group, &n);
    for (uint32_t i = 0; i < n; i++) {
        lua_getfield(L, -1, name[i]);
        member_read(L, r, intern(r->f->a, fmt(r->f->a, "%s.%s", group,
                    name[i])), WANT_NORM, step, at);
    }
}

static void steps_read(lua_State *L, const Reading *r)
{
    lua_Integer n = luaL_len(L, -1);
    if (n > r->c->steps)
        WRONG(L, r, "expect", "expect: %lld steps; the case runs %d", n,
              r->c->steps);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_geti(L, -1, i) != LUA_TTABLE)
            WRONG(L, r, "expect", "expect: steps: a list of tables is wanted");
        case_expect(L, r, (int)i - 1, fmt(r->f->a, "step %lld: ", i - 1));
        lua_pop(L, 1);
    }
}

static bool is_count(const char *name)
{
    return strcmp(name, "params") == 0 || strcmp(name, "trainable") == 0;
}

static bool is_norm(const char *name)
{
    return strcmp(name, "gradL2") == 0 || strstr(name, "norm");
}

void case_expect(lua_State *L, const Reading *r, int step, const char *at)
{
    uint32_t n;
    const char **name = case_names(L, r, -1, "expect", &n);
    for (uint32_t i = 0; i < n; i++) {
        bool grouped = false;
        lua_getfield(L, -1, name[i]);
        for (int k = 0; k < COUNT(groups); k++)
            grouped |= strcmp(name[i], groups[k]) == 0;
        if (grouped || strcmp(name[i], "steps") == 0) {
            if (!lua_istable(L, -1))
                WRONG(L, r, name[i], "expect: %s: a table is wanted, this is "
                      "a %s", name[i], luaL_typename(L, -1));
            if (grouped)
                group_read(L, r, name[i], step, at);
            else
                steps_read(L, r);
            lua_pop(L, 1);
            continue;
        }
        member_read(L, r, name[i], is_count(name[i]) ? WANT_COUNT
                    : is_norm(name[i]) ? WANT_NORM : WANT_LOSS, step, at);
        r->c->mse |= strcmp(name[i], "mse") == 0;
    }
}

void case_expect_f32(lua_State *L, const Reading *r)
{
    Case *c = r->c;
    uint32_t n;
    double half;
    if (!case_table(L, r, lua_gettop(L), "expect_f32"))
        return;
    const char **name = case_names(L, r, -1, "expect_f32", &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < c->nwant && strcmp(c->want[k].text, name[i]) != 0)
            k++;
        if (k == c->nwant)
            WRONG(L, r, "expect_f32", "expect_f32: \"%s\" is not in expect",
                  name[i]);
        lua_getfield(L, -1, name[i]);
        c->want[k].f32 = value_pop(L, r, name[i], &half);
    }
    lua_pop(L, 1);
}
