/* stage.c -- which stage of a pipeline works at each node.
 *
 * The plan names scopes; what stands in none of them follows: forward comes
 * after the latest of its operands, and what hangs on no data is EVERY stage's,
 * each makes it for itself.  `grad` gives what it makes the stage of the node
 * that it differentiates.  A leaf belongs where its name lies in a scope; a
 * moment or average ("adam.m.NAME") where its weight does.  The rest, all that
 * is added behind `grad`, goes where most of its operands is (hop.c). */
#include "passes/pass.h"
#include <stdlib.h>

/* The plan's scopes by name, each once. */
typedef struct Scopes { const StagePlan **at; uint32_t n; } Scopes;

static int by_name(const void *a, const void *b)
{
    const StagePlan *x = *(const StagePlan *const *)a;
    const StagePlan *y = *(const StagePlan *const *)b;
    return strcmp(x->scope, y->scope);
}

static Scopes scopes_of(const Plan *p, Arena *a)
{
    Scopes s = { alloc(a, (p->nscope + 1) * sizeof *s.at), p->nscope };
    for (uint32_t i = 0; i < p->nscope; i++)
        s.at[i] = &p->stage[i];
    qsort(s.at, s.n, sizeof *s.at, by_name);
    return s;
}

/* The stage of the scope that the first n letters of the name are; EVERY. */
static int stage_named(const Scopes *s, const char *name, int n)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const char *at = s->at[mid]->scope;
        int c = strncmp(at, name, (size_t)n);
        c = c ? c : at[n] != 0;
        if (!c)
            return s->at[mid]->stage;
        lo = c < 0 ? mid + 1 : lo;
        hi = c < 0 ? hi : mid;
    }
    return EVERY;
}

/* The stage of the innermost scope of the plan that holds the name; *depth,
 * which is raised, says how long its name is. */
static int stage_within(const Scopes *s, const char *name, int *depth)
{
    for (int n = (int)strlen(name); n > *depth; n--) {
        int stage = name[n] == 0 || name[n] == '.' || !n
            ? stage_named(s, name, n) : EVERY;
        if (stage == EVERY)
            continue;
        *depth = n;
        return stage;
    }
    return EVERY;
}

static int stage_of_leaf(const Scopes *p, const char *name)
{
    int depth = -1, stage = EVERY;
    for (; name; name = strchr(name, '.'), name = name ? name + 1 : NULL) {
        int s = stage_within(p, name, &depth);
        stage = s == EVERY ? stage : s;
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
    Scopes scopes;
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
        n->stage = stage_of_leaf(&l->scopes, n->name);
    if (ops[n->op].leaf || l->behind[r] || !l->data[r])
        return;
    n->stage = stage_within(&l->scopes, n->scope, &depth);
    if (n->stage == EVERY)
        n->stage = latest(l->g, n);
}

Graph *pass_stage(const Graph *in, Job *j)
{
    const Plan *p = j->plan;
    if (!p || !p->nstage)
        return copy_none(in);
    Graph *g = copy_whole(in, j);
    Label l = { g, scopes_of(p, j->scratch), alloc(j->scratch, g->n + 1),
                alloc(j->scratch, g->n + 1) };
    g->nstage = p->nstage, g->role_of = p->role_of;
    for (Ref r = 0; r < g->n; r++)
        label(&l, r);
    return g;
}
