/* app.c -- a running binary: what its commands share.
 *
 * Until the ranks have agreed that all of them are ready, a failure is told
 * once and all leave in peace.  Afterwards a rank that fails says why and
 * takes the others along: they could only wait for it. */
#include "runtime/app.h"
#include "runtime/fold.h"
#include "runtime/launch.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double mib = 1048576;

bool dpc_app_first(const DpcApp *a)
{
    return a->comm->rank == 0;
}

void dpc_app_note(DpcApp *a, const char *f, ...)
{
    va_list ap;
    if (!dpc_app_first(a) || a->opt.quiet)
        return;
    dpc_metrics_newline(&a->metrics);
    va_start(ap, f);
    vfprintf(stderr, f, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* ---- the world ---- */

static int64_t ranks_of(const DpcUnit *u)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].kind != DPC_TIME)
            n *= u->axis[i].size;
    return n;
}

static DpcStatus world_open(DpcApp *a)
{
    if (ranks_of(a->unit) == 1 && dpc_launch_detect().size == 1)
        return dpc_single_open(&a->comm);
    return dpc_mpi_open(&a->comm);
}

static void threads_set(DpcApp *a)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int n = text ? atoi(text) : 0;
    a->rt->threads = a->unit->threads > 0 ? a->unit->threads : n > 0 ? n
        : dpc_launch_threads(dpc_launch_cores(), a->comm->local_size);
}

static void world_tell(DpcApp *a)
{
    char text[64];
    int32_t size = a->comm->size, local = a->comm->local_size;
    int32_t roles = dpc_roles(a->unit);
    dpc_launch_text(text, sizeof text, size, (size + local - 1) / local);
    dpc_app_note(a, "%s, %d thread%s each", text, a->rt->threads,
                 a->rt->threads == 1 ? "" : "s");
    for (int32_t i = 0; i < roles; i++) {
        int64_t b[DPC_NSPACE];
        char of[32] = "a rank";
        dpc_rt_planned(a->rt->whole, i, b);
        if (roles > 1)
            snprintf(of, sizeof of, "a rank of role %d", i);
        double host = (double)(b[DPC_HOST_LEAVES] + b[DPC_HOST_ARENA]);
        dpc_app_note(a, "memory  params and states %.1f + arena %.1f + io "
            "%.1f = %.1f MiB %s, as planned", (double)b[DPC_LEAVES] / mib,
            (double)b[DPC_ARENA] / mib, (double)b[DPC_IO] / mib,
            (double)(b[DPC_LEAVES] + b[DPC_ARENA] + b[DPC_IO]) / mib, of);
        if (host > 0)
            dpc_app_note(a, "host    params and states %.1f + arena %.1f = "
                "%.1f MiB %s, as planned", (double)b[DPC_HOST_LEAVES] / mib,
                (double)b[DPC_HOST_ARENA] / mib, host / mib, of);
    }
}

/* Every rank's status becomes the worst of all; the text of one that did not
 * fail itself is empty. */
static DpcStatus agree(DpcApp *a, DpcStatus mine)
{
    int32_t worst = (int32_t)mine;
    DpcStatus s = dpc_rt_vote(a->rt, &worst);
    if (mine || s)
        return mine ? mine : s;
    return worst ? dpc_fail((DpcStatus)worst, "%s", "") : DPC_OK;
}

/* ---- what the command needs ---- */

static DpcStatus data_open(DpcApp *a)
{
    const DpcOptions *o = &a->opt;
    DpcStatus s = dpc_caption_open(a->unit, o->tokenizer, &a->caption);
    if (!s && o->data)
        s = dpc_app_data(a, o->data, &a->data);
    if (!s && o->val_data)
        s = dpc_app_data(a, o->val_data, &a->val);
    if (!s && o->more_data.n > DPC_NMORE)
        return dpc_fail(DPC_USAGE, "%s: error: more than %d --more-data",
                        o->program, DPC_NMORE);
    for (int i = 0; !s && i < o->more_data.n; i++)
        s = dpc_app_data(a, o->more_data.at[i], &a->more[i]);
    return s;
}

static DpcStatus input_add(DpcApp *a, const char *arg)
{
    const char *path = strchr(arg, '=');
    for (uint32_t i = 0; path && i < a->unit->nleaf; i++) {
        const DpcLeaf *l = &a->unit->leaf[i];
        size_t n = (size_t)(path - arg);
        if (l->kind == DPC_INPUT && strlen(l->name) == n &&
            !memcmp(l->name, arg, n))
            return dpc_given_read(l->name, path + 1, &a->given[a->ngiven++]);
    }
    return dpc_fail(DPC_USER, "%s: error: '--input %s': wanted NAME=FILE.npy "
        "with an input of the model; see %s info", a->opt.program, arg,
        a->opt.program);
}

static DpcStatus given_open(DpcApp *a)
{
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < a->opt.input.n; i++)
        s = input_add(a, a->opt.input.at[i]);
    if (!s && a->opt.caption.n)
        s = dpc_caption_given(a->caption, a->unit, &a->opt.caption,
                              &a->given[a->ngiven], &a->ngiven);
    return s;
}

/* meta {"range": [low, high]} of pictures; 0 to 1 without. */
static void range_read(DpcApp *a)
{
    json_t *meta = a->unit->meta ? json_loads(a->unit->meta, 0, NULL) : NULL;
    json_t *r = json_object_get(meta, "range");
    a->low = 0;
    a->high = 1;
    if (json_array_size(r) == 2) {
        a->low = json_number_value(json_array_get(r, 0));
        a->high = json_number_value(json_array_get(r, 1));
    }
    json_decref(meta);
}

static DpcStatus metrics_open(DpcApp *a)
{
    char path[DPC_PATH];
    int64_t planned = 0;
    const DpcOptions *o = &a->opt;
    bool train = !strcmp(o->command, "train");
    if (!dpc_app_first(a))
        return DPC_OK;
    DpcStatus s = dpc_path(path, "%s/metrics.jsonl", o->out ? o->out : ".");
    for (int i = 0; i < DPC_NSPACE; i++)
        planned += a->rt->bytes[i];
    if (s)
        return s;
    const char *file = o->metrics ? o->metrics : o->out ? path : NULL;
    return dpc_metrics_open(train ? file : NULL, o->quiet,
                            o->log_every < 0 ? 10 : o->log_every, planned,
                            a->memory_before, &a->metrics);
}

/* ---- checkpoints ---- */

typedef struct Gather { const void *mine; size_t n; void *all; } Gather;

static DpcStatus gather_call(DpcComm *c, void *arg)
{
    Gather *g = arg;
    DpcWire w = {.dtype = DPC_U8, .count = (int64_t)g->n, .in = g->mine,
                 .out = g->all};
    return c->ops->all_gather(c, &w);
}

static DpcStatus gather(void *arg, const void *mine, size_t n, void *all)
{
    Gather g = {mine, n, all};
    return dpc_rt_call(arg, gather_call, &g);
}

static DpcStatus ckpt_open(DpcApp *a)
{
    DpcWorld world = {a->comm->rank, a->comm->size, a->rt->coord,
                      a->comm->size > 1 ? gather : NULL, a->rt};
    DpcCkptHow how = {0};
    return dpc_ckpt_open(a->unit, &world, &how, &a->ckpt);
}

static uint64_t mixed(uint64_t h, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)from)[i]) * 0x100000001b3;
    return h;
}

static uint64_t mixed_text(uint64_t h, const char *s)
{
    return mixed(h, s ? s : "", s ? strlen(s) + 1 : 1);
}

/* Tells data sets apart by their fields and size. */
static uint64_t fingerprint(const DpcData *d)
{
    uint64_t h = 0xcbf29ce484222325;
    if (!d)
        return 0;
    for (int i = 0; i < dpc_data_nfield(d); i++) {
        const DpcField *f = dpc_data_field(d, i);
        h = mixed(h, f->name, strlen(f->name));
        h = (h ^ (uint64_t)dpc_field_bytes(f)) * 0x100000001b3;
    }
    h = mixed(h, dpc_data_hash(d), strlen(dpc_data_hash(d)));
    return (h ^ (uint64_t)dpc_data_count(d)) * 0x100000001b3;
}

/* Of all that decides what a rank does next; not of paths, which may have
 * other names on other machines. */
static uint64_t options_mixed(const DpcApp *a)
{
    const DpcOptions *o = &a->opt;
    const int64_t n[] = {o->steps, o->seed, o->save_every, o->eval_every,
                         o->sample_every, o->batches, o->keep, o->overfit,
                         o->init_from.n, o->input.n, o->caption.n,
                         o->data != NULL, o->val_data != NULL,
                         o->out != NULL};
    uint64_t h = mixed(0xcbf29ce484222325, n, sizeof n);
    h = mixed_text(h, o->command);
    h = mixed_text(h, o->nan);
    h = mixed_text(h, o->best_metric);
    return mixed(h, o->scalar, a->unit->nleaf * sizeof *o->scalar);
}

/* DPC_USER on every rank when they were not started alike: later they would
 * wait for each other in vain, or learn from different data. */
static DpcStatus alike(DpcApp *a)
{
    static const char *const what[] = {"binary", "options", "data"};
    const uint64_t h[] = {
        mixed_text(0xcbf29ce484222325, a->unit->hash), options_mixed(a),
        fingerprint(a->data) + 3 * fingerprint(a->val)};
    for (size_t i = 0; i < sizeof h / sizeof *h; i++) {
        int32_t v = (int32_t)((h[i] ^ h[i] >> 32) & 0x7fffffff);
        int32_t high = v, low = -v;
        DpcStatus s = dpc_rt_vote(a->rt, &high);
        if (!s)
            s = dpc_rt_vote(a->rt, &low);
        if (s)
            return s;
        if (high != -low)
            return dpc_fail(DPC_USER, "%s: error: ranks: not all have the "
                "same %s (numbers %x to %x); start all of them alike",
                a->opt.program, what[i], -low, high);
    }
    return DPC_OK;
}

DpcStatus dpc_app_save(DpcApp *a, bool best)
{
    DpcCkptInfo info = {.step = a->step, .cursor = a->cursor,
                        .seed = a->rt->seed, .data = fingerprint(a->data),
                        .scalar = a->opt.scalar, .best = best};
    int keep = a->opt.keep < 0 ? 3 : (int)a->opt.keep;
    DpcStatus s = dpc_ckpt_save(a->ckpt, a->rt->space, &info,
                                a->folder, keep);
    if (!s && dpc_app_first(a))
        s = dpc_metrics_event(&a->metrics, best ? "best" : "save", a->step,
                              NULL);
    return s;
}

/* What the command line gave stays; the rest is as it was. */
static void scalars_restore(DpcApp *a, const double *was)
{
    for (uint32_t i = 0; i < a->unit->nleaf; i++) {
        const DpcLeaf *l = &a->unit->leaf[i];
        if (l->kind != DPC_SCALAR || a->opt.given[i])
            continue;
        a->opt.scalar[i] = was[i];
        if (!strcmp(l->name, "steps"))
            a->opt.steps = (int64_t)was[i];
    }
}

static DpcStatus resume_from(DpcApp *a, const char *path)
{
    double *was = calloc(a->unit->nleaf + 1, sizeof *was);
    DpcCkptInfo info = {.scalar = was};
    if (!was)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", a->opt.program);
    memcpy(was, a->opt.scalar, a->unit->nleaf * sizeof *was);
    DpcStatus s = dpc_ckpt_load(a->ckpt, a->rt->space, &info,
                                path);
    if (!s) {
        a->step = info.step;
        a->cursor = info.cursor;
        a->resumed = true;
        if (a->opt.seed < 0)
            a->rt->seed = info.seed;
        scalars_restore(a, was);
        dpc_app_note(a, "resume  %s, step %lld", path, (long long)info.step);
        if (a->data && info.data && info.data != fingerprint(a->data))
            dpc_app_note(a, "note: '%s' is not the data it was trained on",
                         a->opt.data);
    }
    free(was);
    return s;
}

/* "NAME." of the first n letters; "" of none. */
static DpcStatus prefix_of(char to[DPC_PATH], const char *name, size_t n)
{
    bool dot = n && name[n - 1] != '.';
    return dpc_path(to, "%.*s%s", (int)n, name, dot ? "." : "");
}

/* Is `word` the end of the first *n letters?  Then it is cut off. */
static bool ends(const char *s, size_t *n, const char *word)
{
    size_t k = strlen(word);
    bool yes = *n > k && !strncmp(s + *n - k, word, k);
    *n -= yes ? k : 0;
    return yes;
}

/* The words behind a path, in any order, are cut off: DPC_INIT_..., or'ed. */
static int init_words(const char *from, size_t *n)
{
    static const struct { const char *word; int how; } known[] = {
        { ":ema", DPC_INIT_EMA }, { ":partial", DPC_INIT_PARTIAL },
        { ":extra", DPC_INIT_EXTRA }, { ":over", DPC_INIT_OVER },
    };
    int how = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ends(from, n, known[i].word))
            how |= known[i].how, i = (size_t)-1;
    return how;
}

/* [HERE[:THERE]=]PATH[:WORD...][:map:RULES]: params HERE.* from tensors
 * THERE.*, which is HERE.* when it is not said.  "a/b=c" is a path. */
static DpcStatus init_from(DpcApp *a, const char *arg)
{
    char path[DPC_PATH], here[DPC_PATH], there[DPC_PATH];
    const char *eq = strpbrk(arg, "=/");
    eq = eq && *eq == '=' ? eq : NULL;
    const char *from = eq ? eq + 1 : arg;
    const char *map = strstr(from, ":map:");
    size_t n = map ? (size_t)(map - from) : strlen(from);
    size_t name = eq ? (size_t)(eq - arg) : 0;
    int how = init_words(from, &n);
    double begin = dpc_now();
    const char *colon = name ? memchr(arg, ':', name) : NULL;
    size_t own = colon ? (size_t)(colon - arg) : name;
    const char *other = colon ? colon + 1 : arg;
    DpcStatus s = dpc_path(path, "%.*s", (int)n, from);
    if (!n || (eq && !name))
        return dpc_fail(DPC_USAGE, "%s: error: '--init-from %s': wanted "
                        "[PREFIX=]PATH[:WORD]", a->opt.program, arg);
    s = s ? s : prefix_of(here, arg, own);
    s = s ? s : prefix_of(there, other, colon ? name - own - 1 : name);
    DpcInitFrom init = {path, here, there, map ? map + strlen(":map:") : NULL,
                        how};
    DpcInitDone done;
    s = s ? s : dpc_ckpt_init_from(a->ckpt, a->rt->space, &init,
                                   &done);
    if (!s)
        dpc_app_note(a, "weights %s: %d tensors%s, %.1f MiB in %.2f s", path,
                     done.params, how & DPC_INIT_EMA ? ", averaged where there"
                     : "", (double)done.bytes / (1 << 20), dpc_now() - begin);
    return s;
}

/* The entries that `train` runs before its loop. */
static DpcStatus init_run(DpcApp *a)
{
    const DpcUnit *u = a->unit;
    uint32_t last = 0, program;
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; i < u->nrun; i++)
        if (!strcmp(u->run[i].command, "train"))
            last = i;
    for (uint32_t i = 0; !s && i < last; i++) {
        int64_t times;
        if (strcmp(u->run[i].command, "train"))
            continue;
        s = dpc_app_entry(a, u->run[i].entry, &program);
        if (!s)
            s = dpc_app_times(a, &u->run[i], &times);
        for (int64_t k = 0; !s && k < times; k++)
            s = dpc_app_run(a, program, k);
    }
    return s;
}

/* The checkpoint to start from; "" when there is none. */
static DpcStatus resume_find(DpcApp *a, char path[DPC_PATH])
{
    const char *which = a->opt.resume ? a->opt.resume : "auto";
    path[0] = 0;
    if (!strcmp(which, "none") || (!a->folder[0] && !strcmp(which, "auto")))
        return DPC_OK;
    return dpc_ckpt_find(a->ckpt, a->folder, which, path);
}

static bool has_leaves(const DpcUnit *u)
{
    bool any = false;
    for (int32_t i = 0; i < dpc_roles(u); i++)
        any |= u->leaves[i] > 0;
    return any;
}

DpcStatus dpc_app_state(DpcApp *a, bool fresh_ok)
{
    char path[DPC_PATH];
    DpcStatus s = resume_find(a, path);
    bool asked = a->opt.resume && !strcmp(a->opt.resume, "none");
    if (s)
        return s;
    if (path[0])
        return resume_from(a, path);
    if (!fresh_ok && !asked && !a->opt.init_from.n && has_leaves(a->unit))
        return dpc_fail(DPC_USER, "%s: error: '%s' needs parameters; give "
            "--out DIR of a run, --resume PATH or --init-from PATH",
            a->opt.program, a->opt.command);
    s = init_run(a);
    for (int i = 0; !s && i < a->opt.init_from.n; i++)
        s = init_from(a, a->opt.init_from.at[i]);
    return s;
}

/* ---- runs ---- */

const char *dpc_app_row(const DpcApp *a, const char *command)
{
    const char *entry = command;
    for (uint32_t i = 0; i < a->unit->nrun; i++)
        if (!strcmp(a->unit->run[i].command, command))
            entry = a->unit->run[i].entry;
    return entry;
}

DpcStatus dpc_app_entry(const DpcApp *a, const char *entry, uint32_t *program)
{
    int32_t i = dpc_rt_entry(a->unit, entry);
    *program = (uint32_t)i;
    return i >= 0 ? DPC_OK
        : dpc_fail(DPC_USER, "%s: error: the model has no entry '%s'",
                   a->unit->model, entry);
}

DpcStatus dpc_app_times(const DpcApp *a, const DpcRun *r, int64_t *times)
{
    int32_t leaf = r->count ? dpc_rt_find(a->unit, r->count) : -1;
    *times = leaf >= 0 ? (int64_t)a->opt.scalar[leaf] : r->times;
    return !r->count || leaf >= 0 ? DPC_OK
        : dpc_fail(DPC_BUG, "%s: internal error: no scalar '%s'",
                   a->unit->model, r->count);
}

static void scalar_put(void *to, DpcDtype t, double v)
{
    if (t == DPC_I32)
        *(int32_t *)to = (int32_t)(int64_t)v;
    else if (t == DPC_BF16)
        *(uint16_t *)to = dpc_bf16_round((float)v);
    else
        *(float *)to = (float)v;
}

static double scalar_value(const DpcApp *a, uint32_t leaf, int64_t step)
{
    const char *name = a->unit->leaf[leaf].name;
    if (!strcmp(name, "step"))
        return (double)step;
    if (!strcmp(name, "seed"))
        return (double)a->rt->seed;
    return a->opt.scalar[leaf];
}

DpcStatus dpc_app_run(DpcApp *a, uint32_t program, int64_t step)
{
    const DpcProgram *p = &a->unit->program[program];
    for (uint32_t i = 0; i < p->nport; i++) {
        const DpcLeaf *l = &a->unit->leaf[p->port[i].leaf];
        int32_t slots = p->buf[p->port[i].buf].slots;
        if (l->kind != DPC_SCALAR)
            continue;
        double v = scalar_value(a, p->port[i].leaf, step);
        for (int32_t k = 0; k < (slots ? slots : 1); k++)
            scalar_put(dpc_rt_port(a->rt, program, l->name, k), l->dtype, v);
    }
    a->busy = true;
    return dpc_rt_run(a->rt, program, (uint64_t)step);
}

/* ---- opening ---- */

static void seed_set(DpcApp *a)
{
    int32_t leaf = dpc_rt_find(a->unit, "seed");
    if (a->opt.seed >= 0)
        a->rt->seed = (uint64_t)a->opt.seed;
    else if (leaf >= 0)
        a->rt->seed = (uint64_t)(int64_t)a->unit->leaf[leaf].value;
}

static DpcStatus needs_open(DpcApp *a)
{
    DpcStatus s = dpc_app_out(a);
    if (!s)
        s = data_open(a);
    if (!s)
        s = given_open(a);
    a->memory_before = dpc_memory_peak(); /* the spaces are not yet touched */
    if (!s)
        s = metrics_open(a);
    return s;
}

DpcStatus dpc_app_open(DpcApp *a, const DpcUnit *u)
{
    a->unit = u;
    a->metrics.fd = -1;
    DpcStatus s = world_open(a);
    if (!s)
        s = dpc_rt_open(u, a->comm, &a->rt);
    if (s)
        return s;
    a->unit = a->rt->unit;
    threads_set(a);
    seed_set(a);
    range_read(a);
    s = dpc_watch_open(a->rt, a->opt.timeout < 0 ? 600
                                                 : (double)a->opt.timeout,
                       &a->watch);
    if (s)
        return s;
    world_tell(a);
    s = agree(a, needs_open(a));
    if (!s)
        s = alike(a);
    return s ? s : ckpt_open(a);
}

void dpc_app_close(DpcApp *a)
{
    for (int i = 0; i < a->ngiven; i++)
        free(a->given[i].row);
    dpc_data_close(a->data);
    dpc_data_close(a->val);
    for (int i = 0; i < DPC_NMORE; i++)
        dpc_data_close(a->more[i]);
    dpc_caption_close(a->caption);
    dpc_metrics_close(&a->metrics);
    if (a->ckpt)
        dpc_ckpt_close(a->ckpt);
    dpc_watch_close(a->watch);
    dpc_rt_close(a->rt);
    if (a->comm)
        a->comm->ops->close(a->comm);
}
