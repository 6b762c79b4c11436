/* fuzz_stage.c -- pipelines by chance: two or three roles, the model's outer
 * scopes in a row cut anywhere into stages, these dealt round or thrown to
 * roles, any order.  A model that mixes its micro-batches is refused but by
 * GPipe, which is drawn more often. */
#include "compiler/verify.h"

/* The first part of a scope, of those that are met in the graph in turn. */
static const char **scopes_of(const Graph *g, Arena *a, uint32_t *n)
{
    const char **scope = NULL;
    uint32_t cap = 0;
    *n = 0;
    for (Ref r = 0; r < g->n; r++) {
        const char *s = g->node[r].scope;
        uint32_t k = 0;
        const char *first = fmt(a, "%.*s", (int)strcspn(s, "."), s);
        while (k < *n && strcmp(scope[k], first) != 0)
            k++;
        if (k < *n || !*first || ops[g->node[r].op].leaf)
            continue;
        GROW(a, scope, *n, cap);
        scope[(*n)++] = first;
    }
    return scope;
}

static void roles_draw(Draw *d, Plan *p, int roles, Arena *a)
{
    p->role_of = alloc(a, ((size_t)p->nstage + 1) * sizeof *p->role_of);
    bool thrown = p->nstage > roles && draw_below(d, 2);
    for (int s = 0; s < p->nstage; s++)   /* each role has one at the least */
        p->role_of[s] = s < roles || !thrown ? s % roles
            : (int)draw_below(d, (uint64_t)roles);
}

/* Cuts the row of n scopes: a stage a role at the least, two at the most. */
static void scopes_cut(Draw *d, Plan *p, const char **scope, uint32_t n,
                       int roles)
{
    for (uint32_t i = 0; i < n; i++) {
        int left = (int)(n - i), s = p->nstage;
        bool must = s < roles && left <= roles - s;
        bool next = !s || must || (s < roles * 2 && draw_below(d, 2));
        p->nstage += next;
        p->stage[i] = (StagePlan){ scope[i], p->nstage - 1 };
    }
}

static const Feature orders[] = {         /* by Pattern */
    FEATURE_gpipe, FEATURE_one_f_one_b, FEATURE_interleaved, FEATURE_zb_h1,
    FEATURE_auto_order,
};

static Pattern order_draw(Draw *d, FeatureSet want)
{
    Pattern any = (Pattern)draw_below(d, COUNT(orders) + 2);
    for (int k = 0; k < COUNT(orders); k++)
        if (want >> orders[k] & 1)
            return (Pattern)k;
    return any < COUNT(orders) ? any : GPIPE;
}

void stages_draw(Draw *d, Plan *p, const Graph *g, Arena *a, FeatureSet want,
                 FeatureSet *has)
{
    FeatureSet any = FEATURE_SET(stages_of_a_role);
    uint32_t n;
    for (int k = 0; k < COUNT(orders); k++)
        any |= (FeatureSet)1 << orders[k];
    if (draw_below(d, 10) >= 1 && !(want & any))
        return;
    const char **scope = scopes_of(g, a, &n);
    int roles = 2 + (int)draw_below(d, 2);
    if (n < (uint32_t)roles || p->mesh.naxis == NAXIS)
        return;
    p->stage = alloc(a, n * sizeof *p->stage);
    p->nscope = n;
    scopes_cut(d, p, scope, n, roles);
    roles_draw(d, p, roles, a);
    p->pattern = order_draw(d, want);
    p->mesh.axis[p->mesh.naxis++] = (Axis){ "p", roles, STAGE };
    *has |= (FeatureSet)1 << orders[p->pattern];
    if (p->nstage > roles)
        *has |= FEATURE_SET(stages_of_a_role);
}
