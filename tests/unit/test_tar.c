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
    char key[130], line[900];
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
    shell("mv d/k* d/k && mkdir d/s && mv d/k/0.png d/s/0.png && "
          "cp 001.png d/s/1.png");
    for (int i = 0; i < 2; i++) {         /* keys alike in 480 letters */
        snprintf(line, sizeof line, "tar --format=%s --transform "
                 "'s,d/s,%s/%s/%s/%s,' -cf g.tar d/s", i ? "gnu" : "pax",
                 key, key, key, key);
        shell(line);
        opens(at("g.tar"), 0, &d);
        assert_int_equal(dpc_data_count(d), 2);
        dpc_data_close(d);
    }
}

static void an_index_pads_for_masks_alone(void **state)
{
    (void)state;
    DpcData *d;
    float x[4] = { 1, 2, 3, 4 }, y[4];
    for (int i = 0; i < 3; i++) {
        char name[] = "0.x.npy";
        name[0] = (char)('0' + i);
        put_npy(name, 1, i == 1 ? HEAD("<f4", "(3,)") : HEAD("<f4", "(2,)"), x,
                i == 1 ? 12 : 8);
    }
    shell("rm -f *.tar && tar cf n.tar [012].x.npy");
    const char *where;
    opens(at("n.tar"), 2, &d);
    assert_int_equal(dpc_data_index_write(d, &where), DPC_OK);
    dpc_data_close(d);
    opens(at("n.tar"), 2, &d);
    int f = dpc_data_find(d, "x");
    assert_int_equal(dpc_data_field(d, f)->dim[0], 3);
    dpc_data_unpad(d, f);
    assert_int_equal(dpc_data_field(d, f)->dim[0], 2);
    assert_int_equal(dpc_data_read(d, 1, f, y, 8), DPC_OK);
    assert_int_equal(dpc_data_bad(d), 1);
    assert_non_null(strstr(dpc_last_error(), "is f32[3], others are f32[2]"));
    dpc_data_close(d);
    shell("rm -f dpc.index n.tar *.x.npy");
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
    assert_int_equal(dpc_data_count(d), 2);     /* one whole, one not */
    uint8_t rgb[12], text[16];
    for (int i = 0; i < 2; i++)
        assert_int_equal(dpc_data_read(d, i, dpc_data_find(d, "image"), rgb,
                                       12), DPC_OK);
    assert_int_equal(rgb[0], 10);
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
    /* In its caption: neither half of one nor a picture without it. */
    shell("tar cf s.tar 000.txt 000.png 001.png 001.txt && "
          "truncate -s 3588 s.tar");
    char spec[600];
    snprintf(spec, sizeof spec, "%s?text=16", at("s.tar"));
    opens(spec, 1, &d);
    assert_int_equal(dpc_data_count(d), 2);
    assert_int_equal(dpc_data_read(d, 1, dpc_data_find(d, "caption"), text,
                                   16), DPC_OK);
    assert_string_equal((char *)text, "a red boot");
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
}

static void an_archive_behind_another_is_read(void **state)
{
    (void)state;
    DpcData *d;
    put_two();
    shell("tar cf a.tar 000.* && tar cf b.tar 001.* && cat a.tar b.tar > s.tar"
          " && head -c 900 /dev/zero >> s.tar && echo rest >> s.tar");
    opens(at("s.tar"), 0, &d);
    assert_int_equal(dpc_data_count(d), 2);
    dpc_data_close(d);
}

static void what_is_no_archive_is_refused(void **state)
{
    (void)state;
    put("x.tar", "no archive at all", 17);
    refuses(at("x.tar"), "0 samples", "000.jpg");
    refuses(at("none.tar"), "No such file", "give existing archives");
}

/* ---- records ---- */

/* KEY.NAME.npy of f4 [n, 2], numbers from `first`. */
static void put_rows(const char *name, int n, float first)
{
    char head[128];
    float x[64];
    for (int i = 0; i < 2 * n; i++)
        x[i] = first + (float)i;
    snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, "
             "'shape': (%d, 2), }\n", n);
    put_npy(name, 1, head, x, (size_t)n * 8);
}

static void padded_rows_have_a_length_and_a_mask(void **state)
{
    (void)state;
    DpcData *d;
    float x[8];
    int32_t n;
    uint8_t mask[4];
    char spec[600];
    put_rows("0.text.npy", 3, 1);
    put_rows("1.text.npy", 1, 9);
    put_rows("2.text.npy", 5, 0);
    shell("tar cf s.tar 0.* 1.* 2.*");
    snprintf(spec, sizeof spec, "%s?pad=text:4", at("s.tar"));
    opens(spec, 1, &d);
    assert_int_equal(dpc_data_nfield(d), 3);
    int length = dpc_data_find(d, "text_length");
    int bits = dpc_data_find(d, "text_mask");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dpc_data_read(d, i, 0, x, 32), DPC_OK);
        assert_int_equal(dpc_data_read(d, i, length, &n, 4), DPC_OK);
        assert_int_equal(dpc_data_read(d, i, bits, mask, 4), DPC_OK);
        assert_int_equal(n, i ? 1 : 3);
        assert_true(x[0] == (i ? 9 : 1) && x[2 * n] == 0 && x[7] == 0);
        assert_memory_equal(mask, i ? "\1\0\0\0" : "\1\1\1\0", 4);
    }
    assert_int_equal(dpc_data_bad(d), 0);
    assert_int_equal(dpc_data_read(d, 2, length, &n, 4), DPC_OK);
    assert_int_equal(n, 3);                     /* 5 rows are too many */
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
    snprintf(spec, sizeof spec, "%s?pad=text:4", at("s.tar"));
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_read(d, 2, 0, x, 32), DPC_USER);
    says("s.tar: error: data: record \"2\": text is f32[5,2], others are "
         "padded to f32[4,2]");
    dpc_data_close(d);
    opens(at("s.tar"), 0, &d);                  /* without: as the first */
    assert_int_equal(dpc_data_read(d, 1, 0, x, 24), DPC_USER);
    says("record \"1\": text is f32[1,2], others are f32[3,2]");
    dpc_data_close(d);
    snprintf(spec, sizeof spec, "%s?pad=image:4", at("s.tar"));
    refuses(spec, "pad=image:4: no such field of rows", "dpc data head");
}

static void labels_are_whole_numbers(void **state)
{
    (void)state;
    static const char *const text[] = {" 7\n", "-3", "cat", "3.5", "", "1 2",
                                       "99999999999"};
    DpcData *d;
    char name[16];
    int32_t v;
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "%d.cls", i);
        put(name, text[i], strlen(text[i]));
    }
    shell("tar cf s.tar *.cls");
    opens(at("s.tar"), 5, &d);
    assert_int_equal(dpc_data_read(d, 0, 0, &v, 4), DPC_OK);
    assert_int_equal(v, 7);
    assert_int_equal(dpc_data_read(d, 1, 0, &v, 4), DPC_OK);
    assert_int_equal(v, -3);
    assert_int_equal(dpc_data_read(d, 2, 0, &v, 4), DPC_OK);
    assert_int_equal(v, 7);
    assert_int_equal(dpc_data_bad(d), 5);
    dpc_data_close(d);
    opens(at("s.tar"), 0, &d);
    assert_int_equal(dpc_data_read(d, 2, 0, &v, 4), DPC_USER);
    says("s.tar: error: data: record \"2\": label is \"cat\", wanted a whole");
    dpc_data_close(d);
}

static void descriptions_that_are_no_json_are_corrupt(void **state)
{
    (void)state;
    DpcData *d;
    char t[8] = "";
    put("0.json", "{\"caption\": \"a\"}", 16);
    put("1.json", "{\"caption\": ", 12);
    put("2.json", "{\"caption\": null}", 17);
    put("3.json", "{}", 2);
    put("3.txt", "txt", 3);
    shell("tar cf s.tar 0.json 1.json 2.json 3.json 3.txt");
    char spec[600];
    snprintf(spec, sizeof spec, "%s?text=8", at("s.tar"));
    opens(spec, 1, &d);
    static const char *const want[] = {"a", "", "", "txt"};
    for (int i = 3; i >= 0; i--) {
        assert_int_equal(dpc_data_read(d, i, 0, t, 8), DPC_OK);
        assert_string_equal(t, want[i]);
    }
    assert_int_equal(dpc_data_bad(d), 1);
    dpc_data_close(d);
}

static void pictures_and_texts_have_names(void **state)
{
    (void)state;
    DpcData *d;
    uint8_t x[12];
    put_sample("0", 10, "t");
    shell("cp 0.png source.png && mv 0.png 0.target.png && "
          "mv source.png 0.source.jpg && cp 0.txt 0.edit.txt && "
          "tar cf s.tar 0.*");
    opens(at("s.tar"), 0, &d);
    static const char *const name[] = {"source", "target", "caption", "edit",
                                       "emb"};
    assert_int_equal(dpc_data_nfield(d), 5);
    for (int i = 0; i < 5; i++)
        assert_true(dpc_data_find(d, name[i]) >= 0);
    assert_int_equal(dpc_data_read(d, 0, dpc_data_find(d, "target"), x, 12),
                     DPC_OK);
    assert_int_equal(x[0], 10);
    dpc_data_close(d);
}

/* A file of one head and its data. */
static void put_safe(const char *name, const char *head, const void *x,
                     size_t n)
{
    uint8_t b[1024] = {0};
    size_t h = (strlen(head) + 7) / 8 * 8;
    b[0] = (uint8_t)h, b[1] = (uint8_t)(h >> 8);
    memset(b + 8, ' ', h);
    memcpy(b + 8, head, strlen(head));
    memcpy(b + 8 + h, x, n);
    put(name, b, 8 + h + n);
}

static void a_safetensors_member_has_many_fields(void **state)
{
    (void)state;
    DpcData *d;
    struct { int64_t n; uint16_t bf[4]; uint8_t on[2]; } x = {
        .n = 5, .bf = {0x3f80, 0x4000, 0xbf80, 0}, .on = {1, 0}};
    int32_t n;
    char spec[600];
    static const char head[] =
        "{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"x\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
        "\"on\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[16,18]}}";
    static const char shorter[] =
        "{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"x\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]},"
        "\"on\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[12,14]}}";
    put_safe("0.safetensors", head, &x, 18);
    put_safe("1.safetensors", shorter, &x, 14);
    put("2.safetensors", "none", 4);
    x.n = (int64_t)1 << 40;
    put_safe("3.safetensors", head, &x, 18);
    shell("tar cf s.tar *.safetensors");
    snprintf(spec, sizeof spec, "%s?pad=x:3", at("s.tar"));
    opens(spec, 2, &d);
    assert_int_equal(dpc_data_nfield(d), 5);
    int field = dpc_data_find(d, "x"), length = dpc_data_find(d, "x_length");
    assert_int_equal(dpc_data_field(d, field)->dtype, DPC_BF16);
    uint16_t y[6];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dpc_data_read(d, i, field, y, 12), DPC_OK);
        assert_true(y[0] == 0x3f80 && y[1] == 0x4000);
        assert_true(y[2] == (i ? 0 : 0xbf80) && y[4] == 0);
        assert_int_equal(dpc_data_read(d, i, length, &n, 4), DPC_OK);
        assert_int_equal(n, i ? 1 : 2);
        assert_int_equal(dpc_data_read(d, i, dpc_data_find(d, "n"), &n, 4),
                         DPC_OK);
        assert_int_equal(n, 5);
    }
    assert_int_equal(dpc_data_read(d, 2, length, &n, 4), DPC_OK);
    assert_int_equal(n, 2);
    assert_int_equal(dpc_data_bad(d), 2);
    says("record \"3\": n: ");
    says("1099511627776, a number beyond 32 bits");
    dpc_data_close(d);
}

static void more_archives_than_open_files(void **state)
{
    (void)state;
    DpcData *d;
    char line[300];
    put("0.txt", "x", 1);
    shell("tar cf s-000.tar 0.txt");
    for (int i = 1; i < 200; i += 10) {
        line[0] = '\0';
        for (int k = i; k < i + 10 && k < 200; k++)
            snprintf(line + strlen(line), sizeof line - strlen(line),
                     "cp s-000.tar s-%03d.tar;", k);
        shell(line);
    }
    char t[1];
    opens(at("s-{000..199}.tar"), 0, &d);
    assert_int_equal(dpc_data_count(d), 200);
    for (int i = 0; i < 400; i++)
        assert_int_equal(dpc_data_read(d, i * 77 % 200, 0, t, 1), DPC_OK);
    dpc_data_close(d);
}

/* Whatever byte is another: it opens and is read, or is refused. */
static void damage_never_crashes(void **state)
{
    (void)state;
    static uint8_t b[1 << 16], x[1 << 16];
    static const char head[] =
        "{\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    put_two();
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "00%d.safetensors", i);
        put_safe(name, head, "12345678", 8);
        snprintf(name, sizeof name, "00%d.cls", i);
        put(name, "12", 2);
        snprintf(name, sizeof name, "00%d.d.json", i);
        put(name, "{}", 2);
    }
    shell("tar --format=pax -cf s.tar 000.* 001.* && rm 00*");
    size_t n = get("s.tar", b, sizeof b);
    for (size_t i = 0; i < n; i += 23) {
        DpcData *d;
        b[i] ^= (uint8_t)(1 + i % 255);
        put("s.tar", b, n);
        b[i] ^= (uint8_t)(1 + i % 255);
        if (dpc_data_open(at("s.tar"), 1000, &d)) {
            says("error: ");
            continue;
        }
        for (int64_t k = 0; k < dpc_data_count(d); k++)
            for (int f = 0; f < dpc_data_nfield(d); f++) {
                int64_t size = dpc_field_bytes(dpc_data_field(d, f));
                if (size <= (int64_t)sizeof x)
                    dpc_data_read(d, k, f, x, size);
            }
        dpc_data_close(d);
    }
}

/* ---- what is looked at beside ---- */

static DpcStatus letters(void *arg, const char *text, int64_t n,
                         int64_t length, int32_t *row, int64_t *used)
{
    (void)arg;
    if (*text == '!')
        return dpc_fail(DPC_USER, "no letters");
    for (int64_t i = 0; i < length; i++)
        row[i] = i < n ? text[i] - 'a' : 0;
    *used = n < length ? n : length;
    return DPC_OK;
}

static void texts_become_ids_within_a_table(void **state)
{
    (void)state;
    DpcData *d;
    int32_t row[3], n;
    uint8_t mask[3];
    put("0.txt", "ab", 2);
    put("1.txt", "!", 1);
    put("2.txt", "az", 2);
    put("3.txt", "abcd", 4);
    shell("tar cf s.tar *.txt");
    opens(at("s.tar"), 2, &d);
    assert_int_equal(dpc_data_encode(d, 0, "tokens", 3, letters, NULL),
                     DPC_OK);
    int ids = dpc_data_find(d, "tokens");
    int length = dpc_data_find(d, "tokens_length");
    int bits = dpc_data_find(d, "tokens_mask");
    assert_int_equal(dpc_data_limit(d, ids, 25, "but a table has 25"),
                     DPC_OK);
    assert_int_equal(dpc_data_read(d, 1, ids, row, 12), DPC_OK);
    assert_int_equal(dpc_data_bad(d), 2);       /* no letters; z is 25 */
    says("s.tar: record \"2\": error: data: sample 2: \"tokens\" holds 25, "
         "but a table has 25");
    assert_true(row[0] == 0 && row[1] == 1 && row[2] == 2);
    assert_int_equal(dpc_data_read(d, 1, length, &n, 4), DPC_OK);
    assert_int_equal(n, 3);
    assert_int_equal(dpc_data_read(d, 0, bits, mask, 3), DPC_OK);
    assert_memory_equal(mask, "\1\1\0", 3);
    dpc_data_close(d);
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
        TEST(an_archive_behind_another_is_read),
        TEST(what_is_no_archive_is_refused),
        TEST(padded_rows_have_a_length_and_a_mask),
        TEST(an_index_pads_for_masks_alone),
        TEST(labels_are_whole_numbers),
        TEST(descriptions_that_are_no_json_are_corrupt),
        TEST(pictures_and_texts_have_names),
        TEST(a_safetensors_member_has_many_fields),
        TEST(more_archives_than_open_files),
        TEST(damage_never_crashes),
        TEST(texts_become_ids_within_a_table),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
