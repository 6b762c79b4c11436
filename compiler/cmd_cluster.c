/* cmd_cluster.c -- dpc cluster: those there are, what one says, and the one
 * that dpc runs on, measured. */
#include "compiler/options.h"
#include <errno.h>

static void rates_print(const Rates *r, const char *indent, FILE *f)
{
    const struct { const char *name; double x; } word[] = {
        { "f32", r->flops[F32] }, { "bf16", r->flops[BF16] },
        { "conv_f32", r->conv[F32] }, { "conv_bf16", r->conv[BF16] },
        { "work", r->work }, { "bandwidth", r->bandwidth },
        { "copy", r->copy }, { "launch", r->launch },
        { "step", r->step }, { "wake", r->wake } };
    fprintf(f, "%s{ ", indent);
    if (r->threads)
        fprintf(f, "threads = %d, ", r->threads);
    for (int i = 0; i < COUNT(word); i++)
        if (word[i].x > 0)
            fprintf(f, "%s = %.10g, ", word[i].name, word[i].x);
    fprintf(f, "},\n");
}

void cluster_print(const Cluster *c, FILE *f)
{
    fprintf(f, "return {\n    name = \"%s\",\n    target = \"%s\",\n"
            "    march = \"%s\",\n    cores = %d,\n    memory = %lld,\n",
            c->name, c->target, c->march, c->cores, (long long)c->memory);
    if (c->peak[F32] > 0 || c->peak[BF16] > 0)
        fprintf(f, "    peak = { f32 = %.10g, bf16 = %.10g },\n", c->peak[F32],
                c->peak[BF16]);
    if (c->nrates)
        fprintf(f, "    rates = {\n");
    for (int i = 0; i < c->nrates; i++)
        rates_print(&c->measured[i], "        ", f);
    fprintf(f, "%s    levels = {\n", c->nrates ? "    },\n" : "");
    for (int i = 0; i < c->nlevel; i++) {
        const Level *v = &c->level[i];
        fprintf(f, "        { name = \"%s\", ", v->name);
        if (v->fanout)
            fprintf(f, "fanout = %d, ", v->fanout);
        fprintf(f, "bandwidth = %.10g, latency = %.10g },\n", v->bandwidth,
                v->latency);
    }
    fprintf(f, "    },\n}\n");
}

static int cluster_list(const Options *o)
{
    int n;
    const char **name = cluster_names(o->home, o->arena, &n);
    for (int i = 0; i < n; i++) {
        const Cluster *c = cluster_read(o->home, name[i], o->arena);
        printf("%-10s %-5s %8.1f GiB", name[i], c->target,
               (double)c->memory / (1 << 30));
        for (int l = 0; l < c->nlevel; l++)
            printf("  %s %s%.3g GB/s", c->level[l].name, c->level[l].fanout
                   ? fmt(o->arena, "x%d ", c->level[l].fanout) : "",
                   1e-9 * c->level[l].bandwidth);
        printf("\n");
    }
    return 0;
}

static int cluster_show(const Options *o)
{
    if (o->nfile < 2)
        usage("cluster show: NAME or FILE is wanted");
    cluster_print(cluster_read(o->home, o->file[1], o->arena), stdout);
    return 0;
}

static int cluster_measure(const Options *o)
{
    const Cluster *c = cluster_probe(o);
    FILE *f = o->output ? fopen(o->output, "w") : stdout;
    if (!f)
        err_code(5, o->output, "cannot be written: %s", strerror(errno));
    fprintf(f, "-- Measured by `dpc cluster probe`; docs/plans.md says what the "
            "words mean.\n");
    cluster_print(c, f);
    if (o->output && (ferror(f) | fclose(f)))
        err_code(5, o->output, "cannot be written: %s", strerror(errno));
    return 0;
}

int cmd_cluster(const Options *o)
{
    const char *what = o->file[0];
    if (strcmp(what, "show") != 0 && o->nfile > 1)
        usage("cluster %s: \"%s\" is one argument too many", what, o->file[1]);
    if (strcmp(what, "list") == 0)
        return cluster_list(o);
    if (strcmp(what, "show") == 0)
        return cluster_show(o);
    if (strcmp(what, "probe") == 0)
        return cluster_measure(o);
    usage("cluster: \"%s\" is not one of list|show|probe", what);
}
