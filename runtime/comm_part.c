/* comm_part.c -- what a group has on each node. */
#include "runtime/comm_part.h"

#include <stdlib.h>

/* How many of the first `size` of the list are on that node. */
static int32_t on_node(const DpcPlace *place, const int32_t *list,
                       int32_t size, int32_t node)
{
    int32_t n = 0;
    for (int32_t i = 0; i < size; i++)
        n += place[list[i]].node == node;
    return n;
}

int64_t dpc_part_at(const DpcPart *p, int32_t m, int32_t k)
{
    return p->at[m * p->nodes + k];
}

/* full[m]: so many nodes have a member m by now. */
static void find_at(const DpcPlace *place, const int32_t *list, int32_t size,
                    DpcPart *p, int32_t *full)
{
    for (int32_t i = 0; i < size; i++) {
        int32_t m = on_node(place, list, i, place[list[i]].node);
        p->at[m * p->nodes + full[m]++] = i;
    }
}

bool dpc_part_make(const DpcPlace *place, int32_t me, const int32_t *list,
                   int32_t size, DpcPart *p, bool *even)
{
    int32_t node = place[me].node;
    *p = (DpcPart){.outer = -1, .rank = calloc((size_t)size, sizeof *p->rank),
                   .at = calloc((size_t)size, sizeof *p->at)};
    int32_t *full = calloc((size_t)size, sizeof *full);
    bool made = p->rank && p->at && full;
    for (int32_t i = 0; made && i < size; i++)
        if (place[list[i]].node == node) {
            p->me = list[i] == me ? p->n : p->me;
            p->rank[p->n++] = place[list[i]].local;
        }
    p->whole = p->n == size;
    *even = made;
    for (int32_t i = 0; made && i < size; i++)
        *even &= on_node(place, list, size, place[list[i]].node) == p->n;
    p->nodes = *even ? size / p->n : 0;
    if (*even)
        find_at(place, list, size, p, full);
    free(full);
    return made;
}

void dpc_part_free(DpcPart *p)
{
    free(p->rank);
    free(p->at);
}
