/* dnn.c -- the oneDNN part of the runtime: sizes, opening, running.
 *
 * Which implementation oneDNN picks, and so its scratch and its packed order,
 * depends on the processor and on the number of OpenMP threads.  The compiler
 * asked on its machine; dpc_dnn_open asks again on this one and compares with
 * the buffers that the plan holds, so that a binary that has moved says so
 * instead of writing past a buffer. */
#include "runtime/dnn.h"

#include <stdlib.h>
#include <string.h>

struct DpcDnn {
    const DpcUnit *unit;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Op *dot, *conv, *pack, *unpack;       /* by call; empty in twins */
    uint32_t *same_dot, *same_conv;       /* the first row equal to this */
    int64_t *packed;                      /* bytes, by conv; 0: not packed */
};

/* Plans with an engine of its own, for sizes only. */
static int64_t measured(const DpcDot *dot, const DpcConv *conv, bool pack)
{
    dnnl_engine_t engine;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0))
        return -1;
    Op op = {0}, back = {0};
    int64_t bytes = -1;
    dnnl_status_t s = dot    ? dot_plan(dot, engine, &op)
                      : pack ? conv_plan_pack(conv, engine, &op, &back, &bytes)
                             : conv_plan(conv, engine, &op);
    if (s)
        bytes = -1;
    else if (!pack)
        bytes = op_scratch(&op);
    op_free(&op);
    op_free(&back);
    dnnl_engine_destroy(engine);
    return bytes;
}

int64_t dpc_dot_scratch(const DpcDot *d)
{
    return measured(d, NULL, false);
}

int64_t dpc_conv_scratch(const DpcConv *c)
{
    return measured(NULL, c, false);
}

int64_t dpc_conv_pack_bytes(const DpcConv *c)
{
    return measured(NULL, c, true);
}

/* The first row that is byte for byte row i. */
static uint32_t first(const void *row, size_t size, uint32_t i)
{
    const char *p = row;
    uint32_t k = 0;
    while (memcmp(p + k * size, p + i * size, size))
        k++;
    return k;
}

static DpcStatus failed(const char *what, uint32_t call, dnnl_status_t s)
{
    return dpc_fail(s == dnnl_out_of_memory ? DPC_MEMORY : DPC_ENV,
                    "%s %u: error: oneDNN %d.%d gives status %d", what, call,
                    DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, (int)s);
}

/* A call that this processor lacks: products in bf16 want AVX-512. */
static DpcStatus refused(const char *what, uint32_t call, int dtype,
                         dnnl_status_t s)
{
    if (s != dnnl_unimplemented || dtype != DPC_BF16)
        return failed(what, call, s);
    return dpc_fail(DPC_ENV,
                    "%s %u: error: oneDNN %d.%d has no products in bf16 for "
                    "this processor, which wants AVX-512; compile with "
                    "--dtype f32", what, call, DNNL_VERSION_MAJOR,
                    DNNL_VERSION_MINOR);
}

static DpcStatus dots_open(DpcDnn *d)
{
    const DpcUnit *u = d->unit;
    for (uint32_t i = 0; i < u->ndot; i++) {
        d->same_dot[i] = first(u->dot, sizeof *u->dot, i);
        if (d->same_dot[i] != i)
            continue;
        dnnl_status_t s = dot_plan(&u->dot[i], d->engine, &d->dot[i]);
        if (!s)
            s = op_ready(&d->dot[i], d->engine);
        if (s)
            return refused("dot", i, u->dot[i].dtype_a, s);
    }
    return DPC_OK;
}

static dnnl_status_t conv_open(DpcDnn *d, uint32_t i)
{
    const DpcConv *c = &d->unit->conv[i];
    dnnl_status_t s = conv_plan(c, d->engine, &d->conv[i]);
    if (!s)
        s = op_ready(&d->conv[i], d->engine);
    if (s || !c->packed)
        return s;
    s = conv_plan_pack(c, d->engine, &d->pack[i], &d->unpack[i],
                       &d->packed[i]);
    if (!s)
        s = op_ready(&d->pack[i], d->engine);
    return s ? s : op_ready(&d->unpack[i], d->engine);
}

static DpcStatus convs_open(DpcDnn *d)
{
    const DpcUnit *u = d->unit;
    for (uint32_t i = 0; i < u->nconv; i++) {
        d->same_conv[i] = first(u->conv, sizeof *u->conv, i);
        dnnl_status_t s = d->same_conv[i] == i ? conv_open(d, i)
                                               : dnnl_success;
        if (s)
            return refused("conv", i, u->conv[i].dtype_x, s);
    }
    return DPC_OK;
}

/* Argument k of a step must hold `need` bytes. */
static DpcStatus holds(const DpcProgram *p, const DpcStep *s, uint32_t k,
                       int64_t need)
{
    const DpcNode *n = s->node < p->nnode ? &p->node[s->node] : NULL;
    int64_t have = k < s->narg ? p->buf[p->arg[s->arg + k]].size : 0;
    if (have >= need)
        return DPC_OK;
    return dpc_fail(DPC_ENV,
                    "%s: error: \"%s\": the plan has %lld bytes where oneDNN "
                    "needs %lld with this processor and number of threads; "
                    "set OMP_NUM_THREADS as in compilation, or compile here",
                    n ? n->loc : "?", n ? n->name : "?", (long long)have,
                    (long long)need);
}

static DpcStatus step_check(const DpcDnn *d, const DpcProgram *p,
                            const DpcStep *s)
{
    bool dot = s->kind == DPC_STEP_DOT, conv = s->kind == DPC_STEP_CONV;
    bool pack = s->kind == DPC_STEP_PACK, unpack = s->kind == DPC_STEP_UNPACK;
    if (!dot && !conv && !pack && !unpack)
        return DPC_OK;
    if (s->call >= (dot ? d->unit->ndot : d->unit->nconv))
        return dpc_fail(DPC_BUG, "%s: error: no row %u in the %s table",
                        p->entry, s->call, dot ? "dot" : "conv");
    if (dot)
        return holds(p, s, 3, op_scratch(&d->dot[d->same_dot[s->call]]));
    uint32_t i = d->same_conv[s->call];
    bool dw = d->unit->conv[i].kind == DPC_CONV_DW;
    if (!conv)
        return holds(p, s, pack ? 1 : 0, d->packed[i]);
    DpcStatus st = holds(p, s, dw ? 2 : 1, d->packed[i]);
    return st ? st : holds(p, s, 3, op_scratch(&d->conv[i]));
}

static DpcStatus plan_check(const DpcDnn *d)
{
    for (uint32_t i = 0; i < d->unit->nprogram; i++) {
        const DpcProgram *p = &d->unit->program[i];
        for (uint32_t k = 0; k < p->nstep; k++) {
            DpcStatus s = step_check(d, p, &p->step[k]);
            if (s)
                return s;
        }
    }
    return DPC_OK;
}

static DpcStatus tables_open(DpcDnn *d)
{
    size_t ndot = d->unit->ndot + 1u, nconv = d->unit->nconv + 1u;
    d->dot = calloc(ndot, sizeof *d->dot);
    d->same_dot = calloc(ndot, sizeof *d->same_dot);
    d->conv = calloc(nconv, sizeof *d->conv);
    d->pack = calloc(nconv, sizeof *d->pack);
    d->unpack = calloc(nconv, sizeof *d->unpack);
    d->same_conv = calloc(nconv, sizeof *d->same_conv);
    d->packed = calloc(nconv, sizeof *d->packed);
    if (!d->dot || !d->same_dot || !d->conv || !d->pack || !d->unpack ||
        !d->same_conv || !d->packed)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for %zu dots and "
                        "%zu convs", d->unit->model, ndot, nconv);
    dnnl_status_t s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (!s)
        s = dnnl_stream_create(&d->stream, d->engine,
                               dnnl_stream_default_flags);
    return s ? failed("engine", 0, s) : DPC_OK;
}

/* On failure *out is NULL. */
DpcStatus dpc_dnn_open(const DpcUnit *u, DpcDnn **out)
{
    *out = NULL;
    DpcDnn *d = calloc(1, sizeof *d);
    if (!d)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for oneDNN",
                        u->model);
    d->unit = u;
    DpcStatus s = tables_open(d);
    if (!s)
        s = dots_open(d);
    if (!s)
        s = convs_open(d);
    if (!s)
        s = plan_check(d);
    if (s) {
        dpc_dnn_close(d);
        return s;
    }
    *out = d;
    return DPC_OK;
}

static DpcStatus run(DpcDnn *d, const char *what, const Op *op, uint32_t call,
                     void *const base[OP_NBASE])
{
    if (!op->ncall)
        return dpc_fail(DPC_BUG, "%s %u: error: not packed", what, call);
    dnnl_status_t s = op_run(op, d->stream, base);
    return s ? failed(what, call, s) : DPC_OK;
}

DpcStatus dpc_dnn_dot(DpcDnn *d, uint32_t call, void *a, void *b, void *c,
                      void *scratch)
{
    void *const base[OP_NBASE] = {a, b, c, scratch};
    return run(d, "dot", &d->dot[d->same_dot[call]], call, base);
}

DpcStatus dpc_dnn_conv(DpcDnn *d, uint32_t call, void *in0, void *in1,
                       void *out, void *scratch)
{
    void *const base[OP_NBASE] = {in0, in1, out, scratch};
    return run(d, "conv", &d->conv[d->same_conv[call]], call, base);
}

DpcStatus dpc_dnn_pack(DpcDnn *d, uint32_t call, void *from, void *to)
{
    void *const base[OP_NBASE] = {from, NULL, to, NULL};
    return run(d, "pack", &d->pack[d->same_conv[call]], call, base);
}

DpcStatus dpc_dnn_unpack(DpcDnn *d, uint32_t call, void *from, void *to)
{
    void *const base[OP_NBASE] = {from, NULL, to, NULL};
    return run(d, "unpack", &d->unpack[d->same_conv[call]], call, base);
}

void dpc_dnn_close(DpcDnn *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; d->dot && i < d->unit->ndot; i++)
        op_free(&d->dot[i]);
    for (uint32_t i = 0; i < d->unit->nconv; i++) {
        if (d->conv)
            op_free(&d->conv[i]);
        if (d->pack)
            op_free(&d->pack[i]);
        if (d->unpack)
            op_free(&d->unpack[i]);
    }
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    free(d->dot), free(d->same_dot);
    free(d->conv), free(d->pack), free(d->unpack);
    free(d->same_conv), free(d->packed);
    free(d);
}
