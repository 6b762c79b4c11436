/* target.c -- what passes ask of the host and of a GPU: seconds and bytes.
 *
 * A kernel's seconds are its launch, plus its bytes through memory or its
 * flops, whichever takes longer.  The numbers are those of an ordinary
 * machine; they only have to order the choices of fuse and layout. */
#include "codegen/host.h"
#include "codegen/library.h"
#include <math.h>

static const Target host, cuda;

/* Matrices whose elements are neighbours along neither dimension are read
 * one by one. */
enum { WALK = 8 };

static bool strides_hurt(const DpcDot *d)
{
    return (d->a_m != 1 && d->a_k != 1 && d->m > 1 && d->k > 1)
        || (d->b_k != 1 && d->b_n != 1 && d->k > 1 && d->n > 1);
}

/* A contraction by the library, which stores the value of `end`: seconds, or
 * -1 when it cannot. */
static double library_seconds(const Target *t, const Graph *g, Ref r, Ref end)
{
    const Node *n = &g->node[r];
    const char *why;
    DpcDot dot;
    DpcConv conv;
    if (n->op == OP_dot ? !dot_describe(g, r, end, &dot, &why)
                          || (end != r && dpc_dot_scratch(&dot) < 0)
                        : !conv_describe(g, r, end, &conv, &why))
        return -1;
    double bytes = (double)type_bytes(&g->mesh, &g->node[end].type), slow = 1;
    if (n->op == OP_dot && strides_hurt(&dot))
        slow = WALK;
    for (int i = 0; i < n->nin; i++)
        bytes += (double)type_bytes(&g->mesh, &g->node[n->in[i]].type);
    return t->launch + bytes / t->bandwidth
        + slow * node_flops(g, r) / t->flops[g->node[n->in[0]].type.dtype];
}

/* Loop nests keep no operand in registers: far from the peak. */
enum { NEST = 20 };

static double seconds(const Target *t, const Graph *g, const Ref *r, int n,
                      const char **why)
{
    const Node *first = &g->node[r[0]];
    bool product = library_product(first);
    if (product) {
        double s = library_seconds(t, g, r[0], r[n - 1]);
        if (n > 1 && (s < 0 || t != &host)) {
            *why = "the library has no such call";
            return INFINITY;
        }
        if (s >= 0)
            return s;
    }
    ArenaMark mark = arena_mark(g->arena);
    const char *reason = NULL;
    Kernel *k = kernel_describe(g->arena, g, r, n, NULL, &reason);
    double s = INFINITY;
    if (k) {
        double move = kernel_traffic(k) / t->bandwidth;
        double work = kernel_work(k) * (product ? NEST : 1) / t->flops[F32];
        s = t->launch * (k->form == FORM_COLUMN ? 2 : 1)
            + (move > work ? move : work);
    }
    if (why)
        *why = reason;
    arena_rewind(g->arena, mark);
    return s;
}

static Load nest_load(const Graph *g, const Ref *r, int n,
                      const uint32_t *uses)
{
    Arena *a = arena_new();
    Kernel *k = kernel_describe(a, g, r, n, uses, NULL);
    Load l = { 0 };
    if (k)
        l = (Load){ kernel_traffic(k), kernel_work(k), host_points(k) };
    arena_free(a);
    return l;
}

static double host_cost(const Graph *g, const Ref *r, int n, const char **why)
{
    return seconds(&host, g, r, n, why);
}

static double cuda_cost(const Graph *g, const Ref *r, int n, const char **why)
{
    return seconds(&cuda, g, r, n, why);
}

/* Channels last, where the library has the convolution at all. */
static int host_layout(const Graph *g, Ref r)
{
    return ops[g->node[r].op].family == FAMILY_conv ? 231 : 0;
}

static int cuda_layout(const Graph *g, Ref r)
{
    (void)g, (void)r;
    return 0;
}

/* What the one convolution that reads a pack wants. */
static int64_t host_pack_bytes(const Graph *g, Ref r)
{
    const char *why;
    DpcConv conv;
    Ref reader = pack_reader(g, r);
    if (reader == NONE || !conv_describe(g, reader, call_end(g, reader),
                                                &conv, &why))
        die("%s: a pack that no convolution reads", g->node[r].name);
    return dpc_conv_pack_bytes(&conv);
}

static int64_t nest_scratch(const Graph *g, const Ref *r, int n,
                            const uint32_t *uses)
{
    Arena *a = arena_new();
    Kernel *k = kernel_describe(a, g, r, n, uses, NULL);
    int64_t bytes = k ? kernel_scratch(k) : 0;
    arena_free(a);
    return bytes;
}

static int place_in(const Ref *list, int n, Ref r)
{
    int i = 0;
    while (i < n && list[i] != r)
        i++;
    return i < n ? i : -1;
}

static bool nest_over(const Graph *g, const Ref *r, int n,
                      const uint32_t *uses, Ref in, Ref out)
{
    Arena *a = arena_new();
    Kernel *k = kernel_describe(a, g, r, n, uses, NULL);
    int from = k ? place_in(k->in, k->nin, in) : -1;
    int to = k ? place_in(k->out, k->nout, out) : -1;
    bool over = from >= 0 && to >= 0 && kernel_over(k, from, to);
    arena_free(a);
    return over;
}

static bool plain(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return n->kernel < 0 && (ops[n->op].family == FAMILY_collective
                             || ops[n->op].family == FAMILY_copy
                             || ops[n->op].family == FAMILY_hop);
}

static int64_t host_scratch(const Graph *g, const Ref *r, int n,
                            const uint32_t *uses)
{
    const Node *first = &g->node[r[0]];
    const char *why;
    DpcDot dot;
    DpcConv conv;
    if (first->op == OP_dot && dot_describe(g, r[0], r[n - 1], &dot, &why))
        return dpc_dot_scratch(&dot);
    if (ops[first->op].family == FAMILY_conv
        && conv_describe(g, r[0], r[n - 1], &conv, &why))
        return dpc_conv_scratch(&conv);
    return plain(g, r[0]) ? 0 : nest_scratch(g, r, n, uses);
}

static int64_t cuda_scratch(const Graph *g, const Ref *r, int n,
                            const uint32_t *uses)
{
    return plain(g, r[0]) ? 0 : nest_scratch(g, r, n, uses);
}

static const Target host = {
    .name = "host",
    .flops = { [F32] = 1e11, [BF16] = 2e11, [I32] = 2e10, [U8] = 2e10 },
    .bandwidth = 1e10,
    .launch = 4e-6,
    .cost = host_cost, .load = nest_load, .layout = host_layout,
    .shared = HOST_SHARED, .pack_bytes = host_pack_bytes,
    .scratch = host_scratch, .over = nest_over,
};

static const Target cuda = {
    .name = "cuda",
    .flops = { [F32] = 2e13, [BF16] = 4e14, [I32] = 1e13, [U8] = 1e13 },
    .bandwidth = 2e12,
    .launch = 4e-6,
    .cost = cuda_cost, .load = nest_load, .layout = cuda_layout,
    .scratch = cuda_scratch, .over = nest_over,
};

const Target *target_find(const char *name)
{
    return strcmp(name, "host") == 0 ? &host
         : strcmp(name, "cuda") == 0 ? &cuda : NULL;
}
