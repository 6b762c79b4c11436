/* sched.c -- launches: which nodes run at once, and what flows between them. */
#include "ir/sched.h"

/* Leaves hold a value before the step begins. */
static bool launched(const Node *n)
{
    bool leaf = ops[n->op].leaf && n->kernel < 0;
    return !leaf && !node_is_view(n);
}

bool node_is_view(const Node *n)
{
    return n->kernel < 0 && n->op == OP_move;
}

bool node_is_spread(const Node *n)
{
    return n->op == OP_move && n->attr.sig[0] == '-';
}

bool node_aligned(const Graph *g, const Node *n)
{
    bool same = op_pointwise(n->op);
    for (int i = 0; same && i < n->nin; i++)
        same = g->node[n->in[i]].layout == n->layout
            && !node_is_view(&g->node[n->in[i]]);
    return same;
}

int64_t buf_place(const Buf *b, int instance)
{
    int slot = instance % b->slots;
    return b->place ? b->place[slot] : b->at + slot * b->stride;
}

Ref view_root(const Graph *g, Ref r)
{
    while (node_is_view(&g->node[r]))
        r = g->node[r].in[0];
    return r;
}

int64_t leaf_bytes(const Graph *g)
{
    int64_t n = 0;
    for (Ref r = 0; r < g->n; r++)
        if ((g->node[r].op == OP_param || g->node[r].op == OP_state)
            && g->node[r].place == DEVICE)
            n += type_bytes(&g->mesh, &g->node[r].type);
    return n;
}

bool node_over_ranks(const Graph *g, const Node *n)
{
    return op_collects(n->op)
        && (n->op == OP_ring
            || !(n->attr.axes & mesh_axes(&g->mesh, TIME)));
}

bool node_moves(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return n->op == OP_copy
        && g->node[view_root(g, n->in[0])].place != n->place;
}

/* What nodes of one launch share: bucket, else kernel, else nothing (-1). */
static int key_of(const Node *n)
{
    return n->bucket >= 0 ? 2 * n->bucket + 1 : n->kernel >= 0 ? 2 * n->kernel
         : -1;
}

static int max_key(const Graph *g)
{
    int max = -1;
    for (Ref r = 0; r < g->n; r++)
        if (key_of(&g->node[r]) > max)
            max = key_of(&g->node[r]);
    return max;
}

uint32_t launch_add(Sched *s, Arena *a, const Ref *node, int n)
{
    GROW(a, s->launch, s->nlaunch, s->launchcap);
    Launch *l = &s->launch[s->nlaunch];
    *l = (Launch){ .n = n };
    l->node = alloc(a, (size_t)(n ? n : 1) * sizeof *node);
    for (int i = 0; node && i < n; i++)
        l->node[i] = node[i];
    return s->nlaunch++;
}

Sched *sched_new(const Graph *g, Arena *a)
{
    Sched *s = alloc(a, sizeof *s);
    uint32_t *of = alloc(a, (g->n + 1) * sizeof *of), n = 0;
    uint32_t *of_key = alloc(a, (size_t)(max_key(g) + 2) * sizeof *of_key);
    int *size = alloc(a, (g->n + 1) * sizeof *size);

    for (Ref r = 0; r < g->n; r++) {
        int key = key_of(&g->node[r]);
        if (!launched(&g->node[r]))
            continue;
        of[r] = key >= 0 && of_key[key] ? of_key[key] - 1 : n++;
        if (key >= 0)
            of_key[key] = of[r] + 1;
        size[of[r]]++;
    }
    for (uint32_t l = 0; l < n; l++) {
        launch_add(s, a, NULL, size[l]);
        s->launch[l].n = 0;
    }
    for (Ref r = 0; r < g->n; r++)
        if (launched(&g->node[r])) {
            Launch *l = &s->launch[of[r]];
            l->node[l->n++] = r;
        }
    return s;
}

bool sched_transfers(const Sched *s)
{
    bool any = false;
    for (uint32_t k = 0; k < s->nstep && !any; k++)
        any = s->step[k].stream != 0;
    return any;
}

/* Which of the launch's nodes r is; -1: none. */
static int index_in(const Launch *l, Ref r)
{
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (l->node[mid] < r)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < l->n && l->node[lo] == r ? lo : -1;
}

/* Nodes met so far: a bit each, that of r modulo all bits.  One that is not
 * set tells without a look at them that r is new; few launches are so long that
 * it matters. */
enum { WORDS = 1024, LONG = 64 };
typedef struct Met { uint64_t word[WORDS]; uint32_t n; } Met;

static bool perhaps_met(Met *m, Ref r)
{
    uint64_t *word = &m->word[r / 64 % m->n], bit = 1ull << r % 64;
    bool met = *word & bit;
    *word |= bit;
    return met;
}

static int add_once(Ref *out, int n, int max, Ref r, Met *met)
{
    for (int i = perhaps_met(met, r) ? 0 : n; i < n; i++)
        if (out[i] == r)
            return n;
    if (n == max)
        die("a launch of more than %d operands", max);
    out[n] = r;
    return n + 1;
}

int launch_operands(const Graph *g, const Launch *l)
{
    int n = l->n;
    for (int i = 0; i < l->n; i++)
        n += g->node[l->node[i]].nin;
    return n;
}

int launch_inputs(const Graph *g, const Launch *l, Ref *out, int max)
{
    int n = 0;
    Met met;
    met.n = l->n > LONG ? WORDS : 1;
    memset(met.word, 0, met.n * sizeof *met.word);
    for (int i = 0; i < l->n; i++) {
        const Node *m = &g->node[l->node[i]];
        for (int k = 0; k < m->nin; k++)
            if (!op_unread(m->op, k) && index_in(l, m->in[k]) < 0)
                n = add_once(out, n, max, m->in[k], &met);
    }
    return n;
}

/* A node's value leaves the launch when it has more readers than inside.  They
 * are counted at the end of `out`, which is long enough: what is written at its
 * beginning never overtakes the counts that are still to be read. */
int launch_outputs(const Graph *g, const Launch *l, const uint32_t *uses,
                   Ref *out, int max)
{
    Ref *inside = out + (max - l->n);
    int n = 0, at;
    if (max < l->n)
        die("a launch of more than %d operands", max);
    memset(inside, 0, (size_t)l->n * sizeof *inside);
    for (int i = 0; i < l->n; i++) {
        const Node *m = &g->node[l->node[i]];
        for (int k = 0; k < m->nin; k++)
            if (!op_unread(m->op, k) && (at = index_in(l, m->in[k])) >= 0)
                inside[at]++;
    }
    for (int i = 0; i < l->n; i++)
        if (uses[l->node[i]] > inside[i])
            out[n++] = l->node[i];
    return n;
}

Axes node_along(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    Axes ends = 0;
    for (int i = 0; i < n->nin; i++)
        ends |= type_axes(&g->node[n->in[i]].type);
    return mesh_axes(&g->mesh, TIME)
        & (type_axes(&n->type) | (n->loop & (Axes)~ends));
}

int graph_turns(const Graph *g, Axes loop)
{
    return (int)mesh_size(&g->mesh, loop & mesh_axes(&g->mesh, TIME));
}

void turn_coord(const Mesh *m, int turn, int *coord)
{
    for (int i = m->naxis; i-- > 0;) {
        if (m->axis[i].kind != TIME)
            continue;
        coord[i] = turn % m->axis[i].size;
        turn /= m->axis[i].size;
    }
}

int turn_instance(const Mesh *m, Axes has, int turn)
{
    int coord[NAXIS] = {0}, instance = 0;
    turn_coord(m, turn, coord);
    for (int i = 0; i < m->naxis; i++)
        if (m->axis[i].kind == TIME && (has >> i & 1))
            instance = instance * m->axis[i].size + coord[i];
    return instance;
}
