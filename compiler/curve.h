/* curve.h -- numbers over time, in a line of text. */
#ifndef DPC_CURVE_H
#define DPC_CURVE_H

#include "ir/base.h"

/* n values from 0 on as bars in `width` places, the largest of each place and
 * as high as the largest of all; x: where they begin, ascending from 0, the
 * last being x[n]; NULL: evenly. */
char *curve_text(Arena *, const double *x, const double *y, uint32_t n,
                 int width);

#endif
