/* expr.h -- the little language of the EXPR, FIELD and VJP columns.
 *
 *   e = e ? e : e | e (+ - * / < <= > >= == &&  ||) e | - e | ( e )
 *     | number | name | name ( arg {, arg} )       arg = e | key = e
 * One parser for evaluator, kernels and gradients. */
#ifndef DPC_EXPR_H
#define DPC_EXPR_H

#include "ir/base.h"

typedef enum ExprKind {
    EXPR_NUM, EXPR_NAME, EXPR_CALL, EXPR_NEG, EXPR_ADD, EXPR_SUB, EXPR_MUL,
    EXPR_DIV, EXPR_LT, EXPR_LE, EXPR_GT, EXPR_GE, EXPR_EQ, EXPR_COND
} ExprKind;

typedef struct Expr Expr;
struct Expr {
    ExprKind kind;
    double num;
    const char *name;                     /* interned: NAME, CALL */
    int narg;                             /* operands of the kind */
    Expr **arg;
    const char **key;                     /* CALL: NULL for a plain argument */
};

/* NULL for blank text; dies on a syntax error (`what` names the row). */
Expr *expr_parse(Arena *, const char *text, const char *what);
/* Comma-separated list: the VJP column; *n the number of members. */
Expr **expr_parse_list(Arena *, const char *text, const char *what, int *n);
/* C text.  Names go through `name` (NULL: as they are); numbers get the
 * suffix (f in kernels); calls keep their names with `f` appended if suffix
 * is "f" (expf), so that C and CUDA C take the f32 functions. */
char *expr_text(Arena *, const Expr *, const char *suffix,
                const char *(*name)(void *, const char *), void *arg);

#endif
