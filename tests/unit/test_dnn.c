/* test_dnn.c -- oneDNN's dots equal naive loops; what is refused; memory.
 *
 * Scratch starts as NaN; what lies between the strides of a result must come
 * back untouched. */
#include "tests/unit/dnn_help.h"

#include <malloc.h>
#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

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
    for (int i = 0; i < (has_bf16() ? 5 : 2); i++) {
        d.dtype_a = d.dtype_b = way[i].in, d.dtype_c = way[i].out;
        d.accumulate = way[i].add;
        dot_check(&d);
    }
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
        cmocka_unit_test(impossible_rows_are_refused),
        cmocka_unit_test(a_plan_with_too_little_scratch_does_not_open),
        cmocka_unit_test(running_keeps_no_memory_and_takes_none_for_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
