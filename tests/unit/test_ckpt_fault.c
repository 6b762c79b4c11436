/* test_ckpt_fault.c -- no failing call and no full disk loses a checkpoint.
 *
 * The calls by which a checkpoint is made fail one after the other, once
 * (EIO) or from there on (ENOSPC).  The save says so, the older checkpoint
 * loads, nothing is left lying about, and the next save works. */
#include "tests/unit/ckpt_small.h"

typedef struct Fault {
    int at, calls, error;
    bool forever;                         /* the disk stays full */
    int bad_fd;                           /* its fsync has failed */
    int64_t space;
} Fault;

static bool fails(Fault *f)
{
    int i = f->calls++;
    errno = f->error;
    return f->forever ? i >= f->at : i == f->at;
}

static int fault_create(void *f, const char *p)
{
    return fails(f) ? -1 : dpc_disk.create(NULL, p);
}

static ssize_t fault_write(void *f, int fd, const void *p, size_t n)
{
    if (fails(f))
        return -1;
    return dpc_disk.write(NULL, fd, p, n > 50 ? 50 : n);
}

static int fault_fsync(void *arg, int fd)
{
    Fault *f = arg;
    assert_int_not_equal(f->bad_fd, fd + 1);
    if (!fails(f))
        return 0;
    f->bad_fd = fd + 1;
    return -1;
}

static int fault_close(void *arg, int fd)
{
    Fault *f = arg;
    f->bad_fd = 0;
    int r = dpc_disk.close(NULL, fd);
    return fails(f) ? -1 : r;
}

static int fault_fsync_dir(void *f, const char *p)
{
    (void)p;
    return fails(f) ? -1 : 0;
}

static int fault_rename(void *f, const char *a, const char *b)
{
    return fails(f) ? -1 : dpc_disk.rename(NULL, a, b);
}

static int fault_mkdir(void *f, const char *p)
{
    return fails(f) ? -1 : dpc_disk.mkdir(NULL, p);
}

static int plain_unlink(void *f, const char *p)
{
    (void)f;
    return dpc_disk.unlink(NULL, p);
}

static int plain_rmdir(void *f, const char *p)
{
    (void)f;
    return dpc_disk.rmdir(NULL, p);
}

static int64_t fault_space(void *f, const char *p)
{
    (void)p;
    return ((Fault *)f)->space;
}

static DpcDisk fault_disk(Fault *f)
{
    return (DpcDisk){ f, fault_create, fault_write, fault_fsync, fault_close,
                      fault_fsync_dir, fault_rename, plain_unlink,
                      fault_mkdir, plain_rmdir, fault_space };
}

static bool has_rest(const char *dir)
{
    DIR *d = opendir(dir);
    bool any = false;
    for (struct dirent *e; d && (e = readdir(d));)
        any |= strstr(e->d_name, "tmp-") != NULL;
    closedir(d);
    return any;
}

/* One failing call at each place; then the disk full from there on. */
static void any_failing_call_spares_the_old_and_lets_go_on(void **state)
{
    (void)state;
    int reached = 0;
    for (int forever = 0; forever < 2; forever++)
        for (int at = 0;; at++) {
            Fault f = { .at = at, .error = forever ? ENOSPC : EIO,
                        .forever = forever, .space = INT64_MAX };
            DpcDisk disk = fault_disk(&f);
            wipe(disk_dir);
            assert_int_equal(save(NULL, disk_dir, 1, 1, 2), DPC_OK);
            assert_int_equal(save(NULL, disk_dir, 2, 2, 2), DPC_OK);
            DpcStatus s = save(&disk, disk_dir, at % 2 ? 3 : 2, 3, 2);
            int got = recover(disk_dir);
            assert_true(s == DPC_OK || s == DPC_ENV);
            assert_true(got == 3 || (got == 2 && s != DPC_OK));
            if (s != DPC_OK) {
                assert_non_null(strstr(dpc_last_error(), disk_dir));
                assert_non_null(strstr(dpc_last_error(), strerror(f.error)));
            }
            assert_true(!has_rest(disk_dir) || s == DPC_OK);
            assert_int_equal(save(NULL, disk_dir, 4, 4, 2), DPC_OK);
            assert_int_equal(recover(disk_dir), 4);
            assert_false(has_rest(disk_dir));
            reached = at > reached ? at : reached;
            if (f.calls <= at)
                break;
        }
    assert_true(reached > 40);
}

static void too_little_space_is_told_before_anything_is_written(void **state)
{
    char want[300];
    Fault f = { .at = -1, .space = 1000 };
    DpcDisk disk = fault_disk(&f);
    (void)state;
    wipe(disk_dir);
    assert_int_equal(save(NULL, disk_dir, 1, 1, 2), DPC_OK);
    assert_int_equal(save(&disk, disk_dir, 2, 2, 2), DPC_ENV);
    snprintf(want, sizeof want, "%s: error: checkpoint: needs 67120 bytes, "
             "the disk has 1000 free; older checkpoints are intact", disk_dir);
    assert_string_equal(dpc_last_error(), want);
    assert_int_equal(f.calls, 1);         /* the mkdir of what was there */
    assert_int_equal(recover(disk_dir), 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(any_failing_call_spares_the_old_and_lets_go_on),
        T(too_little_space_is_told_before_anything_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
