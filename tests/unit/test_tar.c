/* test_tar.c -- WebDataset archives: kinds of members, what is missing, what
 * breaks off; made by the system's tar. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "runtime/image.h"
#include "tests/unit/temp.h"
#include <sys/stat.h>

static void shell(const char *command)
{
    char line[1200];
    snprintf(line, sizeof line, "cd %s && %s", temp_dir, command);
    assert_int_equal(system(line), 0);
}

/* 2 x 2 pixels (r, 0, 0), a caption, an array f32[3] of r, r + 1, r + 2. */
static void put_sample(const char *key, uint8_t r, const char *caption)
{
    uint8_t x[12] = { r, 0, 0, r, 0, 0, r, 0, 0, r, 0, 0 };
    float y[3] = { r, r + 1.f, r + 2.f };
    char name[64];
    snprintf(name, sizeof name, "%s.png", key);
    assert_int_equal(dpc_png_write(at(name), x, 2, 2, 3), DPC_OK);
    snprintf(name, sizeof name, "%s.txt", key);
    put(name, caption, strlen(caption));
    snprintf(name, sizeof name, "%s.emb.npy", key);
    put_npy(name, 1, HEAD("<f4", "(3,)"), y, sizeof y);
}

static void put_two(void)
{
    put_sample("000", 10, "a red boot\n");
    put_sample("001", 20, "a shirt");
}

static void samples_are_members_of_one_key(void **state)
{
    (void)state;
    DpcData *d;
    uint8_t rgb[12], text[16];
    float y[3];
    put_two();
    shell("tar cf s.tar 000.* 001.*");
    char spec[600];
    snprintf(spec, sizeof spec, "%s?text=16", at("s.tar"));
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_count(d), 2);
    assert_int_equal(dpc_data_nfield(d), 3);
    int image = dpc_data_find(d, "image"), emb = dpc_data_find(d, "emb");
    int caption = dpc_data_find(d, "caption");
    assert_true(image >= 0 && emb >= 0 && caption >= 0);
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(dpc_data_read(d, i, image, rgb, 12), DPC_OK);
        assert_int_equal(rgb[0], i ? 20 : 10);
        assert_int_equal(dpc_data_read(d, i, emb, y, 12), DPC_OK);
        assert_float_equal(y[2], i ? 22 : 12, 0);
        assert_int_equal(dpc_data_read(d, i, caption, text, 16), DPC_OK);
        assert_string_equal((char *)text, i ? "a shirt" : "a red boot");
    }
    dpc_data_close(d);
}

static void archives_are_read_one_after_the_other(void **state)
{
    (void)state;
    DpcData *d;
    put_two();
    shell("tar cf s-08.tar 000.* && tar cf s-09.tar 001.* && "
          "tar --format=pax -cf s-10.tar 000.*");
    char spec[600];
    snprintf(spec, sizeof spec, "%s", at("s-{08..10}.tar"));
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_count(d), 3);
    dpc_data_close(d);
    shell("rm -f 00*");
    opens(temp_dir, 0, &d);                     /* a folder of archives */
    assert_int_equal(dpc_data_count(d), 3);
    dpc_data_close(d);
}

static void a_long_name_is_one_name(void **state)
{
    (void)state;
    DpcData *d;
    char key[200], line[700];
    put_two();
    memset(key, 'k', 120), key[120] = 0;
    snprintf(line, sizeof line, "mkdir -p d/%s && cp 000.png d/%s/0.png && "
             "cp 000.txt d/%s/0.txt && tar --format=gnu -cf g.tar d", key, key,
             key);
    shell(line);
    opens(at("g.tar"), 0, &d);
    assert_int_equal(dpc_data_count(d), 1);
    assert_int_equal(dpc_data_nfield(d), 2);
    dpc_data_close(d);
}

static void what_is_missing_is_counted_and_replaced(void **state)
{
    (void)state;
    DpcData *d;
    float y[3];
    put_two();
    shell("rm 000.emb.npy && tar cf s.tar 000.* 001.*");
    opens(at("s.tar"), 1, &d);
    int emb = dpc_data_find(d, "emb");
    assert_int_equal(dpc_data_read(d, 0, emb, y, 12), DPC_OK);
    assert_float_equal(y[0], 20, 0);
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
    opens(at("s.tar"), 0, &d);
    assert_int_equal(dpc_data_read(d, 0, emb, y, 12), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "sample 0 has no \"emb\""));
    dpc_data_close(d);
}

static void an_archive_that_breaks_off_is_read_so_far(void **state)
{
    (void)state;
    DpcData *d;
    put_two();
    shell("tar cf s.tar 000.* 001.* && truncate -s 4000 s.tar");
    opens(at("s.tar"), 2, &d);
    assert_int_equal(dpc_data_count(d), 3);     /* one whole, two not */
    uint8_t rgb[12];
    for (int i = 0; i < 3; i++)
        assert_int_equal(dpc_data_read(d, i, dpc_data_find(d, "image"), rgb,
                                       12), DPC_OK);
    assert_int_equal(rgb[0], 10);
    assert_int_equal(dpc_data_bad(d), 2);
    dpc_data_close(d);
}

static void what_is_no_archive_is_refused(void **state)
{
    (void)state;
    put("x.tar", "no archive at all", 17);
    refuses(at("x.tar"), "0 samples", "000.jpg");
    refuses(at("none.tar"), "No such file", "give existing archives");
}

#define TEST(name) cmocka_unit_test_teardown(name, temp_clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(samples_are_members_of_one_key),
        TEST(archives_are_read_one_after_the_other),
        TEST(a_long_name_is_one_name),
        TEST(what_is_missing_is_counted_and_replaced),
        TEST(an_archive_that_breaks_off_is_read_so_far),
        TEST(what_is_no_archive_is_refused),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
