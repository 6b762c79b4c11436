/* fuse.h -- between fuse.c and fuse_cost.c. */
#ifndef DPC_FUSE_H
#define DPC_FUSE_H

#include "passes/pass.h"

typedef enum Kind {
    OWN,                                  /* a leaf, or a launch of its own */
    PLAIN,                                /* belongs to one kernel */
    FREE,                                 /* copied into each that reads it */
    VIEW                                  /* the same, and dots see through */
} Kind;

typedef struct List { Ref *at; uint32_t n, cap; } List;
static inline void list_add(Arena *a, List *l, Ref r)
{
    GROW(a, l->at, l->n, l->cap);
    l->at[l->n++] = r;
}

typedef struct Group {
    int same;                             /* the group that it became part of */
    Ref lo, hi;                           /* first and last node */
    List node;                            /* ascending */
    double cost;                          /* seconds; -1 not asked yet */
    const char *why;
} Group;

typedef struct Miss { Ref from, to; const char *why; } Miss;

typedef struct Fuse {
    const Graph *g;
    Arena *arena;
    const Target *target;
    Kind *kind;                           /* by node */
    bool *kept, *read;                    /* set or returned; by any node */
    List *from, *to;                      /* by node: through free nodes */
    Group *group;                         /* by node */
    uint32_t *seen, stamp;                /* by group: of a search */
    Ref *map;                             /* by node: place in a small graph, */
    uint32_t *mark, question;             /* of that question */
    Miss *miss;
    uint32_t nmiss, misscap;
} Fuse;

int fuse_group(Fuse *, Ref);
/* Does the node sum, or take a maximum, over a letter? */
bool fuse_folds(const Graph *, const Node *);
/* Seconds of these nodes, and the free ones that they read, as one kernel. */
double fuse_cost(Fuse *, const List *, const char **why);
/* Is a dot as quick through the moves before it as on their results? */
bool fuse_views_pay(Fuse *, Ref dot);
/* Edges between kernels that were not fused, and why. */
void fuse_report(const Graph *, Job *, FILE *);

#endif
