/* cut.c -- one role's part of a pipeline.
 *
 * Without stages a graph is the part of the one role that there is. */
#include "passes/pass.h"

Graph *pass_cut(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        copy_node(&c, r);
    return copy_end(&c);
}
