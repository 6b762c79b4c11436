/* metrics.c -- what a run says of itself: a live line, and a line of JSON a
 * step.
 *
 * On a terminal the line is written over itself at most five times a second;
 * in a log it comes every N steps.  Rates are means since the last line, so
 * a slow step shows.  All text is made in buffers on the stack and written
 * by write(2): no stdio buffer, no memory. */
#include "runtime/metrics.h"
#include "runtime/json.h"
#include "runtime/small.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE = 512, RECORD = 8192 };
static const double tty_s = 0.2;

int64_t dpc_memory_peak(void)
{
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) ? 0 : (int64_t)r.ru_maxrss * 1024;
}

/* ---- values ---- */

void dpc_values_bind(DpcRt *rt, uint32_t program, DpcValues *v)
{
    const DpcProgram *p = &rt->unit->program[program];
    v->n = 0;
    for (uint32_t i = 0; i < p->nport && v->n < DPC_NMETRIC; i++) {
        const DpcLeaf *l = &rt->unit->leaf[p->port[i].leaf];
        if (l->kind != DPC_OUTPUT || l->ndim || l->dtype != DPC_F32)
            continue;
        v->name[v->n] = l->name;
        v->at[v->n++] = dpc_rt_port_at(rt, program, i, 0);
    }
    memset(v->value, 0, sizeof v->value);
}

void dpc_values_read(DpcValues *v)
{
    for (int i = 0; i < v->n; i++)
        v->value[i] = isnan(*v->at[i]) ? NAN : *v->at[i];   /* no "-nan" */
}

int dpc_values_find(const DpcValues *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->name[i], name))
            return i;
    return -1;
}

/* ---- file ---- */

DpcStatus dpc_metrics_open(const char *path, bool quiet, int64_t every,
                           int64_t planned, int64_t before, DpcMetrics *m)
{
    *m = (DpcMetrics){.fd = -1, .quiet = quiet, .every = every,
                      .planned = planned, .before = before,
                      .tty = isatty(STDERR_FILENO)};
    m->shown = dpc_now();
    if (!path)
        return DPC_OK;
    snprintf(m->path, sizeof m->path, "%s", path);
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return m->fd >= 0 ? DPC_OK
        : dpc_fail(DPC_ENV, "%s: error: metrics: %s", path, strerror(errno));
}

void dpc_metrics_close(DpcMetrics *m)
{
    dpc_metrics_newline(m);
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

static DpcStatus put(int fd, const char *path, const char *text, size_t n)
{
    while (n) {
        ssize_t k = write(fd, text, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return dpc_fail(DPC_ENV, "%s: error: metrics: %s", path,
                            strerror(errno));
        text += k;
        n -= (size_t)k;
    }
    return DPC_OK;
}

/* Nine digits give a float back exactly; more would be noise. */
static void json_num(DpcJson *j, const char *key, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", v);
    dpc_json_key(j, key);
    dpc_json_num(j, strtod(text, NULL));
}

static void json_values(DpcJson *j, const DpcValues *v)
{
    for (int i = 0; i < v->n; i++)
        json_num(j, v->name[i], v->value[i]);
}

static DpcStatus record_end(DpcMetrics *m, DpcJson *j, const DpcJsonText *t)
{
    dpc_json_close(j, '}');
    dpc_json_newline(j);
    return j->status ? j->status : put(m->fd, m->path, t->at, t->n);
}

static DpcStatus record(DpcMetrics *m, const DpcReport *r)
{
    char text[RECORD];
    DpcJsonText t = {text, 0, sizeof text};
    DpcJson j;
    dpc_json_init(&j, dpc_json_text, &t, 0);
    dpc_json_open(&j, '{');
    dpc_json_count(&j, "step", r->step);
    json_values(&j, r->values);
    if (!isnan(r->lr) && dpc_values_find(r->values, "lr") < 0)
        json_num(&j, "lr", r->lr);
    json_num(&j, "step_s", r->seconds);
    json_num(&j, "comm_s", r->times.comm);
    json_num(&j, "wait_s", r->times.wait);
    json_num(&j, "data_wait_s", r->data_wait);
    if (r->samples)
        json_num(&j, "samples_per_s", (double)r->samples / r->seconds);
    dpc_json_count(&j, "skipped", r->skipped);
    dpc_json_count(&j, "heap_calls", dpc_small_missed());
    return record_end(m, &j, &t);
}

DpcStatus dpc_metrics_event(DpcMetrics *m, const char *event, int64_t step,
                            const DpcValues *v)
{
    char text[RECORD];
    DpcJsonText t = {text, 0, sizeof text};
    DpcJson j;
    if (m->fd < 0)
        return DPC_OK;
    dpc_json_init(&j, dpc_json_text, &t, 0);
    dpc_json_open(&j, '{');
    dpc_json_pair(&j, "event", event);
    dpc_json_count(&j, "step", step);
    if (v)
        json_values(&j, v);
    return record_end(m, &j, &t);
}

DpcStatus dpc_metrics_memory(DpcMetrics *m, const DpcRt *rt)
{
    static const char *const name[] = {"leaves_bytes", "arena_bytes",
                                       "io_bytes", "host_leaves_bytes",
                                       "host_arena_bytes"};
    char text[RECORD];
    DpcJsonText t = {text, 0, sizeof text};
    DpcJson j;
    if (m->fd < 0)
        return DPC_OK;
    dpc_json_init(&j, dpc_json_text, &t, 0);
    dpc_json_open(&j, '{');
    dpc_json_pair(&j, "event", "memory");
    for (int i = 0; i < DPC_NSPACE; i++)
        dpc_json_count(&j, name[i], rt->bytes[i]);
    dpc_json_count(&j, "planned_bytes", m->planned);
    dpc_json_count(&j, "small_bytes", dpc_small_bytes());
    return record_end(m, &j, &t);
}

/* ---- line ---- */

typedef struct Line { char at[LINE]; size_t n; } Line;

static void add(Line *l, const char *f, ...)
    __attribute__((format(printf, 2, 3)));
static void add(Line *l, const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    int n = vsnprintf(l->at + l->n, sizeof l->at - l->n, f, ap);
    va_end(ap);
    l->n += n > 0 ? (size_t)n : 0;
    if (l->n > sizeof l->at - 2)
        l->n = sizeof l->at - 2;
}

static void add_rate(Line *l, double per_s)
{
    if (per_s >= 1e4)
        add(l, "  %.1fk samples/s", per_s / 1e3);
    else
        add(l, "  %.4g samples/s", per_s);
}

static void add_eta(Line *l, double s)
{
    long t = s > 0 ? (long)(s + 0.5) : 0;
    if (t >= 86400)
        add(l, "  eta %ldd%02ldh", t / 86400, t / 3600 % 24);
    else if (t >= 3600)
        add(l, "  eta %ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        add(l, "  eta %ld:%02ld", t / 60, t % 60);
}

static void line_fill(const DpcMetrics *m, const DpcReport *r, Line *l)
{
    const double mib = 1048576, s = m->sum_s > 0 ? m->sum_s : 1e-9;
    add(l, "step %lld/%lld", (long long)r->step, (long long)r->steps);
    for (int i = 0; i < r->values->n; i++)
        if (strcmp(r->values->name[i], "finite"))
            add(l, "  %s %.4g", r->values->name[i], r->values->value[i]);
    if (!isnan(r->lr) && dpc_values_find(r->values, "lr") < 0)
        add(l, "  lr %.2g", r->lr);
    if (m->sum_samples)
        add_rate(l, (double)m->sum_samples / s);
    add(l, "  comm %.0f%% wait %.0f%%", 100 * m->sum.comm / s,
        100 * (m->sum.wait + m->sum_data) / s);
    add(l, "  mem %.0f/%.0f MiB", (double)(dpc_memory_peak() - m->before) / mib,
        (double)m->planned / mib);
    if (r->skipped)
        add(l, "  skipped %lld", (long long)r->skipped);
    add_eta(l, (double)(r->steps - r->step) * s / (double)m->sum_steps);
}

static DpcStatus line_show(DpcMetrics *m, const DpcReport *r)
{
    Line l = {.n = 0};
    if (m->tty)
        add(&l, "\r");
    line_fill(m, r, &l);
    add(&l, m->tty ? "\033[K" : "\n");
    m->open_line = m->tty;
    m->shown = dpc_now();
    m->sum = (DpcTimes){0};
    m->sum_s = m->sum_data = 0;
    m->sum_samples = m->sum_steps = 0;
    /* a closed terminal is no error */
    put(STDERR_FILENO, "stderr", l.at, l.n);
    return DPC_OK;
}

void dpc_metrics_newline(DpcMetrics *m)
{
    if (m->open_line)
        put(STDERR_FILENO, "stderr", "\n", 1);
    m->open_line = false;
}

DpcStatus dpc_metrics_step(DpcMetrics *m, const DpcReport *r)
{
    m->sum.run += r->times.run;
    m->sum.comm += r->times.comm;
    m->sum.wait += r->times.wait;
    m->sum_data += r->data_wait;
    m->sum_s += r->seconds;
    m->sum_samples += r->samples;
    m->sum_steps++;
    if (m->fd >= 0) {
        DpcStatus s = record(m, r);
        if (s)
            return s;
    }
    bool due = m->tty ? dpc_now() - m->shown >= tty_s
                      : m->every > 0 && r->step % m->every == 0;
    if (m->quiet || (!due && r->step != r->steps))
        return DPC_OK;
    return line_show(m, r);
}
