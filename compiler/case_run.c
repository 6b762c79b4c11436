/* case_run.c -- a case on the evaluator: leaves filled, steps run, numbers
 * read off the outs. */
#include "compiler/case.h"
#include "ir/eval.h"
#include <math.h>
#include <stdlib.h>

typedef struct Running {
    const Case *c;
    const Graph *g;
    Arena *a;
    Held *held;                           /* params and states */
    uint32_t nheld;
    Whole *got;                           /* by want */
} Running;

/* ---- what leaves hold ---- */

static const CaseInput *input_find(const Case *c, const char *name)
{
    for (uint32_t i = 0; i < c->ninput; i++)
        if (strcmp(c->input[i].name, name) == 0)
            return &c->input[i];
    return NULL;
}

double *case_input(Arena *a, const Case *c, const Node *n, int step)
{
    const CaseInput *in = input_find(c, n->name);
    Spec plain = { .fill = n->name, .scale = 1 };
    size_t k = c->draws ? strlen(c->draws) : 0;
    char *end;
    if (in)
        return fill_spec(a, &in->spec, &n->type, step);
    if (k && strncmp(n->name, c->draws, k) == 0 && n->name[k]) {
        long draw = strtol(n->name + k, &end, 10);
        if (!*end)
            plain.fill = fmt(a, "%s%ld", c->draws, draw + step * c->ndraw);
    }
    return fill_spec(a, &plain, &n->type, step);
}

double case_scalar(const Case *c, const Node *n, int step)
{
    for (uint32_t i = 0; i < c->nscalar; i++)
        if (strcmp(c->scalar[i].name, n->name) == 0)
            return c->scalar[i].value;
    return strcmp(n->name, "step") == 0 ? step : n->attr.value;
}

static const double *init_find(Eval *e, const Graph *init, const char *name)
{
    for (uint32_t i = 0; i < init->nset; i++)
        if (strcmp(init->node[init->set[i].leaf].name, name) == 0)
            return (const double *)eval_get(e, init->set[i].value);
    die("\"%s\" has no init", name);
}

static double *leaf_value(const Case *c, Eval *init_of, const Graph *init,
                          const Node *n, Arena *a)
{
    size_t size = (size_t)type_volume(&n->type) * sizeof(double);
    for (uint32_t i = 0; i < c->nleaf; i++)
        if (strcmp(c->leaf[i].name, n->name) == 0)
            return fill_spec(a, &c->leaf[i].spec, &n->type, 0);
    if (n->op == OP_param && !fill_keeps(n->name))
        return fill_param(a, n->name, &n->type);
    return memcpy(alloc(a, size + 1), init_find(init_of, init, n->name), size);
}

Held *case_leaves(const Case *c, const Graph *g, const Graph *init, Arena *a,
                  uint32_t *n)
{
    Held *held = NULL;
    uint32_t cap = 0;
    Eval *e = eval_new(init, REAL, 0, 0);
    for (Ref k = 0; k < init->n; k++)
        if (init->node[k].op == OP_param && !fill_keeps(init->node[k].name))
            eval_set(e, k, (const Num *)fill_param(a, init->node[k].name,
                                                   &init->node[k].type));
    eval_run(e);
    *n = 0;
    for (Ref k = 0; k < g->n; k++) {
        const Node *node = &g->node[k];
        if (node->op != OP_param && node->op != OP_state)
            continue;
        GROW(a, held, *n, cap);
        held[(*n)++] = (Held){ k, leaf_value(c, e, init, node, a) };
    }
    eval_free(e);
    return held;
}

/* ---- one step ---- */

static void leaves_set(const Running *r, Eval *e, int step)
{
    for (Ref k = 0; k < r->g->n; k++) {
        const Node *n = &r->g->node[k];
        double scalar = n->op == OP_scalar ? case_scalar(r->c, n, step) : 0;
        if (n->op == OP_input)
            eval_set(e, k, (const Num *)case_input(r->a, r->c, n, step));
        else if (n->op == OP_scalar)
            eval_set(e, k, (const Num *)&scalar);
    }
    for (uint32_t i = 0; i < r->nheld; i++)
        eval_set(e, r->held[i].leaf, (const Num *)r->held[i].value);
}

double want_measure(const Want *w, const Whole *x)
{
    double sum = 0;
    if (w->kind == WANT_ELEMENT) {
        int64_t at = w->index < 0 ? x->n - 1 : w->index;
        return at >= 0 && at < x->n ? x->at[at] : NAN;
    }
    for (int64_t i = 0; i < x->n; i++)
        sum += w->kind == WANT_ABS ? fabs(x->at[i]) : x->at[i];
    return !x->n ? NAN : w->kind == WANT_ABS ? sum / (double)x->n : sum;
}

double case_count(const Graph *g, bool trainable)
{
    double n = 0;
    for (Ref k = 0; k < g->n; k++)
        if (g->node[k].op == OP_param &&
            !(trainable && g->node[k].attr.frozen))
            n += (double)type_volume(&g->node[k].type);
    return n;
}

static Whole whole_of(Running *r, Eval *e, const char *name)
{
    for (uint32_t k = 0; k < r->g->nout; k++) {
        Ref ref = r->g->out[k].ref;
        int64_t n = type_volume(&r->g->node[ref].type);
        size_t size = (size_t)n * sizeof(double);
        if (strcmp(r->g->out[k].name, name) == 0)
            return (Whole){ memcpy(alloc(r->a, size + 1), eval_get(e, ref),
                                   size), n };
    }
    return (Whole){ NULL, 0 };
}

static Whole count_of(Running *r, const Want *w)
{
    double *n = alloc(r->a, sizeof *n);
    *n = case_count(r->g, strcmp(w->of, "trainable") == 0);
    return (Whole){ n, 1 };
}

/* The input that a value is made of, op by op of one operand; NULL: more. */
static const char *input_of(const Graph *g, Ref r)
{
    while (g->node[r].nin == 1)
        r = g->node[r].in[0];
    return g->node[r].op == OP_input ? g->node[r].name : NULL;
}

/* Ours would read zeros at an index that the table has not; an original's
 * look-up raises. */
static void takes_check(const Running *r, Eval *e)
{
    for (Ref k = 0; k < r->g->n; k++) {
        const Node *n = &r->g->node[k];
        if (n->op != OP_take)
            continue;
        const double *index = (const double *)eval_get(e, n->in[1]);
        int64_t rows = r->g->node[n->in[0]].type.dim[0];
        const char *name = input_of(r->g, n->in[1]);
        for (int64_t i = type_volume(&r->g->node[n->in[1]].type); i-- > 0; )
            if (index[i] < 0 || index[i] >= (double)rows)
                err(n->loc, "take: index %g%s%s%s of a table of %lld rows",
                    index[i], name ? " of \"" : "", name ? name : "",
                    name ? "\"" : "", (long long)rows);
    }
}

/* Wants of one out stand beside each other. */
static void measure(Running *r, Eval *e, int step)
{
    for (uint32_t i = 0; i < r->c->nwant; i++) {
        const Want *w = &r->c->want[i];
        if (w->step != step)
            continue;
        bool again = i && w[-1].step == step && strcmp(w[-1].of, w->of) == 0;
        r->got[i] = again ? r->got[i - 1]
                  : w->kind == WANT_COUNT ? count_of(r, w)
                  : whole_of(r, e, w->of);
    }
}

/* Leaves become what the step sets them to. */
static void advance(Running *r, Eval *e)
{
    for (uint32_t i = 0; i < r->nheld; i++)
        for (uint32_t k = 0; k < r->g->nset; k++) {
            Ref leaf = r->g->set[k].leaf;
            if (leaf == r->held[i].leaf)
                memcpy(r->held[i].value, eval_get(e, r->g->set[k].value),
                       (size_t)type_volume(&r->g->node[leaf].type)
                       * sizeof(double));
        }
}

Whole *case_evaluate(const Case *c, const Graph *g, const Graph *init,
                     bool rounded, Arena *a)
{
    Job job = { .keep = a };
    Running r = { c, run_passes("grad", g, &job), a, NULL, 0,
                  alloc(a, (c->nwant + 1) * sizeof(Whole)) };
    r.held = case_leaves(c, r.g, init, a, &r.nheld);
    for (int s = 0; s < c->steps; s++) {
        Eval *e = eval_new(r.g, REAL, 0, (uint64_t)s);
        leaves_set(&r, e, s);
        if (rounded)
            eval_round(e);
        eval_run(e);
        takes_check(&r, e);
        measure(&r, e, s);
        advance(&r, e);
        eval_free(e);
    }
    return r.got;
}
