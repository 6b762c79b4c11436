/* field.c -- what of field.h is not worth a place in a header. */
#include "ir/field.h"

#include <string.h>

uint64_t field_key(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);        /* FNV-1a, then mixed */

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return field_mix(h);
}

/* a^(p-2) by Fermat: p - 2 = 2^61 - 3 is sixty ones but for bit 1. */
uint64_t field_inv(uint64_t a)
{
    uint64_t y = 1, e = FIELD_P - 2;

    for (; e; e >>= 1, a = field_mul(a, a))
        if (e & 1)
            y = field_mul(y, a);
    return y;
}

/* A double is m 2^e with m below 2^53; a product with a power of two turns the
 * 61 bits. */
uint64_t field_of(double x)
{
    uint64_t bits, implicit = UINT64_C(1) << 52;

    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52 & 2047);
    uint64_t m = bits & (implicit - 1);
    if (e == 2047)
        return field_mod(field_hash(field_key("infinite"),
                                    m ? 0 : x > 0 ? 1 : 2));
    m |= e ? implicit : 0;
    e = ((e ? e : 1) - 1075 + 61 * 18) % 61;
    m = (m << e | m >> (61 - e)) & FIELD_P;
    return x < 0 ? field_neg(m) : m;
}
