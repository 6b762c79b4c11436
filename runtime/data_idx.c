/* data_idx.c -- IDX files, the format of MNIST: plain or gzipped.
 *
 * Head: 0, 0, type, number of dimensions, then a big-endian 32-bit size each.
 * A plain file stays on disk; a gzipped one cannot be read at random and is
 * unpacked into memory.  Deflate packs no better than 1032 : 1 (zlib's own
 * figure), so a head that promises more is refused before memory is asked
 * for.  http://yann.lecun.com/exdb/mnist/ */
#include "runtime/data_reader.h"
#include "runtime/disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { DEFLATE_RATIO = 1032 };

/* ---- names ---- */

/* "-idx3" of "train-images-idx3-ubyte.gz", else NULL. */
static const char *idx_mark(const char *name)
{
    for (const char *p = name; (p = strstr(p, "idx")); p++)
        if (p > name && strchr("-._", p[-1]) && p[3] >= '1' && p[3] <= '9')
            return p - 1;
    return NULL;
}

static const char *skip_split(const char *name, const char *split)
{
    static const char *const word[] = { "train", "test", "t10k" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(word[i]);
        if (!strncmp(name, word[i], n) && name[n] && strchr("-._", name[n]))
            return !split || !strcmp(split, i ? "test" : "train")
                   ? name + n + 1 : NULL;
    }
    return split ? NULL : name;
}

/* "image" of "dir/train-images-idx3-ubyte.gz"; the stem of another name. */
static char *field_name(const char *path)
{
    const char *base = strrchr(path, '/');
    base = skip_split(base ? base + 1 : path, NULL);
    const char *end = idx_mark(base);
    if (!end)
        end = base + strcspn(base, ".");
    if (end - base > 1 && end[-1] == 's')
        end--;
    return strndup(base, (size_t)(end - base));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_idx(const struct dirent *e) { return !!idx_mark(e->d_name); }

DpcStatus dpc_idx_find(const char *dir, const char *split, char **path,
                       int *n)
{
    struct dirent **e;
    DpcStatus s = DPC_OK;
    *n = 0;
    int k = scandir(dir, &e, is_idx, by_name);
    if (k < 0)
        return dpc_fail(DPC_USER, "%s: error: data: cannot read the folder: "
                        "%s; look at its permissions", dir, strerror(errno));
    const char *last = "";
    for (int i = 0; i < k && !s && *n < DPC_NFIELD; i++) {
        const char *name = e[i]->d_name;
        size_t len = strlen(last);
        /* x and x.gz are neighbours: the plain one serves. */
        if (!skip_split(name, split) ||
            (len && !strncmp(name, last, len) && !strcmp(name + len, ".gz")))
            continue;
        last = name;
        if (!(path[*n] = dpc_path_join(dir, name)))
            s = dpc_fail(DPC_MEMORY, "data: error: out of memory");
        else
            ++*n;
    }
    for (int i = 0; i < k; i++)
        free(e[i]);
    free(e);
    return s;
}

/* ---- contents ---- */

/* Reads up to n bytes: what it got, -1 where the stream is damaged.  *why:
 * what is wrong so far, NULL for nothing; zlib's text without the name. */
static int64_t gz_read(gzFile z, uint8_t *to, int64_t n, const char **why)
{
    int64_t got = 0;
    int code, k = 0;
    while (got < n) {
        int64_t part = n - got < 1 << 24 ? n - got : 1 << 24;
        k = gzread(z, to + got, (unsigned)part);
        if (k > 0)
            got += k;
        if (k < part)
            break;
    }
    const char *text = gzerror(z, &code), *colon = strrchr(text, ':');
    *why = colon ? colon + 2 : text;
    if (code == Z_ERRNO)
        *why = strerror(errno);
    if (code == Z_BUF_ERROR)
        *why = "the gzip stream ends early";
    if (!code || code == Z_STREAM_END)
        *why = k < 0 ? "cannot be read" : NULL;
    return k < 0 ? -1 : got;
}

static DpcStatus idx_damaged(const char *path, const char *why)
{
    return dpc_fail(DPC_USER, "%s: error: data: damaged: %s; get the file "
                    "again", path, why);
}

static DpcStatus idx_type(const char *path, const uint8_t *h, DpcColumn *c)
{
    DpcStatus s = h[0] || h[1] ? dpc_impostor_file(path, "data") : DPC_OK;
    if (s)
        return s;
    if (h[0] || h[1])
        return dpc_fail(DPC_USER, "%s: error: data: not an IDX file: it "
                        "begins with %02x%02x, IDX with 0000; give an IDX "
                        "or .npy file, or a folder", path, h[0], h[1]);
    switch (h[2]) {
    case 0x08: c->stored = DPC_STORED_U8, c->field.dtype = DPC_U8; break;
    case 0x0c: c->stored = DPC_STORED_I32, c->field.dtype = DPC_I32; break;
    case 0x0d: c->stored = DPC_STORED_F32, c->field.dtype = DPC_F32; break;
    case 0x0e: c->stored = DPC_STORED_F64, c->field.dtype = DPC_F32; break;
    default:
        return dpc_fail(DPC_USER, "%s: error: data: IDX type 0x%02x is not "
                        "read; store 0x08 (u8), 0x0c (i32), 0x0d (f32) or "
                        "0x0e (f64)", path, h[2]);
    }
    if (h[3] < 1 || h[3] > DPC_NDIM + 1)
        return dpc_fail(DPC_USER, "%s: error: data: IDX head has %d "
                        "dimensions; wanted 1 to %d", path, h[3],
                        DPC_NDIM + 1);
    c->swap = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    c->field.ndim = h[3] - 1;
    c->at = 4 + 4 * h[3];
    return DPC_OK;
}

/* The head; *bytes: what it promises behind it. */
static DpcStatus idx_head(gzFile z, const char *path, DpcColumn *c,
                          int64_t *bytes)
{
    uint8_t h[4 + 4 * (DPC_NDIM + 1)];
    const char *why;
    int64_t got = gz_read(z, h, 4, &why);
    if (got < 0)
        return idx_damaged(path, why);
    DpcStatus s = got == 4 ? idx_type(path, h, c) : DPC_OK;
    if (s)
        return s;
    int64_t want = got == 4 ? c->at : 4;
    if (got == 4)
        got += gz_read(z, h + 4, want - 4, &why);
    if (got < want)
        return dpc_fail(DPC_USER, "%s: error: data: the IDX head ends at "
                        "byte %lld of %lld%s%s; get the file again", path,
                        (long long)got, (long long)want, why ? ": " : "",
                        why ? why : "");
    *bytes = dpc_stored_size(c->stored);
    for (int i = 0; i <= c->field.ndim; i++) {
        const uint8_t *p = h + 4 + 4 * i;
        int64_t n = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        *(i ? &c->field.dim[i - 1] : &c->count) = n;
        if (!dpc_size_mul(bytes, n))
            return dpc_fail(DPC_USER, "%s: error: data: IDX dimension %d of "
                            "size %lld: %s; get the file again", path, i,
                            (long long)n, n ? "more than 63 bits of bytes"
                            : "no data");
    }
    return DPC_OK;
}

static DpcStatus idx_short(const char *path, int64_t want, const char *than,
                           int64_t got, const char *why)
{
    return dpc_fail(DPC_USER, "%s: error: data: the head promises %lld bytes "
                    "of data, the file has %s%lld%s%s; get the file again",
                    path, (long long)want, than, (long long)got,
                    why ? ": " : "", why ? why : "");
}

static DpcStatus idx_unpack(gzFile z, const char *path, int64_t size,
                            int64_t bytes, DpcColumn *c)
{
    const char *why;
    uint8_t more;
    if (bytes / DEFLATE_RATIO > size)
        return idx_short(path, bytes, "at most ", size * DEFLATE_RATIO, NULL);
    if (!(c->mem = malloc((size_t)bytes)))
        return dpc_fail(DPC_MEMORY, "%s: error: data: no memory for %lld "
                        "bytes; unpack it with gunzip, plain files stay on "
                        "disk", path, (long long)bytes);
    int64_t got = gz_read(z, c->mem, bytes, &why);
    if (got < 0)
        return idx_damaged(path, why);
    if (got < bytes)
        return idx_short(path, bytes, "", got, why);
    got = gz_read(z, &more, 1, &why);           /* checks the CRC, too */
    if (why)
        return idx_damaged(path, why);
    return got ? idx_short(path, bytes, "more than ", bytes, NULL) : DPC_OK;
}

static DpcStatus idx_body(gzFile z, const char *path, int64_t bytes,
                          DpcColumn *c)
{
    struct stat st;
    c->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (c->fd < 0 || fstat(c->fd, &st))
        return dpc_fail(DPC_ENV, "%s: error: data: %s", path,
                        strerror(errno));
    if (gzdirect(z))
        return st.st_size - c->at == bytes ? DPC_OK
             : idx_short(path, bytes, "", st.st_size - c->at, NULL);
    close(c->fd);
    c->fd = -1;
    return idx_unpack(z, path, st.st_size, bytes, c);
}

DpcStatus dpc_idx_column(const char *path, DpcColumn *c)
{
    int64_t bytes;
    c->path = strdup(path);
    c->name = field_name(path);
    if (!c->path || !c->name)
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    gzFile z = gzopen(path, "rbe");
    if (!z)
        return dpc_fail(DPC_USER, "%s: error: data: %s; give an existing "
                        "file or folder", path, strerror(errno));
    gzbuffer(z, 1 << 17);
    DpcStatus s = idx_head(z, path, c, &bytes);
    if (!s)
        s = idx_body(z, path, bytes, c);
    gzclose(z);
    return s;
}
