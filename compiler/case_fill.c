/* case_fill.c -- tensors that need no file: a hash of a name and an index.
 *
 * FNV-1a of the name, plus the index times the golden ratio, through a mixer
 * of two multiplications (Wellons' "lowbias32"); the upper 24 bits are a
 * float.  Every value is exact in f32, in any language. */
#include "compiler/case.h"
#include <math.h>
#include <stdlib.h>

uint32_t fill_hash(const char *name)
{
    uint32_t h = 0x811c9dc5u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x01000193u;
    return h;
}

uint32_t fill_bits(uint32_t hash, uint64_t index)
{
    uint32_t x = hash + (uint32_t)index * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

double fill_float(uint32_t hash, uint64_t index)
{
    return ldexp(fill_bits(hash, index) >> 8, -23) - 1;
}

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0 &&
           (n == k || s[n - k - 1] == '.');
}

bool fill_keeps(const char *name)
{
    return ends(name, "rotary_emb.freqs");
}

/* Gains are about one, other vectors small, matrices keep the variance. */
double *fill_param(Arena *a, const char *name, const Type *t)
{
    int64_t n = type_volume(t);
    double *x = alloc(a, (size_t)(n + 1) * sizeof *x);
    uint32_t h = fill_hash(name);
    bool gain = ends(name, "g") || ends(name, "gamma") ||
                (ends(name, "weight") && t->ndim == 1);
    double scale = gain || t->ndim < 2 ? 0.1
                 : 1 / sqrt((double)(n / t->dim[0]));
    for (int64_t i = 0; i < n; i++)
        x[i] = gain + scale * fill_float(h, (uint64_t)i);
    return x;
}

/* "img<s>" at step 3: "img3". */
static const char *stepped(Arena *a, const char *name, int step)
{
    const char *at = strstr(name, "<s>");
    return !at ? name
         : fmt(a, "%.*s%d%s", (int)(at - name), name, step, at + 3);
}

static void rows_unit(double *x, int64_t n, int64_t row)
{
    for (double *end = x + n; x < end; x += row) {
        double square = 0;
        for (int64_t k = 0; k < row; k++)
            square += x[k] * x[k];
        for (int64_t k = 0; k < row; k++)
            x[k] /= fmax(sqrt(square), 1e-12);
    }
}

/* The block that the leading indices name. */
static void rows_zero(double *x, const Type *t, const int64_t *at)
{
    int64_t n = type_volume(t), from = 0;
    for (int d = 0; d < t->ndim && at[d] >= 0; d++)
        n /= t->dim[d], from += at[d] * n;
    memset(x + from, 0, (size_t)n * sizeof *x);
}

double *fill_spec(Arena *a, const Spec *s, const Type *t, int step)
{
    int64_t n = type_volume(t);
    double *x = alloc(a, (size_t)(n + 1) * sizeof *x);
    uint32_t h = s->fill ? fill_hash(stepped(a, s->fill, step)) : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = s->given ? s->given[step][i]
             : s->below ? fill_bits(h, (uint64_t)i) % (uint64_t)s->below
             : fill_float(h, (uint64_t)i);
    if (s->unit && t->ndim)
        rows_unit(x, n, t->dim[t->ndim - 1]);
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * s->scale + s->add;
    for (uint32_t i = 0; i < s->nzero; i++)
        rows_zero(x, t, s->zero[i]);
    return x;
}
