/* ckpt.h -- checkpoints: save, find, load, import, compare.
 *
 * A checkpoint is a folder  DIR/step-00000200  of logical tensors: whatever
 * plan wrote it, any plan of the same model reads it.  model.safetensors
 * holds the params, state.safetensors the states (optimizer, EMA); what a
 * plan splits over ranks is written by each in a file of its own,
 * model-00003-of-00008.safetensors, and dpc.json says which box of which
 * tensor lies in which file.  dpc.json also holds the step, the data cursor,
 * the seed, the scalars of the run and the XXH3-128 of each file, its own too.
 * DIR/latest and DIR/best hold the name of a folder.
 *
 * All functions that take a DpcCkpt are collective: every rank of the world
 * calls them, and all return the same status.  After any failure the older
 * checkpoints are intact and training may go on. */
#ifndef DPC_CKPT_H
#define DPC_CKPT_H

#include "runtime/disk.h"
#include "runtime/dpc_rt.h"

typedef struct DpcCkptInfo {
    int64_t step;                         /* steps done */
    int64_t cursor;                       /* samples consumed, over all ranks */
    uint64_t seed;
    uint64_t data;                        /* fingerprint of the data; 0: none */
    double *scalar;                       /* one a leaf of the unit, SCALARs
                                             used; NULL: the defaults */
    bool best;                            /* save: becomes DIR/best */
} DpcCkptInfo;

typedef struct DpcWorld {
    int rank, size;
    const int32_t *coord;                 /* of this rank, one a mesh axis */
    /* all[i * n ..] = `mine` of rank i, on every rank; NULL: size 1 */
    DpcStatus (*gather)(void *arg, const void *mine, size_t n, void *all);
    void *arg;
} DpcWorld;

/* Zeroes are good defaults. */
typedef struct DpcCkptHow {
    const DpcDisk *disk;                  /* NULL: libc */
    size_t stage;                         /* bytes of the staging buffer; 8M */
    void (*warn)(void *, const char *text);   /* NULL: stderr, rank 0 */
    void *arg;
} DpcCkptHow;

typedef struct DpcCkpt DpcCkpt;

/* Takes all the memory that saving will need.  Unit and coordinates must
 * outlive it; DPC_MEMORY, or DPC_BUG when a leaf's bytes cannot hold its
 * part. */
DpcStatus dpc_ckpt_open(const DpcUnit *, const DpcWorld *, const DpcCkptHow *,
                        DpcCkpt **);
void dpc_ckpt_close(DpcCkpt *);

/* `space`: the bytes of DPC_LEAVES and, of a unit that has leaves there, of
 * DPC_HOST_LEAVES, by DpcSpace. */
/* Saves DIR/step-N and keeps the last `keep` of them (0: all), this one and
 * the best in any case.  DPC_OK means: durable, and found by the next `auto`
 * even after a power loss. */
DpcStatus dpc_ckpt_save(DpcCkpt *, char *const *space, const DpcCkptInfo *,
                        const char *dir, int keep);

/* The folder that `which` means: auto, latest, best, step-N, or a path,
 * also of a run's folder (the newest).  Hashes are checked.  auto: the newest
 * that is whole; those which are not are named in a warning; none at all: DPC_OK and path ""; none whole:
 * DPC_USER. */
DpcStatus dpc_ckpt_find(DpcCkpt *, const char *dir, const char *which,
                        char path[DPC_PATH]);

/* Fills all params and states of this rank's leaves.  DPC_USER: damaged,
 * another model, or tensors missing, extra or of another type. */
DpcStatus dpc_ckpt_load(DpcCkpt *, char *const *space, DpcCkptInfo *,
                        const char *path);

/* Fills the params called `here`... from tensors called `there`... of a
 * checkpoint, a folder of checkpoints or its parent (the newest is taken), a
 * safetensors file, a folder of them or its index; floats are converted.
 * DPC_INIT_EMA: "ema.NAME" is preferred to "NAME".  States called "ema.HERE..."
 * get the average there, or what the param gets.
 *
 * Each of the params must have its tensor and each of the tensors its param.
 * With DPC_INIT_PARTIAL trainable ones may keep what they start as (adapters of
 * a frozen base), and tensors may be left over; DPC_INIT_EXTRA: only the
 * latter; DPC_INIT_OVER: any param may keep what it has, but no tensor may be
 * left (adapters over a base).  Where no param is there by its own name, but
 * one prefix has them, it is cut off, and told. */
enum { DPC_INIT_EMA = 1, DPC_INIT_PARTIAL = 2, DPC_INIT_EXTRA = 4,
       DPC_INIT_OVER = 8 };
typedef struct DpcInitFrom {
    const char *path, *here, *there;
    const char *rules;                    /* of dpc_source_rename; NULL */
    int how;                              /* DPC_INIT_... */
} DpcInitFrom;
typedef struct DpcInitDone {
    int params;                           /* that were filled */
    int64_t bytes;                        /* that this rank read for them */
} DpcInitDone;
DpcStatus dpc_ckpt_init_from(DpcCkpt *, char *const *space,
                             const DpcInitFrom *, DpcInitDone *);

/* Hash of the logical tensors alone: equal for equal states, whatever the
 * plan that saved them.  Not collective. */
DpcStatus dpc_ckpt_hash(const char *path, char hex[DPC_HASH]);

#endif
