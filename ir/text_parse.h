/* text_parse.h -- reading a graph's text: the parser's state and tokens. */
#ifndef DPC_TEXT_PARSE_H
#define DPC_TEXT_PARSE_H

#include "ir/text.h"

/* A label `again`, by name until all nodes are known. */
typedef struct Later { Ref node; const char *name; int line; } Later;

typedef struct Parser {
    Arena *arena;
    Graph *g;
    const char *s, *file;                 /* s: the text still to read */
    int line;
    Names names;
    Later *again;
    uint32_t nagain, againcap;
} Parser;

/* ---- text_token.c: each errs with file:line, what it wants and found ---- */

char *token_loc(Parser *);                /* "file:line" */
#define token_err(p, ...) err(token_loc(p), __VA_ARGS__)
/* To the next token of this line, over comments; true at its end. */
bool token_end(Parser *);
_Noreturn void token_expected(Parser *, const char *want);
bool token_eat(Parser *, char);           /* if it comes next */
void token_need(Parser *, char, const char *want);
bool token_key(Parser *);                 /* does "word=" come next? */
/* "word=" read; the word. */
const char *token_next_key(Parser *);
char *token_copy(Parser *, const char *, size_t);
char *token_quoted(Parser *);             /* at its opening quote */
char *token_word(Parser *, const char *want);   /* bare or quoted */
char *token_value(Parser *, const char *want);  /* ':' may stand bare too */
int64_t token_int(Parser *, int64_t min, int64_t max);
double token_real(Parser *);
/* Index of the word in a list of n, or an error saying what it may be. */
int token_choice(Parser *, const char *what, const char *const *list, int n);
Ref token_node(Parser *);                 /* the name of an earlier node */

/* ---- text_sched.c: the lines after their first word ---- */

void parse_sched(Parser *);
void parse_buf(Parser *);
void parse_launch(Parser *);
void parse_step(Parser *);

#endif
