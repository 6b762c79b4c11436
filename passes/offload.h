/* offload.h -- the plan's word for what lives in the host's memory: a list,
 * "states,base.**,activations". */
#ifndef DPC_OFFLOAD_H
#define DPC_OFFLOAD_H

#include "passes/pass.h"

/* Does it name that param or state?  The arena takes its words. */
bool offload_names(const Mesh *, const char *list, const Node *leaf, Arena *);
/* Is that one of its words?  Of "activations": spill.c. */
bool offload_says(const char *list, const char *word);
/* The value in that memory: a copy with its labels, "NAME.END". */
Ref offload_copy(Graph *, Ref, MemoryClass, const char *end);

#endif
