/* test_sched_host.c -- test_sched's claims of the host target and its fuse:
 * kernels of many nodes, library calls, packed filters. */
#define HOST_TARGET
#include "tests/unit/test_sched.c"
