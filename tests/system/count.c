/* count.c -- LD_PRELOAD: who allocates between two steps of training.
 *
 * The process writes a line of metrics.jsonl a step: the line of step COUNT_FROM
 * begins the count (0: the start of the process), the line of COUNT_TO ends
 * it.  A call is charged to the object that holds its return address;
 * libstdc++ allocates for whoever called it, so it stands for oneDNN here.  At
 * exit $COUNT_OUT.PID gets a line "OBJECT KIND CALLS BYTES LARGEST" a caller;
 * the kinds are heap, map (private, in whole pages) and share. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLERS = 256 };

typedef struct Caller {
    void *_Atomic at;
    const char *_Atomic kind;
    _Atomic long calls, bytes, largest;
} Caller;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static Caller caller[CALLERS];
static _Atomic int counting, seen;
static char from[32], to[32];

static void charge(void *at, const char *kind, size_t n)
{
    if (!atomic_load(&counting))
        return;
    for (int i = 0; i < CALLERS; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&caller[i].at, &none, at) &&
            none != at)
            continue;
        atomic_store(&caller[i].kind, kind);
        atomic_fetch_add(&caller[i].calls, 1);
        atomic_fetch_add(&caller[i].bytes, (long)n);
        if (atomic_load(&caller[i].largest) < (long)n)
            atomic_store(&caller[i].largest, (long)n);
        return;
    }
}

#define HERE __builtin_return_address(0)

void *malloc(size_t n)
{
    charge(HERE, "heap", n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    charge(HERE, "heap", n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    charge(HERE, "heap", n);
    return __libc_realloc(p, n);
}

void *memalign(size_t align, size_t n)
{
    charge(HERE, "heap", n);
    return __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    charge(HERE, "heap", n);
    return __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    charge(HERE, "heap", n);
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}

static const char *kind_of(int flags)
{
    return flags & MAP_ANONYMOUS && flags & MAP_PRIVATE ? "map" : "share";
}

typedef void *Mmap(void *, size_t, int, int, int, off_t);

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    static Mmap *real;
    if (!real)
        real = (Mmap *)dlsym(RTLD_NEXT, "mmap");
    charge(HERE, kind_of(flags), (n + 4095) / 4096 * 4096);
    return real(at, n, prot, flags, fd, off);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t off)
{
    static Mmap *real;
    if (!real)
        real = (Mmap *)dlsym(RTLD_NEXT, "mmap64");
    charge(HERE, kind_of(flags), (n + 4095) / 4096 * 4096);
    return real(at, n, prot, flags, fd, off);
}

ssize_t write(int fd, const void *data, size_t n)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT,
                                                            "write");
    if (*from && n > strlen(from) && !memcmp(data, from, strlen(from)))
        atomic_store(&counting, 1), atomic_store(&seen, 1);
    if (*to && n > strlen(to) && !memcmp(data, to, strlen(to)) &&
        atomic_exchange(&counting, 0))
        atomic_store(&seen, 2);
    return real(fd, data, n);
}

static void mark(char *line, const char *name)
{
    const char *step = getenv(name);
    if (step)
        snprintf(line, sizeof from, "{\"step\":%s,", step);
}

__attribute__((constructor)) static void begin(void)
{
    mark(from, "COUNT_FROM");
    mark(to, "COUNT_TO");
    const char *first = getenv("COUNT_FROM");
    if (first && !strcmp(first, "0"))
        atomic_store(&counting, 1);
}

__attribute__((destructor)) static void end(void)
{
    char name[4096];
    Dl_info who;
    const char *out = getenv("COUNT_OUT");
    atomic_store(&counting, 0);
    if (!out || atomic_load(&seen) != 2)
        return;
    snprintf(name, sizeof name, "%s.%d", out, (int)getpid());
    FILE *f = fopen(name, "w");
    for (int i = 0; f && i < CALLERS && atomic_load(&caller[i].at); i++) {
        const char *object = dladdr(caller[i].at, &who) ? who.dli_fname : "?";
        const char *base = strrchr(object, '/');
        fprintf(f, "%s %s %ld %ld %ld\n", base ? base + 1 : object,
                atomic_load(&caller[i].kind), atomic_load(&caller[i].calls), atomic_load(&caller[i].bytes),
                atomic_load(&caller[i].largest));
    }
    if (f)
        fclose(f);
}
