/* regather.c -- weights that are gathered again where backward reads them.
 *
 * A weight whose parts lie on several ranks is gathered before it is used;
 * gathered once a step, it stays whole from its first reader in forward to
 * its last in backward.  Where the plan says `gather = "use"`, later segments
 * read clones of the gather and of what is made from it (casts, moves), one a
 * value and segment, so that the first dies in forward (Rajbhandari et al.,
 * "ZeRO", SC 2020, stage 3; recomputation where what is computed is a
 * transfer).  Half as much again is sent.  `order` lets few be gathered
 * ahead.  A step of several turns gathers twice, not twice a turn. */
#include "passes/pass.h"

typedef struct Again {
    Copy c;
    bool *whole;                          /* gathered, or made from such; */
    bool *early;                          /* and read up to forward */
    Ref *clone;                           /* node x segment; NONE: none yet */
} Again;

enum { NSEG = UPDATE + 1 };

/* Does it hang on parts of weights alone, and on no turn? */
static bool is_whole(const Again *a, Ref r)
{
    const Graph *g = a->c.in;
    const Node *n = &g->node[r];
    bool whole = n->op == OP_all_gather
        && !(n->attr.axes & mesh_axes(&g->mesh, TIME));
    for (int i = 0; i < n->nin; i++)
        whole |= a->whole[n->in[i]];
    return whole && n->segment == BEGIN && !n->loop;
}

static void find_whole(Again *a)
{
    const Graph *g = a->c.in;
    for (Ref r = 0; r < g->n; r++)
        a->whole[r] = is_whole(a, r);
    for (uint32_t i = 0; i < g->nset; i++)
        a->early[g->set[i].value] = true;
    for (uint32_t i = 0; i < g->nout; i++)
        a->early[g->out[i].ref] = true;
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; i < g->node[r].nin; i++)
            a->early[g->node[r].in[i]] |= a->whole[r]
                ? a->early[r] : g->node[r].segment <= FORWARD;
}

/* Node r for a reader in that segment; the first is no clone. */
static Ref remade(Again *a, Ref r, Segment segment)
{
    Ref *clone = &a->clone[(size_t)r * NSEG + segment], was = a->c.map[r];
    const Node *n = &a->c.in->node[r];
    if (!a->whole[r])
        return was;
    if (*clone != NONE)
        return *clone;
    Ref *in = alloc(a->c.out->arena, (size_t)(n->nin + 1) * sizeof *in);
    for (int i = 0; i < n->nin; i++)
        in[i] = remade(a, n->in[i], segment);
    *clone = copy_node_in(&a->c, r, in, n->nin);
    Node *m = &a->c.out->node[*clone];
    m->segment = segment;
    if (was == NONE)
        return *clone;
    m->again = was;
    m->name = fmt(a->c.out->arena, "%s.again", m->name);
    a->c.map[r] = was;
    return *clone;
}

Graph *pass_regather(const Graph *in, Job *j)
{
    Again a = { .c = copy_begin(in, j) };
    bool use = j->plan && j->plan->gather_use;
    a.whole = alloc(j->scratch, in->n + 1);
    a.early = alloc(j->scratch, in->n + 1);
    a.clone = alloc(j->scratch, ((size_t)in->n * NSEG + 1) * sizeof *a.clone);
    for (size_t i = 0; i < (size_t)in->n * NSEG; i++)
        a.clone[i] = NONE;
    if (use)
        find_whole(&a);
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        if (a.whole[r] && !a.early[r])
            continue;                     /* where it is read */
        Ref *x = alloc(j->scratch, (size_t)(n->nin + 1) * sizeof *x);
        for (int i = 0; i < n->nin; i++)
            x[i] = n->segment > FORWARD ? remade(&a, n->in[i], n->segment)
                 : a.c.map[n->in[i]];
        copy_node_in(&a.c, r, x, n->nin);
    }
    return copy_end(&a.c);
}
