/* lua_plan.c -- partitioners and plan files.
 *
 * A partitioner is `return function(g) ... end`: from a read-only view of the
 * leaves and nodes (g.leaves, g.nodes, g.ranks, g.micro) it returns
 * { mesh, leaf }.  mesh lists {"name", size} or {"name", size, "time"}; leaf
 * is a function of one leaf, or a table by name, that gives the splits of its
 * dimensions, "dp/mb", major first, nil or "" for whole.  A plan file returns
 * the same table, so what is printed reads back.  Axes of size one are
 * dropped. */
#include "compiler/lua_plan.h"

static const struct { const char *name; AxisKind kind; } kinds[] = {
    { "space", SPACE }, { "stage", STAGE }, { "time", TIME },
};

static const char *const gathers[] = { "step", "batch", "use" };  /* GatherWhen */
static const char *const reduces[] = { "late", "each" };          /* ReduceWhen */

/* ---- the mesh ---- */

const char *text_at(lua_State *L, int i)
{
    return lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : "";
}

static bool axis_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz");
    return n && strlen(s) < 16 && (!s[n] || strcmp(s + n, "'") == 0);
}

/* sp' turns for the ranks of sp. */
static void twin_check(lua_State *L, const Planning *p, const Axis *a)
{
    const Mesh *m = &p->plan->mesh;
    size_t n = strlen(a->name) - 1;
    bool is = a->name[n] != '\'';
    for (int i = 0; i < m->naxis && !is; i++)
        is = strlen(m->axis[i].name) == n && m->axis[i].kind == SPACE
            && strncmp(m->axis[i].name, a->name, n) == 0
            && m->axis[i].size == a->size && a->kind == TIME;
    if (!is)
        fail_at(L, p->loc, "mesh: \"%s\" is turns for no axis: one of ranks, "
                "of that name without ' and of size %d, comes before it",
                a->name, a->size);
}

/* { "dp", 2, "time" } on top. */
static void axis_read(lua_State *L, Planning *p, int i)
{
    Front *f = front_of(L);
    Mesh *m = &p->plan->mesh;
    Axis a = { .kind = SPACE };
    if (!lua_istable(L, -1))
        plan_fail(L, p, "mesh: axis %d is no {\"name\", size}", i);
    lua_geti(L, -1, 1), lua_geti(L, -2, 2), lua_geti(L, -3, 3);
    a.name = intern(f->a, text_at(L, -3));
    a.size = (int)lua_tointeger(L, -2);
    const char *kind = lua_isnil(L, -1) ? "space" : text_at(L, -1);
    int k = 0;
    while (k < COUNT(kinds) && strcmp(kinds[k].name, kind) != 0)
        k++;
    if (!axis_name(a.name))
        plan_fail(L, p, "mesh: \"%s\" is no axis; lower-case letters, "
                "fewer than 16", a.name);
    if (!lua_isinteger(L, -2) || a.size < 1 || a.size > 65536)
        plan_fail(L, p, "mesh: the size of \"%s\" is %s", a.name,
                luaL_tolstring(L, -2, NULL));
    if (k == COUNT(kinds))
        plan_fail(L, p, "mesh: \"%s\" is \"%s\"; there are space, stage, "
                "time", a.name, kind);
    if (mesh_find(m, a.name) >= 0)
        plan_fail(L, p, "mesh: \"%s\" stands there twice", a.name);
    if (m->naxis == NAXIS)
        plan_fail(L, p, "mesh: more than %d axes", NAXIS);
    a.kind = kinds[k].kind;
    twin_check(L, p, &a);
    m->axis[m->naxis++] = a;
    lua_pop(L, 3);
}

static void mesh_read(lua_State *L, Planning *p, int i)
{
    if (lua_getfield(L, i, "mesh") != LUA_TTABLE)
        plan_fail(L, p, "the %s gives no table \"mesh\"", p->what);
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer k = 1; k <= n; k++) {
        lua_geti(L, -1, k);
        axis_read(L, p, (int)k);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    int ranks = plan_ranks(p->plan);
    if (p->o->ranks && ranks != p->o->ranks)
        plan_fail(L, p, "the mesh has %d ranks, --ranks says %d", ranks,
                p->o->ranks);
}

int plan_turns(const Plan *p)
{
    int n = 1;
    for (int i = 0; i < p->mesh.naxis; i++) {
        const Axis *a = &p->mesh.axis[i];
        n *= a->kind == TIME && !strchr(a->name, '\'') ? a->size : 1;
    }
    return n;
}

int plan_ranks(const Plan *p)
{
    Axes ranks = mesh_axes(&p->mesh, SPACE) | mesh_axes(&p->mesh, STAGE);
    return (int)mesh_size(&p->mesh, ranks);
}

/* ---- the leaves ---- */

Split split_read(lua_State *L, const Planning *p, const char *what,
                 const char *s, Axes *taken)
{
    const Mesh *m = &p->plan->mesh;
    Split split = 0;
    while (*s) {
        int size = (int)strcspn(s, "/");
        const char *name = fmt(front_of(L)->a, "%.*s", size, s);
        int axis = mesh_find(m, name);
        if (axis < 0)
            plan_fail(L, p, "%s: the mesh has no axis \"%s\"", what, name);
        if (*taken & (1 << axis))
            plan_fail(L, p, "%s: axis \"%s\" splits it twice", what, name);
        *taken |= (Axes)(1 << axis);
        if (m->axis[axis].size > 1)
            split = split_push(split, axis);
        s += size + (s[size] == '/');
    }
    return split;
}

/* Splits of one leaf from the table on top. */
static void leaf_read(lua_State *L, Planning *p, const Node *n)
{
    LeafPlan l = { .name = n->name, .ndim = n->type.ndim };
    Plan *plan = p->plan;
    const char *what = fmt(front_of(L)->a, "leaf \"%s\"", n->name);
    Axes taken = 0;
    Split all = 0;
    if (!lua_istable(L, -1))
        plan_fail(L, p, "leaf \"%s\": a list of splits is wanted, this is "
                "%s", n->name, luaL_typename(L, -1));
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) < 1 ||
            lua_tointeger(L, -2) > l.ndim)
            plan_fail(L, p, "leaf \"%s\" has %d dimensions, none is \"%s\"",
                    n->name, l.ndim, luaL_tolstring(L, -2, NULL));
    for (int d = 0; d < l.ndim; d++) {
        int t = lua_geti(L, -1, d + 1);
        bool none = t == LUA_TNIL || (t == LUA_TBOOLEAN
                                      && !lua_toboolean(L, -1));
        if (!none && t != LUA_TSTRING)
            plan_fail(L, p, "leaf \"%s\": the split of dimension %d is a "
                    "%s", n->name, d, lua_typename(L, t));
        l.split[d] = split_read(L, p, what, text_at(L, -1), &taken);
        all |= l.split[d];
        lua_pop(L, 1);
    }
    Axes turns = taken & mesh_axes(&plan->mesh, TIME);
    if (turns && n->op != OP_input)
        plan_fail(L, p, "leaf \"%s\": it is the same in all turns, and "
                "cannot be split along \"%s\"; only inputs can", n->name,
                plan->mesh.axis[__builtin_ctz(turns)].name);
    if (!all)
        return;
    GROW(front_of(L)->a, plan->leaf, plan->nleaf, plan->leafcap);
    plan->leaf[plan->nleaf++] = l;
}

/* Ask for one leaf: `leaf` is at index i, function or table. */
static void leaf_ask(lua_State *L, Planning *p, int i, const Graph *g,
                     const Node *n)
{
    if (lua_isfunction(L, i)) {
        lua_pushvalue(L, i);
        leaf_push(L, g, n);
        lua_call(L, 1, 1);
    } else
        lua_getfield(L, i, n->name);
    p->about = n;
    if (!lua_isnil(L, -1))
        leaf_read(L, p, n);
    p->about = NULL;
    lua_pop(L, 1);
}

static const Node *leaf_named(const Planning *p, const char *name)
{
    for (int e = 0; e < p->nentry; e++) {
        Ref r = graph_leaf(p->entry[e], name);
        if (r != NONE)
            return &p->entry[e]->node[r];
    }
    return NULL;
}

/* A name in the table that no entry has is an error, with the nearest. */
static void names_check(lua_State *L, Planning *p, int i)
{
    const char **have = NULL;
    uint32_t n = 0, cap = 0;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *name = text_at(L, -2);
        if (leaf_named(p, name))
            continue;
        for (int e = 0; e < p->nentry; e++)
            for (Ref r = 0; r < p->entry[e]->n; r++)
                if (is_leaf(&p->entry[e]->node[r])) {
                    GROW(front_of(L)->a, have, n, cap);
                    have[n++] = p->entry[e]->node[r].name;
                }
        plan_fail(L, p, "the model has no leaf \"%s\"%s", name,
                near_hint(name, have, (int)n));
    }
}

/* The line to blame for what a function says; the file's otherwise. */
static void blame(lua_State *L, Planning *p, int i)
{
    lua_Debug ar;
    if (!lua_isfunction(L, i))
        return;
    lua_pushvalue(L, i);
    lua_getinfo(L, ">S", &ar);
    p->loc = fmt(front_of(L)->a, "%s:%d", ar.source + 1, ar.linedefined);
}

static void leaves_read(lua_State *L, Planning *p, int i)
{
    int t = lua_getfield(L, i, "leaf"), at = lua_gettop(L);
    if (t != LUA_TFUNCTION && t != LUA_TTABLE)
        plan_fail(L, p, "the %s gives no function or table \"leaf\"",
                p->what);
    if (t == LUA_TTABLE)
        names_check(L, p, at);
    blame(L, p, at);
    lua_newtable(L);
    for (int e = 0; e < p->nentry; e++)
        for (Ref r = 0; r < p->entry[e]->n; r++) {
            const Node *n = &p->entry[e]->node[r];
            if (is_leaf(n) && is_new(L, at + 1, n->name))
                leaf_ask(L, p, at, p->entry[e], n);
        }
    lua_pop(L, 2);
}

/* ---- the table ---- */

int word_pick(lua_State *L, const Planning *p, const char *what,
              const char *const *of, int n)
{
    int k = 0;
    Str all = { .arena = front_of(L)->a };
    for (int w = 0; w < n; w++)
        str_add(&all, "%s%s", w ? w + 1 == n ? " and " : ", " : "", of[w]);
    while (k < n && strcmp(of[k], text_at(L, -1)) != 0)
        k++;
    if (k == n)
        plan_fail(L, p, "%s: there are %s, not \"%s\"", what, all.p,
                  luaL_tolstring(L, -1, NULL));
    return k;
}

/* That of the plan's word `key`; the first where nothing is said. */
static int word_read(lua_State *L, const Planning *p, int i, const char *key,
                     const char *const *of, int n)
{
    int t = lua_getfield(L, i, key);
    int k = t == LUA_TNIL ? 0 : word_pick(L, p, key, of, n);
    lua_pop(L, 1);
    return k;
}

static void word_recompute(lua_State *L, Planning *p, int i)
{
    int t = lua_getfield(L, i, "recompute");
    const char *wrong = t == LUA_TNIL ? NULL
        : recompute_read(front_of(L)->a, luaL_tolstring(L, -1, NULL), p->plan);
    lua_settop(L, lua_gettop(L) - (t != LUA_TNIL));
    if (wrong)
        plan_fail(L, p, "%s", wrong);
    lua_pop(L, 1);
}

static void word_offload(lua_State *L, Planning *p, int i)
{
    int t = lua_getfield(L, i, "offload");
    if (t != LUA_TNIL && t != LUA_TSTRING)
        plan_fail(L, p, "offload: a list in one text is wanted, "
                  "\"states,params\"; this is a %s", lua_typename(L, t));
    const char *wrong = t == LUA_TNIL ? NULL
        : offload_read(front_of(L)->a, intern(front_of(L)->a, text_at(L, -1)),
                       p->entry, p->nentry, p->plan);
    if (wrong)
        plan_fail(L, p, "%s", wrong);
    lua_pop(L, 1);
}

const char *const plan_words[NPLAN_WORD] = {
    "mesh", "leaf", "value", "bucket", "compute", "reduce", "gather",
    "compress", "exact", "recompute", "offload",
    "stage", "role", "order", "alive",
};

static void word_check(lua_State *L, const Planning *p, const char *key)
{
    Str all = { .arena = front_of(L)->a };
    for (int k = 0; k < NPLAN_WORD; k++) {
        if (strcmp(plan_words[k], key) == 0)
            return;
        str_add(&all, "%s%s", k ? ", " : "", plan_words[k]);
    }
    const char *near = near_name(key, plan_words, NPLAN_WORD);
    plan_fail(L, p, "the %s has no word \"%s\"; %s%s", p->what, key,
              near ? "did you mean " : "there are ", near ? near : all.p);
}

static void rest_read(lua_State *L, Planning *p, int i)
{
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
        word_check(L, p, text_at(L, -2));
    if (lua_getfield(L, i, "bucket") != LUA_TNIL) {
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 0)
            plan_fail(L, p, "bucket: a whole number of bytes is wanted");
        p->plan->bucket = lua_tointeger(L, -1);
    }
    if (lua_getfield(L, i, "compute") != LUA_TNIL) {
        DType t = dtype_find(text_at(L, -1));
        if (t != F32 && t != BF16)
            plan_fail(L, p, "compute: \"%s\" is neither f32 nor bf16",
                    luaL_tolstring(L, -1, NULL));
        p->plan->compute = t;
    }
    p->plan->gather = (GatherWhen)word_read(L, p, i, "gather", gathers,
                                        COUNT(gathers));
    p->plan->reduce = (ReduceWhen)word_read(L, p, i, "reduce", reduces,
                                        COUNT(reduces));
    if (lua_getfield(L, i, "exact") != LUA_TNIL && !lua_isboolean(L, -1))
        plan_fail(L, p, "exact: true or false is wanted, not \"%s\"",
                luaL_tolstring(L, -1, NULL));
    p->plan->exact = lua_toboolean(L, -1);
    lua_pop(L, 3);
    word_recompute(L, p, i);
    word_offload(L, p, i);
}

Split split_thin(Split s, const int *to)
{
    Split thin = 0;
    for (; s; s >>= 4)
        thin = split_push(thin, to[(s & 15) - 1]);
    return thin;
}

/* Axes of one are no axes; splits do not name them (split_read). */
static void mesh_thin(Plan *plan)
{
    Mesh m = { 0 };
    int to[NAXIS];
    for (int i = 0; i < plan->mesh.naxis; i++) {
        to[i] = m.naxis;
        if (plan->mesh.axis[i].size > 1)
            m.axis[m.naxis++] = plan->mesh.axis[i];
    }
    for (uint32_t i = 0; i < plan->nleaf; i++)
        for (int d = 0; d < plan->leaf[i].ndim; d++)
            plan->leaf[i].split[d] = split_thin(plan->leaf[i].split[d], to);
    values_thin(plan, to), compress_thin(plan, to);
    plan->mesh = m;
}

/* A partitioner that says nothing about a word leaves it to -P WORD=. */
static void word_ask(lua_State *L, const char *word, const char *usual,
                     const char *doc)
{
    if (!lua_istable(L, -1))
        return;
    if (lua_getfield(L, -1, word) == LUA_TNIL) {
        lua_pushcfunction(L, option_ask);
        lua_pushstring(L, word);
        lua_pushstring(L, usual);
        lua_pushstring(L, doc);
        lua_call(L, 3, 1);
        lua_setfield(L, -3, word);
    }
    lua_pop(L, 1);
}

void table_read(lua_State *L, Planning *p, int i)
{
    if (!p->text) {                       /* what a partitioner gives */
        lua_pushvalue(L, i);
        word_ask(L, "recompute", "selective", "what backward makes again");
        word_ask(L, "compress", "none", "what gradients are sent as");
        lua_pop(L, 1);
    }
    if (!lua_istable(L, i))
        plan_fail(L, p, "the %s returns %s; a table {mesh, leaf} is wanted",
                p->what, luaL_typename(L, i));
    rest_read(L, p, i);
    mesh_read(L, p, i);
    values_read(L, p, i);
    leaves_read(L, p, i);
    pipeline_read(L, p, i);
    compress_read(L, p, i);
    mesh_thin(p->plan);
}

/* stack: Planning, chunk */
static int plan_run(lua_State *L)
{
    Planning *p = lua_touserdata(L, 1);
    lua_call(L, 0, 1);
    if (lua_isfunction(L, 2) && p->text)
        fail_at(L, p->loc, "a plan file is wanted, and this is a partitioner: "
                "--partitioner %s", p->loc);
    if (lua_isfunction(L, 2)) {
        blame(L, p, 2);
        view_push(L, p);
        lua_call(L, 1, 1);
    }
    table_read(L, p, 2);
    options_used(L);
    return 0;
}

Plan *plan_begin(DType compute, Arena *a)
{
    Plan *plan = alloc(a, sizeof *plan);
    plan->compute = compute, plan->bucket = 32 << 20, plan->least = 256;
    return plan;
}

/* Percent of what lives that Lua holds before it looks for what does not: a
 * model's nodes are most of it, and all live. */
enum { PAUSE = 400 };

static Plan *plan_file(const PlanOptions *o, const char *name,
                       const char *path, const char *what,
                       Graph *const *entry, int nentry, Arena *a)
{
    defines_check("-P", o->define, o->ndefine);
    Front *f = alloc(a, sizeof *f);
    const char *slash = strrchr(name, '/');
    *f = (Front){ .a = a, .home = o->home, .scope = "",
                  .dir = slash ? fmt(a, "%.*s", (int)(slash - name), name)
                               : ".",
                  .shelf = "passes/partitioners", .flag = "-P", .asked = what,
                  .define = o->define, .ndefine = o->ndefine };
    f->model = alloc(a, sizeof *f->model);
    f->model->path = intern(a, name);
    f->used = alloc(a, (size_t)o->ndefine + 1);
    Plan *plan = plan_begin(o->compute, a);
    Planning p = { o, entry, nentry, plan, what, intern(a, name), NULL, NULL };
    size_t bytes;
    lua_State *L = sandbox_new(f);
    lua_gc(L, LUA_GCINC, PAUSE, 0, 0);
    if (strcmp(what, "plan") == 0)
        p.text = sandbox_read(f, path, p.loc, &bytes);
    lua_pushcfunction(L, plan_run);
    lua_pushlightuserdata(L, &p);
    sandbox_load(L, p.loc, path, false);
    sandbox_call(L, 2, 0);
    lua_close(L);
    return plan;
}

/* "ddp" is HOME/passes/partitioners/ddp.lua. */
Plan *plan_partition(const PlanOptions *o, Graph *const *entry, int nentry,
                     Arena *a)
{
    const char *path = o->file, *name = path;
    if (!strchr(path, '/') && !strstr(path, ".lua")) {
        if (!o->home)
            err_code(5, "dpc", "passes/partitioners is not found: set DPC_HOME "
                     "to the folder that holds it");
        name = fmt(a, "passes/partitioners/%s.lua", o->file);
        path = fmt(a, "%s/%s", o->home, name);
        FILE *in = fopen(path, "r");
        if (!in)
            err_code(2, "dpc", "--partitioner: no \"%s\" in "
                     "passes/partitioners", o->file);
        fclose(in);
    }
    return plan_file(o, name, path, "partitioner", entry, nentry, a);
}

Plan *plan_read(const PlanOptions *o, Graph *const *entry, int nentry, Arena *a)
{
    return plan_file(o, o->file, o->file, "plan", entry, nentry, a);
}

/* ---- printing ---- */

void split_print(const Mesh *m, Split s, FILE *out)
{
    fputc('"', out);
    for (bool first = true; s; s >>= 4, first = false)
        fprintf(out, "%s%s", first ? "" : "/", m->axis[(s & 15) - 1].name);
    fputc('"', out);
}

void plan_print(const Plan *p, FILE *out)
{
    Arena *a = arena_new();
    fprintf(out, "return {\n    mesh = {");
    for (int i = 0; i < p->mesh.naxis; i++)
        fprintf(out, "%s{\"%s\", %d%s%s%s}", i ? ", " : "",
                p->mesh.axis[i].name, p->mesh.axis[i].size,
                p->mesh.axis[i].kind == SPACE ? "" : ", \"",
                p->mesh.axis[i].kind == SPACE ? ""
                : kinds[p->mesh.axis[i].kind].name,
                p->mesh.axis[i].kind == SPACE ? "" : "\"");
    fprintf(out, "},\n    bucket = %lld,\n    compute = \"%s\",\n",
            (long long)p->bucket, dtype_name(p->compute));
    if (p->reduce)
        fprintf(out, "    reduce = \"%s\",\n", reduces[p->reduce]);
    if (p->gather)
        fprintf(out, "    gather = \"%s\",\n", gathers[p->gather]);
    compress_print(p, out);
    fprintf(out, "    recompute = \"%s\",\n", recompute_word(a, p));
    arena_free(a);
    if (p->offload)
        fprintf(out, "    offload = \"%s\",\n", p->offload);
    fputs(p->exact ? "    exact = true,\n" : "", out);
    values_print(p, out);
    pipeline_print(p, out);
    fputs("    -- leaves that are not here are whole\n    leaf = {\n", out);
    for (uint32_t i = 0; i < p->nleaf; i++) {
        fprintf(out, "        [\"%s\"] = {", p->leaf[i].name);
        for (int d = 0; d < p->leaf[i].ndim; d++) {
            fputs(d ? ", " : "", out);
            split_print(&p->mesh, p->leaf[i].split[d], out);
        }
        fputs("},\n", out);
    }
    fputs("    },\n}\n", out);
}
