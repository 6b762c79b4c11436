/* ckpt.c -- saving a checkpoint so that no crash can hurt.
 *
 * Everything is written into a folder DIR/step-N.tmp-new; its files are
 * fsynced, then the folder; a rename puts it in place and an fsync of DIR
 * makes that durable; then DIR/latest follows in the same way; only then is
 * success reported, and only then are old ones removed.  Any weaker order
 * loses checkpoints under the crash model of reliability 4.9, which
 * tests/unit/test_ckpt_crash.c replays over this writer's own log of calls.
 *
 * The ranks move in stages, and after each they agree on its status: a disk
 * full on one rank is a failed save on all, and no rank waits for another
 * that has given up.  Saving allocates nothing of its own. */
#include "runtime/ckpt_own.h"

#include "runtime/safetensors.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAGE = 8 << 20, STAGE_LEAST = 64, NSIZE = 3 };

/* ---- open, agree ---- */

int ckpt_class(const DpcLeaf *l)
{
    return l->kind == DPC_PARAM ? CKPT_MODEL :
           l->kind == DPC_STATE ? CKPT_STATE : -1;
}

void ckpt_warn(DpcCkpt *c, const char *f, ...)
{
    char text[CKPT_TEXT];
    va_list ap;
    va_start(ap, f);
    vsnprintf(text, sizeof text, f, ap);
    va_end(ap);
    if (c->world.rank != 0)
        return;
    if (c->how.warn)
        c->how.warn(c->how.arg, text);
    else
        fprintf(stderr, "%s\n", text);
}

DpcStatus ckpt_agree(DpcCkpt *c, DpcStatus s)
{
    const DpcWorld *w = &c->world;
    if (w->size == 1) {
        c->all[0] = c->mine;
        return s;
    }
    c->mine.status = s;
    snprintf(c->mine.text, sizeof c->mine.text, "%s",
             s == DPC_OK ? "" : dpc_last_error());
    DpcStatus g = w->gather(w->arg, &c->mine, sizeof c->mine, c->all);
    if (g != DPC_OK)
        return g;
    for (int r = 0; r < w->size; r++)
        if (c->all[r].status != DPC_OK)
            return dpc_fail((DpcStatus)c->all[r].status, "%s (rank %d)",
                            c->all[r].text, r);
    return DPC_OK;
}

static DpcStatus leaves_check(const DpcUnit *u, const int32_t *coord)
{
    int32_t role = dpc_role_at(u, coord);
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        int64_t local[DPC_NDIM], n = dpc_dtype_size((DpcDtype)l->dtype);
        if (ckpt_class(l) < 0 || !dpc_leaf_here(l, role))
            continue;
        dpc_box_of(u, l, coord, local);
        for (int d = 0; d < l->ndim; d++)
            n *= local[d];
        const int64_t *room = l->space == DPC_LEAVES ? u->leaves
                            : u->host_leaves;
        if (n > l->bytes || l->at < 0 || !room || l->at + n > room[role])
            return dpc_fail(DPC_BUG, "%s: error: leaf \"%s\": its part takes "
                            "%" PRId64 " bytes, the table has %" PRId64
                            " for it; the sizes must divide", l->loc, l->name,
                            n, l->bytes);
    }
    return DPC_OK;
}

DpcStatus dpc_ckpt_open(const DpcUnit *u, const DpcWorld *w,
                        const DpcCkptHow *how, DpcCkpt **out)
{
    *out = NULL;
    DpcStatus s = leaves_check(u, w->coord);
    if (s != DPC_OK)
        return s;
    DpcCkpt *c = calloc(1, sizeof *c);
    if (!c)
        return dpc_fail(DPC_MEMORY, "checkpoint: error: out of memory");
    c->unit = u, c->world = *w;
    c->role = dpc_role_at(u, w->coord);
    c->how = how ? *how : (DpcCkptHow){ 0 };
    c->out.disk = c->how.disk ? c->how.disk : &dpc_disk;
    c->out.cap = c->how.stage ? c->how.stage : STAGE;
    if (c->out.cap < STAGE_LEAST)
        c->out.cap = STAGE_LEAST;
    c->out.fd = -1;
    c->out.buf = malloc(c->out.cap);
    c->out.hash = dpc_hash_open();
    c->all = calloc((size_t)w->size, sizeof *c->all);
    c->plain[CKPT_MODEL] = c->plain[CKPT_STATE] = true;
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (ckpt_class(&u->leaf[i]) >= 0
            && (dpc_leaf_split(&u->leaf[i]) || u->leaf[i].role > 0))
            c->plain[ckpt_class(&u->leaf[i])] = false;
    for (uint32_t i = 0; i < u->naxis; i++)
        c->mine.coord[i] = w->coord[i];
    *out = c;
    if (c->out.buf && c->out.hash && c->all)
        return DPC_OK;
    *out = NULL;
    s = dpc_fail(DPC_MEMORY, "checkpoint: error: no memory for a staging "
                 "buffer of %zu bytes", c->out.cap);
    dpc_ckpt_close(c);
    return s;
}

void dpc_ckpt_close(DpcCkpt *c)
{
    if (!c)
        return;
    dpc_hash_close(c->out.hash);
    free(c->out.buf);
    free(c->all);
    free(c);
}

/* ---- this rank's files ---- */

typedef struct Entries { const DpcCkpt *c; int class; } Entries;

/* Number i is leaf i % nleaf if its elements have 4, 2, 1 bytes for i / nleaf
 * = 0, 1, 2: wide ones first, so that none is misaligned in the file. */
static const DpcLeaf *entry_leaf(const Entries *e, uint32_t i, DpcBox *box,
                                 int64_t local[DPC_NDIM])
{
    const DpcUnit *u = e->c->unit;
    const DpcLeaf *l = &u->leaf[i % u->nleaf];
    if (ckpt_class(l) != e->class ||
        dpc_dtype_size((DpcDtype)l->dtype) != 4 >> i / u->nleaf ||
        !dpc_leaf_owner(u, l, e->c->world.coord))
        return NULL;
    *box = dpc_box_of(u, l, e->c->world.coord, local);
    bool empty = dpc_leaf_split(l) && dpc_box_count(box) == 0;
    return empty ? NULL : l;
}

static bool entry(void *arg, uint32_t i, DpcSafeTensor *t)
{
    DpcBox box;
    int64_t local[DPC_NDIM];
    const DpcLeaf *l = entry_leaf(arg, i, &box, local);
    if (!l)
        return false;
    *t = (DpcSafeTensor){ .name = l->name, .ndim = l->ndim,
                          .kind = (uint8_t)dpc_safe_kind_of(l->dtype) };
    memcpy(t->dim, box.size, sizeof box.size);
    return true;
}

static DpcSafeList entries_list(Entries *e)
{
    return (DpcSafeList){ NSIZE * e->c->unit->nleaf, entry, e };
}

/* Has this rank anything of the class at all? */
static bool has_entries(Entries *e)
{
    DpcSafeTensor t;
    for (uint32_t i = 0; i < NSIZE * e->c->unit->nleaf; i++)
        if (entry(e, i, &t))
            return true;
    return false;
}

static DpcStatus data_write(DpcCkpt *c, Entries *e, char *const *space)
{
    for (uint32_t i = 0; i < NSIZE * c->unit->nleaf; i++) {
        DpcBox box;
        int64_t local[DPC_NDIM], a, b;
        const DpcLeaf *l = entry_leaf(e, i, &box, local);
        if (!l)
            continue;
        int64_t esize = dpc_dtype_size((DpcDtype)l->dtype);
        DpcRuns runs = dpc_runs(&box, local, &box, box.size);
        while (dpc_runs_next(&runs, &a, &b))
            if (dpc_out_put(&c->out, space[l->space] + l->at + a * esize,
                            (size_t)(runs.run * esize)) != DPC_OK)
                return c->out.status;
    }
    return DPC_OK;
}

static DpcStatus class_write(DpcCkpt *c, int class, char *const *space)
{
    Entries e = { c, class };
    DpcSafeList list = entries_list(&e);
    char name[CKPT_NAME];
    c->mine.bytes[class] = 0;
    if (!has_entries(&e))
        return DPC_OK;
    DpcStatus s = ckpt_file_name(c, class, c->world.rank, name);
    if (s == DPC_OK)
        s = dpc_path(c->path, "%s/%s", c->tmp, name);
    if (s == DPC_OK)
        s = dpc_out_open(&c->out, c->path);
    if (s == DPC_OK)
        s = dpc_safe_head(&c->out, &list);
    if (s == DPC_OK)
        s = data_write(c, &e, space);
    if (s == DPC_OK)
        s = dpc_out_hash(&c->out, c->mine.hash[class]);
    c->mine.bytes[class] = c->out.bytes;
    DpcStatus closed = dpc_out_close(&c->out);
    return s == DPC_OK ? closed : s;
}

static DpcStatus parts_write(DpcCkpt *c, char *const *space)
{
    DpcStatus s = class_write(c, CKPT_MODEL, space);
    return s == DPC_OK ? class_write(c, CKPT_STATE, space) : s;
}

/* ---- the folder: rank 0 ---- */

#define disk(call, ...) c->out.disk->call(c->out.disk->arg, __VA_ARGS__)

static DpcStatus refused(const char *what, const char *path)
{
    return dpc_fail(DPC_ENV, "%s: error: cannot %s: %s", path, what,
                    strerror(errno));
}

static DpcStatus space_check(DpcCkpt *c)
{
    int64_t need = 1 << 16;               /* headers, dpc.json */
    for (int r = 0; r < c->world.size; r++)
        need += c->all[r].bytes[CKPT_MODEL] + c->all[r].bytes[CKPT_STATE];
    for (uint32_t i = 0; i < c->unit->nleaf; i++)
        need += 512;
    int64_t have = disk(space, c->dir);
    if (have < 0)
        return refused("ask for its free space", c->dir);
    if (have >= need)
        return DPC_OK;
    return dpc_fail(DPC_ENV, "%s: error: checkpoint: needs %" PRId64 " bytes, "
                    "the disk has %" PRId64 " free; older checkpoints are "
                    "intact", c->dir, need, have);
}

static DpcStatus folder_make(DpcCkpt *c)
{
    if (disk(mkdir, c->dir) == 0) {       /* new: its own name must last */
        DpcStatus s = dpc_path(c->path, "%s/..", c->dir);
        if (s != DPC_OK)
            return s;
        if (disk(fsync_dir, c->path))
            return refused("make it durable", c->path);
    } else if (errno != EEXIST) {
        return refused("make the folder", c->dir);
    }
    ckpt_sweep(c, c->dir);
    DpcStatus s = space_check(c);
    if (s == DPC_OK && disk(mkdir, c->tmp))
        s = refused("make the folder", c->tmp);
    return s;
}

/* DIR/name holds one line, the name of a folder. */
static DpcStatus mark_write(DpcCkpt *c, const char *name)
{
    const char *text = strrchr(c->final, '/') + 1;
    DpcStatus s = dpc_path(c->path, "%s/%s.tmp-mark", c->dir, name);
    if (s == DPC_OK)
        s = dpc_path(c->to, "%s/%s", c->dir, name);
    if (s == DPC_OK)
        s = dpc_out_open(&c->out, c->path);
    dpc_out_put(&c->out, text, strlen(text));
    dpc_out_put(&c->out, "\n", 1);
    DpcStatus closed = dpc_out_close(&c->out);
    s = s == DPC_OK ? closed : s;
    if (s == DPC_OK && disk(rename, c->path, c->to))
        s = refused("put in place", c->to);
    if (s == DPC_OK && disk(fsync_dir, c->dir))
        s = refused("make it durable", c->dir);
    if (s != DPC_OK)
        disk(unlink, c->path);
    return s;
}

/* Puts the folder in place.  A checkpoint of the same step is first set
 * aside under a name that `auto` still sees. */
static DpcStatus put_in_place(DpcCkpt *c)
{
    bool had = !access(c->final, F_OK);
    DpcStatus s = dpc_path(c->to, "%s" CKPT_OLD, c->final);
    if (s != DPC_OK)
        return s;
    if (had) {
        ckpt_remove(c, c->to);
        if (disk(rename, c->final, c->to))
            return refused("set aside", c->final);
    }
    if (disk(rename, c->tmp, c->final)) {
        s = refused("put in place", c->final);
        if (had)
            disk(rename, c->to, c->final);
        return s;
    }
    return disk(fsync_dir, c->dir) ? refused("make it durable", c->dir)
                                   : DPC_OK;
}

static DpcStatus publish(DpcCkpt *c, const DpcCkptInfo *info)
{
    DpcStatus s = ckpt_index_write(c, info);
    if (s == DPC_OK && disk(fsync_dir, c->tmp))
        s = refused("make it durable", c->tmp);
    if (s == DPC_OK)
        s = put_in_place(c);
    if (s == DPC_OK)
        s = mark_write(c, "latest");
    if (s == DPC_OK && info->best)
        s = mark_write(c, "best");
    return s;
}

DpcStatus dpc_ckpt_save(DpcCkpt *c, char *const *space,
                        const DpcCkptInfo *info, const char *dir, int keep)
{
    long long step = info->step;
    DpcStatus s = dpc_path(c->dir, "%s", dir);
    if (s == DPC_OK)
        s = dpc_path(c->final, "%s/step-%08lld", dir, step);
    if (s == DPC_OK)
        s = dpc_path(c->tmp, "%s/step-%08lld.tmp-new", dir, step);
    for (int k = 0; k < CKPT_NCLASS; k++) {
        Entries e = { c, k };
        DpcSafeList list = entries_list(&e);
        c->mine.bytes[k] = dpc_safe_list_bytes(&list);
    }
    c->verified[0] = 0;
    s = ckpt_agree(c, s);
    if (s != DPC_OK)
        return s;
    bool first = c->world.rank == 0;
    s = ckpt_agree(c, first ? folder_make(c) : DPC_OK);
    if (s == DPC_OK)
        s = ckpt_agree(c, parts_write(c, space));
    if (s == DPC_OK)
        s = ckpt_agree(c, first ? publish(c, info) : DPC_OK);
    if (first && s != DPC_OK)
        ckpt_remove(c, c->tmp);
    else if (first)
        ckpt_prune(c, c->dir, keep);
    return s;
}
