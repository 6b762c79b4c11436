/* lua_cluster.c -- cluster files: what one rank has, and what is between.
 *
 * return { name, target, march, cores, memory, peak = { f32, bf16 },
 * rates = { threads, f32, bf16, conv_f32, conv_bf16, work, bandwidth, launch,
 * step } or a list of such, by threads, levels = { { name, fanout, bandwidth,
 * latency }, ... } }, inner level first; bytes, flops or bytes a second,
 * seconds.  cores and memory that are absent are asked of this machine, rates
 * of the target.  --cluster 16x8xNAME: eight ranks a node, sixteen nodes. */
#include "compiler/lua_front.h"
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { CORES_MOST = 4096, FANOUT_MOST = 65536, LEAST_MEMORY = 1 << 20 };

/* Where in the file a table is being read, so that an error has a line. */
typedef struct Place {
    const char *path, *text;
    const char *table;                    /* "levels", "rates"; NULL */
    int item;                             /* of the list, from 1; 0 no list */
} Place;
static Place place;

/* `key` as a word that is given a value, from p on; NULL. */
static const char *word_find(const char *p, const char *key)
{
    size_t n = strlen(key);
    for (const char *q = p; (q = strstr(q, key)); q += n) {
        const char *after = q + n + strspn(q + n, " ");
        bool begins = q == p || !(q[-1] == '_' || (q[-1] >= 'a'
                                                   && q[-1] <= 'z'));
        if (begins && *after == '=')
            return q;
    }
    return NULL;
}

/* The file's line where the value of a key most likely stands. */
static const char *key_loc(lua_State *L, const char *key)
{
    const char *at = place.text, *found;
    if (place.table && (found = word_find(at, place.table)))
        at = strchr(found, '{') ? strchr(found, '{') + 1 : found;
    for (int i = 0; i < place.item && strchr(at, '{'); i++)
        at = strchr(at, '{') + 1;
    if (!(found = word_find(at, key)))
        return place.path;
    int line = 1;
    for (const char *p = place.text; p < found; p++)
        line += *p == '\n';
    return fmt(front_of(L)->a, "%s:%d", place.path, line);
}

/* A number from `least` to `most`; `wanted` says which in words. */
static double number_at(lua_State *L, const char *key, double otherwise,
                        double least, double most, const char *wanted)
{
    double x = otherwise;
    if (lua_getfield(L, -1, key) != LUA_TNIL) {
        x = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !(x >= least && x <= most))
            fail_at(L, key_loc(L, key), "%s: %s; %s is wanted", key,
                    x != x ? "nan" : luaL_tolstring(L, -1, NULL), wanted);
    }
    lua_pop(L, 1);
    return x;
}

static double rate_at(lua_State *L, const char *key)
{
    return number_at(L, key, 0, 1, 1e24, "a number above 0");
}

static double seconds_at(lua_State *L, const char *key)
{
    return number_at(L, key, 0, 0, 1e3, "seconds, from 0 to 1000,");
}

/* 0 where there is none. */
static int whole_at(lua_State *L, const char *key, int most)
{
    double x = number_at(L, key, 0, 1, most, fmt(front_of(L)->a, "a whole "
                                                 "number from 1 to %d", most));
    if (x != floor(x))
        fail_at(L, key_loc(L, key), "%s: %g is no whole number", key, x);
    return (int)x;
}

static const char *text_at(lua_State *L, const char *key, const char *otherwise)
{
    const char *s = otherwise;
    if (lua_getfield(L, -1, key) == LUA_TSTRING)
        s = intern(front_of(L)->a, lua_tostring(L, -1));
    else if (!lua_isnil(L, -1))
        fail_at(L, key_loc(L, key), "%s: a text is wanted", key);
    lua_pop(L, 1);
    return s;
}

static void keys_check(lua_State *L, const char *const *known, int n)
{
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "1";
        int k = 0;
        while (k < n && strcmp(known[k], key) != 0)
            k++;
        if (k == n)
            fail_at(L, key_loc(L, key), "the cluster has no word \"%s\"%s",
                    key, near_hint(key, known, n));
    }
}

/* The table on top. */
static Rates rates_one(lua_State *L)
{
    static const char *const known[] = { "threads", "f32", "bf16", "conv_f32",
        "conv_bf16", "work", "bandwidth", "copy", "launch", "step",
        "wake" };
    keys_check(L, known, COUNT(known));
    return (Rates){
        .threads = whole_at(L, "threads", CORES_MOST),
        .flops = { [F32] = rate_at(L, "f32"), [BF16] = rate_at(L, "bf16") },
        .conv = { [F32] = rate_at(L, "conv_f32"),
                  [BF16] = rate_at(L, "conv_bf16") },
        .work = rate_at(L, "work"), .bandwidth = rate_at(L, "bandwidth"),
        .copy = rate_at(L, "copy"), .launch = seconds_at(L, "launch"),
        .step = seconds_at(L, "step"), .wake = seconds_at(L, "wake"),
    };
}

/* Push the i-th member, a table, of the list on top. */
static void item_push(lua_State *L, int i)
{
    place.item = i + 1;
    if (lua_geti(L, -1, i + 1) != LUA_TTABLE)
        fail_at(L, key_loc(L, place.table), "%s: a list of tables is wanted",
                place.table);
}

/* Push the table of that name: its members, 0 where it is no list, -1 where
 * there is none. */
static int table_push(lua_State *L, const char *name, int most)
{
    int t = lua_getfield(L, -1, name);
    if (t != LUA_TTABLE && t != LUA_TNIL)
        fail_at(L, key_loc(L, name), "%s: a table is wanted", name);
    lua_Integer n = t == LUA_TNIL ? -1 : luaL_len(L, -1);
    if (n > most)
        fail_at(L, key_loc(L, name), "%s: %lld; at most %d", name, n, most);
    place.table = name, place.item = 0;
    return (int)n;
}

static void table_pop(lua_State *L)
{
    place.table = NULL, place.item = 0;
    lua_pop(L, 1);
}

static void rates_read(lua_State *L, Cluster *c)
{
    int n = table_push(L, "rates", NRATES);
    if (n == 0)
        c->measured[c->nrates++] = rates_one(L);
    for (; c->nrates < n; c->nrates++) {
        item_push(L, c->nrates);
        c->measured[c->nrates] = rates_one(L);
        lua_pop(L, 1);
    }
    table_pop(L);
    c->rates = c->measured[0];
}

static void peak_read(lua_State *L, Cluster *c)
{
    static const char *const known[] = { "f32", "bf16" };
    if (table_push(L, "peak", 0) == 0) {
        keys_check(L, known, COUNT(known));
        c->peak[F32] = rate_at(L, "f32"), c->peak[BF16] = rate_at(L, "bf16");
    }
    table_pop(L);
}

static void levels_read(lua_State *L, Cluster *c)
{
    static const char *const known[] = { "name", "fanout", "bandwidth",
                                         "latency" };
    int n = table_push(L, "levels", NLEVEL);
    for (; c->nlevel < n; c->nlevel++) {
        item_push(L, c->nlevel);
        keys_check(L, known, COUNT(known));
        Level *v = &c->level[c->nlevel];
        *v = (Level){ text_at(L, "name", "level"),
                      whole_at(L, "fanout", FANOUT_MOST),
                      rate_at(L, "bandwidth"), seconds_at(L, "latency") };
        if (!(v->bandwidth > 0))
            fail_at(L, key_loc(L, "name"), "level \"%s\" has no bandwidth",
                    v->name);
        lua_pop(L, 1);
    }
    table_pop(L);
}

/* stack: Cluster, chunk */
static int cluster_run(lua_State *L)
{
    static const char *const known[] = { "name", "target", "march", "cores",
        "memory", "peak", "rates", "levels" };
    Cluster *c = lua_touserdata(L, 1);
    lua_call(L, 0, 1);
    if (!lua_istable(L, 2))
        fail_at(L, place.path, "the cluster file returns %s; a table is "
                "wanted", luaL_typename(L, 2));
    keys_check(L, known, COUNT(known));
    c->name = text_at(L, "name", "host");
    c->target = text_at(L, "target", "host");
    if (strcmp(c->target, "host") != 0 && strcmp(c->target, "cuda") != 0)
        fail_at(L, key_loc(L, "target"), "target: \"%s\"; \"host\" or "
                "\"cuda\" is wanted", c->target);
    c->march = text_at(L, "march", "native");
    if (!*c->march || *c->march == '-'
        || c->march[strspn(c->march, "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-")])
        fail_at(L, key_loc(L, "march"), "march: \"%s\" is no processor's "
                "name", c->march);
    c->cores = whole_at(L, "cores", CORES_MOST);
    c->memory = (int64_t)number_at(L, "memory", 0, LEAST_MEMORY, 1e15,
                                   "bytes, from 2^20 to 1e15,");
    peak_read(L, c);
    rates_read(L, c);
    levels_read(L, c);
    return 0;
}

const char **cluster_names(const char *home, Arena *a, int *n)
{
    glob_t g = { 0 };
    *n = 0;
    glob(fmt(a, "%s/models/clusters/*.lua", home ? home : "."), 0, NULL, &g);
    const char **name = alloc(a, (g.gl_pathc + 1) * sizeof *name);
    for (; *n < (int)g.gl_pathc; ++*n) {
        const char *base = strrchr(g.gl_pathv[*n], '/') + 1;
        name[*n] = fmt(a, "%.*s", (int)strlen(base) - 4, base);
    }
    globfree(&g);
    return name;
}

_Noreturn static void cluster_unknown(const char *home, const char *name,
                                      Arena *a)
{
    int n;
    const char **known = cluster_names(home, a, &n);
    Str list = { .arena = a };
    for (int i = 0; i < n; i++)
        str_add(&list, " %s", known[i]);
    err_code(2, "dpc", "--cluster: no cluster \"%s\"%s\nhelp: there are%s; "
             "or the path of a file", name, near_hint(name, known, n),
             list.p ? list.p : " none");
}

/* The file that a --cluster without numbers means: a path, or the name of one
 * of models/clusters. */
static const char *cluster_path(const char *home, const char *name, Arena *a)
{
    if (strchr(name, '/') || strstr(name, ".lua"))
        return name;
    if (!home)
        err_code(5, "dpc", "models/clusters/%s.lua is not found: set "
                 "DPC_HOME to the folder that holds models/", name);
    const char *path = fmt(a, "%s/models/clusters/%s.lua", home, name);
    if (access(path, R_OK) != 0)
        cluster_unknown(home, name, a);
    return path;
}

/* "16x8xNAME": the numbers, outer first, and what follows them. */
static const char *fanout_read(const char *s, int *size, int *n)
{
    for (*n = 0; *n < NLEVEL; ++*n) {
        char *end;
        long v = strtol(s, &end, 10);
        if (end == s || *end != 'x' || !end[1] || *s == '-' || *s == '+')
            break;
        if (v < 1 || v > FANOUT_MOST)
            err_code(2, "dpc", "--cluster %s: %ld; a number from 1 to %d is "
                     "wanted", s, v, FANOUT_MOST);
        size[*n] = (int)v;
        s = end + 1;
    }
    return s;
}

static void fanout_set(Cluster *c, const int *size, int n, const char *spec)
{
    if (n > c->nlevel)
        err_code(2, "dpc", "--cluster %s: %d numbers; \"%s\" has %d level%s",
                 spec, n, c->name, c->nlevel, c->nlevel == 1 ? "" : "s");
    for (int i = 0; i < n; i++)
        c->level[n - 1 - i].fanout = size[i];
}

Cluster *cluster_read(const char *home, const char *spec, Arena *a)
{
    int size[NLEVEL], n = 0;
    const char *name = spec ? spec : "host";
    if (access(name, R_OK) != 0)
        name = fanout_read(name, size, &n);
    const char *path = cluster_path(home, name, a);
    Front *f = alloc(a, sizeof *f);
    *f = (Front){ .a = a, .home = home, .dir = ".", .scope = "",
                  .shelf = "models",
                  .line = intern(a, path) };
    Cluster *c = alloc(a, sizeof *c);
    lua_State *L = sandbox_new(f);
    size_t bytes;
    place = (Place){ .path = f->line,
                     .text = sandbox_read(f, path, f->line, &bytes) };
    lua_pushcfunction(L, cluster_run);
    lua_pushlightuserdata(L, c);
    sandbox_load(L, f->line, f->line, false);
    sandbox_call(L, 2, 0);
    lua_close(L);
    fanout_set(c, size, n, spec);
    if (!c->cores)
        c->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!c->memory)
        c->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return c;
}

int cluster_ranks(const Cluster *c)
{
    double n = c->nlevel ? 1 : 0;
    for (int l = 0; l < c->nlevel; l++)
        n *= c->level[l].fanout;
    return (int)fmin(n, FANOUT_MOST);
}

/* Those for the number of threads that comes nearest from below. */
void cluster_share(Cluster *c, int ranks, int threads)
{
    for (int i = 0; i < c->nrates; i++)
        if (c->rates.threads > threads
            || (c->measured[i].threads <= threads
                && c->measured[i].threads > c->rates.threads))
            c->rates = c->measured[i];
    int inside = c->nlevel && c->level[0].fanout ? c->level[0].fanout : ranks;
    if (strcmp(c->target, "host") == 0)
        c->memory /= inside < ranks ? inside : ranks;
}
