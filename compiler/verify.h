/* verify.h -- the steps of a proof, for one model and for many. */
#ifndef DPC_VERIFY_H
#define DPC_VERIFY_H

#include "compiler/options.h"

/* A graph as a pass left it. */
typedef struct Stop { const char *pass; const Graph *g; } Stop;

typedef struct Trail {
    Arena *arena;
    Stop *stop;
    uint32_t n, cap;
    void (*next)(void *, const char *, const Graph *, const Graph *);
} Trail;                                  /* next: the job's own check */

/* All passes over an entry, for all roles, *n of them; each graph on the way
 * is in the trail. */
Graph **verify_run(const Graph *, Job *, Trail *, int *n);
/* Do the last graphs of the trail compute what the entry does?  Returns how
 * many values were compared; err (6) for the first that differs. */
uint32_t verify_values(const Options *, const Trail *);
/* err (6) with what the checker of schedules says. */
void verify_schedule(const Options *, const Model *, Graph *const *, int n);

/* fuzz.c: --fuzz N; returns the exit code. */
int verify_fuzz(const Options *);

/* ---- fuzz_plan.c ---- */

/* What a drawn plan has; the bits of a set. */
#define FEATURES(X) \
    X(ranks) X(two_axes) X(three_axes) X(turns) X(turns_of_turns) \
    X(batch_split) X(inputs_apart) X(weights_split) X(dimension_by_two) \
    X(two_dimensions) X(states_apart) X(small_buckets) X(exact) X(bf16) \
    X(stages) X(stages_of_a_role) X(weights_apart) X(uneven) \
    X(gather_batch) X(gather_use) X(reduce_each) X(remade_none) \
    X(remade_all) X(remade_to_fit) X(constraints)
typedef enum Feature {
#define X(name) FEATURE_##name,
    FEATURES(X)
#undef X
    NFEATURE
} Feature;
extern const char *const feature_names[NFEATURE];

typedef struct Draw { uint64_t state; } Draw;
uint64_t draw_below(Draw *, uint64_t n);  /* 0 .. n - 1 */
/* A plan for the graph's leaves and values, and what it has. */
Plan *plan_draw(Draw *, const Graph *, Arena *, uint32_t *features);

/* fuzz_stage.c: makes a pipeline of the plan, where the model has scopes. */
void stages_draw(Draw *, Plan *, const Graph *, Arena *, uint32_t *features);

#endif
