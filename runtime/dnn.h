/* dnn.h -- what the parts of the oneDNN shim share: an Op.
 *
 * An Op is what one DOT, CONV, PACK or UNPACK step runs: a few primitives in
 * a row, each reading and writing places in the step's buffers.  dot and conv
 * build theirs from descriptors alone, which is all that asking for scratch
 * bytes takes; op_ready then makes primitives and memory objects, once, and
 * op_run only sets addresses and runs. */
#ifndef RUNTIME_DNN_H
#define RUNTIME_DNN_H

#include "runtime/dnn_compat.h"
#include "runtime/dpc_rt.h"

enum { OP_NCALL = 4, OP_NARG = 4 };

/* The buffers of a step, in the order of its arguments. */
typedef enum OpBase { OP_IN0, OP_IN1, OP_OUT, OP_SCRATCH, OP_NBASE } OpBase;
typedef struct OpPlace { OpBase base; int64_t at; } OpPlace;  /* bytes */

typedef struct OpArg {
    DnnView view;                         /* owned by the call's desc */
    OpPlace place;
} OpArg;

typedef struct OpCall {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t run;
    int narg;
    OpArg place[OP_NARG];
    dnnl_exec_arg_t arg[OP_NARG];         /* as oneDNN takes them */
} OpCall;

typedef struct Op {
    int ncall;
    OpCall call[OP_NCALL];
    int64_t copies;                       /* bytes of scratch: own copies */
    int64_t pad;                          /* then oneDNN's scratchpad */
} Op;

/* Attributes of every primitive: scratch from the caller, and when `sum`
 * the result is added to what is there. */
dnnl_status_t op_attr(dnnl_primitive_attr_t *, bool sum);
/* The call takes `desc` over, also when it fails; NULL: no room. */
OpCall *op_call(Op *, dnnl_primitive_desc_t desc);
void op_arg(OpCall *, int arg, dnnl_query_t what, OpPlace);
/* Append a reorder; with `sum` it adds. */
dnnl_status_t op_reorder(Op *, dnnl_engine_t, DnnView from, OpPlace,
                         DnnView to, OpPlace, bool sum);
/* A place in scratch for a copy laid out as the view says. */
OpPlace op_copy(Op *, DnnView);
int64_t op_scratch(const Op *);
dnnl_status_t op_ready(Op *, dnnl_engine_t);
dnnl_status_t op_run(const Op *, dnnl_stream_t, void *const base[OP_NBASE]);
void op_free(Op *);                       /* leaves it empty */
/* How oneDNN means to do it. */
typedef enum OpWay {
    OP_LOOPS,                             /* plain loops, a thousandth */
    OP_GEMM,                              /* a conv as a gemm of windows */
    OP_KERNEL                             /* a kernel made for it */
} OpWay;
OpWay op_way(dnnl_primitive_desc_t);

/* dnnl_success if the dtype is one that oneDNN multiplies. */
dnnl_status_t op_dtype(uint8_t dtype, dnnl_data_type_t *);

/* Build the Op of a table row; on failure the Op is empty. */
dnnl_status_t dot_plan(const DpcDot *, dnnl_engine_t, Op *);
dnnl_status_t conv_plan(const DpcConv *, dnnl_engine_t, Op *);
/* The reorders between the row-major weight (IN0 or OUT) and the packed one,
 * and the bytes of the latter; on failure both are empty. */
dnnl_status_t conv_plan_pack(const DpcConv *, dnnl_engine_t, Op *pack,
                             Op *unpack, int64_t *bytes);

#endif
