/* data_tar.h -- archives of records: what the files data_{tar,record,index}.c
 * share. */
#ifndef DPC_DATA_TAR_H
#define DPC_DATA_TAR_H

#include "runtime/data_reader.h"
#include "runtime/data_shard.h"
#include "runtime/image.h"
#include "runtime/safetensors.h"

enum { DPC_FILE_MAX = 1 << 28, DPC_TEXT_MAX = 1 << 16 };

/* What the ends of members' names say of them. */
typedef enum DpcMemberKind {
    DPC_M_IMAGE, DPC_M_TEXT, DPC_M_JSON, DPC_M_LABEL, DPC_M_ARRAY,
    DPC_M_TENSORS,                        /* a .safetensors file: many fields */
    DPC_M_ROWS,                           /* no member: a row beside */
    DPC_M_NKIND
} DpcMemberKind;

/* Members of one kind and name. */
typedef struct DpcTarColumn {
    DpcMemberKind kind;
    char name[64];
    int64_t h, w;                         /* IMAGE */
    uint8_t *rgb;                         /* [h, w, 3] of `current` */
    char *text;                           /* [text + 1] of `current` */
    int32_t label;                        /* of `current` */
    DpcSafe *safe;                        /* TENSORS: of `current` */
    DpcShards *shards;                    /* ROWS */
} DpcTarColumn;

typedef struct DpcTarMember {
    int64_t at, size;                     /* bytes in the archive */
    int32_t column;
    uint8_t ext;                          /* row of the table of ends */
    bool json;                            /* a caption within a description */
} DpcTarMember;

typedef struct DpcTarSample {
    int64_t member;                       /* its first; the next's ends them */
    int64_t key;                          /* place of its name in `keys` */
    int32_t tar;
    uint64_t hash;                        /* of its bytes, by the index */
} DpcTarSample;

/* A field is a column, or a part of one. */
typedef enum DpcTarPart { DPC_P_WHOLE, DPC_P_LENGTH, DPC_P_MASK } DpcTarPart;
typedef struct DpcTarField {
    int column, of;                       /* of: the field that is padded */
    DpcTarPart part;
    bool padded;                          /* records may have fewer rows */
    int64_t first;                        /* rows, where an index alone pads
                                             it: of the first; 0 elsewhere */
    DpcField field;                       /* its type: field.name owned */
    DpcColumn lies;                       /* an array: that of `current` */
} DpcTarField;

typedef struct DpcTars {
    DpcFiles file;
    DpcTarColumn column[DPC_NFIELD];
    int ncolumn, nfield;
    DpcTarField field[DPC_NFIELD];
    DpcTarMember *member;
    DpcTarSample *sample;                 /* [count + 1] */
    char *keys;
    int64_t nmember, member_cap, count, cap, nkey, key_cap;
    int64_t image_max, text_max;          /* bytes of the largest */
    DpcDataOptions option;
    DpcImager *imager;
    int64_t current;                      /* -1: none */
} DpcTars;

/* data_tar.c */
/* Adds a sample of archive file.n - 1, and a member to the last one.
 * DPC_USER: too many kinds. */
DpcStatus dpc_tars_sample(DpcTars *, const char *key);
DpcStatus dpc_tars_member(DpcTars *, const char *ext, int64_t at,
                          int64_t size);
/* The member of a column; NULL: the sample has none. */
const DpcTarMember *dpc_tars_find_member(const DpcTars *, int64_t sample,
                                         int column);
const char *dpc_tars_key(const DpcTars *, int64_t sample);
/* DPC_USER: "ARCHIVE: error: data: record KEY: why". */
DpcStatus dpc_tars_fail(const DpcTars *, int64_t sample, const char *f, ...)
    __attribute__((format(printf, 3, 4)));

/* What stands behind the first dot of a member's name, and its field ("" of
 * tensors); NULL: a file that is none of ours. */
const char *dpc_member_ext(const char *path, char field[64]);
/* "png", or "NAME.png". */
void dpc_tars_ext(const DpcTars *, const DpcTarMember *, char *to,
                  size_t size);

/* data_index.c */
#define DPC_INDEX "dpc.index"
typedef struct DpcIndex DpcIndex;
/* The index beside an archive; *out is NULL when there is none.  DPC_USER: it
 * is damaged. */
DpcStatus dpc_index_open(const char *tar, DpcIndex **out);
void dpc_index_close(DpcIndex *);         /* NULL is fine */
/* Adds the records of an archive.  DPC_USER: it is not in the index, or has
 * another size. */
DpcStatus dpc_index_tar(DpcIndex *, DpcTars *, const char *path);
DpcStatus dpc_index_all_used(const DpcIndex *);
const char *dpc_index_hash(const DpcIndex *);
/* Rows and name of pad i; 0: no such. */
int64_t dpc_index_pad(const DpcIndex *, int i, const char **name);

/* data_record.c */
/* Rows of the record's array; 0: it is no array, or another, or damaged. */
int64_t dpc_tars_rows(DpcTars *, int64_t sample, int field);
extern const DpcReader dpc_tars_reader;
/* The fields of all columns, by the first sound record of each. */
DpcStatus dpc_tars_fields(DpcTars *, DpcData *);

#endif
