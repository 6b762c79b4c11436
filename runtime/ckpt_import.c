/* ckpt_import.c -- filling params from somebody else's weights.
 *
 * Everything is compared before the first byte is read into a leaf: partly
 * loaded weights are how people get noise.  Leaves are then filled in the
 * order in which their tensors lie in the files, whatever the model's, so that
 * a disk reads straight on. */
#include "runtime/ckpt_own.h"

#include "runtime/source.h"
#include <stdlib.h>
#include <string.h>

typedef struct Import {
    DpcCkpt *c;
    const char *here;
    char there[DPC_PATH];
    int how;                              /* DPC_INIT_... */
    DpcSource *source;
} Import;

/* A leaf and what fills it, which begins there. */
typedef struct Pair {
    const DpcLeaf *leaf;
    const DpcWhole *whole;
    const DpcPiece *piece;
} Pair;

/* ---- names ---- */

/* Name of the param whose moving average this state is; NULL: it is none. */
static const char *averaged(const DpcLeaf *l)
{
    return l->kind == DPC_STATE && !strncmp(l->name, "ema.", 4) ? l->name + 4
                                                                : NULL;
}

/* What a leaf's name is behind `here`; NULL: it is none of these.  Params, and
 * their averages, or an evaluation would see those of before. */
static const char *rest_of(const Import *m, const DpcLeaf *l)
{
    const char *name = l->kind == DPC_PARAM ? l->name : averaged(l);
    size_t n = strlen(m->here);
    return name && !strncmp(name, m->here, n) ? name + n : NULL;
}

/* `name` becomes what it is called there. */
static const DpcWhole *whole_of(const Import *m, const DpcLeaf *l,
                                char name[DPC_PATH])
{
    const char *rest = rest_of(m, l);
    const DpcWhole *w = NULL;
    if ((m->how & DPC_INIT_EMA || averaged(l)) &&
        dpc_path(name, "ema.%s%s", m->there, rest) == DPC_OK)
        w = dpc_source_find(m->source, name);
    if (!w && dpc_path(name, "%s%s", m->there, rest) == DPC_OK)
        w = dpc_source_find(m->source, name);
    return w;
}

/* Of a param that nothing there is called: what something may be meant for. */
static DpcNamed wanting(const void *import, uint32_t i)
{
    const Import *m = import;
    const DpcLeaf *l = &m->c->unit->leaf[i];
    char name[DPC_PATH];
    return l->kind == DPC_PARAM && rest_of(m, l) && !whole_of(m, l, name)
         ? (DpcNamed){ l->name, l->ndim, l->dim } : (DpcNamed){ 0 };
}

/* Of a tensor below `there`; an average is that of one. */
static DpcNamed offered(const void *import, uint32_t i)
{
    const Import *m = import;
    const DpcWhole *w = &m->source->whole[i];
    bool none = w->state || strncmp(w->name, m->there, strlen(m->there)) ||
                !strncmp(w->name, "ema.", 4);
    return none ? (DpcNamed){ 0 } : dpc_whole_named(w);
}

/* The same, of one that is no leaf's. */
static DpcNamed spare(const void *import, uint32_t i)
{
    const Import *m = import;
    DpcNamed w = offered(m, i);
    char name[DPC_PATH];
    bool taken = w.name &&
                 dpc_path(name, "%s%s", m->here,
                          w.name + strlen(m->there)) == DPC_OK &&
                 ckpt_is_leaf(m->c->unit, name);
    return taken ? (DpcNamed){ 0 } : w;
}

/* ---- a prefix that nobody asked for ---- */

/* Names of params there, not yet found; *any: one is found as it is. */
static const char **wanted(const Import *m, uint32_t *n, bool *any)
{
    const DpcUnit *u = m->c->unit;
    const char **want = malloc((u->nleaf + 1) * sizeof *want);
    char name[DPC_PATH];
    *n = 0, *any = false;
    for (uint32_t i = 0; want && i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        if (l->kind != DPC_PARAM || !rest_of(m, l))
            continue;
        *any |= whole_of(m, l, name) != NULL;
        want[(*n)++] = rest_of(m, l);
    }
    return want;
}

/* Wrappers put words before all names: those are found by themselves. */
static DpcStatus prefix_find(Import *m)
{
    char prefix[2][DPC_PATH];
    uint32_t n;
    bool any;
    const char **want = wanted(m, &n, &any);
    if (!want)
        return dpc_fail(DPC_MEMORY, "%s: error: out of memory",
                        m->source->path);
    int found = any || *m->there ? 0
              : dpc_source_prefix(m->source, want, n, prefix);
    free(want);
    if (found > 1)
        return dpc_fail(DPC_USER, "%.300s: error: init: the params could be "
                        "those below \"%.100s\" or \"%.100s\"; say which: "
                        "--init-from %s:PREFIX=PATH", m->source->path,
                        prefix[0], prefix[1], m->here);
    if (found == 0)
        return DPC_OK;
    ckpt_warn(m->c, "%s: note: names begin with \"%s\" there, which is cut off",
              m->source->path, prefix[0]);
    return dpc_path(m->there, "%s", prefix[0]);
}

/* ---- does it fit? ---- */

static bool may_miss(const Import *m, const DpcLeaf *l)
{
    return m->how & DPC_INIT_OVER ||
           (m->how & DPC_INIT_PARTIAL && l->trainable);
}

/* They are told as the file calls them, likened as they are called here. */
static void extras_tell(const Import *m, CkptMisfit *left)
{
    const DpcUnit *u = m->c->unit;
    size_t n = strlen(m->there);
    char name[DPC_PATH];
    for (uint32_t i = 0; i < m->source->n; i++) {
        DpcNamed w = spare(m, i);
        if (w.name && dpc_path(name, "%s%s", m->here, w.name + n) == DPC_OK)
            ckpt_tell_extra(left, w.name, (DpcNamed){ name, w.ndim, w.dim },
                            u->nleaf, wanting, m);
    }
}

/* Nothing would be read, which nobody asks for.  The first few params that may
 * be there by another name are looked for among all tensors, of which none is
 * a param's. */
static DpcStatus match_none(const Import *m)
{
    const DpcUnit *u = m->c->unit;
    const DpcSource *s = m->source;
    const char *first = NULL, *near[DPC_NEAR] = { NULL };
    int found = 0, tried = 0;
    for (uint32_t i = 0; !found && tried < CKPT_TOLD && i < u->nleaf; i++) {
        DpcNamed l = wanting(m, i);
        tried += l.name != NULL;
        found = l.name ? dpc_names_near(l, s->n, offered, m, near) : 0;
        first = l.name && (found || !first) ? l.name : first;
    }
    if (!found && s->n)
        near[0] = s->whole[0].name;
    return dpc_fail(DPC_USER, "%.300s: error: init: no tensor is a param of "
                    "this model, which has \"%.100s\"%s%.100s%s",
                    s->path, first, near[0] ? "; there is \"" : "",
                    near[0] ? near[0] : "", near[0] ? "\"" : "");
}

/* Is it an average, and w the tensor of its param, too? */
static bool compared(const Import *m, const DpcLeaf *l, const DpcWhole *w)
{
    return averaged(l) && strncmp(w->name, "ema.", 4) &&
           ckpt_is_leaf(m->c->unit, averaged(l));
}

static DpcStatus import_check(const Import *m, int *n)
{
    const DpcUnit *u = m->c->unit;
    CkptMisfit bad = { 0 };
    char name[DPC_PATH];
    bool any = false;
    *n = 0;
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        if (!rest_of(m, l))
            continue;
        const DpcWhole *w = whole_of(m, l, name);
        *n += l->kind == DPC_PARAM && w;
        any |= l->kind == DPC_PARAM;
        if (w && !compared(m, l, w))
            ckpt_compare(&bad, l, w, true);
        else if (l->kind == DPC_PARAM && !may_miss(m, l))
            ckpt_tell_missing(&bad, (DpcNamed){ name, l->ndim, l->dim },
                              m->source->n, spare, m);
    }
    if (!any)
        return dpc_fail(DPC_USER, "%s: error: init: no param of this model is "
                        "called \"%s*\"", m->source->path, m->here);
    if (!*n && !bad.missing)
        return match_none(m);
    if (!(m->how & (DPC_INIT_PARTIAL | DPC_INIT_EXTRA)))
        extras_tell(m, &bad);
    return ckpt_misfit_status(&bad, m->source->path);
}

/* ---- reading ---- */

static int by_place(const void *a, const void *b)
{
    const Pair *p = a, *q = b;
    if (p->piece->file != q->piece->file)
        return p->piece->file < q->piece->file ? -1 : 1;
    if (p->piece->at != q->piece->at)
        return p->piece->at < q->piece->at ? -1 : 1;
    return p->leaf < q->leaf ? -1 : p->leaf > q->leaf;
}

/* Bytes of the tensor that fill this rank's part. */
static int64_t pair_bytes(const Import *m, const Pair *p)
{
    int64_t local[DPC_NDIM];
    DpcBox box = dpc_box_of(m->c->unit, p->leaf, m->c->world.coord, local);
    return dpc_box_count(&box) * dpc_safe_bits((DpcSafeKind)p->whole->kind)
           / 8;
}

static DpcStatus pairs_read(const Import *m, char *const *space,
                            int64_t *bytes)
{
    const DpcUnit *u = m->c->unit;
    Pair *pair = malloc((u->nleaf + 1) * sizeof *pair);
    uint32_t n = 0;
    char name[DPC_PATH];
    DpcStatus s = DPC_OK;
    if (!pair)
        return dpc_fail(DPC_MEMORY, "%s: error: out of memory",
                        m->source->path);
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        const DpcWhole *w = rest_of(m, l) ? whole_of(m, l, name) : NULL;
        if (w && dpc_leaf_here(l, m->c->role))
            pair[n++] = (Pair){ l, w, &m->source->piece[w->piece] };
    }
    qsort(pair, n, sizeof *pair, by_place);
    for (uint32_t i = 0; s == DPC_OK && i < n; i++) {
        s = ckpt_leaf_read(m->c, m->source, pair[i].leaf, pair[i].whole,
                           space);
        *bytes += pair_bytes(m, &pair[i]);
    }
    free(pair);
    return s;
}

static DpcStatus source_ready(Import *m, const DpcInitFrom *from)
{
    DpcCkpt *c = m->c;
    char path[DPC_PATH];
    DpcStatus s = ckpt_newest(c, from->path, path);
    if (s == DPC_OK)
        s = dpc_source_open(path, &m->source);
    if (s == DPC_OK && strcmp(path, c->verified))
        s = dpc_source_verify(m->source, (uint32_t)c->world.rank,
                              (uint32_t)c->world.size, c->out.buf,
                              c->out.cap);
    if (s == DPC_OK && from->rules)
        s = dpc_source_rename(m->source, from->rules);
    return s == DPC_OK ? prefix_find(m) : s;
}

DpcStatus dpc_ckpt_init_from(DpcCkpt *c, char *const *space,
                             const DpcInitFrom *from, DpcInitDone *done)
{
    Import m = { c, from->here, "", from->how, NULL };
    *done = (DpcInitDone){ 0 };
    DpcStatus s = dpc_path(m.there, "%s", from->there);
    if (s == DPC_OK)
        s = source_ready(&m, from);
    if (s == DPC_OK)
        s = import_check(&m, &done->params);
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        s = ckpt_agree(c, pairs_read(&m, space, &done->bytes));
    dpc_source_close(m.source);
    return s;
}
