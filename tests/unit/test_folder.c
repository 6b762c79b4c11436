/* test_folder.c -- folders of pictures: classes, captions, corrupt files. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "runtime/image.h"
#include "tests/unit/temp.h"
#include <sys/stat.h>

/* 2 x 2 pixels (r, 0, 0). */
static void put_red(const char *name, uint8_t r)
{
    uint8_t x[12] = { r, 0, 0, r, 0, 0, r, 0, 0, r, 0, 0 };
    assert_int_equal(dpc_png_write(at(name), x, 2, 2, 3), DPC_OK);
}

static const char *spec(const char *option)
{
    static char s[600];
    snprintf(s, sizeof s, "folder:%s%s", temp_dir, option);
    return s;
}

static void below(const char *option, int64_t budget, DpcData **d)
{
    opens(spec(option), budget, d);
}

static void folder_refuses(const char *option, const char *part,
                           const char *more)
{
    refuses(spec(option), part, more);
}

static int label(DpcData *d, int64_t sample)
{
    int32_t y;
    if (dpc_data_read(d, sample, dpc_data_find(d, "label"), &y, 4))
        fail_msg("%s", dpc_last_error());
    return y;
}

/* Class "a" has 2 pictures, "a-b" one, "b" one below a folder. */
static void put_classes(void)
{
    mkdir(at("a"), 0700);
    mkdir(at("a-b"), 0700);
    mkdir(at("b"), 0700);
    mkdir(at("b/deep"), 0700);
    put_red("b/deep/0.PNG", 4);
    put_red("a-b/0.png", 3);
    put_red("a/1.png", 2);
    put_red("a/0.png", 1);
    put("a/.hidden.png", "x", 1);
    put("a/notes.txt", "x", 1);
}

static void folder_sorts_classes_and_names(void **state)
{
    (void)state;
    put_classes();
    DpcData *d;
    uint8_t x[12];
    opens(temp_dir, 0, &d);                     /* without "folder:" */
    dpc_data_close(d);
    below("", 0, &d);
    assert_int_equal(dpc_data_count(d), 4);
    assert_int_equal(dpc_data_nfield(d), 2);
    assert_int_equal(dpc_data_find(d, "caption"), -1);
    static const int want[] = { 0, 0, 1, 2 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dpc_data_read(d, i, 0, x, 12), DPC_OK);
        assert_int_equal(x[0], i + 1);
        assert_int_equal(label(d, i), want[i]);
    }
    dpc_data_close(d);
}

static void folder_takes_its_size_from_the_spec(void **state)
{
    (void)state;
    put_classes();
    DpcData *d;
    below("?size=3x5", 0, &d);
    const DpcField *f = dpc_data_field(d, 0);
    assert_int_equal(f->ndim, 3);
    assert_true(f->dim[0] == 3 && f->dim[1] == 5 && f->dim[2] == 3);
    assert_true(dpc_data_bytes(d) > 45);
    dpc_data_close(d);
    below("?size=8", 0, &d);
    assert_int_equal(dpc_field_bytes(dpc_data_field(d, 0)), 192);
    dpc_data_close(d);
    static const char *const bad[] = {
        "?size=0", "?size=3x", "?size=99999", "?size=3y4", "?bits=3",
        "?text=0", "?size=4&text=x"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        folder_refuses(bad[i], bad[i] + 1, "wanted size=HxW");
}

static void corrupt_pictures_are_replaced_whole(void **state)
{
    (void)state;
    put_classes();
    put("a/1.png", "broken", 6);
    put("a-b/0.png", "", 0);
    DpcData *d, *e;
    uint8_t x[12], y[12];
    below("?size=2", 2, &d);
    below("?size=2", 2, &e);
    assert_int_equal(label(d, 1), 2);           /* the label first */
    assert_int_equal(dpc_data_read(d, 1, 0, x, 12), DPC_OK);
    assert_int_equal(x[0], 4);
    assert_int_equal(dpc_data_bad(d), 2);
    assert_int_equal(label(d, 1), 2);
    assert_int_equal(dpc_data_bad(d), 2);       /* once each */
    assert_int_equal(dpc_data_read(e, 2, 0, y, 12), DPC_OK);
    assert_int_equal(dpc_data_read(e, 1, 0, y, 12), DPC_OK);
    assert_memory_equal(x, y, 12);              /* in any order */
    dpc_data_close(d);
    dpc_data_close(e);
}

static void a_spent_budget_stops_with_the_file_and_both_values(void **state)
{
    (void)state;
    put_classes();
    put("a/1.png", "broken", 6);
    DpcData *d;
    uint8_t x[12];
    below("", 0, &d);
    assert_int_equal(dpc_data_read(d, 0, 0, x, 12), DPC_OK);
    assert_int_equal(dpc_data_read(d, 1, 0, x, 12), DPC_USER);
    says("a/1.png: error: picture: neither PNG nor JPEG");
    says("corrupt samples so far: 1, allowed: 0; repair or remove it");
    dpc_data_close(d);
}

static void a_folder_without_a_sound_picture_is_refused(void **state)
{
    (void)state;
    folder_refuses("", "0 pictures", "wanted at least 1");
    folder_refuses("/none", "No such file", "existing folder");
    put("a.png", "broken", 6);
    folder_refuses("", "1 pictures, none is sound", "look");
    DpcData *d;
    uint8_t x[12];
    below("?size=2", 9, &d);
    assert_int_equal(dpc_data_read(d, 0, 0, x, 12), DPC_USER);
    says("all 1 samples are corrupt");
    dpc_data_close(d);
    unlink(at("a.png"));
    assert_int_equal(symlink(".", at("loop")), 0);
    folder_refuses("", "32 deep", "loop of links");
}

/* ---- captions ---- */

static void captions_come_with_their_picture(void **state)
{
    (void)state;
    put_classes();
    static const char tsv[] = "a/1.png\ta caf\xc3\xa9\r\n\nb/deep/0.PNG\tbb\n";
    static const char json[] =
        "{\"file\": \"a/1.png\", \"caption\": \"a caf\\u00e9\"}\n"
        "{\"text\": \"bb\", \"file_name\": \"b/deep/0.PNG\"}\n";
    for (int i = 0; i < 2; i++) {
        unlink(at("captions.tsv"));
        if (i)
            put("captions.jsonl", json, sizeof json - 1);
        else
            put("captions.tsv", tsv, sizeof tsv - 1);
        DpcData *d;
        char t[8];
        below("", 0, &d);
        int f = dpc_data_find(d, "caption");
        assert_int_equal(dpc_field_bytes(dpc_data_field(d, f)), 7);
        assert_int_equal(dpc_data_read(d, 1, f, t, 7), DPC_OK);
        assert_memory_equal(t, "a caf\xc3\xa9", 7);
        assert_int_equal(dpc_data_read(d, 3, f, t, 7), DPC_OK);
        assert_memory_equal(t, "bb\0\0\0\0\0", 7);
        assert_int_equal(dpc_data_read(d, 0, f, t, 7), DPC_OK);
        assert_memory_equal(t, "\0\0\0\0\0\0\0", 7);
        dpc_data_close(d);
        below("?text=6", 0, &d);                /* no half characters */
        assert_int_equal(dpc_data_read(d, 1, f, t, 6), DPC_OK);
        assert_memory_equal(t, "a caf\0", 6);
        dpc_data_close(d);
    }
}

static void bad_captions_are_refused_with_their_line(void **state)
{
    (void)state;
    put_classes();
    static const struct { const char *text, *part, *more; } bad[] = {
        { "a/1.png\tx\na/2.png\ty\n", "captions.tsv:2:",
          "no picture \"a/2.png\"" },
        { "a/1.png x\n", "captions.tsv:1:", "no tab" },
        { "a/1.png\tx\na/1.png\ty\n", "captions.tsv:2:", "second text" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("captions.tsv", bad[i].text, strlen(bad[i].text));
        folder_refuses("", bad[i].part, bad[i].more);
    }
    put("captions.tsv", "a/1.png\tx\0y\n", 12);
    folder_refuses("", "captions.tsv:1:", "zero byte");
    unlink(at("captions.tsv"));
    put("captions.jsonl", "{\"file\": 3}\n", 12);
    folder_refuses("", "captions.jsonl:1:", "no string \"file\"");
    put("captions.jsonl", "\n{\"file\": \n", 11);
    folder_refuses("", "captions.jsonl:2:", "one JSON object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(folder_sorts_classes_and_names),
        CASE(folder_takes_its_size_from_the_spec),
        CASE(corrupt_pictures_are_replaced_whole),
        CASE(a_spent_budget_stops_with_the_file_and_both_values),
        CASE(a_folder_without_a_sound_picture_is_refused),
        CASE(captions_come_with_their_picture),
        CASE(bad_captions_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
