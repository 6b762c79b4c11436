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

/* ---- fuzz_feature.c ---- */

/* What a pair may have: its name; for what a plan says one word, of which
 * this is one, or NULL; the axes of ranks and of turns that it takes. */
#define FEATURES(X) \
    X(ranks,             NULL,          1, 0) \
    X(two_axes,          NULL,          2, 0) \
    X(three_axes,        NULL,          3, 0) \
    X(turns,             NULL,          0, 1) \
    X(turns_of_turns,    NULL,          0, 2) \
    X(batch_split,       NULL,          1, 0) \
    X(inputs_apart,      NULL,          1, 0) \
    X(weights_split,     NULL,          1, 0) \
    X(dimension_by_two,  NULL,          2, 0) \
    X(two_dimensions,    NULL,          2, 0) \
    X(states_apart,      NULL,          1, 0) \
    X(small_buckets,     NULL,          1, 0) \
    X(exact,             NULL,          0, 0) \
    X(bf16,              NULL,          0, 0) \
    X(stages_of_a_role,  NULL,          0, 0) \
    X(gpipe,             "order",       0, 0) \
    X(one_f_one_b,       "order",       0, 1) \
    X(interleaved,       "order",       0, 1) \
    X(zb_h1,             "order",       0, 1) \
    X(auto_order,        "order",       0, 1) \
    X(uneven,            NULL,          1, 0) \
    X(gather_batch,      "gather",      1, 0) \
    X(gather_use,        "gather",      1, 0) \
    X(reduce_each,       NULL,          1, 1) \
    X(remade_none,       "recompute",   0, 0) \
    X(remade_all,        "recompute",   0, 0) \
    X(remade_to_fit,     "recompute",   0, 0) \
    X(constraints,       NULL,          1, 0) \
    X(compress,          NULL,          1, 0) \
    X(halos,             NULL,          1, 0) \
    X(rings,             NULL,          1, 0) \
    X(chunks,            NULL,          1, 0) \
    X(offload,           NULL,          0, 0) \
    X(spill,             NULL,          0, 0) \
    X(frozen,            NULL,          0, 0) \
    X(zero,              "partitioner", 1, 0) \
    X(hsdp,              "partitioner", 1, 0) \
    X(megatron,          "partitioner", 1, 0) \
    X(ulysses,           "partitioner", 1, 0)
typedef enum Feature {
#define X(name, word, ranks, turns) FEATURE_##name,
    FEATURES(X)
#undef X
    NFEATURE
} Feature;
typedef uint64_t FeatureSet;              /* bit f: feature f */
#define FEATURE_SET(name) ((FeatureSet)1 << FEATURE_##name)

typedef struct Draw { uint64_t state; } Draw;
Draw draw_of(uint64_t seed);
uint64_t draw_below(Draw *, uint64_t n);  /* 0 .. n - 1 */

/* Why no plan has the two; NULL: one may. */
const char *features_exclude(int, int);
/* What a pair is about. */
FeatureSet features_draw(Draw *);
void features_axes(FeatureSet, int *ranks, int *turns);
int features_count(FeatureSet);

/* How often two features stood in one plan; with itself: a feature did. */
typedef struct Cover { int64_t both[NFEATURE][NFEATURE]; } Cover;
void cover_add(Cover *, FeatureSet);
void cover_json(const Cover *);
void cover_print(const Cover *, int64_t pairs);

/* ---- fuzz_plan.c ---- */

/* A plan for the graph's leaves and values that has what is wanted, as far as
 * chance and the graph give it; and what it has.  home: of the partitioners. */
Plan *plan_draw(Draw *, const Graph *, Arena *, const char *home,
                FeatureSet want, FeatureSet *has);

/* Another value that the plan says how to lie, by its whole name; the lies are
 * the caller's. */
ValuePlan *value_add(Plan *, Arena *, const Node *);

/* fuzz.c: a model and a plan that has what the pair is about; of the families,
 * in turn from the seed's, the first that can hold it all, else most of it.
 * The options get the model's file and words; another attempt draws anew,
 * about the same. */
typedef struct Pair {
    Model *m;
    Graph *g;
    Plan *plan;
    FeatureSet has;
    Draw d;                               /* for what else is drawn */
} Pair;
Pair pair_draw(Options *, int64_t pair, int attempt);

/* fuzz_stage.c: makes a pipeline of the plan, where the model has scopes. */
void stages_draw(Draw *, Plan *, const Graph *, Arena *, FeatureSet want,
                 FeatureSet *has);

/* fuzz_rows.c: lays pictures over an axis by rows, where there are windows;
 * and tokens of attentions in one piece, whose keys then come round. */
void rows_draw(Draw *, Plan *, const Graph *, Arena *, FeatureSet want,
               FeatureSet *has);
void rings_draw(Draw *, Plan *, const Graph *, Arena *, FeatureSet want,
                FeatureSet *has);
void chunks_draw(Draw *, Plan *, const Graph *, Arena *, FeatureSet want,
                 FeatureSet *has);

/* fuzz_shipped.c: the plan of a shipped partitioner for the graph, with
 * options by chance; NULL: none is wanted, or it refuses. */
Plan *shipped_draw(Draw *, const Graph *, Arena *, const char *home,
                   FeatureSet want, FeatureSet *has);

#endif
