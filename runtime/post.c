/* post.c -- transfers between two ranks that share memory.
 *
 * Of each ordered pair of ranks there is one post.  The sender writes there
 * where its bytes lie and counts it up; the receiver copies them from there
 * and counts them as taken, and then the post is free for the next.  So a
 * transfer is a rendezvous, nothing is stored between, and what one rank
 * sends another comes in order.  Whoever changes a post rings the other's
 * bell, a counter to sleep on: a rank that exchanges several transfers has
 * one place to wait for all of them. */
#include "runtime/comm_own.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct DpcPost {
    _Atomic uint32_t posted, taken;       /* transfers so far */
    uint64_t from;                        /* of the one under way */
    int64_t bytes;
};

enum { NEW, POSTED, DONE, LOOKS = 200, ALIGN = 64 };

void dpc_futex_wait(_Atomic uint32_t *at, uint32_t value)
{
    const struct timespec limit = {0, 50000000};
    syscall(SYS_futex, at, FUTEX_WAIT, value, &limit, NULL, 0);
}

void dpc_futex_wake(_Atomic uint32_t *at)
{
    syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static size_t bells_bytes(int32_t size)
{
    size_t n = (size_t)size * sizeof(_Atomic uint32_t);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t dpc_posts_bytes(int32_t size)
{
    return bells_bytes(size) + (size_t)size * (size_t)size * sizeof(DpcPost);
}

void dpc_posts_place(DpcPosts *p, void *memory, int32_t size)
{
    p->size = size;
    p->bell = memory;
    p->post = (DpcPost *)((char *)memory + bells_bytes(size));
}

static void ring(const DpcPosts *p, int32_t rank)
{
    atomic_fetch_add(&p->bell[rank], 1);
    dpc_futex_wake(&p->bell[rank]);
}

static DpcPost *post_of(const DpcPosts *p, int32_t from, int32_t to)
{
    return &p->post[(size_t)from * (size_t)p->size + (size_t)to];
}

/* Puts it up where the post is free; is over once it was taken. */
static int send_on(const DpcPosts *p, const DpcHop *h, int32_t to, int state)
{
    DpcPost *q = post_of(p, p->me, to);
    uint32_t posted = atomic_load(&q->posted);
    if (atomic_load(&q->taken) != posted)
        return state;
    if (state == POSTED)
        return DONE;
    q->from = (uint64_t)(uintptr_t)h->at;
    q->bytes = h->bytes;
    atomic_store(&q->posted, posted + 1);
    ring(p, to);
    return POSTED;
}

static DpcStatus take_on(const DpcPosts *p, const DpcHop *h, int32_t from,
                         uint8_t *state)
{
    DpcPost *q = post_of(p, from, p->me);
    uint32_t taken = atomic_load(&q->taken);
    if (atomic_load(&q->posted) == taken)
        return DPC_OK;
    if (q->bytes != h->bytes)
        return dpc_fail(DPC_BUG, "rank %d: internal error: number %d "
            "sends %lld bytes where %lld are awaited", p->comm->rank, from,
            (long long)q->bytes, (long long)h->bytes);
    DpcStatus s = p->copy(p->comm, from, q->from, h->at, h->bytes);
    if (s)
        return s;
    atomic_store(&q->taken, taken + 1);
    ring(p, from);
    *state = DONE;
    return DPC_OK;
}

/* Is there an earlier one the same way that is not over? */
static bool behind(const DpcHop *h, const uint8_t *state, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (state[k] != DONE && h[k].send == h[i].send
            && h[k].peer == h[i].peer && h[k].group == h[i].group)
            return true;
    return false;
}

/* One look at all that are not over.  *left: how many are not then; *moved:
 * something changed. */
static DpcStatus look(const DpcPosts *p, const DpcHop *h, int32_t n,
                      uint8_t *state, int32_t *left, bool *moved)
{
    *left = 0, *moved = false;
    for (int32_t i = 0; i < n; i++) {
        if (state[i] == DONE)
            continue;
        int32_t other = p->rank(p->comm, h[i].group, h[i].peer);
        uint8_t was = state[i];
        *left += 1;
        if (behind(h, state, i))
            continue;
        if (h[i].send)
            state[i] = (uint8_t)send_on(p, &h[i], other, was);
        DpcStatus s = h[i].send ? DPC_OK : take_on(p, &h[i], other, &state[i]);
        if (s)
            return s;
        *moved |= state[i] != was;
        *left -= state[i] == DONE;
    }
    return DPC_OK;
}

DpcStatus dpc_posts_exchange(const DpcPosts *p, const DpcHop *h, int32_t n)
{
    uint8_t state[DPC_NHOP] = {NEW};
    _Atomic uint32_t *bell = &p->bell[p->me];
    for (int looks = 0;; looks++) {
        uint32_t rung = atomic_load(bell);
        int32_t left;
        bool moved;
        DpcStatus s = look(p, h, n, state, &left, &moved);
        if (s || !left)
            return s;
        int32_t gone = atomic_load(p->gone);
        if (gone)
            return dpc_fail(DPC_ENV, "rank %d: error: rank %d gave up",
                            p->comm->rank, gone - 1);
        if (!moved && looks > LOOKS)
            dpc_futex_wait(bell, rung);
    }
}
