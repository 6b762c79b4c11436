/* ckpt_load.c -- filling leaves from a checkpoint.
 *
 * Each rank reads only the boxes it holds, through the staging buffer, from
 * whatever pieces the saving plan left.  Names, shapes and types are all
 * compared before the first byte is written into a leaf: a refused load
 * changes nothing.  (Partly loaded weights are how people get noise.) */
#include "runtime/ckpt_own.h"

#include "runtime/source.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- leaves ---- */

DpcStatus ckpt_leaf_read(DpcCkpt *c, DpcSource *s, const DpcLeaf *l,
                           const DpcWhole *w, char *const *space)
{
    int64_t local[DPC_NDIM], n = dpc_dtype_size((DpcDtype)l->dtype);
    DpcBox box = dpc_box_of(c->unit, l, c->world.coord, local);
    for (int d = 0; d < l->ndim; d++)
        n *= local[d];
    if (n > dpc_box_count(&box) * dpc_dtype_size((DpcDtype)l->dtype))
        memset(space[l->space] + l->at, 0, (size_t)n);   /* padding */
    return dpc_source_read(s, w, &box, local, dpc_safe_kind_of((DpcDtype)l->dtype),
                           space[l->space] + l->at, c->out.buf, c->out.cap);
}

/* Does that tensor hold the leaf, dimension by dimension? */
static bool same_shape(const DpcLeaf *l, const DpcWhole *w)
{
    bool same = w && w->ndim == l->ndim;
    for (int d = 0; same && d < l->ndim; d++)
        same = w->dim[d] == l->dim[d];
    return same;
}

/* What another plan has left behind is none of this one's business: its
 * residuals begin anew. */
static bool begins_anew(const DpcLeaf *l, const DpcWhole *w)
{
    return l->residual && !same_shape(l, w);
}

bool ckpt_is_leaf(const DpcUnit *u, const char *name)
{
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (ckpt_class(&u->leaf[i]) >= 0 && !strcmp(u->leaf[i].name, name))
            return true;
    return false;
}

typedef struct Fit {
    const DpcUnit *unit;
    const DpcSource *source;
} Fit;

/* A tensor that is no leaf's. */
static DpcNamed spare(const void *fit, uint32_t i)
{
    const Fit *f = fit;
    const DpcWhole *w = &f->source->whole[i];
    return w->residual || ckpt_is_leaf(f->unit, w->name)
         ? (DpcNamed){ 0 } : dpc_whole_named(w);
}

/* A leaf that it lacks. */
static DpcNamed wanting(const void *fit, uint32_t i)
{
    const Fit *f = fit;
    const DpcLeaf *l = &f->unit->leaf[i];
    return ckpt_class(l) < 0 || dpc_source_find(f->source, l->name)
         ? (DpcNamed){ 0 } : (DpcNamed){ l->name, l->ndim, l->dim };
}

static DpcStatus fit_check(const DpcCkpt *c, const DpcSource *s)
{
    const char *model = json_string_value(json_object_get(s->index, "model"));
    CkptMisfit m = { 0 };
    Fit fit = { c->unit, s };
    uint32_t used = 0;
    if (!model || strcmp(model, c->unit->model))
        return dpc_fail(DPC_USER, "%s: error: checkpoint of model \"%s\", this "
                        "program trains \"%s\"; --init-from takes weights of "
                        "another model", s->path, model ? model : "?",
                        c->unit->model);
    for (uint32_t i = 0; i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        if (ckpt_class(l) < 0)
            continue;
        const DpcWhole *w = dpc_source_find(s, l->name);
        used += w != NULL;
        if (begins_anew(l, w))
            continue;
        if (w)
            ckpt_compare(&m, l, w, false);
        else
            ckpt_tell_missing(&m, wanting(&fit, i), s->n, spare, &fit);
    }
    for (uint32_t i = 0; used < s->n && i < s->n; i++)
        if (spare(&fit, i).name)
            ckpt_tell_extra(&m, s->whole[i].name, spare(&fit, i),
                            c->unit->nleaf, wanting, &fit);
    return ckpt_misfit_status(&m, s->path);
}

static uint64_t hex_value(const json_t *v)
{
    const char *text = json_string_value(v);
    return text ? strtoull(text, NULL, 16) : 0;
}

static void info_read(const DpcCkpt *c, const json_t *index, DpcCkptInfo *info)
{
    const DpcUnit *u = c->unit;
    info->step = json_integer_value(json_object_get(index, "step"));
    info->cursor = json_integer_value(json_object_get(index, "cursor"));
    info->seed = hex_value(json_object_get(index, "seed"));
    info->data = hex_value(json_object_get(index, "data"));
    const json_t *scalars = json_object_get(index, "scalars");
    for (uint32_t i = 0; info->scalar && i < u->nleaf; i++) {
        const json_t *v = json_object_get(scalars, u->leaf[i].name);
        if (u->leaf[i].kind == DPC_SCALAR && json_is_number(v))
            info->scalar[i] = json_number_value(v);
    }
}

DpcStatus dpc_ckpt_load(DpcCkpt *c, char *const *space, DpcCkptInfo *info,
                        const char *path)
{
    DpcSource *source;
    DpcStatus s = ckpt_verify(c, path, &source);
    if (s != DPC_OK)
        return s;
    s = ckpt_agree(c, fit_check(c, source));
    for (uint32_t i = 0; s == DPC_OK && i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        const DpcWhole *w = dpc_source_find(source, l->name);
        if (ckpt_class(l) < 0 || !dpc_leaf_here(l, c->role))
            continue;
        if (begins_anew(l, w))
            memset(space[l->space] + l->at, 0, (size_t)l->bytes);
        else
            s = ckpt_leaf_read(c, source, l, w, space);
    }
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        info_read(c, source->index, info);
    dpc_source_close(source);
    return s;
}
