/* partition.c -- the plan enters the graph: its mesh, and a split for each
 * leaf that it names.
 *
 * The rest of the graph is left whole, behind a reshard after every split
 * leaf and before every set of one, so that the result is a right program
 * already; propagate then carries the splits inward. */
#include "passes/pass.h"

static const LeafPlan *plan_of(const Job *j, const Node *n)
{
    for (uint32_t i = 0; j->plan && i < j->plan->nleaf; i++)
        if (strcmp(j->plan->leaf[i].name, n->name) == 0)
            return &j->plan->leaf[i];
    return NULL;
}

static const char *first_name(const Mesh *m, Axes a)
{
    int i = 0;
    while (!(a >> i & 1))
        i++;
    return m->axis[i].name;
}

/* Steps name their turn by one number along all time axes, and a buffer its
 * slot; a value that varies along one of two would need a slot of its own. */
static void one_time_axis(const Mesh *m)
{
    Axes time = mesh_axes(m, TIME);
    if (time & (time - 1))
        err(NULL, "plan: the mesh has two time axes, \"%s\" and \"%s\"; make "
            "one of them", first_name(m, time),
            first_name(m, time & (Axes)(time - 1)));
}

static void set_splits(Type *t, const LeafPlan *p, const Mesh *m,
                       const Node *n)
{
    Axes used = 0;
    if (p->ndim != t->ndim)
        err(n->loc, "plan: \"%s\" has %d dimensions, the plan splits %d",
            n->name, t->ndim, p->ndim);
    for (int d = 0; d < t->ndim; d++) {
        if (split_axes(p->split[d]) & used)
            err(n->loc, "plan: \"%s\": axis \"%s\" splits two dimensions; keep "
                "one", n->name, first_name(m, split_axes(p->split[d]) & used));
        used |= split_axes(p->split[d]);
        Axes turns = split_axes(p->split[d]) & mesh_axes(m, TIME);
        if (turns && (n->op == OP_param || n->op == OP_state))
            err(n->loc, "plan: \"%s\" is the same in all turns and cannot be "
                "split along \"%s\"; only inputs can", n->name,
                first_name(m, turns));
        if (t->dim[d] % split_parts(m, p->split[d]))
            err(n->loc, "plan: dimension %d of \"%s\" is %lld, which %lld parts "
                "do not divide; change the batch or the number of ranks", d,
                n->name, (long long)t->dim[d],
                (long long)split_parts(m, p->split[d]));
        t->split[d] = p->split[d];
    }
}

static bool is_split(const Type *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->split[d])
            return true;
    return false;
}

static Ref reshard(Graph *g, Ref r, const Type *want, const char *loc)
{
    if (type_equal(&g->node[r].type, want))
        return r;
    Ref q = emit_typed(g, OP_reshard, NULL, *want, &r, 1, NULL, loc);
    g->node[q].segment = g->node[r].segment;
    g->node[q].scope = g->node[r].scope;
    return q;
}

Graph *pass_partition(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    Ref *leaf = alloc(j->scratch, (in->n + 1) * sizeof *leaf);
    if (j->plan) {
        one_time_axis(&j->plan->mesh);
        c.out->mesh = j->plan->mesh;
    }
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        const LeafPlan *p = ops[n->op].leaf ? plan_of(j, n) : NULL;
        leaf[r] = copy_node(&c, r);
        if (!p)
            continue;
        set_splits(&c.out->node[leaf[r]].type, p, &c.out->mesh, n);
        if (is_split(&c.out->node[leaf[r]].type))
            c.map[r] = reshard(c.out, leaf[r], &n->type, n->loc);
    }
    for (uint32_t i = 0; i < in->nset; i++) {
        Ref to = leaf[in->set[i].leaf];
        graph_set(c.out, to, reshard(c.out, c.map[in->set[i].value],
                                     &c.out->node[to].type,
                                     in->node[in->set[i].leaf].loc));
    }
    for (uint32_t i = 0; i < in->nout; i++)
        graph_out(c.out, in->out[i].name, c.map[in->out[i].ref]);
    return c.out;
}
