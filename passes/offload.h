/* offload.h -- the plan's word for what lives in the host's memory: a list,
 * "states,base.**". */
#ifndef DPC_OFFLOAD_H
#define DPC_OFFLOAD_H

#include "passes/pass.h"

/* Does it name that param or state?  The arena takes its words. */
bool offload_names(const Mesh *, const char *list, const Node *leaf, Arena *);

#endif
