/* json.h -- a printer of JSON that needs no tree and no memory.
 *
 * The caller opens, names and closes; commas, quotes and line breaks come by
 * themselves.  The first failure of the sink stays in `status` and makes the
 * rest do nothing, so that only the end need be looked at. */
#ifndef DPC_JSON_H
#define DPC_JSON_H

#include "runtime/dpc_rt.h"

enum { DPC_JSON_DEPTH = 63 };

typedef DpcStatus DpcPut(void *arg, const void *bytes, size_t n);

typedef struct DpcJson {
    DpcPut *put;
    void *arg;
    DpcStatus status;                     /* first failure of put */
    int depth, lines;                     /* levels whose items get own lines */
    uint64_t filled;                      /* bit d: level d has an item */
    bool named;                           /* a key waits for its value */
} DpcJson;

/* lines 0: all on one line, as metrics.jsonl wants it. */
void dpc_json_init(DpcJson *, DpcPut *, void *arg, int lines);
void dpc_json_open(DpcJson *, char bracket);          /* '{' or '[' */
void dpc_json_close(DpcJson *, char bracket);         /* '}' or ']' */
void dpc_json_key(DpcJson *, const char *);
/* Bytes that are no UTF-8 come out as U+FFFD.  NULL is null. */
void dpc_json_str(DpcJson *, const char *);
void dpc_json_int(DpcJson *, int64_t);
/* The shortest text that reads back equal; not finite: null. */
void dpc_json_num(DpcJson *, double);
void dpc_json_bool(DpcJson *, bool);
/* A key and its value. */
void dpc_json_pair(DpcJson *, const char *key, const char *);
void dpc_json_count(DpcJson *, const char *key, int64_t);
void dpc_json_newline(DpcJson *);                     /* ends a record */

DpcPut dpc_json_file;                     /* arg: FILE * */
/* arg: DpcJsonText; DPC_USER when it is full. */
typedef struct DpcJsonText { char *at; size_t n, cap; } DpcJsonText;
DpcPut dpc_json_text;                     /* kept NUL-terminated */

#endif
