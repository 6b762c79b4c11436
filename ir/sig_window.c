/* sig_window.c -- windows over a picture that lies in parts.
 *
 * Where the places h of a window are split, each part of them reads its own
 * part of the picture and some rows of the neighbours': the halo (Krizhevsky
 * 2014; Dryden et al., IPDPS 2019).  Row h*stride + k*dilate - pad of the
 * picture, for the places of one part, begins `pad` rows before the part.  A
 * window in the result turns that round: a row of the picture is made of
 * places of the neighbours, so the map of places has the halo.
 *
 * The rows come with the operand, zeros where the picture ends, and then the
 * op on a part is the same op on a smaller picture, with other zeros in front
 * of it (sig_pad) and none that differ from rank to rank. */
#include "ir/graph.h"

static const Dim *window_in(const Term *t, int h)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->dim[d].window && t->dim[d].c[0] == h)
            return &t->dim[d];
    return NULL;
}

/* Rows from the first to the last that one window touches, less one. */
static int span(const Sig *s, int h)
{
    const Dim *w = window_in(&s->out, h);
    for (int i = 0; i < s->nin && !w; i++)
        w = window_in(&s->in[i], h);
    return w ? s->dilate * ((int)s->size[(int)w->c[1]] - 1) : 0;
}

static int positive(int n)
{
    return n > 0 ? n : 0;
}

static void reach(const Sig *s, int h, int *lo, int *hi)
{
    int more = span(s, h) - s->pad;
    if (window_in(&s->out, h)) {
        *lo = positive(more) / s->stride;
        *hi = (s->pad + s->stride - 1) / s->stride;
    } else {
        *lo = s->pad;
        *hi = positive(more - s->stride + 1);
    }
}

/* Is it a dimension whose parts want a halo? */
static bool reaches(const Sig *s, int i, int d)
{
    const Dim *m = &s->in[i].dim[d];
    return !s->in[i].unread
        && (m->window || (m->n == 1 && window_in(&s->out, m->c[0])));
}

bool sig_halo(const Sig *s, int i, int d, uint8_t *lo, uint8_t *hi)
{
    int before, behind;
    *lo = *hi = 0;
    if (!s->windows || !reaches(s, i, d))
        return false;
    reach(s, s->in[i].dim[d].c[0], &before, &behind);
    *lo = (uint8_t)before, *hi = (uint8_t)behind;
    return before || behind;
}

/* One axis after the other, as ranks are numbered. */
static bool ranks_in_order(const Mesh *m, Split split)
{
    for (int last = -1; split; split >>= 4) {
        int axis = (int)(split & 15) - 1;
        if (axis <= last || m->axis[axis].kind != SPACE)
            return false;
        last = axis;
    }
    return true;
}

bool sig_cuts(const Sig *s, const Mesh *m, Op op, int h, Split split)
{
    int64_t parts = split_parts(m, split), places = s->size[h];
    int lo, hi;
    reach(s, h, &lo, &hi);
    int64_t most = lo > hi ? lo : hi;
    bool out = window_in(&s->out, h) != NULL;
    int64_t rows = (out ? places : s->extent[h]) / parts;
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim; d++)
            if (s->in[i].dim[d].c[0] == h && reaches(s, i, d)
                && (ops[op].fold != FOLD_SUM || !op_linear(op, i, i)))
                return false;
    return places % parts == 0 && s->extent[h] == places * s->stride
        && most <= rows && most <= UINT8_MAX && ranks_in_order(m, split);
}

int64_t sig_extent(const Sig *s, const Mesh *m, int c)
{
    int64_t parts = split_parts(m, s->split[c]);
    int lo = 0, hi = 0;
    if (s->windows && s->split[c] && window_in(&s->out, c))
        reach(s, c, &lo, &hi);
    return (s->size[c] + parts - 1) / parts + lo + hi;
}

int sig_pad(const Sig *s, int h)
{
    int lo, hi;
    if (!s->split[h])
        return s->pad;
    reach(s, h, &lo, &hi);
    return window_in(&s->out, h) ? s->pad + lo * s->stride : s->pad - lo;
}
