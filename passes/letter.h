/* letter.h -- which letters of a signature may carry axes; how types lie. */
#ifndef DPC_LETTER_H
#define DPC_LETTER_H

#include "passes/pass.h"

/* inner[NLETTER]: those that stand behind another in a group. */
void letters_inner(const Sig *, bool *inner);
/* May the split part a letter?  Parts of a dimension of several letters are
 * whole numbers of the inner ones; those of a letter by itself may be uneven;
 * those under a window have the rules of windows.  A table's rows are looked
 * for between two numbers, so that padding stands at their end alone. */
bool letter_cuts(const Graph *, const Sig *, Op, int c, Split);
int64_t letters_volume(const Sig *);      /* numbers of the result */
/* of[NLETTER]: as the wanted result says; false: it cannot be made so. */
bool letter_splits(const Graph *, const Sig *, Op, const Type *want,
                   Split *of);
/* Is it the same, cut finer? */
bool split_finer(const Type *have, const Type *want);

#endif
