/* train.c -- the loop of training.
 *
 * A step is: inputs, scalars, run, look at the outputs.  Whether to stop is
 * agreed by a vote of all ranks at each boundary, because a signal comes to
 * them at different times.  Metrics are outputs of the whole mesh, so all
 * ranks see the same numbers and decide alike without talking. */
#include "runtime/small.h"
#include "runtime/ways.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SKIPS_IN_A_ROW = 10 };

typedef struct Train {
    DpcApp *app;
    DpcWays ways, eval;                   /* eval: empty without --eval-every */
    DpcWay *now;                          /* of the step under way */
    int32_t lr;                           /* leaf; -1: none */
    int64_t skipped, in_a_row;
    bool skip;                            /* policy */
    bool changed;                         /* a step may have changed params */
    double best;
    const char *best_name;
    bool best_is_max;
    int64_t saved;                        /* step of the last checkpoint */
    bool stop;
} Train;

/* ---- not a number ---- */

/* The model itself says that it is not, and so has changed no param. */
static bool step_left_out(const Train *t)
{
    const DpcWay *w = t->now;
    return w->finite >= 0 && w->values.value[w->finite] == 0;
}

static bool step_is_finite(const Train *t)
{
    const DpcWay *w = t->now;
    return !step_left_out(t) &&
           (w->loss < 0 || isfinite(w->values.value[w->loss]));
}

/* DPC_NUMERICS: a param holds what no step of this run can have made, so that
 * no rate is to blame.  Only looked for when numbers are wrong already. */
static DpcStatus begun_sound(const Train *t)
{
    const DpcApp *a = t->app;
    int32_t leaf = dpc_rt_spoilt(a->rt, t->changed);
    DpcStatus s = dpc_rt_vote(a->rt, &leaf);
    if (s || leaf < 0)
        return s;
    const DpcLeaf *l = &a->unit->leaf[leaf];
    return dpc_fail(DPC_NUMERICS, "%s: error: '%s' (%s) was not finite before "
        "the first step: %s a NaN, an infinity or a number beyond %s there; "
        "nothing was saved", a->unit->model, l->name, l->loc,
        a->resumed || a->opt.init_from.n ? "the weights as loaded hold"
        : "it begins with", dpc_dtype_name(l->dtype));
}

/* Finds the op and says so; nothing is saved. */
static DpcStatus stop_not_finite(Train *t)
{
    char text[768];
    DpcStatus s = begun_sound(t);
    if (!s)
        s = dpc_rt_hunt(t->app->rt, t->now->program,
                        (uint64_t)t->app->step, text, sizeof text);
    if (s)
        return s;
    if (text[0])
        fprintf(stderr, "\nnote: %s\n", text);
    return dpc_fail(DPC_NUMERICS, "%s: error: step %lld is not finite; "
        "nothing was saved; lower the rate, or go on from a checkpoint with "
        "--nan skip", t->app->unit->model, (long long)t->app->step);
}

static DpcStatus look(Train *t)
{
    dpc_values_read(&t->now->values);
    t->changed |= !step_left_out(t);
    if (step_is_finite(t)) {
        t->in_a_row = 0;
        return DPC_OK;
    }
    t->skipped++;
    if (!t->skip || ++t->in_a_row >= SKIPS_IN_A_ROW)
        return stop_not_finite(t);
    return DPC_OK;
}

/* ---- one step ---- */

static DpcStatus report(Train *t, double begin, double data_wait)
{
    DpcApp *a = t->app;
    if (!dpc_app_first(a))
        return DPC_OK;
    DpcReport r = {
        .step = a->step, .steps = a->opt.steps, .values = &t->now->values,
        .lr = t->lr < 0 ? NAN : a->opt.scalar[t->lr],
        .seconds = dpc_now() - begin, .data_wait = data_wait,
        .times = a->rt->times, .skipped = t->skipped,
        .samples = a->unit->program[t->now->program].batch};
    return dpc_metrics_step(&a->metrics, &r);
}

/* The state that another run had here, in place of this run's own; they begin
 * alike. */
static DpcStatus teach(DpcApp *a)
{
    char path[DPC_PATH];
    DpcCkptInfo info = {0};
    if (!a->opt.teacher || !a->step)
        return DPC_OK;
    DpcStatus s = dpc_path(path, "%s/ckpt/step-%08lld", a->opt.teacher,
                           (long long)a->step);
    return s ? s : dpc_ckpt_load(a->ckpt, a->rt->space, &info,
                                 path);
}

static DpcStatus step(Train *t)
{
    DpcApp *a = t->app;
    double begin = dpc_now(), data_wait = 0;
    a->rt->times = (DpcTimes){0};
    t->now = dpc_ways_at(&t->ways, a->step);
    DpcStatus s = teach(a);
    if (!s)
        s = dpc_feed_next(t->now->feed, &data_wait);
    if (!s)
        s = dpc_app_run(a, t->now->program, a->step);
    if (!s)
        s = look(t);
    if (s)
        return s;
    a->step++;
    a->cursor += a->unit->program[t->now->program].batch;
    return report(t, begin, data_wait);
}

/* ---- between steps ---- */

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Params that are spoilt must not take the place of sound ones: a step may be
 * finite and still leave them infinite, as with far too large a rate. */
static DpcStatus sound(const Train *t)
{
    DpcApp *a = t->app;
    int32_t leaf = dpc_rt_spoilt(a->rt, false);
    DpcStatus s = dpc_rt_vote(a->rt, &leaf);
    if (s || (leaf < 0 && t->in_a_row <= 1))
        return s;
    if ((s = begun_sound(t)))
        return s;
    if (t->in_a_row > 1)
        return dpc_fail(DPC_NUMERICS, "%s: error: the last %d steps were not "
            "finite; step %lld was not saved; lower the rate, and go on from "
            "an earlier checkpoint with --resume step-N", a->unit->model,
            (int)t->in_a_row, (long long)a->step);
    return dpc_fail(DPC_NUMERICS, "%s: error: '%s' (%s) is not finite after "
        "step %lld; it was not saved; lower the rate, and go on from an "
        "earlier checkpoint with --resume step-N", a->unit->model,
        a->unit->leaf[leaf].name, a->unit->leaf[leaf].loc,
        (long long)a->step);
}

static DpcStatus save(Train *t, bool best)
{
    DpcApp *a = t->app;
    if (!a->folder[0] || t->saved == a->step)
        return DPC_OK;
    DpcStatus s = sound(t);
    if (!s)
        s = dpc_app_save(a, best);
    if (!s)
        t->saved = a->step;
    return s;
}

static void evaluation_tell(Train *t, const DpcValues *v)
{
    char text[512];
    size_t n = 0;
    for (int i = 0; i < v->n && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  %s %.4g",
                              v->name[i], v->value[i]);
    dpc_app_note(t->app, "eval  step %lld%s", (long long)t->app->step,
                 n ? text : "");
}

static DpcStatus evaluate(Train *t)
{
    DpcMeans m;
    DpcApp *a = t->app;
    const DpcValues *v = &m.values;
    DpcStatus s = dpc_ways_eval(&t->eval, &m);
    if (s)
        return s;
    evaluation_tell(t, v);
    if (dpc_app_first(a))
        s = dpc_metrics_event(&a->metrics, "eval", a->step, v);
    int i = dpc_values_find(v, t->best_name);
    if (s || i < 0 || !isfinite(v->value[i]))
        return s;
    double sign = t->best_is_max ? -1 : 1;
    if (sign * v->value[i] >= t->best)
        return DPC_OK;
    t->best = sign * v->value[i];
    return save(t, true);
}

static DpcStatus picture_make(DpcApp *a)
{
    char path[DPC_PATH];
    DpcStatus s = dpc_path(path, "%s/samples", a->opt.out);
    if (s)
        return s;
    if (dpc_app_first(a))
        mkdir(path, 0777);
    s = dpc_path(path, "%s/samples/step-%08lld.png", a->opt.out,
                 (long long)a->step);
    return s ? s : dpc_app_rows(a, "sample", path);
}

/* Pictures without captions are no reason to end a training. */
static DpcStatus picture(DpcApp *a)
{
    DpcStatus s = a->opt.out ? picture_make(a) : DPC_OK;
    if (s != DPC_USER)
        return s;
    dpc_app_note(a, "%s\nnote: no more pictures", dpc_last_error());
    a->opt.sample_every = 0;
    return DPC_OK;
}

static DpcStatus between(Train *t)
{
    DpcApp *a = t->app;
    int32_t stop = dpc_watch_stop();
    DpcStatus s = dpc_rt_vote(a->rt, &stop);
    t->stop = stop;
    if (!s && due(a->opt.eval_every, a->step))
        s = evaluate(t);
    if (!s && due(a->opt.sample_every, a->step))
        s = picture(a);
    bool doubtful = t->in_a_row > 1;      /* the next one may be sound */
    if (!s && (t->stop || (!doubtful && due(a->opt.save_every, a->step))))
        s = save(t, false);
    return s;
}

/* ---- the run ---- */

static DpcStatus policy(Train *t)
{
    const DpcOptions *o = &t->app->opt;
    t->skip = t->ways.way[0].finite >= 0;
    if (o->nan && strcmp(o->nan, "skip") && strcmp(o->nan, "stop"))
        return dpc_fail(DPC_USAGE, "%s: error: '--nan %s': wanted skip or "
                        "stop", o->program, o->nan);
    if (o->nan)
        t->skip = !strcmp(o->nan, "skip");
    return DPC_OK;
}

static void best_of(Train *t, char name[64])
{
    const char *text = t->app->opt.best_metric;
    snprintf(name, 64, "%s", text ? text : "loss");
    char *colon = strchr(name, ':');
    t->best_is_max = colon && !strcmp(colon, ":max");
    if (colon)
        *colon = 0;
    t->best_name = name;
    t->best = INFINITY;
}

static DpcStatus train_open(Train *t, DpcApp *a)
{
    uint32_t program;
    *t = (Train){.app = a, .saved = -1};
    DpcStatus s = dpc_app_entry(a, dpc_app_row(a, "train"), &program);
    if (!s)
        s = dpc_app_state(a, true);
    if (s)
        return s;
    if (a->opt.steps < 0)
        return dpc_fail(DPC_USAGE, "%s: error: how many steps? give --steps",
                        a->opt.program);
    if ((s = dpc_ways_open(a, dpc_app_row(a, "train"), DPC_TO_TRAIN, &t->ways)))
        return s;
    if (a->opt.eval_every > 0)
        s = dpc_ways_open(a, dpc_app_row(a, "eval"), DPC_TO_EVAL, &t->eval);
    if (s)
        return s;
    a->metrics.planned += dpc_ways_bytes(&t->ways) + dpc_ways_bytes(&t->eval) +
                          a->rt->stage_bytes + dpc_small_bytes();
    if ((s = dpc_metrics_memory(&a->metrics, a->rt)))
        return s;
    t->lr = dpc_rt_find(a->unit, "lr");
    if (a->resumed)
        t->saved = a->step;
    return policy(t);
}

static void farewell(Train *t)
{
    DpcApp *a = t->app;
    if (t->stop && a->folder[0] && a->step < a->opt.steps)
        dpc_app_note(a, "stopped at step %lld, saved in %s; go on with "
                     "--resume auto", (long long)a->step, a->folder);
    else if (t->stop && a->step < a->opt.steps)
        dpc_app_note(a, "stopped at step %lld; nothing was saved, for want "
                     "of --out", (long long)a->step);
}

DpcStatus dpc_app_train(DpcApp *a)
{
    Train t;
    char best[64];
    DpcStatus s = train_open(&t, a);
    best_of(&t, best);
    if (!s && a->step >= a->opt.steps)
        dpc_app_note(a, "step %lld of %lld: nothing to do",
                     (long long)a->step, (long long)a->opt.steps);
    a->busy = true;
    while (!s && !t.stop && a->step < a->opt.steps) {
        s = step(&t);
        if (!s)
            s = between(&t);
    }
    if (!s)
        s = save(&t, false);
    if (!s && t.now && a->opt.output.n)
        s = dpc_app_outputs(a, t.now->program);
    if (!s)
        farewell(&t);
    dpc_ways_close(&t.ways);
    dpc_ways_close(&t.eval);
    return s;
}
