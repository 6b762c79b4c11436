/* source_read.c -- boxes of tensors, out of the pieces that files hold.
 *
 * Short runs are cut out of windows of the stage.  Long ones are read by a few
 * threads at once, so that the disk, the copy out of the kernel and the
 * conversion keep each other company; what needs no conversion goes straight
 * to its place.  That the pieces of a tensor cover what is asked for is
 * counted. */
#include "runtime/source_own.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    READERS = 4,                          /* threads of a long run */
    STRAIGHT = 1 << 16,                   /* bytes of a run that is not staged
                                             with its neighbours */
    SLICE = 2 << 20                       /* bytes that a reader takes */
};

typedef struct Window {                   /* of one tensor of one file */
    const DpcSafe *safe;
    const DpcSafeTensor *t;
    char *stage;
    int64_t cap, lo, hi;                  /* bytes [lo, hi) are staged */
} Window;

typedef struct Target {
    const int64_t *ext;
    DpcSafeKind from, to;
    char *out;
} Target;

/* ---- short runs ---- */

/* Bytes from `at` on, as many of n as are staged. */
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

/* n elements from `at` on. */
static DpcStatus run_staged(Window *w, int64_t at, int64_t n, const Target *t,
                            char *out)
{
    int64_t from = dpc_safe_bits(t->from) / 8, to = dpc_safe_bits(t->to) / 8;
    for (int64_t done = 0; done < n;) {
        char *p;
        int64_t got;
        DpcStatus r = window_get(w, (at + done) * from, (n - done) * from, &p,
                                 &got);
        if (r != DPC_OK)
            return r;
        dpc_safe_convert(t->from, p, t->to, out + done * to, got / from);
        done += got / from;
    }
    return DPC_OK;
}

/* ---- long runs ---- */

/* A run that threads share: each takes the next slice. */
typedef struct Shared {
    const Window *w;
    const Target *t;
    int64_t at, n, slice;                 /* elements */
    char *out;
    atomic_int_fast64_t next;             /* slice that nobody has */
    atomic_int reader;                    /* its number: a part of the stage */
    atomic_int status;                    /* of the first that failed */
    char text[1000];                      /* its error */
} Shared;

/* n elements from `at` on, by reader `me`. */
static DpcStatus slice_read(const Shared *h, int me, int64_t at, int64_t n,
                            char *out)
{
    const Window *w = h->w;
    int64_t from = dpc_safe_bits(h->t->from) / 8;
    char *to = h->t->from == h->t->to ? out : w->stage + me * h->slice * from;
    dpc_safe_ahead(w->safe, w->t, (at + READERS * h->slice) * from,
                   (size_t)(h->slice * from));
    DpcStatus r = dpc_safe_read(w->safe, w->t, at * from, to,
                                (size_t)(n * from));
    if (r == DPC_OK && to != out)
        dpc_safe_convert(h->t->from, to, h->t->to, out, n);
    return r;
}

static void *slices_read(void *arg)
{
    Shared *h = arg;
    int me = atomic_fetch_add(&h->reader, 1), none = DPC_OK;
    int64_t size = dpc_safe_bits(h->t->to) / 8;
    while (atomic_load(&h->status) == DPC_OK) {
        int64_t done = h->slice * atomic_fetch_add(&h->next, 1);
        if (done >= h->n)
            break;
        int64_t n = h->n - done < h->slice ? h->n - done : h->slice;
        DpcStatus r = slice_read(h, me, h->at + done, n, h->out + done * size);
        if (r != DPC_OK && atomic_compare_exchange_strong(&h->status, &none,
                                                          (int)r))
            snprintf(h->text, sizeof h->text, "%s", dpc_last_error());
    }
    return NULL;
}

/* A thread that cannot be had is done without. */
static DpcStatus run_shared(const Window *w, int64_t at, int64_t n,
                            const Target *t, char *out)
{
    int64_t from = dpc_safe_bits(t->from) / 8;
    Shared h = { .w = w, .t = t, .at = at, .n = n, .out = out };
    h.slice = w->cap / READERS < SLICE ? w->cap / READERS / from
                                       : SLICE / from;
    pthread_t thread[READERS - 1];
    int started = 0;
    while (started < READERS - 1 && n > (started + 1) * h.slice &&
           !pthread_create(&thread[started], NULL, slices_read, &h))
        started++;
    slices_read(&h);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    DpcStatus s = (DpcStatus)atomic_load(&h.status);
    return s == DPC_OK ? s : dpc_fail(s, "%s", h.text);
}

/* ---- pieces ---- */

static DpcStatus piece_copy(Window *w, const DpcBox *piece, const DpcBox *box,
                            const Target *t)
{
    int64_t from = dpc_safe_bits(t->from) / 8, to = dpc_safe_bits(t->to) / 8;
    int64_t a, b;
    w->cap -= w->cap % from;              /* elements never straddle */
    DpcRuns runs = dpc_runs(piece, piece->size, box, t->ext);
    bool far = runs.run * from >= STRAIGHT && w->cap >= READERS * from;
    while (dpc_runs_next(&runs, &a, &b)) {
        DpcStatus r = far ? run_shared(w, a, runs.run, t, t->out + b * to)
                          : run_staged(w, a, runs.run, t, t->out + b * to);
        if (r != DPC_OK)
            return r;
    }
    return DPC_OK;
}

/* The piece as its file has it: the index may lie. */
static DpcStatus piece_find(DpcSource *s, const DpcWhole *w, const DpcPiece *p,
                            const DpcSafeTensor **out)
{
    DpcStatus r = source_file_open(s, p->file);
    if (r != DPC_OK)
        return r;
    const DpcSafeTensor *t = dpc_safe_find(s->file[p->file].open, w->own);
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
                          const int64_t *ext, DpcSafeKind to, void *out,
                          void *stage, size_t nstage)
{
    int64_t found = 0;
    if (!dpc_safe_converts(w->kind, to))
        return bad("\"%s\": %s cannot be read as %s", w->name,
                   dpc_safe_kind_name(w->kind), dpc_safe_kind_name(to));
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
        Target target = { ext, (DpcSafeKind)w->kind, to, out };
        r = piece_copy(&win, &p->box, box, &target);
        if (r != DPC_OK)
            return r;
        found += dpc_box_count(&meet);
    }
    if (found == dpc_box_count(box))
        return DPC_OK;
    return bad("\"%s\": %" PRId64 " of %" PRId64 " elements are in no file",
               w->name, dpc_box_count(box) - found, dpc_box_count(box));
}
