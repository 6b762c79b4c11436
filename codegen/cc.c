/* cc.c -- the C compiler, run as seldom as possible.
 *
 * An object is a function of its text, its command, the compiler and, for
 * -march=native, the processor; so the cache keeps it under their hash, and
 * the binary under the hash of what went into it.  Files enter the cache by
 * rename, so that two compiles at once never see half of one, and carry a hash
 * of their bytes, so that what a full disk or a crash left of them is no hit.
 * They are copied, not linked: the user may write over a binary. */
#include "codegen/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void folders_make(const char *path)
{
    char p[4096];
    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; *s; s++)
        if (*s == '/') {
            *s = 0;
            mkdir(p, 0777);
            *s = '/';
        }
}

void file_write(const char *path, const void *data, size_t n)
{
    folders_make(path);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    ok = f && fclose(f) == 0 && ok;
    if (!ok)
        err_code(5, path, "cannot write %zu bytes: %s", n, strerror(errno));
}

static char *hash_hex(Arena *a, const char *x, size_t nx, const char *y)
{
    XXH3_state_t s;
    XXH3_128bits_reset(&s);
    XXH3_128bits_update(&s, x, nx);
    XXH3_128bits_update(&s, y, strlen(y));
    XXH128_hash_t h = XXH3_128bits_digest(&s);
    return fmt(a, "%016llx%016llx", (unsigned long long)h.high64,
               (unsigned long long)h.low64);
}

/* ---- the cache ---- */

/* All of a file, on the heap; NULL when it cannot be read. */
static char *file_read(const char *path, size_t *n, mode_t *mode)
{
    struct stat st;
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *x = NULL;
    if (f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
        *n = (size_t)st.st_size;
        *mode = st.st_mode & 0777;
        x = malloc(*n + sizeof(XXH128_canonical_t));
    }
    if (x && fread(x, 1, *n, f) != *n) {
        free(x);
        x = NULL;
    }
    if (f)
        fclose(f);
    return x;
}

/* A new file, never the old one with other bytes: that may be running. */
static bool file_make(const char *path, const char *x, size_t n, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(x, 1, n, f) == n && fchmod(fileno(f), mode) == 0;
    return f && fclose(f) == 0 && ok;
}

static XXH128_canonical_t seal_of(const char *x, size_t n)
{
    XXH128_canonical_t seal;
    XXH128_canonicalFromHash(&seal, XXH3_128bits(x, n));
    return seal;
}

/* False: no such entry, or not what was put there. */
static bool cache_take(const char *entry, const char *to)
{
    size_t n = 0;
    mode_t mode;
    char *x = file_read(entry, &n, &mode);
    bool ok = x && n > sizeof(XXH128_canonical_t);
    if (ok) {
        n -= sizeof(XXH128_canonical_t);
        XXH128_canonical_t seal = seal_of(x, n);
        ok = memcmp(&seal, x + n, sizeof seal) == 0 &&
             file_make(to, x, n, mode);
    }
    free(x);
    return ok;
}

/* An entry appears whole, by rename. */
static void cache_store(Arena *a, const char *entry, const char *x, size_t n,
                        mode_t mode)
{
    folders_make(entry);
    char *tmp = fmt(a, "%s.%d", entry, (int)getpid());
    if (!file_make(tmp, x, n, mode) || rename(tmp, entry) != 0)
        unlink(tmp);
}

/* A copy of `from` and its hash.  A cache that cannot be written is none. */
static void cache_put(Arena *a, const char *from, const char *entry)
{
    size_t n = 0;
    mode_t mode;
    char *x = entry ? file_read(from, &n, &mode) : NULL;
    if (!x)
        return;
    XXH128_canonical_t seal = seal_of(x, n);
    memcpy(x + n, &seal, sizeof seal);
    cache_store(a, entry, x, n + sizeof seal, mode);
    free(x);
}

/* ---- children ---- */

typedef struct Child { pid_t pid; const char *log, *command; } Child;

static Child child_start(const char *command, const char *log)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, 1);
        dup2(fd, 2);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (pid < 0)
        err_code(5, "dpc", "cannot start the C compiler: %s", strerror(errno));
    return (Child){ pid, log, command };
}

static void child_end(const Child *c)
{
    int status = 0;
    char text[3000] = "";
    waitpid(c->pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    FILE *f = fopen(c->log, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    err_code(5, "dpc", "the C compiler failed; this was its command:\n%s\n%s",
             c->command, text);
}

/* ---- who compiles ---- */

/* The program that a name in PATH means, as a real path; ccache and its like
 * stand before it and change with no compiler: they are passed over. */
static char *program_of(Arena *a, const char *name)
{
    const char *path = strchr(name, '/') ? "" : getenv("PATH");
    char real[PATH_MAX];
    while (path) {
        int n = (int)strcspn(path, ":");
        const char *file = *path ? fmt(a, "%.*s/%s", n, path, name) : name;
        path = path[n] ? path + n + 1 : NULL;
        if (access(file, X_OK) != 0 || !realpath(file, real))
            continue;
        const char *base = strrchr(real, '/') + 1;
        if (strcmp(base, "ccache") != 0 && strcmp(base, "distcc") != 0)
            return fmt(a, "%s", real);
    }
    return fmt(a, "%s", name);
}

/* The processor, as far as -march=native and oneDNN ask: its first entry in
 * /proc/cpuinfo, without what changes while it runs. */
static char *processor(Arena *a)
{
    static const char *const said[] = { "model name", "flags", "Features",
                                        "CPU part" };
    char line[4096], *all = fmt(a, "%s", "");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && *line != '\n')
        for (int i = 0; i < COUNT(said); i++)
            if (strncmp(line, said[i], strlen(said[i])) == 0)
                all = fmt(a, "%s%s", all, line);
    if (f)
        fclose(f);
    return all;
}

/* What makes two compilers two: name, file, its age and size; and for which
 * processor they compile. */
static const char *compiler_of(Arena *a, const UnitOptions *o)
{
    struct stat st = {0};
    char *cc = program_of(a, fmt(a, "%.*s", (int)strcspn(o->cc, " "), o->cc));
    stat(cc, &st);
    return fmt(a, "%s %s %lld.%ld %lld %s", o->cc, cc,
               (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (long long)st.st_size, processor(a));
}

/* ---- objects and binary ---- */

typedef struct Object {
    const Source *source;
    const char *command;                  /* flags included */
    char *key, *path;                     /* path: in the work folder */
    bool cached;
} Object;

static char work[4096];                   /* folder to remove at exit */

static void work_remove(void)
{
    pid_t pid = *work ? fork() : 0;
    if (*work && pid == 0) {
        execlp("rm", "rm", "-rf", work, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
    *work = 0;
}

/* It goes when the build is done, or when it fails. */
static char *work_folder(Arena *a)
{
    static bool registered;
    const char *tmp = getenv("TMPDIR");
    char *dir = fmt(a, "%s/dpc-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        err_code(5, dir, "cannot make a work folder: %s", strerror(errno));
    snprintf(work, sizeof work, "%s", dir);
    if (!registered)
        registered = atexit(work_remove) == 0;
    return dir;
}

static char *cache_path(Arena *a, const UnitOptions *o, const char *key,
                        const char *suffix)
{
    if (!o->cache)
        return NULL;
    return fmt(a, "%s/%.2s/%s%s", o->cache, key, key, suffix);
}

static void objects_find(Object *obj, int n, const char *dir,
                         const UnitOptions *o, Arena *a)
{
    const char *by = compiler_of(a, o);
    for (int i = 0; i < n; i++) {
        const Source *s = obj[i].source;
        obj[i].key = hash_hex(a, s->text, strlen(s->text),
                              fmt(a, "%s %s", obj[i].command, by));
        obj[i].path = fmt(a, "%s/%s.o", dir, s->name);
        char *hit = cache_path(a, o, obj[i].key, ".o");
        obj[i].cached = cache_take(hit, obj[i].path);
    }
}

static void objects_make(Object *obj, int n, const char *dir,
                         const UnitOptions *o, Arena *a)
{
    Child *child = alloc(a, (size_t)(n + 1) * sizeof *child);
    int jobs = o->jobs > 0 ? o->jobs : 1, running = 0, ended = 0;
    for (int i = 0; i < n; i++) {
        if (obj[i].cached)
            continue;
        char *c = fmt(a, "%s/%s", dir, obj[i].source->name);
        file_write(c, obj[i].source->text, strlen(obj[i].source->text));
        if (running - ended >= jobs)
            child_end(&child[ended++]);
        child[running++] = child_start(
            fmt(a, "%s -c -o %s %s", obj[i].command, obj[i].path, c),
            fmt(a, "%s.log", obj[i].path));
    }
    while (ended < running)
        child_end(&child[ended++]);
    for (int i = 0; i < n; i++)
        if (!obj[i].cached)
            cache_put(a, obj[i].path, cache_path(a, o, obj[i].key, ".o"));
}

/* The binary follows from its objects, the runtime and the flags. */
static char *binary_key(const Object *obj, int n, const UnitOptions *o,
                        Arena *a)
{
    struct stat st = {0};
    char *all = fmt(a, "%s %s", o->cc, o->link);
    stat(o->runtime, &st);
    all = fmt(a, "%s %lld %lld.%ld", all, (long long)st.st_size,
              (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    for (int i = 0; i < n; i++)
        all = fmt(a, "%s %s", all, obj[i].key);
    return hash_hex(a, all, strlen(all), "");
}

static void link_binary(const Object *obj, int n, const char *dir,
                        const UnitOptions *o, Arena *a)
{
    char *command = fmt(a, "%s -fopenmp -o %s/bin", o->cc, dir);
    for (int i = 0; i < n; i++)
        command = fmt(a, "%s %s", command, obj[i].path);
    command = fmt(a, "%s %s %s", command, o->runtime, o->link);
    Child c = child_start(command, fmt(a, "%s/link.log", dir));
    child_end(&c);
}

static void binary_write(const char *from, const char *to)
{
    size_t n = 0;
    mode_t mode;
    char *x = file_read(from, &n, &mode);
    if (!x || !file_make(to, x, n, mode))
        err_code(5, to, "cannot write the binary: %s", strerror(errno));
    free(x);
}

void cc_build(const Source *source, int n, const char *flags,
              const UnitOptions *o, Arena *a, UnitReport *report)
{
    double start = now();
    char *dir = work_folder(a);
    Object *obj = alloc(a, (size_t)(n + 1) * sizeof *obj);
    for (int i = 0; i < n; i++) {
        obj[i].source = &source[i];
        obj[i].command = fmt(a, "%s %s %s", o->cc, flags,
                             source[i].flags ? source[i].flags : "");
    }
    objects_find(obj, n, dir, o, a);
    char *whole = cache_path(a, o, binary_key(obj, n, o, a), ".bin");
    for (int i = 0; i < n; i++)
        obj[i].cached ? report->cached++ : report->compiled++;
    folders_make(o->out);
    if (!cache_take(whole, o->out)) {
        objects_make(obj, n, dir, o, a);
        link_binary(obj, n, dir, o, a);
        char *bin = fmt(a, "%s/bin", dir);
        cache_put(a, bin, whole);
        binary_write(bin, o->out);
    }
    work_remove();
    report->seconds += now() - start;
}

/* ---- whole compiles ---- */

/* What went in, and who compiles: this dpc, its runtime, the C compiler. */
static char *unit_entry(const char *input, size_t n, const UnitOptions *o,
                        Arena *a)
{
    struct stat dpc = {0}, rt = {0};
    stat("/proc/self/exe", &dpc);
    stat(o->runtime, &rt);
    char *by = fmt(a, "%s %s %s %d %lld.%ld %lld %lld.%ld %lld",
                   compiler_of(a, o), o->link,
                   o->march ? o->march : "", o->threads,
                   (long long)dpc.st_mtim.tv_sec, dpc.st_mtim.tv_nsec,
                   (long long)dpc.st_size, (long long)rt.st_mtim.tv_sec,
                   rt.st_mtim.tv_nsec, (long long)rt.st_size);
    return cache_path(a, o, hash_hex(a, input, n, by), ".unit");
}

bool unit_recall(const char *input, size_t n, const UnitOptions *o, Arena *a,
                 UnitReport *r)
{
    double start = now();
    size_t size = 0, tail = sizeof *r + sizeof(XXH128_canonical_t);
    mode_t mode;
    char *x = file_read(unit_entry(input, n, o, a), &size, &mode);
    bool ok = x && size > tail;
    if (ok) {
        XXH128_canonical_t seal = seal_of(x, size - sizeof seal);
        ok = memcmp(&seal, x + size - sizeof seal, sizeof seal) == 0;
    }
    if (ok) {
        memcpy(r, x + size - tail, sizeof *r);
        r->cached += r->compiled, r->compiled = 0;
        folders_make(o->out);
        ok = file_make(o->out, x, size - tail, mode);
        r->seconds = now() - start;
    }
    free(x);
    return ok;
}

void unit_remember(const char *input, size_t n, const UnitOptions *o, Arena *a,
                   const UnitReport *r)
{
    size_t size = 0;
    mode_t mode;
    char *bin = file_read(o->out, &size, &mode);
    char *x = bin ? realloc(bin, size + sizeof *r + sizeof(XXH128_canonical_t))
            : NULL, *entry = unit_entry(input, n, o, a);
    if (!x || !entry) {
        free(x ? x : bin);
        return;
    }
    memcpy(x + size, r, sizeof *r);
    size += sizeof *r;
    XXH128_canonical_t seal = seal_of(x, size);
    memcpy(x + size, &seal, sizeof seal);
    cache_store(a, entry, x, size + sizeof seal, mode);
    free(x);
}
