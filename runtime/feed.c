/* feed.c -- fills the inputs of a program: from data, files, captions.
 *
 * An input is [batch, ...]; its part on a rank and in a turn is a box, by the
 * same split that the plan gave it.  Which rows of a batch a rank needs is
 * the union of those boxes, so replicated axes read the same samples and the
 * loader reads each row once.  Elements of u8 may widen to the leaf's type,
 * without scaling: what numbers mean is the model's to say. */
#include "runtime/feed.h"
#include "runtime/box.h"
#include "runtime/fold.h"

#include <stdio.h>
#include <stdlib.h>

/* One input in one slot: a box of rows. */
typedef struct Place {
    const DpcLeaf *leaf;
    DpcBox box, inner;                    /* inner: of a row, without dim 0 */
    int64_t ext[DPC_NDIM];                /* of the buffer's row */
    int64_t stride;                       /* bytes of the buffer's row */
    int64_t size;                         /* bytes of the buffer */
    int source;                           /* field of the loader; -1: given */
    const DpcGiven *given;
    DpcDtype dtype;                       /* of the source */
    char *to;
} Place;

struct DpcFeed {
    DpcRt *rt;
    DpcLoader *loader;
    Place *place;
    int nplace, nfield;
    int field[DPC_NAXIS * 2];             /* of the data */
    int32_t *where;                       /* [batch] row of the loader; -1 */
    int64_t batch, nrow, bytes;
    int64_t step, cycle;                  /* of the next batch; DpcOrder's */
    bool once, filled;
    bool given_move;                      /* some file has rows for more than
                                             one step */
};

enum { MOST_FIELDS = sizeof ((DpcFeed *)0)->field / sizeof(int) };

void dpc_feed_coord(const DpcRt *rt, int32_t rank, int32_t turn,
                    int32_t coord[DPC_NAXIS])
{
    for (uint32_t i = rt->unit->naxis; i-- > 0;) {
        const DpcAxis *a = &rt->unit->axis[i];
        int32_t *rest = a->kind == DPC_TIME ? &turn : &rank;
        coord[i] = *rest % a->size;
        *rest /= a->size;
    }
}

/* ---- matching ---- */

/* Dimensions of one do not count: [28, 28] is [28, 28, 1]. */
static bool same_shape(const DpcField *f, const DpcLeaf *l)
{
    int i = 0, j = 1;
    for (;;) {
        while (i < f->ndim && f->dim[i] == 1)
            i++;
        while (j < l->ndim && l->dim[j] == 1)
            j++;
        if (i == f->ndim || j >= l->ndim)
            return i == f->ndim && j >= l->ndim;
        if (f->dim[i++] != l->dim[j++])
            return false;
    }
}

static bool widens(DpcDtype from, DpcDtype to)
{
    return from == to || from == DPC_U8 ||
           (from == DPC_BF16 && to == DPC_F32);
}

static DpcStatus match(const DpcLeaf *l, const DpcField *f, const char *from)
{
    char want[96], have[96];
    if (same_shape(f, l) && widens(f->dtype, l->dtype))
        return DPC_OK;
    DpcField row = {.dtype = (DpcDtype)l->dtype, .ndim = l->ndim - 1};
    memcpy(row.dim, l->dim + 1, sizeof row.dim - sizeof *row.dim);
    dpc_field_text(&row, want, sizeof want);
    dpc_field_text(f, have, sizeof have);
    return dpc_fail(DPC_USER, "%s: error: input '%s' wants rows of %s but "
        "'%s' has %s%s", l->loc, l->name, want, from, have,
        same_shape(f, l) ? "; cast in the model" : "; give rows of that shape");
}

static bool has_source(const DpcLeaf *l, const DpcFeedHow *how)
{
    for (int i = 0; i < how->ngiven; i++)
        if (!strcmp(how->given[i].input, l->name))
            return !match(l, &how->given[i].field, "");
    int k = how->data ? dpc_data_find(how->data, l->name) : -1;
    return k >= 0 && !match(l, dpc_data_field(how->data, k), "");
}

int dpc_feed_fits(const DpcRt *rt, uint32_t program, const DpcFeedHow *how)
{
    const DpcProgram *p = &rt->unit->program[program];
    int n = 0;
    for (uint32_t i = 0; i < p->nport; i++) {
        const DpcLeaf *l = &rt->unit->leaf[p->port[i].leaf];
        n += l->kind == DPC_INPUT && has_source(l, how);
    }
    return n;
}

static DpcStatus no_field(const DpcLeaf *l, const DpcFeedHow *how)
{
    char list[512];
    size_t n = 0;
    bool ids = l->dtype == DPC_I32 && l->ndim == 2 && how->data &&
               dpc_data_find(how->data, "caption") >= 0;
    if (!how->data)
        return dpc_fail(DPC_USER, "%s: error: input '%s' has no source; give "
            "--data SPEC or --input %s=FILE.npy", l->loc, l->name, l->name);
    for (int i = 0; i < dpc_data_nfield(how->data) && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s'%s'",
                              i ? ", " : "",
                              dpc_data_field(how->data, i)->name);
    return dpc_fail(DPC_USER, "%s: error: input '%s' is no field of '%s', "
        "which has %s; %sor give --input %s=FILE.npy", l->loc, l->name,
        how->spec, n ? list : "none", ids ? "give --tokenizer PATH for ids of "
        "its captions, " : "", l->name);
}

/* Position of a data field in the feed's list. */
static int field_index(DpcFeed *f, int field)
{
    for (int i = 0; i < f->nfield; i++)
        if (f->field[i] == field)
            return i;
    if (f->nfield == MOST_FIELDS)
        return -1;
    f->field[f->nfield] = field;
    return f->nfield++;
}

static DpcStatus rows_match(const DpcLeaf *l, const DpcGiven *g)
{
    if (!g->file || (g->nrow && g->nrow % l->dim[0] == 0))
        return DPC_OK;
    return dpc_fail(DPC_USER, "%s: error: input '%s' takes %lld rows a step "
        "but '%s' has %lld; give a multiple, or compile for that batch",
        l->loc, l->name, (long long)l->dim[0], g->field.name,
        (long long)g->nrow);
}

/* Samples with numbers that the table lacks are corrupt. */
static DpcStatus limit_set(const DpcLeaf *l, int field, DpcData *d)
{
    char why[512];
    snprintf(why, sizeof why, "but input '%s' (%s) indexes a table of %lld "
             "rows in %s", l->name, l->loc, (long long)l->limit, l->table);
    return dpc_data_limit(d, field, l->limit, why);
}

/* Where an input comes from.  Not `mine`: another role reads it; it must be
 * there all the same, that all ranks judge data alike. */
static DpcStatus source_find(DpcFeed *f, const DpcFeedHow *how, Place *p,
                             bool mine)
{
    const DpcLeaf *l = p->leaf;
    p->source = -1;
    for (int i = 0; i < how->ngiven; i++)
        if (!strcmp(how->given[i].input, l->name)) {
            p->given = &how->given[i];
            p->dtype = p->given->field.dtype;
            f->given_move |= mine && p->given->nrow > l->dim[0];
            DpcStatus s = match(l, &p->given->field, p->given->field.name);
            return s ? s : rows_match(l, p->given);
        }
    int k = how->data ? dpc_data_find(how->data, l->name) : -1;
    if (k < 0)
        return no_field(l, how);
    const DpcField *d = dpc_data_field(how->data, k);
    p->dtype = d->dtype;
    p->source = mine ? field_index(f, k) : -1;
    if (mine && p->source < 0)
        return dpc_fail(DPC_USER, "%s: error: more than %d inputs from data",
                        l->loc, MOST_FIELDS);
    if (f->batch && f->batch != l->dim[0])
        return dpc_fail(DPC_USER, "%s: error: input '%s' has %lld rows but "
            "another has %lld; a batch has one size", l->loc, l->name,
            (long long)l->dim[0], (long long)f->batch);
    f->batch = l->dim[0];
    DpcStatus s = match(l, d, how->spec);
    return s || !l->limit ? s : limit_set(l, k, how->data);
}

/* ---- places ---- */

/* The first turn of an instance, which is counted along some time axes; turns
 * are, row-major, along all of them. */
static int32_t turn_of_slot(const DpcUnit *u, DpcAxes along, int32_t slot)
{
    int32_t turn = 0, step = 1;
    for (uint32_t i = u->naxis; i-- > 0;) {
        int32_t n = u->axis[i].kind == DPC_TIME ? u->axis[i].size : 1;
        if (n > 1 && along >> i & 1)
            turn += slot % n * step, slot /= n;
        step *= n;
    }
    return turn;
}

static void place_fill(DpcFeed *f, uint32_t program, Place *p, DpcAxes along,
                       int32_t slot)
{
    int32_t turn = turn_of_slot(f->rt->unit, along, slot);
    int32_t coord[DPC_NAXIS];
    int64_t local[DPC_NDIM] = {0};
    dpc_feed_coord(f->rt, f->rt->comm->rank, turn, coord);
    p->box = dpc_box_of(f->rt->unit, p->leaf, coord, local);
    p->stride = dpc_dtype_size(p->leaf->dtype);
    p->inner.ndim = p->box.ndim - 1;
    for (int d = 1; d < p->box.ndim; d++) {
        p->inner.at[d - 1] = p->box.at[d];
        p->inner.size[d - 1] = p->box.size[d];
        p->ext[d - 1] = local[d];
        p->stride *= local[d];
    }
    p->to = dpc_rt_port(f->rt, program, p->leaf->name, slot);
    p->size = p->stride * local[0];
}

static DpcStatus place_check(const DpcFeed *f, const DpcLeaf *l,
                             const DpcBuf *b, const Place *p)
{
    if (b->slots > f->rt->turns || p->size > b->size)
        return dpc_fail(DPC_BUG, "%s: internal error: input '%s' takes %lld "
            "bytes of %lld", l->loc, l->name, (long long)p->size,
            (long long)b->size);
    return DPC_OK;
}

static bool has_input(const DpcProgram *p, uint32_t leaf)
{
    for (uint32_t i = 0; i < p->nport; i++)
        if (p->port[i].leaf == leaf)
            return true;
    return false;
}

/* Inputs of the same entry that only other roles read. */
static DpcStatus others_match(DpcFeed *f, const DpcProgram *mine,
                              const DpcFeedHow *how)
{
    const DpcUnit *u = f->rt->whole;
    DpcStatus s = DPC_OK;
    for (uint32_t i = 0; !s && i < u->nprogram; i++) {
        const DpcProgram *p = &u->program[i];
        bool same = !strcmp(p->entry, mine->entry);
        for (uint32_t k = 0; same && !s && k < p->nport; k++) {
            Place other = {.leaf = &u->leaf[p->port[k].leaf]};
            if (other.leaf->kind == DPC_INPUT && other.leaf->ndim
                && !has_input(mine, p->port[k].leaf))
                s = source_find(f, how, &other, false);
        }
    }
    return s;
}

static DpcStatus places_make(DpcFeed *f, uint32_t program,
                             const DpcFeedHow *how)
{
    const DpcProgram *p = &f->rt->unit->program[program];
    for (uint32_t i = 0; i < p->nport; i++) {
        const DpcLeaf *l = &f->rt->unit->leaf[p->port[i].leaf];
        const DpcBuf *b = &p->buf[p->port[i].buf];
        if (l->kind != DPC_INPUT)
            continue;
        if (!l->ndim)
            return dpc_fail(DPC_USER, "%s: error: input '%s' has no "
                "dimension; make it a scalar", l->loc, l->name);
        Place first = {.leaf = l};
        DpcStatus s = source_find(f, how, &first, true);
        for (int32_t k = 0; !s && k < (b->slots ? b->slots : 1); k++) {
            Place *q = &f->place[f->nplace++];
            *q = first;
            place_fill(f, program, q, b->along, k);
            s = place_check(f, l, b, q);
        }
        if (s)
            return s;
    }
    return others_match(f, p, how);
}

static int slots_count(const DpcUnit *u, uint32_t program)
{
    const DpcProgram *p = &u->program[program];
    int n = 0;
    for (uint32_t i = 0; i < p->nport; i++)
        n += p->buf[p->port[i].buf].slots + 1;
    return n;
}

/* Rows of the batch that any place of this rank takes from the data. */
static int64_t *rows_make(DpcFeed *f)
{
    f->where = malloc(sizeof *f->where * (size_t)(f->batch + 1));
    int64_t *row = malloc(sizeof *row * (size_t)(f->batch + 1));
    if (!f->where || !row) {
        free(row);
        return NULL;
    }
    for (int64_t i = 0; i < f->batch; i++)
        f->where[i] = -1;
    for (int i = 0; i < f->nplace; i++)
        for (int64_t r = 0; f->place[i].source >= 0 &&
                            r < f->place[i].box.size[0]; r++)
            f->where[f->place[i].box.at[0] + r] = 0;
    for (int64_t i = 0; i < f->batch; i++)
        if (f->where[i] == 0) {
            f->where[i] = (int32_t)f->nrow;
            row[f->nrow++] = i;
        }
    return row;
}

/* Ranks that read the same rows meet the same corrupt ones: the first along
 * the axes that do not part a batch is to name them. */
static bool is_first_reader(const DpcFeed *f)
{
    const DpcUnit *u = f->rt->unit;
    int32_t coord[DPC_NAXIS];
    DpcAxes parts = 0;
    for (int i = 0; i < f->nplace; i++)
        for (DpcSplit s = f->place[i].leaf->split[0]; s; s >>= 4)
            parts |= (DpcAxes)(1u << ((s & 15) - 1));
    dpc_feed_coord(f->rt, f->rt->comm->rank, 0, coord);
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].kind == DPC_SPACE && coord[i] && !(parts >> i & 1))
            return false;
    return true;
}

static DpcStatus loader_start(DpcFeed *f, const DpcFeedHow *how)
{
    if (!f->nfield)
        return DPC_OK;
    if (dpc_data_count(how->data) < f->batch)
        return dpc_fail(DPC_USER, "%s: error: data: a batch takes %lld samples "
            "but there are %lld; compile for a smaller batch", how->spec,
            (long long)f->batch, (long long)dpc_data_count(how->data));
    dpc_data_tell(how->data, is_first_reader(f));
    int64_t *row = rows_make(f);
    if (!row)
        return dpc_fail(DPC_MEMORY, "data: error: no memory for %lld rows",
                        (long long)f->batch);
    DpcStatus s = dpc_loader_open(how->data, how->order, f->batch, row,
                                  f->nrow, f->field, f->nfield, &f->loader);
    free(row);
    return s;
}

DpcStatus dpc_feed_open(DpcRt *rt, uint32_t program, const DpcFeedHow *how,
                        DpcFeed **out)
{
    *out = NULL;
    DpcFeed *f = calloc(1, sizeof *f);
    Place *place = calloc((size_t)slots_count(rt->unit, program) + 1,
                          sizeof *place);
    if (!f || !place) {
        free(f);
        free(place);
        return dpc_fail(DPC_MEMORY, "data: error: no memory");
    }
    f->rt = rt;
    f->place = place;
    f->once = how->once;
    f->step = how->order.start;
    f->cycle = how->order.cycle;
    DpcStatus s = places_make(f, program, how);
    if (!s)
        s = loader_start(f, how);
    if (s) {
        dpc_feed_close(f);
        return s;
    }
    *out = f;
    return DPC_OK;
}

void dpc_feed_close(DpcFeed *f)
{
    if (!f)
        return;
    dpc_loader_close(f->loader);
    free(f->where);
    free(f->place);
    free(f);
}

int64_t dpc_feed_bytes(const DpcFeed *f)
{
    return f->loader ? dpc_loader_bytes(f->loader) : 0;
}

/* ---- filling ---- */

static void widen(char *to, DpcDtype t, const char *from, DpcDtype f,
                  int64_t n)
{
    if (t == f) {
        memcpy(to, from, (size_t)(n * dpc_dtype_size(t)));
        return;
    }
    if (f == DPC_BF16) {
        dpc_fold_load(DPC_BF16, (float *)to, from, n);
        return;
    }
    const uint8_t *u = (const uint8_t *)from;
    for (int64_t i = 0; i < n; i++)
        if (t == DPC_I32)
            ((int32_t *)to)[i] = u[i];
        else if (t == DPC_F32)
            ((float *)to)[i] = u[i];
        else
            ((uint16_t *)to)[i] = dpc_bf16_round(u[i]);
}

/* One row: all of it, or the box that this rank holds of it. */
static void row_fill(const Place *p, char *to, const char *from)
{
    const int64_t *dim = p->leaf->dim + 1;
    DpcBox whole = dpc_box_whole(p->inner.ndim, dim);
    int64_t t = dpc_dtype_size(p->leaf->dtype), s = dpc_dtype_size(p->dtype);
    int64_t a, b;
    if (dpc_box_count(&p->inner) == dpc_box_count(&whole)) {
        widen(to, p->leaf->dtype, from, p->dtype, dpc_box_count(&whole));
        return;
    }
    DpcRuns r = dpc_runs(&whole, dim, &p->inner, p->ext);
    while (dpc_runs_next(&r, &a, &b))
        widen(to + b * t, p->leaf->dtype, from + a * s, p->dtype, r.run);
}

static int64_t row_bytes(const Place *p)
{
    int64_t n = dpc_dtype_size(p->dtype);
    for (int d = 1; d < p->leaf->ndim; d++)
        n *= p->leaf->dim[d];
    return n;
}

static double element(DpcDtype t, const char *from, int64_t i)
{
    const uint16_t *h = (const uint16_t *)from;
    float x;
    if (t == DPC_BF16)
        dpc_fold_load(DPC_BF16, &x, (const char *)(h + i), 1);
    return t == DPC_I32 ? ((const int32_t *)from)[i]
         : t == DPC_U8  ? ((const uint8_t *)from)[i]
         : t == DPC_F32 ? (double)((const float *)from)[i] : (double)x;
}

/* Every number of a given row is one of a table's rows; the data check their
 * own. */
static DpcStatus row_check(const Place *p, int64_t row, const char *from)
{
    int64_t n = p->leaf->limit ? row_bytes(p) / dpc_dtype_size(p->dtype) : 0;
    for (int64_t i = 0; i < n; i++) {
        double v = element(p->dtype, from, i);
        if (!(v >= 0 && v < (double)p->leaf->limit))
            return dpc_fail(DPC_USER, "%s: error: input '%s': row %lld of the "
                "batch holds %.9g, but it indexes a table of %lld rows in %s; "
                "look at the data", p->leaf->loc, p->leaf->name,
                (long long)row, v, (long long)p->leaf->limit, p->leaf->table);
    }
    return DPC_OK;
}

static DpcStatus place_write(DpcFeed *f, const Place *p, const void **of_field)
{
    int64_t bytes = row_bytes(p);
    if (p->box.size[0] * p->stride < p->size)
        memset(p->to, 0, (size_t)p->size);    /* padding */
    for (int64_t r = 0; r < p->box.size[0]; r++) {
        int64_t row = p->box.at[0] + r;
        int64_t given = f->step * p->leaf->dim[0] + row;
        const char *from = p->given
            ? (const char *)p->given->row + given % p->given->nrow * bytes
            : (const char *)of_field[p->source] + f->where[row] * bytes;
        DpcStatus s = p->given ? row_check(p, row, from) : DPC_OK;
        if (s)
            return s;
        row_fill(p, p->to + r * p->stride, from);
    }
    return DPC_OK;
}

DpcStatus dpc_feed_next(DpcFeed *f, double *waited_s)
{
    const void *of_field[MOST_FIELDS];
    *waited_s = 0;
    if (f->filled && (f->once || !(f->loader || f->given_move)))
        return DPC_OK;
    if (f->loader) {
        DpcStatus s = dpc_loader_next(f->loader, of_field, waited_s);
        if (s)
            return s;
    }
    for (int i = 0; i < f->nplace; i++) {
        DpcStatus s = place_write(f, &f->place[i], of_field);
        if (s)
            return s;
    }
    f->filled = true;
    f->step = f->step + 1 == f->cycle ? 0 : f->step + 1;
    return DPC_OK;
}

/* ---- files ---- */

DpcStatus dpc_given_read(const char *input, const char *path, DpcGiven *g)
{
    DpcData *d;
    DpcStatus s = dpc_data_open(path, 0, &d);
    if (s)
        return s;
    g->input = input;
    g->field = *dpc_data_field(d, 0);
    g->field.name = path;
    g->nrow = dpc_data_count(d);
    g->file = true;
    int64_t bytes = dpc_field_bytes(&g->field);
    g->row = malloc((size_t)(g->nrow * bytes) + 1);
    if (!g->row)
        s = dpc_fail(DPC_MEMORY, "%s: error: no memory for %lld rows", path,
                     (long long)g->nrow);
    for (int64_t i = 0; !s && i < g->nrow; i++)
        s = dpc_data_read(d, i, 0, (char *)g->row + i * bytes, bytes);
    dpc_data_close(d);
    return s;
}
