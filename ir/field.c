/* field.c -- what of field.h is not worth a place in a header. */
#include "ir/field.h"

#include <math.h>

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

uint64_t field_of(double x)
{
    int e;

    if (!isfinite(x))
        return field_mod(field_hash(field_key("infinite"),
                                    isnan(x) ? 0 : x > 0 ? 1 : 2));
    double m = ldexp(frexp(fabs(x), &e), 53);         /* an integer */
    e = ((e - 53) % 61 + 61) % 61;
    uint64_t v = field_mul((uint64_t)m, UINT64_C(1) << e);
    return x < 0 ? field_neg(v) : v;
}
