/* disk.h -- the calls by which files are made, as a table.
 *
 * Whatever must survive a crash is written through DpcDisk, so that a test
 * can log the calls, fail any of them, and replay every crash between them
 * (tests/unit/test_ckpt_crash.c).  Reading needs no such table. */
#ifndef DPC_DISK_H
#define DPC_DISK_H

#include "runtime/dpc_rt.h"
#include "runtime/hash.h"
#include <sys/types.h>

enum { DPC_PATH = 4096 };                 /* chars, with the NUL */

/* All return -1 and set errno as the calls they are named after. */
typedef struct DpcDisk {
    void *arg;
    int (*create)(void *, const char *path);     /* a new file, to write */
    ssize_t (*write)(void *, int fd, const void *, size_t);
    int (*fsync)(void *, int fd);
    int (*close)(void *, int fd);
    int (*fsync_dir)(void *, const char *path);
    int (*rename)(void *, const char *from, const char *to);
    int (*unlink)(void *, const char *path);
    int (*mkdir)(void *, const char *path);
    int (*rmdir)(void *, const char *path);
    int64_t (*space)(void *, const char *path);  /* bytes free for us */
} DpcDisk;

extern const DpcDisk dpc_disk;            /* libc */

/* A file being written: buffered and hashed.  disk, buf, cap and hash belong
 * to whoever set them; the rest is reset by dpc_out_open. */
typedef struct DpcOut {
    const DpcDisk *disk;
    char *buf;
    size_t cap, n;
    DpcHash *hash;
    char path[DPC_PATH];
    int fd;                               /* -1: none open */
    int64_t bytes;                        /* put so far */
    DpcStatus status;                     /* first failure: the rest is void */
} DpcOut;

/* Formats a path; DPC_USER when it is longer than DPC_PATH. */
DpcStatus dpc_path(char out[DPC_PATH], const char *f, ...)
    __attribute__((format(printf, 2, 3)));

/* What people often have in place of a file, by its first bytes, and what to
 * do; NULL: nothing of that kind. */
const char *dpc_impostor(const char *head, size_t n);
/* DPC_USER for such a file; DPC_OK: it is none, or cannot be read. */
DpcStatus dpc_impostor_file(const char *path, const char *area);

DpcStatus dpc_out_open(DpcOut *, const char *path);
DpcStatus dpc_out_put(void *out, const void *bytes, size_t n);   /* DpcPut */
/* The hash of all that was put. */
DpcStatus dpc_out_hash(DpcOut *, char hex[DPC_HASH]);
/* Flushes, makes it durable, closes.  After any failure the file is lost: it
 * is closed, never synced again (a second fsync may lie). */
DpcStatus dpc_out_close(DpcOut *);

#endif
