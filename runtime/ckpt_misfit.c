/* ckpt_misfit.c -- how weights and a model's leaves differ, in one message. */
#include "runtime/ckpt_own.h"

#include "runtime/source.h"
#include <inttypes.h>
#include <stdio.h>

/* A line, if it is one of the first of its kind and all of it has room. */
static void tell(CkptMisfit *m, int count, const char *what, const char *name,
                 const char *more)
{
    size_t room = sizeof m->text - m->n;
    if (count > CKPT_TOLD)
        return;
    int k = snprintf(m->text + m->n, room, "\n  %s\"%s\"%s", what, name, more);
    if (k > 0 && (size_t)k < room)
        m->n += (size_t)k;
    m->text[m->n] = 0;
}

/* `missing "a" (there is "b" or "c")` */
static void lack_tell(CkptMisfit *m, int count, const char *what,
                      const char *name, DpcNamed of, const char *have,
                      uint32_t n, DpcNameAt at, const void *arg)
{
    const char *near[DPC_NEAR];
    char others[2 * DPC_PATH] = "";
    size_t used = 0;
    int k = count > CKPT_TOLD ? 0 : dpc_names_near(of, n, at, arg, near);
    for (int i = 0; i < k && used < sizeof others; i++)
        used += (size_t)snprintf(others + used, sizeof others - used,
                                 "%s \"%s\"%s", i ? " or" : have, near[i],
                                 i + 1 == k ? ")" : "");
    tell(m, count, what, name, others);
}

void ckpt_tell_missing(CkptMisfit *m, DpcNamed of, uint32_t n, DpcNameAt at,
                       const void *arg)
{
    lack_tell(m, ++m->missing, "missing ", of.name, of, " (there is", n, at,
              arg);
}

void ckpt_tell_extra(CkptMisfit *m, const char *name, DpcNamed of, uint32_t n,
                     DpcNameAt at, const void *arg)
{
    lack_tell(m, ++m->extra, "extra ", name, of, " (the model has", n, at,
              arg);
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
    char here[200], pair[460];
    shape_text(here, sizeof here, w->ndim, w->dim,
               dpc_safe_kind_name(w->kind));
    int n = snprintf(pair, sizeof pair, " is %s, the model wants ", here);
    shape_text(pair + n, sizeof pair - (size_t)n, l->ndim, l->dim,
               dpc_safe_kind_name(kind));
    m->unlike++;
    tell(m, m->unlike, "", w->name, pair);
}

DpcStatus ckpt_misfit_status(const CkptMisfit *m, const char *path)
{
    int most = m->missing > m->extra ? m->missing : m->extra;
    if (most + m->unlike == 0)
        return DPC_OK;
    return dpc_fail(DPC_USER, "%.200s: error: weights do not fit the model: "
                    "%d missing, %d extra, %d of another type or shape%s%s",
                    path, m->missing, m->extra, m->unlike, m->text,
                    most > CKPT_TOLD ? "\n  all of them: dpc weights map PATH "
                    "MODEL.lua" : "");
}
