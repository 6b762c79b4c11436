/* segment.c -- when each node works; derived, never declared.
 *
 *   BACKWARD  made by grad (labelled there); but a cast of a whole gradient
 *             for the update alone is the update's
 *   FORWARD   what a backward node needs, and what no gradient reaches
 *   UPDATE    what needs a backward node and is not needed by one; and what
 *             follows from weights and run-time numbers alone when only the
 *             update reads it: made early it would wait in memory
 *   BEGIN     the rest of what follows from weights and run-time numbers
 *             alone, once a step: casts and packs of weights
 *   WEIGHT    where the pipeline's order splits it off: contractions of which
 *             only the update reads, and what they alone feed
 *   INIT      what follows from constants and frozen weights alone, once a run
 *
 * INIT is not used yet: such values are made in BEGIN. */
#include "passes/chunk.h"

static bool *needed_by_backward(const Graph *g, Arena *a)
{
    bool *need = alloc(a, g->n + 1);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        bool pulls = need[r] || n->segment == BACKWARD;
        for (int i = 0; pulls && i < n->nin; i++)
            need[n->in[i]] = true;
    }
    return need;
}

static bool is_stored(const Node *n)
{
    return n->op == OP_param || n->op == OP_state || n->op == OP_scalar;
}

/* Begin what others begin with, or what runs once a turn reads. */
static void put_off(const Graph *g, Segment *s, Arena *a)
{
    bool *soon = alloc(a, g->n + 1);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        if (s[r] == BEGIN && !soon[r] && !is_stored(n)
            && n->segment == SEG_NONE)
            s[r] = UPDATE;
        for (int i = 0; s[r] != UPDATE && i < n->nin; i++)
            soon[n->in[i]] = true;
    }
}

/* The casts of whole gradients: with the rest of what reads them. */
static void leave_casts(const Graph *g, Segment *s, Arena *a)
{
    bool *other = alloc(a, g->n + 1);     /* read, but not by the update */
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        if (n->op == OP_cast && n->segment == BACKWARD && !other[r])
            s[r] = UPDATE;
        for (int i = 0; s[r] != UPDATE && i < n->nin; i++)
            other[n->in[i]] = true;
    }
}

static bool contracts(Op op)
{
    return op == OP_dot || ops[op].family == FAMILY_conv || op == OP_put;
}

static bool same_stage(const Node *a, const Node *b)
{
    return a->stage == EVERY || b->stage == EVERY || a->stage == b->stage;
}

/* Nothing in backward waits for them, so they fill a pipeline's gaps.  Sums
 * that share what they read with backward's kernels (gains, biases) stay. */
static void split_weights(const Graph *g, Segment *s, Arena *a)
{
    bool *further = alloc(a, g->n + 1);   /* a contraction, or another stage,
                                             hangs on it */
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        for (int i = 0; i < n->nin && s[r] == BACKWARD; i++)
            further[n->in[i]] |= further[r] || contracts(n->op)
                || !same_stage(n, &g->node[n->in[i]]);
    }
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool fed = contracts(n->op), other = false;
        for (int i = 0; i < n->nin; i++) {
            fed |= s[n->in[i]] == WEIGHT;
            other |= s[n->in[i]] == BACKWARD;
        }
        if (s[r] == BACKWARD && !further[r] && fed
            && (contracts(n->op) || !other))
            s[r] = WEIGHT;
    }
}

static bool of_the_step(const Node *n)
{
    return n->op == OP_input || n->op == OP_random;
}

Graph *pass_segment(const Graph *in, Job *j)
{
    bool *need = needed_by_backward(in, j->scratch);
    bool *after = alloc(j->scratch, in->n + 1);
    bool *data = alloc(j->scratch, in->n + 1);
    Segment *segment = alloc(j->scratch, (in->n + 1) * sizeof *segment);

    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Segment s = n->segment;
        after[r] = s == BACKWARD;
        data[r] = of_the_step(n);
        for (int i = 0; i < n->nin; i++) {
            after[r] |= after[n->in[i]];
            data[r] |= data[n->in[i]];
        }
        if (s == SEG_NONE)
            s = after[r] && !need[r] ? UPDATE : data[r] ? FORWARD : BEGIN;
        segment[r] = s;
    }
    put_off(in, segment, j->scratch);
    leave_casts(in, segment, j->scratch);
    if (j->plan && j->plan->nstage && order_splits(j->plan->pattern))
        split_weights(in, segment, j->scratch);
    Graph *g = copy_whole(in, j);
    for (Ref r = 0; r < in->n; r++)
        g->node[r].segment = segment[r];
    return g;
}
