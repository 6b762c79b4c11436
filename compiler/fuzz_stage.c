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

void stages_draw(Draw *d, Plan *p, const Graph *g, Arena *a, FeatureSet want,
                 FeatureSet *has)
{
    static const Pattern orders[] = { ZB_H1, AUTO, GPIPE, GPIPE, ONE_F_ONE_B,
                                      INTERLEAVED };
    const FeatureSet any = FEATURE_SET(stages) | FEATURE_SET(stages_of_a_role)
        | FEATURE_SET(weights_apart);
    uint32_t n;
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
    p->pattern = orders[draw_below(d, want & FEATURE_SET(weights_apart)
                                   ? 2 : COUNT(orders))];
    p->mesh.axis[p->mesh.naxis++] = (Axis){ "p", roles, STAGE };
    *has |= FEATURE_SET(stages);
    if (p->nstage > roles)
        *has |= FEATURE_SET(stages_of_a_role);
    if (p->pattern == ZB_H1 || p->pattern == AUTO)
        *has |= FEATURE_SET(weights_apart);
}
