/* comm_local.c -- threads of one process as ranks; also the world of one.
 *
 * A collective is two meetings.  Before the first, each member publishes its
 * operands; between them each computes its own part straight from the
 * others' memory; after the second, operands may change again.  In-place
 * folds read what others are writing, so where one works in place, all write to
 * a stage first: each owns one, grown by the first use of a larger count, so
 * a warm-up step pays.  Every sum is made in member order in f32
 * and rounded once: all ranks get the same bits, whatever the threads do.
 *
 * A transfer between two is a post (post.c).
 *
 * A link of some rate is modelled, not loaded: a transfer begins when the last
 * member has come and ends a latency and its bytes over the rate later, by
 * the clock.  The arithmetic is done meanwhile, as a network would. */
#include "runtime/comm_own.h"
#include "runtime/fold.h"
#include "runtime/rt.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Local Local;

/* Where the members of one group meet. */
typedef struct Meeting {
    int32_t size, arrived;
    uint64_t round;
    double done;                          /* when the transfer ends; 0: now */
    Local **member;                       /* [size], by index */
} Meeting;

struct Local {
    DpcComm comm;
    DpcLocal *world;
    Meeting *meet[DPC_NGROUP];
    DpcWire wire;                         /* what this rank published */
    int32_t color, key, value;
    DpcPosts posts;
    void *stage;                          /* results of a fold */
    size_t stage_bytes;
};

struct DpcLocal {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    int32_t size;
    _Atomic int32_t gone;                 /* who aborted, + 1 */
    double rate, latency;                 /* bytes a second, seconds; rate 0:
                                             no limit */
    Meeting all;
    Meeting **made;                       /* every other meeting */
    int32_t nmade;
    void *page, *post;                    /* post: of all pairs */
    Local *rank;                          /* [size] */
};

/* At once for 0. */
static void sleep_until(double at)
{
    struct timespec t = {(time_t)at, (long)((at - (double)(time_t)at) * 1e9)};
    while (at > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)
                     == EINTR)
        ;
}

/* Returns when all members of `m` have come; with the last a transfer
 * of so many bytes begins.  DPC_ENV once a rank gave up. */
static DpcStatus meet(Local *l, Meeting *m, int64_t bytes)
{
    DpcLocal *w = l->world;
    pthread_mutex_lock(&w->lock);
    uint64_t round = m->round;
    if (++m->arrived == m->size) {
        m->arrived = 0;
        m->done = w->rate > 0 ? dpc_now() + w->latency
                                + (double)bytes / w->rate : 0;
        m->round++;
        pthread_cond_broadcast(&w->bell);
    }
    while (m->round == round && !w->gone)
        pthread_cond_wait(&w->bell, &w->lock);
    int32_t gone = m->round == round ? w->gone : 0;
    pthread_mutex_unlock(&w->lock);
    if (gone)
        return dpc_fail(DPC_ENV, "rank %d: error: rank %d gave up",
                        l->comm.rank, gone - 1);
    return DPC_OK;
}

static int by_key(const void *a, const void *b)
{
    const Local *x = *(Local *const *)a, *y = *(Local *const *)b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->comm.rank - y->comm.rank;
}

/* The meeting of the ranks with the color of `l`, made by the first of them. */
static Meeting *meeting_new(DpcLocal *w, const Local *l)
{
    Meeting *m = calloc(1, sizeof *m);
    Local **member = calloc((size_t)w->size, sizeof *member);
    Meeting **made = realloc(w->made, sizeof *made * (size_t)(w->nmade + 1));
    if (made)
        w->made = made;
    if (!m || !member || !made) {
        free(m);
        free(member);
        return NULL;
    }
    for (int32_t i = 0; i < w->size; i++)
        if (w->rank[i].color == l->color)
            member[m->size++] = &w->rank[i];
    qsort(member, (size_t)m->size, sizeof *member, by_key);
    m->member = member;
    return w->made[w->nmade++] = m;
}

/* Rank 0 makes the meetings of all colors between two meetings of the world. */
static bool groups_make(DpcLocal *w, int32_t g)
{
    for (int32_t i = 0; i < w->size; i++)
        w->rank[i].meet[g] = NULL;
    for (int32_t i = 0; i < w->size; i++) {
        if (w->rank[i].meet[g])
            continue;
        Meeting *m = meeting_new(w, &w->rank[i]);
        if (!m)
            return false;
        for (int32_t j = 0; j < m->size; j++) {
            m->member[j]->meet[g] = m;
            m->member[j]->comm.members[g] = m->size;
            m->member[j]->comm.index[g] = j;
        }
    }
    return true;
}

static DpcStatus local_group(DpcComm *c, int32_t color, int32_t key,
                             int32_t *group)
{
    Local *l = (Local *)c;
    if (c->ngroup == DPC_NGROUP)
        return dpc_fail(DPC_BUG, "comm: error: more than %d groups of ranks",
                        DPC_NGROUP);
    int32_t g = *group = c->ngroup++;
    l->color = color;
    l->key = key;
    DpcStatus s = meet(l, &l->world->all, 0);
    if (!s && c->rank == 0 && !groups_make(l->world, g))
        l->world->gone = 1;
    if (!s)
        s = meet(l, &l->world->all, 0);
    return s;
}

static DpcStatus local_share(DpcComm *c, size_t bytes, void **page)
{
    Local *l = (Local *)c;
    if (c->rank == 0 && !(l->world->page = calloc(1, bytes)))
        return dpc_fail(DPC_MEMORY, "comm: error: no memory for %zu bytes",
                        bytes);
    DpcStatus s = meet(l, &l->world->all, 0);
    *page = l->world->page;
    return s;
}

static DpcStatus stage_grow(Local *l, size_t bytes)
{
    if (bytes <= l->stage_bytes)
        return DPC_OK;
    void *p = realloc(l->stage, bytes);
    if (!p)
        return dpc_fail(DPC_MEMORY, "comm: error: no memory for %zu bytes",
                        bytes);
    l->stage = p;
    l->stage_bytes = bytes;
    return DPC_OK;
}

enum { BLOCK = 1024 };

/* out = fold over members of their elements [at, at + n). */
static void fold_members(const Meeting *m, const DpcWire *w, int64_t at,
                         int64_t n, char *out)
{
    float sum[BLOCK];
    int64_t e = dpc_dtype_size(w->dtype);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t k = n - i < BLOCK ? n - i : BLOCK;
        const char *first = m->member[0]->wire.in;
        if (w->dtype == DPC_I32) {
            memcpy(out + i * e, first + (at + i) * e, (size_t)(k * e));
            for (int32_t j = 1; j < m->size; j++)
                dpc_fold_i32(w->fold, (int32_t *)(out + i * e),
                    (const int32_t *)m->member[j]->wire.in + at + i, k);
            continue;
        }
        dpc_fold_load(w->dtype, sum, first + (at + i) * e, k);
        for (int32_t j = 1; j < m->size; j++) {
            const char *p = m->member[j]->wire.in;
            dpc_fold_add(w->dtype, w->fold, sum, p + (at + i) * e, k);
        }
        dpc_fold_store(w->dtype, out + i * e, sum, k);
    }
}

/* Does a member write what others still read?  Known once all have come. */
static bool in_place(const Meeting *m)
{
    for (int32_t i = 0; i < m->size; i++)
        if (m->member[i]->wire.in == m->member[i]->wire.out)
            return true;
    return false;
}

/* A collective: all come, `part` computes this member's result, all leave. */
static DpcStatus exchange(Local *l, const DpcWire *w, int64_t bytes,
                          int64_t moved,
                          void (*part)(const Local *, const Meeting *,
                                       const DpcWire *, char *out))
{
    Meeting *m = l->meet[w->group];
    l->wire = *w;
    DpcStatus s = meet(l, m, moved);
    bool staged = !s && in_place(m);
    if (s || (staged && (s = stage_grow(l, (size_t)bytes))))
        return s;
    part(l, m, w, staged ? l->stage : w->out);
    sleep_until(m->done);
    if ((s = meet(l, m, 0)))
        return s;
    if (staged)
        memcpy(w->out, l->stage, (size_t)bytes);
    return DPC_OK;
}

static void fold_all(const Local *l, const Meeting *m, const DpcWire *w,
                     char *out)
{
    (void)l;
    fold_members(m, w, 0, w->count, out);
}

static void fold_own(const Local *l, const Meeting *m, const DpcWire *w,
                     char *out)
{
    fold_members(m, w, w->count * l->comm.index[w->group], w->count, out);
}

/* Block j of out comes from member j: its whole vector, */
static void join(const Local *l, const Meeting *m, const DpcWire *w, char *out)
{
    size_t n = (size_t)(w->count * dpc_dtype_size(w->dtype));
    (void)l;
    for (int32_t j = 0; j < m->size; j++)
        memcpy(out + (size_t)j * n, m->member[j]->wire.in, n);
}

/* or, for an exchange, its block for this rank. */
static void trade(const Local *l, const Meeting *m, const DpcWire *w,
                  char *out)
{
    size_t n = (size_t)(w->count * dpc_dtype_size(w->dtype));
    size_t from = (size_t)l->comm.index[w->group] * n;
    for (int32_t j = 0; j < m->size; j++)
        memcpy(out + (size_t)j * n,
               (const char *)m->member[j]->wire.in + from, n);
}

static int64_t wire_bytes(const DpcWire *w)
{
    return w->count * dpc_dtype_size(w->dtype);
}

static DpcStatus local_all_reduce(DpcComm *c, const DpcWire *w)
{
    int64_t n = c->members[w->group], bytes = wire_bytes(w);
    return exchange((Local *)c, w, bytes, 2 * bytes * (n - 1) / n, fold_all);
}

static DpcStatus local_reduce_scatter(DpcComm *c, const DpcWire *w)
{
    int64_t n = c->members[w->group], bytes = wire_bytes(w);
    return exchange((Local *)c, w, bytes, bytes * (n - 1), fold_own);
}

static DpcStatus local_all_gather(DpcComm *c, const DpcWire *w)
{
    int64_t n = c->members[w->group], bytes = wire_bytes(w);
    return exchange((Local *)c, w, bytes * n, bytes * (n - 1), join);
}

static DpcStatus local_all_to_all(DpcComm *c, const DpcWire *w)
{
    int64_t n = c->members[w->group], bytes = wire_bytes(w);
    return exchange((Local *)c, w, bytes * n, bytes * (n - 1), trade);
}

static int32_t local_rank(const DpcComm *c, int32_t group, int32_t member)
{
    return ((const Local *)c)->meet[group]->member[member]->comm.rank;
}

/* Between two ranks: the receiver waits as long as the link would take. */
static DpcStatus local_copy(DpcComm *c, int32_t rank, uint64_t from, void *to,
                            int64_t bytes)
{
    DpcLocal *w = ((Local *)c)->world;
    (void)rank;
    pthread_mutex_lock(&w->lock);
    double done = w->rate > 0 ? dpc_now() + w->latency
                                + (double)bytes / w->rate : 0;
    pthread_mutex_unlock(&w->lock);
    memcpy(to, (const void *)(uintptr_t)from, (size_t)bytes);
    sleep_until(done);
    return DPC_OK;
}

static DpcStatus local_exchange(DpcComm *c, const DpcHop *h, int32_t n)
{
    return dpc_posts_exchange(&((Local *)c)->posts, h, n);
}

static DpcStatus local_barrier(DpcComm *c)
{
    Local *l = (Local *)c;
    return meet(l, &l->world->all, 0);
}

static DpcStatus local_vote(DpcComm *c, int32_t *value)
{
    Local *l = (Local *)c;
    DpcLocal *w = l->world;
    l->value = *value;
    DpcStatus s = meet(l, &w->all, 0);
    if (s)
        return s;
    for (int32_t i = 0; i < w->size; i++)
        if (w->rank[i].value > *value)
            *value = w->rank[i].value;
    return meet(l, &w->all, 0);
}

static void local_abort(DpcComm *c, int code)
{
    DpcLocal *w = ((Local *)c)->world;
    (void)code;
    pthread_mutex_lock(&w->lock);
    if (!w->gone)
        w->gone = c->rank + 1;
    pthread_cond_broadcast(&w->bell);
    pthread_mutex_unlock(&w->lock);
    for (int32_t i = 0; i < w->size; i++)
        dpc_futex_wake(&((Local *)c)->posts.bell[i]);
}

static void local_close(DpcComm *c)
{
    Local *l = (Local *)c;
    free(l->stage);
    l->stage = NULL;
    l->stage_bytes = 0;
}

static void single_close(DpcComm *c)
{
    DpcLocal *w = ((Local *)c)->world;
    local_close(c);
    dpc_local_close(w);
}

#define LOCAL_OPS(label, ends) {                                         \
    .name = label, .group = local_group, .share = local_share,           \
    .all_reduce = local_all_reduce,                                      \
    .reduce_scatter = local_reduce_scatter,                              \
    .all_gather = local_all_gather, .all_to_all = local_all_to_all,      \
    .exchange = local_exchange, .barrier = local_barrier,                \
    .vote = local_vote,                                                  \
    .abort = local_abort, .close = ends,                                 \
}
static const DpcCommOps local_ops = LOCAL_OPS("local", local_close);
static const DpcCommOps single_ops = LOCAL_OPS("single", single_close);

static void rank_init(DpcLocal *w, int32_t i)
{
    Local *l = &w->rank[i];
    l->world = w;
    l->meet[0] = &w->all;
    w->all.member[i] = l;
    l->comm.ops = &local_ops;
    l->comm.rank = l->comm.local_rank = i;
    l->comm.size = l->comm.local_size = w->size;
    l->comm.ngroup = 1;
    l->comm.members[0] = w->size;
    l->comm.index[0] = i;
    l->posts = (DpcPosts){.comm = &l->comm, .gone = &w->gone,
                          .me = i, .rank = local_rank, .copy = local_copy};
    dpc_posts_place(&l->posts, w->post, w->size);
}

DpcStatus dpc_local_open(int32_t size, double bytes_per_s, DpcLocal **out,
                         DpcComm **comm)
{
    DpcLocal *w = calloc(1, sizeof *w);
    if (w) {
        w->rank = calloc((size_t)size, sizeof *w->rank);
        w->all.member = calloc((size_t)size, sizeof *w->all.member);
        w->post = calloc(1, dpc_posts_bytes(size));
    }
    if (!w || !w->rank || !w->all.member || !w->post) {
        dpc_local_close(w);
        return dpc_fail(DPC_MEMORY, "comm: error: no memory for %d ranks",
                        size);
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->bell, NULL);
    w->size = w->all.size = size;
    w->rate = bytes_per_s;
    for (int32_t i = 0; i < size; i++) {
        rank_init(w, i);
        comm[i] = &w->rank[i].comm;
    }
    *out = w;
    return DPC_OK;
}

void dpc_local_close(DpcLocal *w)
{
    if (!w)
        return;
    for (int32_t i = 0; i < w->nmade; i++) {
        free(w->made[i]->member);
        free(w->made[i]);
    }
    free(w->made);
    free(w->all.member);
    free(w->page);
    free(w->post);
    free(w->rank);
    free(w);
}

void dpc_local_link(DpcLocal *w, double bytes_per_s, double latency)
{
    pthread_mutex_lock(&w->lock);
    w->rate = bytes_per_s;
    w->latency = latency;
    pthread_mutex_unlock(&w->lock);
}

DpcStatus dpc_single_open(DpcComm **comm)
{
    DpcLocal *w;
    DpcStatus s = dpc_local_open(1, 0, &w, comm);
    if (!s)
        (*comm)->ops = &single_ops;
    return s;
}
