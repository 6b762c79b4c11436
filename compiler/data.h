/* data.h -- the parts of `dpc data`. */
#ifndef DPC_COMPILER_DATA_H
#define DPC_COMPILER_DATA_H

#include "compiler/options.h"
#include "runtime/data.h"

int data_tokens(const Options *);         /* data_token.c */
int data_pack(const Options *);           /* data_pack.c */
int data_index(const Options *);

#endif
