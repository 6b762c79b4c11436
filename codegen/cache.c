/* cache.c -- a folder of what was made before, under hashes of what made it.
 *
 * Files enter by rename, so that two compiles at once never see half of one,
 * and carry a hash of their bytes, so that what a full disk or a crash left of
 * them is no hit.  They are copied, not linked: the user may write over a
 * binary.  A cache that cannot be written is none. */
#include "codegen/cache.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(SEAL == sizeof(XXH128_canonical_t), "a seal is a hash");

void folders_make(const char *path)
{
    char p[4096];
    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; *s; s++)
        if (*s == '/') {
            *s = 0;
            mkdir(p, 0777);
            *s = '/';
        }
}

void file_write(const char *path, const void *data, size_t n)
{
    folders_make(path);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    ok = f && fclose(f) == 0 && ok;
    if (!ok)
        err_code(5, path, "cannot write %zu bytes: %s", n, strerror(errno));
}

char *hash_hex(Arena *a, const char *x, size_t nx, const char *y)
{
    XXH3_state_t s;
    XXH3_128bits_reset(&s);
    XXH3_128bits_update(&s, x, nx);
    XXH3_128bits_update(&s, y, strlen(y));
    XXH128_hash_t h = XXH3_128bits_digest(&s);
    return fmt(a, "%016llx%016llx", (unsigned long long)h.high64,
               (unsigned long long)h.low64);
}

char *file_read(const char *path, size_t *n, mode_t *mode)
{
    struct stat st;
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *x = NULL;
    if (f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
        *n = (size_t)st.st_size;
        *mode = st.st_mode & 0777;
        x = malloc(*n + SEAL);
    }
    if (x && fread(x, 1, *n, f) != *n) {
        free(x);
        x = NULL;
    }
    if (f)
        fclose(f);
    return x;
}

bool file_make(const char *path, const char *x, size_t n, mode_t mode)
{
    struct stat old;
    if (lstat(path, &old) == 0 && !S_ISREG(old.st_mode)
        && !S_ISLNK(old.st_mode)) {
        errno = S_ISDIR(old.st_mode) ? EISDIR : EEXIST;
        return false;                     /* a device is not ours to replace */
    }
    unlink(path);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(x, 1, n, f) == n && fchmod(fileno(f), mode) == 0;
    return f && fclose(f) == 0 && ok;
}

static XXH128_canonical_t seal_of(const char *x, size_t n)
{
    XXH128_canonical_t seal;
    XXH128_canonicalFromHash(&seal, XXH3_128bits(x, n));
    return seal;
}

char *cache_read(const char *entry, size_t *n, mode_t *mode)
{
    char *x = file_read(entry, n, mode);
    if (x && *n > SEAL) {
        XXH128_canonical_t seal = seal_of(x, *n -= SEAL);
        if (memcmp(&seal, x + *n, SEAL) == 0)
            return x;
    }
    free(x);
    return NULL;
}

void cache_write(Arena *a, const char *entry, char *x, size_t n, mode_t mode)
{
    XXH128_canonical_t seal = seal_of(x, n);
    memcpy(x + n, &seal, SEAL);
    folders_make(entry);
    char *tmp = fmt(a, "%s.%d", entry, (int)getpid());
    if (!file_make(tmp, x, n + SEAL, mode) || rename(tmp, entry) != 0)
        unlink(tmp);
}

bool cache_take(const char *entry, const char *to)
{
    size_t n = 0;
    mode_t mode;
    char *x = cache_read(entry, &n, &mode);
    bool ok = x && file_make(to, x, n, mode);
    free(x);
    return ok;
}

void cache_put(Arena *a, const char *from, const char *entry)
{
    size_t n = 0;
    mode_t mode;
    char *x = entry ? file_read(from, &n, &mode) : NULL;
    if (x)
        cache_write(a, entry, x, n, mode);
    free(x);
}

/* A symbolic link that points nowhere: made in one call, read in one. */
const char *cache_follow(Arena *a, const char *entry)
{
    char key[64];
    ssize_t n = entry ? readlink(entry, key, sizeof key) : -1;
    return n > 0 ? fmt(a, "%.*s", (int)n, key) : NULL;
}

void cache_link(Arena *a, const char *entry, const char *key)
{
    if (!entry || symlink(key, entry) == 0)
        return;
    char *tmp = fmt(a, "%s.%d", entry, (int)getpid());
    folders_make(entry);
    if (symlink(key, tmp) != 0 || rename(tmp, entry) != 0)
        unlink(tmp);
}

char *cache_path(Arena *a, const char *folder, const char *key,
                 const char *suffix)
{
    return folder ? fmt(a, "%s/%.2s/%s%s", folder, key, key, suffix) : NULL;
}
