/* order.h -- between order.c, order_chunk.c, order_list.c, order_slack.c. */
#ifndef DPC_ORDER_H
#define DPC_ORDER_H

#include "passes/clock.h"

typedef struct Inst {
    uint32_t launch;
    int turn;
    uint32_t needs;                       /* so many others before it */
} Inst;
typedef struct Edge { uint32_t to; struct Edge *next; } Edge;

typedef struct Order {
    Graph *g;
    Sched *s;
    Arena *scratch, *keep;
    uint32_t *of;                         /* launch of a node, + 1 */
    Inst *inst;                           /* (launch, turn), by launch */
    uint32_t *first, n;                   /* first instance of a launch */
    Edge **after;
    Ref *key;                             /* of a launch among its equals */
    double *takes;                        /* seconds of a launch; NULL: there
                                             are no transfers to hide */
    uint32_t *at;                         /* step of the last turn, by launch */
    int64_t *pos;                         /* of an instance on the line of a
                                             pipeline's chunks; NULL: none */
} Order;

/* Instance `to` comes behind `from`. */
void order_edge(Order *, uint32_t from, uint32_t to);
/* Of a role's graph: finds pos, and lets transfers wait for each other; and
 * the list by pos. */
void order_line(Order *);
const uint32_t *order_chunks(const Order *);

uint32_t order_inst(const Order *, uint32_t launch, int turn);
/* All instances, each after those that it needs, soon done. */
const uint32_t *order_list(Order *, const Job *);
/* Moves steps of the list to where less lives meanwhile. */
void order_slack(Order *, const Target *);
/* Where each node's last turn would come in the list of this graph; and *line,
 * its place on the line of a pipeline's chunks, NULL where there is none. */
uint32_t *order_places(Graph *, Job *, int64_t **line);

#endif
