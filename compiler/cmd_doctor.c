/* cmd_doctor.c -- dpc doctor: what dpc needs of this machine, looked at. */
#define _GNU_SOURCE                       /* memmem */
#include "compiler/options.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

typedef enum Mark { OK, WARN, BAD, ABSENT } Mark;
static const char *const marks[] = { "[ OK ]", "[WARN]", "[FAIL]", "[ -- ]" };
static const char *const words[] = { "ok", "warning", "error", "absent" };

typedef struct Doctor { const Options *o; int n, count[4]; } Doctor;

static void say(Doctor *d, const char *name, Mark mark, const char *text,
                const char *help)
{
    static const char dots[] = " ....................";
    d->count[mark]++;
    if (d->o->json) {
        printf("%s{\"name\": \"%s\", \"mark\": \"%s\", \"text\": ",
               d->n++ ? ",\n " : "", name, words[mark]);
        json_quote(stdout, text);
        printf("}");
        return;
    }
    int size = (int)strlen(name);
    printf("  %s%.*s %-50s %s\n", name, size < 18 ? 20 - size : 2, dots, text,
           marks[mark]);
    if (help && mark != OK)
        printf("        %s\n", help);
}

/* First line that a command prints; NULL when it fails. */
static char *first_line(const Options *o, const char *command)
{
    char line[256] = "";
    FILE *p = popen(command, "r");
    bool read = p && fgets(line, sizeof line, p);
    int rc = p ? pclose(p) : -1;
    line[strcspn(line, "\n")] = 0;
    return read && rc == 0 ? fmt(o->arena, "%s", line) : NULL;
}

static void compiler(Doctor *d)
{
    const char *cc = getenv("CC");
    cc = cc && *cc ? cc : "cc";
    Arena *a = d->o->arena;
    const char *s = first_line(d->o, fmt(a, "%s --version 2>/dev/null", cc));
    say(d, "C compiler", s ? OK : BAD, s ? s : fmt(a, "no \"%s\"", cc),
        "apt-get install gcc, or set CC");
    s = first_line(d->o, "tcc -v 2>/dev/null");
    say(d, "tcc", s ? OK : ABSENT, s ? s : "not found: cc compiles all",
        NULL);
}

static void *library_open(const char *const *name, int n, const char **found)
{
    for (int i = 0; i < n; i++) {
        void *p = dlopen(name[i], RTLD_LAZY | RTLD_LOCAL);
        *found = name[i];
        if (p)
            return p;
    }
    return NULL;
}

static void onednn(Doctor *d)
{
    static const char *const names[] = { "libdnnl.so.3", "libdnnl.so.2",
                                         "libdnnl.so" };
    typedef struct { int major, minor, patch; } Version;
    const char *found;
    void *p = library_open(names, COUNT(names), &found);
    const Version *(*version)(void) = NULL;
    if (p)
        *(void **)&version = dlsym(p, "dnnl_version");
    const Version *v = version ? version() : NULL;
    say(d, "oneDNN", v ? OK : BAD, v ? fmt(d->o->arena, "%d.%d.%d", v->major,
        v->minor, v->patch) : "not found", "apt-get install libdnnl-dev");
}

static void mpi(Doctor *d)
{
    const char *s = first_line(d->o, "mpirun --version 2>/dev/null");
    const char *two = s ? first_line(d->o,
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "OMPI_MCA_rmaps_base_oversubscribe=1 "
        "mpirun -n 2 sh -c 'echo started' 2>/dev/null") : NULL;
    say(d, "MPI", !s ? BAD : two ? OK : WARN,
        !s ? "no mpirun" : fmt(d->o->arena, "%s, %s", s,
                               two ? "started 2 ranks" : "starts no 2 ranks"),
        s ? "mpirun -n 2 hostname says why"
          : "apt-get install openmpi-bin libopenmpi-dev");
}

static void nvidia(Doctor *d)
{
    static const char *const driver[] = { "libcuda.so.1" };
    static const char *const rtc[] = { "libnvrtc.so", "libnvrtc.so.13",
        "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so" };
    static const char *const nccl[] = { "libnccl.so.2" };
    const char *found;
    void *p = library_open(driver, COUNT(driver), &found);
    say(d, "CUDA driver", p ? OK : ABSENT, p ? found : "not found: host only",
        NULL);
    p = library_open(rtc, COUNT(rtc), &found);
    int major = 0, minor = 0;
    int (*version)(int *, int *) = NULL;
    if (p)
        *(void **)&version = dlsym(p, "nvrtcVersion");
    if (version)
        version(&major, &minor);
    say(d, "NVRTC", p ? OK : ABSENT, p ? fmt(d->o->arena, "%d.%d", major, minor)
        : "not found: no --target cuda", NULL);
    p = library_open(nccl, COUNT(nccl), &found);
    say(d, "NCCL", p ? OK : ABSENT, p ? found : "not found", NULL);
}

bool runtime_fits(const Options *o)
{
    int fd = open(o->runtime_lib, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *p = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    bool fits = p != MAP_FAILED && memmem(p, (size_t)st.st_size, DPC_LAYOUT,
                                          sizeof DPC_LAYOUT);
    if (p != MAP_FAILED)
        munmap(p, (size_t)st.st_size);
    if (fd >= 0)
        close(fd);
    return fits;
}

static void own(Doctor *d)
{
    const Options *o = d->o;
    say(d, "home", o->home ? OK : BAD, o->home ? o->home : "not found",
        "set DPC_HOME to the folder that holds models/");
    bool fits = o->runtime_lib && runtime_fits(o);
    say(d, "runtime", fits ? OK : BAD,
        fits ? o->runtime_lib : !o->runtime_lib ? "libdpc_rt.a not found"
             : fmt(o->arena, "%s: of another layout", o->runtime_lib),
        "./build.sh build, or ./build.sh install PREFIX");
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    say(d, "scratch", access(tmp, W_OK) == 0 ? OK : BAD, tmp,
        "set TMPDIR to a folder that can be written");
}

int cmd_doctor(const Options *o)
{
    Doctor d = { .o = o };
    struct utsname u;
    uname(&u);
    double ram = (double)sysconf(_SC_PHYS_PAGES) *
                 (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    if (o->json)
        printf("{\"version\": \"" DPC_VERSION "\", \"machine\": \"%s\", "
               "\"cores\": %ld, \"memory_gib\": %.1f, \"checks\": [\n ",
               u.machine, sysconf(_SC_NPROCESSORS_ONLN), ram);
    else
        printf("dpc " DPC_VERSION "  %s %s  %ld cores  %.0f GiB\n", u.sysname,
               u.machine, sysconf(_SC_NPROCESSORS_ONLN), ram);
    compiler(&d), onednn(&d), mpi(&d), nvidia(&d), own(&d);
    if (o->json)
        printf("]}\n");
    else
        printf("%d error%s, %d warning%s\n", d.count[BAD],
               d.count[BAD] == 1 ? "" : "s", d.count[WARN],
               d.count[WARN] == 1 ? "" : "s");
    return d.count[BAD] ? 5 : 0;
}
