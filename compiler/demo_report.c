/* demo_report.c -- what the demo found: report.json, and a table.
 *
 * A gate that was not measured is missed: an unfinished run is no success. */
#include "compiler/demo.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

typedef enum Gate { OPEN, LEAST, MOST } Gate;

static const struct {
    DemoId demo;
    const char *key;
    Gate gate;
    double limit;
    const char *text;
} measures[NMEASURE] = {
#define MEASURE(demo, key, gate, limit, text) \
    { demo, #key, gate, limit, text },
#include "compiler/demo.def"
#undef MEASURE
};

enum { LAST = 10 };                       /* steps that the last loss is of */

/* ---- filling ---- */

void report_number(Report *r, MeasureId id, double value)
{
    r->m[id] = (Measured){ .value = value, .limit = measures[id].limit,
                           .known = true };
}

void report_limit(Report *r, MeasureId id, double limit)
{
    r->m[id].limit = limit;
}

void report_rate(Report *r, MeasureId id, Rate rate)
{
    report_number(r, id, rate_value(rate));
    r->m[id].at95 = rate_interval(rate);
    r->m[id].of = rate.of;
}

void report_mean(Report *r, MeasureId id, const Mean *m)
{
    report_number(r, id, mean_value(m));
    r->m[id].at95 = mean_interval(m);
    r->m[id].of = m->n;
}

void report_stage(Report *r, const char *name, double seconds, double cpu)
{
    if (r->nstage == NSTAGE)
        die("more than %d stages", NSTAGE);
    r->stage[r->nstage++] = (Stage){ name, seconds, cpu };
}

/* ---- metrics.jsonl ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct Steps {
    double *loss, *rate, seconds;
    int64_t allocated;
    uint32_t n, cap, ratecap;
} Steps;

static double number(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void line_read(Report *r, const char *line, const char *loc, Steps *s)
{
    json_error_t e;
    json_t *o = json_loads(line, 0, &e);
    if (!o)
        err(loc, "no JSON: %s", e.text);
    json_t *loss = json_object_get(o, "loss");
    const char *event = json_string_value(json_object_get(o, "event"));
    if (event && strcmp(event, "memory") == 0)
        s->allocated = (int64_t)(number(o, "leaves_bytes") +
                                 number(o, "arena_bytes") +
                                 number(o, "io_bytes"));
    if (!event && json_is_number(loss)) {
        GROW(r->arena, s->loss, s->n, s->cap);
        GROW(r->arena, s->rate, s->n, s->ratecap);
        s->rate[s->n] = number(o, "samples_per_s");
        s->seconds += number(o, "step_s");
        s->loss[s->n++] = json_number_value(loss);
    }
    json_decref(o);
}

void report_metrics(Report *r, Trained *t, const char *path)
{
    Steps s = { 0 };
    char *line = NULL;
    size_t size = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        err(path, "cannot be opened: %s", strerror(errno));
    for (int i = 1; getline(&line, &size, f) >= 0; i++)
        line_read(r, line, fmt(r->arena, "%s:%d", path, i), &s);
    free(line);
    fclose(f);
    if (!s.n)
        err(path, "holds no step");
    Mean last = { 0 };
    for (uint32_t i = s.n > LAST ? s.n - LAST : 0; i < s.n; i++)
        mean_add(&last, s.loss[i]);
    qsort(s.rate, s.n, sizeof *s.rate, by_size);
    t->steps = s.n;
    t->seconds = s.seconds;
    t->allocated = s.allocated;
    t->first = s.loss[0];
    t->last = mean_value(&last);
    t->rate = s.rate[s.n / 2];
}

/* ---- gates ---- */

static bool holds(const Report *r, int i)
{
    const Measured *m = &r->m[i];
    switch (measures[i].gate) {
    case OPEN:  return true;
    case LEAST: return m->known && m->value >= m->limit;
    case MOST:  return m->known && m->value <= m->limit;
    }
    return false;
}

int report_missed(const Report *r)
{
    int n = 0;
    for (int i = 0; i < NMEASURE; i++)
        n += measures[i].demo == r->demo && !holds(r, i);
    return n;
}

/* ---- out ---- */

static json_t *real(double x)
{
    json_t *v = json_real(x);
    return v ? v : json_null();           /* JSON has no NaN */
}

static void measures_json(const Report *r, json_t *top)
{
    json_t *intervals = json_object(), *gates = json_object();
    for (int i = 0; i < NMEASURE; i++) {
        const Measured *m = &r->m[i];
        const char *key = measures[i].key;
        if (measures[i].demo != r->demo)
            continue;
        json_object_set_new(top, key, m->known ? real(m->value)
                                               : json_null());
        if (m->of)
            json_object_set_new(intervals, key, json_pack("{s:f,s:f,s:I}",
                "low", m->at95.low, "high", m->at95.high, "of",
                (json_int_t)m->of));
        if (measures[i].gate != OPEN)
            json_object_set_new(gates, key, json_pack("{s:f,s:b}",
                measures[i].gate == LEAST ? "least" : "most", m->limit,
                "holds", holds(r, i)));
    }
    json_object_set_new(top, "intervals_95", intervals);
    json_object_set_new(top, "gates", gates);
}

static void models_json(const Report *r, json_t *top)
{
    json_t *rate = json_object(), *planned = json_object();
    json_t *allocated = json_object(), *losses = json_object();
    json_t *steps = json_object();
    for (int i = 0; i < r->ntrained; i++) {
        const Trained *t = &r->trained[i];
        json_object_set_new(planned, t->name, json_integer(t->planned));
        if (!t->steps)
            continue;
        json_object_set_new(allocated, t->name, json_integer(t->allocated));
        json_object_set_new(rate, t->name, real(t->rate));
        json_object_set_new(steps, t->name, json_integer(t->steps));
        json_object_set_new(losses, t->name, json_pack("{s:o,s:o}", "first",
                            real(t->first), "last", real(t->last)));
    }
    json_object_set_new(top, "images_per_second", rate);
    json_object_set_new(top, "steps", steps);
    json_object_set_new(top, "losses", losses);
    json_object_set_new(top, "planned_bytes", planned);
    json_object_set_new(top, "allocated_bytes", allocated);
}

static void run_json(const Report *r, json_t *top)
{
    json_t *stages = json_object(), *commands = json_array();
    json_t *cpu = json_object();
    for (int i = 0; i < r->nstage; i++) {
        json_object_set_new(stages, r->stage[i].name,
                            real(r->stage[i].seconds));
        json_object_set_new(cpu, r->stage[i].name, real(r->stage[i].cpu));
    }
    for (uint32_t i = 0; i < r->ncommand; i++)
        json_array_append_new(commands, json_string(r->command[i]));
    json_object_set_new(top, "build_seconds", real(r->build_seconds));
    json_object_set_new(top, "compile_seconds", real(r->compile_seconds));
    json_object_set_new(top, "train_seconds", real(r->train_seconds));
    json_object_set_new(top, "seconds", real(r->seconds));
    json_object_set_new(top, "stage_seconds", stages);
    json_object_set_new(top, "stage_cpu_seconds", cpu);
    json_object_set_new(top, "ranks", json_integer(r->ranks));
    json_object_set_new(top, "seed", json_integer(r->seed));
    json_object_set_new(top, "quick", json_boolean(r->quick));
    json_object_set_new(top, "commands", commands);
}

void report_write(const Report *r, const char *path)
{
    json_t *top = json_object();
    measures_json(r, top);
    models_json(r, top);
    run_json(r, top);
    int bad = json_dump_file(top, path, JSON_INDENT(2) | JSON_PRESERVE_ORDER |
                                        JSON_REAL_PRECISION(9));
    json_decref(top);
    if (bad)
        err_code(5, path, "cannot be written: %s", strerror(errno));
}

/* ---- table ---- */

static void measure_print(const Report *r, int i, FILE *f)
{
    static const char *const sign[] = { "  ", ">=", "<=" };
    const Measured *m = &r->m[i];
    Gate g = measures[i].gate;
    char at95[32] = "", limit[32] = "", value[16] = "-";
    if (m->known)
        snprintf(value, sizeof value, "%.3f", m->value);
    if (m->of)
        snprintf(at95, sizeof at95, "%.3f..%.3f", m->at95.low, m->at95.high);
    if (g != OPEN)
        snprintf(limit, sizeof limit, "%s %.2f", sign[g],
                 m->known ? m->limit : measures[i].limit);
    fprintf(f, "  %-20s %8s  %-14s %-9s %-5s %s\n", measures[i].key, value,
            at95, limit, g == OPEN ? "" : holds(r, i) ? "ok" : "MISS",
            measures[i].text);
}

static void trained_print(const Trained *t, FILE *f)
{
    if (t->steps)
        fprintf(f, "  %-9s %5lld steps  %6.1f s  %7.0f images/s  loss %.4g "
                "-> %.4g  %.0f MiB a rank\n", t->name, (long long)t->steps,
                t->seconds, t->rate, t->first, t->last,
                (double)t->planned / 1048576);
}

void report_print(const Report *r, FILE *f)
{
    double cpu = 0, rest = 0;
    for (int i = 0; i < r->nstage; i++) {
        bool last = strcmp(r->stage[i].name, "sample") == 0 ||
                    strcmp(r->stage[i].name, "score") == 0;
        cpu += r->stage[i].cpu;
        rest += last ? r->stage[i].seconds : 0;
    }
    fprintf(f, "\n");
    for (int i = 0; i < r->ntrained; i++)
        trained_print(&r->trained[i], f);
    fprintf(f, "\n  %-20s %8s  %-14s %-9s\n", "measure", "value",
            "95 %", "gate");
    for (int i = 0; i < NMEASURE; i++)
        if (measures[i].demo == r->demo)
            measure_print(r, i, f);
    fprintf(f, "\n  %.0f s: build %.0f s, compile %.0f s, train %.0f s, "
            "draw and score %.0f s; %.0f core seconds after the build\n",
            r->seconds, r->build_seconds, r->compile_seconds,
            r->train_seconds, rest, cpu);
}
