/* source.h -- the logical tensors that a folder or a file holds.
 *
 * A checkpoint (dpc.json), a .safetensors file, a folder of such files or its
 * index (Hugging Face) look the same from here: names, shapes, and the pieces
 * of files that make each tensor up. */
#ifndef DPC_SOURCE_H
#define DPC_SOURCE_H

#include "runtime/box.h"
#include "runtime/safetensors.h"

#define DPC_CKPT_INDEX "dpc.json"
#define DPC_CKPT_FORMAT "dpc-checkpoint"
enum { DPC_CKPT_VERSION = 1 };

typedef struct DpcPiece {
    uint32_t file;
    int64_t at;                           /* its first byte; 0: not known */
    DpcBox box;
} DpcPiece;

typedef struct DpcWhole {                 /* a logical tensor */
    const char *name, *own;               /* own: what its file calls it */
    uint8_t kind;                         /* DpcSafeKind */
    bool state, residual;                 /* not a param; of one plan */
    int ndim;
    int64_t dim[DPC_NDIM];
    uint32_t piece, npiece;               /* source.piece */
} DpcWhole;

typedef struct DpcSourceFile {
    char *name;
    const char *hash;                     /* hex; NULL: nobody noted it */
    int64_t bytes;
    DpcSafe *open;
} DpcSourceFile;

typedef struct DpcSource {
    char path[DPC_PATH];                  /* folder; what messages name */
    char file_path[DPC_PATH];
    void *index;                          /* dpc.json, parsed; NULL: none */
    uint32_t n, npiece, nfile, nopen;
    DpcWhole *whole;                      /* by name */
    DpcPiece *piece;
    DpcSourceFile *file;
    char **kept;                          /* names that no file owns */
    uint32_t nkept;
} DpcSource;

/* DPC_USER where the content is wrong, DPC_ENV, DPC_MEMORY.  Sizes of files
 * are compared, hashes are not. */
DpcStatus dpc_source_open(const char *path, DpcSource **);
void dpc_source_close(DpcSource *);
/* Renames and leaves out tensors by the rules of a file (source_map.c), a path
 * as fopen takes it.  DPC_USER, with the line, for a rule that is malformed or
 * fits none, and where two tensors would get one name: then close it. */
DpcStatus dpc_source_rename(DpcSource *, const char *rules);
/* The prefix, ending in '.', below which the most of `want` are there: how many
 * prefixes share that first place (0: none has any), the first two of them. */
int dpc_source_prefix(const DpcSource *, const char *const *want, uint32_t n,
                      char prefix[2][DPC_PATH]);
const DpcWhole *dpc_source_find(const DpcSource *, const char *name);
/* Checks the hash of every `of`-th file from `part` on. */
DpcStatus dpc_source_verify(DpcSource *, uint32_t part, uint32_t of,
                            void *stage, size_t nstage);
/* The elements `box` of w as kind `to`, into a row-major buffer of the sizes
 * ext.  All of them, or it fails.  What is read and not yet converted is at
 * most nstage bytes at a time. */
DpcStatus dpc_source_read(DpcSource *, const DpcWhole *w, const DpcBox *box,
                          const int64_t *ext, DpcSafeKind to, void *out,
                          void *stage, size_t nstage);
/* Calls fn for boxes of at most `room` elements that make w up, in the order of
 * its elements, until one fails. */
DpcStatus dpc_source_slices(const DpcWhole *w, int64_t room,
                            DpcStatus (*fn)(void *arg, const DpcBox *),
                            void *arg);

typedef struct DpcNamed {                 /* a tensor or a leaf */
    const char *name;                     /* NULL: to be passed over */
    int ndim;
    const int64_t *dim;
} DpcNamed;

typedef DpcNamed (*DpcNameAt)(const void *arg, uint32_t i);
enum { DPC_NEAR = 2 };

DpcNamed dpc_whole_named(const DpcWhole *);
/* Letters to change, put in, leave out, and neighbours to swap, until a is b;
 * some number above `most` when there are more, or more than 128 letters. */
int dpc_edits(const char *a, const char *b, int most);
/* Of the n that `at` gives, those that `of` may be there, the likest first: of
 * its shape and at most two thirds of the letters differ, or of another and a
 * third.  How many: at most DPC_NEAR. */
int dpc_names_near(DpcNamed of, uint32_t n, DpcNameAt at, const void *arg,
                   const char *near[DPC_NEAR]);

#endif
