/* test_dnn.c -- oneDNN's dots and convs equal naive loops.
 *
 * Every buffer lies between canaries and holds exactly the bytes that were
 * promised; scratch starts as NaN; what lies between the strides of a result
 * must come back untouched.  The tolerance is the bound of the sum itself:
 * eps times its length times the sum of |products|, plus one rounding. */
#include "runtime/dpc_rt.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { GUARD = 256, CANARY = 0xa5 };

/* ---- numbers ---- */

static uint64_t state = 1;

static uint32_t rnd(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static double get(const void *p, int64_t i, DpcDtype t)
{
    uint16_t h;
    uint32_t u;
    float f;
    if (t == DPC_F32) {
        memcpy(&f, (const char *)p + 4 * i, 4);
        return f;
    }
    memcpy(&h, (const char *)p + 2 * i, 2);
    u = (uint32_t)h << 16;
    memcpy(&f, &u, 4);
    return f;
}

/* Values that bf16 holds exactly: k / 64, |k| < 128. */
static void put_random(void *p, int64_t i, DpcDtype t)
{
    float f = ((int)rnd(255) - 127) / 64.f;
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t h = (uint16_t)(u >> 16);
    if (t == DPC_F32)
        memcpy((char *)p + 4 * i, &f, 4);
    else
        memcpy((char *)p + 2 * i, &h, 2);
}

/* `sum` of `n` products whose absolute values add up to `weight`. */
static double bound(double sum, double weight, int64_t n, DpcDtype t)
{
    return 0x1p-23 * (double)(n + 1) * weight +
           (t == DPC_BF16 ? 0x1p-8 * fabs(sum) : 0);
}

/* ---- buffers ---- */

typedef struct Mem { unsigned char *at; int64_t bytes; } Mem;

static Mem mem_new(int64_t bytes, int fill)
{
    int64_t all = (bytes + 2 * GUARD + 63) / 64 * 64;
    unsigned char *p = aligned_alloc(64, (size_t)all);
    assert_non_null(p);
    memset(p, CANARY, (size_t)all);
    memset(p + GUARD, fill, (size_t)bytes);
    return (Mem){p + GUARD, bytes};
}

static void mem_free(Mem m)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(m.at[-1 - i], CANARY);
        assert_int_equal(m.at[m.bytes + i], CANARY);
    }
    free(m.at - GUARD);
}

static Mem mem_random(int64_t n, DpcDtype t)
{
    Mem m = mem_new(n * dpc_dtype_size(t), 0);
    for (int64_t i = 0; i < n; i++)
        put_random(m.at, i, t);
    return m;
}

/* ---- dot ---- */

/* Index of a batch entry, as a sum of strides. */
static int64_t offset(int64_t at, int n, const int64_t *dim,
                      const int64_t *stride)
{
    int64_t sum = 0;
    for (int i = n - 1; i >= 0; at /= dim[i], i--)
        sum += at % dim[i] * stride[i];
    return sum;
}

static int64_t span(const DpcDot *d, const int64_t *stride, int64_t r,
                    int64_t rs, int64_t c, int64_t cs)
{
    int64_t n = 1 + (r - 1) * rs + (c - 1) * cs;
    for (int i = 0; i < d->nbatch; i++)
        n += (d->batch[i] - 1) * stride[i];
    return n;
}

static int64_t batches(const DpcDot *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->nbatch; i++)
        n *= d->batch[i];
    return n;
}

/* Compare c with loops, and every byte between its strides with before. */
static void dot_compare(const DpcDot *d, const void *a, const void *b,
                        const void *c, void *before, int64_t nc)
{
    char *seen = calloc((size_t)nc, 1);
    int64_t size = dpc_dtype_size(d->dtype_c);
    for (int64_t i = 0; i < batches(d); i++)
        for (int64_t m = 0; m < d->m; m++)
            for (int64_t n = 0; n < d->n; n++) {
                int64_t at = offset(i, d->nbatch, d->batch, d->c_batch) +
                             m * d->c_m + n * d->c_n;
                int64_t pa = offset(i, d->nbatch, d->batch, d->a_batch);
                int64_t pb = offset(i, d->nbatch, d->batch, d->b_batch);
                double sum = d->accumulate ? get(before, at, DPC_F32) : 0;
                double weight = fabs(sum);
                for (int64_t k = 0; k < d->k; k++) {
                    double x = get(a, pa + m * d->a_m + k * d->a_k,
                                   d->dtype_a) *
                               get(b, pb + k * d->b_k + n * d->b_n,
                                   d->dtype_b);
                    sum += x, weight += fabs(x);
                }
                double got = get(c, at, d->dtype_c);
                if (!(fabs(got - sum) <=
                      bound(sum, weight, d->k, d->dtype_c)))
                    fail_msg("%g is not %g", got, sum);
                seen[at] = 1;
            }
    for (int64_t i = 0; i < nc; i++)
        if (!seen[i])
            assert_memory_equal((const char *)c + i * size,
                                (char *)before + i * size, (size_t)size);
    free(seen);
}

static void show_dot(const DpcDot *d)
{
    printf("dot %d %d %d acc %d  m %d n %d k %d  a %d %d b %d %d c %d %d\n",
           d->dtype_a, d->dtype_b, d->dtype_c, d->accumulate, (int)d->m,
           (int)d->n, (int)d->k, (int)d->a_m, (int)d->a_k, (int)d->b_k,
           (int)d->b_n, (int)d->c_m, (int)d->c_n);
    for (int i = 0; i < d->nbatch; i++)
        printf("  batch %d: a %d b %d c %d\n", (int)d->batch[i],
               (int)d->a_batch[i], (int)d->b_batch[i], (int)d->c_batch[i]);
}

static void dot_check(const DpcDot *d)
{
    int64_t nc = span(d, d->c_batch, d->m, d->c_m, d->n, d->c_n);
    int64_t size = dpc_dtype_size(d->dtype_c);
    Mem a = mem_random(span(d, d->a_batch, d->m, d->a_m, d->k, d->a_k),
                       d->dtype_a);
    Mem b = mem_random(span(d, d->b_batch, d->k, d->b_k, d->n, d->b_n),
                       d->dtype_b);
    Mem c = mem_random(nc, d->dtype_c), before = mem_new(nc * size, 0);
    memcpy(before.at, c.at, (size_t)(nc * size));
    int64_t bytes = dpc_dot_scratch(d);
    if (bytes < 0)
        show_dot(d);
    assert_true(bytes >= 0);
    Mem scratch = mem_new(bytes, 0xff);
    DpcUnit u = {.model = "test", .ndot = 1, .dot = d};
    DpcDnn *dnn;
    if (dpc_dnn_open(&u, &dnn))
        fail_msg("%s", dpc_last_error());
    if (dpc_dnn_dot(dnn, 0, a.at, b.at, c.at, scratch.at))
        fail_msg("%s", dpc_last_error());
    dpc_dnn_close(dnn);
    dot_compare(d, a.at, b.at, c.at, before.at, nc);
    mem_free(a), mem_free(b), mem_free(c), mem_free(before);
    mem_free(scratch);
}

/* Every legal choice of dtypes and of accumulation. */
static void dot_all(DpcDot d)
{
    static const struct { uint8_t in, out; bool add; } way[] = {
        {DPC_F32, DPC_F32, false}, {DPC_F32, DPC_F32, true},
        {DPC_BF16, DPC_BF16, false}, {DPC_BF16, DPC_F32, false},
        {DPC_BF16, DPC_F32, true}};
    for (int i = 0; i < 5; i++) {
        d.dtype_a = d.dtype_b = way[i].in, d.dtype_c = way[i].out;
        d.accumulate = way[i].add;
        dot_check(&d);
    }
}

static DpcDot rows(int64_t m, int64_t n, int64_t k)
{
    return (DpcDot){.m = m, .n = n, .k = k, .a_m = k, .a_k = 1, .b_k = n,
                    .b_n = 1, .c_m = n, .c_n = 1};
}

static void dot_of_any_size_equals_loops(void **unused)
{
    (void)unused;
    static const int64_t size[] = {1, 3, 7, 33, 64};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            for (int k = 0; k < 5; k++)
                dot_all(rows(size[i], size[j], size[k]));
}

static void dot_of_transposes_equals_loops(void **unused)
{
    (void)unused;
    for (int t = 1; t < 8; t++) {
        DpcDot d = rows(17, 40, 23);
        if (t & 1)
            d.a_m = 1, d.a_k = d.m;
        if (t & 2)
            d.b_k = 1, d.b_n = d.k;
        if (t & 4)
            d.c_m = 1, d.c_n = d.m;
        dot_all(d);
    }
}

/* [batch, row, head, d] operands of attention, read in place. */
static void dot_over_heads_in_place_equals_loops(void **unused)
{
    (void)unused;
    int64_t b = 3, h = 4, s = 49, e = 32;
    DpcDot qk = {.m = s, .n = s, .k = e, .nbatch = 2, .batch = {b, h},
                 .a_m = h * e, .a_k = 1, .a_batch = {s * h * e, e},
                 .b_k = 1, .b_n = h * e, .b_batch = {s * h * e, e},
                 .c_m = s, .c_n = 1, .c_batch = {h * s * s, s * s}};
    DpcDot pv = {.m = s, .n = e, .k = s, .nbatch = 2, .batch = {b, h},
                 .a_m = s, .a_k = 1, .a_batch = {h * s * s, s * s},
                 .b_k = h * e, .b_n = 1, .b_batch = {s * h * e, e},
                 .c_m = h * e, .c_n = 1, .c_batch = {s * h * e, e}};
    dot_all(qk);
    dot_all(pv);
}

/* Strides of a tensor with these dimensions in random order, with gaps. */
static void any_order(int n, const int64_t *dim, int64_t **stride)
{
    int order[DPC_NBATCH + 2];
    for (int i = 0; i < n; i++) {
        int j = (int)rnd((uint32_t)i + 1);
        order[i] = order[j], order[j] = i;
    }
    int64_t all = rnd(6) ? 1 : 2;
    for (int i = 0; i < n; i++) {
        *stride[order[i]] = all;
        all = all * dim[order[i]] + (rnd(5) ? 0 : 3);
    }
}

static DpcDot dot_random(void)
{
    static const int64_t size[] = {1, 2, 3, 5, 7, 16, 19};
    DpcDot d = {.nbatch = (uint8_t)rnd(4)};
    int n = d.nbatch;
    int64_t dim[DPC_NBATCH + 2], *stride[DPC_NBATCH + 2];
    for (int i = 0; i < n; i++)
        dim[i] = d.batch[i] = size[rnd(5)];
    d.m = size[rnd(7)], d.n = size[rnd(7)], d.k = size[rnd(7)];
    int64_t *at[3][2] = {{&d.a_m, &d.a_k}, {&d.b_k, &d.b_n},
                         {&d.c_m, &d.c_n}};
    int64_t extent[3][2] = {{d.m, d.k}, {d.k, d.n}, {d.m, d.n}};
    int64_t *batch[3] = {d.a_batch, d.b_batch, d.c_batch};
    for (int o = 0; o < 3; o++) {
        for (int i = 0; i < n; i++)
            stride[i] = &batch[o][i];
        for (int i = 0; i < 2; i++)
            stride[n + i] = at[o][i], dim[n + i] = extent[o][i];
        any_order(n + 2, dim, stride);
    }
    for (int i = 0; i < n; i++)
        if (!rnd(4))
            batch[rnd(2)][i] = 0;
    return d;
}

static void dot_of_any_strides_equals_loops(void **unused)
{
    (void)unused;
    for (int i = 0; i < 300; i++) {
        DpcDot d = dot_random();
        dot_all(d);
    }
}

static void dot_broadcasts_a_row_and_a_batch_of_both(void **unused)
{
    (void)unused;
    DpcDot d = rows(5, 8, 6);
    d.a_m = 0;
    dot_all(d);
    d = rows(5, 8, 6);
    d.a_k = d.b_k = 0;
    dot_all(d);
    d = rows(5, 8, 6);
    d.nbatch = 1, d.batch[0] = 3, d.c_batch[0] = 40;
    dot_all(d);
}

/* ---- conv ---- */

typedef struct Shape { int64_t x, w, y; } Shape;

static Shape shape(const DpcConv *c)
{
    return (Shape){c->batch * c->c * c->h * c->w,
                   c->o * (c->c / c->groups) * c->kh * c->kw,
                   c->batch * c->o * c->oh * c->ow};
}

static int64_t at4(bool nhwc, int64_t n, int64_t c, int64_t h, int64_t w,
                   int64_t nc, int64_t nh, int64_t nw)
{
    return nhwc ? ((n * nh + h) * nw + w) * nc + c
                : ((n * nc + c) * nh + h) * nw + w;
}

/* sum[], weight[], count[] of the result, from the one triple product that
 * all three convolutions share. */
static void conv_loops(const DpcConv *c, const void *x, const void *w,
                       const void *y, double *sum, double *weight,
                       int64_t *count)
{
    int64_t cg = c->c / c->groups, og = c->o / c->groups;
    int64_t loop[] = {c->batch, c->o, cg, c->oh, c->ow, c->kh, c->kw};
    int64_t all = 1, i[7];
    for (int k = 0; k < 7; k++)
        all *= loop[k];
    for (int64_t at = 0; at < all; at++) {
        int64_t rest = at;
        for (int k = 6; k >= 0; k--)
            i[k] = rest % loop[k], rest /= loop[k];
        int64_t h = i[3] * c->stride[0] + i[5] * c->dilate[0] - c->pad[0];
        int64_t v = i[4] * c->stride[1] + i[6] * c->dilate[1] - c->pad[1];
        if (h < 0 || h >= c->h || v < 0 || v >= c->w)
            continue;
        int64_t px = at4(c->nhwc, i[0], i[1] / og * cg + i[2], h, v, c->c,
                         c->h, c->w);
        int64_t pw = ((i[1] * cg + i[2]) * c->kh + i[5]) * c->kw + i[6];
        int64_t py = at4(c->nhwc, i[0], i[1], i[3], i[4], c->o, c->oh,
                         c->ow);
        double p = (c->kind == DPC_CONV_DX ? 1 : get(x, px, c->dtype_x)) *
                   (c->kind == DPC_CONV_DW ? 1 : get(w, pw, c->dtype_w)) *
                   (c->kind == DPC_CONV ? 1 : get(y, py, c->dtype_y));
        int64_t o = c->kind == DPC_CONV      ? py
                    : c->kind == DPC_CONV_DX ? px
                                             : pw;
        sum[o] += p, weight[o] += fabs(p), count[o]++;
    }
}

static void show_conv(const DpcConv *c)
{
    printf("conv %d  %d %d %d nhwc %d packed %d  %dx%dx%dx%d -> %dx%dx%d  "
           "k %d %d g %d s %d %d p %d %d d %d %d\n", c->kind, c->dtype_x,
           c->dtype_w, c->dtype_y, c->nhwc, c->packed, (int)c->batch,
           (int)c->c, (int)c->h, (int)c->w, (int)c->o, (int)c->oh,
           (int)c->ow, (int)c->kh, (int)c->kw, (int)c->groups,
           (int)c->stride[0], (int)c->stride[1], (int)c->pad[0],
           (int)c->pad[1], (int)c->dilate[0], (int)c->dilate[1]);
}

static void conv_compare(const DpcConv *c, const Mem m[3], int out,
                         const void *got)
{
    Shape s = shape(c);
    int64_t n = out == 0 ? s.x : out == 1 ? s.w : s.y;
    DpcDtype t = out == 0 ? c->dtype_x : out == 1 ? c->dtype_w : c->dtype_y;
    double *sum = calloc((size_t)n, sizeof *sum);
    double *weight = calloc((size_t)n, sizeof *weight);
    int64_t *count = calloc((size_t)n, sizeof *count);
    conv_loops(c, m[0].at, m[1].at, m[2].at, sum, weight, count);
    for (int64_t i = 0; i < n; i++) {
        double v = get(got, i, t);
        if (!(fabs(v - sum[i]) <= bound(sum[i], weight[i], count[i], t))) {
            show_conv(c);
            fail_msg("at %d: %g is not %g", (int)i, v, sum[i]);
        }
    }
    free(sum), free(weight), free(count);
}

/* Run it with the weight packed before, or unpacked after, if so. */
static void conv_check(const DpcConv *c)
{
    Shape s = shape(c);
    Mem m[3] = {mem_random(s.x, c->dtype_x), mem_random(s.w, c->dtype_w),
                mem_random(s.y, c->dtype_y)};
    static const int order[3][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}};
    const int *o = order[c->kind];
    int64_t bytes = dpc_conv_scratch(c), pack = dpc_conv_pack_bytes(c);
    if (bytes < 0 || pack < 0)
        show_conv(c);
    assert_true(bytes >= 0 && pack > 0);
    Mem scratch = mem_new(bytes, 0xff), w = mem_new(pack, 0xff);
    memset(m[o[2]].at, 0xff, (size_t)m[o[2]].bytes);
    DpcUnit u = {.model = "test", .nconv = 1, .conv = c};
    DpcDnn *d;
    if (dpc_dnn_open(&u, &d))
        fail_msg("%s", dpc_last_error());
    void *p[3] = {m[0].at, c->packed ? w.at : m[1].at, m[2].at};
    if (c->packed && c->kind != DPC_CONV_DW)
        assert_int_equal(dpc_dnn_pack(d, 0, m[1].at, w.at), DPC_OK);
    if (dpc_dnn_conv(d, 0, p[o[0]], p[o[1]], p[o[2]], scratch.at))
        fail_msg("%s", dpc_last_error());
    if (c->packed && c->kind == DPC_CONV_DW)
        assert_int_equal(dpc_dnn_unpack(d, 0, w.at, m[1].at), DPC_OK);
    dpc_dnn_close(d);
    conv_compare(c, m, o[2], m[o[2]].at);
    for (int i = 0; i < 3; i++)
        mem_free(m[i]);
    mem_free(scratch), mem_free(w);
}

/* Every kind, order, packing and legal choice of dtypes. */
static void conv_all(DpcConv c)
{
    c.oh = (c.h + 2 * c.pad[0] - (c.kh - 1) * c.dilate[0] - 1) / c.stride[0];
    c.ow = (c.w + 2 * c.pad[1] - (c.kw - 1) * c.dilate[1] - 1) / c.stride[1];
    c.oh++, c.ow++;
    for (int i = 0; i < 3 * 2 * 2 * 3; i++) {
        c.kind = (uint8_t)(i % 3), c.nhwc = i / 3 % 2, c.packed = i / 6 % 2;
        uint8_t in = i / 12 ? DPC_BF16 : DPC_F32;
        uint8_t out = i / 12 == 1 ? DPC_BF16 : DPC_F32;
        c.dtype_x = c.kind == DPC_CONV_DX ? out : in;
        c.dtype_w = c.kind == DPC_CONV_DW ? out : in;
        c.dtype_y = c.kind == DPC_CONV ? out : in;
        conv_check(&c);
    }
}

static DpcConv conv(int64_t batch, int64_t in, int64_t h, int64_t out,
                    int64_t k, int64_t stride, int64_t pad)
{
    return (DpcConv){.batch = batch, .c = in, .h = h, .w = h, .o = out,
                     .kh = k, .kw = k, .groups = 1,
                     .stride = {stride, stride}, .pad = {pad, pad},
                     .dilate = {1, 1}};
}

static void conv_of_usual_shapes_equals_loops(void **unused)
{
    (void)unused;
    conv_all(conv(2, 16, 7, 32, 3, 1, 1));
    conv_all(conv(2, 3, 9, 16, 3, 1, 1));
    conv_all(conv(2, 16, 8, 3, 3, 1, 1));
    conv_all(conv(3, 16, 8, 32, 4, 2, 1));
    conv_all(conv(1, 3, 14, 16, 7, 2, 3));
    conv_all(conv(2, 32, 5, 16, 1, 1, 0));
}

static void conv_of_odd_shapes_equals_loops(void **unused)
{
    (void)unused;
    conv_all(conv(1, 1, 1, 1, 1, 1, 0));
    conv_all(conv(1, 1, 7, 1, 7, 1, 3));
    conv_all(conv(3, 7, 7, 5, 3, 2, 0));
    conv_all(conv(1, 3, 7, 7, 2, 2, 0));
    conv_all(conv(2, 5, 8, 3, 1, 3, 0));
}

static void conv_of_groups_equals_loops(void **unused)
{
    (void)unused;
    static const int64_t group[][3] = {
        {16, 16, 16}, {16, 32, 2}, {6, 9, 3}, {5, 5, 5}, {4, 8, 4}};
    for (int i = 0; i < 5; i++) {
        DpcConv c = conv(2, group[i][0], 7, group[i][1], 3, 1, 1);
        c.groups = group[i][2];
        conv_all(c);
    }
}

static void conv_of_dilated_and_oblong_windows_equals_loops(void **unused)
{
    (void)unused;
    DpcConv c = conv(2, 16, 11, 16, 3, 1, 2);
    c.dilate[0] = c.dilate[1] = 2;
    conv_all(c);
    c = (DpcConv){.batch = 2, .c = 6, .h = 9, .w = 5, .o = 16, .kh = 1,
                  .kw = 4, .groups = 1, .stride = {2, 1}, .pad = {0, 2},
                  .dilate = {1, 1}};
    conv_all(c);
}

static void conv_of_random_shapes_equals_loops(void **unused)
{
    (void)unused;
    static const int64_t kernel[] = {1, 3, 4, 7};
    for (int i = 0; i < 30; i++) {
        DpcConv c = {.batch = 1 + rnd(3), .groups = 1 + rnd(2)};
        c.c = c.groups * (1 + rnd(18)), c.o = c.groups * (1 + rnd(18));
        c.kh = kernel[rnd(4)], c.kw = kernel[rnd(4)];
        c.h = c.kh + rnd(6), c.w = c.kw + rnd(6);
        for (int k = 0; k < 2; k++) {
            c.stride[k] = 1 + rnd(2), c.dilate[k] = 1;
            c.pad[k] = rnd((uint32_t)(k ? c.kw : c.kh));
        }
        conv_all(c);
    }
}

/* ---- what is refused ---- */

static void impossible_rows_are_refused(void **unused)
{
    (void)unused;
    DpcDot d = rows(4, 4, 4);
    d.dtype_c = DPC_BF16, d.accumulate = true;
    assert_int_equal(dpc_dot_scratch(&d), -1);
    d = rows(4, 4, 4), d.dtype_a = DPC_I32;
    assert_int_equal(dpc_dot_scratch(&d), -1);
    d = rows(4, 0, 4);
    assert_int_equal(dpc_dot_scratch(&d), -1);
    DpcConv c = conv(1, 4, 8, 4, 3, 1, 1);
    c.oh = 5, c.ow = 8;
    assert_int_equal(dpc_conv_scratch(&c), -1);
    c.oh = 8, c.groups = 3;
    assert_int_equal(dpc_conv_pack_bytes(&c), -1);
    DpcUnit u = {.model = "test", .nconv = 1, .conv = &c};
    DpcDnn *dnn;
    assert_int_equal(dpc_dnn_open(&u, &dnn), DPC_ENV);
    assert_null(dnn);
    assert_non_null(strstr(dpc_last_error(), "conv 0: error: "));
}

static void a_plan_with_too_little_scratch_does_not_open(void **unused)
{
    (void)unused;
    DpcDot d = rows(256, 256, 256);
    d.a_k = 2, d.a_m = 512;
    int64_t need = dpc_dot_scratch(&d);
    assert_true(need > 0);
    DpcBuf buf[2] = {{.size = 1 << 30}, {.size = need - 1}};
    uint32_t arg[4] = {0, 0, 0, 1};
    DpcNode node = {"y", "dot", "net.lua:7"};
    DpcStep step = {.kind = DPC_STEP_DOT, .narg = 4};
    DpcProgram p = {.entry = "train", .nstep = 1, .nbuf = 2, .nnode = 1,
                    .step = &step, .buf = buf, .node = &node, .arg = arg};
    DpcUnit u = {.model = "test", .ndot = 1, .dot = &d, .nprogram = 1,
                 .program = &p};
    DpcDnn *dnn;
    assert_int_equal(dpc_dnn_open(&u, &dnn), DPC_ENV);
    assert_non_null(strstr(dpc_last_error(), "net.lua:7: error: \"y\""));
    buf[1].size++;
    assert_int_equal(dpc_dnn_open(&u, &dnn), DPC_OK);
    dpc_dnn_close(dnn);
}

/* ---- allocation ---- */

static atomic_long calls, most;

#ifndef SANITIZED
void *__libc_malloc(size_t);
void *malloc(size_t n)
{
    atomic_fetch_add(&calls, 1);
    long old = atomic_load(&most);
    while ((long)n > old &&
           !atomic_compare_exchange_weak(&most, &old, (long)n))
        continue;
    return __libc_malloc(n);
}
#endif

static void running_keeps_no_memory_and_takes_none_for_data(void **unused)
{
    (void)unused;
#ifdef SANITIZED
    skip();
#endif
    DpcDot d = rows(256, 256, 256);
    d.a_k = 2, d.a_m = 512;
    DpcConv c = conv(2, 32, 14, 32, 3, 1, 1);
    c.oh = c.ow = 14;
    DpcUnit u = {.model = "test", .nconv = 1, .conv = &c, .ndot = 1,
                 .dot = &d};
    DpcDnn *dnn;
    assert_int_equal(dpc_dnn_open(&u, &dnn), DPC_OK);
    Mem m = mem_new(1 << 20, 0), n = mem_new(1 << 20, 0);
    Mem o = mem_new(1 << 20, 0);
    Mem s = mem_new(dpc_dot_scratch(&d), 0), t = mem_new(dpc_conv_scratch(&c),
                                                         0);
    size_t before = 0;
    for (int i = 0; i < 12; i++) {
        if (i == 2) {
            before = mallinfo2().uordblks + mallinfo2().hblkhd;
            calls = most = 0;
        }
        dpc_dnn_dot(dnn, 0, m.at, n.at, o.at, s.at);
        dpc_dnn_conv(dnn, 0, m.at, n.at, o.at, t.at);
    }
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    print_message("10 runs: %ld calls of malloc, largest %ld bytes\n",
                  (long)calls, (long)most);
    assert_int_equal(after, before);
    assert_true(most <= 1024);
    dpc_dnn_close(dnn);
    mem_free(m), mem_free(n), mem_free(o), mem_free(s), mem_free(t);
}

static void errors_have_texts_and_exit_codes(void **unused)
{
    (void)unused;
    assert_int_equal(dpc_fail(DPC_USER, "a: error: %d", 7), DPC_USER);
    assert_string_equal(dpc_last_error(), "a: error: 7");
    dpc_fail(DPC_BUG, "b: %s", dpc_last_error());
    assert_string_equal(dpc_last_error(), "b: a: error: 7");
    assert_int_equal(dpc_exit_code(DPC_ENV), 5);
    assert_int_equal(dpc_exit_code(DPC_NUMERICS), 7);
    assert_int_equal(dpc_exit_code(DPC_BUG), 70);
    assert_int_equal(dpc_dtype_size(DPC_BF16), 2);
    assert_string_equal(dpc_dtype_name(DPC_U8), "u8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_texts_and_exit_codes),
        cmocka_unit_test(dot_of_any_size_equals_loops),
        cmocka_unit_test(dot_of_transposes_equals_loops),
        cmocka_unit_test(dot_over_heads_in_place_equals_loops),
        cmocka_unit_test(dot_of_any_strides_equals_loops),
        cmocka_unit_test(dot_broadcasts_a_row_and_a_batch_of_both),
        cmocka_unit_test(conv_of_usual_shapes_equals_loops),
        cmocka_unit_test(conv_of_odd_shapes_equals_loops),
        cmocka_unit_test(conv_of_groups_equals_loops),
        cmocka_unit_test(conv_of_dilated_and_oblong_windows_equals_loops),
        cmocka_unit_test(conv_of_random_shapes_equals_loops),
        cmocka_unit_test(impossible_rows_are_refused),
        cmocka_unit_test(a_plan_with_too_little_scratch_does_not_open),
        cmocka_unit_test(running_keeps_no_memory_and_takes_none_for_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
