/* cache.h -- a folder of what was made before, under hashes of what made it.
 *
 * A path is that of cache_path; NULL means no cache, which holds nothing. */
#ifndef DPC_CACHE_H
#define DPC_CACHE_H

#include "ir/base.h"
#include <sys/stat.h>

/* 128 bits of x and of y, as hex. */
char *hash_hex(Arena *, const char *x, size_t nx, const char *y);
char *cache_path(Arena *, const char *folder, const char *key,
                 const char *suffix);

/* An entry's bytes, on the heap; NULL: no such entry, or not what was put
 * there. */
char *cache_read(const char *entry, size_t *n, mode_t *mode);
/* It appears whole.  x has room for SEAL more bytes. */
enum { SEAL = 16 };
void cache_write(Arena *, const char *entry, char *x, size_t n, mode_t mode);

/* The same with files; false: as cache_read. */
bool cache_take(const char *entry, const char *to);
void cache_put(Arena *, const char *from, const char *entry);

/* An entry that is the name of another, a key; NULL: there is none. */
const char *cache_follow(Arena *, const char *entry);
void cache_link(Arena *, const char *entry, const char *key);

/* All of a file, on the heap, with room for SEAL more; NULL when it cannot be
 * read. */
char *file_read(const char *path, size_t *n, mode_t *mode);
/* A new file, never the old one with other bytes: that may be running. */
bool file_make(const char *path, const char *x, size_t n, mode_t mode);
void file_write(const char *path, const void *data, size_t n);
/* Makes all folders of a path but the last member; errors show later, when a
 * file is written there. */
void folders_make(const char *path);

#endif
