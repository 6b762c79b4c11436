/* data_reader.h -- what the readers behind data.h share. */
#ifndef DPC_DATA_READER_H
#define DPC_DATA_READER_H

#include "runtime/data.h"
#include "runtime/hash.h"
#include <pthread.h>
#include <stdatomic.h>

enum { DPC_NFIELD = 32, DPC_WHY = 1024 };

/* One kind of data.  `self` is the reader's own. */
typedef struct DpcReader {
    /* Make the sample ready to be read.  DPC_USER: this one is corrupt. */
    DpcStatus (*seek)(void *self, int64_t sample);
    DpcStatus (*read)(void *self, int64_t sample, int field, void *to);
    void (*close)(void *self);
    /* Where a sample comes from, for messages; NULL: its number says it. */
    void (*name)(void *self, int64_t sample, char *to, size_t size);
    /* As dpc_data_pad; changes and adds fields.  NULL: all samples have one
     * size. */
    DpcStatus (*pad)(void *self, DpcData *, int field, int64_t rows);
    void (*unpad)(void *self, DpcData *, int field);    /* NULL with `pad` */
} DpcReader;

struct DpcData {
    pthread_mutex_t lock;                 /* one sample is ready at a time: an
                                             evaluation may read what the
                                             training's loader reads */
    const DpcReader *reader;
    void *self;
    int nfield;
    DpcField field[DPC_NFIELD];           /* names belong to the reader */
    int64_t count;                        /* samples */
    int64_t bytes;                        /* memory held */
    int64_t budget;                       /* corrupt samples allowed */
    _Atomic bool quiet;                   /* another rank names them */
    _Atomic int64_t bad;                  /* corrupt samples met */
    char hash[DPC_HASH];                  /* of its index; "": none */
    uint8_t *corrupt;                     /* a bit a sample: met and corrupt */
    int64_t limit[DPC_NFIELD];            /* numbers are below; 0: any */
    char *why[DPC_NFIELD];                /* owned */
    uint8_t *looked;                      /* room for a limited field */
    int64_t looked_size, checked;         /* checked: a sound sample; -1 */
};

/* How numbers lie in a file. */
typedef enum DpcStored {
    DPC_STORED_U8, DPC_STORED_F16, DPC_STORED_I32, DPC_STORED_F32,
    DPC_STORED_I64, DPC_STORED_F64, DPC_STORED_BF16
} DpcStored;

/* A file that holds one field of all samples, one after the other. */
typedef struct DpcColumn {
    char *path, *name;                    /* owned */
    DpcField field;
    DpcStored stored;
    bool swap;                            /* other byte order than ours */
    int64_t count;                        /* samples */
    int64_t at;                           /* bytes before the first */
    int fd;                               /* -1 when in memory */
    uint8_t *mem;                         /* owned; NULL when on disk */
} DpcColumn;

/* Fills path, name and the rest from the head of a file; what it has filled
 * when it fails is freed by the caller. */
typedef DpcStatus DpcColumnFn(const char *path, DpcColumn *);
DpcColumnFn dpc_idx_column, dpc_npy_column;

/* The head of an array that begins at c->at of c->fd and takes `size` bytes:
 * one sample of any shape, or as many as its first dimension says. */
DpcStatus dpc_npy_head(const char *path, int64_t size, DpcColumn *);
DpcStatus dpc_npy_rows(const char *path, int64_t size, DpcColumn *);
DpcStatus dpc_column_read(const DpcColumn *, int64_t sample, void *to);
/* DPC_USER: the sample has numbers that its type cannot hold. */
DpcStatus dpc_column_check(const DpcColumn *, int64_t sample);

/* Opens n files, each read by the given head, as the fields of `d`.
 * DPC_USER: they differ in the number of samples or agree in a name. */
DpcStatus dpc_columns_open(char *const *path, int n, DpcColumnFn *,
                           DpcData *);
int64_t dpc_stored_size(DpcStored);       /* bytes of a number */

/* The IDX files of a folder that belong to `split` ("train" or "test"), at
 * most DPC_NFIELD of them; *n = 0 when there are none.  The caller frees. */
DpcStatus dpc_idx_find(const char *dir, const char *split, char **path,
                       int *n);

/* Pictures below `dir`; `option` is the text behind '?', or NULL. */
DpcStatus dpc_folder_open(const char *dir, const char *option, DpcData *);

/* Tar files as WebDataset writes them; see data_tar.c.  `all`: those are the
 * files of a folder. */
DpcStatus dpc_tars_open(char *const *path, int n, bool all,
                        const char *option, DpcData *);
/* The .tar files of a folder, sorted; *n = 0: none.  The caller frees. */
DpcStatus dpc_tars_find(const char *dir, char ***path, int *n);
/* The names of a list, separated by commas; "s-{08..10}.tar" is three.  The
 * caller frees. */
DpcStatus dpc_braces(const char *list, char ***path, int *n);
enum { DPC_TAR_NAME = 4096 };             /* bytes of a member's, with its 0 */

/* Calls `member` for each plain file of an archive, in order, with the place
 * of its bytes (size -1: the file ends in them); *sound is false when the
 * archive ends or breaks before its end, at byte *at. */
typedef DpcStatus DpcMemberFn(void *arg, const char *name, int64_t at,
                              int64_t size);
DpcStatus dpc_tar_walk(const char *path, int fd, DpcMemberFn *member,
                       void *arg, bool *sound, int64_t *at);

/* What a spec says behind '?', NULL: nothing; `what` is named in messages. */
typedef struct DpcDataOptions {
    int64_t h, w, text, digits;           /* 0: not said; digits: 4 */
    struct DpcDataPad { char name[64]; int64_t rows; bool index; }
        pad[DPC_NFIELD];                  /* index: no option says so */
    struct DpcDataRows { char name[64], dir[1024]; } rows[DPC_NFIELD];
    int npad, nrows;
    bool no_index;
} DpcDataOptions;
DpcStatus dpc_data_options(const char *what, const char *, DpcDataOptions *);

/* Files by number, of which at most DPC_NOPEN are open. */
enum { DPC_NOPEN = 64 };
typedef struct DpcFiles {
    char **path;                          /* [n], owned */
    int n, cap, nopen;
    struct DpcFileOpen { int file, fd; uint64_t used; } open[DPC_NOPEN];
    uint64_t now;
} DpcFiles;
DpcStatus dpc_file_add(DpcFiles *, const char *path);     /* number n - 1 */
/* *fd stays open while fewer than DPC_NOPEN others are opened. */
DpcStatus dpc_file_open(DpcFiles *, int i, int *fd);
int64_t dpc_files_bytes(const DpcFiles *);
void dpc_files_close(DpcFiles *);
/* Exactly n bytes at `at`.  DPC_ENV: there are fewer. */
DpcStatus dpc_file_take(const char *path, int fd, int64_t at, int64_t n,
                        void *to);
/* text : u8[size] = the first n bytes, or fewer: no character is cut. */
void dpc_text_put(const char *text, int64_t n, uint8_t *to, int64_t size);

typedef int DpcOrder(const void *, const void *);
DpcOrder dpc_folder_order;                /* names: by class, then by name */
/* Text of pictures: caption[i] belongs to name[i], which is sorted by `order`;
 * it is owned by the caller, NULL where the list has none.  *found: there was
 * a list. */
DpcStatus dpc_captions_read(const char *dir, char *const *name, int64_t n,
                            DpcOrder *order, char **caption, bool *found);

/* The same from NAME.txt beside each picture NAME.png. */
DpcStatus dpc_captions_beside(const char *dir, char *const *name, int64_t n,
                              char **caption, bool *found);

/* *n *= by; false when that does not fit or `by` is not positive. */
bool dpc_size_mul(int64_t *n, int64_t by);
/* "a/b" in new memory, NULL when there is none. */
char *dpc_path_join(const char *a, const char *b);

#endif
