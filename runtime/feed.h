/* feed.h -- fills the inputs of a program: from data, files, captions. */
#ifndef DPC_FEED_H
#define DPC_FEED_H

#include "runtime/data.h"
#include "runtime/loader.h"
#include "runtime/rt.h"

/* Turn `turn`'s part of a leaf on rank `rank`, and the sizes of its buffer. */
struct DpcBox;
void dpc_feed_coord(const DpcRt *, int32_t rank, int32_t turn,
                    int32_t coord[DPC_NAXIS]);

/* Rows that the user gave for one input: step after step takes as many as the
 * input has, from the start again where they end. */
typedef struct DpcGiven {
    const char *input;                    /* leaf */
    DpcField field;                       /* type and shape of a row */
    int64_t nrow;
    bool file;                            /* it must fill whole steps */
    void *row;                            /* owned by whoever made it */
} DpcGiven;

/* Reads all rows of a .npy file; DPC_USER, DPC_MEMORY.  free(g->row). */
DpcStatus dpc_given_read(const char *input, const char *path, DpcGiven *);

typedef struct DpcFeed DpcFeed;

typedef struct DpcFeedHow {
    DpcData *data;                        /* NULL: none */
    const char *spec;                     /* its name, for messages */
    DpcOrder order;
    const DpcGiven *given;
    int ngiven;
    bool once;                            /* the same batch at all steps */
} DpcFeedHow;

/* Binds every input of a program.  DPC_USER: an input has no source, or one
 * of another shape or type; the text names what there is. */
DpcStatus dpc_feed_open(DpcRt *, uint32_t program, const DpcFeedHow *,
                        DpcFeed **);
/* Inputs of a program that something of their shape and type is there for. */
int dpc_feed_fits(const DpcRt *, uint32_t program, const DpcFeedHow *);
/* Fills this rank's rows in all turns for the next step. */
DpcStatus dpc_feed_next(DpcFeed *, double *waited_s);
int64_t dpc_feed_bytes(const DpcFeed *);
void dpc_feed_close(DpcFeed *);           /* NULL is fine */

#endif
