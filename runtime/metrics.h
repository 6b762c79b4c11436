/* metrics.h -- what a run says of itself: a live line, and a line of JSON a
 * step. */
#ifndef DPC_METRICS_H
#define DPC_METRICS_H

#include "runtime/rt.h"

enum { DPC_NMETRIC = 32 };

/* The f32 scalars among a program's outputs. */
typedef struct DpcValues {
    int n;
    const char *name[DPC_NMETRIC];
    const float *at[DPC_NMETRIC];
    double value[DPC_NMETRIC];
} DpcValues;

void dpc_values_bind(DpcRt *, uint32_t program, DpcValues *);
void dpc_values_read(DpcValues *);        /* value = what the step left */
int dpc_values_find(const DpcValues *, const char *name);   /* -1: none */

typedef struct DpcReport {
    int64_t step, steps;                  /* done, and until when */
    const DpcValues *values;
    double lr;                            /* NaN: the model has no such */
    double seconds;                       /* of this step, all of it */
    double data_wait;                     /* seconds waited for data */
    DpcTimes times;                       /* of this step */
    int64_t samples;                      /* global, of this step; 0: none */
    int64_t skipped;                      /* steps not finite, so far */
} DpcReport;

typedef struct DpcMetrics {
    int fd;                               /* of the JSON lines; -1: none */
    char path[256];                       /* its name, or the head of it */
    bool quiet, tty, open_line;
    int64_t every;                        /* steps between plain lines */
    int64_t planned;                      /* bytes: spaces, stages, data */
    int64_t before;                       /* peak bytes before opening */
    double shown, sum_s;                  /* when; seconds since then */
    DpcTimes sum;
    double sum_data;
    int64_t sum_samples, sum_steps;
} DpcMetrics;

/* Rank 0 only.  path NULL: no file; it is appended to. */
DpcStatus dpc_metrics_open(const char *path, bool quiet, int64_t every,
                           int64_t planned, int64_t before, DpcMetrics *);
/* Allocates nothing.  DPC_ENV: the disk is full. */
DpcStatus dpc_metrics_step(DpcMetrics *, const DpcReport *);
/* One record {"event": event, "step": ...} with values. */
DpcStatus dpc_metrics_event(DpcMetrics *, const char *event, int64_t step,
                            const DpcValues *);
/* One record {"event": "memory", ...}: bytes of the spaces as allocated, and
 * all that was planned. */
DpcStatus dpc_metrics_memory(DpcMetrics *, const DpcRt *);
/* Ends the live line, so that other text may follow. */
void dpc_metrics_newline(DpcMetrics *);
void dpc_metrics_close(DpcMetrics *);

int64_t dpc_memory_peak(void);            /* bytes resident, at most so far */

#endif
