/* kernel.h -- a group of nodes described as one loop nest, for any target.
 *
 *     for outer atoms (parallel) { pre; for inner atoms {...} ...; tail }
 *
 * An *atom* is one loop.  Atoms come from unifying, along the edges of the
 * group, the letters of the nodes' signatures; where one node sees a
 * dimension and another its factors, the dimension is two atoms.  The atoms
 * that all folds of a kernel keep are the outer ones; a fold that keeps more is
 * a *table* of the row.  A value that needs a finished fold stands in a later
 * loop, or behind the loops.  Values are computed again in each loop that needs
 * them: rows are short, and caches quick.  This one form is a map, a norm, a
 * softmax, their gradients with the sums of their gains, a column sum and a
 * total. */
#ifndef DPC_KERNEL_H
#define DPC_KERNEL_H

#include "ir/target.h"
#include "runtime/dpc_rt.h"

enum { KATOM = 24, KPOS = 8, KDATA = 16 };
typedef uint32_t Atoms;                   /* set of atoms */

/* An index: at + sum of coef * atom + sum of pos * env->pos. */
typedef struct Affine { int64_t at, coef[KATOM], pos[KPOS]; } Affine;

/* Holds where lo <= of < hi and `by` divides it. */
typedef struct Guard { Affine of; int64_t lo, hi, by; } Guard;
/* A further term of an index: mul * (of / by). */
typedef struct Quot { Affine of; int64_t by, mul; } Quot;

typedef enum ValueKind {
    VAL_CONST,                            /* num */
    VAL_LOAD,                             /* buffer at index; 0 off guard */
    VAL_TABLE,                            /* the same of a constant's data */
    VAL_EXPR,                             /* EXPR of `op` over arg */
    VAL_INDEX,                            /* the index itself, as a number */
    VAL_RANDOM,                           /* draw for the global index */
    VAL_PICK,                             /* guard ? arg 0 : arg 1 */
    VAL_FOLD                              /* arg 0 folded over `over` */
} ValueKind;

typedef struct Value {
    ValueKind kind;
    DType dtype;                          /* of the number that it is */
    Ref node;                             /* a node whose value it is, or a
                                             part of it */
    Op op;                                /* EXPR; RANDOM: none */
    bool round;                           /* to bf16, in its register */
    int narg, arg[3];                     /* values; -1 none */
    int row;                              /* LOAD: value that gives the row, */
    int64_t row_stride, rows;             /* of so many elements, so many, */
    int row_pos;                          /* less env->pos of it; -1 */
    double num;
    int buf;                              /* LOAD: input; TABLE: table */
    Affine at;
    int nguard, nquot;
    Guard *guard;
    Quot *quot;
    int64_t id;                           /* RANDOM */
    const char *dist;
    Fold fold;
    Atoms over;                           /* FOLD: the loops folded away */
    Atoms atoms;                          /* that it depends upon */
    int level;                            /* folds that come before it */
} Value;

/* A store of a value into output `out` (a buffer after the inputs); where it
 * is `cut`, inside of the guard only. */
typedef struct Store { int out, value; bool cut; Affine at; Guard in; } Store;

typedef struct Loop {
    Atoms atoms;
    int level;
    int npre, *pre;                       /* without inner atoms, first */
    int nvalue, *value;                   /* values of the body, in order */
    int nfold, *fold;                     /* VAL_FOLD values that it makes */
    int nstore, *store;
    int nsave, *save;                     /* kept in a row buffer for later, */
    int nkept, *kept;                     /* read from one, or from a table */
} Loop;

typedef enum Form {
    FORM_MAP,                             /* outer atoms only */
    FORM_ROW,                             /* a row is one worker's */
    FORM_COLUMN,                          /* one loop, cut into chunks */
    FORM_PUT,                             /* the adjoint of take */
    FORM_ATTENTION                        /* attention.h */
} Form;

typedef struct Kernel {
    Arena *arena;
    const Graph *g;
    Form form;
    int natom;
    int64_t extent[KATOM];
    Atoms outer;
    int norder, order[KATOM];             /* atoms, outermost first */
    int nvalue;
    Value *value;
    int nin, nout;
    Ref *in, *out;                        /* p[]: inputs, then outputs */
    DType *out_dtype;
    int ntable;
    Ref *table;                           /* consts whose data it holds */
    int nstore;
    Store *store;
    int nloop;
    Loop *loop;
    int ntop, *top;                       /* values without atoms */
    int ntail, *tail;                     /* values behind the loops, and */
    int ntail_store, *tail_store;         /* stores of those and of folds */
    int npos;
    DpcPos pos[KPOS];                     /* what env->pos holds, in order */
    /* FORM_COLUMN: accumulators [outer without lane][chunks][folds][lane] */
    int lane, cut;                        /* outer atom inside, -1 none; inner
                                             atom that the chunks cut */
    int64_t chunks;
    int64_t put_rows, put_row, put_n;     /* FORM_PUT: rows, their length, */
    bool put_split;                       /* indices; first row is pos[0] */
    struct Attention *attention;          /* FORM_ATTENTION */
    double flops;                         /* of one launch */
    bool list;                            /* printed as one: what kernel_data
                                             says is d[] */
} Kernel;

/* The nodes (ascending) as one kernel, or NULL and *why.  `uses` of
 * graph_uses, or NULL: counted here. */
Kernel *kernel_describe(Arena *, const Graph *, const Ref *, int n,
                        const uint32_t *uses, const char **why);
/* The same kernel, but a loop keeps what is dear and wanted by a later one of
 * the same atoms in a buffer of the row's length. */
const Kernel *kernel_keep(const Kernel *);
/* Bytes of env->scratch; elements in and out, weighed by how they lie. */
int64_t kernel_scratch(const Kernel *);
double kernel_traffic(const Kernel *);
double kernel_work(const Kernel *);       /* flops, values met again too */
double kernel_points(const Kernel *, Atoms);
/* May result `out` take the bytes of operand `in`?  (over.c) */
bool kernel_over(const Kernel *, int in, int out);
/* Floats per launch that hold FORM_COLUMN's partial folds. */
int kernel_folds(const Kernel *);

/* A kernel as text; its name is k_ and the hash of the text with the name
 * left out, so that equal kernels are one. */
typedef struct KernelText {
    const char *name, *text;              /* without the prelude */
    int64_t grid, block, grid2;           /* CUDA: blocks, threads; blocks of
                                             the second launch NAME_end or 0 */
} KernelText;
KernelText kernel_host(Arena *, const Kernel *);
/* Is it one pointwise loop, so that its length can be data?  Then the host's
 * text is the same for all lengths and draws, and takes a list: operands of
 * all members one after the other, and env->pos = { members, length of each,
 * their sum, the data of each }. */
bool kernel_flat(const Kernel *);
/* Is the length of its first loop data, env->pos[npos]?  On the host, where
 * that loop goes over rows of others, as of a map of several loops or a row
 * kernel: what differs by the batch only is one text. */
bool kernel_open(const Kernel *);
/* The numbers that may differ between the members of such a list, in the order
 * of values; how many of at most KDATA + 1.  Ids of draws, and beside a draw
 * the bits of finite constants: initialisers differ by their scale only. */
int kernel_data(const Kernel *, int64_t *data);
/* Where value v is among them; -1: it is in the text. */
int kernel_datum(const Kernel *, int v);
KernelText kernel_cuda(Arena *, const Kernel *);

/* What each emitted file begins with, and the flags it wants of cc. */
extern const char host_prelude[], cuda_prelude[], host_flags[];

/* CUDA C to a cubin for "sm_90": its bytes in the arena, or NULL with the
 * compiler's log, or a reason why there is no NVRTC. */
bool nvrtc_available(const char **why);
void *nvrtc_compile(Arena *, const char *text, const char *arch,
                    size_t *bytes, const char **log);

/* ---- between the files of kernel ---- */

Atoms affine_atoms(const Affine *);       /* those with a coefficient */

enum { BATOM = 512 };                     /* atoms while they are unified */

typedef struct Dims {                     /* dims of a result as atoms */
    int ndim;
    struct { int n; int atom[KATOM]; } dim[NDIM];
} Dims;

typedef struct Unify {
    struct { int64_t n; int same, outer, inner; } atom[BATOM];
    int n;
} Unify;

int atom_new(Unify *, int64_t extent);
/* Leaves of a list of atoms, without those of extent 1; -1: too many. */
int atom_leaves(Unify *, const int *list, int n, int *out, int max);
/* One dimension seen by two nodes: false when their factors do not fit. */
bool atom_unify(Unify *, const int *a, int na, const int *b, int nb);

/* Loops from values and stores; false and *why when one nest cannot. */
bool kernel_loops(Kernel *, const char **why);
/* Order and merge the atoms, once all indices are known. */
void kernel_order(Kernel *);
/* How it works; false and *why where neighbours in memory would be rows with
 * tables. */
bool kernel_form(Kernel *, const char **why);

/* ---- printing, shared by the targets ---- */

typedef Str Text;

void text_add(Text *, const char *, ...) __attribute__((format(printf, 2, 3)));
void text_indent(Text *, int depth);
/* One line, indented. */
void text_line(Text *, int depth, const char *, ...)
    __attribute__((format(printf, 3, 4)));
/* "3 + i0*64 + i1"; never empty. */
void text_affine(Text *, const Kernel *, const Affine *);
/* Lines "const float v3 = ...;" of n values. */
void text_values(Text *, const Kernel *, const int *v, int n, int depth);
void text_store(Text *, const Kernel *, const Store *, int depth);
/* Values that a constant holds, at file scope. */
void text_tables(Text *, const Kernel *);
/* "DPC_RESTRICT ", unless p[at] may be another's bytes as well. */
const char *text_restrict(const Kernel *, int at);
/* "const float *restrict a0 = p[0];" for all buffers. */
void text_buffers(Text *, const Kernel *);
const char *text_ctype(DType);
const char *text_memtype(DType);
/* What folds begin with; "v3 = v3 + x" for the printed x. */
const char *text_identity(const Value *);
void text_fold(Text *, const Value *, const char *acc, const char *x);
/* "t9[(0) * 64L + i3]": a fold's sum, of those that its table holds. */
void text_table(Text *, const Kernel *, int value);
/* Replaces each '@' by the name made of the text's hash. */
KernelText text_named(Arena *, const Text *);
char *text_rename(Arena *, const Text *, const char *name);
int kernel_place(const Kernel *, int atom);  /* its position in the order */
bool value_global(const Value *);         /* no loops, no folds before it */
bool kernel_tabled(const Kernel *, int value);  /* a fold of loops in the row */

#endif
