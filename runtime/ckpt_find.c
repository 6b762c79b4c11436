/* ckpt_find.c -- which checkpoint is meant, and whether it is whole.
 *
 * `auto` looks at the folders themselves, youngest first, and takes the first
 * whose every hash is right; DIR/latest is for people and for `latest`.  So a
 * crash after the rename but before the pointer costs nothing, and rot costs
 * one checkpoint, loudly. */
#include "runtime/ckpt_own.h"

#include "runtime/source.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 17 };                     /* of a step: twice it fits 63 bits */

static int64_t age_of(const char *name)
{
    if (strncmp(name, "step-", 5))
        return -1;
    int64_t step = 0;
    size_t n = strspn(name += 5, "0123456789");
    for (size_t i = 0; i < n && n <= DIGITS; i++)
        step = step * 10 + (name[i] - '0');
    if (n == 0 || n > DIGITS)
        return -1;
    return !name[n] ? step * 2 + 1 : !strcmp(name + n, CKPT_OLD) ? step * 2
                                                                 : -1;
}

int64_t ckpt_next(const char *dir, int64_t under, char name[CKPT_NAME])
{
    int64_t best = -1;
    DIR *d = opendir(dir);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        int64_t age = age_of(e->d_name);
        if (age > best && age < under && strlen(e->d_name) < CKPT_NAME) {
            best = age;
            strcpy(name, e->d_name);
        }
    }
    closedir(d);
    return best;
}

void ckpt_mark_read(const char *dir, const char *name, char text[CKPT_NAME])
{
    char path[DPC_PATH];
    text[0] = 0;
    FILE *f = dpc_path(path, "%s/%s", dir, name) == DPC_OK ? fopen(path, "re")
                                                           : NULL;
    if (!f)
        return;
    if (!fgets(text, CKPT_NAME, f))
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    fclose(f);
}

DpcStatus ckpt_verify(DpcCkpt *c, const char *path, DpcSource **out)
{
    DpcStatus s = dpc_source_open(path, out);
    if (s == DPC_OK && !(*out)->index)
        s = dpc_fail(DPC_USER, "%s: error: no checkpoint: it has no "
                     DPC_CKPT_INDEX "; --init-from reads bare tensors", path);
    if (s == DPC_OK && strcmp(path, c->verified))
        s = dpc_source_verify(*out, (uint32_t)c->world.rank,
                              (uint32_t)c->world.size, c->out.buf,
                              c->out.cap);
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        return dpc_path(c->verified, "%s", path);
    dpc_source_close(*out);
    *out = NULL;
    return s;
}

/* What rank 0 has in `path`, on every rank. */
static DpcStatus share(DpcCkpt *c, char path[DPC_PATH])
{
    const DpcWorld *w = &c->world;
    if (w->size == 1)
        return DPC_OK;
    char *all = malloc((size_t)w->size * DPC_PATH);
    DpcStatus s = all ? DPC_OK : dpc_fail(DPC_MEMORY, "checkpoint: error: out "
                                          "of memory");
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        s = w->gather(w->arg, path, DPC_PATH, all);
    if (s == DPC_OK)
        memcpy(path, all, DPC_PATH);
    free(all);
    return s;
}

static DpcStatus check(DpcCkpt *c, const char *path)
{
    DpcSource *source;
    DpcStatus s = ckpt_verify(c, path, &source);
    if (s == DPC_OK)
        dpc_source_close(source);
    return s;
}

/* The next older than all tried; "" when there is none.  A folder that may
 * not be read is no fresh start. */
static DpcStatus auto_next(const char *dir, int64_t *age, char path[DPC_PATH])
{
    char name[CKPT_NAME];
    DIR *d = opendir(dir);
    if (d)
        closedir(d);
    else if (errno != ENOENT && errno != ENOTDIR)
        return dpc_fail(DPC_ENV, "%s: error: checkpoint: cannot look for one: "
                        "%s", dir, strerror(errno));
    *age = ckpt_next(dir, *age, name);
    return *age >= 0 ? dpc_path(path, "%s/%s", dir, name) : DPC_OK;
}

static DpcStatus find_auto(DpcCkpt *c, const char *dir, char path[DPC_PATH])
{
    int64_t age = INT64_MAX;
    for (int tried = 0;; tried++) {
        DpcStatus s = DPC_OK;
        memset(path, 0, DPC_PATH);
        if (c->world.rank == 0)
            s = auto_next(dir, &age, path);
        s = ckpt_agree(c, s);
        if (s == DPC_OK)
            s = share(c, path);
        if (s == DPC_OK && !path[0] && tried)
            return dpc_fail(DPC_USER, "%s: error: checkpoint: there are %d, "
                "and none is whole; bring one back, or start anew with "
                "--resume none", dir, tried);
        if (s != DPC_OK || !path[0])
            return s;
        s = check(c, path);
        if (s == DPC_OK || s == DPC_MEMORY)
            return s;
        ckpt_warn(c, "%s\n%s: warning: this checkpoint is not whole; the one "
                  "before it is tried", dpc_last_error(), path);
    }
}

/* "step-200" is "step-00000200". */
static DpcStatus named(const char *dir, const char *which, char path[DPC_PATH])
{
    char mark[CKPT_NAME];
    int64_t age = age_of(which);
    if (age >= 0 && age % 2)
        return dpc_path(path, "%s/step-%08" PRId64, dir, age / 2);
    ckpt_mark_read(dir, which, mark);
    if (age_of(mark) < 0)
        return dpc_fail(DPC_USER, "%s/%s: error: checkpoint: names none; "
                        "\"auto\" takes the newest that is whole", dir, which);
    return dpc_path(path, "%s/%s", dir, mark);
}

/* A folder of a run, or of checkpoints, means the newest; else `path` is
 * one. */
DpcStatus ckpt_newest(DpcCkpt *c, const char *path, char to[DPC_PATH])
{
    char below[DPC_PATH];
    DpcStatus s = dpc_path(below, "%s/ckpt", path);
    if (s == DPC_OK)
        s = find_auto(c, path, to);
    if (s == DPC_OK && !to[0])
        s = find_auto(c, below, to);
    return s == DPC_OK && !to[0] ? dpc_path(to, "%s", path) : s;
}

DpcStatus dpc_ckpt_find(DpcCkpt *c, const char *dir, const char *which,
                        char path[DPC_PATH])
{
    if (!strcmp(which, "auto"))
        return find_auto(c, dir, path);
    if (strcmp(which, "latest") && strcmp(which, "best") && age_of(which) < 0)
        return ckpt_newest(c, which, path);
    memset(path, 0, DPC_PATH);
    DpcStatus s = c->world.rank == 0 ? named(dir, which, path) : DPC_OK;
    s = ckpt_agree(c, s);
    if (s == DPC_OK)
        s = share(c, path);
    return s == DPC_OK ? check(c, path) : s;
}
