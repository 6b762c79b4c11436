/* host_lane.h -- between the files that put short rows side by side. */
#ifndef DPC_HOST_LANE_H
#define DPC_HOST_LANE_H

#include "codegen/host.h"

typedef struct Lanes {
    const Kernel *k;                      /* rows apart: for what a row knows */
    Kernel body;                          /* the same, one loop of lanes */
    int group, dense;                     /* atoms: rows; within a row, in */
    int *dense_of;                        /* the loop at hand; in each loop */
    int64_t rows, length;
    Atoms level;                          /* of what a row knows */
    bool *known;                          /* value was found for each row, */
    bool *wanted;                         /* and an array x keeps it: loops or
                                             rows behind read it */
} Lanes;

enum { LANE_TASKS = 16 };                 /* worth it from here on */

Lanes lane_new(const Kernel *);
/* Begins with a group of rows of so many lanes; false: not worth it. */
bool lane_pair(Lanes *, int group, int64_t length);
/* Do all accesses of a loop walk from row to row as from lane to lane?  Does
 * one walk them one by one? */
bool lane_joins(const Lanes *, const Loop *);
bool lane_walks(const Lanes *, const Loop *);
/* A value without lanes and without the loops inside of them. */
bool lane_of_row(const Lanes *, int value);
/* Fills in the body's view, once the atoms are known. */
void lane_body(Lanes *);

/* The values that a loop's body reads are wanted. */
void lane_want(Lanes *, const int *body, int n, const Loop *);

/* "float x5[64] ..." for a value. */
void lane_array(Text *, const Lanes *, const char *letter, int value,
                int64_t n, int depth);
/* A loop over the rows that evaluates values and spreads them. */
void lane_learn(Text *, Lanes *, const int *value, int n, int depth);
/* All sums of a loop, by lane, begin. */
void lane_folds_begin(Text *, const Lanes *, const Loop *, int depth);
/* "const float v5 = x5[i3];" of all that the body's values read. */
void lane_values(Text *, const Lanes *, const Loop *, const int *body,
                 int nbody, int depth);
void lane_rows(Text *, const Lanes *, int depth);
void lane_end(Text *, int depth);

#endif
