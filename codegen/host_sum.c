/* host_sum.c -- long sums in C.
 *
 * A sum of n floats in one accumulator is wrong by up to n roundings; so long
 * sums are made in two levels, of about sqrt(n) each (Higham, Accuracy and
 * Stability of Numerical Algorithms, 4.2).  The nest of loops has accumulators
 * u9 outside, and from some loop on fresh ones, v9. */
#include "codegen/host.h"

enum { LONG_SUM = 512, BLOCK = 1024 };

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
    Cascade best = { -1, false };
    int64_t all = 1, out = 1, least = INT64_MAX;
    for (int i = 0; i < n; i++)
        all *= trips(k, at[i]);
    if (!l->nfold || all < LONG_SUM * (lanes ? lanes : 1))
        return best;
    if (!lanes && trips(k, at[n - 1]) > 4 * BLOCK)
        return (Cascade){ n - 1, true };
    for (int i = 1; i < n; i++) {
        out *= trips(k, at[i - 1]);
        int64_t in = all / out / (lanes ? lanes : 1);
        if ((in > out ? in : out) < least) {
            least = in > out ? in : out;
            best.at = i;
        }
    }
    return best;
}

void host_cascade_begin(Text *t, const Kernel *k, const Loop *l, Cascade v,
                        int depth)
{
    for (int i = 0; v.at >= 0 && i < l->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "float u%d = %s;\n", l->fold[i],
                 text_identity(&k->value[l->fold[i]]));
    }
}

void host_cascade_end(Text *t, const Kernel *k, const Loop *l, Cascade v,
                      int in, int depth)
{
    if (v.at < 0)
        return;
    for (int i = 0; i < l->nfold; i++) {
        char acc[16], x[16];
        snprintf(acc, sizeof acc, "u%d", l->fold[i]);
        snprintf(x, sizeof x, "v%d", l->fold[i]);
        text_indent(t, in);
        text_fold(t, &k->value[l->fold[i]], acc, x);
    }
    text_indent(t, in - 1);
    text_add(t, "}\n");
    for (int i = 0; i < l->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "const float v%d = u%d;\n", l->fold[i], l->fold[i]);
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
