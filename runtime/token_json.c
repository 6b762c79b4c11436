/* token_json.c -- tokenizer.json of the package tokenizers.
 *
 * It says all of a tokenizer: the model (vocabulary, merges), the normal form,
 * the cuts, the added tokens, what stands before and behind a text.  Each part
 * is a tree of {"type": ...}; a type that is not done here is refused. */
#include "runtime/token_own.h"

#include <stdio.h>
#include <string.h>

#define bad dpc_token_bad

static const char *string_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static DpcStatus norm_add(DpcToken *t, DpcTokenNorm n)
{
    if (t->nnorm == DPC_NNORM)
        return bad(t->path, "more than %d steps of \"normalizer\"", DPC_NNORM);
    t->norm[t->nnorm++] = n;
    return DPC_OK;
}

static DpcStatus normalizer_read(DpcToken *t, const char *path,
                                 const json_t *o)
{
    const char *type = string_at(o, "type");
    const json_t *part, *pattern = json_object_get(o, "pattern");
    const char *regex = string_at(pattern, "Regex");
    const char *to = string_at(o, "content");
    DpcStatus s = DPC_OK;
    size_t i;
    if (!o || json_is_null(o))
        return DPC_OK;
    if (type && !strcmp(type, "NFC"))
        return norm_add(t, DPC_NORM_NFC);
    if (type && !strcmp(type, "Lowercase"))
        return norm_add(t, DPC_NORM_LOWER);
    if (type && !strcmp(type, "Replace") && regex && to &&
        !strcmp(regex, "\\s+") && !strcmp(to, " "))
        return norm_add(t, DPC_NORM_SPACE);
    if (!type || strcmp(type, "Sequence"))
        return bad(path, "normalizer \"%s\" is not done; NFC, Lowercase and "
                   "Replace of \\s+ by a space are", type ? type : "?");
    json_array_foreach(json_object_get(o, "normalizers"), i, part)
        if (!s)
            s = normalizer_read(t, path, part);
    return s;
}

static DpcStatus split_read(DpcToken *t, const char *path, const json_t *o)
{
    const json_t *p = json_object_get(o, "pattern");
    const char *regex = string_at(p, "Regex"), *text = string_at(p, "String");
    const char *how = string_at(o, "behavior");
    bool invert = json_is_true(json_object_get(o, "invert"));
    bool removed = how && !strcmp(how, "Removed");
    char quoted[256];
    if (!how || (!removed && strcmp(how, "Isolated")))
        return bad(path, "pre_tokenizer Split with behavior \"%s\" is not "
                   "done; Isolated and Removed are", how ? how : "?");
    if (!regex && (!text || strlen(text) > 200 || strstr(text, "\\E")))
        return bad(path, "pre_tokenizer Split has no pattern");
    if (!regex)
        snprintf(quoted, sizeof quoted, "\\Q%s\\E", text);
    return dpc_token_split_add(t, regex ? regex : quoted, !removed || invert,
                               !removed || !invert);
}

static DpcStatus cutter_read(DpcToken *t, const char *path, const json_t *o,
                             bool *bytes)
{
    const char *type = string_at(o, "type");
    const json_t *part, *use = json_object_get(o, "use_regex");
    DpcStatus s = DPC_OK;
    size_t i;
    if (type && !strcmp(type, "Split"))
        return split_read(t, path, o);
    if (type && !strcmp(type, "ByteLevel")) {
        *bytes = true;
        if (json_is_true(json_object_get(o, "add_prefix_space")))
            return bad(path, "pre_tokenizer ByteLevel with add_prefix_space "
                       "is not done");
        return use && !json_is_true(use) ? DPC_OK
             : dpc_token_split_add(t, dpc_token_gpt2, true, true);
    }
    if (!type || strcmp(type, "Sequence"))
        return bad(path, "pre_tokenizer \"%s\" is not done; Sequence, Split "
                   "and ByteLevel are", type ? type : "?");
    json_array_foreach(json_object_get(o, "pretokenizers"), i, part)
        if (!s)
            s = cutter_read(t, path, part, bytes);
    return s;
}

/* TemplateProcessing's "single": at most one token on either side. */
static DpcStatus template_read(DpcToken *t, const char *path, const json_t *o)
{
    size_t i;
    const json_t *v;
    bool seen = false;
    json_array_foreach(json_object_get(o, "single"), i, v) {
        const char *name = string_at(json_object_get(v, "SpecialToken"), "id");
        int32_t *to = seen ? &t->last : &t->first;
        seen |= json_object_get(v, "Sequence") != NULL;
        if (!name)
            continue;
        if (*to >= 0 || dpc_token_id(t, name) < 0)
            return bad(path, "post_processor: \"%s\" is no token, or a second "
                       "one on its side", name);
        *to = dpc_token_id(t, name);
    }
    return DPC_OK;
}

static DpcStatus processor_read(DpcToken *t, const char *path,
                                const json_t *o)
{
    const char *type = string_at(o, "type");
    const json_t *part, *cls = json_object_get(o, "cls");
    const json_t *sep = json_object_get(o, "sep");
    DpcStatus s = DPC_OK;
    size_t i;
    if (!o || json_is_null(o) || (type && !strcmp(type, "ByteLevel")))
        return DPC_OK;
    if (type && (!strcmp(type, "RobertaProcessing") ||
                 !strcmp(type, "BertProcessing"))) {
        t->first = (int32_t)json_integer_value(json_array_get(cls, 1));
        t->last = (int32_t)json_integer_value(json_array_get(sep, 1));
        return DPC_OK;
    }
    if (type && !strcmp(type, "TemplateProcessing"))
        return template_read(t, path, o);
    if (!type || strcmp(type, "Sequence"))
        return bad(path, "post_processor \"%s\" is not done", type ? type
                   : "?");
    json_array_foreach(json_object_get(o, "processors"), i, part)
        if (!s)
            s = processor_read(t, path, part);
    return s;
}

static DpcStatus model_read(DpcToken *t, const char *path, const json_t *o)
{
    const char *type = string_at(o, "type");
    const char *suffix = string_at(o, "end_of_word_suffix");
    const char *prefix = string_at(o, "continuing_subword_prefix");
    if (type && strcmp(type, "BPE"))
        return bad(path, "model \"%s\" is not done; BPE is", type);
    if ((prefix && *prefix) ||
        json_is_true(json_object_get(o, "byte_fallback")))
        return bad(path, "continuing_subword_prefix and byte_fallback are not "
                   "done");
    double dropout = json_number_value(json_object_get(o, "dropout"));
    if (dropout != 0)
        return bad(path, "model: dropout %g is not done: ids would be drawn; "
                   "set it to null", dropout);
    if (suffix && strlen(suffix) >= sizeof t->bpe.suffix)
        return bad(path, "end_of_word_suffix of more than %zu bytes",
                   sizeof t->bpe.suffix - 1);
    snprintf(t->bpe.suffix, sizeof t->bpe.suffix, "%s", suffix ? suffix : "");
    t->bpe.whole = json_is_true(json_object_get(o, "ignore_merges"));
    DpcStatus s = dpc_token_vocab(t, path, json_object_get(o, "vocab"));
    return s ? s : dpc_token_merges(t, path, json_object_get(o, "merges"));
}

DpcStatus dpc_token_whole(DpcToken *t, const char *path)
{
    json_t *o;
    bool bytes = false;
    DpcStatus s = dpc_token_json(path, &o);
    s = s ? s : model_read(t, path, json_object_get(o, "model"));
    s = s ? s : dpc_token_added(t, path, json_object_get(o, "added_tokens"));
    s = s ? s : normalizer_read(t, path, json_object_get(o, "normalizer"));
    s = s ? s : cutter_read(t, path, json_object_get(o, "pre_tokenizer"),
                            &bytes);
    if (!s && !bytes)
        s = bad(path, "its words are not bytes (no pre_tokenizer ByteLevel)");
    s = s ? s : processor_read(t, path, json_object_get(o, "post_processor"));
    json_decref(o);
    return s;
}
