/* dnn_conv.c -- a DpcConv as oneDNN's convolution.
 *
 * x and y keep the order that the table says; the weight is left to oneDNN
 * ("any"), because its fast kernels want it blocked.  A packed weight is in
 * that order already; else it is reordered in scratch around the call.  When
 * no good kernel takes x and y as they lie, which is the rule for channels
 * first, these are copied too, into the order that oneDNN likes.
 *
 * A narrow gradient of the weight is computed wide and narrowed on the way out
 * of that order: oneDNN would hold it in both.  That of a 1x1 is a matmul. */
#include "runtime/dnn.h"

enum { X, W, Y, NTENSOR };
enum { VECTOR = 16 };                     /* floats, of the widest kernels */

typedef struct Conv {
    const DpcConv *table;
    DnnConvDesc desc;
    int n[NTENSOR];
    dnnl_dims_t dim[NTENSOR];
    dnnl_data_type_t type[NTENSOR];
    DnnDesc user[NTENSOR];                /* as the table says; w row-major */
    DnnDesc plain;                        /* w as a pack finds it */
    int out;                              /* which tensor it writes */
} Conv;

static const dnnl_query_t query[3][NTENSOR] = {
    {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
    {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
    {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
};
static const int argument[3][NTENSOR] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
};
/* FWD takes x, w; DX takes y, w; DW takes x, y. */
static const OpBase base[3][NTENSOR] = {
    {OP_IN0, OP_IN1, OP_OUT}, {OP_OUT, OP_IN1, OP_IN0},
    {OP_IN0, OP_OUT, OP_IN1},
};

/* The rows that the windows reach beyond the end.  Rows that no window
 * reaches, fewer than a stride, are what rounding down leaves: 0. */
static bool window(int64_t in, int64_t k, int64_t out, int64_t stride,
                   int64_t before, int64_t dilate, int64_t *after)
{
    if (stride < 1 || dilate < 1 || before < 0)
        return false;
    *after = (out - 1) * stride + (k - 1) * dilate + 1 - before - in;
    if (*after <= -stride)
        return false;
    if (*after < 0)
        *after = 0;
    return true;
}

static bool sane(const DpcConv *c)
{
    bool size = c->batch > 0 && c->c > 0 && c->h > 0 && c->w > 0 &&
                c->o > 0 && c->kh > 0 && c->kw > 0 && c->oh > 0 && c->ow > 0;
    bool group = c->groups > 0 && !(c->c % c->groups) && !(c->o % c->groups);
    bool same = c->kind == DPC_CONV      ? c->dtype_x == c->dtype_w
                : c->kind == DPC_CONV_DX ? c->dtype_y == c->dtype_w
                                         : c->dtype_x == c->dtype_y;
    return c->kind <= DPC_CONV_DW && size && group && same;
}

static bool window_fill(Conv *v)
{
    const DpcConv *c = v->table;
    DnnWindow *w = &v->desc.window;
    for (int i = 0; i < 2; i++) {
        w->stride[i] = c->stride[i], w->before[i] = c->pad[i];
        w->dilate[i] = c->dilate[i] - 1;
    }
    return window(c->h, c->kh, c->oh, c->stride[0], c->pad[0], c->dilate[0],
                  &w->after[0]) &&
           window(c->w, c->kw, c->ow, c->stride[1], c->pad[1], c->dilate[1],
                  &w->after[1]);
}

static void dims_fill(Conv *v)
{
    const DpcConv *c = v->table;
    int64_t x[] = {c->batch, c->c, c->h, c->w};
    int64_t y[] = {c->batch, c->o, c->oh, c->ow};
    int64_t w[] = {c->groups, c->o / c->groups, c->c / c->groups, c->kh,
                   c->kw};
    bool grouped = c->groups > 1;
    v->n[X] = v->n[Y] = 4, v->n[W] = grouped ? 5 : 4;
    for (int i = 0; i < 4; i++)
        v->dim[X][i] = x[i], v->dim[Y][i] = y[i];
    for (int i = 0; i < v->n[W]; i++)
        v->dim[W][i] = w[grouped ? i : i + 1];
}

static void conv_free(Conv *v)
{
    for (int i = 0; i < NTENSOR; i++)
        desc_free(v->user[i]);
    desc_free(v->plain);
    if (v->desc.hint)
        dnnl_primitive_desc_destroy(v->desc.hint);
}

/* Descriptors of all three with format "any", or of the user's tensors. */
static dnnl_status_t any(const Conv *v, int tensor, dnnl_data_type_t type,
                         DnnDesc *d)
{
    return desc_tag(d, v->n[tensor], v->dim[tensor], type,
                    dnnl_format_tag_any);
}

/* A backward pass wants the forward one that it belongs to. */
static dnnl_status_t hint_make(Conv *v, dnnl_engine_t engine)
{
    DnnConvDesc forward = {.prop = dnnl_forward_training,
                           .window = v->desc.window};
    dnnl_data_type_t type = v->type[v->out == X ? Y : X];
    DnnDesc d[NTENSOR] = {0};
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < NTENSOR && !s; i++)
        s = any(v, i, type, &d[i]);
    if (!s)
        s = conv_desc(&v->desc.hint, engine, &forward, d[X], d[W], d[Y],
                      NULL);
    for (int i = 0; i < NTENSOR; i++)
        desc_free(d[i]);
    return s;
}

static dnnl_status_t conv_make(Conv *v, const DpcConv *c,
                               dnnl_engine_t engine)
{
    static const dnnl_prop_kind_t prop[] = {
        dnnl_forward_training, dnnl_backward_data, dnnl_backward_weights};
    *v = (Conv){.table = c};
    if (!sane(c) || !window_fill(v))
        return dnnl_invalid_arguments;
    v->desc.prop = prop[c->kind];
    v->out = c->kind == DPC_CONV ? Y : c->kind == DPC_CONV_DX ? X : W;
    dims_fill(v);
    const uint8_t dtype[] = {c->dtype_x, c->dtype_w, c->dtype_y};
    const dnnl_format_tag_t tag[] = {
        c->nhwc ? dnnl_nhwc : dnnl_nchw,
        c->groups > 1 ? dnnl_goihw : dnnl_oihw,
        c->nhwc ? dnnl_nhwc : dnnl_nchw};
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < NTENSOR && !s; i++)
        s = op_dtype(dtype[i], &v->type[i]);
    for (int i = 0; i < NTENSOR && !s; i++)
        s = desc_tag(&v->user[i], v->n[i], v->dim[i], v->type[i], tag[i]);
    if (v->out == W && !c->packed)
        v->type[W] = dnnl_f32;
    dnnl_data_type_t plain;
    if (!s)
        s = op_dtype(c->dtype_plain, &plain);
    if (!s)
        s = desc_tag(&v->plain, v->n[W], v->dim[W], plain, tag[W]);
    if (!s && c->kind != DPC_CONV)
        s = hint_make(v, engine);
    return s;
}

/* The primitive with x and y as they lie, or with all three free. */
static dnnl_status_t primitive(Conv *v, bool free_xy, dnnl_engine_t engine,
                               dnnl_primitive_desc_t *desc)
{
    DnnDesc d[NTENSOR] = {0};
    DnnView use[NTENSOR];
    dnnl_primitive_attr_t attr;
    dnnl_status_t s = op_attr(&attr, false);
    if (s)
        return s;
    for (int i = 0; i < NTENSOR && !s; i++) {
        bool open = i == W || free_xy;
        s = open ? any(v, i, v->type[i], &d[i]) : dnnl_success;
        use[i] = open ? d[i] : v->user[i];
    }
    if (!s)
        s = conv_desc(desc, engine, &v->desc, use[X], use[W], use[Y], attr);
    dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < NTENSOR; i++)
        desc_free(d[i]);
    return s;
}

/* How good a way is for this conv: 2 good, 1 usable, 0 hopeless.  A gemm of
 * windows writes each value of x kh * kw times before it multiplies; that is
 * right for 1x1, and where x has few channels, for a kernel would work with
 * mostly empty vectors.  For dw it is never right: its gemms are as narrow
 * as the channels are few. */
static int grade(const Conv *v, OpWay way)
{
    const DpcConv *c = v->table;
    bool narrow = c->c / c->groups < VECTOR && c->kind != DPC_CONV_DW;
    if (way == OP_GEMM)
        return c->kh * c->kw == 1 || narrow ? 2 : 1;
    return way == OP_KERNEL ? 2 : 0;
}

/* The best grade that there is; x and y as they lie before copies. */
static dnnl_status_t choose(Conv *v, dnnl_engine_t engine,
                            dnnl_primitive_desc_t *desc)
{
    for (int want = 2; want >= 0; want--)
        for (int free_xy = 0; free_xy < 2; free_xy++) {
            if (primitive(v, free_xy, engine, desc))
                continue;
            if (grade(v, op_way(*desc)) >= want)
                return dnnl_success;
            dnnl_primitive_desc_destroy(*desc);
        }
    return dnnl_unimplemented;
}

static dnnl_status_t chain(Conv *v, dnnl_engine_t engine,
                           dnnl_primitive_desc_t desc, Op *op)
{
    int kind = v->table->kind;
    DnnView view[NTENSOR];
    OpPlace place[NTENSOR];
    bool copy[NTENSOR];
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < NTENSOR; i++) {
        OpPlace user = {base[kind][i], 0};
        view[i] = dnnl_primitive_desc_query_md(desc, query[kind][i], 0);
        copy[i] = !(i == W && v->table->packed) &&
                  !dnnl_memory_desc_equal(view[i], v->user[i]);
        place[i] = copy[i] ? op_copy(op, view[i]) : user;
        if (copy[i] && i != v->out && !s)
            s = op_reorder(op, engine, v->user[i], user, view[i], place[i],
                           false);
    }
    OpCall *c = op_call(op, desc);
    if (s || !c)
        return s ? s : dnnl_runtime_error;
    for (int i = 0; i < NTENSOR; i++)
        op_arg(c, argument[kind][i], query[kind][i], place[i]);
    int o = v->out;
    if (copy[o])
        s = op_reorder(op, engine, view[o], place[o], v->user[o],
                       (OpPlace){OP_OUT, 0}, false);
    return s;
}

static bool pointwise(const DpcConv *c)
{
    return c->nhwc && c->kh * c->kw == 1 && c->groups == 1 &&
           c->oh == c->h && c->ow == c->w && c->stride[0] == 1 &&
           c->stride[1] == 1 && !c->pad[0] && !c->pad[1];
}

/* w [o, c] of a 1x1 is the sum over pixels of y's [pixel, o] by x's
 * [pixel, c]. */
static DpcDot dot_of(const DpcConv *c)
{
    return (DpcDot){.dtype_a = c->dtype_x, .dtype_b = c->dtype_y,
                    .dtype_c = c->dtype_w,
                    .m = c->c, .n = c->o, .k = c->batch * c->h * c->w,
                    .a_m = 1, .a_k = c->c, .b_k = c->o, .b_n = 1,
                    .c_m = 1, .c_n = c->c};
}

dnnl_status_t conv_plan(const DpcConv *c, dnnl_engine_t engine, Op *op)
{
    *op = (Op){0};
    if (c->kind == DPC_CONV_DW && !c->packed && sane(c) && pointwise(c)) {
        DpcDot d = dot_of(c);
        return dot_plan(&d, engine, op);
    }
    Conv v;
    dnnl_primitive_desc_t desc;
    dnnl_status_t s = conv_make(&v, c, engine);
    if (!s)
        s = choose(&v, engine, &desc);
    if (!s)
        s = chain(&v, engine, desc, op);
    conv_free(&v);
    if (s)
        op_free(op);
    return s;
}

dnnl_status_t conv_plan_pack(const DpcConv *c, dnnl_engine_t engine, Op *pack,
                             Op *unpack, int64_t *bytes)
{
    *pack = *unpack = (Op){0};
    const OpPlace from = {OP_IN0, 0}, to = {OP_OUT, 0};
    Conv v;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t s = conv_make(&v, c, engine);
    if (!s)
        s = choose(&v, engine, &desc);
    if (!s) {
        DnnView w = dnnl_primitive_desc_query_md(desc, query[c->kind][W], 0);
        *bytes = (int64_t)dnnl_memory_desc_get_size(w);
        s = op_reorder(pack, engine, v.plain, from, w, to, false);
        if (!s)
            s = op_reorder(unpack, engine, w, from, v.user[W], to, false);
        dnnl_primitive_desc_destroy(desc);
    }
    conv_free(&v);
    if (s) {
        op_free(pack);
        op_free(unpack);
    }
    return s;
}
