/* options.h -- what the command line said. */
#ifndef DPC_OPTIONS_H
#define DPC_OPTIONS_H

#include "compiler/lua.h"
#include "runtime/dpc_rt.h"

#define DPC_VERSION "0.1.0"

typedef enum CommandId {
#define COMMAND(name, ...) CMD_##name,
#include "compiler/options.def"
    NCOMMAND
} CommandId;

enum { NLIST = 64 };
typedef struct List { const char *at[NLIST]; int n; } List;

typedef enum OptionKind {
    OPT_FLAG, OPT_TEXT, OPT_MAYBE, OPT_LIST, OPT_COUNT, OPT_INT, OPT_REAL
} OptionKind;
#define HOLD_FLAG bool
#define HOLD_TEXT const char *
#define HOLD_MAYBE const char *           /* "": without a text */
#define HOLD_LIST List
#define HOLD_COUNT int64_t                /* 0: not given */
#define HOLD_INT int64_t
#define HOLD_REAL double

typedef struct Options {
    CommandId command;
    const char *home;                     /* holds models/, passes/, runtime/ */
    const char *runtime_lib;              /* libdpc_rt.a; NULL: not found */
    const char *const *file;              /* arguments that are no options */
    int nfile;
    Arena *arena;                         /* lives as long as the command */
#define OPTION(field, name, letter, kind, arg, on, doc) HOLD_##kind field;
#include "compiler/options.def"
} Options;

typedef struct CommandInfo {
    const char *name, *args;
    int least, most;
    const char *doc;
    int (*fn)(const Options *);           /* returns the exit code */
} CommandInfo;
extern const CommandInfo commands[NCOMMAND];

typedef struct OptionInfo {
    const char *name;                     /* "emit-dir" */
    char letter;
    OptionKind kind;
    const char *arg, *doc;
    uint32_t commands;                    /* bit i: command i takes it */
    size_t at;                            /* in Options */
} OptionInfo;
/* All options; *n their number. */
const OptionInfo *options_table(int *n);

/* options.c: prints to stderr and exits 2 for what it cannot read. */
void options_parse(Options *, int argc, char **argv);
_Noreturn void usage(const char *, ...) __attribute__((format(printf, 1, 2)));

/* help.c */
void help_command(CommandId, FILE *);
void help_all(FILE *);

#define COMMAND(name, ...) int cmd_##name(const Options *);
#include "compiler/options.def"

int cmd_eval_cases(const Options *);       /* dpc eval --cases */
void model_compile(const Options *, const Model *);       /* cmd_compile.c */

void cluster_print(const Cluster *, FILE *);   /* cmd_cluster.c: as a file */
Cluster *cluster_probe(const Options *);       /* cluster_probe.c */

/* driver.c: what the commands that read a model share. */
Model *model_open(const Options *);
/* The plan that --plan or --partitioner say; one rank: an empty mesh. */
Plan *plan_open(const Options *, Graph *const *entry, int nentry);
/* usage where the flags that choose a plan contradict each other, or their
 * words mean nothing. */
void plan_flags_check(const Options *, Graph *const *entry, int nentry);
/* usage where two results would be one file, or one is no file. */
void outputs_check(const Options *);
/* --ranks, or as many as the cluster has; usage where it has fewer. */
int ranks_wanted(const Options *);
int ranks_most(const Options *);          /* of the cluster, and of all */
/* Threads of a rank: they share the cores of a node. */
int plan_threads(const Plan *, const Cluster *);
/* What --dtype says that contractions take. */
DType dtype_wanted(const Options *);
Job job_open(const Options *, const Plan *);
Graph *graph_read(const Options *, const char *path);     /* "-": stdin */
void graph_print_short(const Graph *, FILE *);
void pass_name_check(const char *name, const char *option);
void json_quote(FILE *, const char *);
/* Ends with the runtime's last error, which has place and "error:" already. */
_Noreturn void runtime_fail(DpcStatus);
/* Does runtime_lib read the tables that this compiler writes? */
bool runtime_fits(const Options *);       /* cmd_doctor.c */
char *dims_text(Arena *, const char *kind, int ndim, const int64_t *dim);
                                          /* "f32[8,4]" */

#endif
