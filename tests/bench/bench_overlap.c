/* bench_overlap.c -- how much of its communication a training step hides.
 *
 *   bench_overlap [MODEL.lua [NAME=VALUE...]]   (dpc's decoder)
 *
 * The model's `train` is compiled for two ranks, loaded as a shared object
 * and run by two threads as ranks (comm_local.c), on a network as slow as
 * makes communication last as long as computing: where hiding it matters
 * most.  *Exposed* is what a step then takes longer than on a network without
 * limit, over what its transfers take.  Each plan is compiled for that
 * network.  *Serial* is one step of the schedule after the other.  *Least* is
 * what must be exposed because there is nothing to send before.
 *
 * On a busy machine seconds that pass mean little.  So each step of the
 * schedule is measured on its own too, in seconds of its thread, and the two
 * streams are simulated from these: the same schedule and waits, no noise.
 * DPC_BENCH_LOG prints that timeline. */
#include "codegen/kernel.h"
#include "codegen/unit.h"
#include "compiler/lua.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, WARM = 2, RUNS = 15, PASSES = 3 };

static Arena *arena;
static char home[4096], dir[64] = "/tmp/dpc-overlap-XXXXXX";

/* ---- a unit in this process ---- */

static const char stub[] =
    "#include \"dpc_rt.h\"\nconst DpcUnit *bench_unit;\n"
    "int dpc_main(int n, char **v, const DpcUnit *u)\n"
    "{ (void)n, (void)v; bench_unit = u; return 0; }\n";

static const DpcUnit *unit_load(Graph *const *g, int n, const char *name)
{
    const char *at = fmt(arena, "%s/%s", dir, name);
    const char *include = fmt(arena, "%s/runtime", home);
    UnitOptions u = { .model = name, .version = "bench", .emit_dir = at,
                      .emit_c = true, .include = include, .threads = 1 };
    UnitReport r;
    unit_build(g, n, &u, arena, &r);
    file_write(fmt(arena, "%s/stub.c", at), stub, sizeof stub - 1);
    if (system(fmt(arena, "cc %s -march=native -shared -fPIC -I%s -o %s.so "
                   "%s/*.c -lm", host_flags, include, at, at)))
        err_code(5, name, "cc failed");
    void *so = dlopen(fmt(arena, "%s.so", at), RTLD_NOW | RTLD_LOCAL);
    int (*start)(int, char **) = NULL;
    if (so)
        *(void **)&start = dlsym(so, "main");
    if (!start)
        err_code(5, name, "%s", dlerror());
    start(0, NULL);
    return *(const DpcUnit **)dlsym(so, "bench_unit");
}


/* Compiled for a network of that rate; 0: the host's. */
static const DpcUnit *unit_make(const Model *m, const char *partitioner,
                                double rate)
{
    static int n;
    Graph *done[2];
    PlanOptions p = { .home = home, .file = partitioner, .ranks = RANKS,
                      .micro = 1, .compute = F32 };
    Cluster cluster = *cluster_read(home, NULL, arena);
    Job j = { .keep = arena,
              .plan = plan_partition(&p, m->entry, m->nentry, arena),
              .target = target_find("host"), .cluster = &cluster };
    for (int i = 0; rate > 0 && i < cluster.nlevel; i++)
        cluster.level[i].bandwidth = rate;
    unit_threads(1);
    done[0] = run_passes(NULL, model_entry(m, "train"), &j);
    done[1] = run_passes(NULL, model_entry(m, "init"), &j);
    return unit_load(done, 2, fmt(arena, "u%d", n++));
}

/* ---- ranks ---- */

typedef struct Rank {
    const DpcUnit *unit;
    DpcComm *comm;
    DpcStatus status;
    double second[RUNS];                  /* of each run */
    double *step;                         /* seconds of the thread, a step */
    bool serial;
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

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One step of the schedule after the other, on this thread alone. */
static DpcStatus serial_run(DpcRt *rt, uint32_t program, double *best)
{
    const DpcProgram *p = &rt->unit->program[program];
    for (uint32_t s = 0; s < p->nstep; s++) {
        double begin = thread_seconds();
        DpcStatus e = dpc_walk_step(rt, program, s, 0);
        if (e)
            return e;
        double t = thread_seconds() - begin;
        if (best && !(best[s] > 0 && best[s] < t))
            best[s] = t;
    }
    return DPC_OK;
}

static DpcStatus rank_run(Rank *r, DpcRt *rt)
{
    uint32_t train = (uint32_t)dpc_rt_entry(r->unit, "train");
    uint32_t init = (uint32_t)dpc_rt_entry(r->unit, "init");
    scalars(rt, train), scalars(rt, init);
    DpcStatus s = dpc_rt_run(rt, init, 0);
    for (int i = 0; !s && r->step && i < PASSES; i++)
        s = serial_run(rt, train, r->step);
    for (int i = -WARM; !s && !r->step && i < RUNS; i++) {
        int32_t all = 0;
        s = dpc_rt_vote(rt, &all);
        double begin = dpc_now();
        if (!s)
            s = r->serial ? serial_run(rt, train, NULL)
                          : dpc_rt_run(rt, train, (uint64_t)(i + WARM));
        if (i >= 0)
            r->second[i] = dpc_now() - begin;
    }
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of the quickest run; with `step`, seconds of each step instead. */
static double world_run(const DpcUnit *u, double rate, bool serial,
                        double *step)
{
    Rank rank[RANKS];
    DpcComm *comm[RANKS];
    DpcLocal *world;
    pthread_t thread[RANKS];
    if (dpc_local_open(RANKS, rate, &world, comm))
        err_code(5, "bench", "%s", dpc_last_error());
    for (int i = 0; i < RANKS; i++) {
        rank[i] = (Rank){ .unit = u, .comm = comm[i], .serial = serial };
        if (step)
            rank[i].step = i ? calloc(u->program[0].nstep, sizeof *step)
                             : step;
        pthread_create(&thread[i], NULL, rank_main, &rank[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    dpc_local_close(world);
    if (rank[0].status || rank[1].status)
        err_code(5, "bench", "a rank failed");
    qsort(rank[0].second, RUNS, sizeof *rank[0].second, ascending);
    return rank[0].second[0];
}

/* ---- what a step moves, and how long it would take ---- */

static double step_bytes(const DpcUnit *u, const DpcStep *t)
{
    double sum = 0;
    for (uint32_t i = 0; t->kind == DPC_STEP_COLL && i < t->narg / 2; i++) {
        const DpcColl *c = &u->coll[t->call + i];
        double n = (double)(c->outer * c->size * c->inner)
            * (double)dpc_dtype_size(c->dtype) * (RANKS - 1) / RANKS;
        sum += c->kind == DPC_ALL_REDUCE ? 2 * n : n;
    }
    return sum;
}

static double bytes_moved(const DpcUnit *u)
{
    double sum = 0;
    for (uint32_t s = 0; s < u->program[0].nstep; s++)
        sum += step_bytes(u, &u->program[0].step[s]);
    return sum;
}

/* The two streams from the seconds of their steps: when all is done, or when
 * the first transfer may begin. */
typedef enum Until { FIRST, ALL } Until;

static double simulate(const DpcUnit *u, const double *step, double rate,
                       Until until, const char *log)
{
    const DpcProgram *p = &u->program[0];
    double clock[2] = { 0, 0 }, *done = calloc(p->nevent + 1, sizeof *done);
    for (uint32_t s = 0; s < p->nstep; s++) {
        const DpcStep *t = &p->step[s];
        double bytes = step_bytes(u, t), at = clock[t->stream];
        for (uint32_t i = 0; i < t->nwait; i++)
            if (done[p->wait[t->wait + i]] > at)
                at = done[p->wait[t->wait + i]];
        if (log && (bytes > 0 || at > clock[t->stream] + 1e-4))
            printf("    %7.1f .. %7.1f ms  %9.0f bytes  %s %s\n",
                   1e3 * clock[t->stream], 1e3 * at, bytes,
                   p->node[t->node].op, p->node[t->node].loc);
        if (until == FIRST && bytes > 0) {
            free(done);
            return at;
        }
        clock[t->stream] = at + (t->kind != DPC_STEP_COLL ? step[s]
                                 : rate > 0 ? bytes / rate : 0);
        if (t->event >= 0)
            done[t->event] = clock[t->stream];
    }
    free(done);
    return clock[0] > clock[1] ? clock[0] : clock[1];
}

static void line(const char *what, double compute, double serial, double step)
{
    printf("  %-10s compute %7.1f ms  serial %7.1f ms  step %7.1f ms  "
           "exposed %.2f\n", what, 1e3 * compute, 1e3 * serial, 1e3 * step,
           (step - compute) / compute);
}

/* Seconds of each step, as best of some passes; the seconds of all. */
static double steps_seconds(const DpcUnit *u, double **step)
{
    *step = calloc(u->program[0].nstep, sizeof **step);
    world_run(u, 0, true, *step);
    return simulate(u, *step, 0, ALL, NULL);
}

static void compare(const Model *m, const char *plan)
{
    double *step, compute, rate, first;
    const DpcUnit *u = unit_make(m, plan, 0);
    compute = steps_seconds(u, &step), rate = bytes_moved(u) / compute;
    free(step);
    u = unit_make(m, plan, rate);
    compute = steps_seconds(u, &step), rate = bytes_moved(u) / compute;
    first = simulate(u, step, 0, FIRST, NULL);
    printf("%s: %.2f MB a rank and step, arena %.1f MB; least exposed %.2f\n",
           plan, 1e-6 * bytes_moved(u),
           1e-6 * (double)u->program[0].arena, first / compute);
    line("simulated", compute, 2 * compute,
         simulate(u, step, rate, ALL, getenv("DPC_BENCH_LOG")));
    free(step);
    double limitless = world_run(u, 0, false, NULL);
    rate = bytes_moved(u) / limitless;
    line("measured", limitless, world_run(u, rate, true, NULL),
         world_run(u, rate, false, NULL));
}

int main(int argc, char **argv)
{
    static const char *const plan[] = { "ddp", "zero" };
    const char *model = argc > 1 ? argv[1] : "models/dalle2/decoder.lua";
    const char *h = getenv("DPC_HOME");
    op_init();
    arena = arena_new();
    if (!mkdtemp(dir) || !getcwd(home, sizeof home))
        return 5;
    if (h && *h)
        snprintf(home, sizeof home, "%s", h);
    ModelOptions o = { .home = home, .define = (const char **)argv + 2,
                       .ndefine = argc > 2 ? argc - 2 : 0 };
    Model *m = model_load(model, &o, arena);
    for (int i = 0; i < COUNT(plan); i++)
        compare(m, plan[i]);
    int rc = system(fmt(arena, "rm -r %s", dir));
    arena_free(arena);
    return rc != 0;
}
