/* test_image.c -- pictures from files and to files. */
#define _GNU_SOURCE
#include "runtime/image.h"
#include "tests/unit/temp.h"
#include <dirent.h>
#include <math.h>
#include <png.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <webp/encode.h>
#include <zlib.h>

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
    DpcStatus s = dpc_image_read(im, &(DpcSpan){at(name), -1, 0, 0},
                                 h, w, rgb);
    dpc_imager_close(im);
    return s;
}

static void reads(const char *name, int h, int w, uint8_t *rgb)
{
    if (image(name, h, w, rgb))
        fail_msg("%s", dpc_last_error());
}

static void rejects(const char *name, const char *part)
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

static void four_inks_are_printed_on_white(void **state)
{
    (void)state;
    enum { N = 16 };
    uint8_t in[4 * N * N], x[3 * N * N], b[4096];
    for (int i = 0; i < N * N; i++)             /* as libjpeg: 255 is no ink */
        memcpy(in + 4 * i, (uint8_t[]){ 100, 100, 100, 200 }, 4);
    put_jpeg("inks.jpg", N, N, TJPF_CMYK, in);
    reads("inks.jpg", N, N, x);
    pixel_is(x + 30, 78, 78, 78, 2);
    /* Not Adobe's: luma 155, chroma 128 are taken for inks. */
    size_t n = get("inks.jpg", b, sizeof b);
    uint8_t *mark = memmem(b, n, "Adobe", 5);
    assert_non_null(mark);
    *mark = 'a';
    put("inks.jpg", b, n);
    reads("inks.jpg", N, N, x);
    pixel_is(x + 30, 22, 27, 27, 2);
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
    rejects("empty.png", "empty");
    rejects("none.png", "No such file");
    put("text.jpg", "hello, world", 12);
    rejects("text.jpg", "neither PNG nor JPEG");
    mkdir(at("folder.png"), 0700);
    rejects("folder.png", "not a file");
    put_png("x.png", 64, 64, 8, PNG_COLOR_TYPE_RGB, in, 192);
    size_t n = get("x.png", b, sizeof b);
    put("x.png", b, n / 2);
    rejects("x.png", "picture: ");
    b[n / 2] ^= 255;
    put("x.png", b, n);
    rejects("x.png", "picture: ");
    put_jpeg("x.jpg", 64, 64, TJPF_RGB, in);
    n = get("x.jpg", b, sizeof b);
    put("x.jpg", b, n / 2);
    rejects("x.jpg", "Premature end");
    put("x.jpg", b, 20);
    rejects("x.jpg", "picture: ");
}

/* Lossless, of h x w pixels RGBA. */
static size_t put_webp(const char *name, int h, int w, const uint8_t *rgba)
{
    uint8_t *b = NULL;
    size_t n = WebPEncodeLosslessRGBA(rgba, w, h, 4 * w, &b);
    assert_true(n > 0);
    put(name, b, n);
    WebPFree(b);
    return n;
}

static void webp_is_read_and_its_damage_is_told(void **state)
{
    (void)state;
    static uint8_t b[1 << 12], in[4 * 64], x[3 * 64], y[3 * 4];
    for (int i = 0; i < 64; i++)
        in[4 * i] = (uint8_t)(3 * i), in[4 * i + 1] = 9, in[4 * i + 3] = 255;
    size_t n = put_webp("x.webp", 8, 8, in);
    reads("x.webp", 8, 8, x);
    pixel_is(x, 0, 9, 0, 0);
    pixel_is(x + 3 * 63, 189, 9, 0, 0);
    reads("x.webp", 2, 2, y);
    in[3] = 0, in[7] = 51;
    put_webp("a.webp", 8, 8, in);
    reads("a.webp", 8, 8, x);
    pixel_is(x, 255, 255, 255, 0);
    pixel_is(x + 3, 204 + 1, 204 + 2, 204, 1);
    pixel_is(x + 6, 6, 9, 0, 0);
    assert_int_equal(get("x.webp", b, sizeof b), n);
    for (size_t k = 4; k < n; k += 3) {
        put("cut.webp", b, k);
        rejects("cut.webp", "picture: ");
    }
    b[4]++;                                     /* longer than the file */
    put("cut.webp", b, n - 8);
    rejects("cut.webp", "damaged or break off");
}

/* A decoder may keep tables of the file before. */
static void a_damaged_jpeg_leaves_the_next_alone(void **state)
{
    (void)state;
    enum { N = 16 };
    static uint8_t b[1 << 12], in[3 * N * N], want[3 * N * N], x[3 * N * N];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i / 3);
    put_jpeg("good.jpg", N, N, TJPF_RGB, in);
    reads("good.jpg", N, N, want);
    size_t n = get("good.jpg", b, sizeof b);
    DpcImager *im;
    assert_int_equal(dpc_imager_open(1 << 12, &im), DPC_OK);
    for (size_t i = 2; i < n; i++) {
        b[i] ^= 255;
        put("bad.jpg", b, n);
        b[i] ^= 255;
        dpc_image_read(im, &(DpcSpan){at("bad.jpg"), -1, 0, 0}, N, N, x);
        assert_int_equal(dpc_image_read(im,
                         &(DpcSpan){at("good.jpg"), -1, 0, 0}, N, N, x), DPC_OK);
        assert_memory_equal(x, want, sizeof x);
    }
    dpc_imager_close(im);
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
    rejects("wide.png", "65535 x 40000 pixels");
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
    DIR *d = opendir(temp_dir);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_kind_of_png_becomes_rgb),
        CASE(transparent_parts_are_white),
        CASE(jpeg_is_known_by_its_bytes),
        CASE(four_inks_are_printed_on_white),
        CASE(large_jpeg_scales_as_a_mean),
        CASE(crop_is_central_and_exact_at_ratio_one),
        CASE(halving_is_a_weighted_mean_and_keeps_plain_colours),
        CASE(doubling_interpolates),
        CASE(unsound_pictures_are_refused),
        CASE(webp_is_read_and_its_damage_is_told),
        CASE(a_damaged_jpeg_leaves_the_next_alone),
        CASE(a_huge_picture_is_refused_before_memory),
        CASE(a_grid_reads_back),
        CASE(a_full_disk_leaves_the_old_picture),
    };
    return cmocka_run_group_tests(tests, temp_begin, temp_end);
}
