/* info.c -- what a binary is and needs, from its tables. */
#include "runtime/info.h"
#include "runtime/rt.h"

#include <stdio.h>

static const double mib = 1048576;

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
    if (b[DPC_HOST_LEAVES] + b[DPC_HOST_ARENA] > 0)
        printf("host     %.1f MiB params and states, %.1f MiB arena a rank%s\n",
               (double)b[DPC_HOST_LEAVES] / mib,
               (double)b[DPC_HOST_ARENA] / mib, of);
}

void dpc_info_print(const DpcUnit *u)
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

void dpc_info_pairs(DpcJson *j, const DpcUnit *u)
{
    dpc_json_pair(j, "model", u->model);
    dpc_json_pair(j, "version", u->version);
    dpc_json_pair(j, "hash", u->hash);
    dpc_json_count(j, "abi", u->abi);
    dpc_json_key(j, "mesh");
    dpc_json_open(j, '{');
    for (uint32_t i = 0; i < u->naxis; i++)
        dpc_json_count(j, u->axis[i].name, u->axis[i].size);
    dpc_json_close(j, '}');
    dpc_json_count(j, "params", params_of(u));
    dpc_json_count(j, "leaves_bytes", most_of(u, DPC_LEAVES));
    dpc_json_count(j, "arena_bytes", most_of(u, DPC_ARENA));
    dpc_json_count(j, "io_bytes", most_of(u, DPC_IO));
    dpc_json_count(j, "host_leaves_bytes", most_of(u, DPC_HOST_LEAVES));
    dpc_json_count(j, "host_arena_bytes", most_of(u, DPC_HOST_ARENA));
    dpc_json_key(j, "entries");
    dpc_json_open(j, '[');
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (u->program[i].role <= 0)
            dpc_json_str(j, u->program[i].entry);
    dpc_json_close(j, ']');
}

void dpc_info_json(const DpcUnit *u)
{
    DpcJson j;
    dpc_json_init(&j, dpc_json_file, stdout, 1);
    dpc_json_open(&j, '{');
    dpc_info_pairs(&j, u);
    dpc_json_close(&j, '}');
    dpc_json_newline(&j);
}
