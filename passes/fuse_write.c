/* fuse_write.c -- the graph with its kernels labelled.
 *
 * A free node is copied for each kernel that reads it; what reads it from
 * memory reads the original, if there is one. */
#include "passes/fuse.h"

typedef struct Clone Clone;
struct Clone { Clone *next; int group; Ref ref; };

typedef struct Write {
    Fuse *f;
    Copy c;
    Clone **clone;                        /* by free node */
    int *kernel;                          /* by group: label + 1 */
    int next;
} Write;

static Ref written(Write *w, Ref r, int group, const Node *reader);

/* Where an operand of which only the shape is read is: a number of that shape,
 * which nobody computes, when it is in no memory. */
static Ref shape_written(Write *w, Ref r)
{
    const Node *n = &w->f->g->node[r];
    if (w->c.map[r] != NONE)
        return w->c.map[r];
    Ref q = emit_typed(w->c.out, OP_const, NULL, n->type, NULL, 0, NULL,
                       n->loc);
    w->c.out->node[q].loop = n->loop;
    return w->c.map[r] = q;
}

static Ref copy_mapped(Write *w, Ref r, int group, const Node *reader)
{
    const Node *n = &w->f->g->node[r];
    Ref *in = alloc(w->f->arena, (size_t)(n->nin + 1) * sizeof *in);
    Ref was = w->c.map[r];
    for (int i = 0; i < n->nin; i++)
        in[i] = op_unread(n->op, i) ? shape_written(w, n->in[i])
                                    : written(w, n->in[i], group, reader);
    Ref q = copy_node_in(&w->c, r, in, n->nin);
    Node *m = &w->c.out->node[q];
    m->layout = n->layout;
    if (m->again != NONE && w->c.out->node[m->again].op != m->op)
        m->again = NONE;                  /* of the first the shape is left */
    if (group >= 0) {
        m->kernel = w->kernel[group] - 1;
        if (fuse_free(w->f, r, node_phase(reader))) {
            w->c.map[r] = was;
            m->segment = reader->segment, m->loop = reader->loop;
            m->moment = reader->moment;
            m->stage = reader->stage, m->scope = reader->scope;
        }
    }
    return q;
}

/* Where operand r of a node of the group is: a free node is copied once for
 * each group that reads it. */
static Ref written(Write *w, Ref r, int group, const Node *reader)
{
    if (group < 0 || !fuse_free(w->f, r, node_phase(reader)))
        return w->c.map[r];
    for (Clone *c = w->clone[r]; c; c = c->next)
        if (c->group == group)
            return c->ref;
    Clone *c = alloc(w->f->arena, sizeof *c);
    c->ref = copy_mapped(w, r, group, reader);
    c->group = group;
    c->next = w->clone[r];
    return (w->clone[r] = c)->ref;
}

Graph *pass_fuse(const Graph *in, Job *j)
{
    Fuse *f = fuse_run(in, j);
    size_t n = in->n + 1;
    Write w = { f, copy_begin(in, j),
                alloc(f->arena, n * sizeof *w.clone),
                alloc(f->arena, n * sizeof *w.kernel), 0 };
    for (Ref r = 0; r < in->n; r++) {
        int group = f->kind[r] == PLAIN ? fuse_group(f, r) : -1;
        if (f->kind[r] == FREE)
            continue;
        int label = f->call[r] != NONE ? (int)f->call[r] : group;
        if (label >= 0 && !w.kernel[label])
            w.kernel[label] = ++w.next;
        Ref q = copy_mapped(&w, r, group, &in->node[r]);
        if (f->call[r] != NONE) {
            w.c.out->node[q].kernel = w.kernel[label] - 1;
            w.c.out->node[q].segment = f->g->node[r].segment;
        }
    }
    return copy_end(&w.c);
}
