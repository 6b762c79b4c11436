/* lua_plan.h -- what the readers of a plan's words share. */
#ifndef DPC_LUA_PLAN_H
#define DPC_LUA_PLAN_H

#include "compiler/lua_front.h"

typedef struct Planning {
    const PlanOptions *o;
    Graph *const *entry;
    int nentry;
    Plan *plan;
    const char *what, *loc;               /* "partitioner"; the line to blame */
    const char *text;                     /* of a plan file; NULL */
    const Node *about;                    /* the leaf that is read; NULL */
} Planning;

/* err where the plan says what the message names, with the leaf's own line. */
_Noreturn void plan_fail(lua_State *, const Planning *, const char *, ...)
    __attribute__((format(printf, 3, 4)));
const char *plan_loc(lua_State *, const Planning *, const char *message);

/* The words of a plan's table; the last ones are a pipeline's. */
enum { NPLAN_WORD = 15, PIPELINE_WORD = 11 };
extern const char *const plan_words[NPLAN_WORD];

/* ---- lua_plan_view.c ---- */

bool is_leaf(const Node *);               /* input, param or state */
void leaf_push(lua_State *, const Graph *, const Node *);
void view_push(lua_State *, Planning *);  /* g */
/* Is the name met for the first time?  Of each, the first entry that has it
 * is shown; the table of names is at i. */
bool is_new(lua_State *, int i, const char *name);

/* ---- lua_plan.c ---- */

/* The table at i, in all its words, into p->plan. */
void table_read(lua_State *, Planning *, int i);
/* Text at index i; "" for what is none. */
const char *text_at(lua_State *, int i);
/* Which of the words `of` the value on top is. */
int word_pick(lua_State *, const Planning *, const char *what,
              const char *const *of, int n);
/* "dp/mb" as axes of the plan's mesh, major first; those met are `taken`.
 * `what` is whose split it is, for messages: leaf "x". */
Split split_read(lua_State *, const Planning *, const char *what,
                 const char *s, Axes *taken);
void split_print(const Mesh *, Split, FILE *);
/* Splits without the axes that fell away: to[i] is where axis i went. */
Split split_thin(Split, const int *to);

/* The word `value` of the plan at index i, and back. */
void values_read(lua_State *, Planning *, int i);
void values_thin(Plan *, const int *to);
void values_print(const Plan *, FILE *);

/* ---- lua_plan_compress.c ---- */

/* Behind the mesh and the words that it must agree with. */
void compress_read(lua_State *, Planning *, int i);
void compress_thin(Plan *, const int *to);
void compress_print(const Plan *, FILE *);

/* ---- lua_plan_stage.c ---- */

/* The words of a pipeline, once mesh and leaves are read, and back. */
void pipeline_read(lua_State *, Planning *, int i);
void pipeline_print(const Plan *, FILE *);

#endif
