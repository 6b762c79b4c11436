/* tsan.c -- steps of the demo's models under ThreadSanitizer.
 *
 *   tsan [NAME]       those whose name holds NAME
 *
 * Ranks are threads (comm_local.c), each with a thread for what communicates:
 * so every byte that two streams or two ranks share is seen by both, and an
 * event or a lock too few is a report.  Kernels are compiled with the
 * sanitizer too, without OpenMP; dots and convolutions are loops (naive.c).
 * Prints "ok NAME" or "not ok NAME: why"; a report ends the program. */
#include "codegen/unit.h"
#include "compiler/lua.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 2, STEPS = 3, DEFINES = 6 };

static const struct Case {
    const char *name, *model, *plan;
    int micro;
    const char *define[DEFINES];
} cases[] = {
    { "mlp ddp", "models/mlp.lua", "ddp", 2, { "batch=8", "hidden=16" } },
    { "mlp zero", "models/mlp.lua", "zero", 1, { "batch=8", "hidden=16" } },
    { "clip ddp", "models/dalle2/clip.lua", "ddp", 1,
      { "batch=4", "size=tiny" } },
    { "prior zero", "models/dalle2/prior.lua", "zero", 1,
      { "batch=4", "size=tiny" } },
    { "decoder ddp", "models/dalle2/decoder.lua", "ddp", 2,
      { "batch=4", "size=tiny" } },
    { "decoder zero", "models/dalle2/decoder.lua", "zero", 1,
      { "batch=2", "size=tiny" } },
};

static Arena *arena;
static char home[4096], dir[64] = "/tmp/dpc-tsan-XXXXXX";

/* ---- a unit in this process ---- */

static const char stub[] =
    "#include \"dpc_rt.h\"\nconst DpcUnit *loaded;\n"
    "int dpc_main(int n, char **v, const DpcUnit *u)\n"
    "{ (void)n, (void)v; loaded = u; return 0; }\n";

static const DpcUnit *unit_load(Graph *const *g, int n, int number)
{
    const char *at = fmt(arena, "%s/u%d", dir, number);
    const char *include = fmt(arena, "%s/runtime", home);
    UnitOptions u = { .model = "unit", .version = "tsan", .emit_dir = at,
                      .emit_c = true, .include = include, .threads = 1 };
    UnitReport r;
    unit_build(g, n, &u, arena, &r);
    file_write(fmt(arena, "%s/stub.c", at), stub, sizeof stub - 1);
    if (system(fmt(arena, "cc -std=gnu11 -O1 -g -w -fsanitize=thread "
                   "-fno-strict-aliasing -shared -fPIC -I%s -o %s.so "
                   "%s/*.c -lm", include, at, at)))
        err_code(5, "tsan", "cc failed");
    void *so = dlopen(fmt(arena, "%s.so", at), RTLD_LAZY | RTLD_LOCAL);
    int (*start)(int, char **) = NULL;
    if (so)
        *(void **)&start = dlsym(so, "main");
    if (!start)
        err_code(5, "tsan", "%s", dlerror());
    start(0, NULL);
    return *(const DpcUnit **)dlsym(so, "loaded");
}

static const DpcUnit *unit_make(const struct Case *c, int number)
{
    int n = 0;
    while (n < DEFINES && c->define[n])
        n++;
    ModelOptions o = { .home = home, .define = (const char **)c->define,
                       .ndefine = n };
    Model *m = model_load(c->model, &o, arena);
    PlanOptions p = { .home = home, .file = c->plan, .ranks = RANKS,
                      .micro = c->micro, .compute = F32 };
    Job j = { .keep = arena,
              .plan = plan_partition(&p, m->entry, m->nentry, arena),
              .target = target_find("host"),
              .cluster = cluster_read(home, NULL, arena) };
    Graph *done[2];
    unit_threads(1);
    done[0] = run_passes(NULL, model_entry(m, "train"), &j);
    done[1] = run_passes(NULL, model_entry(m, "init"), &j);
    return unit_load(done, 2, number);
}

/* ---- ranks ---- */

typedef struct Rank {
    const DpcUnit *unit;
    DpcComm *comm;
    DpcStatus status;
    bool beside;                          /* steps on the second stream */
} Rank;

static void scalars(DpcRt *rt, uint32_t program)
{
    const DpcProgram *p = &rt->unit->program[program];
    for (uint32_t i = 0; i < p->nport; i++) {
        const DpcLeaf *l = &rt->unit->leaf[p->port[i].leaf];
        if (l->kind == DPC_SCALAR)
            *(float *)dpc_rt_port(rt, program, l->name, 0) = (float)l->value;
    }
}

static DpcStatus rank_run(Rank *r, DpcRt *rt)
{
    uint32_t train = (uint32_t)dpc_rt_entry(r->unit, "train");
    uint32_t init = (uint32_t)dpc_rt_entry(r->unit, "init");
    scalars(rt, train), scalars(rt, init);
    DpcStatus s = dpc_rt_run(rt, init, 0);
    for (uint64_t i = 0; !s && i < STEPS; i++)
        s = dpc_rt_run(rt, train, i);
    r->beside = rt->walk[train].uses[DPC_COLLECT];
    return s;
}

static void *rank_main(void *arg)
{
    Rank *r = arg;
    DpcRt *rt;
    r->status = dpc_rt_open(r->unit, r->comm, &rt);
    if (!r->status) {
        r->status = rank_run(r, rt);
        dpc_rt_close(rt);
    }
    if (r->status) {
        fprintf(stderr, "%s\n", dpc_last_error());
        r->comm->ops->abort(r->comm, 1);
    }
    r->comm->ops->close(r->comm);
    return NULL;
}

static void case_run(const struct Case *c, int number)
{
    const DpcUnit *u = unit_make(c, number);
    Rank rank[RANKS];
    DpcComm *comm[RANKS];
    DpcLocal *world;
    pthread_t thread[RANKS];
    bool failed = false, beside = true;
    if (dpc_local_open(RANKS, 0, &world, comm))
        err_code(5, "tsan", "%s", dpc_last_error());
    for (int i = 0; i < RANKS; i++) {
        rank[i] = (Rank){ .unit = u, .comm = comm[i] };
        pthread_create(&thread[i], NULL, rank_main, &rank[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(thread[i], NULL);
        failed |= rank[i].status != DPC_OK;
        beside &= rank[i].beside;
    }
    dpc_local_close(world);
    if (failed || !beside)
        printf("not ok %s: %s\n", c->name, failed ? "a rank failed"
               : "nothing ran on the second stream");
    else
        printf("ok %s\n", c->name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *h = getenv("DPC_HOME");
    op_init();
    arena = arena_new();
    if (!mkdtemp(dir) || !getcwd(home, sizeof home))
        return 5;
    if (h && *h)
        snprintf(home, sizeof home, "%s", h);
    for (int i = 0; i < COUNT(cases); i++)
        if (argc < 2 || strstr(cases[i].name, argv[1]))
            case_run(&cases[i], i);
    int rc = system(fmt(arena, "rm -r %s", dir));
    arena_free(arena);
    return rc != 0;
}
