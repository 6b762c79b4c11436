/* dpc_rt.h -- the one header that compiler, emitted files and runtime share.
 *
 * Part 1 is the layout of the emitted tables: one Unit a binary, with its
 * leaves (all that outlives a step) and its programs.  A program is a flat
 * list of steps; nothing loops at run time.  Tables hold numbers and names,
 * never pointers into memory: an address is a place in a space, and the
 * runtime allocates each space once, before step 0, exactly as large as the
 * table says.
 *
 * Part 2 is what the runtime promises: plain functions that return a
 * DpcStatus, never exit, and allocate nothing once dpc_open has returned. */
#ifndef DPC_RT_H
#define DPC_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DPC_ABI 14
#define DPC_TEXT_OF(x) #x
#define DPC_TEXT(x) DPC_TEXT_OF(x)
/* Stands in the archive of a runtime, by which a compiler knows its layout. */
#define DPC_LAYOUT "dpc_rt layout " DPC_TEXT(DPC_ABI)
enum { DPC_NDIM = 8, DPC_NAXIS = 15, DPC_NBATCH = 4,
       DPC_NHOP = 64 };                   /* hops of one step, at most */

/* ---- 1. tables ---- */

typedef enum DpcDtype {
    DPC_F32, DPC_BF16, DPC_I32, DPC_U8, DPC_NDTYPE
} DpcDtype;

/* Axes that split a dimension, major first: a nibble each, axis + 1, the
 * first axis in the lowest nibble.  0: not split. */
typedef uint64_t DpcSplit;
/* A set of mesh axes: bit i is axis i. */
typedef uint16_t DpcAxes;

typedef enum DpcAxisKind { DPC_SPACE, DPC_STAGE, DPC_TIME } DpcAxisKind;
typedef struct DpcAxis {
    const char *name;
    int32_t size;
    uint8_t kind;                         /* ranks, roles, or turns of one */
    int32_t twin;                         /* TIME: axis + 1 whose ranks meet
                                             in its turns (a ring); 0 */
} DpcAxis;

typedef enum DpcSpace {
    DPC_LEAVES,                           /* params and states: checkpoints */
    DPC_ARENA,                            /* transient: dead between steps */
    DPC_IO,                               /* inputs, scalars, outputs */
    DPC_HOST_LEAVES,                      /* as LEAVES and ARENA, in the host's */
    DPC_HOST_ARENA,                       /* memory: only copies touch them */
    DPC_NSPACE
} DpcSpace;

/* A buffer: the bytes of a value.  Of several slots, slot k holds instance
 * `instance` + k and lies at  at + k * stride; a step means slot turn % slots.
 * The value is the planner's word for what the bytes mean, and the checker
 * holds it to that word. */
typedef struct DpcBuf {
    int64_t at, size, stride;             /* bytes */
    uint16_t slots;
    uint8_t space;
    uint8_t dtype;                        /* DpcDtype + 1; 0: untyped bytes */
    uint32_t value, instance;             /* value 0: scratch, of one step */
    DpcAxes split, pending;               /* that part it; to be folded over */
    DpcAxes along;                        /* time axes that count instances */
} DpcBuf;

/* What a step does with an operand; both: it adds to what is there. */
enum { DPC_READ = 1, DPC_WRITE = 2 };

typedef enum DpcLeafKind {
    DPC_PARAM, DPC_STATE, DPC_INPUT, DPC_SCALAR, DPC_OUTPUT
} DpcLeafKind;

/* Something with a name that the world outside the step can see.  PARAM and
 * STATE are unit-wide; INPUT, SCALAR, OUTPUT are matched by name over the
 * programs.  Sizes are global; this rank's part follows from split and from
 * its coordinates on the mesh. */
typedef struct DpcLeaf {
    const char *name, *loc;               /* "unet.mid.conv.weight", Lua line */
    const char *doc;                      /* of a SCALAR: for --help */
    uint8_t kind, dtype, ndim;
    bool trainable;
    bool residual;                        /* STATE: of one plan; zeros where a
                                             checkpoint holds another's */
    int64_t dim[DPC_NDIM];
    DpcSplit split[DPC_NDIM];
    int32_t role;                         /* PARAM, STATE: lives on its ranks
                                             only; -1: on all */
    uint8_t space;                        /* PARAM, STATE: DPC_LEAVES, or */
    int64_t at, bytes;                    /* DPC_HOST_LEAVES; where in it */
    double value;                         /* SCALAR: what it is by default */
    int64_t limit;                        /* INPUT: it indexes a table of so */
    const char *table;                    /* many rows at that line; 0: none */
} DpcLeaf;

/* What a program makes of a PARAM or STATE: values of buffers; the same when
 * it only reads. */
typedef struct DpcHeld { uint32_t leaf, before, after; } DpcHeld;

/* A program's view of an INPUT, SCALAR or OUTPUT. */
typedef struct DpcPort { uint32_t leaf, buf; } DpcPort;

/* What a kernel may know beside its operands; data, so that the ranks of a
 * role share one schedule. */
typedef struct DpcEnv {
    uint64_t seed, step;                  /* keys of counter-based random */
    const int64_t *pos;                   /* global offset of each split loop */
    int32_t thread, nthread;
    void *scratch;
} DpcEnv;

typedef void DpcKernelFn(void *const *p, const DpcEnv *env);

typedef struct DpcKernel {
    const char *name;                     /* k_<hash of its text> */
    DpcKernelFn *fn;                      /* NULL: a unit for another target */
    uint16_t nin, nout;                   /* operands, then results, of each
                                             member of a step */
    const uint8_t *over;                  /* [nout][nin]: that result may lie in
                                             that operand's very bytes; NULL:
                                             none in any */
} DpcKernel;

/* What a watched kernel would store that is not finite: who is to blame.
 * A blame is the number of a value, from 1; 0: nobody here; negative: that
 * value made a NaN of an infinity that came from outside. */
typedef struct DpcSeen { int32_t nan, inf; } DpcSeen;
/* The same loops as a kernel's, without stores; it is called before. */
typedef void DpcWatchFn(void *const *p, const DpcEnv *env, DpcSeen *seen);
enum { DPC_OUTSIDE = INT32_MIN };         /* read from memory as it is */
enum { DPC_NOBODY, DPC_LOADED, DPC_MADE, DPC_FOLDED };
/* How a value of a watched kernel came to be. */
typedef struct DpcMade {
    int16_t kind, own;                    /* its number, 0: cannot be blamed */
    int16_t arg[3];                       /* MADE: place of a value + 1, or 0 */
} DpcMade;

/* c[batch, m, n] (+)= sum over k of a[batch, m, k] * b[batch, k, n];
 * strides in elements, any of them may be 0 (broadcast) but c's.  Sums are
 * made in f32. */
typedef struct DpcDot {
    uint8_t dtype_a, dtype_b, dtype_c, nbatch;
    bool accumulate;                      /* add to what c holds; c is f32 */
    int64_t m, n, k, batch[DPC_NBATCH];
    int64_t a_m, a_k, a_batch[DPC_NBATCH];
    int64_t b_k, b_n, b_batch[DPC_NBATCH];
    int64_t c_m, c_n, c_batch[DPC_NBATCH];
} DpcDot;

/* One of the three convolutions that close under differentiation.
 *   FWD  x, w -> y      DX  y, w -> x      DW  x, y -> w
 * x is [batch, c, h, w], w is [o, c / groups, kh, kw], y is [batch, o, oh, ow]
 * by name; in memory x and y are channels-last when `nhwc`, else row-major;
 * w is row-major, or, when `packed`, in the order that dpc_conv_pack_bytes
 * measures and a PACK step makes from one of dtype_plain. */
typedef enum DpcConvKind { DPC_CONV, DPC_CONV_DX, DPC_CONV_DW } DpcConvKind;
typedef struct DpcConv {
    uint8_t kind, dtype_x, dtype_w, dtype_y;
    bool nhwc, packed;
    uint8_t dtype_plain;
    int64_t batch, c, h, w, o, kh, kw, oh, ow, groups;
    int64_t stride[2], pad[2], dilate[2]; /* pad: before; dilate 1 is dense */
} DpcConv;

typedef enum DpcCollKind {
    DPC_ALL_REDUCE, DPC_REDUCE_SCATTER, DPC_ALL_GATHER, DPC_ALL_TO_ALL,
    DPC_SEND, DPC_RECV, DPC_HALO, DPC_RING
} DpcCollKind;
typedef enum DpcFold { DPC_SUM, DPC_MAX, DPC_LSE } DpcFold;

/* One collective over the ranks that differ only in `axes`, or one end of a
 * hop: the bytes of a value go from a rank of one role to the rank of another
 * that differs from it in the stage axis, `axes`, only.  The dimension
 * that is joined or split is written as [outer, size, inner] elements of the
 * larger tensor, size being the whole one.  An all_to_all joins one dimension
 * of its result, written so, and splits another of its operand: to_outer,
 * to_size, to_inner.  A halo is written as its operand, whose parts are `size`
 * long of `rows` in all; those of its result are `step` long, and hold `lo`
 * rows of the parts before in front, and `hi` of those behind at the end; zeros
 * beyond the ends of the whole. */
typedef struct DpcColl {
    uint8_t kind, dtype, fold;
    DpcAxes axes;
    int64_t outer, size, inner;
    int64_t to_outer, to_size, to_inner;
    int32_t peer;                         /* hop: role at the other end, */
    uint32_t hop;                         /* and its number, the same there */
    int32_t lo, hi;
    int32_t ranks;                        /* all_to_all: that exchange; sizes
                                             before and behind do not say */
    int64_t rows, step;                   /* of a halo */
} DpcColl;

typedef enum DpcStepKind {
    DPC_STEP_KERNEL,                      /* call: unit kernel; the last arg is
                                             env.scratch, if it wants any */
    DPC_STEP_DOT,                         /* args a, b, c, scratch */
    DPC_STEP_CONV,                        /* args in, in, out, scratch */
    DPC_STEP_PACK,                        /* call: conv; args w, packed */
    DPC_STEP_UNPACK,                      /* call: conv; args packed, dw */
    DPC_STEP_COLL,                        /* calls call, call + 1, ...: args in,
                                             out of each member */
    DPC_STEP_COPY,                        /* args from, to: same bytes */
    DPC_STEP_HOP,                         /* colls call, call + 1, ...: sends
                                             and receives, all at once; arg:
                                             what each sends, or gets */
    DPC_NSTEPKIND
} DpcStepKind;

/* Each runs its steps in order, beside the others: one computes, one has the
 * collectives, one the hops, and one the copies from and to the host. */
enum { DPC_COMPUTE, DPC_COLLECT, DPC_HOPS, DPC_COPIES, DPC_NSTREAM };

/* Of a dimension of `size`, the part of this rank and turn: where it begins,
 * or how many elements it holds; without a split, the number `size` itself. */
typedef struct DpcPos { DpcSplit split; int64_t size; bool held; } DpcPos;

typedef struct DpcStep {
    uint8_t kind, stream;                 /* of DPC_NSTREAM */
    uint16_t turn;                        /* of the time axes, row-major */
    uint32_t node;                        /* program.node: for messages */
    uint32_t call;                        /* index by kind */
    uint32_t arg, narg;                   /* program.arg: buffers, and .how */
    uint32_t pos, npos;                   /* program.pos */
    uint32_t wait, nwait;                 /* program.wait: events to await */
    int32_t event;                        /* set when done; -1 none */
} DpcStep;

/* Where a step comes from. */
typedef struct DpcNode { const char *name, *op, *loc; } DpcNode;

typedef struct DpcProgram {
    const char *entry;                    /* "train", "eval", "init", ... */
    int32_t role;                         /* whose ranks run it; -1: all */
    uint32_t nstep, nbuf, nnode, nport, nevent, nheld;
    const DpcStep *step;
    const DpcBuf *buf;
    const DpcNode *node;
    const DpcPort *port;
    const DpcHeld *held;
    const uint32_t *arg, *wait;
    const uint8_t *how;                   /* DPC_READ | DPC_WRITE, by arg */
    const DpcPos *pos;
    const uint32_t *watch, *watched;      /* by step: where the nodes of its
                                             values begin in `watched` */
    int64_t arena, io, host;              /* bytes of these spaces; of
                                             DPC_HOST_ARENA */
    int64_t arena_lower;                  /* largest sum of live bytes */
    double flops;                         /* of one run, on this rank */
    int64_t batch;                        /* global samples a run; 0: none */
} DpcProgram;

/* What `train`, `sample`, ... run: entries in order, each a number of times.
 * The number is a SCALAR's value when `count` names one. */
typedef struct DpcRun {
    const char *command, *entry, *count;
    int32_t times;
} DpcRun;

typedef struct DpcUnit {
    int32_t abi;
    const char *model, *version, *hash;   /* hash: of graph and plan, hex */
    uint32_t naxis, nleaf, nprogram, nkernel, ndot, nconv, ncoll, nrun;
    int32_t threads;                      /* of a rank, for which oneDNN's
                                             sizes were asked; 0: any */
    const DpcAxis *axis;
    const DpcLeaf *leaf;
    const DpcProgram *program;
    const DpcKernel *kernel;
    DpcWatchFn *const *watch;             /* by kernel, NULL: none; or NULL */
    const DpcDot *dot;
    const DpcConv *conv;
    const DpcColl *coll;
    const DpcRun *run;
    const int64_t *leaves;                /* by role: bytes of DPC_LEAVES on
                                             each of its ranks; */
    const int64_t *host_leaves;           /* of DPC_HOST_LEAVES; NULL: none */
    const char *meta;                     /* JSON: captions, data */
} DpcUnit;

/* ---- 2. functions ---- */

typedef enum DpcStatus {
    DPC_OK,
    DPC_USER,                             /* exit 1: an input is wrong */
    DPC_USAGE,                            /* exit 2 */
    DPC_MEMORY,                           /* exit 3 */
    DPC_ENV,                              /* exit 5: disk, MPI, lost rank */
    DPC_NUMERICS,                         /* exit 7: NaN policy */
    DPC_BUG                               /* exit 70 */
} DpcStatus;

extern const char dpc_layout[];
int dpc_exit_code(DpcStatus);
/* Text of this thread's last failure: "place: error: thing: what; do". */
const char *dpc_last_error(void);
/* Set that text; returns `s`, so that a failing function may say
 * `return dpc_fail(DPC_USER, "%s: error: ...", ...)`. */
DpcStatus dpc_fail(DpcStatus s, const char *f, ...)
    __attribute__((format(printf, 2, 3)));

/* For watched kernels: who is to blame for a value that is not finite, made
 * by value `own` of up to three with their blames; and a store of one. */
int32_t dpc_blame(int32_t own, float value, float a, int32_t blame_a, float b,
                  int32_t blame_b, float c, int32_t blame_c);
void dpc_see(DpcSeen *, float value, int32_t blame);
/* The blames w of n values x of one point; what is made of others stands
 * behind them.  Those of folds stay. */
void dpc_trace(const DpcMade *, int n, int32_t shift, const float *x,
               int32_t *w);

/* Every binary has an option of that name, which a scalar would not reach;
 * not so `steps` and `seed`, which are both. */
bool dpc_option_taken(const char *scalar);

/* How many roles there are: the sizes of stage axes, 1 without. */
int32_t dpc_roles(const DpcUnit *);

int64_t dpc_dtype_size(DpcDtype);
const char *dpc_dtype_name(DpcDtype);     /* "f32" */

/* oneDNN behind one shim (dnn.c), for the host target.  Sizes are asked by
 * the compiler, so that the plan knows them; the runtime builds the
 * primitives in dpc_dnn_open and only runs them afterwards. */
int64_t dpc_dot_scratch(const DpcDot *);          /* bytes; -1: cannot */
int64_t dpc_conv_scratch(const DpcConv *);
int64_t dpc_conv_pack_bytes(const DpcConv *);     /* of the packed weight */
typedef struct DpcDnn DpcDnn;
DpcStatus dpc_dnn_open(const DpcUnit *, DpcDnn **);
DpcStatus dpc_dnn_dot(DpcDnn *, uint32_t call, void *a, void *b, void *c,
                      void *scratch);
DpcStatus dpc_dnn_conv(DpcDnn *, uint32_t call, void *in0, void *in1,
                       void *out, void *scratch);
DpcStatus dpc_dnn_pack(DpcDnn *, uint32_t call, void *from, void *to);
DpcStatus dpc_dnn_unpack(DpcDnn *, uint32_t call, void *from, void *to);
void dpc_dnn_close(DpcDnn *);

/* Prove from the tables that every schedule of the unit can be run: nothing
 * names what is not there, no race, no deadlock, every operand holds its
 * value.  DPC_BUG, with both steps named, where one cannot. */
DpcStatus dpc_check(const DpcUnit *);

/* The whole program of an emitted binary: parses argv, runs, returns the
 * exit code of design 11. */
int dpc_main(int argc, char **argv, const DpcUnit *);

#endif
