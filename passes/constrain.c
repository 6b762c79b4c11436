/* constrain.c -- values that the plan names are marked.
 *
 * A plan may say how a value between the leaves lies, by name: of its node,
 * or of a scope, which is the last node made in it.  The mark stands before
 * grad, so that a value's gradient is marked too; propagate turns both into
 * the wanted type.  This is the sharding constraint of GSPMD (Xu et al.,
 * 2021, section 3.5), with a gradient that may lie otherwise.
 *
 * "*" stands for any letters up to a dot, "**" for dots as well; "train:"
 * before a name means the values of that entry alone.
 *
 * A sum that is owed passes through what weights are added to, so the mark of
 * such a node stands on what its product made as well: else a layer's bias
 * would finish the sum before the constraint says where. */
#include "passes/pass.h"

static bool glob(const char *p, const char *s)
{
    while (*p && *p != '*') {
        if (*p++ != *s++)
            return false;
    }
    if (!*p)
        return !*s;
    bool dots = p[1] == '*';
    for (p += dots ? 2 : 1;; s++) {
        if (glob(p, s))
            return true;
        if (!*s || (*s == '.' && !dots))
            return false;
    }
}

/* Is r the last node of the scope that the first n letters of its own name? */
static bool ends_scope(const Graph *g, Ref r, size_t n)
{
    const char *own = g->node[r].scope;
    const char *next = r + 1 < g->n ? g->node[r + 1].scope : NULL;
    return !next || strncmp(own, next, n) != 0
        || (next[n] != 0 && next[n] != '.');
}

/* Does the pattern name node r?  `a` holds what is spelt here. */
static bool named(const Graph *g, Ref r, const char *pattern, Arena *a)
{
    const Node *n = &g->node[r];
    size_t entry = strcspn(pattern, ":");
    const char *scope = n->scope ? n->scope : "";
    if (pattern[entry]) {
        if (!g->entry || strlen(g->entry) != entry
            || strncmp(pattern, g->entry, entry) != 0)
            return false;
        pattern += entry + 1;
    }
    if (glob(pattern, *scope ? fmt(a, "%s.%s", scope, n->name) : n->name))
        return true;
    for (size_t len = strlen(scope); len && ends_scope(g, r, len);) {
        if (glob(pattern, fmt(a, "%.*s", (int)len, scope)))
            return true;
        while (len && scope[--len] != '.')
            ;
    }
    return false;
}

bool value_named(const Graph *g, Ref r, const char *pattern)
{
    Arena *a = arena_new();
    bool is = !ops[g->node[r].op].leaf && named(g, r, pattern, a);
    arena_free(a);
    return is;
}

/* By node: 1 + the plan's value that names it; the first one counts. */
static int *marks(const Graph *g, const Plan *plan, Arena *a)
{
    int *mark = alloc(a, (g->n + 1) * sizeof *mark);
    for (Ref r = 0; r < g->n; r++)
        for (uint32_t i = 0; i < plan->nvalue && !mark[r]; i++)
            if (!ops[g->node[r].op].leaf
                && named(g, r, plan->value[i].name, a))
                mark[r] = (int)i + 1;
    return mark;
}

static bool *of_weights(const Graph *g, Arena *a)
{
    bool *weight = alloc(a, g->n + 1);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        weight[r] = n->op == OP_param || n->op == OP_const || n->nin;
        for (int i = 0; i < n->nin; i++)
            weight[r] &= weight[n->in[i]];
    }
    return weight;
}

/* From a marked node back through what only adds weights to a value. */
static void mark_back(const Graph *g, int *mark, Arena *a)
{
    bool *weight = of_weights(g, a);
    uint32_t *uses = graph_uses(g, a);
    for (Ref r = g->n; r-- > 0;) {
        const Node *n = &g->node[r];
        if (!mark[r] || n->op != OP_add || weight[n->in[0]]
            == weight[n->in[1]])
            continue;
        Ref x = n->in[weight[n->in[0]]];
        if (!mark[x] && uses[x] == 1 && !ops[g->node[x].op].leaf)
            mark[x] = mark[r];
    }
}

Graph *pass_constrain(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    if (!j->plan || !j->plan->nvalue) {
        for (Ref r = 0; r < in->n; r++)
            copy_node(&c, r);
        return copy_end(&c);
    }
    int *mark = marks(in, j->plan, j->scratch);
    mark_back(in, mark, j->scratch);
    for (Ref r = 0; r < in->n; r++) {
        const Node *n = &in->node[r];
        Ref q = copy_node(&c, r);
        if (!mark[r])
            continue;
        Attr a = { .id = mark[r] - 1 };
        c.map[r] = EMIT(c.out, OP_constrain, &a, n->loc, q);
        c.out->node[c.map[r]].scope = n->scope;
        c.out->node[c.map[r]].stage = n->stage;
    }
    return copy_end(&c);
}
