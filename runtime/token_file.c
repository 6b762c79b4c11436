/* token_file.c -- the published forms of byte-pair vocabularies.
 *
 *     tokenizer.json              of the package tokenizers: vocabulary,
 *                                 merges, normal form, cuts, added tokens
 *     vocab.json + merges.txt     of older packages; how a text is cut is told
 *                                 by the class in tokenizer_config.json
 *     bpe_simple_vocab_16e6.txt   of OpenAI's CLIP: merges alone, gzipped or
 *                                 not; the vocabulary follows from them
 * All write bytes as printable characters (GPT-2's alphabet); here they are
 * bytes again.  What a file asks for and is not done here is refused by name:
 * other ids than the model was trained with are worse than none. */
#include "runtime/disk.h"
#include "runtime/token_own.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>
#include <zlib.h>

#define bad dpc_token_bad

enum { PATH = 1100, FILE_MAX = 1 << 28 };

/* How the older files' classes treat a text. */
const char dpc_token_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";
static const char qwen2_cut[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char clip_cut[] =
    "'s|'t|'re|'ve|'m|'ll|'d|\\p{L}+|\\p{N}|[^\\s\\p{L}\\p{N}]+";
enum {
    CLIP_LENGTH = 77,
    BYTES = 2 * 256, MERGES = 49152 - 256 - 2   /* tokens of OpenAI's file */
};

typedef struct Preset {                   /* one of those classes */
    const char *class, *cut, *suffix;
    bool gaps;                            /* what the cut leaves is words too */
    int nnorm;
    DpcTokenNorm norm[DPC_NNORM];
    const char *first, *last;
    const char *special;                  /* one id, in any text */
} Preset;
static const Preset openai = {            /* OpenAI's own code */
    "", clip_cut, "</w>", false, 4,
    {DPC_NORM_NFC, DPC_NORM_HTML, DPC_NORM_SPACE, DPC_NORM_LOWER},
    "<|startoftext|>", "<|endoftext|>", NULL};
static const Preset presets[] = {
    {"CLIPTokenizer", clip_cut, "</w>", false, 3,
     {DPC_NORM_NFC, DPC_NORM_SPACE, DPC_NORM_LOWER}, "<|startoftext|>",
     "<|endoftext|>", NULL},
    {"Qwen2Tokenizer", qwen2_cut, "", true, 1, {DPC_NORM_NFC}, NULL, NULL,
     "<|endoftext|>"},
    {"GPT2Tokenizer", dpc_token_gpt2, "", true, 0, {0}, NULL, NULL,
     "<|endoftext|>"},
};
enum { CLIP, QWEN2, NPRESET = sizeof presets / sizeof *presets };

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "tokenizer: error: out of memory");
}

DpcStatus dpc_token_bad(const char *path, const char *f, ...)
{
    char why[512];
    va_list ap;
    va_start(ap, f);
    vsnprintf(why, sizeof why, f, ap);
    va_end(ap);
    return dpc_fail(DPC_USER, "%s: error: tokenizer: %s", path, why);
}

/* ---- the alphabet ---- */

/* GPT-2 writes a byte as itself where that is printable Latin-1, the other 68
 * as the characters from 256 on.  The byte of a character; -1. */
static int byte_of(int32_t c)
{
    int k = c - 256;
    if ((c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xff && c != 0xad))
        return c;
    return k < 0 ? -1 : k < 33 ? k : k < 67 ? k - 33 + 127 : k == 67 ? 173 : -1;
}

/* Bytes of a text in the alphabet, in place; false: it is in no alphabet. */
static bool letters_read(char *s, size_t *n)
{
    size_t k = 0;
    utf8proc_int32_t c;
    for (size_t i = 0; i < *n; ) {
        int64_t m = utf8proc_iterate((const utf8proc_uint8_t *)s + i,
                                     (int64_t)(*n - i), &c);
        if (m <= 0 || byte_of(c) < 0)
            return false;
        s[k++] = (char)byte_of(c);
        i += (size_t)m;
    }
    *n = k;
    return true;
}

/* ---- files ---- */

static bool there(char path[PATH], const char *dir, const char *name)
{
    snprintf(path, PATH, "%s/%s", dir, name);
    return !access(path, F_OK);
}

/* The whole file as text, unpacked if it is gzipped; the caller frees. */
static DpcStatus text_read(const char *path, char **text, size_t *n)
{
    size_t cap = 1 << 16;
    gzFile f = gzopen(path, "rbe");
    *text = NULL, *n = 0;
    if (!f)
        return bad(path, "%s; give a folder with tokenizer.json, or with "
                   "vocab.json and merges.txt", strerror(errno));
    int k = 1;
    for (; k > 0 && *n < FILE_MAX; *n += k > 0 ? (size_t)k : 0) {
        if (!*text || *n + 1 >= cap) {
            cap *= 2;
            char *p = realloc(*text, cap);
            if (!p) {
                gzclose(f);
                return no_memory();
            }
            *text = p;
        }
        k = gzread(f, *text + *n, (unsigned)(cap - *n - 1));
    }
    if (gzclose(f) != Z_OK || k < 0)      /* it also tells a stream cut off */
        return bad(path, "cannot be read or unpacked; fetch it again");
    (*text)[*n] = '\0';
    const char *other = dpc_impostor(*text, *n);
    if (other)
        return bad(path, "%s", other);
    return *n < FILE_MAX ? DPC_OK : bad(path, "more than %d bytes", FILE_MAX);
}

DpcStatus dpc_token_json(const char *path, json_t **out)
{
    char *text;
    size_t n;
    json_error_t e;
    DpcStatus s = text_read(path, &text, &n);
    *out = s ? NULL : json_loadb(text, n, 0, &e);
    if (!s && !*out)
        s = dpc_fail(DPC_USER, "%s:%d: error: tokenizer: %s; fetch the file "
                     "again", path, e.line, e.text);
    free(text);
    if (!s && !json_is_object(*out))
        s = bad(path, "no JSON object; fetch the file again");
    return s;
}

static const char *string_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* "<pad>" or {"content": "<pad>"}. */
static const char *content_of(const json_t *v)
{
    return json_is_object(v) ? string_at(v, "content") : json_string_value(v);
}

/* ---- vocabulary and merges ---- */

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* No two tokens are one number to a model. */
static DpcStatus ids_check(const char *path, const json_t *o)
{
    const char *key;
    const json_t *v;
    size_t n = 0;
    int32_t *id = malloc(json_object_size(o) * sizeof *id);
    DpcStatus s = id ? DPC_OK : no_memory();
    json_object_foreach((json_t *)o, key, v)
        if (id)
            id[n++] = (int32_t)json_integer_value(v);
    if (id)
        qsort(id, n, sizeof *id, by_id);
    for (size_t i = 1; !s && i < n; i++)
        if (id[i] == id[i - 1])
            s = bad(path, "two tokens have the id %d; fetch the file again",
                    id[i]);
    free(id);
    return s;
}

/* {"token": id}; tokens beyond the alphabet can only stand whole. */
DpcStatus dpc_token_vocab(DpcToken *t, const char *path, const json_t *o)
{
    const char *key;
    const json_t *v;
    DpcStatus s = DPC_OK;
    if (!json_object_size(o))
        return bad(path, "no \"vocab\" of tokens and ids");
    json_object_foreach((json_t *)o, key, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= INT32_MAX)
            return bad(path, "token \"%.80s\" has no id from 0 to %d", key,
                       INT32_MAX - 1);
        if (id >= t->count)
            t->count = id + 1;
        size_t n = strlen(key);
        char *own = strdup(key);
        if (!own || (letters_read(own, &n) &&
                     !dpc_bpe_add(&t->bpe, own, n, (int32_t)id)))
            s = no_memory();
        free(own);
        if (s)
            return s;
    }
    return ids_check(path, o);
}

/* Both parts are cut in place. */
static DpcStatus merge_add(DpcToken *t, const char *path, size_t number,
                           char *a, char *b)
{
    const char *absent;
    size_t na = strlen(a), nb = strlen(b);
    char shown[2][64];
    snprintf(shown[0], sizeof shown[0], "%s", a);
    snprintf(shown[1], sizeof shown[1], "%s", b);
    if (!letters_read(a, &na) || !letters_read(b, &nb))
        return bad(path, "merge %zu, \"%s %s\", is not written in the byte "
                   "alphabet", number, shown[0], shown[1]);
    DpcStatus s = dpc_bpe_merge(&t->bpe, a, na, b, nb, &absent);
    return !absent ? s
         : bad(path, "merge %zu, \"%s %s\": %s is not in the vocabulary of %u "
               "tokens; take both files from one place", number, shown[0],
               shown[1], absent, t->bpe.ntoken);
}

/* "a b". */
static DpcStatus merge_line(DpcToken *t, const char *path, size_t number,
                            char *line)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return bad(path, "merge %zu, \"%.80s\", is not two tokens and a space",
                   number, line);
    *space = '\0';
    return merge_add(t, path, number, line, space + 1);
}

/* "a b", or ["a", "b"]. */
DpcStatus dpc_token_merges(DpcToken *t, const char *path, const json_t *all)
{
    size_t i;
    const json_t *v;
    DpcStatus s = DPC_OK;
    if (!json_is_array(all))
        return bad(path, "no array \"merges\"");
    json_array_foreach(all, i, v) {
        const char *a = json_string_value(json_array_get(v, 0));
        const char *b = json_string_value(json_array_get(v, 1));
        const char *line = json_string_value(v);
        if (!line && (!a || !b))
            return bad(path, "merge %zu is not two tokens", i);
        char *x = strdup(line ? line : a), *y = strdup(line ? "" : b);
        s = !x || !y ? no_memory() : line ? merge_line(t, path, i, x)
                                          : merge_add(t, path, i, x, y);
        free(x);
        free(y);
        if (s)
            return s;
    }
    return s;
}

/* Calls `take` for each line but a first with "#version"; lines are cut. */
typedef DpcStatus LineFn(DpcToken *, const char *path, size_t i, char *line);
static DpcStatus lines_each(DpcToken *t, const char *path, char *text,
                            LineFn *take)
{
    DpcStatus s = DPC_OK;
    char *rest = text, *line;
    size_t i = 0;
    for (bool head = true; !s && (line = strsep(&rest, "\n")); head = false) {
        size_t n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = '\0';
        if (*line && !(head && strstr(line, "#version")))
            s = take(t, path, i++, line);
    }
    return s;
}

/* ---- what a text is cut into ---- */

static DpcStatus preset_use(DpcToken *t, const Preset *p)
{
    memcpy(t->norm, p->norm, sizeof t->norm);
    t->nnorm = p->nnorm;
    snprintf(t->bpe.suffix, sizeof t->bpe.suffix, "%s", p->suffix);
    return dpc_token_split_add(t, p->cut, true, p->gaps);
}

/* The id of a whole token; -1. */
int32_t dpc_token_id(const DpcToken *t, const char *text)
{
    for (int i = 0; text && i < t->nadded; i++)
        if (!strcmp(t->added[i].text, text))
            return t->added[i].id;
    uint32_t k = text ? dpc_bpe_find(&t->bpe, text, strlen(text))
                      : DPC_BPE_NONE;
    return k == DPC_BPE_NONE ? -1 : t->bpe.token[k].id;
}

static bool is_added(const DpcToken *t, const char *text)
{
    for (int i = 0; i < t->nadded; i++)
        if (!strcmp(t->added[i].text, text))
            return true;
    return false;
}

static DpcStatus ends_use(DpcToken *t, const char *path, const Preset *p)
{
    t->first = dpc_token_id(t, p->first);
    t->last = dpc_token_id(t, p->last);
    if ((p->first && t->first < 0) || (p->last && t->last < 0))
        return bad(path, "the vocabulary lacks \"%s\" or \"%s\"", p->first,
                   p->last);
    int32_t special = p->special ? dpc_token_id(t, p->special) : -1;
    DpcStatus s = p->first ? dpc_token_added_add(t, p->first, t->first, true)
                           : DPC_OK;
    if (!s && special >= 0 && !is_added(t, p->special))
        s = dpc_token_added_add(t, p->special, special, false);
    return s || !p->last ? s : dpc_token_added_add(t, p->last, t->last, true);
}

/* ---- the older files ---- */

static DpcStatus added_add(DpcToken *t, const char *path, const char *text,
                           json_int_t id, const json_t *how)
{
    static const char *const undone[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < sizeof undone / sizeof *undone; i++)
        if (json_is_true(json_object_get(how, undone[i])))
            return bad(path, "added token \"%.80s\" with \"%s\" is "
                       "not done", text ? text : "?", undone[i]);
    if (!text || id < 0 || id >= INT32_MAX)
        return bad(path, "an added token without text and id");
    return dpc_token_added_add(t, text, (int32_t)id,
                               json_is_true(json_object_get(how,
                                                            "normalized")));
}

DpcStatus dpc_token_added(DpcToken *t, const char *path, const json_t *all)
{
    const char *key;
    size_t i;
    const json_t *v;
    DpcStatus s = DPC_OK;
    json_array_foreach(all, i, v)
        if (!s)
            s = added_add(t, path, string_at(v, "content"),
                          json_integer_value(json_object_get(v, "id")), v);
    json_object_foreach((json_t *)all, key, v)
        if (!s)                           /* {"7": {...}}, or {"<pad>": 7} */
            s = json_is_object(v)
              ? added_add(t, path, string_at(v, "content"), atoll(key), v)
              : added_add(t, path, key, json_integer_value(v), NULL);
    return s;
}

/* The object in DIR/NAME; empty when there is no such file. */
static DpcStatus beside(const char *dir, const char *name, json_t **o)
{
    char path[PATH];
    if (there(path, dir, name))
        return dpc_token_json(path, o);
    *o = json_object();
    return *o ? DPC_OK : no_memory();
}

static DpcStatus merges_text(DpcToken *t, const char *path, LineFn *take)
{
    char *text;
    size_t n;
    DpcStatus s = text_read(path, &text, &n);
    s = s ? s : lines_each(t, path, text, take);
    free(text);
    return s;
}

/* In a published pair nearly all tokens but the bytes are made by merges. */
static DpcStatus made_check(const DpcToken *t, const char *path)
{
    enum { OTHERS = 20 };                 /* one of so many */
    int64_t made = dpc_bpe_made(&t->bpe), all = t->bpe.ntoken;
    return made + BYTES + all / OTHERS >= all ? DPC_OK
         : bad(path, "it makes %lld of the vocabulary's %lld tokens; was it "
               "cut off? fetch it again", (long long)made, (long long)all);
}

static const Preset *preset_of(const char *class)
{
    for (int i = 0; i < NPRESET; i++)
        if (!strncmp(class, presets[i].class, strlen(presets[i].class)))
            return &presets[i];
    return NULL;
}

/* vocab.json and merges.txt; `config` is tokenizer_config.json's. */
static DpcStatus pair_read(DpcToken *t, const char *vocab, const char *dir,
                           const json_t *config)
{
    char path[PATH];
    json_t *o, *more = NULL;
    const char *class = string_at(config, "tokenizer_class");
    DpcStatus s = dpc_token_json(vocab, &o);
    s = s ? s : dpc_token_vocab(t, vocab, o);
    const Preset *p = class ? preset_of(class) : &presets[QWEN2];
    if (!class && json_object_get(o, "a</w>"))
        p = &presets[CLIP];
    json_decref(o);
    if (!s && !p)
        s = bad(dir, "class \"%s\" of tokenizer_config.json is not "
                "read; CLIPTokenizer, Qwen2Tokenizer, GPT2Tokenizer "
                "are, or give tokenizer.json", class);
    if (!s && !there(path, dir, "merges.txt"))
        s = bad(path, "%s, but there is vocab.json; give both",
                strerror(errno));
    s = s ? s : merges_text(t, path, merge_line);
    s = s ? s : made_check(t, path);
    s = s ? s : dpc_token_added(t, dir, json_object_get(config,
                                                   "added_tokens_decoder"));
    s = s ? s : beside(dir, "added_tokens.json", &more);
    s = s ? s : dpc_token_added(t, dir, more);
    json_decref(more);
    s = s ? s : preset_use(t, p);
    return s ? s : ends_use(t, vocab, p);
}

/* Token i + BYTES is what line i joins; OpenAI's file has more lines than its
 * vocabulary takes. */
static DpcStatus simple_line(DpcToken *t, const char *path, size_t i,
                             char *line)
{
    char both[256];
    size_t n = strlen(line);
    if (i >= MERGES)
        return DPC_OK;
    char *space = memccpy(both, line, ' ', n < sizeof both ? n : 0);
    if (!space)
        return bad(path, "line %zu, \"%.80s\", is not two tokens and "
                   "a space", i, line);
    memcpy(space - 1, strchr(line, ' ') + 1, n - (size_t)(space - both));
    n--;
    if (letters_read(both, &n) &&
        !dpc_bpe_add(&t->bpe, both, n, (int32_t)t->count++))
        return no_memory();
    return merge_line(t, path, i, line);
}

static DpcStatus simple_read(DpcToken *t, const char *path)
{
    const Preset *p = &openai;
    DpcStatus s = preset_use(t, p);
    for (int last = 0; !s && last < 2; last++)
        for (int plain = 1; !s && plain >= 0; plain--)
            for (int b = 0; !s && b < 256; b++) {
                char word[8] = {(char)b};
                if (plain != (byte_of(b) == b))
                    continue;
                memcpy(word + 1, "</w>", 4);
                if (!dpc_bpe_add(&t->bpe, word, last ? 5 : 1,
                                 (int32_t)t->count++))
                    s = no_memory();
            }
    s = s ? s : merges_text(t, path, simple_line);
    if (!s && strstr(path, "bpe_simple_vocab_16e6") &&
        t->count < BYTES + MERGES)
        s = bad(path, "it breaks off after %lld merges, there are %d; fetch "
                "it again", (long long)t->count - BYTES, MERGES);
    t->first = (int32_t)t->count++;
    t->last = (int32_t)t->count++;
    t->pad = 0;
    t->published = CLIP_LENGTH;
    s = s ? s : dpc_token_added_add(t, p->first, t->first, true);
    return s ? s : dpc_token_added_add(t, p->last, t->last, true);
}

/* ---- a folder ---- */

/* Pad and length, of the files that say them. */
static DpcStatus config_use(DpcToken *t, const char *dir, const json_t *config)
{
    enum { LONG = 4096 };                 /* beyond: what a model can, not a
                                             row that anyone would pad to */
    json_t *map;
    DpcStatus s = beside(dir, "special_tokens_map.json", &map);
    const char *pad = content_of(json_object_get(config, "pad_token"));
    if (!pad)
        pad = content_of(json_object_get(map, "pad_token"));
    json_int_t n = json_integer_value(json_object_get(config,
                                                      "model_max_length"));
    if (pad)
        t->pad = dpc_token_id(t, pad);
    if (n > 0 && n <= LONG)
        t->published = n;
    json_decref(map);
    return s;
}

static DpcStatus folder_read(DpcToken *t, const char *dir)
{
    static const char *const simple[] = {"bpe_simple_vocab_16e6.txt.gz",
                                         "bpe_simple_vocab_16e6.txt"};
    char path[PATH];
    json_t *config = NULL;
    DpcStatus s = beside(dir, "tokenizer_config.json", &config);
    if (!s && there(path, dir, "tokenizer.json"))
        s = dpc_token_whole(t, path);
    else if (!s && there(path, dir, "vocab.json"))
        s = pair_read(t, path, dir, config);
    else if (!s && (there(path, dir, simple[0]) ||
                    there(path, dir, simple[1])))
        s = simple_read(t, path);
    else if (!s)
        s = bad(dir, "neither tokenizer.json, nor vocab.json and "
                "merges.txt, nor %s is in the folder", simple[0]);
    s = s ? s : config_use(t, dir, config);
    json_decref(config);
    return s;
}

/* A file stands for its folder, but for those that need no other. */
DpcStatus dpc_token_read(DpcToken *t, const char *path)
{
    struct stat st;
    const char *base = strrchr(path, '/');
    char dir[PATH];
    base = base ? base + 1 : path;
    if (stat(path, &st))
        return bad(path, "%s; give a folder with tokenizer.json, or "
                   "with vocab.json and merges.txt",
                   strerror(errno));
    if (S_ISDIR(st.st_mode))
        return folder_read(t, path);
    snprintf(dir, sizeof dir, "%.*s", base > path ? (int)(base - path) - 1
                                                  : 1,
             base > path ? path : ".");
    if (!strcmp(base, "vocab.json") || !strcmp(base, "merges.txt"))
        return folder_read(t, dir);
    const char *dot = strrchr(base, '.');
    return dot && !strcmp(dot, ".json") ? dpc_token_whole(t, path)
                                        : simple_read(t, path);
}
