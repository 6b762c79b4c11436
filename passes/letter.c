/* letter.c -- which letters of a signature may carry axes; how types lie. */
#include "passes/letter.h"

void letters_inner(const Sig *s, bool *inner)
{
    memset(inner, 0, NLETTER * sizeof *inner);
    for (int i = 0; i <= s->nin; i++) {
        const Term *t = i < s->nin ? &s->in[i] : &s->out;
        for (int d = 0; d < t->ndim; d++)
            for (int k = 1; k < t->dim[d].n; k++)
                inner[(int)t->dim[d].c[k]] = true;
    }
}

bool letter_cuts(const Graph *g, const Sig *s, Op op, int c, Split split)
{
    if (s->extent[c])
        return sig_cuts(s, &g->mesh, op, c, split);
    if (ops[op].family == FAMILY_take && c == 'v' && split >> 4)
        return s->size[c] % split_parts(&g->mesh, split) == 0;
    for (int i = 0; i <= s->nin; i++) {
        const Term *t = i < s->nin ? &s->in[i] : &s->out;
        for (int d = 0; d < t->ndim; d++)
            if (t->dim[d].n > 1 && t->dim[d].c[0] == c)
                return sig_group_cuts(s, &g->mesh, c, split);
    }
    return true;
}

bool letter_splits(const Graph *g, const Sig *s, Op op, const Type *want,
                   Split *of)
{
    bool inner[NLETTER];
    letters_inner(s, inner);
    memset(of, 0, NLETTER * sizeof *of);
    for (int d = 0; d < s->out.ndim; d++) {
        const Dim *m = &s->out.dim[d];
        int c = m->c[0];
        if (want->split[d] && (s->extent[c] || s->fixed[c] || inner[c]
                || !letter_cuts(g, s, op, c, want->split[d])))
            return false;
        of[(int)m->c[0]] = want->split[d];
    }
    return true;
}

int64_t letters_volume(const Sig *s)
{
    int64_t v = 1;
    for (int d = 0; d < s->out.ndim; d++)
        for (int k = 0; k < s->out.dim[d].n; k++)
            v *= s->size[(int)s->out.dim[d].c[k]];
    return v;
}

bool split_finer(const Type *have, const Type *want)
{
    bool is = !have->partial && !want->partial && !type_equal(have, want);
    for (int d = 0; is && d < have->ndim; d++) {
        Split kept = want->split[d];
        while (kept != have->split[d] && kept)
            kept = split_without(kept, (Axes)(1u << split_minor(kept)));
        is = kept == have->split[d];
    }
    return is;
}
