/* app_out.c -- the folder that a run writes into. */
#include "runtime/app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static DpcStatus folder_make(const char *path)
{
    char part[DPC_PATH];
    DpcStatus s = dpc_path(part, "%s", path);
    for (char *p = part + 1; !s; p++) {
        if (*p && *p != '/')
            continue;
        char was = *p;
        *p = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            s = dpc_fail(DPC_ENV, "%s: error: --out: %s", part,
                         strerror(errno));
        *p = was;
        if (!was)
            break;
    }
    return s;
}

/* One run at a time trains in a folder: its lock is held until the process
 * ends, however it ends.  A file system without locks has none. */
static DpcStatus out_lock(DpcApp *a)
{
    char path[DPC_PATH];
    DpcStatus s = dpc_path(path, "%s/lock", a->opt.out);
    int fd = s ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || s)
        return s;
    char who[128] = "", host[64] = "";
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        ssize_t n = read(fd, who, sizeof who - 1);
        who[n > 0 ? n : 0] = 0;
        s = dpc_fail(DPC_USER, "%s: error: --out: another run trains in this "
                     "folder%s%s; wait for it, or give another one",
                     a->opt.out, *who ? ": " : "", who);
        close(fd);
        return s;
    }
    gethostname(host, sizeof host - 1);
    snprintf(who, sizeof who, "process %d on %s", (int)getpid(), host);
    if (ftruncate(fd, 0) || write(fd, who, strlen(who)) < 0)
        return DPC_OK;                    /* the lock is what counts */
    return s;
}

DpcStatus dpc_app_out(DpcApp *a)
{
    if (!a->opt.out)
        return DPC_OK;
    DpcStatus s = dpc_path(a->folder, "%s/ckpt", a->opt.out);
    if (s || !dpc_app_first(a))
        return s;
    s = folder_make(a->folder);
    return s || strcmp(a->opt.command, "train") ? s : out_lock(a);
}
