/* caption.c -- words to token ids: by the vocabulary in the unit's meta, or by
 * a published tokenizer.
 *
 * Without a tokenizer, words are runs of letters, digits, '-' and ''', in
 * lower case.  An unknown word is an error: a model that never saw it would
 * draw anything. */
#include "runtime/caption.h"
#include "runtime/token.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64, NAME = 128 };

struct DpcCaption {
    const DpcUnit *unit;
    json_t *meta, *vocab;
    const char *field;                    /* of the data: text */
    const DpcLeaf *leaf[DPC_NCAPTION];    /* ids, length, mask; may be NULL */
    int64_t length;
    DpcToken *token;                      /* NULL: vocab */
};

/* ---- what the model takes ---- */

static const DpcLeaf *input_of(const DpcUnit *u, const char *name,
                               const char *end)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s%s", name, end);
    int32_t i = dpc_rt_find(u, full);
    return i >= 0 && u->leaf[i].kind == DPC_INPUT ? &u->leaf[i] : NULL;
}

static bool takes_ids(const DpcLeaf *l)
{
    return l->ndim == 2 && l->dtype == DPC_I32;
}

/* The input for ids, where the model does not say; NULL: none. */
static const char *usual_input(const DpcUnit *u)
{
    static const char *const name[] = {"tokens", "text"};
    for (int i = 0; i < 2; i++) {
        const DpcLeaf *l = input_of(u, name[i], "");
        if (l && takes_ids(l))
            return name[i];
    }
    return NULL;
}

static DpcStatus leaves_find(DpcCaption *c)
{
    json_t *o = json_object_get(c->meta, "caption");
    const char *name = json_string_value(json_object_get(o, "input"));
    const char *field = json_string_value(json_object_get(o, "field"));
    static const char *const end[DPC_NCAPTION] = {"", "_length", "_mask"};
    c->vocab = json_object_get(o, "vocab");
    name = name ? name : usual_input(c->unit);
    c->field = field ? field : "caption";
    for (int i = 0; name && i < DPC_NCAPTION; i++)
        c->leaf[i] = input_of(c->unit, name, end[i]);
    const DpcLeaf *l = c->leaf[0];
    if (l && !takes_ids(l))
        return dpc_fail(DPC_USER, "%s: error: input '%s' takes token ids, and "
            "must be i32 [batch, length]; it is %s with %d dimensions",
            l->loc, l->name, dpc_dtype_name((DpcDtype)l->dtype), l->ndim);
    c->length = l ? l->dim[1] : 0;
    return DPC_OK;
}

static DpcStatus tokenizer_open(DpcCaption *c, const char *spec)
{
    const DpcLeaf *l = c->leaf[0];
    if (!l)
        return dpc_fail(DPC_USER, "%s: error: --tokenizer: no input of the "
            "model takes token ids; it would be 'tokens' or 'text', or what "
            "meta's caption.input says", c->unit->model);
    DpcStatus s = dpc_token_open(spec, &c->token);
    if (s || !l->limit || dpc_token_count(c->token) <= l->limit)
        return s;
    return dpc_fail(DPC_USER, "%s: error: tokenizer: ids up to %lld, but input "
        "'%s' (%s) indexes a table of %lld rows in %s; take the vocabulary "
        "that the model was made for", dpc_token_path(c->token),
        (long long)dpc_token_count(c->token) - 1, l->name, l->loc,
        (long long)l->limit, l->table);
}

DpcStatus dpc_caption_open(const DpcUnit *u, const char *tokenizer,
                           DpcCaption **out)
{
    DpcCaption *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    c->unit = u;
    c->meta = u->meta ? json_loads(u->meta, 0, NULL) : NULL;
    DpcStatus s = leaves_find(c);
    if (!tokenizer && c->leaf[0])
        tokenizer = json_string_value(json_object_get(json_object_get(
            c->meta, "caption"), "tokenizer"));
    if (!s && tokenizer)
        s = tokenizer_open(c, tokenizer);
    if (!s && c->leaf[0] && (c->token || json_is_object(c->vocab)))
        *out = c;
    else
        dpc_caption_close(c);
    return s;
}

void dpc_caption_close(DpcCaption *c)
{
    if (!c)
        return;
    dpc_token_close(c->token);
    json_decref(c->meta);
    free(c);
}

/* ---- words ---- */

static DpcStatus unknown(const DpcCaption *c, const char *word)
{
    const char *best[3] = {"", "", ""}, *key;
    int distance[3] = {99, 99, 99};
    json_t *value;
    json_object_foreach(c->vocab, key, value) {
        int d = dpc_word_distance(word, key);
        for (int i = 0; i < 3; i++) {
            if (d >= distance[i])
                continue;
            for (int k = 2; k > i; k--) {
                best[k] = best[k - 1];
                distance[k] = distance[k - 1];
            }
            best[i] = key;
            distance[i] = d;
            break;
        }
    }
    return dpc_fail(DPC_USER, "%s: error: --caption: the model does not know "
        "the word '%s'; near are '%s', '%s', '%s'", c->unit->model, word,
        best[0], best[1], best[2]);
}

static bool in_word(char ch)
{
    return isalnum((unsigned char)ch) || ch == '-' || ch == '\'' ||
           (unsigned char)ch >= 128;
}

/* The next word of *text in lower case; false at the end. */
static bool word_next(const char **text, char word[WORD])
{
    int n = 0;
    while (**text && !in_word(**text))
        ++*text;
    for (; in_word(**text); ++*text)
        if (n < WORD - 1)
            word[n++] = (char)tolower((unsigned char)**text);
    word[n] = 0;
    return n > 0;
}

static DpcStatus words(const DpcCaption *c, const char *text, int32_t *to,
                       int64_t *used)
{
    char word[WORD];
    const char *rest = text;
    memset(to, 0, (size_t)c->length * sizeof *to);
    for (*used = 0; word_next(&rest, word); ++*used) {
        json_t *id = json_object_get(c->vocab, word);
        if (!json_is_integer(id))
            return unknown(c, word);
        if (*used == c->length)
            return dpc_fail(DPC_USER, "%s: error: --caption '%s': more than "
                "%lld words", c->unit->model, text, (long long)c->length);
        to[*used] = (int32_t)json_integer_value(id);
    }
    return DPC_OK;
}

/* A DpcEncode. */
static DpcStatus encode(void *arg, const char *text, int64_t n,
                        int64_t length, int32_t *row, int64_t *used)
{
    DpcCaption *c = arg;
    return c->token ? dpc_token_row(c->token, text, n, length, row, used)
                    : words(c, text, row, used);
}

/* ---- where they go ---- */

DpcStatus dpc_caption_data(DpcCaption *c, DpcData *d)
{
    int from = dpc_data_find(d, c->field);
    if (from < 0 || dpc_data_find(d, c->leaf[0]->name) >= 0)
        return DPC_OK;
    return dpc_data_encode(d, from, c->leaf[0]->name, c->length, encode, c);
}

/* A row's part for one of the three inputs. */
static void part_put(const DpcCaption *c, int part, const int32_t *ids,
                     int64_t used, void *to)
{
    if (part == 0)
        memcpy(to, ids, (size_t)c->length * sizeof *ids);
    else if (part == 1)
        *(int32_t *)to = (int32_t)used;
    else
        for (int64_t i = 0; i < c->length; i++)
            ((uint8_t *)to)[i] = i < used;
}

static DpcStatus given_make(DpcCaption *c, int part, const DpcTextList *texts,
                            DpcGiven *g)
{
    const DpcField type[DPC_NCAPTION] = {
        {"--caption", DPC_I32, 1, {c->length}}, {"--caption", DPC_I32, 0, {0}},
        {"--caption", DPC_U8, 1, {c->length}}};
    int64_t bytes = dpc_field_bytes(&type[part]), used;
    char *row = calloc((size_t)texts->n, (size_t)bytes);
    int32_t *ids = calloc((size_t)c->length, sizeof *ids);
    DpcStatus s = row && ids ? DPC_OK
                : dpc_fail(DPC_MEMORY, "%s: error: no memory", c->unit->model);
    for (int i = 0; !s && i < texts->n; i++) {
        s = encode(c, texts->at[i], (int64_t)strlen(texts->at[i]), c->length,
                   ids, &used);
        if (!s)
            part_put(c, part, ids, used, row + i * bytes);
    }
    free(ids);
    *g = (DpcGiven){c->leaf[part]->name, type[part], texts->n, false, row};
    return s;
}

DpcStatus dpc_caption_given(DpcCaption *c, const DpcUnit *u,
                            const DpcTextList *texts, DpcGiven *g, int *n)
{
    DpcStatus s = DPC_OK;
    if (!c)
        return dpc_fail(DPC_USER, "%s: error: --caption: this model has no "
                        "captions, or takes them with --tokenizer PATH",
                        u->model);
    for (int part = 0; !s && part < DPC_NCAPTION; part++)
        if (c->leaf[part])
            s = given_make(c, part, texts, &g[(*n)++]);
    return s;
}
