/* test_safetensors.c -- files that lie are refused, each by its own words. */
#include "tests/fuzz/fuzz_safetensors.c"  /* first: it wants memfd_create */

#include "runtime/source.h"
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char dir[64], path[100];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/dpc-safe-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/f.safetensors", dir);
    return 0;
}

static int teardown(void **state)
{
    char cmd[100];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void file_write(const char *to, const void *p, size_t n)
{
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* length, header, data of zeroes */
static void file_make(const char *to, const char *header, size_t data)
{
    static char buf[1 << 16];
    size_t n = strlen(header);
    memset(buf, 0, sizeof buf);
    for (int i = 0; i < 8; i++)
        buf[i] = (char)(n >> 8 * i);
    memcpy(buf + 8, header, n);
    file_write(to, buf, 8 + n + data);
}

static void refused(const char *want)
{
    DpcSafe *f = NULL;
    DpcStatus s = dpc_safe_open(path, &f);
    if (s == DPC_OK)
        fail_msg("was accepted, expected \"%s\"", want);
    assert_null(f);
    assert_int_equal(s, DPC_USER);
    const char *text = dpc_last_error();
    assert_memory_equal(text, path, strlen(path));
    text += strlen(path);
    if (strncmp(text, ": error: ", 9) || !strstr(text, want))
        fail_msg("said \"%s\", expected \"%s\"", text, want);
}

#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype \
    ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define B ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":"

static const struct { const char *header; size_t data; const char *want; }
crafted[] = {
    { "", 0, "does not begin with \"{\"" },
    { "[]", 0, "does not begin with \"{\" (2 bytes)" },
    { " {}", 0, "does not begin with \"{\" (3 bytes)" },
    { "{\"a\":", 0, "header, byte 5: " },
    { "{} x", 0, "header, byte 4: end of file expected" },
    { "{\"\xff\":1}", 0, "header, byte 2: unable to decode byte 0xff" },
    { "{\"a\\u0000b\":1}", 0, "NUL byte in object key not supported" },
    { ONE("\"U8\"", "[0]", "[0,0]") "{}", 0, "end of file expected" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
      "duplicate object key" },
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],"
      "\"data_offsets\":[0,0]}}", 0, "duplicate object key" },
    { "{\"a\":7}", 0, "\"a\" is no object" },
    { "{\"a\":{}}", 0, "\"a\" has 0 fields, not dtype, shape, data_offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}",
      0, "\"a\" has 4 fields" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"offsets\":[0,0]}}", 0,
      "\"a\": \"data_offsets\" are not two numbers" },
    { ONE("8", "[1]", "[0,1]"), 1, "\"a\": \"dtype\" is no name" },
    { ONE("\"U9\"", "[1]", "[0,1]"), 1, "\"a\": dtype \"U9\" is not known" },
    { ONE("\"u8\"", "[1]", "[0,1]"), 1, "\"a\": dtype \"u8\" is not known" },
    { ONE("\"U8\"", "1", "[0,1]"), 1, "\"a\": \"shape\" is no list" },
    { ONE("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1,
      "\"a\": 9 dimensions; at most 8 can be read" },
    { ONE("\"U8\"", "[-1]", "[0,1]"), 1,
      "dimension 0 of \"shape\" is no size" },
    { ONE("\"U8\"", "[1.0]", "[0,1]"), 1,
      "dimension 0 of \"shape\" is no size" },
    { ONE("\"U8\"", "[9223372036854775808]", "[0,1]"), 1, "too big integer" },
    { ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0,
      "more elements than 63 bits can count" },
    { ONE("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0,
      "more elements than 63 bits can count" },
    { ONE("\"F4\"", "[3]", "[0,1]"), 1, "\"a\": 12 bits are not whole bytes" },
    { ONE("\"U8\"", "[1]", "[0]"), 1, "\"data_offsets\" are not two numbers" },
    { ONE("\"U8\"", "[1]", "[0,1,2]"), 1, "are not two numbers" },
    { ONE("\"U8\"", "[1]", "[0,\"1\"]"), 1, "are not two numbers" },
    { ONE("\"U8\"", "[1]", "[-1,0]"), 1, "\"a\": data from -1 to 0" },
    { ONE("\"U8\"", "[1]", "[1,0]"), 1, "\"a\": data from 1 to 0" },
    { ONE("\"F32\"", "[2]", "[0,4]"), 4,
      "\"a\": data of 4 bytes, its shape needs 8" },
    { ONE("\"U8\"", "[4]", "[4,8]"), 8, "\"a\" leaves a gap: it begins at 4, "
      "what stands before it ends at 0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}" B
      "[2,6]}}", 6, "\"b\" overlaps: it begins at 2, what stands before it "
      "ends at 4" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}" B
      "[0,4]}}", 4, "overlaps: it begins at 0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}" B
      "[5,9]}}", 9, "\"b\" leaves a gap" },
    { ONE("\"U8\"", "[4]", "[0,4]"), 3, "cut short: the tensors take 4 bytes, "
      "the file has 3 of them; fetch it again" },
    { ONE("\"U8\"", "[4]", "[0,4]"), 9, "5 bytes follow the last tensor" },
    { "{}", 1, "1 bytes follow the last tensor" },
    { "{\"__metadata__\":[]}", 0, "\"__metadata__\" is no object" },
    { "{\"__metadata__\":{\"k\":1}}", 0, "\"__metadata__\": \"k\" is no text" },
};

static void crafted_headers_are_refused(void **state)
{
    (void)state;
    assert_true(COUNT(crafted) >= 30);
    for (size_t i = 0; i < COUNT(crafted); i++) {
        file_make(path, crafted[i].header, crafted[i].data);
        refused(crafted[i].want);
    }
}

static void a_header_nested_too_deeply_is_refused(void **state)
{
    static char deep[20000];
    (void)state;
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "{\"a\":", 5);
    file_make(path, deep, 0);
    refused("maximum parsing depth reached");
}

static void what_is_no_safetensors_file_is_named(void **state)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d"
        "17e2393\nsize 492265874\n";
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\xff{}";
    static const char big[] = "\x00\x00\x00\x05\x00\x00\x00\x00{}";
    (void)state;
    file_write(path, lfs, sizeof lfs - 1);
    refused("a git-lfs pointer of 134 bytes, not the tensors (492265874 "
            "bytes); run \"git lfs pull\"");
    file_write(path, "<!DOCTYPE html><html>", 21);
    refused("a web page of 21 bytes, not tensors; download the file itself");
    file_write(path, "PK\3\4........", 12);
    refused("a zip file");
    file_write(path, "", 0);
    refused("0 bytes; even an empty safetensors file has 10");
    file_write(path, "\2\0\0\0\0\0\0", 7);
    refused("7 bytes; even");
    file_write(path, huge, 10);
    refused("header of 18446744073709551615 bytes, at most 100000000");
    file_write(path, big, 10);
    refused("cut short: the header takes 83886088 bytes, the file has 10; "
            "fetch it again");
}

/* Digits, marks, bits and lengths of a sound file are changed at random: what
 * is still accepted is judged by the fuzz target's own rules, which abort. */
static void no_mutant_misleads_the_reader(void **state)
{
    static const char sound[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],"
        "\"data_offsets\":[3,11]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],"
        "\"data_offsets\":[0,3]}}", marks[] = "0123456789[]{},:\"-.eFUab";
    enum { SIZE = 8 + sizeof sound - 1 + 11 };
    unsigned seed = 1;
    (void)state;
#define DRAW(n) ((seed = seed * 1664525u + 1013904223u) >> 8) % (n)
    for (int i = 0; i < 20000; i++) {
        uint8_t file[SIZE + 1] = { sizeof sound - 1 };
        memcpy(file + 8, sound, sizeof sound - 1);
        for (unsigned k = DRAW(4); k-- > 0;) {
            unsigned at = DRAW(SIZE);
            file[at] = DRAW(2) ? (uint8_t)marks[DRAW(sizeof marks - 1)]
                               : (uint8_t)(file[at] ^ 1u << DRAW(8));
        }
        LLVMFuzzerTestOneInput(file, SIZE - 1 + DRAW(3));
    }
}

static void folders_and_missing_files_are_told_apart(void **state)
{
    DpcSafe *f;
    (void)state;
    assert_int_equal(dpc_safe_open(dir, &f), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), ": error: not a regular file"));
    assert_int_equal(dpc_safe_open("/tmp/none/none", &f), DPC_USER);
    assert_string_equal(dpc_last_error(), "/tmp/none/none: error: cannot "
                        "open: No such file or directory");
}

static void good_files_are_read(void **state)
{
    DpcSafe *f;
    (void)state;
#define TENSOR(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" \
    dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    file_make(path, "{\"__metadata__\":{\"format\":\"pt\"},"
              TENSOR("b", "F32", "[2,1]", "[3,11]") ","
              TENSOR("e", "F32", "[0,5]", "[3,3]") ","
              TENSOR("s", "BOOL", "[]", "[11,12]") ","
              TENSOR("a", "U8", "[3]", "[0,3]") "}  ", 12);
    assert_int_equal(dpc_safe_open(path, &f), DPC_OK);
    assert_int_equal(f->n, 4);
    const DpcSafeTensor *b = dpc_safe_find(f, "b");
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->bytes, 8);
    assert_int_equal(dpc_safe_find(f, "s")->ndim, 0);
    assert_null(dpc_safe_find(f, "__metadata__"));
    assert_null(dpc_safe_find(f, "c"));
    float two[2] = { 1, 1 };
    assert_int_equal(dpc_safe_read(f, b, 0, two, 8), DPC_OK);
    assert_true(two[0] == 0 && two[1] == 0);
    assert_int_equal(dpc_safe_read(f, b, 4, two, 8), DPC_BUG);
    assert_int_equal(dpc_safe_read(f, b, -1, two, 1), DPC_BUG);
    dpc_safe_close(f);
}

static void a_file_that_shrinks_is_an_error_not_a_signal(void **state)
{
    DpcSafe *f;
    char byte[4];
    (void)state;
    file_make(path, ONE("\"U8\"", "[4]", "[0,4]"), 4);
    assert_int_equal(dpc_safe_open(path, &f), DPC_OK);
    assert_int_equal(truncate(path, f->bytes - 2), 0);
    assert_int_equal(dpc_safe_read(f, f->tensor, 0, byte, 4), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "the file ends at byte"));
    dpc_safe_close(f);
}

static void a_folder_of_files_is_one_source(void **state)
{
    char other[120];
    DpcSource *s;
    (void)state;
    snprintf(other, sizeof other, "%s/g.safetensors", dir);
    assert_int_equal(dpc_source_open(dir, &s), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "holds neither dpc.json nor"));
    file_make(path, ONE("\"U8\"", "[4]", "[0,4]"), 4);
    file_make(other, "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
              "\"data_offsets\":[0,1]}}", 1);
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    assert_int_equal(s->n, 2);
    assert_non_null(dpc_source_find(s, "a"));
    assert_non_null(dpc_source_find(s, "b"));
    dpc_source_close(s);
    file_make(other, ONE("\"U8\"", "[1]", "[0,1]"), 1);
    assert_int_equal(dpc_source_open(dir, &s), DPC_USER);
    assert_non_null(strstr(dpc_last_error(), "\"a\" stands in two files, "
                           "f.safetensors and g.safetensors; name one"));
}

static void floats_are_converted_both_ways(void **state)
{
    static const uint16_t half[] = { 0x3c00, 0xc000, 0x0001, 0x7c00, 0x7e00,
                                     0x8000 };
    static const float want[] = { 1, -2, 0x1p-24f, INFINITY, NAN, -0.f };
    float f[6];
    uint16_t b[4];
    (void)state;
    assert_true(dpc_safe_convert(DPC_SAFE_F16, half, DPC_SAFE_F32, f, 6));
    for (int i = 0; i < 6; i++)
        assert_true(f[i] == want[i] || (isnan(f[i]) && isnan(want[i])));
    static const float ties[] = { 1 + 0x1p-8f, 1 + 0x3p-8f, 1.5f, NAN };
    assert_true(dpc_safe_convert(DPC_SAFE_F32, ties, DPC_SAFE_BF16, b, 4));
    assert_int_equal(b[0], 0x3f80);
    assert_int_equal(b[1], 0x3f82);
    assert_int_equal(b[2], 0x3fc0);
    assert_int_equal(b[3] & 0x7fff, 0x7fc0);
    assert_false(dpc_safe_convert(DPC_SAFE_I64, half, DPC_SAFE_F32, f, 1));
}

/* Ties of double to bf16 and f16 that a way over f32 would round twice. */
static void doubles_are_rounded_once(void **state)
{
    static const double d[] = { 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40,
                                -(1 + 0x3p-8 - 0x1p-40), 1e300 };
    static const double h[] = { 1 + 0x1p-11 + 0x1p-40, 65519.9, 65520,
                                0x1p-25 + 0x1p-60, 0x1p-25, -0x3p-25 };
    static const uint16_t bf16[] = { 0x3f81, 0x3f80, 0xbf81, 0x7f80 };
    static const uint16_t half[] = { 0x3c01, 0x7bff, 0x7c00, 1, 0, 0x8002 };
    uint16_t b[6];
    double back[6];
    (void)state;
    assert_true(dpc_safe_convert(DPC_SAFE_F64, d, DPC_SAFE_BF16, b, 4));
    assert_memory_equal(b, bf16, sizeof bf16);
    assert_true(dpc_safe_convert(DPC_SAFE_F64, h, DPC_SAFE_F16, b, 6));
    assert_memory_equal(b, half, sizeof half);
    assert_true(dpc_safe_convert(DPC_SAFE_F16, b, DPC_SAFE_F64, back, 6));
    assert_true(back[1] == 65504 && back[3] == 0x1p-24);
}

static void every_half_survives_the_way_through_f32(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t from = (uint16_t)i, to;
        float f;
        dpc_safe_convert(DPC_SAFE_F16, &from, DPC_SAFE_F32, &f, 1);
        dpc_safe_convert(DPC_SAFE_F32, &f, DPC_SAFE_F16, &to, 1);
        assert_true(to == from || (f != f && (to & 0x7e00) == 0x7e00));
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(crafted_headers_are_refused),
        T(a_header_nested_too_deeply_is_refused),
        T(what_is_no_safetensors_file_is_named),
        T(no_mutant_misleads_the_reader),
        T(folders_and_missing_files_are_told_apart),
        T(good_files_are_read),
        T(a_file_that_shrinks_is_an_error_not_a_signal),
        T(a_folder_of_files_is_one_source),
        T(floats_are_converted_both_ways),
        T(doubles_are_rounded_once),
        T(every_half_survives_the_way_through_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
