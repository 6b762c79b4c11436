/* eval_node.h -- between the two halves of the evaluator: programs, one op
 * on one rank and turn, and the whole mesh. */
#ifndef DPC_EVAL_NODE_H
#define DPC_EVAL_NODE_H

#include "ir/eval.h"

enum { STRIP = 128 };                     /* points that a program runs on */

/* Where and when an op runs. */
typedef struct Place {
    const int *coord;                     /* by mesh axis: ranks and turns */
    uint64_t seed, step;
} Place;

/* All parts of a value: row-major over `axes`, `each` numbers a part. */
typedef struct Val { Axes axes; int64_t each; Num *data; } Val;

/* What besides op, attributes, type and operands a value depends on. */
typedef struct Spot {
    Axes axes;                            /* that its parts differ along */
    int stage;                            /* axis along which roles stand; -1 */
    int role, from;                       /* there; from which it comes; -1 */
} Spot;

/* What was made alike before: its number, and its value; 0.  Then memo_add,
 * with all of it kept until the memo is freed. */
int memo_find(EvalMemo *, const Node *, const int *in, const Spot *, Val *);
int memo_add(EvalMemo *, const Node *, const int *in, const Spot *, Val);
int memo_number(EvalMemo *);              /* of a value that nothing is like */
void memo_mesh(EvalMemo *, const Mesh *); /* on another one nothing is found */
Arena *memo_arena(const EvalMemo *);

/* The op on the parts that its operands have there. */
void eval_part(const Graph *, Ref, Domain, const Place *, const Num *const *in,
               Num *out);
/* n elements from `index` on (global, row-major) of random, iota, const and, of
 * the domain REAL, scalar; of other leaves values by hash of name and index. */
void eval_leaf(const Node *, Domain, const Place *, int64_t index, int64_t n,
               Num *out);
/* Ops of the families index and take. */
void eval_index(const Graph *, Ref, const Num *const *in, Num *out);
void eval_take(const Graph *, Ref, Domain, const Place *, const Num *const *in,
               Num *out);
void eval_attention(const Graph *, Ref, Domain, const Place *,
                    const Num *const *in, Num *out);

/* Signature with the splits of its letters; the sizes stay global. */
Sig eval_sig(const Graph *, Ref);
/* Elements of a part of a letter of n in `split`, padding cut; *at: first. */
int64_t eval_extent(const Mesh *, Split, int64_t n, const int *coord,
                    int64_t *at);

Num num_of(Domain, double);
Num num_fold(Domain, Fold, Num, Num);
Num num_identity(Domain, Fold);           /* of the fold */

/* An expression over strips: instruction i makes register i. */
typedef struct Prog Prog;
const Prog *prog_of(Op, Domain);          /* of its EXPR or FIELD; cached */
bool prog_reads(const Prog *, int operand);
/* Is it the product of two operands?  Then which. */
bool prog_product(const Prog *, int factor[2]);
/* Registers of a run: pointers to STRIP numbers each. */
typedef struct Regs Regs;
Regs *regs_new(const Prog *);
void regs_free(Regs *);
/* Where operand i is read from; kept until set again. */
void regs_arg(Regs *, int operand, const Num *);
/* n <= STRIP points into out, which is no operand. */
void prog_run(const Prog *, Regs *, int n, Num *out);

#endif
