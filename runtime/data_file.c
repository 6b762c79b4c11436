/* data_file.c -- many files, few of them open.
 *
 * A data set may have more files than a process may open: the one that was
 * not read for longest is closed for the next. */
#include "runtime/data_reader.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

DpcStatus dpc_file_add(DpcFiles *f, const char *path)
{
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 16;
        char **p = realloc(f->path, (size_t)cap * sizeof *p);
        f->path = p ? p : f->path;
        if (!p)
            return no_memory();
        f->cap = cap;
    }
    if (!(f->path[f->n] = strdup(path)))
        return no_memory();
    f->n++;
    return DPC_OK;
}

DpcStatus dpc_file_open(DpcFiles *f, int i, int *fd)
{
    struct DpcFileOpen *to = f->open;
    for (int k = 0; k < f->nopen; k++) {
        struct DpcFileOpen *o = &f->open[k];
        if (o->file == i) {
            o->used = ++f->now;
            *fd = o->fd;
            return DPC_OK;
        }
        to = o->used < to->used ? o : to;
    }
    *fd = open(f->path[i], O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return dpc_fail(errno == EIO || errno == EMFILE || errno == ENFILE
                        ? DPC_ENV : DPC_USER, "%s: error: data: %s; give an "
                        "existing file", f->path[i], strerror(errno));
    if (f->nopen < DPC_NOPEN)
        to = &f->open[f->nopen++];
    else
        close(to->fd);
    *to = (struct DpcFileOpen){i, *fd, ++f->now};
    return DPC_OK;
}

int64_t dpc_files_bytes(const DpcFiles *f)
{
    int64_t n = f->cap * (int64_t)sizeof *f->path;
    for (int i = 0; i < f->n; i++)
        n += (int64_t)strlen(f->path[i]) + 1;
    return n;
}

void dpc_files_close(DpcFiles *f)
{
    for (int k = 0; k < f->nopen; k++)
        close(f->open[k].fd);
    for (int i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
}

DpcStatus dpc_file_take(const char *path, int fd, int64_t at, int64_t n,
                        void *to)
{
    for (int64_t got = 0; got < n; ) {
        ssize_t k = pread(fd, (char *)to + got, (size_t)(n - got), at + got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return dpc_fail(DPC_ENV, "%s: error: data: %s at byte %lld; was "
                            "the file changed during the run?", path,
                            k ? strerror(errno) : "the file ends",
                            (long long)(at + got));
        got += k;
    }
    return DPC_OK;
}
