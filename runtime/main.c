/* main.c -- the whole program of an emitted binary. */
#include "runtime/app.h"
#include "runtime/json.h"
#include "runtime/launch.h"
#include "runtime/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1048576;

/* ---- info ---- */

/* Of the role that takes most of that space. */
static int64_t most_of(const DpcUnit *u, DpcSpace space)
{
    int64_t most = 0, b[DPC_NSPACE];
    for (int32_t i = 0; i < dpc_roles(u); i++) {
        dpc_rt_planned(u, i, b);
        most = b[space] > most ? b[space] : most;
    }
    return most;
}

static int64_t params_of(const DpcUnit *u)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < u->nleaf; i++) {
        int64_t n = 1;
        for (int d = 0; d < u->leaf[i].ndim; d++)
            n *= u->leaf[i].dim[d];
        if (u->leaf[i].kind == DPC_PARAM)
            sum += n;
    }
    return sum;
}

static void leaf_shape(const DpcLeaf *l, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s[", dpc_dtype_name(l->dtype));
    for (int d = 0; d < l->ndim && n < size; d++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", d ? "," : "",
                              (long long)l->dim[d]);
    if (n < size)
        snprintf(to + n, size - n, "]");
}

static void memory_print(const DpcUnit *u, int32_t role)
{
    int64_t b[DPC_NSPACE];
    char of[32] = "";
    dpc_rt_planned(u, role, b);
    if (dpc_roles(u) > 1)
        snprintf(of, sizeof of, " of role %d", role);
    printf("memory   %.1f MiB params and states, %.1f MiB arena a rank%s\n",
           (double)b[DPC_LEAVES] / mib, (double)b[DPC_ARENA] / mib, of);
}

static void info_print(const DpcUnit *u)
{
    static const char *const kind[] = {"param", "state", "input", "scalar",
                                       "output"};
    char shape[128];
    printf("model    %s, compiled by dpc %s, hash %s\nmesh    ", u->model,
           u->version, u->hash);
    for (uint32_t i = 0; i < u->naxis; i++)
        printf(" %s=%d%s", u->axis[i].name, u->axis[i].size,
               u->axis[i].kind == DPC_TIME ? ":time"
               : u->axis[i].kind == DPC_STAGE ? ":stage" : "");
    printf("\nparams   %lld\n", (long long)params_of(u));
    for (int32_t i = 0; i < dpc_roles(u); i++)
        memory_print(u, i);
    for (uint32_t i = 0; i < u->nprogram; i++) {
        const DpcProgram *p = &u->program[i];
        char role[24] = "";
        if (p->role >= 0)
            snprintf(role, sizeof role, ", role %d", p->role);
        printf("entry    %s%s: %u steps, %.4g flops, batch %lld\n", p->entry,
               role, p->nstep, p->flops, (long long)p->batch);
    }
    for (uint32_t i = 0; i < u->nleaf; i++) {
        leaf_shape(&u->leaf[i], shape, sizeof shape);
        if (u->leaf[i].kind > DPC_STATE)
            printf("%-8s %s : %s\n", kind[u->leaf[i].kind], u->leaf[i].name,
                   shape);
    }
}

static void pair(DpcJson *j, const char *key, const char *value)
{
    dpc_json_key(j, key);
    dpc_json_str(j, value);
}

static void count(DpcJson *j, const char *key, int64_t value)
{
    dpc_json_key(j, key);
    dpc_json_int(j, value);
}

static void info_json(const DpcUnit *u)
{
    DpcJson j;
    dpc_json_init(&j, dpc_json_file, stdout, 1);
    dpc_json_open(&j, '{');
    pair(&j, "model", u->model);
    pair(&j, "version", u->version);
    pair(&j, "hash", u->hash);
    count(&j, "abi", u->abi);
    dpc_json_key(&j, "mesh");
    dpc_json_open(&j, '{');
    for (uint32_t i = 0; i < u->naxis; i++)
        count(&j, u->axis[i].name, u->axis[i].size);
    dpc_json_close(&j, '}');
    count(&j, "params", params_of(u));
    count(&j, "leaves_bytes", most_of(u, DPC_LEAVES));
    count(&j, "arena_bytes", most_of(u, DPC_ARENA));
    count(&j, "io_bytes", most_of(u, DPC_IO));
    dpc_json_key(&j, "entries");
    dpc_json_open(&j, '[');
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (u->program[i].role <= 0)
            dpc_json_str(&j, u->program[i].entry);
    dpc_json_close(&j, ']');
    dpc_json_close(&j, '}');
    dpc_json_newline(&j);
}

/* --help, --version and info need no other rank; true: it was one. */
static bool told(const DpcUnit *u, const DpcOptions *o)
{
    bool info = o->command && !strcmp(o->command, "info");
    if (o->help)
        dpc_options_help(u, o, stdout);
    else if ((o->version || info) && o->json)
        info_json(u);
    else if (o->version)
        printf("%s, compiled by dpc %s\n", u->model, u->version);
    else if (info)
        info_print(u);
    else
        return false;
    return true;
}

/* ---- commands ---- */

static DpcStatus command_do(DpcApp *a)
{
    const char *c = a->opt.command;
    if (!strcmp(c, "train"))
        return dpc_app_train(a);
    if (!strcmp(c, "eval"))
        return dpc_app_eval_command(a);
    DpcStatus s = dpc_app_state(a, false);
    return s ? s : dpc_app_rows(a, c, NULL);
}

/* The first rank may be watched step by step. */
static DpcStatus command_run(DpcApp *a)
{
    DpcProfile *p = NULL;
    DpcStatus s = DPC_OK;
    if (a->opt.profile && dpc_app_first(a))
        s = dpc_profile_open(a->unit, &p);
    a->rt->profile = p;
    if (!s)
        s = command_do(a);
    a->rt->profile = NULL;
    dpc_metrics_newline(&a->metrics);
    if (!s && p)
        s = dpc_profile_write(p, a->opt.profile);
    dpc_profile_close(p);
    return s;
}

/* One message a problem: the first rank of a node that has it. */
static void failure_tell(DpcApp *a, DpcStatus s)
{
    if (!dpc_last_error()[0])
        return;                           /* it is another rank's to tell */
    bool speak = a->watch ? dpc_watch_first(a->watch, s)
               : a->comm  ? a->comm->rank == 0 || s == DPC_ENV
                          : dpc_launch_detect().rank == 0;
    if (!speak)
        return;
    dpc_metrics_newline(&a->metrics);
    fprintf(stderr, "%s\n", dpc_last_error());
    fflush(stderr);
}

/* What all ranks meet alike they leave alike: wrong options and inputs
 * before the first run, and numbers, which are the same everywhere.  With
 * anything else the rest may be waiting for us. */
static bool alone(const DpcApp *a, DpcStatus s)
{
    bool alike = s == DPC_USAGE || s == DPC_NUMERICS ||
                 ((s == DPC_USER || s == DPC_BUG) && !a->busy);
    return a->comm && a->comm->size > 1 && s && !alike;
}

static int finish(DpcApp *a, DpcStatus s)
{
    if (s)
        failure_tell(a, s);
    fflush(stdout);
    dpc_watch_leave(a->watch, alone(a, s));
    if (alone(a, s))
        a->comm->ops->abort(a->comm, dpc_exit_code(s));
    dpc_app_close(a);
    dpc_options_close(&a->opt);
    free(a);
    return dpc_exit_code(s);
}

int dpc_main(int argc, char **argv, const DpcUnit *u)
{
    DpcApp *a = calloc(1, sizeof *a);
    if (!a)
        return dpc_exit_code(DPC_MEMORY);
    a->metrics.fd = -1;
    DpcStatus s = dpc_options_parse(u, argc, argv, &a->opt);
    if (s || told(u, &a->opt))
        return finish(a, s);
    dpc_launch_openmp(argv, u->threads);
    s = dpc_app_open(a, u);
    if (!s)
        s = command_run(a);
    return finish(a, s);
}
