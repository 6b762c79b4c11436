/* test_pack.c -- folders into archives, archives with an index. */
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

static void put_red(const char *name, uint8_t r)
{
    uint8_t x[12] = { r, 0, 0, r, 0, 0, r, 0, 0, r, 0, 0 };
    assert_int_equal(dpc_png_write(at(name), x, 2, 2, 3), DPC_OK);
}

/* Two classes, in `in`; texts from a list, or beside the pictures. */
static void put_folder(bool list)
{
    char name[256];
    static const char tsv[] = "b/0.png\tthe first b\na/10.png\tten\n";
    shell("mkdir -p in/a in/b");
    for (int i = 8; i < 12; i++) {
        snprintf(name, sizeof name, "in/a/%d.png", i);
        put_red(name, (uint8_t)i);
    }
    put_red("in/b/0.png", 99);
    memset(name, 'n', 140), memcpy(name, "in/b/", 5);
    strcpy(name + 140, ".png");                 /* longer than a tar's head */
    put_red(name, 98);
    if (list) {
        put("in/captions.tsv", tsv, sizeof tsv - 1);
    } else {
        put("in/b/0.txt", "the first b\n", 12);
        put("in/a/10.txt", "ten", 3);
    }
    put("in/readme.md", "no record", 9);
}

static DpcPackTold packs(const char *in, const char *out, int64_t records)
{
    DpcPackTold told;
    char from[512];
    const char *where;
    snprintf(from, sizeof from, "%s", at(in));
    DpcPack how = {at(out), "s-", records, 1 << 20};
    DpcData *d;
    char spec[600];
    if (dpc_data_pack(from, &how, &told))
        fail_msg("%s", dpc_last_error());
    snprintf(spec, sizeof spec, "%s?index=no", at(out));
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_index_write(d, &where), DPC_OK);
    assert_string_equal(where, at("out/dpc.index"));
    dpc_data_close(d);
    return told;
}

/* Every field of every sample of one is in the other. */
static void same_data(DpcData *a, DpcData *b)
{
    uint8_t x[64], y[64];
    assert_int_equal(dpc_data_count(a), dpc_data_count(b));
    for (int i = 0; i < dpc_data_nfield(a); i++) {
        const DpcField *f = dpc_data_field(a, i);
        int k = dpc_data_find(b, f->name);
        assert_true(k >= 0);
        int64_t n = dpc_field_bytes(f);
        assert_int_equal(dpc_field_bytes(dpc_data_field(b, k)), n);
        for (int64_t s = 0; s < dpc_data_count(a); s++) {
            assert_int_equal(dpc_data_read(a, s, i, x, n), DPC_OK);
            assert_int_equal(dpc_data_read(b, s, k, y, n), DPC_OK);
            assert_memory_equal(x, y, n);
        }
    }
}

static void a_packed_folder_is_the_same_data(void **state)
{
    (void)state;
    for (int list = 0; list < 2; list++) {
        DpcData *folder, *whole, *walked;
        char spec[600];
        put_folder(list);
        DpcPackTold told = packs("in", "out", 4);
        assert_int_equal(told.records, 6);
        assert_int_equal(told.archives, 2);
        snprintf(spec, sizeof spec, "folder:%s?text=12", at("in"));
        opens(spec, 0, &folder);
        assert_int_equal(dpc_data_nfield(folder), 3);
        snprintf(spec, sizeof spec, "%s?text=12", at("out"));
        opens(spec, 0, &whole);
        assert_true(*dpc_data_hash(whole));
        same_data(folder, whole);
        snprintf(spec, sizeof spec, "%s?text=12&index=no", at("out"));
        opens(spec, 0, &walked);
        assert_string_equal(dpc_data_hash(walked), "");
        same_data(walked, whole);
        dpc_data_close(folder);
        dpc_data_close(whole);
        dpc_data_close(walked);
        shell("rm -r in out");
    }
}

static void the_same_files_give_the_same_bytes(void **state)
{
    (void)state;
    put_folder(true);
    packs("in", "out", 100);
    shell("mv out once && touch in/a/* && cp -r in in2");
    packs("in2", "out", 100);
    shell("diff -r once out && tar tf out/s-000000.tar > list && "
          "test $(wc -l < list) = 14");        /* 6 png, 2 txt, 6 cls */
}

static void arrays_of_many_rows_are_padded_by_the_index(void **state)
{
    (void)state;
    DpcData *d;
    shell("mkdir in");
    for (int i = 1; i < 5; i++) {
        char name[32], head[128];
        float x[8] = {(float)i, 0, 0, 0, 0, 0, 0, (float)i};
        snprintf(name, sizeof name, "in/%d.text.npy", i);
        snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, "
                 "'shape': (%d, 2), }\n", i);
        put_npy(name, 1, head, x, (size_t)i * 8);
        snprintf(name, sizeof name, "in/%d.latent.npy", i);
        put_npy(name, 1, HEAD("<f4", "(8,)"), x, 32);
    }
    packs("in", "out", 3);
    opens(at("out"), 0, &d);
    assert_int_equal(dpc_data_nfield(d), 4);
    int text = dpc_data_find(d, "text"), n = dpc_data_find(d, "text_length");
    assert_int_equal(dpc_data_field(d, text)->dim[0], 4);
    for (int i = 0; i < 4; i++) {
        float x[8];
        int32_t length;
        assert_int_equal(dpc_data_read(d, i, text, x, 32), DPC_OK);
        assert_int_equal(dpc_data_read(d, i, n, &length, 4), DPC_OK);
        assert_true(x[0] == i + 1 && length == i + 1);
        assert_true(x[7] == (i == 3 ? 4 : 0));
    }
    dpc_data_close(d);
    char spec[600];
    snprintf(spec, sizeof spec, "%s?pad=text:9", at("out"));
    opens(spec, 0, &d);                         /* what is said goes before */
    assert_int_equal(dpc_data_field(d, text)->dim[0], 9);
    dpc_data_close(d);
}

static void an_index_knows_what_its_archives_were(void **state)
{
    (void)state;
    DpcData *d;
    bool known;
    uint8_t b[1 << 16];
    put_folder(true);
    packs("in", "out", 4);
    size_t n = get("out/s-000001.tar", b, sizeof b);
    b[512 + 40] ^= 1;
    put("out/s-000001.tar", b, n);
    opens(at("out"), 0, &d);
    assert_int_equal(dpc_data_index_check(d, 0, &known), DPC_OK);
    assert_true(known);
    assert_int_equal(dpc_data_index_check(d, 4, &known), DPC_USER);
    says("s-000001.tar: error: data: record \"b/0\": its bytes are not those "
         "of the index");
    dpc_data_close(d);
    shell("truncate -s -512 out/s-000001.tar");
    refuses(at("out"), "s-000001.tar: error: data: ", "make it anew");
    shell("cp out/s-000000.tar out/t.tar && cp in/a/8.png 8.png && "
          "truncate -s +512 out/s-000001.tar");
    refuses(at("out"), "t.tar: error: data: not in ", "make it anew");
    shell("rm out/t.tar out/s-000001.tar");
    refuses(at("out"), "names s-000001.tar, which is not there", "dpc data");
    opens(at("out/s-000000.tar"), 0, &d);       /* those that are named */
    dpc_data_close(d);
}

static void a_damaged_index_is_refused(void **state)
{
    (void)state;
    DpcData *d;
    static uint8_t b[1 << 16];
    put_folder(true);
    packs("in", "out", 4);
    size_t n = get("out/dpc.index", b, sizeof b);
    for (size_t i = 0; i < n; i += 7) {
        b[i] ^= 4;
        put("out/dpc.index", b, n);
        b[i] ^= 4;
        assert_int_equal(dpc_data_open(at("out"), 0, &d), DPC_USER);
        says("dpc.index: error: data: ");
        says("make it anew: dpc data index");
    }
    for (size_t k = 0; k < n; k += 5) {
        put("out/dpc.index", b, k);
        assert_int_equal(dpc_data_open(at("out"), 0, &d), DPC_USER);
    }
}

static void what_cannot_be_packed_is_refused(void **state)
{
    (void)state;
    DpcPackTold told;
    char in[512];
    snprintf(in, sizeof in, "%s", at("in"));
    DpcPack how = {at("out"), "", 10, 1 << 20};
    assert_int_equal(dpc_data_pack(at("none"), &how, &told), DPC_USER);
    says("none: error: data: No such file");
    shell("mkdir in");
    assert_int_equal(dpc_data_pack(in, &how, &told), DPC_USER);
    says("0 files of records");
    put_red("in/0.png", 1);
    put_red("in/0.jpg", 1);
    assert_int_equal(dpc_data_pack(in, &how, &told), DPC_USER);
    says("in/0.png: error: data: its record has \"image\" already from "
         "\"0.jpg\"");
    shell("rm in/0.jpg && rm -rf out");
    put("in/0.txt", "x", 1);
    put("in/captions.tsv", "0.png\ty\n", 8);
    assert_int_equal(dpc_data_pack(in, &how, &told), DPC_USER);
    says("a .txt beside it, and a line in the list of captions");
    shell("rm in/0.txt");
    assert_int_equal(dpc_data_pack(in, &how, &told), DPC_OK);
    assert_int_equal(dpc_data_pack(in, &how, &told), DPC_USER);
    says("there are archives already");
    DpcData *d;
    const char *where;
    opens(in, 0, &d);
    assert_int_equal(dpc_data_index_write(d, &where), DPC_USER);
    says("dpc data pack");
    dpc_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_packed_folder_is_the_same_data),
        CASE(the_same_files_give_the_same_bytes),
        CASE(arrays_of_many_rows_are_padded_by_the_index),
        CASE(an_index_knows_what_its_archives_were),
        CASE(a_damaged_index_is_refused),
        CASE(what_cannot_be_packed_is_refused),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
