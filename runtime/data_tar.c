/* data_tar.c -- WebDataset: which members of tar files make up a sample.
 *
 * Members whose names agree up to the first dot of the last part, one after
 * the other, are one sample; what follows the dot is the kind:
 *     jpg jpeg png webp   image    u8[h, w, 3]
 *     txt                 caption  u8[text], UTF-8
 *     json                caption  from its "caption" or "text"
 *     cls                 label    i32
 *     npy                 array    of the type and size of the first
 *     safetensors                  a field for each of its tensors
 * and NAME.txt, NAME.png, ... are of the field NAME.  The archives are walked
 * once, or their index is read (data_index.c); what is kept is where each
 * member lies, and a sample is read with pread, in any order.  A sample that
 * lacks a picture or an array, or whose archive breaks off, is corrupt like
 * one that cannot be decoded: counted, and replaced by the next, on every
 * rank alike. */
#include "runtime/data_tar.h"
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

DpcStatus dpc_tars_fail(const DpcTars *t, int64_t sample, const char *f, ...)
{
    char why[512];
    va_list ap;
    va_start(ap, f);
    vsnprintf(why, sizeof why, f, ap);
    va_end(ap);
    return dpc_fail(DPC_USER, "%s: error: data: record \"%s\": %s",
                    t->file.path[t->sample[sample].tar],
                    dpc_tars_key(t, sample), why);
}

/* ---- kinds ---- */

static const struct { const char *ext, *name; DpcMemberKind kind; } known[] = {
    {"jpg", "image", DPC_M_IMAGE},    {"jpeg", "image", DPC_M_IMAGE},
    {"png", "image", DPC_M_IMAGE},    {"webp", "image", DPC_M_IMAGE},
    {"txt", "caption", DPC_M_TEXT},   {"json", "caption", DPC_M_JSON},
    {"cls", "label", DPC_M_LABEL},    {"npy", "array", DPC_M_ARRAY},
    {"safetensors", "", DPC_M_TENSORS},
};

/* Row of "png", or of "NAME.png"; -1: a file that is none of ours. */
static int kind_of(const char *ext, char name[64])
{
    const char *dot = strrchr(ext, '.'), *last = dot ? dot + 1 : ext;
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        if (strcasecmp(last, known[i].ext))
            continue;
        if (dot && (known[i].kind == DPC_M_JSON ||
                    known[i].kind == DPC_M_TENSORS))
            return -1;
        const char *field = dot ? ext : known[i].name;
        size_t n = strcspn(field, ".");   /* cut off it could be another's */
        return n < 64 ? (snprintf(name, 64, "%.*s", (int)n, field), i) : -1;
    }
    return -1;
}

void dpc_tars_ext(const DpcTars *t, const DpcTarMember *m, char *to,
                  size_t size)
{
    const char *name = t->column[m->column].name;
    if (strcmp(name, known[m->ext].name))
        snprintf(to, size, "%s.%s", name, known[m->ext].ext);
    else
        snprintf(to, size, "%s", known[m->ext].ext);
}

const char *dpc_member_ext(const char *path, char field[64])
{
    const char *base = strrchr(path, '/'), *dot;
    base = base ? base + 1 : path;
    dot = strchr(base, '.');
    return base[0] == '.' || !dot || kind_of(dot + 1, field) < 0 ? NULL
         : dot + 1;
}

/* The column, new when no sample had one; -1: no room. */
static int column_at(DpcTars *t, DpcMemberKind kind, const char *name)
{
    for (int i = 0; i < t->ncolumn; i++)
        if (!strcmp(t->column[i].name, name)) {
            if (kind == DPC_M_TEXT)       /* a text outranks a description */
                t->column[i].kind = DPC_M_TEXT;
            return i;
        }
    if (t->ncolumn == DPC_NFIELD)
        return -1;
    DpcTarColumn *c = &t->column[t->ncolumn];
    c->kind = kind;
    snprintf(c->name, sizeof c->name, "%s", name);
    return t->ncolumn++;
}

/* ---- the list ---- */

/* *at of `size` bytes an item holds `more` after n. */
static bool room(void **at, int64_t n, int64_t more, size_t size,
                 int64_t *cap)
{
    if (*at && n + more <= *cap)
        return true;
    int64_t want = *cap ? 2 * *cap : 1024;
    want = want < n + more ? n + more : want;
    void *p = realloc(*at, (size_t)want * size);
    if (!p)
        return false;
    *at = p, *cap = want;
    return true;
}

DpcStatus dpc_tars_sample(DpcTars *t, const char *key)
{
    int64_t n = (int64_t)strlen(key) + 1;
    if (!room((void **)&t->sample, t->count, 2, sizeof *t->sample, &t->cap) ||
        !room((void **)&t->keys, t->nkey, n, 1, &t->key_cap))
        return no_memory();
    memcpy(t->keys + t->nkey, key, (size_t)n);
    t->sample[t->count++] = (DpcTarSample){t->nmember, t->nkey,
                                           t->file.n - 1, 0};
    t->sample[t->count] = (DpcTarSample){t->nmember, t->nkey, -1, 0};
    t->nkey += n;
    return DPC_OK;
}

const char *dpc_tars_key(const DpcTars *t, int64_t sample)
{
    return t->keys + t->sample[sample].key;
}

const DpcTarMember *dpc_tars_find_member(const DpcTars *t, int64_t sample,
                                         int column)
{
    for (int64_t i = t->sample[sample].member;
         i < t->sample[sample + 1].member; i++)
        if (t->member[i].column == column)
            return &t->member[i];
    return NULL;
}

static void sizes_note(DpcTars *t, DpcMemberKind kind, int64_t size)
{
    bool image = kind == DPC_M_IMAGE;
    int64_t *most = image ? &t->image_max : &t->text_max;
    bool counts = image ? size <= DPC_FILE_MAX
                : (kind == DPC_M_TEXT || kind == DPC_M_JSON) &&
                  size <= DPC_TEXT_MAX;
    if (counts && size > *most)
        *most = size;
}

DpcStatus dpc_tars_member(DpcTars *t, const char *ext, int64_t at,
                          int64_t size)
{
    char name[64];
    int row = kind_of(ext, name);
    if (row < 0)
        return DPC_OK;
    DpcMemberKind kind = known[row].kind;
    int c = column_at(t, kind, name);
    if (c < 0)
        return dpc_fail(DPC_USER, "%s: error: data: more than %d kinds of "
                        "members; make archives of fewer",
                        t->file.path[t->file.n - 1], DPC_NFIELD);
    sizes_note(t, kind, size);
    DpcTarMember m = {at, size, c, (uint8_t)row, kind == DPC_M_JSON};
    DpcTarMember *had = (DpcTarMember *)dpc_tars_find_member(t, t->count - 1,
                                                             c);
    if (had && m.json)
        return DPC_OK;
    if (had)
        *had = m;
    else if (!room((void **)&t->member, t->nmember, 1, sizeof *t->member,
                   &t->member_cap))
        return no_memory();
    else
        t->member[t->nmember++] = m, t->sample[t->count].member++;
    return DPC_OK;
}

static DpcStatus member(void *arg, const char *path, int64_t at, int64_t size)
{
    DpcTars *t = arg;
    char key[DPC_TAR_NAME], name[64];
    const char *ext = dpc_member_ext(path, name);
    if (!ext)
        return DPC_OK;
    snprintf(key, sizeof key, "%.*s", (int)(ext - path) - 1, path);
    bool more = t->count && t->sample[t->count - 1].tar == t->file.n - 1 &&
                !strcmp(key, dpc_tars_key(t, t->count - 1));
    DpcStatus s = more ? DPC_OK : dpc_tars_sample(t, key);
    return s || size < 0 ? s : dpc_tars_member(t, ext, at, size);
}

/* Those of the index that no option says. */
static void pads_take(DpcTars *t, const DpcIndex *x)
{
    DpcDataOptions *o = &t->option;
    for (int i = 0; i < DPC_NFIELD; i++) {
        const char *name;
        int64_t rows = dpc_index_pad(x, i, &name);
        bool said = !rows || o->npad == DPC_NFIELD;
        for (int k = 0; !said && k < o->npad; k++)
            said = !strcmp(o->pad[k].name, name);
        if (said)
            continue;
        snprintf(o->pad[o->npad].name, sizeof o->pad->name, "%s", name);
        o->pad[o->npad].index = true;
        o->pad[o->npad++].rows = rows;
    }
}

/* By the index beside them. */
static DpcStatus tars_list_index(DpcTars *t, DpcIndex *x, char *const *path,
                                 int n, bool all)
{
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < n; i++) {
        s = dpc_file_add(&t->file, path[i]);
        s = s ? s : dpc_index_tar(x, t, path[i]);
    }
    if (!s && all)
        s = dpc_index_all_used(x);
    pads_take(t, x);
    return s;
}

/* The last sample loses its members: it is corrupt. */
static void sample_empty(DpcTars *t)
{
    t->nmember = t->sample[t->count - 1].member;
    t->sample[t->count].member = t->nmember;
}

/* Of an archive that breaks off the last sample may lack something: it counts
 * as one that has nothing. */
static DpcStatus tar_list(DpcTars *t, const char *path)
{
    bool sound;
    int64_t at;
    int fd;
    DpcStatus s = dpc_file_add(&t->file, path);
    if (!s && (s = dpc_file_open(&t->file, t->file.n - 1, &fd)) == DPC_USER)
        return dpc_fail(DPC_USER, "%s: error: data: %s; give existing "
                        "archives", path, strerror(errno));
    s = s ? s : dpc_tar_walk(path, fd, member, t, &sound, &at);
    if (!s && !sound) {
        fprintf(stderr, "%s: warning: data: the archive breaks off at byte "
                "%lld; its last sample counts as corrupt\n",
                path, (long long)at);
        if (t->count && t->sample[t->count - 1].tar == t->file.n - 1)
            sample_empty(t);
        else
            s = dpc_tars_sample(t, "");
    }
    return s;
}

/* ---- opening ---- */

static int64_t tars_bytes(const DpcTars *t)
{
    int64_t n = (int64_t)sizeof *t + dpc_files_bytes(&t->file) + t->key_cap +
                t->cap * (int64_t)sizeof *t->sample +
                t->member_cap * (int64_t)sizeof *t->member;
    for (int i = 0; i < t->ncolumn; i++)
        n += 3 * t->column[i].h * t->column[i].w +
             (t->column[i].text ? t->option.text + 1 : 0) +
             (t->column[i].shards ? dpc_shards_bytes(t->column[i].shards) : 0);
    return n + (t->imager ? dpc_imager_bytes(t->imager) : 0);
}

DpcStatus dpc_tars_open(char *const *path, int n, bool all,
                        const char *option, DpcData *d)
{
    DpcIndex *x = NULL;
    DpcTars *t = calloc(1, sizeof *t);
    if (!t)
        return no_memory();
    t->current = -1;
    d->reader = &dpc_tars_reader, d->self = t;
    DpcStatus s = dpc_data_options(path[0], option, &t->option);
    if (!s && !t->option.no_index)
        s = dpc_index_open(path[0], &x);
    for (int i = 0; !s && !x && i < n; i++)
        s = tar_list(t, path[i]);
    if (!s && x) {
        s = tars_list_index(t, x, path, n, all);
        snprintf(d->hash, sizeof d->hash, "%s", dpc_index_hash(x));
    }
    dpc_index_close(x);
    if (!s && !t->ncolumn)
        s = dpc_fail(DPC_USER, "%s: error: data: 0 samples; wanted members "
                     "like \"000.jpg\", \"000.txt\"", path[0]);
    s = s ? s : dpc_tars_fields(t, d);
    d->count = t->count;
    d->bytes += tars_bytes(t);
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
