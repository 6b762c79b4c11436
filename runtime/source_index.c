/* source_index.c -- dpc.json, the index of a checkpoint.
 *
 * It ends in the hash of all that stands before it, so a flipped digit in it
 * is found like one in the data.  Its boxes are believed only as far as they
 * lie inside their tensor. */
#include "runtime/source_own.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

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
    *w = (DpcWhole){ .name = name, .own = name, .piece = s->npiece };
    const char *kind = json_string_value(json_object_get(v, "dtype"));
    const char *leaf = json_string_value(json_object_get(v, "kind"));
    const json_t *shape = json_object_get(v, "shape");
    const json_t *pieces = json_object_get(v, "pieces");
    w->ndim = (int)json_array_size(shape);
    w->residual = leaf && !strcmp(leaf, "residual");
    w->state = w->residual || (leaf && !strcmp(leaf, "state"));
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
        r = source_file_add(s, name, hash,
                     json_integer_value(json_object_get(v, "bytes")));
        if (r == DPC_OK)
            r = source_file_check(s, &s->file[i]);
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

DpcStatus source_index_read(DpcSource *s)
{
    char *text = NULL;
    size_t n = 0;
    DpcStatus r = source_text(s, s->file_path, DPC_CKPT_INDEX, &text, &n);
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
