/* image_write.c -- pictures to PNG files, whole or not at all.
 *
 * The file is written under another name, made durable and renamed, so that
 * a full disk or a kill leaves the picture of before.  libpng's simplified
 * API wants all pixels at once: a canvas is taken for the call, outside of
 * any step. */
#include "runtime/image.h"
#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static DpcStatus disk_fail(const char *path, const char *what)
{
    return dpc_fail(DPC_ENV, "%s: error: picture: cannot %s: %s; make room "
                    "or choose another place", path, what, strerror(errno));
}

static DpcStatus write_to(const char *path, FILE *f, const uint8_t *pixel,
                          int64_t h, int64_t w, int64_t c)
{
    png_image p = {
        .version = PNG_IMAGE_VERSION, .width = (png_uint_32)w,
        .height = (png_uint_32)h,
        .format = c == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB,
    };
    errno = 0;
    if (!png_image_write_to_stdio(&p, f, 0, pixel, 0, NULL))
        return errno ? disk_fail(path, "write")
             : dpc_fail(DPC_BUG, "%s: error: picture: %s", path, p.message);
    if (fflush(f) || fsync(fileno(f)))
        return disk_fail(path, "write");
    return DPC_OK;
}

DpcStatus dpc_png_write(const char *path, const uint8_t *pixel, int64_t h,
                        int64_t w, int64_t c)
{
    char tmp[4096];
    if ((c != 1 && c != 3) || h < 1 || w < 1 || h > 1 << 20 || w > 1 << 20)
        return dpc_fail(DPC_USER, "%s: error: picture: cannot write %lld x "
                        "%lld pixels of %lld channels; wanted 1 to %d a "
                        "side, 1 or 3 channels", path, (long long)h,
                        (long long)w, (long long)c, 1 << 20);
    int n = snprintf(tmp, sizeof tmp, "%s.tmp%ld", path, (long)getpid());
    if (n >= (int)sizeof tmp) {
        errno = ENAMETOOLONG;
        return disk_fail(path, "create");
    }
    FILE *f = fopen(tmp, "wbe");
    if (!f)
        return disk_fail(path, "create");
    DpcStatus s = write_to(path, f, pixel, h, w, c);
    if (fclose(f) && !s)
        s = disk_fail(path, "write");
    if (!s && rename(tmp, path))
        s = disk_fail(path, "rename");
    if (s)
        unlink(tmp);
    return s;
}

static uint8_t level(float v)
{
    return v >= 1 ? 255 : v > 0 ? (uint8_t)(v * 255 + .5f) : 0;
}

/* One picture, number i, into its place of the canvas of `width` pixels. */
static void grid_place(const DpcGrid *g, const float *x, int64_t i,
                       int64_t width, uint8_t *canvas)
{
    int64_t side_h = g->h * g->scale, side_w = g->w * g->scale;
    int64_t plane = g->planar ? g->h * g->w : 1, step = g->planar ? 1 : g->c;
    x += i * g->c * g->h * g->w;
    canvas += (i / g->cols * side_h * width + i % g->cols * side_w) * g->c;
    for (int64_t r = 0; r < side_h; r++) {
        uint8_t *to = canvas + r * width * g->c;
        for (int64_t q = 0; q < side_w; q++)
            for (int64_t c = 0; c < g->c; c++) {
                int64_t at = r / g->scale * g->w + q / g->scale;
                *to++ = level(x[at * step + c * plane]);
            }
    }
}

DpcStatus dpc_png_write_grid(const char *path, const float *x,
                             const DpcGrid *g)
{
    enum { SIDE = 1 << 20 };
    if (g->n < 1 || g->h < 1 || g->w < 1 || g->cols < 1 || g->scale < 1 ||
        (g->c != 1 && g->c != 3) || g->h > SIDE / g->scale ||
        g->w > SIDE / g->scale / g->cols)
        return dpc_fail(DPC_USER, "%s: error: picture: no grid of %lld "
                        "pictures %lld x %lld x %lld in %lld columns at "
                        "scale %lld; make it smaller", path, (long long)g->n,
                        (long long)g->c, (long long)g->h, (long long)g->w,
                        (long long)g->cols, (long long)g->scale);
    int64_t cols = g->n < g->cols ? g->n : g->cols;
    int64_t rows = (g->n + g->cols - 1) / g->cols;
    int64_t width = cols * g->w * g->scale, high, bytes;
    uint8_t *canvas = NULL;
    if (!__builtin_mul_overflow(rows, g->h * g->scale, &high) &&
        !__builtin_mul_overflow(high, width * g->c, &bytes))
        canvas = malloc((size_t)bytes);
    if (!canvas)
        return dpc_fail(DPC_MEMORY, "%s: error: picture: no memory for %lld "
                        "x %lld pixels; write fewer pictures", path,
                        (long long)(rows * g->h), (long long)width);
    memset(canvas, 255, (size_t)bytes);
    for (int64_t i = 0; i < g->n; i++)
        grid_place(g, x, i, width, canvas);
    DpcStatus s = dpc_png_write(path, canvas, high, width, g->c);
    free(canvas);
    return s;
}
