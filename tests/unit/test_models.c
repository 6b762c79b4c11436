/* test_models.c -- the shipped models, shrunk: no pass changes a value.
 *
 * Every entry is compiled for the host, and evaluated in the field mod 2^61-1
 * after every pass, on all ranks and turns: what it returns and what its
 * leaves become must be the same numbers as before the pass.  So a whole step
 * on 2 ranks x 2 turns equals that of one rank, by induction over the passes.
 * With DPC_TEST_ALL set every model is tried on every plan in both dtypes and
 * from the text after every pass; without, a third of these, by a fixed rule. */
#include "compiler/lua.h"
#include "ir/eval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char home[4096];

typedef struct Shipped { const char *path, *define[4]; } Shipped;

static const Shipped shipped[] = {
    { "models/mlp.lua", { "batch=8", "hidden=8" } },
    { "models/dalle2/clip.lua", { "size=tiny" } },
    { "models/dalle2/prior.lua", { "size=tiny" } },
    { "models/dalle2/decoder.lua", { "size=tiny" } },
    { "models/dalle2/judge.lua", { "size=tiny" } },
    { "models/dalle2/unclip.lua", { "size=tiny" } },
};

static const Shipped blocks[] = {         /* what is split over `tensor` */
    { "tests/models/mlp.lua", { "batch=4", "side=6" } },
    { "tests/models/attn.lua", { "batch=4", "side=8" } },
    { "tests/models/attn.lua", { "batch=4", "side=8", "scores=0" } },
    { "tests/models/conv.lua", { "batch=4", "side=8" } },
    { "models/dalle2/decoder.lua", { "size=tiny" } },
};

typedef struct Way {
    const char *partitioner;
    int ranks, micro;
    const char *set[2];
} Way;

static const Way one = { "ddp", 1, 1, { 0 } }, two = { "ddp", 2, 1, { 0 } },
    turns = { "ddp", 2, 2, { 0 } }, zero = { "zero", 2, 2, { 0 } },
    use = { "zero", 2, 2, { "gather=use", "least=64" } },
    tensor = { "tests/models/tensor.lua", 4, 1, { 0 } };

/* ---- what a graph means ---- */

typedef struct Value { const char *name; int64_t n; const Num *at; } Value;

typedef struct Meaning {
    Value *value;                         /* outs, then sets: "ema.w =" */
    uint32_t n;
} Meaning;

static bool has_grad(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_grad)
            return true;
    return false;
}

static Value value_copy(Arena *a, const char *name, const Graph *g, Eval *e,
                        Ref r)
{
    Value v = { name, type_volume(&g->node[r].type), NULL };
    size_t size = (size_t)v.n * sizeof(Num);
    Num *at = alloc(a, size + 1);
    memcpy(at, eval_get(e, r), size);
    v.at = at;
    return v;
}

/* A grad node has no value of its own: it stands for what the pass makes. */
static Meaning meaning(Arena *a, const Graph *g, EvalMemo *memo)
{
    Job j = { .keep = a };
    if (has_grad(g))
        g = run_passes("grad", g, &j);
    Meaning m = { alloc(a, (g->nout + g->nset + 1) * sizeof *m.value), 0 };
    Eval *e = eval_new(g, FIELD, 5, 3);
    eval_share(e, memo);
    eval_run(e);
    for (uint32_t i = 0; i < g->nout; i++)
        m.value[m.n++] = value_copy(a, g->out[i].name, g, e, g->out[i].ref);
    for (uint32_t i = 0; i < g->nset; i++)
        m.value[m.n++] = value_copy(
            a, fmt(a, "%s =", g->node[g->set[i].leaf].name), g, e,
            g->set[i].value);
    eval_free(e);
    return m;
}

static const Value *value_find(const Meaning *m, const char *name)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (strcmp(m->value[i].name, name) == 0)
            return &m->value[i];
    return NULL;
}

static void same_meaning(const char *where, const Meaning *x, const Meaning *y)
{
    if (x->n != y->n)
        fail_msg("%s: %u values become %u", where, x->n, y->n);
    for (uint32_t i = 0; i < x->n; i++) {
        const Value *v = &x->value[i], *w = value_find(y, v->name);
        if (!w || w->n != v->n)
            fail_msg("%s: \"%s\" is lost", where, v->name);
        for (int64_t k = 0; w && k < v->n; k++)
            if (v->at[k].f != w->at[k].f)
                fail_msg("%s: \"%s\"[%d] changes", where, v->name, (int)k);
    }
}

/* ---- one compile of one entry ---- */

typedef struct Compile {
    Arena *arena;
    const char *what;                     /* "clip.train on ddp 2 x 2, bf16" */
    Meaning last;
    EvalMemo *memo;                       /* of the graphs after all passes */
    uint32_t compared, crossed;           /* values; nodes on both rank axes */
    uint32_t again;                       /* clones of blocks */
    bool values, texts;                   /* what to look at */
    char *text[64];                       /* after each pass */
    int npass;
} Compile;

static char *graph_string(Arena *a, const Graph *g)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    graph_print(g, f);
    fclose(f);
    char *copy = fmt(a, "%s", text);
    free(text);
    return copy;
}

/* Nodes that are cut, or pending, over two axes of ranks at once. */
static uint32_t crossed(const Graph *g)
{
    uint32_t n = 0;
    for (Ref r = 0; r < g->n; r++) {
        Axes s = type_axes(&g->node[r].type) & mesh_axes(&g->mesh, SPACE);
        n += (s & (s - 1)) != 0;
    }
    return n;
}

/* Clones that are made at moments of their own. */
static uint32_t blocks_again(const Graph *g)
{
    uint32_t n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].moment != 0 && g->node[r].again != NONE;
    return n;
}

static void after_pass(void *arg, const char *pass, const Graph *before,
                       const Graph *after)
{
    Compile *c = arg;
    if (c->texts)
        c->text[c->npass] = graph_string(c->arena, after);
    if (c->values) {
        if (!c->npass)
            c->last = meaning(c->arena, before, c->memo);
        Meaning now = meaning(c->arena, after, c->memo);
        same_meaning(fmt(c->arena, "%s: %s", c->what, pass), &c->last, &now);
        c->last = now;
        c->compared += now.n;
    }
    c->crossed = crossed(after);
    c->again += strcmp(pass, "recompute") == 0 ? blocks_again(after) : 0;
    c->npass++;
}

static Model *load(const Shipped *s, Arena *a)
{
    int n = 0;
    while (s->define[n])
        n++;
    ModelOptions o = { .home = home, .define = s->define, .ndefine = n };
    return model_load(s->path, &o, a);
}

static Plan *plan(const Model *m, const Way *w, DType compute, Arena *a)
{
    PlanOptions o = { .home = home, .file = w->partitioner, .ranks = w->ranks,
                      .micro = w->micro, .compute = compute };
    while (o.ndefine < COUNT(w->set) && w->set[o.ndefine])
        o.ndefine++;
    o.define = w->set;
    Plan *p = plan_partition(&o, m->entry, m->nentry, a);
    p->bucket = 4096;                     /* several of them */
    return p;
}

static const char *describe(const Model *m, const Graph *g, const Way *w,
                            DType compute, Arena *a)
{
    return fmt(a, "%s.%s on %s %d x %d, %s", m->name, g->entry,
               w->partitioner, w->ranks, w->micro, dtype_name(compute));
}

static Job job_of(const Plan *p, Arena *a)
{
    return (Job){ .keep = a, .plan = p, .target = target_find("host"),
                  .cluster = cluster_read(home, NULL, a) };
}

/* Every pass over every entry; the number of values that were compared. */
static uint32_t check_values(const Shipped *s, const Way *w, DType compute)
{
    Arena *a = arena_new();
    uint32_t n = 0;
    Model *m = load(s, a);
    Plan *p = plan(m, w, compute, a);
    for (int i = 0; i < m->nentry; i++) {
        Arena *own = arena_new();
        Compile c = { .arena = own, .values = true, .memo = eval_memo_new(),
                      .what = describe(m, m->entry[i], w, compute, own) };
        Job j = job_of(p, own);
        j.check = after_pass, j.check_arg = &c, j.look_back = true;
        run_passes(NULL, m->entry[i], &j);
        assert_int_equal(c.npass, npass);
        assert_true(eval_memo_found(c.memo) > 0);
        eval_memo_free(c.memo);
        if (w == &tensor && strcmp(m->entry[i]->entry, "train") == 0)
            assert_true(c.crossed > 10);
        if (w->set[0] && strcmp(w->set[0], "recompute=full") == 0
            && strcmp(m->entry[i]->entry, "train") == 0)
            assert_true(c.again > 10);
        n += c.compared;
        arena_free(own);
    }
    arena_free(a);
    return n;
}

/* Every third one, unless all are asked for. */
static bool chosen(int i)
{
    return getenv("DPC_TEST_ALL") || i % 3 == 0;
}

static void no_pass_changes_a_value(void **state)
{
    (void)state;
    static const Way *const way[] = { &one, &two, &turns, &zero, &use };
    uint32_t n = 0;
    for (int i = 0; i < COUNT(shipped); i++)
        for (int k = 0; k < COUNT(way); k++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                if (chosen(i + k + bf16))
                    n += check_values(&shipped[i], way[k], bf16 ? BF16 : F32);
    print_message("%u values compared\n", n);
    assert_true(n > 5000);
}

static void weights_split_over_ranks_change_no_value(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (int i = 0; i < COUNT(blocks); i++)
        n += check_values(&blocks[i], &tensor, chosen(i) ? F32 : BF16);
    assert_true(n > 1000);
}

static void blocks_made_again_change_no_value(void **state)
{
    (void)state;
    static const Shipped net = { "models/dalle2/decoder.lua",
                                 { "size=tiny", "batch=8" } };
    static const Way full = { "ddp", 1, 1, { "recompute=full" } },
        turns_full = { "zero", 2, 2, { "recompute=full", "gather=use" } };
    check_values(&net, &full, BF16);
    check_values(&net, &turns_full, F32);
}

/* ---- from the text after a pass ---- */

static void restart(const Compile *c, const Plan *p, int after)
{
    Arena *a = arena_new();
    Job j = job_of(p, a);
    j.start_from = passes[after + 1].name;
    const Graph *g = graph_parse(a, c->text[after], "between");
    char *text = graph_string(a, run_passes(NULL, g, &j));
    if (strcmp(text, c->text[npass - 1]) != 0)
        fail_msg("%s: the text after %s makes another schedule", c->what,
                 passes[after].name);
    arena_free(a);
}

static void check_texts(const Shipped *s, const Way *w, DType compute, int at)
{
    Arena *a = arena_new();
    Model *m = load(s, a);
    Plan *p = plan(m, w, compute, a);
    for (int i = 0; i < m->nentry; i++) {
        Arena *own = arena_new();
        Compile c = { .arena = own, .texts = true,
                      .what = describe(m, m->entry[i], w, compute, own) };
        Job j = job_of(p, own);
        j.check = after_pass, j.check_arg = &c;
        run_passes(NULL, m->entry[i], &j);
        for (int k = 0; k + 1 < npass; k++)
            if (chosen(at + i + k))
                restart(&c, p, k);
        arena_free(own);
    }
    arena_free(a);
}

static void the_text_after_a_pass_makes_the_same_schedule(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(shipped); i++)
        check_texts(&shipped[i], i % 2 ? &turns : &two, i % 2 ? BF16 : F32, i);
}

/* ---- kernels ---- */

/* A kernel that the target cannot write has no price. */
static void check_kernels(const Graph *g, const Target *t, const char *what)
{
    for (uint32_t l = 0; l < g->sched->nlaunch; l++) {
        const Launch *q = &g->sched->launch[l];
        const char *why = NULL;
        if (g->node[q->node[0]].kernel < 0 || g->node[q->node[0]].bucket >= 0)
            continue;
        if (isinf(t->cost(g, q->node, q->n, &why)))
            fail_msg("%s: \"%s\": %s", what, g->node[q->node[0]].name, why);
    }
}

static void every_kernel_can_be_written(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(shipped); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            Arena *a = arena_new();
            Model *m = load(&shipped[i], a);
            Job j = job_of(plan(m, &two, bf16 ? BF16 : F32, a), a);
            for (int e = 0; e < m->nentry; e++)
                check_kernels(run_passes(NULL, m->entry[e], &j), j.target,
                              describe(m, m->entry[e], &two,
                                       bf16 ? BF16 : F32, a));
            arena_free(a);
        }
}

/* ---- how well a step is fused ---- */

static void check_fusion(const Shipped *s, const Way *w, DType compute)
{
    Arena *a = arena_new();
    Model *m = load(s, a);
    Job j = job_of(plan(m, w, compute, a), a);
    j.stop_after = "refold";
    const Graph *g = run_passes(NULL, model_entry(m, "train"), &j);
    j.scratch = a;
    Fusion f = fuse_figures(g, &j);
    double share = (double)f.launches / f.nodes;
    double bytes = (double)f.bytes / (double)f.compulsory;
    if (share > 0.35 || bytes > 1.3)
        fail_msg("%s %s: %d launches of %d nodes, %.1f of %.1f MB",
                 describe(m, g, w, compute, a), s->define[0], f.launches,
                 f.nodes, 1e-6 * (double)f.bytes,
                 1e-6 * (double)f.compulsory);
    arena_free(a);
}

static void kernels_move_what_they_must(void **state)
{
    (void)state;
    static const char *const batch[] = { "batch=8", "batch=32", "batch=128" };
    static const char *const name[] = { "clip", "prior", "decoder", "judge" };
    for (int i = 0, n = 0; i < COUNT(name); i++)
        for (int k = 0; k < COUNT(batch); k++)
            for (int way = 0; way < 4; way++, n++) {
                char path[64];
                snprintf(path, sizeof path, "models/dalle2/%s.lua", name[i]);
                Shipped s = { path, { batch[k] } };
                if (chosen(n))
                    check_fusion(&s, way / 2 ? &two : &one,
                                 way % 2 ? BF16 : F32);
            }
}

static int setup(void **state)
{
    (void)state;
    const char *h = getenv("DPC_HOME");
    op_init();
    if (h && *h)
        return snprintf(home, sizeof home, "%s", h) >= (int)sizeof home;
    return !getcwd(home, sizeof home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_pass_changes_a_value),
        cmocka_unit_test(weights_split_over_ranks_change_no_value),
        cmocka_unit_test(blocks_made_again_change_no_value),
        cmocka_unit_test(the_text_after_a_pass_makes_the_same_schedule),
        cmocka_unit_test(every_kernel_can_be_written),
        cmocka_unit_test(kernels_move_what_they_must),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
