/* data_npy.c -- NumPy's .npy files, versions 1 to 3.
 *
 * Head: "\x93NUMPY", version, length, then a Python dictionary as text.  It
 * is read here by a strict scanner of the only three keys there are; nothing
 * of it is trusted before the size of the file agrees.
 * numpy/lib/format.py describes the format. */
#include "runtime/data_reader.h"
#include "runtime/disk.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 1 << 16, MAGIC = 6 };

/* What the dictionary says. */
typedef struct Npy {
    char descr[32];
    int fortran;                          /* -1: not said */
    int ndim;                             /* -1: not said */
    int64_t dim[DPC_NDIM + 1];
} Npy;

static bool eat(const char **p, const char *word)
{
    while (isspace((unsigned char)**p))
        ++*p;
    size_t n = strlen(word);
    if (strncmp(*p, word, n))
        return false;
    *p += n;
    return true;
}

/* A quoted string without escapes. */
static bool quoted(const char **p, char *to, size_t size)
{
    char q = eat(p, "'") ? '\'' : eat(p, "\"") ? '"' : 0;
    size_t n = 0;
    if (!q)
        return false;
    for (; **p && **p != q; ++*p)
        if (n + 1 < size)
            to[n++] = **p;
    to[n] = '\0';
    return *(*p)++ == q;
}

/* "(3, 4)", "(3,)" or "()". */
static bool shape(const char **p, Npy *h)
{
    if (!eat(p, "("))
        return false;
    for (h->ndim = 0; !eat(p, ")"); h->ndim++) {
        char *end;
        if (h->ndim && !eat(p, ","))
            return false;
        if (eat(p, ")"))
            return true;
        if (!isdigit((unsigned char)**p) || h->ndim > DPC_NDIM)
            return false;
        errno = 0;
        h->dim[h->ndim] = strtoll(*p, &end, 10);
        if (errno)
            return false;
        *p = end;
        eat(p, "L");                            /* as Python 2 wrote it */
    }
    return true;
}

/* A structured type is a list: kept as its first characters. */
static bool descr(const char **p, Npy *h)
{
    if (!eat(p, "["))
        return quoted(p, h->descr, sizeof h->descr);
    strcpy(h->descr, "[...]");
    for (int depth = 1; depth; ++*p) {
        if (!**p)
            return false;
        depth += (**p == '[') - (**p == ']');
    }
    return true;
}

static bool dictionary(const char *p, Npy *h)
{
    char key[16];
    *h = (Npy){ .fortran = -1, .ndim = -1 };
    if (!eat(&p, "{"))
        return false;
    while (!eat(&p, "}")) {
        if (!quoted(&p, key, sizeof key) || !eat(&p, ":"))
            return false;
        bool ok = false;
        if (!strcmp(key, "descr"))
            ok = descr(&p, h);
        else if (!strcmp(key, "fortran_order"))
            ok = (h->fortran = eat(&p, "True")) || eat(&p, "False");
        else if (!strcmp(key, "shape"))
            ok = shape(&p, h);
        if (!ok)
            return false;
        eat(&p, ",");
    }
    return h->descr[0] && h->fortran >= 0 && h->ndim >= 0;
}

/* A type NumPy writes, and what it becomes. */
static bool stored_type(const char *d, DpcColumn *c)
{
    static const struct {
        const char *name;
        DpcStored stored;
        DpcDtype dtype;
    } type[] = {
        { "u1", DPC_STORED_U8, DPC_U8 },   { "b1", DPC_STORED_U8, DPC_U8 },
        { "i4", DPC_STORED_I32, DPC_I32 }, { "i8", DPC_STORED_I64, DPC_I32 },
        { "f2", DPC_STORED_F16, DPC_F32 }, { "f4", DPC_STORED_F32, DPC_F32 },
        { "f8", DPC_STORED_F64, DPC_F32 },
    };
    bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    if (!*d || !strchr("<>|=", *d))
        return false;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (!strcmp(d + 1, type[i].name)) {
            c->stored = type[i].stored;
            c->field.dtype = type[i].dtype;
            c->swap = *d == (little ? '>' : '<');
            return true;
        }
    return false;
}

/* The dictionary as text into `text` of HEAD_MAX + 1 bytes; the array begins
 * at c->at, which moves behind its head. */
static DpcStatus head_text(const char *path, DpcColumn *c, int64_t size,
                           char *text)
{
    uint8_t h[MAGIC + 6] = { 0 };
    ssize_t got = pread(c->fd, h, sizeof h, c->at);
    bool npy = got == (ssize_t)sizeof h && !memcmp(h, "\x93NUMPY", MAGIC);
    DpcStatus s = npy ? DPC_OK : dpc_impostor_file(path, "data");
    if (s)
        return s;
    if (!npy)
        return dpc_fail(DPC_USER, "%s: error: data: not a .npy file: it does "
                        "not begin with \"\\x93NUMPY\"; write it with "
                        "numpy.save", path);
    if (h[6] < 1 || h[6] > 3)
        return dpc_fail(DPC_USER, "%s: error: data: .npy version %d.%d; 1 to "
                        "3 are read", path, h[6], h[7]);
    int64_t n = h[8] | h[9] << 8, begin = h[6] == 1 ? 10 : 12;
    if (h[6] > 1)
        n |= (int64_t)h[10] << 16 | (int64_t)h[11] << 24;
    if (n > HEAD_MAX || begin + n > size)
        return dpc_fail(DPC_USER, "%s: error: data: the .npy head has %lld "
                        "bytes, the file %lld, allowed are %d; write it "
                        "again", path, (long long)n, (long long)size,
                        HEAD_MAX);
    if (pread(c->fd, text, (size_t)n, c->at + begin) != n)
        return dpc_fail(DPC_ENV, "%s: error: data: cannot read the head: %s",
                        path, strerror(errno));
    text[n] = '\0';
    c->at += begin + n;
    return DPC_OK;
}

static DpcStatus npy_check(const char *path, const Npy *h, int64_t size,
                           DpcColumn *c)
{
    if (!stored_type(h->descr, c))
        return dpc_fail(DPC_USER, "%s: error: data: type \"%s\" is not read; "
                        "store u1, b1, i4, i8, f2, f4 or f8, e.g. "
                        "a.astype(numpy.float32)", path, h->descr);
    if (h->fortran)
        return dpc_fail(DPC_USER, "%s: error: data: fortran_order is True, "
                        "wanted False; save numpy.ascontiguousarray(a)",
                        path);
    int64_t bytes = dpc_stored_size(c->stored);
    for (int i = 0; i < h->ndim; i++)
        if (!dpc_size_mul(&bytes, h->dim[i]))
            return dpc_fail(DPC_USER, "%s: error: data: dimension %d of size "
                            "%lld: %s", path, i, (long long)h->dim[i],
                            h->dim[i] ? "more than 63 bits of bytes; save a "
                            "smaller array" : "no data; save a non-empty "
                            "array");
    if (size != bytes)
        return dpc_fail(DPC_USER, "%s: error: data: the head promises %lld "
                        "bytes of data, the file has %lld; write it again",
                        path, (long long)bytes, (long long)size);
    return DPC_OK;
}

/* Stem of the path: the field's name. */
static char *stem(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    return strndup(base, dot ? (size_t)(dot - base) : strlen(base));
}

static DpcStatus head_read(const char *path, int64_t size, DpcColumn *c,
                           Npy *h)
{
    int64_t begin = c->at;
    char *text = malloc(HEAD_MAX + 1);
    if (!text)
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    DpcStatus s = head_text(path, c, size, text);
    if (!s && !dictionary(text, h))
        s = dpc_fail(DPC_USER, "%s: error: data: the .npy head \"%.80s\" is "
                     "not {'descr': type, 'fortran_order': bool, 'shape': "
                     "up to %d sizes}; write it with numpy.save", path, text,
                     DPC_NDIM + 1);
    free(text);
    return s ? s : npy_check(path, h, size - (c->at - begin), c);
}

DpcStatus dpc_npy_head(const char *path, int64_t size, DpcColumn *c)
{
    Npy h;
    DpcStatus s = head_read(path, size, c, &h);
    if (!s && h.ndim > DPC_NDIM)
        s = dpc_fail(DPC_USER, "%s: error: data: an array of %d dimensions; "
                     "at most %d are read", path, h.ndim, DPC_NDIM);
    if (s)
        return s;
    c->count = 1;
    c->field.ndim = h.ndim;
    memcpy(c->field.dim, h.dim, sizeof c->field.dim);
    return DPC_OK;
}

DpcStatus dpc_npy_rows(const char *path, int64_t size, DpcColumn *c)
{
    Npy h;
    DpcStatus s = head_read(path, size, c, &h);
    if (!s && h.ndim < 1)
        s = dpc_fail(DPC_USER, "%s: error: data: shape () has no dimension "
                     "for the samples; wanted at least 1", path);
    if (s)
        return s;
    c->count = h.dim[0];
    c->field.ndim = h.ndim - 1;
    memcpy(c->field.dim, h.dim + 1, sizeof c->field.dim);
    return DPC_OK;
}

DpcStatus dpc_npy_column(const char *path, DpcColumn *c)
{
    struct stat st;
    c->path = strdup(path);
    c->name = stem(path);
    if (!c->path || !c->name)
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    c->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0 || fstat(c->fd, &st))
        return dpc_fail(DPC_USER, "%s: error: data: %s; give an existing "
                        "file or folder", path, strerror(errno));
    return dpc_npy_rows(path, st.st_size, c);
}
