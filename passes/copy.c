/* copy.c -- a pass reads one graph and writes another; these do the writing. */
#include "passes/pass.h"

Copy copy_begin(const Graph *in, Job *j)
{
    Copy c = { in, graph_new(j->keep, &in->mesh),
               alloc(j->scratch, (in->n + 1) * sizeof(Ref)) };
    c.out->ncap = in->n + in->n / 2 + 64; /* untouched room costs nothing */
    c.out->node = alloc_raw(j->keep, c.out->ncap * sizeof *c.out->node);
    c.out->entry = in->entry;
    c.out->phase = in->phase;
    c.out->nstage = in->nstage, c.out->role_of = in->role_of;
    c.out->nchunk = in->nchunk, c.out->chunk = in->chunk;
    c.out->role = in->role;
    c.out->remade = in->remade, c.out->remade_least = in->remade_least;
    for (Ref r = 0; r < in->n; r++)
        c.map[r] = NONE;
    return c;
}

Graph *copy_whole(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    Graph *g = c.out;
    memcpy(g->node, in->node, in->n * sizeof *g->node);
    g->n = in->n;
    for (Ref r = 0; r < in->n; r++)
        c.map[r] = r;
    return copy_end(&c);
}

Graph *copy_none(const Graph *in)
{
    return (Graph *)in;
}

Ref copy_node_in(Copy *c, Ref r, const Ref *in, int nin)
{
    Graph *g = c->out;
    Node n = c->in->node[r];
    n.in = alloc(g->arena, (size_t)(nin ? nin : 1) * sizeof *in);
    for (int i = 0; i < nin; i++)
        n.in[i] = in[i];
    n.nin = nin;
    if (n.again != NONE)
        n.again = c->map[n.again];
    GROW(g->arena, g->node, g->n, g->ncap);
    g->node[g->n] = n;
    return c->map[r] = g->n++;
}

Ref copy_node(Copy *c, Ref r)
{
    const Node *n = &c->in->node[r];
    Ref few[NIN], *in = few;
    if (n->nin > NIN)
        in = alloc(c->out->arena, (size_t)n->nin * sizeof *in);
    for (int i = 0; i < n->nin; i++)
        in[i] = c->map[n->in[i]];
    return copy_node_in(c, r, in, n->nin);
}

Ref copy_again(Copy *c, Ref r, const Ref *in, int nin, Segment segment)
{
    Ref first = c->map[r], q = copy_node_in(c, r, in, nin);
    Node *n = &c->out->node[q];
    n->again = first, n->segment = segment;
    n->name = fmt(c->out->arena, "%s.again", n->name);
    c->map[r] = first;
    return q;
}

Graph *copy_end(Copy *c)
{
    for (uint32_t i = 0; i < c->in->nset; i++)
        graph_set(c->out, c->map[c->in->set[i].leaf],
                  c->map[c->in->set[i].value]);
    for (uint32_t i = 0; i < c->in->nout; i++)
        graph_out(c->out, c->in->out[i].name, c->map[c->in->out[i].ref]);
    return c->out;
}
