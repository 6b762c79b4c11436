/* demo_grid.c -- pictures side by side in one PNG. */
#include "compiler/demo.h"
#include <errno.h>
#include <png.h>

enum { GAP = 2 };                         /* pixels between pictures */

static uint8_t byte_of(float x)
{
    return !(x > 0) ? 0 : x >= 1 ? 255 : (uint8_t)(x * 255 + 0.5f);
}

/* One picture [3, h, w] into the canvas, whose rows are `line` bytes. */
static void place(uint8_t *to, int64_t line, const float *rgb, int64_t h,
                  int64_t w, int64_t scale)
{
    for (int64_t y = 0; y < h * scale; y++)
        for (int64_t x = 0; x < w * scale; x++)
            for (int64_t c = 0; c < 3; c++)
                to[y * line + x * 3 + c] =
                    byte_of(rgb[(c * h + y / scale) * w + x / scale]);
}

void grid_write(Arena *a, const char *path, const float *rgb, int64_t n,
                int64_t h, int64_t w, int64_t columns, int64_t scale)
{
    int64_t rows = (n + columns - 1) / columns;
    int64_t dx = w * scale + GAP, dy = h * scale + GAP;
    int64_t width = columns * dx + GAP, height = rows * dy + GAP;
    uint8_t *canvas = alloc(a, (size_t)(width * height * 3));
    memset(canvas, 255, (size_t)(width * height * 3));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (GAP + i / columns * dy) * width +
                     GAP + i % columns * dx;
        place(canvas + at * 3, width * 3, rgb + i * 3 * h * w, h, w, scale);
    }
    png_image p = { .version = PNG_IMAGE_VERSION,
                    .width = (png_uint_32)width,
                    .height = (png_uint_32)height,
                    .format = PNG_FORMAT_RGB };
    if (!png_image_write_to_file(&p, path, 0, canvas, 0, NULL))
        err_code(5, path, "cannot be written: %s", p.message);
}
