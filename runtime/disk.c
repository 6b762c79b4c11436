/* disk.c -- the calls by which files are made, and a buffered, hashed file.
 *
 * Every call that fails says the path and what the system said.  A failed
 * write or fsync loses the file for good: Linux reports a lost page once, and
 * a second fsync would succeed over a hole. */
#include "runtime/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int sys_create(void *arg, const char *path)
{
    (void)arg;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static ssize_t sys_write(void *arg, int fd, const void *p, size_t n)
{
    (void)arg;
    return write(fd, p, n);
}

static int sys_fsync(void *arg, int fd) { (void)arg; return fsync(fd); }
static int sys_close(void *arg, int fd) { (void)arg; return close(fd); }

static int sys_fsync_dir(void *arg, const char *path)
{
    (void)arg;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int r = fsync(fd), e = errno;
    close(fd);
    errno = e;
    return r;
}

static int sys_rename(void *arg, const char *from, const char *to)
{
    (void)arg;
    return rename(from, to);
}

static int sys_unlink(void *arg, const char *p) { (void)arg; return unlink(p); }
static int sys_rmdir(void *arg, const char *p) { (void)arg; return rmdir(p); }

static int sys_mkdir(void *arg, const char *p)
{
    (void)arg;
    return mkdir(p, 0777);
}

static int64_t sys_space(void *arg, const char *path)
{
    (void)arg;
    struct statvfs v;
    if (statvfs(path, &v))
        return -1;
    int64_t bytes;
    if (__builtin_mul_overflow(v.f_bavail, v.f_frsize, &bytes))
        return INT64_MAX;
    return bytes;
}

const DpcDisk dpc_disk = {
    NULL, sys_create, sys_write, sys_fsync, sys_close, sys_fsync_dir,
    sys_rename, sys_unlink, sys_mkdir, sys_rmdir, sys_space,
};

DpcStatus dpc_path(char out[DPC_PATH], const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    int n = vsnprintf(out, DPC_PATH, f, ap);
    va_end(ap);
    if (n >= 0 && n < DPC_PATH)
        return DPC_OK;
    return dpc_fail(DPC_USER, "%.200s...: error: path of %d characters; at "
                    "most %d", out, n, DPC_PATH - 1);
}

static DpcStatus broken(DpcOut *o, const char *what)
{
    o->status = dpc_fail(DPC_ENV, "%s: error: cannot %s at byte %lld: %s",
                         o->path, what, (long long)o->bytes, strerror(errno));
    return o->status;
}

DpcStatus dpc_out_open(DpcOut *o, const char *path)
{
    o->n = 0, o->bytes = 0, o->fd = -1;
    o->status = dpc_path(o->path, "%s", path);
    if (o->status != DPC_OK)
        return o->status;
    dpc_hash_reset(o->hash);
    o->fd = o->disk->create(o->disk->arg, path);
    return o->fd < 0 ? broken(o, "create") : DPC_OK;
}

static DpcStatus push(DpcOut *o, const char *p, size_t n)
{
    dpc_hash_add(o->hash, p, n);
    while (n > 0) {
        ssize_t k = o->disk->write(o->disk->arg, o->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO;
        if (k <= 0)
            return broken(o, "write");
        p += k;
        n -= (size_t)k;
    }
    return DPC_OK;
}

static DpcStatus flush(DpcOut *o)
{
    size_t n = o->n;
    o->n = 0;
    return o->status == DPC_OK ? push(o, o->buf, n) : o->status;
}

DpcStatus dpc_out_put(void *out, const void *bytes, size_t n)
{
    DpcOut *o = out;
    const char *p = bytes;
    if (o->status != DPC_OK)
        return o->status;
    o->bytes += (int64_t)n;
    if (o->n > 0 && n > o->cap - o->n) {
        size_t head = o->cap - o->n;
        memcpy(o->buf + o->n, p, head);
        o->n = o->cap, p += head, n -= head;
        if (flush(o) != DPC_OK)
            return o->status;
    }
    if (n >= o->cap)
        return push(o, p, n);
    if (n > 0)
        memcpy(o->buf + o->n, p, n);
    o->n += n;
    return DPC_OK;
}

const char *dpc_impostor(const char *head, size_t n)
{
    static const struct { const char *begin, *what; } known[] = {
        { "version https://git-lfs", "a git-lfs pointer, not the file itself; "
          "run \"git lfs pull\"" },
        { "<!doctype html", "a web page; download the file itself" },
        { "<html", "a web page; download the file itself" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t k = strlen(known[i].begin);
        if (n >= k && !strncasecmp(head, known[i].begin, k))
            return known[i].what;
    }
    return NULL;
}

DpcStatus dpc_impostor_file(const char *path, const char *area)
{
    char head[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    const char *what = n > 0 ? dpc_impostor(head, (size_t)n) : NULL;
    return what ? dpc_fail(DPC_USER, "%s: error: %s: %s", path, area, what)
                : DPC_OK;
}

DpcStatus dpc_out_hash(DpcOut *o, char hex[DPC_HASH])
{
    DpcStatus s = flush(o);
    dpc_hash_hex(o->hash, hex);
    return s;
}

DpcStatus dpc_out_close(DpcOut *o)
{
    if (o->fd < 0)
        return o->status;
    if (flush(o) == DPC_OK && o->disk->fsync(o->disk->arg, o->fd))
        broken(o, "make it durable");
    if (o->disk->close(o->disk->arg, o->fd) && o->status == DPC_OK)
        broken(o, "close");
    o->fd = -1;
    return o->status;
}
