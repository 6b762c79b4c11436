/* field.h -- integers modulo the prime 2^61 - 1.
 *
 * Sums and products are exact and may be re-associated without a trace.
 * 2^61 is 1 here, so a product is reduced by adding its high bits to its low
 * ones, and a power of two, hence every finite double, has an exact image.
 * Values are canonical: below FIELD_P. */
#ifndef DPC_FIELD_H
#define DPC_FIELD_H

#include <stdint.h>

#define FIELD_P ((UINT64_C(1) << 61) - 1)

static inline uint64_t field_add(uint64_t a, uint64_t b)
{
    uint64_t s = a + b;
    return s >= FIELD_P ? s - FIELD_P : s;
}

static inline uint64_t field_sub(uint64_t a, uint64_t b)
{
    return a >= b ? a - b : a + FIELD_P - b;
}

static inline uint64_t field_neg(uint64_t a) { return a ? FIELD_P - a : 0; }

/* Any 64 bits to their canonical residue. */
static inline uint64_t field_mod(uint64_t a)
{
    uint64_t s = (a & FIELD_P) + (a >> 61);
    return s >= FIELD_P ? s - FIELD_P : s;
}

static inline uint64_t field_mul(uint64_t a, uint64_t b)
{
    unsigned __int128 w = (unsigned __int128)a * b;
    uint64_t s = ((uint64_t)w & FIELD_P) + (uint64_t)(w >> 61);
    return s >= FIELD_P ? s - FIELD_P : s;
}

/* The finalizer of MurmurHash3: every bit of the input moves every bit. */
static inline uint64_t field_mix(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

/* A keyed hash of x, 64 bits: field_mod makes it a field value.  Chained for
 * functions of several operands: the result is the next key. */
static inline uint64_t field_hash(uint64_t key, uint64_t x)
{
    return field_mix(key ^ (x + UINT64_C(0x9e3779b97f4a7c15)) *
                     UINT64_C(0xbf58476d1ce4e5b9));
}

uint64_t field_key(const char *name);     /* key of the function so named */
uint64_t field_inv(uint64_t);             /* of 0: 0 */
/* Exactly the double, a dyadic rational; hashes for infinities and NaN. */
uint64_t field_of(double);

/* The larger by an order of its own, in which zero is the least: of numbers
 * that were not computed alike either may win, so that neither hides. */
static inline uint64_t field_max(uint64_t a, uint64_t b)
{
    uint64_t x = a ? field_hash(1, a) | 1 : 0, y = b ? field_hash(1, b) | 1 : 0;
    return x != y ? (x > y ? a : b) : a > b ? a : b;
}

#endif
