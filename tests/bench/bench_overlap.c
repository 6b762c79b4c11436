/* bench_overlap.c -- how much of its communication a training step hides.
 *
 *   bench_overlap [MODEL.lua [NAME=VALUE...]]   (dpc's decoder, batch 256)
 *
 * The model's `train` is compiled for two ranks, loaded as a shared object
 * and run by two threads as ranks (comm_local.c), on a network as slow as
 * makes communication last as long as computing: where hiding it matters
 * most.  *Exposed* is what a step then takes longer than on a network without
 * limit, over what its transfers take.  Each plan is compiled for that
 * network.  *Serial* is one step of the schedule after the other: without
 * overlap.  *Least* is what must be exposed whatever the order: nothing is sent
 * before it is made, nor used before it is sent (clock_least).
 *
 * The three kinds of step take turns in one run, so that what else the
 * machine does hits all alike; medians are told.  On a busy machine these
 * still mean little, unless DPC_BENCH_FIRST=1 lets the ranks go before all
 * else (root may).  Each step of the schedule is also measured on its own, in
 * seconds of its thread, and the two streams are simulated from these: the
 * same schedule and waits, no noise.  DPC_BENCH_LOG prints that timeline. */
#include "codegen/kernel.h"
#include "codegen/unit.h"
#include "compiler/lua.h"
#include "passes/clock.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, WARM = 2, RUNS = 5, PASSES = 3 };
typedef enum Kind { FREE, SERIAL, OVERLAP, KINDS } Kind;

static Arena *arena;
static char home[4096], dir[64] = "/tmp/dpc-overlap-XXXXXX";

/* ---- a unit in this process ---- */

static const char stub[] =
    "#include \"dpc_rt.h\"\nconst DpcUnit *bench_unit;\n"
    "int dpc_main(int n, char **v, const DpcUnit *u)\n"
    "{ (void)n, (void)v; bench_unit = u; return 0; }\n";

/* What a kernel calls of the runtime only when it hunts a NaN stays unbound. */
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
    void *so = dlopen(fmt(arena, "%s.so", at), RTLD_LAZY | RTLD_LOCAL);
    int (*start)(int, char **) = NULL;
    if (so)
        *(void **)&start = dlsym(so, "main");
    if (!start)
        err_code(5, name, "%s", dlerror());
    start(0, NULL);
    return *(const DpcUnit **)dlsym(so, "bench_unit");
}


/* What the compiler takes computing to last. */
static double clock_compute(const Graph *g, const Job *j)
{
    double sum = 0;
    for (uint32_t k = 0; k < g->sched->nstep; k++)
        if (!g->sched->step[k].stream)
            sum += launch_seconds(g, &g->sched->launch[
                g->sched->step[k].launch], j);
    return sum;
}

/* Compiled for ranks that compute that many times as quick as the compiler
 * thought, on a network of that rate; 0: of the host.  done[0] is train. */
static const DpcUnit *unit_make(const Model *m, const char *partitioner,
                                double rate, double speed,
                                double *thought, Graph **done)
{
    static int n;
    PlanOptions p = { .home = home, .file = partitioner, .ranks = RANKS,
                      .micro = 1, .compute = F32 };
    Cluster cluster = *cluster_read(home, NULL, arena);
    Job j = { .keep = arena,
              .plan = plan_partition(&p, m->entry, m->nentry, arena),
              .target = target_find("host"), .cluster = &cluster };
    for (int i = 0; rate > 0 && i < cluster.nlevel; i++)
        cluster.level[i].bandwidth = rate;
    for (DType t = 0; rate > 0 && t < NDTYPE; t++)
        cluster.rates.flops[t] = j.target->flops[t] * speed;
    if (rate > 0) {
        cluster.rates.bandwidth = j.target->bandwidth * speed;
        cluster.rates.launch = j.target->launch / speed;
    }
    unit_threads(1);
    done[0] = run_passes(NULL, model_entry(m, "train"), &j);
    done[1] = run_passes(NULL, model_entry(m, "init"), &j);
    if (thought)
        *thought = clock_compute(done[0], &j);
    return unit_load(done, 2, fmt(arena, "u%d", n++));
}

/* ---- what a step moves ---- */

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

/* ---- ranks ---- */

typedef struct Rank {
    const DpcUnit *unit;
    DpcComm *comm;
    DpcLocal *world;
    DpcStatus status;
    double second[KINDS][RUNS];           /* of each run */
    double *step;                         /* seconds of the thread, a step */
    double rate;                          /* of the link */
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, RUNS, sizeof *x, ascending);
    return x[RUNS / 2];
}

/* One run of a kind; all ranks begin together, on a link of that rate. */
static DpcStatus run_kind(Rank *r, DpcRt *rt, uint32_t train, Kind k, int i,
                          double rate)
{
    int32_t all = 0;
    DpcStatus s = dpc_rt_vote(rt, &all);
    if (!s && r->comm->rank == 0)
        dpc_local_link(r->world, k == FREE ? 0 : rate, 0);
    if (!s)
        s = dpc_rt_vote(rt, &all);
    double begin = dpc_now();
    if (!s)
        s = k == SERIAL ? serial_run(rt, train, NULL)
                        : dpc_rt_run(rt, train, (uint64_t)(i + WARM));
    if (i >= 0)
        r->second[k][i] = dpc_now() - begin;
    return s;
}

/* First alone, which gives the rate; then the three kinds by turns. */
static DpcStatus rank_measure(Rank *r, DpcRt *rt, uint32_t train)
{
    DpcStatus s = DPC_OK;
    double rate = 0;
    for (int i = -WARM; !s && i < RUNS; i++)
        s = run_kind(r, rt, train, FREE, i, 0);
    if (!s)
        rate = bytes_moved(r->unit) / median(r->second[FREE]);
    for (int i = -1; !s && i < RUNS; i++)
        for (Kind k = 0; !s && k < KINDS; k++)
            s = run_kind(r, rt, train, k, i, rate);
    r->rate = rate;
    return s;
}

static DpcStatus rank_run(Rank *r, DpcRt *rt)
{
    uint32_t train = (uint32_t)dpc_rt_entry(r->unit, "train");
    uint32_t init = (uint32_t)dpc_rt_entry(r->unit, "init");
    scalars(rt, train), scalars(rt, init);
    DpcStatus s = dpc_rt_run(rt, init, 0);
    for (int i = 0; !s && r->step && i < PASSES; i++)
        s = serial_run(rt, train, r->step);
    return s || r->step ? s : rank_measure(r, rt, train);
}

/* Before all ordinary threads of the machine. */
static void go_first(int priority)
{
    struct sched_param p = { .sched_priority = priority };
    if (getenv("DPC_BENCH_FIRST")
        && pthread_setschedparam(pthread_self(), SCHED_FIFO, &p))
        err_code(5, "bench", "DPC_BENCH_FIRST: the system forbids it");
}

/* The thread that communicates inherits the higher priority: it has little
 * to do, but at once. */
static void *rank_main(void *arg)
{
    Rank *r = arg;
    DpcRt *rt;
    go_first(2);
    r->status = dpc_rt_open(r->unit, r->comm, &rt);
    go_first(1);
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

/* Runs the ranks; `step` asks for seconds of each step, else `r` has those
 * of each run on rank 0. */
static void world_run(const DpcUnit *u, double *step, Rank *r)
{
    Rank rank[RANKS];
    DpcComm *comm[RANKS];
    DpcLocal *world;
    pthread_t thread[RANKS];
    if (dpc_local_open(RANKS, 0, &world, comm))
        err_code(5, "bench", "%s", dpc_last_error());
    for (int i = 0; i < RANKS; i++) {
        rank[i] = (Rank){ .unit = u, .comm = comm[i], .world = world };
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
    if (r)
        *r = rank[0];
}

/* ---- the two streams ---- */

/* The two streams from the seconds of their steps: when all is done. */
static double simulate(const DpcUnit *u, const double *step, const char *log)
{
    const DpcProgram *p = &u->program[0];
    double clock[2] = { 0, 0 }, *done = calloc(p->nevent + 1, sizeof *done);
    for (uint32_t s = 0; s < p->nstep; s++) {
        const DpcStep *t = &p->step[s];
        double at = clock[t->stream];
        for (uint32_t i = 0; i < t->nwait; i++)
            if (done[p->wait[t->wait + i]] > at)
                at = done[p->wait[t->wait + i]];
        if (log && (step_bytes(u, t) > 0 || at > clock[t->stream] + 1e-4))
            printf("    %7.1f .. %7.1f ms  %9.0f bytes  %s %s\n",
                   1e3 * clock[t->stream], 1e3 * at, step_bytes(u, t),
                   p->node[t->node].op, p->node[t->node].loc);
        clock[t->stream] = at + step[s];
        if (t->event >= 0)
            done[t->event] = clock[t->stream];
    }
    free(done);
    return clock[0] > clock[1] ? clock[0] : clock[1];
}

static void line(const char *what, double compute, double comm, double serial,
                 double step)
{
    printf("  %-10s compute %7.1f ms  communicate %7.1f ms  serial %7.1f ms  "
           "step %7.1f ms = %.2f of it  exposed %.2f\n", what, 1e3 * compute,
           1e3 * comm, 1e3 * serial, 1e3 * step, step / serial,
           (step - compute) / comm);
}

/* Seconds of each step, as best of some passes, on a network on which
 * transfers take as long as all the others; these. */
static double steps_seconds(const DpcUnit *u, double *step)
{
    const DpcProgram *p = &u->program[0];
    double compute = 0;
    world_run(u, step, NULL);
    for (uint32_t s = 0; s < p->nstep; s++)
        compute += p->step[s].kind == DPC_STEP_COLL ? 0 : step[s];
    for (uint32_t s = 0; s < p->nstep; s++)
        if (p->step[s].kind == DPC_STEP_COLL)
            step[s] = step_bytes(u, &p->step[s]) / bytes_moved(u) * compute;
    return compute;
}

static void measure(const DpcUnit *u)
{
    Rank r;
    world_run(u, NULL, &r);
    line("measured", median(r.second[FREE]), bytes_moved(u) / r.rate,
         median(r.second[SERIAL]), median(r.second[OVERLAP]));
}

static void compare(const Model *m, const char *plan)
{
    Graph *done[2];
    double thought;
    const DpcUnit *u = unit_make(m, plan, 0, 0, &thought, done);
    double *step = calloc(u->program[0].nstep, sizeof *step);
    double compute = steps_seconds(u, step), rate = bytes_moved(u) / compute;
    free(step);
    u = unit_make(m, plan, rate, thought / compute, NULL, done);
    step = calloc(u->program[0].nstep, sizeof *step);
    compute = steps_seconds(u, step);
    double least = clock_least(done[0], step, arena);
    printf("%s: %.2f MB a rank and step, arena %.1f MB; least exposed %.2f\n",
           plan, 1e-6 * bytes_moved(u), 1e-6 * (double)u->program[0].arena,
           (least - compute) / compute);
    line("simulated", compute, compute, 2 * compute,
         simulate(u, step, getenv("DPC_BENCH_LOG")));
    free(step);
    fflush(stdout);
    measure(u);
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
    static const char *large[] = { "batch=256" };
    ModelOptions o = { .home = home,
                       .define = argc > 1 ? (const char **)argv + 2 : large,
                       .ndefine = argc > 1 ? argc - 2 : 1 };
    Model *m = model_load(model, &o, arena);
    for (int i = 0; i < COUNT(plan); i++)
        compare(m, plan[i]);
    int rc = system(fmt(arena, "rm -r %s", dir));
    arena_free(arena);
    return rc != 0;
}
