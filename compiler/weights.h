/* weights.h -- what the files of dpc weights share. */
#ifndef DPC_WEIGHTS_H
#define DPC_WEIGHTS_H

#include "compiler/options.h"

struct DpcSource;
/* The tensors of argument i: of a run, its latest checkpoint; under the names
 * that --map gives. */
struct DpcSource *weights_open(const Options *, int i);
int weights_convert(const Options *);     /* weights_convert.c */

#endif
