/* data.c -- opens what a spec names, replaces corrupt samples, shuffles.
 *
 * A corrupt sample is replaced whole by the next sound one, so the decision
 * follows from the data alone and is the same on every rank.
 *
 * Shuffling: a Feistel network permutes [0, 4^h), the smallest such range
 * that holds all samples, and is applied again while the result is outside
 * (cycle walking): the orbit of a point inside returns inside, and the map so
 * made is a bijection.  Less than four applications on average.  Black and
 * Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002. */
#include "runtime/data_shard.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- small helpers of all readers ---- */

bool dpc_size_mul(int64_t *n, int64_t by)
{
    return by > 0 && !__builtin_mul_overflow(*n, by, n);
}

char *dpc_path_join(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    char *s = malloc(n + m + 2);
    if (!s)
        return NULL;
    memcpy(s, a, n);
    s[n] = '/';
    memcpy(s + n + 1, b, m + 1);
    return s;
}

int64_t dpc_field_bytes(const DpcField *f)
{
    int64_t n = dpc_dtype_size(f->dtype);
    for (int i = 0; i < f->ndim; i++)
        n *= f->dim[i];
    return n;
}

void dpc_field_text(const DpcField *f, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s[", dpc_dtype_name(f->dtype));
    for (int i = 0; i < f->ndim && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", i ? "," : "",
                              (long long)f->dim[i]);
    if (n < size)
        snprintf(to + n, size - n, "]");
}

/* ---- the order of samples ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A permutation of [0, 4^half). */
static uint64_t feistel(uint64_t x, unsigned half, uint64_t key)
{
    enum { ROUNDS = 8 };
    uint64_t mask = ((uint64_t)1 << half) - 1, l = x >> half, r = x & mask;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t next = l ^ (mix(key + mix(r + ((uint64_t)i << 40))) & mask);
        l = r;
        r = next;
    }
    return l << half | r;
}

int64_t dpc_data_index(uint64_t seed, int64_t count, int64_t k)
{
    uint64_t n = (uint64_t)count, x = (uint64_t)k % n;
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + (uint64_t)k / n);
    unsigned half = 1;
    while (half < 31 && (uint64_t)1 << 2 * half < n)
        half++;
    do
        x = feistel(x, half, key);
    while (x >= n);
    return (int64_t)x;
}

/* ---- what a spec names ---- */

static void paths_free(char **path, int n)
{
    for (int i = 0; i < n; i++)
        free(path[i]);
}

/* Splits a list at commas into new strings. */
static DpcStatus split_list(const char *s, char **path, int *n)
{
    *n = 0;
    for (const char *end; ; s = end + 1) {
        end = s + strcspn(s, ",");
        if (*n == DPC_NFIELD)
            return dpc_fail(DPC_USER, "data: error: more than %d files in "
                            "the list; give fewer", DPC_NFIELD);
        if (end == s)
            return dpc_fail(DPC_USER, "data: error: an empty name in the "
                            "list of files; take a comma away");
        if (!(path[*n] = strndup(s, (size_t)(end - s))))
            return dpc_fail(DPC_MEMORY, "data: error: out of memory");
        ++*n;
        if (!*end)
            return DPC_OK;
    }
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), m = strlen(with);
    return n >= m && !strcmp(s + n - m, with);
}

static bool is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static DpcStatus open_list(const char *list, DpcData *d)
{
    char *path[DPC_NFIELD];
    int n = 0;
    DpcStatus s = DPC_OK;
    struct stat st;
    if (!stat(list, &st)) {                     /* a name with a comma */
        if (!(path[n++] = strdup(list)))
            return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    } else {
        s = split_list(list, path, &n);
    }
    int npy = 0;
    for (int i = 0; i < n; i++)
        npy += ends(path[i], ".npy");
    if (!s && npy && npy < n)
        s = dpc_fail(DPC_USER, "%s: error: data: %d of %d files are .npy; "
                     "give files of one kind", list, npy, n);
    if (!s)
        s = dpc_columns_open(path, n, npy ? dpc_npy_column : dpc_idx_column,
                             d);
    paths_free(path, n);
    return s;
}

/* IDX files in `dir`; *none when there are none and nothing was opened. */
static DpcStatus open_idx(const char *dir, const char *split, bool *none,
                          DpcData *d)
{
    char *path[DPC_NFIELD];
    int n = 0;
    DpcStatus s = dpc_idx_find(dir, split, path, &n);
    *none = !s && !n;
    if (!s && n)
        s = dpc_columns_open(path, n, dpc_idx_column, d);
    paths_free(path, n);
    return s;
}

static int is_npy(const struct dirent *e)
{
    return ends(e->d_name, ".npy");
}

/* A folder with .npy files in it: which are fields, only the user knows. */
static DpcStatus npy_refuse(const char *dir)
{
    struct dirent **file = NULL;
    char list[DPC_WHY] = "";
    size_t len = 0;
    int n = scandir(dir, &file, is_npy, alphasort);
    for (int i = 0; i < n; i++) {
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s/%s",
                                    i ? "," : "", dir, file[i]->d_name);
        free(file[i]);
    }
    free(file);
    return n <= 0 ? DPC_OK
        : dpc_fail(DPC_USER, "%s: error: data: a folder of .npy files; name "
                   "those that are fields: %s", dir, list);
}

/* Tar files in `dir`; *none when there are none and nothing was opened. */
static DpcStatus open_tars(const char *dir, const char *option, bool *none,
                           DpcData *d)
{
    char **path;
    int n;
    DpcStatus s = dpc_tars_find(dir, &path, &n);
    *none = !s && !n;
    if (!s && n)
        s = dpc_tars_open(path, n, true, option, d);
    paths_free(path, n);
    free(path);
    return s;
}

/* "A.tar,B.tar", and one "{000..123}" in a name: that many files. */
static DpcStatus open_archives(const char *list, const char *option,
                               DpcData *d)
{
    char **path = NULL;
    int n = 0;
    DpcStatus s = dpc_braces(list, &path, &n);
    if (!s)
        s = dpc_tars_open(path, n, false, option, d);
    paths_free(path, n);
    free(path);
    return s;
}

static DpcStatus open_dir(const char *dir, const char *split,
                          const char *option, bool idx, DpcData *d)
{
    bool none = true;
    DpcStatus s = DPC_OK;
    if (!is_dir(dir))
        return dpc_fail(DPC_USER, "%s: error: data: %s; give a folder", dir,
                        errno == ENOENT ? "no such folder" : "not a folder");
    if (!option)
        s = open_idx(dir, split ? split : "train", &none, d);
    if (!s && none && !split && !idx)
        s = open_tars(dir, option, &none, d);
    if (s || !none)
        return s;
    if (idx || split)
        return dpc_fail(DPC_USER, "%s: error: data: no IDX files of split "
                        "\"%s\"; wanted names like "
                        "\"%s-images-idx3-ubyte.gz\"", dir,
                        split ? split : "train", split ? split : "train");
    s = dpc_folder_open(dir, option, d);
    return s == DPC_USER && npy_refuse(dir) ? DPC_USER : s;
}

/* "NAME=...", unless the first of the list is a file of such a name. */
static bool names_shards(char *list)
{
    char *comma = strchr(list, ',');
    if (list[strcspn(list, "=/")] != '=')
        return false;
    if (comma)
        *comma = '\0';
    bool there = !access(list, F_OK);
    if (comma)
        *comma = ',';
    return !there;
}

/* `spec` is ours to cut. */
static DpcStatus open_spec(char *spec, DpcData *d)
{
    bool idx = !strncmp(spec, "idx:", 4), npy = !strncmp(spec, "npy:", 4);
    bool folder = !strncmp(spec, "folder:", 7);
    spec += folder ? 7 : idx || npy ? 4 : 0;
    char *option = strrchr(spec, '?');
    if (option && (folder || !is_dir(spec)))
        *option++ = '\0';
    else
        option = NULL;
    const char *split = ends(spec, ":train") ? "train"
                      : ends(spec, ":test") ? "test" : NULL;
    if (split && !is_dir(spec))
        *strrchr(spec, ':') = '\0';
    else
        split = NULL;
    if (folder)
        return dpc_folder_open(spec, option, d);
    if (is_dir(spec) || split || (option && !ends(spec, ".tar")))
        return open_dir(spec, split, option, idx, d);
    if (ends(spec, ".tar"))
        return open_archives(spec, option, d);
    if (names_shards(spec))
        return dpc_shards_data(spec, d);
    return open_list(spec, d);
}

DpcStatus dpc_data_open(const char *spec, int64_t budget_bad, DpcData **out)
{
    *out = NULL;
    DpcData *d = calloc(1, sizeof *d);
    char *own = strdup(spec);
    if (d)
        pthread_mutex_init(&d->lock, NULL);
    DpcStatus s = d && own ? open_spec(own, d)
                : dpc_fail(DPC_MEMORY, "data: error: out of memory");
    free(own);
    if (!s) {
        size_t n = (size_t)d->count / 8 + 1;
        d->budget = budget_bad;
        d->checked = -1;
        d->bytes += (int64_t)(n + sizeof *d);
        if (!(d->corrupt = calloc(n, 1)))
            s = dpc_fail(DPC_MEMORY, "data: error: out of memory");
    }
    if (s)
        dpc_data_close(d);
    else
        *out = d;
    return s;
}

void dpc_data_close(DpcData *d)
{
    if (!d)
        return;
    if (d->self)
        d->reader->close(d->self);
    pthread_mutex_destroy(&d->lock);
    free(d->corrupt);
    free(d->looked);
    for (int i = 0; i < DPC_NFIELD; i++)
        free(d->why[i]);
    free(d);
}

/* ---- reading ---- */

enum { TOLD = 3 };

int64_t dpc_data_count(const DpcData *d) { return d->count; }
int dpc_data_nfield(const DpcData *d) { return d->nfield; }
int64_t dpc_data_bad(const DpcData *d) { return d->bad; }
int64_t dpc_data_bytes(const DpcData *d) { return d->bytes; }

const char *dpc_data_hash(const DpcData *d) { return d->hash; }

const DpcField *dpc_data_field(const DpcData *d, int i)
{
    return &d->field[i];
}

int dpc_data_find(const DpcData *d, const char *name)
{
    for (int i = 0; i < d->nfield; i++)
        if (!strcmp(d->field[i].name, name))
            return i;
    return -1;
}

void dpc_data_tell(DpcData *d, bool tell)
{
    d->quiet = !tell;
}

/* Counts a corrupt sample, of which the first few are named; DPC_USER when
 * that was one too many. */
static DpcStatus mark(DpcData *d, int64_t sample)
{
    d->corrupt[sample / 8] |= (uint8_t)(1u << sample % 8);
    ++d->bad;
    if (d->budget == DPC_DATA_ALL) {
        fprintf(stderr, "%s\n", dpc_last_error());
        return DPC_OK;
    }
    if (d->bad <= d->budget) {
        if (d->bad <= TOLD && !d->quiet)
            fprintf(stderr, "%s\nwarning: another sample takes its place; "
                    "%lld of at most %lld\n", dpc_last_error(),
                    (long long)d->bad, (long long)d->budget);
        return DPC_OK;
    }
    char why[DPC_WHY];
    snprintf(why, sizeof why, "%s", dpc_last_error());
    return dpc_fail(DPC_USER, "%s; corrupt samples so far: %lld, allowed: "
                    "%lld; repair or remove it, or allow more", why,
                    (long long)d->bad, (long long)d->budget);
}

/* ---- numbers that index something ---- */

DpcStatus dpc_data_pad(DpcData *d, int field, int64_t rows)
{
    return d->reader->pad ? d->reader->pad(d->self, d, field, rows) : DPC_OK;
}

void dpc_data_unpad(DpcData *d, int field)
{
    if (d->reader->unpad)
        d->reader->unpad(d->self, d, field);
}

static DpcStatus limit_set(DpcData *d, int field, int64_t limit,
                           const char *why)
{
    int64_t n = dpc_field_bytes(&d->field[field]);
    if (n > d->looked_size) {
        uint8_t *p = realloc(d->looked, (size_t)n);
        if (!p)
            return dpc_fail(DPC_MEMORY, "data: error: out of memory");
        d->looked = p, d->looked_size = n;
    }
    if (d->limit[field] && d->limit[field] <= limit)
        return DPC_OK;
    free(d->why[field]);
    d->limit[field] = limit;
    return (d->why[field] = strdup(why)) ? DPC_OK
         : dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

DpcStatus dpc_data_limit(DpcData *d, int field, int64_t limit,
                         const char *why)
{
    pthread_mutex_lock(&d->lock);
    DpcStatus s = limit_set(d, field, limit, why);
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* As stored; bf16 does not index. */
static double number_at(DpcDtype t, const uint8_t *p, int64_t i)
{
    int32_t n;
    float f;
    if (t == DPC_U8)
        return p[i];
    memcpy(&n, p + 4 * i, 4);
    memcpy(&f, p + 4 * i, 4);
    return t == DPC_I32 ? n : (double)f;
}

static DpcStatus field_check(DpcData *d, int64_t sample, int field)
{
    const DpcField *f = &d->field[field];
    int64_t n = dpc_field_bytes(f) / dpc_dtype_size(f->dtype);
    if (f->dtype == DPC_BF16)
        return DPC_OK;
    DpcStatus s = d->reader->read(d->self, sample, field, d->looked);
    for (int64_t i = 0; !s && i < n; i++) {
        double v = number_at(f->dtype, d->looked, i);
        char where[512] = "data";
        if (v >= 0 && v < (double)d->limit[field])
            continue;
        if (d->reader->name)
            d->reader->name(d->self, sample, where, sizeof where);
        s = dpc_fail(DPC_USER, "%s: error: data: sample %lld: \"%s\" holds "
                     "%.9g, %s", where, (long long)sample, f->name, v,
                     d->why[field]);
    }
    return s;
}

static DpcStatus limits_check(DpcData *d, int64_t sample)
{
    DpcStatus s = DPC_OK;
    if (d->checked == sample)
        return s;
    for (int i = 0; !s && i < d->nfield; i++)
        if (d->limit[i])
            s = field_check(d, sample, i);
    d->checked = s ? -1 : sample;
    return s;
}

/* Moves *sample to the first sound one at or behind it. */
static DpcStatus seek_sound(DpcData *d, int64_t *sample)
{
    for (int64_t t = 0; t < d->count; t++) {
        int64_t i = (*sample + t) % d->count;
        if (d->corrupt[i / 8] >> i % 8 & 1)
            continue;
        DpcStatus s = d->reader->seek(d->self, i);
        s = s ? s : limits_check(d, i);
        if (s == DPC_USER)
            s = mark(d, i);
        else if (!s)
            *sample = i, t = d->count;
        if (s)
            return s;
    }
    if (d->bad == d->count)
        return dpc_fail(DPC_USER, "data: error: all %lld samples are "
                        "corrupt; look at the files", (long long)d->count);
    return DPC_OK;
}

DpcStatus dpc_data_read(DpcData *d, int64_t sample, int field, void *to,
                        int64_t bytes)
{
    if (sample < 0 || sample >= d->count || field < 0 || field >= d->nfield)
        return dpc_fail(DPC_BUG, "data: error: sample %lld of %lld, field %d "
                        "of %d: no such thing", (long long)sample,
                        (long long)d->count, field, d->nfield);
    int64_t want = dpc_field_bytes(&d->field[field]);
    if (bytes != want)
        return dpc_fail(DPC_BUG, "data: error: field \"%s\" has %lld bytes, "
                        "the buffer %lld", d->field[field].name,
                        (long long)want, (long long)bytes);
    pthread_mutex_lock(&d->lock);
    DpcStatus s = seek_sound(d, &sample);
    s = s ? s : d->reader->read(d->self, sample, field, to);
    pthread_mutex_unlock(&d->lock);
    return s;
}
