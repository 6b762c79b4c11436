/* order.h -- between order.c and order_slack.c. */
#ifndef DPC_ORDER_H
#define DPC_ORDER_H

#include "passes/clock.h"

typedef struct Inst {
    uint32_t launch;
    int turn;
    uint32_t waits;                       /* for so many others */
    double ready;                         /* seconds: when they are done */
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
    uint32_t *at;                         /* step of the last turn, by launch */
} Order;

uint32_t order_inst(const Order *, uint32_t launch, int turn);
/* Moves steps of the list to where less lives meanwhile. */
void order_slack(Order *);

#endif
