/* build.h -- between kernel.c and kernel_op.c: a kernel in the making. */
#ifndef DPC_BUILD_H
#define DPC_BUILD_H

#include "codegen/kernel.h"

typedef struct Member {                   /* a node of the group */
    Ref ref;
    Sig s;                                /* own: one letter a dimension */
    int atom[NLETTER];                    /* of a letter, before leaves */
    int nplace;                           /* windows of the result: letter h */
    struct {                              /* follows from `at` and k */
        char h, k, at;
        int pad;
        int64_t extent;                   /* of h, on one part */
    } place[2];
    int value;                            /* its number, folds finished */
    bool view;                            /* came along: never stored */
} Member;

typedef struct Build {
    Kernel *k;
    const Graph *g;
    Arena *arena;
    Unify u;
    int n;
    Member *member;
    int leaf[KATOM];                      /* atom number -> leaf of u */
    uint32_t cap_value, cap_in, cap_table;
    const char *why;
} Build;

/* The member that makes `r`; NULL: it comes from memory. */
Member *build_member(Build *, Ref r);
/* Extent of a letter on this rank and turn. */
int64_t build_extent(const Build *, const Member *, char letter);
/* An equal value, or a new one. */
int build_value(Build *, Value);
/* Index of operand i of m in its memory order, and guards, for a LOAD. */
Value build_load(Build *, Member *, int i);
/* Room for a load's guards; most have none, and these are large. */
void build_guards(Build *, Value *);
/* The affine of a letter (as the dimension of `stride` elements). */
void build_letter(Build *, const Member *, char letter, int64_t stride,
                  Affine *);
/* Elements between neighbours along each dimension, in memory order. */
void build_strides(const Graph *, Ref, int64_t *stride);
/* The entry of env->pos for a part of a dimension of that size: its begin or,
 * if `held`, how many it holds; -1: too many. */
int build_pos(Build *, Split, int64_t size, bool held);
/* Where this turn's part of a gathered dimension begins. */
bool build_slice(Build *, Member *, const int64_t *stride, Affine *);
/* Do the parts of a gathered or sharded dimension, one behind the other, reach
 * past `whole`?  The last one may, and those behind it begin there. */
bool build_past(Build *, Member *, int64_t whole);
/* The value of member m, from those of its operands; false and why. */
bool build_op(Build *, Member *m);

#endif
