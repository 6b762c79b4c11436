/* type.c -- what a type says about the parts of a tensor.
 *
 * A split is a list of axes, major first: a dimension is cut along the first,
 * each part along the next.  Parts of n are ceil(n / parts) long; the last
 * ones may hold less, and then padding, or nothing.  Cutting again needs no
 * moves, and since ceil(ceil(n / a) / b) = ceil(n / (a b)), a part has room
 * for ceil(n / all parts).  A type may say another length (`step`): under a
 * window, parts of the picture follow those of the places. */
#include "ir/graph.h"

/* ---- splits ---- */

Axes split_axes(Split s)
{
    Axes set = 0;
    for (; s; s >>= 4)
        set |= (Axes)(1u << ((s & 15) - 1));
    return set;
}

int64_t split_parts(const Mesh *m, Split s)
{
    return mesh_size(m, split_axes(s));
}

static int length(Split s)
{
    int n = 0;
    for (; s; s >>= 4)
        n++;
    return n;
}

Split split_push(Split s, int axis)
{
    int n = length(s);
    if (n == NAXIS)
        die("split has %d axes already", n);
    return s | (Split)(axis + 1) << 4 * n;
}

int split_minor(Split s)
{
    int n = length(s);
    return n ? (int)(s >> 4 * (n - 1)) - 1 : -1;
}

Split split_without(Split s, Axes gone)
{
    Split rest = 0;
    for (; s; s >>= 4) {
        int axis = (int)(s & 15) - 1;
        if (!(gone >> axis & 1))
            rest = split_push(rest, axis);
    }
    return rest;
}

int64_t split_index(const Mesh *m, Split s, const int *coord)
{
    int64_t index = 0;
    for (; s; s >>= 4) {
        int axis = (int)(s & 15) - 1;
        index = index * m->axis[axis].size + coord[axis];
    }
    return index;
}

Part split_part(const Mesh *m, Split s, int64_t n, const int *coord)
{
    Part p = { 0, n, n };
    for (; s; s >>= 4) {
        int axis = (int)(s & 15) - 1, size = m->axis[axis].size;
        p.room = (p.room + size - 1) / size;
        int64_t skip = p.room * coord[axis];
        p.at += skip;
        p.n = p.n < skip ? 0 : p.n - skip < p.room ? p.n - skip : p.room;
    }
    return p;
}

bool parts_in_line(const Mesh *m, Split s, int64_t n)
{
    int64_t room = (n + split_parts(m, s) - 1) / split_parts(m, s);
    int last = -1;
    for (Split rest = s; rest; rest >>= 4) {
        int axis = (int)(rest & 15) - 1;
        if (axis <= last || m->axis[axis].kind != SPACE)
            return false;
        last = axis, n = (n + m->axis[axis].size - 1) / m->axis[axis].size;
        if (n != room * split_parts(m, rest >> 4))
            return false;
    }
    return true;
}

/* ---- the mesh ---- */

Axes mesh_axes(const Mesh *m, AxisKind kind)
{
    Axes set = 0;
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].kind == kind)
            set |= (Axes)(1u << i);
    return set;
}

int mesh_find(const Mesh *m, const char *name)
{
    for (int i = 0; i < m->naxis; i++)
        if (strcmp(m->axis[i].name, name) == 0)
            return i;
    return -1;
}

int mesh_twin(const Mesh *m, int axis)
{
    size_t n = strlen(m->axis[axis].name);
    for (int i = 0; i < m->naxis && m->axis[axis].kind == SPACE; i++)
        if (m->axis[i].kind == TIME && m->axis[i].size == m->axis[axis].size
            && strncmp(m->axis[i].name, m->axis[axis].name, n) == 0
            && strcmp(m->axis[i].name + n, "'") == 0)
            return i;
    return -1;
}

int mesh_home(const Mesh *m, int twin)
{
    for (int i = 0; i < m->naxis && m->axis[twin].kind == TIME; i++)
        if (mesh_twin(m, i) == twin)
            return i;
    return -1;
}

Axes mesh_ring(const Mesh *m, int axis)
{
    int twin = mesh_twin(m, axis);
    return twin < 0 ? 0 : (Axes)(1u << axis | 1u << twin);
}

int64_t mesh_size(const Mesh *m, Axes set)
{
    int64_t n = 1;
    for (int i = 0; i < m->naxis; i++)
        if (set >> i & 1)
            n *= m->axis[i].size;
    return n;
}

/* ---- types ---- */

int64_t type_volume(const Type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}

int64_t type_step(const Mesh *m, const Type *t, int d)
{
    int64_t parts = split_parts(m, t->split[d]);
    return t->step[d] ? t->step[d] : (t->dim[d] + parts - 1) / parts;
}

Part type_part(const Mesh *m, const Type *t, int d, const int *coord)
{
    int64_t all = t->step[d] * split_parts(m, t->split[d]);
    Part p = split_part(m, t->split[d], all ? all : t->dim[d], coord);
    int64_t left = t->dim[d] - p.at;
    p.n = left < 0 ? 0 : left < p.n ? left : p.n;
    return p;
}

Type type_local(const Mesh *m, const Type *t)
{
    Type part = *t;
    for (int i = 0; i < t->ndim; i++) {
        part.dim[i] = type_step(m, t, i) + t->lo[i] + t->hi[i];
        part.split[i] = 0;
        part.lo[i] = part.hi[i] = 0, part.step[i] = 0;
    }
    return part;
}

int64_t type_bytes(const Mesh *m, const Type *t)
{
    Type part = type_local(m, t);
    return type_volume(&part) * dtype_size(t->dtype);
}

bool type_halo(const Type *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->lo[d] || t->hi[d] || t->step[d])
            return true;
    return false;
}

bool type_equal(const Type *a, const Type *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim || a->partial != b->partial)
        return false;
    if (a->partial && a->fold != b->fold)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i] || a->split[i] != b->split[i]
            || a->lo[i] != b->lo[i] || a->hi[i] != b->hi[i]
            || a->step[i] != b->step[i])
            return false;
    return true;
}

static Axes axes_swap(Axes a, Axes ring)
{
    Axes both = a & ring;
    return both && both != ring ? a ^ ring : a;
}

Type type_swap(const Type *t, Axes ring)
{
    Type u = *t;
    u.partial = axes_swap(t->partial, ring);
    for (int d = 0; d < t->ndim; d++) {
        u.split[d] = 0;
        for (Split s = t->split[d]; s; s >>= 4) {
            Axes a = axes_swap((Axes)(1u << ((s & 15) - 1)), ring);
            u.split[d] = split_push(u.split[d], __builtin_ctz(a));
        }
    }
    return u;
}

Axes type_axes(const Type *t)
{
    Axes set = t->partial;
    for (int i = 0; i < t->ndim; i++)
        set |= split_axes(t->split[i]);
    return set;
}

static void axis_put(Str *s, const Mesh *m, int axis)
{
    str_put(s, m->axis[axis].name, strlen(m->axis[axis].name));
}

void type_put(Str *s, const Mesh *m, const Type *t)
{
    str_add(s, "%s[", dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++) {
        if (i)
            str_put(s, ",", 1);
        str_int(s, t->dim[i]);
        for (Split p = t->split[i]; p; p >>= 4) {
            str_put(s, "/", 1);
            axis_put(s, m, (p & 15) - 1);
        }
        if (t->lo[i] || t->hi[i] || t->step[i])
            str_add(s, ":%d:%d", t->lo[i], t->hi[i]);
        if (t->step[i])
            str_add(s, ":%d", t->step[i]);
    }
    str_put(s, "]", 1);
    for (int i = 0; t->partial && i < m->naxis; i++)
        if (t->partial >> i & 1) {
            str_put(s, &"+^~"[t->fold], 1);
            axis_put(s, m, i);
        }
}

char *type_text(Arena *a, const Mesh *m, const Type *t)
{
    Str s = { .arena = a };
    type_put(&s, m, t);
    return s.p;
}
