/* base.c -- the runtime's last error, exit codes and dtypes.
 *
 * A failing function writes one text for its thread and returns its status;
 * whoever decides to give up prints it.  The text lives in the thread, so a
 * failure allocates nothing and threads do not mix their texts. */
#include "runtime/dpc_rt.h"

#include <stdarg.h>
#include <stdio.h>

const char dpc_layout[] = DPC_LAYOUT;

static _Thread_local char last[1024];

int dpc_exit_code(DpcStatus s)
{
    static const unsigned char code[] = {
        [DPC_OK] = 0, [DPC_USER] = 1, [DPC_USAGE] = 2, [DPC_MEMORY] = 3,
        [DPC_ENV] = 5, [DPC_NUMERICS] = 7, [DPC_BUG] = 70,
    };
    return (unsigned)s < sizeof code ? code[s] : code[DPC_BUG];
}

const char *dpc_last_error(void)
{
    return last;
}

/* The text is made apart first: an argument may be dpc_last_error() itself,
 * for a caller that adds its place to what a callee said. */
DpcStatus dpc_fail(DpcStatus s, const char *f, ...)
{
    char text[sizeof last];
    va_list ap;
    va_start(ap, f);
    vsnprintf(text, sizeof text, f, ap);
    va_end(ap);
    snprintf(last, sizeof last, "%s", text);
    return s;
}

int32_t dpc_roles(const DpcUnit *u)
{
    int32_t n = 1;
    for (uint32_t i = 0; i < u->naxis; i++)
        if (u->axis[i].kind == DPC_STAGE)
            n *= u->axis[i].size;
    return n;
}

/* Bytes of an element; 0 for what is no dtype. */
int64_t dpc_dtype_size(DpcDtype t)
{
    static const unsigned char size[DPC_NDTYPE] = {
        [DPC_F32] = 4, [DPC_BF16] = 2, [DPC_I32] = 4, [DPC_U8] = 1,
    };
    return (unsigned)t < DPC_NDTYPE ? size[t] : 0;
}

/* "?" for what is no dtype. */
const char *dpc_dtype_name(DpcDtype t)
{
    static const char *const name[DPC_NDTYPE] = {
        [DPC_F32] = "f32", [DPC_BF16] = "bf16", [DPC_I32] = "i32",
        [DPC_U8] = "u8",
    };
    return (unsigned)t < DPC_NDTYPE ? name[t] : "?";
}
