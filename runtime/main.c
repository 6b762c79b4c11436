/* main.c -- the whole program of an emitted binary. */
#include "runtime/app.h"
#include "runtime/info.h"
#include "runtime/launch.h"
#include "runtime/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --help, --version and info need no other rank; true: it was one. */
static bool told(const DpcUnit *u, const DpcOptions *o)
{
    bool info = o->command && !strcmp(o->command, "info");
    if (o->help)
        dpc_options_help(u, o, stdout);
    else if ((o->version || info) && o->json)
        dpc_info_json(u);
    else if (o->version)
        printf("%s, compiled by dpc %s\n", u->model, u->version);
    else if (info)
        dpc_info_print(u);
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
    bool lost = fflush(stdout) || ferror(stdout);
    if (!s && lost)
        s = dpc_fail(DPC_ENV, "stdout: error: cannot be written");
    if (s)
        failure_tell(a, s);
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
    DpcStatus s = dpc_rt_fits(u);
    if (!s)
        s = dpc_options_parse(u, argc, argv, &a->opt);
    if (s || told(u, &a->opt))
        return finish(a, s);
    dpc_launch_openmp(argv, u->threads);
    s = dpc_app_open(a, u);
    if (!s)
        s = command_run(a);
    return finish(a, s);
}
