/* text.h -- what printer, parser and verifier of graphs share. */
#ifndef DPC_TEXT_H
#define DPC_TEXT_H

#include "ir/sched.h"

extern const char *const segment_names[UPDATE + 1];   /* "" for SEG_NONE */
extern const char *const axis_kinds[TIME + 1];        /* "" for SPACE */
extern const char *const phase_names[PHASE_ANY];
extern const char *const space_names[NSPACE];
extern const char *const memory_names[HOST + 1];
extern const char fold_marks[];                       /* by Fold: "+^~" */

/* May the character stand in a name without quotes? */
bool name_char(char c);

/* The line that graph_print writes for a node, without its newline. */
char *node_text(Arena *, const Graph *, Ref);

/* Nodes by name: an open hash table, which keeps each name's hash, so that
 * other names are seldom looked at. */
typedef struct Names { Ref *at; uint32_t *hash, n, cap; } Names;
Ref names_find(const Names *, const Graph *, const char *name);   /* NONE */
/* Room for n of them in an empty table. */
void names_reserve(Names *, Arena *, uint32_t n);
/* False, and nothing changed, when another node has that name. */
bool names_add(Names *, Arena *, const Graph *, Ref);

#endif
