/* demo_stat.c -- rates with intervals, means, spread. */
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
