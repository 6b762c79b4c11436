/* tar.c -- where the members of a tar archive lie.
 *
 * Blocks of 512 bytes: a head, then the member's bytes filled up.  Long names
 * come in members of their own before the one they name: GNU's "L", or "x"
 * with lines "LENGTH path=NAME".  POSIX.1-2001, pax(1), describes both.  Zero
 * blocks end an archive; where another was appended (cat a.tar b.tar), it is
 * read on. */
#include "runtime/data_reader.h"
#include "runtime/disk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK = 512, NAME = DPC_TAR_NAME,
    ZEROS = 40                            /* blocks: tar fills up to 20 */
};

typedef struct Head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
    char type, link[100], magic[8], user[32], group[32], major[8], minor[8];
    char prefix[155], fill[12];
} Head;

typedef struct Tar {
    int fd;
    int64_t end;                          /* bytes of the file */
    char name[NAME];                      /* from a member before; "": none */
    int64_t size;                         /* from there too; -1 */
} Tar;

/* Octal digits, or a big-endian number when the first bit is set; -1. */
static int64_t number(const char *s, size_t n)
{
    int64_t v = 0;
    if ((uint8_t)s[0] & 0x80) {
        for (size_t i = n - 7; i < n; i++)
            v = v << 8 | (uint8_t)s[i];
        return v;
    }
    size_t i = 0;
    while (i < n && s[i] == ' ')
        i++;
    for (; i < n && s[i] >= '0' && s[i] <= '7'; i++)
        v = v << 3 | (s[i] - '0');
    return i < n && s[i] && s[i] != ' ' ? -1 : v;
}

static bool sum_ok(const Head *h)
{
    const uint8_t *b = (const uint8_t *)h;
    int64_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(Head, sum) && i < offsetof(Head, type) ? ' '
             : b[i];
    return sum == number(h->sum, sizeof h->sum);
}

static bool all_zero(const Head *h)
{
    const uint8_t *b = (const uint8_t *)h;
    for (size_t i = 0; i < BLOCK; i++)
        if (b[i])
            return false;
    return true;
}

/* "27 path=dir/name\n" and "12 size=34\n"; others are passed over.  False: a
 * name of which there is no room, since a part of it could be another's. */
static bool pax_read(Tar *t, const char *p, int64_t n)
{
    const char *end = p + n;
    while (p < end) {
        char *key;
        long length = strtol(p, &key, 10);
        if (length <= key - p || length > end - p || *key++ != ' ')
            return true;
        int value = (int)(p + length - 1 - key);
        if (value >= 5 && !strncmp(key, "path=", 5) &&
            snprintf(t->name, NAME, "%.*s", value - 5, key + 5) >= NAME)
            return false;
        if (value >= 5 && !strncmp(key, "size=", 5))
            t->size = strtoll(key + 5, NULL, 10);
        p += length;
    }
    return true;
}

/* A member that speaks of the next one. */
static bool about_next(Tar *t, char type, int64_t at, int64_t size)
{
    char text[2 * NAME];
    if (size >= (int64_t)sizeof text ||
        pread(t->fd, text, (size_t)size, at) != size)
        return false;
    text[size] = '\0';
    return type == 'L' ? snprintf(t->name, NAME, "%s", text) < NAME
                       : pax_read(t, text, size);
}

static void name_of(const Tar *t, const Head *h, char *to)
{
    if (t->name[0])
        snprintf(to, NAME, "%s", t->name);
    else if (h->prefix[0] && !memcmp(h->magic, "ustar", 5) && !h->magic[5])
        snprintf(to, NAME, "%.155s/%.100s", h->prefix, h->name);
    else
        snprintf(to, NAME, "%.100s", h->name);
}

/* What no part of can be read: it would count as one corrupt sample. */
static DpcStatus other_file(const char *path, int fd)
{
    uint8_t h[2] = { 0 };
    DpcStatus s = dpc_impostor_file(path, "data");
    if (!s && pread(fd, h, 2, 0) == 2 && h[0] == 0x1f && h[1] == 0x8b)
        s = dpc_fail(DPC_USER, "%s: error: data: packed by gzip, so no record "
                     "can be found in it; unpack it (gunzip)", path);
    return s;
}

DpcStatus dpc_tar_walk(const char *path, int fd, DpcMemberFn *member,
                       void *arg, bool *sound, int64_t *at)
{
    Tar t = {.fd = fd, .size = -1};
    Head h;
    struct stat st;
    char name[NAME];
    if (fstat(fd, &st))
        return dpc_fail(DPC_ENV, "%s: error: data: cannot be read", path);
    DpcStatus other = other_file(path, fd);
    if (other)
        return other;
    t.end = st.st_size;
    int zeros = 0;
    for (*at = 0; *at + BLOCK <= t.end && zeros <= ZEROS; ) {
        if (pread(fd, &h, BLOCK, *at) != BLOCK)
            break;
        if (all_zero(&h)) {
            zeros++, *at += BLOCK;
            continue;
        }
        int64_t size = t.size >= 0 ? t.size : number(h.size, sizeof h.size);
        int64_t bytes = *at + BLOCK;
        if (!sum_ok(&h) || size < 0)
            break;
        bool whole = size <= t.end - bytes;
        zeros = 0;
        if (h.type == 'L' || h.type == 'x') {
            if (!whole || !about_next(&t, h.type, bytes, size))
                break;
        } else {
            name_of(&t, &h, name);
            t.name[0] = '\0', t.size = -1;
            DpcStatus s = h.type == '0' || !h.type
                        ? member(arg, name, bytes, whole ? size : -1) : DPC_OK;
            if (s)
                return s;
        }
        if (!whole)
            break;
        *at = bytes + (size + BLOCK - 1) / BLOCK * BLOCK;
    }
    *sound = zeros > 0;
    return DPC_OK;
}
