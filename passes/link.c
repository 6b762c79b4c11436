/* link.c -- seconds of a transfer, by the levels of the cluster.
 *
 * Ranks are numbered over the axes of the mesh, the first the major one, and
 * fill a cluster's levels from the inner one: the last axis lies inside of a
 * node as long as it fits.  A group of ranks so has n[l] members side by side
 * at level l.  A ring visits a block of a level before it leaves it, so that
 * all its members share the traffic to the next; each of its hops pays the
 * latency of the level that it crosses.  A tree crosses each level in log n
 * hops, and a nest of rings does each level by itself, on what the levels
 * below have left of the bytes (Thakur, Rabenseifner, Gropp, "Optimization of
 * Collective Communication Operations in MPICH", 2005; the numbers of trees
 * and of short messages are those of NCCL's src/graph/tuning.cc).  The
 * quickest counts: libraries choose, too. */
#include "passes/clock.h"
#include <math.h>

typedef struct Group {
    double n[NLEVEL], inside[NLEVEL];     /* members side by side; of a block
                                             of the level below */
    double ranks;
} Group;

/* Members of the first rank's group among the first `block` ranks. */
static double members(const Mesh *m, Axes axes, double block)
{
    double n = 1, stride = 1;
    for (int i = m->naxis - 1; i >= 0; i--) {
        if (m->axis[i].kind == TIME)
            continue;
        double fit = fmax(1, ceil(block / stride));
        if (axes >> i & 1)
            n *= fmin(m->axis[i].size, fit);
        stride *= m->axis[i].size;
    }
    return n;
}

static Group group_of(const Mesh *m, Axes axes, const Cluster *c)
{
    Group g = { .ranks = (double)mesh_size(m, axes) };
    double block = 1, inside = 1;
    for (int l = 0; l < c->nlevel; l++) {
        block *= c->level[l].fanout ? c->level[l].fanout : INFINITY;
        double all = l == c->nlevel - 1 ? g.ranks : members(m, axes, block);
        g.inside[l] = inside;
        g.n[l] = all / inside;
        inside = all;
    }
    return g;
}

/* What a rank of the group can send when each block shares its way out. */
static double ring_bandwidth(const Group *g, const Cluster *c)
{
    double least = INFINITY;
    for (int l = 0; l < c->nlevel; l++)
        if (g->n[l] > 1)
            least = fmin(least, c->level[l].bandwidth * g->inside[l]);
    return least;
}

/* Hops of one turn around that cross level l. */
static double ring_latency(const Group *g, const Cluster *c)
{
    double sum = 0;
    for (int l = 0; l < c->nlevel; l++)
        sum += (g->n[l] - 1) * g->ranks / (g->inside[l] * g->n[l])
            * c->level[l].latency;
    return sum;
}

static double tree_latency(const Group *g, const Cluster *c)
{
    double sum = 0;
    for (int l = 0; l < c->nlevel; l++)
        sum += (l ? ceil(log2(g->n[l])) : g->n[l] - 1) * c->level[l].latency;
    return sum;
}

/* `rounds` turns of (n - 1) / n of the bytes at each level. */
static double nest_seconds(const Group *g, const Cluster *c, double bytes,
                           double rounds, double quick, double slow)
{
    double sum = 0;
    for (int l = 0; l < c->nlevel; l++)
        sum += rounds * ((g->n[l] - 1) * quick * c->level[l].latency
            + (g->n[l] - 1) / g->n[l] * bytes / g->inside[l]
              / (slow * c->level[l].bandwidth));
    return sum;
}

/* Bytes: of the whole value.  A protocol has shares of latency and of
 * bandwidth: the usual one, and one of flags in the data ("LL"). */
static double rounds_seconds(const Group *g, const Cluster *c, double bytes,
                             double rounds)
{
    static const struct { double latency, bandwidth; } way[] = {
        { 1, 1 }, { 0.19, 0.5 } };
    static const double tree = 0.92;
    double best = INFINITY, part = (g->ranks - 1) / g->ranks * bytes;
    int ways = strcmp(c->target, "cuda") == 0 ? COUNT(way) : 1;
    for (int i = 0; i < ways; i++) {
        double b = ring_bandwidth(g, c) * way[i].bandwidth;
        double t = way[i].latency;
        best = fmin(best, rounds * (part / b + t * ring_latency(g, c)));
        best = fmin(best, nest_seconds(g, c, bytes, rounds, t,
                                       way[i].bandwidth));
        if (rounds > 1)
            best = fmin(best, rounds * (bytes / (tree * b)
                                        + t * tree_latency(g, c)));
    }
    return best;
}

/* Each rank sends each other one its part, all at once: the level that takes
 * longest, and a latency of each. */
static double exchange_seconds(const Group *g, const Cluster *c, double bytes)
{
    double most = 0, wait = 0;
    for (int l = 0; l < c->nlevel; l++) {
        double all = g->inside[l] * g->n[l];
        most = fmax(most, bytes * (all - g->inside[l]) / g->ranks
                          / c->level[l].bandwidth);
        wait += g->n[l] > 1 ? c->level[l].latency : 0;
    }
    return most + wait;
}

static bool point_to_point(Op op)
{
    return op == OP_send || op == OP_recv;
}

/* From one along the axes to the next: one message, over the outermost level
 * that lies between any two of them. */
static double next_seconds(const Graph *g, Axes axes, double bytes,
                           const Cluster *c)
{
    Group at = group_of(&g->mesh, axes, c);
    int l = c->nlevel - 1;
    while (l > 0 && axes && at.n[l] <= 1)
        l--;
    return c->level[l].latency + bytes / c->level[l].bandwidth;
}

static double whole_bytes(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    double in = (double)type_bytes(&g->mesh, &g->node[n->in[0]].type);
    double out = (double)type_bytes(&g->mesh, &n->type);
    return in > out ? in : out;
}

/* Rows that others hold, of the part that wants most of them. */
static int64_t halo_rows(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    const Type *have = &g->node[n->in[0]].type, *want = &n->type;
    int d = n->attr.dim;
    int64_t own = type_step(&g->mesh, have, d), most = 0;
    int64_t step = type_step(&g->mesh, want, d);
    for (int64_t i = 0; i < split_parts(&g->mesh, want->split[d]); i++) {
        int64_t from = i * step - want->lo[d], to = (i + 1) * step;
        from = from < 0 ? 0 : from, to += want->hi[d];
        to = to > want->dim[d] ? want->dim[d] : to;
        int64_t mine = from > i * own ? from : i * own;
        int64_t end = to < (i + 1) * own ? to : (i + 1) * own;
        int64_t rows = to - from - (end > mine ? end - mine : 0);
        most = rows > most ? rows : most;
    }
    return most;
}

/* Bytes that a rank sends: of the larger of operand and result, but for its
 * own part; a sum that all get is scattered and gathered. */
double transfer_bytes(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    if (point_to_point(n->op))
        return (double)type_bytes(&g->mesh, &n->type);
    if (n->op == OP_halo)
        return (double)(type_bytes(&g->mesh, &n->type) * halo_rows(g, r)
            / type_local(&g->mesh, &n->type).dim[n->attr.dim]);
    Axes space = n->attr.axes & mesh_axes(&g->mesh, SPACE);
    double ranks = (double)mesh_size(&g->mesh, space);
    double once = whole_bytes(g, r) * (ranks - 1) / ranks;
    return n->op == OP_all_reduce ? 2 * once : once;
}

double hops_seconds(const Graph *g, const Ref *r, int n, const Cluster *c)
{
    double bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += transfer_bytes(g, r[i]);
    return c && c->nlevel
        ? next_seconds(g, mesh_axes(&g->mesh, STAGE), bytes, c) : 0;
}

double transfer_seconds(const Graph *g, Ref r, const Cluster *c)
{
    if (!c || !c->nlevel)
        return 0;
    const Node *n = &g->node[r];
    if (point_to_point(n->op))
        return hops_seconds(g, &r, 1, c);
    Group at = group_of(&g->mesh, n->attr.axes, c);
    if (at.ranks <= 1)
        return 0;
    if (n->op == OP_ring || n->op == OP_halo)
        return next_seconds(g, n->attr.axes & mesh_axes(&g->mesh, SPACE),
                            transfer_bytes(g, r), c);
    double bytes = whole_bytes(g, r);
    if (n->op == OP_all_to_all)
        return exchange_seconds(&at, c, bytes);
    return rounds_seconds(&at, c, bytes, n->op == OP_all_reduce ? 2 : 1);
}
