/* regather.c -- weights that are whole only while they are read.
 *
 * A weight whose parts lie on several ranks is gathered before it is used;
 * gathered once a step, it stays whole from its first reader in forward to
 * its last in backward.  Where the plan says `gather = "batch"`, it is gathered
 * in every turn for both; where it says "use", each segment has a gather of
 * its own, and casts and moves of what was gathered, right before the first
 * reader and again in every turn: the others are clones of the first
 * (Rajbhandari et al., "ZeRO", SC 2020, stage 3; recomputation where what is
 * computed is a transfer).  `order` lets few be whole ahead. */
#include "passes/pass.h"

typedef struct Again {
    Copy c;
    bool *whole;                          /* gathered, or made from such */
    Ref *made;                            /* node x segment; NONE: not yet */
    bool batch;                           /* backward reads forward's */
} Again;

enum { NSEG = UPDATE + 1 };

/* Does it hang on parts of weights alone, and on no turn?  Then it works in
 * BEGIN; only what trims a leaf is where its first reader is (trim.c). */
static bool is_whole(const Again *a, Ref r)
{
    const Graph *g = a->c.in;
    const Node *n = &g->node[r];
    bool whole = node_moves(g, r)
        || (n->op == OP_all_gather && node_over_ranks(g, n));
    for (int i = 0; i < n->nin; i++)
        whole |= a->whole[n->in[i]];
    return whole && (n->segment == BEGIN || n->op == OP_trim) && !n->loop
        && n->op != OP_send;
}

/* Does what was made serve a reader in those turns?  What is made anew in a
 * turn is there in that turn alone. */
static bool serves(const Again *a, Ref made, Axes loop)
{
    return made != NONE && !(a->c.out->node[made].loop & (Axes)~loop);
}

/* Node r as a reader in that segment, in those turns, has it. */
static Ref made_for(Again *a, Ref r, Segment segment, Axes loop)
{
    if (a->batch && (segment == BACKWARD || segment == WEIGHT))
        segment = FORWARD;
    Ref *made = &a->made[(size_t)r * NSEG + segment], first = a->c.map[r];
    const Node *n = &a->c.in->node[r];
    if (!a->whole[r])
        return first;
    if (serves(a, *made, loop))
        return *made;
    Ref *in = alloc(a->c.out->arena, (size_t)(n->nin + 1) * sizeof *in);
    for (int i = 0; i < n->nin; i++)
        in[i] = made_for(a, n->in[i], segment, loop);
    *made = first == NONE ? copy_node_in(&a->c, r, in, n->nin)
                          : copy_again(&a->c, r, in, n->nin, segment);
    Node *m = &a->c.out->node[*made];
    m->segment = segment, m->loop = loop;
    return *made;
}

/* What is set or returned is there when the turns are over. */
static void make_last(Again *a, Ref r)
{
    if (!serves(a, a->c.map[r], 0))
        a->c.map[r] = made_for(a, r, UPDATE, 0);
}

static void copy_readers(Again *a, Arena *scratch)
{
    const Graph *g = a->c.in;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        Ref *x = alloc(scratch, (size_t)(n->nin + 1) * sizeof *x);
        for (int i = 0; i < n->nin && !a->whole[r]; i++) {
            Ref first = a->c.map[n->in[i]];   /* any will do for its shape */
            x[i] = op_unread(n->op, i) && first != NONE ? first
                 : made_for(a, n->in[i], n->segment, n->loop);
        }
        if (!a->whole[r])
            copy_node_in(&a->c, r, x, n->nin);
    }
    for (uint32_t i = 0; i < g->nset; i++)
        make_last(a, g->set[i].value);
    for (uint32_t i = 0; i < g->nout; i++)
        make_last(a, g->out[i].ref);
}

Graph *pass_regather(const Graph *in, Job *j)
{
    if (!j->plan || !j->plan->gather)
        return copy_none(in);
    Again a = { .c = copy_begin(in, j) };
    a.whole = alloc(j->scratch, in->n + 1);
    a.made = alloc(j->scratch, ((size_t)in->n * NSEG + 1) * sizeof *a.made);
    for (size_t i = 0; i < (size_t)in->n * NSEG; i++)
        a.made[i] = NONE;
    a.batch = j->plan->gather == GATHER_BATCH;
    for (Ref r = 0; r < in->n; r++)
        a.whole[r] = is_whole(&a, r);
    copy_readers(&a, j->scratch);
    return copy_end(&a.c);
}
