/* unit.h -- what codegen is asked for: scheduled graphs become one binary. */
#ifndef DPC_UNIT_H
#define DPC_UNIT_H

#include "ir/target.h"

/* What to write; EMIT_BIN into `output`, the rest into `emit_dir`. */
enum { EMIT_C = 1, EMIT_CUDA = 2, EMIT_CUBIN = 4, EMIT_BIN = 8 };

/* A member of a command of the binary: an entry, `times` times, or as often
 * as the scalar `count` says. */
typedef struct UnitRun {
    const char *command, *entry, *count;
    int times;
} UnitRun;

typedef struct UnitOptions {
    const char *model, *version;          /* names for DpcUnit */
    const char *meta;                     /* JSON of the model */
    Graph *const *entry;                  /* PHASE_SCHED, by name; "init" last;
                                             defaults and docs of scalars are
                                             attributes of their nodes */
    int nentry;
    const UnitRun *run;
    int nrun;
    const Target *target;
    const Cluster *cluster;               /* march, cores */
    const char *output, *emit_dir;
    const char *home;                     /* #include "runtime/dpc_rt.h" */
    const char *runtime_lib;              /* libdpc_rt.a; NULL: not found */
    const char *cc, *cache;               /* C compiler; folder of objects by
                                             hash, NULL: no cache */
    unsigned emit;
    bool verbose;                         /* print commands to stderr */
} UnitOptions;

/* Write what `emit` names; returns the exit code: 0, or 5 with a message on
 * stderr where compiler or disk fail.  err where the graph is wrong. */
int codegen_unit(const UnitOptions *, Arena *);

#endif
