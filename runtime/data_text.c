/* data_text.c -- texts of a data set as token ids.
 *
 * A reader over a reader: what was there stays, and a field of text gives
 * three more, NAME i32[length], NAME_length i32, NAME_mask u8[length].  A text
 * that cannot be encoded makes its sample corrupt. */
#include "runtime/data_reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS, LENGTH, MASK, NMADE };

typedef struct Texts {
    const DpcReader *reader;              /* of what was there */
    void *self;
    DpcEncode *encode;
    void *arg;
    char *name[NMADE];                    /* of the fields; owned */
    int from, first;                      /* fields: text; the first made */
    int64_t length, text_size, used;
    int32_t *row;                         /* [length] of `current` */
    char *text;                           /* [text_size + 1] */
    int64_t current;                      /* -1: none */
} Texts;

static DpcStatus texts_seek(void *self, int64_t sample)
{
    Texts *t = self;
    if (t->current == sample)
        return DPC_OK;
    t->current = -1;
    DpcStatus s = t->reader->seek(t->self, sample);
    if (!s)
        s = t->reader->read(t->self, sample, t->from, t->text);
    if (!s)
        s = t->encode(t->arg, t->text, (int64_t)strlen(t->text), t->length,
                      t->row, &t->used);
    if (!s)
        t->current = sample;
    return s;
}

static DpcStatus texts_read(void *self, int64_t sample, int field, void *to)
{
    Texts *t = self;
    if (field < t->first || field >= t->first + NMADE)
        return t->reader->read(t->self, sample, field, to);
    if (field == t->first + IDS)
        memcpy(to, t->row, (size_t)t->length * sizeof *t->row);
    if (field == t->first + LENGTH)
        *(int32_t *)to = (int32_t)t->used;
    for (int64_t i = 0; field == t->first + MASK && i < t->length; i++)
        ((uint8_t *)to)[i] = i < t->used;
    return DPC_OK;
}

static void texts_close(void *self)
{
    Texts *t = self;
    t->reader->close(t->self);
    for (int i = 0; i < NMADE; i++)
        free(t->name[i]);
    free(t->row);
    free(t->text);
    free(t);
}

static void texts_name(void *self, int64_t sample, char *to, size_t size)
{
    const Texts *t = self;
    if (t->reader->name)
        t->reader->name(t->self, sample, to, size);
    else
        snprintf(to, size, "sample %lld", (long long)sample);
}

static const DpcReader texts = {
    .seek = texts_seek, .read = texts_read, .close = texts_close,
    .name = texts_name
};

static bool texts_alloc(Texts *t, const char *name)
{
    static const char *const end[] = {"", "_length", "_mask"};
    for (int i = 0; i < NMADE; i++) {
        size_t n = strlen(name) + 16;
        if (!(t->name[i] = malloc(n)))
            return false;
        snprintf(t->name[i], n, "%s%s", name, end[i]);
    }
    t->row = calloc((size_t)t->length, sizeof *t->row);
    t->text = calloc((size_t)t->text_size + 1, 1);
    return t->row && t->text;
}

DpcStatus dpc_data_encode(DpcData *d, int from, const char *name,
                          int64_t length, DpcEncode *encode, void *arg)
{
    const DpcField *f = &d->field[from];
    if (f->dtype != DPC_U8 || f->ndim != 1)
        return dpc_fail(DPC_USER, "data: error: field \"%s\" is no text",
                        f->name);
    if (d->nfield + NMADE > DPC_NFIELD)
        return dpc_fail(DPC_USER, "data: error: more than %d fields",
                        DPC_NFIELD);
    Texts *t = calloc(1, sizeof *t);
    if (!t)
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    *t = (Texts){.reader = d->reader, .self = d->self, .encode = encode,
                 .arg = arg, .from = from, .first = d->nfield,
                 .length = length, .text_size = f->dim[0], .current = -1};
    d->reader = &texts, d->self = t;
    if (!texts_alloc(t, name))
        return dpc_fail(DPC_MEMORY, "data: error: out of memory");
    d->field[d->nfield++] = (DpcField){t->name[IDS], DPC_I32, 1, {length}};
    d->field[d->nfield++] = (DpcField){t->name[LENGTH], DPC_I32, 0, {0}};
    d->field[d->nfield++] = (DpcField){t->name[MASK], DPC_U8, 1, {length}};
    d->bytes += (int64_t)sizeof *t + t->text_size + 4 * length;
    return DPC_OK;
}
