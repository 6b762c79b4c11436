/* ckpt_load.c -- filling leaves from a checkpoint or from somebody's weights.
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

enum { TOLD = 5 };                        /* names that a message lists */

/* ---- what does not fit ---- */

typedef struct Misfit {
    char text[700];
    size_t n;
    int missing, extra, unlike;
} Misfit;

static void tell(Misfit *m, int count, const char *f, const char *a,
                 const char *b)
{
    if (count > TOLD || m->n >= sizeof m->text)
        return;
    int k = snprintf(m->text + m->n, sizeof m->text - m->n, f, a, b);
    m->n += k > 0 ? (size_t)k : 0;
}

static void tell_missing(Misfit *m, const DpcSource *s, const char *name)
{
    const char *near = dpc_source_near(s, name);
    m->missing++;
    if (near)
        tell(m, m->missing, "\n  missing \"%s\" (there is \"%s\")", name,
             near);
    else
        tell(m, m->missing, "\n  missing \"%s\"%s", name, "");
}

static void shape_text(char *out, size_t cap, int ndim, const int64_t *dim,
                       const char *kind)
{
    size_t n = (size_t)snprintf(out, cap, "%s[", kind);
    for (int d = 0; d < ndim && n < cap; d++)
        n += (size_t)snprintf(out + n, cap - n, "%s%" PRId64, d ? "," : "",
                              dim[d]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

/* Is w what the leaf wants?  `convert`: another float type will do. */
static void compare(Misfit *m, const DpcLeaf *l, const DpcWhole *w,
                    bool convert)
{
    DpcSafeKind kind = dpc_safe_kind_of((DpcDtype)l->dtype);
    bool same = l->ndim == w->ndim &&
                (convert ? dpc_safe_converts(w->kind, (DpcDtype)l->dtype)
                         : w->kind == kind);
    for (int d = 0; same && d < l->ndim; d++)
        same = l->dim[d] == w->dim[d];
    if (same)
        return;
    char here[200], pair[450];
    shape_text(here, sizeof here, w->ndim, w->dim,
               dpc_safe_kind_name(w->kind));
    int n = snprintf(pair, sizeof pair, "%s, the model wants ", here);
    shape_text(pair + n, sizeof pair - (size_t)n, l->ndim, l->dim,
               dpc_safe_kind_name(kind));
    m->unlike++;
    tell(m, m->unlike, "\n  \"%s\" is %s", w->name, pair);
}

static DpcStatus misfit_status(const Misfit *m, const char *path)
{
    if (m->missing + m->extra + m->unlike == 0)
        return DPC_OK;
    return dpc_fail(DPC_USER, "%.200s: error: weights do not fit the model: "
                    "%d missing, %d extra, %d of another type or shape%s",
                    path, m->missing, m->extra, m->unlike, m->text);
}

/* ---- leaves ---- */

static DpcStatus leaf_read(DpcCkpt *c, DpcSource *s, const DpcLeaf *l,
                           const DpcWhole *w, char *leaves)
{
    int64_t local[DPC_NDIM], n = dpc_dtype_size((DpcDtype)l->dtype);
    DpcBox box = dpc_box_of(c->unit, l, c->world.coord, local);
    for (int d = 0; d < l->ndim; d++)
        n *= local[d];
    if (n > dpc_box_count(&box) * dpc_dtype_size((DpcDtype)l->dtype))
        memset(leaves + l->at, 0, (size_t)n);         /* padding */
    return dpc_source_read(s, w, &box, local, (DpcDtype)l->dtype,
                           leaves + l->at, c->out.buf, c->out.cap);
}

static bool is_leaf(const DpcUnit *u, const char *name)
{
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (ckpt_class(&u->leaf[i]) >= 0 && !strcmp(u->leaf[i].name, name))
            return true;
    return false;
}

static DpcStatus fit_check(const DpcCkpt *c, const DpcSource *s)
{
    const char *model = json_string_value(json_object_get(s->index, "model"));
    Misfit m = { 0 };
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
        if (w)
            compare(&m, l, w, false);
        else
            tell_missing(&m, s, l->name);
    }
    for (uint32_t i = 0; used < s->n && i < s->n; i++)
        if (!is_leaf(c->unit, s->whole[i].name)) {
            m.extra++;
            tell(&m, m.extra, "\n  extra \"%s\"%s", s->whole[i].name, "");
        }
    return misfit_status(&m, s->path);
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

DpcStatus dpc_ckpt_load(DpcCkpt *c, void *leaves, DpcCkptInfo *info,
                        const char *path)
{
    DpcSource *source;
    DpcStatus s = ckpt_verify(c, path, &source);
    if (s != DPC_OK)
        return s;
    s = ckpt_agree(c, fit_check(c, source));
    for (uint32_t i = 0; s == DPC_OK && i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        if (ckpt_class(l) >= 0)
            s = leaf_read(c, source, l, dpc_source_find(source, l->name),
                          leaves);
    }
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        info_read(c, source->index, info);
    dpc_source_close(source);
    return s;
}

/* ---- another model's weights ---- */

typedef struct Import {
    const char *here, *there;
    int how;                              /* DPC_INIT_... */
} Import;

/* Name of the param whose moving average this state is; NULL: it is none. */
static const char *averaged(const DpcLeaf *l)
{
    return l->kind == DPC_STATE && !strncmp(l->name, "ema.", 4) ? l->name + 4
                                                                : NULL;
}

/* Params, and their averages, or an evaluation would see those of before. */
static bool imports(const Import *m, const DpcLeaf *l)
{
    const char *name = l->kind == DPC_PARAM ? l->name : averaged(l);
    return name && !strncmp(name, m->here, strlen(m->here));
}

static const DpcWhole *import_find(const Import *m, const DpcSource *s,
                                   const DpcLeaf *l, char name[DPC_PATH])
{
    const char *of = averaged(l);
    const char *rest = (of ? of : l->name) + strlen(m->here);
    const DpcWhole *w = NULL;
    if ((m->how & DPC_INIT_EMA || of) && dpc_path(name, "ema.%s%s", m->there, rest) == DPC_OK)
        w = dpc_source_find(s, name);
    if (!w && dpc_path(name, "%s%s", m->there, rest) == DPC_OK)
        w = dpc_source_find(s, name);
    return w;
}

/* Params that the model has no place for; an EMA copy is not one. */
static void leftover_warn(DpcCkpt *c, const Import *m, const DpcSource *s)
{
    Misfit left = { 0 };
    char name[DPC_PATH];
    for (uint32_t i = 0; i < s->n; i++) {
        const DpcWhole *w = &s->whole[i];
        size_t n = strlen(m->there);
        if (w->state || strncmp(w->name, m->there, n) ||
            !strncmp(w->name, "ema.", 4))
            continue;
        if (dpc_path(name, "%s%s", m->here, w->name + n) == DPC_OK &&
            is_leaf(c->unit, name))
            continue;
        left.extra++;
        tell(&left, left.extra, " \"%s\"%s", w->name, "");
    }
    if (left.extra)
        ckpt_warn(c, "%s: warning: %d tensors are not used:%s%s", s->path,
                  left.extra, left.text, left.extra > TOLD ? " ..." : "");
}

static DpcStatus import_check(DpcCkpt *c, const Import *m, const DpcSource *s,
                              int *n)
{
    Misfit bad = { 0 };
    char name[DPC_PATH];
    bool any = false;
    *n = 0;
    for (uint32_t i = 0; i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        if (!imports(m, l))
            continue;
        const DpcWhole *w = import_find(m, s, l, name);
        *n += l->kind == DPC_PARAM && w;
        any |= l->kind == DPC_PARAM;
        if (w)
            compare(&bad, l, w, true);
        else if (l->kind == DPC_PARAM
                 && !(m->how & DPC_INIT_PARTIAL && l->trainable))
            tell_missing(&bad, s, name);
    }
    if (!any)
        return dpc_fail(DPC_USER, "%s: error: init: no param of this model is "
                        "called \"%s...\"", s->path, m->here);
    return misfit_status(&bad, s->path);
}

DpcStatus dpc_ckpt_init_from(DpcCkpt *c, void *leaves, const char *path,
                             const char *here, const char *there, int how,
                             int *nloaded)
{
    Import m = { here, there, how };
    DpcSource *source;
    char name[DPC_PATH], from[DPC_PATH];
    int n = 0;
    DpcStatus s = ckpt_newest(c, path, from);
    if (s != DPC_OK)
        return s;
    s = dpc_source_open(from, &source);
    if (s == DPC_OK && strcmp(from, c->verified))
        s = dpc_source_verify(source, (uint32_t)c->world.rank,
                              (uint32_t)c->world.size, c->out.buf,
                              c->out.cap);
    if (s == DPC_OK)
        s = import_check(c, &m, source, &n);
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        leftover_warn(c, &m, source);
    for (uint32_t i = 0; s == DPC_OK && i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        const DpcWhole *w = imports(&m, l) ? import_find(&m, source, l, name)
                                           : NULL;
        if (w)
            s = leaf_read(c, source, l, w, leaves);
    }
    dpc_source_close(source);
    if (nloaded)
        *nloaded = s == DPC_OK ? n : 0;
    return ckpt_agree(c, s);
}
