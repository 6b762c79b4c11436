/* data_shard.c -- one field in many .npy files, as embeddings are published.
 *
 * The number at the end of a file's name is that of its shard; a row belongs
 * to the record of the same shard and place.  Shards may have different
 * numbers of rows, and a shard or a row that one field lacks makes those
 * records corrupt: the next sound one takes their place on every rank, so that
 * all of them take equally many steps.
 *
 *     NAME=DIR,NAME=DIR     fields alone (dpc_shards_data)
 *     A.tar?rows=NAME:DIR   beside archives: the archive's number is the
 *                           shard's, the end of a record's key its row; a row
 *                           of zeros stands for one that is missing */
#include "runtime/data_shard.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Shard {
    int64_t number;
    int file;
    DpcColumn column;                     /* path and name are not its own */
} Shard;

struct DpcShards {
    char *name, *where;
    DpcFiles file;
    Shard *shard;                         /* [n], by number */
    int n;
    DpcField field;
    uint8_t *row;                         /* of the last seek */
};

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

int64_t dpc_shard_number(const char *path)
{
    const char *base = strrchr(path, '/'), *dot;
    base = base ? base + 1 : path;
    dot = strrchr(base, '.');
    dot = dot ? dot : base + strlen(base);
    const char *from = dot;
    while (from > base && isdigit((unsigned char)from[-1]) && dot - from < 18)
        from--;
    return from < dot ? strtoll(from, NULL, 10) : -1;
}

/* ---- opening ---- */

/* Reads the head of the file; *sound is false when it is damaged. */
static DpcStatus shard_head(DpcShards *s, int file, Shard *to, bool *sound)
{
    int fd;
    struct stat st;
    const char *path = s->file.path[file];
    DpcStatus r = dpc_file_open(&s->file, file, &fd);
    if (r)
        return r;
    if (fstat(fd, &st))
        return dpc_fail(DPC_ENV, "%s: error: data: cannot be read", path);
    *to = (Shard){.number = dpc_shard_number(path), .file = file,
                  .column = {.path = s->file.path[file], .fd = fd}};
    r = dpc_npy_rows(path, st.st_size, &to->column);
    *sound = r == DPC_OK;
    return r == DPC_USER ? DPC_OK : r;
}

static bool same_type(const DpcField *a, const DpcField *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

static DpcStatus type_check(DpcShards *s, const Shard *new)
{
    char have[96], want[96];
    if (!s->n)
        s->field = new->column.field;
    s->field.name = s->name;
    if (same_type(&s->field, &new->column.field))
        return DPC_OK;
    dpc_field_text(&new->column.field, have, sizeof have);
    dpc_field_text(&s->field, want, sizeof want);
    return dpc_fail(DPC_USER, "%s: error: data: rows of %s, but \"%s\" has %s; "
                    "give shards of one kind", new->column.path, have,
                    s->shard[0].column.path, want);
}

/* A damaged shard is told and left out. */
static DpcStatus shard_add(DpcShards *s, int file, bool alone)
{
    Shard new;
    bool sound = false;
    DpcStatus r = shard_head(s, file, &new, &sound);
    if (!r && !sound)
        fprintf(stderr, "%s\nwarning: data: the shard's records count as "
                "corrupt\n", dpc_last_error());
    if (r || !sound)
        return r;
    if (new.number < 0 && !alone)
        return dpc_fail(DPC_USER, "%s: error: data: its name does not end in "
                        "the number of a shard; rename it, like emb_0007.npy",
                        s->file.path[file]);
    new.number = new.number < 0 ? 0 : new.number;
    if ((r = type_check(s, &new)))
        return r;
    s->shard[s->n++] = new;
    return DPC_OK;
}

static int by_number(const void *a, const void *b)
{
    const Shard *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int is_npy(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return e->d_name[0] != '.' && n > 4 && !strcmp(e->d_name + n - 4, ".npy");
}

/* The .npy files of a folder, or those of a name with "{00..99}". */
static DpcStatus files_find(DpcShards *s, const char *where)
{
    struct dirent **e = NULL;
    char **path = NULL;
    DpcStatus r = DPC_OK;
    struct stat st;
    int n = 0;
    if (!stat(where, &st) && S_ISDIR(st.st_mode)) {
        n = scandir(where, &e, is_npy, alphasort);
        for (int i = 0; i < n; i++) {
            char *p = dpc_path_join(where, e[i]->d_name);
            if (!r)
                r = p ? dpc_file_add(&s->file, p) : no_memory();
            free(p);
            free(e[i]);
        }
        free(e);
        return r;
    }
    r = dpc_braces(where, &path, &n);
    for (int i = 0; i < n; i++) {
        if (!r)
            r = dpc_file_add(&s->file, path[i]);
        free(path[i]);
    }
    free(path);
    return r;
}

static DpcStatus shards_read(DpcShards *s, const char *where)
{
    DpcStatus r = files_find(s, where);
    if (r)
        return r;
    if (!(s->shard = calloc((size_t)s->file.n + 1, sizeof *s->shard)))
        return no_memory();
    for (int i = 0; !r && i < s->file.n; i++)
        r = shard_add(s, i, s->file.n == 1);
    if (!r && !s->n)
        return dpc_fail(DPC_USER, "%s: error: data: no sound .npy file; give a "
                        "folder of shards, like emb_0000.npy", where);
    if (r)
        return r;
    qsort(s->shard, (size_t)s->n, sizeof *s->shard, by_number);
    for (int i = 1; i < s->n; i++)
        if (s->shard[i - 1].number == s->shard[i].number)
            return dpc_fail(DPC_USER, "%s: error: data: shard %lld is also "
                            "\"%s\"; take one of them away",
                            s->shard[i].column.path,
                            (long long)s->shard[i].number,
                            s->shard[i - 1].column.path);
    s->row = malloc((size_t)dpc_field_bytes(&s->field));
    return s->row ? DPC_OK : no_memory();
}

DpcStatus dpc_shards_open(const char *name, const char *where,
                          DpcShards **out)
{
    DpcShards *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return no_memory();
    s->name = strdup(name), s->where = strdup(where);
    DpcStatus r = s->name && s->where ? shards_read(s, where) : no_memory();
    if (r)
        dpc_shards_close(s);
    else
        *out = s;
    return r;
}

void dpc_shards_close(DpcShards *s)
{
    if (!s)
        return;
    dpc_files_close(&s->file);
    free(s->shard);
    free(s->row);
    free(s->name);
    free(s->where);
    free(s);
}

const DpcField *dpc_shards_field(const DpcShards *s) { return &s->field; }

int64_t dpc_shards_bytes(const DpcShards *s)
{
    return (int64_t)sizeof *s + dpc_files_bytes(&s->file) +
           s->n * (int64_t)sizeof *s->shard + dpc_field_bytes(&s->field);
}

/* ---- a row ---- */

static Shard *shard_find(DpcShards *s, int64_t number)
{
    Shard key = {.number = number};
    return bsearch(&key, s->shard, (size_t)s->n, sizeof key, by_number);
}

DpcStatus dpc_shards_seek(DpcShards *s, int64_t number, int64_t row)
{
    Shard *h = shard_find(s, number);
    if (!h)
        return dpc_fail(DPC_USER, "%s: error: data: \"%s\" has no shard %lld",
                        s->where, s->name, (long long)number);
    if (row >= h->column.count)
        return dpc_fail(DPC_USER, "%s: error: data: \"%s\" has no row %lld, "
                        "its shard has %lld", h->column.path, s->name,
                        (long long)row, (long long)h->column.count);
    DpcStatus r = dpc_file_open(&s->file, h->file, &h->column.fd);
    r = r ? r : dpc_column_check(&h->column, row);
    return r ? r : dpc_column_read(&h->column, row, s->row);
}

bool dpc_shards_zero(const DpcShards *s)
{
    int64_t n = dpc_field_bytes(&s->field);
    for (int64_t i = 0; i < n; i++)
        if (s->row[i])
            return false;
    return s->field.dtype == DPC_F32;
}

void dpc_shards_read(const DpcShards *s, void *to)
{
    memcpy(to, s->row, (size_t)dpc_field_bytes(&s->field));
}

/* ---- fields alone ---- */

/* Samples `first` and on are the rows of a shard. */
typedef struct Block { int64_t number, first; } Block;

typedef struct Alone {
    DpcShards *column[DPC_NFIELD];
    int ncolumn, nblock;
    Block *block;                         /* [nblock + 1] */
    int64_t current;                      /* -1: none */
} Alone;

static const Block *block_of(const Alone *a, int64_t sample)
{
    int low = 0, high = a->nblock - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (a->block[mid].first <= sample)
            low = mid;
        else
            high = mid - 1;
    }
    return &a->block[low];
}

static DpcStatus alone_seek(void *self, int64_t sample)
{
    Alone *a = self;
    const Block *b = block_of(a, sample);
    DpcStatus s = DPC_OK;
    if (a->current == sample)
        return DPC_OK;
    a->current = -1;
    for (int i = 0; !s && i < a->ncolumn; i++)
        s = dpc_shards_seek(a->column[i], b->number, sample - b->first);
    if (!s)
        a->current = sample;
    return s;
}

static DpcStatus alone_read(void *self, int64_t sample, int field, void *to)
{
    (void)sample;
    dpc_shards_read(((Alone *)self)->column[field], to);
    return DPC_OK;
}

static void alone_close(void *self)
{
    Alone *a = self;
    for (int i = 0; i < a->ncolumn; i++)
        dpc_shards_close(a->column[i]);
    free(a->block);
    free(a);
}

static void alone_name(void *self, int64_t sample, char *to, size_t size)
{
    const Alone *a = self;
    const Block *b = block_of(a, sample);
    snprintf(to, size, "%s: shard %lld, row %lld", a->column[0]->where,
             (long long)b->number, (long long)(sample - b->first));
}

static const DpcReader alone = {
    .seek = alone_seek, .read = alone_read, .close = alone_close,
    .name = alone_name
};

/* The shards of all columns, each as long as its longest. */
static DpcStatus blocks_make(Alone *a, DpcData *d)
{
    int most = 0;
    for (int i = 0; i < a->ncolumn; i++)
        most += a->column[i]->n;
    if (!(a->block = calloc((size_t)most + 1, sizeof *a->block)))
        return no_memory();
    for (int64_t last = -1; ; ) {
        int64_t next = INT64_MAX, rows = 0;
        for (int i = 0; i < a->ncolumn; i++)
            for (int k = 0; k < a->column[i]->n; k++) {
                int64_t number = a->column[i]->shard[k].number;
                if (number > last && number < next)
                    next = number;
            }
        for (int i = 0; i < a->ncolumn; i++) {
            const Shard *h = shard_find(a->column[i], next);
            rows = h && h->column.count > rows ? h->column.count : rows;
        }
        if (next == INT64_MAX)
            break;
        a->block[a->nblock++] = (Block){next, d->count};
        d->count += rows;
        last = next;
    }
    return DPC_OK;
}

/* "NAME=WHERE" of a list; it is cut. */
static DpcStatus column_open(Alone *a, DpcData *d, char *item)
{
    char *where = strchr(item, '=');
    if (!where || where == item || !where[1])
        return dpc_fail(DPC_USER, "%s: error: data: no field and folder; "
                        "wanted NAME=FOLDER of .npy shards, joined by commas",
                        item);
    *where++ = '\0';
    if (a->ncolumn == DPC_NFIELD)
        return dpc_fail(DPC_USER, "data: error: more than %d fields",
                        DPC_NFIELD);
    if (dpc_data_find(d, item) >= 0)
        return dpc_fail(DPC_USER, "%s: error: data: field \"%s\" is there "
                        "twice; name it otherwise", where, item);
    DpcStatus s = dpc_shards_open(item, where, &a->column[a->ncolumn]);
    if (s)
        return s;
    const DpcShards *c = a->column[a->ncolumn++];
    d->field[d->nfield++] = c->field;
    d->bytes += dpc_shards_bytes(c);
    return DPC_OK;
}

DpcStatus dpc_shards_data(char *list, DpcData *d)
{
    Alone *a = calloc(1, sizeof *a);
    DpcStatus s = DPC_OK;
    if (!a)
        return no_memory();
    a->current = -1;
    d->reader = &alone, d->self = a;
    for (char *item; !s && (item = strsep(&list, ",")); )
        s = column_open(a, d, item);
    s = s ? s : blocks_make(a, d);
    d->bytes += (int64_t)sizeof *a + a->nblock * (int64_t)sizeof *a->block;
    return s;
}
