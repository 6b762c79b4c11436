/* small.c -- C++'s `operator new`, so that a step takes nothing from the heap.
 *
 * oneDNN keeps the arguments of each execution in containers that die with
 * it: a few dozen calls a step, of at most 152 bytes each.  A program may
 * replace the operator ([replacement.functions] of the C++ standard), and an
 * executable's symbols come before a library's, so these are the ones that
 * oneDNN finds; the array, nothrow and sized forms of libstdc++ call them.
 *
 * Free blocks are a stack without a lock.  Its top counts its changes too, so
 * that a block which was taken and came back while another thread looked is
 * noticed (Treiber 1986; the count is IBM's answer to ABA).  Until
 * dpc_small_open the stack is empty; what finds it empty, or is too large,
 * is asked of the operator that comes next, which also throws when there is
 * no memory.  An address says where a block goes back.
 *
 * AddressSanitizer has operators of its own: with it there are none here. */
#define _GNU_SOURCE                       /* RTLD_NEXT */
#include "runtime/small.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

enum { BLOCK = 256, BLOCKS = 256 };

__attribute__((unused))
static _Alignas(64) char block[BLOCKS][BLOCK];
static _Atomic uint32_t below[BLOCKS];    /* 1 + the next free; 0: the last */
static _Atomic uint64_t top;              /* low half as below, high: changes */
static _Atomic int64_t missed;
static _Atomic bool opened;

static uint64_t top_after(uint64_t was, uint32_t now)
{
    return ((was >> 32) + 1) << 32 | now;
}

static void block_put(uint32_t i)
{
    uint64_t was = atomic_load(&top);
    do
        atomic_store(&below[i], (uint32_t)was);
    while (!atomic_compare_exchange_weak(&top, &was, top_after(was, i + 1)));
}

void dpc_small_open(void)
{
    if (!atomic_exchange(&opened, true))
        for (uint32_t i = BLOCKS; i-- > 0;)
            block_put(i);
}

int64_t dpc_small_bytes(void)
{
    return sizeof block + sizeof below;
}

int64_t dpc_small_missed(void)
{
    return atomic_load(&missed);
}

#ifdef __has_feature
#define HAS_ASAN __has_feature(address_sanitizer)
#elif defined __SANITIZE_ADDRESS__
#define HAS_ASAN 1
#else
#define HAS_ASAN 0
#endif

#if !HAS_ASAN
/* NULL: all are out. */
static void *block_take(void)
{
    uint64_t was = atomic_load(&top);
    uint32_t first;
    do {
        first = (uint32_t)was;
        if (!first)
            return NULL;
    } while (!atomic_compare_exchange_weak(
        &top, &was, top_after(was, atomic_load(&below[first - 1]))));
    return block[first - 1];
}

typedef void *New(size_t);
typedef void Delete(void *);
New operator_new __asm__("_Znwm");
Delete operator_delete __asm__("_ZdlPv");
void operator_delete_sized(void *, size_t) __asm__("_ZdlPvm");

void *operator_new(size_t n)
{
    static New *_Atomic next;
    void *p = n <= BLOCK ? block_take() : NULL;
    if (p)
        return p;
    if (atomic_load_explicit(&opened, memory_order_relaxed))
        atomic_fetch_add(&missed, 1);
    New *real = atomic_load(&next);
    if (!real && !(real = (New *)dlsym(RTLD_NEXT, "_Znwm")))
        real = malloc;
    atomic_store(&next, real);
    return real(n);
}

void operator_delete(void *p)
{
    static Delete *_Atomic next;
    size_t at = (uintptr_t)p - (uintptr_t)block;
    if (at < sizeof block) {
        block_put((uint32_t)(at / BLOCK));
        return;
    }
    Delete *real = atomic_load(&next);
    if (!real && !(real = (Delete *)dlsym(RTLD_NEXT, "_ZdlPv")))
        real = free;
    atomic_store(&next, real);
    real(p);
}

void operator_delete_sized(void *p, size_t n)
{
    (void)n;
    operator_delete(p);
}
#endif
