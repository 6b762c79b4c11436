/* box.c -- which part of a tensor a rank holds, and copies between parts.
 *
 * A dimension split over axes is cut into equal parts, rounded up, along the
 * major axis first, and each of these along the next.  The last parts may be
 * short or empty, and their buffers then end in padding that no file ever
 * sees. */
#include "runtime/box.h"

DpcBox dpc_box_whole(int ndim, const int64_t *dim)
{
    DpcBox b = { .ndim = ndim };
    for (int d = 0; d < ndim; d++)
        b.size[d] = dim[d];
    return b;
}

DpcPart dpc_part_of(const DpcUnit *u, DpcSplit split, int64_t n,
                    const int32_t *coord)
{
    DpcPart p = { 0, n, n };
    for (; split; split >>= 4) {
        int axis = (int)(split & 15) - 1;
        int64_t size = u->axis[axis].size;
        p.room = (p.room + size - 1) / size;
        int64_t skip = p.room * coord[axis];
        p.at += skip;
        p.n = p.n < skip ? 0 : p.n - skip < p.room ? p.n - skip : p.room;
    }
    return p;
}

DpcBox dpc_box_of(const DpcUnit *u, const DpcLeaf *l, const int32_t *coord,
                  int64_t local[DPC_NDIM])
{
    DpcBox b = dpc_box_whole(l->ndim, l->dim);
    for (int d = 0; d < l->ndim; d++) {
        DpcPart p = dpc_part_of(u, l->split[d], l->dim[d], coord);
        local[d] = p.room;
        b.at[d] = p.at < l->dim[d] ? p.at : l->dim[d];
        b.size[d] = p.n;
    }
    return b;
}

bool dpc_leaf_split(const DpcLeaf *l)
{
    for (int d = 0; d < l->ndim; d++)
        if (l->split[d])
            return true;
    return false;
}

int32_t dpc_role_at(const DpcUnit *u, const int32_t *coord)
{
    int32_t role = 0;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].kind == DPC_STAGE)
            role = role * u->axis[i].size + coord[i];
    return role;
}

bool dpc_leaf_here(const DpcLeaf *l, int32_t role)
{
    return l->role < 0 || l->role == role;
}

bool dpc_leaf_owner(const DpcUnit *u, const DpcLeaf *l, const int32_t *coord)
{
    DpcAxes used = 0;
    if (!dpc_leaf_here(l, dpc_role_at(u, coord)))
        return false;
    for (uint32_t i = 0; l->role >= 0 && i < u->naxis; i++)
        if (u->axis[i].kind == DPC_STAGE)
            used |= (DpcAxes)(1u << i);
    for (int d = 0; d < l->ndim; d++)
        for (DpcSplit s = l->split[d]; s; s >>= 4)
            used |= (DpcAxes)(1u << ((s & 15) - 1));
    for (uint32_t i = 0; i < u->naxis; i++)
        if (!(used >> i & 1) && coord[i] != 0)
            return false;
    return true;
}

int64_t dpc_box_count(const DpcBox *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->ndim; d++)
        n *= b->size[d];
    return n;
}

DpcBox dpc_box_meet(const DpcBox *a, const DpcBox *b)
{
    DpcBox m = { .ndim = a->ndim };
    for (int d = 0; d < a->ndim; d++) {
        int64_t lo = a->at[d] > b->at[d] ? a->at[d] : b->at[d];
        int64_t ea = a->at[d] + a->size[d], eb = b->at[d] + b->size[d];
        int64_t hi = ea < eb ? ea : eb;
        m.at[d] = lo;
        m.size[d] = hi > lo ? hi - lo : 0;
    }
    return m;
}

DpcRuns dpc_runs(const DpcBox *a, const int64_t *ext_a, const DpcBox *b,
                 const int64_t *ext_b)
{
    DpcRuns r = { .meet = dpc_box_meet(a, b), .run = 1, .outer = a->ndim };
    const int64_t *m = r.meet.size;
    r.done = dpc_box_count(&r.meet) == 0;
    int64_t sa = 1, sb = 1;
    for (int d = a->ndim; d-- > 0; sa *= ext_a[d], sb *= ext_b[d]) {
        r.a[d] = sa, r.b[d] = sb;
        r.a0 += sa * (r.meet.at[d] - a->at[d]);
        r.b0 += sb * (r.meet.at[d] - b->at[d]);
        if (r.outer == d + 1 && sa == r.run && sb == r.run) {
            r.run *= m[d];
            r.outer = d;
        }
    }
    return r;
}

bool dpc_runs_next(DpcRuns *r, int64_t *at_a, int64_t *at_b)
{
    if (r->done)
        return false;
    *at_a = r->a0, *at_b = r->b0;
    for (int d = 0; d < r->outer; d++)
        *at_a += r->i[d] * r->a[d], *at_b += r->i[d] * r->b[d];
    int d = r->outer;
    while (d-- > 0) {
        if (++r->i[d] < r->meet.size[d])
            break;
        r->i[d] = 0;
    }
    r->done = d < 0;
    return true;
}
