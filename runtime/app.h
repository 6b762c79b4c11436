/* app.h -- a running binary: what its commands share. */
#ifndef DPC_APP_H
#define DPC_APP_H

#include "runtime/caption.h"
#include "runtime/ckpt.h"
#include "runtime/feed.h"
#include "runtime/metrics.h"
#include "runtime/options.h"
#include "runtime/output.h"
#include "runtime/watch.h"

enum { DPC_NMORE = 32 };                  /* --more-data at most */

typedef struct DpcApp {
    const DpcUnit *unit;
    DpcOptions opt;
    DpcComm *comm;
    DpcRt *rt;
    DpcWatch *watch;
    DpcCkpt *ckpt;
    DpcData *data, *val;                  /* val: NULL: use data */
    DpcData *more[DPC_NMORE];             /* of --more-data, in its order */
    DpcCaption *caption;                  /* NULL: the model takes none */
    DpcGiven given[2 * DPC_NLIST];
    int ngiven;
    DpcMetrics metrics;                   /* rank 0 */
    char folder[DPC_PATH];                /* of checkpoints; "": none */
    double low, high;                     /* of pictures */
    int64_t step, cursor;                 /* done; samples consumed */
    int64_t memory_before;                /* peak bytes before the first run */
    bool resumed;
    bool busy;                            /* other ranks may wait for us */
} DpcApp;

/* app.c */
DpcStatus dpc_app_open(DpcApp *, const DpcUnit *);
void dpc_app_close(DpcApp *);
bool dpc_app_first(const DpcApp *);       /* rank 0, the one that talks */
/* Prints on rank 0, ending the live line before. */
void dpc_app_note(DpcApp *, const char *f, ...)
    __attribute__((format(printf, 2, 3)));
/* app_data.c: opens data as the model's inputs want them: captions as ids, rows
 * padded. */
DpcStatus dpc_app_data(DpcApp *, const char *spec, DpcData **);
/* Sets the program's scalars, then runs it. */
DpcStatus dpc_app_run(DpcApp *, uint32_t program, int64_t step);
/* Times that a row runs: its own number, or a scalar's value. */
DpcStatus dpc_app_times(const DpcApp *, const DpcRun *, int64_t *times);
/* The entry of the command's last row, its loop; the command itself. */
const char *dpc_app_row(const DpcApp *, const char *command);
DpcStatus dpc_app_entry(const DpcApp *, const char *entry, uint32_t *program);
DpcStatus dpc_app_save(DpcApp *, bool best);
/* Params and states: a checkpoint, or the init entries; then --init-from.
 * DPC_USER: the command needs a checkpoint and there is none. */
DpcStatus dpc_app_state(DpcApp *, bool fresh_ok);

/* app_out.c: makes OUT/ckpt, on rank 0; ranks find it there after the next
 * vote.  DPC_USER: another run trains there. */
DpcStatus dpc_app_out(DpcApp *);

/* train.c */
DpcStatus dpc_app_train(DpcApp *);
/* Means over whole batches of the validation data. */
typedef struct DpcMeans {
    DpcValues values;                     /* the means */
    uint32_t program;                     /* of the last batch */
    int64_t samples, left;                /* read; fewer than a batch, unread */
} DpcMeans;
DpcStatus dpc_app_eval_command(DpcApp *);
/* Writes what --output names of the last run of this program; DPC_USER: it
 * has no such output. */
DpcStatus dpc_app_outputs(DpcApp *, uint32_t program);
/* Runs the rows of a command in order and writes outputs; `picture`: also
 * the first picture, to this file. */
DpcStatus dpc_app_rows(DpcApp *, const char *command, const char *picture);

#endif
