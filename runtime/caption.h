/* caption.h -- words to token ids: by the vocabulary in the unit's meta, or by
 * a published tokenizer. */
#ifndef DPC_CAPTION_H
#define DPC_CAPTION_H

#include "runtime/feed.h"
#include "runtime/options.h"

typedef struct DpcCaption DpcCaption;

/* What the unit says of captions:
 *     meta {"caption": {"input": ..., "field": ..., "tokenizer": ...,
 *                       "vocab": {word: id}}}
 * "input" takes the ids, i32[batch, length] (unless it is said, "tokens" or
 * "text"), and INPUT_length and INPUT_mask what is real of them; "field" is
 * the text in the data ("caption").  `tokenizer` is a spec of token.h, or NULL: that
 * of meta, else "vocab".
 * *out is NULL when the model takes no captions.  DPC_USER: the vocabulary has
 * ids beyond the model's table; it is given and nothing takes its ids. */
DpcStatus dpc_caption_open(const DpcUnit *, const char *tokenizer,
                           DpcCaption **out);
void dpc_caption_close(DpcCaption *);     /* NULL is fine */
/* Adds ids of the data's text, where the model takes them and the data have
 * none. */
DpcStatus dpc_caption_data(DpcCaption *, DpcData *);
/* A row for each text, for the input and for those of its length and mask
 * that the model has; adds up to DPC_NCAPTION.  DPC_USER: a word that the
 * vocabulary lacks, with the nearest ones; too many words; a model without
 * captions.  free(g[i].row). */
enum { DPC_NCAPTION = 3 };
DpcStatus dpc_caption_given(DpcCaption *, const DpcUnit *,
                            const DpcTextList *texts, DpcGiven *g, int *n);

#endif
