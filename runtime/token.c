/* token.c -- text to token ids: opens what a spec names, encodes.
 *
 * The way of a text, as the published tokenizers go it: added tokens that are
 * sought in the raw text are cut out; what is between them gets its normal
 * form; added tokens of the normal form are cut out; patterns cut the rest
 * into words; each word is encoded by its merges (token_bpe.c).  Ids agree
 * with the packages' tokenizers, `tests/parity/reference/tokens.py`. */
#include "runtime/token_own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "tokenizer: error: out of memory");
}

/* ---- encoding ---- */

/* Normal form C at most triples the bytes, lower case adds half to that; a
 * word has no more ids than bytes. */
static DpcStatus reserve(DpcToken *t, int64_t n)
{
    enum { GROWTH = 5 };
    int64_t want = GROWTH * n + 64;
    if (n > INT32_MAX / GROWTH - 64)
        return dpc_fail(DPC_USER, "%s: error: text: %lld bytes, at most %d "
                        "are encoded", t->path, (long long)n,
                        INT32_MAX / GROWTH - 64);
    if (want <= t->room)
        return DPC_OK;
    for (int i = 0; i < 2; i++) {
        char *p = realloc(t->norm_text[i], (size_t)want);
        if (!p)
            return no_memory();
        t->norm_text[i] = p;
    }
    int32_t *p = realloc(t->point, (size_t)want * sizeof *p);
    t->point = p ? p : t->point;
    int32_t *q = realloc(t->id, (size_t)want * sizeof *q);
    t->id = q ? q : t->id;
    if (!p || !q || !dpc_bpe_reserve(&t->bpe, want))
        return no_memory();
    t->room = want;
    return DPC_OK;
}

/* Text between added tokens: the raw ones' first, then the normal form's. */
static DpcStatus encode(DpcToken *t, const char *text, int64_t n, bool late)
{
    int64_t at;
    DpcStatus s = late ? dpc_token_normal(t, &text, &n) : DPC_OK;
    while (!s && n) {
        const DpcTokenAdded *a = dpc_token_added_find(t, late, text, n, &at);
        int64_t before = a ? at : n;
        if (before)
            s = late ? dpc_token_words(t, 0, text, before)
                     : encode(t, text, before, true);
        if (a)
            t->id[t->nid++] = a->id, before += (int64_t)a->n;
        text += before;
        n -= before;
    }
    return s;
}

static DpcStatus utf8_check(const DpcToken *t, const char *text, int64_t n)
{
    utf8proc_int32_t c;
    for (int64_t i = 0, k; i < n; i += k) {
        k = utf8proc_iterate((const utf8proc_uint8_t *)text + i, n - i, &c);
        if (k <= 0)
            return dpc_fail(DPC_USER, "%s: error: text: byte %lld, 0x%02x, is "
                            "not UTF-8; write UTF-8 text", t->path,
                            (long long)i, (uint8_t)text[i]);
    }
    return DPC_OK;
}

DpcStatus dpc_token_ids(DpcToken *t, const char *text, int64_t n,
                        const int32_t **id, int64_t *count)
{
    DpcStatus s = reserve(t, n);
    t->nid = 0;
    if (!s)
        s = utf8_check(t, text, n);
    if (t->first >= 0)
        t->id[t->nid++] = t->first;
    if (!s)
        s = encode(t, text, n, false);
    if (t->last >= 0)
        t->id[t->nid++] = t->last;
    *id = t->id;
    *count = t->nid;
    return s;
}

DpcStatus dpc_token_row(DpcToken *t, const char *text, int64_t n,
                        int64_t length, int32_t *row, int64_t *used)
{
    const int32_t *id;
    int64_t count;
    DpcStatus s = dpc_token_ids(t, text, n, &id, &count);
    if (s)
        return s;
    *used = count < length ? count : length;
    memcpy(row, id, (size_t)*used * sizeof *row);
    if (count > length && t->last >= 0)
        row[length - 1] = t->last;
    for (int64_t i = *used; i < length; i++)
        row[i] = t->pad < 0 ? 0 : t->pad;
    return DPC_OK;
}

/* ---- opening ---- */

static bool number(const char **p, int64_t low, int64_t high, int64_t *to)
{
    char *end;
    errno = 0;
    long long v = strtoll(*p, &end, 10);
    if (end == *p || errno || v < low || v > high)
        return false;
    *p = end;
    *to = v;
    return true;
}

/* "length=N&pad=ID&ends=no". */
static DpcStatus options_read(DpcToken *t, const char *p)
{
    enum { LENGTH = 1 << 20 };
    const char *all = p;
    int64_t pad = t->pad;
    bool ok = true;
    while (ok && *p) {
        if (!strncmp(p, "length=", 7))
            p += 7, ok = number(&p, 1, LENGTH, &t->length);
        else if (!strncmp(p, "pad=", 4))
            p += 4, ok = number(&p, 0, t->count - 1, &pad);
        else if (!strncmp(p, "ends=no", 7))
            p += 7, t->first = t->last = -1;
        else
            ok = false;
        ok = ok && (!*p || *p == '&');
        p += *p == '&';
    }
    t->pad = (int32_t)pad;
    return ok ? DPC_OK
         : dpc_fail(DPC_USER, "%s: error: tokenizer: option \"%s\" is not "
                    "known; wanted length=N (1 to %d), pad=ID (below %lld), "
                    "ends=no, joined by &", t->path, all, LENGTH, (long long)t->count);
}

/* The 256 bytes, and how many ids there are. */
static DpcStatus ready(DpcToken *t)
{
    int lost = dpc_bpe_ready(&t->bpe);
    if (lost >= 0)
        return dpc_fail(DPC_USER, "%s: error: tokenizer: no token for byte "
                        "0x%02x%s%s; a byte-level vocabulary has all 256",
                        t->path, lost, *t->bpe.suffix ? ", alone or with " : "",
                        t->bpe.suffix);
    for (uint32_t i = 0; i < t->bpe.ntoken; i++)
        if (t->bpe.token[i].id >= t->count)
            t->count = t->bpe.token[i].id + 1;
    for (int i = 0; i < t->nadded; i++)
        if (t->added[i].id >= t->count)
            t->count = t->added[i].id + 1;
    return DPC_OK;
}

DpcStatus dpc_token_open(const char *spec, DpcToken **out)
{
    *out = NULL;
    DpcToken *t = calloc(1, sizeof *t);
    if (!t)
        return no_memory();
    const char *option = strrchr(spec, '?');
    size_t n = option ? (size_t)(option - spec) : strlen(spec);
    t->first = t->last = t->pad = -1;
    DpcStatus s = n < sizeof t->path ? DPC_OK
                : dpc_fail(DPC_USER, "%.200s...: error: tokenizer: a path of "
                           "%zu bytes, at most %zu", spec, n,
                           sizeof t->path - 1);
    if (!s) {
        memcpy(t->path, spec, n);
        s = dpc_token_read(t, t->path);
    }
    s = s ? s : ready(t);
    s = s || !option ? s : options_read(t, option + 1);
    if (s)
        dpc_token_close(t);
    else
        *out = t;
    return s;
}

void dpc_token_close(DpcToken *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->nsplit; i++) {
        pcre2_code_free(t->split[i].code);
        pcre2_match_data_free(t->split[i].match);
    }
    for (int i = 0; i < t->nadded; i++)
        free(t->added[i].text);
    free(t->added);
    free(t->norm_text[0]);
    free(t->norm_text[1]);
    free(t->point);
    free(t->id);
    dpc_bpe_free(&t->bpe);
    free(t);
}

const char *dpc_token_path(const DpcToken *t) { return t->path; }
int64_t dpc_token_count(const DpcToken *t) { return t->count; }

int64_t dpc_token_length(const DpcToken *t)
{
    return t->length ? t->length : t->published;
}

int64_t dpc_token_bytes(const DpcToken *t)
{
    return dpc_bpe_bytes(&t->bpe) + (int64_t)sizeof *t + 10 * t->room;
}
