/* cmd_demo.c -- dpc demo: two models in miniature, trained and measured here.
 *
 * fashion, DALL-E 2: compile, judge, clip, prior, decoder, sample, score;
 * edit, Qwen-Image-Edit with adapters: compile, base, lora, score.  Each stage
 * is a command that a user could type; --verbose and report.json show them.
 * A stage needs only the files of those before it, so --from STAGE goes on
 * where something was changed or mended. */
#include "compiler/demo_own.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char default_data[] = "/usr/share/datasets/fashion-mnist";

static char *self_path(Arena *a)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        err_code(5, "/proc/self/exe", "cannot be read: %s", strerror(errno));
    return fmt(a, "%.*s", (int)n, path);
}

static const DemoKind *kind_find(const Options *o)
{
    const char *name = o->nfile ? o->file[0] : demo_kinds[FASHION].name;
    for (DemoId i = FASHION; i <= EDIT; i++)
        if (strcmp(demo_kinds[i].name, name) == 0)
            return &demo_kinds[i];
    usage("demo: no demo \"%s\"; there are fashion, edit", name);
}

static int stage_find(const DemoKind *k, const char *name)
{
    for (int i = 0; name && i < k->nstage; i++)
        if (strcmp(name, demo_stages[k->stage[i]]) == 0)
            return i;
    if (name)
        usage("--from %s: the demo \"%s\" has no such stage", name, k->name);
    return 0;
}

static void folder(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        err_code(5, path, "cannot be made: %s", strerror(errno));
}

Demo demo_open(const Options *o, const char *self)
{
    Demo d = { .o = o, .arena = o->arena, .self = self };
    d.kind = kind_find(o);
    if (!o->home)
        err_code(5, "demo", "cannot find models/; set DPC_HOME to the source "
                 "tree or to PREFIX/share/dpc");
    if (o->ranks > 64)
        usage("--ranks: %lld; at most 64", (long long)o->ranks);
    d.out = o->out ? o->out : d.kind->out;
    d.data = o->data ? o->data : default_data;
    d.ranks = o->ranks ? (int)o->ranks : 2;
    d.seed = o->seed ? o->seed : 1;
    d.from = stage_find(d.kind, o->from);
    d.report = (Report){ .arena = o->arena,
                         .demo = (DemoId)(d.kind - demo_kinds), .ranks = d.ranks, .seed = d.seed,
                         .quick = o->quick };
    photos_check(o->arena, d.data);
    folder(d.out);
    folder(demo_path(&d, "log"));
    folder(demo_path(&d, "draw"));
    return d;
}

static void stage_run(Demo *d, StageId s)
{
    switch (s) {
    case S_COMPILE: demo_compile(d); break;
    case S_SAMPLE:  demo_sample(d); break;
    case S_SCORE:   d->report.demo == EDIT ? demo_edit_score(d)
                                           : demo_score(d); break;
    default:        demo_train(d, s);
    }
}

static void farewell(const Demo *d, int missed)
{
    printf("\n  pictures  %s\n  numbers   %s\n", demo_path(d, "samples.png"),
           demo_path(d, "report.json"));
    if (missed && d->report.quick)
        printf("  gates are for the whole demo: run it without --quick\n");
    else if (missed)
        printf("  %d gate%s missed; the losses above show which model to "
               "train longer\n", missed, missed == 1 ? "" : "s");
    if (d->report.demo != FASHION)
        return;
    Line l = demo_sampler(d);
    line_add(&l, "--caption", "a purple ankle boot on a pink background",
             "--output", "pictures=boots.png", NULL);
    Process p = { .arg = l.arg };
    printf("  draw more %s\n", process_text(d->arena, &p));
}

/* Seconds since build.sh began to build us; 0 without it. */
static double built_in(void)
{
    const char *since = getenv("DPC_BEGIN");
    double s = since ? (double)time(NULL) - strtod(since, NULL) : 0;
    return s > 0 && s < 3600 ? s : 0;
}

int demo_all(Demo *d)
{
    d->report.build_seconds = built_in();
    double begin = seconds_now() - d->report.build_seconds;
    for (int i = d->from; i < d->kind->nstage; i++) {
        StageId s = d->kind->stage[i];
        double at = seconds_now(), cpu = seconds_cpu();
        if (!d->o->quiet)
            fprintf(stderr, "demo: %s\n", demo_stages[s]);
        stage_run(d, s);
        report_stage(&d->report, demo_stages[s], seconds_now() - at,
                     seconds_cpu() - cpu);
    }
    demo_collect(d);
    d->report.seconds = seconds_now() - begin;
    report_write(&d->report, demo_path(d, "report.json"));
    return report_missed(&d->report);
}

int cmd_demo(const Options *o)
{
    Demo d = demo_open(o, self_path(o->arena));
    int missed = demo_all(&d);
    report_print(&d.report, stdout);
    farewell(&d, missed);
    return missed && !o->quick ? 6 : 0;
}
