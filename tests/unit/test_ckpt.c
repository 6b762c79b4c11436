/* test_ckpt.c -- checkpoints: round trips, plans, other people's files.
 *
 * Crashes and failing disks have files of their own: test_ckpt_crash.c,
 * test_ckpt_fault.c. */
#include "tests/unit/ckpt_world.h"

#include <jansson.h>

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
    char first[DPC_HASH] = "", hex[DPC_HASH];
    (void)state;
    for (size_t i = 0; i < COUNT(all_plans); i++) {
        world_make(all_plans[i], 5, (int64_t)i);
        ok(world_run(save));
        for (size_t k = 0; k < COUNT(all_plans); k++) {
            world_make(all_plans[k], 0, 0);
            ok(world_run(find_load));
            world_is(all_plans[k], 5, (int64_t)i);
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

/* Header of a file whose bytes are n: read as the format says, not by ours.
 * https://github.com/huggingface/safetensors#format */
static json_t *header_of(const char *file, size_t n, size_t *data)
{
    size_t length = 0;
    for (int i = 8; i-- > 0;)
        length = length << 8 | (unsigned char)file[i];
    assert_true(length <= n - 8);
    json_t *head = json_loadb(file + 8, length, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(head);
    *data = 8 + length;
    return head;
}

static void the_plain_file_is_what_the_format_says(void **state)
{
    static char file[4096];
    const char *dtype;
    char want[4], path[DPC_PATH];
    int n_row, n_column, from, to;
    size_t data;
    (void)state;
    world_make(&one, 1, 3);
    ok(world_run(save));
    dpc_path(path, "%s/step-00000003/model.safetensors", root);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    json_t *head = header_of(file, n, &data);
    json_object_del(head, "__metadata__");
    assert_int_equal(json_object_size(head), 2);
    assert_non_null(json_object_get(head, "h"));
    assert_int_equal(json_unpack(head, "{s{s:s s:[ii!] s:[ii!] !}}", "w",
        "dtype", &dtype, "shape", &n_row, &n_column, "data_offsets", &from,
        &to), 0);
    assert_string_equal(dtype, "F32");
    assert_true(n_row == 8 && n_column == 12 && to - from == 4 * 8 * 12);
    assert_true(data + (size_t)to <= n);
    for (int i = 0; i < 8 * 12; i++) {
        value_put(&plan_of_tables[0], 0, i, 1, want);
        assert_memory_equal(file + data + from + 4 * i, want, 4);
    }
    json_decref(head);
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
        "  extra \"ema.w\" (the model has \"ema.w2\")\n  extra \"w\""));
    assert_int_equal(ranks[0].leaves[0] & 0xff, 0xee);   /* untouched */
    ranks[0].mesh.unit.model = "other";
    assert_int_equal(world_run(find_load), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "checkpoint of model \"m\", this "
                           "program trains \"other\""));
}

static int loaded;
static int use_ema;                       /* or DPC_INIT_PARTIAL */
static const char *init_path, *init_here;

static void init_from(Rank *r, DpcCkpt *c)
{
    DpcInitDone done;
    DpcInitFrom from = { .path = init_path, .here = init_here, .there = "",
                         .how = use_ema };
    r->status = dpc_ckpt_init_from(c, (char *[]){ (char *)r->leaves }, &from, &done);
    if (r->world.rank == 0)
        loaded = done.params;
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

static void missing_params_and_left_overs_are_listed(void **state)
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
    assert_int_equal(world_run(init_from), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "0 missing, 1 extra, 0 of another "
                           "type or shape\n  extra \"h\""));
    use_ema = DPC_INIT_EXTRA;
    ok(world_run(init_from));
    init_here = "clip.";
    assert_int_equal(world_run(init_from), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "no param of this model is called "
                           "\"clip.*\""));
}

static void only_trainable_params_may_be_missing(void **state)
{
    char path[DPC_PATH];
    (void)state;
    world_make(&one, 4, 1);
    ok(world_run(save));
    dpc_path(path, "%s/step-00000001/model.safetensors", root);
    init_path = path, use_ema = 0, init_here = "";
    ranks[0].mesh.leaf[1].name = "adapter";
    ranks[0].mesh.leaf[1].trainable = true;
    assert_int_equal(world_run(init_from), DPC_USER);
    use_ema = DPC_INIT_OVER;              /* h is nobody's */
    assert_int_equal(world_run(init_from), DPC_USER);
    use_ema = DPC_INIT_OVER | DPC_INIT_EXTRA;
    ok(world_run(init_from));
    use_ema = DPC_INIT_PARTIAL;
    ok(world_run(init_from));
    assert_int_equal(loaded, 1);
    ranks[0].mesh.leaf[1].trainable = false;
    assert_int_equal(world_run(init_from), DPC_USER);
    assert_non_null(strstr(ranks[0].text, "missing \"adapter\""));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_state_survives_the_round_trip),
        T(any_plan_loads_what_any_plan_saved),
        T(what_no_plan_splits_is_one_plain_file),
        T(the_plain_file_is_what_the_format_says),
        T(a_buffer_too_small_for_its_part_is_refused),
        T(nothing_to_resume_is_a_fresh_start),
        T(the_last_k_and_the_best_are_kept),
        T(a_step_saved_again_replaces_the_old_one),
        T(a_full_disk_on_one_rank_fails_the_save_on_all),
        T(any_flipped_bit_sends_auto_to_the_one_before),
        T(a_cut_file_is_told_with_both_sizes),
        T(another_model_is_refused_by_name),
        T(params_come_from_another_model_by_prefix),
        T(missing_params_and_left_overs_are_listed),
        T(only_trainable_params_may_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
