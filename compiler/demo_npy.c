/* demo_npy.c -- NumPy's array files: version 1.0 out, 1.0 to 3.0 in.
 *
 * Ten bytes, then a dictionary in Python's spelling up to a newline, then the
 * elements.  https://numpy.org/doc/stable/reference/generated/
 * numpy.lib.format.html */
#include "compiler/demo.h"
#include "runtime/source.h"
#include <errno.h>
#include <stdlib.h>

enum { MAGIC = 6, HEAD = 1024 };
static const char magic[] = "\x93NUMPY";

static const struct { const char *name, *descr; int bytes; } kinds[] = {
    [NPY_F32] = { "f32", "<f4", 4 }, [NPY_I32] = { "i32", "<i4", 4 },
    [NPY_U8] = { "u8", "|u1", 1 }, [NPY_F64] = { "f64", "<f8", 8 },
    [NPY_F16] = { "f16", "<f2", 2 }, [NPY_I64] = { "i64", "<i8", 8 },
    [NPY_BOOL] = { "bool", "|b1", 1 },
};

const char *npy_kind_name(NpyKind k) { return kinds[k].name; }

double npy_get(const Npy *a, int64_t i)
{
    double x = 0;
    switch (a->kind) {
    case NPY_F32: return ((float *)a->data)[i];
    case NPY_I32: return ((int32_t *)a->data)[i];
    case NPY_F64: return ((double *)a->data)[i];
    case NPY_I64: return (double)((int64_t *)a->data)[i];
    case NPY_F16:
        dpc_safe_convert(DPC_SAFE_F16, (uint16_t *)a->data + i, DPC_SAFE_F64,
                         &x, 1);
        return x;
    default: return ((uint8_t *)a->data)[i];
    }
}

int64_t npy_count(const Npy *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->dim[i];
    return n;
}

int64_t npy_row(const Npy *a)
{
    int64_t n = 1;
    for (int i = 1; i < a->ndim; i++)
        n *= a->dim[i];
    return n;
}

static size_t npy_bytes(const Npy *a)
{
    return (size_t)npy_count(a) * (size_t)kinds[a->kind].bytes;
}

Npy npy_make(Arena *arena, NpyKind kind, int ndim, const int64_t *dim)
{
    Npy a = { .kind = kind, .ndim = ndim };
    memcpy(a.dim, dim, (size_t)ndim * sizeof *dim);
    a.data = alloc(arena, npy_bytes(&a) + 1);
    return a;
}

/* ---- out ---- */

/* The head ends on a multiple of 64, so that the elements are aligned. */
static size_t head_make(const Npy *a, char *to)
{
    size_t n = MAGIC + 4;
    n += (size_t)sprintf(to + n, "{'descr': '%s', 'fortran_order': False, "
                         "'shape': (", kinds[a->kind].descr);
    for (int i = 0; i < a->ndim; i++)
        n += (size_t)sprintf(to + n, "%lld,%s", (long long)a->dim[i],
                             i + 1 < a->ndim ? " " : "");
    n += (size_t)sprintf(to + n, "), }");
    while ((n + 1) % 64)
        to[n++] = ' ';
    to[n++] = '\n';
    memcpy(to, magic, MAGIC);
    to[6] = 1, to[7] = 0;
    to[8] = (char)((n - 10) & 255), to[9] = (char)((n - 10) >> 8);
    return n;
}

void npy_write(const Npy *a, const char *path)
{
    char head[HEAD];
    size_t n = head_make(a, head), bytes = npy_bytes(a);
    FILE *f = fopen(path, "wbe");
    if (!f)
        err_code(5, path, "cannot be written: %s", strerror(errno));
    bool ok = fwrite(head, 1, n, f) == n;
    ok &= fwrite(a->data, 1, bytes, f) == bytes;
    ok &= fclose(f) == 0;
    if (!ok)
        err_code(5, path, "cannot be written: %s", strerror(errno));
}

/* ---- in ---- */

/* What follows 'key': in the head. */
static const char *field(const char *head, const char *key, const char *path)
{
    const char *p = strstr(head, key);
    if (!p || !(p = strchr(p, ':')))
        err(path, "no .npy array: its head lacks %s", key);
    return p + 1 + strspn(p + 1, " ");
}

static NpyKind kind_read(const char *head, const char *path)
{
    const char *p = field(head, "'descr'", path);
    for (NpyKind k = 0; k < (NpyKind)COUNT(kinds); k++)
        if (strncmp(p + 1, kinds[k].descr, 3) == 0)
            return k;
    err(path, "an array of %.*s; wanted one of <f4 <f8 <f2 <i4 <i8 |u1 |b1",
        (int)strcspn(p + 1, "'") + 2, p);
}

static void shape_read(const char *head, const char *path, Npy *a)
{
    const char *p = field(head, "'shape'", path);
    char *end;
    double most = 1;
    while (*p && !strchr(")\n", *p)) {
        p += strspn(p, "(, ");
        if (*p == ')')
            break;
        int64_t n = strtoll(p, &end, 10);
        most *= (double)n;
        if (end == p || n < 0 || a->ndim == NPY_NDIM || most > 1e10)
            err(path, "no .npy array: its shape is not readable");
        a->dim[a->ndim++] = n;
        p = end;
    }
}

static size_t head_read(FILE *f, const char *path, char *head, size_t size)
{
    unsigned char b[12];
    if (fread(b, 1, 10, f) != 10 || memcmp(b, magic, MAGIC) != 0)
        err(path, "no .npy array: it does not begin with \\x93NUMPY");
    size_t n = b[8] + 256u * b[9];
    if (b[6] > 1) {
        if (fread(b + 10, 1, 2, f) != 2)
            err(path, "no .npy array: it ends in its head");
        n += 65536u * b[10] + 16777216u * b[11];
    }
    if (n >= size || fread(head, 1, n, f) != n)
        err(path, "no .npy array: it ends in its head");
    head[n] = 0;
    return n;
}

/* In the file the first index goes fastest (a tensor of torch that was
 * permuted); here the last does. */
static void rows_make(Arena *arena, Npy *a)
{
    size_t size = (size_t)kinds[a->kind].bytes;
    int64_t at[NPY_NDIM] = { 0 }, n = npy_count(a);
    char *to = alloc(arena, npy_bytes(a) + 1);
    for (int64_t k = 0; k < n; k++) {
        int64_t row = 0;
        for (int i = 0; i < a->ndim; i++)
            row = row * a->dim[i] + at[i];
        memcpy(to + (size_t)row * size, (char *)a->data + (size_t)k * size,
               size);
        for (int i = 0; i < a->ndim && ++at[i] == a->dim[i]; i++)
            at[i] = 0;
    }
    a->data = to;
}

Npy npy_read(Arena *arena, const char *path)
{
    char head[65536 + 16];
    FILE *f = fopen(path, "rbe");
    if (!f)
        err(path, "cannot be opened: %s", strerror(errno));
    head_read(f, path, head, sizeof head);
    Npy a = { .kind = kind_read(head, path) };
    bool columns = strncmp(field(head, "'fortran_order'", path), "True", 4)
                   == 0;
    shape_read(head, path, &a);
    size_t n = npy_bytes(&a);
    a.data = alloc(arena, n + 1);
    if (fread(a.data, 1, n, f) != n)
        err(path, "ends early: %zu bytes of elements wanted", n);
    fclose(f);
    if (columns)
        rows_make(arena, &a);
    return a;
}
