/* memory.h -- between the files that find bytes for values. */
#ifndef DPC_MEMORY_H
#define DPC_MEMORY_H

#include "passes/pass.h"
#include "passes/place.h"

typedef struct Mem {
    Graph *g;
    Sched *s;
    Arena *scratch;
    const Job *job;
    uint32_t *uses;
    bool *fixed;                          /* node: no bytes in the ARENA */
    Span *life;                           /* node x turn */
    uint32_t nturn;
    Item *item;
    uint32_t nitem, itemcap;
} Mem;

/* Values that take the bytes of an operand that dies where they are made:
 * memory_over.c.  Roots, lives and scratch are known; those of two that share
 * bytes are one afterwards.  False: there are none. */
bool memory_over(Mem *);

#endif
