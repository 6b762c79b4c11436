/* lua_model.c -- a model file becomes one graph an entry.
 *
 * The file returns { name, entries, runs, meta }.  Entries are functions;
 * each is traced into a graph of its own, in the order of their names, and
 * what it returns are the outs.  Then "init" is made: every param and state
 * set to what it starts as. */
#include "compiler/lua_front.h"
#include <stdlib.h>

/* ---- the table that the file returns ---- */

static void keys_check(lua_State *L, int i)
{
    static const char *const known[] = { "name", "entries", "runs", "meta",
                                         "parts" };
    Front *f = front_of(L);
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "1";
        int k = 0;
        while (k < COUNT(known) && strcmp(known[k], key) != 0)
            k++;
        const char *near = near_name(key, known, COUNT(known));
        if (k == COUNT(known) && near)
            fail_at(L, f->model->path, "the model has no key \"%s\"; did you "
                    "mean \"%s\"?", key, near);
        if (k == COUNT(known))
            fail_at(L, f->model->path, "the model has no key \"%s\"; there "
                    "are name, entries, runs, meta, parts", key);
    }
}

const char **names_sorted(lua_State *L, int i, const char *what, int *n)
{
    Front *f = front_of(L);
    const char **name = NULL;
    uint32_t count = 0, cap = 0;
    i = lua_absindex(L, i);
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            fail_at(L, f->model->path, "%s: a %s as key; names are wanted",
                    what, luaL_typename(L, -2));
        GROW(f->a, name, count, cap);
        uint32_t at = count++;
        const char *s = intern(f->a, lua_tostring(L, -2));
        for (; at && strcmp(name[at - 1], s) > 0; at--)
            name[at] = name[at - 1];
        name[at] = s;
    }
    *n = (int)count;
    return name;
}

/* Names of models and entries become names of files and of C. */
static void plain_check(lua_State *L, const char *what, const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                      "0123456789_-");
    if (!n || s[n] || n > 64 || *s == '-')
        fail_at(L, front_of(L)->model->path, "%s \"%s\": letters, digits, '_' "
                "and '-' are wanted, at most 64", what, s);
}

/* ---- entries ---- */

enum { ROOM = 1 << 17 };                  /* nodes; untouched it costs nothing */

void entry_begin(lua_State *L, const char *name)
{
    static const Mesh one;
    Front *f = front_of(L);
    f->g = graph_new(f->a, &one);
    GROW(f->a, f->g->node, ROOM - 1, f->g->ncap);
    f->g->entry = name;
    f->scope = "";
    taps_begin(f);
    leaf_entry(L);
}

/* A value or number under its name as an out. */
static void out_add(lua_State *L, const char *entry, const char *name)
{
    Front *f = front_of(L);
    Type scalar = { .dtype = F32 };
    const char *what = fmt(f->a, "%s.%s", entry, name);
    Ref r = value_is(L, -1) ? value_check(L, -1, what)
          : value_fit(L, lua_gettop(L), &scalar, what);
    graph_out(f->g, name, r);
}

void outs_read(lua_State *L, const char *entry)
{
    int n;
    const char **out = names_sorted(L, -1, entry, &n);
    for (int i = 0; i < n; i++) {
        lua_getfield(L, -1, out[i]);
        out_add(L, entry, out[i]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Function on top, popped. */
static void entry_trace(lua_State *L, const char *name)
{
    Front *f = front_of(L);
    entry_begin(L, name);
    lua_Debug ar;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    const char *loc = fmt(f->a, "%s:%d", ar.source + 1, ar.linedefined);
    lua_call(L, 0, 1);
    if (!lua_istable(L, -1) && !lua_isnil(L, -1))
        fail_at(L, loc, "entry \"%s\" returns %s; a table of values is wanted",
                name, luaL_typename(L, -1));
    f->line = loc;
    if (lua_istable(L, -1))
        outs_read(L, name);
    else
        lua_pop(L, 1);
    f->line = NULL;
    taps_append(L);
    masks_check(L);
    if (!f->g->nout && !f->g->nset)
        fail_at(L, loc, "entry \"%s\" returns nothing and sets nothing", name);
}

static void entries_trace(lua_State *L, int i)
{
    Front *f = front_of(L);
    Model *m = f->model;
    int n;
    if (lua_getfield(L, i, "entries") != LUA_TTABLE)
        fail_at(L, m->path, "the model has no table \"entries\"");
    const char **name = names_sorted(L, -1, "entries", &n);
    m->entry = alloc(f->a, (size_t)(n + 1) * sizeof *m->entry);
    for (int k = 0; k < n; k++) {
        if (strcmp(name[k], "init") == 0)
            fail_at(L, m->path, "entry \"init\" is made by dpc, from each "
                    "param's init");
        plain_check(L, "entry", name[k]);
        if (lua_getfield(L, -1, name[k]) != LUA_TFUNCTION)
            fail_at(L, m->path, "entry \"%s\" is a %s; a function is wanted",
                    name[k], luaL_typename(L, -1));
        entry_trace(L, name[k]);
        m->entry[m->nentry++] = f->g;
    }
    if (!n)
        fail_at(L, m->path, "the model has no entries");
    taps_check(L, m->path);
    lua_pop(L, 1);
    entry_begin(L, "init");
    leaf_init_all(L);
    if (f->g->nset)
        m->entry[m->nentry++] = f->g;
    f->g = NULL;
}

Graph *model_entry(const Model *m, const char *name)
{
    for (int i = 0; i < m->nentry; i++)
        if (strcmp(m->entry[i]->entry, name) == 0)
            return m->entry[i];
    return NULL;
}

/* ---- runs ---- */

static const char *entry_check(lua_State *L, const char *run)
{
    Front *f = front_of(L);
    Model *m = f->model;
    const char *s = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (model_entry(m, s))
        return intern(f->a, s);
    const char **have = alloc(f->a, (size_t)m->nentry * sizeof *have);
    for (int i = 0; i < m->nentry; i++)
        have[i] = m->entry[i]->entry;
    fail_at(L, m->path, "run \"%s\": no entry \"%s\"%s", run, s,
            near_hint(s, have, m->nentry));
}

/* { "denoise", times = 20 } or times = "name of a scalar"; on top. */
static void times_read(lua_State *L, ModelRun *r)
{
    Front *f = front_of(L);
    lua_getfield(L, -1, "times");
    if (lua_type(L, -1) == LUA_TSTRING) {
        r->count = intern(f->a, lua_tostring(L, -1));
        bool found = false;
        for (uint32_t i = 0; i < f->nleaf; i++)
            found |= f->leaf[i].op == OP_scalar &&
                     strcmp(f->leaf[i].name, r->count) == 0;
        if (!found)
            fail_at(L, f->model->path, "run \"%s\": times: no scalar \"%s\"",
                    r->command, r->count);
    } else if (!lua_isnil(L, -1)) {
        r->times = (int)luaL_checkinteger(L, -1);
        if (r->times < 1)
            fail_at(L, f->model->path, "run \"%s\": times=%d", r->command,
                    r->times);
    }
    lua_pop(L, 1);
}

static void run_read(lua_State *L, const char *command)
{
    Front *f = front_of(L);
    Model *m = f->model;
    if (!lua_istable(L, -1))
        fail_at(L, m->path, "run \"%s\" is a %s; a list is wanted", command,
                luaL_typename(L, -1));
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
        ModelRun r = { .command = command, .times = 1 };
        if (lua_geti(L, -1, i) == LUA_TTABLE) {
            lua_geti(L, -1, 1);
            r.entry = entry_check(L, command);
            lua_pop(L, 1);
            times_read(L, &r);
        } else
            r.entry = entry_check(L, command);
        lua_pop(L, 1);
        GROW(f->a, m->run, m->nrun, m->runcap);
        m->run[m->nrun++] = r;
    }
}

static bool has_run(const Model *m, const char *command)
{
    for (uint32_t i = 0; i < m->nrun; i++)
        if (strcmp(m->run[i].command, command) == 0)
            return true;
    return false;
}

Graph *model_sized(const Model *m, const char *name)
{
    size_t n = strlen(name);
    Graph *g = model_entry(m, name);
    for (int i = 0; !g && i < m->nentry; i++)
        if (strncmp(m->entry[i]->entry, name, n) == 0
            && m->entry[i]->entry[n] == '-')
            g = m->entry[i];
    return g;
}

static const char *entry_of(const Model *m, const char *name)
{
    const Graph *g = model_sized(m, name);
    return g ? g->entry : NULL;
}

/* `train` and `eval` need no run when there is an entry of that name: they
 * are that entry, training after `init`. */
static void runs_default(Front *f)
{
    Model *m = f->model;
    const char *train = entry_of(m, "train"), *eval = entry_of(m, "eval");
    const char *const row[][2] = {
        { "train", train ? "init" : NULL }, { "train", train },
        { "eval", eval },
    };
    bool has[] = { has_run(m, "train"), has_run(m, "eval") };
    for (int k = 0; k < COUNT(row); k++) {
        if (has[k == 2] || !row[k][1] || !model_entry(m, row[k][1]))
            continue;
        GROW(f->a, m->run, m->nrun, m->runcap);
        m->run[m->nrun++] = (ModelRun){ row[k][0], row[k][1], NULL, 1 };
    }
}

static void runs_read(lua_State *L, int i)
{
    int n;
    if (lua_getfield(L, i, "runs") == LUA_TTABLE) {
        const char **name = names_sorted(L, -1, "runs", &n);
        for (int k = 0; k < n; k++) {
            lua_getfield(L, -1, name[k]);
            run_read(L, name[k]);
            lua_pop(L, 1);
        }
    } else if (!lua_isnil(L, -1))
        fail_at(L, front_of(L)->model->path, "\"runs\" is a %s",
                luaL_typename(L, -1));
    lua_pop(L, 1);
}

/* ---- the file ---- */

/* The chunk is the argument. */
static int model_run(lua_State *L)
{
    Front *f = front_of(L);
    Model *m = f->model;
    lua_call(L, 0, 1);
    if (!lua_istable(L, 1))
        fail_at(L, m->path, "the file returns %s; a table with \"entries\" is "
                "wanted", luaL_typename(L, 1));
    keys_check(L, 1);
    entries_trace(L, 1);
    runs_read(L, 1);
    runs_default(f);
    lua_getfield(L, 1, "name");
    if (lua_type(L, -1) == LUA_TSTRING)
        m->name = intern(f->a, lua_tostring(L, -1));
    else if (!lua_isnil(L, -1))
        fail_at(L, m->path, "\"name\" is a %s", luaL_typename(L, -1));
    plain_check(L, "model", m->name);
    lua_getfield(L, 1, "meta");
    m->meta = lua_isnil(L, -1) ? "{}" : json_text(L, -1, f->a);
    options_used(L);
    if (f->config && !f->config_read)
        fail_at(L, m->path, "--config %s: the model reads no dpc.config",
                f->config);
    return 0;
}

static const char *folder(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? fmt(a, "%.*s", (int)(slash - path), path) : ".";
}

/* "models/mlp.lua" is called "mlp". */
static const char *stem(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *s = fmt(a, "%s", path + (slash ? slash + 1 - path : 0));
    s[strcspn(s, ".")] = 0;
    return s;
}

lua_State *model_state(const char *path, const ModelOptions *o, Arena *a)
{
    defines_check("-D", o->define, o->ndefine);
    Model *m = alloc(a, sizeof *m);
    m->path = intern(a, path);
    m->name = stem(a, path);
    Front *f = alloc(a, sizeof *f);
    *f = (Front){ .a = a, .model = m, .home = o->home, .dir = folder(a, path),
                  .shelf = "models",
                  .scope = "", .flag = "-D", .asked = "model",
                  .define = o->define, .ndefine = o->ndefine,
                  .config = o->config, .dump = o->dump,
                  .cap = (size_t)o->memory, .limit = o->instructions };
    f->used = alloc(a, (size_t)o->ndefine + 1);
    lua_State *L = sandbox_new(f);
    value_open(L);
    leaf_open(L);
    config_open(L);
    lua_setglobal(L, "dpc");
    return L;
}

Model *model_load(const char *path, const ModelOptions *o, Arena *a)
{
    lua_State *L = model_state(path, o, a);
    Model *m = front_of(L)->model;
    lua_pushcfunction(L, model_run);
    sandbox_load(L, m->path, m->path, false);
    sandbox_call(L, 1, 0);
    lua_close(L);
    return m;
}
