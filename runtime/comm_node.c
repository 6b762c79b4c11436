/* comm_node.c -- ranks of one node, without MPI in the way.
 *
 * Where ranks are on one node, MPI only brings them together.  They meet
 * by counters in a shared page and sleep on them (futex), and read each
 * other's memory by process_vm_readv: one copy, from buffers that stay
 * private, so that the arena keeps its huge pages.  An all_reduce is two
 * halves: each member folds its part of all the others, then fetches theirs;
 * nobody writes what another still reads, so it works in place.  Vectors of
 * a page go through the shared page itself, with one meeting only: two places
 * a group in turn, since a rank two operations ahead proves that all others
 * are done with the first.  Against MPI with naps: 20 instead of 330 us for
 * small ones, and several times the rate for large ones.
 *
 * Folds go in member order in f32 and are rounded once: all ranks get the
 * same bits in every run.
 *
 * Of a group over several nodes an all_reduce has three parts: each member
 * folds its part of what its node has, the members at the same place of all
 * nodes sum that part by MPI, and each fetches the other parts on its node; so
 * a node's link carries each number once each way, whatever ranks it has
 * (Thakur et al. 2005).  A reduce_scatter is the first two of them and an
 * all_gather the last two, of the parts that are kept at that place.  This
 * wants as many members on each node.  All else between nodes is MPI's. */
#define _GNU_SOURCE                       /* process_vm_readv */
#include "runtime/comm_own.h"
#include "runtime/comm_part.h"
#include "runtime/fold.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 4096, BLOCK = 1 << 14, LOOKS = 200, ALIGN = 16 };
enum { WIDE = 1 << 20 };                  /* bytes */

/* What a rank shows of itself. */
typedef struct Shown {
    _Atomic uint32_t met[DPC_NGROUP];     /* meetings it came to */
    int32_t pid, color, key;
    uint64_t probe;                       /* address of a known number */
    struct { uint64_t in, out; } wire[DPC_NGROUP];
    char small[DPC_NGROUP][2][SMALL];
} Shown;

typedef struct Page {
    _Atomic int32_t gone;                 /* who gave up, + 1 */
    int32_t first;                        /* rank of the node's first */
    Shown rank[];                         /* of the node */
} Page;

typedef struct Node {
    DpcComm comm;
    DpcComm *mpi;                         /* owned */
    Page *page;
    size_t page_bytes;
    DpcPlace *place;                      /* of all ranks */
    DpcPart part[DPC_NGROUP];
    uint32_t round[DPC_NGROUP];
    DpcPosts posts;
    float *sum, *other;                   /* [BLOCK] */
    char *wide;                           /* [WIDE]: parts of several nodes */
} Node;

static const uint64_t known = 0x6470632d6e6f6465;

/* ---- meeting ---- */

/* Returns when *at has reached `round`; DPC_ENV once a rank gave up. */
static DpcStatus await(Node *n, _Atomic uint32_t *at, uint32_t round)
{
    for (int look = 0;; look++) {
        uint32_t v = atomic_load(at);
        if ((int32_t)(v - round) >= 0)
            return DPC_OK;
        int32_t gone = atomic_load(&n->page->gone);
        if (gone)
            return dpc_fail(DPC_ENV, "rank %d: error: rank %d gave up",
                            n->comm.rank, gone - 1);
        if (look > LOOKS)
            dpc_futex_wait(at, v);
    }
}

static DpcStatus meet(Node *n, int32_t g)
{
    Shown *me = &n->page->rank[n->comm.local_rank];
    uint32_t round = ++n->round[g];
    atomic_store(&me->met[g], round);
    dpc_futex_wake(&me->met[g]);
    DpcStatus s = DPC_OK;
    for (int32_t i = 0; !s && i < n->part[g].n; i++)
        s = await(n, &n->page->rank[n->part[g].rank[i]].met[g], round);
    return s;
}

/* ---- reading ---- */

static bool fetch(pid_t pid, uint64_t from, void *to, int64_t bytes)
{
    while (bytes > 0) {
        struct iovec l = {to, (size_t)bytes};
        struct iovec r = {(void *)(uintptr_t)from, (size_t)bytes};
        ssize_t k = process_vm_readv(pid, &l, 1, &r, 1, 0);
        if (k <= 0)
            return false;
        to = (char *)to + k;
        from += (uint64_t)k;
        bytes -= k;
    }
    return true;
}

/* Of a rank that died the watch knows more: it gets time to speak first. */
static DpcStatus unreadable(const Node *n, int32_t local)
{
    int32_t rank = 0;
    const struct timespec second = {1, 0};
    int why = errno;
    if (why == ESRCH)
        nanosleep(&second, NULL);
    while (n->place[rank].node != n->page->first
           || n->place[rank].local != local)
        rank++;
    return dpc_fail(DPC_ENV, "rank %d: error: the memory of rank %d cannot be "
        "read: %s%s", n->comm.rank, rank, strerror(why),
        why == ESRCH ? "; it died" : "; start with DPC_COMM=mpi");
}

/* `bytes` at `at` of what member i published: from our own memory without a
 * call. */
static DpcStatus take(const Node *n, const DpcWire *w, int32_t i, uint64_t base,
                      int64_t at, void *to, int64_t bytes)
{
    int32_t rank = n->part[w->group].rank[i];
    uint64_t from = base + (uint64_t)at;
    if (rank == n->comm.local_rank) {
        memmove(to, (const void *)(uintptr_t)from, (size_t)bytes);
        return DPC_OK;
    }
    return fetch(n->page->rank[rank].pid, from, to, bytes)
               ? DPC_OK : unreadable(n, rank);
}

static Shown *shown(const Node *n, const DpcWire *w, int32_t i)
{
    return &n->page->rank[n->part[w->group].rank[i]];
}

static void publish(Node *n, const DpcWire *w)
{
    Shown *me = &n->page->rank[n->comm.local_rank];
    me->wire[w->group].in = (uint64_t)(uintptr_t)w->in;
    me->wire[w->group].out = (uint64_t)(uintptr_t)w->out;
}

/* ---- folding ---- */

static void fold_in(const DpcWire *w, float *sum, const void *from, bool first,
                    int64_t k)
{
    if (w->dtype == DPC_I32 && first)
        memcpy(sum, from, (size_t)k * 4);
    else if (w->dtype == DPC_I32)
        dpc_fold_i32(w->fold, (int32_t *)sum, from, k);
    else if (first)
        dpc_fold_load(w->dtype, sum, from, k);
    else
        dpc_fold_add(w->dtype, w->fold, sum, from, k);
}

static void fold_out(const DpcWire *w, void *to, const float *sum, int64_t k)
{
    dpc_fold_store(w->dtype == DPC_I32 ? DPC_F32 : w->dtype, to, sum, k);
}

/* to = fold over members of their elements [at, at + count). */
static DpcStatus fold_part(Node *n, const DpcWire *w, int64_t at,
                           int64_t count, char *to)
{
    int64_t e = dpc_dtype_size(w->dtype);
    DpcStatus s = DPC_OK;
    for (int64_t i = 0; !s && i < count; i += BLOCK) {
        int64_t k = count - i < BLOCK ? count - i : BLOCK;
        for (int32_t m = 0; !s && m < n->part[w->group].n; m++) {
            const void *from = (const char *)w->in + (at + i) * e;
            if (m != n->part[w->group].me) {
                s = take(n, w, m, shown(n, w, m)->wire[w->group].in,
                         (at + i) * e, n->other, k * e);
                from = n->other;
            }
            if (!s)
                fold_in(w, n->sum, from, m == 0, k);
        }
        if (!s)
            fold_out(w, to + i * e, n->sum, k);
    }
    return s;
}

/* ---- collectives ---- */

/* Sums over the nodes what each has folded, in place. */
static DpcStatus outer_reduce(Node *n, const DpcWire *w, void *at,
                              int64_t count)
{
    DpcWire o = *w;
    o.group = n->part[w->group].outer;
    o.in = o.out = at, o.count = count;
    return o.group < 0 || !count ? DPC_OK
                                 : n->mpi->ops->all_reduce(n->mpi, &o);
}

static DpcStatus reduce_small(Node *n, const DpcWire *w)
{
    int32_t g = w->group, turn = n->round[g] & 1;
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    memcpy(n->page->rank[n->comm.local_rank].small[g][turn], w->in,
           (size_t)bytes);
    DpcStatus s = meet(n, g);
    if (s)
        return s;
    for (int32_t m = 0; m < n->part[g].n; m++)
        fold_in(w, n->sum, shown(n, w, m)->small[g][turn], m == 0, w->count);
    fold_out(w, w->out, n->sum, w->count);
    return outer_reduce(n, w, w->out, w->count);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static DpcStatus reduce_large(Node *n, const DpcWire *w)
{
    int32_t g = w->group, members = n->part[g].n, me = n->part[g].me;
    int64_t e = dpc_dtype_size(w->dtype);
    int64_t part = (w->count / members + ALIGN) / ALIGN * ALIGN;
    int64_t at = least(me * part, w->count);
    int64_t own = least(part, w->count - at);
    publish(n, w);
    DpcStatus s = meet(n, g);
    if (!s)
        s = fold_part(n, w, at, own, (char *)w->out + at * e);
    if (!s)
        s = outer_reduce(n, w, (char *)w->out + at * e, own);
    if (!s)
        s = meet(n, g);
    for (int32_t i = 1; !s && i < members; i++) {
        int32_t m = (me + i) % members;   /* not all from the same one */
        int64_t from = least(m * part, w->count);
        s = take(n, w, m, shown(n, w, m)->wire[g].out, from * e,
                 (char *)w->out + from * e,
                 least(part, w->count - from) * e);
    }
    return s ? s : meet(n, g);
}

static DpcStatus node_all_reduce(DpcComm *c, const DpcWire *w)
{
    Node *n = (Node *)c;
    bool small = w->count * dpc_dtype_size(w->dtype) <= SMALL;
    if (!n->part[w->group].whole && n->part[w->group].outer < 0)
        return n->mpi->ops->all_reduce(n->mpi, w);
    return small ? reduce_small((Node *)c, w) : reduce_large((Node *)c, w);
}

/* What the members at this place of all nodes are to have of this node's, a
 * slice at a time; then each of them gets its own of all nodes'. */
static DpcStatus scatter_over(Node *n, const DpcWire *w)
{
    const DpcPart *p = &n->part[w->group];
    int64_t e = dpc_dtype_size(w->dtype), slice = WIDE / e / p->nodes;
    publish(n, w);
    DpcStatus s = meet(n, w->group);
    for (int64_t i = 0; !s && i < w->count; i += slice) {
        int64_t k = least(slice, w->count - i);
        for (int32_t q = 0; !s && q < p->nodes; q++)
            s = fold_part(n, w, dpc_part_at(p, p->me, q) * w->count + i, k,
                          n->wide + q * k * e);
        DpcWire o = *w;
        o.group = p->outer, o.count = k;
        o.in = n->wide, o.out = (char *)w->out + i * e;
        s = s ? s : n->mpi->ops->reduce_scatter(n->mpi, &o);
    }
    return s ? s : meet(n, w->group);
}

static DpcStatus node_reduce_scatter(DpcComm *c, const DpcWire *w)
{
    Node *n = (Node *)c;
    if (w->in != w->out && n->part[w->group].outer >= 0)
        return scatter_over(n, w);
    if (w->in == w->out || !n->part[w->group].whole)
        return n->mpi->ops->reduce_scatter(n->mpi, w);
    publish(n, w);
    DpcStatus s = meet(n, w->group);
    if (!s)
        s = fold_part(n, w, w->count * c->index[w->group], w->count, w->out);
    return s ? s : meet(n, w->group);
}

/* Block m of out is member m's whole vector, or its block for this rank. */
static DpcStatus blocks(Node *n, const DpcWire *w, bool exchange)
{
    int32_t g = w->group, members = n->comm.members[g], me = n->comm.index[g];
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    publish(n, w);
    DpcStatus s = meet(n, g);
    for (int32_t i = 0; !s && i < members; i++) {
        int32_t m = (me + i) % members;
        s = take(n, w, m, shown(n, w, m)->wire[g].in,
                 exchange ? me * bytes : 0, (char *)w->out + m * bytes, bytes);
    }
    return s ? s : meet(n, g);
}

/* Each gets the parts of those at its place on all nodes, and then fetches what
 * the others of its node have got. */
static DpcStatus gather_over(Node *n, const DpcWire *w)
{
    const DpcPart *p = &n->part[w->group];
    int64_t e = dpc_dtype_size(w->dtype), bytes = w->count * e;
    int64_t slice = WIDE / e / p->nodes;
    DpcStatus s = DPC_OK;
    for (int64_t i = 0; !s && i < w->count; i += slice) {
        int64_t k = least(slice, w->count - i);
        DpcWire o = *w;
        o.group = p->outer, o.count = k;
        o.in = (const char *)w->in + i * e, o.out = n->wide;
        s = n->mpi->ops->all_gather(n->mpi, &o);
        for (int32_t q = 0; !s && q < p->nodes; q++)
            memcpy((char *)w->out + dpc_part_at(p, p->me, q) * bytes + i * e,
                   n->wide + q * k * e, (size_t)(k * e));
    }
    publish(n, w);
    s = s ? s : meet(n, w->group);
    for (int32_t i = 1; !s && i < p->n; i++)
        for (int32_t q = 0, m = (p->me + i) % p->n; !s && q < p->nodes; q++) {
            int64_t at = dpc_part_at(p, m, q) * bytes;
            s = take(n, w, m, shown(n, w, m)->wire[w->group].out, at,
                     (char *)w->out + at, bytes);
        }
    return s ? s : meet(n, w->group);
}

/* A part that lies in another's place in `out` is left to MPI. */
static DpcStatus node_all_gather(DpcComm *c, const DpcWire *w)
{
    Node *n = (Node *)c;
    int64_t bytes = w->count * dpc_dtype_size(w->dtype);
    uintptr_t in = (uintptr_t)w->in, out = (uintptr_t)w->out;
    uintptr_t own = out + (uintptr_t)(c->index[w->group] * bytes);
    uintptr_t end = out + (uintptr_t)(c->members[w->group] * bytes);
    bool apart = in != own && in < end && in + (uintptr_t)bytes > out;
    if (!apart && n->part[w->group].outer >= 0)
        return gather_over(n, w);
    if (apart || !n->part[w->group].whole)
        return n->mpi->ops->all_gather(n->mpi, w);
    return blocks(n, w, false);
}

static DpcStatus node_all_to_all(DpcComm *c, const DpcWire *w)
{
    Node *n = (Node *)c;
    return w->in == w->out || !n->part[w->group].whole
        ? n->mpi->ops->all_to_all(n->mpi, w) : blocks(n, w, true);
}

static DpcStatus node_copy(DpcComm *c, int32_t rank, uint64_t from, void *to,
                           int64_t bytes)
{
    Node *n = (Node *)c;
    return fetch(n->page->rank[rank].pid, from, to, bytes)
               ? DPC_OK : unreadable(n, rank);
}

static int32_t node_rank(const DpcComm *c, int32_t group, int32_t member)
{
    return ((const Node *)c)->part[group].rank[member];
}

static DpcStatus node_exchange(DpcComm *c, const DpcHop *h, int32_t n)
{
    Node *node = (Node *)c;
    bool here = true;
    for (int32_t i = 0; i < n; i++)
        here &= node->part[h[i].group].whole;
    return here ? dpc_posts_exchange(&node->posts, h, n)
                : node->mpi->ops->exchange(node->mpi, h, n);
}

static DpcStatus node_barrier(DpcComm *c)
{
    Node *n = (Node *)c;
    return n->part[0].whole ? meet(n, 0) : n->mpi->ops->barrier(n->mpi);
}

static DpcStatus node_vote(DpcComm *c, int32_t *value)
{
    const DpcWire w = {.dtype = DPC_I32, .fold = DPC_MAX, .count = 1,
                       .in = value, .out = value};
    Node *n = (Node *)c;
    return n->part[0].whole ? reduce_small(n, &w)
                            : n->mpi->ops->vote(n->mpi, value);
}

/* ---- the world ---- */

/* MPI's group of those at this rank's place on all nodes, if any group of the
 * world wants one: all ranks make it together. */
static DpcStatus outer_make(Node *n, DpcPart *p, int32_t color, int32_t key,
                            bool even)
{
    int32_t wants = !p->whole && even && p->n > 1, any = wants, outer;
    DpcStatus s = n->mpi->ops->vote(n->mpi, &any);
    if (s || !any)
        return s;
    int32_t place = wants ? p->me : 0;
    s = n->mpi->ops->group(n->mpi, color * n->comm.size + place, key, &outer);
    p->outer = !s && wants ? outer : -1;
    return s;
}

static DpcStatus node_group(DpcComm *c, int32_t color, int32_t key,
                            int32_t *group)
{
    Node *n = (Node *)c;
    DpcStatus s = n->mpi->ops->group(n->mpi, color, key, group);
    if (s)
        return s;
    int32_t g = *group, *list = calloc((size_t)c->size, sizeof *list);
    const DpcWire w = {.dtype = DPC_I32, .group = g, .count = 1,
                       .in = &c->rank, .out = list};
    bool even = false;
    c->members[g] = n->mpi->members[g];
    c->index[g] = n->mpi->index[g];
    if (list)
        s = n->mpi->ops->all_gather(n->mpi, &w);
    if (!s && (!list || !dpc_part_make(n->place, c->rank, list,
                                       c->members[g], &n->part[g], &even)))
        s = dpc_fail(DPC_MEMORY, "comm: error: no memory");
    if (!s)
        s = outer_make(n, &n->part[g], color, key, even);
    c->ngroup = n->mpi->ngroup;
    free(list);
    return s;
}

static DpcStatus node_share(DpcComm *c, size_t bytes, void **page)
{
    Node *n = (Node *)c;
    return n->mpi->ops->share(n->mpi, bytes, page);
}

static void node_abort(DpcComm *c, int code)
{
    Node *n = (Node *)c;
    int32_t nobody = 0;
    atomic_compare_exchange_strong(&n->page->gone, &nobody, c->rank + 1);
    n->mpi->ops->abort(n->mpi, code);
}

static void node_free(Node *n)
{
    for (int32_t g = 0; g < DPC_NGROUP; g++)
        dpc_part_free(&n->part[g]);
    free(n->place);
    if (n->page)
        munmap(n->page, n->page_bytes);
    free(n->sum);
    free(n->other);
    free(n->wide);
    free(n);
}

static void node_close(DpcComm *c)
{
    DpcComm *mpi = ((Node *)c)->mpi;
    node_free((Node *)c);
    mpi->ops->close(mpi);
}

static const DpcCommOps node_ops = {
    .name = "node", .group = node_group, .share = node_share,
    .all_reduce = node_all_reduce, .reduce_scatter = node_reduce_scatter,
    .all_gather = node_all_gather, .all_to_all = node_all_to_all,
    .exchange = node_exchange, .barrier = node_barrier, .vote = node_vote,
    .abort = node_abort, .close = node_close,
};

/* Whether each rank can read the memory of every other on its node; all get
 * one answer. */
static DpcStatus probe(Node *n, bool *can)
{
    Shown *me = &n->page->rank[n->comm.local_rank];
    uint64_t seen;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);   /* for Yama */
    me->pid = (int32_t)getpid();
    me->probe = (uint64_t)(uintptr_t)&known;
    DpcStatus s = n->mpi->ops->barrier(n->mpi);
    int32_t cannot = 0;
    for (int32_t i = 0; i < n->comm.local_size; i++) {
        const Shown *r = &n->page->rank[i];
        cannot |= !fetch(r->pid, r->probe, &seen, sizeof seen) ||
                  seen != known;
    }
    if (!s)
        s = n->mpi->ops->vote(n->mpi, &cannot);
    *can = !cannot;
    return s;
}

/* Where all ranks are, and what the world has on this node. */
static DpcStatus places_make(Node *n)
{
    int32_t size = n->comm.size;
    DpcPlace mine = {n->page->first, n->comm.local_rank};
    const DpcWire w = {.dtype = DPC_I32, .count = 2, .in = &mine,
                       .out = n->place};
    int32_t *list = calloc((size_t)size, sizeof *list);
    DpcStatus s = n->mpi->ops->all_gather(n->mpi, &w);
    bool even;
    for (int32_t i = 0; list && i < size; i++)
        list[i] = i;
    if (!s && (!list || !dpc_part_make(n->place, n->comm.rank, list,
                                       size, &n->part[0], &even)))
        s = dpc_fail(DPC_MEMORY, "comm: error: no memory");
    if (!s)
        s = outer_make(n, &n->part[0], 0, n->comm.rank, even);
    n->comm.ngroup = n->mpi->ngroup;
    free(list);
    return s;
}

static Node *node_new(DpcComm *mpi)
{
    Node *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->comm = *mpi;
    n->comm.ops = &node_ops;
    n->mpi = mpi;
    n->sum = malloc(BLOCK * sizeof *n->sum);
    n->other = malloc(BLOCK * sizeof *n->other);
    n->wide = malloc(WIDE);
    n->place = calloc((size_t)mpi->size, sizeof *n->place);
    if (n->sum && n->other && n->wide && n->place)
        return n;
    node_free(n);
    return NULL;
}

static DpcStatus page_open(Node *n)
{
    size_t shown = sizeof(Page) + sizeof(Shown) * (size_t)n->comm.local_size;
    shown = (shown + 63) / 64 * 64;
    n->page_bytes = shown + dpc_posts_bytes(n->comm.local_size);
    DpcStatus s = n->mpi->ops->share(n->mpi, n->page_bytes,
                                     (void **)&n->page);
    if (s)
        return s;
    if (n->comm.local_rank == 0)
        n->page->first = n->comm.rank;    /* seen behind the next barrier */
    n->posts = (DpcPosts){.comm = &n->comm, .gone = &n->page->gone,
                          .me = n->comm.local_rank, .rank = node_rank,
                          .copy = node_copy};
    dpc_posts_place(&n->posts, (char *)n->page + shown, n->comm.local_size);
    return DPC_OK;
}

DpcStatus dpc_node_open(DpcComm *mpi, DpcComm **out)
{
    Node *n = node_new(mpi);
    if (!n)
        return dpc_fail(DPC_MEMORY, "comm: error: no memory");
    bool can = false;
    DpcStatus s = page_open(n);
    if (!s)
        s = probe(n, &can);
    if (!s && can)
        s = places_make(n);
    if (s || !can) {
        node_free(n);
        *out = mpi;
        return s;
    }
    *out = &n->comm;
    return DPC_OK;
}
