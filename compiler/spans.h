/* spans.h -- ranges of bytes over steps: who lives when, and how much. */
#ifndef DPC_SPANS_H
#define DPC_SPANS_H

#include "ir/base.h"

typedef struct Span {
    int64_t at, size;                     /* bytes */
    uint32_t first, last;                 /* steps */
    uint32_t id;                          /* whose; and which of them */
    int instance;
} Span;

/* By step, bytes that live: ranges that overlap count once.  Sorts them. */
int64_t *spans_alive(Span *, uint32_t n, uint32_t nstep, Arena *);
/* Those that live at a step, the largest first; *m their number. */
Span *spans_at(const Span *, uint32_t n, uint32_t step, uint32_t *m, Arena *);

#endif
