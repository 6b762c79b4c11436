/* token_split.c -- from text to words: normal forms, added tokens, cuts.
 *
 * Unicode's tables are utf8proc's (normal form C, lower case of single
 * characters, as the published tokenizers have it) and PCRE2's (\p{L} and the
 * like in the published patterns). */
#define _GNU_SOURCE                       /* memmem */
#include "runtime/token_own.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- normal forms ---- */

/* A text of n bytes becomes `to` of at most `room`; its bytes, or -1. */
typedef int64_t NormFn(DpcToken *, const char *from, int64_t n, char *to);

static int64_t norm_nfc(DpcToken *t, const char *from, int64_t n, char *to)
{
    const utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    int64_t k = utf8proc_decompose((const utf8proc_uint8_t *)from, n,
                                   t->point, t->room, how), m = 0;
    if (k < 0 || k > t->room)
        return -1;
    k = utf8proc_normalize_utf32(t->point, k, how);
    for (int64_t i = 0; i < k; i++)
        m += utf8proc_encode_char(t->point[i], (utf8proc_uint8_t *)to + m);
    return m;
}

/* Unicode's White_Space. */
static bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The character at *from, which moves on. */
static int32_t next_point(const char **from, const char *end)
{
    utf8proc_int32_t c;
    int64_t k = utf8proc_iterate((const utf8proc_uint8_t *)*from, end - *from,
                                 &c);
    *from += k > 0 ? k : 1;
    return k > 0 ? c : -1;
}

static int64_t norm_space(DpcToken *t, const char *from, int64_t n, char *to)
{
    const char *end = from + n;
    int64_t m = 0;
    (void)t;
    for (bool space = false; from < end; ) {
        const char *at = from;
        bool now = is_space(next_point(&from, end));
        if (now && !space)
            to[m++] = ' ';
        for (; !now && at < from; at++)
            to[m++] = *at;
        space = now;
    }
    return m;
}

/* Turkish capital i is the one character whose lower case is two. */
static int64_t norm_lower(DpcToken *t, const char *from, int64_t n, char *to)
{
    const char *end = from + n;
    int64_t m = 0;
    (void)t;
    while (from < end) {
        int32_t c = next_point(&from, end);
        if (c == 0x130) {
            memcpy(to + m, "i\xcc\x87", 3);
            m += 3;
        } else {
            m += utf8proc_encode_char(utf8proc_tolower(c),
                                      (utf8proc_uint8_t *)to + m);
        }
    }
    return m;
}

/* OpenAI's code undoes references twice, behind ftfy, which does so for as long
 * as there are any before it tidies up, unless the text has tags. */
static int64_t norm_html(DpcToken *t, const char *from, int64_t n, char *to)
{
    bool tags = memchr(from, '<', (size_t)n);
    (void)t;
    memcpy(to, from, (size_t)n);
    n = tags ? dpc_token_tidy(to, n) : n;
    int64_t was = n + 1;
    for (int i = 0; tags ? i < 2 : n < was; i++)
        was = n, n = dpc_token_html(to, n);
    return tags ? n : dpc_token_tidy(to, n);
}

DpcStatus dpc_token_normal(DpcToken *t, const char **text, int64_t *n)
{
    static NormFn *const fn[] = {norm_nfc, norm_space, norm_lower,
                                 norm_html};
    for (int i = 0; i < t->nnorm; i++) {
        char *to = t->norm_text[i % 2];
        *n = fn[t->norm[i]](t, *text, *n, to);
        if (*n < 0)
            return dpc_fail(DPC_USER, "%s: error: text: not UTF-8; write "
                            "UTF-8 text", t->path);
        *text = to;
    }
    return DPC_OK;
}

/* ---- added tokens ---- */

DpcStatus dpc_token_added_add(DpcToken *t, const char *text, int32_t id,
                              bool late)
{
    for (int i = 0; i < t->nadded; i++)
        if (!strcmp(t->added[i].text, text))
            return DPC_OK;
    DpcTokenAdded *a = realloc(t->added,
                               (size_t)(t->nadded + 1) * sizeof *a);
    t->added = a ? a : t->added;
    char *own = a && *text ? strdup(text) : NULL;
    if (!a || (*text && !own))
        return dpc_fail(DPC_MEMORY, "tokenizer: error: out of memory");
    if (own)
        a[t->nadded++] = (DpcTokenAdded){own, strlen(own), id, late};
    return DPC_OK;
}

const DpcTokenAdded *dpc_token_added_find(const DpcToken *t, bool late,
                                          const char *text, int64_t n,
                                          int64_t *at)
{
    const DpcTokenAdded *best = NULL;
    for (int i = 0; i < t->nadded; i++) {
        const DpcTokenAdded *a = &t->added[i];
        const char *p = a->late == late
                      ? memmem(text, (size_t)n, a->text, a->n) : NULL;
        if (!p || (best && (p - text > *at ||
                            (p - text == *at && a->n <= best->n))))
            continue;
        best = a;
        *at = p - text;
    }
    return best;
}

/* ---- cuts ---- */

DpcStatus dpc_token_split_add(DpcToken *t, const char *pattern, bool matches,
                              bool gaps)
{
    int error;
    size_t where;
    if (t->nsplit == DPC_NSPLIT)
        return dpc_fail(DPC_USER, "%s: error: tokenizer: more than %d cuts of "
                        "the text; it is not read", t->path, DPC_NSPLIT);
    DpcTokenSplit *s = &t->split[t->nsplit++];
    *s = (DpcTokenSplit){.matches = matches, .gaps = gaps};
    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP, &error, &where, NULL);
    if (!s->code) {
        char why[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return dpc_fail(DPC_USER, "%s: error: tokenizer: pattern \"%.200s\" "
                        "at byte %zu: %s", t->path, pattern, where, why);
    }
    pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);   /* or without */
    s->match = pcre2_match_data_create_from_pattern(s->code, NULL);
    return s->match ? DPC_OK
         : dpc_fail(DPC_MEMORY, "tokenizer: error: out of memory");
}

static DpcStatus part(DpcToken *t, int level, const char *text, int64_t n,
                      bool is_word)
{
    return n && is_word ? dpc_token_words(t, level + 1, text, n) : DPC_OK;
}

DpcStatus dpc_token_words(DpcToken *t, int level, const char *text, int64_t n)
{
    if (level == t->nsplit) {
        t->nid += dpc_bpe_word(&t->bpe, text, n, t->id + t->nid);
        return DPC_OK;
    }
    const DpcTokenSplit *c = &t->split[level];
    DpcStatus s = DPC_OK;
    int64_t done = 0, at = 0;
    while (!s && at < n) {
        int k = pcre2_match(c->code, (PCRE2_SPTR)text, (size_t)n, (size_t)at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, c->match,
                            NULL);
        if (k == PCRE2_ERROR_NOMATCH)
            break;
        if (k < 0)
            return dpc_fail(DPC_USER, "%s: error: tokenizer: its pattern "
                            "fails on the text (PCRE2 says %d)", t->path, k);
        const size_t *m = pcre2_get_ovector_pointer(c->match);
        int64_t from = (int64_t)m[0];
        at = (int64_t)m[1];
        s = part(t, level, text + done, from - done, c->gaps);
        if (!s)
            s = part(t, level, text + from, at - from, c->matches);
        done = at;
    }
    return s ? s : part(t, level, text + done, n - done, c->gaps);
}
