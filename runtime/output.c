/* output.c -- outputs of a program as files.
 *
 * Every rank sends its buffer of each turn to all; rank 0 puts the boxes in
 * their places.  Memory is taken for the call, outside of any step. */
#include "runtime/output.h"
#include "runtime/box.h"
#include "runtime/feed.h"
#include "runtime/fold.h"
#include "runtime/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A whole output, row-major, on rank 0. */
typedef struct Whole {
    const DpcLeaf *leaf;
    char *data;                           /* f32, i32 or u8 */
    DpcDtype dtype;
    int64_t count;
} Whole;

typedef struct Parts {
    const void *mine;
    int64_t bytes;
    char *all;                            /* [ranks, bytes] */
} Parts;

static DpcStatus gather(DpcComm *c, void *arg)
{
    Parts *p = arg;
    DpcWire w = {.dtype = DPC_U8, .count = p->bytes, .in = p->mine,
                 .out = p->all};
    if (c->size > 1)
        return c->ops->all_gather(c, &w);
    memcpy(p->all, p->mine, (size_t)p->bytes);
    return DPC_OK;
}

/* Puts the boxes that all ranks had in turn `turn` into `to`. */
static void boxes_place(const DpcRt *rt, const DpcLeaf *l, int32_t turn,
                        const Parts *p, char *to)
{
    int64_t e = dpc_dtype_size(l->dtype), local[DPC_NDIM] = {0}, a, b;
    int32_t coord[DPC_NAXIS];
    DpcBox whole = dpc_box_whole(l->ndim, l->dim);
    for (int32_t r = 0; r < rt->comm->size; r++) {
        dpc_feed_coord(rt, r, turn, coord);
        DpcBox box = dpc_box_of(rt->unit, l, coord, local);
        DpcRuns runs = dpc_runs(&box, local, &whole, l->dim);
        while (dpc_runs_next(&runs, &a, &b))
            memcpy(to + b * e, p->all + r * p->bytes + a * e,
                   (size_t)(runs.run * e));
    }
}

static DpcStatus collect(DpcRt *rt, uint32_t program, const DpcLeaf *l,
                         char *to)
{
    const DpcBuf *b = dpc_rt_port_buf(rt, program, l->name);
    Parts p = {.bytes = b->size};
    p.all = malloc((size_t)(b->size * rt->comm->size) + 1);
    if (!p.all)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory to write '%s'",
                        l->loc, l->name);
    DpcStatus s = DPC_OK;
    for (int32_t k = 0; !s && k < (b->slots ? b->slots : 1); k++) {
        p.mine = dpc_rt_port(rt, program, l->name, k);
        s = dpc_rt_call(rt, gather, &p);
        if (!s)
            boxes_place(rt, l, k, &p, to);
    }
    free(p.all);
    return s;
}

/* bf16 becomes f32, which every reader knows. */
static DpcStatus whole_make(DpcRt *rt, uint32_t program, Whole *w)
{
    const DpcLeaf *l = w->leaf;
    DpcBox box = dpc_box_whole(l->ndim, l->dim);
    w->count = dpc_box_count(&box);
    w->dtype = l->dtype == DPC_BF16 ? DPC_F32 : l->dtype;
    size_t raw = (size_t)(w->count * dpc_dtype_size(l->dtype));
    w->data = malloc((size_t)w->count * 4 + 1);
    char *to = l->dtype == DPC_BF16 ? malloc(raw + 1) : w->data;
    DpcStatus s = DPC_OK;
    if (!w->data || !to)
        s = dpc_fail(DPC_MEMORY, "%s: error: no memory to write '%s'", l->loc,
                     l->name);
    if (!s)
        s = collect(rt, program, l, to);
    if (to == w->data)
        return s;
    if (!s)
        dpc_fold_load(DPC_BF16, (float *)w->data, to, w->count);
    free(to);
    return s;
}

/* ---- files ---- */

static DpcStatus disk(const char *path)
{
    return dpc_fail(DPC_ENV, "%s: error: output: %s", path, strerror(errno));
}

/* Version 1.0 of the format: the head ends on a multiple of 64. */
static int npy_head(const Whole *w, char head[1024])
{
    static const char *const descr[] = {
        [DPC_F32] = "<f4", [DPC_I32] = "<i4", [DPC_U8] = "|u1"};
    int n = 10 + snprintf(head + 10, 900, "{'descr': '%s', 'fortran_order': "
                          "False, 'shape': (", descr[w->dtype]);
    for (int d = 0; d < w->leaf->ndim; d++)
        n += snprintf(head + n, 64, "%lld,", (long long)w->leaf->dim[d]);
    n += snprintf(head + n, 64, "), }");
    while ((n + 1) % 64)
        head[n++] = ' ';
    head[n++] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)((n - 10) & 255);
    head[9] = (char)((n - 10) >> 8);
    return n;
}

static DpcStatus npy_write(const Whole *w, const char *path)
{
    char head[1024];
    size_t n = (size_t)npy_head(w, head);
    size_t bytes = (size_t)(w->count * dpc_dtype_size(w->dtype));
    FILE *f = fopen(path, "wb");
    if (!f)
        return disk(path);
    bool ok = fwrite(head, 1, n, f) == n;
    ok &= fwrite(w->data, 1, bytes, f) == bytes;
    ok &= fclose(f) == 0;
    return ok ? DPC_OK : disk(path);
}

/* n, c, h, w of a leaf that could be pictures. */
static bool grid_of(const DpcLeaf *l, DpcGrid *g)
{
    const int64_t *d = l->dim;
    if (l->ndim != 4 || l->dtype == DPC_I32)
        return false;
    bool last = d[3] == 1 || d[3] == 3, first = d[1] == 1 || d[1] == 3;
    *g = last ? (DpcGrid){.n = d[0], .c = d[3], .h = d[1], .w = d[2]}
              : (DpcGrid){.n = d[0], .c = d[1], .h = d[2], .w = d[3],
                          .planar = true};
    for (g->cols = 1; g->cols * g->cols < g->n;)
        g->cols++;
    g->scale = g->h < 64 ? 2 : 1;
    return last || first;
}

static DpcStatus png_write(Whole *w, const char *path, double low, double high)
{
    DpcGrid g;
    if (!grid_of(w->leaf, &g))
        return dpc_fail(DPC_USER, "%s: error: output '%s' is no picture: "
            "wanted [n,h,w,c] or [n,c,h,w] with c 1 or 3; write .npy",
            w->leaf->loc, w->leaf->name);
    float *x = (float *)w->data;
    if (w->dtype == DPC_U8)
        for (int64_t i = w->count; i-- > 0;)
            x[i] = (float)((unsigned char *)w->data)[i] / 255;
    else
        for (int64_t i = 0; i < w->count; i++)
            x[i] = (float)((x[i] - low) / (high - low));
    return dpc_png_write_grid(path, x, &g);
}

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

DpcStatus dpc_output_write(DpcRt *rt, uint32_t program, const char *name,
                           const char *path, double low, double high)
{
    int32_t leaf = dpc_rt_find(rt->unit, name);
    if (!dpc_rt_port_buf(rt, program, name))
        return dpc_fail(DPC_USER, "%s: error: --output: '%s' has no output "
            "'%s'", rt->unit->model, rt->unit->program[program].entry, name);
    Whole w = {.leaf = &rt->unit->leaf[leaf]};
    DpcStatus s = whole_make(rt, program, &w);
    if (!s && rt->comm->rank == 0) {
        if (ends(path, ".npy"))
            s = npy_write(&w, path);
        else if (ends(path, ".png"))
            s = png_write(&w, path, low, high);
        else
            s = dpc_fail(DPC_USER, "%s: error: --output: wanted a name that "
                         "ends in .npy or .png", path);
    }
    free(w.data);
    return s;
}

const char *dpc_output_picture(const DpcUnit *u, uint32_t program)
{
    DpcGrid g;
    for (uint32_t i = 0; i < u->program[program].nport; i++) {
        const DpcLeaf *l = &u->leaf[u->program[program].port[i].leaf];
        if (l->kind == DPC_OUTPUT && grid_of(l, &g))
            return l->name;
    }
    return NULL;
}
