/* token_own.h -- what the files token*.c share. */
#ifndef DPC_TOKEN_OWN_H
#define DPC_TOKEN_OWN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/token.h"
#include <jansson.h>
#include <pcre2.h>

/* ---- token_bpe.c: a vocabulary and its merges ---- */

/* A token is bytes, no longer in the alphabet of the files. */
typedef struct DpcBpe {
    char *text;                           /* all tokens, one after the other */
    size_t ntext, text_cap;
    struct DpcBpeToken { size_t at; uint32_t n; int32_t id; } *token;
    uint32_t ntoken, token_cap;
    uint32_t *slot, nslot;                /* hash of bytes: token + 1 */
    struct DpcBpePair { uint32_t a, b, rank, to; } *pair;   /* hash of a, b */
    uint32_t npair, pair_cap;
    uint32_t byte[2][256];                /* token of one byte; and as last */
    char suffix[16];                      /* of a word's last byte; "" */
    bool whole;                           /* a known word is not merged */
    struct DpcBpeSymbol { uint32_t token; int32_t last, next; } *symbol;
    struct DpcBpeHeap { uint32_t rank, to; int32_t at; uint32_t a, b; } *heap;
    int64_t room, nheap;                  /* symbols; entries */
} DpcBpe;

/* Adds a token; false: no memory.  The first of two with the same bytes
 * stays. */
bool dpc_bpe_add(DpcBpe *, const char *bytes, size_t n, int32_t id);
enum { DPC_BPE_NONE = UINT32_MAX };
uint32_t dpc_bpe_find(const DpcBpe *, const char *bytes, size_t n);
/* The next best merge.  DPC_USER without text: *absent, one of the two or
 * what they make, is no token. */
DpcStatus dpc_bpe_merge(DpcBpe *, const char *a, size_t na, const char *b,
                        size_t nb, const char **absent);
int64_t dpc_bpe_made(const DpcBpe *);     /* tokens that some merge makes */
/* Finds the 256 (with a suffix 512) tokens of bytes; the byte that has none,
 * or -1. */
int dpc_bpe_ready(DpcBpe *);
/* For words of so many bytes; false: no memory. */
bool dpc_bpe_reserve(DpcBpe *, int64_t bytes);
/* Ids of a word of n > 0 bytes, at most n; how many. */
int64_t dpc_bpe_word(DpcBpe *, const char *word, int64_t n, int32_t *id);
int64_t dpc_bpe_bytes(const DpcBpe *);
void dpc_bpe_free(DpcBpe *);

/* ---- a tokenizer ---- */

typedef enum DpcTokenNorm {
    DPC_NORM_NFC, DPC_NORM_SPACE, DPC_NORM_LOWER, DPC_NORM_HTML
} DpcTokenNorm;

enum { DPC_NSPLIT = 4, DPC_NNORM = 4 };

/* A text is cut at the matches of a pattern; which parts are words. */
typedef struct DpcTokenSplit {
    pcre2_code *code;
    pcre2_match_data *match;
    bool matches, gaps;
} DpcTokenSplit;

/* Text that is one id wherever it stands, "<|im_end|>". */
typedef struct DpcTokenAdded {
    char *text;
    size_t n;
    int32_t id;
    bool late;                            /* sought after normalisation */
} DpcTokenAdded;

struct DpcToken {
    char path[1024];
    DpcBpe bpe;
    DpcTokenNorm norm[DPC_NNORM];
    int nnorm;
    DpcTokenSplit split[DPC_NSPLIT];
    int nsplit;
    DpcTokenAdded *added;
    int nadded;
    int32_t first, last, pad;             /* ids; -1: none */
    int64_t length, published, count;     /* of a row; ids are below count */
    char *norm_text[2];                   /* [room] each */
    int32_t *point;                       /* [room] */
    int64_t room, nid;
    int32_t *id;                          /* [room] */
};

/* ---- token_html.c ---- */
/* Undoes "&amp;", "&#39;" in place; the bytes that are left. */
int64_t dpc_token_html(char *text, int64_t n);
/* Quotes, ligatures, wide forms as plain letters, no control characters, in
 * place; the bytes that are left. */
int64_t dpc_token_tidy(char *text, int64_t n);

/* ---- token_file.c, token_json.c ---- */
extern const char dpc_token_gpt2[];       /* the cut of GPT-2 */
DpcStatus dpc_token_read(DpcToken *, const char *path);
DpcStatus dpc_token_whole(DpcToken *, const char *path);  /* tokenizer.json */
DpcStatus dpc_token_bad(const char *path, const char *f, ...)
    __attribute__((format(printf, 2, 3)));
DpcStatus dpc_token_json(const char *path, json_t **);    /* an object */
/* {"token": id}; tokens beyond the alphabet can only stand whole. */
DpcStatus dpc_token_vocab(DpcToken *, const char *path, const json_t *);
/* "a b", or ["a", "b"], each. */
DpcStatus dpc_token_merges(DpcToken *, const char *path, const json_t *);
/* [{"content", "id", ...}], {"id": {"content", ...}} or {"content": id}. */
DpcStatus dpc_token_added(DpcToken *, const char *path, const json_t *);
int32_t dpc_token_id(const DpcToken *, const char *whole);      /* -1 */

/* ---- token_split.c ---- */
/* Adds a cut; DPC_USER: the pattern is wrong. */
DpcStatus dpc_token_split_add(DpcToken *, const char *pattern, bool matches,
                              bool gaps);
DpcStatus dpc_token_added_add(DpcToken *, const char *text, int32_t id,
                              bool late);
/* The added token that begins soonest, of those the longest; NULL: none. */
const DpcTokenAdded *dpc_token_added_find(const DpcToken *, bool late,
                                          const char *text, int64_t n,
                                          int64_t *at);
/* *text becomes its normal form, of *n bytes. */
DpcStatus dpc_token_normal(DpcToken *, const char **text, int64_t *n);
/* Words of a text to ids, by the cuts from `level` on. */
DpcStatus dpc_token_words(DpcToken *, int level, const char *text, int64_t n);

#endif
