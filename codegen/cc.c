/* cc.c -- the C compiler, run as seldom as possible.
 *
 * An object is a function of its text, its command, the compiler and, for
 * -march=native, the processor; so the cache keeps it under their hash, and
 * the binary under the hash of what went into it.
 *
 * A kernel may stand in any file, and a model compiled for other ranks, or
 * with another entry, has many kernels that it had before, but no file.  So
 * each text of a kind (Parts) has an entry in the cache, too: the name of an
 * object with it.  Only texts that no object has are dealt over new files.
 * Objects may then have a text in common: such symbols are weak, and the
 * linker drops what is not called. */
#include "codegen/cache.h"
#include "codegen/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static void child_check(const Child *c, int status)
{
    char text[3000] = "";
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

static void child_end(const Child *c)
{
    int status = 0;
    waitpid(c->pid, &status, 0);
    child_check(c, status);
}

/* Whichever of them ends first: its place is free for another. */
static int child_any(const Child *c, int n)
{
    int status = 0, i = n;
    while (i == n) {
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0)
            die("no C compiler to wait for");
        for (i = 0; i < n && c[i].pid != pid;)
            i++;
    }
    child_check(&c[i], status);
    return i;
}

/* ---- who compiles ---- */

/* The program that a name in PATH means, as a real path; NULL: none.  ccache
 * and its like stand before it and change with no compiler: passed over. */
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
    return NULL;
}

/* Another program that may do a part of the compiler's work; NULL: none. */
static const char *other(Arena *a, const UnitOptions *o, const char *name)
{
    return o->others ? program_of(a, name) : NULL;
}

/* What makes two programs of one name two: file, its age and size. */
static const char *version_of(Arena *a, const char *program)
{
    struct stat st = {0};
    if (!program || stat(program, &st) != 0)
        return "";
    return fmt(a, "%s %lld.%ld %lld", program, (long long)st.st_mtim.tv_sec,
               st.st_mtim.tv_nsec, (long long)st.st_size);
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

/* What makes two compilers two: the programs, and for which processor they
 * compile. */
static const char *compiler_of(Arena *a, const UnitOptions *o)
{
    const char *cc = fmt(a, "%.*s", (int)strcspn(o->cc, " "), o->cc);
    return fmt(a, "%s %s %s %s %s", o->cc, version_of(a, program_of(a, cc)),
               version_of(a, other(a, o, "tcc")),
               version_of(a, other(a, o, "ld.gold")), processor(a));
}

/* ---- objects and binary ---- */

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

typedef struct Object {
    Source source;                        /* text NULL: of an earlier compile */
    const char *command;                  /* flags included */
    const char *key;
    char *path;                           /* in the work folder */
    bool cached, listed;
} Object;

typedef struct Build {
    const UnitOptions *o;
    Arena *arena;
    const char *by, *dir;                 /* compiler; work folder */
    const char *flags;
    const char *tcc;                      /* NULL: none */
    Object **known;                       /* all that were looked for */
    uint32_t nknown, knowncap;
    Object **obj;                         /* those of the binary, in order */
    uint32_t n, cap;
} Build;

static char *entry_of(const Build *b, const char *key, const char *suffix)
{
    return cache_path(b->arena, b->o->cache, key, suffix);
}

static Object *object_new(Build *b, const char *key)
{
    Object *obj = alloc(b->arena, sizeof *obj);
    obj->key = key;
    obj->path = fmt(b->arena, "%s/%s.o", b->dir, key);
    obj->cached = cache_take(entry_of(b, key, ".o"), obj->path);
    GROW(b->arena, b->known, b->nknown, b->knowncap);
    return b->known[b->nknown++] = obj;
}

static char *command_of(const Build *b, const char *flags, bool small)
{
    if (small && b->tcc)
        return fmt(b->arena, "%s -I%s", b->tcc, b->o->include);
    return fmt(b->arena, "%s %s %s", b->o->cc, b->flags, flags ? flags : "");
}

static Object *object_of_source(Build *b, const Source *s)
{
    char *command = command_of(b, s->flags, s->small);
    Object *obj = object_new(b, hash_hex(b->arena, s->text, strlen(s->text),
                                         fmt(b->arena, "%s %s", command,
                                             b->by)));
    obj->source = *s;
    obj->command = command;
    return obj;
}

/* Of an earlier compile; NULL: it is not there any more. */
static Object *object_of_key(Build *b, const char *key)
{
    Object *obj = NULL;
    for (uint32_t i = 0; i < b->nknown && !obj; i++)
        if (strcmp(b->known[i]->key, key) == 0)
            obj = b->known[i];
    if (!obj)
        obj = object_new(b, key);
    return obj->cached ? obj : NULL;
}

/* In the order of first use, which says nothing of who was compiled when: the
 * next compile, which finds all, makes the same bytes. */
static void object_list(Build *b, Object *obj)
{
    if (obj->listed)
        return;
    obj->listed = true;
    GROW(b->arena, b->obj, b->n, b->cap);
    b->obj[b->n++] = obj;
}

/* The entry of each text: of what it is a function. */
static char **part_entries(const Build *b, const Parts *p)
{
    char **entry = alloc(b->arena, (p->n + 1) * sizeof *entry);
    char *by = hash_hex(b->arena, p->head, strlen(p->head),
                        fmt(b->arena, "%s %s", command_of(b, p->flags,
                                                          p->small),
                            b->by));
    for (uint32_t i = 0; i < p->n; i++) {
        const char *t = p->text[i];
        entry[i] = entry_of(b, hash_hex(b->arena, t, strlen(t), by), ".in");
    }
    return entry;
}

static void parts_add(Build *b, const Parts *p)
{
    Object **has = alloc(b->arena, (p->n + 1) * sizeof *has);
    Object **made = alloc(b->arena, (size_t)(p->files + 1) * sizeof *made);
    char **entry = part_entries(b, p);
    const char **none = alloc(b->arena, (p->n + 1) * sizeof *none);
    Parts rest = *p;
    rest.text = none, rest.n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const char *key = cache_follow(b->arena, entry[i]);
        has[i] = key ? object_of_key(b, key) : NULL;
        if (!has[i])
            none[rest.n++] = p->text[i];
    }
    Source *s = alloc(b->arena, (size_t)(p->files + 1) * sizeof *s);
    int files = parts_deal(&rest, s, b->arena);
    for (int k = 0; k < files; k++)
        made[k] = object_of_source(b, &s[k]);
    for (uint32_t i = 0, k = 0; i < p->n; i++) {
        if (!has[i]) {
            has[i] = made[k++ % (uint32_t)files];
            cache_link(b->arena, entry[i], has[i]->key);
        }
        object_list(b, has[i]);
    }
}

/* To tcc a section with a name is read-only, even where it has addresses that
 * the loader moves. */
static Child object_start(const Build *b, const Object *obj)
{
    char *c = fmt(b->arena, "%s/%s", b->dir, obj->source.name);
    char *command = fmt(b->arena, "%s -c -o %s %s", obj->command, obj->path, c);
    if (obj->source.small && b->tcc)
        command = fmt(b->arena, "%s && objcopy --set-section-flags "
                      ".dpc_unit=alloc,data %s", command, obj->path);
    file_write(c, obj->source.text, strlen(obj->source.text));
    return child_start(command, fmt(b->arena, "%s.log", obj->path));
}

static void objects_make(const Build *b)
{
    int jobs = b->o->jobs > 0 ? b->o->jobs : 1, n = 0;
    Child *child = alloc(b->arena, (size_t)jobs * sizeof *child);
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->obj[i]->cached)
            continue;
        int at = n < jobs ? n++ : child_any(child, n);
        child[at] = object_start(b, b->obj[i]);
    }
    for (int i = 0; i < n; i++)
        child_end(&child[i]);
    for (uint32_t i = 0; i < b->n; i++)
        if (!b->obj[i]->cached)
            cache_put(b->arena, b->obj[i]->path,
                      entry_of(b, b->obj[i]->key, ".o"));
}

/* The binary follows from its objects, the runtime and the flags. */
static char *binary_key(const Build *b)
{
    struct stat st = {0};
    const UnitOptions *o = b->o;
    Text all = { .arena = b->arena };
    stat(o->runtime, &st);
    text_add(&all, "%s %s %lld %lld.%ld", o->cc, o->link,
             (long long)st.st_size, (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    for (uint32_t i = 0; i < b->n; i++)
        text_add(&all, " %s", b->obj[i]->key);
    return hash_hex(b->arena, all.p, all.n, "");
}

static void link_binary(const Build *b)
{
    Text command = { .arena = b->arena };
    text_add(&command, "%s%s -fopenmp -Wl,--gc-sections,-z,noexecstack -o "
             "%s/bin", b->o->cc,
             other(b->arena, b->o, "ld.gold") ? " -fuse-ld=gold" : "", b->dir);
    for (uint32_t i = 0; i < b->n; i++)
        text_add(&command, " %s", b->obj[i]->path);
    text_add(&command, " %s %s", b->o->runtime, b->o->link);
    Child c = child_start(command.p, fmt(b->arena, "%s/link.log", b->dir));
    child_end(&c);
}

static void binary_write(const char *from, const char *to)
{
    size_t n = 0;
    mode_t mode;
    char *x = file_read(from, &n, &mode);
    bool ok = x && file_make(to, x, n, mode);
    int why = errno;
    free(x);
    if (!ok)
        err_code(5, to, "cannot write the binary: %s", strerror(why));
}

void cc_build(const Parts *parts, int n, const Source *s, const char *flags,
              const UnitOptions *o, Arena *a, UnitReport *report)
{
    double start = now();
    Build b = { .o = o, .arena = a, .by = compiler_of(a, o),
                .dir = work_folder(a), .flags = flags,
                .tcc = other(a, o, "objcopy") ? other(a, o, "tcc") : NULL };
    for (int i = 0; i < n; i++)
        parts_add(&b, &parts[i]);
    object_list(&b, object_of_source(&b, s));
    char *whole = entry_of(&b, binary_key(&b), ".bin");
    for (uint32_t i = 0; i < b.n; i++)
        b.obj[i]->cached ? report->cached++ : report->compiled++;
    folders_make(o->out);
    if (!cache_take(whole, o->out)) {
        objects_make(&b);
        link_binary(&b);
        char *bin = fmt(a, "%s/bin", b.dir);
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
    return cache_path(a, o->cache, hash_hex(a, input, n, by), ".unit");
}

bool unit_recall(const char *input, size_t n, const UnitOptions *o, Arena *a,
                 UnitReport *r)
{
    double start = now();
    size_t size = 0;
    mode_t mode;
    char *x = cache_read(unit_entry(input, n, o, a), &size, &mode);
    bool ok = x && size > sizeof *r;
    if (ok) {
        size -= sizeof *r;
        memcpy(r, x + size, sizeof *r);
        r->cached += r->compiled, r->compiled = 0;
        folders_make(o->out);
        ok = file_make(o->out, x, size, mode);
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
    char *x = bin ? realloc(bin, size + sizeof *r + SEAL) : NULL;
    char *entry = unit_entry(input, n, o, a);
    if (x && entry) {
        memcpy(x + size, r, sizeof *r);
        cache_write(a, entry, x, size + sizeof *r, mode);
    }
    free(x ? x : bin);
}
