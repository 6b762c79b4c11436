/* cuda_run.h -- CUDA text on a CPU: a block is fibers between barriers.
 *
 * One fiber a thread; each runs until it stands at a barrier, then the next
 * does, in one of two orders, so that what a missing barrier spoils is seen in
 * one of them.  All threads of a block must wait at the same line, or all be
 * done.  Shared memory holds NaN when a block begins.  For test programs. */
#ifndef CUDA_RUN_H
#define CUDA_RUN_H

#include "tests/unit/kernel_run.h"
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 1 << 16, THREADS = 64 };

typedef void CudaFn(void **, DpcEnv);

typedef struct Stack {
    ucontext_t at;
    const void *low;                      /* its first byte */
    size_t size;
    void *fake;                           /* ASan's, of frames that ended */
} Stack;

typedef struct Fiber {
    Stack stack;
    int line;                             /* of its barrier; 0 done */
} Fiber;

typedef struct Block {                    /* of one loaded text */
    void (*at)(long, long, long);
    void (*spoil)(void);
    Fiber fiber[THREADS];
    int current;
    Stack home;
    CudaFn *fn;
    void **p;
    const DpcEnv *env;
} Block;

static Block block;

/* Goes on in `to`, until somebody comes back; never when `from` is done.  ASan
 * has to know the stack, and warns of each swapcontext: getcontext and
 * setcontext are what that does. */
static void stack_switch(Stack *from, const Stack *to, bool done)
{
#ifdef __SANITIZE_ADDRESS__
    volatile bool back = false;
    __sanitizer_start_switch_fiber(done ? NULL : &from->fake, to->low,
                                   to->size);
    getcontext(&from->at);
    if (!back) {
        back = true;
        setcontext(&to->at);
    }
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#else
    (void)done;
    swapcontext(&from->at, &to->at);
#endif
}

/* The first that a fiber does; what it came from is home. */
static void stack_entered(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &block.home.low, &block.home.size);
#endif
}

static void block_barrier(int line)
{
    Fiber *f = &block.fiber[block.current];
    f->line = line;
    stack_switch(&f->stack, &block.home, false);
}

static void block_thread(void)
{
    stack_entered();
    Fiber *f = &block.fiber[block.current];
    block.fn(block.p, *block.env);
    f->line = 0;
    stack_switch(&f->stack, &block.home, true);
}

static void *symbol(void *lib, const char *name)
{
    void *s = dlsym(lib, name);
    assert_non_null(s);
    return s;
}

static void block_open(void *lib)
{
    void (*barrier)(int) = block_barrier;
    void *at = symbol(lib, "dpc_at"), *spoil = symbol(lib, "dpc_spoil");
    memcpy(&block.at, &at, sizeof at);
    memcpy(&block.spoil, &spoil, sizeof spoil);
    memcpy(symbol(lib, "dpc_barrier"), &barrier, sizeof barrier);
    assert_int_equal(*(const long *)symbol(lib, "dpc_block"), THREADS);
    for (int i = 0; i < THREADS && !block.fiber[i].stack.low; i++)
        block.fiber[i].stack = (Stack){ .low = malloc(STACK), .size = STACK };
}

static void block_start(int i)
{
    Stack *s = &block.fiber[i].stack;
    getcontext(&s->at);
    s->at.uc_stack.ss_sp = (void *)(uintptr_t)s->low;
    s->at.uc_stack.ss_size = s->size;
    s->at.uc_link = NULL;
    makecontext(&s->at, block_thread, 0);
}

/* Every thread up to its next barrier, or its end; false when all are done. */
static bool block_turn(long b, long grid, bool down)
{
    for (int k = 0; k < THREADS; k++) {
        int i = block.current = down ? THREADS - 1 - k : k;
        block.at(b, grid, i);
        stack_switch(&block.home, &block.fiber[i].stack, false);
    }
    int line = block.fiber[0].line;
    for (int i = 0; i < THREADS; i++)
        if (block.fiber[i].line != line)
            fail_msg("thread %d waits at line %d, thread 0 at %d", i,
                     block.fiber[i].line, line);
    return line != 0;
}

static void grid_run(CudaFn *fn, long grid, void **p, const DpcEnv *env,
                     bool down)
{
    block.fn = fn, block.p = p, block.env = env;
    for (long b = 0; b < grid; b++) {
        block.spoil();
        for (int i = 0; i < THREADS; i++)
            block_start(i);
        while (block_turn(b, grid, down))
            ;
    }
}

#endif
