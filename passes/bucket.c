/* bucket.c -- launches that go as one.
 *
 * Collectives: gradients are finished in groups of some bytes, in the order
 * in which backward makes them, so that the first group is under way while
 * the next is computed (Li et al., PyTorch Distributed, VLDB 2020, section
 * 3.2.3).  Only collectives of one op, dtype and axes, over ranks and not
 * over turns, that run in the same turns, share a bucket.
 *
 * Hops: what a chunk of a pipeline makes for one role goes there at once, and
 * comes at once: one latency, and no end waits for the other value by value.
 *
 * Kernels: twins of the update (twins.c). */
#include "passes/order.h"
#include "passes/twins.h"
#include <stdlib.h>

typedef struct Cand { Ref r; uint32_t made; int64_t bytes; } Cand;

static int by_birth(const void *a, const void *b)
{
    const Cand *x = a, *y = b;
    return x->made != y->made ? (x->made > y->made) - (x->made < y->made)
         : (x->r > y->r) - (x->r < y->r);
}

static bool over_ranks(const Graph *g, const Node *n)
{
    return n->op == OP_all_reduce && node_over_ranks(g, n);
}

static bool deeper(int *to, int than)
{
    bool yes = than > *to;
    *to = yes ? than : *to;
    return yes;
}

/* Does a member of the open bucket feed r?  Then r cannot go with it.
 * depth[r] counts the collectives and the transfers on the longest way to r; a
 * kernel waits for all that any of its nodes reads, so all of them are as deep
 * as the deepest, which is found anew until nothing changes. */
static int *depths(const Graph *g, Arena *a)
{
    int *depth = alloc(a, (g->n + 1) * sizeof *depth);
    int *kernel = alloc(a, (g->n + 1) * sizeof *kernel);
    const Ref *before = transfers_before(g, a);
    for (bool more = true; more;) {
        more = false;
        for (Ref r = 0; r < g->n; r++) {
            const Node *n = &g->node[r];
            int d = n->kernel >= 0 ? kernel[n->kernel] : 0;
            for (int i = 0; i < n->nin; i++)
                deeper(&d, depth[n->in[i]]);
            if (before[r] != NONE)
                deeper(&d, depth[before[r]]);
            if (n->kernel >= 0)
                deeper(&kernel[n->kernel], d);
            bool sent = n->op == OP_send || n->op == OP_recv;
            more |= deeper(&depth[r], d + (over_ranks(g, n) || sent));
        }
    }
    return depth;
}

/* Of two places on the line of a pipeline's chunks?  Those wait for other roles
 * between: what is made once may come before all chunks, or behind them. */
static bool chunks_apart(const Graph *g, const int64_t *line, Ref a, Ref b)
{
    const Node *x = &g->node[a], *y = &g->node[b];
    return line && (line[a] != line[b] || x->segment != y->segment
                    || x->stage != y->stage);
}

static bool go_together(const Graph *g, const int *depth, const int64_t *line,
                        Ref a, Ref b)
{
    const Node *x = &g->node[a], *y = &g->node[b];
    return x->attr.axes == y->attr.axes && x->loop == y->loop
        && !chunks_apart(g, line, a, b)
        && x->type.dtype == y->type.dtype
        && x->type.fold == y->type.fold && depth[a] == depth[b]
        && g->node[x->in[0]].type.fold == g->node[y->in[0]].type.fold;
}

static void label_twins(Graph *g, const int *depth, int bucket, Arena *scratch)
{
    int *of = alloc(scratch, (g->n + 1) * sizeof *of);
    for (Ref r = 0; r < g->n; r++)
        of[r] = -1;
    twins_label(g, scratch, depth, bucket, of);
    for (Ref r = 0; r < g->n; r++)
        if (of[r] >= 0)
            g->node[r].bucket = of[r];
}

/* Ends of hops of one chunk between two roles, the same way.  Both roles find
 * the same: all that is asked of a hop is the same at its other end. */
static bool hop_together(const Graph *g, const int64_t *line, Ref a, Ref b)
{
    const Node *x = &g->node[a], *y = &g->node[b];
    const Attr *p = &x->attr, *q = &y->attr;
    return x->op == y->op && p->peer == q->peer && p->from == q->from
        && p->to == q->to && p->late == q->late && !p->at && !q->at
        && x->segment == y->segment && x->segment > BEGIN
        && x->loop == y->loop && line[a] == line[b];
}

/* A hop joins the first group that it fits and that has room. */
static int label_hops(Graph *g, const int64_t *line, int bucket, Arena *a)
{
    enum { MOST = 32 };                   /* the tables take twice as many */
    Ref *first = alloc(a, (g->n + 1) * sizeof *first);
    int *n = alloc(a, (g->n + 1) * sizeof *n), ngroup = 0;
    for (Ref r = 0; line && r < g->n; r++) {
        Node *x = &g->node[r];
        int k = 0;
        if (x->op != OP_send && x->op != OP_recv)
            continue;
        while (k < ngroup && !(n[k] < MOST
                               && hop_together(g, line, first[k], r)))
            k++;
        if (k == ngroup)
            first[ngroup] = r, n[ngroup++] = 0;
        else
            x->bucket = g->node[first[k]].bucket = bucket + k;
        n[k]++;
    }
    return bucket + ngroup;
}

enum { SHARES = 16, WORTH = 8 };

/* Bytes of a bucket: a share of all, so that the last one, which nothing is
 * left to hide, is small; but worth several times its latency, and no more
 * than the plan says. */
static int64_t bucket_bytes(const Job *j, const Cand *cand, int n)
{
    int64_t limit = j->plan ? j->plan->bucket : 0, share = 0, least = 0;
    const Cluster *c = j->cluster;
    for (int i = 0; i < n; i++)
        share += cand[i].bytes;
    if (c && c->nlevel) {
        const Level *v = &c->level[c->nlevel - 1];
        least = (int64_t)(WORTH * v->latency * v->bandwidth);
    }
    share /= SHARES;
    share = share > least ? share : least;
    return share < limit ? share : limit;
}

Graph *pass_bucket(const Graph *in, Job *j)
{
    Graph *g = copy_whole(in, j);
    Cand *cand = alloc(j->scratch, (in->n + 1) * sizeof *cand);
    int *depth = depths(in, j->scratch), n = 0, bucket = -1;
    int64_t bytes = 0, limit, *line = NULL;

    for (Ref r = 0; r < in->n; r++)
        if (over_ranks(in, &in->node[r]))
            cand[n++] = (Cand){ .r = r, .bytes = type_bytes(
                &in->mesh, &in->node[r].type) };
    const uint32_t *made = n || in->nstage ? order_places(g, j, &line) : NULL;
    for (int i = 0; i < n; i++)
        cand[i].made = made[in->node[cand[i].r].in[0]];
    qsort(cand, (size_t)n, sizeof *cand, by_birth);
    limit = bucket_bytes(j, cand, n);
    for (int i = 0; i < n; i++) {
        bool same = i && bytes + cand[i].bytes <= limit
            && go_together(in, depth, line, cand[i - 1].r, cand[i].r);
        bucket += !same;
        bytes = (same ? bytes : 0) + cand[i].bytes;
        g->node[cand[i].r].bucket = bucket;
    }
    bucket = label_hops(g, line, bucket + 1, j->scratch);
    label_twins(g, depth, bucket, j->scratch);
    return g;
}
