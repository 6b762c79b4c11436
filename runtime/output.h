/* output.h -- outputs of a program as files. */
#ifndef DPC_OUTPUT_H
#define DPC_OUTPUT_H

#include "runtime/rt.h"

/* Writes an output of the last run of `program`: by its name's end as .npy or
 * .png.  Pictures are [n,h,w,c] or [n,c,h,w], c 1 or 3, of numbers from `low`
 * to `high` (u8: 0 to 255).  Collective; rank 0 writes.  DPC_USER: not a
 * picture, or another ending; DPC_ENV: the disk. */
DpcStatus dpc_output_write(DpcRt *, uint32_t program, const char *name,
                           const char *path, double low, double high);
/* The first output of a program that could be a picture; NULL: none. */
const char *dpc_output_picture(const DpcUnit *, uint32_t program);

#endif
