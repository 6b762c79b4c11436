/* fold.h -- folding of vectors in f32, shared by the transports. */
#ifndef DPC_FOLD_H
#define DPC_FOLD_H

#include "runtime/dpc_rt.h"

#include <math.h>
#include <string.h>

/* At -O2 gcc vectorises next to nothing. */
#if defined(__GNUC__) && !defined(__clang__)
#define DPC_VECTOR __attribute__((optimize("O3")))
#else
#define DPC_VECTOR
#endif

static inline float dpc_bf16_load(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds to nearest even; a NaN stays one. */
static inline uint16_t dpc_bf16_round(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t near = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : near);
}

static inline float dpc_fold1(int fold, float a, float b)
{
    if (fold == DPC_SUM)
        return a + b;
    if (fold == DPC_MAX)                  /* a NaN wins, so that it is seen */
        return a > b || a != a ? a : b;
    float big = a > b ? a : b, small = a > b ? b : a;
    return isinf(big) ? big : big + log1pf(expf(small - big));
}

/* to = from, n elements of dtype f32 or bf16. */
DPC_VECTOR static inline void dpc_fold_load(int dtype, float *to,
                                            const void *from, int64_t n)
{
    const uint16_t *h = from;
    if (dtype == DPC_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = dpc_bf16_load(h[i]);
}

DPC_VECTOR static inline void dpc_fold_store(int dtype, void *to,
                                             const float *from, int64_t n)
{
    uint16_t *h = to;
    if (dtype == DPC_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++)
            h[i] = dpc_bf16_round(from[i]);
}

/* to = fold(to, from); from of dtype f32 or bf16.  Sums have loops of their
 * own: they are nearly all there is. */
DPC_VECTOR static inline void dpc_fold_add(int dtype, int fold, float *to,
                                           const void *from, int64_t n)
{
    const float *f = from;
    const uint16_t *h = from;
    if (dtype == DPC_F32 && fold == DPC_SUM)
        for (int64_t i = 0; i < n; i++)
            to[i] += f[i];
    else if (fold == DPC_SUM)
        for (int64_t i = 0; i < n; i++)
            to[i] += dpc_bf16_load(h[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = dpc_fold1(fold, to[i], dtype == DPC_F32
                                               ? f[i] : dpc_bf16_load(h[i]));
}

static inline void dpc_fold_i32(int fold, int32_t *to, const int32_t *from,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = fold == DPC_SUM ? (int32_t)((uint32_t)to[i] +
                                            (uint32_t)from[i])
                                : to[i] > from[i] ? to[i] : from[i];
}

#endif
