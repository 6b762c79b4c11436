/* order.h -- between order.c, order_list.c and order_slack.c. */
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
    double *takes;                        /* seconds of a launch */
    uint32_t *at;                         /* step of the last turn, by launch */
} Order;

uint32_t order_inst(const Order *, uint32_t launch, int turn);
/* All instances, each after those that it needs, soon done. */
const uint32_t *order_list(Order *, const Job *);
/* Moves steps of the list to where less lives meanwhile. */
void order_slack(Order *);
/* Where each node's last turn would come in the list of this graph. */
uint32_t *order_places(Graph *, Job *);

#endif
