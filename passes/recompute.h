/* recompute.h -- what waits for backward, and what is made there again.
 *
 * The question, without a graph: values are made in a row of moments; late
 * moments (of backward) read some of them.  Each value either waits, or is
 * forgotten after the last reader of forward and made again, once, right
 * before the first late moment that wants it, from what it was made of: which
 * waits, or is made again itself.  Which ones, so that no more than `limit`
 * bytes live at any moment, for the fewest seconds? */
#ifndef DPC_RECOMPUTE_H
#define DPC_RECOMPUTE_H

#include "ir/graph.h"

typedef struct Value {
    Ref node;
    int64_t bytes;
    double cost;                          /* seconds to make it again; */
    bool waits;                           /* it cannot be */
    uint32_t nin, *in;                    /* it is made of these; all earlier */
    uint32_t twin;                        /* alike ones have one number */
} Value;

typedef struct Moment {
    int64_t other;                        /* bytes alive that nobody chooses */
    int64_t before;                       /* of those, already there before */
    uint32_t nmade, *made, nread, *read;  /* values */
    bool late;
} Moment;

typedef struct Question {
    Arena *arena;
    Value *value;
    Moment *moment;
    uint32_t n, nmoment;
} Question;

typedef struct Answer {
    int64_t peak;                         /* most bytes alive */
    double cost;                          /* seconds added */
    double excess;                        /* bytes over the limit, summed */
} Answer;

/* ---- recompute_peak.c ---- */

typedef struct Trial Trial;
Trial *trial_new(const Question *);
Answer trial_run(Trial *, const bool *keep, int64_t limit);

/* ---- recompute_search.c ---- */

typedef struct Chosen {
    bool *keep;                           /* by value */
    Answer answer;
    bool fits, exact;                     /* exact: nothing cheaper fits */
    double least;                         /* seconds: none that fits has less */
} Chosen;

/* Fewest seconds below the limit, as far as it finds; `fits` false: it found
 * none, and gives the lowest peak that it met. */
Chosen recompute_choose(const Question *, int64_t limit);
/* The lowest limit for which it finds an answer, and that answer. */
Chosen recompute_lowest(const Question *);

/* ---- recompute_exact.c ---- */

/* Branch and bound from an answer on, in so many branches; exact when they
 * were enough. */
void recompute_exact(const Question *, int64_t limit, Chosen *,
                     uint32_t branches);
/* Seconds that every answer below the limit takes, or more. */
double recompute_least(const Question *, int64_t limit);

#endif
