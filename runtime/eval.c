/* eval.c -- evaluation, and commands that run rows of entries. */
#include "runtime/json.h"
#include "runtime/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DpcData *eval_data(const DpcApp *a)
{
    return a->val ? a->val : a->data;
}

static DpcFeedHow feed_how(const DpcApp *a)
{
    return (DpcFeedHow){
        .data = eval_data(a),
        .spec = a->val ? a->opt.val_data : a->opt.data,
        .given = a->given, .ngiven = a->ngiven};
}

/* Adds what a batch gives, as often as it has samples. */
static DpcStatus batch_add(DpcApp *a, DpcWay *w, int64_t i, DpcMeans *m)
{
    double waited;
    int64_t batch = a->unit->program[w->program].batch;
    a->busy = true;
    DpcStatus s = dpc_feed_next(w->feed, &waited);
    if (!s)
        s = dpc_app_run(a, w->program, i);
    if (s)
        return s;
    dpc_values_read(&w->values);
    for (int k = 0; k < w->values.n; k++) {
        int to = dpc_values_find(&m->values, w->values.name[k]);
        if (to >= 0)
            m->values.value[to] += w->values.value[k] *
                                   (double)(batch > 0 ? batch : 1);
    }
    m->samples += batch > 0 ? batch : 1;
    return DPC_OK;
}

static DpcStatus way_add(DpcApp *a, DpcWay *w, DpcMeans *m)
{
    DpcStatus s = DPC_OK;
    int64_t batch = a->unit->program[w->program].batch;
    for (int64_t i = 0; !s && i < w->batches; i++)
        s = batch_add(a, w, i, m);
    if (w->data && batch > 0 && a->opt.batches < 0)
        m->left += dpc_data_count(w->data) % batch;
    m->program = w->program;
    return s;
}

/* The order is that of seed 0 from its start, so evaluations of a run, and
 * of different runs, see the same batches. */
DpcStatus dpc_ways_eval(DpcWays *w, DpcMeans *m)
{
    DpcStatus s = DPC_OK;
    *m = (DpcMeans){.values = w->way[0].values};
    for (int k = 0; k < m->values.n; k++)
        m->values.value[k] = 0;
    for (int i = 0; !s && i < w->n; i++)
        s = way_add(w->app, &w->way[i], m);
    for (int k = 0; m->samples && k < m->values.n; k++)
        m->values.value[k] /= (double)m->samples;
    return s;
}

/* `left`: samples that fill no batch; -1: of no data. */
static void values_json(const DpcValues *v, int64_t step, int64_t left)
{
    DpcJson j;
    dpc_json_init(&j, dpc_json_file, stdout, 0);
    dpc_json_open(&j, '{');
    dpc_json_count(&j, "step", step);
    for (int i = 0; i < v->n; i++) {
        dpc_json_key(&j, v->name[i]);
        dpc_json_num(&j, v->value[i]);
    }
    if (left >= 0)
        dpc_json_count(&j, "samples_left_out", left);
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
        values_json(&v, a->step, -1);
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
static DpcStatus evaluate(DpcApp *a, DpcMeans *m)
{
    if (!a->opt.batches)
        return dpc_fail(DPC_USAGE, "%s: error: '--batches 0': a mean wants one "
                        "at least", a->opt.program);
    DpcWays w;
    DpcStatus s = dpc_ways_open(a, dpc_app_row(a, "eval"), DPC_TO_EVAL, &w);
    if (!s)
        s = dpc_ways_eval(&w, m);
    dpc_ways_close(&w);
    if (!s && m->left)
        dpc_app_note(a, "note: %lld of %lld samples left out: fewer than a "
                     "batch", (long long)m->left,
                     (long long)(m->left + m->samples));
    return s ? s : dpc_app_outputs(a, m->program);
}

DpcStatus dpc_app_eval_command(DpcApp *a)
{
    DpcMeans m;
    DpcStatus s = dpc_app_state(a, false);
    if (!s)
        s = evaluate(a, &m);
    if (s || !dpc_app_first(a))
        return s;
    if (a->opt.json) {
        values_json(&m.values, a->step, m.left);
        return DPC_OK;
    }
    for (int i = 0; i < m.values.n; i++)
        printf("%s %.6g\n", m.values.name[i], m.values.value[i]);
    return DPC_OK;
}
