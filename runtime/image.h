/* image.h -- pictures from PNG, JPEG and WebP files, pictures to PNG files. */
#ifndef DPC_IMAGE_H
#define DPC_IMAGE_H

#include "runtime/dpc_rt.h"

/* A decoder with the memory it works in; for one thread. */
typedef struct DpcImager DpcImager;

/* For files of up to `file_max` bytes. */
DpcStatus dpc_imager_open(int64_t file_max, DpcImager **);
int64_t dpc_imager_bytes(const DpcImager *);    /* memory held, at most */
void dpc_imager_close(DpcImager *);             /* NULL is fine */

/* Where a picture's bytes are: `size` of them from `at` on in an open file,
 * or, with fd -1, the whole of the file at `path`, which messages name. */
typedef struct DpcSpan {
    const char *path;
    int fd;
    int64_t at, size;
} DpcSpan;

/* Height and width in pixels, from the head of the file. */
DpcStatus dpc_image_size(DpcImager *, const DpcSpan *, int64_t *h, int64_t *w);
/* The picture as sRGB, rgb : u8[h, w, 3]; transparent parts are white.
 * Another size is scaled to cover h x w and cropped around its centre.
 * DPC_USER: the file is no sound picture; DPC_ENV: I/O fails. */
DpcStatus dpc_image_read(DpcImager *, const DpcSpan *, int64_t h, int64_t w,
                         uint8_t *rgb);

/* n pictures of c channels (1: grey, 3: RGB), numbers from 0 to 1. */
typedef struct DpcGrid {
    int64_t n, c, h, w;
    int64_t cols;                         /* pictures in a row */
    int64_t scale;                        /* pixels a side for one of ours */
    bool planar;                          /* [n,c,h,w], else [n,h,w,c] */
} DpcGrid;

/* pixel : u8[h, w, c].  The file appears whole or not at all; what was there
 * before stays if this fails.  DPC_ENV: the disk is full or not writable. */
DpcStatus dpc_png_write(const char *path, const uint8_t *pixel, int64_t h,
                        int64_t w, int64_t c);
/* The pictures side by side; places without one are white, NaN is 0. */
DpcStatus dpc_png_write_grid(const char *path, const float *x,
                             const DpcGrid *);

#endif
