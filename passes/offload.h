/* offload.h -- the plan's word for what lives in the host's memory: a list,
 * "states,base.**". */
#ifndef DPC_OFFLOAD_H
#define DPC_OFFLOAD_H

#include "passes/pass.h"

/* Does the list hold that word? */
bool offload_word(const char *list, const char *name);
/* Does it name that param or state? */
bool offload_names(const Mesh *, const char *list, const Node *leaf);

#endif
