/* dnn_help.h -- what the tests of oneDNN share: numbers, guarded buffers, rows.
 *
 * Every buffer lies between canaries and holds exactly the bytes that were
 * promised.  The tolerance is the bound of the sum itself: eps times its
 * length times the sum of |products|, plus one rounding to the result. */
#ifndef TESTS_DNN_HELP_H
#define TESTS_DNN_HELP_H

#include "runtime/dpc_rt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 256, CANARY = 0xa5 };

/* ---- numbers ---- */

static uint64_t state = 1;

static inline uint32_t rnd(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static inline double get(const void *p, int64_t i, DpcDtype t)
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
static inline void put_random(void *p, int64_t i, DpcDtype t)
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
static inline double bound(double sum, double weight, int64_t n, DpcDtype t)
{
    return 0x1p-23 * (double)(n + 1) * weight +
           (t == DPC_BF16 ? 0x1p-8 * fabs(sum) : 0);
}

/* ---- buffers ---- */

typedef struct Mem { unsigned char *at; int64_t bytes; } Mem;

static inline Mem mem_new(int64_t bytes, int fill)
{
    int64_t all = (bytes + 2 * GUARD + 63) / 64 * 64;
    unsigned char *p = aligned_alloc(64, (size_t)all);
    assert_non_null(p);
    memset(p, CANARY, (size_t)all);
    memset(p + GUARD, fill, (size_t)bytes);
    return (Mem){p + GUARD, bytes};
}

static inline void mem_free(Mem m)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(m.at[-1 - i], CANARY);
        assert_int_equal(m.at[m.bytes + i], CANARY);
    }
    free(m.at - GUARD);
}

static inline Mem mem_random(int64_t n, DpcDtype t)
{
    Mem m = mem_new(n * dpc_dtype_size(t), 0);
    for (int64_t i = 0; i < n; i++)
        put_random(m.at, i, t);
    return m;
}

/* ---- rows ---- */

static inline DpcDot rows(int64_t m, int64_t n, int64_t k)
{
    return (DpcDot){.m = m, .n = n, .k = k, .a_m = k, .a_k = 1, .b_k = n,
                    .b_n = 1, .c_m = n, .c_n = 1};
}

/* Before AVX-512 oneDNN has no bf16; then only f32 can be tested. */
static inline bool has_bf16(void)
{
    static int has = -1;
    if (has < 0) {
        DpcDot d = rows(16, 16, 16);
        d.dtype_a = d.dtype_b = d.dtype_c = DPC_BF16;
        has = dpc_dot_scratch(&d) >= 0;
        if (!has)
            print_message("this processor has no bf16: f32 only\n");
    }
    return has;
}

static inline DpcConv conv(int64_t batch, int64_t in, int64_t h, int64_t out,
                    int64_t k, int64_t stride, int64_t pad)
{
    return (DpcConv){.batch = batch, .c = in, .h = h, .w = h, .o = out,
                     .kh = k, .kw = k, .groups = 1,
                     .stride = {stride, stride}, .pad = {pad, pad},
                     .dilate = {1, 1}};
}

#endif
