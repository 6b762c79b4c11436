/* case_host.h -- a case as a binary: compiled, run, its outputs read. */
#ifndef DPC_CASE_HOST_H
#define DPC_CASE_HOST_H

#include "compiler/case.h"
#include "compiler/options.h"

/* As case_evaluate, by the case's own binary: real passes, codegen, runtime,
 * with the plan that the options say.  g and init are changed.  err where it
 * does not compile or run. */
Whole *case_on_host(const Options *, const Case *, Graph *g, Graph *init,
                    Arena *);

#endif
