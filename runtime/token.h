/* token.h -- text to token ids, by a published byte-pair vocabulary. */
#ifndef DPC_TOKEN_H
#define DPC_TOKEN_H

#include "runtime/dpc_rt.h"

typedef struct DpcToken DpcToken;

/* `spec` is PATH[?length=N&pad=ID&ends=no]; ends=no leaves out what stands
 * before and behind a text.  PATH is a folder with tokenizer.json, or
 * vocab.json and merges.txt, or bpe_simple_vocab_16e6.txt[.gz]; or such a
 * file.  DPC_USER names the file and what is wrong with it. */
DpcStatus dpc_token_open(const char *spec, DpcToken **);
void dpc_token_close(DpcToken *);         /* NULL is fine */
const char *dpc_token_path(const DpcToken *);
/* Every id is below; the rows that an embedding needs. */
int64_t dpc_token_count(const DpcToken *);
/* Of a row, by the spec or the published length; 0: any. */
int64_t dpc_token_length(const DpcToken *);
int64_t dpc_token_bytes(const DpcToken *);      /* memory held */

/* All ids of a text of n bytes, which stay until the next call.  Takes memory
 * only for texts longer than all before.  DPC_USER: no UTF-8. */
DpcStatus dpc_token_ids(DpcToken *, const char *text, int64_t n,
                        const int32_t **id, int64_t *count);
/* row : i32[length]; what is too long is cut, but its last id stays; the rest
 * is the pad.  *used: how many of them are the text's. */
DpcStatus dpc_token_row(DpcToken *, const char *text, int64_t n,
                        int64_t length, int32_t *row, int64_t *used);

#endif
