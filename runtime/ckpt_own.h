/* ckpt_own.h -- what the files ckpt*.c share, and nobody else. */
#ifndef DPC_CKPT_OWN_H
#define DPC_CKPT_OWN_H

#include "runtime/box.h"
#include "runtime/ckpt.h"
#include "runtime/source.h"

enum { CKPT_TEXT = 1000, CKPT_NAME = 64 };

/* Params and states go to files of their own. */
enum { CKPT_MODEL, CKPT_STATE, CKPT_NCLASS };

/* What the ranks tell each other. */
typedef struct CkptPart {
    int32_t status;                       /* DpcStatus of the stage done */
    int32_t coord[DPC_NAXIS];
    int64_t bytes[CKPT_NCLASS];           /* of its file; 0: has none */
    char hash[CKPT_NCLASS][DPC_HASH];
    char text[CKPT_TEXT];                 /* of its failure */
} CkptPart;

struct DpcCkpt {
    const DpcUnit *unit;
    DpcWorld world;
    DpcCkptHow how;
    DpcOut out;                           /* its buffer is the staging one */
    CkptPart mine, *all;                  /* [world.size] */
    bool plain[CKPT_NCLASS];              /* nothing in it is split, and all
                                             of it is on rank 0 */
    int32_t role;                         /* of this rank */
    char dir[DPC_PATH];
    char tmp[DPC_PATH], final[DPC_PATH];  /* folders of the save under way */
    char path[DPC_PATH], to[DPC_PATH];    /* scratch */
    char verified[DPC_PATH];              /* whose hashes were found good */
};

/* ckpt.c */
/* Ends a stage: every rank gets the worst status and the text of the first
 * rank that failed. */
DpcStatus ckpt_agree(DpcCkpt *, DpcStatus mine);
void ckpt_warn(DpcCkpt *, const char *f, ...)
    __attribute__((format(printf, 2, 3)));
int ckpt_class(const DpcLeaf *);          /* -1: it is not saved */

/* ckpt_index.c: writes dpc.json into c->tmp. */
DpcStatus ckpt_index_write(DpcCkpt *, const DpcCkptInfo *);
DpcStatus ckpt_file_name(const DpcCkpt *, int class, int rank,
                         char name[CKPT_NAME]);

/* ckpt_find.c */
#define CKPT_OLD ".old"
/* The youngest checkpoint of DIR whose age is below `under`, and its age:
 * step * 2, + 1 unless it was set aside.  -1: there is none. */
DpcStatus ckpt_newest(DpcCkpt *, const char *path, char to[DPC_PATH]);
int64_t ckpt_next(const char *dir, int64_t under, char name[CKPT_NAME]);
/* First line of DIR/NAME; "" when there is none. */
void ckpt_mark_read(const char *dir, const char *name, char text[CKPT_NAME]);
/* Opens a checkpoint and checks every hash, shared out over the ranks. */
struct DpcSource;
DpcStatus ckpt_verify(DpcCkpt *, const char *path, struct DpcSource **);

/* ckpt_misfit.c: what does not fit, counted; the first names of each kind. */
enum { CKPT_TOLD = 5 };
typedef struct CkptMisfit {
    char text[700];
    size_t n;
    int missing, extra, unlike;
} CkptMisfit;

struct DpcWhole;
/* A leaf that finds no tensor, a tensor `name` that no leaf takes; n others,
 * which `at` gives, are to be had: those like it are told. */
void ckpt_tell_missing(CkptMisfit *, DpcNamed, uint32_t n, DpcNameAt at,
                       const void *arg);
void ckpt_tell_extra(CkptMisfit *, const char *name, DpcNamed, uint32_t n,
                     DpcNameAt at, const void *arg);
/* Is w what the leaf wants?  `convert`: another float type will do. */
void ckpt_compare(CkptMisfit *, const DpcLeaf *, const struct DpcWhole *w,
                  bool convert);
DpcStatus ckpt_misfit_status(const CkptMisfit *, const char *path);

/* ckpt_load.c */
/* This rank's part of a leaf, out of w. */
DpcStatus ckpt_leaf_read(DpcCkpt *, struct DpcSource *, const DpcLeaf *,
                         const struct DpcWhole *w, char *const *space);
bool ckpt_is_leaf(const DpcUnit *, const char *name);

/* ckpt_prune.c */
void ckpt_remove(DpcCkpt *, const char *path);     /* a folder and its files */
void ckpt_sweep(DpcCkpt *, const char *dir);       /* what crashes left */
void ckpt_prune(DpcCkpt *, const char *dir, int keep);

#endif
