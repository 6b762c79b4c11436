/* source.c -- the logical tensors that a folder or a file holds.
 *
 * dpc.json ends in the hash of all that stands before it, so a flipped digit
 * in it is found like one in the data.  Its boxes are believed only as far as
 * they lie inside their tensor; that the pieces cover what is asked for is
 * counted when reading.  Files are opened when first needed. */
#include "runtime/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_MAX_ = 200, INDEX_MAX = 1 << 30 };

#define bad(f, ...) dpc_fail(DPC_USER, "%s: error: " f, s->path, __VA_ARGS__)
#define no_memory() dpc_fail(DPC_MEMORY, "%s: error: out of memory", s->path)

/* ---- files ---- */

static DpcStatus file_add(DpcSource *s, const char *name, const char *hash,
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

static DpcStatus file_open(DpcSource *s, uint32_t i)
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

static DpcStatus file_size_check(DpcSource *s, const DpcSourceFile *f)
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
        DpcStatus r = file_size_check(s, f);
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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const DpcWhole *)a)->name, ((const DpcWhole *)b)->name);
}

const DpcWhole *dpc_source_find(const DpcSource *s, const char *name)
{
    DpcWhole key = { .name = name };
    return bsearch(&key, s->whole, s->n, sizeof key, by_name);
}

/* All tensors of file i as whole ones. */
static DpcStatus plain_add(DpcSource *s, uint32_t i)
{
    DpcStatus r = file_open(s, i);
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
        w[s->n] = (DpcWhole){ .name = t->name, .kind = t->kind,
                              .ndim = t->ndim, .piece = s->npiece,
                              .npiece = 1 };
        memcpy(w[s->n++].dim, t->dim, sizeof t->dim);
        p[s->npiece++] = (DpcPiece){ i, dpc_box_whole(t->ndim, t->dim) };
    }
    return DPC_OK;
}

static int is_safetensors(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 12 && !strcmp(e->d_name + n - 12, ".safetensors");
}

/* Every .safetensors file of a folder; no name may come twice. */
static DpcStatus folder_read(DpcSource *s)
{
    struct dirent **e = NULL;
    int n = scandir(s->path, &e, is_safetensors, alphasort);
    DpcStatus r = n < 0 ? dpc_fail(DPC_ENV, "%s: error: %s", s->path,
                                   strerror(errno)) : DPC_OK;
    if (n == 0)
        r = bad("holds neither %s nor a .safetensors file", DPC_CKPT_INDEX);
    for (int i = 0; i < n; i++) {
        if (r == DPC_OK)
            r = file_add(s, e[i]->d_name, NULL, 0);
        if (r == DPC_OK)
            r = plain_add(s, s->nfile - 1);
        free(e[i]);
    }
    free(e);
    return r;
}

/* ---- dpc.json ---- */

static DpcStatus index_text(DpcSource *s, const char *path, char **text,
                            size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || st.st_size > INDEX_MAX) {
        int e = fd < 0 ? errno : EFBIG;
        if (fd >= 0)
            close(fd);
        return bad("cannot read %s: %s", DPC_CKPT_INDEX, strerror(e));
    }
    *n = (size_t)st.st_size;
    *text = malloc(*n + 1);
    ssize_t k = *text ? pread(fd, *text, *n, 0) : 0;
    close(fd);
    if (!*text)
        return no_memory();
    if (k != (ssize_t)*n)
        return bad("cannot read %s", DPC_CKPT_INDEX);
    (*text)[*n] = 0;
    return DPC_OK;
}

/* "self" is the last field; its value hashes all up to the comma before. */
static DpcStatus index_check(DpcSource *s, const char *text)
{
    const char *format = json_string_value(json_object_get(s->index, "format"));
    json_int_t v = json_integer_value(json_object_get(s->index, "version"));
    if (!format || strcmp(format, DPC_CKPT_FORMAT))
        return bad("%s is no index of a checkpoint", DPC_CKPT_INDEX);
    if (v != DPC_CKPT_VERSION)
        return bad("checkpoint of format %" JSON_INTEGER_FORMAT ", this "
                   "program reads %d", v, DPC_CKPT_VERSION);
    const char *self = json_string_value(json_object_get(s->index, "self"));
    const char *comma = strrchr(text, ',');
    char hex[DPC_HASH];
    DpcHash *h = dpc_hash_open();
    if (!h)
        return no_memory();
    dpc_hash_add(h, text, comma ? (size_t)(comma - text) : 0);
    dpc_hash_hex(h, hex);
    dpc_hash_close(h);
    if (!self || strcmp(self, hex))
        return bad("%s is damaged: xxh3 is %s, it was saved with %s",
                   DPC_CKPT_INDEX, hex, self ? self : "none");
    return DPC_OK;
}

static bool ints(const json_t *v, int n, int64_t *out)
{
    if (!json_is_array(v) || json_array_size(v) != (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, (size_t)i);
        out[i] = json_integer_value(x);
        if (!json_is_integer(x) || out[i] < 0)
            return false;
    }
    return true;
}

static DpcStatus piece_read(DpcSource *s, const DpcWhole *w, const json_t *v)
{
    DpcPiece *p = &s->piece[s->npiece++];
    *p = (DpcPiece){ .box.ndim = w->ndim };
    const json_t *file = json_object_get(v, "file");
    p->file = (uint32_t)json_integer_value(file);
    bool good = json_is_integer(file) && json_integer_value(file) >= 0 &&
                json_integer_value(file) < s->nfile &&
                ints(json_object_get(v, "at"), w->ndim, p->box.at) &&
                ints(json_object_get(v, "size"), w->ndim, p->box.size);
    for (int d = 0; good && d < w->ndim; d++)
        good = p->box.size[d] <= w->dim[d] &&
               p->box.at[d] <= w->dim[d] - p->box.size[d];
    return good ? DPC_OK : bad("%s: \"%s\": a piece is out of bounds",
                               DPC_CKPT_INDEX, w->name);
}

static DpcStatus whole_read(DpcSource *s, const char *name, const json_t *v)
{
    DpcWhole *w = &s->whole[s->n++];
    *w = (DpcWhole){ .name = name, .piece = s->npiece };
    const char *kind = json_string_value(json_object_get(v, "dtype"));
    const char *leaf = json_string_value(json_object_get(v, "kind"));
    const json_t *shape = json_object_get(v, "shape");
    const json_t *pieces = json_object_get(v, "pieces");
    w->ndim = (int)json_array_size(shape);
    w->state = leaf && !strcmp(leaf, "state");
    while (kind && w->kind < DPC_SAFE_NKIND &&
           strcmp(kind, dpc_safe_kind_name(w->kind)))
        w->kind++;
    if (!kind || w->kind == DPC_SAFE_NKIND || w->ndim > DPC_NDIM ||
        !ints(shape, w->ndim, w->dim))
        return bad("%s: \"%s\" is malformed", DPC_CKPT_INDEX, name);
    int64_t bits = 64;
    for (int d = 0; d < w->ndim; d++)
        if (__builtin_mul_overflow(bits, w->dim[d], &bits))
            return bad("%s: \"%s\" is too large", DPC_CKPT_INDEX, name);
    w->npiece = (uint32_t)json_array_size(pieces);
    DpcStatus r = DPC_OK;
    for (uint32_t i = 0; r == DPC_OK && i < w->npiece; i++)
        r = piece_read(s, w, json_array_get(pieces, i));
    return r;
}

static DpcStatus index_files(DpcSource *s)
{
    const json_t *v, *files = json_object_get(s->index, "files");
    size_t i;
    DpcStatus r = DPC_OK;
    json_array_foreach(files, i, v) {
        const char *name = json_string_value(json_object_get(v, "name"));
        const char *hash = json_string_value(json_object_get(v, "xxh3"));
        if (!name || !hash || strchr(name, '/'))
            return bad("%s: file %zu is malformed", DPC_CKPT_INDEX, i);
        r = file_add(s, name, hash,
                     json_integer_value(json_object_get(v, "bytes")));
        if (r == DPC_OK)
            r = file_size_check(s, &s->file[i]);
        if (r != DPC_OK)
            return r;
    }
    return r;
}

static DpcStatus index_tensors(DpcSource *s)
{
    json_t *v, *all = json_object_get(s->index, "tensors");
    const char *name;
    size_t n = 0;
    json_object_foreach(all, name, v)
        n += json_array_size(json_object_get(v, "pieces"));
    s->whole = calloc(json_object_size(all) + 1, sizeof *s->whole);
    s->piece = calloc(n + 1, sizeof *s->piece);
    if (!s->whole || !s->piece)
        return no_memory();
    json_object_foreach(all, name, v) {
        DpcStatus r = whole_read(s, name, v);
        if (r != DPC_OK)
            return r;
    }
    return DPC_OK;
}

static DpcStatus index_read(DpcSource *s)
{
    char *text = NULL;
    size_t n = 0;
    DpcStatus r = index_text(s, s->file_path, &text, &n);
    json_error_t e;
    if (r == DPC_OK) {
        s->index = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
        r = s->index ? index_check(s, text) :
            bad("%s:%d: %s", DPC_CKPT_INDEX, e.line, e.text);
    }
    free(text);
    if (r == DPC_OK)
        r = index_files(s);
    return r == DPC_OK ? index_tensors(s) : r;
}

static DpcStatus content_read(DpcSource *s)
{
    struct stat st;
    if (stat(s->path, &st))
        return dpc_fail(errno == ENOENT ? DPC_USER : DPC_ENV, "%s: error: %s",
                        s->path, strerror(errno));
    DpcStatus r = dpc_path(s->file_path, "%s/%s", s->path, DPC_CKPT_INDEX);
    if (r != DPC_OK)
        return r;
    if (!S_ISDIR(st.st_mode)) {
        r = file_add(s, "", NULL, 0);
        return r == DPC_OK ? plain_add(s, 0) : r;
    }
    return access(s->file_path, F_OK) ? folder_read(s) : index_read(s);
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
    if (r == DPC_OK && s->n)
        qsort(s->whole, s->n, sizeof *s->whole, by_name);
    for (uint32_t i = 1; r == DPC_OK && i < s->n; i++)
        if (!strcmp(s->whole[i - 1].name, s->whole[i].name))
            r = bad("\"%s\" stands in two files, %s and %s; name one of them",
                    s->whole[i].name,
                    s->file[s->piece[s->whole[i - 1].piece].file].name,
                    s->file[s->piece[s->whole[i].piece].file].name);
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
    json_decref(s->index);
    free(s->file);
    free(s->whole);
    free(s->piece);
    free(s);
}

/* ---- reading ---- */

typedef struct Window {                   /* of one tensor of one file */
    const DpcSafe *safe;
    const DpcSafeTensor *t;
    char *stage;
    int64_t cap, lo, hi;                  /* bytes [lo, hi) are staged */
} Window;

/* Elements from `at` on, as many of n as are staged; `run` comes next. */
static DpcStatus window_get(Window *w, int64_t at, int64_t n, char **p,
                            int64_t *got)
{
    if (at < w->lo || at >= w->hi) {
        w->lo = w->hi = at;
        int64_t left = w->t->bytes - at;
        int64_t want = left < w->cap ? left : w->cap;
        DpcStatus r = dpc_safe_read(w->safe, w->t, at, w->stage, (size_t)want);
        if (r != DPC_OK)
            return r;
        w->hi = at + want;
    }
    *p = w->stage + (at - w->lo);
    *got = n < w->hi - at ? n : w->hi - at;
    return DPC_OK;
}

typedef struct Target { const int64_t *ext; DpcDtype to; char *out; } Target;

static DpcStatus piece_copy(Window *w, DpcSafeKind kind, const DpcBox *from,
                            const DpcBox *box, const Target *t)
{
    int64_t esize = w->t->bytes / dpc_box_count(from), a, b;
    w->cap -= w->cap % esize;             /* elements never straddle */
    DpcRuns runs = dpc_runs(from, from->size, box, t->ext);
    while (dpc_runs_next(&runs, &a, &b))
        for (int64_t done = 0; done < runs.run;) {
            char *p;
            int64_t got;
            DpcStatus r = window_get(w, (a + done) * esize,
                                     (runs.run - done) * esize, &p, &got);
            if (r != DPC_OK)
                return r;
            char *out = t->out + (b + done) * dpc_dtype_size(t->to);
            dpc_safe_convert(kind, p, t->to, out, got / esize);
            done += got / esize;
        }
    return DPC_OK;
}

/* The piece as its file has it: the index may lie. */
static DpcStatus piece_find(DpcSource *s, const DpcWhole *w, const DpcPiece *p,
                            const DpcSafeTensor **out)
{
    DpcStatus r = file_open(s, p->file);
    if (r != DPC_OK)
        return r;
    const DpcSafeTensor *t = dpc_safe_find(s->file[p->file].open, w->name);
    bool same = t && t->kind == w->kind && t->ndim == w->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = t->dim[d] == p->box.size[d];
    if (!same)
        return bad("\"%s\" in %s is not as %s says", w->name,
                   s->file[p->file].name, DPC_CKPT_INDEX);
    *out = t;
    return DPC_OK;
}

DpcStatus dpc_source_read(DpcSource *s, const DpcWhole *w, const DpcBox *box,
                          const int64_t *ext, DpcDtype to, void *out,
                          void *stage, size_t nstage)
{
    int64_t found = 0;
    if (!dpc_safe_converts(w->kind, to))
        return bad("\"%s\": %s cannot be read as %s", w->name,
                   dpc_safe_kind_name(w->kind), dpc_dtype_name(to));
    for (uint32_t i = w->piece; i < w->piece + w->npiece; i++) {
        const DpcPiece *p = &s->piece[i];
        DpcBox meet = dpc_box_meet(&p->box, box);
        const DpcSafeTensor *t = NULL;
        if (dpc_box_count(&meet) == 0)
            continue;
        DpcStatus r = piece_find(s, w, p, &t);
        if (r != DPC_OK)
            return r;
        Window win = { s->file[p->file].open, t, stage, (int64_t)nstage, 0, 0 };
        Target target = { ext, to, out };
        r = piece_copy(&win, w->kind, &p->box, box, &target);
        if (r != DPC_OK)
            return r;
        found += dpc_box_count(&meet);
    }
    if (found == dpc_box_count(box))
        return DPC_OK;
    return bad("\"%s\": %" PRId64 " of %" PRId64 " elements are in no file",
               w->name, dpc_box_count(box) - found, dpc_box_count(box));
}

/* ---- names ---- */

/* Edits between a and b, counted up to `most`; letters of a short row. */
static int distance(const char *a, const char *b, int most)
{
    enum { N = 128 };
    int row[N + 1], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > N || nb > N || na - nb > most || nb - na > most)
        return most + 1;
    for (int j = 0; j <= nb; j++)
        row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0], least = row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < row[j] ? change : row[j];
            least = row[j] < least ? row[j] : least;
        }
        if (least > most)
            return most + 1;
    }
    return row[nb];
}

const char *dpc_source_near(const DpcSource *s, const char *name)
{
    const char *best = NULL;
    int most = (int)strlen(name) / 3;
    for (uint32_t i = 0; i < s->n && most >= 0; i++) {
        int d = distance(name, s->whole[i].name, most);
        if (d <= most)
            best = s->whole[i].name, most = d - 1;
    }
    return best;
}
