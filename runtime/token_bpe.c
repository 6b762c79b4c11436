/* token_bpe.c -- byte-pair encoding of one word.
 *
 * Bytes begin as tokens of their own; of all neighbours that some merge joins,
 * the pair of the lowest rank is joined, the leftmost first, until none is
 * left (Sennrich et al., "Neural machine translation of rare words with
 * subword units", ACL 2016).  Candidates wait in a heap, and what they speak
 * of is looked at again when they come out, so a word of n bytes takes
 * n log n: a text without any space is one word. */
#include "runtime/token_own.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- tokens ---- */

static uint32_t hash_bytes(const char *p, size_t n)
{
    return (uint32_t)XXH3_64bits(p, n);
}

static uint32_t *slot_of(const DpcBpe *b, const char *p, size_t n)
{
    uint32_t mask = b->nslot - 1, i = hash_bytes(p, n) & mask;
    for (; b->slot[i]; i = (i + 1) & mask) {
        const struct DpcBpeToken *t = &b->token[b->slot[i] - 1];
        if (t->n == n && !memcmp(b->text + t->at, p, n))
            break;
    }
    return &b->slot[i];
}

uint32_t dpc_bpe_find(const DpcBpe *b, const char *p, size_t n)
{
    return b->nslot ? *slot_of(b, p, n) - 1 : DPC_BPE_NONE;
}

static bool slots_grow(DpcBpe *b)
{
    uint32_t n = b->nslot ? 2 * b->nslot : 1024;
    uint32_t *slot = calloc(n, sizeof *slot);
    if (!slot)
        return false;
    free(b->slot);
    b->slot = slot, b->nslot = n;
    for (uint32_t i = 0; i < b->ntoken; i++)
        *slot_of(b, b->text + b->token[i].at, b->token[i].n) = i + 1;
    return true;
}

/* *at of `size` bytes an item holds one more than n. */
static bool room(void **at, size_t n, size_t more, size_t size, size_t *cap)
{
    if (n + more <= *cap)
        return true;
    size_t want = *cap ? 2 * *cap : 1024;
    want = want < n + more ? n + more : want;
    void *p = realloc(*at, want * size);
    if (!p)
        return false;
    *at = p, *cap = want;
    return true;
}

bool dpc_bpe_add(DpcBpe *b, const char *p, size_t n, int32_t id)
{
    size_t cap = b->token_cap;
    if (2 * (b->ntoken + 1) > b->nslot && !slots_grow(b))
        return false;
    uint32_t *slot = slot_of(b, p, n);
    if (*slot)
        return true;
    if (!room((void **)&b->text, b->ntext, n + 1, 1, &b->text_cap) ||
        !room((void **)&b->token, b->ntoken, 1, sizeof *b->token, &cap))
        return false;
    b->token_cap = (uint32_t)cap;
    b->token[b->ntoken] = (struct DpcBpeToken){b->ntext, (uint32_t)n, id};
    memcpy(b->text + b->ntext, p, n);
    b->ntext += n;
    *slot = ++b->ntoken;
    return true;
}

/* ---- merges ---- */

static struct DpcBpePair *pair_of(const DpcBpe *b, uint32_t x, uint32_t y)
{
    uint64_t key[1] = {(uint64_t)x << 32 | y};
    uint32_t mask = b->pair_cap - 1;
    uint32_t i = hash_bytes((const char *)key, sizeof key) & mask;
    while (b->pair[i].rank && (b->pair[i].a != x || b->pair[i].b != y))
        i = (i + 1) & mask;
    return &b->pair[i];                   /* rank 0: free */
}

static bool pairs_grow(DpcBpe *b)
{
    uint32_t was = b->pair_cap, n = was ? 2 * was : 1024;
    struct DpcBpePair *old = b->pair, *p = calloc(n, sizeof *p);
    if (!p)
        return false;
    b->pair = p, b->pair_cap = n;
    for (uint32_t i = 0; i < was; i++)
        if (old[i].rank)
            *pair_of(b, old[i].a, old[i].b) = old[i];
    free(old);
    return true;
}

DpcStatus dpc_bpe_merge(DpcBpe *b, const char *p, size_t np, const char *q,
                        size_t nq, const char **absent)
{
    enum { LONG = 4096 };
    char both[LONG];
    *absent = NULL;
    if (2 * (b->npair + 1) > b->pair_cap && !pairs_grow(b))
        return dpc_fail(DPC_MEMORY, "tokenizer: error: out of memory");
    uint32_t x = dpc_bpe_find(b, p, np), y = dpc_bpe_find(b, q, nq), to;
    if (x == DPC_BPE_NONE || y == DPC_BPE_NONE) {
        *absent = x == DPC_BPE_NONE ? "the first" : "the second";
        return DPC_USER;
    }
    if (np + nq > LONG) {
        *absent = "what they make, longer than any token,";
        return DPC_USER;
    }
    memcpy(both, p, np);
    memcpy(both + np, q, nq);
    to = dpc_bpe_find(b, both, np + nq);
    if (to == DPC_BPE_NONE) {
        *absent = "what they make";
        return DPC_USER;
    }
    struct DpcBpePair *pair = pair_of(b, x, y);
    if (!pair->rank)
        *pair = (struct DpcBpePair){x, y, ++b->npair, to};
    return DPC_OK;
}

int64_t dpc_bpe_made(const DpcBpe *b)
{
    uint8_t *seen = calloc(b->ntoken + 1, 1);
    int64_t n = 0;
    if (!seen)
        return b->ntoken;
    for (uint32_t i = 0; i < b->pair_cap; i++)
        if (b->pair[i].rank && !seen[b->pair[i].to])
            seen[b->pair[i].to] = 1, n++;
    free(seen);
    return n;
}

int dpc_bpe_ready(DpcBpe *b)
{
    size_t n = strlen(b->suffix);
    char word[1 + sizeof b->suffix];
    if (!b->pair_cap && !pairs_grow(b))
        return 0;
    memcpy(word + 1, b->suffix, n);
    for (int i = 0; i < 256; i++) {
        word[0] = (char)i;
        b->byte[0][i] = dpc_bpe_find(b, word, 1);
        b->byte[1][i] = dpc_bpe_find(b, word, 1 + n);
        if (b->byte[0][i] == DPC_BPE_NONE || b->byte[1][i] == DPC_BPE_NONE)
            return i;
    }
    return -1;
}

/* ---- a word ---- */

bool dpc_bpe_reserve(DpcBpe *b, int64_t bytes)
{
    if (bytes <= b->room)
        return true;
    /* One candidate a pair at first, and two for each merge. */
    void *s = realloc(b->symbol, (size_t)bytes * sizeof *b->symbol);
    b->symbol = s ? s : b->symbol;
    void *h = realloc(b->heap, 3 * (size_t)bytes * sizeof *b->heap);
    b->heap = h ? h : b->heap;
    if (!s || !h)
        return false;
    b->room = bytes;
    return true;
}

static bool before(const struct DpcBpeHeap *x, const struct DpcBpeHeap *y)
{
    return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void heap_push(DpcBpe *b, struct DpcBpeHeap e)
{
    int64_t i = b->nheap++;
    for (; i && before(&e, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = e;
}

static struct DpcBpeHeap heap_pop(DpcBpe *b)
{
    struct DpcBpeHeap top = b->heap[0], e = b->heap[--b->nheap];
    int64_t i = 0;
    for (int64_t k; (k = 2 * i + 1) < b->nheap; i = k) {
        k += k + 1 < b->nheap && before(&b->heap[k + 1], &b->heap[k]);
        if (before(&e, &b->heap[k]))
            break;
        b->heap[i] = b->heap[k];
    }
    b->heap[i] = e;
    return top;
}

/* The symbol at `at` and its next, if some merge joins them. */
static void candidate(DpcBpe *b, int32_t at)
{
    const struct DpcBpeSymbol *s = b->symbol;
    if (at < 0 || s[at].next < 0)
        return;
    uint32_t x = s[at].token, y = s[s[at].next].token;
    const struct DpcBpePair *p = pair_of(b, x, y);
    if (p->rank)
        heap_push(b, (struct DpcBpeHeap){p->rank, p->to, at, x, y});
}

static void join(DpcBpe *b, const struct DpcBpeHeap *e)
{
    struct DpcBpeSymbol *s = b->symbol, *x = &s[e->at];
    if (x->token != e->a || x->next < 0 || s[x->next].token != e->b)
        return;                           /* one of them is gone */
    int32_t gone = x->next;
    x->token = e->to;
    x->next = s[gone].next;
    s[gone].token = DPC_BPE_NONE;
    if (x->next >= 0)
        s[x->next].last = e->at;
    candidate(b, x->last);
    candidate(b, e->at);
}

int64_t dpc_bpe_word(DpcBpe *b, const char *word, int64_t n, int32_t *id)
{
    int64_t count = 0;
    if (b->whole) {
        uint32_t t = dpc_bpe_find(b, word, (size_t)n);
        if (t != DPC_BPE_NONE)
            return id[0] = b->token[t].id, 1;
    }
    for (int64_t i = 0; i < n; i++)
        b->symbol[i] = (struct DpcBpeSymbol){
            b->byte[i == n - 1][(uint8_t)word[i]], (int32_t)i - 1,
            i == n - 1 ? -1 : (int32_t)i + 1};
    b->nheap = 0;
    for (int64_t i = 0; i + 1 < n; i++)
        candidate(b, (int32_t)i);
    while (b->nheap) {
        struct DpcBpeHeap e = heap_pop(b);
        join(b, &e);
    }
    for (int32_t i = 0; i >= 0; i = b->symbol[i].next)
        id[count++] = b->token[b->symbol[i].token].id;
    return count;
}

int64_t dpc_bpe_bytes(const DpcBpe *b)
{
    return (int64_t)(b->text_cap + b->token_cap * sizeof *b->token +
                     b->nslot * sizeof *b->slot +
                     b->pair_cap * sizeof *b->pair) +
           b->room * (int64_t)(sizeof *b->symbol + 3 * sizeof *b->heap);
}

void dpc_bpe_free(DpcBpe *b)
{
    free(b->text);
    free(b->token);
    free(b->slot);
    free(b->pair);
    free(b->symbol);
    free(b->heap);
}
