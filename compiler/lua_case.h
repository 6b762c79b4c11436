/* lua_case.h -- what the two files that read case files share. */
#ifndef DPC_LUA_CASE_H
#define DPC_LUA_CASE_H

#include "compiler/case.h"
#include "compiler/lua_front.h"

typedef struct Reading {
    Front *f;
    CaseFile *file;
    Case *c;                              /* the one being read */
} Reading;

/* err at the line where the word stands. */
#define WRONG(L, r, word, ...)                                           \
    fail_at(L, case_place((r)->f->a, (r)->file->path,                    \
                          (r)->c ? (r)->c->name : "", word), __VA_ARGS__)

/* lua_case.c; each errs where what it reads is of another kind. */

/* Every key of the table at i is in `known`; numbers only when `list`. */
void case_keys(lua_State *, const Reading *, int i, const char *what,
               bool list, const char *const *known, int n);
/* Sorted names of the table at i, for an order that does not change. */
const char **case_names(lua_State *, const Reading *, int i, const char *what,
                        uint32_t *n);
/* Push table[key]; false, and nothing pushed, where it is nil. */
bool case_table(lua_State *, const Reading *, int i, const char *key);

/* lua_case_expect.c: the table on top; words that are no group name outs of
 * the part.  `at` stands before the names in messages. */
void case_expect(lua_State *, const Reading *, int step, const char *at);
/* expect_f32 of the case on top: what the original gives in f32, where that
 * is far from what it gives in doubles; the same words as in expect. */
void case_expect_f32(lua_State *, const Reading *);

#endif
