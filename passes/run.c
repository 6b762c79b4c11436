/* run.c -- the pass manager: phase, time, verify, print, for all alike.
 *
 * A graph does not change once a pass has made it, so a large one is verified
 * by a thread of its own while the next pass reads it. */
#include "passes/pass.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

const PassInfo passes[] = {
#define PASS(name, from, to, what) \
    { #name, what, PHASE_##from, PHASE_##to, pass_##name },
#include "passes/passes.def"
};
const int npass = COUNT(passes);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Is `name` a member of the comma-separated list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

static char *graph_text(const Graph *g)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    graph_print(g, f);
    fclose(f);
    return text;
}

static void print_after(const PassInfo *p, const Graph *before,
                        const Graph *after, const Job *j)
{
    FILE *to = j->print_to ? j->print_to : stdout;
    if (!j->print_after || (strcmp(j->print_after, "all") != 0
                            && !listed(j->print_after, p->name)))
        return;
    char *a = graph_text(before), *b = graph_text(after);
    bool all = strcmp(j->print_after, "all") == 0;
    if (all)
        fprintf(to, "# after %s%s\n", p->name,
                strcmp(a, b) == 0 ? " (unchanged)" : "");
    if (!all || strcmp(a, b) != 0)
        fputs(b, to);
    free(a);
    free(b);
}

/* A pass that makes no nodes leaves names as the last one made them. */
static bool same_names(const Graph *a, const Graph *b)
{
    bool same = a->n == b->n;
    for (Ref r = 0; same && r < a->n; r++)
        same = a->node[r].name == b->node[r].name;
    return same;
}

/* ---- verify, beside the next pass ---- */

enum { LARGE = 1 << 13 };                 /* nodes; less is done at once */

static _Thread_local struct Look {
    pthread_t thread;
    const Graph *g;
    const char *after;                    /* the pass that made it */
    bool named, on;                       /* names are apart; a thread looks */
} look;

static void *look_at(void *p)
{
    const struct Look *l = p;
    (l->named ? verify_named : verify)(l->g, l->after);
    return NULL;
}

static void look_end(void)
{
    if (look.on)
        pthread_join(look.thread, NULL);
    look.on = false;
    err_wait = NULL;
}

/* The graph must last until look_end. */
static void look_begin(const Graph *g, const char *after, bool named)
{
    look = (struct Look){ .g = g, .after = after, .named = named };
    if (g->n < LARGE || pthread_create(&look.thread, NULL, look_at, &look)) {
        look_at(&look);
        return;
    }
    look.on = true;
    err_wait = look_end;
}

/* named: the names of g are known to be apart. */
static const Graph *run_one(const PassInfo *p, const Graph *g, Job *j,
                            bool named)
{
    if (p->from != PHASE_ANY && p->from != g->phase)
        die("%s: the graph is in another phase", p->name);
    double start = now();
    j->scratch = arena_new();
    Graph *out = p->fn(g, j);
    if (out == g && !named)               /* nobody has looked at it */
        out = copy_whole(g, j);
    double end = now();
    if (out != g) {
        look_end();
        out->phase = p->to == PHASE_ANY ? g->phase : p->to;
        bool apart = (named && same_names(g, out)) || graph_name(out);
        look_begin(out, p->name, apart);
    }
    if (j->check)
        j->check(j->check_arg, p->name, g, out);
    if (j->time)
        fprintf(stderr, "%-10s %-10s %8.1f ms  %6u -> %u nodes\n", g->entry,
                p->name, 1e3 * (end - start), g->n, out->n);
    print_after(p, g, out, j);
    arena_free(j->scratch);
    j->scratch = NULL;
    return out;
}

Graph **run_roles(const Graph *g, Job *job, int *n)
{
    Job j = *job;
    j.stop_after = "local";
    g = run_passes(NULL, g, &j);
    j.stop_after = NULL;
    j.start_from = "cut";
    *n = (int)mesh_size(&g->mesh, mesh_axes(&g->mesh, STAGE));
    Graph **role = alloc(j.keep, (size_t)*n * sizeof *role);
    for (j.role = 0; j.role < *n; j.role++) {
        j.once = job->once && j.role == *n - 1;
        role[j.role] = run_passes(NULL, g, &j);
    }
    return role;
}

Graph *run_passes(const char *list, const Graph *g, Job *j)
{
    bool on = !j->start_from, ours = j->once, named = false;
    for (int i = 0; i < npass; i++) {
        const PassInfo *p = &passes[i];
        if (!on && strcmp(p->name, j->start_from) == 0)
            on = true;
        if (on && (!list || listed(list, p->name))) {
            const Graph *before = g;
            g = run_one(p, g, j, named);
            named = true;
            if (ours && g != before && !j->look_back)
                arena_drop(j->keep, before->node);
            ours |= g != before;
        }
        if (j->stop_after && strcmp(p->name, j->stop_after) == 0)
            break;
    }
    look_end();
    return (Graph *)g;
}
