/* caption.c -- words to token ids, by the vocabulary in the unit's meta.
 *
 * Words are runs of letters, digits, '-' and ''', in lower case.  An unknown
 * word is an error: a model that never saw it would draw anything. */
#include "runtime/caption.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

typedef struct Captions {
    const DpcUnit *unit;
    json_t *meta, *vocab;
    const char *input;
    int64_t length;
} Captions;

static DpcStatus captions_open(const DpcUnit *u, Captions *c)
{
    *c = (Captions){.unit = u};
    c->meta = u->meta ? json_loads(u->meta, 0, NULL) : NULL;
    json_t *o = json_object_get(c->meta, "caption");
    c->vocab = json_object_get(o, "vocab");
    const char *name = json_string_value(json_object_get(o, "input"));
    c->length = json_integer_value(json_object_get(o, "length"));
    int32_t leaf = name ? dpc_rt_find(u, name) : -1;
    if (leaf < 0 || c->length <= 0 || !json_is_object(c->vocab))
        return dpc_fail(DPC_USER, "%s: error: --caption: this model has no "
                        "captions", u->model);
    c->input = u->leaf[leaf].name;        /* outlives the meta */
    return DPC_OK;
}

static DpcStatus unknown(const Captions *c, const char *word)
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

static DpcStatus tokens(const Captions *c, const char *text, int32_t *to)
{
    char word[WORD];
    const char *rest = text;
    for (int64_t n = 0; word_next(&rest, word); n++) {
        json_t *id = json_object_get(c->vocab, word);
        if (!json_is_integer(id))
            return unknown(c, word);
        if (n == c->length)
            return dpc_fail(DPC_USER, "%s: error: --caption '%s': more than "
                "%lld words", c->unit->model, text, (long long)c->length);
        to[n] = (int32_t)json_integer_value(id);
    }
    return DPC_OK;
}

DpcStatus dpc_caption_given(const DpcUnit *u, const DpcTextList *texts,
                            DpcGiven *g)
{
    Captions c;
    DpcStatus s = captions_open(u, &c);
    int32_t *row = NULL;
    if (!s && !(row = calloc((size_t)(texts->n * c.length), sizeof *row)))
        s = dpc_fail(DPC_MEMORY, "%s: error: no memory", u->model);
    for (int i = 0; !s && i < texts->n; i++)
        s = tokens(&c, texts->at[i], row + i * c.length);
    if (s) {
        free(row);
    } else {
        *g = (DpcGiven){c.input, {"--caption", DPC_I32, 1, {c.length}},
                        texts->n, false, row};
    }
    json_decref(c.meta);
    return s;
}
