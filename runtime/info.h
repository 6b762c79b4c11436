/* info.h -- what a binary is and needs, from its tables. */
#ifndef DPC_INFO_H
#define DPC_INFO_H

#include "runtime/json.h"

/* On stdout: lines for people, or one object. */
void dpc_info_print(const DpcUnit *);
void dpc_info_json(const DpcUnit *);
/* What that object holds, into one that is open. */
void dpc_info_pairs(DpcJson *, const DpcUnit *);

#endif
