/* main.c -- dpc COMMAND [options] FILE...: finds its home, starts a command.
 *
 * Home is the folder that holds models/ and passes/partitioners/: DPC_HOME,
 * the source tree that the executable was built in, or PREFIX/share/dpc of an
 * installation. */
#include "compiler/options.h"
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

/* The folder of the running executable. */
static char *self_folder(Arena *a)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(path, '/');
    return fmt(a, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* The first of DIR/../share/dpc, DIR/.., DIR/../.., that is a home. */
static const char *home_find(Arena *a, const char *dir)
{
    const char *try[] = { getenv("DPC_HOME"), fmt(a, "%s/../share/dpc", dir),
                          fmt(a, "%s/..", dir), fmt(a, "%s/../..", dir), "." };
    for (int i = 0; i < COUNT(try); i++) {
        if (!try[i] || !readable(fmt(a, "%s/models/clusters/host.lua", try[i])))
            continue;
        char *real = realpath(try[i], NULL);
        const char *s = fmt(a, "%s", real ? real : try[i]);
        free(real);
        return s;
    }
    return NULL;
}

static const char *runtime_find(Arena *a, const char *dir)
{
    const char *try[] = { getenv("DPC_RUNTIME"), fmt(a, "%s/libdpc_rt.a", dir),
                          fmt(a, "%s/../lib/dpc/libdpc_rt.a", dir) };
    for (int i = 0; i < COUNT(try); i++)
        if (try[i] && readable(try[i]))
            return try[i];
    return NULL;
}

int main(int argc, char **argv)
{
    static Options o;
    o.arena = arena_new();
    op_init();
    const char *dir = self_folder(o.arena);
    o.home = home_find(o.arena, dir);
    o.runtime_lib = runtime_find(o.arena, dir);
    options_parse(&o, argc, argv);
    if (o.help) {
        help_command(o.command, stdout);
        return 0;
    }
    int code = commands[o.command].fn(&o);
    if (fflush(stdout) != 0 || ferror(stdout))
        err_code(5, "stdout", "cannot be written");
    arena_free(o.arena);
    return code;
}
