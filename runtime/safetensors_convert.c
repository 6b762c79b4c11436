/* safetensors_convert.c -- elements of one float type as another.
 *
 * Rounded once, to nearest, ties to even.  From double to a narrow type that
 * takes two steps, and the first one rounds to odd: what it cuts off stays
 * visible in the last bit, so that the second cannot mistake it for a tie
 * (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). */
#include "runtime/safetensors.h"

#include <string.h>

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31;
    uint32_t m = h & 0x3ff;
    if (e == 31)
        return of_bits(sign | 0x7f800000 | m << 13);
    if (e)
        return of_bits(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}

/* A NaN stays one. */
static uint16_t to_bf16(float f)
{
    uint32_t bits = bits_of(f);
    if (f != f)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_half(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (bits < 113u << 23)                /* below the least normal: the unit
                                             of 0.5f is 2^-24 */
        return (uint16_t)(sign | (bits_of(of_bits(bits) + 0.5f) & 0x7ff));
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits < 143u << 23 ? (bits >> 13) - (112 << 10)
                              : 0x7c00));
}

/* Towards zero, the last bit set where anything was cut off. */
static float to_odd(double d)
{
    float f = (float)d;
    if ((double)f == d || d != d)
        return f;
    bool beyond = f > 0 ? (double)f > d : (double)f < d;
    return of_bits((bits_of(f) - beyond) | 1);
}

static double element(DpcSafeKind kind, const char *p)
{
    uint16_t h;
    float f;
    double d;
    switch (kind) {
    case DPC_SAFE_F16:
        memcpy(&h, p, 2);
        return of_half(h);
    case DPC_SAFE_BF16:
        memcpy(&h, p, 2);
        return of_bits((uint32_t)h << 16);
    case DPC_SAFE_F64:
        memcpy(&d, p, 8);
        return d;
    default:
        memcpy(&f, p, 4);
        return f;
    }
}

static void element_put(DpcSafeKind kind, char *p, double d)
{
    float f = (float)d;
    uint16_t h;
    switch (kind) {
    case DPC_SAFE_F16:
        h = to_half(to_odd(d));
        memcpy(p, &h, 2);
        break;
    case DPC_SAFE_BF16:
        h = to_bf16(to_odd(d));
        memcpy(p, &h, 2);
        break;
    case DPC_SAFE_F64:
        memcpy(p, &d, 8);
        break;
    default:
        memcpy(p, &f, 4);
    }
}

/* The two that large models are made of, as loops that vectorize. */
static void bf16_to_f32(const uint16_t *from, uint32_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint32_t)from[i] << 16;
}

static void f32_to_bf16(const float *from, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = to_bf16(from[i]);
}

static bool is_float(DpcSafeKind k)
{
    return k == DPC_SAFE_F16 || k == DPC_SAFE_BF16 || k == DPC_SAFE_F32 ||
           k == DPC_SAFE_F64;
}

bool dpc_safe_converts(DpcSafeKind kind, DpcSafeKind to)
{
    return kind == to ? dpc_safe_bits(kind) >= 8
                      : is_float(kind) && is_float(to);
}

bool dpc_safe_convert(DpcSafeKind kind, const void *from, DpcSafeKind to,
                      void *out, int64_t n)
{
    if (!dpc_safe_converts(kind, to))
        return false;
    int step = dpc_safe_bits(kind) / 8, stride = dpc_safe_bits(to) / 8;
    if (kind == to)
        memcpy(out, from, (size_t)(n * step));
    else if (kind == DPC_SAFE_BF16 && to == DPC_SAFE_F32)
        bf16_to_f32(from, out, n);
    else if (kind == DPC_SAFE_F32 && to == DPC_SAFE_BF16)
        f32_to_bf16(from, out, n);
    else
        for (int64_t i = 0; i < n; i++)
            element_put(to, (char *)out + i * stride,
                        element(kind, (const char *)from + i * step));
    return true;
}
