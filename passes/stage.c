/* stage.c -- which stage of a pipeline works at each node.
 *
 * The plan names scopes; what stands in none of them follows: forward comes
 * after the latest of its operands, and what hangs on no data is EVERY stage's,
 * each makes it for itself.  `grad` gives what it makes the stage of the node
 * that it differentiates.  A leaf belongs where its name lies in a scope; a
 * moment or average ("adam.m.NAME") where its weight does.  The rest, all that
 * is added behind `grad`, goes where most of its operands is (hop.c). */
#include "passes/pass.h"

/* Does the scope hold the name?  The empty one holds all. */
static bool holds(const char *scope, const char *name)
{
    size_t n = strlen(scope);
    return strncmp(scope, name, n) == 0
        && (!n || !name[n] || name[n] == '.');
}

/* The stage of the innermost scope of the plan that holds the name; *depth,
 * which is raised, says how long its name is. */
static int stage_within(const Plan *p, const char *name, int *depth)
{
    int stage = EVERY;
    for (uint32_t i = 0; i < p->nscope; i++) {
        int n = (int)strlen(p->stage[i].scope);
        if (n > *depth && holds(p->stage[i].scope, name))
            *depth = n, stage = p->stage[i].stage;
    }
    return stage;
}

int plan_stage_of_leaf(const Plan *p, const char *name)
{
    int depth = -1, stage = EVERY;
    for (; name; name = strchr(name, '.'), name = name ? name + 1 : NULL) {
        int before = depth, s = stage_within(p, name, &depth);
        stage = depth > before ? s : stage;
    }
    return stage;
}

static bool is_kept(Op op)
{
    return op == OP_param || op == OP_state;
}

/* The latest stage of its operands. */
static int latest(const Graph *g, const Node *n)
{
    int s = EVERY;
    for (int i = 0; i < n->nin; i++)
        if (!op_unread(n->op, i) && g->node[n->in[i]].stage > s)
            s = g->node[n->in[i]].stage;
    return s;
}

typedef struct Label {
    Graph *g;
    const Plan *plan;
    bool *data, *behind;                  /* hangs on data or weights; on a
                                             gradient */
} Label;

static void label(Label *l, Ref r)
{
    Node *n = &l->g->node[r];
    int depth = -1;
    l->data[r] = n->op == OP_input || is_kept(n->op);
    l->behind[r] = n->op == OP_grad;
    for (int i = 0; i < n->nin; i++) {
        l->data[r] |= l->data[n->in[i]];
        l->behind[r] |= l->behind[n->in[i]];
    }
    if (is_kept(n->op))
        n->stage = plan_stage_of_leaf(l->plan, n->name);
    if (ops[n->op].leaf || l->behind[r] || !l->data[r])
        return;
    n->stage = stage_within(l->plan, n->scope, &depth);
    if (n->stage == EVERY)
        n->stage = latest(l->g, n);
}

Graph *pass_stage(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        copy_node(&c, r);
    Graph *g = copy_end(&c);
    const Plan *p = j->plan;
    if (!p || !p->nstage)
        return g;
    Label l = { g, p, alloc(j->scratch, g->n + 1),
                alloc(j->scratch, g->n + 1) };
    g->nstage = p->nstage, g->role_of = p->role_of;
    for (Ref r = 0; r < g->n; r++)
        label(&l, r);
    return g;
}
