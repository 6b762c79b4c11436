/* cmd_opt.c -- dpc opt and dpc eval: graphs in text form, and their meaning. */
#include "compiler/dump.h"
#include "ir/eval.h"
#include "ir/text.h"
#include <math.h>

/* ---- opt ---- */

static void list_check(const Options *o, const char *list)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        pass_name_check(fmt(o->arena, "%.*s", (int)strcspn(p, ","), p),
                        "pass");
}

static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

/* The passes chosen must fit the graph's phase, and each other's. */
static void phase_check(const Options *o, Phase phase)
{
    bool on = !o->start_from;
    for (int i = 0; i < npass; i++) {
        const PassInfo *p = &passes[i];
        on = on || strcmp(p->name, o->start_from) == 0;
        if (on && (!o->pass || listed(o->pass, p->name))) {
            if (p->from != PHASE_ANY && p->from != phase)
                err(o->file[0], "%s works on phase %s, the graph before it is "
                    "in phase %s; see dpc passes", p->name,
                    phase_names[p->from], phase_names[phase]);
            phase = p->to == PHASE_ANY ? phase : p->to;
        }
        if (o->stop_after && strcmp(p->name, o->stop_after) == 0)
            return;
    }
}

/* What nobody reads is dropped by the first passes; the later ones count on
 * that. */
static void reads_check(const Options *o, const Graph *g)
{
    const uint32_t *uses = graph_uses(g, o->arena);
    for (Ref r = 0; r < g->n && o->start_from && g->phase == PHASE_LOCAL; r++)
        if (!uses[r] && !ops[g->node[r].op].leaf
            && g->node[r].op != OP_send)
            err(o->file[0], "\"%s\" is read by no node, set or return, and "
                "passes from %s on drop nothing", g->node[r].name,
                o->start_from);
}

/* A mesh that the graph has is not to be made again. */
static void flags_check(const Options *o, const Graph *g)
{
    Axes ranks = mesh_axes(&g->mesh, SPACE) | mesh_axes(&g->mesh, STAGE);
    int64_t has = mesh_size(&g->mesh, ranks);
    if (g->mesh.naxis && o->ranks && o->ranks != has)
        usage("--ranks %lld: the mesh of \"%s\" has %lld", (long long)o->ranks,
              o->file[0], (long long)has);
    if (o->pass && o->start_from)
        usage("--pass and --start-from exclude each other");
    for (int i = 0; i < npass && o->start_from && o->stop_after; i++) {
        if (strcmp(passes[i].name, o->start_from) == 0)
            break;
        if (strcmp(passes[i].name, o->stop_after) == 0)
            usage("--stop-after %s comes before --start-from %s",
                  o->stop_after, o->start_from);
    }
}

int cmd_opt(const Options *o)
{
    Graph *g = graph_read(o, o->file[0]);
    flags_check(o, g);
    bool planned = o->plan || o->partitioner || o->ranks > 1 || o->micro > 1;
    Plan *plan = planned ? plan_open(o, &g, 1)
               : plan_begin(dtype_wanted(o), o->arena);
    Job job = job_open(o, plan);
    if (o->pass)
        list_check(o, o->pass);
    if (o->start_from)
        pass_name_check(job.start_from = o->start_from, "start-from");
    if (o->stop_after)
        pass_name_check(job.stop_after = o->stop_after, "stop-after");
    phase_check(o, g->phase);
    reads_check(o, g);
    g = run_passes(o->pass, g, &job);
    if (o->brief)
        graph_print_short(g, stdout);
    else
        graph_print(g, stdout);
    return 0;
}

/* ---- eval ---- */

/* A number that changes when any element does. */
static uint64_t digest(const Num *x, int64_t n)
{
    uint64_t h = 14695981039346656037u;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = x[i].f;
        for (int k = 0; k < 8; k++, v >>= 8)
            h = (h ^ (v & 255)) * 1099511628211u;
    }
    return h;
}

typedef struct Line { const Options *o; const Graph *g; Eval *e; int n; } Line;

/* "loss f32[] 2.302585" or mean and root mean square; digests in the field. */
static void line(Line *l, const char *kind, const char *name, Ref r)
{
    static const Mesh none;
    const Type *t = &l->g->node[r].type;
    Type whole = { .dtype = t->dtype, .ndim = t->ndim };
    memcpy(whole.dim, t->dim, sizeof whole.dim);
    int64_t n = type_volume(t);
    const Num *x = eval_get(l->e, r);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i].r, square += x[i].r * x[i].r;
    if (l->o->json) {
        printf("%s{\"kind\": \"%s\", \"name\": ", l->n++ ? ",\n " : "", kind);
        json_quote(stdout, name);
        printf(", \"type\": \"%s\", \"digest\": \"%016llx\"",
               type_text(l->o->arena, &none, &whole),
               (unsigned long long)digest(x, n));
        if (!l->o->field)
            printf(", \"mean\": %.17g, \"rms\": %.17g", sum / (double)n,
                   sqrt(square / (double)n));
        printf("}");
        return;
    }
    printf("%s %s %s ", kind, name, type_text(l->o->arena, &none, &whole));
    if (l->o->field)
        printf("%016llx\n", (unsigned long long)digest(x, n));
    else if (n == 1)
        printf("%.9g\n", sum);
    else
        printf("mean %.9g rms %.9g\n", sum / (double)n,
               sqrt(square / (double)n));
}

/* Params and states hold what `init`, if there is one, starts them as: drawn
 * values may be none that a step can meet, as a sum of squares below zero. */
static Eval *eval_begin(const Options *o, const Graph *g, const Graph *init)
{
    Eval *e = eval_new(g, o->field ? FIELD : REAL, (uint64_t)o->seed, 0);
    if (o->field || !init)
        return e;
    Eval *start = eval_new(init, REAL, (uint64_t)o->seed, 0);
    eval_run(start);
    for (uint32_t i = 0; i < init->nset; i++) {
        const Node *from = &init->node[init->set[i].leaf];
        for (Ref r = 0; r < g->n; r++)
            if (g->node[r].op == from->op && from->name
                && strcmp(g->node[r].name, from->name) == 0)
                eval_set(e, r, eval_get(start, init->set[i].value));
    }
    eval_free(start);
    return e;
}

static void eval_entry(const Options *o, const Graph *g, const Graph *init)
{
    Line l = { o, g, eval_begin(o, g, init), 0 };
    eval_run(l.e);
    if (o->json)
        printf("{\"entry\": \"%s\", \"values\": [", g->entry ? g->entry : "");
    else if (g->entry)
        printf("entry %s\n", g->entry);
    for (uint32_t i = 0; i < g->nout; i++)
        if (!dump_name(g->out[i].name))
            line(&l, "return", g->out[i].name, g->out[i].ref);
    for (uint32_t i = 0; i < g->nset; i++)
        line(&l, "set", g->node[g->set[i].leaf].name, g->set[i].value);
    if (o->json)
        printf("]}\n");
    eval_free(l.e);
}

/* What --dump names, of the entry that has such. */
static void eval_dump(const Options *o, const Graph *g, const Graph *init)
{
    static bool again;
    if (o->field)
        usage("--dump and --field exclude each other");
    if (again)
        usage("--dump: more than one entry has such a value; name one by "
              "--entry");
    again = true;
    Eval *e = eval_begin(o, g, init);
    Dump d = dump_open(o);
    eval_run(e);
    for (uint32_t i = 0; i < g->nout; i++) {
        const char *name = dump_name(g->out[i].name);
        if (name)
            dump_write(&d, name, &g->node[g->out[i].ref],
                       (const double *)eval_get(e, g->out[i].ref));
    }
    dump_close(&d);
    eval_free(e);
}

static bool has_dump(const Graph *g)
{
    for (uint32_t i = 0; i < g->nout; i++)
        if (dump_name(g->out[i].name))
            return true;
    return false;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static bool has_grad(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_grad)
            return true;
    return false;
}

/* Only what evaluation needs: the gradient; the plan where there is one. */
static Graph *prepare(const Options *o, Graph *const *entry, int n, int i)
{
    Graph *g = entry[i];
    bool planned = o->plan || o->partitioner || o->ranks > 1 || o->micro > 1;
    if (!planned && !o->stop_after && !o->dtype && !o->recompute
        && !o->offload) {
        Job job = { .keep = o->arena };
        return has_grad(g) ? run_passes("grad", g, &job) : g;
    }
    if (g->phase != PHASE_TENSOR)
        return g;
    Job job = job_open(o, plan_open(o, entry, n));
    job.stop_after = o->stop_after ? o->stop_after : "local";
    pass_name_check(job.stop_after, "stop-after");
    g = run_passes(NULL, g, &job);
    if (g->role >= 0)
        usage("--stop-after %s: behind cut a graph is one role's, and reads "
              "what others send; stop at local, or verify", job.stop_after);
    return g;
}

/* A part of a pipeline has no values without what the others send. */
static void part_check(const Options *o, const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_recv)
            err(g->node[r].loc, "eval: \"%s\" comes from another role, and "
                "\"%s\" holds role %d alone; print the graph of all with "
                "--after=local", g->node[r].name, o->file[0], g->role);
}

int cmd_eval(const Options *o)
{
    Graph *one[1], **entry = one;
    const Graph *init = NULL;
    int n = 1, shown = 0;
    if (o->cases)
        return cmd_eval_cases(o);
    if (!o->nfile)
        usage("eval: MODEL.lua|FILE.ir is wanted; see dpc help eval");
    if (ends_with(o->file[0], ".lua")) {
        Model *m = model_open(o);
        entry = m->entry, n = m->nentry;
        init = model_entry(m, "init");
    } else
        part_check(o, one[0] = graph_read(o, o->file[0]));
    for (int i = 0; i < n; i++) {
        if (o->entry && (!entry[i]->entry ||
                         strcmp(entry[i]->entry, o->entry) != 0))
            continue;
        const Graph *g = prepare(o, entry, n, i);
        eval_entry(o, g, init);
        if (has_dump(g))
            eval_dump(o, g, init);
        shown++;
    }
    if (!shown)
        usage("--entry: \"%s\" has no entry \"%s\"", o->file[0], o->entry);
    return 0;
}
