/* attention.h -- one row of the attention family as a kernel.
 *
 * All of them are one scheme: a block of the *own* letter (queries, or keys
 * for gradients to keys and values) meets the *other* letter block by block.
 *     z = own . other over d          products
 *     p = share of the softmax        by mask and log-sum
 *     p *= own' . other' over e - delta     gradients to queries and keys
 *     result += p . other''           over the other letter
 * so that nothing of own by other elements leaves the block (Rabe and Staats
 * 2021; Dao et al. 2022). */
#ifndef DPC_ATTENTION_H
#define DPC_ATTENTION_H

#include "codegen/build.h"

typedef enum Role {
    QUERY, KEY, VALUE, MASK, LSE, COTANGENT, OUTPUT, RESULT, NROLE,
    NOROLE = NROLE
} Role;
typedef enum Along { ALONG_Q, ALONG_S, ALONG_D, ALONG_E, NALONG } Along;


typedef struct Operand {
    int buf;                              /* p[buf]; -1 not there */
    DType dtype;
    int64_t along[NALONG];                /* strides; 0 not in its term */
    int64_t batch[NLETTER];               /* by letter */
} Operand;

typedef struct Attention {
    Op op;
    Operand operand[NROLE];
    int64_t extent[NALONG], whole[NALONG];
    int pos[NALONG];                      /* where a part that may hold padding
                                             begins; -1 it holds none */
    int nbatch;
    struct { char c; int64_t n; bool folded; } batch[NDIM];
    Along own, other;
    Role left, right;                     /* of the products over d */
    Role left_e, right_e;                 /* of those over e; NOROLE none */
    Role source;                          /* what p is multiplied by; NOROLE */
} Attention;

/* The family's member m as the kernel in the making; false and why. */
bool build_attention(Build *, Member *m);
/* Bytes of all operands. */
double attention_traffic(const Kernel *);
/* What the host's text begins with, and its body. */
extern const char attention_product[];
void attention_host(Text *, const Kernel *);
void attention_cuda(Text *, const Kernel *, KernelText *);

/* ---- printing, shared ---- */

/* "const long nq = ..., ns = ...": what of each letter is no padding. */
void attention_limits(Text *, const Attention *);
/* Loops over worker w's batch letters: "const long b0 = ...;"; those which
 * are folded are opened as loops; returns the depth inside. */
void attention_owners(Text *, const Attention *, int depth);
int attention_folded(Text *, const Attention *, int depth);
/* Parts that work apart: of the batch, without blocks. */
int64_t attention_workers(const Attention *);
/* Index texts: of the own letter, the other one, and d and e. */
void attention_spell(const Attention *, const char *own, const char *other,
                     const char *inner, const char *at[NALONG]);
/* The element of an operand at index texts, loaded as f32. */
void attention_load(Text *, const Attention *, Role, const char *at[NALONG]);
/* "o0[...] = " at index texts. */
void attention_store(Text *, const Attention *, const char *at[NALONG],
                     const char *value);

#endif
