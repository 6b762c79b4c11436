/* inspect.h -- what an emitted binary holds. */
#ifndef DPC_INSPECT_H
#define DPC_INSPECT_H

#include "compiler/options.h"
#include "compiler/spans.h"

/* The tables of a binary, proven; err where the file holds none, or ones of
 * another layout. */
const DpcUnit *unit_read(const char *path, Arena *);

/* The arena of a program over its steps. */
typedef struct Held {
    uint32_t n, nstep;
    Span *span;                           /* id: a buffer */
    int64_t *alive;                       /* by step: bytes that live */
    int64_t bytes;                        /* the most of them, */
    uint32_t step;                        /* first at this step */
} Held;
Held held_of(const DpcProgram *, Arena *);
void held_print(const DpcProgram *, Arena *);

#endif
