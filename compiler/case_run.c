/* case_run.c -- a case on the evaluator: leaves filled, steps run, numbers
 * read off the outs. */
#include "compiler/case.h"
#include "ir/eval.h"
#include <math.h>
#include <stdlib.h>

typedef struct Held { Ref leaf; double *value; } Held;    /* between steps */

typedef struct Running {
    const Case *c;
    const Graph *g;
    Arena *a;
    Held *held;                           /* params and states */
    uint32_t nheld, heldcap;
    double *got;                          /* by want */
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

static double *leaf_value(const Running *r, Eval *init_of, const Graph *init,
                          const Node *n)
{
    size_t size = (size_t)type_volume(&n->type) * sizeof(double);
    for (uint32_t i = 0; i < r->c->nleaf; i++)
        if (strcmp(r->c->leaf[i].name, n->name) == 0)
            return fill_spec(r->a, &r->c->leaf[i].spec, &n->type, 0);
    if (n->op == OP_param && !fill_keeps(n->name))
        return fill_param(r->a, n->name, &n->type);
    return memcpy(alloc(r->a, size + 1), init_find(init_of, init, n->name),
                  size);
}

/* Params and states at the first step. */
static void hold(Running *r, const Graph *init)
{
    Eval *e = eval_new(init, REAL, 0, 0);
    for (Ref k = 0; k < init->n; k++)
        if (init->node[k].op == OP_param && !fill_keeps(init->node[k].name))
            eval_set(e, k, (const Num *)fill_param(r->a, init->node[k].name,
                                                   &init->node[k].type));
    eval_run(e);
    for (Ref k = 0; k < r->g->n; k++) {
        const Node *n = &r->g->node[k];
        if (n->op != OP_param && n->op != OP_state)
            continue;
        GROW(r->a, r->held, r->nheld, r->heldcap);
        r->held[r->nheld++] = (Held){ k, leaf_value(r, e, init, n) };
    }
    eval_free(e);
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

double want_measure(const Want *w, const double *x, int64_t n)
{
    double sum = 0;
    if (w->kind == WANT_ELEMENT) {
        int64_t at = w->index < 0 ? n - 1 : w->index;
        return at < n ? x[at] : NAN;
    }
    for (int64_t i = 0; i < n; i++)
        sum += w->kind == WANT_ABS ? fabs(x[i]) : x[i];
    return w->kind == WANT_ABS ? sum / (double)n : sum;
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

static void measure(Running *r, Eval *e, int step)
{
    for (uint32_t i = 0; i < r->c->nwant; i++) {
        const Want *w = &r->c->want[i];
        if (w->kind == WANT_COUNT)
            r->got[i] = case_count(r->g, strcmp(w->of, "trainable") == 0);
        for (uint32_t k = 0; w->step == step && k < r->g->nout; k++)
            if (strcmp(r->g->out[k].name, w->of) == 0)
                r->got[i] = want_measure(w,
                    (const double *)eval_get(e, r->g->out[k].ref),
                    type_volume(&r->g->node[r->g->out[k].ref].type));
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

double *case_evaluate(const Case *c, const Graph *g, const Graph *init,
                      Arena *a)
{
    Job job = { .keep = a };
    Running r = { c, run_passes("grad", g, &job), a, NULL, 0, 0,
                  alloc(a, (c->nwant + 1) * sizeof(double)) };
    for (uint32_t i = 0; i < c->nwant; i++)
        r.got[i] = NAN;
    hold(&r, init);
    for (int s = 0; s < c->steps; s++) {
        Eval *e = eval_new(r.g, REAL, 0, (uint64_t)s);
        leaves_set(&r, e, s);
        eval_run(e);
        measure(&r, e, s);
        advance(&r, e);
        eval_free(e);
    }
    return r.got;
}
