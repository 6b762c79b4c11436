/* unit.h -- scheduled graphs become one binary: tables, kernels, link.
 *
 * The tables are those of runtime/dpc_rt.h, printed as C; kernels are shared
 * by the hash of their text.  cc runs on a few files at once, and what it made
 * is kept in a cache under the hash of its input and command. */
#ifndef DPC_UNIT_H
#define DPC_UNIT_H

#include "codegen/cache.h"
#include "codegen/kernel.h"
#include "codegen/library.h"

typedef struct UnitRun {
    const char *command, *entry, *count;
    int times;
} UnitRun;

typedef struct UnitOptions {
    const char *model, *version;
    const char *meta;                     /* JSON text; NULL: {} */
    const UnitRun *run;
    int nrun;
    const char *out;                      /* the binary; NULL: none */
    const char *emit_dir;                 /* where emitted texts go; NULL */
    bool emit_c, emit_cuda, emit_cubin;
    const char *const *arch;              /* of cubins: "sm_80", ... */
    int narch;
    const char *cc, *march;               /* "cc", "native" */
    bool others;                          /* tcc may compile what need not be
                                             fast, and gold link */
    const char *runtime;                  /* libdpc_rt.a */
    const char *include;                  /* folder of dpc_rt.h */
    const char *link;                     /* flags after it: -ldnnl ... */
    const char *cache;                    /* folder; NULL: no cache */
    int threads;                          /* of a rank: fixes oneDNN's sizes */
    int jobs;                             /* compilers at once */
    bool verbose;
} UnitOptions;

typedef struct UnitReport {
    int kernels, compiled, cached;        /* files through cc, out of cache */
    int64_t leaves, arena, lower, io;     /* bytes of a rank: the most of all
                                             roles and entries; */
    int64_t host_leaves, host;            /* of the host's memory */
    int roles;
    double seconds;                       /* in cc and ld */
} UnitReport;

/* Build what `o` asks for from graphs in PHASE_SCHED, one an entry and role.
 * err (5) when cc fails or cannot be run, or a file cannot be written. */
void unit_build(Graph *const *entry, int n, const UnitOptions *o, Arena *,
                UnitReport *);

/* The binary of an earlier compile with the same input (graphs, plan and
 * options as text), if the cache has it: written to o->out.  unit_remember
 * puts it there after unit_build. */
bool unit_recall(const char *input, size_t n, const UnitOptions *o, Arena *,
                 UnitReport *);
void unit_remember(const char *input, size_t n, const UnitOptions *o, Arena *,
                   const UnitReport *);

/* oneDNN sizes its scratch by the number of threads: set it before passes. */
void unit_threads(int threads);

/* ---- between the files of unit ---- */

/* A kernel as a program describes it, and its row in the unit. */
typedef struct UnitCall { Kernel *kernel; uint32_t row; } UnitCall;

typedef struct Program {
    const Graph *g;
    DpcStep *step;
    uint32_t nstep, stepcap;
    DpcBuf *buf;
    uint32_t nbuf, bufcap;
    DpcNode *node;
    uint32_t nnode, nodecap;
    DpcPort *port;
    uint32_t nport, portcap;
    DpcHeld *held;
    uint32_t nheld, heldcap;
    uint32_t *arg, narg, argcap;
    uint8_t *how;                         /* by arg */
    uint32_t howcap;
    uint32_t *wait, nwait, waitcap;
    DpcPos *pos;
    uint32_t npos, poscap;
    uint32_t *watch, watchcap;            /* by step */
    uint32_t *watched, nwatched, watchedcap;
    uint32_t *watched_at;                 /* by graph node: of the kernel that
                                             makes it first; place + 1 */
    int turns;                            /* of a step */
    uint32_t *buf_of;                     /* node x turns: index + 1 of it */
    uint32_t *node_of;                    /* by graph node: row + 1 */
    uint32_t *coll_of;                    /* by launch: first row + 1 */
    UnitCall *call_of;                    /* by a kernel's first node */
    int64_t scratch_at;                   /* of the step in the making */
    double flops;
    int64_t batch;
} Program;

typedef struct UnitKernel {
    const char *name, *text;
    const char *watch, *watch_name;       /* NULL: none */
    int nwatch;                           /* values that it may blame */
    int nin, nout;
    uint8_t *over;                        /* as DpcKernel's */
} UnitKernel;

typedef struct Unit {
    Arena *arena;
    Program *program;
    int nprogram;
    const Mesh *mesh;
    DpcLeaf *leaf;
    uint32_t nleaf, leafcap;
    UnitKernel *kernel;
    uint32_t nkernel, kernelcap;
    DpcDot *dot;
    uint32_t ndot, dotcap;
    DpcConv *conv;
    uint32_t nconv, convcap;
    DpcColl *coll;
    uint32_t ncoll, collcap;
    int64_t *leaves, *host_leaves;        /* by role */
    int nrole;
    bool cuda;                            /* texts of kernels for that target */
} Unit;

Unit *unit_new(Graph *const *entry, int n, bool cuda, Arena *);
/* unit_leaf.c: DpcLeafKind, or -1; the row of a leaf, by kind and name; err
 * where another entry has it of another type or on another role.  A graph's
 * leaves; then places for them all. */
int unit_leaf_kind(Op);
uint32_t unit_leaf(Unit *, int kind, const char *name, const Graph *, Ref);
void unit_leaves_add(Unit *, const Graph *);
void unit_leaves_place(Unit *);
/* unit_coll.c: DpcCollKind, or -1; the first row of a launch's members, which
 * all turns share. */
int unit_coll_kind(Op);
uint32_t unit_colls(Unit *, Program *, uint32_t launch);
/* The row of a kernel, which equal ones share. */
uint32_t unit_kernel(Unit *, const Kernel *);
/* Whose values the watch of kernel `call` will blame in the step that comes
 * next: a list of n like kernels. */
void unit_watch(Unit *, Program *, uint32_t call, Kernel *const *k, int n);
/* The limit of an input's values, if they index a table. */
void unit_index(const Graph *, Ref input, DpcLeaf *, Arena *);
uint32_t unit_node(Unit *, Program *, Ref);   /* the row of a node */
/* The tables themselves, in the unit's arena; no kernel has a function. */
DpcUnit unit_rows(const Unit *, const char *model);
/* C text of the tables; kernels are declared, not defined. */
char *unit_text(const Unit *, const UnitOptions *);

/* ---- cc.c ---- */

typedef struct Source {
    const char *name, *text;              /* "k0.c" */
    const char *flags;                    /* after the others; NULL: none */
    bool small;                           /* see Parts */
} Source;

/* Texts that may stand in any file of their kind: kernels, or watches. */
typedef struct Parts {
    const char *stem, *suffix;            /* "k", "c": k0.c, ... */
    const char *head, *flags;             /* of each file */
    bool small;                           /* tcc compiles them, if any */
    const char **text;
    uint32_t n;
    int files;                            /* at most */
} Parts;
/* In turn over the files: like ones, which cost alike, come in runs. */
int parts_deal(const Parts *, Source *out, Arena *);
/* Compile n kinds of parts and a source, and link them; what the cache has is
 * not compiled. */
void cc_build(const Parts *, int n, const Source *, const char *flags,
              const UnitOptions *, Arena *, UnitReport *);

#endif
