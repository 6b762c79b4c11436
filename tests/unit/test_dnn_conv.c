/* test_dnn_conv.c -- oneDNN's convolutions equal one naive loop nest.
 *
 * All kinds, orders, packings and dtypes of each shape; scratch and results
 * start as NaN. */
#include "tests/unit/dnn_help.h"

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

/* A packed weight is finite also where it is padded: sums of packed
 * gradients and searches for NaN go over all its bytes. */
static void numbers_only(const DpcConv *c, Mem packed)
{
    DpcDtype t = (DpcDtype)c->dtype_w;
    for (int64_t i = 0; i < packed.bytes / dpc_dtype_size(t); i++)
        if (!isfinite(get(packed.at, i, t))) {
            show_conv(c);
            fail_msg("packed value %d is %g", (int)i, get(packed.at, i, t));
        }
}

/* A pack of f32 values that bf16 holds is the pack of those. */
static void rounds_as_it_packs(DpcConv c, Mem plain, Mem packed)
{
    int64_t n = plain.bytes / 2;
    Mem wide = mem_new(4 * n, 0), w = mem_new(packed.bytes, 0xff);
    DpcUnit u = {.model = "test", .nconv = 1, .conv = &c};
    DpcDnn *d;
    for (int64_t i = 0; i < n; i++)
        ((float *)wide.at)[i] = (float)get(plain.at, i, DPC_BF16);
    c.dtype_plain = DPC_F32;
    assert_int_equal(dpc_dnn_open(&u, &d), DPC_OK);
    assert_int_equal(dpc_dnn_pack(d, 0, wide.at, w.at), DPC_OK);
    assert_memory_equal(w.at, packed.at, (size_t)w.bytes);
    dpc_dnn_close(d);
    mem_free(wide), mem_free(w);
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
    if (c->packed)
        numbers_only(c, w);
    if (c->packed && c->kind != DPC_CONV_DW && c->dtype_w == DPC_BF16)
        rounds_as_it_packs(*c, m[1], w);
    dpc_dnn_close(d);
    conv_compare(c, m, o[2], m[o[2]].at);
    for (int i = 0; i < 3; i++)
        mem_free(m[i]);
    mem_free(scratch), mem_free(w);
}

/* Each so-many'th kind, order, packing and legal choice of dtypes. */
static void conv_some(DpcConv c, int from, int by)
{
    c.oh = (c.h + 2 * c.pad[0] - (c.kh - 1) * c.dilate[0] - 1) / c.stride[0];
    c.ow = (c.w + 2 * c.pad[1] - (c.kw - 1) * c.dilate[1] - 1) / c.stride[1];
    c.oh++, c.ow++;
    for (int i = from; i < 3 * 2 * 2 * (has_bf16() ? 3 : 1); i += by) {
        c.kind = (uint8_t)(i % 3), c.nhwc = i / 3 % 2, c.packed = i / 6 % 2;
        uint8_t in = i / 12 ? DPC_BF16 : DPC_F32;
        uint8_t out = i / 12 == 1 ? DPC_BF16 : DPC_F32;
        c.dtype_x = c.kind == DPC_CONV_DX ? out : in;
        c.dtype_w = c.kind == DPC_CONV_DW ? out : in;
        c.dtype_y = c.kind == DPC_CONV ? out : in;
        c.dtype_plain = c.dtype_w;
        conv_check(&c);
    }
}

static void conv_all(DpcConv c)
{
    conv_some(c, 0, 1);
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

/* Five shapes in turn have all kinds, orders and dtypes. */
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
        conv_some(c, i % 5, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_of_usual_shapes_equals_loops),
        cmocka_unit_test(conv_of_odd_shapes_equals_loops),
        cmocka_unit_test(conv_of_groups_equals_loops),
        cmocka_unit_test(conv_of_dilated_and_oblong_windows_equals_loops),
        cmocka_unit_test(conv_of_random_shapes_equals_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
