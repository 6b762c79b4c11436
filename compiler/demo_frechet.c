/* demo_frechet.c -- the Frechet distance of two sets of features.
 *
 * Each set is taken for a Gaussian.  The trace of (C1 C2)^(1/2) is that of
 * the symmetric (S C2 S)^(1/2) with S = C1^(1/2), for C1 C2 = S (S C2) and
 * S C2 S have the same eigenvalues; so two symmetric eigenproblems do, which
 * Jacobi's rotations solve to the last digit, few as the dimensions are.
 * Dowson and Landau, J. Multivariate Anal. 12 (1982) 450; Golub and Van Loan,
 * Matrix Computations, 8.5. */
#include "compiler/demo.h"
#include <math.h>

enum { SWEEPS = 40 };

/* ---- eigenvalues ---- */

/* Rotates rows and columns p, q of a so that a[p, q] becomes 0. */
static void rotate(double *a, double *v, int n, int p, int q)
{
    double apq = a[p * n + q];
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    double t = copysign(1, theta) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {         /* columns */
        double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {         /* rows: contiguous */
        double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
        x = v[p * n + k], y = v[q * n + k];
        v[p * n + k] = c * x - s * y;
        v[q * n + k] = s * x + c * y;
    }
}

static double norm_off(const double *a, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            sum += a[i * n + j] * a[i * n + j];
    return sqrt(sum);
}

static double norm_all(const double *a, int n)
{
    double sum = 0;
    for (int i = 0; i < n * n; i++)
        sum += a[i] * a[i];
    return sqrt(sum);
}

/* Row i of v is the eigenvector of value[i]. */
void eigen_symmetric(double *a, int n, double *value, double *v)
{
    double small = 1e-14 * norm_all(a, n);
    for (int i = 0; i < n * n; i++)
        v[i] = i / n == i % n;
    for (int k = 0; k < SWEEPS && norm_off(a, n) > small; k++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                if (fabs(a[p * n + q]) > small / n)
                    rotate(a, v, n, p, q);
    for (int i = 0; i < n; i++)
        value[i] = a[i * n + i];
}

/* ---- Gaussians ---- */

static Gauss gauss_make(Arena *a, int n)
{
    return (Gauss){ n, alloc(a, (size_t)n * sizeof(double)),
                    alloc(a, (size_t)n * (size_t)n * sizeof(double)) };
}

Gauss gauss_of(Arena *arena, const float *mean, const float *cov, int n)
{
    Gauss g = gauss_make(arena, n);
    for (int i = 0; i < n; i++)
        g.mean[i] = (double)mean[i];
    for (int i = 0; i < n * n; i++)
        g.cov[i] = (double)cov[i];
    return g;
}

/* Scatter around the common mean: each half's own, and that of its mean. */
Gauss gauss_both(Arena *arena, const Gauss *a, const Gauss *b)
{
    int n = a->n;
    Gauss g = gauss_make(arena, n);
    for (int i = 0; i < n; i++)
        g.mean[i] = (a->mean[i] + b->mean[i]) / 2;
    for (int i = 0; i < n * n; i++) {
        int r = i / n, c = i % n;
        g.cov[i] = (a->cov[i] + b->cov[i]) / 2 +
                   (a->mean[r] - b->mean[r]) * (a->mean[c] - b->mean[c]) / 4;
    }
    return g;
}

Gauss gauss_fit(Arena *arena, const float *row, int64_t nrow, int n)
{
    Gauss g = gauss_make(arena, n);
    double *d = alloc(arena, (size_t)n * sizeof *d);
    for (int64_t r = 0; r < nrow; r++)
        for (int i = 0; i < n; i++)
            g.mean[i] += (double)row[r * n + i] / (double)nrow;
    for (int64_t r = 0; r < nrow; r++) {
        for (int i = 0; i < n; i++)
            d[i] = (double)row[r * n + i] - g.mean[i];
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++)
                g.cov[i * n + j] += d[i] * d[j];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            g.cov[j * n + i] = g.cov[i * n + j] /= nrow > 1
                             ? (double)(nrow - 1) : 1;
    return g;
}

static double *matrix(Arena *a, int n)
{
    return alloc(a, (size_t)n * (size_t)n * sizeof(double));
}

static void multiply(const double *a, const double *b, double *c, int n)
{
    memset(c, 0, (size_t)n * (size_t)n * sizeof *c);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

/* The root of a covariance; rounding may make eigenvalues negative. */
static double *root(Arena *arena, const double *c, int n)
{
    double *a = matrix(arena, n), *v = matrix(arena, n), *s = matrix(arena, n);
    double *value = alloc(arena, (size_t)n * sizeof *value);
    memcpy(a, c, (size_t)n * (size_t)n * sizeof *a);
    eigen_symmetric(a, n, value, v);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                s[i * n + j] += sqrt(fmax(value[k], 0)) * v[k * n + i] *
                                v[k * n + j];
    return s;
}

static double trace_of_root(Arena *arena, const double *c1, const double *c2,
                            int n)
{
    double *s = root(arena, c1, n), *t = matrix(arena, n);
    double *m = matrix(arena, n), *value = alloc(arena, (size_t)n * 8);
    double sum = 0;
    multiply(s, c2, t, n);
    multiply(t, s, m, n);
    eigen_symmetric(m, n, value, t);
    for (int i = 0; i < n; i++)
        sum += sqrt(fmax(value[i], 0));
    return sum;
}

double gauss_distance(Arena *arena, const Gauss *a, const Gauss *b)
{
    int n = a->n;
    double sum = -2 * trace_of_root(arena, a->cov, b->cov, n);
    for (int i = 0; i < n; i++) {
        double d = a->mean[i] - b->mean[i];
        sum += d * d + a->cov[i * n + i] + b->cov[i * n + i];
    }
    return fmax(sum, 0);
}
