/* cluster_probe.c -- dpc cluster probe: this machine's cluster file, measured.
 *
 * models/probe.lua is compiled and run as any model: on one rank with all
 * cores, and on two that share them, in f32 and in bf16.  The profile of a
 * binary says what each launch took, launch_amount what it had to do: rates
 * are what makes amount_seconds come nearest.  So a cluster file knows nothing
 * of any model but the probe, and what it says holds for launches as they are
 * emitted, with threads and neighbours as they run. */
#include "compiler/demo.h"
#include "compiler/options.h"
#include "passes/clock.h"
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 12, RUNS = 3, SAMPLES = 64, LINE = 4096 };

typedef struct Sample { Amount amount; double seconds; } Sample;

/* What a run of the probe took: medians by launch, least of them; a step
 * beside its launches. */
typedef struct Run { double *seconds, *best, step; } Run;

typedef struct Samples {
    Sample *at;
    uint32_t n, cap;
} Samples;

typedef struct Probe {
    const Options *o;
    Arena *a;
    const char *dir, *self;
    const Target *target;
    Samples measured;                     /* of one number of ranks */
    double hop, pace;                     /* seconds of a message, and of a
                                             byte more; 0: not measured */
    double step;                          /* of a step beside its launches */
} Probe;

static const char *self_path(Arena *a)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        err_code(5, "/proc/self/exe", "cannot be read: %s", strerror(errno));
    return fmt(a, "%.*s", (int)n, path);
}

/* ---- one run ---- */

enum { F_ENTRY, F_NAME = 6, F_SECONDS = 8, F_BEST, NFIELD = 14 };

/* Adds what a line of the profile says to its launch: of[node] - 1. */
static void line_take(char *line, const Graph *g, const uint32_t *of, Run *run)
{
    char *field[NFIELD];
    for (int i = 0; i < NFIELD; i++)
        if (!(field[i] = strsep(&line, "\t")))
            return;
    if (strcmp(field[F_ENTRY], g->entry) != 0)
        return;
    for (Ref r = 0; r < g->n; r++)
        if (of[r] && strcmp(g->node[r].name, field[F_NAME]) == 0) {
            run->seconds[of[r] - 1] += atof(field[F_SECONDS]);
            run->best[of[r] - 1] += atof(field[F_BEST]);
            return;
        }
}

static void profile_read(const Probe *p, const char *path, const Graph *g,
                         Run *run)
{
    char line[LINE];
    FILE *f = fopen(path, "r");
    if (!f)
        err_code(5, path, "the probe left no profile");
    uint32_t *of = alloc(p->a, (g->n + 1) * sizeof *of);
    for (uint32_t l = 0; l < g->sched->nlaunch; l++)
        for (int i = 0; i < g->sched->launch[l].n; i++)
            of[g->sched->launch[l].node[i]] = l + 1;
    while (fgets(line, sizeof line, f))
        line_take(line, g, of, run);
    fclose(f);
}

/* Seconds of a transfer are `hop` a message and `pace` a byte: a line through
 * its measured points, each weighed by how exact it is. */
static void transfers_fit(Probe *p, const double *bytes, const double *seconds,
                          const double *messages, uint32_t n)
{
    double a = 0, b = 0, c = 0, d = 0, e = 0;
    for (uint32_t i = 0; i < n; i++) {
        double w = 1 / (seconds[i] * seconds[i]);
        a += w * messages[i] * messages[i], b += w * messages[i] * bytes[i];
        c += w * bytes[i] * bytes[i];
        d += w * messages[i] * seconds[i], e += w * bytes[i] * seconds[i];
    }
    if (p->o->verbose)
        for (uint32_t i = 0; i < n; i++)
            fprintf(stderr, "%2.0f messages %9.0f bytes %9.1f us\n",
                    messages[i], bytes[i], 1e6 * seconds[i]);
    double det = a * c - b * b;
    if (!(det > 1e-12 * a * c))
        return;
    p->hop = fmax(0, (c * d - b * e) / det);
    p->pace = fmax(0, (a * e - b * d) / det);
}

static void transfers_take(Probe *p, const Graph *g, const double *best)
{
    const Sched *s = g->sched;
    double *x = alloc(p->a, 3 * (s->nlaunch + 1) * sizeof *x);
    double *y = x + s->nlaunch + 1, *hops = y + s->nlaunch + 1;
    uint32_t n = 0;
    for (uint32_t l = 0; l < s->nlaunch; l++) {
        if (!launch_communicates(g, &s->launch[l]) || !(best[l] > 0))
            continue;
        x[n] = hops[n] = 0, y[n] = best[l];
        for (int i = 0; i < s->launch[l].n; i++) {
            bool twice = g->node[s->launch[l].node[i]].op == OP_all_reduce;
            x[n] += transfer_bytes(g, s->launch[l].node[i]);
            hops[n] += twice ? 2 : 1;
        }
        n++;
    }
    transfers_fit(p, x, y, hops, n);
}

static void samples_take(Probe *p, const Graph *g, const double *seconds)
{
    const uint32_t *uses = graph_uses(g, p->a);
    for (uint32_t l = 0; l < g->sched->nlaunch; l++) {
        Amount m = launch_amount(g, &g->sched->launch[l], p->target, uses);
        if (m.kind == TRANSFERS || !(seconds[l] > 0))
            continue;
        GROW(p->a, p->measured.at, p->measured.n, p->measured.cap);
        p->measured.at[p->measured.n++] = (Sample){ m, seconds[l] };
    }
}

static int up(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of all steps' seconds but the first ones. */
static double step_median(const char *metrics)
{
    static const char key[] = "\"step_s\":";
    char line[LINE];
    double s[STEPS];
    int n = 0, skip = STEPS / 4;
    FILE *f = fopen(metrics, "r");
    if (!f)
        err_code(5, metrics, "the probe left no metrics");
    while (n < STEPS && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, key);
        if (at && skip-- <= 0)
            s[n++] = atof(at + sizeof key - 1);
    }
    fclose(f);
    qsort(s, (size_t)n, sizeof *s, up);
    return n ? s[n / 2] : 0;
}

/* What the probe's input reads: ones. */
static const char *gain_write(const Probe *p)
{
    const char *path = fmt(p->a, "%s/gain.npy", p->dir);
    Npy gain = npy_make(p->a, NPY_F32, 1, (int64_t[]){ SAMPLES });
    for (int i = 0; i < SAMPLES; i++)
        ((float *)gain.data)[i] = 1;
    npy_write(&gain, path);
    return path;
}

static void binary_run(const Probe *p, int ranks, const char *bin,
                       const char *profile, const char *metrics)
{
    const char *arg[] = { p->self, "run", "-n", fmt(p->a, "%d", ranks), bin,
        "train", "--data", gain_write(p), "--steps", fmt(p->a, "%d", STEPS),
        "--profile", profile, "--metrics", metrics, "--quiet", NULL };
    Process run = { .stage = "probe", .arg = arg,
                    .log = fmt(p->a, "%s/log", p->dir) };
    if (processes_run(&run, 1, 1))
        err_code(5, "dpc", "cluster probe: %s: exit %d; see %s",
                 process_text(p->a, &run), run.code, run.log);
}

static Run run_once(const Probe *p, int ranks, const char *bin,
                    const Graph *g)
{
    uint32_t n = g->sched->nlaunch;
    const char *profile = fmt(p->a, "%s.tsv", bin);
    const char *metrics = fmt(p->a, "%s.jsonl", bin);
    Run run = { .seconds = alloc(p->a, 2 * (n + 1) * sizeof *run.seconds) };
    run.best = run.seconds + n + 1;
    unlink(metrics);
    binary_run(p, ranks, bin, profile, metrics);
    profile_read(p, profile, g, &run);
    run.step = step_median(metrics);
    for (uint32_t l = 0; l < n; l++)
        run.step -= run.seconds[l];
    return run;
}

/* A neighbour who takes the machine for a second meets one run of a few: the
 * middle one of each launch counts, and the least of what lies beside them. */
static Run run_middle(const Probe *p, int ranks, const char *bin,
                      const Graph *g)
{
    Run run[RUNS], all;
    double x[RUNS];
    for (int i = 0; i < RUNS; i++)
        run[i] = run_once(p, ranks, bin, g);
    all = run[0];
    for (uint32_t l = 0; l < g->sched->nlaunch; l++) {
        for (int i = 0; i < RUNS; i++) {
            x[i] = run[i].seconds[l];
            all.best[l] = fmin(all.best[l], run[i].best[l]);
        }
        qsort(x, RUNS, sizeof *x, up);
        all.seconds[l] = x[RUNS / 2];
    }
    for (int i = 0; i < RUNS; i++)
        all.step = fmin(all.step, run[i].step);
    return all;
}

/* Compiles and runs the probe, and takes the samples of its launches. */
static void probe_run(Probe *p, int ranks, DType dtype)
{
    const char *name = fmt(p->a, "%s/%d.%s", p->dir, ranks, dtype_name(dtype));
    const char *file[] = { fmt(p->a, "%s/models/probe.lua", p->o->home) };
    Options o = *p->o;
    o.file = file, o.nfile = 1, o.ranks = ranks, o.cluster = NULL;
    o.dtype = dtype_name(dtype), o.output = name, o.quiet = true;
    model_compile(&o, model_open(&o));
    Model *m = model_open(&o);            /* compiling has used the other up */
    Job j = job_open(&o, plan_open(&o, m->entry, m->nentry));
    const Graph *g = run_passes(NULL, model_entry(m, "train"), &j);
    Run run = run_middle(p, ranks, name, g);
    p->target = j.target;
    samples_take(p, g, run.seconds);
    if (ranks > 1)
        transfers_take(p, g, run.best);
    else                                  /* nothing is waited for */
        p->step += fmax(0, run.step) / 2; /* of two dtypes */
}

/* ---- rates ---- */

/* How far all samples of a kind are from what the rates say: the logarithm of
 * each, by its seconds. */
static double miss(const Probe *p, const Rates *r, AmountKind kind, DType d)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->measured.n; i++) {
        const Sample *s = &p->measured.at[i];
        bool typed = kind == PRODUCTS || kind == CONVS;
        if (s->amount.kind == kind && (!typed || s->amount.dtype == d))
            sum += fabs(amount_seconds(&s->amount, r, p->target)
                        - s->seconds);
    }
    return sum;
}

/* Moves *rate, which is in r, where the kind's samples are missed least. */
static void rate_fit(const Probe *p, Rates *r, double *rate, AmountKind kind,
                     DType d)
{
    for (double by = 1.6; by > 1.002; by = sqrt(by))
        for (int i = 0; i < 40; i++) {
            double was = *rate, best = miss(p, r, kind, d), at = was;
            for (int up = 0; up < 2; up++) {
                *rate = up ? was * by : was / by;
                double now = miss(p, r, kind, d);
                if (now < best)
                    best = now, at = *rate;
            }
            *rate = at;
            if (at == was)
                break;
        }
}

static Rates rates_fit(const Probe *p, int threads)
{
    Rates r = { .threads = threads, .flops = { [F32] = 1e11, [BF16] = 1e11 },
                .conv = { [F32] = 1e11, [BF16] = 1e11 }, .work = 1e10,
                .bandwidth = 1e10, .launch = 1e-6,
                .wake = threads > 1 ? 1e-5 : 0 };
    for (int i = 0; i < 4; i++) {
        rate_fit(p, &r, &r.bandwidth, NESTS, F32);
        rate_fit(p, &r, &r.work, NESTS, F32);
        rate_fit(p, &r, &r.launch, NESTS, F32);
        rate_fit(p, &r, &r.wake, NESTS, F32);
    }
    for (DType d = F32; d <= BF16; d++) {
        rate_fit(p, &r, &r.flops[d], PRODUCTS, d);
        rate_fit(p, &r, &r.conv[d], CONVS, d);
    }
    return r;
}

static void samples_print(const Probe *p, const Rates *r)
{
    static const char *const kind[] = { "other", "product", "conv", "nest" };
    for (uint32_t i = 0; p->o->verbose && i < p->measured.n; i++) {
        const Sample *s = &p->measured.at[i];
        fprintf(stderr, "%d thread%s %-8s %-5s %10.0f flops %9.0f bytes%s "
                "%9.1f us, by the rates %9.1f\n", r->threads,
                r->threads == 1 ? " " : "s", kind[s->amount.kind],
                dtype_name(s->amount.dtype), s->amount.flops, s->amount.bytes,
                s->amount.shared ? " shared" : "       ", 1e6 * s->seconds,
                1e6 * amount_seconds(&s->amount, r, p->target));
    }
}

static void ranks_probe(Probe *p, Cluster *c, int ranks)
{
    p->measured = (Samples){ 0 };
    if (!p->o->quiet)
        fprintf(stderr, "dpc: %d rank%s\n", ranks, ranks == 1 ? "" : "s");
    for (DType d = F32; d <= BF16; d++)
        probe_run(p, ranks, d);
    int threads = c->cores / ranks > 1 ? c->cores / ranks : 1;
    Rates r = rates_fit(p, threads);
    samples_print(p, &r);
    for (int i = 0; i < c->nrates; i++)
        if (c->measured[i].threads == threads)
            return;
    c->measured[c->nrates++] = r;
}

/* The folder holds files alone. */
static void folder_drop(const char *dir, Arena *a)
{
    glob_t g = { 0 };
    glob(fmt(a, "%s/*", dir), 0, NULL, &g);
    for (size_t i = 0; i < g.gl_pathc; i++)
        unlink(g.gl_pathv[i]);
    globfree(&g);
    rmdir(dir);
}

Cluster *cluster_probe(const Options *o)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = fmt(o->arena, "%s/dpc-probe-XXXXXX", tmp && *tmp ? tmp
                                                                 : "/tmp");
    if (!mkdtemp(dir))
        err_code(5, dir, "cannot be made: %s", strerror(errno));
    Probe p = { .o = o, .a = o->arena, .dir = dir,
                .self = self_path(o->arena) };
    Cluster *c = cluster_read(o->home, NULL, o->arena);
    ranks_probe(&p, c, 1);
    ranks_probe(&p, c, 2);
    for (int i = 0; i < c->nrates; i++)
        c->measured[i].step = p.step;
    c->level[0].latency = p.hop;
    if (p.pace > 0)
        c->level[0].bandwidth = 1 / p.pace;
    folder_drop(dir, o->arena);
    return c;
}
