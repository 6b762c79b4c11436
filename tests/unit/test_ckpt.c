/* test_ckpt.c -- checkpoints: round trips, plans, other people's files.
 *
 * Worlds of several ranks are threads that meet in a gather.  The crash model
 * has a file of its own, test_ckpt_crash.c. */
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
enum { NRANK = 6, BYTES = 8192 };

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

/* Axes a (1 in the nibble) and b (2); a/b is 0x21, b/a is 0x12. */
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
};
enum { NLEAF = COUNT(plan_of_tables) };

typedef struct Plan { int a, b; DpcSplit w[2], h[3], m[2], mask; } Plan;

typedef struct Mesh {
    DpcAxis axis[2];
    DpcLeaf leaf[NLEAF];
    DpcUnit unit;
    int size;
} Mesh;

static int64_t parts(const Mesh *m, DpcSplit s)
{
    int64_t n = 1;
    for (; s; s >>= 4)
        n *= m->axis[(s & 15) - 1].size;
    return n;
}

static void mesh_make(Mesh *m, const Plan *p)
{
    memset(m, 0, sizeof *m);
    m->axis[0] = (DpcAxis){ "a", p->a, DPC_SPACE };
    m->axis[1] = (DpcAxis){ "b", p->b, DPC_SPACE };
    m->size = p->a * p->b;
    memcpy(m->leaf, plan_of_tables, sizeof m->leaf);
    memcpy(m->leaf[0].split, p->w, sizeof p->w);
    memcpy(m->leaf[1].split, p->h, sizeof p->h);
    memcpy(m->leaf[3].split, p->m, sizeof p->m);
    m->leaf[5].split[0] = p->mask;
    int64_t at = 0;
    for (int i = 0; i < NLEAF; i++) {
        DpcLeaf *l = &m->leaf[i];
        l->bytes = dpc_dtype_size(l->dtype);
        for (int d = 0; d < l->ndim; d++) {
            int64_t n = parts(m, l->split[d]);
            l->bytes *= (l->dim[d] + n - 1) / n;
        }
        l->at = at;
        at += (l->bytes + 15) / 16 * 16;
    }
    m->unit = (DpcUnit){ .abi = DPC_ABI, .model = "m", .version = "1",
                         .hash = "abc", .naxis = 2, .nleaf = NLEAF,
                         .axis = m->axis, .leaf = m->leaf, .leaves = at };
    assert_true(at <= BYTES);
}

static const Plan one = { 1, 1, { 0 }, { 0 }, { 0 }, 0 };
static const Plan ordered = { 2, 2, { 0x21, 0 }, { 0, 0, 2 }, { 2, 1 }, 0x12 };
static const Plan columns = { 1, 4, { 0, 2 }, { 2, 0, 0 }, { 2, 0 }, 2 };
static const Plan three = { 3, 1, { 1, 0 }, { 0, 1, 0 }, { 0, 1 }, 1 };
static const Plan zero1 = { 2, 1, { 0 }, { 0 }, { 1, 0 }, 0 };

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
        if (l->kind == DPC_SCALAR)
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
    int32_t coord[2];
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
    for (int i = 0; i < p->a * p->b; i++) {
        Rank *r = &ranks[i];
        mesh_make(&r->mesh, p);
        r->coord[0] = i / p->b, r->coord[1] = i % p->b;
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
    r->status = dpc_ckpt_save(c, r->leaves, &r->info, r->dir, r->keep);
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
        r->status = dpc_ckpt_load(c, r->leaves, &r->info, r->path);
}

static void world_is(const Plan *p, int salt, int64_t step)
{
    for (int i = 0; i < p->a * p->b; i++) {
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

/* ---- tests ---- */

static void a_state_survives_the_round_trip(void **state)
{
    (void)state;
    world_make(&one, 1, 20);
    ok(world_run(save));
    ok(world_run(find_load));
    world_is(&one, 1, 20);
}

static void any_plan_loads_what_any_plan_saved(void **state)
{
    static const Plan *const plans[] = { &one, &ordered, &columns, &three,
                                         &zero1 };
    char first[DPC_HASH] = "", hex[DPC_HASH];
    (void)state;
    for (size_t i = 0; i < COUNT(plans); i++) {
        world_make(plans[i], 5, (int64_t)i);
        ok(world_run(save));
        for (size_t k = 0; k < COUNT(plans); k++) {
            world_make(plans[k], 0, 0);
            ok(world_run(find_load));
            world_is(plans[k], 5, (int64_t)i);
        }
        assert_int_equal(dpc_ckpt_hash(ranks[0].path, hex), DPC_OK);
        if (i == 0)
            strcpy(first, hex);
        assert_string_equal(hex, first);
    }
}

static bool exists(const char *name)
{
    char path[DPC_PATH];
    dpc_path(path, "%s/%s", root, name);
    return access(path, F_OK) == 0;
}

static void what_no_plan_splits_is_one_plain_file(void **state)
{
    (void)state;
    world_make(&zero1, 1, 3);
    ok(world_run(save));
    assert_true(exists("step-00000003/model.safetensors"));
    assert_false(exists("step-00000003/state.safetensors"));
    assert_true(exists("step-00000003/state-00002-of-00002.safetensors"));
}

static void python_reads_the_plain_file(void **state)
{
    char cmd[DPC_PATH];
    (void)state;
    if (system("python3 -c 'import safetensors, numpy' 2>/dev/null"))
        skip();                           /* no safetensors package */
    world_make(&one, 1, 3);
    ok(world_run(save));
    dpc_path(cmd, "python3 -c 'import safetensors as s\n"
             "f = s.safe_open(\"%s/step-00000003/model.safetensors\", \"np\")\n"
             "assert sorted(f.keys()) == [\"h\", \"w\"], f.keys()\n"
             "assert f.get_tensor(\"w\").shape == (8, 12)'", root);
    assert_int_equal(system(cmd), 0);
}

static void a_buffer_too_small_for_its_part_is_refused(void **state)
{
    DpcCkpt *c;
    (void)state;
    world_make(&three, 1, 0);
    ranks[0].mesh.leaf[5].bytes = 2;      /* 7 / 3 does not divide: 3 */
    DpcStatus s = dpc_ckpt_open(&ranks[0].mesh.unit, &ranks[0].world, NULL, &c);
    assert_int_equal(s, DPC_BUG);
    assert_string_equal(dpc_last_error(), "m.lua:6: error: leaf \"mask\": its "
                        "part takes 3 bytes, the table has 2 for it; the "
                        "sizes must divide");
}

static void nothing_to_resume_is_a_fresh_start(void **state)
{
    (void)state;
    world_make(&ordered, 1, 0);
    ok(world_run(find));
    assert_string_equal(ranks[3].path, "");
}

static void the_last_k_and_the_best_are_kept(void **state)
{
    (void)state;
    for (int step = 1; step <= 6; step++) {
        world_make(&ordered, step, step);
        for (int i = 0; i < 4; i++)
            ranks[i].keep = 2, ranks[i].info.best = step == 2;
        ok(world_run(save));
    }
    for (int step = 1; step <= 6; step++) {
        char name[32];
        snprintf(name, sizeof name, "step-%08d", step);
        assert_int_equal(exists(name), step == 2 || step >= 5);
    }
    ranks[0].which = "best";
    ok(world_run(find_load));
    world_is(&ordered, 2, 2);
    ranks[0].which = "latest";
    ok(world_run(find_load));
    world_is(&ordered, 6, 6);
    ranks[0].which = "step-5";
    ok(world_run(find_load));
    world_is(&ordered, 5, 5);
}

static void a_step_saved_again_replaces_the_old_one(void **state)
{
    (void)state;
    for (int salt = 1; salt <= 3; salt++) {
        world_make(&ordered, salt, 8);
        ok(world_run(save));
        ok(world_run(find_load));
        world_is(&ordered, salt, 8);
        assert_false(exists("step-00000008.old"));
    }
}

static ssize_t full(void *arg, int fd, const void *p, size_t n)
{
    (void)arg, (void)fd, (void)p, (void)n;
    errno = ENOSPC;
    return -1;
}

static void a_full_disk_on_one_rank_fails_the_save_on_all(void **state)
{
    DpcDisk disk = dpc_disk;
    (void)state;
    disk.write = full;
    world_make(&ordered, 1, 1);
    ok(world_run(save));
    world_make(&ordered, 2, 2);
    ranks[2].disk = &disk;
    assert_int_equal(world_run(save), DPC_ENV);
    for (int i = 0; i < 4; i++) {
        assert_non_null(strstr(ranks[i].text, "model-00003-of-00004."
            "safetensors: error: cannot write at byte "));
        assert_non_null(strstr(ranks[i].text, "No space left on device (rank "
                               "2)"));
    }
    assert_false(exists("step-00000002"));
    assert_false(exists("step-00000002.tmp-new"));
    ok(world_run(find_load));
    world_is(&ordered, 1, 1);
}

static void flip(const char *name, int64_t at)
{
    char path[DPC_PATH], b;
    dpc_path(path, "%s/%s", root, name);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (pread(fd, &b, 1, at) == 1) {
        b ^= 4;
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
    }
    close(fd);
}

static int64_t size_of(const char *name)
{
    char path[DPC_PATH];
    struct stat st;
    dpc_path(path, "%s/%s", root, name);
    return stat(path, &st) ? -1 : st.st_size;
}

static void any_flipped_bit_sends_auto_to_the_one_before(void **state)
{
    static const char *const files[] = {
        "step-00000002/dpc.json", "step-00000002/model.safetensors",
        "step-00000002/state.safetensors" };
    (void)state;
    world_make(&one, 1, 1);
    ok(world_run(save));
    world_make(&one, 2, 2);
    ok(world_run(save));
    for (size_t f = 0; f < COUNT(files); f++)
        for (int64_t at = 0; at < size_of(files[f]) - 2; at += 7) {
            flip(files[f], at);
            ok(world_run(find));
            assert_non_null(strstr(ranks[0].path, "step-00000001"));
            assert_non_null(strstr(ranks[0].warned, "step-00000002"));
            flip(files[f], at);
        }
    ok(world_run(find_load));
    world_is(&one, 2, 2);
}

static void a_cut_file_is_told_with_both_sizes(void **state)
{
    char path[DPC_PATH];
    (void)state;
    world_make(&ordered, 1, 1);
    ok(world_run(save));
    dpc_path(path, "%s/step-00000001/model-00003-of-00004.safetensors", root);
    assert_int_equal(truncate(path, 99), 0);
    for (int i = 0; i < 4; i++)
        ranks[i].which = "latest";
    assert_int_equal(world_run(find_load), DPC_USER);
    assert_non_null(strstr(ranks[1].text, "model-00003-of-00004.safetensors: "
                           "error: file of 99 bytes, it was saved with "));
}

static void another_model_is_refused_by_name(void **state)
{
    (void)state;
    world_make(&one, 1, 1);
    ok(world_run(save));
    ranks[0].mesh.leaf[0].name = "v";
    ranks[0].mesh.leaf[1].dim[0] = 3;
    ranks[0].mesh.leaf[3].name = "ema.w2";
    assert_int_equal(world_run(find_load), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "step-00000001: error: weights do "
        "not fit the model: 2 missing, 2 extra, 1 of another type or shape\n"
        "  missing \"v\"\n"
        "  \"h\" is BF16[4,3,8], the model wants BF16[3,3,8]\n"
        "  missing \"ema.w2\" (there is \"ema.w\")\n"
        "  extra \"ema.w\"\n  extra \"w\""));
    assert_int_equal(ranks[0].leaves[0] & 0xff, 0xee);   /* untouched */
    ranks[0].mesh.unit.model = "other";
    assert_int_equal(world_run(find_load), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "checkpoint of model \"m\", this "
                           "program trains \"other\""));
}

static int loaded;
static bool use_ema;
static const char *init_path, *init_here;

static void init_from(Rank *r, DpcCkpt *c)
{
    int n;
    r->status = dpc_ckpt_init_from(c, r->leaves, init_path, init_here, "",
                                   use_ema, &n);
    if (r->world.rank == 0)
        loaded = n;
}

static void params_come_from_another_model_by_prefix(void **state)
{
    char path[DPC_PATH];
    (void)state;
    world_make(&ordered, 4, 1);
    ok(world_run(save));
    dpc_path(path, "%s/step-00000001", root);
    init_path = path, init_here = "clip.", use_ema = false;
    world_make(&columns, 9, 0);
    for (int i = 0; i < 4; i++) {
        ranks[i].mesh.leaf[0].name = "clip.w";
        ranks[i].mesh.leaf[1].name = "clip.h";
        ranks[i].mesh.leaf[1].dtype = DPC_BF16;
    }
    ok(world_run(init_from));
    assert_int_equal(loaded, 2);
    static char want[BYTES];
    leaves_walk(&ranks[2].mesh, ranks[2].coord, 4, want, true);
    const DpcLeaf *l = ranks[2].mesh.leaf;
    assert_memory_equal(ranks[2].leaves + l[0].at, want + l[0].at, l[0].bytes);
    assert_memory_equal(ranks[2].leaves + l[1].at, want + l[1].at, l[1].bytes);
    use_ema = true;                       /* h has no EMA: itself */
    ok(world_run(init_from));
    assert_memory_equal(ranks[2].leaves + l[1].at, want + l[1].at, l[1].bytes);
    assert_memory_not_equal(ranks[2].leaves + l[0].at, want + l[0].at, 16);
    init_path = root, use_ema = false;    /* the run: its newest */
    ok(world_run(init_from));
    assert_memory_equal(ranks[2].leaves + l[0].at, want + l[0].at, l[0].bytes);
}

static void missing_params_are_listed_and_left_overs_told(void **state)
{
    char path[DPC_PATH];
    (void)state;
    world_make(&one, 4, 1);
    ok(world_run(save));
    dpc_path(path, "%s/step-00000001/model.safetensors", root);
    init_path = path, use_ema = false, init_here = "w";
    assert_int_equal(world_run(init_from), DPC_USER);
    init_here = "";
    ranks[0].mesh.leaf[1].kind = DPC_STATE;
    ok(world_run(init_from));
    assert_int_equal(loaded, 1);
    ranks[0].mesh.leaf[1].name = "g";
    ok(world_run(init_from));
    assert_non_null(strstr(ranks[0].warned, "1 tensors are not used: \"h\""));
    init_here = "clip.";
    assert_int_equal(world_run(init_from), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "no param of this model is called "
                           "\"clip....\""));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_state_survives_the_round_trip),
        T(any_plan_loads_what_any_plan_saved),
        T(what_no_plan_splits_is_one_plain_file),
        T(python_reads_the_plain_file),
        T(a_buffer_too_small_for_its_part_is_refused),
        T(nothing_to_resume_is_a_fresh_start),
        T(the_last_k_and_the_best_are_kept),
        T(a_step_saved_again_replaces_the_old_one),
        T(a_full_disk_on_one_rank_fails_the_save_on_all),
        T(any_flipped_bit_sends_auto_to_the_one_before),
        T(a_cut_file_is_told_with_both_sizes),
        T(another_model_is_refused_by_name),
        T(params_come_from_another_model_by_prefix),
        T(missing_params_are_listed_and_left_overs_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
