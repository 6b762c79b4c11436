/* source.h -- the logical tensors that a folder or a file holds.
 *
 * A checkpoint (dpc.json), a .safetensors file, or a folder of such files
 * (Hugging Face) look the same from here: names, shapes, and the pieces of
 * files that make each tensor up. */
#ifndef DPC_SOURCE_H
#define DPC_SOURCE_H

#include "runtime/box.h"
#include "runtime/safetensors.h"

#define DPC_CKPT_INDEX "dpc.json"
#define DPC_CKPT_FORMAT "dpc-checkpoint"
enum { DPC_CKPT_VERSION = 1 };

typedef struct DpcPiece { uint32_t file; DpcBox box; } DpcPiece;

typedef struct DpcWhole {                 /* a logical tensor */
    const char *name;
    uint8_t kind;                         /* DpcSafeKind */
    bool state;                           /* not a param */
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
} DpcSource;

/* DPC_USER where the content is wrong, DPC_ENV, DPC_MEMORY.  Sizes of files
 * are compared, hashes are not. */
DpcStatus dpc_source_open(const char *path, DpcSource **);
void dpc_source_close(DpcSource *);
const DpcWhole *dpc_source_find(const DpcSource *, const char *name);
/* Checks the hash of every `of`-th file from `part` on. */
DpcStatus dpc_source_verify(DpcSource *, uint32_t part, uint32_t of,
                            void *stage, size_t nstage);
/* The elements `box` of w as dtype `to`, into a row-major buffer of the sizes
 * ext.  All of them, or it fails. */
DpcStatus dpc_source_read(DpcSource *, const DpcWhole *w, const DpcBox *box,
                          const int64_t *ext, DpcDtype to, void *out,
                          void *stage, size_t nstage);
/* The name in `s` most like `name`; NULL: none is. */
const char *dpc_source_near(const DpcSource *s, const char *name);

#endif
