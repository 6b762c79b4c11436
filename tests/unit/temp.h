/* temp.h -- a folder for the files of one test program, and what they hold.
 *
 * A program calls temp_begin first and temp_end last; each test has
 * temp_clean as its teardown. */
#ifndef TEST_TEMP_H
#define TEST_TEMP_H

#include "runtime/data.h"
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char temp_dir[] = "/tmp/dpc-test-XXXXXX";

/* Path of a file in the folder; the last eight stay. */
static inline const char *at(const char *name)
{
    static char path[8][512];
    static int i;
    char *p = path[i++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

static inline void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static inline size_t get(const char *name, uint8_t *to, size_t cap)
{
    FILE *f = fopen(at(name), "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, cap, f);
    fclose(f);
    return n;
}

#define HEAD(descr, shape) "{'descr': '" descr \
    "', 'fortran_order': False, 'shape': " shape ", }          \n"

/* A .npy file of version `v` whose dictionary is `head`. */
static inline void put_npy(const char *name, int v, const char *head,
                           const void *bytes, size_t n)
{
    uint8_t b[1024] = "\x93NUMPY";
    size_t len = strlen(head), begin = v == 1 ? 10 : 12;
    b[6] = (uint8_t)v;
    b[8] = (uint8_t)len;
    b[9] = (uint8_t)(len >> 8);
    memcpy(b + begin, head, len);
    memcpy(b + begin + len, bytes, n);
    put(name, b, begin + len + n);
}

/* The last error has this part. */
static inline void says(const char *part)
{
    if (!strstr(dpc_last_error(), part))
        fail_msg("\"%s\" lacks \"%s\"", dpc_last_error(), part);
}

static inline void opens(const char *spec, int64_t budget, DpcData **d)
{
    if (dpc_data_open(spec, budget, d))
        fail_msg("%s: %s", spec, dpc_last_error());
}

/* Opening `spec` is the user's error, and the text has both parts. */
static inline void refuses(const char *spec, const char *part,
                           const char *more)
{
    DpcData *d;
    DpcStatus s = dpc_data_open(spec, 0, &d);
    if (!s)
        fail_msg("%s opens", spec);
    assert_int_equal(s, DPC_USER);
    assert_null(d);
    says(part);
    says(more);
    says("error: ");
    says("; ");
}

static inline int temp_drop(const char *path, const struct stat *st, int kind,
                            struct FTW *f)
{
    (void)st;
    (void)kind;
    return f->level ? remove(path) : 0;
}

static inline int temp_clean(void **state)
{
    (void)state;
    return nftw(temp_dir, temp_drop, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int temp_begin(void **state)
{
    (void)state;
    return mkdtemp(temp_dir) ? 0 : -1;
}

static inline int temp_end(void **state)
{
    (void)state;
    return rmdir(temp_dir);
}

#define CASE(f) cmocka_unit_test_teardown(f, temp_clean)

#endif
