/* data_column.c -- files that hold one field of all samples in a row.
 *
 * IDX and .npy differ in their heads only: behind it, sample i lies at
 * at + i * bytes.  Such a file stays on disk and is read at random with pread
 * (the page cache does the rest), or is in memory if it had to be unpacked.
 * Numbers are widened or narrowed to the four types of the runtime. */
#include "runtime/data_reader.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Columns { int n; DpcColumn column[DPC_NFIELD]; } Columns;

int64_t dpc_stored_size(DpcStored t)
{
    static const uint8_t size[] = { 1, 2, 4, 4, 8, 8, 2 };
    return size[t];
}

static float half_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31;
    uint32_t m = h & 1023;
    float f;
    if (e == 0) {                               /* zero, subnormal: m 2^-24 */
        f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    uint32_t bits = sign | (e == 31 ? 255 : e + 112) << 23 | m << 13;
    memcpy(&f, &bits, 4);
    return f;
}

static void swap_bytes(uint8_t *p, int64_t n, int size)
{
    for (; n--; p += size)
        for (int i = 0; i < size / 2; i++) {
            uint8_t t = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = t;
        }
}

/* n stored numbers to the field's type; those of 64 bits were checked. */
static void convert(DpcStored t, const uint8_t *from, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        int64_t l;
        double x;
        if (t == DPC_STORED_F16) {
            memcpy(&h, from + 2 * i, 2);
            memcpy(to + 4 * i, &(float){ half_float(h) }, 4);
        } else if (t == DPC_STORED_F64) {
            memcpy(&x, from + 8 * i, 8);
            memcpy(to + 4 * i, &(float){ (float)x }, 4);
        } else {
            memcpy(&l, from + 8 * i, 8);
            memcpy(to + 4 * i, &(int32_t){ (int32_t)l }, 4);
        }
    }
}

/* `n` bytes at `at` of the column's data. */
static DpcStatus fetch(const DpcColumn *c, int64_t at, int64_t n, uint8_t *to)
{
    if (c->mem) {
        memcpy(to, c->mem + at, (size_t)n);
        return DPC_OK;
    }
    return dpc_file_take(c->path, c->fd, c->at + at, n, to);
}

DpcStatus dpc_column_read(const DpcColumn *c, int64_t sample, void *to)
{
    enum { CHUNK = 512 };
    int64_t size = dpc_stored_size(c->stored);
    int64_t out = dpc_dtype_size(c->field.dtype);
    int64_t n = dpc_field_bytes(&c->field) / out, at = sample * n * size;
    bool same = size == out && c->stored != DPC_STORED_F16;
    if (same) {
        DpcStatus s = fetch(c, at, n * size, to);
        if (!s && c->swap)
            swap_bytes(to, n, (int)size);
        return s;
    }
    uint8_t part[CHUNK * 8];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t k = n - i < CHUNK ? n - i : CHUNK;
        DpcStatus s = fetch(c, at + i * size, k * size, part);
        if (s)
            return s;
        if (c->swap)
            swap_bytes(part, k, (int)size);
        convert(c->stored, part, k, (uint8_t *)to + i * out);
    }
    return DPC_OK;
}

DpcStatus dpc_column_check(const DpcColumn *c, int64_t sample)
{
    enum { CHUNK = 512 };
    int64_t part[CHUNK], v;
    int64_t n = dpc_field_bytes(&c->field) / dpc_dtype_size(c->field.dtype);
    if (c->stored != DPC_STORED_I64)
        return DPC_OK;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t k = n - i < CHUNK ? n - i : CHUNK;
        DpcStatus s = fetch(c, (sample * n + i) * 8, k * 8, (uint8_t *)part);
        if (s)
            return s;
        if (c->swap)
            swap_bytes((uint8_t *)part, k, 8);
        for (int64_t j = 0; j < k; j++)
            if ((v = part[j]) < INT32_MIN || v > INT32_MAX)
                return dpc_fail(DPC_USER, "%s: error: data: sample %lld holds "
                                "%lld, a number beyond 32 bits; store "
                                "numbers between %d and %d",
                                c->path, (long long)sample, (long long)v,
                                INT_MIN, INT_MAX);
    }
    return DPC_OK;
}

static DpcStatus column_seek(void *self, int64_t sample)
{
    const Columns *cs = self;
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < cs->n; i++)
        s = dpc_column_check(&cs->column[i], sample);
    return s;
}

static DpcStatus column_read(void *self, int64_t sample, int field, void *to)
{
    return dpc_column_read(&((Columns *)self)->column[field], sample, to);
}

static void column_close(void *self)
{
    Columns *cs = self;
    for (int i = 0; i < cs->n; i++) {
        DpcColumn *c = &cs->column[i];
        if (c->fd >= 0)
            close(c->fd);
        free(c->mem);
        free(c->path);
        free(c->name);
    }
    free(cs);
}

static const DpcReader columns = {
    .seek = column_seek, .read = column_read, .close = column_close
};

/* The new column against those before it. */
static DpcStatus column_check(const Columns *cs)
{
    const DpcColumn *a = &cs->column[0], *c = &cs->column[cs->n - 1];
    if (c->count != a->count)
        return dpc_fail(DPC_USER, "%s: error: data: %lld samples, but \"%s\" "
                        "has %lld; give files of one set", c->path,
                        (long long)c->count, a->path, (long long)a->count);
    for (a = cs->column; a < c; a++)
        if (!strcmp(a->name, c->name))
            return dpc_fail(DPC_USER, "%s: error: data: field \"%s\" is also "
                            "in \"%s\"; rename one of the files", c->path,
                            c->name, a->path);
    return DPC_OK;
}

DpcStatus dpc_columns_open(char *const *path, int n, DpcColumnFn *head,
                           DpcData *d)
{
    Columns *cs = calloc(1, sizeof *cs);
    if (!cs)
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    d->reader = &columns;
    d->self = cs;
    d->bytes += (int64_t)sizeof *cs;
    for (int i = 0; i < n; i++) {
        DpcColumn *c = &cs->column[cs->n++];
        c->fd = -1;
        DpcStatus s = head(path[i], c);
        if (!s)
            s = column_check(cs);
        if (s)
            return s;
        c->field.name = c->name;
        d->field[d->nfield++] = c->field;
        if (c->mem)
            d->bytes += c->count * dpc_field_bytes(&c->field);
    }
    d->count = cs->column[0].count;
    return DPC_OK;
}
