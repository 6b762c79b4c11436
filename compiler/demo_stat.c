/* demo_stat.c -- rates with intervals, means, masks, colours. */
#include "compiler/demo.h"
#include <math.h>

static const double z95 = 1.959963984540054;

double rate_value(Rate r)
{
    return r.of ? (double)r.hit / (double)r.of : 0;
}

Interval rate_interval(Rate r)
{
    if (r.of == 0)
        return (Interval){ 0, 1 };
    double n = (double)r.of, p = rate_value(r), z2 = z95 * z95;
    double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
    double half = z95 / (1 + z2 / n) *
                  sqrt(p * (1 - p) / n + z2 / (4 * n * n));
    /* the ends are exact at 0 and 1 but for rounding */
    return (Interval){ r.hit == 0 ? 0 : middle - half,
                       r.hit == r.of ? 1 : middle + half };
}

void mean_add(Mean *m, double x)
{
    m->sum += x;
    m->square += x * x;
    m->n++;
}

double mean_value(const Mean *m)
{
    return m->n ? m->sum / (double)m->n : 0;
}

Interval mean_interval(const Mean *m)
{
    double mean = mean_value(m), n = (double)m->n;
    double var = m->n > 1 ? (m->square - n * mean * mean) / (n - 1) : 0;
    double half = m->n ? z95 * sqrt(fmax(var, 0) / n) : 0;
    return (Interval){ mean - half, mean + half };
}

/* ---- masks ---- */

/* How opaque a pixel is, min(1, 3 g), says whether the garment covers it. */
static bool covered(uint8_t g) { return 3 * g >= 128; }
static bool touched(uint8_t g) { return g > 0; }

static const double nearly_all = 0.9, nearly_none = 0.02;

Masks masks_make(Arena *a, const Photos *p, int nclass)
{
    int64_t np = p->h * p->w, size = nclass * np;
    Masks m = { nclass, np, alloc(a, (size_t)size), alloc(a, (size_t)size) };
    int64_t *cover = alloc(a, (size_t)size * sizeof *cover);
    int64_t *touch = alloc(a, (size_t)size * sizeof *touch);
    int64_t *count = alloc(a, (size_t)nclass * sizeof *count);
    for (int64_t i = 0; i < p->n; i++) {
        int64_t c = p->label[i];
        if (c >= nclass)
            die("label %d of %d classes", (int)c, nclass);
        count[c]++;
        for (int64_t k = 0; k < np; k++) {
            cover[c * np + k] += covered(p->pixel[i * np + k]);
            touch[c * np + k] += touched(p->pixel[i * np + k]);
        }
    }
    for (int64_t k = 0; k < size; k++) {
        double n = (double)count[k / np];
        m.cover[k] = n > 0 && (double)cover[k] >= nearly_all * n;
        m.bare[k] = n > 0 && (double)touch[k] <= nearly_none * n;
    }
    return m;
}

void mask_mean(const uint8_t *mask, const float *rgb, int64_t npixel,
               double to[3])
{
    int64_t n = 0;
    to[0] = to[1] = to[2] = 0;
    for (int64_t k = 0; k < npixel; k++) {
        n += mask[k];
        for (int c = 0; mask[k] && c < 3; c++)
            to[c] += (double)rgb[c * npixel + k];
    }
    for (int c = 0; n && c < 3; c++)
        to[c] /= (double)n;
}

double mask_error(const uint8_t *mask, const float *rgb, int64_t npixel,
                  const double want[3])
{
    int64_t n = 0;
    double sum = 0;
    for (int64_t k = 0; k < npixel; k++) {
        n += mask[k];
        for (int c = 0; mask[k] && c < 3; c++)
            sum += fabs((double)rgb[c * npixel + k] - want[c]);
    }
    return n ? sum / (3 * (double)n) : 0;
}

/* ---- sets ---- */

double spread(const float *x, int64_t nset, int64_t n, int64_t row)
{
    double sum = 0;
    int64_t each = n * row;
    for (int64_t i = 0; i < each; i++) {
        double mean = 0, square = 0;
        for (int64_t s = 0; s < nset; s++)
            mean += (double)x[s * each + i] / (double)nset;
        for (int64_t s = 0; s < nset; s++) {
            double d = (double)x[s * each + i] - mean;
            square += d * d;
        }
        sum += nset > 1 ? sqrt(square / (double)(nset - 1)) : 0;
    }
    return each ? sum / (double)each : 0;
}

int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Sattolo's shuffle makes one cycle, so nothing stays in its place.  The
 * numbers are those of splitmix64 (Steele et al., OOPSLA 2014). */
void derange(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        uint64_t z = seed += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        int j = (int)((z ^ z >> 31) % (uint64_t)i), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}
