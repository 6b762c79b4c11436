/* lua.h -- what the compiler asks of Lua: a model, a plan, a cluster.
 * Nobody but compiler/lua_*.c includes Lua itself. */
#ifndef DPC_LUA_H
#define DPC_LUA_H

#include "passes/pass.h"

typedef struct ModelOptions {
    const char *home;                     /* folder that holds dpc's models/ */
    const char *const *define;            /* -D: "name=value" */
    int ndefine;
    const char *config;                   /* a JSON file, for dpc.config */
    const char *dump;                     /* named values that become outs
                                             "dump.NAME"; NULL: none */
    int64_t memory;                       /* bytes Lua may hold; 0: 512 MiB */
    double instructions;                  /* that Lua may run; 0: 2e9 */
} ModelOptions;

/* One member of a run: an entry, so many times.  `count` names the scalar
 * that says how many; NULL: `times`. */
typedef struct ModelRun {
    const char *command, *entry, *count;
    int times;
} ModelRun;

typedef struct ModelOption {
    const char *name, *value, *doc, *loc; /* value: the default */
} ModelOption;

typedef struct Model {
    const char *path, *name, *meta;       /* meta: JSON text */
    Graph **entry;                        /* by name; "init" is the last */
    int nentry;
    ModelRun *run;                        /* by command, in order */
    uint32_t nrun, runcap;
    ModelOption *option;                  /* of dpc.option, as first asked */
    uint32_t noption, optioncap;
} Model;

/* Run a model file: one graph an entry, all on one rank.  err (1) where the
 * model is wrong: at the user's innermost line, with its text. */
Model *model_load(const char *path, const ModelOptions *, Arena *);
Graph *model_entry(const Model *, const char *name);      /* NULL */
/* The same, or else the first of its sizes: "train-512x512". */
Graph *model_sized(const Model *, const char *name);

/* What a step of a plan costs; why: what refuses it, or NULL. */
typedef struct PlanCost {
    double step, compute, communicate, exposed;           /* seconds */
    int64_t leaves, arena, io;            /* bytes of a rank */
    bool fits;
    const char *why;
} PlanCost;

/* A plan that says nothing yet. */
Plan *plan_begin(DType compute, Arena *);

typedef struct PlanOptions {
    const char *home, *file;              /* file: partitioner, or plan */
    int ranks, micro;                     /* ranks 0: what the plan says */
    DType compute;
    const char *const *define;            /* -P: "name=value" */
    int ndefine;
    PlanCost (*cost)(void *arg, Plan *);  /* for g.cost; NULL: there is none */
    void *arg;
} PlanOptions;

/* Run a partitioner over the leaves of all entries.  `file` is a path, or the
 * name of one in HOME/passes/partitioners.  err where it is wrong, naming its
 * line and the leaf. */
Plan *plan_partition(const PlanOptions *, Graph *const *entry, int nentry,
                     Arena *);
/* Read what plan_print wrote: `mesh`, `leaf`, `bucket`, `compute`. */
Plan *plan_read(const PlanOptions *, Graph *const *entry, int nentry, Arena *);
void plan_print(const Plan *, FILE *);
/* Its word "recompute", read from text: NULL, or what is wrong; and as text. */
const char *recompute_read(Arena *, const char *word, Plan *);
const char *recompute_word(Arena *, const Plan *);
/* So with "offload", of names in the entries. */
const char *offload_read(Arena *, const char *list, Graph *const *entry,
                         int nentry, Plan *);
/* Why sums that are sent in fewer bytes go with none of its other words;
 * NULL: they do. */
const char *compress_wrong(const Plan *);
int plan_ranks(const Plan *);             /* processes that it wants */
int plan_turns(const Plan *);             /* micro-batches: axes of time that
                                             are no twins */

/* A cluster file: a path, the name of one of HOME/models/clusters, or such
 * behind "16x8x", nodes and ranks a node; NULL: host.  What the machine knows
 * better (cores, memory) may be absent there: then it is asked.  err (1, 2)
 * naming the line. */
Cluster *cluster_read(const char *home, const char *spec, Arena *);
/* Those of HOME/models/clusters, sorted. */
const char **cluster_names(const char *home, Arena *, int *n);
int cluster_ranks(const Cluster *);       /* that it has; 0: any number */
/* From now on as one of so many ranks sees it, with its own memory, and rates
 * of so many threads. */
void cluster_share(Cluster *, int ranks, int threads);

/* compiler/near.c: the name that `word` may have meant, or NULL. */
const char *near_name(const char *word, const char *const *name, int n);
/* The same as the end of a message, `; did you mean "NAME"?`, or "": until
 * the next call. */
const char *near_hint(const char *word, const char *const *name, int n);

#endif
