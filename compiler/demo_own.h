/* demo_own.h -- what the stages of the demo share. */
#ifndef DPC_DEMO_OWN_H
#define DPC_DEMO_OWN_H

#include "compiler/demo.h"
#include "compiler/options.h"

enum { ROWS = 80 };                       /* captions of a grid, and pictures
                                             that are drawn at a time */

typedef enum StageId {
    S_COMPILE, S_JUDGE, S_CLIP, S_PRIOR, S_DECODER, S_SAMPLE, S_BASE, S_LORA,
    S_SCORE, NSTAGES
} StageId;

/* A model that a demo compiles; a stage of its name trains it. */
typedef struct DemoModel {
    const char *name, *file, *define;     /* file: below models/; -D or NULL */
    const char *as, *from;                /* params AS... start as those of the
                                             model FROM's averages; NULL */
} DemoModel;

enum { NMODEL = 5 };
typedef struct DemoKind {
    const char *name, *out;               /* out: folder, unless one is given */
    int nstage, nmodel;
    StageId stage[NSTAGES];
    DemoModel model[NMODEL];
} DemoKind;
extern const DemoKind demo_kinds[];       /* by DemoId */

typedef struct Demo {
    const Options *o;
    Arena *arena;
    const DemoKind *kind;
    const char *out, *data, *self;        /* folders; this executable */
    int ranks;
    int64_t seed;
    int from;                             /* the first stage that is run */
    Report report;
} Demo;

/* A command line: NULL ends the list. */
typedef struct Line { const char *arg[48]; int n; } Line;
void line_add(Line *, ...) __attribute__((sentinel));

/* demo_chain.c */
/* OUT/a/b... */
char *demo_path(const Demo *, const char *, ...)
    __attribute__((format(printf, 2, 3)));
/* `dpc run -n RANKS OUT/bin/MODEL COMMAND`: the head of a line. */
Line demo_line(const Demo *, const char *model, const char *command);
/* Runs one line; its seconds.  err_code when it fails, with the command and
 * how to go on.  out: file of its stdout, then its talk goes to a log, which
 * is shown on failure; NULL: both are ours. */
double demo_run(Demo *, StageId, const Line *, const char *out);
void demo_compile(Demo *);
void demo_train(Demo *, StageId);
/* Fills the report's table of models from what trainings left behind. */
void demo_collect(Demo *);
extern const char *const demo_stages[NSTAGES];
/* Runs a model's `eval` on the test photographs; a number that it printed. */
void demo_eval(Demo *, StageId, const char *model);
double demo_number(const Demo *, const char *model, const char *key);
/* A model of the demo, read again. */
Model *demo_model(const Demo *, const char *model);
/* Batch of a model's `train` and `eval`: its option of that name. */
int64_t demo_batch(Demo *, const char *model);

/* cmd_demo.c */
/* self: the program that compiles and runs, dpc.  err_code (5) where the
 * photographs are missing. */
Demo demo_open(const Options *, const char *self);
/* All stages from d->from on, and the report; gates missed. */
int demo_all(Demo *);

/* demo_draw.c */
/* The head of a line that draws: the sampler and its three checkpoints. */
Line demo_sampler(const Demo *);
void demo_sample(Demo *);
void demo_score(Demo *);

/* demo_edit.c */
void demo_edit_score(Demo *);

#endif
