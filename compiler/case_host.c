/* case_host.c -- a case as a binary: compiled, run, its outputs read.
 *
 * The unit has the case's graph as one entry, and, where there are states, an
 * entry that sets them to what they start as; a command for each step that is
 * looked at runs the one, then the other so many times.  Params come from a
 * .safetensors file, inputs and outputs are .npy files, all in a folder that
 * is gone afterwards. */
#include "compiler/case_host.h"
#include "compiler/demo.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const char begin[] = "begin", entry[] = "case", fill[] = "fill.";

typedef struct Host {
    const Options *o;
    const Case *c;
    Graph *g, *init;
    Arena *a;
    const char *dir;
    Held *held;                           /* leaves of g */
    uint32_t nheld;
    Model *model;
    const char **arg;                     /* of the binary, for all runs */
    uint32_t narg, argcap;
    Whole *got;
} Host;

static const char *in_dir(const Host *h, const char *name)
{
    return fmt(h->a, "%s/%s", h->dir, name);
}

static void arg_add(Host *h, const char *s)
{
    GROW(h->a, h->arg, h->narg, h->argcap);
    h->arg[h->narg++] = s;
}

/* ---- files ---- */

static int le_write(FILE *f, uint64_t n)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(n >> 8 * i);
    return fwrite(b, 1, 8, f) == 8;
}

/* "{"w": {"dtype": "F32", "shape": [2,3], "data_offsets": [0, 24]}, ...}" */
static char *weights_head(const Host *h)
{
    Str s = { .arena = h->a };
    int64_t at = 0;
    str_add(&s, "{");
    for (uint32_t i = 0; i < h->nheld; i++) {
        const Node *n = &h->g->node[h->held[i].leaf];
        if (n->op != OP_param)
            continue;
        int64_t end = at + 4 * type_volume(&n->type);
        str_add(&s, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [",
                at ? ", " : "", n->name);
        for (int d = 0; d < n->type.ndim; d++)
            str_add(&s, "%s%lld", d ? "," : "", (long long)n->type.dim[d]);
        str_add(&s, "], \"data_offsets\": [%lld, %lld]}", (long long)at,
                (long long)end);
        at = end;
    }
    str_add(&s, "}");
    return s.p;
}

/* All params as the case fills them. */
static void weights_write(const Host *h, const char *path)
{
    FILE *f = fopen(path, "wbe");
    char *head = weights_head(h);
    bool ok = f && le_write(f, strlen(head)) && fputs(head, f) >= 0;
    for (uint32_t i = 0; ok && i < h->nheld; i++) {
        const Node *n = &h->g->node[h->held[i].leaf];
        for (int64_t k = 0; n->op == OP_param && k < type_volume(&n->type);
             k++) {
            float x = (float)h->held[i].value[k];
            ok &= fwrite(&x, sizeof x, 1, f) == 1;
        }
    }
    if (!ok || fclose(f) != 0)
        err_code(5, path, "cannot be written: %s", strerror(errno));
}

/* Rows of an input for all steps, one after the other. */
static void rows_add(Host *h, const Node *n, int steps,
                     double *(*value)(const Host *, const Node *, int))
{
    NpyKind kind = n->type.dtype == I32 ? NPY_I32 : NPY_F32;
    int64_t dim[NDIM], count = type_volume(&n->type);
    memcpy(dim, n->type.dim, sizeof dim);
    dim[0] *= steps;
    Npy x = npy_make(h->a, kind, n->type.ndim, dim);
    for (int s = 0; s < steps; s++) {
        const double *from = value(h, n, s);
        for (int64_t i = 0; i < count; i++)
            if (kind == NPY_I32)
                ((int32_t *)x.data)[s * count + i] = (int32_t)from[i];
            else
                ((float *)x.data)[s * count + i] = (float)from[i];
    }
    const char *path = in_dir(h, fmt(h->a, "in%u.npy", h->narg));
    npy_write(&x, path);
    arg_add(h, "--input");
    arg_add(h, fmt(h->a, "%s=%s", n->name, path));
}

static double *input_value(const Host *h, const Node *n, int step)
{
    return case_input(h->a, h->c, n, step);
}

static double *leaf_value(const Host *h, const Node *n, int step)
{
    (void)step;
    for (uint32_t i = 0; i < h->nheld; i++)
        if (strcmp(h->g->node[h->held[i].leaf].name,
                   n->name + strlen(fill)) == 0)
            return h->held[i].value;
    die("\"%s\" fills no leaf", n->name);
}

/* ---- the unit ---- */

static bool is_filled(const Case *c, const char *name)
{
    for (uint32_t i = 0; i < c->nleaf; i++)
        if (strcmp(c->leaf[i].name, name) == 0)
            return true;
    return false;
}

/* init without params, which the file of weights has; states that the case
 * fills are set to inputs. */
static void begin_make(Host *h)
{
    Graph *g = h->init;
    uint32_t n = g->nset;
    g->entry = begin;
    g->nset = 0;
    for (uint32_t i = 0; i < n; i++) {
        Set s = g->set[i];
        const Node leaf = g->node[s.leaf];
        if (leaf.op != OP_state)
            continue;
        if (is_filled(h->c, leaf.name))
            s.value = emit_typed(g, OP_input, NULL, leaf.type, NULL, 0,
                                 fmt(h->a, "%s%s", fill, leaf.name),
                                 leaf.loc);
        g->set[g->nset++] = s;
    }
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_input)
            rows_add(h, &g->node[r], 1, leaf_value);
}

/* Outs that some want reads, under names that are nobody else's. */
static void outs_choose(Host *h)
{
    Graph *g = h->g;
    uint32_t n = g->nout;
    g->nout = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < h->c->nwant; k++)
            if (strcmp(g->out[i].name, h->c->want[k].of) == 0) {
                g->out[g->nout++] = (Out){
                    fmt(g->arena, "out.%s", g->out[i].name), g->out[i].ref };
                break;
            }
}

/* Values of scalars become their defaults; inputs without a dimension, which
 * no data has, become scalars. */
static void scalars_set(Host *h)
{
    for (Ref r = 0; r < h->g->n; r++) {
        Node *n = &h->g->node[r];
        if (n->op == OP_scalar)
            n->attr.value = case_scalar(h->c, n, 0);
        if (n->op != OP_input || n->type.ndim)
            continue;
        n->attr.value = *case_input(h->a, h->c, n, 0);
        for (int s = 1; s < h->c->steps; s++)
            if (*case_input(h->a, h->c, n, s) != n->attr.value)
                err(h->c->loc, "case \"%s\": input \"%s\" has no dimension "
                    "and differs from step to step; give it one",
                    h->c->name, n->name);
        n->op = OP_scalar;
    }
}

static bool step_wanted(const Case *c, int step)
{
    for (uint32_t i = 0; i < c->nwant; i++)
        if (c->want[i].step == step && c->want[i].kind != WANT_COUNT)
            return true;
    return false;
}

static const char *command_of(const Host *h, int step)
{
    return fmt(h->a, "step%d", step);
}

static void run_add(Host *h, int step, const char *name, int times)
{
    Model *m = h->model;
    GROW(h->a, m->run, m->nrun, m->runcap);
    m->run[m->nrun++] = (ModelRun){ command_of(h, step), name, NULL, times };
}

static void model_make(Host *h)
{
    Model *m = h->model = alloc(h->a, sizeof *m);
    *m = (Model){ .path = h->c->model, .name = entry, .meta = "{}" };
    m->entry = alloc(h->a, 2 * sizeof *m->entry);
    m->entry[m->nentry++] = h->g;
    if (h->init->nset)
        m->entry[m->nentry++] = h->init;
    for (int s = 0; s < h->c->steps; s++) {
        if (!step_wanted(h->c, s))
            continue;
        if (h->init->nset)
            run_add(h, s, begin, 1);
        run_add(h, s, entry, s + 1);
    }
}

static void compile(const Host *h)
{
    Options o = *h->o;
    o.arena = h->a;
    o.output = in_dir(h, entry);
    o.quiet = true;
    model_compile(&o, h->model);
}

/* ---- runs ---- */

static void show(const char *path)
{
    char line[512];
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        fputs(line, stderr);
    if (f)
        fclose(f);
}

/* The outs after this step, each into a file. */
static void run(const Host *h, int step)
{
    const Graph *g = h->g;
    const char **arg = alloc(h->a, (h->narg + 2 * g->nout + 16) * sizeof *arg);
    const char *log = in_dir(h, "log");
    int k = 0;
    int64_t ranks = h->o->ranks > 1 ? h->o->ranks : 1;
    if (ranks > 1) {
        arg[k++] = "mpirun", arg[k++] = "-n";
        arg[k++] = fmt(h->a, "%lld", (long long)ranks);
    }
    arg[k++] = in_dir(h, entry), arg[k++] = command_of(h, step);
    for (uint32_t i = 0; i < h->narg; i++)
        arg[k++] = h->arg[i];
    for (uint32_t i = 0; i < g->nout; i++) {
        arg[k++] = "--output";
        arg[k++] = fmt(h->a, "%s=%s/out%u.npy", g->out[i].name, h->dir, i);
    }
    Process p = { .stage = "case", .arg = arg, .out = log, .log = log };
    if (!processes_run(&p, 1, 1))
        return;
    show(log);
    err(h->c->loc, "case \"%s\": its binary ends with %d", h->c->name, p.code);
}

static Whole output_read(const Host *h, uint32_t i)
{
    Npy x = npy_read(h->a, in_dir(h, fmt(h->a, "out%u.npy", i)));
    int64_t n = npy_count(&x);
    double *to = alloc(h->a, (size_t)(n + 1) * sizeof *to);
    for (int64_t k = 0; k < n; k++)
        to[k] = npy_get(&x, k);
    return (Whole){ to, n };
}

static void outs_read(Host *h, int step)
{
    for (uint32_t i = 0; i < h->g->nout; i++) {
        Whole x = output_read(h, i);
        const char *name = h->g->out[i].name + strlen("out.");
        for (uint32_t k = 0; k < h->c->nwant; k++)
            if (h->c->want[k].step == step &&
                strcmp(name, h->c->want[k].of) == 0)
                h->got[k] = x;
    }
}

/* ---- all ---- */

/* Inputs and params that the compiled graph will still read. */
static void sources_make(Host *h)
{
    Job job = { .keep = h->a };
    const Graph *read = run_passes("simplify,grad,tidy", h->g, &job);
    const char *weights = in_dir(h, "weights.safetensors");
    bool params = false;
    for (Ref r = 0; r < read->n; r++) {
        params |= read->node[r].op == OP_param;
        if (read->node[r].op == OP_input)
            rows_add(h, &read->node[r], h->c->steps, input_value);
    }
    if (!params)
        return;
    weights_write(h, weights);
    arg_add(h, "--init-from");
    arg_add(h, weights);
}

static char *folder_make(Arena *a)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = fmt(a, "%s/dpc-case-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        err_code(5, dir, "cannot be made: %s", strerror(errno));
    return dir;
}

static void folder_remove(const Host *h)
{
    const char *arg[] = { "rm", "-rf", h->dir, NULL };
    Process p = { .stage = "case", .arg = arg };
    processes_run(&p, 1, 1);
}

static void all(Host *h)
{
    h->g->entry = entry;
    arg_add(h, "--resume");
    arg_add(h, "none");
    begin_make(h);
    outs_choose(h);
    scalars_set(h);
    sources_make(h);
    model_make(h);
    compile(h);
    for (int s = 0; s < h->c->steps; s++)
        if (step_wanted(h->c, s)) {
            run(h, s);
            outs_read(h, s);
        }
}

Whole *case_on_host(const Options *o, const Case *c, Graph *g, Graph *init,
                    Arena *a)
{
    Host h = { .o = o, .c = c, .g = g, .init = init, .a = a };
    h.got = alloc(a, (c->nwant + 1) * sizeof *h.got);
    h.held = case_leaves(c, g, init, a, &h.nheld);
    h.dir = folder_make(a);
    ErrTrap trap;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        all(&h);
        err_pop();
        folder_remove(&h);
        return h.got;
    }
    folder_remove(&h);
    const char *mark = strstr(trap.text, ": error: ");
    err(mark ? fmt(a, "%.*s", (int)(mark - trap.text), trap.text) : c->loc,
        "%s", mark ? mark + strlen(": error: ") : trap.text);
}
