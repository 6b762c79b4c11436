/* ckpt_small.h -- a unit of two leaves, saved and recovered on one rank.
 * Included first, by the tests of what may go wrong on a disk. */
#ifndef DPC_CKPT_SMALL_H
#define DPC_CKPT_SMALL_H

#define _XOPEN_SOURCE 700                 /* nftw */
#define _DEFAULT_SOURCE
#include "runtime/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64], disk_dir[80];

static int wipe_one(const char *path, const struct stat *st, int flag,
                    struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void wipe(const char *dir)
{
    nftw(dir, wipe_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(dir, 0777), 0);
}

static int setup(void **state)
{
    (void)state;
    bool shm = !access("/dev/shm", W_OK);  /* thousands of small files */
    snprintf(root, sizeof root, "%s/dpc-crash-XXXXXX",
             shm ? "/dev/shm" : "/tmp");
    if (!mkdtemp(root))
        return -1;
    snprintf(disk_dir, sizeof disk_dir, "%s/replay", root);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, wipe_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- a unit and its states ---- */

enum { NVALUE = 70 };
static const DpcAxis axis[] = { { "a", 1, DPC_SPACE, 0 } };
static const DpcLeaf leaf[] = {
    { .name = "w", .loc = "m.lua:1", .kind = DPC_PARAM, .ndim = 1,
      .dim = { NVALUE }, .bytes = 4 * NVALUE },
    { .name = "m", .loc = "m.lua:2", .kind = DPC_STATE, .ndim = 1,
      .dim = { NVALUE }, .at = 4 * NVALUE, .bytes = 4 * NVALUE },
};
static const int64_t leaf_bytes[] = { 8 * NVALUE };
static const DpcUnit unit = { .model = "m", .hash = "h", .naxis = 1,
                              .nleaf = 2, .axis = axis, .leaf = leaf,
                              .leaves = leaf_bytes };
static const int32_t zero[1];
static const DpcWorld world = { .size = 1, .coord = zero };

static void quiet(void *arg, const char *text) { (void)arg, (void)text; }

static DpcStatus save(const DpcDisk *disk, const char *dir, int64_t step,
                      int salt, int keep)
{
    float leaves[2 * NVALUE];
    DpcCkptHow how = { .disk = disk, .stage = 128, .warn = quiet };
    DpcCkptInfo info = { .step = step, .cursor = salt };
    DpcCkpt *c;
    for (int i = 0; i < 2 * NVALUE; i++)
        leaves[i] = (float)(salt * 1000 + i);
    assert_int_equal(dpc_ckpt_open(&unit, &world, &how, &c), DPC_OK);
    DpcStatus s = dpc_ckpt_save(c, (char *[]){ (char *)leaves }, &info, dir, keep);
    dpc_ckpt_close(c);
    return s;
}

/* Which state `auto` brings back; 0: none, -1: one that nobody saved. */
static int recover(const char *dir)
{
    float leaves[2 * NVALUE];
    DpcCkptHow how = { .stage = 4096, .warn = quiet };
    DpcCkptInfo info = { 0 };
    DpcCkpt *c;
    char path[DPC_PATH];
    assert_int_equal(dpc_ckpt_open(&unit, &world, &how, &c), DPC_OK);
    DpcStatus s = dpc_ckpt_find(c, dir, "auto", path);
    bool any = s == DPC_OK && path[0];
    if (any)
        s = dpc_ckpt_load(c, (char *[]){ (char *)leaves }, &info, path);
    dpc_ckpt_close(c);
    if (s != DPC_OK)
        return -1;
    int salt = any ? (int)info.cursor : 0;
    for (int i = 0; any && i < 2 * NVALUE; i++)
        if (leaves[i] != (float)(salt * 1000 + i))
            return -1;
    return salt;
}

#endif
