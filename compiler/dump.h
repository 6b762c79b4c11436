/* dump.h -- folders of named values: NAME.npy each, and the file "order" with
 * a line NAME <tab> FILE:LINE for each, in the order of the model's text. */
#ifndef DPC_DUMP_H
#define DPC_DUMP_H

#include "compiler/options.h"

typedef struct Dump {
    const char *dir;
    FILE *order;
    Arena *a;
    uint32_t n;
} Dump;

/* The name of an out that --dump made; NULL: it is none. */
const char *dump_name(const char *out);
/* Into --dump-dir, made where it is not there; what is in it and no dump's is
 * left alone.  err_code (5) when the disk refuses, also in what follows. */
Dump dump_open(const Options *);
/* Values in the order of elements, of the node's sizes. */
void dump_write(Dump *, const char *name, const Node *, const double *value);
void dump_close(Dump *);                  /* says what was written */

#endif
