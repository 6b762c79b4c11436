/* lua_cluster.c -- cluster files: what one rank has, and what is between.
 *
 * return { name, target, march, cores, memory, rates = { f32, bf16,
 * bandwidth, launch }, levels = { { name, fanout, bandwidth, latency }, ... }
 * }, inner level first; bytes, flops or bytes a second, seconds.  cores and
 * memory that are absent are asked of this machine, rates of the target. */
#include "compiler/lua_front.h"
#include <unistd.h>

static double real_at(lua_State *L, const char *key, double otherwise)
{
    const char *path = front_of(L)->line;
    double x = otherwise;
    if (lua_getfield(L, -1, key) != LUA_TNIL) {
        x = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !(x >= 0 && x < 1e300))
            fail_at(L, path, "%s: %s; a number from 0 is wanted", key,
                    luaL_tolstring(L, -1, NULL));
    }
    lua_pop(L, 1);
    return x;
}

static double positive_at(lua_State *L, const char *key, double otherwise)
{
    double x = real_at(L, key, otherwise);
    if (!(x > 0))
        fail_at(L, front_of(L)->line, "%s: 0; a number above 0 is wanted",
                key);
    return x;
}

static const char *text_at(lua_State *L, const char *key, const char *otherwise)
{
    const char *s = otherwise;
    if (lua_getfield(L, -1, key) == LUA_TSTRING)
        s = intern(front_of(L)->a, lua_tostring(L, -1));
    else if (!lua_isnil(L, -1))
        fail_at(L, front_of(L)->line, "%s: a text is wanted", key);
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
        const char *near = near_name(key, known, n);
        if (k == n)
            fail_at(L, front_of(L)->line, "the cluster has no word \"%s\"%s%s"
                    "%s", key, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
    }
}

static void rates_read(lua_State *L, Cluster *c)
{
    static const char *const known[] = { "f32", "bf16", "bandwidth",
                                         "launch" };
    int t = lua_getfield(L, -1, "rates");
    if (t == LUA_TTABLE) {
        keys_check(L, known, COUNT(known));
        c->flops[F32] = real_at(L, "f32", 0);
        c->flops[BF16] = real_at(L, "bf16", 0);
        c->bandwidth = real_at(L, "bandwidth", 0);
        c->launch = real_at(L, "launch", 0);
    } else if (t != LUA_TNIL)
        fail_at(L, front_of(L)->line, "rates: a table is wanted");
    lua_pop(L, 1);
}

static void levels_read(lua_State *L, Cluster *c)
{
    static const char *const known[] = { "name", "fanout", "bandwidth",
                                         "latency" };
    if (lua_getfield(L, -1, "levels") == LUA_TTABLE) {
        lua_Integer n = luaL_len(L, -1);
        if (n > NLEVEL)
            fail_at(L, front_of(L)->line, "levels: %lld; at most %d", n,
                    NLEVEL);
        for (; c->nlevel < n; c->nlevel++) {
            if (lua_geti(L, -1, c->nlevel + 1) != LUA_TTABLE)
                fail_at(L, front_of(L)->line, "levels: a list of tables is "
                        "wanted");
            keys_check(L, known, COUNT(known));
            c->level[c->nlevel] = (Level){
                text_at(L, "name", "level"), (int)positive_at(L, "fanout", 1),
                positive_at(L, "bandwidth", 1e9),
                real_at(L, "latency", 1e-6) };
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* stack: Cluster, chunk */
static int cluster_run(lua_State *L)
{
    static const char *const known[] = { "name", "target", "march", "cores",
                                         "memory", "rates", "levels" };
    Cluster *c = lua_touserdata(L, 1);
    lua_call(L, 0, 1);
    if (!lua_istable(L, 2))
        fail_at(L, front_of(L)->line, "the cluster file returns %s; a table "
                "is wanted", luaL_typename(L, 2));
    keys_check(L, known, COUNT(known));
    c->name = text_at(L, "name", "host");
    c->target = text_at(L, "target", "host");
    c->march = text_at(L, "march", "native");
    if (!*c->march || *c->march == '-'
        || c->march[strspn(c->march, "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-")])
        fail_at(L, front_of(L)->line, "march: \"%s\" is no processor's name",
                c->march);
    c->cores = (int)real_at(L, "cores", 0);
    c->memory = (int64_t)real_at(L, "memory", 0);
    rates_read(L, c);
    levels_read(L, c);
    return 0;
}

Cluster *cluster_read(const char *home, const char *file, Arena *a)
{
    if (!file && !home)
        err_code(5, "dpc", "models/clusters/host.lua is not found: set "
                 "DPC_HOME to the folder that holds models/");
    const char *path = file ? file
                     : fmt(a, "%s/models/clusters/host.lua", home);
    Front *f = alloc(a, sizeof *f);
    *f = (Front){ .a = a, .home = home, .dir = ".", .scope = "",
                  .line = intern(a, path) };
    Cluster *c = alloc(a, sizeof *c);
    lua_State *L = sandbox_new(f);
    lua_pushcfunction(L, cluster_run);
    lua_pushlightuserdata(L, c);
    sandbox_load(L, f->line, f->line, false);
    sandbox_call(L, 2, 0);
    lua_close(L);
    if (!c->cores)
        c->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!c->memory)
        c->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return c;
}
