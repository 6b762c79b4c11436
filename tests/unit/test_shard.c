/* test_shard.c -- fields in .npy shards, alone and beside archives. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "tests/unit/temp.h"
#include <sys/stat.h>

/* n rows f4 [2] of numbers from `first`; those of row `zero` are 0. */
static void put_shard(const char *name, int n, float first, int zero)
{
    char head[128];
    float x[64];
    for (int i = 0; i < 2 * n; i++)
        x[i] = i / 2 == zero ? 0 : first + (float)i;
    snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, "
             "'shape': (%d, 2), }\n", n);
    put_npy(name, 1, head, x, (size_t)n * 8);
}

static const char *alone(const char *a, const char *b)
{
    static char spec[1200];
    snprintf(spec, sizeof spec, "image_embed=%s/%s,text=%s/%s", temp_dir, a,
             temp_dir, b);
    return spec;
}

static float first_of(DpcData *d, int64_t sample, int field)
{
    float x[2];
    if (dpc_data_read(d, sample, field, x, 8))
        fail_msg("%s", dpc_last_error());
    return x[0];
}

/* Shards of 2, 3 and 1 rows; by number, not by name. */
static void put_folders(void)
{
    mkdir(at("img"), 0700);
    mkdir(at("txt"), 0700);
    put_shard("img/img_emb_2.npy", 2, 100, -1);
    put_shard("img/img_emb_9.npy", 3, 200, -1);
    put_shard("img/img_emb_10.npy", 1, 300, -1);
    put_shard("txt/text_emb_002.npy", 2, 1100, -1);
    put_shard("txt/text_emb_009.npy", 3, 1200, -1);
    put_shard("txt/text_emb_010.npy", 1, 1300, -1);
}

static void shards_are_one_after_the_other(void **state)
{
    (void)state;
    static const float want[] = {100, 102, 200, 202, 204, 300};
    DpcData *d;
    put_folders();
    opens(alone("img", "txt"), 0, &d);
    assert_int_equal(dpc_data_count(d), 6);
    assert_int_equal(dpc_data_nfield(d), 2);
    assert_string_equal(dpc_data_field(d, 0)->name, "image_embed");
    for (int i = 5; i >= 0; i--) {
        assert_true(first_of(d, i, 0) == want[i]);
        assert_true(first_of(d, i, 1) == want[i] + 1000);
    }
    dpc_data_close(d);
    opens(alone("img/img_emb_2.npy", "txt/text_emb_{002..002}.npy"), 0, &d);
    assert_int_equal(dpc_data_count(d), 2);
    dpc_data_close(d);
    char here[512];                             /* a file, in a folder a=b */
    assert_non_null(getcwd(here, sizeof here));
    mkdir(at("a=b"), 0700);
    put_shard("a=b/x.npy", 2, 1, -1);
    put_shard("a=b/y.npy", 2, 1, -1);
    assert_int_equal(chdir(temp_dir), 0);
    opens("a=b/x.npy,a=b/y.npy", 0, &d);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(dpc_data_find(d, "y"), 1);
    dpc_data_close(d);
}

static void what_one_field_lacks_is_counted_and_replaced(void **state)
{
    (void)state;
    DpcData *d;
    put_folders();
    put_shard("txt/text_emb_009.npy", 2, 1200, -1);     /* a row too few */
    unlink(at("txt/text_emb_010.npy"));
    opens(alone("img", "txt"), 2, &d);
    assert_int_equal(dpc_data_count(d), 6);
    assert_true(first_of(d, 4, 0) == 100 && first_of(d, 4, 1) == 1100);
    assert_int_equal(dpc_data_bad(d), 2);
    dpc_data_close(d);
    static const char *const why[] = {
        "text_emb_009.npy: error: data: \"text\" has no row 2, its shard has 2",
        "txt: error: data: \"text\" has no shard 10"};
    for (int i = 0; i < 2; i++) {
        float x[2];
        opens(alone("img", "txt"), 0, &d);
        assert_int_equal(dpc_data_read(d, 4 + i, 0, x, 8), DPC_USER);
        says(why[i]);
        dpc_data_close(d);
    }
}

static void a_damaged_shard_is_left_out(void **state)
{
    (void)state;
    DpcData *d;
    put_folders();
    put("txt/text_emb_010.npy", "no array", 8);
    opens(alone("img", "txt"), 1, &d);
    assert_int_equal(dpc_data_count(d), 6);
    assert_true(first_of(d, 5, 0) == 100);
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
}

static void shards_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    put_folders();
    put_shard("img/x2.npy", 1, 0, -1);
    refuses(alone("img", "txt"), "shard 2 is also", "take one of them away");
    unlink(at("img/x2.npy"));
    put_shard("img/last.npy", 1, 0, -1);
    refuses(alone("img", "txt"), "last.npy", "does not end in the number");
    unlink(at("img/last.npy"));
    put_npy("img/x3.npy", 1, HEAD("<f4", "(1, 3)"), "............", 12);
    refuses(alone("img", "txt"), "rows of f32[3]", "has f32[2]");
    mkdir(at("empty"), 0700);
    refuses(alone("empty", "txt"), "no sound .npy file", "give a folder");
    refuses(alone("none", "txt"), "No such file", "existing");
    refuses("a=,b=c", "wanted NAME=FOLDER", "joined by commas");
}

/* Archives 3 and 4 of keys SSSRRRR, with a text of the row's number. */
static void put_tars(void)
{
    char line[700];
    for (int k = 3; k < 5; k++)
        for (int i = 0; i < 3; i++) {
            char name[32], text[8];
            snprintf(name, sizeof name, "%03d%04d.txt", k, i);
            snprintf(text, sizeof text, "%d", 10 * k + i);
            put(name, text, 2);
        }
    snprintf(line, sizeof line, "cd %s && tar cf 0003.tar 003* && tar cf "
             "0004.tar 004*", temp_dir);
    assert_int_equal(system(line), 0);
}

static const char *beside(const char *more)
{
    static char spec[1600];
    snprintf(spec, sizeof spec, "%s/{0003..0004}.tar?rows=emb:%s/emb%s",
             temp_dir, temp_dir, more);
    return spec;
}

static void rows_stand_beside_their_archive(void **state)
{
    (void)state;
    DpcData *d;
    char text[2];
    put_tars();
    mkdir(at("emb"), 0700);
    put_shard("emb/emb_3.npy", 3, 300, -1);
    put_shard("emb/emb_4.npy", 9, 400, -1);
    opens(beside(""), 0, &d);
    assert_int_equal(dpc_data_count(d), 6);
    int emb = dpc_data_find(d, "emb"), caption = dpc_data_find(d, "caption");
    for (int i = 0; i < 6; i++) {
        int k = 3 + i / 3, row = i % 3;
        assert_true(first_of(d, i, emb) == (float)(100 * k + 2 * row));
        assert_int_equal(dpc_data_read(d, i, caption, text, 2), DPC_OK);
        assert_true(text[0] == '0' + k && text[1] == '0' + row);
    }
    dpc_data_close(d);
}

static void a_missing_embedding_is_a_corrupt_record(void **state)
{
    (void)state;
    DpcData *d;
    float x[2];
    put_tars();
    mkdir(at("emb"), 0700);
    put_shard("emb/emb_3.npy", 2, 300, 1);      /* row 1 is 0, no row 2, */
    opens(beside(""), 5, &d);                   /* no shard 4 */
    int emb = dpc_data_find(d, "emb");
    for (int i = 0; i < 6; i++)
        assert_true(first_of(d, i, emb) == 300);
    assert_int_equal(dpc_data_bad(d), 5);
    dpc_data_close(d);
    static const char *const why[] = {
        "0003.tar: error: data: record \"0030001\": emb: its row is all zero",
        "record \"0030002\": emb: data: \"emb\" has no row 2, its shard has 2",
        "record \"0040000\": emb: data: \"emb\" has no shard 4"};
    for (int i = 0; i < 3; i++) {
        opens(beside(""), 0, &d);
        assert_int_equal(dpc_data_read(d, i + 1, emb, x, 8), DPC_USER);
        says(why[i]);
        dpc_data_close(d);
    }
    opens(beside("&digits=9"), 0, &d);
    assert_int_equal(dpc_data_read(d, 0, emb, x, 8), DPC_USER);
    says("does not end in the 9 digits of a row of \"emb\"");
    dpc_data_close(d);
    char spec[1600];
    snprintf(spec, sizeof spec, "%s?rows=caption:%s", at("0003.tar"),
             at("emb"));
    refuses(spec, "the archives have a field of that name", "name the field");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shards_are_one_after_the_other),
        CASE(what_one_field_lacks_is_counted_and_replaced),
        CASE(a_damaged_shard_is_left_out),
        CASE(shards_that_do_not_fit_are_refused),
        CASE(rows_stand_beside_their_archive),
        CASE(a_missing_embedding_is_a_corrupt_record),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
