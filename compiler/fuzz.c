/* fuzz.c -- dpc verify --fuzz N: drawn models under drawn plans, proven.
 *
 * Pair k is a function of the seed plus k alone: `--fuzz 1 --seed S` repeats
 * one, but for a planted fault.  Each runs in a process of its own, so that one
 * which crashes or hangs is a finding and not the end, told with its family and
 * plan.  Every fiftieth carries a planted fault, which must be found: a
 * fuzzer that finds nothing may be one that cannot. */
#include "compiler/verify.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS = 16, AHEAD = 64 };           /* at once; begun, not taken */
/* Of two numbers the smaller hides the other, in the field by lot: a fault in
 * one may need another draw of all leaves to show. */
enum { DRAWS = 4 };
enum { EVERY_PLANTED = 50, SECONDS = 60, FAMILIES = 9 };

typedef enum Ending { PROVEN, REFUSED, DIFFERS, CRASHED, NENDING } Ending;

/* In memory that a pair's process shares, which fills it in as it gets on. */
typedef struct Result {
    Ending ending;
    FeatureSet features;
    uint32_t nodes, values, redrawn;
    char family[32], text[400];
    char plan[1 << 16];                   /* its file, as far as that has room */
} Result;

/* The pipe is empty: its end is the process's. */
typedef struct Child { pid_t pid; int pipe; bool ended; Result *r; } Child;

typedef struct Tally {
    const Options *o;
    int64_t count[NENDING], planted, found, redrawn;
    Cover cover;
    uint32_t fewest, most;                /* nodes */
    struct { char name[32]; int64_t n; } family[FAMILIES];    /* proven */
} Tally;

/* ---- one pair ---- */

static bool planted(int64_t pair)
{
    return pair % EVERY_PLANTED == EVERY_PLANTED - 1;
}

/* Another sum or product somewhere in what runs at last. */
static void fault_plant(Draw *d, Graph *g)
{
    uint32_t n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].op == OP_mul || g->node[r].op == OP_add;
    uint64_t at = draw_below(d, n);
    for (Ref r = 0; r < g->n && n; r++)
        if ((g->node[r].op == OP_mul || g->node[r].op == OP_add) && !at--)
            g->node[r].op = g->node[r].op == OP_mul ? OP_add : OP_mul;
}

Pair pair_draw(Options *o, int64_t pair, int attempt)
{
    uint64_t first = (uint64_t)(o->seed + pair);
    uint64_t seed = first + (uint64_t)attempt * 1000003;
    const char **path = alloc(o->arena, sizeof *path);
    int most = -1, defined = o->define.n;
    Pair best = { 0 };
    Draw about = draw_of(first), d = draw_of(seed);
    FeatureSet want = features_draw(&about);
    *path = fmt(o->arena, "%s/models/fuzz/fuzz.lua", o->home);
    o->file = path, o->nfile = 1;
    for (uint64_t f = 0; f < FAMILIES && most < features_count(want); f++) {
        o->define.n = defined;
        o->define.at[o->define.n++] =
            fmt(o->arena, "seed=%llu", (unsigned long long)seed);
        o->define.at[o->define.n++] =
            fmt(o->arena, "family=%llu", (unsigned long long)(seed + f));
        Pair p = { .m = model_open(o) };
        p.g = model_entry(p.m, "train");
        p.plan = plan_draw(&d, p.g, o->arena, o->home, want, &p.has);
        int met = features_count(want & p.has);
        if (met > most)
            most = met, best = p;
    }
    best.d = d;
    return best;
}

/* Of the whole step, as the model and its gradient make it. */
static uint32_t step_nodes(const Trail *t)
{
    uint32_t i = 0;
    while (i + 1 < t->n && strcmp(t->stop[i].pass, "tidy") != 0)
        i++;
    return t->stop[i].g->n;
}

/* Does a product read, or make, a part a turn of a ring? */
static bool in_chunks(const Graph *g, const Node *n)
{
    Axes a = n->op == OP_dot ? type_axes(&n->type) : 0, twins = 0;
    for (int i = 0; a && i < g->mesh.naxis; i++)
        twins |= mesh_home(&g->mesh, i) < 0 ? 0 : (Axes)(1u << i);
    return a & twins;
}

/* What leaves a node behind is there only where there is one. */
static FeatureSet seen_of(const Trail *t, FeatureSet has)
{
    FeatureSet marks = FEATURE_SET(halos) | FEATURE_SET(rings)
        | FEATURE_SET(chunks)
        | FEATURE_SET(compress) | FEATURE_SET(offload) | FEATURE_SET(spill);
    FeatureSet seen = 0;
    for (uint32_t i = 0; i < t->n; i++)
        for (Ref r = 0; r < t->stop[i].g->n; r++) {
            const Node *n = &t->stop[i].g->node[r];
            seen |= n->op == OP_halo ? FEATURE_SET(halos)
                  : n->op == OP_ring ? FEATURE_SET(rings)
                  : in_chunks(t->stop[i].g, n) ? FEATURE_SET(chunks)
                  : n->op == OP_copy && n->segment == FORWARD
                        && n->place == HOST ? FEATURE_SET(spill)
                  : n->op != OP_state && n->op != OP_param ? 0
                  : (n->attr.residual ? FEATURE_SET(compress) : 0)
                  | (n->place == HOST ? FEATURE_SET(offload) : 0);
        }
    return has & ~(marks & ~seen);
}

static void plan_note(const Plan *p, Result *r)
{
    FILE *to = fmemopen(r->plan, sizeof r->plan - 1, "w");
    if (!to)
        return;
    plan_print(p, to);
    fclose(to);
}

static void pair_prove(const Options *base, int64_t pair, int attempt,
                       Result *r)
{
    Options o = *base;
    Pair p = pair_draw(&o, pair, attempt);
    int roles;
    snprintf(r->family, sizeof r->family, "%s", p.m->name);
    plan_note(p.plan, r);
    r->features = p.has;
    Job job = job_open(&o, p.plan);
    Cluster quick = *job.cluster;
    quick.rates.copy = 1e30, quick.rates.launch = 1e-30;
    if (p.has & FEATURE_SET(spill))       /* else nothing rests long enough */
        job.cluster = &quick;
    Trail t = { .arena = o.arena };
    Graph **done = verify_run(p.g, &job, &t, &roles);
    r->nodes = step_nodes(&t);
    r->features = seen_of(&t, r->features);
    if (planted(pair))
        fault_plant(&p.d, done[draw_below(&p.d, (uint64_t)roles)]);
    for (int k = 0; k < (planted(pair) ? DRAWS : 1); k++, o.seed++)
        r->values = verify_values(&o, &t);
    verify_schedule(&o, p.m, done, roles);
}

static void pair_try(const Options *o, int64_t pair, int attempt, Result *r)
{
    ErrTrap t;
    *r = (Result){ .ending = CRASHED, .redrawn = (uint32_t)attempt };
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        pair_prove(o, pair, attempt, r);
        err_pop();
        r->ending = PROVEN;
    } else {
        r->ending = t.code == 6 ? DIFFERS : REFUSED;
        snprintf(r->text, sizeof r->text, "%.399s", t.text);
    }
}

enum { ATTEMPTS = 32 };

/* What a plan may not have the draws do not know: one that is refused is
 * drawn again, about the same. */
static _Noreturn void pair_run(const Options *o, int64_t pair, Result *r)
{
    int k = 0;
    do
        pair_try(o, pair, k++, r);
    while (k < ATTEMPTS && r->ending == REFUSED);
    _exit(0);
}

/* ---- all of them ---- */

static Child child_start(const Options *o, int64_t pair, Result *r)
{
    int ends[2];
    *r = (Result){ .ending = CRASHED };
    if (pipe(ends) != 0)
        err_code(5, "dpc", "verify: no pipe");
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        err_code(5, "dpc", "verify: no process");
    if (pid == 0) {
        close(ends[0]);
        setrlimit(RLIMIT_CPU, &(struct rlimit){ SECONDS, SECONDS });
        if (!o->verbose && !freopen("/dev/null", "w", stderr))
            _exit(1);
        pair_run(o, pair, r);
    }
    close(ends[1]);
    return (Child){ pid, ends[0], false, r };
}

static const Result *child_end(const Child *c)
{
    int status = 0;
    close(c->pipe);
    waitpid(c->pid, &status, 0);
    if (status)
        c->r->ending = CRASHED;
    if (c->r->ending == CRASHED)
        snprintf(c->r->text, sizeof c->r->text, WIFSIGNALED(status)
                 && WTERMSIG(status) == SIGXCPU
                 ? "it took more than %d seconds of a core"
                 : "the compiler stopped; -v shows what it said", SECONDS);
    return c->r;
}

static void family_count(Tally *t, const char *name)
{
    int i = 0;
    while (i < FAMILIES && *t->family[i].name
           && strcmp(t->family[i].name, name) != 0)
        i++;
    if (i < FAMILIES && *name) {
        snprintf(t->family[i].name, sizeof t->family[i].name, "%s", name);
        t->family[i].n++;
    }
}

static void result_take(Tally *t, int64_t pair, const Result *r)
{
    static const char *const said[] = { "proven", "refused", "DIFFERS",
                                        "CRASHED" };
    bool fault = planted(pair), wrong = r->ending >= DIFFERS;
    t->redrawn += r->redrawn;
    t->planted += fault;
    t->found += fault && wrong;
    if (!fault) {
        t->count[r->ending]++;
        cover_add(&t->cover, r->ending == PROVEN ? r->features : 0);
        family_count(t, r->ending == PROVEN ? r->family : "");
    }
    if (r->nodes) {
        t->fewest = t->fewest && t->fewest < r->nodes ? t->fewest : r->nodes;
        t->most = t->most > r->nodes ? t->most : r->nodes;
    }
    if (fault == wrong && !(t->o->verbose && !fault))
        return;
    fprintf(stderr, "seed %lld: %s, %u nodes%s: %s %s\n",
            (long long)(t->o->seed + pair), r->family, r->nodes,
            fault ? ", fault planted" : "", said[r->ending], r->text);
    if (wrong && !fault)
        fprintf(stderr, "%s", r->plan);
}

/* Waits until one of the pairs from..to-1 that are under way has something to
 * read, which is its result or its end. */
static void wait_for_some(Child *child, int64_t from, int64_t to)
{
    struct pollfd p[AHEAD];
    for (int64_t k = from; k < to; k++) {
        const Child *c = &child[k % AHEAD];
        p[k - from] = (struct pollfd){ c->ended ? -1 : c->pipe, POLLIN, 0 };
    }
    if (poll(p, (nfds_t)(to - from), -1) < 0 && errno != EINTR)
        err_code(5, "dpc", "verify: cannot wait for a process");
    for (int64_t k = from; k < to; k++)
        child[k % AHEAD].ended |= p[k - from].revents != 0;
}

/* Pairs are taken in their order, so that what is printed is the same each
 * time; behind one that takes long others go on. */
static void pairs_run(Tally *t, int64_t n, int jobs)
{
    Child child[AHEAD];
    int64_t begun = 0;
    Result *r = mmap(NULL, AHEAD * sizeof *r, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        err_code(5, "dpc", "verify: no memory");
    for (int64_t k = 0; k < n;) {
        int busy = 0;
        for (int64_t i = k; i < begun; i++)
            busy += !child[i % AHEAD].ended;
        for (; busy < jobs && begun < n && begun - k < AHEAD; busy++, begun++)
            child[begun % AHEAD] =
                child_start(t->o, begun, &r[begun % AHEAD]);
        wait_for_some(child, k, begun);
        for (; k < begun && child[k % AHEAD].ended; k++)
            result_take(t, k, child_end(&child[k % AHEAD]));
    }
    munmap(r, AHEAD * sizeof *r);
}

static void tally_json(const Tally *t, int64_t n, double seconds)
{
    printf("{\"pairs\": %lld, \"proven\": %lld, \"refused\": %lld, "
           "\"redrawn\": %lld, \"mismatches\": %lld, "
           "\"crashes\": %lld, \"planted\": %lld, "
           "\"found\": %lld, \"fewest_nodes\": %u, \"most_nodes\": %u, "
           "\"seconds\": %.1f,\n", (long long)n, (long long)t->count[PROVEN],
           (long long)t->count[REFUSED], (long long)t->redrawn,
           (long long)t->count[DIFFERS], (long long)t->count[CRASHED],
           (long long)t->planted, (long long)t->found, t->fewest, t->most,
           seconds);
    printf(" \"families\": {");
    for (int i = 0; i < FAMILIES && *t->family[i].name; i++)
        printf("%s\"%s\": %lld", i ? ", " : "", t->family[i].name,
               (long long)t->family[i].n);
    printf("},\n");
    cover_json(&t->cover);
    printf("}\n");
}

static void tally_print(const Tally *t, int64_t n, double seconds)
{
    cover_print(&t->cover, n);
    printf("of each kind of model:");
    for (int i = 0; i < FAMILIES && *t->family[i].name; i++)
        printf("%s %s %lld", i ? "," : "", t->family[i].name,
               (long long)t->family[i].n);
    printf("\n");
    printf("%lld pairs of %u to %u nodes: %lld proven, %lld refused (%lld "
           "drawn again), %lld differ, %lld crashed; %lld of %lld planted "
           "faults found; %.1f s\n",
           (long long)n, t->fewest, t->most, (long long)t->count[PROVEN],
           (long long)t->count[REFUSED], (long long)t->redrawn,
           (long long)t->count[DIFFERS], (long long)t->count[CRASHED],
           (long long)t->found,
           (long long)t->planted, seconds);
}

static double now(void)
{
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec + 1e-9 * (double)s.tv_nsec;
}

int verify_fuzz(const Options *o)
{
    Tally t = { .o = o };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double start = now();
    if (o->nfile)
        usage("verify: --fuzz draws its own models; leave \"%s\" out",
              o->file[0]);
    if (!o->home)
        err_code(5, "dpc", "models/fuzz is not found: set DPC_HOME to the "
                 "folder that holds it");
    pairs_run(&t, o->fuzz, cores < 1 ? 1 : cores > JOBS ? JOBS : (int)cores);
    (o->json ? tally_json : tally_print)(&t, o->fuzz, now() - start);
    bool wrong = t.count[DIFFERS] || t.count[CRASHED] || t.found != t.planted;
    return wrong ? 6 : 0;
}
