/* test_data.c -- IDX and .npy files: what is read, what is refused. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "tests/unit/temp.h"
#include <zlib.h>

#define FASHION "/usr/share/datasets/fashion-mnist"

static void put_gz(const char *name, const void *bytes, size_t n)
{
    gzFile z = gzopen(at(name), "wb");
    assert_int_equal(gzwrite(z, bytes, (unsigned)n), n);
    gzclose(z);
}

static void field_is(const DpcData *d, const char *name, DpcDtype t,
                     int64_t bytes)
{
    int i = dpc_data_find(d, name);
    assert_true(i >= 0);
    assert_int_equal(dpc_data_field(d, i)->dtype, t);
    assert_int_equal(dpc_field_bytes(dpc_data_field(d, i)), bytes);
}

static void reads(DpcData *d, int64_t sample, const char *name, void *to,
                  int64_t bytes)
{
    if (dpc_data_read(d, sample, dpc_data_find(d, name), to, bytes))
        fail_msg("%s", dpc_last_error());
}

/* ---- IDX ---- */

/* 3 pictures of 2 x 2 and their labels, split `split`. */
static const uint8_t pictures[] = {
    0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2,
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
};
static const uint8_t labels[] = { 0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9 };

static void idx_reads_plain_and_gzipped(void **state)
{
    (void)state;
    uint8_t x[4], y;
    put("train-images-idx3-ubyte", pictures, sizeof pictures);
    put_gz("train-labels-idx1-ubyte.gz", labels, sizeof labels);
    DpcData *d;
    opens(temp_dir, 0, &d);
    assert_int_equal(dpc_data_count(d), 3);
    assert_int_equal(dpc_data_nfield(d), 2);
    field_is(d, "image", DPC_U8, 4);
    field_is(d, "label", DPC_U8, 1);
    assert_int_equal(dpc_data_find(d, "images"), -1);
    reads(d, 2, "image", x, 4);
    assert_memory_equal(x, pictures + 16 + 8, 4);
    reads(d, 1, "label", &y, 1);
    assert_int_equal(y, 8);
    assert_int_equal(dpc_data_bad(d), 0);
    dpc_data_close(d);
}

static void idx_finds_the_split(void **state)
{
    (void)state;
    put_gz("train-labels-idx1-ubyte.gz", labels, sizeof labels);
    put("train-labels-idx1-ubyte", labels, sizeof labels);
    put("t10k-labels-idx1-ubyte",
        (uint8_t[]){ 0, 0, 8, 1, 0, 0, 0, 1, 5 }, 9);
    char spec[600];
    DpcData *d;
    uint8_t y;
    snprintf(spec, sizeof spec, "idx:%s:test", temp_dir);
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_count(d), 1);
    reads(d, 0, "label", &y, 1);
    assert_int_equal(y, 5);
    dpc_data_close(d);
    opens(temp_dir, 0, &d);           /* the plain one of x and x.gz */
    assert_int_equal(dpc_data_nfield(d), 1);
    dpc_data_close(d);
    unlink(at("t10k-labels-idx1-ubyte"));
    refuses(spec, "no IDX files of split \"test\"", "test-images-idx3-ubyte");
}

static void idx_swaps_wide_numbers(void **state)
{
    (void)state;
    static const uint8_t wide[] = {
        0, 0, 0x0c, 1, 0, 0, 0, 2, 0, 0, 1, 2, 0xff, 0xff, 0xff, 0xfe
    };
    static const uint8_t real[] = {
        0, 0, 0x0e, 1, 0, 0, 0, 2, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0,
        0xc0, 0, 0, 0, 0, 0, 0, 0
    };
    put_gz("a-idx1", wide, sizeof wide);
    put("b-idx1", real, sizeof real);
    char spec[1200];
    snprintf(spec, sizeof spec, "%s,%s", at("a-idx1"), at("b-idx1"));
    DpcData *d;
    opens(spec, 0, &d);
    int32_t a;
    float b;
    reads(d, 0, "a", &a, 4);
    assert_int_equal(a, 258);
    reads(d, 1, "a", &a, 4);
    assert_int_equal(a, -2);
    reads(d, 0, "b", &b, 4);
    assert_true(b == 1.5f);
    reads(d, 1, "b", &b, 4);
    assert_true(b == -2.0f);
    dpc_data_close(d);
}

static void idx_refuses_bad_files_with_both_values(void **state)
{
    (void)state;
    uint8_t b[64];
    char spec[1200];
    refuses(at("nothing-idx1"), "nothing-idx1", "No such file");
    put("short-idx3", pictures, sizeof pictures - 5);
    refuses(at("short-idx3"), "promises 12 bytes", "the file has 7");
    put("long-idx3", pictures, sizeof pictures);
    put_gz("more-idx1.gz", memcpy(b, labels, sizeof labels),
           sizeof labels + 1);
    refuses(at("more-idx1.gz"), "promises 3 bytes", "more than 3");
    put("magic-idx1", "PK\3\4....", 8);
    refuses(at("magic-idx1"), "not an IDX file", "504b");
    put("type-idx1", (uint8_t[]){ 0, 0, 0x0b, 1, 0, 0, 0, 1, 0, 0 }, 10);
    refuses(at("type-idx1"), "type 0x0b", "0x08");
    put("dims-idx1", (uint8_t[]){ 0, 0, 8, 0 }, 4);
    refuses(at("dims-idx1"), "0 dimensions", "1 to 9");
    put("head-idx3", pictures, 9);
    refuses(at("head-idx3"), "byte 9 of 16", "again");
    put("zero-idx1", (uint8_t[]){ 0, 0, 8, 1, 0, 0, 0, 0 }, 8);
    refuses(at("zero-idx1"), "size 0", "no data");
    memset(b, 255, sizeof b);
    memcpy(b, "\0\0\x08\x03", 4);
    put("lie-idx3", b, 16);
    refuses(at("lie-idx3"), "dimension 1 of size 4294967295", "63 bits");
    memcpy(b, "\0\0\x08\x02\0\1\0\0\0\1\0\0", 12);
    put_gz("bomb-idx2.gz", b, 12);
    refuses(at("bomb-idx2.gz"), "promises 4294967296 bytes", "at most");
    put("two-labels-idx1", (uint8_t[]){ 0, 0, 8, 1, 0, 0, 0, 2, 7, 8 }, 10);
    snprintf(spec, sizeof spec, "%s,%s", at("long-idx3"),
             at("two-labels-idx1"));
    refuses(spec, "2 samples", "has 3");
    snprintf(spec, sizeof spec, "%s,,", at("long-idx3"));
    refuses(spec, "empty name", "comma");
}

static void idx_refuses_a_damaged_gzip(void **state)
{
    (void)state;
    enum { BIG = 300000 };              /* more than zlib reads ahead */
    uint8_t b[256], *big = calloc(BIG + 8, 1);
    memcpy(big, "\0\0\x08\x01\0\x04\x93\xe0", 8);
    put_gz("big-idx1.gz", big, BIG + 8);
    size_t n = get("big-idx1.gz", big, BIG);
    big[n - 5] ^= 1;
    put("big-idx1.gz", big, n);
    refuses(at("big-idx1.gz"), "damaged", "incorrect data check");
    free(big);
    put_gz("x-idx3.gz", pictures, sizeof pictures);
    n = get("x-idx3.gz", b, sizeof b);
    put("cut-idx3.gz", b, n - 12);
    refuses(at("cut-idx3.gz"), "promises 12 bytes", "gzip stream ends early");
    put("cut-idx3.gz", b, n - 4);
    refuses(at("cut-idx3.gz"), "cut-idx3.gz", "ends early");
    b[n - 5] ^= 1;
    put("crc-idx3.gz", b, n);
    refuses(at("crc-idx3.gz"), "crc-idx3.gz", "incorrect data check");
}

static void fashion_mnist_reads(void **state)
{
    (void)state;
    if (access(FASHION "/train-images-idx3-ubyte.gz", R_OK)) {
        print_message("no " FASHION "\n");
        skip();
    }
    DpcData *d;
    uint8_t x[784], y;
    opens("idx:" FASHION ":test", 0, &d);
    assert_int_equal(dpc_data_count(d), 10000);
    field_is(d, "image", DPC_U8, 784);
    assert_in_range(dpc_data_bytes(d), 7850000, 7900000);
    int64_t n[10] = { 0 };
    for (int64_t i = 0; i < 10000; i++) {
        reads(d, i, "label", &y, 1);
        assert_in_range(y, 0, 9);
        n[y]++;
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(n[i], 1000);
    reads(d, 9999, "image", x, 784);
    assert_int_equal(dpc_data_read(d, 10000, 0, x, 784), DPC_BUG);
    assert_int_equal(dpc_data_read(d, 0, 0, x, 783), DPC_BUG);
    dpc_data_close(d);
}

/* ---- .npy ---- */

static void npy_reads_its_types(void **state)
{
    (void)state;
    put_npy("f4.npy", 1, HEAD("<f4", "(2, 1, 2)"),
            (float[]){ 1, 2, 3, 4.5f }, 16);
    put_npy("f8.npy", 2, HEAD("<f8", "(2,)"), (double[]){ .1, -2 }, 16);
    put_npy("i8.npy", 3, HEAD("<i8", "(2,)"),
            (int64_t[]){ -5, INT32_MAX }, 16);
    put_npy("i4.npy", 1, HEAD(">i4", "(2L,)"),
            (uint8_t[]){ 0, 0, 1, 0, 0, 0, 0, 9 }, 8);
    put_npy("u1.npy", 1, HEAD("|u1", "(2, 3)"), "abcdef", 6);
    /* 1, -2, smallest subnormal, 65504, inf, -0 */
    put_npy("f2.npy", 1, HEAD("<f2", "(2, 3)"),
            (uint16_t[]){ 0x3c00, 0xc000, 1, 0x7bff, 0x7c00, 0x8000 }, 12);
    char spec[4096] = "";
    static const char *const name[] = { "f4", "f8", "i8", "i4", "u1", "f2" };
    for (int i = 0; i < 6; i++)
        sprintf(spec + strlen(spec), "%s%s/%s.npy", i ? "," : "", temp_dir,
                name[i]);
    DpcData *d;
    opens(spec, 0, &d);
    assert_int_equal(dpc_data_nfield(d), 6);
    field_is(d, "f4", DPC_F32, 8);
    field_is(d, "i8", DPC_I32, 4);
    field_is(d, "u1", DPC_U8, 3);
    float x[3];
    int32_t n;
    char u[3];
    reads(d, 1, "f4", x, 8);
    assert_true(x[0] == 3 && x[1] == 4.5f);
    reads(d, 0, "f8", x, 4);
    assert_true(x[0] == .1f);
    reads(d, 0, "i8", &n, 4);
    assert_int_equal(n, -5);
    reads(d, 1, "i4", &n, 4);
    assert_int_equal(n, 9);
    reads(d, 1, "u1", u, 3);
    assert_memory_equal(u, "def", 3);
    reads(d, 0, "f2", x, 12);
    assert_true(x[0] == 1 && x[1] == -2 && x[2] == 0x1p-24f);
    reads(d, 1, "f2", x, 12);
    assert_true(x[0] == 65504 && x[1] > 3e38f && 1 / x[2] < -3e38f);
    dpc_data_close(d);
}

static void a_number_that_does_not_fit_is_a_corrupt_sample(void **state)
{
    (void)state;
    DpcData *d;
    int32_t n;
    float x;
    put_npy("f4.npy", 1, HEAD("<f4", "(2,)"), (float[]){ 1, 2 }, 8);
    put_npy("i8.npy", 3, HEAD("<i8", "(2,)"),
            (int64_t[]){ -5, (int64_t)1 << 31 }, 16);
    char spec[1200];
    snprintf(spec, sizeof spec, "%s,%s", at("f4.npy"), at("i8.npy"));
    for (int budget = 0; budget < 2; budget++) {
        opens(spec, budget, &d);
        DpcStatus s = dpc_data_read(d, 1, 0, &x, 4);
        assert_int_equal(s, budget ? DPC_OK : DPC_USER);
        assert_int_equal(dpc_data_bad(d), 1);
        if (!budget)
            says("sample 1 holds 2147483648, a number beyond 32 bits");
        else if (!dpc_data_read(d, 1, 1, &n, 4))
            assert_true(x == 1 && n == -5);     /* all of sample 0 */
        dpc_data_close(d);
    }
}

static void npy_reads_long_rows_in_parts(void **state)
{
    (void)state;
    enum { N = 1300 };
    double *x = malloc(2 * N * sizeof *x);
    float *y = malloc(N * sizeof *y);
    uint8_t *b = calloc(2 * N * sizeof *x + 256, 1);
    for (int i = 0; i < 2 * N; i++)
        x[i] = i;
    const char *head = HEAD("<f8", "(2, 1300)");
    memcpy(b, "\x93NUMPY\1", 7);
    b[8] = (uint8_t)strlen(head);
    memcpy(b + 10, head, strlen(head));
    memcpy(b + 10 + strlen(head), x, 2 * N * sizeof *x);
    put("long.npy", b, 10 + strlen(head) + 2 * N * sizeof *x);
    DpcData *d;
    opens(at("long.npy"), 0, &d);
    reads(d, 1, "long", y, N * 4);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (float)(N + i));
    dpc_data_close(d);
    free(x);
    free(y);
    free(b);
}

static void npy_refuses_bad_heads(void **state)
{
    (void)state;
    static const struct { const char *head, *part, *more; } bad[] = {
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}",
          "fortran_order is True", "ascontiguousarray" },
        { HEAD("<c8", "(1,)"), "type \"<c8\"", "astype" },
        { HEAD("f4", "(1,)"), "type \"f4\"", "astype" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
          "type \"[...]\"", "astype" },
        { HEAD("<f4", "()"), "shape ()", "samples" },
        { HEAD("<f4", "(0, 2)"), "size 0", "no data" },
        { HEAD("<f4", "(2,)"), "promises 8 bytes", "the file has 4" },
        { HEAD("|u1", "(3,)"), "promises 3 bytes", "the file has 4" },
        { HEAD("<f4", "(4611686018427387904, 4)"), "dimension 0", "63 bits" },
        { HEAD("<f4", "(99999999999999999999,)"), "is not {", "numpy.save" },
        { HEAD("<f4", "(-1,)"), "is not {", "numpy.save" },
        { HEAD("<f4", "(1,1,1,1,1,1,1,1,1,1)"), "is not {", "9 sizes" },
        { "{'descr': '<f4', 'shape': (1,)}", "is not {", "fortran_order" },
        { "{'descr': '<f4", "is not {", "numpy.save" },
        { "{'descr': [", "is not {", "numpy.save" },
        { "", "is not {", "numpy.save" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_npy("x.npy", 1, bad[i].head, "\0\0\0\0", 4);
        refuses(at("x.npy"), bad[i].part, bad[i].more);
    }
    put_npy("x.npy", 4, HEAD("<f4", "(1,)"), "\0\0\0\0", 4);
    refuses(at("x.npy"), "version 4.0", "1 to 3");
    put("x.npy", "\x93NUMPY\1\0\xff\x7f{}", 12);
    refuses(at("x.npy"), "32767 bytes", "the file 12");
    put("x.npy", "hello", 5);
    refuses(at("x.npy"), "not a .npy file", "numpy.save");
    refuses(at("none.npy"), "none.npy", "No such file");
}

static void npy_files_must_agree(void **state)
{
    (void)state;
    char spec[1200];
    put_npy("a.npy", 1, HEAD("|u1", "(2,)"), "ab", 2);
    put_npy("b.npy", 1, HEAD("|u1", "(3,)"), "abc", 3);
    snprintf(spec, sizeof spec, "%s,%s", at("a.npy"), at("b.npy"));
    refuses(spec, "3 samples", "has 2");
    snprintf(spec, sizeof spec, "%s,%s", at("a.npy"), at("a.npy"));
    refuses(spec, "field \"a\"", "rename");
    snprintf(spec, sizeof spec, "%s,%s", at("a.npy"), at("b"));
    refuses(spec, "1 of 2 files", "one kind");
    refuses("shards-{0..9}.tar", "shards-0.tar", "give existing archives");
}

/* Whatever is cut off or flipped, a reader answers. */
static void damage_never_crashes(void **state)
{
    (void)state;
    static const char *const name[] = { "y.npy", "y-idx3", "y-idx3.gz" };
    uint8_t b[512], to[64];
    put_npy(name[0], 1, HEAD("<f2", "(3, 2)"), pictures, 12);
    put(name[1], pictures, sizeof pictures);
    put_gz(name[2], pictures, sizeof pictures);
    for (int f = 0; f < 3; f++) {
        size_t n = get(name[f], b, sizeof b);
        DpcData *d;
        for (size_t i = 0; i < n; i++) {
            put(name[f], b, i);
            assert_int_equal(dpc_data_open(at(name[f]), 0, &d), DPC_USER);
        }
        for (size_t i = 0; i < n * 8; i++) {
            b[i / 8] ^= (uint8_t)(1 << i % 8);
            put(name[f], b, n);
            b[i / 8] ^= (uint8_t)(1 << i % 8);
            if (dpc_data_open(at(name[f]), 0, &d))
                continue;
            int64_t bytes = dpc_field_bytes(dpc_data_field(d, 0));
            if (bytes <= 64)
                dpc_data_read(d, dpc_data_count(d) - 1, 0, to, bytes);
            dpc_data_close(d);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(idx_reads_plain_and_gzipped),
        CASE(idx_finds_the_split),
        CASE(idx_swaps_wide_numbers),
        CASE(idx_refuses_bad_files_with_both_values),
        CASE(idx_refuses_a_damaged_gzip),
        CASE(fashion_mnist_reads),
        CASE(npy_reads_its_types),
        CASE(a_number_that_does_not_fit_is_a_corrupt_sample),
        CASE(npy_reads_long_rows_in_parts),
        CASE(npy_refuses_bad_heads),
        CASE(npy_files_must_agree),
        CASE(damage_never_crashes),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
