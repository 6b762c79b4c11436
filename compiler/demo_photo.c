/* demo_photo.c -- the photographs of Fashion-MNIST, in IDX files.
 *
 * Head: 0, 0, 8 (unsigned bytes), number of dimensions, then a big-endian
 * 32-bit size each.  zlib reads plain files as it reads gzipped ones.
 * https://github.com/zalandoresearch/fashion-mnist */
#include "compiler/demo.h"
#include <unistd.h>
#include <zlib.h>

enum { MOST = 1 << 28 };                  /* bytes: guards a crafted head */

static const char *file_find(Arena *a, const char *dir, const char *name)
{
    const char *gz = fmt(a, "%s/%s.gz", dir, name);
    const char *plain = fmt(a, "%s/%s", dir, name);
    if (access(plain, R_OK) == 0)
        return plain;
    if (access(gz, R_OK) == 0)
        return gz;
    err_code(5, gz, "the photographs are missing; run: "
             "apt-get install -y dataset-fashion-mnist, or give --data DIR");
}

void photos_check(Arena *a, const char *dir)
{
    static const char *const split[] = { "train", "t10k" };
    for (int i = 0; i < COUNT(split); i++) {
        file_find(a, dir, fmt(a, "%s-images-idx3-ubyte", split[i]));
        file_find(a, dir, fmt(a, "%s-labels-idx1-ubyte", split[i]));
    }
}

_Noreturn static void spoiled(gzFile z, const char *path, const char *what)
{
    if (z)
        gzclose(z);
    err(path, "%s", what);
}

/* All of an IDX file of `ndim` dimensions of bytes; fills dim. */
static uint8_t *idx_read(Arena *a, const char *path, int ndim, int64_t *dim)
{
    uint8_t head[16];
    unsigned size = (unsigned)(4 + 4 * ndim);
    gzFile z = gzopen(path, "rbe");
    if (!z || gzread(z, head, size) != (int)size)
        spoiled(z, path, "cannot be read; get the file again");
    if (head[0] || head[1] || head[2] != 8 || head[3] != ndim)
        spoiled(z, path, fmt(a, "no IDX file of %d dimensions of bytes",
                             ndim));
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        const uint8_t *p = head + 4 + 4 * i;
        dim[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        n = dim[i] <= MOST ? n * dim[i] : MOST + 1;
        if (n > MOST)
            spoiled(z, path, "damaged: its head promises too much");
    }
    uint8_t *to = alloc(a, (size_t)n + 1);
    int got = gzread(z, to, (unsigned)n);
    gzclose(z);
    if (got != n)
        err(path, "ends early: %lld bytes wanted; get the file again",
            (long long)n);
    return to;
}

Photos photos_read(Arena *a, const char *dir, const char *split)
{
    int64_t dim[3], nlabel;
    const char *name = fmt(a, "%s-images-idx3-ubyte", split);
    const char *path = file_find(a, dir, name);
    Photos p = { .pixel = idx_read(a, path, 3, dim) };
    p.n = dim[0], p.h = dim[1], p.w = dim[2];
    path = file_find(a, dir, fmt(a, "%s-labels-idx1-ubyte", split));
    p.label = idx_read(a, path, 1, &nlabel);
    if (nlabel != p.n)
        err(path, "%lld labels for %lld photographs", (long long)nlabel,
            (long long)p.n);
    return p;
}
