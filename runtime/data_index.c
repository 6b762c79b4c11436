/* data_index.c -- where the records of archives lie, written down once.
 *
 * An archive tells its members one head after the other; a folder of many
 * archives takes long to list, and on a network longer.  The file "dpc.index"
 * beside them has it in text, a line a record:
 *
 *     dpc.index 1
 *     tar 000000.tar 20480 2            name, bytes, records
 *     KEY <tab> jpg 512 1234 <tab> txt 2048 12 <tab> 0123456789abcdef
 *     ...                               members: end of name, place, bytes;
 *                                       XXH3-64 of their bytes in this order
 *     pad text 77                       NAME has records of up to 77 rows
 *     end 2 HASH                        records; XXH3-128 of all lines above
 *
 * A record's number is that of its line, so a run that is resumed reads what
 * the broken one would have read, or is told that the data are others. */
#define _GNU_SOURCE                       /* memrchr */
#include "runtime/data_tar.h"
#include "runtime/disk.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char head[] = "dpc.index 1\n", again[] =
    "make it anew: dpc data index";

typedef struct Entry {                    /* of an archive */
    const char *name;
    int64_t bytes, count;
    char *line;                           /* its first record's */
    bool used;
} Entry;

struct DpcIndex {
    char path[DPC_PATH], *text, *end;
    Entry *tar;
    int ntar, cap;
    struct DpcDataPad pad[DPC_NFIELD];
    int npad;
    char hash[DPC_HASH];
    int64_t count;                        /* records */
};

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

static DpcStatus bad(const DpcIndex *x, const char *what)
{
    return dpc_fail(DPC_USER, "%s: error: data: %s; %s", x->path, what, again);
}

/* ---- reading ---- */

static DpcStatus text_read(DpcIndex *x, FILE *f, size_t *n)
{
    struct stat st;
    if (fstat(fileno(f), &st))
        return dpc_fail(DPC_ENV, "%s: error: data: %s", x->path,
                        strerror(errno));
    *n = (size_t)st.st_size;
    if (!(x->text = malloc(*n + 1)))
        return no_memory();
    if (fread(x->text, 1, *n, f) != *n)
        return dpc_fail(DPC_ENV, "%s: error: data: cannot be read", x->path);
    x->text[*n] = '\0';
    return DPC_OK;
}

/* The last line hashes all before it. */
static DpcStatus hash_check(DpcIndex *x, size_t n)
{
    char want[DPC_HASH + 32];
    char *last = n > 1 ? memrchr(x->text, '\n', n - 1) : NULL;
    if (strncmp(x->text, head, sizeof head - 1))
        return bad(x, "it does not begin with \"dpc.index 1\"");
    if (!last || sscanf(last + 1, "end %" SCNd64, &x->count) != 1)
        return bad(x, "it breaks off");
    DpcHash *h = dpc_hash_open();
    if (!h)
        return no_memory();
    dpc_hash_add(h, x->text, (size_t)(last + 1 - x->text));
    dpc_hash_hex(h, x->hash);
    dpc_hash_close(h);
    snprintf(want, sizeof want, "end %" PRId64 " %s\n", x->count, x->hash);
    if (strcmp(last + 1, want))
        return bad(x, "it was changed or damaged: its hash is another");
    last[1] = '\0';
    x->end = last + 1;
    return DPC_OK;
}

static DpcStatus tar_line(DpcIndex *x, char *line, char *rest)
{
    if (x->ntar == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 64;
        Entry *e = realloc(x->tar, (size_t)x->cap * sizeof *e);
        if (!e)
            return no_memory();
        x->tar = e;
    }
    Entry e = {.name = line + 4, .line = rest};
    char *count = strrchr(e.name, ' ');
    if (count)
        *count++ = '\0';
    char *bytes = count ? strrchr(e.name, ' ') : NULL;
    if (!bytes)
        return bad(x, "a line of a tar is malformed");
    *bytes++ = '\0';
    e.bytes = strtoll(bytes, NULL, 10);
    e.count = strtoll(count, NULL, 10);
    x->tar[x->ntar++] = e;
    return DPC_OK;
}

/* Names of archives and pads; records are passed over. */
static DpcStatus lines_read(DpcIndex *x)
{
    char *rest = x->text + sizeof head - 1, *line;
    int64_t left = 0, sum = 0;
    DpcStatus s = DPC_OK;
    while (!s && *rest && (line = strsep(&rest, "\n"))) {
        struct DpcDataPad *p = &x->pad[x->npad];
        if (left-- > 0)
            continue;
        if (!strncmp(line, "tar ", 4)) {
            s = tar_line(x, line, rest);
            left = s ? 0 : x->tar[x->ntar - 1].count;
            sum += left;
        } else if (x->npad == DPC_NFIELD ||
                   sscanf(line, "pad %63s %" SCNd64, p->name, &p->rows) != 2) {
            s = bad(x, "a line is malformed");
        } else {
            x->npad++;
        }
    }
    if (!s && sum != x->count)
        s = bad(x, "its archives have another number of records than its end");
    return s;
}

DpcStatus dpc_index_open(const char *tar, DpcIndex **out)
{
    const char *slash = strrchr(tar, '/');
    DpcIndex *x = calloc(1, sizeof *x);
    size_t n = 0;
    *out = NULL;
    if (!x)
        return no_memory();
    DpcStatus s = dpc_path(x->path, "%.*s%s", slash ? (int)(slash - tar) + 1
                                                    : 0, tar, DPC_INDEX);
    FILE *f = s ? NULL : fopen(x->path, "rbe");
    if (!f) {                             /* there need not be one */
        s = s || errno == ENOENT ? s : bad(x, strerror(errno));
        free(x);
        return s;
    }
    s = text_read(x, f, &n);
    fclose(f);
    s = s ? s : hash_check(x, n);
    s = s ? s : lines_read(x);
    if (s)
        dpc_index_close(x);
    else
        *out = x;
    return s;
}

void dpc_index_close(DpcIndex *x)
{
    if (!x)
        return;
    free(x->text);
    free(x->tar);
    free(x);
}

/* "jpg 512 1234"; the last part of a line is the hash. */
static DpcStatus record_read(DpcIndex *x, DpcTars *t, int64_t bytes,
                             char *line)
{
    char *key = strsep(&line, "\t"), *part = "", ext[128];
    int64_t at, size;
    DpcStatus s = dpc_tars_sample(t, key);
    while (!s && line && (part = strsep(&line, "\t")) && line)
        if (sscanf(part, "%127s %" SCNd64 " %" SCNd64, ext, &at, &size) != 3 ||
            at < 0 || size < 0 || at > bytes || size > bytes - at)
            s = bad(x, "a record is malformed");
        else
            s = dpc_tars_member(t, ext, at, size);
    t->sample[t->count - 1].hash = s ? 0 : strtoull(part, NULL, 16);
    return s;
}

static DpcStatus entry_check(const DpcIndex *x, const Entry *e,
                             const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return dpc_fail(DPC_USER, "%s: error: data: %s; give existing "
                        "archives", path, strerror(errno));
    return st.st_size == e->bytes ? DPC_OK
         : dpc_fail(DPC_USER, "%s: error: data: %lld bytes, %s says %lld; %s",
                    path, (long long)st.st_size, x->path,
                    (long long)e->bytes, again);
}

DpcStatus dpc_index_tar(DpcIndex *x, DpcTars *t, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    Entry *e = x->tar;
    while (e < x->tar + x->ntar && strcmp(e->name, name))
        e++;
    if (e == x->tar + x->ntar)
        return dpc_fail(DPC_USER, "%s: error: data: not in %s; %s", path,
                        x->path, again);
    DpcStatus s = entry_check(x, e, path);
    if (!s && e->used)
        s = dpc_fail(DPC_USER, "%s: error: data: named twice; take one away",
                     path);
    char *line = e->line, *next;          /* lines end in zeros by now */
    for (int64_t i = 0; !s && i < e->count; i++, line = next) {
        next = line + strlen(line) + 1;
        s = line < x->end ? record_read(x, t, e->bytes, line)
                          : bad(x, "records are missing");
    }
    e->used = true;
    return s;
}

DpcStatus dpc_index_all_used(const DpcIndex *x)
{
    for (int i = 0; i < x->ntar; i++)
        if (!x->tar[i].used)
            return dpc_fail(DPC_USER, "%s: error: data: names %s, which is "
                            "not there; %s", x->path, x->tar[i].name, again);
    return DPC_OK;
}

const char *dpc_index_hash(const DpcIndex *x) { return x->hash; }

int64_t dpc_index_pad(const DpcIndex *x, int i, const char **name)
{
    *name = i < x->npad ? x->pad[i].name : "";
    return i < x->npad ? x->pad[i].rows : 0;
}

/* ---- writing ---- */

/* XXH3-64 of the bytes of a record's members, in their order. */
static DpcStatus record_hash(DpcTars *t, int64_t sample, uint64_t *hash)
{
    enum { CHUNK = 1 << 16 };
    static _Thread_local char part[CHUNK];
    const DpcTarSample *r = &t->sample[sample];
    XXH3_state_t state;
    int fd;
    DpcStatus s = DPC_OK;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (int64_t i = r[0].member; i < r[1].member; i++)
        for (int64_t at = 0; !s && at < t->member[i].size; at += CHUNK) {
            int64_t left = t->member[i].size - at;
            int64_t n = left < CHUNK ? left : CHUNK;
            s = dpc_file_open(&t->file, r->tar, &fd);
            s = s ? s : dpc_file_take(t->file.path[r->tar], fd,
                                      t->member[i].at + at, n, part);
            if (!s)
                XXH3_64bits_update(&state, part, (size_t)n);
        }
    *hash = XXH3_64bits_digest(&state);
    return s;
}

__attribute__((format(printf, 2, 3)))
static DpcStatus put(DpcOut *o, const char *f, ...)
{
    char line[DPC_PATH + 256];
    va_list ap;
    va_start(ap, f);
    int n = vsnprintf(line, sizeof line, f, ap);
    va_end(ap);
    return dpc_out_put(o, line, (size_t)n);
}

static DpcStatus record_put(DpcOut *o, DpcTars *t, int64_t sample)
{
    const DpcTarSample *r = &t->sample[sample];
    const char *key = dpc_tars_key(t, sample);
    char ext[128];
    uint64_t hash;
    DpcStatus s = record_hash(t, sample, &hash);
    if (!s && strpbrk(key, "\t\n"))
        s = dpc_tars_fail(t, sample, "a tab or a line's end in its name; "
                          "rename it");
    s = s ? s : put(o, "%s\t", key);
    for (int64_t i = r[0].member; !s && i < r[1].member; i++) {
        dpc_tars_ext(t, &t->member[i], ext, sizeof ext);
        s = strpbrk(ext, " \t\n")
          ? dpc_tars_fail(t, sample, "a space in the name \"%s\"; rename it",
                          ext)
          : put(o, "%s %" PRId64 " %" PRId64 "\t", ext, t->member[i].at,
                t->member[i].size);
    }
    return s ? s : put(o, "%016" PRIx64 "\n", hash);
}

/* The archive's name beside the index. */
static DpcStatus tar_put(DpcOut *o, const DpcTars *t, int tar, const char *dir,
                         int64_t count)
{
    const char *path = t->file.path[tar], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct stat st;
    if ((size_t)(name - path) != strlen(dir) ||
        strncmp(path, dir, strlen(dir)))
        return dpc_fail(DPC_USER, "%s: error: data: not in \"%s\" as the first "
                        "archive is; an index is of one folder", path, dir);
    if (stat(path, &st))
        return dpc_fail(DPC_USER, "%s: error: data: %s", path,
                        strerror(errno));
    return strchr(name, '\n')
         ? dpc_fail(DPC_USER, "%s: error: data: a line's end in its name",
                    path)
         : put(o, "tar %s %lld %" PRId64 "\n", name, (long long)st.st_size,
               count);
}

static DpcStatus tars_put(DpcOut *o, DpcTars *t, const char *dir)
{
    DpcStatus s = dpc_out_put(o, head, sizeof head - 1);
    int64_t at = 0;
    for (int tar = 0; !s && tar < t->file.n; tar++) {
        int64_t end = at;
        while (end < t->count && t->sample[end].tar == tar)
            end++;
        s = tar_put(o, t, tar, dir, end - at);
        for (; !s && at < end; at++)
            s = record_put(o, t, at);
    }
    return s;
}

/* Arrays whose records differ in rows, and in nothing else. */
static DpcStatus pads_put(DpcOut *o, DpcTars *t)
{
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < t->nfield; i++) {
        int64_t low = INT64_MAX, high = 0;
        for (int64_t k = 0; k < t->count; k++) {
            int64_t rows = dpc_tars_rows(t, k, i);
            low = rows > 0 && rows < low ? rows : low;
            high = rows > high ? rows : high;
        }
        if (low < high)
            s = put(o, "pad %s %" PRId64 "\n", t->field[i].field.name, high);
    }
    return s;
}

static DpcStatus index_put(DpcOut *o, DpcTars *t, const char *dir)
{
    char hex[DPC_HASH];
    DpcStatus s = tars_put(o, t, dir);
    s = s ? s : pads_put(o, t);
    s = s ? s : dpc_out_hash(o, hex);
    return s ? s : put(o, "end %" PRId64 " %s\n", t->count, hex);
}

DpcStatus dpc_data_index_write(DpcData *d, const char **where)
{
    enum { BUFFER = 1 << 16 };
    static char path[DPC_PATH];
    char dir[DPC_PATH], temp[DPC_PATH];
    DpcTars *t = d->self;
    if (d->reader != &dpc_tars_reader)
        return dpc_fail(DPC_USER, "data: error: an index is of archives; dpc "
                        "data pack makes them of a folder");
    const char *slash = strrchr(t->file.path[0], '/');
    DpcStatus s = dpc_path(dir, "%.*s", slash
                           ? (int)(slash - t->file.path[0]) + 1 : 0,
                           t->file.path[0]);
    s = s ? s : dpc_path(path, "%s%s", dir, DPC_INDEX);
    s = s ? s : dpc_path(temp, "%s.tmp-new", path);
    DpcOut o = {.disk = &dpc_disk, .buf = malloc(BUFFER), .cap = BUFFER,
                .hash = dpc_hash_open()};
    if (!o.buf || !o.hash)
        s = no_memory();
    if (!s)
        unlink(temp);
    s = s ? s : dpc_out_open(&o, temp);
    if (!s) {
        s = index_put(&o, t, dir);
        DpcStatus end = dpc_out_close(&o);
        s = s ? s : end;
        if (!s && rename(temp, path))
            s = dpc_fail(DPC_ENV, "%s: error: data: %s", path,
                         strerror(errno));
        if (s)
            unlink(temp);
    }
    dpc_hash_close(o.hash);
    free(o.buf);
    *where = path;
    return s;
}

DpcStatus dpc_data_index_check(DpcData *d, int64_t sample, bool *known)
{
    DpcTars *t = d->self;
    uint64_t hash;
    *known = d->reader == &dpc_tars_reader && *d->hash;
    if (!*known)
        return DPC_OK;
    DpcStatus s = record_hash(t, sample, &hash);
    return s || hash == t->sample[sample].hash ? s
         : dpc_tars_fail(t, sample, "its bytes are not those of the index: "
                         "XXH3 %016" PRIx64 ", it was %016" PRIx64, hash,
                         t->sample[sample].hash);
}
