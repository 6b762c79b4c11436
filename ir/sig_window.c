/* sig_window.c -- windows over a picture that lies in parts.
 *
 * Where the places h of a window are split, each part of them reads its own
 * rows of the picture and some of other parts': the halo (Krizhevsky 2014;
 * Dryden et al., IPDPS 2019).  Row h*stride + k*dilate - pad of the picture,
 * for the places of one part, begins `pad` rows before stride times the first
 * of them.  So parts of the picture are `stride` times as long as those of the
 * places, whatever its own size would give (`step`), and where the sizes do not
 * divide, rows change their part.  A window in the result turns that round: a
 * row of the picture is made of places of other parts, so the map of places has
 * the halo, and the picture's parts are a whole number of strides.
 *
 * The rows come with the operand, zeros where the picture ends, and then the
 * op on a part is the same op on a smaller picture, with other zeros in front
 * of it (sig_pad) and none that differ from rank to rank.
 *
 * So with a group of letters, "(h r)": its parts are r times those of h. */
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

static int64_t over(int64_t n, int64_t parts)
{
    return (n + parts - 1) / parts;
}

/* Places of one part. */
static int64_t places_step(const Sig *s, int h, int64_t parts)
{
    return window_in(&s->out, h)
        ? over(over(s->extent[h], parts), s->stride) : over(s->size[h], parts);
}

void sig_rows(const Sig *s, const Mesh *m, int i, int d, Split split, Type *t)
{
    const Dim *w = i < 0 ? &s->out.dim[d] : &s->in[i].dim[d];
    int c = w->c[0], lo = 0, hi = 0;
    int64_t parts = split_parts(m, split), inner = 1, step, size = s->size[c];
    for (int k = 1; k < w->n && !w->window; k++)
        inner *= s->size[(int)w->c[k]];
    step = inner * over(size, parts), size *= inner;
    if (s->extent[c] && w->window)
        step = s->stride * places_step(s, c, parts), size = s->extent[c];
    else if (s->extent[c])
        step = places_step(s, c, parts);
    if (split && i >= 0 && s->windows && reaches(s, i, d))
        reach(s, c, &lo, &hi);
    t->lo[d] = (uint8_t)lo, t->hi[d] = (uint8_t)hi;
    t->step[d] = !split || step == over(size, parts) ? 0 : (int32_t)step;
}

bool sig_group_cuts(const Sig *s, const Mesh *m, int c, Split split)
{
    return s->size[c] % split_parts(m, split) == 0
        || (s->uneven && parts_in_line(m, split, s->size[c]));
}

bool sig_cuts(const Sig *s, const Mesh *m, Op op, int h, Split split)
{
    int lo, hi;
    reach(s, h, &lo, &hi);
    for (int i = 0; i < s->nin; i++)
        for (int d = 0; d < s->in[i].ndim; d++)
            if (s->in[i].dim[d].c[0] == h && reaches(s, i, d)
                && (ops[op].fold != FOLD_SUM || !op_linear(op, i, i)))
                return false;
    return lo <= UINT8_MAX && hi <= UINT8_MAX
        && s->stride * s->size[h] <= INT32_MAX
        && parts_in_line(m, split, s->size[h])
        && parts_in_line(m, split, s->extent[h]);
}

int64_t sig_extent(const Sig *s, const Mesh *m, int c)
{
    int64_t parts = split_parts(m, s->split[c]);
    int lo = 0, hi = 0;
    if (!s->windows || !s->extent[c] || !s->split[c])
        return over(s->size[c], parts);
    if (window_in(&s->out, c))
        reach(s, c, &lo, &hi);
    return places_step(s, c, parts) + lo + hi;
}

int sig_pad(const Sig *s, int h)
{
    int lo, hi;
    if (!s->split[h])
        return s->pad;
    reach(s, h, &lo, &hi);
    return window_in(&s->out, h) ? s->pad + lo * s->stride : s->pad - lo;
}
