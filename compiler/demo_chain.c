/* demo_chain.c -- compiles the models of the demo and trains them in turn. */
#define _GNU_SOURCE                       /* nftw */
#include "compiler/demo_own.h"
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const demo_stages[NSTAGES] = {
    "compile", "judge", "clip", "prior", "decoder", "sample", "base", "lora",
    "score",
};

const DemoKind demo_kinds[] = {
    [FASHION] = { "fashion", "demo", 7, 5,
        { S_COMPILE, S_JUDGE, S_CLIP, S_PRIOR, S_DECODER, S_SAMPLE, S_SCORE },
        { { "judge", "dalle2/judge", "count=80", NULL, NULL },
          { "clip", "dalle2/clip", NULL, NULL, NULL },
          { "prior", "dalle2/prior", NULL, "clip", "clip" },
          { "decoder", "dalle2/decoder", NULL, "clip", "clip" },
          { "unclip", "dalle2/unclip", "batch=80", NULL, NULL } } },
    [EDIT] = { "edit", "demo-edit", 4, 2,
        { S_COMPILE, S_BASE, S_LORA, S_SCORE },
        { { "base", "qwen_image/fashion_base", NULL, NULL, NULL },
          { "lora", "qwen_image/fashion_lora", NULL, "edit", "base" } } },
};

enum { QUICK_STEPS = 20 };

/* ---- lines ---- */

void line_add(Line *l, ...)
{
    va_list ap;
    const char *s;
    va_start(ap, l);
    while ((s = va_arg(ap, const char *))) {
        if (l->n + 1 >= COUNT(l->arg))
            die("a command of more than %d words", COUNT(l->arg));
        l->arg[l->n++] = s;
    }
    va_end(ap);
}

char *demo_path(const Demo *d, const char *f, ...)
{
    char name[512];
    va_list ap;
    va_start(ap, f);
    vsnprintf(name, sizeof name, f, ap);
    va_end(ap);
    return fmt(d->arena, "%s/%s", d->out, name);
}

Line demo_line(const Demo *d, const char *model, const char *command)
{
    Line l = { .n = 0 };
    line_add(&l, d->self, "run", "-n", fmt(d->arena, "%d", d->ranks),
             demo_path(d, "bin/%s", model), command, NULL);
    return l;
}

static Process process_of(Demo *d, StageId stage, const Line *l)
{
    const char **arg = alloc(d->arena, ((size_t)l->n + 1) * sizeof *arg);
    memcpy(arg, l->arg, (size_t)l->n * sizeof *arg);
    Process p = { .stage = demo_stages[stage], .arg = arg };
    Report *r = &d->report;
    GROW(d->arena, r->command, r->ncommand, r->cap);
    r->command[r->ncommand++] = process_text(d->arena, &p);
    return p;
}

static void check(const Demo *d, StageId stage, const Process *p)
{
    if (p->code > 0)
        err_code(p->code > 127 ? 5 : p->code, "demo", "%s: exit %d of %s; "
                 "when it is mended, go on with --from %s",
                 demo_stages[stage], p->code, process_text(d->arena, p),
                 demo_stages[stage]);
}

/* What a failed process wrote where nobody saw it. */
static void log_show(const char *path)
{
    char part[4096];
    size_t n;
    FILE *f = fopen(path, "re");
    while (f && (n = fread(part, 1, sizeof part, f)) > 0)
        fwrite(part, 1, n, stderr);
    if (f)
        fclose(f);
}

double demo_run(Demo *d, StageId stage, const Line *l, const char *out)
{
    Process p = process_of(d, stage, l);
    bool live = !out || d->o->verbose;
    p.out = out;
    p.log = live ? NULL : demo_path(d, "log/%s.err", demo_stages[stage]);
    if (d->o->verbose)
        fprintf(stderr, "%s\n", process_text(d->arena, &p));
    processes_run(&p, 1, 1);
    if (p.code && !live)
        log_show(p.log);
    check(d, stage, &p);
    return p.seconds;
}

/* ---- compile ---- */

static const DemoModel *model_of(const Demo *d, const char *name)
{
    for (int i = 0; i < d->kind->nmodel; i++)
        if (strcmp(d->kind->model[i].name, name) == 0)
            return &d->kind->model[i];
    die("the demo has no model %s", name);
}

static char *model_path(const Demo *d, const DemoModel *m)
{
    return fmt(d->arena, "%s/models/%s.lua", d->o->home, m->file);
}

/* bf16 where the cores have matrix units for it, and f32 elsewhere. */
static const char *dtype_of(const Demo *d)
{
    char line[8192];
    bool amx = false;
    if (d->o->dtype)
        return d->o->dtype;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !amx && fgets(line, sizeof line, f))
        amx = strstr(line, " amx_bf16") != NULL;
    if (f)
        fclose(f);
    return amx ? "bf16" : "f32";
}

/* Two at a time: of one alone the Lua, the passes and the linker leave a
 * core idle. */
void demo_compile(Demo *d)
{
    const DemoModel *m = d->kind->model;
    int n = d->kind->nmodel;
    Process p[NMODEL];
    const char *dtype = dtype_of(d);
    double begin = seconds_now();
    if (mkdir(demo_path(d, "bin"), 0777) && errno != EEXIST)
        err_code(5, demo_path(d, "bin"), "cannot be made: %s",
                 strerror(errno));
    for (int i = 0; i < n; i++) {
        Line l = { .n = 0 };
        line_add(&l, d->self, "compile", model_path(d, &m[i]), "--ranks",
                 fmt(d->arena, "%d", d->ranks), "--dtype", dtype, "-o",
                 demo_path(d, "bin/%s", m[i].name), NULL);
        if (m[i].define)
            line_add(&l, "-D", m[i].define, NULL);
        p[i] = process_of(d, S_COMPILE, &l);
    }
    processes_run(p, n, 2);
    for (int i = 0; i < n; i++) {
        check(d, S_COMPILE, &p[i]);
        fprintf(stderr, "demo: compiled %s in %.1f s\n", m[i].name,
                p[i].seconds);
    }
    d->report.compile_seconds = seconds_now() - begin;
}

Model *demo_model(const Demo *d, const char *model)
{
    ModelOptions o = { .home = d->o->home };
    return model_load(model_path(d, model_of(d, model)), &o, d->arena);
}

int64_t demo_batch(Demo *d, const char *model)
{
    Model *m = demo_model(d, model);
    for (uint32_t i = 0; i < m->noption; i++)
        if (strcmp(m->option[i].name, "batch") == 0)
            return strtoll(m->option[i].value, NULL, 10);
    err(m->path, "has no option \"batch\", which the demo wants to know");
}

/* ---- train ---- */

static int drop(const char *path, const struct stat *st, int kind,
                struct FTW *f)
{
    (void)st, (void)kind, (void)f;
    return remove(path);
}

/* What an earlier training of this model left, which would be resumed. */
static void forget(const Demo *d, const char *name)
{
    remove(demo_path(d, "%s/metrics.jsonl", name));
    nftw(demo_path(d, "%s/ckpt", name), drop, 16, FTW_DEPTH | FTW_PHYS);
}

void demo_train(Demo *d, StageId stage)
{
    const char *name = demo_stages[stage];
    const DemoModel *m = model_of(d, name);
    Line l = demo_line(d, name, "train");
    line_add(&l, "--data", fmt(d->arena, "%s:train", d->data), "--out",
             demo_path(d, "%s", name), "--seed",
             fmt(d->arena, "%lld", (long long)d->seed), "--log-every", "50",
             NULL);
    if (m->from)
        line_add(&l, "--init-from", fmt(d->arena, "%s=%s:ema:partial",
                 m->as, demo_path(d, "%s", m->from)), NULL);
    if (d->report.quick)
        line_add(&l, "--steps", fmt(d->arena, "%d", QUICK_STEPS), NULL);
    forget(d, name);
    double s = demo_run(d, stage, &l, NULL);
    fprintf(stderr, "demo: trained %s in %.0f s\n", name, s);
}

/* ---- eval ---- */

static char *eval_path(const Demo *d, const char *model)
{
    return demo_path(d, "log/%s-eval.json", model);
}

void demo_eval(Demo *d, StageId stage, const char *model)
{
    Line l = demo_line(d, model, "eval");
    line_add(&l, "--quiet", "--json", "--out", demo_path(d, "%s", model),
             "--data", fmt(d->arena, "%s:test", d->data), NULL);
    demo_run(d, stage, &l, eval_path(d, model));
}

double demo_number(const Demo *d, const char *model, const char *key)
{
    json_error_t e;
    char *path = eval_path(d, model);
    json_t *o = json_load_file(path, JSON_DISABLE_EOF_CHECK, &e);
    json_t *v = json_object_get(o, key);
    if (!json_is_number(v))
        err(path, "no number \"%s\"", key);
    double x = json_number_value(v);
    json_decref(o);
    return x;
}

/* ---- what is left behind ---- */

static int64_t whole(json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void sizes_read(Demo *d, Trained *t)
{
    char *to = demo_path(d, "log/%s.json", t->name);
    const char *arg[] = { demo_path(d, "bin/%s", t->name), "info", "--json",
                          NULL };
    Process p = { .stage = "info", .arg = arg, .out = to };
    json_error_t e;
    if (processes_run(&p, 1, 1))
        return;
    json_t *o = json_load_file(to, 0, &e);
    t->planned = whole(o, "leaves_bytes") + whole(o, "arena_bytes") +
                 whole(o, "io_bytes");
    json_decref(o);
}

void demo_collect(Demo *d)
{
    Report *r = &d->report;
    for (int i = 0; i < d->kind->nmodel; i++) {
        Trained *t = &r->trained[r->ntrained++];
        t->name = d->kind->model[i].name;
        sizes_read(d, t);
        char *path = demo_path(d, "%s/metrics.jsonl", t->name);
        if (access(path, R_OK) == 0)
            report_metrics(r, t, path);
        r->train_seconds += t->seconds;
    }
}
