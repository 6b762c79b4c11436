/* cmd_sim.c -- dpc sim: a step that nobody runs.
 *
 * The schedules that all passes made are walked by the clock: each launch
 * takes what the target says on this cluster, each transfer what the link
 * does, a step begins when its stream is free and what it waits for is over,
 * and a hop when both of its roles are there.  --trace writes the timeline for
 * chrome://tracing or ui.perfetto.dev: a process a role, one row a stream, and
 * the bytes of the arena that live (Trace Event Format). */
#include "compiler/page.h"
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

enum { PIECE = 1 << 20 };                 /* bytes that are packed at once */

typedef struct Trace {
    const Timeline *role;
    int number;
    FILE *out;
    bool first;
} Trace;

static void event_open(Trace *t, const char *kind)
{
    fprintf(t->out, "%s{\"ph\": \"%s\", \"pid\": %d", t->first ? "" : ",\n",
            kind, t->number);
    t->first = false;
}

static void step_print(Trace *t, uint32_t k)
{
    const Graph *g = t->role->g;
    const Step *q = &g->sched->step[k];
    const Launch *l = &g->sched->launch[q->launch];
    const Node *n = &g->node[l->node[l->n - 1]];
    double begin = t->role->begin[k], end = t->role->end[k];
    event_open(t, "X");
    fprintf(t->out, ", \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ",
            q->stream, 1e6 * begin, 1e6 * (end - begin));
    json_quote(t->out, fmt(g->arena, "%s %s", ops[n->op].name, n->name));
    fprintf(t->out, ", \"args\": {\"turn\": %d, \"nodes\": %d, \"loc\": ",
            q->turn, l->n);
    json_quote(t->out, n->loc);
    fprintf(t->out, "}}");
}

static void memory_print(Trace *t, uint32_t k, int64_t bytes)
{
    event_open(t, "C");
    fprintf(t->out, ", \"ts\": %.3f, \"name\": \"arena\", \"args\": "
            "{\"bytes\": %lld}}", 1e6 * t->role->begin[k], (long long)bytes);
}

static void role_print(Trace *t, Arena *a)
{
    const Graph *g = t->role->g;
    Memory m = memory_of(t->role, a);
    event_open(t, "M");
    fprintf(t->out, ", \"name\": \"process_name\", \"args\": {\"name\": "
            "\"role %d\"}}", t->number);
    for (uint32_t k = 0; k < g->sched->nstep; k++) {
        step_print(t, k);
        if (g->sched->step[k].stream == 0)
            memory_print(t, k, m.alive[k]);
    }
}

/* The text as a file; packed where its name ends in .gz. */
static bool text_write(const char *path, const char *text, size_t n)
{
    size_t len = strlen(path);
    if (len < 3 || strcmp(path + len - 3, ".gz") != 0) {
        FILE *f = fopen(path, "w");
        bool good = f && fwrite(text, 1, n, f) == n;
        return (!f || fclose(f) == 0) && good;
    }
    gzFile z = gzopen(path, "wb");
    bool good = z != NULL;
    for (size_t at = 0; good && at < n;) {
        int k = gzwrite(z, text + at, n - at < PIECE ? (unsigned)(n - at)
                                                     : PIECE);
        good = k > 0, at += good ? (size_t)k : 0;
    }
    return (!z || gzclose(z) == Z_OK) && good;
}

static void trace_write(const Options *o, const Timeline *role, int n,
                        Arena *a)
{
    char *text = NULL;
    size_t size = 0;
    Trace t = { .out = open_memstream(&text, &size), .first = true };
    if (!t.out)
        err_code(3, o->trace, "out of memory");
    fprintf(t.out, "{\"traceEvents\": [\n");
    for (; t.number < n; t.number++) {
        t.role = &role[t.number];
        role_print(&t, a);
    }
    fprintf(t.out, "\n]}\n");
    errno = 0;
    if (ferror(t.out) | fclose(t.out) || !text_write(o->trace, text, size))
        err_code(5, o->trace, "cannot be written: %s", strerror(errno));
    free(text);
}

static void numbers_json(const char *key, const double *x, uint32_t n)
{
    printf(", \"%s\": [", key);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%.9g", i ? ", " : "", x[i]);
    printf("]");
}

static void role_json(const Timeline *t, const Job *j)
{
    const Spent *s = &t->spent;
    const Graph *g = t->g;
    Use u = use_of(g, j);
    Memory m = memory_of(t, j->keep);
    printf("\"compute_seconds\": %.9g, \"communicate_seconds\": %.9g, "
           "\"bubble_seconds\": %.9g, \"exposed_seconds\": %.9g, "
           "\"bytes_sent\": %.0f, \"arena_bytes\": %lld, \"steps\": %u, "
           "\"flops\": %.9g, \"flops_again\": %.9g",
           s->compute, s->communicate, s->bubble, spent_exposed(s), s->bytes,
           (long long)g->sched->bytes[ARENA], g->sched->nstep, u.flops,
           u.again);
    numbers_json("memory_seconds", m.at, m.n);
    numbers_json("memory_bytes", m.bytes, m.n);
}

/* Of one role its numbers stand among the others. */
static void sim_json(const Timeline *role, int n, const Job *j)
{
    printf("{\"entry\": \"%s\", \"step_seconds\": %.9g, \"mfu\": %.9g, "
           "\"exposed\": %.9g, \"bubble\": %.9g, ", role[0].g->entry,
           role[0].spent.step, mfu_of(role, n, j), exposed_share(role, n),
           bubble_share(role, n));
    if (n == 1)
        role_json(&role[0], j);
    else
        printf("\"roles\": [");
    for (int i = 0; n > 1 && i < n; i++) {
        printf("%s{", i ? ", " : "");
        role_json(&role[i], j);
        printf("}");
    }
    printf(n > 1 ? "]}\n" : "}\n");
}

static void role_line(const Timeline *t)
{
    const Spent *s = &t->spent;
    const Graph *g = t->g;
    printf("computes %.3f, sends %.2f MB in %.3f, %.3f ms exposed; arena %.1f "
           "MiB; %u launches\n", 1e3 * s->compute, 1e-6 * s->bytes,
           1e3 * s->communicate, 1e3 * spent_exposed(s),
           mib(g->sched->bytes[ARENA]), g->sched->nstep);
}

static void sim_print(const Timeline *role, int n, const Job *j)
{
    printf("%s: %.3f ms a step%s", role[0].g->entry,
           1e3 * role[0].spent.step, n > 1 ? "" : ": ");
    if (n == 1)
        role_line(&role[0]);
    else
        printf(", bubble %.1f %%\n", 100 * bubble_share(role, n));
    printf("  MFU %.1f %%, exposed communication %.1f %% of the step\n",
           100 * mfu_of(role, n, j), 100 * exposed_share(role, n));
    for (int i = 0; i < n; i++) {
        if (n > 1) {
            printf("  role %d: bubble %.3f, ", i, 1e3 * role[i].spent.bubble);
            role_line(&role[i]);
        }
        printf("  ");
        memory_line(&role[i], j->keep, stdout);
    }
}

int cmd_sim(const Options *o)
{
    outputs_check(o);
    Model *m = model_open(o);
    Plan *plan = plan_open(o, m->entry, m->nentry);
    Job j = job_open(o, plan);
    const Graph *g = o->entry ? model_entry(m, o->entry)
                              : plan_entry(m->entry, m->nentry);
    if (!g)
        usage("--entry: \"%s\" has no entry \"%s\"", o->file[0], o->entry);
    int n;
    Graph **done = run_roles(g, &j, &n);
    Timeline *role = roles_timed(done, n, &j);
    if (o->json)
        sim_json(role, n, &j);
    else
        sim_print(role, n, &j);
    if (o->trace)
        trace_write(o, role, n, o->arena);
    Page page = { .o = o, .plan = plan, .role = role, .n = n, .job = &j,
                  .a = o->arena };
    if (o->html)
        page_write(&page);
    return 0;
}
