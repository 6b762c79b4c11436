/* profile.c -- the median seconds of each step, with what it is.
 *
 * Each step keeps its last RUNS durations, so that the first runs, which
 * fault pages in and fill caches, leave the window.  A median does not mind a
 * neighbour who takes the machine for a moment; on a busy machine the least,
 * and the seconds that all threads together computed, say more.  Bytes are
 * those of the operands, flops those of products and convolutions: with the
 * seconds they say how far a step is from what memory and cores can do. */
#include "runtime/profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 32, SHOWN = 30 };

typedef struct Line {
    uint32_t program, step, runs;         /* runs: all that were noted */
    float last[RUNS], busy[RUNS];         /* seconds; of all threads */
    double seconds, best, cpu;            /* median, least; median of busy */
} Line;

struct DpcProfile {
    const DpcUnit *unit;
    uint32_t nline;
    uint32_t *first;                      /* [nprogram] of its lines */
    Line *line;
};

DpcStatus dpc_profile_open(const DpcUnit *u, DpcProfile **out)
{
    uint32_t n = 0;
    DpcProfile *p = *out = calloc(1, sizeof *p);
    if (p)
        p->first = calloc(u->nprogram + 1, sizeof *p->first);
    for (uint32_t i = 0; p && p->first && i < u->nprogram; i++) {
        p->first[i] = n;
        n += u->program[i].nstep;
    }
    if (p && p->first)
        p->line = calloc(n + 1, sizeof *p->line);
    if (!p || !p->line)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory to profile %u "
                        "steps", u->model, n);
    p->unit = u;
    p->nline = n;
    for (uint32_t i = 0; i < u->nprogram; i++)
        for (uint32_t s = 0; s < u->program[i].nstep; s++)
            p->line[p->first[i] + s] = (Line){.program = i, .step = s};
    return DPC_OK;
}

void dpc_profile_note(DpcProfile *p, uint32_t program, uint32_t step,
                      DpcSpan span)
{
    Line *l = &p->line[p->first[program] + step];
    l->last[l->runs % RUNS] = (float)span.wall;
    l->busy[l->runs++ % RUNS] = (float)span.cpu;
}

static double clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

DpcSpan dpc_profile_now(void)
{
    return (DpcSpan){clock_read(CLOCK_MONOTONIC),
                     clock_read(CLOCK_PROCESS_CPUTIME_ID)};
}

DpcSpan dpc_profile_since(DpcSpan begin)
{
    DpcSpan now = dpc_profile_now();
    return (DpcSpan){now.wall - begin.wall, now.cpu - begin.cpu};
}

void dpc_profile_close(DpcProfile *p)
{
    if (!p)
        return;
    free(p->first);
    free(p->line);
    free(p);
}

/* ---- what a step is ---- */

static const char *const kinds[DPC_NSTEPKIND] = {
    [DPC_STEP_KERNEL] = "kernel", [DPC_STEP_DOT] = "dot",
    [DPC_STEP_CONV] = "conv", [DPC_STEP_PACK] = "pack",
    [DPC_STEP_UNPACK] = "unpack", [DPC_STEP_COLL] = "collective",
    [DPC_STEP_COPY] = "copy", [DPC_STEP_HOP] = "hop"};

static const DpcStep *step_of(const DpcProfile *p, const Line *l)
{
    return &p->unit->program[l->program].step[l->step];
}

/* Bytes of the operands; scratch has no type and does not count. */
static int64_t bytes(const DpcProfile *p, const Line *l)
{
    const DpcProgram *g = &p->unit->program[l->program];
    const DpcStep *t = step_of(p, l);
    int64_t n = 0;
    for (uint32_t i = 0; i < t->narg; i++) {
        const DpcBuf *b = &g->buf[g->arg[t->arg + i]];
        n += b->dtype ? b->size : 0;
    }
    return n;
}

static double flops(const DpcProfile *p, const Line *l)
{
    const DpcStep *t = step_of(p, l);
    if (t->kind == DPC_STEP_DOT) {
        const DpcDot *d = &p->unit->dot[t->call];
        double n = 2.0 * (double)d->m * (double)d->n * (double)d->k;
        for (int i = 0; i < d->nbatch; i++)
            n *= (double)d->batch[i];
        return n;
    }
    if (t->kind != DPC_STEP_CONV)
        return 0;
    const DpcConv *c = &p->unit->conv[t->call];
    return 2.0 * (double)(c->batch * c->o * c->oh * c->ow)
        * (double)(c->c / c->groups * c->kh * c->kw);
}

static int up(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts the n of x. */
static double median(float *x, uint32_t n)
{
    qsort(x, n, sizeof *x, up);
    return n ? (double)(x[n / 2] + x[(n - 1) / 2]) / 2 : 0;
}

static void medians(DpcProfile *p)
{
    for (uint32_t i = 0; i < p->nline; i++) {
        Line *l = &p->line[i];
        uint32_t n = l->runs < RUNS ? l->runs : RUNS;
        l->seconds = median(l->last, n);
        l->cpu = median(l->busy, n);
        l->best = n ? (double)l->last[0] : 0;
    }
}

/* ---- the table ---- */

static void row(const DpcProfile *p, const Line *l, FILE *f)
{
    const DpcProgram *g = &p->unit->program[l->program];
    const DpcStep *t = step_of(p, l);
    const DpcNode *n = &g->node[t->node];
    fprintf(f, "%s\t%u\t%u\t%s\t%s\t%s\t%s\t%s\t%.9f\t%.9f\t%.9f\t"
            "%lld\t%.0f\t%u\n",
            g->entry, l->step, t->turn, kinds[t->kind],
            t->kind == DPC_STEP_KERNEL ? p->unit->kernel[t->call].name : "",
            n->op, n->name, n->loc, l->seconds, l->best, l->cpu,
            (long long)bytes(p, l), flops(p, l), l->runs);
}

static void table(const DpcProfile *p, FILE *f)
{
    fputs("entry\tstep\tturn\tkind\tkernel\top\tname\tloc\tseconds\tbest\tcpu\t"
          "bytes\tflops\truns\n", f);
    for (uint32_t i = 0; i < p->nline; i++)
        if (p->line[i].runs)
            row(p, &p->line[i], f);
}

/* ---- for people ---- */

static void sums(const DpcProfile *p, uint32_t program, double *all, FILE *f)
{
    const DpcProgram *g = &p->unit->program[program];
    double sum[DPC_NSTEPKIND] = {0};
    uint32_t n[DPC_NSTEPKIND] = {0};
    *all = 0;
    for (uint32_t s = 0; s < g->nstep; s++) {
        const Line *l = &p->line[p->first[program] + s];
        sum[g->step[s].kind] += l->seconds;
        n[g->step[s].kind]++;
        *all += l->seconds;
    }
    fprintf(f, "\n%s: %.3f ms a run, medians of the last %d\n", g->entry,
            *all * 1e3, RUNS);
    for (int k = 0; k < DPC_NSTEPKIND; k++)
        if (n[k])
            fprintf(f, "  %-10s %5u steps %9.3f ms %5.1f%%\n", kinds[k],
                    n[k], sum[k] * 1e3, 100 * sum[k] / *all);
}

static int slowest(const void *a, const void *b)
{
    const Line *x = *(const Line *const *)a, *y = *(const Line *const *)b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds ? 1 : -1)
         : (x->step > y->step) - (x->step < y->step);
}

static void steps(const DpcProfile *p, const Line **l, uint32_t n, double all,
                  FILE *f)
{
    const DpcProgram *g = &p->unit->program[l[0]->program];
    fputs("\n  step         ms  share    GB/s  GFLOP/s  kind        op"
          "          name, line\n", f);
    qsort(l, n, sizeof *l, slowest);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const DpcStep *t = &g->step[l[i]->step];
        const DpcNode *d = &g->node[t->node];
        double s = l[i]->seconds > 0 ? l[i]->seconds : 1e-9;
        fprintf(f, "  %4u %10.4f %5.1f%% %7.1f %8.1f  %-10s  %-10s  %s, %s\n",
                l[i]->step, s * 1e3, 100 * s / all,
                (double)bytes(p, l[i]) / s * 1e-9, flops(p, l[i]) / s * 1e-9,
                kinds[t->kind], d->op, d->name, d->loc);
    }
    if (n > SHOWN)
        fprintf(f, "  and %u more; --profile FILE has them all\n", n - SHOWN);
}

static DpcStatus people(const DpcProfile *p, FILE *f)
{
    const Line **l = calloc(p->nline + 1, sizeof *l);
    if (!l)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for the profile",
                        p->unit->model);
    for (uint32_t i = 0; i < p->unit->nprogram; i++) {
        const DpcProgram *g = &p->unit->program[i];
        double all;
        if (!g->nstep || !p->line[p->first[i]].runs)
            continue;
        for (uint32_t s = 0; s < g->nstep; s++)
            l[s] = &p->line[p->first[i] + s];
        sums(p, i, &all, f);
        steps(p, l, g->nstep, all, f);
    }
    free(l);
    return DPC_OK;
}

DpcStatus dpc_profile_write(DpcProfile *p, const char *path)
{
    medians(p);
    if (!strcmp(path, "-"))
        return people(p, stdout);
    FILE *f = fopen(path, "w");
    if (!f)
        return dpc_fail(DPC_USER, "%s: error: the profile cannot be written: "
                        "%s", path, strerror(errno));
    table(p, f);
    bool bad = ferror(f);
    if (fclose(f) || bad)
        return dpc_fail(DPC_ENV, "%s: error: the profile was not written "
                        "whole: %s", path, strerror(errno));
    return DPC_OK;
}
