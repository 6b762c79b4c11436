/* lua_case.c -- reads a case file: a list of cases, docs/parity.md.
 *
 * Tables of Lua have no lines, so an error's line is looked up in the text:
 * the case's name in quotes, then the word from there on. */
#include "compiler/lua_case.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

/* ---- where a word stands ---- */

static bool word_in(const char *line, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = line; (p = strstr(p, word)); p++)
        if ((p == line || (!isalnum((unsigned char)p[-1]) && p[-1] != '_')) &&
            !isalnum((unsigned char)p[n]) && p[n] != '_')
            return true;
    return false;
}

const char *case_place(Arena *a, const char *path, const char *name,
                       const char *word)
{
    const char *quoted = fmt(a, "\"%s\"", name), *found = NULL;
    char *line = NULL;
    size_t size = 0;
    FILE *in = fopen(path, "r");
    bool inside = !*name, hit = false;
    for (int n = 1; in && !hit && getline(&line, &size, in) >= 0; n++) {
        bool start = !inside && strstr(line, quoted);
        if (inside && *name && word_in(line, "name"))
            break;                        /* of the next case */
        inside |= start;
        hit = inside && (!word || word_in(line, word));
        if (start || hit)
            found = fmt(a, "%s:%d", path, n);
    }
    free(line);
    if (in)
        fclose(in);
    return found ? found : path;
}

void case_keys(lua_State *L, const Reading *r, int i, const char *what,
               bool list, const char *const *known, int n)
{
    i = lua_absindex(L, i);
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TNUMBER && list)
            continue;
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "1";
        int k = 0;
        while (k < n && strcmp(known[k], key) != 0)
            k++;
        if (k < n)
            continue;
        const char *near = near_name(key, known, n);
        WRONG(L, r, key, "%s has no key \"%s\"%s%s%s", what, key,
              near ? "; did you mean \"" : "; see docs/parity.md",
              near ? near : "", near ? "\"?" : "");
    }
}

static const char *text_get(lua_State *L, const Reading *r, int i,
                            const char *key)
{
    const char *s = NULL;
    int t = lua_getfield(L, i, key);
    if (t != LUA_TNIL && t != LUA_TSTRING)
        WRONG(L, r, key, "%s: a text is wanted, this is a %s", key,
              lua_typename(L, t));
    if (t == LUA_TSTRING)
        s = intern(r->f->a, lua_tostring(L, -1));
    lua_pop(L, 1);
    return s;
}

static double number_get(lua_State *L, const Reading *r, int i,
                         const char *key, double otherwise)
{
    double x = otherwise;
    int t = lua_getfield(L, i, key);
    if (t != LUA_TNIL && t != LUA_TNUMBER)
        WRONG(L, r, key, "%s: a number is wanted, this is a %s", key,
              lua_typename(L, t));
    if (t == LUA_TNUMBER)
        x = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return x;
}

const char **case_names(lua_State *L, const Reading *r, int i,
                        const char *what, uint32_t *n)
{
    const char **name = NULL;
    uint32_t cap = 0;
    i = lua_absindex(L, i);
    *n = 0;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            WRONG(L, r, what, "%s: a %s as key; names are wanted", what,
                  luaL_typename(L, -2));
        GROW(r->f->a, name, *n, cap);
        uint32_t at = (*n)++;
        const char *s = intern(r->f->a, lua_tostring(L, -2));
        for (; at && strcmp(name[at - 1], s) > 0; at--)
            name[at] = name[at - 1];
        name[at] = s;
    }
    return name;
}

bool case_table(lua_State *L, const Reading *r, int i, const char *key)
{
    int t = lua_getfield(L, i, key);
    if (t != LUA_TNIL && t != LUA_TTABLE)
        WRONG(L, r, key, "%s: a table is wanted, this is a %s", key,
              lua_typename(L, t));
    if (t == LUA_TNIL)
        lua_pop(L, 1);
    return t == LUA_TTABLE;
}

/* ---- how a tensor is filled ---- */

typedef struct Numbers { double *at; uint32_t n, cap; } Numbers;

/* i32 holds whole numbers only. */
static void whole_check(lua_State *L, const Reading *r, const char *what,
                        double x)
{
    if (x != floor(x) || fabs(x) > INT32_MAX)
        WRONG(L, r, what, "%s: %.17g is no i32; for f32 there is values", what,
              x);
}

/* All numbers of nested lists, in order; on top. */
static void numbers_add(lua_State *L, const Reading *r, Numbers *x,
                        const char *what)
{
    lua_Integer n = luaL_len(L, -1);
    luaL_checkstack(L, 4, what);
    for (lua_Integer i = 1; i <= n; i++) {
        int t = lua_geti(L, -1, i);
        if (t == LUA_TTABLE)
            numbers_add(L, r, x, what);
        else if (t == LUA_TNUMBER) {
            GROW(r->f->a, x->at, x->n, x->cap);
            x->at[x->n++] = lua_tonumber(L, -1);
            if (strcmp(what, "values") != 0)
                whole_check(L, r, what, lua_tonumber(L, -1));
        } else
            WRONG(L, r, what, "%s: element %lld is a %s", what, i,
                  lua_typename(L, t));
        lua_pop(L, 1);
    }
}

/* A list, the same at each step, or a function of the step; on top. */
static void given_read(lua_State *L, const Reading *r, Spec *s,
                       const char *what)
{
    int steps = r->c->steps;
    s->given = alloc(r->f->a, (size_t)steps * sizeof *s->given);
    for (int k = 0; k < steps; k++) {
        Numbers x = { 0 };
        lua_pushvalue(L, -1);
        if (lua_isfunction(L, -1)) {
            lua_pushinteger(L, k);
            lua_call(L, 1, 1);
        }
        if (!lua_istable(L, -1))
            WRONG(L, r, what, "%s: a list of numbers is wanted, this is a %s",
                  what, luaL_typename(L, -1));
        numbers_add(L, r, &x, what);
        if (k && (int64_t)x.n != s->ngiven)
            WRONG(L, r, what, "%s: %u numbers at step %d, %lld before it",
                  what, x.n, k, (long long)s->ngiven);
        s->given[k] = x.at, s->ngiven = x.n;
        lua_pop(L, 1);
    }
}

/* zero = {{0, 3}, {1, 2}}: leading indices; on top. */
static void zero_read(lua_State *L, const Reading *r, Spec *s)
{
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
        Numbers x = { 0 };
        if (lua_geti(L, -1, i) != LUA_TTABLE)
            WRONG(L, r, "zero", "zero: a list of lists of indices is wanted");
        numbers_add(L, r, &x, "zero");
        lua_pop(L, 1);
        if (x.n > NDIM)
            WRONG(L, r, "zero", "zero: %u indices; at most %d", x.n, NDIM);
        GROW(r->f->a, s->zero, s->nzero, s->zerocap);
        for (uint32_t d = 0; d < NDIM; d++)
            s->zero[s->nzero][d] = d < x.n ? (int64_t)x.at[d] : -1;
        s->nzero++;
    }
}

/* The spec of the table at i; `name` fills it unless it says otherwise. */
static Spec spec_read(lua_State *L, const Reading *r, int i, const char *name,
                      bool *whole)
{
    static const char *const known[] = { "fill", "scale", "add", "ints",
                                         "values", "zero", "l2norm" };
    Spec s = { .scale = number_get(L, r, i, "scale", 1),
               .add = number_get(L, r, i, "add", 0) };
    case_keys(L, r, i, fmt(r->f->a, "\"%s\"", name), true, known,
               COUNT(known));
    s.fill = text_get(L, r, i, "fill");
    s.fill = s.fill ? s.fill : name;
    lua_getfield(L, i, "l2norm");
    s.unit = lua_toboolean(L, -1);
    lua_getfield(L, i, "ints");
    *whole = !lua_isnil(L, -1);
    if (lua_isinteger(L, -1)) {
        s.below = lua_tointeger(L, -1);
        if (s.below < 1)
            WRONG(L, r, "ints", "ints: %lld; numbers below it are meant: at "
                  "least 1 is wanted", (long long)s.below);
    } else if (*whole)
        given_read(L, r, &s, "ints");
    lua_getfield(L, i, "values");
    if (!lua_isnil(L, -1) && *whole)
        WRONG(L, r, "values", "\"%s\" has ints and values; one is wanted",
              name);
    if (!lua_isnil(L, -1))
        given_read(L, r, &s, "values");
    lua_pop(L, 3);
    if (case_table(L, r, i, "zero")) {
        zero_read(L, r, &s);
        lua_pop(L, 1);
    }
    return s;
}

/* What is given, and what is zero, must be there. */
static void spec_check(lua_State *L, const Reading *r, const CaseInput *in)
{
    const Spec *s = &in->spec;
    int64_t n = type_volume(&in->type);
    if (s->given && s->ngiven != n)
        WRONG(L, r, in->name, "input \"%s\": %lld numbers for %s", in->name,
              (long long)s->ngiven, type_show(L, &in->type));
    for (uint32_t i = 0; i < s->nzero; i++)
        for (int d = 0; d < NDIM && s->zero[i][d] >= 0; d++)
            if (d >= in->type.ndim || s->zero[i][d] >= in->type.dim[d])
                WRONG(L, r, in->name, "input \"%s\": zero: index %lld of "
                      "dimension %d of %s", in->name, (long long)
                      s->zero[i][d], d, type_show(L, &in->type));
}

static void inputs_read(lua_State *L, const Reading *r)
{
    Case *c = r->c;
    uint32_t n;
    if (!case_table(L, r, lua_gettop(L), "inputs"))
        return;
    const char **name = case_names(L, r, -1, "inputs", &n);
    for (uint32_t i = 0; i < n; i++) {
        CaseInput in = { .name = name[i] };
        bool whole;
        if (lua_getfield(L, -1, name[i]) != LUA_TTABLE)
            WRONG(L, r, name[i], "input \"%s\": a table of sizes is wanted, "
                  "this is a %s", name[i], luaL_typename(L, -1));
        in.spec = spec_read(L, r, lua_gettop(L), name[i], &whole);
        r->f->line = case_place(r->f->a, r->file->path, c->name, name[i]);
        in.type = dims_check(L, lua_gettop(L), whole ? I32 : F32,
                             fmt(r->f->a, "input \"%s\"", name[i]));
        r->f->line = NULL;
        spec_check(L, r, &in);
        GROW(r->f->a, c->input, c->ninput, c->inputcap);
        c->input[c->ninput++] = in;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void leaves_read(lua_State *L, const Reading *r)
{
    Case *c = r->c;
    uint32_t n;
    if (!case_table(L, r, lua_gettop(L), "leaves"))
        return;
    const char **name = case_names(L, r, -1, "leaves", &n);
    for (uint32_t i = 0; i < n; i++) {
        bool whole;
        if (lua_getfield(L, -1, name[i]) != LUA_TTABLE)
            WRONG(L, r, name[i], "leaf \"%s\": a table is wanted, this is a "
                  "%s", name[i], luaL_typename(L, -1));
        GROW(r->f->a, c->leaf, c->nleaf, c->leafcap);
        c->leaf[c->nleaf++] = (CaseLeaf){
            name[i], spec_read(L, r, lua_gettop(L), name[i], &whole) };
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void scalars_read(lua_State *L, const Reading *r)
{
    Case *c = r->c;
    uint32_t n;
    if (!case_table(L, r, lua_gettop(L), "scalars"))
        return;
    const char **name = case_names(L, r, -1, "scalars", &n);
    for (uint32_t i = 0; i < n; i++) {
        GROW(r->f->a, c->scalar, c->nscalar, c->scalarcap);
        c->scalar[c->nscalar++] = (CaseScalar){
            name[i], number_get(L, r, lua_gettop(L), name[i], 0) };
    }
    lua_pop(L, 1);
}

/* ---- the file ---- */

static void case_name(lua_State *L, Reading *r, uint32_t index)
{
    int t = lua_getfield(L, -1, "name");
    if (t != LUA_TSTRING)
        fail_at(L, r->file->path, "case %u has no \"name\"", index);
    r->c->name = intern(r->f->a, lua_tostring(L, -1));
    lua_pop(L, 1);
    r->c->loc = case_place(r->f->a, r->file->path, r->c->name, NULL);
    for (Case *c = r->file->at; c < r->c; c++)
        if (strcmp(c->name, r->c->name) == 0)
            fail_at(L, r->c->loc, "case \"%s\" stands twice", c->name);
}

/* A table of named values, where it is there. */
static void plain_check(lua_State *L, const Reading *r, int i, const char *key)
{
    uint32_t n;
    if (!case_table(L, r, i, key))
        return;
    case_names(L, r, -1, key, &n);
    lua_pop(L, 1);
}

/* The table on top. */
static void one_read(lua_State *L, Reading *r, const char *model)
{
    static const char *const known[] = {
        "name", "model", "part", "options", "inputs", "call", "leaves",
        "scalars", "steps", "draws", "skip", "expect", "expect_f32" };
    Case *c = r->c;
    int top = lua_gettop(L);
    case_keys(L, r, top, fmt(r->f->a, "case \"%s\"", c->name), false, known,
               COUNT(known));
    c->model = text_get(L, r, top, "model");
    c->model = c->model ? c->model : model;
    c->part = text_get(L, r, top, "part");
    c->skip = text_get(L, r, top, "skip");
    c->draws = text_get(L, r, top, "draws");
    if (c->draws && strcmp(c->draws, "randn") != 0)
        WRONG(L, r, "draws", "draws: \"%s\"; \"randn\" is wanted", c->draws);
    double steps = number_get(L, r, top, "steps", 1);
    if (!(steps >= 1 && steps <= 1000) || steps != floor(steps))
        WRONG(L, r, "steps", "steps: %g; 1 .. 1000 is wanted", steps);
    c->steps = (int)steps;
    if (!c->part)
        WRONG(L, r, NULL, "case \"%s\" names no \"part\"", c->name);
    inputs_read(L, r);
    leaves_read(L, r);
    scalars_read(L, r);
    plain_check(L, r, top, "options");
    plain_check(L, r, top, "call");
    if (!case_table(L, r, top, "expect"))
        WRONG(L, r, NULL, "case \"%s\" has no table \"expect\"", c->name);
    case_expect(L, r, c->steps - 1, "");
    lua_pop(L, 1);
    if (!c->nwant && !c->skip)
        WRONG(L, r, "expect", "case \"%s\" expects nothing, and so could not "
              "fail", c->name);
    case_expect_f32(L, r);
}

/* stack: Reading, chunk */
static int file_read(lua_State *L)
{
    Reading *r = lua_touserdata(L, 1);
    CaseFile *file = r->file;
    lua_call(L, 0, 1);
    if (!lua_istable(L, 2))
        fail_at(L, file->path, "the file returns %s; a list of cases is "
                "wanted", luaL_typename(L, 2));
    static const char *const known[] = { "model" };
    case_keys(L, r, 2, "the file", true, known, 1);
    const char *model = text_get(L, r, 2, "model");
    lua_Integer n = luaL_len(L, 2);
    for (lua_Integer i = 1; i <= n; i++) {
        GROW(r->f->a, file->at, file->n, file->cap);
        r->c = &file->at[file->n++];
        *r->c = (Case){ .index = (int)i };
        if (lua_geti(L, 2, i) != LUA_TTABLE)
            fail_at(L, file->path, "case %lld is a %s; a table is wanted", i,
                    luaL_typename(L, -1));
        case_name(L, r, (uint32_t)i);
        one_read(L, r, model);
        lua_pop(L, 1);
    }
    if (!n)
        fail_at(L, file->path, "the file has no case");
    return 0;
}

CaseFile *case_read(const char *path, const ModelOptions *o, Arena *a)
{
    CaseFile *file = alloc(a, sizeof *file);
    file->path = intern(a, path);
    Front *f = alloc(a, sizeof *f);
    *f = (Front){ .a = a, .home = o->home, .dir = ".", .scope = "",
                  .shelf = "models",
                  .cap = (size_t)o->memory, .limit = o->instructions };
    Reading r = { f, file, NULL };
    lua_State *L = sandbox_new(f);
    lua_newtable(L);
    config_open(L);                       /* for dpc.null */
    lua_setglobal(L, "dpc");
    lua_pushcfunction(L, file_read);
    lua_pushlightuserdata(L, &r);
    sandbox_load(L, file->path, file->path, false);
    sandbox_call(L, 2, 0);
    lua_close(L);
    return file;
}
