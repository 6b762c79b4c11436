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

/* Does the pattern mean the n letters at s? */
static bool glob(const char *p, const char *s, size_t n)
{
    const char *end = s + n;
    while (*p && *p != '*') {
        if (s == end || *p++ != *s++)
            return false;
    }
    if (!*p)
        return s == end;
    bool dots = p[1] == '*';
    for (p += dots ? 2 : 1;; s++) {
        if (glob(p, s, (size_t)(end - s)))
            return true;
        if (s == end || (*s == '.' && !dots))
            return false;
    }
}

bool name_fits(const char *pattern, const char *name)
{
    return glob(pattern, name, strlen(name));
}

/* ---- the names of a plan's values, by their text ---- */

struct ValueNames {
    const Plan *plan;
    uint32_t *slot, cap;                  /* open hash table of names without a
                                             star: 1 + value; a power of two */
    uint32_t *star, nstar;                /* values whose names have one */
    Str text;                             /* "ENTRY:SCOPE.NAME" of a node */
    uint32_t *found, nfound;              /* values that name it */
};

static uint32_t hash(const char *s, size_t n)
{
    uint32_t h = 2166136261u;             /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

/* Where a name of n letters is, or would be. */
static uint32_t *slot_of(const ValueNames *v, const char *s, size_t n)
{
    for (uint32_t i = hash(s, n);; i++) {
        uint32_t *at = &v->slot[i & (v->cap - 1)];
        const char *name = *at ? v->plan->value[*at - 1].name : NULL;
        if (!name || (strncmp(name, s, n) == 0 && !name[n]))
            return at;
    }
}

ValueNames *value_names(const Plan *plan, Arena *a)
{
    ValueNames *v = alloc(a, sizeof *v);
    *v = (ValueNames){ .plan = plan, .cap = 16, .text = { .arena = a } };
    while (v->cap < 2 * plan->nvalue)
        v->cap *= 2;
    v->slot = alloc(a, v->cap * sizeof *v->slot);
    v->star = alloc(a, (plan->nvalue + 1) * sizeof *v->star);
    v->found = alloc(a, (plan->nvalue + 1) * sizeof *v->found);
    for (uint32_t i = plan->nvalue; i-- > 0;) {       /* the first counts */
        const char *name = plan->value[i].name;
        if (strchr(name, '*'))
            v->star[v->nstar++] = i;
        else
            *slot_of(v, name, strlen(name)) = i + 1;
    }
    return v;
}

static void found(ValueNames *v, uint32_t value)
{
    uint32_t i = v->nfound;
    for (; i && v->found[i - 1] >= value; i--)
        if (v->found[i - 1] == value)
            return;
    memmove(&v->found[i + 1], &v->found[i], (v->nfound++ - i) * sizeof i);
    v->found[i] = value;
}

/* Values that are called by the first n letters of s, which stands behind
 * `entry` letters that may stand before it, or be left out. */
static void find(ValueNames *v, const char *s, size_t n, size_t entry)
{
    uint32_t same[] = { *slot_of(v, s, n),
                        entry ? *slot_of(v, s - entry, n + entry) : 0 };
    for (int i = 0; i < COUNT(same); i++)
        if (same[i])
            found(v, same[i] - 1);
    for (uint32_t i = 0; i < v->nstar; i++) {
        const char *name = v->plan->value[v->star[i]].name;
        size_t own = strcspn(name, ":");
        bool here = !name[own] || (own + 1 == entry
                                   && strncmp(name, s - entry, entry) == 0);
        if (here && glob(name + (name[own] ? entry : 0), s, n))
            found(v, v->star[i]);
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

uint32_t values_naming(ValueNames *v, const Graph *g, Ref r,
                       const uint32_t **value)
{
    const Node *n = &g->node[r];
    const char *scope = n->scope ? n->scope : "";
    v->nfound = 0, v->text.n = 0;
    *value = v->found;
    if (ops[n->op].leaf || !v->plan->nvalue)
        return 0;
    str_add(&v->text, "%s:", g->entry ? g->entry : "");
    size_t entry = v->text.n;
    str_add(&v->text, "%s%s%s", scope, *scope ? "." : "", n->name);
    const char *s = v->text.p + entry;
    entry = g->entry ? entry : 0;
    find(v, s, v->text.n - (size_t)(s - v->text.p), entry);
    for (size_t len = strlen(scope); len && ends_scope(g, r, len);) {
        find(v, s, len, entry);
        while (len && scope[--len] != '.')
            ;
    }
    return v->nfound;
}

/* By node: 1 + the plan's value that names it; the first one counts. */
static int *marks(const Graph *g, const Plan *plan, Arena *a)
{
    int *mark = alloc(a, (g->n + 1) * sizeof *mark);
    ValueNames *v = value_names(plan, a);
    const uint32_t *value;
    for (Ref r = 0; r < g->n; r++)
        if (values_naming(v, g, r, &value))
            mark[r] = (int)value[0] + 1;
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
    if (!j->plan || !j->plan->nvalue)
        return copy_none(in);
    Copy c = copy_begin(in, j);
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
