/* test_small.c -- the blocks behind C++'s `operator new`. */
#define _GNU_SOURCE
#include "runtime/small.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 20000, HELD = 16 };

void *new(size_t) __asm__("_Znwm") __attribute__((weak));
void delete(void *) __asm__("_ZdlPv") __attribute__((weak));
static void *early;                       /* from before the pool opened */

static int setup(void **state)
{
    (void)state;
    if (new)
        early = new(64);
    dpc_small_open();
    return 0;
}

/* Blocks are this program's own memory, so the heap's are far from them. */
static bool pooled(const void *p)
{
    Dl_info who;
    return dladdr(p, &who) != 0;
}

static void ours_or_skip(void)
{
    void *p = new ? new(8) : NULL;
    bool ours = p && pooled(p);
    if (p)
        delete(p);
    if (!ours)
        skip();                           /* AddressSanitizer's, or no C++ */
}

static void small_ones_are_blocks(void **state)
{
    (void)state;
    ours_or_skip();
    void *a = new(112), *b = new(1);
    assert_true(pooled(a) && pooled(b) && a != b);
    assert_int_equal((uintptr_t)a % 64, 0);
    delete(b);
    assert_ptr_equal(new(256), b);        /* the last that came back */
    delete(b);
    delete(a);
    delete(NULL);
}

static void others_go_to_the_heap_and_are_counted(void **state)
{
    (void)state;
    ours_or_skip();
    int64_t before = dpc_small_missed();
    void *large = new(257), *held[1024];
    assert_false(pooled(large));
    assert_int_equal(dpc_small_missed(), before + 1);
    delete(large);
    for (int i = 0; i < 1024; i++)
        memset(held[i] = new(256), i, 256);
    assert_false(pooled(held[1023]));
    for (int i = 0; i < 1024; i++)
        assert_int_equal(((unsigned char *)held[i])[255], i & 255);
    for (int i = 0; i < 1024; i++)
        delete(held[i]);
    delete(early);
    early = new(64);
    assert_true(pooled(early));
    delete(early);
}

/* Each thread marks what it holds; a block that two hold loses a mark. */
static void *hammer(void *arg)
{
    void *held[HELD] = {NULL};
    uintptr_t mine = (uintptr_t)arg, wrong = 0;
    for (uintptr_t i = 0; i < ROUNDS; i++) {
        uintptr_t **h = (uintptr_t **)&held[(i * 7 + mine) % HELD];
        if (*h) {
            wrong += (*h)[0] != mine || (*h)[1] != (uintptr_t)h;
            delete(*h);
        }
        *h = new(16 + i % 100);
        (*h)[0] = mine;
        (*h)[1] = (uintptr_t)h;
    }
    for (int i = 0; i < HELD; i++)
        if (held[i])
            delete(held[i]);
    return (void *)wrong;
}

static void threads_never_share_a_block(void **state)
{
    (void)state;
    ours_or_skip();
    pthread_t t[THREADS];
    int64_t before = dpc_small_missed();
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, hammer, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(t[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(dpc_small_missed(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_are_blocks),
        cmocka_unit_test(others_go_to_the_heap_and_are_counted),
        cmocka_unit_test(threads_never_share_a_block),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
