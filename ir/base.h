/* base.h -- the ground floor: errors, one arena, growing arrays. */
#ifndef DPC_BASE_H
#define DPC_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Arena Arena;

/* Where an error is caught (ErrTrap), what was made since err_push is freed. */
Arena *arena_new(void);
/* But not this: for what is made once, whoever asks first. */
Arena *arena_lasting(void);
void arena_free(Arena *);
void *alloc(Arena *, size_t);             /* zeroed; never NULL */
/* The same, with anything in it: for what is written before it is read. */
void *alloc_raw(Arena *, size_t);
/* Nobody will read p, which alloc gave: its memory is free again, if it was
 * large enough to stand alone. */
void arena_drop(Arena *, const void *p);
/* What alloc gave between a mark and its rewind is gone at the rewind; no name
 * is interned between. */
typedef struct ArenaMark { void *top, *below; size_t used; } ArenaMark;
ArenaMark arena_mark(Arena *);
void arena_rewind(Arena *, ArenaMark);
char *fmt(Arena *, const char *, ...) __attribute__((format(printf, 2, 3)));
/* Room for element n of the array at *p, which it moves when it must grow:
 * `GROW(a, g->node, g->n, g->cap)` then `g->node[g->n++] = ...`. */
#define GROW(arena, p, n, cap)                                           \
    ((size_t)(n) < (size_t)(cap) ? (void)0                               \
     : grow_(arena, (void **)&(p), sizeof *(p), &(cap), (size_t)(n) + 1))
void grow_(Arena *, void **p, size_t each, uint32_t *cap, size_t want);

/* A text that grows: `Str s = { a }; str_add(&s, ...); use(s.p)`.  p is NULL
 * until the first str_add. */
typedef struct Str { Arena *arena; char *p; uint32_t n, cap; } Str;
void str_add(Str *, const char *, ...) __attribute__((format(printf, 2, 3)));
void str_addv(Str *, const char *, va_list *);     /* moves the list */
void str_put(Str *, const char *, size_t);
void str_int(Str *, int64_t);
/* v in decimal, without a NUL; its end. */
char *int_text(char out[20], uint64_t v);
/* The shortest decimal that strtod reads back as this very double (subnormal
 * ones: not the shortest); inf, nan as strtod reads them.  Returns out. */
char *num_text(char out[32], double);

/* The user is wrong.  Prints "loc: error: ..." and ends the compile: exit 1,
 * or, inside err_trap, back to the trap.  loc is "file:line". */
_Noreturn void err(const char *loc, const char *, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with another exit code of design 11 (3 memory, 5 environment). */
_Noreturn void err_code(int code, const char *loc, const char *, ...)
    __attribute__((format(printf, 3, 4)));
/* A second line about the error to come: "loc: note: ...", printed after it. */
void note(const char *loc, const char *, ...)
    __attribute__((format(printf, 2, 3)));
/* We are wrong: say where in the compiler, leave dpc-crash.ir, exit 70. */
#define die(...) die_(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void die_(const char *, int, const char *, ...)
    __attribute__((format(printf, 3, 4)));
/* What die leaves behind: called once with an open dpc-crash.ir. */
extern void (*die_dump)(FILE *);
/* Called before an error goes to its trap, which frees what threads may still
 * read; NULL: there are none.  Traps are each thread's own. */
extern _Thread_local void (*err_wait)(void);

/* Run what may err: `if (!err_trap(&t)) {...}` is not possible across a
 * function that returns, so the caller owns the jmp_buf:
 *     ErrTrap t; if (setjmp(t.jump) == 0) { err_push(&t); ...; err_pop(); }
 *     else puts(t.text);                 -- popped already */
typedef struct ErrTrap ErrTrap;
struct ErrTrap { jmp_buf jump; ErrTrap *outer; int code; char text[4096]; };
void err_push(ErrTrap *);
void err_pop(void);

/* One spelling, one pointer: names compare by ==. */
const char *intern(Arena *, const char *);

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

#endif
