/* data_folder.c -- pictures below a folder.
 *
 * The folder is walked once; what is kept is the sorted list of names.  The
 * first part of a name is its class: class first, then name, is the order of
 * the samples, and the label is the number of the class in that order.  Files
 * in the folder itself are of class "".
 *
 * A picture is decoded when its sample is sought and copied when it is read,
 * so that label and caption of an unreadable picture are never used. */
#include "runtime/data_reader.h"
#include "runtime/image.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum {
    DEPTH = 32, SIDE_MAX = 1 << 14, TEXT_MAX = 1 << 16,
    FILE_MAX = 1 << 28                    /* bytes: larger ones are corrupt */
};

typedef enum FolderField { IMAGE, LABEL, CAPTION } FolderField;

typedef struct Folder {
    char *dir, *path;                     /* path: room for every file's */
    char **name, **caption;               /* [n]; caption may be NULL */
    int32_t *label;                       /* [n] */
    int64_t n, cap;
    int64_t name_max, file_max;           /* bytes: longest, largest */
    int64_t h, w, text;                   /* of a sample; text in bytes */
    int64_t bytes;                        /* memory held */
    DpcImager *imager;
    uint8_t *rgb;                         /* [h, w, 3]: of sample `current` */
    int64_t current;                      /* -1: none */
} Folder;

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

/* ---- names ---- */

static bool is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") ||
                   !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".webp"));
}

static size_t class_length(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash ? (size_t)(slash - name) : 0;
}

static bool same_class(const char *a, const char *b)
{
    size_t n = class_length(a);
    return n == class_length(b) && !memcmp(a, b, n);
}

/* By class, then by name. */
int dpc_folder_order(const void *x, const void *y)
{
    const char *a = *(char *const *)x, *b = *(char *const *)y;
    size_t n = class_length(a), m = class_length(b);
    int c = memcmp(a, b, n < m ? n : m);
    if (!c && n != m)
        c = n < m ? -1 : 1;
    return c ? c : strcmp(a, b);
}

/* Takes `name` over. */
static DpcStatus folder_add(Folder *f, char *name, int64_t size)
{
    if (f->n == f->cap) {
        int64_t cap = f->cap ? 2 * f->cap : 256;
        char **p = realloc(f->name, (size_t)cap * sizeof *p);
        if (!p) {
            free(name);
            return no_memory();
        }
        f->name = p, f->cap = cap;
    }
    f->name[f->n++] = name;
    int64_t length = (int64_t)strlen(name);
    f->name_max = length > f->name_max ? length : f->name_max;
    if (size <= FILE_MAX && size > f->file_max)
        f->file_max = size;
    f->bytes += length + 1;
    return DPC_OK;
}

static DpcStatus folder_walk(Folder *f, const char *below, int depth);

/* One entry; `name` is relative to the folder and taken over. */
static DpcStatus folder_entry(Folder *f, char *name, int depth)
{
    struct stat st = { 0 };
    char *path = dpc_path_join(f->dir, name);
    if (!path) {
        free(name);
        return no_memory();
    }
    bool there = !stat(path, &st);
    free(path);
    if (is_picture(name) && !S_ISDIR(st.st_mode))
        return folder_add(f, name, st.st_size);  /* a dangling link is bad */
    DpcStatus s = DPC_OK;
    if (there && S_ISDIR(st.st_mode))
        s = folder_walk(f, name, depth + 1);
    free(name);
    return s;
}

/* All pictures below the folder's folder `below`, "" for itself. */
static DpcStatus folder_walk(Folder *f, const char *below, int depth)
{
    char *path = *below ? dpc_path_join(f->dir, below) : strdup(f->dir);
    DIR *d = path ? opendir(path) : NULL;
    DpcStatus s = DPC_OK;
    if (!path)
        s = no_memory();
    else if (!d)
        s = dpc_fail(DPC_USER, "%s: error: data: cannot read the folder: %s; "
                     "give an existing folder of pictures", path,
                     strerror(errno));
    else if (depth > DEPTH)
        s = dpc_fail(DPC_USER, "%s: error: data: folders more than %d deep; "
                     "is there a loop of links?", path, DEPTH);
    for (struct dirent *e; !s && (e = readdir(d)); ) {
        if (e->d_name[0] == '.')
            continue;
        char *name = *below ? dpc_path_join(below, e->d_name)
                            : strdup(e->d_name);
        s = name ? folder_entry(f, name, depth) : no_memory();
    }
    if (d)
        closedir(d);
    free(path);
    return s;
}

static DpcStatus folder_list(Folder *f)
{
    DpcStatus s = folder_walk(f, "", 0);
    if (s)
        return s;
    if (!f->n)
        return dpc_fail(DPC_USER, "%s: error: data: 0 pictures below the "
                        "folder, wanted at least 1; give a folder with .png, "
                        ".jpg or .webp files; records without pictures are "
                        "packed first: dpc data pack", f->dir);
    qsort(f->name, (size_t)f->n, sizeof *f->name, dpc_folder_order);
    f->label = malloc((size_t)f->n * sizeof *f->label);
    f->path = malloc(strlen(f->dir) + (size_t)f->name_max + 2);
    if (!f->label || !f->path)
        return no_memory();
    for (int64_t i = 0; i < f->n; i++)
        f->label[i] = i ? f->label[i - 1] +
                          !same_class(f->name[i - 1], f->name[i]) : 0;
    f->bytes += f->n * (int64_t)(sizeof *f->name + sizeof *f->label);
    return DPC_OK;
}

/* ---- captions ---- */

static DpcStatus folder_captions(Folder *f)
{
    bool found;
    int64_t longest = 1;
    f->caption = calloc((size_t)f->n, sizeof *f->caption);
    if (!f->caption)
        return no_memory();
    DpcStatus s = dpc_captions_read(f->dir, f->name, f->n, dpc_folder_order,
                                    f->caption, &found);
    if (!s && !found)
        s = dpc_captions_beside(f->dir, f->name, f->n, f->caption, &found);
    if (s)
        return s;
    if (!found) {
        free(f->caption);
        f->caption = NULL;
        return DPC_OK;
    }
    f->bytes += f->n * (int64_t)sizeof *f->caption;
    for (int64_t i = 0; i < f->n; i++)
        if (f->caption[i]) {
            int64_t n = (int64_t)strlen(f->caption[i]);
            longest = n > longest ? n : longest;
            f->bytes += n + 1;
        }
    if (!f->text)
        f->text = longest < TEXT_MAX ? longest : TEXT_MAX;
    return DPC_OK;
}

void dpc_text_put(const char *text, int64_t n, uint8_t *to, int64_t size)
{
    if (n > size)
        for (n = size; n && ((uint8_t)text[n] & 0xc0) == 0x80; )
            n--;
    memset(to, 0, (size_t)size);
    if (n)
        memcpy(to, text, (size_t)n);
}

/* ---- reading ---- */

static DpcSpan folder_file(Folder *f, int64_t sample)
{
    sprintf(f->path, "%s/%s", f->dir, f->name[sample]);
    return (DpcSpan){f->path, -1, 0, 0};
}

static DpcStatus folder_seek(void *self, int64_t sample)
{
    Folder *f = self;
    if (f->current == sample)
        return DPC_OK;
    f->current = -1;
    DpcSpan file = folder_file(f, sample);
    DpcStatus s = dpc_image_read(f->imager, &file, f->h, f->w, f->rgb);
    if (!s)
        f->current = sample;
    return s;
}

static DpcStatus folder_read(void *self, int64_t sample, int field, void *to)
{
    Folder *f = self;
    if (field == IMAGE)
        memcpy(to, f->rgb, (size_t)(3 * f->h * f->w));
    else if (field == LABEL)
        memcpy(to, &f->label[sample], sizeof *f->label);
    else
        dpc_text_put(f->caption[sample], f->caption[sample]
                     ? (int64_t)strlen(f->caption[sample]) : 0, to, f->text);
    return DPC_OK;
}

static void folder_close(void *self)
{
    Folder *f = self;
    for (int64_t i = 0; i < f->n; i++) {
        free(f->name[i]);
        if (f->caption)
            free(f->caption[i]);
    }
    dpc_imager_close(f->imager);
    free(f->name);
    free(f->caption);
    free(f->label);
    free(f->rgb);
    free(f->path);
    free(f->dir);
    free(f);
}

static void folder_name(void *self, int64_t sample, char *to, size_t size)
{
    const Folder *f = self;
    snprintf(to, size, "%s/%s", f->dir, f->name[sample]);
}

static const DpcReader folder = {
    .seek = folder_seek, .read = folder_read, .close = folder_close,
    .name = folder_name
};

/* ---- opening ---- */

/* Without a wanted size, that of the first sound picture. */
static DpcStatus folder_size(Folder *f)
{
    DpcStatus s = dpc_imager_open(f->file_max, &f->imager);
    if (s)
        return s;
    for (int64_t i = 0; !f->h && i < f->n; i++) {
        DpcSpan file = folder_file(f, i);
        s = dpc_image_size(f->imager, &file, &f->h, &f->w);
        if (s && s != DPC_USER)
            return s;
    }
    if (!f->h)
        return dpc_fail(DPC_USER, "%s: error: data: %lld pictures, none is "
                        "sound; look at the files", f->dir, (long long)f->n);
    if (f->h > SIDE_MAX || f->w > SIDE_MAX)
        return dpc_fail(DPC_USER, "%s: error: data: pictures of %lld x %lld "
                        "pixels, at most %d a side; give ?size=HxW", f->dir,
                        (long long)f->h, (long long)f->w, SIDE_MAX);
    if (!(f->rgb = malloc((size_t)(3 * f->h * f->w))))
        return no_memory();
    f->bytes += 3 * f->h * f->w + dpc_imager_bytes(f->imager);
    return DPC_OK;
}

static void folder_fields(const Folder *f, DpcData *d)
{
    d->field[IMAGE] = (DpcField){ "image", DPC_U8, 3, { f->h, f->w, 3 } };
    d->field[LABEL] = (DpcField){ "label", DPC_I32, 0, { 0 } };
    d->field[CAPTION] = (DpcField){ "caption", DPC_U8, 1, { f->text } };
    d->nfield = f->caption ? CAPTION + 1 : CAPTION;
    d->count = f->n;
    d->bytes += f->bytes + (int64_t)sizeof *f;
}

DpcStatus dpc_folder_open(const char *dir, const char *option, DpcData *d)
{
    Folder *f = calloc(1, sizeof *f);
    if (!f)
        return no_memory();
    f->current = -1;
    d->reader = &folder;
    d->self = f;
    if (!(f->dir = strdup(dir)))
        return no_memory();
    DpcDataOptions o;
    DpcStatus s = dpc_data_options(dir, option, &o);
    f->h = o.h, f->w = o.w, f->text = o.text;
    if (!s && (o.npad || o.nrows))
        s = dpc_fail(DPC_USER, "%s: error: data: pad= and rows= are of "
                     "archives; a folder of pictures takes size=HxW, "
                     "text=BYTES", dir);
    if (!s)
        s = folder_list(f);
    if (!s)
        s = folder_captions(f);
    if (!s)
        s = folder_size(f);
    if (!s)
        folder_fields(f, d);
    return s;
}
