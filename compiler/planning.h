/* planning.h -- plans with their price, for `dpc plan` and "auto". */
#ifndef DPC_PLANNING_H
#define DPC_PLANNING_H

#include "compiler/options.h"
#include "compiler/spans.h"
#include "passes/clock.h"

/* A plan that is made by the words of a command line. */
typedef struct Try {
    const char *name;                     /* those words: "megatron -P tp=2" */
    const char *partitioner, *recompute;  /* NULL, and these: as o says */
    const char *dtype, *offload;
    Plan *plan;                           /* that is made already; NULL */
    List set;
    int micro, ranks;                     /* ranks 0: as o says */
    int size;                             /* parts that a larger number makes
                                             of the leaves; 0: no such axis */
    uint32_t judged;                      /* as number judged - 1, and held
                                             perhaps; 0: it was not */
} Try;

typedef struct Priced {
    const char *name, *why;               /* why: it was refused; NULL */
    Try of;                               /* by auto */
    int micro;
    bool rough;                           /* judged by its nodes alone, */
    bool alone;                           /* or refused by its leaves: those
                                             alone do not fit */
    Plan *plan;
    Spent spent;                          /* of a step, by the clock */
    int64_t leaves, arena, io;            /* bytes of a rank */
    bool fits;
} Priced;

/* The entry that a plan is priced by: train, or the first. */
const Graph *plan_entry(Graph *const *entry, int n);
/* A step of the scheduled graphs of all roles, by the clock. */
Timeline *roles_timed(Graph *const *role, int n, const Job *);
/* Fill in leaves, arena, io and fits of a scheduled graph. */
void memory_price(const Graph *, const Job *, Priced *);
/* Bytes that the plan, or else the cluster, allows a rank. */
int64_t memory_limit(const Job *);
int64_t bytes_of(const Priced *);         /* leaves, arena and io */
double mib(int64_t bytes);
int values_again(const Graph *);          /* of a schedule: made again */
/* Who lives at the peak of a scheduled graph; what is made again, beside the
 * same graph where nothing is. */
void peak_print(const Graph *, const Graph *none, Arena *, FILE *);
/* Where the plan's offload is "auto": nothing, where the entry fits a rank so;
 * else states, else activations too. */
void offload_fit(const Options *, Graph *const *entry, int n, Plan *);
/* Lines "help: ...": the three cheapest ways in which that entry, which takes
 * so many bytes a rank now, would take no more than the limit. */
char *fit_help(const Options *, const Plan *, const char *entry, int64_t bytes,
               int64_t limit);
/* Fill in what p->plan costs for the entry, whose graph is as the model made
 * it, or where `from` names a pass, as the one before left it. */
void plan_price(const Options *, const Graph *, const char *from, Priced *p);
/* ---- timeline.c ---- */

/* Who lives where in the arena of a scheduled graph, from the first step that
 * touches it to the last: id a node, instance -1: scratch of its launch. */
Span *arena_spans(const Graph *, uint32_t *n, Arena *);
/* Flops of a rank's products in a step, of those made again, and the seconds
 * that the first would take at the peak of the cluster's device. */
typedef struct Use { double flops, again, seconds; } Use;
Use use_of(const Graph *, const Job *);
/* Shares, over all roles: of the peak; of the step in which communication
 * stands bare; of bubble and computing in which there is no work. */
double mfu_of(const Timeline *, int n, const Job *);
double exposed_share(const Timeline *, int n);
double bubble_share(const Timeline *, int n);
/* bytes[i] live in the arena from at[i] on, in seconds; at[n]: the end. */
typedef struct Memory {
    uint32_t n, nspan;
    double *at, *bytes;
    Span *span;
    int64_t *alive, most;                 /* by step; the most, */
    uint32_t step;                        /* first at this one */
} Memory;
Memory memory_of(const Timeline *, Arena *);
void memory_line(const Timeline *, Arena *, FILE *);   /* for people */

/* ---- plan_try.c ---- */

typedef struct Tries { Try *at; uint32_t n, cap; Arena *arena; } Tries;
/* a, b, c: "tp=2"; NULL ends them. */
Try *try_add(Tries *, int micro, const char *partitioner, const char *a,
             const char *b, const char *c);
/* The same with a word of recomputation, of one that has none. */
void try_add_word(Tries *, const Try *, const char *recompute);

typedef struct Work {
    Graph *const *entry;
    int nentry;
    const Graph *of;                      /* what is priced; NULL: plan_entry */
    const Graph *begun;                   /* that before `partition`; NULL */
    bool judge;                           /* not priced: roughly, and micro is
                                             what may fit */
    bool wanted;                          /* the plan of the first, if there is
                                             a core for it */
    uint32_t most;                        /* of those judged are held, the best,
                                             so that they go on when priced */
    struct Held *held;
} Work;
/* All of them, side by side; plan is NULL in what comes back, but where it is
 * wanted. */
Priced *tries_run(const Options *, Work *, const Try *, uint32_t n);
/* Ends those that are held. */
void tries_end(Work *);
Plan *try_plan(const Options *, const Try *, Graph *const *entry, int n);
/* What is priced, as far as no plan matters. */
const Graph *work_begin(const Options *, const Work *);
enum { NODES = 200000 };                  /* that may be priced for one answer:
                                             about four seconds of two cores */

/* ---- plan_auto.c ---- */

/* All that auto tries for --ranks and --micro, best first; then words of
 * recomputation for the best of them. */
Priced *plans_auto(const Options *, Graph *const *entry, int nentry,
                   uint32_t *n);
/* The better of two stands first: for qsort. */
int plans_order(const void *, const void *);
void plans_print(const Priced *, uint32_t n, FILE *);
/* The first; err 3 where none fits, with the cheapest ways to fit, 4 where
 * there is none. */
const Priced *plans_best(const Options *, Priced *, uint32_t n,
                         Graph *const *entry, int nentry);

#endif
