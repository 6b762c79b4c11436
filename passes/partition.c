/* partition.c -- the plan enters the graph: its mesh, and a split for each
 * leaf that it names.
 *
 * The rest of the graph is left whole, behind a reshard after every split
 * leaf and before every set of one, so that the result is a right program
 * already; propagate then carries the splits inward. */
#include "passes/pass.h"
#include <stdlib.h>

/* The plan's leaves by name; of two of one name the first counts. */
typedef struct Index { const LeafPlan **leaf; uint32_t n; } Index;

static int by_name(const void *a, const void *b)
{
    const LeafPlan *x = *(const LeafPlan *const *)a;
    const LeafPlan *y = *(const LeafPlan *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static Index index_of(const Plan *p, Arena *a)
{
    Index x = { NULL, p ? p->nleaf : 0 };
    x.leaf = alloc(a, (x.n + 1) * sizeof *x.leaf);
    for (uint32_t i = 0; i < x.n; i++)
        x.leaf[i] = &p->leaf[i];
    qsort(x.leaf, x.n, sizeof *x.leaf, by_name);
    return x;
}

static const LeafPlan *plan_of(const Index *x, const Node *n)
{
    uint32_t lo = 0, hi = x->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (strcmp(x->leaf[mid]->name, n->name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool found = lo < x->n && strcmp(x->leaf[lo]->name, n->name) == 0;
    return found ? x->leaf[lo] : NULL;
}

static const char *first_name(const Mesh *m, Axes a)
{
    int i = 0;
    while (!(a >> i & 1))
        i++;
    return m->axis[i].name;
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
    Index plan = index_of(j->plan, j->scratch);
    Ref *leaf = alloc(j->scratch, (in->n + 1) * sizeof *leaf);
    if (j->plan) {
        c.out->mesh = j->plan->mesh;
    }
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        const LeafPlan *p = ops[n->op].leaf ? plan_of(&plan, n) : NULL;
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
