/* host_sum.c -- long sums in C.
 *
 * A sum of n floats in one accumulator is wrong by up to n roundings.  So in a
 * long nest of loops, from some loop on, there are fresh accumulators v9, which
 * are added to outer ones, u9, whenever that part ends.  The outer ones are
 * doubles: they are rarely used and then exact, and the roundings of the short
 * sums average out (Higham, Accuracy and Stability of Numerical Algorithms,
 * 4.2, blocked summation). */
#include "codegen/host.h"

enum { LONG_SUM = 256, SHORT_SUM = 64, BLOCK = 1024 };

/* Is the loop cut into chunks? */
static bool cut_here(const Kernel *k, int at)
{
    return k->form == FORM_COLUMN && k->order[at] == k->cut;
}

static int64_t trips(const Kernel *k, int at)
{
    int64_t n = k->extent[k->order[at]];
    return cut_here(k, at) ? (n + k->chunks - 1) / k->chunks : n;
}

Cascade host_cascade(const Kernel *k, const Loop *l, const int *at, int n,
                     int64_t lanes)
{
    int64_t in = 1, all = 1, each = lanes ? lanes : 1;
    int i = n;
    for (int j = 0; j < n; j++)
        all *= trips(k, at[j]);
    if (!l->nfold || all < LONG_SUM * each)
        return (Cascade){ -1, false };
    if (!lanes && trips(k, at[n - 1]) > 2 * BLOCK)
        return (Cascade){ n - 1, true };
    while (i > 1 && in < SHORT_SUM * each)
        in *= trips(k, at[--i]);
    return (Cascade){ i < n && in < all ? i : -1, false };
}

void host_cascade_begin(Text *t, const Kernel *k, const Loop *l, Cascade v,
                        int depth)
{
    for (int i = 0; v.at >= 0 && i < l->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "double u%d = %s;\n", l->fold[i],
                 text_identity(&k->value[l->fold[i]]));
    }
}

void host_cascade_add(Text *t, const Kernel *k, const Loop *l, int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        char acc[16], x[16];
        snprintf(acc, sizeof acc, "u%d", l->fold[i]);
        snprintf(x, sizeof x, "v%d", l->fold[i]);
        text_indent(t, depth);
        text_fold(t, &k->value[l->fold[i]], acc, x);
    }
}

void host_cascade_end(Text *t, const Loop *l, Cascade v, int depth)
{
    for (int i = 0; v.at >= 0 && i < l->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "const float v%d = (float)u%d;\n", l->fold[i], l->fold[i]);
    }
}

/* Bounds of a loop as text, of this chunk's part if the chunks cut it. */
static void bounds(const Kernel *k, int at, char lo[64], char hi[64])
{
    long long n = (long long)k->extent[k->order[at]], c = (long long)k->chunks;
    snprintf(lo, 64, "0");
    snprintf(hi, 64, "%lldL", n);
    if (cut_here(k, at)) {
        snprintf(lo, 64, "c * %lldL / %lldL", n, c);
        snprintf(hi, 64, "(c + 1) * %lldL / %lldL", n, c);
    }
}

void host_nest_loop(Text *t, const Kernel *k, int at, bool block, int depth)
{
    char lo[64], hi[64];
    bounds(k, at, lo, hi);
    text_indent(t, depth);
    if (block)
        text_add(t, "for (long i%d = lo; i%d < end; i%d++)", at, at, at);
    else
        text_add(t, "for (long i%d = %s; i%d < %s; i%d++)", at, lo, at, hi,
                 at);
}

void host_block_loop(Text *t, const Kernel *k, int at, int depth)
{
    char lo[64], hi[64];
    bounds(k, at, lo, hi);
    text_indent(t, depth);
    text_add(t, "for (long lo = %s, hi = %s, end; lo < hi; lo = end) {\n", lo,
             hi);
    text_indent(t, depth + 1);
    text_add(t, "end = lo + %dL < hi ? lo + %dL : hi;\n", BLOCK, BLOCK);
}
