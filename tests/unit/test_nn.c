/* test_nn.c -- the Lua library and the shipped models, by the evaluator:
 * their laws, AdamW by hand, gradients against differences. */
#include "compiler/lua.h"
#include "ir/eval.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct Held { const char *name; Num *value; int64_t n; } Held;

/* A model and what its leaves hold. */
typedef struct World {
    Arena *a;
    Model *m;
    Held *held;
    uint32_t n, cap;
    double clip;                          /* that scalar; 0: its default */
} World;

static Held *held_find(const World *w, const char *name)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (strcmp(w->held[i].name, name) == 0)
            return &w->held[i];
    return NULL;
}

static Held *held_put(World *w, const char *name, const Num *v, int64_t n)
{
    Held *h = held_find(w, name);
    if (!h) {
        GROW(w->a, w->held, w->n, w->cap);
        h = &w->held[w->n++];
        *h = (Held){ name, alloc(w->a, (size_t)n * sizeof *v), n };
    }
    memcpy(h->value, v, (size_t)n * sizeof *v);
    return h;
}

static void numbers_put(World *w, const char *name, const double *v, int n)
{
    Num x[8];
    for (int i = 0; i < n; i++)
        x[i].r = v[i];
    held_put(w, name, x, n);
}

/* Numbers that look like photographs and labels, by hash of their place. */
static void input_make(Eval *e, const Graph *g, Ref r, Arena *a)
{
    const Node *n = &g->node[r];
    int64_t count = type_volume(&n->type);
    if (n->type.dtype == F32)
        return;
    Num *v = alloc(a, (size_t)count * sizeof *v);
    int top = strcmp(n->name, "label") == 0 ? 10 : 256;
    for (int64_t i = 0; i < count; i++)
        v[i].r = (double)((uint64_t)(i + 1) * 2654435761u >> 8) -
                 floor((double)((uint64_t)(i + 1) * 2654435761u >> 8) / top)
                 * top;
    eval_set(e, r, v);
}

static void leaf_fill(const World *w, Eval *e, const Graph *g, Ref r,
                      int step, Arena *a)
{
    const Node *n = &g->node[r];
    const Held *h = held_find(w, n->name);
    if (h)
        eval_set(e, r, h->value);
    else if (n->op == OP_input)
        input_make(e, g, r, a);
    else if (n->op == OP_scalar) {
        Num v = { .r = n->attr.value };
        if (strcmp(n->name, "step") == 0)
            v.r = step;
        if (strcmp(n->name, "clip") == 0 && w->clip > 0)
            v.r = w->clip;
        eval_set(e, r, &v);
    }
}

static Graph *entry(const World *w, const char *name)
{
    Job j = { .keep = w->a };
    Graph *g = model_entry(w->m, name);
    return g ? run_passes("simplify,grad,tidy", g, &j) : NULL;
}

static Eval *run(const World *w, const Graph *g, int step)
{
    Arena *a = arena_new();
    Eval *e = eval_new(g, REAL, 7, (uint64_t)step);
    for (Ref r = 0; r < g->n; r++)
        if (ops[g->node[r].op].leaf)
            leaf_fill(w, e, g, r, step, a);
    eval_run(e);
    arena_free(a);
    return e;
}

static void sets_keep(World *w, const Graph *g, Eval *e)
{
    for (uint32_t i = 0; i < g->nset; i++) {
        const Node *leaf = &g->node[g->set[i].leaf];
        held_put(w, leaf->name, eval_get(e, g->set[i].value),
                 type_volume(&leaf->type));
    }
}

static void step_run(World *w, const char *name, int step)
{
    Graph *g = entry(w, name);
    assert_non_null(g);
    Eval *e = run(w, g, step);
    sets_keep(w, g, e);
    eval_free(e);
}

static void world_open(World *w, const char *path, const char *define)
{
    const char *const defines[] = { define };
    ModelOptions o = { .home = ".", .define = defines, .ndefine = define != 0 };
    *w = (World){ .a = arena_new() };
    op_init();
    w->m = model_load(path, &o, w->a);
    if (entry(w, "init"))                 /* a model without weights has none */
        step_run(w, "init", 0);
}

static double out_value(const Graph *g, Eval *e, const char *name)
{
    for (uint32_t i = 0; i < g->nout; i++)
        if (strcmp(g->out[i].name, name) == 0)
            return eval_get(e, g->out[i].ref)->r;
    return NAN;
}

static double value(const World *w, const char *leaf, int i)
{
    Held *h = held_find(w, leaf);
    assert_non_null(h);
    return h->value[i].r;
}

/* ---- laws ---- */

static void laws_hold(const char *path)
{
    World w;
    world_open(&w, path, NULL);
    Graph *g = entry(&w, "laws");
    Eval *e = run(&w, g, 3);
    assert_in_range(g->nout, 10, 100);
    for (uint32_t i = 0; i < g->nout; i++) {
        double off = eval_get(e, g->out[i].ref)->r;
        if (!(fabs(off) < 2e-6))
            fail_msg("%s: off by %g", g->out[i].name, off);
    }
    eval_free(e);
    arena_free(w.a);
}

static void each_law_of_the_library_holds(void **state)
{
    (void)state;
    laws_hold("tests/models/laws.lua");
}

static void each_law_along_a_dimension_holds(void **state)
{
    (void)state;
    laws_hold("tests/models/along_laws.lua");
}

static void attention_without_scores_equals_the_one_with(void **state)
{
    (void)state;
    laws_hold("tests/models/attention_laws.lua");
}

/* ---- AdamW, by hand ---- */

typedef struct Adam { double p, m, v, e; } Adam;

static double rate_by_hand(int step)
{
    double up = fmin((step + 1) / 2.0, 1);
    double done = fmin(fmax((step - 2) / 4.0, 0), 1);
    return up * (0.02 + 0.08 * (cos(done * acos(-1)) + 1) * 0.5);
}

static void adam_by_hand(Adam *a, double g, double clip, double decay,
                         int step)
{
    g *= clip;
    a->m = 0.8 * a->m + 0.2 * g;
    a->v = 0.9 * a->v + 0.1 * g * g;
    double m = a->m / (1 - pow(0.8, step + 1));
    double v = a->v / (1 - pow(0.9, step + 1));
    a->p -= rate_by_hand(step) * (m / (sqrt(v) + 1e-8) + decay * a->p);
    double past = fmin(0.5, step / (step + 10.0));
    a->e = past * a->e + (1 - past) * a->p;
}

static const double X[4] = { 3, -1, 0.5, 2 }, TILT[2] = { 2, -4 };

static void adamw_equals_its_definition_for_six_steps(void **state)
{
    World w;
    (void)state;
    world_open(&w, "tests/models/laws.lua", NULL);
    numbers_put(&w, "x", X, 4);
    numbers_put(&w, "tilt", TILT, 2);
    Adam a[6] = { { 1, 0, 0, 0 }, { 1, 0, 0, 0 }, { 1, 0, 0, 0 },
                  { 1, 0, 0, 0 } };
    for (int step = 0; step < 6; step++) {
        double g[6], square = 0;
        for (int i = 0; i < 6; i++) {
            g[i] = i < 4 ? a[i].p - X[i] : TILT[i - 4];
            square += g[i] * g[i];
        }
        double clip = fmin(1, 3 / (sqrt(square) + 1e-6));
        for (int i = 0; i < 6; i++)
            adam_by_hand(&a[i], g[i], clip, i < 4 ? 0.5 : 0, step);
        step_run(&w, "train", step);
        for (int i = 0; i < 6; i++) {
            const char *p = i < 4 ? "w" : "b", *e = i < 4 ? "ema.w" : "ema.b";
            int k = i < 4 ? i : i - 4;
            assert_float_equal(value(&w, p, k), a[i].p, 1e-9);
            assert_float_equal(value(&w, e, k), a[i].e, 1e-9);
        }
    }
    arena_free(w.a);
}

static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    World w;
    (void)state;
    world_open(&w, "tests/models/laws.lua", NULL);
    numbers_put(&w, "x", X, 4);
    numbers_put(&w, "tilt", TILT, 2);
    step_run(&w, "train", 0);
    double p = value(&w, "w", 0), m = value(&w, "adam.m.b", 1);
    numbers_put(&w, "x", (double[]){ 1, NAN, 1, 1 }, 4);
    Graph *g = entry(&w, "train");
    Eval *e = run(&w, g, 1);
    sets_keep(&w, g, e);
    assert_true(out_value(g, e, "finite") == 0);
    assert_true(value(&w, "w", 0) == p && value(&w, "adam.m.b", 1) == m);
    eval_free(e);
    arena_free(w.a);
}

/* ---- gradients ---- */

enum { PROBES = 1 };                    /* a parameter: seconds count */

/* Of nothing, `seed` and what came before: 0 <= r < 1. */
static double next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed / 4294967296.0;
}

/* Weights that start at zero hide the gradients of others. */
static void weights_stir(World *w, const Graph *g, uint32_t *seed)
{
    for (uint32_t i = 0; i < g->nset; i++) {
        Held *h = held_find(w, g->node[g->set[i].leaf].name);
        if (g->node[g->set[i].leaf].op == OP_param)
            for (int64_t k = 0; k < h->n; k++)
                h->value[k].r += 0.05 * (next(seed) - 0.5);
    }
}

static double loss_at(const World *w, const Graph *g, double *at, double x)
{
    double was = *at;
    *at = x;
    Eval *e = run(w, g, 0);
    double y = out_value(g, e, "loss");
    eval_free(e);
    *at = was;
    return y;
}

/* The first moment after one step from zero is a tenth of the gradient. */
static void param_check(World *w, const Graph *g, Eval *e, Set m,
                        uint32_t *seed)
{
    const char *name = g->node[m.leaf].name + strlen("adam.m.");
    Held *p = held_find(w, name);
    assert_non_null(p);
    for (int i = 0; i < PROBES; i++) {
        int64_t k = (int64_t)(next(seed) * (double)p->n);
        double got = 10 * eval_get(e, m.value)[k].r, h = 1e-5;
        double *at = &p->value[k].r;
        double want = (loss_at(w, g, at, *at + h) -
                       loss_at(w, g, at, *at - h)) / (2 * h);
        if (fabs(got - want) > 1e-6 + 1e-3 * fabs(want))
            fail_msg("%s[%lld]: gradient %.9g, difference %.9g", name,
                     (long long)k, got, want);
    }
}

static void gradients_equal_differences(const char *path, const char *define)
{
    World w;
    uint32_t seed = 1;
    world_open(&w, path, define);
    w.clip = 1e12;
    Graph *g = entry(&w, "train");
    weights_stir(&w, g, &seed);
    Eval *e = run(&w, g, 0);
    int n = 0;
    for (uint32_t i = 0; i < g->nset; i++)
        if (strncmp(g->node[g->set[i].leaf].name, "adam.m.", 7) == 0) {
            param_check(&w, g, e, g->set[i], &seed);
            n++;
        }
    assert_true(n > 5);
    eval_free(e);
    arena_free(w.a);
}

#define GRADIENTS(name, path, define)                                    \
static void gradients_of_##name##_equal_differences(void **state)        \
{                                                                        \
    (void)state;                                                         \
    gradients_equal_differences("models/" path ".lua", define);          \
}
GRADIENTS(the_mlp, "mlp", "hidden=8")
GRADIENTS(clip, "dalle2/clip", "size=tiny")
GRADIENTS(the_prior, "dalle2/prior", "size=tiny")
GRADIENTS(the_judge, "dalle2/judge", "size=tiny")
GRADIENTS(the_decoder, "dalle2/decoder", "size=tiny")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_law_of_the_library_holds),
        cmocka_unit_test(each_law_along_a_dimension_holds),
        cmocka_unit_test(attention_without_scores_equals_the_one_with),
        cmocka_unit_test(adamw_equals_its_definition_for_six_steps),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(gradients_of_the_mlp_equal_differences),
        cmocka_unit_test(gradients_of_clip_equal_differences),
        cmocka_unit_test(gradients_of_the_prior_equal_differences),
        cmocka_unit_test(gradients_of_the_judge_equal_differences),
        cmocka_unit_test(gradients_of_the_decoder_equal_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
