/* data_record.c -- the fields of one record of an archive.
 *
 * A record is made ready as a whole before any of its fields is read: what is
 * wrong with one of them makes the record corrupt, and none of it is used.
 * Arrays are looked at and left where they are; small things are read.
 *
 * A padded field has records of different first dimension, as text embeddings
 * have: [n, ...] with n up to `rows`.  It is filled up with zeros, and two
 * fields more say what is real: NAME_length i32, NAME_mask u8[rows]. */
#include "runtime/data_tar.h"
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

/* ---- one column of a record ---- */

/* The last failure, as one of the record's `what`. */
static DpcStatus blame(const DpcTars *t, int64_t sample, const char *what)
{
    char why[DPC_WHY];
    snprintf(why, sizeof why, "%s", dpc_last_error());
    const char *at = strstr(why, "error: ");
    return dpc_tars_fail(t, sample, "%s: %s", what,
                         at ? at + strlen("error: ") : why);
}

static DpcStatus span_of(DpcTars *t, int64_t sample, const DpcTarMember *m,
                         DpcSpan *f)
{
    int tar = t->sample[sample].tar;
    *f = (DpcSpan){t->file.path[tar], -1, m->at, m->size};
    return dpc_file_open(&t->file, tar, &f->fd);
}

static DpcStatus image_seek(DpcTars *t, int64_t sample, DpcTarColumn *c,
                            const DpcTarMember *m)
{
    DpcSpan f;
    DpcStatus s = span_of(t, sample, m, &f);
    s = s ? s : dpc_image_read(t->imager, &f, c->h, c->w, c->rgb);
    return s == DPC_USER ? blame(t, sample, c->name) : s;
}

/* The member's bytes as text, at most DPC_TEXT_MAX; the caller frees. */
static DpcStatus text_of(DpcTars *t, int64_t sample, const DpcTarMember *m,
                         char **text)
{
    DpcSpan f;
    *text = NULL;
    if (m->size > DPC_TEXT_MAX)
        return dpc_tars_fail(t, sample, "%s has %lld bytes, at most %d are "
                             "read", t->column[m->column].name,
                             (long long)m->size, DPC_TEXT_MAX);
    DpcStatus s = span_of(t, sample, m, &f);
    if (!s && !(*text = malloc((size_t)m->size + 1)))
        s = no_memory();
    s = s ? s : dpc_file_take(f.path, f.fd, f.at, f.size, *text);
    if (!s)
        (*text)[m->size] = '\0';
    return s;
}

static void caption_put(const DpcTars *t, const char *text, char *to)
{
    size_t n = text ? strlen(text) : 0;
    while (n && strchr("\r\n", text[n - 1]))
        n--;
    dpc_text_put(text, (int64_t)n, (uint8_t *)to, t->option.text);
}

/* "caption", else "text"; NULL: neither, or null. */
static const json_t *caption_of(const json_t *o)
{
    const json_t *v = json_object_get(o, "caption");
    if (!v || json_is_null(v))
        v = json_object_get(o, "text");
    return json_is_null(v) ? NULL : v;
}

static DpcStatus text_seek(DpcTars *t, int64_t sample, DpcTarColumn *c,
                           const DpcTarMember *m)
{
    char *text = NULL;
    json_error_t e = {0};
    DpcStatus s = m ? text_of(t, sample, m, &text) : DPC_OK;
    json_t *o = !s && m && m->json ? json_loads(text, 0, &e) : NULL;
    if (!s && m && m->json && !o)
        s = dpc_tars_fail(t, sample, "its JSON, line %d: %s", e.line, e.text);
    const json_t *own = caption_of(o);
    if (!s && o && !json_is_object(o))
        s = dpc_tars_fail(t, sample, "its JSON is no object");
    else if (!s && own && !json_is_string(own))
        s = dpc_tars_fail(t, sample, "its JSON's caption is no string");
    if (!s)
        caption_put(t, m && m->json ? json_string_value(own) : text,
                    c->text);
    json_decref(o);
    free(text);
    return s;
}

/* A whole number and white space. */
static DpcStatus label_seek(DpcTars *t, int64_t sample, DpcTarColumn *c,
                            const DpcTarMember *m)
{
    char *text, *end;
    DpcStatus s = text_of(t, sample, m, &text);
    if (s) {
        free(text);
        return s;
    }
    errno = 0;
    int line = (int)strcspn(text, "\r\n");
    long v = strtol(text, &end, 10);
    bool ok = end > text && !errno && v >= INT32_MIN && v <= INT32_MAX;
    while (isspace((unsigned char)*end))
        end++;
    if (!ok || *end)
        s = dpc_tars_fail(t, sample, "%s is \"%.*s\", wanted a whole number "
                          "of 32 bits", c->name, line < 40 ? line : 40, text);
    c->label = (int32_t)v;
    free(text);
    return s;
}

/* ---- arrays ---- */

/* What the record has, against the field. */
static DpcStatus array_check(const DpcTars *t, int64_t sample,
                             const DpcTarField *a)
{
    const DpcField *now = &a->lies.field, *all = &a->field;
    char have[96], want[96];
    bool same = now->dtype == all->dtype && now->ndim == all->ndim;
    int first = a->padded;
    for (int i = first; same && i < all->ndim; i++)
        same = now->dim[i] == all->dim[i];
    if (same && (!first || now->dim[0] <= all->dim[0]))
        return DPC_OK;
    dpc_field_text(now, have, sizeof have);
    dpc_field_text(all, want, sizeof want);
    return dpc_tars_fail(t, sample, "%s is %s, others %s %s", all->name, have,
                         a->padded ? "are padded to" : "are", want);
}

static DpcStatus array_now(DpcTars *t, int64_t sample, DpcTarField *a)
{
    const DpcTarMember *m = dpc_tars_find_member(t, sample, a->column);
    DpcSpan f;
    DpcStatus s = span_of(t, sample, m, &f);
    if (s)
        return s;
    a->lies = (DpcColumn){.path = t->file.path[t->sample[sample].tar],
                         .fd = f.fd, .at = f.at};
    s = dpc_npy_head(f.path, f.size, &a->lies);
    if (s == DPC_USER)
        return blame(t, sample, t->column[a->column].name);
    return s;
}

/* How a tensor lies in its file; false: its type is not read. */
static bool tensor_column(const DpcSafe *safe, const DpcSafeTensor *t,
                          DpcColumn *c)
{
    static const struct { uint8_t kind, stored, dtype; } type[] = {
        {DPC_SAFE_U8, DPC_STORED_U8, DPC_U8},
        {DPC_SAFE_BOOL, DPC_STORED_U8, DPC_U8},
        {DPC_SAFE_I32, DPC_STORED_I32, DPC_I32},
        {DPC_SAFE_I64, DPC_STORED_I64, DPC_I32},
        {DPC_SAFE_F16, DPC_STORED_F16, DPC_F32},
        {DPC_SAFE_BF16, DPC_STORED_BF16, DPC_BF16},
        {DPC_SAFE_F32, DPC_STORED_F32, DPC_F32},
        {DPC_SAFE_F64, DPC_STORED_F64, DPC_F32},
    };
    *c = (DpcColumn){.path = safe->path, .fd = safe->fd, .count = 1,
                     .at = safe->base + t->at,
                     .swap = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__,
                     .field = {.ndim = t->ndim}};
    memcpy(c->field.dim, t->dim, sizeof t->dim);
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (t->kind == type[i].kind) {
            c->stored = (DpcStored)type[i].stored;
            c->field.dtype = (DpcDtype)type[i].dtype;
            return true;
        }
    return false;
}

static DpcStatus tensor_now(DpcTars *t, int64_t sample, DpcTarField *a)
{
    DpcSafe *safe = t->column[a->column].safe;
    const DpcSafeTensor *tensor = dpc_safe_find(safe, a->field.name);
    if (!tensor)
        return dpc_tars_fail(t, sample, "its .safetensors has no \"%s\"",
                             a->field.name);
    if (!tensor_column(safe, tensor, &a->lies))
        return dpc_tars_fail(t, sample, "%s is of type %s, which is not read",
                             a->field.name,
                             dpc_safe_kind_name((DpcSafeKind)tensor->kind));
    return DPC_OK;
}

static DpcStatus tensors_seek(DpcTars *t, int64_t sample, DpcTarColumn *c,
                              const DpcTarMember *m)
{
    DpcSpan f;
    DpcStatus s = span_of(t, sample, m, &f);
    dpc_safe_close(c->safe);
    c->safe = NULL;
    s = s ? s : dpc_safe_open_within(f.fd, f.at, f.size, f.path, &c->safe);
    return s == DPC_USER ? blame(t, sample, "its .safetensors") : s;
}

/* ---- rows beside ---- */

/* DALLE2-pytorch's rule: the last digits of the key are the row's number. */
static DpcStatus row_seek(DpcTars *t, int64_t sample, DpcTarColumn *c)
{
    const char *key = dpc_tars_key(t, sample);
    size_t n = strlen(key), digits = (size_t)t->option.digits;
    const char *from = n < digits ? key : key + n - digits;
    if (n < digits || strspn(from, "0123456789") != digits)
        return dpc_tars_fail(t, sample, "its key does not end in the %zu "
                             "digits of a row of \"%s\" (digits=N)", digits,
                             c->name);
    int64_t number = dpc_shard_number(t->file.path[t->sample[sample].tar]);
    DpcStatus s = dpc_shards_seek(c->shards, number < 0 ? 0 : number,
                                  strtoll(from, NULL, 10));
    if (!s && dpc_shards_zero(c->shards))
        s = dpc_fail(DPC_USER, "error: its row is all zero: missing");
    return s == DPC_USER ? blame(t, sample, c->name) : s;
}

/* ---- a record ---- */

static DpcStatus column_seek(DpcTars *t, int64_t sample, int i)
{
    DpcTarColumn *c = &t->column[i];
    const DpcTarMember *m = dpc_tars_find_member(t, sample, i);
    if (c->kind == DPC_M_TEXT || c->kind == DPC_M_JSON)
        return text_seek(t, sample, c, m);
    if (c->kind == DPC_M_ROWS)
        return row_seek(t, sample, c);
    if (!m)
        return dpc_tars_fail(t, sample, "sample %lld has no \"%s\"",
                             (long long)sample, c->kind == DPC_M_TENSORS
                             ? "safetensors" : c->name);
    switch (c->kind) {
    case DPC_M_IMAGE:   return image_seek(t, sample, c, m);
    case DPC_M_LABEL:   return label_seek(t, sample, c, m);
    case DPC_M_TENSORS: return tensors_seek(t, sample, c, m);
    default:            return DPC_OK;
    }
}

static DpcStatus field_seek(DpcTars *t, int64_t sample, DpcTarField *a)
{
    DpcMemberKind kind = t->column[a->column].kind;
    DpcStatus s = kind == DPC_M_ARRAY ? array_now(t, sample, a)
                                      : tensor_now(t, sample, a);
    s = s ? s : array_check(t, sample, a);
    if (!s && (s = dpc_column_check(&a->lies, 0)) == DPC_USER)
        return blame(t, sample, a->field.name);
    return s;
}

static bool is_array(const DpcTars *t, const DpcTarField *a)
{
    DpcMemberKind kind = t->column[a->column].kind;
    return a->part == DPC_P_WHOLE &&
           (kind == DPC_M_ARRAY || kind == DPC_M_TENSORS);
}

int64_t dpc_tars_rows(DpcTars *t, int64_t sample, int field)
{
    DpcTarField a = t->field[field];
    DpcTarColumn *c = &t->column[a.column];
    const DpcTarMember *m = dpc_tars_find_member(t, sample, a.column);
    a.padded = true;
    a.field.dim[0] = INT64_MAX;
    t->current = -1;
    if (!m || !is_array(t, &a) || !a.field.ndim)
        return 0;
    if (c->kind == DPC_M_TENSORS && tensors_seek(t, sample, c, m))
        return 0;
    return field_seek(t, sample, &a) ? 0 : a.lies.field.dim[0];
}

static DpcStatus tars_seek(void *self, int64_t sample)
{
    DpcTars *t = self;
    DpcStatus s = DPC_OK;
    if (t->current == sample)
        return DPC_OK;
    t->current = -1;
    for (int i = 0; !s && i < t->ncolumn; i++)
        s = column_seek(t, sample, i);
    for (int i = 0; !s && i < t->nfield; i++)
        if (is_array(t, &t->field[i]))
            s = field_seek(t, sample, &t->field[i]);
    if (!s)
        t->current = sample;
    return s;
}

static DpcStatus array_read(const DpcTarField *a, uint8_t *to)
{
    int64_t all = dpc_field_bytes(&a->field);
    int64_t now = dpc_field_bytes(&a->lies.field);
    memset(to + now, 0, (size_t)(all - now));
    return dpc_column_read(&a->lies, 0, to);
}

static DpcStatus tars_read(void *self, int64_t sample, int field, void *to)
{
    DpcTars *t = self;
    const DpcTarField *a = &t->field[field];
    const DpcTarColumn *c = &t->column[a->column];
    (void)sample;
    if (a->part == DPC_P_LENGTH) {
        *(int32_t *)to = (int32_t)t->field[a->of].lies.field.dim[0];
    } else if (a->part == DPC_P_MASK) {
        memset(to, 0, (size_t)a->field.dim[0]);
        memset(to, 1, (size_t)t->field[a->of].lies.field.dim[0]);
    } else if (is_array(t, a)) {
        return array_read(a, to);
    } else if (c->kind == DPC_M_IMAGE) {
        memcpy(to, c->rgb, (size_t)(3 * c->h * c->w));
    } else if (c->kind == DPC_M_ROWS) {
        dpc_shards_read(c->shards, to);
    } else if (c->kind == DPC_M_LABEL) {
        memcpy(to, &c->label, sizeof c->label);
    } else {
        memcpy(to, c->text, (size_t)t->option.text);
    }
    return DPC_OK;
}

static void tars_close(void *self)
{
    DpcTars *t = self;
    for (int i = 0; i < t->ncolumn; i++) {
        free(t->column[i].rgb);
        free(t->column[i].text);
        dpc_safe_close(t->column[i].safe);
        dpc_shards_close(t->column[i].shards);
    }
    for (int i = 0; i < t->nfield; i++)
        free((char *)t->field[i].field.name);
    dpc_files_close(&t->file);
    dpc_imager_close(t->imager);
    free(t->member);
    free(t->sample);
    free(t->keys);
    free(t);
}

static void tars_name(void *self, int64_t sample, char *to, size_t size)
{
    const DpcTars *t = self;
    snprintf(to, size, "%s: record \"%s\"",
             t->file.path[t->sample[sample].tar], dpc_tars_key(t, sample));
}

/* ---- fields ---- */

static DpcStatus field_add(DpcTars *t, DpcData *d, DpcTarField a,
                           const char *name, const char *end)
{
    size_t n = strlen(name) + strlen(end) + 1;
    char *own = malloc(n);
    if (t->nfield == DPC_NFIELD) {
        free(own);
        return dpc_fail(DPC_USER, "%s: error: data: more than %d fields; make "
                        "archives of fewer", t->file.path[0], DPC_NFIELD);
    }
    if (!own)
        return no_memory();
    snprintf(own, n, "%s%s", name, end);
    a.field.name = own;
    t->field[t->nfield++] = a;
    d->field[d->nfield++] = a.field;
    return DPC_OK;
}

/* A field NAME_length or NAME_mask of the records' own. */
static bool said_already(const DpcTars *t, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < t->nfield; i++) {
        const char *other = t->field[i].field.name;
        if (!strncmp(other, name, n) && (!strcmp(other + n, "_length") ||
                                         !strcmp(other + n, "_mask")))
            return true;
    }
    return false;
}

static DpcStatus tars_pad(void *self, DpcData *d, int field, int64_t rows)
{
    DpcTars *t = self;
    DpcTarField *a = &t->field[field];
    bool had = a->padded;
    if (!is_array(t, a) || !a->field.ndim ||
        (!had && said_already(t, a->field.name)))
        return DPC_OK;
    t->current = -1;
    a->padded = true, a->first = 0;
    a->field.dim[0] = d->field[field].dim[0] = rows;
    for (int i = 0; i < t->nfield; i++)
        if (t->field[i].part == DPC_P_MASK && t->field[i].of == field)
            t->field[i].field.dim[0] = d->field[i].dim[0] = rows;
    if (had)
        return DPC_OK;
    DpcStatus s = field_add(t, d, (DpcTarField){
        .column = a->column, .of = field, .part = DPC_P_LENGTH,
        .field = {.dtype = DPC_I32}}, a->field.name, "_length");
    return s ? s : field_add(t, d, (DpcTarField){
        .column = a->column, .of = field, .part = DPC_P_MASK,
        .field = {.dtype = DPC_U8, .ndim = 1, .dim = {rows}}},
        a->field.name, "_mask");
}

static void tars_unpad(void *self, DpcData *d, int field)
{
    DpcTars *t = self;
    DpcTarField *a = &t->field[field];
    if (!a->first)
        return;
    a->field.dim[0] = d->field[field].dim[0] = a->first;
    a->padded = false, a->first = 0;
    t->current = -1;
}

const DpcReader dpc_tars_reader = {
    .seek = tars_seek, .read = tars_read, .close = tars_close,
    .name = tars_name, .pad = tars_pad, .unpad = tars_unpad
};

/* The size of pictures, unless it is said, is that of the first sound one. */
static DpcStatus image_size(DpcTars *t, int column)
{
    DpcTarColumn *c = &t->column[column];
    DpcStatus s = t->imager ? DPC_OK
                : dpc_imager_open(t->image_max, &t->imager);
    c->h = t->option.h, c->w = t->option.w;
    for (int64_t i = 0; !s && !c->h && i < t->count; i++) {
        const DpcTarMember *m = dpc_tars_find_member(t, i, column);
        DpcSpan f;
        s = m ? span_of(t, i, m, &f) : DPC_OK;
        if (!s && m && dpc_image_size(t->imager, &f, &c->h, &c->w) != DPC_OK)
            c->h = 0;
    }
    if (!s && !c->h)
        s = dpc_fail(DPC_USER, "%s: error: data: no picture \"%s\" is sound; "
                     "look at the archives", t->file.path[0], c->name);
    if (!s && !(c->rgb = malloc((size_t)(3 * c->h * c->w))))
        s = no_memory();
    return s;
}

static DpcStatus nothing_sound(const DpcTars *t, const char *what)
{
    return dpc_fail(DPC_USER, "%s: error: data: no array \"%s\" is sound; "
                    "look at the archives", t->file.path[0], what);
}

static DpcStatus array_field(DpcTars *t, int column, DpcData *d)
{
    DpcTarField a = {.column = column};
    for (int64_t i = 0; i < t->count; i++)
        if (dpc_tars_find_member(t, i, column) && !array_now(t, i, &a)) {
            a.field = a.lies.field;
            return field_add(t, d, a, t->column[column].name, "");
        }
    return nothing_sound(t, t->column[column].name);
}

/* The tensors of the first sound file. */
static DpcStatus tensor_fields(DpcTars *t, int column, DpcData *d)
{
    DpcTarColumn *c = &t->column[column];
    const DpcTarMember *m;
    for (int64_t i = 0; !c->safe && i < t->count; i++)
        if ((m = dpc_tars_find_member(t, i, column)))
            tensors_seek(t, i, c, m);
    if (!c->safe)
        return nothing_sound(t, "safetensors");
    DpcStatus s = DPC_OK;
    for (uint32_t k = 0; !s && k < c->safe->n; k++) {
        DpcTarField a = {.column = column};
        if (!tensor_column(c->safe, &c->safe->tensor[k], &a.lies))
            s = dpc_fail(DPC_USER, "%s: error: data: tensor \"%s\" is of type "
                         "%s, which is not read", t->file.path[0],
                         c->safe->tensor[k].name, dpc_safe_kind_name(
                         (DpcSafeKind)c->safe->tensor[k].kind));
        a.field = a.lies.field;
        s = s ? s : field_add(t, d, a, c->safe->tensor[k].name, "");
    }
    return s;
}

static DpcStatus text_field(DpcTars *t, int column, DpcData *d)
{
    DpcTarColumn *c = &t->column[column];
    if (!t->option.text)
        t->option.text = t->text_max ? t->text_max : 1;
    if (!(c->text = malloc((size_t)t->option.text + 1)))
        return no_memory();
    return field_add(t, d, (DpcTarField){.column = column, .field = {
        .dtype = DPC_U8, .ndim = 1, .dim = {t->option.text}}}, c->name, "");
}

static DpcStatus column_fields(DpcTars *t, int i, DpcData *d)
{
    DpcTarField a = {.column = i};
    DpcStatus s;
    switch (t->column[i].kind) {
    case DPC_M_IMAGE:
        s = image_size(t, i);
        a.field = (DpcField){.dtype = DPC_U8, .ndim = 3, .dim = {
            t->column[i].h, t->column[i].w, 3}};
        return s ? s : field_add(t, d, a, t->column[i].name, "");
    case DPC_M_LABEL:
        a.field = (DpcField){.dtype = DPC_I32};
        return field_add(t, d, a, t->column[i].name, "");
    case DPC_M_ARRAY:
        return array_field(t, i, d);
    case DPC_M_TENSORS:
        return tensor_fields(t, i, d);
    case DPC_M_ROWS:
        a.field = *dpc_shards_field(t->column[i].shards);
        return field_add(t, d, a, t->column[i].name, "");
    default:
        return text_field(t, i, d);
    }
}

/* A column for each rows=NAME:DIR. */
static DpcStatus rows_open(DpcTars *t)
{
    DpcStatus s = DPC_OK;
    for (int i = 0; !s && i < t->option.nrows; i++) {
        const struct DpcDataRows *r = &t->option.rows[i];
        DpcTarColumn *c = &t->column[t->ncolumn];
        for (int k = 0; k < t->ncolumn; k++)
            if (!strcmp(t->column[k].name, r->name))
                return dpc_fail(DPC_USER, "%s: error: data: rows=%s:%s: the "
                                "archives have a field of that name; "
                                "name the field otherwise",
                                t->file.path[0], r->name, r->dir);
        if (t->ncolumn == DPC_NFIELD)
            return dpc_fail(DPC_USER, "%s: error: data: more than %d fields",
                            t->file.path[0], DPC_NFIELD);
        s = dpc_shards_open(r->name, r->dir, &c->shards);
        c->kind = DPC_M_ROWS;
        memcpy(c->name, r->name, sizeof c->name);
        t->ncolumn++;
    }
    return s;
}

DpcStatus dpc_tars_fields(DpcTars *t, DpcData *d)
{
    DpcStatus s = rows_open(t);
    for (int i = 0; !s && i < t->ncolumn; i++)
        s = column_fields(t, i, d);
    for (int i = 0; !s && i < t->option.npad; i++) {
        int k = dpc_data_find(d, t->option.pad[i].name);
        bool rows = k >= 0 && is_array(t, &t->field[k]) &&
                    t->field[k].field.ndim;
        int64_t first = rows ? t->field[k].field.dim[0] : 0;
        s = !rows ? dpc_fail(DPC_USER, "%s: error: data: pad=%s:%lld: no such "
                             "field of rows; see dpc data head",
                             t->file.path[0],
                             t->option.pad[i].name,
                             (long long)t->option.pad[i].rows)
                  : tars_pad(t, d, k, t->option.pad[i].rows);
        if (!s && t->option.pad[i].index && t->field[k].padded)
            t->field[k].first = first;
    }
    return s;
}
