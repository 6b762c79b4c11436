/* data_tar.c -- WebDataset: samples as members of tar files.
 *
 * Members whose names agree up to the first dot of the last part, one after
 * the other, are one sample; what follows the dot is the kind:
 *     jpg jpeg png    image    u8[h, w, 3]
 *     txt             caption  u8[text], UTF-8
 *     json            caption  from its "caption" or "text"
 *     cls             label    i32
 *     NAME.npy, npy   NAME, or "array": of the type and size of the first
 * The archives are walked once; what is kept is where each member lies, and
 * a sample is read with pread, in any order.  A sample that lacks a picture
 * or an array, or whose archive breaks off, is corrupt like one that cannot
 * be decoded: counted, and replaced by the next, on every rank alike. */
#include "runtime/data_reader.h"
#include "runtime/image.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { KEY = 256, TEXT_MAX = 1 << 16, FILE_MAX = 1 << 28 };

typedef enum Kind { IMAGE, TEXT, JSON, LABEL, ARRAY } Kind;

/* Where a member lies; size -1: the sample has none. */
typedef struct Place { int64_t at, size; } Place;

typedef struct Column { Kind kind; char name[64]; } Column;

typedef struct Tars {
    char *path[1 << 12];
    int fd[1 << 12], n;                   /* archives */
    Column column[DPC_NFIELD];
    int ncolumn;
    Place *place;                         /* [count, DPC_NFIELD] */
    int32_t *tar;                         /* [count]: whose member it is */
    int64_t count, cap;
    char key[KEY];                        /* of the sample being listed */
    int64_t h, w, text;                   /* of a sample */
    int64_t image_max, text_max;          /* bytes of the largest */
    DpcColumn array[DPC_NFIELD];          /* by column: as the first is */
    DpcColumn now[DPC_NFIELD];            /* of sample `current` */
    DpcImager *imager;
    uint8_t *rgb;                         /* [h, w, 3] of `current` */
    int64_t current;                      /* -1: none */
} Tars;

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

/* ---- listing ---- */

static bool kind_of(const char *ext, Kind *kind, const char **name)
{
    static const struct { const char *ext, *name; Kind kind; } known[] = {
        {"jpg", "image", IMAGE}, {"jpeg", "image", IMAGE},
        {"png", "image", IMAGE}, {"txt", "caption", TEXT},
        {"json", "caption", JSON}, {"cls", "label", LABEL},
        {"npy", "array", ARRAY},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(ext, known[i].ext)) {
            *kind = known[i].kind, *name = known[i].name;
            return true;
        }
    *kind = ARRAY, *name = ext;
    size_t n = strlen(ext);
    return n > 4 && !strcmp(ext + n - 4, ".npy");
}

/* The field's column, new when no sample had one; -1: no room. */
static int column_at(Tars *t, Kind kind, const char *name)
{
    char own[64];
    snprintf(own, sizeof own, "%.*s", (int)strcspn(name, "."), name);
    for (int i = 0; i < t->ncolumn; i++)
        if (!strcmp(t->column[i].name, own)) {
            if (kind == TEXT)             /* a text outranks a description */
                t->column[i].kind = TEXT;
            return i;
        }
    if (t->ncolumn == DPC_NFIELD)
        return -1;
    Column *c = &t->column[t->ncolumn];
    c->kind = kind;
    memcpy(c->name, own, sizeof own);
    return t->ncolumn++;
}

static DpcStatus sample_new(Tars *t, const char *key)
{
    if (t->count == t->cap) {
        int64_t cap = t->cap ? 2 * t->cap : 1024;
        Place *p = realloc(t->place, (size_t)cap * DPC_NFIELD * sizeof *p);
        t->place = p ? p : t->place;
        int32_t *q = realloc(t->tar, (size_t)cap * sizeof *q);
        t->tar = q ? q : t->tar;
        if (!p || !q)
            return no_memory();
        t->cap = cap;
    }
    for (int i = 0; i < DPC_NFIELD; i++)
        t->place[t->count * DPC_NFIELD + i] = (Place){0, -1};
    t->tar[t->count++] = t->n - 1;
    snprintf(t->key, KEY, "%.255s", key);
    return DPC_OK;
}

static DpcStatus member(void *arg, const char *path, int64_t at, int64_t size)
{
    Tars *t = arg;
    Kind kind;
    const char *base = strrchr(path, '/'), *name;
    base = base ? base + 1 : path;
    const char *dot = strchr(base, '.');
    if (base[0] == '.' || !dot || !kind_of(dot + 1, &kind, &name))
        return DPC_OK;
    char key[KEY];
    snprintf(key, KEY, "%.*s", (int)(dot - path), path);
    if (strcmp(key, t->key)) {
        DpcStatus s = sample_new(t, key);
        if (s)
            return s;
    }
    int c = column_at(t, kind, name);
    if (c < 0)
        return dpc_fail(DPC_USER, "%s: error: data: more than %d kinds of "
                        "members; make archives of fewer", t->path[t->n - 1],
                        DPC_NFIELD);
    Place *p = &t->place[(t->count - 1) * DPC_NFIELD + c];
    if (kind != JSON || p->size < 0)
        *p = (Place){at, size};
    int64_t *most = kind == IMAGE ? &t->image_max : &t->text_max;
    bool counts = kind == IMAGE ? size <= FILE_MAX
                : kind == TEXT && size <= TEXT_MAX;
    if (counts && size > *most)
        *most = size;
    return DPC_OK;
}

/* An archive that breaks off ends with a sample that has nothing. */
static DpcStatus tar_list(Tars *t, const char *path)
{
    bool sound;
    int64_t at;
    if (t->n == (int)(sizeof t->fd / sizeof *t->fd))
        return dpc_fail(DPC_USER, "%s: error: data: more than %zu archives; "
                        "make fewer, larger ones", path,
                        sizeof t->fd / sizeof *t->fd);
    t->fd[t->n] = open(path, O_RDONLY | O_CLOEXEC);
    if (t->fd[t->n] < 0)
        return dpc_fail(DPC_USER, "%s: error: data: %s; give existing "
                        "archives", path, strerror(errno));
    t->path[t->n++] = strdup(path);
    t->key[0] = '\0';
    if (!t->path[t->n - 1])
        return no_memory();
    DpcStatus s = dpc_tar_walk(path, t->fd[t->n - 1], member, t, &sound, &at);
    if (!s && !sound) {
        fprintf(stderr, "%s: warning: data: the archive breaks off at byte "
                "%lld; what is behind it counts as one corrupt sample\n",
                path, (long long)at);
        s = sample_new(t, "");
    }
    return s;
}

/* ---- one sample ---- */

static DpcSpan span_of(const Tars *t, int64_t sample, int column)
{
    const Place *p = &t->place[sample * DPC_NFIELD + column];
    return (DpcSpan){t->path[t->tar[sample]], t->fd[t->tar[sample]], p->at,
                     p->size};
}

static DpcStatus lacks(const Tars *t, int64_t sample, int column)
{
    return dpc_fail(DPC_USER, "%s: error: data: sample %lld has no \"%s\"",
                    t->path[t->tar[sample]], (long long)sample,
                    t->column[column].name);
}

static DpcStatus array_seek(Tars *t, int64_t sample, int column)
{
    DpcSpan f = span_of(t, sample, column);
    DpcColumn *c = &t->now[column], *first = &t->array[column];
    *c = (DpcColumn){.path = t->path[t->tar[sample]], .fd = f.fd, .at = f.at};
    DpcStatus s = dpc_npy_head(f.path, f.size, c);
    if (s)
        return s;
    if (c->field.ndim == DPC_NDIM)
        return dpc_fail(DPC_USER, "%s: error: data: an array of %d dimensions"
                        "; at most %d are read", f.path, DPC_NDIM + 1,
                        DPC_NDIM);
    memmove(c->field.dim + 1, c->field.dim,
            (size_t)c->field.ndim * sizeof *c->field.dim);
    c->field.dim[0] = c->count;
    c->field.ndim++;
    if (first->field.ndim &&
        (first->field.dtype != c->field.dtype ||
         dpc_field_bytes(&first->field) != dpc_field_bytes(&c->field)))
        return dpc_fail(DPC_USER, "%s: error: data: \"%s\" of sample %lld "
                        "has %lld bytes, that of others %lld", f.path,
                        t->column[column].name, (long long)sample,
                        (long long)dpc_field_bytes(&c->field),
                        (long long)dpc_field_bytes(&first->field));
    return DPC_OK;
}

static DpcStatus tars_seek(void *self, int64_t sample)
{
    Tars *t = self;
    DpcStatus s = DPC_OK;
    if (t->current == sample)
        return DPC_OK;
    t->current = -1;
    for (int i = 0; !s && i < t->ncolumn; i++) {
        DpcSpan f = span_of(t, sample, i);
        Kind kind = t->column[i].kind;
        if (f.size < 0 && kind != TEXT && kind != JSON)
            s = lacks(t, sample, i);
        else if (kind == IMAGE)
            s = dpc_image_read(t->imager, &f, t->h, t->w, t->rgb);
        else if (kind == ARRAY)
            s = array_seek(t, sample, i);
    }
    if (!s)
        t->current = sample;
    return s;
}

/* The member's bytes as text in new memory; NULL when there are none. */
static char *text_of(const DpcSpan *f)
{
    if (f->size <= 0 || f->size > TEXT_MAX)
        return NULL;
    char *s = malloc((size_t)f->size + 1);
    if (s && pread(f->fd, s, (size_t)f->size, f->at) == f->size) {
        s[f->size] = '\0';
        return s;
    }
    free(s);
    return NULL;
}

static void caption_put(const Tars *t, const char *text, uint8_t *to)
{
    size_t n = text ? strlen(text) : 0;
    while (n && strchr("\r\n", text[n - 1]))
        n--;
    dpc_text_put(text, (int64_t)n, to, t->text);
}

static void description_put(const Tars *t, const char *text, uint8_t *to)
{
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;
    const char *s = json_string_value(json_object_get(o, "caption"));
    caption_put(t, s ? s : json_string_value(json_object_get(o, "text")), to);
    json_decref(o);
}

static DpcStatus tars_read(void *self, int64_t sample, int field, void *to)
{
    Tars *t = self;
    DpcSpan f = span_of(t, sample, field);
    char *text = NULL;
    switch (t->column[field].kind) {
    case IMAGE:
        memcpy(to, t->rgb, (size_t)(3 * t->h * t->w));
        return DPC_OK;
    case ARRAY:
        return dpc_column_read(&t->now[field], 0, to);
    case LABEL:
        text = text_of(&f);
        *(int32_t *)to = text ? (int32_t)strtol(text, NULL, 10) : 0;
        break;
    case TEXT:
        caption_put(t, text = text_of(&f), to);
        break;
    case JSON:
        description_put(t, text = text_of(&f), to);
        break;
    }
    free(text);
    return DPC_OK;
}

static void tars_close(void *self)
{
    Tars *t = self;
    for (int i = 0; i < t->n; i++) {
        close(t->fd[i]);
        free(t->path[i]);
    }
    dpc_imager_close(t->imager);
    free(t->place);
    free(t->tar);
    free(t->rgb);
    free(t);
}

static const DpcReader tars = {tars_seek, tars_read, tars_close};

/* ---- opening ---- */

/* The size of pictures, unless it is said, is that of the first sound one. */
static DpcStatus image_size(Tars *t, int column)
{
    DpcStatus s = dpc_imager_open(t->image_max, &t->imager);
    for (int64_t i = 0; !s && !t->h && i < t->count; i++) {
        DpcSpan f = span_of(t, i, column);
        if (f.size < 0)
            continue;
        s = dpc_image_size(t->imager, &f, &t->h, &t->w);
        s = s == DPC_USER ? DPC_OK : s;
    }
    if (!s && !t->h)
        s = dpc_fail(DPC_USER, "%s: error: data: no picture is sound; look "
                     "at the archives", t->path[0]);
    if (!s && !(t->rgb = malloc((size_t)(3 * t->h * t->w))))
        s = no_memory();
    return s;
}

/* The type of an array is that of the first sound one. */
static DpcStatus array_type(Tars *t, int column)
{
    for (int64_t i = 0; i < t->count; i++)
        if (span_of(t, i, column).size >= 0 && !array_seek(t, i, column)) {
            t->array[column] = t->now[column];
            return DPC_OK;
        }
    return dpc_fail(DPC_USER, "%s: error: data: no array \"%s\" is sound; "
                    "look at the archives", t->path[0],
                    t->column[column].name);
}

static DpcStatus field_fill(Tars *t, int i, DpcField *f)
{
    DpcStatus s = DPC_OK;
    switch (t->column[i].kind) {
    case IMAGE:
        s = image_size(t, i);
        *f = (DpcField){.dtype = DPC_U8, .ndim = 3, .dim = {t->h, t->w, 3}};
        break;
    case TEXT: case JSON:
        t->text = t->text ? t->text : t->text_max ? t->text_max : 256;
        *f = (DpcField){.dtype = DPC_U8, .ndim = 1, .dim = {t->text}};
        break;
    case LABEL:
        *f = (DpcField){.dtype = DPC_I32};
        break;
    case ARRAY:
        s = array_type(t, i);
        *f = t->array[i].field;
        break;
    }
    f->name = t->column[i].name;
    return s;
}

DpcStatus dpc_tars_open(char *const *path, int n, const char *option,
                        DpcData *d)
{
    Tars *t = calloc(1, sizeof *t);
    if (!t)
        return no_memory();
    t->current = -1;
    d->reader = &tars, d->self = t;
    DpcStatus s = dpc_picture_options(path[0], option, &t->h, &t->w, &t->text);
    for (int i = 0; !s && i < n; i++)
        s = tar_list(t, path[i]);
    if (!s && !t->ncolumn)
        s = dpc_fail(DPC_USER, "%s: error: data: 0 samples; wanted members "
                     "like \"000.jpg\", \"000.txt\"", path[0]);
    for (int i = 0; !s && i < t->ncolumn; i++)
        s = field_fill(t, i, &d->field[d->nfield++]);
    d->count = t->count;
    d->bytes += (int64_t)sizeof *t + t->cap * (int64_t)(sizeof *t->tar
              + DPC_NFIELD * sizeof *t->place) + 3 * t->h * t->w
              + (t->imager ? dpc_imager_bytes(t->imager) : 0);
    return s;
}

/* Takes `name` over. */
static DpcStatus name_add(char *name, char ***path, int *n)
{
    char **more = name ? realloc(*path, (size_t)(*n + 1) * sizeof *more)
                       : NULL;
    *path = more ? more : *path;
    if (!more) {
        free(name);
        return no_memory();
    }
    more[(*n)++] = name;
    return DPC_OK;
}

DpcStatus dpc_braces(const char *list, char ***path, int *n)
{
    DpcStatus s = DPC_OK;
    *path = NULL, *n = 0;
    for (const char *end; !s; list = end + 1) {
        end = list + strcspn(list, ",");
        int from = 0, to = 0, first = 0, last = 0, all = 0;
        const char *open = memchr(list, '{', (size_t)(end - list));
        char form[512];
        bool many = open && sscanf(open, "{%n%d%n..%d}%n", &first, &from,
                                   &last, &to, &all) == 2
                 && all && all <= end - open && to >= from
                 && to - from < 1 << 12;
        if (!many)
            s = name_add(strndup(list, (size_t)(end - list)), path, n);
        for (int i = from; many && !s && i <= to; i++) {
            snprintf(form, sizeof form, "%.*s%0*d%.*s", (int)(open - list),
                     list, last - first, i, (int)(end - open) - all,
                     open + all);
            s = name_add(strdup(form), path, n);
        }
        if (!*end)
            return s;
    }
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

DpcStatus dpc_tars_find(const char *dir, char ***path, int *n)
{
    DIR *d = opendir(dir);
    DpcStatus s = DPC_OK;
    *path = NULL, *n = 0;
    for (struct dirent *e; d && !s && (e = readdir(d)); ) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.' || !dot || strcmp(dot, ".tar"))
            continue;
        s = name_add(dpc_path_join(dir, e->d_name), path, n);
    }
    if (d)
        closedir(d);
    if (*n)
        qsort(*path, (size_t)*n, sizeof **path, by_name);
    return s;
}
