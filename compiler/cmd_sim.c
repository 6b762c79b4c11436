/* cmd_sim.c -- dpc sim: a step that nobody runs.
 *
 * The schedule that all passes made is walked by the clock: each launch takes
 * what the target says on this cluster, each transfer what the link does, and
 * a step begins when its stream is free and what it waits for is over.
 * --trace writes the timeline for chrome://tracing or ui.perfetto.dev: one
 * row a stream, and the bytes of the arena that live (Trace Event Format). */
#include "compiler/planning.h"
#include <errno.h>
#include <stdlib.h>

typedef struct Timeline {
    const Graph *g;
    double *begin, *end;                  /* by step, seconds */
    FILE *out;
    bool first;
} Timeline;

static void event_open(Timeline *t, const char *kind)
{
    fprintf(t->out, "%s{\"ph\": \"%s\", \"pid\": 0", t->first ? "" : ",\n",
            kind);
    t->first = false;
}

static void step_print(Timeline *t, uint32_t k)
{
    const Graph *g = t->g;
    const Step *q = &g->sched->step[k];
    const Launch *l = &g->sched->launch[q->launch];
    const Node *n = &g->node[l->node[l->n - 1]];
    event_open(t, "X");
    fprintf(t->out, ", \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ",
            q->stream, 1e6 * t->begin[k], 1e6 * (t->end[k] - t->begin[k]));
    json_quote(t->out, fmt(g->arena, "%s %s", ops[n->op].name, n->name));
    fprintf(t->out, ", \"args\": {\"turn\": %d, \"nodes\": %d, \"loc\": ",
            q->turn, l->n);
    json_quote(t->out, n->loc);
    fprintf(t->out, "}}");
}

/* Bytes of the arena that live while step k runs. */
static int64_t *bytes_alive(const Graph *g, Arena *a)
{
    int64_t *at = alloc(a, ((size_t)g->sched->nstep + 2) * sizeof *at);
    for (Ref r = 0; r < g->n; r++) {
        const Buf *b = &g->sched->buf[r];
        if (b->used && b->root == r && b->space == ARENA) {
            at[b->born] += b->size * b->slots;
            at[b->dies + 1] -= b->size * b->slots;
        }
    }
    for (uint32_t k = 0; k < g->sched->nstep; k++)
        at[k + 1] += at[k];
    return at;
}

static void memory_print(Timeline *t, uint32_t k, int64_t bytes)
{
    event_open(t, "C");
    fprintf(t->out, ", \"ts\": %.3f, \"name\": \"arena\", \"args\": "
            "{\"bytes\": %lld}}", 1e6 * t->begin[k], (long long)bytes);
}

static void trace_write(const Options *o, const Graph *g, Job *j)
{
    uint32_t n = g->sched->nstep;
    j->scratch = arena_new();
    Timeline t = { .g = g, .out = fopen(o->trace, "w"), .first = true };
    if (!t.out)
        err_code(5, o->trace, "cannot be written: %s", strerror(errno));
    t.begin = alloc(j->scratch, (n + 1) * sizeof *t.begin);
    t.end = alloc(j->scratch, (n + 1) * sizeof *t.end);
    clock_steps(g, j, t.begin, t.end);
    int64_t *alive = bytes_alive(g, j->scratch);
    fprintf(t.out, "{\"traceEvents\": [\n");
    for (uint32_t k = 0; k < n; k++) {
        step_print(&t, k);
        if (g->sched->step[k].stream == 0)
            memory_print(&t, k, alive[k]);
    }
    fprintf(t.out, "\n]}\n");
    arena_free(j->scratch);
    j->scratch = NULL;
    if (ferror(t.out) | fclose(t.out))
        err_code(5, o->trace, "cannot be written: %s", strerror(errno));
}

static void sim_print(const Options *o, const Graph *g, const Spent *s)
{
    if (o->json)
        printf("{\"entry\": \"%s\", \"step_seconds\": %.9g, "
               "\"compute_seconds\": %.9g, \"communicate_seconds\": %.9g, "
               "\"exposed_seconds\": %.9g, \"bytes_sent\": %.0f, "
               "\"arena_bytes\": %lld, \"steps\": %u}\n", g->entry, s->step,
               s->compute, s->communicate, s->step - s->compute, s->bytes,
               (long long)g->sched->bytes[ARENA], g->sched->nstep);
    else
        printf("%s: %.3f ms a step: computes %.3f, sends %.2f MB in %.3f, "
               "%.3f ms exposed; arena %.1f MiB; %u launches\n", g->entry,
               1e3 * s->step, 1e3 * s->compute, 1e-6 * s->bytes,
               1e3 * s->communicate, 1e3 * (s->step - s->compute),
               (double)g->sched->bytes[ARENA] / (1 << 20), g->sched->nstep);
}

int cmd_sim(const Options *o)
{
    Model *m = model_open(o);
    Plan *plan = plan_open(o, m->entry, m->nentry);
    Job j = job_open(o, plan);
    const Graph *g = o->entry ? model_entry(m, o->entry)
                              : plan_entry(m->entry, m->nentry);
    if (!g)
        usage("--entry: \"%s\" has no entry \"%s\"", o->file[0], o->entry);
    g = run_passes(NULL, g, &j);
    Spent s = schedule_spent(g, &j);
    sim_print(o, g, &s);
    if (o->trace)
        trace_write(o, g, &j);
    return 0;
}
