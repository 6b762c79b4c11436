/* cmd_data.c -- dpc data: what a data set holds, as a binary would read it.
 *
 *     head    fields, and the first samples
 *     stats   of each field over all samples: mean, deviation, extremes
 *     verify  every sample read once; corrupt ones counted and named
 *     tokens  a text as the ids of a tokenizer (data_token.c)
 *     pack    a folder of files becomes archives with an index (data_pack.c)
 *     index   where the records of archives lie, and their hashes */
#include "compiler/data.h"
#include "runtime/token.h"
#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 4, SHOWN = 8 };          /* of head: samples; numbers each */

static DpcStatus encode(void *token, const char *text, int64_t n,
                        int64_t length, int32_t *row, int64_t *used)
{
    return dpc_token_row(token, text, n, length, row, used);
}

/* With --tokenizer, captions are there as ids too; it stays open. */
static DpcStatus tokens_add(const Options *o, DpcData *d)
{
    DpcToken *t;
    int from = dpc_data_find(d, "caption");
    DpcStatus s = dpc_token_open(o->tokenizer, &t);
    if (s)
        return s;
    if (from < 0 || !dpc_token_length(t))
        usage("data: --tokenizer: %s", from < 0 ? "the data have no field "
              "\"caption\"" : "give PATH?length=N");
    return dpc_data_encode(d, from, "tokens", dpc_token_length(t), encode, t);
}

static DpcData *data_open(const Options *o, int64_t budget)
{
    DpcData *d;
    DpcStatus s = dpc_data_open(o->file[1], budget, &d);
    if (!s && o->tokenizer)
        s = tokens_add(o, d);
    if (s)
        runtime_fail(s);
    return d;
}

static const void *data_read(DpcData *d, int64_t sample, int field, Arena *a)
{
    int64_t bytes = dpc_field_bytes(dpc_data_field(d, field));
    void *to = alloc(a, (size_t)bytes + 1);
    DpcStatus s = dpc_data_read(d, sample, field, to, bytes);
    if (s)
        runtime_fail(s);
    return to;
}

static int64_t field_count(const DpcField *f)
{
    return dpc_field_bytes(f) / dpc_dtype_size(f->dtype);
}

static double number_at(const DpcField *f, const void *p, int64_t i)
{
    if (f->dtype == DPC_BF16) {           /* the upper half of a float */
        uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    return f->dtype == DPC_U8 ? ((const uint8_t *)p)[i]
         : f->dtype == DPC_I32 ? ((const int32_t *)p)[i]
         : (double)((const float *)p)[i];
}

/* Bytes in a row, unless they are a mask. */
static bool is_text(const DpcField *f)
{
    size_t n = strlen(f->name);
    bool mask = n > 5 && !strcmp(f->name + n - 5, "_mask");
    return f->dtype == DPC_U8 && f->ndim == 1 && !mask;
}

static const char *field_type(const Options *o, const DpcField *f)
{
    return dims_text(o->arena, dpc_dtype_name(f->dtype), f->ndim, f->dim);
}

/* "name": ..., "type": ... of an object that stays open. */
static void field_json(const Options *o, const DpcField *f, int k)
{
    printf(k ? ",{\"name\":" : "{\"name\":");
    json_quote(stdout, f->name);
    printf(",\"type\":");
    json_quote(stdout, field_type(o, f));
}

/* ---- head ---- */

static void value_print(const DpcField *f, const void *p)
{
    int64_t n = field_count(f);
    if (is_text(f)) {
        printf(" \"%.*s\"", (int)n, (const char *)p);
        return;
    }
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        printf(" %.6g", number_at(f, p, i));
    printf(n > SHOWN ? " ..." : "");
}

static void head_json(const Options *o, const DpcData *d)
{
    printf("{\"samples\":%lld,\"index\":", (long long)dpc_data_count(d));
    json_quote(stdout, dpc_data_hash(d));
    printf(",\"fields\":[");
    for (int k = 0; k < dpc_data_nfield(d); k++) {
        field_json(o, dpc_data_field(d, k), k);
        printf("}");
    }
    printf("]}\n");
}

static int data_head(const Options *o)
{
    DpcData *d = data_open(o, DPC_DATA_ALL);
    if (o->json) {
        head_json(o, d);
        dpc_data_close(d);
        return 0;
    }
    printf("%lld samples\n", (long long)dpc_data_count(d));
    for (int k = 0; k < dpc_data_nfield(d); k++) {
        const DpcField *f = dpc_data_field(d, k);
        printf("%s : %s\n", f->name, field_type(o, f));
    }
    for (int64_t i = 0; i < SAMPLES && i < dpc_data_count(d); i++)
        for (int k = 0; k < dpc_data_nfield(d); k++) {
            const DpcField *f = dpc_data_field(d, k);
            printf("%lld %s", (long long)i, f->name);
            value_print(f, data_read(d, i, k, o->arena));
            printf("\n");
        }
    dpc_data_close(d);
    return 0;
}

/* ---- stats ---- */

typedef struct Stats { double n, mean, square, low, high; } Stats;

/* Welford's running mean and squares about it (Technometrics 4, 1962). */
static void stats_add(Stats *s, double x)
{
    double off = x - s->mean;
    s->low = s->n && s->low < x ? s->low : x;
    s->high = s->n && s->high > x ? s->high : x;
    s->n++;
    s->mean += off / s->n;
    s->square += off * (x - s->mean);
}

static void stats_print(const Options *o, const DpcField *f, int k,
                        const Stats *s)
{
    const char *form = o->json
        ? ",\"mean\":%.6g,\"std\":%.6g,\"min\":%.6g,\"max\":%.6g"
        : " mean %.6g std %.6g min %.6g max %.6g";
    if (o->json)
        field_json(o, f, k);
    else
        printf("%s : %s", f->name, field_type(o, f));
    if (s->n)
        printf(form, s->mean, sqrt(s->square / s->n), s->low, s->high);
    printf(o->json ? "}" : "\n");
}

static int data_stats(const Options *o)
{
    DpcData *d = data_open(o, DPC_DATA_ALL);
    printf(o->json ? "[" : "");
    for (int k = 0; k < dpc_data_nfield(d); k++) {
        const DpcField *f = dpc_data_field(d, k);
        Stats s = { 0 };
        for (int64_t i = 0; !is_text(f) && i < dpc_data_count(d); i++) {
            Arena *a = arena_new();
            const void *p = data_read(d, i, k, a);
            for (int64_t j = 0; j < field_count(f); j++)
                stats_add(&s, number_at(f, p, j));
            arena_free(a);
        }
        stats_print(o, f, k, &s);
    }
    printf(o->json ? "]\n" : "");
    dpc_data_close(d);
    return 0;
}

/* ---- verify ---- */

/* The record against its index; 1: it is another. */
static int index_verify(DpcData *d, int64_t sample, bool *known)
{
    DpcStatus s = dpc_data_index_check(d, sample, known);
    if (s && s != DPC_USER)
        runtime_fail(s);
    if (s)
        fprintf(stderr, "%s\n", dpc_last_error());
    return s != DPC_OK;
}

static int data_verify(const Options *o)
{
    DpcData *d = data_open(o, DPC_DATA_ALL);
    int64_t n = dpc_data_count(d), other = 0;
    bool known = false;
    for (int64_t i = 0; i < n; i++) {
        other += index_verify(d, i, &known);
        Arena *a = arena_new();
        for (int k = 0; k < dpc_data_nfield(d); k++)
            data_read(d, i, k, a);
        arena_free(a);
    }
    int64_t bad = dpc_data_bad(d);
    const char *form = o->json ? "{\"samples\":%lld,\"corrupt\":%lld"
                               : "%lld samples, %lld corrupt";
    printf(form, (long long)n, (long long)bad);
    if (known)
        printf(o->json ? ",\"not_as_indexed\":%lld"
                       : ", %lld not as indexed", (long long)other);
    printf(o->json ? "}\n" : "\n");
    dpc_data_close(d);
    return bad || other ? 1 : 0;
}

int cmd_data(const Options *o)
{
    static const struct {
        const char *name;
        int (*fn)(const Options *);
    } what[] = { { "head", data_head }, { "stats", data_stats },
                 { "verify", data_verify },
                 { "tokens", data_tokens }, { "pack", data_pack },
                 { "index", data_index } };
    for (int i = 0; i < COUNT(what); i++)
        if (strcmp(o->file[0], what[i].name) == 0)
            return what[i].fn(o);
    usage("data: \"%s\" is not one of head, stats, verify, index, "
          "pack, tokens", o->file[0]);
}
