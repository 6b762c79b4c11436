/* dnn_op.c -- an Op: primitives in a row over the buffers of a step.
 *
 * Nothing is allocated by us when an Op runs: the memory objects exist, only
 * their addresses are set.  Scratch holds first our own copies, then one
 * scratchpad that the calls use one after another. */
#include "runtime/dnn.h"

#include <string.h>

enum { ALIGN = 64 };

static int64_t aligned(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

dnnl_status_t op_dtype(uint8_t dtype, dnnl_data_type_t *t)
{
    if (dtype != DPC_F32 && dtype != DPC_BF16)
        return dnnl_unimplemented;
    *t = dtype == DPC_F32 ? dnnl_f32 : dnnl_bf16;
    return dnnl_success;
}

dnnl_status_t op_attr(dnnl_primitive_attr_t *attr, bool sum)
{
    dnnl_post_ops_t post = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s)
        return s;
    s = dnnl_primitive_attr_set_scratchpad_mode(*attr,
                                                dnnl_scratchpad_mode_user);
    if (!s && sum)
        s = dnnl_post_ops_create(&post);
    if (!s && sum)
        s = post_sum(post);
    if (!s && sum)
        s = dnnl_primitive_attr_set_post_ops(*attr, post);
    if (post)
        dnnl_post_ops_destroy(post);
    if (s)
        dnnl_primitive_attr_destroy(*attr);
    return s;
}

OpCall *op_call(Op *op, dnnl_primitive_desc_t desc)
{
    if (op->ncall == OP_NCALL) {
        dnnl_primitive_desc_destroy(desc);
        return NULL;
    }
    OpCall *c = &op->call[op->ncall++];
    *c = (OpCall){.desc = desc};
    DnnView pad =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    int64_t bytes = pad ? (int64_t)dnnl_memory_desc_get_size(pad) : 0;
    if (bytes)
        op_arg(c, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md,
               (OpPlace){OP_SCRATCH, -1});
    if (bytes > op->pad)
        op->pad = bytes;
    return c;
}

void op_arg(OpCall *c, int arg, dnnl_query_t what, OpPlace place)
{
    c->place[c->narg].view = dnnl_primitive_desc_query_md(c->desc, what, 0);
    c->place[c->narg].place = place;
    c->arg[c->narg++].arg = arg;
}

dnnl_status_t op_reorder(Op *op, dnnl_engine_t engine, DnnView from,
                         OpPlace at, DnnView to, OpPlace into, bool sum)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc;
    dnnl_status_t s = op_attr(&attr, sum);
    if (s)
        return s;
    s = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine,
                                           attr);
    dnnl_primitive_attr_destroy(attr);
    if (s)
        return s;
    OpCall *c = op_call(op, desc);
    if (!c)
        return dnnl_runtime_error;
    op_arg(c, DNNL_ARG_FROM, dnnl_query_src_md, at);
    op_arg(c, DNNL_ARG_TO, dnnl_query_dst_md, into);
    return dnnl_success;
}

OpPlace op_copy(Op *op, DnnView view)
{
    OpPlace p = {OP_SCRATCH, op->copies};
    op->copies += aligned((int64_t)dnnl_memory_desc_get_size(view));
    return p;
}

int64_t op_scratch(const Op *op)
{
    return op->copies + op->pad;
}

/* By the name of the implementation: "ref:any", "x64:gemm:jit", ... */
OpWay op_way(dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name))
        return OP_LOOPS;
    if (!strncmp(name, "ref", 3))
        return OP_LOOPS;
    bool gemm = !strncmp(name, "gemm", 4) || strstr(name, ":gemm");
    return gemm ? OP_GEMM : OP_KERNEL;
}

dnnl_status_t op_ready(Op *op, dnnl_engine_t engine)
{
    for (int i = 0; i < op->ncall; i++) {
        OpCall *c = &op->call[i];
        dnnl_status_t s = dnnl_primitive_create(&c->run, c->desc);
        for (int k = 0; k < c->narg && !s; k++)
            s = dnnl_memory_create(&c->arg[k].memory, c->place[k].view,
                                   engine, DNNL_MEMORY_NONE);
        if (s)
            return s;
    }
    return dnnl_success;
}

dnnl_status_t op_run(const Op *op, dnnl_stream_t stream,
                     void *const base[OP_NBASE])
{
    for (int i = 0; i < op->ncall; i++) {
        const OpCall *c = &op->call[i];
        dnnl_status_t s = dnnl_success;
        for (int k = 0; k < c->narg && !s; k++) {
            OpPlace p = c->place[k].place;
            int64_t at = p.at < 0 ? op->copies : p.at;
            s = dnnl_memory_set_data_handle(c->arg[k].memory,
                                            (char *)base[p.base] + at);
        }
        if (!s)
            s = dnnl_primitive_execute(c->run, stream, c->narg, c->arg);
        if (s)
            return s;
    }
    return dnnl_stream_wait(stream);
}

void op_free(Op *op)
{
    for (int i = 0; i < op->ncall; i++) {
        OpCall *c = &op->call[i];
        for (int k = 0; k < c->narg; k++)
            if (c->arg[k].memory)
                dnnl_memory_destroy(c->arg[k].memory);
        if (c->run)
            dnnl_primitive_destroy(c->run);
        dnnl_primitive_desc_destroy(c->desc);
    }
    memset(op, 0, sizeof *op);
}
