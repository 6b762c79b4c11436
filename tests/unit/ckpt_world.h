/* ckpt_world.h -- a unit of nine leaves (weights, a moment, an average, counts,
 * a scale of the loss) under plans of up to eight ranks, which are threads and
 * meet in a gather. */
#ifndef DPC_CKPT_WORLD_H
#define DPC_CKPT_WORLD_H

#include "runtime/ckpt.h"

#include "runtime/box.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { NRANK = 8, NROLE = 8, BYTES = 8192 };

static char root[64];

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/dpc-ckpt-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    char cmd[100];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", root);
    return system(cmd);
}

/* ---- a unit on a mesh ---- */

/* Axes a (1 in the nibble), b (2) and c (3); a/b is 0x21, b/a is 0x12. */
static const DpcLeaf plan_of_tables[] = {
    { .name = "w", .loc = "m.lua:1", .kind = DPC_PARAM, .dtype = DPC_F32,
      .ndim = 2, .dim = { 8, 12 } },
    { .name = "h", .loc = "m.lua:2", .kind = DPC_PARAM, .dtype = DPC_BF16,
      .ndim = 3, .dim = { 4, 3, 8 } },
    { .name = "lr", .loc = "m.lua:3", .kind = DPC_SCALAR, .value = 0.1 },
    { .name = "ema.w", .loc = "m.lua:4", .kind = DPC_STATE, .dtype = DPC_F32,
      .ndim = 2, .dim = { 8, 12 } },
    { .name = "n", .loc = "m.lua:5", .kind = DPC_STATE, .dtype = DPC_I32 },
    { .name = "mask", .loc = "m.lua:6", .kind = DPC_STATE, .dtype = DPC_U8,
      .ndim = 1, .dim = { 7 } },
    { .name = "odd", .loc = "m.lua:7", .kind = DPC_STATE, .dtype = DPC_F32,
      .ndim = 2, .dim = { 7, 13 } },
    { .name = "m.odd", .loc = "m.lua:8", .kind = DPC_STATE, .dtype = DPC_F32,
      .ndim = 2, .dim = { 7, 13 } },
    { .name = "scale", .loc = "m.lua:9", .kind = DPC_STATE,
      .dtype = DPC_F32 },
};
enum { NLEAF = COUNT(plan_of_tables) };

typedef struct Plan {
    int a, b;
    DpcSplit w[2], h[3], m[2], mask;
    bool staged;                          /* a: roles, which share out leaves */
    int c;                                /* 0: 1 */
    DpcSplit odd[2], m_odd[2];
} Plan;

static int plan_size(const Plan *p)
{
    return p->a * p->b * (p->c ? p->c : 1);
}

typedef struct Mesh {
    DpcAxis axis[3];
    DpcLeaf leaf[NLEAF];
    DpcUnit unit;
    int64_t bytes[NROLE];                   /* of leaves, by role */
    int size;
} Mesh;

static int64_t parts(const Mesh *m, DpcSplit s)
{
    int64_t n = 1;
    for (; s; s >>= 4)
        n *= m->axis[(s & 15) - 1].size;
    return n;
}

/* w and mask live on the last role, h on the first, odd and its moment on the
 * one in the middle, the rest on all. */
static int32_t role_of(const Plan *p, int leaf)
{
    return !p->staged ? -1 : leaf == 0 || leaf == 5 ? p->a - 1
         : leaf == 1 ? 0 : leaf == 6 || leaf == 7 ? p->a / 2 : -1;
}

static void leaves_place(Mesh *m)
{
    for (int role = -1; role < dpc_roles(&m->unit); role++)
        for (int i = 0; i < NLEAF; i++) {
            DpcLeaf *l = &m->leaf[i];
            if (l->role != role)
                continue;
            l->at = m->bytes[role < 0 ? 0 : role];
            for (int k = 0; k < NROLE; k++)
                if (role < 0 || k == role)
                    m->bytes[k] += (l->bytes + 15) / 16 * 16;
        }
}

static void mesh_make(Mesh *m, const Plan *p)
{
    memset(m, 0, sizeof *m);
    m->axis[0] = (DpcAxis){ "a", p->a, p->staged ? DPC_STAGE : DPC_SPACE,
                             0 };
    m->axis[1] = (DpcAxis){ "b", p->b, DPC_SPACE, 0 };
    m->axis[2] = (DpcAxis){ "c", p->c ? p->c : 1, DPC_SPACE, 0 };
    m->size = plan_size(p);
    memcpy(m->leaf, plan_of_tables, sizeof m->leaf);
    memcpy(m->leaf[0].split, p->w, sizeof p->w);
    memcpy(m->leaf[1].split, p->h, sizeof p->h);
    memcpy(m->leaf[3].split, p->m, sizeof p->m);
    m->leaf[5].split[0] = p->mask;
    memcpy(m->leaf[6].split, p->odd, sizeof p->odd);
    memcpy(m->leaf[7].split, p->m_odd, sizeof p->m_odd);
    for (int i = 0; i < NLEAF; i++) {
        DpcLeaf *l = &m->leaf[i];
        l->role = role_of(p, i);
        l->bytes = dpc_dtype_size(l->dtype);
        for (int d = 0; d < l->ndim; d++) {
            int64_t n = parts(m, l->split[d]);
            l->bytes *= (l->dim[d] + n - 1) / n;
        }
    }
    m->unit = (DpcUnit){ .abi = DPC_ABI, .model = "m", .version = "1",
                         .hash = "abc", .naxis = 3, .nleaf = NLEAF,
                         .axis = m->axis, .leaf = m->leaf,
                         .leaves = m->bytes };
    leaves_place(m);
    for (int k = 0; k < NROLE; k++)
        assert_true(m->bytes[k] <= BYTES);
}

static const Plan one = { .a = 1, .b = 1 };
static const Plan ordered = { .a = 2, .b = 2, .w = { 0x21, 0 },
                              .h = { 0, 0, 2 }, .m = { 2, 1 }, .mask = 0x12 };
static const Plan columns = { .a = 1, .b = 4, .w = { 0, 2 }, .h = { 2, 0, 0 },
                              .m = { 2, 0 }, .mask = 2 };
static const Plan three = { .a = 3, .b = 1, .w = { 1, 0 }, .h = { 0, 1, 0 },
                            .m = { 0, 1 }, .mask = 1 };
static const Plan zero1 = { .a = 2, .b = 1, .m = { 1, 0 } };
static const Plan staged = { .a = 2, .b = 2, .w = { 0, 2 }, .m = { 2, 0 },
                             .staged = true };
static const Plan roles3 = { .a = 3, .b = 2, .h = { 2, 0, 0 },
                             .staged = true };
static const Plan five = { .a = 1, .b = 5, .w = { 0, 2 }, .h = { 0, 0, 2 },
                           .m = { 2, 0 }, .mask = 2, .odd = { 2, 0 },
                           .m_odd = { 0, 2 } };
static const Plan seven = { .a = 7, .b = 1, .m = { 0, 1 }, .mask = 1,
                            .odd = { 1, 0 }, .m_odd = { 1, 0 } };
static const Plan zero3 = { .a = 8, .b = 1, .w = { 1, 0 }, .h = { 0, 0, 1 },
                            .m = { 1, 0 }, .mask = 1, .odd = { 0, 1 },
                            .m_odd = { 1, 0 } };
static const Plan hsdp = { .a = 2, .b = 4, .w = { 2, 0 }, .h = { 2, 0, 0 },
                           .m = { 2, 0 }, .mask = 2, .odd = { 2, 0 },
                           .m_odd = { 2, 0 } };
/* Columns over b, and what a step keeps over a and c as well. */
static const Plan tensor = { .a = 2, .b = 2, .c = 2, .w = { 0, 2 },
                             .h = { 2, 0, 0 }, .m = { 0x31, 2 },
                             .mask = 0x321, .odd = { 0, 2 },
                             .m_odd = { 0x13, 2 } };
static const Plan orders = { .a = 2, .b = 2, .c = 2, .w = { 0x123, 0 },
                             .h = { 0x31, 0, 2 }, .m = { 0, 0x213 },
                             .mask = 0x132, .odd = { 0x21, 3 },
                             .m_odd = { 3, 0x12 } };
/* Four roles, weights in parts within each; eight, of one rank each; two,
 * with columns and parts. */
static const Plan roles4 = { .a = 4, .b = 2, .w = { 2, 0 }, .h = { 0, 2, 0 },
                             .m = { 0, 2 }, .mask = 2, .odd = { 2, 0 },
                             .m_odd = { 0, 2 }, .staged = true };
static const Plan roles8 = { .a = 8, .b = 1, .staged = true };
static const Plan roles2 = { .a = 2, .b = 2, .c = 2, .w = { 3, 2 },
                             .h = { 0x23, 0, 0 }, .m = { 0x32, 0 },
                             .mask = 0x32, .odd = { 3, 2 },
                             .m_odd = { 0, 0x23 }, .staged = true };
static const Plan *const all_plans[] = {
    &one, &ordered, &columns, &three, &zero1, &staged, &roles3, &five, &seven,
    &zero3, &hsdp, &tensor, &orders, &roles4, &roles8, &roles2,
};

/* Element i of leaf k: a function of its place in the whole tensor. */
static void value_put(const DpcLeaf *l, int k, int64_t i, int salt, char *to)
{
    uint32_t v = (uint32_t)(i * 7919 + k * 104729 + salt * 15485863 + 1);
    float f = (float)(v % 100003) / 64;
    if (l->dtype == DPC_F32)
        memcpy(to, &f, 4);
    else
        memcpy(to, &v, (size_t)dpc_dtype_size(l->dtype));
}

/* Fills, or counts differences in, this rank's part; what is padding is 0. */
static int64_t leaves_walk(const Mesh *m, const int32_t *coord, int salt,
                           char *leaves, bool fill)
{
    int64_t differ = 0;
    for (int k = 0; k < NLEAF; k++) {
        const DpcLeaf *l = &m->leaf[k];
        if (l->kind == DPC_SCALAR
            || !dpc_leaf_here(l, dpc_role_at(&m->unit, coord)))
            continue;
        int64_t size = dpc_dtype_size(l->dtype), n = l->bytes / size;
        int64_t local[DPC_NDIM];
        DpcBox box = dpc_box_of(&m->unit, l, coord, local);
        for (int64_t i = 0; i < n; i++) {
            char want[4] = { 0 };
            int64_t rest = i, whole = 0, scale = 1;
            bool inside = true;
            for (int d = l->ndim; d-- > 0; rest /= local[d]) {
                inside &= rest % local[d] < box.size[d];
                whole += (box.at[d] + rest % local[d]) * scale;
                scale *= l->dim[d];
            }
            if (inside)
                value_put(l, k, whole, salt, want);
            char *at = leaves + l->at + i * size;
            if (fill)
                memcpy(at, want, (size_t)size);
            else
                differ += memcmp(at, want, (size_t)size) != 0;
        }
    }
    return differ;
}

/* ---- a world of threads ---- */

typedef struct Meet {
    pthread_barrier_t barrier;
    int size;
    char buf[NRANK][8192];
} Meet;

typedef struct Rank {
    Meet *meet;
    Mesh mesh;
    DpcWorld world;
    int32_t coord[3];
    _Alignas(64) char leaves[BYTES];
    double scalar[NLEAF];
    DpcCkptInfo info;
    const DpcDisk *disk;
    void (*task)(struct Rank *, DpcCkpt *);
    DpcStatus status;
    char text[1024];
    char path[DPC_PATH];
    char warned[4096];
    int keep;
    const char *dir, *which;
} Rank;

static DpcStatus gather(void *arg, const void *mine, size_t n, void *all)
{
    Rank *r = arg;
    assert_true(n <= sizeof r->meet->buf[0]);
    memcpy(r->meet->buf[r->world.rank], mine, n);
    pthread_barrier_wait(&r->meet->barrier);
    for (int i = 0; i < r->meet->size; i++)
        memcpy((char *)all + (size_t)i * n, r->meet->buf[i], n);
    pthread_barrier_wait(&r->meet->barrier);
    return DPC_OK;
}

static void warn(void *arg, const char *text)
{
    Rank *r = arg;
    strncat(r->warned, text, sizeof r->warned - strlen(r->warned) - 1);
}

static void *rank_main(void *arg)
{
    Rank *r = arg;
    DpcCkptHow how = { .disk = r->disk, .stage = 100, .warn = warn, .arg = r };
    DpcCkpt *c;
    r->status = dpc_ckpt_open(&r->mesh.unit, &r->world, &how, &c);
    if (r->status == DPC_OK)
        r->task(r, c);
    snprintf(r->text, sizeof r->text, "%s", dpc_last_error());
    dpc_ckpt_close(c);
    return NULL;
}

static Rank ranks[NRANK];

static void world_make(const Plan *p, int salt, int64_t step)
{
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < plan_size(p); i++) {
        Rank *r = &ranks[i];
        mesh_make(&r->mesh, p);
        int c = p->c ? p->c : 1;
        r->coord[0] = i / c / p->b, r->coord[1] = i / c % p->b;
        r->coord[2] = i % c;
        r->world = (DpcWorld){ i, r->mesh.size, r->coord, gather, r };
        leaves_walk(&r->mesh, r->coord, salt, r->leaves, true);
        r->scalar[2] = 0.25;
        r->info = (DpcCkptInfo){ .step = step, .cursor = step * 64,
                                 .seed = 0xfedcba9876543210u, .data = 77,
                                 .scalar = r->scalar };
        r->dir = root, r->which = "auto";
    }
}

/* Runs `task` on all ranks; they must agree on the status. */
static DpcStatus world_run(void (*task)(Rank *, DpcCkpt *))
{
    static Meet meet;
    int n = ranks[0].mesh.size;
    pthread_t thread[NRANK];
    meet.size = n;
    pthread_barrier_init(&meet.barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        ranks[i].meet = &meet, ranks[i].task = task;
        ranks[i].warned[0] = 0;
        pthread_create(&thread[i], NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&meet.barrier);
    for (int i = 1; i < n; i++)
        assert_int_equal(ranks[i].status, ranks[0].status);
    return ranks[0].status;
}

static void save(Rank *r, DpcCkpt *c)
{
    r->status = dpc_ckpt_save(c, (char *[]){ (char *)r->leaves }, &r->info, r->dir, r->keep);
}

static void find(Rank *r, DpcCkpt *c)
{
    r->status = dpc_ckpt_find(c, r->dir, r->which, r->path);
}

static void find_load(Rank *r, DpcCkpt *c)
{
    find(r, c);
    memset(r->leaves, 0xee, sizeof r->leaves);
    memset(r->scalar, 0, sizeof r->scalar);
    r->info = (DpcCkptInfo){ .scalar = r->scalar };
    if (r->status == DPC_OK && r->path[0])
        r->status = dpc_ckpt_load(c, (char *[]){ (char *)r->leaves }, &r->info, r->path);
}

static void world_is(const Plan *p, int salt, int64_t step)
{
    for (int i = 0; i < plan_size(p); i++) {
        Rank *r = &ranks[i];
        assert_int_equal(leaves_walk(&r->mesh, r->coord, salt, r->leaves,
                                     false), 0);
        assert_int_equal(r->info.step, step);
        assert_int_equal(r->info.cursor, step * 64);
        assert_true(r->info.seed == 0xfedcba9876543210u);
        assert_true(r->info.data == 77);
        assert_true(r->scalar[2] == 0.25);
    }
}

static void ok(DpcStatus s)
{
    if (s != DPC_OK)
        fail_msg("%s", ranks[0].text[0] ? ranks[0].text : dpc_last_error());
}

#endif
