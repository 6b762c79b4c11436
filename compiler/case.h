/* case.h -- parity cases: what a case file says, and what becomes of it.
 *
 * A case calls one part of a model with options of the original's
 * constructor, on inputs and parameters that are filled by a hash of their
 * names, and compares what comes out with numbers of the original.  The file
 * is told in docs/parity.md. */
#ifndef DPC_CASE_H
#define DPC_CASE_H

#include "compiler/lua.h"

/* How a tensor is filled: scale * f(fill) + add, or numbers that are given,
 * then some rows zero. */
typedef struct Spec {
    const char *fill;                     /* "<s>" in it: the step */
    double scale, add;
    int64_t below;                        /* > 0: integers, x mod below */
    bool unit;                            /* rows divided by their L2 norms */
    const double **given;                 /* by step; NULL: none */
    int64_t ngiven;                       /* numbers a step */
    int64_t (*zero)[NDIM];                /* leading indices, -1 after them */
    uint32_t nzero, zerocap;
} Spec;

typedef struct CaseInput {
    const char *name;
    Type type;
    Spec spec;
} CaseInput;

typedef struct CaseLeaf { const char *name; Spec spec; } CaseLeaf;
typedef struct CaseScalar { const char *name; double value; } CaseScalar;

typedef enum WantKind {
    WANT_COUNT,                           /* of parameters */
    WANT_SUM, WANT_ABS,                   /* over elements; mean of |x| */
    WANT_ELEMENT,                         /* at `index`; -1: the last */
    WANT_LOSS, WANT_NORM,                 /* a scalar */
    WANT_DUMP                             /* a whole tensor, nothing of it */
} WantKind;

/* One number that a case expects. */
typedef struct Want {
    WantKind kind;
    const char *of;                       /* out of the case's graph */
    const char *text;                     /* "out.first[2]" */
    int64_t index;
    int step;
    double value, half;                   /* half a unit of its last digit */
    double f32;                           /* what the original gives in f32 */
} Want;

typedef struct Case {
    const char *name, *loc;               /* loc: "file:line" */
    const char *model, *part, *skip;      /* skip: the reason; NULL */
    const char *draws;                    /* fill of the k-th normal; NULL */
    int index, steps;                     /* index: in the file, from 1 */
    int ndraw;                            /* normals a step; by case_trace */
    const char **asked;                   /* inputs that the part asked for; by
                                             case_trace, also when it errs */
    uint32_t nasked, askedcap;
    bool mse;                             /* of "out" against f("target") */
    CaseInput *input;
    uint32_t ninput, inputcap;
    CaseLeaf *leaf;
    uint32_t nleaf, leafcap;
    CaseScalar *scalar;
    uint32_t nscalar, scalarcap;
    Want *want;
    uint32_t nwant, wantcap;
} Case;

typedef struct CaseFile {
    const char *path;
    Case *at;
    uint32_t n, cap;
} CaseFile;

/* lua_case.c: err at the file's line where it is wrong. */
CaseFile *case_read(const char *path, const ModelOptions *, Arena *);
/* "file:line" of `word` behind the name of a case; of the name, where word is
 * NULL or does not stand there. */
const char *case_place(Arena *, const char *path, const char *name,
                       const char *word);
/* lua_trace.c: the case's part as a graph whose outs are named as the wants
 * are; *init: what leaves that are not filled start as.  err where the model
 * or the case is wrong. */
Graph *case_trace(Case *, const CaseFile *, const ModelOptions *,
                  Graph **init, Arena *);

/* case_fill.c */
uint32_t fill_hash(const char *name);     /* FNV-1a, 32 bits */
uint32_t fill_bits(uint32_t hash, uint64_t index);
double fill_float(uint32_t hash, uint64_t index);         /* [-1, 1) */
/* Does a leaf of that name keep what the model starts it as? */
bool fill_keeps(const char *name);
double *fill_param(Arena *, const char *name, const Type *);
double *fill_spec(Arena *, const Spec *, const Type *, int step);

/* A whole tensor, row-major. */
typedef struct Whole { const double *at; int64_t n; } Whole;
/* A leaf of a graph, and what it holds. */
typedef struct Held { Ref leaf; double *value; } Held;

/* case_run.c: what an input or scalar of the graph holds at a step. */
double *case_input(Arena *, const Case *, const Node *, int step);
double case_scalar(const Case *, const Node *, int step);
double want_measure(const Want *, const Whole *);         /* NAN: absent */
double case_count(const Graph *, bool trainable);         /* parameters */
/* What each want is read off, by the evaluator in doubles, or with what each
 * op makes rounded to f32: by want, at its step; n 0 where the graph has no
 * such out. */
Whole *case_evaluate(const Case *, const Graph *, const Graph *init,
                     bool rounded, Arena *);
/* What params and states start as: by leaf of g, in the order of its nodes;
 * *n their number. */
Held *case_leaves(const Case *, const Graph *g, const Graph *init, Arena *,
                  uint32_t *n);

#endif
