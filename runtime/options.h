/* options.h -- the command line of an emitted binary. */
#ifndef DPC_OPTIONS_H
#define DPC_OPTIONS_H

#include "runtime/dpc_rt.h"

#include <stdio.h>

enum { DPC_NLIST = 1024 };

typedef struct DpcTextList { int n; const char *at[DPC_NLIST]; } DpcTextList;

typedef const char *DpcOptTEXT;           /* NULL: not given */
typedef int64_t DpcOptCOUNT;              /* -1: not given */
typedef bool DpcOptFLAG;
typedef DpcTextList DpcOptLIST;

typedef struct DpcOptions {
    const char *program;                  /* argv[0] */
    const char *command;                  /* NULL: none */
#define OPT(field, name, argument, type, doc) DpcOpt##type field;
#include "runtime/options.def"
#undef OPT
    double *scalar;                       /* [nleaf] value of each SCALAR */
    bool *given;                          /* [nleaf] by the command line */
} DpcOptions;

/* DPC_USAGE: an unknown option or command, with its nearest neighbour; a
 * missing or wrong argument.  The texts stay in argv. */
DpcStatus dpc_options_parse(const DpcUnit *, int argc, char **argv,
                            DpcOptions *);
void dpc_options_close(DpcOptions *);
void dpc_options_help(const DpcUnit *, const DpcOptions *, FILE *);
/* A scalar that the runtime fills by itself. */
bool dpc_option_own(const DpcLeaf *);

/* Edits between two words; a swap of neighbours is two. */
int dpc_word_distance(const char *, const char *);

#endif
