/* clock.h -- about when each step of an order begins and ends. */
#ifndef DPC_CLOCK_H
#define DPC_CLOCK_H

#include "passes/pass.h"

/* The stream of a launch; does it compute nothing: collectives over ranks, and
 * hops? */
int launch_stream(const Graph *, const Launch *);
bool launch_communicates(const Graph *, const Launch *);
/* Bytes that a rank sends for a member of such a launch; its seconds. */
double transfer_bytes(const Graph *, Ref);
double transfer_seconds(const Graph *, Ref, const Cluster *);
/* Of n sends, or receives, that go at once: a latency, even of none. */
double hops_seconds(const Graph *, const Ref *, int n, const Cluster *);
/* Of a value's way between the host's memory and the device's. */
double copy_seconds(const Graph *, Ref, const Job *);
/* What a launch that computes has to do: flops and bytes of its operands; of a
 * loop nest, where `uses` of graph_uses are given, those of its loops. */
typedef enum AmountKind { OTHERS, PRODUCTS, CONVS, NESTS, TRANSFERS } AmountKind;
typedef struct Amount {
    AmountKind kind;
    DType dtype;                          /* that it computes with */
    double flops, bytes;
    bool shared;                          /* threads are woken for it */
} Amount;
Amount launch_amount(const Graph *, const Launch *, const Target *,
                     const uint32_t *uses);
double amount_seconds(const Amount *, const Rates *, const Target *);
/* Seconds of a launch, once; 0 where the job names no target or cluster. */
double launch_seconds(const Graph *, const Launch *, const Job *);
/* Of each launch, in the job's scratch. */
double *launches_seconds(const Graph *, const Sched *, const Job *);
/* Of each step of g's order, the streams running side by side. */
void clock_steps(const Graph *, const Job *, double *begin, double *end);
/* Seconds of each step of a schedule.  The job needs its scratch. */
void clock_takes(const Graph *, const Job *, double *takes);
/* A step of a whole schedule, each launch after what it waits for: bytes that
 * a rank sends, seconds of each stream by itself, and of all together; of
 * those the bubble, in which a pipeline has no work for this role.  What is
 * left is exposed. */
typedef struct Spent {
    double bytes, compute, communicate, step, bubble;
} Spent;
double spent_exposed(const Spent *);
/* takes[nstep]: as clock_takes.  The job needs its scratch. */
Spent clock_spent(const Graph *, const Job *, double *takes);
/* The schedules of all roles side by side: fills in all but the graphs, in
 * the job's scratch; seconds of the step. */
typedef struct Timeline {
    const Graph *g;
    double *takes, *begin, *end;          /* by step */
    Spent spent;
} Timeline;
double clock_roles(Timeline *, int n, const Job *);
/* Below this no order of the same steps can come, whatever its memory: each
 * step taking that long, transfers one by one and computing one by one, each
 * after what it reads.  Quadratic. */
double clock_least(const Graph *, const double *takes, Arena *);

#endif
