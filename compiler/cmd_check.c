/* cmd_check.c -- dpc check and dpc print: a model, looked at. */
#include "compiler/dead.h"
#include "compiler/options.h"

/* ---- check ---- */

typedef struct Size {
    int64_t parameters, trainable, states;
    double forward, step;                 /* flops of one step, whole */
    Dead *dead;                           /* trainable, but never trained */
    uint32_t ndead;
    int64_t dead_numbers;
} Size;

static void mark(const Graph *g, Ref r, bool *in)
{
    in[r] = true;
    for (Ref k = r + 1; k-- > 0;)
        for (int i = 0; in[k] && i < g->node[k].nin; i++)
            in[g->node[k].in[i]] = true;
}

/* Flops of what the losses read: all of it without a gradient. */
static double flops_forward(const Graph *g, Arena *a)
{
    bool *in = alloc(a, g->n + 1), any = false;
    double sum = 0;
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_grad && !in[g->node[r].in[0]])
            mark(g, g->node[r].in[0], in), any = true;
    for (uint32_t i = 0; i < g->nout && !any; i++)
        mark(g, g->out[i].ref, in);
    for (uint32_t i = 0; i < g->nset && !any; i++)
        mark(g, g->set[i].value, in);
    for (Ref r = 0; r < g->n; r++)
        sum += in[r] ? node_flops(g, r) : 0;
    return sum;
}

static Size model_size(const Options *o, const Model *m, const Graph *g)
{
    Size s = { 0 };
    const Graph *init = model_entry(m, "init");
    for (Ref r = 0; init && r < init->n; r++) {
        const Node *n = &init->node[r];
        int64_t k = type_volume(&n->type);
        s.parameters += n->op == OP_param ? k : 0;
        s.trainable += n->op == OP_param && !n->attr.frozen ? k : 0;
        s.states += n->op == OP_state ? k : 0;
    }
    Plan plan = { .compute = F32 };
    Job job = { .keep = o->arena, .plan = &plan };
    const Graph *once = run_passes("simplify", g, &job);
    s.forward = flops_forward(once, o->arena);
    s.dead = dead_find(once, o->arena, &s.ndead);
    for (uint32_t i = 0; i < s.ndead; i++)
        s.dead_numbers += s.dead[i].count;
    const Graph *step = run_passes("grad,tidy", once, &job);
    for (Ref r = 0; r < step->n; r++)
        s.step += node_flops(step, r);
    return s;
}

static void entries_json(const Model *m)
{
    for (int i = 0; i < m->nentry; i++) {
        const Graph *g = m->entry[i];
        printf("%s{\"name\": ", i ? ", " : "");
        json_quote(stdout, g->entry);
        printf(", \"nodes\": %u, \"outs\": [", g->n);
        for (uint32_t k = 0; k < g->nout; k++) {
            fputs(k ? ", " : "", stdout);
            json_quote(stdout, g->out[k].name);
        }
        printf("]}");
    }
}

static void options_json(const Model *m)
{
    for (uint32_t i = 0; i < m->noption; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        json_quote(stdout, m->option[i].name);
        printf(", \"default\": ");
        json_quote(stdout, m->option[i].value);
        printf(", \"doc\": ");
        json_quote(stdout, m->option[i].doc);
        printf("}");
    }
}

static void dead_json(const Size *s)
{
    for (uint32_t i = 0; i < s->ndead; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        json_quote(stdout, s->dead[i].name);
        printf(", \"numbers\": %lld, \"of\": %lld}",
               (long long)s->dead[i].count, (long long)s->dead[i].of);
    }
}

static void check_json(const Model *m, const Graph *g, const Size *s)
{
    printf("{\"model\": ");
    json_quote(stdout, m->name);
    printf(", \"parameters\": %lld, \"trainable\": %lld, \"states\": %lld, "
           "\"entry\": ", (long long)s->parameters, (long long)s->trainable,
           (long long)s->states);
    json_quote(stdout, g->entry);
    printf(", \"flops_forward\": %.0f, \"flops_step\": %.0f, \"entries\": [",
           s->forward, s->step);
    entries_json(m);
    printf("], \"options\": [");
    options_json(m);
    printf("], \"dead_parameters\": %lld, \"dead\": [",
           (long long)s->dead_numbers);
    dead_json(s);
    printf("], \"meta\": %s}\n", m->meta);
}

static void check_text(const Options *o, const Model *m, const Graph *g,
                       const Size *s)
{
    printf("%s: ok: %lld parameters, %lld trainable, %lld numbers of state\n",
           m->path, (long long)s->parameters, (long long)s->trainable,
           (long long)s->states);
    printf("%-12s %.4g flops forward, %.4g a step\n", g->entry, s->forward,
           s->step);
    if (s->ndead)
        printf("%-12s %lld trainable numbers have no gradient\n", g->entry,
               (long long)s->dead_numbers);
    for (uint32_t i = 0; i < s->ndead && !o->quiet; i++)
        printf("  no gradient  %s: %lld of %lld\n", s->dead[i].name,
               (long long)s->dead[i].count, (long long)s->dead[i].of);
    for (int i = 0; i < m->nentry && !o->quiet; i++)
        printf("%-12s %u nodes\n", m->entry[i]->entry, m->entry[i]->n);
    for (uint32_t i = 0; i < m->noption && !o->quiet; i++)
        printf("-D %s=%s  %s\n", m->option[i].name, m->option[i].value,
               m->option[i].doc);
}

int cmd_check(const Options *o)
{
    Model *m = model_open(o);
    for (int i = 0; i < m->nentry; i++)
        verify(m->entry[i], "the model");
    const Graph *g = model_sized(m, "train");
    if (!g)
        g = m->entry[0];
    Size s = model_size(o, m, g);
    if (o->json)
        check_json(m, g, &s);
    else
        check_text(o, m, g, &s);
    return 0;
}

/* ---- print ---- */

static void show(const Options *o, const Graph *g)
{
    if (o->brief)
        graph_print_short(g, stdout);
    else
        graph_print(g, stdout);
}

_Noreturn static void entry_absent(const Model *m, const char *name)
{
    const char *have[64];
    int n = 0;
    for (; n < m->nentry && n < COUNT(have); n++)
        have[n] = m->entry[n]->entry;
    usage("--entry: the model has no entry \"%s\"%s", name,
          near_hint(name, have, n));
}

void pass_name_check(const char *name, const char *option)
{
    const char *have[32];
    for (int i = 0; i < npass; i++) {
        have[i] = passes[i].name;
        if (strcmp(have[i], name) == 0)
            return;
    }
    usage("--%s: no pass \"%s\"%s; see dpc passes", option, name,
          near_hint(name, have, npass));
}

static void print_after(const Options *o, const Graph *g, Job job)
{
    bool all = strcmp(o->after, "all") == 0;
    if (!all)
        job.stop_after = o->after;
    if (all)
        job.print_after = "all";
    Graph *out = run_passes(NULL, g, &job);
    if (!all)
        show(o, out);
}

static void print_fusion(const Graph *g, Job job)
{
    job.stop_after = "refold";
    g = run_passes(NULL, g, &job);
    job.scratch = arena_new();
    fuse_report(g, &job, stdout);
    Fusion f = fuse_figures(g, &job);
    arena_free(job.scratch);
    double nodes = f.nodes ? f.nodes : 1, least = (double)f.compulsory;
    printf("%s: %d pointwise and fold nodes in %d kernels: %.1f %%\n",
           g->entry, f.nodes, f.launches, 100 * f.launches / nodes);
    printf("%s: kernels move %.2f MB, compulsory are %.2f MB: %.3f\n",
           g->entry, 1e-6 * (double)f.bytes, 1e-6 * least,
           least > 0 ? (double)f.bytes / least : 1);
}

int cmd_print(const Options *o)
{
    Model *m = model_open(o);
    Job job = { 0 };
    if (o->entry && !model_entry(m, o->entry))
        entry_absent(m, o->entry);
    if (o->after && strcmp(o->after, "all") != 0)
        pass_name_check(o->after, "after");
    if (o->after && o->fusion)
        usage("--after and --fusion exclude each other");
    if (o->after || o->fusion)
        job = job_open(o, plan_open(o, m->entry, m->nentry));
    for (int i = 0; i < m->nentry; i++) {
        if (o->entry && strcmp(m->entry[i]->entry, o->entry) != 0)
            continue;
        if (o->fusion)
            print_fusion(m->entry[i], job);
        else if (o->after)
            print_after(o, m->entry[i], job);
        else
            show(o, m->entry[i]);
    }
    return 0;
}
