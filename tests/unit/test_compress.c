/* test_compress.c -- gradients in fewer bytes: the same sum in the field, and
 * on the machine what is sent and what stays are the true value, to the bit. */
#include "tests/unit/kernel_run.h"
#include "tests/unit/models.h"
#include "tests/unit/passrun.h"

static const DType words[] = { BF16, U8 };

/* ---- meaning ---- */

static void plan_compresses(Plan *p, DType word)
{
    for (int i = 0; i < p->mesh.naxis; i++)
        if (p->mesh.axis[i].kind == SPACE)
            p->compress[i] = word;
}

static int residuals(const Graph *g)
{
    int n = 0;
    for (Ref r = 0; r < g->n; r++)
        n += g->node[r].op == OP_state && g->node[r].attr.residual;
    return n;
}

static void same_sets(const Graph *a, const Graph *b, const char *way)
{
    Eval *e = eval_new(a, FIELD, 5, 3), *f = eval_new(b, FIELD, 5, 3);
    eval_run(e);
    eval_run(f);
    for (uint32_t i = 0; i < a->nset; i++) {
        const char *leaf = a->node[a->set[i].leaf].name;
        same_value(e, a, a->set[i].value, f, value_of(b, NULL, leaf), way,
                   leaf);
    }
    eval_free(e);
    eval_free(f);
}

static void it_means_the_plain_sum(void **state)
{
    (void)state;
    int made = 0;
    for (int i = 0; i < COUNT(models); i++)
        for (int k = 1; k < COUNT(ways); k += 1 + i % 3)
            for (int w = 0; w < COUNT(words); w++) {
                Graph *g = model_graph(arena, &models[i]);
                Job j = { .keep = arena, .plan = way_plan(arena, &ways[k], g),
                          .target = target_of_test(), .stop_after = "tidy" };
                const Graph *plain = run_passes(NULL, g, &j);
                plan_compresses((Plan *)(uintptr_t)j.plan, words[w]);
                j.stop_after = "local";
                const Graph *out = run_passes(NULL, g, &j);
                made += residuals(out);
                same_sets(plain, out, ways[k].name);
            }
    assert_true(made > 100);
}

/* ---- the contract ---- */

static const char gradient[] =
    "mesh r=2\nentry train\nphase tensor\n"
    "w = param : f32[24,64]\n"
    "g = input : f32[2/r,24,64] seg=backward\n"
    "d = move g \"bij->ij\" : f32[24,64]+r seg=backward\n"
    "s = reshard d : f32[24,64] seg=backward\n"
    "n = sub w, s : f32[24,64] seg=update\n"
    "set w = n\n";

static Graph *squeezed(DType word)
{
    Graph *g = graph_parse(arena, gradient, "gradient");
    Plan *p = alloc(arena, sizeof *p);
    p->mesh = g->mesh;
    plan_compresses(p, word);
    Job j = { .keep = arena, .plan = p };
    return run_passes("compress", g, &j);
}

static Ref set_value(const Graph *g, const char *leaf)
{
    Ref r = graph_leaf(g, leaf);
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == r)
            return g->set[i].value;
    fail_msg("%s is not set", leaf);
    return NONE;
}

/* Node r and what it is made of, whole and on one rank; `stop` is an input. */
static Ref alone(Graph *to, const Graph *g, Ref r, Ref stop, Ref *map)
{
    const Node *n = &g->node[r];
    Ref in[NIN];
    Attr a = n->attr;
    if (map[r] != NONE)
        return map[r];
    for (int i = 0; i < n->nin && r != stop; i++)
        in[i] = alone(to, g, n->in[i], stop, map);
    a.letter = alloc(arena, (NLETTER) * sizeof *a.letter);
    for (int i = 0; i < a.nletter; i++) {
        a.letter[i] = n->attr.letter[i];
        a.letter[i].split = 0;
    }
    Type t = n->type;
    memset(t.split, 0, sizeof t.split);
    if (r == stop)
        return map[r] = emit_typed(to, OP_input, NULL, t, NULL, 0, "all", "t");
    if (ops[n->op].leaf)
        return map[r] = emit_typed(to, n->op, &a, t, NULL, 0, NULL, "t");
    return map[r] = emit(to, n->op, &a, in, n->nin, "t");
}

/* The kernel that makes of "all" what is sent, as f32, and what stays. */
static Graph *contract(const Graph *g, const char *residual)
{
    Graph *to = graph_new(arena, NULL);
    Ref *map = alloc(arena, (g->n + 1) * sizeof *map);
    for (Ref r = 0; r < g->n; r++)
        map[r] = NONE;
    Ref kept = set_value(g, residual), left = g->node[kept].in[1];
    const Node *sub = &g->node[left];
    assert_int_equal(sub->op, OP_sub);
    graph_out(to, "stays", alone(to, g, kept, sub->in[0], map));
    graph_out(to, "sent", alone(to, g, sub->in[1], sub->in[0], map));
    graph_name(to);
    return to;
}

/* Numbers of 80 orders of magnitude between rows, of 40 within some. */
static float drawn(uint64_t *state, int64_t row)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    double x = (double)(*state >> 11) * 0x1p-53 - 0.5;
    int e = row % 3 ? 0 : (int)(*state >> 20 & 31);
    return row % 7 == 6 ? 0 : (float)ldexp(x, (int)(row * 37 % 160) - 80 + e);
}

static void kernel_runs(Graph *g, float *all, float *stays, float *sent)
{
    const char *why = NULL;
    Kernel *k = describe(g, &why);
    if (!k)
        fail_msg("no kernel: %s", why);
    KernelText t = kernel_host(arena, k);
    void *lib = compile(fmt(arena, "%s\n%s", host_prelude, t.text),
                        host_flags);
    int64_t n = k->extent[k->order[0]], pos[KPOS + 3] = { 1, n, n };
    DpcEnv env = { .pos = pos, .nthread = 1 };
    DpcKernelFn *f;
    void *p[3] = { all }, *fn;
    assert_non_null(lib);
    assert_non_null(fn = dlsym(lib, t.name));
    memcpy(&f, &fn, sizeof f);
    for (int i = 0; i < k->nout; i++)
        p[1 + i] = k->out[i] == g->out[0].ref ? stays : sent;
    env.scratch = alloc(arena, (size_t)kernel_scratch(k) + 64);
    f(p, &env);
}

static void sent_and_kept_are_all(void **state)
{
    static const char *const of[] = { "residual.r.w", "residual.r.sum.w" };
    enum { ROWS = 48, N = 64 };
    static float all[ROWS * N], stays[ROWS * N], sent[ROWS * N];
    (void)state;
    for (int w = 0; w < COUNT(words); w++)
        for (int h = 0; h < COUNT(of); h++) {
            Graph *g = contract(squeezed(words[w]), of[h]);
            int64_t n = type_volume(&g->node[g->out[0].ref].type), lossy = 0;
            uint64_t seed = 7;
            for (int64_t i = 0; i < n; i++)
                all[i] = drawn(&seed, i / N);
            kernel_runs(g, all, stays, sent);
            for (int64_t i = 0; i < n; i++) {
                float top = 0, both = sent[i] + stays[i];
                for (int64_t k = i / N * N; k < i / N * N + N; k++)
                    top = fmaxf(top, fabsf(all[k]));
                float most = words[w] == U8 ? top / 250 : fabsf(all[i]) / 256;
                lossy += stays[i] != 0;
                if (memcmp(&both, &all[i], 4) || fabsf(stays[i]) > most)
                    fail_msg("%a is sent as %a and %a stays", all[i], sent[i],
                             stays[i]);
            }
            assert_true(lossy > n / 2);
        }
}

/* A number that is not finite is sent, and not kept for ever. */
static void nothing_stays_of_what_is_not_finite(void **state)
{
    enum { N = 48 * 64 };
    static float all[N], stays[N], sent[N];
    (void)state;
    for (int w = 0; w < COUNT(words); w++) {
        Graph *g = contract(squeezed(words[w]), "residual.r.w");
        for (int i = 0; i < N; i++)       /* the last one of some rows only */
            all[i] = i % 64 == i / 64 ? NAN : i % 64 == 63 && i / 64 % 2
                   ? INFINITY : i % 64 == 5 ? 1e30f : 1;
        kernel_runs(g, all, stays, sent);
        for (int i = 0; i < N; i++) {
            assert_true(isfinite(stays[i]));
            assert_true(isfinite(all[i]) || !isfinite(sent[i]));
        }
    }
}

/* ---- bytes ---- */

static int64_t bytes_sent(const Graph *g)
{
    int64_t n = 0;
    for (Ref r = 0; r < g->n; r++) {
        const Node *x = &g->node[r];
        if (x->op == OP_all_reduce)
            n += 2 * type_bytes(&g->mesh, &x->type) / 2;
        if (x->op == OP_all_gather || x->op == OP_all_to_all)
            n += type_bytes(&g->mesh, &x->type) / 2;
    }
    return n;
}

static void half_and_a_quarter_is_sent(void **state)
{
    (void)state;
    int64_t n[3];
    for (int w = 0; w < 3; w++) {
        Job j = { .keep = arena };
        Graph *g = squeezed(w ? words[w - 1] : F32);
        n[w] = bytes_sent(run_passes("local", g, &j));
    }
    assert_int_equal(n[0], 24 * 64 * 4);
    assert_int_equal(n[1], n[0] / 2);
    assert_true(n[2] <= n[0] / 4 + n[0] / 50);
}

static int make_arena(void **state)
{
    (void)state;
    op_init();
    arena = arena_new();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_means_the_plain_sum),
        cmocka_unit_test(sent_and_kept_are_all),
        cmocka_unit_test(nothing_stays_of_what_is_not_finite),
        cmocka_unit_test(half_and_a_quarter_is_sent),
    };
    return cmocka_run_group_tests(tests, make_arena, NULL);
}
