/* comm_mpi.c -- ranks over MPI.
 *
 * Collectives are the non-blocking ones, awaited by testing and sleeping:
 * a blocking call spins, and a spinning wait on a core that computes halves
 * the compute.  The sleep begins at 50 us and grows to 200 us.  One thread
 * at a time calls MPI (MPI_THREAD_SERIALIZED): the streams that communicate
 * hold a lock while they start a transfer or test it.  bf16 is
 * a type of two bytes with user operations that fold in f32. */
#include "runtime/comm_own.h"
#include "runtime/fold.h"
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_NAP = 50000, LONGEST_NAP = 200000, CHUNK = 1 << 20,
       LARGE = 128 << 10, PIECE = 256 << 10, WINDOW = 4 };
enum { TAG_HOP, TAG_PIECE };

typedef struct Mpi {
    DpcComm comm;
    MPI_Comm group[DPC_NGROUP];
    MPI_Comm node;
    MPI_Datatype bf16;
    MPI_Op fold[2][3];                    /* [f32, bf16][DpcFold] */
    pthread_mutex_t lock;
    _Atomic int gone;                     /* exit code once we gave up */
    char piece[WINDOW][PIECE];            /* that come */
} Mpi;

static DpcStatus check(const Mpi *m, int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (rc == MPI_SUCCESS)
        return DPC_OK;
    MPI_Error_string(rc, text, &n);
    return dpc_fail(DPC_ENV, "rank %d: error: mpi %s: %.*s", m->comm.rank,
                    what, n, text);
}

/* What MPI is called for while another stream may call it, too. */
#define LOCKED(m, rc, call)                                              \
    do {                                                                 \
        pthread_mutex_lock(&(m)->lock);                                  \
        rc = call;                                                       \
        pthread_mutex_unlock(&(m)->lock);                                \
    } while (0)

/* Returns when all n of `r` are done, sleeping meanwhile. */
static DpcStatus await_all(Mpi *m, int rc, int n, MPI_Request *r,
                           const char *what)
{
    struct timespec nap = {0, FIRST_NAP};
    int done = 0;
    while (rc == MPI_SUCCESS) {
        LOCKED(m, rc, MPI_Testall(n, r, &done, MPI_STATUSES_IGNORE));
        if (done || rc != MPI_SUCCESS)
            break;
        if (atomic_load(&m->gone))
            return dpc_fail(DPC_ENV, "rank %d: error: gave up in mpi %s",
                            m->comm.rank, what);
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < LONGEST_NAP)
            nap.tv_nsec += FIRST_NAP;
    }
    return check(m, rc, what);
}

static DpcStatus await(Mpi *m, int rc, MPI_Request *r, const char *what)
{
    return await_all(m, rc, 1, r, what);
}

static MPI_Datatype type(const Mpi *m, int dtype)
{
    switch (dtype) {
    case DPC_F32: return MPI_FLOAT;
    case DPC_BF16: return m->bf16;
    case DPC_I32: return MPI_INT32_T;
    default: return MPI_UINT8_T;
    }
}

static MPI_Op fold(const Mpi *m, const DpcWire *w)
{
    if (w->dtype == DPC_I32 || (w->dtype == DPC_F32 && w->fold == DPC_SUM))
        return w->fold == DPC_SUM ? MPI_SUM : MPI_MAX;
    return m->fold[w->dtype == DPC_BF16][w->fold];
}

/* ---- user operations: inout = fold(in, inout) ---- */

static void fold_f32(int f, const float *in, float *inout, int n)
{
    for (int i = 0; i < n; i++)
        inout[i] = dpc_fold1(f, in[i], inout[i]);
}

DPC_VECTOR static void sum_bf16_all(const uint16_t *in, uint16_t *inout, int n)
{
    for (int i = 0; i < n; i++)
        inout[i] = dpc_bf16_round(dpc_bf16_load(in[i]) +
                                  dpc_bf16_load(inout[i]));
}

static void fold_bf16(int f, const uint16_t *in, uint16_t *inout, int n)
{
    if (f == DPC_SUM) {
        sum_bf16_all(in, inout, n);
        return;
    }
    for (int i = 0; i < n; i++)
        inout[i] = dpc_bf16_round(dpc_fold1(f, dpc_bf16_load(in[i]),
                                            dpc_bf16_load(inout[i])));
}

#define USER_OP(label, kind, f)                                          \
    static void label(void *in, void *inout, int *n, MPI_Datatype *t)    \
    {                                                                    \
        (void)t;                                                         \
        kind(f, in, inout, *n);                                          \
    }
USER_OP(sum_f32, fold_f32, DPC_SUM)
USER_OP(max_f32, fold_f32, DPC_MAX)
USER_OP(lse_f32, fold_f32, DPC_LSE)
USER_OP(sum_bf16, fold_bf16, DPC_SUM)
USER_OP(max_bf16, fold_bf16, DPC_MAX)
USER_OP(lse_bf16, fold_bf16, DPC_LSE)

static int ops_make(Mpi *m)
{
    static MPI_User_function *const fn[2][3] = {
        {sum_f32, max_f32, lse_f32}, {sum_bf16, max_bf16, lse_bf16}};
    int rc = MPI_Type_contiguous(2, MPI_BYTE, &m->bf16);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_commit(&m->bf16);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3 && rc == MPI_SUCCESS; j++)
            rc = MPI_Op_create(fn[i][j], 1, &m->fold[i][j]);
    return rc;
}

/* ---- collectives ---- */

static DpcStatus fits(int64_t count)
{
    if (count <= INT_MAX)
        return DPC_OK;
    return dpc_fail(DPC_USER, "comm: error: a transfer of %lld elements a "
                    "rank is more than mpi counts; split it in the plan",
                    (long long)count);
}

/* ---- large folds, part by part ----
 *
 * MPI's own send everything to one rank, which sends the parts back: on a link
 * that goes both ways at once, three times as long as when each rank sends
 * each other its part.  Several pieces under way keep the link busy while this
 * thread sleeps or folds. */

typedef struct Parts {
    Mpi *m;
    const DpcWire *w;
    int64_t part, pieces;                 /* elements; pieces of it */
    int32_t me, n;                        /* index, members */
    char *own;                            /* this rank's, folded in place */
    MPI_Request r[WINDOW][2];
} Parts;

/* Elements of the k-th piece that a rank sends, which come to lie at *at. */
static int piece_size(const Parts *p, int64_t k, int64_t *at)
{
    int64_t most = PIECE / dpc_dtype_size(p->w->dtype);
    *at = k % p->pieces * most;
    return (int)(p->part - *at < most ? p->part - *at : most);
}

/* To the next rank but some, from the last but as many. */
static int piece_begin(Parts *p, int64_t k)
{
    Mpi *m = p->m;
    int64_t at, e = dpc_dtype_size(p->w->dtype);
    int n = piece_size(p, k, &at), shift = (int)(k / p->pieces) + 1, rc;
    int to = (p->me + shift) % p->n, from = (p->me + p->n - shift) % p->n;
    MPI_Comm g = m->group[p->w->group];
    MPI_Request *r = p->r[k % WINDOW];
    const char *in = (const char *)p->w->in + (to * p->part + at) * e;
    r[0] = r[1] = MPI_REQUEST_NULL;
    LOCKED(m, rc, MPI_Irecv(m->piece[k % WINDOW], (int)(n * e), MPI_BYTE, from,
                            TAG_PIECE, g, &r[0]));
    if (rc == MPI_SUCCESS)
        LOCKED(m, rc, MPI_Isend(in, (int)(n * e), MPI_BYTE, to, TAG_PIECE, g,
                                &r[1]));
    return rc;
}

static void piece_fold(Parts *p, int64_t k)
{
    const DpcWire *w = p->w;
    int64_t at;
    int n = piece_size(p, k, &at);
    char *to = p->own + at * dpc_dtype_size(w->dtype);
    const void *from = p->m->piece[k % WINDOW];
    if (w->dtype == DPC_F32)
        dpc_fold_add(DPC_F32, w->fold, (float *)to, from, n);
    else if (w->dtype == DPC_BF16)
        fold_bf16(w->fold, from, (uint16_t *)to, n);
    else
        dpc_fold_i32(w->fold, (int32_t *)to, from, n);
}

/* Folds this rank's part of what all have at w->in into `own`, where it lies
 * already. */
static DpcStatus parts_fold(Mpi *m, const DpcWire *w, int64_t part, char *own)
{
    int64_t most = PIECE / dpc_dtype_size(w->dtype);
    Parts p = { .m = m, .w = w, .part = part, .own = own,
                .pieces = (part + most - 1) / most,
                .me = m->comm.index[w->group],
                .n = m->comm.members[w->group] };
    int64_t n = p.pieces * (p.n - 1), begun = 0;
    DpcStatus s = DPC_OK;
    for (int64_t k = 0; !s && k < n; k++) {
        int rc = MPI_SUCCESS;
        while (rc == MPI_SUCCESS && begun < n && begun < k + WINDOW)
            rc = piece_begin(&p, begun++);
        s = await_all(m, rc, 2, p.r[k % WINDOW], "fold");
        if (!s)
            piece_fold(&p, k);
    }
    return s;
}

static bool large(const Mpi *m, const DpcWire *w, int64_t part)
{
    return m->comm.members[w->group] > 1 && w->dtype != DPC_U8
        && part * dpc_dtype_size(w->dtype) >= LARGE;
}

static DpcStatus large_reduce_scatter(Mpi *m, const DpcWire *w)
{
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    char *mine = (char *)w->in + m->comm.index[w->group] * bytes;
    char *own = w->in == w->out ? mine : w->out;
    if (own != mine)
        memcpy(own, mine, (size_t)bytes);
    DpcStatus s = parts_fold(m, w, w->count, own);
    if (!s && own != w->out)
        memmove(w->out, own, (size_t)bytes);
    return s;
}

static DpcStatus mpi_all_gather(DpcComm *, const DpcWire *);

/* What does not divide is left to MPI. */
static DpcStatus large_all_reduce(Mpi *m, const DpcWire *w, int64_t *done)
{
    int64_t part = w->count / m->comm.members[w->group];
    int64_t bytes = part * dpc_dtype_size(w->dtype);
    int64_t at = m->comm.index[w->group] * bytes;
    char *own = (char *)w->out + at;
    if (w->in != w->out)
        memcpy(own, (const char *)w->in + at, (size_t)bytes);
    DpcStatus s = parts_fold(m, w, part, own);
    DpcWire parts = { .dtype = w->dtype, .group = w->group, .count = part,
                      .in = own, .out = w->out };
    *done = part * m->comm.members[w->group];
    return s ? s : mpi_all_gather(&m->comm, &parts);
}

/* In chunks that stay in cache: 59 ms became 13 for 32 MiB between two ranks
 * of a node; several under way at a time were slower. */
static DpcStatus mpi_all_reduce(DpcComm *c, const DpcWire *w)
{
    Mpi *m = (Mpi *)c;
    int64_t e = dpc_dtype_size(w->dtype);
    DpcStatus s = DPC_OK;
    int64_t at = 0;
    if (large(m, w, w->count / c->members[w->group]))
        s = large_all_reduce(m, w, &at);
    for (; !s && at < w->count; at += CHUNK) {
        int64_t n = w->count - at < CHUNK ? w->count - at : CHUNK;
        const char *in = (const char *)w->in + at * e;
        MPI_Request r;
        int rc;
        LOCKED(m, rc, MPI_Iallreduce(w->in == w->out ? MPI_IN_PLACE : in,
            (char *)w->out + at * e, (int)n, type(m, w->dtype), fold(m, w),
            m->group[w->group], &r));
        s = await(m, rc, &r, "all_reduce");
    }
    return s;
}

static DpcStatus mpi_reduce_scatter(DpcComm *c, const DpcWire *w)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r;
    DpcStatus s = fits(w->count);
    if (s)
        return s;
    if (large(m, w, w->count))
        return large_reduce_scatter(m, w);
    int rc;
    LOCKED(m, rc, MPI_Ireduce_scatter_block(
        w->in == w->out ? MPI_IN_PLACE : w->in, w->out, (int)w->count,
        type(m, w->dtype), fold(m, w), m->group[w->group], &r));
    return await(m, rc, &r, "reduce_scatter");
}

/* A part that lies inside `out` is first moved to its place there. */
static DpcStatus mpi_all_gather(DpcComm *c, const DpcWire *w)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r;
    DpcStatus s = fits(w->count);
    if (s)
        return s;
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    char *own = (char *)w->out + c->index[w->group] * bytes;
    uintptr_t in = (uintptr_t)w->in, out = (uintptr_t)w->out;
    bool inside = in >= out &&
        in < out + (uintptr_t)(bytes * c->members[w->group]);
    if (inside && own != w->in)
        memmove(own, w->in, (size_t)bytes);
    int rc;
    LOCKED(m, rc, MPI_Iallgather(inside ? MPI_IN_PLACE : w->in, (int)w->count,
        type(m, w->dtype), w->out, (int)w->count, type(m, w->dtype),
        m->group[w->group], &r));
    return await(m, rc, &r, "all_gather");
}

static DpcStatus mpi_all_to_all(DpcComm *c, const DpcWire *w)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r;
    DpcStatus s = fits(w->count);
    if (s)
        return s;
    int rc;
    LOCKED(m, rc, MPI_Ialltoall(w->in == w->out ? MPI_IN_PLACE : w->in,
        (int)w->count, type(m, w->dtype), w->out, (int)w->count,
        type(m, w->dtype), m->group[w->group], &r));
    return await(m, rc, &r, "all_to_all");
}

static DpcStatus mpi_exchange(DpcComm *c, const DpcHop *h, int32_t n)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r[DPC_NHOP];
    int rc = MPI_SUCCESS;
    for (int32_t i = 0; i < n; i++) {
        DpcStatus s = fits(h[i].bytes);
        if (s)
            return s;
    }
    pthread_mutex_lock(&m->lock);
    for (int32_t i = 0; i < n && rc == MPI_SUCCESS; i++)
        rc = h[i].send
            ? MPI_Isend(h[i].at, (int)h[i].bytes, MPI_BYTE, h[i].peer, TAG_HOP,
                        m->group[h[i].group], &r[i])
            : MPI_Irecv(h[i].at, (int)h[i].bytes, MPI_BYTE, h[i].peer, TAG_HOP,
                        m->group[h[i].group], &r[i]);
    pthread_mutex_unlock(&m->lock);
    return await_all(m, rc, n, r, "exchange");
}

static DpcStatus mpi_barrier(DpcComm *c)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r;
    return await(m, MPI_Ibarrier(m->group[0], &r), &r, "barrier");
}

static DpcStatus mpi_vote(DpcComm *c, int32_t *value)
{
    Mpi *m = (Mpi *)c;
    MPI_Request r;
    int rc = MPI_Iallreduce(MPI_IN_PLACE, value, 1, MPI_INT32_T, MPI_MAX,
                            m->group[0], &r);
    return await(m, rc, &r, "vote");
}

/* ---- the world ---- */

static DpcStatus mpi_group(DpcComm *c, int32_t color, int32_t key,
                           int32_t *group)
{
    Mpi *m = (Mpi *)c;
    if (c->ngroup == DPC_NGROUP)
        return dpc_fail(DPC_BUG, "comm: error: more than %d groups of ranks",
                        DPC_NGROUP);
    int32_t g = *group = c->ngroup;
    int size, index;
    int rc = MPI_Comm_split(m->group[0], color, key, &m->group[g]);
    if (rc != MPI_SUCCESS)
        return check(m, rc, "group");
    MPI_Comm_size(m->group[g], &size);
    MPI_Comm_rank(m->group[g], &index);
    c->members[g] = size;
    c->index[g] = index;
    c->ngroup++;
    return DPC_OK;
}

/* Maps the page that the node's first rank made; its name carries the pid
 * of that rank and is gone as soon as all have it. */
static void *page_map(Mpi *m, size_t bytes)
{
    int pid = (int)getpid();
    char name[32];
    MPI_Bcast(&pid, 1, MPI_INT, 0, m->node);
    snprintf(name, sizeof name, "/dpc-%d", pid);
    int first = m->comm.local_rank == 0;
    int fd = first ? shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600) : -1;
    int bad = first && (fd < 0 || ftruncate(fd, (off_t)bytes));
    MPI_Bcast(&bad, 1, MPI_INT, 0, m->node);
    if (!first && !bad)
        fd = shm_open(name, O_RDWR, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && !bad)
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MPI_Barrier(m->node);
    if (first && fd >= 0)
        shm_unlink(name);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static DpcStatus mpi_share(DpcComm *c, size_t bytes, void **page)
{
    Mpi *m = (Mpi *)c;
    *page = page_map(m, bytes);
    if (!*page)
        return dpc_fail(DPC_ENV, "rank %d: error: /dev/shm: no page of %zu "
                        "bytes for the ranks of this node", c->rank, bytes);
    return DPC_OK;
}

static void mpi_abort(DpcComm *c, int code)
{
    atomic_store(&((Mpi *)c)->gone, code ? code : 1);
}

/* After giving up MPI cannot be left in peace: it ends all ranks. */
static void mpi_close(DpcComm *c)
{
    Mpi *m = (Mpi *)c;
    if (atomic_load(&m->gone))
        MPI_Abort(m->group[0], atomic_load(&m->gone));
    for (int32_t g = 1; g < c->ngroup; g++)
        MPI_Comm_free(&m->group[g]);
    MPI_Comm_free(&m->group[0]);
    MPI_Comm_free(&m->node);
    for (int i = 0; i < 6; i++)
        MPI_Op_free(&m->fold[i / 3][i % 3]);
    MPI_Type_free(&m->bf16);
    MPI_Finalize();
    free(m);
}

static const DpcCommOps mpi_ops = {
    .name = "mpi", .group = mpi_group, .share = mpi_share,
    .all_reduce = mpi_all_reduce, .reduce_scatter = mpi_reduce_scatter,
    .all_gather = mpi_all_gather, .all_to_all = mpi_all_to_all,
    .exchange = mpi_exchange, .barrier = mpi_barrier, .vote = mpi_vote,
    .abort = mpi_abort, .close = mpi_close,
};

/* DPC_NODE=N: so many ranks count as a node, to try several on one. */
static int node_split(Mpi *m)
{
    const char *text = getenv("DPC_NODE");
    int n = text ? atoi(text) : 0;
    if (n > 0)
        return MPI_Comm_split(m->group[0], m->comm.rank / n, m->comm.rank,
                              &m->node);
    return MPI_Comm_split_type(m->group[0], MPI_COMM_TYPE_SHARED, 0,
                               MPI_INFO_NULL, &m->node);
}

static DpcStatus world_make(Mpi *m)
{
    int lr, ls, rc = MPI_Comm_dup(MPI_COMM_WORLD, &m->group[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(m->group[0], MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = node_split(m);
    if (rc == MPI_SUCCESS)
        rc = ops_make(m);
    if (rc != MPI_SUCCESS)
        return check(m, rc, "init");
    MPI_Comm_rank(m->node, &lr);
    MPI_Comm_size(m->node, &ls);
    m->comm.local_rank = lr;
    m->comm.local_size = ls;
    m->comm.ngroup = 1;
    m->comm.members[0] = m->comm.size;
    m->comm.index[0] = m->comm.rank;
    return DPC_OK;
}

DpcStatus dpc_mpi_open(DpcComm **out)
{
    DpcLaunch l = dpc_launch_detect();
    int level, rank, size;
    if (!l.by)
        return dpc_single_open(out);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level))
        return dpc_fail(DPC_ENV, "mpi: error: MPI_Init failed; see above");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != l.rank || size != l.size) {
        MPI_Finalize();
        return dpc_fail(DPC_ENV, "launch: error: %s says task %d of %d but "
            "MPI says %d of %d; start with the mpirun of the MPI library "
            "that this binary is linked with", l.by, l.rank, l.size, rank,
            size);
    }
    Mpi *m = calloc(1, sizeof *m);
    if (!m || level < MPI_THREAD_SERIALIZED) {
        free(m);
        return dpc_fail(DPC_ENV, "mpi: error: this MPI lets only its first "
                        "thread communicate (MPI_THREAD_SERIALIZED missing)");
    }
    pthread_mutex_init(&m->lock, NULL);
    m->comm.ops = &mpi_ops;
    m->comm.rank = rank;
    m->comm.size = size;
    DpcStatus s = world_make(m);
    const char *wish = getenv("DPC_COMM");
    *out = &m->comm;
    int32_t together = m->comm.local_size > 1;
    if (!s)
        s = mpi_vote(&m->comm, &together);
    if (s || !together || (wish && !strcmp(wish, "mpi")))
        return s;
    return dpc_node_open(&m->comm, out);
}
