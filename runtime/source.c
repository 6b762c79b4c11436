/* source.c -- the logical tensors that a folder or a file holds.
 *
 * Files are opened when first needed. */
#include "runtime/source_own.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_MAX_ = 200, TEXT_MAX = 1 << 30 };

/* ---- files ---- */

DpcStatus source_file_add(DpcSource *s, const char *name, const char *hash,
                          int64_t bytes)
{
    DpcSourceFile *f = realloc(s->file, (s->nfile + 1) * sizeof *f);
    if (!f)
        return no_memory();
    s->file = f;
    f += s->nfile;
    *f = (DpcSourceFile){ .name = strdup(name), .hash = hash, .bytes = bytes };
    if (!f->name)
        return no_memory();
    s->nfile++;
    return DPC_OK;
}

DpcStatus source_file_open(DpcSource *s, uint32_t i)
{
    DpcSourceFile *f = &s->file[i];
    if (f->open)
        return DPC_OK;
    for (uint32_t k = 0; s->nopen >= OPEN_MAX_ && k < s->nfile; k++) {
        s->nopen -= s->file[k].open != NULL;
        dpc_safe_close(s->file[k].open);
        s->file[k].open = NULL;
    }
    DpcStatus r = dpc_path(s->file_path, "%s%s%s", s->path,
                           *f->name ? "/" : "", f->name);
    if (r == DPC_OK)
        r = dpc_safe_open(s->file_path, &f->open);
    s->nopen += f->open != NULL;
    return r;
}

DpcStatus source_file_check(DpcSource *s, const DpcSourceFile *f)
{
    struct stat st;
    DpcStatus r = dpc_path(s->file_path, "%s/%s", s->path, f->name);
    if (r != DPC_OK)
        return r;
    if (stat(s->file_path, &st))
        return dpc_fail(errno == ENOENT ? DPC_USER : DPC_ENV,
                        "%s: error: %s", s->file_path, strerror(errno));
    if (st.st_size != f->bytes)
        return dpc_fail(DPC_USER, "%s: error: file of %lld bytes, it was "
                        "saved with %" PRId64, s->file_path,
                        (long long)st.st_size, f->bytes);
    return DPC_OK;
}

static DpcStatus hash_file(const char *path, void *stage, size_t nstage,
                           char hex[DPC_HASH])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    DpcHash *h = dpc_hash_open();
    DpcStatus r = DPC_OK;
    if (fd < 0 || !h)
        r = dpc_fail(DPC_ENV, "%s: error: cannot open: %s", path,
                     strerror(errno));
    ssize_t k = 1;
    while (r == DPC_OK && k != 0) {
        k = read(fd, stage, nstage);
        if (k < 0 && errno != EINTR)
            r = dpc_fail(DPC_ENV, "%s: error: cannot read: %s", path,
                         strerror(errno));
        else if (k > 0)
            dpc_hash_add(h, stage, (size_t)k);
    }
    if (r == DPC_OK)
        dpc_hash_hex(h, hex);
    dpc_hash_close(h);
    if (fd >= 0)
        close(fd);
    return r;
}

DpcStatus dpc_source_verify(DpcSource *s, uint32_t part, uint32_t of,
                            void *stage, size_t nstage)
{
    for (uint32_t i = part; i < s->nfile; i += of) {
        const DpcSourceFile *f = &s->file[i];
        char hex[DPC_HASH];
        if (!f->hash)
            continue;
        DpcStatus r = source_file_check(s, f);
        if (r == DPC_OK)
            r = hash_file(s->file_path, stage, nstage, hex);
        if (r != DPC_OK)
            return r;
        if (strcmp(hex, f->hash))
            return dpc_fail(DPC_USER, "%s: error: damaged: xxh3 is %s, it was "
                            "saved with %s", s->file_path, hex, f->hash);
    }
    return DPC_OK;
}

/* ---- tensors ---- */

const char *source_keep(DpcSource *s, const char *name)
{
    if ((s->nkept & (s->nkept - 1)) == 0) {     /* full at powers of two */
        char **more = realloc(s->kept, (s->nkept ? 2 * s->nkept : 1)
                                       * sizeof *more);
        if (!more)
            return NULL;
        s->kept = more;
    }
    s->kept[s->nkept] = strdup(name);
    return s->kept[s->nkept] ? s->kept[s->nkept++] : NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const DpcWhole *)a)->name, ((const DpcWhole *)b)->name);
}

const DpcWhole *dpc_source_find(const DpcSource *s, const char *name)
{
    DpcWhole key = { .name = name };
    return bsearch(&key, s->whole, s->n, sizeof key, by_name);
}

DpcStatus source_plain_add(DpcSource *s, uint32_t i)
{
    DpcStatus r = source_file_open(s, i);
    if (r != DPC_OK)
        return r;
    const DpcSafe *f = s->file[i].open;
    DpcWhole *w = realloc(s->whole, (s->n + f->n + 1) * sizeof *w);
    DpcPiece *p = realloc(s->piece, (s->npiece + f->n + 1) * sizeof *p);
    s->whole = w ? w : s->whole;
    s->piece = p ? p : s->piece;
    if (!w || !p)
        return no_memory();
    for (uint32_t k = 0; k < f->n; k++) {
        const DpcSafeTensor *t = &f->tensor[k];
        const char *name = source_keep(s, t->name);
        if (!name)
            return no_memory();
        w[s->n] = (DpcWhole){ .name = name, .own = name, .kind = t->kind,
                              .ndim = t->ndim, .piece = s->npiece,
                              .npiece = 1 };
        memcpy(w[s->n++].dim, t->dim, sizeof t->dim);
        p[s->npiece++] = (DpcPiece){ i, t->at,
                                     dpc_box_whole(t->ndim, t->dim) };
    }
    return DPC_OK;
}

DpcStatus source_text(DpcSource *s, const char *path, const char *what,
                      char **text, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || st.st_size > TEXT_MAX) {
        int e = fd < 0 ? errno : EFBIG;
        if (fd >= 0)
            close(fd);
        return bad("cannot read %s: %s", what, strerror(e));
    }
    *n = (size_t)st.st_size;
    *text = malloc(*n + 1);
    ssize_t k = *text ? pread(fd, *text, *n, 0) : 0;
    close(fd);
    if (!*text)
        return no_memory();
    if (k != (ssize_t)*n)
        return bad("cannot read %s", what);
    (*text)[*n] = 0;
    const char *other = dpc_impostor(*text, *n);
    if (!other)
        return DPC_OK;
    free(*text);
    *text = NULL;
    return bad("%s is %s", what, other);
}

/* "DIR/NAME" becomes DIR, which messages name, and NAME. */
static DpcStatus index_apart(DpcSource *s, char name[DPC_PATH])
{
    char *slash = strrchr(s->path, '/');
    DpcStatus r = dpc_path(name, "%s", slash ? slash + 1 : s->path);
    if (r != DPC_OK)
        return r;
    if (slash)
        slash[slash == s->path] = 0;
    else
        strcpy(s->path, ".");
    return DPC_OK;
}

static DpcStatus content_read(DpcSource *s)
{
    struct stat st;
    char name[DPC_PATH];
    if (stat(s->path, &st))
        return dpc_fail(errno == ENOENT ? DPC_USER : DPC_ENV, "%s: error: %s",
                        s->path, strerror(errno));
    DpcStatus r = dpc_path(s->file_path, "%s/%s", s->path, DPC_CKPT_INDEX);
    if (r != DPC_OK)
        return r;
    if (S_ISDIR(st.st_mode))
        return access(s->file_path, F_OK) ? source_folder_read(s, NULL)
                                          : source_index_read(s);
    if (source_is_index(s->path)) {
        r = index_apart(s, name);
        return r == DPC_OK ? source_folder_read(s, name) : r;
    }
    r = source_file_add(s, "", NULL, 0);
    return r == DPC_OK ? source_plain_add(s, 0) : r;
}

DpcStatus source_sort(DpcSource *s)
{
    if (s->n)
        qsort(s->whole, s->n, sizeof *s->whole, by_name);
    for (uint32_t i = 1; i < s->n; i++) {
        const DpcWhole *w = &s->whole[i];
        if (strcmp(w[-1].name, w->name))
            continue;
        if (w->own != w->name || w[-1].own != w[-1].name)
            return bad("\"%s\" and \"%s\" would both be called \"%s\"",
                       w[-1].own, w->own, w->name);
        return bad("\"%s\" stands in two files, %s and %s; name one of them",
                   w->name, s->file[s->piece[w[-1].piece].file].name,
                   s->file[s->piece[w->piece].file].name);
    }
    return DPC_OK;
}

DpcStatus dpc_source_open(const char *path, DpcSource **out)
{
    *out = NULL;
    DpcSource *s = calloc(1, sizeof *s);
    if (!s)
        return dpc_fail(DPC_MEMORY, "%s: error: out of memory", path);
    DpcStatus r = dpc_path(s->path, "%s", path);
    if (r == DPC_OK)
        r = content_read(s);
    if (r == DPC_OK)
        r = source_sort(s);
    if (r == DPC_OK)
        *out = s;
    else
        dpc_source_close(s);
    return r;
}

void dpc_source_close(DpcSource *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->nfile; i++) {
        dpc_safe_close(s->file[i].open);
        free(s->file[i].name);
    }
    for (uint32_t i = 0; i < s->nkept; i++)
        free(s->kept[i]);
    json_decref(s->index);
    free(s->kept);
    free(s->file);
    free(s->whole);
    free(s->piece);
    free(s);
}

/* ---- slices ---- */

/* Dimensions from `d` on fit the room together; of dimension d - 1 as many
 * rows as fit are taken at once; the ones before go one by one. */
DpcStatus dpc_source_slices(const DpcWhole *w, int64_t room,
                            DpcStatus (*fn)(void *arg, const DpcBox *),
                            void *arg)
{
    DpcBox box = dpc_box_whole(w->ndim, w->dim);
    int d = w->ndim, i = 0;
    if (dpc_box_count(&box) == 0)
        return DPC_OK;
    while (d > 0 && w->dim[d - 1] <= room)
        room /= w->dim[--d];
    for (int k = 0; k < d; k++)
        box.size[k] = 1;
    do {
        if (d > 0) {
            int64_t left = w->dim[d - 1] - box.at[d - 1];
            box.size[d - 1] = room < left ? room : left;
        }
        DpcStatus s = fn(arg, &box);
        if (s != DPC_OK)
            return s;
        for (i = d - 1; i >= 0; i--) {
            box.at[i] += box.size[i];
            if (box.at[i] < w->dim[i])
                break;
            box.at[i] = 0;
        }
    } while (i >= 0);
    return DPC_OK;
}
