/* num.c -- the shortest decimal that reads back as a double.
 *
 * A double is m 2^e, and m 5^k is an integer of at most 116 bits for k <= 27:
 * between 1e-10 and 1e17 its first 17 digits, what they leave, and half the
 * way to its neighbours are exact in 128 bits, and 15, 16 or 17 digits are
 * judged without printing and reading back (Steele and White 1990).  Printf
 * and strtod have what lies elsewhere, and powers of two, whose neighbours
 * lie unevenly.
 *
 * A decimal of 15 digits or less is what %.15g makes of the double that it
 * reads as, so the first that reads back is the shortest. */
#include "ir/base.h"
#include <math.h>
#include <stdlib.h>

typedef unsigned __int128 Wide;

enum { LEAST = 15, MOST = 17, POWERS = 27 };  /* digits; 5^27 < 2^63 */

static void num_slowly(char out[32], double v)
{
    for (int digits = LEAST; digits <= MOST; digits++) {
        snprintf(out, 32, "%.*g", digits, v);
        if (digits == MOST || strtod(out, NULL) == v)
            return;
    }
}

/* |v| = wide / 2^shift / 10^k, with 17 digits before the point. */
typedef struct Scaled { Wide wide; uint64_t five; int shift, k; } Scaled;

static const uint64_t five[POWERS + 1] = {
    1u, 5u, 25u, 125u, 625u, 3125u, 15625u, 78125u, 390625u, 1953125u, 9765625u,
    48828125u, 244140625u, 1220703125u, 6103515625u, 30517578125u,
    152587890625u, 762939453125u, 3814697265625u, 19073486328125u,
    95367431640625u, 476837158203125u, 2384185791015625u, 11920928955078125u,
    59604644775390625u, 298023223876953125u, 1490116119384765625u,
    7450580596923828125u
};

static bool scale(uint64_t m, int e, Scaled *s)
{
    const uint64_t least = 10000000000000000u;
    int k = MOST - 1 - ((e + 52) * 1233 >> 12);       /* 1233/4096: log 2 */
    for (int i = 0; i < 3 && k >= 0 && k <= POWERS; i++) {
        *s = (Scaled){ (Wide)m * five[k], five[k], -(k + e), k };
        if (s->shift < 1 || s->shift > 62)
            return false;
        Wide whole = s->wide >> s->shift;
        if (whole >= least && whole < 10 * (Wide)least)
            return true;
        k += whole < least ? 1 : -1;
    }
    return false;
}

/* |v| to so many digits, ties to even, as an integer; 0: another double is as
 * near to that. */
static uint64_t rounded(const Scaled *s, int digits)
{
    uint64_t unit = digits == MOST ? 1 : digits == MOST - 1 ? 10 : 100;
    uint64_t whole = (uint64_t)(s->wide >> s->shift), d = whole / unit;
    Wide step = (Wide)unit << s->shift;
    Wide rest = s->wide - ((Wide)(d * unit) << s->shift);
    Wide far = step - rest;
    bool up = rest > far || (rest == far && d & 1);
    return 2 * (up ? far : rest) < s->five ? d + up : 0;
}

/* As %.*g lays them out: X is the power of ten of the first of n digits. */
static void lay_out(char *out, const char *digit, int n, int x, int precision)
{
    bool power = x < -4 || x >= precision;
    int point = power ? 1 : x + 1;        /* digits before it */
    if (point <= 0) {
        *out++ = '0', *out++ = '.';
        memset(out, '0', (size_t)-point);
        out += -point;
    }
    for (int i = 0; i < n || i < point; i++) {
        if (i == point && i)
            *out++ = '.';
        *out++ = i < n ? digit[i] : '0';
    }
    if (power) {                          /* of two digits, in this range */
        *out++ = 'e', *out++ = x < 0 ? '-' : '+';
        *out++ = (char)('0' + abs(x) / 10), *out++ = (char)('0' + abs(x) % 10);
    }
    *out = 0;
}

static bool num_quickly(char *out, double v)
{
    uint64_t bits, d = 0;
    Scaled s;
    int digits = LEAST;
    memcpy(&bits, &v, sizeof bits);
    uint64_t m = bits << 12 >> 12;
    int e = (int)(bits >> 52 & 2047) - 1075;
    if (!m || !(v >= 1e-10 && v < 1e17) || !scale(m | 1ull << 52, e, &s))
        return false;
    while (digits <= MOST && !(d = rounded(&s, digits)))
        digits++;
    char text[20], *end = text + sizeof text, *p = end;
    for (uint64_t rest = d; rest; rest /= 10)
        *--p = (char)('0' + rest % 10);
    if (end - p != digits)                /* rounded up to a power of ten */
        return false;
    while (end[-1] == '0')
        end--;
    lay_out(out, p, (int)(end - p), MOST - 1 - s.k, digits);
    return true;
}

char *num_text(char out[32], double v)
{
    bool whole = fabs(v) < 1e15 && v == (double)(int64_t)v;
    char *p = out;
    if (signbit(v) && !isnan(v))
        *p++ = '-';
    if (whole)
        *int_text(p, (uint64_t)fabs(v)) = 0;
    else if (!num_quickly(p, fabs(v)))
        num_slowly(out, v);
    return out;
}
