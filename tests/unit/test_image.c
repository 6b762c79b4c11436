/* test_image.c -- pictures in, pictures out, folders of pictures. */
#define _XOPEN_SOURCE 700                 /* nftw */
#define _DEFAULT_SOURCE
#include "runtime/data.h"
#include "runtime/image.h"
#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static char dir[] = "/tmp/dpc-image-XXXXXX";

/* ---- files made on the fly ---- */

static const char *at(const char *name)
{
    static char path[4][512];
    static int i;
    char *p = path[i++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static size_t get(const char *name, uint8_t *to, size_t cap)
{
    FILE *f = fopen(at(name), "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, cap, f);
    fclose(f);
    return n;
}

static int drop(const char *path, const struct stat *st, int kind,
                struct FTW *f)
{
    (void)st;
    (void)kind;
    return f->level ? remove(path) : 0;
}

static int clean(void **state)
{
    (void)state;
    return nftw(dir, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* rows : `depth` bits a channel, as libpng wants them (16: big-endian). */
static void put_png(const char *name, int h, int w, int depth, int color,
                    const uint8_t *rows, int stride)
{
    static png_color red_blue[] = { { 255, 0, 0 }, { 0, 0, 255 } };
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    png_structp p = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL,
                                            NULL, NULL);
    png_infop info = png_create_info_struct(p);
    png_init_io(p, f);
    png_set_IHDR(p, info, (png_uint_32)w, (png_uint_32)h, depth, color, 0, 0,
                 0);
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(p, info, red_blue, 2);
    png_write_info(p, info);
    for (int y = 0; y < h; y++)
        png_write_row(p, rows + y * stride);
    png_write_end(p, info);
    png_destroy_write_struct(&p, &info);
    fclose(f);
}

/* h x w pixels of one colour. */
static void put_plain(const char *name, int h, int w, uint8_t r, uint8_t g,
                      uint8_t b)
{
    uint8_t *x = malloc((size_t)(3 * h * w));
    for (int i = 0; i < h * w; i++)
        x[3 * i] = r, x[3 * i + 1] = g, x[3 * i + 2] = b;
    put_png(name, h, w, 8, PNG_COLOR_TYPE_RGB, x, 3 * w);
    free(x);
}

static void put_jpeg(const char *name, int h, int w, int format,
                     const uint8_t *pixel)
{
    tjhandle t = tjInitCompress();
    unsigned char *out = NULL;
    unsigned long n = 0;
    int sub = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
    assert_int_equal(tjCompress2(t, pixel, w, 0, h, format, &out, &n, sub,
                                 100, 0), 0);
    put(name, out, n);
    tjFree(out);
    tjDestroy(t);
}

/* ---- expectations ---- */

static void says(const char *part)
{
    if (!strstr(dpc_last_error(), part))
        fail_msg("\"%s\" lacks \"%s\"", dpc_last_error(), part);
}

static void pixel_is(const uint8_t *p, int r, int g, int b, int within)
{
    if (abs(p[0] - r) > within || abs(p[1] - g) > within ||
        abs(p[2] - b) > within)
        fail_msg("(%d, %d, %d) is not (%d, %d, %d)", p[0], p[1], p[2], r, g,
                 b);
}

static DpcStatus image(const char *name, int h, int w, uint8_t *rgb)
{
    DpcImager *im;
    assert_int_equal(dpc_imager_open(1 << 20, &im), DPC_OK);
    DpcStatus s = dpc_image_read(im, at(name), h, w, rgb);
    dpc_imager_close(im);
    return s;
}

static void reads(const char *name, int h, int w, uint8_t *rgb)
{
    if (image(name, h, w, rgb))
        fail_msg("%s", dpc_last_error());
}

static void refuses(const char *name, const char *part)
{
    uint8_t rgb[3 * 16];
    assert_int_equal(image(name, 4, 4, rgb), DPC_USER);
    says(at(name));
    says(part);
}

/* ---- reading ---- */

static void every_kind_of_png_becomes_rgb(void **state)
{
    (void)state;
    uint8_t x[12];
    put_png("grey.png", 1, 2, 8, PNG_COLOR_TYPE_GRAY, (uint8_t[]){ 9, 200 },
            2);
    reads("grey.png", 1, 2, x);
    pixel_is(x, 9, 9, 9, 0);
    pixel_is(x + 3, 200, 200, 200, 0);
    put_png("bit.png", 1, 2, 1, PNG_COLOR_TYPE_GRAY, (uint8_t[]){ 0x40 }, 1);
    reads("bit.png", 1, 2, x);
    pixel_is(x, 0, 0, 0, 0);
    pixel_is(x + 3, 255, 255, 255, 0);
    put_png("palette.png", 1, 2, 8, PNG_COLOR_TYPE_PALETTE,
            (uint8_t[]){ 1, 0 }, 2);
    reads("palette.png", 1, 2, x);
    pixel_is(x, 0, 0, 255, 0);
    pixel_is(x + 3, 255, 0, 0, 0);
    put_png("deep.png", 1, 2, 16, PNG_COLOR_TYPE_RGB,
            (uint8_t[]){ 0, 0, 0x80, 0x80, 255, 255, 1, 1, 9, 9, 77, 77 }, 12);
    reads("deep.png", 1, 2, x);
    pixel_is(x, 0, 128, 255, 0);
    pixel_is(x + 3, 1, 9, 77, 0);
    put_png("rgb.png", 2, 1, 8, PNG_COLOR_TYPE_RGB,
            (uint8_t[]){ 1, 2, 3, 4, 5, 6 }, 3);
    reads("rgb.png", 2, 1, x);
    assert_memory_equal(x, ((uint8_t[]){ 1, 2, 3, 4, 5, 6 }), 6);
}

static void transparent_parts_are_white(void **state)
{
    (void)state;
    uint8_t x[9];
    put_png("a.png", 1, 3, 8, PNG_COLOR_TYPE_RGBA,
            (uint8_t[]){ 10, 20, 30, 0, 10, 20, 30, 255, 0, 0, 0, 128 }, 12);
    reads("a.png", 1, 3, x);
    pixel_is(x, 255, 255, 255, 0);
    pixel_is(x + 3, 10, 20, 30, 0);
    assert_in_range(x[6], 120, 200);
    put_png("ga.png", 1, 2, 8, PNG_COLOR_TYPE_GRAY_ALPHA,
            (uint8_t[]){ 10, 0, 10, 255 }, 4);
    reads("ga.png", 1, 2, x);
    pixel_is(x, 255, 255, 255, 0);
    pixel_is(x + 3, 10, 10, 10, 0);
}

static void jpeg_is_known_by_its_bytes(void **state)
{
    (void)state;
    enum { N = 16 };
    uint8_t in[3 * N * N], x[3 * N * N];
    for (int i = 0; i < N * N; i++)
        in[3 * i] = 200, in[3 * i + 1] = 100, in[3 * i + 2] = 50;
    put_jpeg("really.png", N, N, TJPF_RGB, in);
    reads("really.png", N, N, x);
    pixel_is(x, 200, 100, 50, 2);
    pixel_is(x + 3 * (N * N - 1), 200, 100, 50, 2);
    memset(in, 90, sizeof in);
    put_jpeg("grey.jpg", N, N, TJPF_GRAY, in);
    reads("grey.jpg", N, N, x);
    pixel_is(x + 30, 90, 90, 90, 1);
}

static void large_jpeg_scales_as_a_mean(void **state)
{
    (void)state;
    enum { H = 256, W = 512 };
    uint8_t *in = malloc(3 * H * W), x[3 * 20 * 20];
    for (int i = 0; i < H * W; i++)             /* left dark, right bright */
        memset(in + 3 * i, i % W < W / 2 ? 40 : 220, 3);
    put_jpeg("wide.jpg", H, W, TJPF_RGB, in);
    reads("wide.jpg", 20, 20, x);
    for (int y = 0; y < 20; y++) {
        pixel_is(x + 3 * (20 * y + 2), 40, 40, 40, 2);
        pixel_is(x + 3 * (20 * y + 17), 220, 220, 220, 2);
    }
    free(in);
}

static void crop_is_central_and_exact_at_ratio_one(void **state)
{
    (void)state;
    uint8_t in[3 * 4 * 9], x[3 * 16];
    for (int i = 0; i < 36; i++)
        in[3 * i] = (uint8_t)(i % 9), in[3 * i + 1] = (uint8_t)(i / 9),
        in[3 * i + 2] = 7;
    put_png("wide.png", 4, 9, 8, PNG_COLOR_TYPE_RGB, in, 27);
    reads("wide.png", 4, 4, x);
    for (int i = 0; i < 16; i++)
        pixel_is(x + 3 * i, 2 + i % 4, i / 4, 7, 0);
}

static void halving_is_a_weighted_mean_and_keeps_plain_colours(void **state)
{
    (void)state;
    uint8_t in[64], x[3 * 16 * 16];
    for (int i = 0; i < 64; i++)                /* columns 0, 100, 0, 100 */
        in[i] = i % 2 ? 100 : 0;
    put_png("lines.png", 8, 8, 8, PNG_COLOR_TYPE_GRAY, in, 8);
    reads("lines.png", 4, 4, x);
    for (int i = 0; i < 16; i++)
        if (i % 4 != 0 && i % 4 != 3)
            pixel_is(x + 3 * i, 50, 50, 50, 0);
    put_plain("plain.png", 5, 3, 11, 22, 33);
    reads("plain.png", 16, 16, x);
    for (int i = 0; i < 256; i++)
        pixel_is(x + 3 * i, 11, 22, 33, 0);
    reads("plain.png", 2, 1, x);
    pixel_is(x, 11, 22, 33, 0);
}

static void doubling_interpolates(void **state)
{
    (void)state;
    uint8_t x[3 * 8];
    put_png("two.png", 1, 2, 8, PNG_COLOR_TYPE_GRAY, (uint8_t[]){ 0, 100 }, 2);
    reads("two.png", 2, 4, x);
    static const int want[] = { 0, 25, 75, 100 };
    for (int i = 0; i < 8; i++)
        pixel_is(x + 3 * i, want[i % 4], want[i % 4], want[i % 4], 0);
}

static void unsound_pictures_are_refused(void **state)
{
    (void)state;
    static uint8_t b[1 << 16], in[3 * 64 * 64];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * i >> 3);
    put("empty.png", "", 0);
    refuses("empty.png", "empty");
    refuses("none.png", "No such file");
    put("text.jpg", "hello, world", 12);
    refuses("text.jpg", "neither PNG nor JPEG");
    mkdir(at("folder.png"), 0700);
    refuses("folder.png", "not a file");
    put_png("x.png", 64, 64, 8, PNG_COLOR_TYPE_RGB, in, 192);
    size_t n = get("x.png", b, sizeof b);
    put("x.png", b, n / 2);
    refuses("x.png", "picture: ");
    b[n / 2] ^= 255;
    put("x.png", b, n);
    refuses("x.png", "picture: ");
    put_jpeg("x.jpg", 64, 64, TJPF_RGB, in);
    n = get("x.jpg", b, sizeof b);
    put("x.jpg", b, n / 2);
    refuses("x.jpg", "Premature end");
    put("x.jpg", b, 20);
    refuses("x.jpg", "picture: ");
}

static void a_huge_picture_is_refused_before_memory(void **state)
{
    (void)state;
    uint8_t b[256];
    uint8_t *row = calloc(40000, 1);
    put_png("wide.png", 1, 40000, 8, PNG_COLOR_TYPE_GRAY, row, 40000);
    free(row);
    size_t n = get("wide.png", b, sizeof b);
    memcpy(b + 20, "\0\0\xff\xff", 4);          /* height, with its CRC */
    uint32_t crc = (uint32_t)crc32(0, b + 12, 17);
    for (int i = 0; i < 4; i++)
        b[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    put("wide.png", b, n);
    refuses("wide.png", "65535 x 40000 pixels");
}

/* ---- writing ---- */

static void a_grid_reads_back(void **state)
{
    (void)state;
    /* 3 pictures of 1 x 2 pixels, [n,h,w,3] and [n,3,h,w] */
    static const float mixed[] = {
        0, .2f, 1, 0, .2f, 0, 1, 1, 1, 0, 0, 0, 2, -1, NAN, .5f, .5f, .5f
    };
    static const float planar[] = {
        0, 0, .2f, .2f, 1, 0, 1, 0, 1, 0, 1, 0, 2, .5f, -1, .5f, NAN, .5f
    };
    DpcGrid g = { .n = 3, .c = 3, .h = 1, .w = 2, .cols = 2, .scale = 2 };
    uint8_t x[3 * 4 * 8], y[3 * 4 * 8];
    assert_int_equal(dpc_png_write_grid(at("m.png"), mixed, &g), DPC_OK);
    g.planar = true;
    assert_int_equal(dpc_png_write_grid(at("p.png"), planar, &g), DPC_OK);
    reads("m.png", 4, 8, x);
    reads("p.png", 4, 8, y);
    assert_memory_equal(x, y, sizeof x);
    pixel_is(x, 0, 51, 255, 0);
    pixel_is(x + 3 * (8 + 1), 0, 51, 255, 0);
    pixel_is(x + 3 * 2, 0, 51, 0, 0);
    pixel_is(x + 3 * 4, 255, 255, 255, 0);
    pixel_is(x + 3 * 7, 0, 0, 0, 0);
    pixel_is(x + 3 * 16, 255, 0, 0, 0);
    pixel_is(x + 3 * 18, 128, 128, 128, 0);
    pixel_is(x + 3 * 31, 255, 255, 255, 0);     /* no picture there */
    g = (DpcGrid){ .n = 1, .c = 1, .h = 1, .w = 2, .cols = 5, .scale = 1 };
    assert_int_equal(dpc_png_write_grid(at("g.png"), planar + 4, &g), DPC_OK);
    reads("g.png", 1, 2, x);
    pixel_is(x, 255, 255, 255, 0);
    pixel_is(x + 3, 0, 0, 0, 0);
    g.c = 2;
    assert_int_equal(dpc_png_write_grid(at("g.png"), planar, &g), DPC_USER);
}

/* Files in the folder. */
static int entries(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)); )
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A limit on the size of files stands for a full disk. */
static void a_full_disk_leaves_the_old_picture(void **state)
{
    (void)state;
    enum { N = 64 };
    static uint8_t in[3 * N * N], x[3 * N * N];
    struct rlimit old, small;
    uint32_t noise = 1;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)((noise = noise * 1664525u + 1013904223u) >> 24);
    assert_int_equal(dpc_png_write(at("a.png"), in, N, N, 3), DPC_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    memset(x, 0, sizeof x);
    in[0] ^= 255;
    DpcStatus s = dpc_png_write(at("a.png"), in, N, N, 3);
    in[0] ^= 255;
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(s, DPC_ENV);
    says(at("a.png"));
    says("File too large");
    reads("a.png", N, N, x);
    assert_memory_equal(x, in, sizeof in);
    assert_int_equal(entries(), 1);
    assert_int_equal(dpc_png_write(at("no/a.png"), in, N, N, 3), DPC_ENV);
    says("no/a.png");
    says("No such file");
}

/* ---- folders ---- */

static void opens(const char *option, int64_t budget, DpcData **d)
{
    char spec[600];
    snprintf(spec, sizeof spec, "folder:%s%s", dir, option);
    if (dpc_data_open(spec, budget, d))
        fail_msg("%s: %s", spec, dpc_last_error());
}

static void folder_refuses(const char *option, const char *part,
                           const char *more)
{
    char spec[600];
    DpcData *d;
    snprintf(spec, sizeof spec, "folder:%s%s", dir, option);
    assert_int_equal(dpc_data_open(spec, 0, &d), DPC_USER);
    assert_null(d);
    says(part);
    says(more);
    says("; ");
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
    put_plain("b/deep/0.PNG", 2, 2, 4, 0, 0);
    put_plain("a-b/0.png", 2, 2, 3, 0, 0);
    put_plain("a/1.png", 2, 2, 2, 0, 0);
    put_plain("a/0.png", 2, 2, 1, 0, 0);
    put("a/.hidden.png", "x", 1);
    put("a/notes.txt", "x", 1);
}

static void folder_sorts_classes_and_names(void **state)
{
    (void)state;
    put_classes();
    DpcData *d;
    uint8_t x[12];
    assert_int_equal(dpc_data_open(dir, 0, &d), DPC_OK);    /* no "folder:" */
    dpc_data_close(d);
    opens("", 0, &d);
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
    opens("?size=3x5", 0, &d);
    const DpcField *f = dpc_data_field(d, 0);
    assert_int_equal(f->ndim, 3);
    assert_true(f->dim[0] == 3 && f->dim[1] == 5 && f->dim[2] == 3);
    assert_true(dpc_data_bytes(d) > 45);
    dpc_data_close(d);
    opens("?size=8", 0, &d);
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
    opens("?size=2", 2, &d);
    opens("?size=2", 2, &e);
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
    opens("", 0, &d);
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
    opens("?size=2", 9, &d);
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
        opens("", 0, &d);
        int f = dpc_data_find(d, "caption");
        assert_int_equal(dpc_field_bytes(dpc_data_field(d, f)), 7);
        assert_int_equal(dpc_data_read(d, 1, f, t, 7), DPC_OK);
        assert_memory_equal(t, "a caf\xc3\xa9", 7);
        assert_int_equal(dpc_data_read(d, 3, f, t, 7), DPC_OK);
        assert_memory_equal(t, "bb\0\0\0\0\0", 7);
        assert_int_equal(dpc_data_read(d, 0, f, t, 7), DPC_OK);
        assert_memory_equal(t, "\0\0\0\0\0\0\0", 7);
        dpc_data_close(d);
        opens("?text=6", 0, &d);                /* no half characters */
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

#define CASE(f) cmocka_unit_test_teardown(f, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_kind_of_png_becomes_rgb),
        CASE(transparent_parts_are_white),
        CASE(jpeg_is_known_by_its_bytes),
        CASE(large_jpeg_scales_as_a_mean),
        CASE(crop_is_central_and_exact_at_ratio_one),
        CASE(halving_is_a_weighted_mean_and_keeps_plain_colours),
        CASE(doubling_interpolates),
        CASE(unsound_pictures_are_refused),
        CASE(a_huge_picture_is_refused_before_memory),
        CASE(a_grid_reads_back),
        CASE(a_full_disk_leaves_the_old_picture),
        CASE(folder_sorts_classes_and_names),
        CASE(folder_takes_its_size_from_the_spec),
        CASE(corrupt_pictures_are_replaced_whole),
        CASE(a_spent_budget_stops_with_the_file_and_both_values),
        CASE(a_folder_without_a_sound_picture_is_refused),
        CASE(captions_come_with_their_picture),
        CASE(bad_captions_are_refused_with_their_line),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
