/* ckpt_misfit.c -- how weights and a model's leaves differ, in one message. */
#include "runtime/ckpt_own.h"

#include "runtime/source.h"
#include <inttypes.h>
#include <stdio.h>

static void tell(CkptMisfit *m, int count, const char *f, const char *a,
                 const char *b)
{
    if (count > CKPT_TOLD || m->n >= sizeof m->text)
        return;
    int k = snprintf(m->text + m->n, sizeof m->text - m->n, f, a, b);
    m->n += k > 0 ? (size_t)k : 0;
}

void ckpt_tell_missing(CkptMisfit *m, const DpcSource *s, const char *name)
{
    const char *near = dpc_source_near(s, name);
    m->missing++;
    if (near)
        tell(m, m->missing, "\n  missing \"%s\" (there is \"%s\")", name,
             near);
    else
        tell(m, m->missing, "\n  missing \"%s\"%s", name, "");
}

void ckpt_tell_extra(CkptMisfit *m, const char *name, const char *near)
{
    m->extra++;
    if (near)
        tell(m, m->extra, "\n  extra \"%s\" (the model has \"%s\")", name, near);
    else
        tell(m, m->extra, "\n  extra \"%s\"%s", name, "");
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

void ckpt_compare(CkptMisfit *m, const DpcLeaf *l, const DpcWhole *w,
                    bool convert)
{
    DpcSafeKind kind = dpc_safe_kind_of((DpcDtype)l->dtype);
    bool same = l->ndim == w->ndim &&
                (convert ? dpc_safe_converts((DpcSafeKind)w->kind, kind)
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

DpcStatus ckpt_misfit_status(const CkptMisfit *m, const char *path)
{
    if (m->missing + m->extra + m->unlike == 0)
        return DPC_OK;
    return dpc_fail(DPC_USER, "%.200s: error: weights do not fit the model: "
                    "%d missing, %d extra, %d of another type or shape%s",
                    path, m->missing, m->extra, m->unlike, m->text);
}
