/* unit_build.c -- from scheduled graphs to files: texts, objects, a binary. */
#include "codegen/kernel.h"
#include "codegen/unit.h"
#include "codegen/watch.h"
#include <malloc.h>
#include <stdlib.h>
#include <time.h>

/* Of one thread, OpenMP would make, and free, a team for each loop. */
static const char alone[] = " -fno-openmp -fopenmp-simd";

enum { NFILE = 4, NWATCH = 2 };           /* kernels go into so many files,
                                             and their watches */

extern void omp_set_num_threads(int);

void unit_threads(int threads)
{
    omp_set_num_threads(threads);
}

int parts_deal(const Parts *p, Source *out, Arena *a)
{
    int files = p->n < (uint32_t)p->files ? (int)p->n : p->files;
    Text *t = alloc(a, (size_t)(files + 1) * sizeof *t);
    for (uint32_t i = 0; i < p->n; i++) {
        Text *x = &t[i % (uint32_t)files];
        x->arena = a;
        if (!x->n)
            text_add(x, "%s", p->head);
        text_add(x, "\n%s", p->text[i]);
    }
    for (int k = 0; k < files; k++)
        out[k] = (Source){ fmt(a, "%s%d.%s", p->stem, k, p->suffix), t[k].p,
                           p->flags, p->small };
    return files;
}

/* The linker takes one of each name: several objects may have a kernel. */
static const char *shared(Arena *a, const char *name, const char *text)
{
    return fmt(a, "#pragma weak %s\n%s", name, text);
}

static Parts kernel_parts(const Unit *u, Arena *a)
{
    const char **text = alloc(a, (u->nkernel + 1) * sizeof *text);
    for (uint32_t i = 0; i < u->nkernel; i++) {
        const UnitKernel *k = &u->kernel[i];
        text[i] = u->cuda ? k->text : shared(a, k->name, k->text);
    }
    return (Parts){ "k", u->cuda ? "cu" : "c",
                    u->cuda ? cuda_prelude : host_prelude, NULL, false, text,
                    u->nkernel, NFILE };
}

/* Is program p the entry, or one of its other sizes (NAME-SIZE)? */
static bool same_entry(const char *p, const char *entry)
{
    size_t n = strcspn(entry, "-");
    return strcspn(p, "-") == n && strncmp(p, entry, n) == 0;
}

/* Only steps of training are hunted for numbers that are none; the watches of
 * kernels that no such program calls are not written. */
static void watches_drop(Unit *u, const UnitOptions *o)
{
    bool *keep = alloc(u->arena, u->nkernel + 1);
    const char *train = "train";
    for (int i = 0; i < o->nrun; i++)
        if (strcmp(o->run[i].command, "train") == 0)
            train = o->run[i].entry;
    for (int i = 0; i < u->nprogram; i++) {
        const Program *p = &u->program[i];
        for (uint32_t k = 0; k < p->nstep; k++)
            if (p->step[k].kind == DPC_STEP_KERNEL)
                keep[p->step[k].call] |= same_entry(p->g->entry, train);
    }
    for (uint32_t i = 0; i < u->nkernel; i++)
        if (!keep[i])
            u->kernel[i].watch = NULL;
}

/* Kernels that store otherwise may have one watch. */
static bool watch_first(const Unit *u, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (u->kernel[k].watch && strcmp(u->kernel[k].watch_name,
                                         u->kernel[i].watch_name) == 0)
            return false;
    return true;
}

static Parts watch_parts(const Unit *u, Arena *a)
{
    const char **text = alloc(a, (u->nkernel + 1) * sizeof *text);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->nkernel; i++) {
        const UnitKernel *k = &u->kernel[i];
        if (k->watch && watch_first(u, i))
            text[n++] = fmt(a, "extern DpcWatchFn %s __attribute((weak));\n%s",
                            k->watch_name, k->watch);
    }
    return (Parts){ "watch", "c", fmt(a, "#include \"dpc_rt.h\"\n"
                    "#define DPC_FN static inline\n%s%s", watch_head,
                        host_prelude), watch_flags, true, text, n, NWATCH };
}

static void emit_texts(const Source *s, int n, const UnitOptions *o, Arena *a)
{
    for (int i = 0; i < n; i++)
        file_write(fmt(a, "%s/%s", o->emit_dir, s[i].name), s[i].text,
                   strlen(s[i].text));
}

static void emit_sources(const Parts *p, int n, const Source *tables,
                         const UnitOptions *o, Arena *a)
{
    Source s[NFILE + NWATCH];
    for (int i = 0; i < n; i++)
        emit_texts(s, parts_deal(&p[i], s, a), o, a);
    emit_texts(tables, 1, o, a);
}

static void emit_cubins(const Source *s, int n, const UnitOptions *o, Arena *a)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < o->narch; k++) {
            size_t bytes = 0;
            const char *log = "";
            void *p = nvrtc_compile(a, s[i].text, o->arch[k], &bytes, &log);
            if (!p)
                err_code(5, s[i].name, "nvrtc: %s: %s", o->arch[k], log);
            file_write(fmt(a, "%s/%s.%s.cubin", o->emit_dir, s[i].name,
                           o->arch[k]), p, bytes);
        }
}

static void cuda_side(Graph *const *entry, int n, const UnitOptions *o,
                      Arena *a)
{
    Unit *u = unit_new(entry, n, true, a);
    Source s[NFILE];
    Parts kernels = kernel_parts(u, a);
    int ns = parts_deal(&kernels, s, a);
    if (o->emit_cuda)
        emit_texts(s, ns, o, a);
    if (o->emit_cubin)
        emit_cubins(s, ns, o, a);
}

static void report_memory(Graph *const *entry, int n, const Unit *u,
                          UnitReport *r)
{
    r->kernels = (int)u->nkernel;
    r->roles = u->nrole;
    for (int role = 0; role < u->nrole; role++) {
        int64_t io = 0;
        for (int i = 0; i < n; i++) {
            const Sched *s = entry[i]->sched;
            if (entry[i]->role >= 0 && entry[i]->role != role)
                continue;
            if (s->bytes[ARENA] > r->arena)
                r->arena = s->bytes[ARENA], r->lower = s->lower;
            io += s->bytes[IO];
            if (s->bytes[HOST_ARENA] > r->host)
                r->host = s->bytes[HOST_ARENA];
        }
        r->io = io > r->io ? io : r->io;
        r->leaves = u->leaves[role] > r->leaves ? u->leaves[role] : r->leaves;
        if (u->host_leaves[role] > r->host_leaves)
            r->host_leaves = u->host_leaves[role];
    }
}

/* KiB that the system says of this process: "VmRSS", or the most since it was
 * told to forget, "VmHWM". */
static long resident(const char *key)
{
    char line[128];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = atol(line + strlen(key) + 1);
    if (f)
        fclose(f);
    return kib;
}

/* Forgets the most; what was freed is given back, so that whoever allocates
 * next is seen. */
static long resident_begin(void)
{
    malloc_trim(0);
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputc('5', f);
        fclose(f);
    }
    return resident("VmRSS");
}

static void check(const DpcUnit *u, const UnitOptions *o)
{
    long held = o->verbose ? resident_begin() : 0;
    clock_t begin = clock();
    uint32_t steps = 0;
    if (dpc_check(u))
        die("%s", dpc_last_error());
    double spent = (double)(clock() - begin) / CLOCKS_PER_SEC;
    for (uint32_t i = 0; i < u->nprogram; i++)
        steps += u->program[i].nstep;
    if (o->verbose)
        fprintf(stderr, "dpc: %u programs of %u steps are sound, checked with "
                "%ld MiB in %.2f s\n", u->nprogram, steps,
                (resident("VmHWM") - held + 1023) / 1024, spent);
}

void unit_build(Graph *const *entry, int n, const UnitOptions *o, Arena *a,
                UnitReport *report)
{
    *report = (UnitReport){0};
    unit_threads(o->threads > 0 ? o->threads : 1);
    if (o->emit_cuda || o->emit_cubin)
        cuda_side(entry, n, o, a);
    Unit *u = unit_new(entry, n, false, a);
    DpcUnit rows = unit_rows(u, o->model);
    check(&rows, o);
    report_memory(entry, n, u, report);
    if (!o->emit_c && !o->out)
        return;
    watches_drop(u, o);
    /* Watches are quick to compile: they go last and fill the gaps. */
    Parts parts[] = { kernel_parts(u, a), watch_parts(u, a) };
    Source tables = { .name = "unit.c", .text = unit_text(u, o),
                      .small = true };
    if (o->emit_c)
        emit_sources(parts, COUNT(parts), &tables, o, a);
    if (!o->out)
        return;
    char *flags = fmt(a, "%s -ffunction-sections -march=%s -I%s%s", host_flags,
                      o->march ? o->march : "native", o->include,
                      o->threads == 1 ? alone : "");
    cc_build(parts, COUNT(parts), &tables, flags, o, a, report);
}
