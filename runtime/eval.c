/* eval.c -- evaluation, and commands that run rows of entries. */
#include "runtime/app.h"
#include "runtime/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DpcData *eval_data(const DpcApp *a)
{
    return a->val ? a->val : a->data;
}

/* Batches asked for, or all whole batches of the data. */
static int64_t batches_of(const DpcApp *a, const DpcProgram *p)
{
    if (a->opt.batches >= 0)
        return a->opt.batches;
    if (!eval_data(a) || p->batch <= 0)
        return 1;
    int64_t n = dpc_data_count(eval_data(a)) / p->batch;
    return n > 0 ? n : 1;
}

static DpcStatus batch_add(DpcApp *a, DpcFeed *f, uint32_t program, int64_t i,
                           DpcValues *v, double *sum)
{
    double waited;
    a->busy = true;
    DpcStatus s = dpc_feed_next(f, &waited);
    if (!s)
        s = dpc_app_run(a, program, i);
    if (s)
        return s;
    dpc_values_read(v);
    for (int k = 0; k < v->n; k++)
        sum[k] += v->value[k];
    return DPC_OK;
}

static DpcFeedHow feed_how(const DpcApp *a)
{
    return (DpcFeedHow){
        .data = eval_data(a),
        .spec = a->val ? a->opt.val_data : a->opt.data,
        .given = a->given, .ngiven = a->ngiven};
}

/* The order is that of seed 0 from its start, so evaluations of a run, and
 * of different runs, see the same batches. */
DpcStatus dpc_app_eval(DpcApp *a, DpcValues *v)
{
    uint32_t program;
    double sum[DPC_NMETRIC] = {0};
    DpcFeed *f;
    DpcStatus s = dpc_app_entry(a, "eval", &program);
    if (s)
        return s;
    DpcFeedHow how = feed_how(a);
    if ((s = dpc_feed_open(a->rt, program, &how, &f)))
        return s;
    dpc_values_bind(a->rt, program, v);
    int64_t n = batches_of(a, &a->unit->program[program]);
    for (int64_t i = 0; !s && i < n; i++)
        s = batch_add(a, f, program, i, v, sum);
    for (int k = 0; k < v->n; k++)
        v->value[k] = n ? sum[k] / (double)n : 0;
    dpc_feed_close(f);
    return s;
}

static void values_json(const DpcValues *v, int64_t step)
{
    DpcJson j;
    dpc_json_init(&j, dpc_json_file, stdout, 0);
    dpc_json_open(&j, '{');
    dpc_json_key(&j, "step");
    dpc_json_int(&j, step);
    for (int i = 0; i < v->n; i++) {
        dpc_json_key(&j, v->name[i]);
        dpc_json_num(&j, v->value[i]);
    }
    dpc_json_close(&j, '}');
    dpc_json_newline(&j);
}

/* ---- rows ---- */

/* All ranks leave when one was asked to: what is not done is not written. */
static DpcStatus go_on(DpcApp *a)
{
    int32_t stop = dpc_watch_stop();
    DpcStatus s = dpc_rt_vote(a->rt, &stop);
    return s || stop <= 0 ? s
         : dpc_fail(DPC_ENV, "%s: error: asked to stop before it was done; "
                    "nothing was written", a->opt.program);
}

static DpcStatus row_run(DpcApp *a, const DpcRun *r, uint32_t *program)
{
    DpcFeed *f;
    int64_t times;
    double waited;
    DpcStatus s = dpc_app_entry(a, r->entry, program);
    if (!s)
        s = dpc_app_times(a, r, &times);
    if (s)
        return s;
    DpcFeedHow how = feed_how(a);
    if ((s = dpc_feed_open(a->rt, *program, &how, &f)))
        return s;
    a->busy = true;
    for (int64_t i = 0; !s && i < times; i++) {
        s = dpc_feed_next(f, &waited);
        if (!s)
            s = dpc_app_run(a, *program, i);
        if (!s)
            s = go_on(a);
    }
    dpc_feed_close(f);
    return s;
}

/* Splits "NAME=FILE" of --output; writes it when this program has NAME. */
static DpcStatus output_try(DpcApp *a, uint32_t program, const char *arg,
                            bool *done)
{
    char name[256];
    const char *path = strchr(arg, '=');
    if (!path || path - arg >= (long)sizeof name)
        return dpc_fail(DPC_USAGE, "%s: error: '--output %s': wanted "
                        "NAME=FILE", a->opt.program, arg);
    snprintf(name, sizeof name, "%.*s", (int)(path - arg), arg);
    if (!dpc_rt_port_buf(a->rt, program, name))
        return DPC_OK;
    *done = true;
    return dpc_output_write(a->rt, program, name, path + 1, a->low, a->high);
}

static DpcStatus outputs_write(DpcApp *a, uint32_t program,
                               const char *picture, bool *done)
{
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < a->opt.output.n; i++)
        s = output_try(a, program, a->opt.output.at[i], &done[i]);
    const char *name = dpc_output_picture(a->unit, program);
    if (!s && picture && name)
        s = dpc_output_write(a->rt, program, name, picture, a->low, a->high);
    return s;
}

static DpcStatus outputs_done(const DpcApp *a, const char *command,
                              const bool *done)
{
    for (int i = 0; i < a->opt.output.n; i++)
        if (!done[i])
            return dpc_fail(DPC_USER, "%s: error: '--output %s': '%s' has no "
                "such output", a->opt.program, a->opt.output.at[i], command);
    return DPC_OK;
}

static void scalars_print(DpcApp *a, uint32_t program)
{
    DpcValues v;
    dpc_values_bind(a->rt, program, &v);
    dpc_values_read(&v);
    if (!v.n || !dpc_app_first(a) || a->opt.quiet)
        return;
    if (a->opt.json)
        values_json(&v, a->step);
    else
        for (int i = 0; i < v.n; i++)
            printf("%s %.6g\n", v.name[i], v.value[i]);
}

DpcStatus dpc_app_rows(DpcApp *a, const char *command, const char *picture)
{
    bool done[DPC_NLIST] = {false};
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < a->unit->nrun; i++) {
        uint32_t program;
        if (strcmp(a->unit->run[i].command, command))
            continue;
        s = row_run(a, &a->unit->run[i], &program);
        if (!s)
            s = outputs_write(a, program, picture, done);
        if (!s && !picture)
            scalars_print(a, program);
    }
    return s || picture ? s : outputs_done(a, command, done);
}

/* ---- eval ---- */

DpcStatus dpc_app_outputs(DpcApp *a, uint32_t program)
{
    bool done[DPC_NLIST] = {false};
    DpcStatus s = outputs_write(a, program, NULL, done);
    return s ? s : outputs_done(a, a->opt.command, done);
}

/* Means over the batches; outputs are those of the last. */
static DpcStatus evaluate(DpcApp *a, DpcValues *v)
{
    uint32_t program;
    if (!a->opt.batches)
        return dpc_fail(DPC_USAGE, "%s: error: '--batches 0': a mean wants one "
                        "at least", a->opt.program);
    DpcStatus s = dpc_app_eval(a, v);
    if (!s)
        s = dpc_app_entry(a, "eval", &program);
    return s ? s : dpc_app_outputs(a, program);
}

DpcStatus dpc_app_eval_command(DpcApp *a)
{
    DpcValues v;
    DpcStatus s = dpc_app_state(a, false);
    if (!s)
        s = evaluate(a, &v);
    if (s || !dpc_app_first(a))
        return s;
    if (a->opt.json) {
        values_json(&v, a->step);
        return DPC_OK;
    }
    for (int i = 0; i < v.n; i++)
        printf("%s %.6g\n", v.name[i], v.value[i]);
    return DPC_OK;
}
