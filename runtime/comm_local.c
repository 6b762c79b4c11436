/* comm_local.c -- threads of one process as ranks; also the world of one.
 *
 * A collective is two meetings.  Before the first, each member publishes its
 * operands; between them each computes its own part straight from the
 * others' memory; after the second, operands may change again.  In-place
 * folds read what others are writing, so a fold writes to a stage first:
 * each member owns one, grown only while groups are made (`group` never
 * grows it; the first use of a larger count does, so a warm-up step pays).
 * Every sum is made in member order in f32 and rounded once: all ranks get
 * the same bits, whatever the threads do. */
#include "runtime/comm.h"
#include "runtime/fold.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Local Local;

/* Where the members of one group meet. */
typedef struct Meeting {
    int32_t size, arrived;
    uint64_t round;
    Local **member;                       /* [size], by index */
} Meeting;

struct Local {
    DpcComm comm;
    DpcLocal *world;
    Meeting *meet[DPC_NGROUP];
    DpcWire wire;                         /* what this rank published */
    int32_t color, key, value;
    void *stage;                          /* results of a fold */
    size_t stage_bytes;
};

struct DpcLocal {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    int32_t size, gone;                   /* gone: who aborted, + 1 */
    double rate;                          /* bytes a second; 0: no limit */
    Meeting all;
    Meeting **made;                       /* every other meeting */
    int32_t nmade;
    void *page;
    Local *rank;                          /* [size] */
};

/* Returns when all members of `m` have come.  DPC_ENV once a rank gave up. */
static DpcStatus meet(Local *l, Meeting *m)
{
    DpcLocal *w = l->world;
    pthread_mutex_lock(&w->lock);
    uint64_t round = m->round;
    if (++m->arrived == m->size) {
        m->arrived = 0;
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
    DpcStatus s = meet(l, &l->world->all);
    if (!s && c->rank == 0 && !groups_make(l->world, g))
        l->world->gone = 1;
    if (!s)
        s = meet(l, &l->world->all);
    return s;
}

static DpcStatus local_share(DpcComm *c, size_t bytes, void **page)
{
    Local *l = (Local *)c;
    if (c->rank == 0 && !(l->world->page = calloc(1, bytes)))
        return dpc_fail(DPC_MEMORY, "comm: error: no memory for %zu bytes",
                        bytes);
    DpcStatus s = meet(l, &l->world->all);
    *page = l->world->page;
    return s;
}

/* Lasts as long as `bytes` would take at the world's rate. */
static void throttle(const Local *l, int64_t bytes)
{
    if (l->world->rate <= 0)
        return;
    double s = (double)bytes / l->world->rate;
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
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

/* The fold of this member's `n` elements from `at` into w->out. */
static DpcStatus fold_part(Local *l, const DpcWire *w, int64_t at, int64_t n,
                           int64_t moved)
{
    Meeting *m = l->meet[w->group];
    int64_t e = dpc_dtype_size(w->dtype);
    DpcStatus s = stage_grow(l, (size_t)(n * e));
    if (s)
        return s;
    l->wire = *w;
    if ((s = meet(l, m)))
        return s;
    fold_members(m, w, at, n, l->stage);
    throttle(l, moved * e);
    if ((s = meet(l, m)))
        return s;
    memcpy(w->out, l->stage, (size_t)(n * e));
    return DPC_OK;
}

static DpcStatus local_all_reduce(DpcComm *c, const DpcWire *w)
{
    int64_t n = c->members[w->group];
    return fold_part((Local *)c, w, 0, w->count, 2 * w->count * (n - 1) / n);
}

static DpcStatus local_reduce_scatter(DpcComm *c, const DpcWire *w)
{
    return fold_part((Local *)c, w, w->count * c->index[w->group], w->count,
                     w->count * (c->members[w->group] - 1));
}

/* Block j of out comes from member j: its whole vector, or, for an exchange,
 * its block for this rank. */
static DpcStatus blocks(Local *l, const DpcWire *w, bool exchange)
{
    Meeting *m = l->meet[w->group];
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    int64_t from = exchange ? l->comm.index[w->group] * bytes : 0;
    DpcStatus s = stage_grow(l, (size_t)(bytes * m->size));
    if (s)
        return s;
    l->wire = *w;
    if ((s = meet(l, m)))
        return s;
    for (int32_t j = 0; j < m->size; j++)
        memcpy((char *)l->stage + j * bytes,
               (const char *)m->member[j]->wire.in + from, (size_t)bytes);
    throttle(l, bytes * (m->size - 1));
    if ((s = meet(l, m)))
        return s;
    memcpy(w->out, l->stage, (size_t)(bytes * m->size));
    return DPC_OK;
}

static DpcStatus local_all_gather(DpcComm *c, const DpcWire *w)
{
    return blocks((Local *)c, w, false);
}

static DpcStatus local_all_to_all(DpcComm *c, const DpcWire *w)
{
    return blocks((Local *)c, w, true);
}

static DpcStatus local_barrier(DpcComm *c)
{
    Local *l = (Local *)c;
    return meet(l, &l->world->all);
}

static DpcStatus local_vote(DpcComm *c, int32_t *value)
{
    Local *l = (Local *)c;
    DpcLocal *w = l->world;
    l->value = *value;
    DpcStatus s = meet(l, &w->all);
    if (s)
        return s;
    for (int32_t i = 0; i < w->size; i++)
        if (w->rank[i].value > *value)
            *value = w->rank[i].value;
    return meet(l, &w->all);
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
    .barrier = local_barrier, .vote = local_vote,                        \
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
}

DpcStatus dpc_local_open(int32_t size, double bytes_per_s, DpcLocal **out,
                         DpcComm **comm)
{
    DpcLocal *w = calloc(1, sizeof *w);
    if (w) {
        w->rank = calloc((size_t)size, sizeof *w->rank);
        w->all.member = calloc((size_t)size, sizeof *w->all.member);
    }
    if (!w || !w->rank || !w->all.member) {
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
    free(w->rank);
    free(w);
}

DpcStatus dpc_single_open(DpcComm **comm)
{
    DpcLocal *w;
    DpcStatus s = dpc_local_open(1, 0, &w, comm);
    if (!s)
        (*comm)->ops = &single_ops;
    return s;
}
