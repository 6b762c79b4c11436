/* cmd_compile.c -- dpc compile: a model and a plan become one binary. */
#include "codegen/unit.h"
#include "compiler/apart.h"
#include "compiler/dead.h"
#include "compiler/options.h"
#include "compiler/planning.h"
#include <errno.h>
#include <stdlib.h>

enum {
    EMIT_GRAPH = 1, EMIT_PLAN = 2, EMIT_SCHEDULE = 4, EMIT_C = 8,
    EMIT_CUDA = 16, EMIT_CUBIN = 32, EMIT_BIN = 64
};

static const struct { const char *name; unsigned bit; } emits[] = {
    { "graph", EMIT_GRAPH }, { "plan", EMIT_PLAN },
    { "schedule", EMIT_SCHEDULE }, { "c", EMIT_C }, { "cuda", EMIT_CUDA },
    { "cubin", EMIT_CUBIN }, { "bin", EMIT_BIN },
};

static unsigned emit_one(const char *word)
{
    const char *have[COUNT(emits)];
    for (int i = 0; i < COUNT(emits); i++) {
        have[i] = emits[i].name;
        if (strcmp(word, have[i]) == 0)
            return emits[i].bit;
    }
    usage("--emit: \"%s\" is not one of graph,plan,schedule,c,cuda,cubin,bin"
          "%s", word, near_hint(word, have, COUNT(have)));
}

static unsigned emit_set(const Options *o)
{
    unsigned set = 0;
    bool cuda = o->target && strcmp(o->target, "cuda") == 0;
    if (!o->emit && !cuda)
        return EMIT_BIN;
    if (!o->emit)
        set = EMIT_CUDA | EMIT_CUBIN;
    for (const char *p = o->emit; p && *p; p += strcspn(p, ","),
                                           p += *p == ',')
        set |= emit_one(fmt(o->arena, "%.*s", (int)strcspn(p, ","), p));
    if (o->output && !(set & EMIT_BIN))
        usage("-o %s: --emit %s makes no binary; --emit %s,bin would, and "
              "--emit-dir says where texts go", o->output,
              o->emit ? o->emit : "cuda,cubin", o->emit ? o->emit : "cuda");
    if (cuda && set & EMIT_BIN)
        usage("--target cuda: this dpc writes kernels for it (--emit cuda,"
              "cubin); a binary runs on the host only");
    return set;
}

static FILE *create(const Options *o, const char *name)
{
    const char *dir = o->emit_dir ? o->emit_dir : ".";
    const char *path = fmt(o->arena, "%s/%s", dir, name);
    folders_make(path);
    FILE *f = fopen(path, "w");
    if (!f)
        err_code(5, path, "cannot be written: %s", strerror(errno));
    setvbuf(f, NULL, _IOFBF, 1 << 18);    /* texts of many megabytes */
    if (!o->quiet)
        fprintf(stderr, "dpc: wrote %s\n", path);
    return f;
}

static void finish(FILE *f, const char *name)
{
    if (ferror(f) | fclose(f))
        err_code(5, name, "cannot be written: %s", strerror(errno));
}

static void graph_write(const Options *o, const Model *m, const Graph *g,
                        const char *what)
{
    const char *name = g->role < 0
        ? fmt(o->arena, "%s.%s.%s.ir", m->name, g->entry, what)
        : fmt(o->arena, "%s.%s.role%d.%s.ir", m->name, g->entry, g->role,
              what);
    FILE *f = create(o, name);
    graph_print(g, f);
    finish(f, name);
}

static void plan_write(const Options *o, const Model *m, const Plan *p)
{
    const char *name = fmt(o->arena, "%s.plan.lua", m->name);
    FILE *f = create(o, name);
    plan_print(p, f);
    finish(f, name);
}

/* DPC_CACHE_DIR, XDG_CACHE_HOME/dpc or ~/.cache/dpc. */
static const char *cache_folder(const Options *o)
{
    const char *s;
    if (o->no_cache)
        return NULL;
    if ((s = getenv("DPC_CACHE_DIR")) && *s)
        return s;
    if ((s = getenv("XDG_CACHE_HOME")) && *s)
        return fmt(o->arena, "%s/dpc", s);
    if ((s = getenv("HOME")) && *s)
        return fmt(o->arena, "%s/.cache/dpc", s);
    return NULL;
}

/* Flags that a binary is linked with stand beside the runtime's archive. */
static const char *link_flags(const Options *o)
{
    if (!o->runtime_lib)
        err_code(5, "dpc", "libdpc_rt.a is not beside dpc; see dpc doctor");
    if (!runtime_fits(o))
        err_code(5, o->runtime_lib, "it knows another layout of tables than "
                 "this dpc, which is %d; ./build.sh", DPC_ABI);
    int n = (int)strlen(o->runtime_lib) - 2;
    const char *path = fmt(o->arena, "%.*s.link", n, o->runtime_lib);
    char line[1024] = "";
    FILE *in = fopen(path, "r");
    if (!in || !fgets(line, sizeof line, in))
        err_code(5, path, "cannot be read: %s", strerror(errno));
    fclose(in);
    line[strcspn(line, "\n")] = 0;
    return fmt(o->arena, "%s", line);
}

/* The whole path, so that it means the same in another folder. */
static const char *absolute(const Options *o, const char *path)
{
    char *real = realpath(path, NULL);
    const char *s = fmt(o->arena, "%s", real ? real : path);
    free(real);
    return s;
}

static UnitOptions unit_options(const Options *o, const Model *m, const Job *j,
                                unsigned emit)
{
    static const char *const arch[] = { "sm_80", "sm_90", "sm_100" };
    UnitRun *run = alloc(o->arena, (m->nrun + 1) * sizeof *run);
    for (uint32_t i = 0; i < m->nrun; i++)
        run[i] = (UnitRun){ m->run[i].command, m->run[i].entry,
                            m->run[i].count, m->run[i].times };
    const char *cc = getenv("CC");
    bool own = cc && *cc;
    UnitOptions u = {
        .model = m->name, .version = DPC_VERSION, .meta = m->meta,
        .run = run, .nrun = (int)m->nrun, .arch = arch, .narch = COUNT(arch),
        .emit_dir = o->emit_dir ? o->emit_dir : ".",
        .emit_c = emit & EMIT_C, .emit_cuda = emit & EMIT_CUDA,
        .emit_cubin = emit & EMIT_CUBIN, .cc = own ? cc : "cc",
        .others = !own,
        .march = j->cluster->march, .cache = cache_folder(o),
        .include = fmt(o->arena, "%s/runtime", o->home ? o->home : "."),
        .threads = plan_threads(j->plan, j->cluster), .jobs = j->cluster->cores,
        .verbose = o->verbose,
    };
    if (emit & EMIT_BIN) {
        u.out = o->output ? o->output : m->name;
        u.runtime = absolute(o, o->runtime_lib ? o->runtime_lib : "");
        u.link = link_flags(o);
    }
    return u;
}

static void report_print(const Options *o, const UnitOptions *u,
                         const UnitReport *r)
{
    if (o->quiet || !u->out)
        return;
    fprintf(stderr, "dpc: %s: %d kernels; %d files compiled, %d from the "
            "cache, %.1f s\n", u->out, r->kernels, r->compiled, r->cached,
            r->seconds);
    fprintf(stderr, "dpc: a rank holds %.1f MiB of leaves, %.1f MiB of arena "
            "(bound %.1f), %.1f MiB of io%s\n", (double)r->leaves / (1 << 20),
            (double)r->arena / (1 << 20), (double)r->lower / (1 << 20),
            (double)r->io / (1 << 20), r->roles > 1 ? ", at most" : "");
    if (r->host_leaves + r->host > 0)
        fprintf(stderr, "dpc: and in the host's memory %.1f MiB of leaves, "
                "%.1f MiB of arena%s\n", (double)r->host_leaves / (1 << 20),
                (double)r->host / (1 << 20), r->roles > 1 ? ", at most" : "");
}

/* What a step sends, and how much of that nothing hides, by the clock. */
static void traffic_print(Graph *const *role, int n, const Job *j)
{
    const Timeline *t = roles_timed(role, n, j);
    for (int i = 0; i < n; i++) {
        const Spent *s = &t[i].spent;
        if (s->communicate > 0)
            fprintf(stderr, "dpc: %s: a rank%s sends %.2f MB in %.2f ms and "
                    "computes %.2f ms, both in %.2f ms: %.2f ms exposed\n",
                    role[i]->entry,
                    n > 1 ? fmt(j->keep, " of role %d", i) : "",
                    1e-6 * s->bytes, 1e3 * s->communicate, 1e3 * s->compute,
                    1e3 * s->step, 1e3 * spent_exposed(s));
    }
}

typedef struct Need { Priced p; const char *entry; } Need;

static void need_add(Need *n, const Graph *done, const Job *j)
{
    Priced p = { .plan = NULL };
    memory_price(done, j, &p);
    if (!n->entry || bytes_of(&p) > bytes_of(&n->p))
        *n = (Need){ p, done->entry };
}

/* "train needs ..., a rank of the cluster "host" has ..." */
static char *need_text(const Options *o, const Need *n, const Job *j)
{
    int64_t limit = memory_limit(j);
    bool word = limit < j->cluster->memory;
    const Priced *p = &n->p;
    return fmt(o->arena, "%s needs %.1f MiB a rank (leaves %.1f, arena %.1f, "
               "io %.1f); %s \"%s\" %s %.1f", n->entry, mib(bytes_of(p)),
               mib(p->leaves), mib(p->arena), mib(p->io),
               word ? "recompute =" : "a rank of the cluster",
               word ? recompute_word(o->arena, j->plan) : j->cluster->name,
               word ? "allows" : "has", mib(limit));
}

/* What a rank needs at the least must fit before a binary is made of it; texts
 * need none. */
static void memory_check(const Options *o, const Need *n, const Job *j,
                         bool wanted)
{
    if (!n->entry || n->p.fits)
        return;
    if (wanted)
        err_code(3, o->file[0], "%s\n%s", need_text(o, n, j),
                 fit_help(o, j->plan, n->entry, bytes_of(&n->p),
                          memory_limit(j)));
    if (!o->quiet)
        fprintf(stderr, "dpc: warning: %s\n", need_text(o, n, j));
}

/* A line for each entry that trains less than it could. */
static void dead_report(const Options *o, const Model *m)
{
    for (int i = 0; i < m->nentry && !o->quiet; i++) {
        uint32_t n;
        int64_t count = 0;
        const Dead *d = dead_find(m->entry[i], o->arena, &n);
        for (uint32_t k = 0; k < n; k++)
            count += d[k].count;
        if (n)
            fprintf(stderr, "dpc: %s: %lld trainable numbers in %u leaves "
                    "have no gradient; dpc check names them\n",
                    m->entry[i]->entry, (long long)count, n);
    }
}

/* All that a binary follows from but the compilers, as text. */
static char *input_text(const Model *m, const Plan *p, const Job *j, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    for (int i = 0; i < m->nentry; i++)
        graph_print(m->entry[i], f);
    plan_print(p, f);
    for (uint32_t i = 0; i < m->nrun; i++)
        fprintf(f, "%s %s %s %d\n", m->run[i].command, m->run[i].entry,
                m->run[i].count ? m->run[i].count : "", m->run[i].times);
    fprintf(f, "%s\n%s\n%s\n", m->name, m->meta, j->target->name);
    cluster_print(j->cluster, f);
    fclose(f);
    return text;
}

/* The binary of an equal compile, at once; true when there was one. */
static bool recalled(const Options *o, const UnitOptions *u, unsigned emit,
                     const char *input, size_t n)
{
    UnitReport r;
    if (emit != EMIT_BIN || o->after || o->time_passes || o->verbose
        || !unit_recall(input, n, u, o->arena, &r))
        return false;
    report_print(o, u, &r);
    return true;
}

/* The schedules of an entry's n roles if nothing were made again: those that
 * there are, where nothing is. */
static Graph **roles_keeping(const Graph *g, const Job *j, Graph **role, int n)
{
    Plan plan = *j->plan;
    Job mine = *j;
    bool again = false;
    for (int k = 0; k < n; k++)
        again |= values_again(role[k]) > 0;
    if (!again)
        return role;
    plan.recompute = RECOMPUTE_NONE;
    mine.plan = &plan, mine.once = false, mine.print_after = NULL;
    return run_roles(g, &mine, &n);
}

/* The schedules of all entries and roles. */
static Graph **entries_run(const Options *o, const Model *m, Job *j,
                           unsigned emit, int *ndone)
{
    const Mesh *mesh = &j->plan->mesh;
    int roles = (int)mesh_size(mesh, mesh_axes(mesh, STAGE));
    Graph **done = alloc(o->arena, (size_t)(m->nentry * roles)
                         * sizeof *done);
    *ndone = 0;
    for (int i = 0; i < m->nentry; i++) {
        if (emit & EMIT_GRAPH)
            graph_write(o, m, m->entry[i], "graph");
        Graph **role = run_roles(m->entry[i], j, &roles), **none = role;
        if (o->verbose) {
            traffic_print(role, roles, j);
            none = roles_keeping(m->entry[i], j, role, roles);
        }
        for (int k = 0; k < roles && o->verbose; k++)
            peak_print(role[k], none[k], o->arena, stderr);
        for (int k = 0; k < roles; k++) {
            if (emit & EMIT_SCHEDULE)
                graph_write(o, m, role[k], "schedule");
            done[(*ndone)++] = role[k];
        }
    }
    return done;
}

typedef struct Texts {                    /* what entry_texts is told */
    const Options *o;
    const Model *m;
    Job *j;
    unsigned emit;
    int each;                             /* pieces of an entry: its graph, if
                                             wanted, and its schedules */
    Need *need;                           /* of each entry */
} Texts;

static void entry_texts(void *arg, int i)
{
    const Texts *t = arg;
    Graph *g = t->m->entry[i / t->each];
    int roles;
    if (t->each == 2 && i % 2 == 0) {
        graph_write(t->o, t->m, g, "graph");
        return;
    }
    Graph **role = run_roles(g, t->j, &roles);
    for (int k = 0; k < roles; k++) {
        if (t->emit & EMIT_SCHEDULE)
            graph_write(t->o, t->m, role[k], "schedule");
        need_add(&t->need[i / t->each], role[k], t->j);
    }
}

/* Where nothing is made of the schedules, entries need not meet: each has a
 * process, the largest first, and each graph, at the end.  What the largest
 * takes. */
static Need entries_write(const Options *o, const Model *m, Job *j,
                          unsigned emit)
{
    Need most = { .entry = NULL };
    int n = m->nentry, each = emit & EMIT_GRAPH ? 2 : 1;
    size_t bytes = (size_t)(n + 1) * sizeof most;
    Texts t = { o, m, j, emit, each, apart_memory(bytes) };
    int *order = alloc(o->arena, (size_t)(2 * n + 1) * sizeof *order);
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k && m->entry[order[k - 1] / each]->n < m->entry[i]->n; k--)
            order[k] = order[k - 1];
        order[k] = each * i + each - 1;
    }
    for (int i = 0; i < n * (each - 1); i++)
        order[n + i] = order[i] - 1;
    apart_run(order, each * n, entry_texts, &t);
    for (int i = 0; i < n; i++)
        if (bytes_of(&t.need[i].p) > bytes_of(&most.p))
            most = (Need){ t.need[i].p, m->entry[i]->entry };
    apart_free(t.need, bytes);
    return most;
}

void model_compile(const Options *o, const Model *m)
{
    unsigned emit = emit_set(o);
    Plan *plan = plan_open(o, m->entry, m->nentry);
    Job job = job_open(o, plan);
    if (o->after && strcmp(o->after, "all") != 0)
        pass_name_check(o->after, "after");
    job.print_after = o->after;
    job.once = !o->verbose;               /* it may be wanted twice */
    UnitOptions u = unit_options(o, m, &job, emit);
    size_t n = 0;
    bool cached = u.out && u.cache;
    char *input = cached ? input_text(m, plan, &job, &n) : NULL;
    if (cached && recalled(o, &u, emit, input, n)) {
        free(input);
        return;
    }
    unit_threads(plan_threads(plan, job.cluster));
    dead_report(o, m);
    int ndone = 0;
    Graph **done = NULL;
    UnitReport r;
    unsigned texts = EMIT_C | EMIT_CUDA | EMIT_CUBIN | EMIT_BIN;
    bool unit = emit & texts || o->verbose;   /* -v: its steps are checked */
    Need need = { .entry = NULL };
    if (unit || o->after || o->time_passes)
        done = entries_run(o, m, &job, emit, &ndone);
    else
        need = entries_write(o, m, &job, emit);
    for (int i = 0; i < ndone; i++)
        need_add(&need, done[i], &job);
    memory_check(o, &need, &job, emit & EMIT_BIN);
    if (emit & EMIT_PLAN)                 /* which nothing refused */
        plan_write(o, m, plan);
    if (unit) {
        unit_build(done, ndone, &u, o->arena, &r);
        report_print(o, &u, &r);
    }
    if (cached)
        unit_remember(input, n, &u, o->arena, &r);
    free(input);
}

int cmd_compile(const Options *o)
{
    emit_set(o);                          /* refused before a model is read */
    model_compile(o, model_open(o));
    return 0;
}
