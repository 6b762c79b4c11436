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

static DpcStatus block_hash(Hasher *h, const DpcWhole *w, const DpcBox *box,
                            DpcDtype dtype)
{
    DpcStatus s = dpc_source_read(h->source, w, box, box->size, dtype, h->data,
                                  h->stage, STAGE);
    if (s == DPC_OK)
        dpc_hash_add(h->state, h->data, (size_t)
                            (dpc_box_count(box) * dpc_dtype_size(dtype)));
    return s;
}

/* Dimensions from `d` on fit the buffer together; of dimension d - 1 as many
 * rows as fit are taken at once; the ones before go one by one. */
static DpcStatus blocks_hash(Hasher *h, const DpcWhole *w, DpcDtype dtype)
{
    int64_t room = STAGE / dpc_dtype_size(dtype);
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
        DpcStatus s = block_hash(h, w, &box, dtype);
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
    return blocks_hash(h, w, dtype);
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
