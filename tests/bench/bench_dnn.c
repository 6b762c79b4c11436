/* bench_dnn.c -- GFLOP/s of dots and convs as the runtime runs them, and the
 * oneDNN implementation behind each call.
 *
 * Run with OMP_WAIT_POLICY=passive.  Each row is the best of several runs, on
 * buffers of zeros (no denormals); "reorder" in a list of implementations is
 * a copy of an operand in scratch. */
#include "runtime/dnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TENTHS = 1 };                      /* of a second, at least, a row */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *zeros(int64_t bytes)
{
    size_t n = ((size_t)bytes + 64) / 64 * 64;
    void *p = aligned_alloc(64, n);
    if (p)
        memset(p, 0, n);
    return p;
}

/* Best seconds of a run; infinity if it fails. */
static double seconds(const Op *op, dnnl_stream_t stream,
                      void *const base[OP_NBASE])
{
    double best = INFINITY, end = 0;
    if (op_run(op, stream, base))
        return best;
    for (int i = 0; i < 3 || now() < end; i++) {
        double t = now();
        if (!i)
            end = t + TENTHS / 10.;
        if (op_run(op, stream, base))
            return INFINITY;
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void measure(const char *what, Op *op, dnnl_engine_t engine,
                    const int64_t bytes[3], double flops)
{
    dnnl_stream_t stream;
    if (!op->ncall || op_ready(op, engine) ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags)) {
        printf("%-46s impossible\n", what);
        op_free(op);
        return;
    }
    void *base[OP_NBASE] = {zeros(bytes[0]), zeros(bytes[1]),
                            zeros(bytes[2]), zeros(op_scratch(op))};
    double t = seconds(op, stream, base);
    printf("%-46s %7.1f GFLOP/s %8.1f us %8lld B", what, flops / t * 1e-9,
           t * 1e6, (long long)op_scratch(op));
    for (int i = 0; i < op->ncall; i++) {
        const char *name = "?";
        dnnl_primitive_desc_query(op->call[i].desc, dnnl_query_impl_info_str,
                                  0, &name);
        printf(" %s%s", op->call[i].narg < 3 ? "reorder " : "", name);
    }
    putchar('\n');
    for (int i = 0; i < OP_NBASE; i++)
        free(base[i]);
    op_free(op);
    dnnl_stream_destroy(stream);
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bytes that an operand spans, its gaps included. */
static int64_t span(const DpcDot *d, const int64_t *batch, int64_t r,
                    int64_t rs, int64_t c, int64_t cs, uint8_t dtype)
{
    int64_t n = 1 + (r - 1) * rs + (c - 1) * cs;
    for (int i = 0; i < d->nbatch; i++)
        n += (d->batch[i] - 1) * batch[i];
    return n * dpc_dtype_size((DpcDtype)dtype);
}

static void dot(const char *name, DpcDot d, dnnl_engine_t engine)
{
    double flops = 2. * (double)d.m * (double)d.n * (double)d.k;
    for (int i = 0; i < d.nbatch; i++)
        flops *= (double)d.batch[i];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        char what[80];
        Op op;
        d.dtype_a = d.dtype_b = d.dtype_c = bf16 ? DPC_BF16 : DPC_F32;
        int64_t bytes[3] = {
            span(&d, d.a_batch, d.m, d.a_m, d.k, d.a_k, d.dtype_a),
            span(&d, d.b_batch, d.k, d.b_k, d.n, d.b_n, d.dtype_b),
            span(&d, d.c_batch, d.m, d.c_m, d.n, d.c_n, d.dtype_c)};
        snprintf(what, sizeof what, "dot %-4s %s", bf16 ? "bf16" : "f32",
                 name);
        dot_plan(&d, engine, &op);
        measure(what, &op, engine, bytes, flops);
    }
}

static DpcDot rows(int64_t m, int64_t n, int64_t k)
{
    return (DpcDot){.m = m, .n = n, .k = k, .a_m = k, .a_k = 1, .b_k = n,
                    .b_n = 1, .c_m = n, .c_n = 1};
}

static void dots(dnnl_engine_t engine)
{
    dot("1024^3", rows(1024, 1024, 1024), engine);
    dot("4096x128x128", rows(4096, 128, 128), engine);
    DpcDot d = rows(128, 128, 4096);
    d.a_m = 1, d.a_k = 128;
    dot("128x128x4096, a^T (dW)", d, engine);
    d = rows(4096, 128, 128), d.b_k = 1, d.b_n = 128;
    dot("4096x128x128, b^T (dX)", d, engine);
    d = (DpcDot){.m = 49, .n = 49, .k = 32, .nbatch = 2, .batch = {128, 4},
                 .a_m = 128, .a_k = 1, .a_batch = {6272, 32}, .b_k = 1,
                 .b_n = 128, .b_batch = {6272, 32}, .c_m = 49, .c_n = 1,
                 .c_batch = {9604, 2401}};
    dot("512 x (49x32x49), heads in place", d, engine);
    d.k = 49, d.n = 32, d.a_m = 49, d.b_k = 128, d.b_n = 1, d.c_m = 128;
    d.a_batch[0] = 9604, d.a_batch[1] = 2401;
    d.c_batch[0] = 6272, d.c_batch[1] = 32;
    dot("512 x (49x49x32), heads in place", d, engine);
    d = (DpcDot){.m = 64, .n = 64, .k = 32, .nbatch = 1, .batch = {512},
                 .a_m = 1, .a_k = 64, .a_batch = {2048}, .b_k = 64,
                 .b_n = 1, .b_batch = {2048}, .c_m = 64, .c_n = 1,
                 .c_batch = {4096}};
    dot("512 x (64x32x64), a^T (channels first)", d, engine);
    d = rows(1024, 64, 64), d.nbatch = 1, d.batch[0] = 64;
    d.a_batch[0] = d.c_batch[0] = 65536;
    dot("64 x (1024x64x64), one b: folds into m", d, engine);
    d = rows(64, 196, 64), d.nbatch = 1, d.batch[0] = 128;
    d.b_batch[0] = d.c_batch[0] = 12544;
    dot("128 x (64x64x196), one a (1x1 conv, nchw)", d, engine);
    d = rows(1, 256, 256), d.nbatch = 1, d.batch[0] = 128;
    d.a_batch[0] = d.c_batch[0] = 256;
    dot("128 x (1x256x256), one b: 128 rows", d, engine);
    dot("4096x1x512", rows(4096, 1, 512), engine);
    dot("1x4096x512", rows(1, 4096, 512), engine);
    d = rows(256, 256, 256), d.a_m = 512, d.a_k = 2;
    dot("256^3, a of stride 2: copied", d, engine);
    d = rows(256, 256, 256), d.c_m = 1, d.c_n = 256;
    dot("256^3, c^T", d, engine);
}

/* One conv in every kind, order, packing and dtype. */
static void conv(DpcConv c, dnnl_engine_t engine)
{
    static const char *const kind[] = {"fwd", "dx", "dw"};
    double flops = 2. * (double)(c.batch * c.o * c.oh * c.ow) *
                   (double)(c.c / c.groups * c.kh * c.kw);
    int64_t all = most(c.batch * c.c * c.h * c.w,
                       c.batch * c.o * c.oh * c.ow);
    all = 4 * most(all, 2 * c.o * c.c * c.kh * c.kw + 4096);
    for (int i = 0; i < 2 * 3 * 2 * 2; i++) {
        char what[80];
        Op op;
        bool bf16 = i / 12;
        c.kind = (uint8_t)(i / 4 % 3), c.nhwc = i / 2 % 2, c.packed = i % 2;
        c.dtype_x = c.dtype_w = c.dtype_y = bf16 ? DPC_BF16 : DPC_F32;
        if (c.kind == DPC_CONV_DW)
            c.dtype_w = DPC_F32;
        c.dtype_plain = c.dtype_w;
        snprintf(what, sizeof what, "conv %-4s %-3s %s %s %dx%dx%d->%d k%d s%d",
                 bf16 ? "bf16" : "f32", kind[c.kind],
                 c.nhwc ? "nhwc" : "nchw", c.packed ? "packed" : "rows  ",
                 (int)c.c, (int)c.h, (int)c.w, (int)c.o, (int)c.kh,
                 (int)c.stride[0]);
        int64_t bytes[3] = {all, all, all};
        bytes[c.kind == DPC_CONV_DW ? 2 : 1] =
            most(all, dpc_conv_pack_bytes(&c));
        conv_plan(&c, engine, &op);
        measure(what, &op, engine, bytes, flops);
    }
}

static DpcConv shape(int64_t batch, int64_t in, int64_t h, int64_t out,
                     int64_t k, int64_t stride, int64_t pad)
{
    int64_t oh = (h + 2 * pad - k) / stride + 1;
    return (DpcConv){.batch = batch, .c = in, .h = h, .w = h, .o = out,
                     .kh = k, .kw = k, .oh = oh, .ow = oh, .groups = 1,
                     .stride = {stride, stride}, .pad = {pad, pad},
                     .dilate = {1, 1}};
}

int main(void)
{
    dnnl_engine_t engine;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0))
        return 5;
    printf("oneDNN %d.%d.%d\n", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
           DNNL_VERSION_PATCH);
    dots(engine);
    conv(shape(128, 32, 28, 32, 3, 1, 1), engine);
    conv(shape(128, 64, 14, 64, 3, 1, 1), engine);
    conv(shape(64, 128, 14, 128, 3, 1, 1), engine);
    conv(shape(128, 3, 28, 32, 3, 1, 1), engine);
    conv(shape(128, 32, 28, 3, 3, 1, 1), engine);
    conv(shape(128, 1, 28, 32, 3, 1, 1), engine);
    conv(shape(128, 32, 28, 64, 4, 2, 1), engine);
    conv(shape(128, 64, 14, 128, 1, 1, 0), engine);
    conv(shape(128, 64, 7, 64, 3, 1, 1), engine);
    dnnl_engine_destroy(engine);
    return 0;
}
