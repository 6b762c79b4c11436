/* image.c -- reads PNG, JPEG and WebP files into u8 [h, w, 3] of a wanted size.
 *
 * The kind of a file is told by its first bytes, not by its name.  JPEG is
 * decoded at 1/2, 1/4 or 1/8 in the DCT domain while it still covers the
 * wanted size.  Scaling uses a triangle as wide as two output pixels, at
 * least two input pixels: linear interpolation upwards, a weighted area mean
 * downwards, hence no aliasing (as Pillow's BILINEAR).
 *
 * All memory of ours is taken at open; libpng, TurboJPEG and libwebp take and
 * free some of their own a picture.  Pixels are bounded, so that a small file
 * that promises a huge picture is one more corrupt sample and not the end. */
#define _GNU_SOURCE
#include "runtime/disk.h"
#include "runtime/image.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <webp/decode.h>

enum {
    PIXELS = 1 << 25,                     /* 33 million: 8K frames fit */
    SIDE = 1 << 16
};

struct DpcImager {
    int64_t file_max, n;                  /* bytes: room, of this file */
    uint8_t *file;                        /* [file_max] */
    uint8_t *pixel;                       /* [PIXELS, 3]: decoded */
    float *row;                           /* [SIDE, 3]: scaled vertically */
};

typedef struct Size { int64_t h, w; } Size;

DpcStatus dpc_imager_open(int64_t file_max, DpcImager **out)
{
    DpcImager *im = calloc(1, sizeof *im);
    *out = im;
    if (im) {
        im->file_max = file_max;
        im->file = malloc((size_t)file_max + 1);
        im->pixel = malloc(3 * (size_t)PIXELS);
        im->row = malloc(3 * (size_t)SIDE * sizeof *im->row);
    }
    if (im && im->file && im->pixel && im->row)
        return DPC_OK;
    dpc_imager_close(im);
    *out = NULL;
    return dpc_fail(DPC_MEMORY, "pictures: error: no memory for files of "
                    "%lld bytes and %d pixels", (long long)file_max, PIXELS);
}

void dpc_imager_close(DpcImager *im)
{
    if (!im)
        return;
    free(im->file);
    free(im->pixel);
    free(im->row);
    free(im);
}

int64_t dpc_imager_bytes(const DpcImager *im)
{
    return im->file_max + 3 * (int64_t)PIXELS +
           3 * (int64_t)(SIDE * sizeof *im->row) + (int64_t)sizeof *im;
}

/* ---- the file ---- */

static DpcStatus corrupt(const char *path, const char *why)
{
    return dpc_fail(DPC_USER, "%s: error: picture: %s", path, why);
}

/* A missing or forbidden file is the user's; a failing disk is not. */
static DpcStatus unreadable(const char *path)
{
    bool env = errno == EIO || errno == EMFILE || errno == ENFILE ||
               errno == ENOMEM;
    return dpc_fail(env ? DPC_ENV : DPC_USER, "%s: error: picture: %s", path,
                    strerror(errno));
}

static DpcStatus fill(DpcImager *im, const DpcSpan *f)
{
    if (f->size > im->file_max)
        return dpc_fail(DPC_USER, "%s: error: picture: %lld bytes, at most "
                        "%lld are read", f->path, (long long)f->size,
                        (long long)im->file_max);
    for (im->n = 0; im->n < f->size; ) {
        ssize_t k = pread(f->fd, im->file + im->n, (size_t)(f->size - im->n),
                          f->at + im->n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return unreadable(f->path);
        if (!k)
            break;
        im->n += k;
    }
    return DPC_OK;
}

static DpcStatus fill_whole(DpcImager *im, const char *path, int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return unreadable(path);
    if (!S_ISREG(st.st_mode) || !st.st_size)
        return corrupt(path, st.st_size ? "not a file" : "the file is empty");
    return fill(im, &(DpcSpan){path, fd, 0, st.st_size});
}

static DpcStatus load(DpcImager *im, const DpcSpan *f)
{
    if (f->fd >= 0)
        return fill(im, f);
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable(f->path);
    DpcStatus s = fill_whole(im, f->path, fd);
    close(fd);
    return s;
}

static DpcStatus too_large(const char *path, int64_t h, int64_t w)
{
    return dpc_fail(DPC_USER, "%s: error: picture: %lld x %lld pixels; at "
                    "most %d pixels and %d a side are read; make it smaller",
                    path, (long long)h, (long long)w, PIXELS, SIDE);
}

static bool fits(int64_t h, int64_t w)
{
    return h > 0 && w > 0 && h <= SIDE && w <= SIDE && h * w <= PIXELS;
}

/* ---- the three kinds ----
 * Each tells the size of the picture when `to` is NULL, else decodes it to
 * to : u8[size.h, size.w, 3], which is im->pixel or has room for `want`. */

static bool is_png(const DpcImager *im)
{
    return im->n >= 4 && !memcmp(im->file, "\x89PNG", 4);
}

static bool is_jpeg(const DpcImager *im)
{
    return im->n >= 3 && !memcmp(im->file, "\xff\xd8\xff", 3);
}

static DpcStatus png_decode(DpcImager *im, const char *path, Size want,
                            bool head, uint8_t *to, Size *is)
{
    png_image p = { .version = PNG_IMAGE_VERSION };
    const png_color white = { 255, 255, 255 };
    if (!png_image_begin_read_from_memory(&p, im->file, (size_t)im->n))
        return corrupt(path, p.message);
    *is = (Size){ p.height, p.width };
    if (head) {
        png_image_free(&p);
        return DPC_OK;
    }
    if (!fits(p.height, p.width)) {
        png_image_free(&p);
        return too_large(path, is->h, is->w);
    }
    if (is->h != want.h || is->w != want.w)
        to = im->pixel;
    p.format = PNG_FORMAT_RGB;
    p.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    if (!png_image_finish_read(&p, &white, to, 0, NULL))
        return corrupt(path, p.message);
    return DPC_OK;
}

/* The smallest picture TurboJPEG decodes that still covers `want`. */
static Size jpeg_scaled(Size full, Size want)
{
    Size best = full;
    for (int d = 2; d <= 8; d *= 2) {
        tjscalingfactor f = { 1, d };
        Size s = { TJSCALED((int)full.h, f), TJSCALED((int)full.w, f) };
        if (s.h < want.h || s.w < want.w)
            break;
        best = s;
    }
    return best;
}

/* to : u8[n, 3] = from : u8[n, 4], inks; `light`: 255 is none of it, as Adobe
 * writes them. */
static void on_paper(const uint8_t *from, int64_t n, bool light, uint8_t *to)
{
    int flip = light ? 0 : 255;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++)
            to[3 * i + c] = (uint8_t)(((from[4 * i + c] ^ flip) *
                                       (from[4 * i + 3] ^ flip) + 127) / 255);
}

/* A warning, too, is damage: "premature end of file" is one. */
static bool jpeg_pixels(tjhandle t, const DpcImager *im, Size is, int format,
                        uint8_t *to)
{
    return !tjDecompress2(t, im->file, (unsigned long)im->n, to, (int)is.w, 0,
                          (int)is.h, format,
                          TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
}

/* Of four inks. */
static bool jpeg_inks(tjhandle t, const DpcImager *im, Size is, uint8_t *to)
{
    static const char adobe[] = "\xff\xee\0\x0e" "Adobe";
    int64_t n = is.h * is.w;
    uint8_t *ink = malloc(4 * (size_t)n);
    bool fine = ink && jpeg_pixels(t, im, is, TJPF_CMYK, ink);
    if (fine)
        on_paper(ink, n, memmem(im->file, (size_t)im->n, adobe,
                                sizeof adobe - 1), to);
    free(ink);
    return fine;
}

static DpcStatus jpeg_with(tjhandle t, DpcImager *im, const char *path,
                           Size want, bool head, uint8_t *to, Size *is)
{
    int w, h, sub, space;
    if (tjDecompressHeader3(t, im->file, (unsigned long)im->n, &w, &h, &sub,
                            &space))
        return corrupt(path, tjGetErrorStr2(t));
    *is = (Size){ h, w };
    if (head)
        return DPC_OK;
    *is = jpeg_scaled(*is, want);
    if (!fits(is->h, is->w))
        return too_large(path, h, w);
    if (is->h != want.h || is->w != want.w)
        to = im->pixel;
    bool inks = space == TJCS_CMYK || space == TJCS_YCCK;
    if (inks ? !jpeg_inks(t, im, *is, to)
             : !jpeg_pixels(t, im, *is, TJPF_RGB, to))
        return corrupt(path, tjGetErrorStr2(t));
    return DPC_OK;
}

/* A handle keeps tables from picture to picture: one damaged file spoils the
 * next, and what is decoded would hang on what was read before.  So each has
 * its own. */
static DpcStatus jpeg_decode(DpcImager *im, const char *path, Size want,
                             bool head, uint8_t *to, Size *is)
{
    tjhandle t = tjInitDecompress();
    if (!t)
        return dpc_fail(DPC_MEMORY, "%s: error: picture: no memory for a "
                        "decoder", path);
    DpcStatus s = jpeg_with(t, im, path, want, head, to, is);
    tjDestroy(t);
    return s;
}

static bool is_webp(const DpcImager *im)
{
    return im->n >= 12 && !memcmp(im->file, "RIFF", 4) &&
           !memcmp(im->file + 8, "WEBP", 4);
}

/* to : u8[n, 3] = from : u8[n, 4] on white. */
static void on_white(const uint8_t *from, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) {
            int a = from[4 * i + 3];
            to[3 * i + c] = (uint8_t)((from[4 * i + c] * a +
                                       255 * (255 - a) + 127) / 255);
        }
}

static DpcStatus webp_decode(DpcImager *im, const char *path, Size want,
                             bool head, uint8_t *to, Size *is)
{
    static const char damaged[] = "the WebP data are damaged or break off";
    WebPBitstreamFeatures f;
    int w, h;
    if (WebPGetFeatures(im->file, (size_t)im->n, &f) != VP8_STATUS_OK)
        return corrupt(path, damaged);
    *is = (Size){ f.height, f.width };
    if (f.has_animation)
        return corrupt(path, "an animation; one picture is wanted");
    if (head)
        return DPC_OK;
    if (!fits(is->h, is->w))
        return too_large(path, is->h, is->w);
    if (is->h != want.h || is->w != want.w)
        to = im->pixel;
    int64_t n = is->h * is->w;
    if (!f.has_alpha)
        return WebPDecodeRGBInto(im->file, (size_t)im->n, to, 3 * (size_t)n,
                                 3 * f.width) ? DPC_OK
                                              : corrupt(path, damaged);
    uint8_t *rgba = WebPDecodeRGBA(im->file, (size_t)im->n, &w, &h);
    if (!rgba)
        return corrupt(path, damaged);
    on_white(rgba, n, to);
    WebPFree(rgba);
    return DPC_OK;
}

static DpcStatus decode(DpcImager *im, const DpcSpan *f, Size want, bool head,
                        uint8_t *to, Size *is)
{
    DpcStatus s = load(im, f);
    if (s)
        return s;
    if (is_png(im))
        return png_decode(im, f->path, want, head, to, is);
    if (is_jpeg(im))
        return jpeg_decode(im, f->path, want, head, to, is);
    if (is_webp(im))
        return webp_decode(im, f->path, want, head, to, is);
    const char *other = dpc_impostor((const char *)im->file, (size_t)im->n);
    return corrupt(f->path, other ? other : "neither PNG nor JPEG nor WebP by "
                   "its first bytes");
}

DpcStatus dpc_image_size(DpcImager *im, const DpcSpan *f, int64_t *h,
                         int64_t *w)
{
    Size is;
    DpcStatus s = decode(im, f, (Size){ 1, 1 }, true, NULL, &is);
    if (!s)
        *h = is.h, *w = is.w;
    return s;
}

/* ---- scaling ---- */

/* One output pixel as a weighted mean of inputs first .. last of n. */
typedef struct Taps { int64_t first, last; float at, width, sum; } Taps;

static float weight(const Taps *t, int64_t k)
{
    return 1 - fabsf((float)k + .5f - t->at) / t->width;
}

/* `at`: centre of the output pixel, in input pixels; ratio: input pixels an
 * output pixel. */
static Taps taps(double at, double ratio, int64_t n)
{
    double width = ratio > 1 ? ratio : 1;
    Taps t = { (int64_t)ceil(at - width - .5), (int64_t)floor(at + width - .5),
               (float)at, (float)width, 0 };
    t.first = t.first < 0 ? 0 : t.first;
    t.last = t.last >= n ? n - 1 : t.last;
    for (int64_t k = t.first; k <= t.last; k++)
        t.sum += weight(&t, k);
    return t;
}

/* row : f32[w, 3] = weighted mean of rows of from : u8[h, w, 3]. */
static void scale_rows(const uint8_t *from, int64_t w, const Taps *t,
                       float *row)
{
    memset(row, 0, (size_t)(3 * w) * sizeof *row);
    for (int64_t k = t->first; k <= t->last; k++) {
        const uint8_t *p = from + k * w * 3;
        float g = weight(t, k) / t->sum;
        for (int64_t i = 0; i < 3 * w; i++)
            row[i] += g * p[i];
    }
}

static void scale_pixel(const float *row, const Taps *t, uint8_t *to)
{
    float v[3] = { 0, 0, 0 };
    for (int64_t k = t->first; k <= t->last; k++) {
        float g = weight(t, k) / t->sum;
        for (int c = 0; c < 3; c++)
            v[c] += g * row[3 * k + c];
    }
    for (int c = 0; c < 3; c++)
        to[c] = (uint8_t)(v[c] < 0 ? 0 : v[c] > 255 ? 255 : v[c] + .5f);
}

/* First output pixel of the crop: whole, so that ratio 1 only copies. */
static double crop(int64_t n, double ratio, int64_t want)
{
    double rest = floor(((double)n / ratio - (double)want) / 2 + 1e-6);
    return rest > 0 ? rest : 0;
}

static void cover(const DpcImager *im, Size is, Size want, uint8_t *to)
{
    double rh = (double)is.h / (double)want.h;
    double rw = (double)is.w / (double)want.w, r = rh < rw ? rh : rw;
    double top = crop(is.h, r, want.h), left = crop(is.w, r, want.w);
    for (int64_t y = 0; y < want.h; y++) {
        Taps t = taps((top + (double)y + .5) * r, r, is.h);
        scale_rows(im->pixel, is.w, &t, im->row);
        for (int64_t x = 0; x < want.w; x++, to += 3) {
            t = taps((left + (double)x + .5) * r, r, is.w);
            scale_pixel(im->row, &t, to);
        }
    }
}

DpcStatus dpc_image_read(DpcImager *im, const DpcSpan *f, int64_t h, int64_t w,
                         uint8_t *rgb)
{
    Size is, want = { h, w };
    DpcStatus s = decode(im, f, want, false, rgb, &is);
    if (!s && (is.h != h || is.w != w))
        cover(im, is, want, rgb);
    return s;
}
