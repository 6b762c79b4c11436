/* ckpt_hash.c -- one number for what a model has learned.
 *
 * Name, type, shape and elements of every logical tensor, in the order of
 * names and row-major: two checkpoints of one state have the same hash,
 * however many ranks wrote them.  "Resumed equals uninterrupted" and "four
 * ranks equal one" are comparisons of this number. */
#include "runtime/ckpt.h"

#include "runtime/source.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGE = 4 << 20 };                 /* bytes, of each of two buffers */

typedef struct Hasher {
    DpcSource *source;
    DpcHash *state;
    char *data, *stage;
} Hasher;

typedef struct Slice { Hasher *h; const DpcWhole *w; } Slice;

static DpcStatus slice_hash(void *arg, const DpcBox *box)
{
    const Slice *l = arg;
    DpcSafeKind kind = (DpcSafeKind)l->w->kind;
    DpcStatus s = dpc_source_read(l->h->source, l->w, box, box->size, kind,
                                  l->h->data, l->h->stage, STAGE);
    if (s == DPC_OK)
        dpc_hash_add(l->h->state, l->h->data, (size_t)
                     (dpc_box_count(box) * dpc_safe_bits(kind) / 8));
    return s;
}

static DpcStatus whole_hash(Hasher *h, const DpcWhole *w)
{
    DpcDtype dtype = 0;
    while (dtype < DPC_NDTYPE && dpc_safe_kind_of(dtype) != w->kind)
        dtype++;
    if (dtype == DPC_NDTYPE)
        return dpc_fail(DPC_USER, "%s: error: \"%s\": dtype %s is none of a "
                        "model", h->source->path, w->name,
                        dpc_safe_kind_name(w->kind));
    dpc_hash_add(h->state, w->name, strlen(w->name) + 1);
    dpc_hash_add(h->state, dpc_dtype_name(dtype),
                        strlen(dpc_dtype_name(dtype)) + 1);
    for (int d = 0; d < w->ndim; d++) {
        char text[24];
        int n = snprintf(text, sizeof text, "%" PRId64 ",", w->dim[d]);
        dpc_hash_add(h->state, text, (size_t)n);
    }
    return dpc_source_slices(w, STAGE / dpc_dtype_size(dtype), slice_hash,
                             &(Slice){ h, w });
}

DpcStatus dpc_ckpt_hash(const char *path, char hex[DPC_HASH])
{
    Hasher h = { 0 };
    DpcStatus s = dpc_source_open(path, &h.source);
    if (s != DPC_OK)
        return s;
    h.state = dpc_hash_open();
    h.data = malloc(2 * STAGE);
    h.stage = h.data ? h.data + STAGE : NULL;
    if (!h.state || !h.data)
        s = dpc_fail(DPC_MEMORY, "%s: error: out of memory", path);
    for (uint32_t i = 0; s == DPC_OK && i < h.source->n; i++)
        s = whole_hash(&h, &h.source->whole[i]);
    if (s == DPC_OK)
        dpc_hash_hex(h.state, hex);
    dpc_hash_close(h.state);
    free(h.data);
    dpc_source_close(h.source);
    return s;
}
