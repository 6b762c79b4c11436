/* curve.c -- numbers over time, in a line of text: the block elements of
 * Unicode, eight heights. */
#include "compiler/curve.h"

char *curve_text(Arena *a, const double *x, const double *y, uint32_t n,
                 int width)
{
    static const char *const bar[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇",
                                       "█" };
    double *most = alloc(a, (size_t)width * sizeof *most), top = 0;
    double all = x ? x[n] : n;
    Str s = { .arena = a };
    for (uint32_t i = 0; i < n; i++) {
        double from = (x ? x[i] : i) / all, to = (x ? x[i + 1] : i + 1) / all;
        top = y[i] > top ? y[i] : top;
        for (int k = (int)(from * width); k < width && k <= to * width; k++)
            if (y[i] > most[k] && (k < to * width || k == (int)(from * width)))
                most[k] = y[i];
    }
    for (int k = 0; k < width; k++)
        str_add(&s, "%s", bar[top > 0 ? (int)(8 * most[k] / top + 0.999) : 0]);
    return s.p;
}
