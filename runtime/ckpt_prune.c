/* ckpt_prune.c -- removing what is no longer wanted.
 *
 * A checkpoint is renamed to a name that nobody looks for before its files
 * go, so that none is ever seen half deleted; what a crash leaves behind has
 * such a name too and is swept by the next save.  Failures here cost disk
 * space, never a checkpoint: they are ignored or told as a warning. */
#include "runtime/ckpt_own.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define disk(call, ...) c->out.disk->call(c->out.disk->arg, __VA_ARGS__)

void ckpt_remove(DpcCkpt *c, const char *path)
{
    char file[DPC_PATH];
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            dpc_path(file, "%s/%s", path, e->d_name) == DPC_OK)
            disk(unlink, file);
    closedir(d);
    disk(rmdir, path);
}

static bool is_rest(const char *name)
{
    return (!strncmp(name, "step-", 5) && strstr(name, ".tmp-")) ||
           !strcmp(name, "latest.tmp-mark") || !strcmp(name, "best.tmp-mark");
}

void ckpt_sweep(DpcCkpt *c, const char *dir)
{
    char path[DPC_PATH];
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (!is_rest(e->d_name) ||
            dpc_path(path, "%s/%s", dir, e->d_name) != DPC_OK)
            continue;
        if (!strncmp(e->d_name, "step-", 5))
            ckpt_remove(c, path);
        else
            disk(unlink, path);
    }
    closedir(d);
}

static void drop(DpcCkpt *c, const char *dir, const char *name)
{
    char from[DPC_PATH], to[DPC_PATH];
    if (dpc_path(from, "%s/%s", dir, name) != DPC_OK ||
        dpc_path(to, "%s/%s.tmp-del", dir, name) != DPC_OK)
        return;
    if (disk(rename, from, to))
        ckpt_warn(c, "%s: warning: cannot remove the old checkpoint: %s", from,
                  strerror(errno));
    else
        ckpt_remove(c, to);
}

void ckpt_prune(DpcCkpt *c, const char *dir, int keep)
{
    const char *saved = strrchr(c->final, '/') + 1;
    char best[CKPT_NAME], name[CKPT_NAME];
    int64_t age = INT64_MAX;
    int seen = 0;
    ckpt_mark_read(dir, "best", best);
    while ((age = ckpt_next(dir, age, name)) >= 0) {
        bool old = strstr(name, CKPT_OLD) != NULL;
        seen += !old;
        if (!strcmp(name, saved) || !strcmp(name, best))
            continue;
        bool replaced = old && !strncmp(name, saved, strlen(saved));
        if (replaced || (keep > 0 && (old || seen > keep)))
            drop(c, dir, name);
    }
}
