/* fuse.h -- between fuse.c and fuse_cost.c. */
#ifndef DPC_FUSE_H
#define DPC_FUSE_H

#include "passes/like.h"
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
    List node;                            /* ascending */
    double cost;                          /* seconds; -1 not asked yet */
    const char *why;
} Group;

typedef struct Place {                    /* of a group in the line of all */
    uint64_t at;                          /* ascending */
    int before, after;                    /* its neighbours */
} Place;
typedef struct Move { uint64_t at; int group; } Move;

typedef struct Miss { Ref from, to; const char *why; } Miss;

/* What a small graph costs: asked once, and its twins cost the same. */
typedef struct Price {
    Key key;
    double cost;
    const char *why;
} Price;
typedef struct Prices { Price *at; uint32_t n, cap; Arena *arena; } Prices;

typedef struct Fuse {
    Graph *g;                             /* a copy */
    Arena *arena;
    const Target *target;
    Kind *kind;                           /* by node */
    bool *kept, *read;                    /* set or returned; by any node */
    bool *again;                          /* free to later segments' readers */
    bool *apart;                          /* a slice that is copied, so that
                                             the rest of its operand may go */
    Ref *large;                           /* what it is met again from; NONE */
    Ref *call;                            /* product whose library call makes
                                             it with others; NONE */
    List *from, *to;                      /* by node: through free nodes */
    Group *group;                         /* by node */
    uint32_t *seen, stamp;                /* by group: of a search */
    Place *place;                         /* by group: operands come first */
    List met[2];                          /* of a search, from both ends */
    Move *move;                           /* those that change places */
    uint32_t movecap;
    Ref *map;                             /* by node: place in a small graph, */
    uint32_t *mark, question;             /* of that question */
    Key *work, *shape;                    /* by node: once asked for */
    struct Prices *prices;
    Key mesh;                             /* every question starts with it */
    Miss *miss;
    uint32_t nmiss, misscap;
} Fuse;

int fuse_group(Fuse *, Ref);
/* Groups of one node stand in the order of the graph: before fuse_join. */
void fuse_line_up(Fuse *);
/* Group b becomes part of group a, but for its list of nodes; false, and
 * nothing is changed, when a path leads out of both together and back. */
bool fuse_join(Fuse *, int a, int b);
/* Does the node sum, or take a maximum, over a letter? */
bool fuse_folds(const Graph *, const Node *);
Prices *prices_of(Job *);
/* Seconds of these nodes, and the free ones that they read, as one kernel. */
double fuse_cost(Fuse *, const List *, const char **why);
/* Does the node need a launch of its own, or none? */
bool fuse_own(const Graph *, const Node *);
bool fuse_alone(const Fuse *, Ref);       /* the same, or of a library call */
/* Is operand i read shifted, or by rows: from memory only? */
bool fuse_shifted(const Node *, int i);
/* Memory orders of what kernels write: fuse_lie.c. */
void fuse_lie(Fuse *);
/* A segment, or clones of one moment: no kernel is of two phases. */
static inline int node_phase(const Node *n)
{
    return (int)n->segment + (UPDATE + 1) * n->moment;
}
/* Is node r copied into a kernel of that phase which reads it?  SEG_NONE: a
 * reader that is no kernel. */
bool fuse_free(const Fuse *, Ref r, int reader);
/* Finds what library calls do besides products: fuse_tail.c. */
void fuse_tails(Fuse *);
/* Finds what later segments compute again instead of reading: fuse_again.c. */
void fuse_again(Fuse *);
/* Seconds of a dot that reads through views, or their results. */
double fuse_dot_cost(Fuse *, Ref dot, bool views);
/* Is a dot as quick through the moves before it as on their results? */
bool fuse_views_pay(Fuse *, Ref dot);
/* All nodes of a graph, of no kind yet, in the job's scratch; their kinds;
 * both. */
Fuse *fuse_new(const Graph *, Job *);
void fuse_sort(Fuse *);
Fuse *fuse_open(const Graph *, Job *);
/* The groups of a graph, in the job's scratch. */
Fuse *fuse_run(const Graph *, Job *);
/* The same, in these segments alone (bits): none joins another's. */
Fuse *fuse_run_in(const Graph *, Job *, unsigned segments);

#endif
