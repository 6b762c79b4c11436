/* caption.h -- words to token ids, by the vocabulary in the unit's meta. */
#ifndef DPC_CAPTION_H
#define DPC_CAPTION_H

#include "runtime/feed.h"
#include "runtime/options.h"

/* Rows of i32[length], padded with 0, for the input that
 * meta {"caption": {"input": ..., "length": ..., "vocab": {word: id}}} names.
 * DPC_USER: a word that the vocabulary lacks, with the nearest ones; too many
 * words; a model without captions.  free(g->row). */
DpcStatus dpc_caption_given(const DpcUnit *, const DpcTextList *texts,
                            DpcGiven *g);

#endif
