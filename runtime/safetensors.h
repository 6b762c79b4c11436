/* safetensors.h -- a strict reader and a streaming writer of .safetensors.
 *
 * The format: 8 bytes little endian, the length of a JSON header; the header
 * {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {}}; the data,
 * row-major, without gaps.  github.com/huggingface/safetensors. */
#ifndef DPC_SAFETENSORS_H
#define DPC_SAFETENSORS_H

#include "runtime/disk.h"
#include "runtime/dpc_rt.h"

/* Element types a file may hold: name, bits. */
#define DPC_SAFE_KINDS(X) \
    X(BOOL, 8) X(U8, 8) X(I8, 8) X(F8_E5M2, 8) X(F8_E4M3, 8) X(F8_E8M0, 8) \
    X(I16, 16) X(U16, 16) X(F16, 16) X(BF16, 16) X(I32, 32) X(U32, 32) \
    X(F32, 32) X(F64, 64) X(I64, 64) X(U64, 64) X(C64, 64) \
    X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6)
typedef enum DpcSafeKind {
#define X(name, bits) DPC_SAFE_##name,
    DPC_SAFE_KINDS(X)
#undef X
    DPC_SAFE_NKIND
} DpcSafeKind;

const char *dpc_safe_kind_name(DpcSafeKind);
int dpc_safe_bits(DpcSafeKind);           /* of an element */
DpcSafeKind dpc_safe_kind_of(DpcDtype);
/* Of a tensor whose bits a reader has counted. */
int64_t dpc_safe_bytes(DpcSafeKind, int ndim, const int64_t *dim);

typedef struct DpcSafeTensor {
    const char *name;
    uint8_t kind;                         /* DpcSafeKind */
    int ndim;
    int64_t dim[DPC_NDIM];
    int64_t at, bytes;                    /* from the first byte of the file */
} DpcSafeTensor;

typedef struct DpcSafe {
    char *path;
    int fd;
    uint32_t n;
    DpcSafeTensor *tensor;                /* by name */
    int64_t base, bytes;                  /* where it begins; its size */
    void *doc;                            /* the header, which owns the names */
} DpcSafe;

/* Reads and checks the header; DPC_USER names what is wrong with the file,
 * DPC_ENV what the system refused, DPC_MEMORY. */
DpcStatus dpc_safe_open(const char *path, DpcSafe **);
/* The same for an open file; takes the descriptor, also when it fails. */
DpcStatus dpc_safe_open_fd(int fd, const char *path, DpcSafe **);
/* The same for `bytes` of an open file from `at` on, which stays the
 * caller's; places are counted from there. */
DpcStatus dpc_safe_open_within(int fd, int64_t at, int64_t bytes,
                               const char *path, DpcSafe **);
void dpc_safe_close(DpcSafe *);           /* NULL is fine */
const DpcSafeTensor *dpc_safe_find(const DpcSafe *, const char *name);
/* n bytes from byte `from` of the tensor.  Not from a map: a file that shrinks
 * is an error here, a SIGBUS there. */
DpcStatus dpc_safe_read(const DpcSafe *, const DpcSafeTensor *, int64_t from,
                        void *to, size_t n);
/* The bytes from there on, of whatever tensor, will be read soon. */
void dpc_safe_ahead(const DpcSafe *, const DpcSafeTensor *, int64_t from,
                    size_t n);

/* safetensors_convert.c: n elements of `kind` as `to`, both aligned: floats as
 * each other, others, of whole bytes, as themselves.  False: not so. */
bool dpc_safe_convert(DpcSafeKind kind, const void *from, DpcSafeKind to,
                      void *out, int64_t n);
bool dpc_safe_converts(DpcSafeKind kind, DpcSafeKind to);

/* Entries for a header, by number, so that no list need be kept.  False:
 * there is none of this number. */
typedef struct DpcSafeList {
    uint32_t n;
    bool (*entry)(void *arg, uint32_t i, DpcSafeTensor *);  /* at unused */
    void *arg;
} DpcSafeList;
int64_t dpc_safe_list_bytes(const DpcSafeList *);     /* of the data */
/* Writes length and header, after which the data of the entries must follow
 * in their order. */
DpcStatus dpc_safe_head(DpcOut *, const DpcSafeList *);

#endif
