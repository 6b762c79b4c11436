/* graph.h -- the tensor graph: an array of nodes, operands first, one result
 * a node; what every phase shares.  Sizes are global in every phase: how a
 * tensor lies on the mesh stands in its type. */
#ifndef DPC_GRAPH_H
#define DPC_GRAPH_H

#include "ir/base.h"

enum { NDIM = 8, NAXIS = 15, NIN = 7 };

typedef uint32_t Ref;                     /* index of a node in its graph */
#define NONE ((Ref)-1)

typedef enum Op {
#define OP(name, ...) OP_##name,
#include "ir/ops.def"
    OP_COUNT
} Op;

typedef enum DType { F32, BF16, I32, U8, NDTYPE } DType;  /* as DpcDtype */
typedef enum Fold { FOLD_SUM, FOLD_MAX, FOLD_LSE } Fold;
typedef enum Family {                     /* the KERNEL column */
    FAMILY_nest, FAMILY_index, FAMILY_take, FAMILY_conv, FAMILY_pack,
    FAMILY_attention, FAMILY_random, FAMILY_collective, FAMILY_copy,
    FAMILY_hop
} Family;

typedef struct OpInfo {
    const char *name, *sig, *lin;
    double work;                          /* flops a point */
    const char *expr, *field, *vjp, *def, *keys, *doc;
    const char *flops;                    /* a polynomial, instead of work */
    const char *once;                     /* what to write where a gradient's
                                             gradient is wanted */
    Fold fold;
    Family family;
    int arity;                            /* op_init: of sig; -1 any number */
    bool leaf;                            /* op_init: no operands, type given */
    unsigned unread;                      /* op_init: bits of operands "~" */
} OpInfo;
extern OpInfo ops[OP_COUNT];

/* ---- the mesh ---- */

typedef uint16_t Axes;                    /* set of axes: bit i is axis i */
/* Axes that split one dimension, major first: a nibble each, axis + 1, the
 * first in the lowest nibble. */
typedef uint64_t Split;

typedef enum AxisKind { SPACE, STAGE, TIME } AxisKind;
typedef struct Axis { const char *name; int size; AxisKind kind; } Axis;
typedef struct Mesh { int naxis; Axis axis[NAXIS]; } Mesh;

/* ---- types ---- */

typedef struct Type {
    DType dtype;
    int ndim;
    int64_t dim[NDIM];                    /* global sizes */
    Split split[NDIM];                    /* printed 3072/tp/dp */
    uint8_t lo[NDIM], hi[NDIM];           /* other parts' rows held as well */
    int32_t step[NDIM];                   /* rows from one part's begin to the
                                             next's; 0: ceil(dim / parts) */
    Axes partial;                         /* still to be folded over these, */
    Fold fold;                            /* so: +a sum, ^a max, ~a lse */
} Type;

/* ---- nodes ---- */

typedef struct Letter { char c; int64_t size; Split split; } Letter;

typedef struct Attr {
    const char *sig;                      /* of "@" rows: "bnk,km->bnm" */
    int nletter;                          /* sizes of letters that no operand */
    Letter *letter;                       /* has; printed h=28, b=128/dp/mb */
    double value;
    int64_t ndata;
    const double *data;
    const char *dist, *doc;
    int64_t id, at, size;
    int dim, to, lo, hi, step, stride, pad, dilate, use, frozen;
    int residual;                         /* of state */
    int from, peer, late;                 /* of hop, send and recv */
    DType dtype;
    Axes axes;
} Attr;

typedef enum Segment {                    /* when in the run a node works */
    SEG_NONE, INIT, BEGIN, FORWARD, BACKWARD, WEIGHT, UPDATE
} Segment;
enum { EVERY = -1 };                      /* stage: on all of them */
typedef enum MemoryClass { DEVICE, HOST } MemoryClass; /* whose bytes */

typedef struct Node {
    Op op;
    int nin;
    Ref *in;                              /* always earlier nodes */
    Type type;
    Attr attr;
    const char *name, *loc;               /* loc: "models/gpt.lua:41" */
    const char *scope;                    /* "blocks.17.attn.to_q"; "" none */
    /* labels */
    Ref again;                            /* clone of that node; NONE */
    int moment;                           /* clones that are made at one time,
                                             apart from others, have one; 0 */
    Segment segment;
    Axes loop;                            /* time axes along which it runs */
    int stage;                            /* EVERY by default */
    MemoryClass place;                    /* printed place=host */
    int layout;                           /* memory order: dimensions major
                                             first as decimal digits, printed
                                             0231; 0 row-major */
    int kernel, bucket, stream;           /* launch it belongs to; -1 */
} Node;

typedef enum Phase { PHASE_TENSOR, PHASE_LOCAL, PHASE_SCHED, PHASE_ANY } Phase;

typedef struct Set { Ref leaf, value; } Set;  /* leaf = value at the end */
typedef struct Out { const char *name; Ref ref; } Out;  /* return name=value */

/* A part of the step: what one stage does of one segment in one turn. */
typedef struct Chunk { Segment segment; int stage, turn; } Chunk;

typedef struct Graph {
    Arena *arena;
    Phase phase;
    Mesh mesh;
    const char *entry;                    /* "train" */
    Node *node;
    uint32_t n, ncap;
    Set *set;
    uint32_t nset, setcap;
    Out *out;
    uint32_t nout, outcap;
    int nstage, *role_of;                 /* the role of each stage; 0: none */
    uint32_t nchunk;                      /* in the order of their begin, of */
    Chunk *chunk;                         /* all roles */
    int role;                             /* whose part this is; -1: all */
    double remade, remade_least;          /* seconds of what recompute chose to
                                             make again; no choice of a peak as
                                             low takes less.  Not printed */
    struct Sched *sched;                  /* NULL before PHASE_SCHED */
} Graph;

/* ---- op.c ---- */

void op_init(void);                       /* idempotent; call first */
Op op_find(const char *);                 /* OP_COUNT if there is none */
/* Operands i and k stand in one lin group; i == k: i stands in some group. */
bool op_linear(Op, int i, int k);
bool op_has_key(Op, const char *key);
/* One loop over the elements of operands and result, all of one shape. */
bool op_pointwise(Op);
/* A leaf that the world outside knows by its name: no const, iota, random. */
bool op_public(Op);
/* Brings together what ranks, or turns, have: not shard and own. */
bool op_collects(Op);
/* Is only the shape of operand i read? */
bool op_unread(Op, int i);
/* The same attributes: then nodes with equal operands have equal values. */
bool attr_equal(const Attr *, const Attr *);
const char *dtype_name(DType);            /* "bf16" */
DType dtype_find(const char *);           /* NDTYPE if there is none */
int64_t dtype_size(DType);

/* ---- type.c ---- */

int64_t type_volume(const Type *);                    /* global elements */
Type type_local(const Mesh *, const Type *);          /* sizes of one part */
int64_t type_bytes(const Mesh *, const Type *);       /* of one part */
/* Does some dimension hold rows of other parts, or lie in parts of a length
 * that its size does not give? */
bool type_halo(const Type *);
int64_t type_step(const Mesh *, const Type *, int d);   /* rows of a part */
bool type_equal(const Type *, const Type *);
Axes type_axes(const Type *);             /* all that it names, pending too */
Axes split_axes(Split);
int64_t split_parts(const Mesh *, Split);
Split split_push(Split, int axis);        /* appended as the minor-most */
int split_minor(Split);                   /* minor-most axis; -1 */
Split split_without(Split, Axes);         /* the rest, order kept */
/* Index of a part along a dimension for coordinates (ranks and turns). */
int64_t split_index(const Mesh *, Split, const int *coord);
/* The part of n elements there: where it begins, how many it holds, and for
 * how many it has room. */
typedef struct Part { int64_t at, n, room; } Part;
Part split_part(const Mesh *, Split, int64_t n, const int *coord);
/* The part of dimension d, rows of others left out. */
Part type_part(const Mesh *, const Type *, int d, const int *coord);
/* Are parts of n those of ranks in order, each behind the one before? */
bool parts_in_line(const Mesh *, Split, int64_t n);
Axes mesh_axes(const Mesh *, AxisKind);
int mesh_find(const Mesh *, const char *name);        /* -1 */
/* The turns in which ranks of an axis see each other's parts: the time axis
 * of its size that is called as it is, with a ' behind; -1. */
int mesh_twin(const Mesh *, int axis);
int mesh_home(const Mesh *, int twin);    /* whose twin it is; -1 */
/* Both where `axis` has a twin; 0. */
Axes mesh_ring(const Mesh *, int axis);
/* The type with the two axes of a ring in each other's place. */
Type type_swap(const Type *, Axes ring);
int64_t mesh_size(const Mesh *, Axes);    /* product of their sizes */
char *type_text(Arena *, const Mesh *, const Type *); /* "f32[64/dp,8]+tp" */
void type_put(Str *, const Mesh *, const Type *);

/* ---- sig.c: all that follows from a signature ---- */

enum { NTERM = NIN, NATOM = 16, NLETTER = 128 };

/* One dimension of a term: the letters whose product (group) or sliding sum
 * (window: two letters) it is, outer first. */
typedef struct Dim { uint8_t n; bool window; char c[NDIM]; } Dim;
typedef struct Term { int ndim; Dim dim[NDIM]; bool unread, integer; } Term;

typedef struct Sig {
    int nin, nop;                         /* terms; operands: more than terms */
    Term in[NTERM], out;                  /* in a variadic row.  "..." is
                                             spelt '0', '1', ... */
    int64_t size[NLETTER];                /* by letter, global; 0 absent */
    Split split[NLETTER];                 /* by letter, where operands agree */
    int64_t extent[NLETTER];              /* of a window, by its first letter */
    bool fixed[NLETTER];                  /* marked "!", or a window's filter */
    bool folded[NLETTER];                 /* on the left (read) alone */
    bool windows;                         /* there are any */
    bool uneven;                          /* so may parts of a group be */
    int stride, pad, dilate;              /* of windows */
} Sig;

/* Bind the op's signature to operands: sizes, groups and windows must agree,
 * else err at loc with both values.  `attr` gives own signatures, letters'
 * sizes, dim/at/size.  Splits are not looked at. */
Sig sig_bind(const Graph *, Op, const Attr *, const Ref *in, int nin,
             const char *loc);
/* The split that each letter wants of each operand; false when two operands
 * (or two letters) disagree, V1 and V2: then propagate must reshard. */
bool sig_split(Sig *, const Graph *, const Ref *in);
/* The result's type: shape, splits, pending folds, dtype.  err at loc where
 * V1, V2, V3 or the dtype rule (C14) is broken. */
Type sig_type(const Sig *, const Graph *, Op, const Attr *, const Ref *in,
              const char *loc);
/* How parts of operand i, or of the result (i < 0), lie along dimension d when
 * the letter there is split so, into t: their length, and rows of others, which
 * its windows reach, or the places whose windows reach the result. */
void sig_rows(const Sig *, const Mesh *, int i, int d, Split, Type *t);
/* May a window's places h be split so?  Parts must be those of ranks in order,
 * and zeros beyond the ends must add nothing. */
bool sig_cuts(const Sig *, const Mesh *, Op, int h, Split);
/* May c be split so, where it is the outer letter of a group? */
bool sig_group_cuts(const Sig *, const Mesh *, int c, Split);
/* On one part: how far letter c goes, rows of neighbours included; and the
 * zeros before the first row of a window whose places are h. */
int64_t sig_extent(const Sig *, const Mesh *, int c);
int sig_pad(const Sig *, int h);
/* The node's own signature with operand i's term and the result's exchanged,
 * as text, and sizes for the letters which that leaves without an operand. */
Attr sig_transpose(const Sig *, Arena *, int i);
/* A signature as a node carries it: its text, and sizes of the letters that no
 * operand gives. */
Attr sig_attr(const Sig *, Arena *);
double sig_points(const Sig *);           /* product of all letters */
/* Is there a letter to fold, be it of one number?  The result is then as wide
 * as sums are. */
bool sig_folds(const Sig *);
double node_flops(const Graph *, Ref);    /* of one part, one turn */

/* ---- graph.c ---- */

Graph *graph_new(Arena *, const Mesh *);
/* Append a node whose type follows from its row; name NULL: "v<n>". */
Ref emit(Graph *, Op, const Attr *, const Ref *in, int nin, const char *loc);
#define EMIT(g, op, attr, loc, ...)                                      \
    emit(g, op, attr, (Ref[]){ __VA_ARGS__ },                            \
         (int)(sizeof (Ref[]){ __VA_ARGS__ } / sizeof(Ref)), loc)
/* Append a node with a type that is given: leaves, reshard, collectives. */
Ref emit_typed(Graph *, Op, const Attr *, Type, const Ref *in, int nin,
               const char *name, const char *loc);
Ref emit_const(Graph *, double, const Type *like, const char *loc);
Ref graph_leaf(const Graph *, const char *name);      /* NONE */
void graph_set(Graph *, Ref leaf, Ref value);
void graph_out(Graph *, const char *name, Ref value);
/* Readers of each node; sets and outs too, `~` operands not. */
uint32_t *graph_uses(const Graph *, Arena *);
/* Type of a collective's result from its operand's, by the table C3. */
Type coll_type(const Graph *, Op, const Attr *, Ref in, const char *loc);

/* ---- verify.c, text.c ---- */

/* V1-V9 of architecture.md; die naming `after` when one is broken. */
void verify(const Graph *, const char *after);
/* The same, but for names, of which graph_name has seen to it. */
void verify_named(const Graph *, const char *after);
/* Names that passes have made equal are told apart: "q", "q.1".  Leaves that
 * the outside knows keep theirs; false: two of them share one. */
bool graph_name(Graph *);
void graph_print(const Graph *, FILE *);  /* labels and schedule too */
/* The inverse: err with `file`:line for a text that is no graph. */
Graph *graph_parse(Arena *, const char *text, const char *file);

#endif
