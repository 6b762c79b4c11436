/* test_sched.c -- order, bytes and events, by a checker of their own. */
#include "tests/unit/simulate.h"

static Arena *arena;

#ifdef HOST_TARGET
enum { NCHAINS = 1 };                     /* its fuse knows no chains */
#else
enum { NCHAINS = 2 };
#endif

/* Made once, for all claims. */
static const Graph *scheduled(const Model *m, const Way *w, bool chains)
{
    static const Graph *made[COUNT(models)][COUNT(ways)][NCHAINS];
    const Graph **at = &made[m - models][w - ways][chains];
    if (!*at) {
        Graph *g = model_graph(arena, m);
        Job j = { .keep = arena, .plan = way_plan(arena, w, g),
                  .target = target_of_test() };
        fuse_chains = chains;
        *at = run_passes(NULL, g, &j);
    }
    return *at;
}

#define FOR_ALL(g, chains, ...)                                          \
    for (int i_ = 0; i_ < COUNT(models); i_++)                           \
        for (int k_ = 0; k_ < COUNT(ways); k_++)                         \
            for (int chains = 0; chains < NCHAINS; chains++) {           \
                const Graph *g = scheduled(&models[i_], &ways[k_], chains); \
                where = fmt(arena, "%s, %s%s", models[i_].name,          \
                            ways[k_].name, chains ? ", chains" : "");    \
                __VA_ARGS__                                              \
            }
static const char *where;

static void what_runs_is_what_is_meant(void **state)
{
    (void)state;
    FOR_ALL(g, chains, {
        assert_true(simulate(g) > 0);
    })
}

/* ---- the checker: what each step touches, found anew ---- */

typedef struct Touch {
    int64_t area, from, to;               /* bytes */
    Ref root, node;                       /* NONE: scratch */
    int turn;
    bool write;
} Touch;

typedef struct Touches { Touch *t; uint32_t n, cap; } Touches;

typedef struct World {
    const Graph *g;
    const Sched *s;
    uint32_t *of;                         /* launch of a node, + 1 */
    bool *leaves;                         /* node: read outside its launch */
    Touches *touch;                       /* by step */
} World;

static Ref bytes_of(const Graph *g, Ref r)
{
    while (g->node[r].op == OP_move && g->node[r].kernel < 0)
        r = g->node[r].in[0];
    return r;
}

static bool has_time(const Graph *g, Ref r)
{
    return type_axes(&g->node[r].type) & mesh_axes(&g->mesh, TIME);
}

static void touch(World *w, uint32_t step, Ref r, int turn, bool write)
{
    const Graph *g = w->g;
    Ref v = bytes_of(g, r), root = w->s->buf[v].root;
    const Buf *b = &w->s->buf[root];
    Touches *t = &w->touch[step];
    assert_true(b->used);
    int64_t at = space_leaves(b->space) ? 0 : b->at;
    int instance = instance_in(g, root, turn);
    at = b->place ? b->place[instance] : at + instance % b->slots * b->stride;
    GROW(arena, t->t, t->n, t->cap);
    t->t[t->n++] = (Touch){
        space_leaves(b->space) ? NSPACE + (int64_t)root : b->space, at,
        at + b->size, root, r, instance, write
    };
}

static void touch_all(World *w)
{
    const Graph *g = w->g;
    for (uint32_t k = 0; k < w->s->nstep; k++) {
        const Step *q = &w->s->step[k];
        const Launch *l = &w->s->launch[q->launch];
        for (int i = 0; i < l->n; i++) {
            const Node *n = &g->node[l->node[i]];
            for (int m = 0; m < n->nin; m++)
                if (!op_unread(n->op, m)
                    && w->of[bytes_of(g, n->in[m])] != q->launch + 1)
                    touch(w, k, n->in[m], q->turn, false);
            if (w->leaves[l->node[i]])
                touch(w, k, l->node[i], q->turn, true);
        }
        if (l->scratch) {
            Touches *t = &w->touch[k];
            GROW(arena, t->t, t->n, t->cap);
            t->t[t->n++] = (Touch){ ARENA, q->scratch_at, q->scratch_at
                                    + l->scratch, NONE, NONE, 0, true };
        }
    }
}

static World world(const Graph *g)
{
    World w = { .g = g, .s = g->sched };
    w.of = alloc(arena, (g->n + 1) * sizeof *w.of);
    w.leaves = alloc(arena, g->n + 1);
    w.touch = alloc(arena, (w.s->nstep + 1) * sizeof *w.touch);
    for (uint32_t l = 0; l < w.s->nlaunch; l++)
        for (int i = 0; i < w.s->launch[l].n; i++) {
            assert_int_equal(w.of[w.s->launch[l].node[i]], 0);
            w.of[w.s->launch[l].node[i]] = l + 1;
        }
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++) {
            Ref v = bytes_of(g, g->node[r].in[i]);
            if (!op_unread(g->node[r].op, i)
                && (w.of[v] != w.of[r] || v != g->node[r].in[i]))
                w.leaves[v] = true;
        }
    for (uint32_t i = 0; i < g->nset; i++)
        w.leaves[bytes_of(g, g->set[i].value)] = true;
    for (uint32_t i = 0; i < g->nout; i++)
        w.leaves[bytes_of(g, g->out[i].ref)] = true;
    touch_all(&w);
    return w;
}

/* ---- order ---- */

static void once_a_turn_and_operands_first(const World *w)
{
    const Graph *g = w->g;
    int turns = graph_turns(g, (Axes)~0u);
    int64_t *at = alloc(arena, ((size_t)w->s->nlaunch * (size_t)turns + 1)
                        * sizeof *at);        /* step + 1 */
    for (uint32_t k = 0; k < w->s->nstep; k++) {
        const Step *q = &w->s->step[k];
        int64_t *x = &at[q->launch * (uint32_t)turns + (uint32_t)q->turn];
        assert_int_equal(*x, 0);
        *x = k + 1;
    }
    for (uint32_t l = 0; l < w->s->nlaunch; l++) {
        int n = 0, want = graph_turns(g, g->node[w->s->launch[l].node[0]].loop);
        for (int t = 0; t < turns; t++)
            n += at[l * (uint32_t)turns + (uint32_t)t] != 0;
        assert_int_equal(n, want);
    }
    for (uint32_t k = 0; k < w->s->nstep; k++) {
        const Step *q = &w->s->step[k];
        const Launch *l = &w->s->launch[q->launch];
        for (int i = 0; i < l->n; i++)
            for (int m = 0; m < g->node[l->node[i]].nin; m++) {
                if (op_unread(g->node[l->node[i]].op, m))
                    continue;
                Ref v = bytes_of(g, g->node[l->node[i]].in[m]);
                uint32_t p = w->of[v];
                if (!p || p == q->launch + 1)
                    continue;
                for (int t = 0; t < turns; t++)
                    if (!has_time(g, v) || t == q->turn)
                        assert_true(at[(p - 1) * (uint32_t)turns + (uint32_t)t]
                                    <= k);
            }
    }
}

static void launches_run_once_a_turn_after_their_operands(void **state)
{
    (void)state;
    FOR_ALL(g, chains, {
        World w = world(g);
        once_a_turn_and_operands_first(&w);
    })
}

/* ---- bytes ---- */

typedef struct Life { Touch what; uint32_t from, to; } Life;

/* One life a (root, turn), and one a (scratch, step). */
static Life *lives_of(const World *w, uint32_t *n)
{
    uint32_t turns = (uint32_t)graph_turns(w->g, (Axes)~0u), cap = 0;
    uint32_t *at = alloc(arena, (w->g->n * turns + 1) * sizeof *at);
    Life *life = NULL;
    *n = 0;
    for (uint32_t k = 0; k < w->s->nstep; k++)
        for (uint32_t i = 0; i < w->touch[k].n; i++) {
            const Touch *t = &w->touch[k].t[i];
            uint32_t *x = t->root == NONE ? NULL
                : &at[t->root * turns + (uint32_t)t->turn];
            if (t->area != ARENA)
                continue;
            if (x && *x) {
                life[*x - 1].to = k;
                continue;
            }
            GROW(arena, life, *n, cap);
            life[(*n)++] = (Life){ *t, k, k };
            if (x)
                *x = *n;
        }
    return life;
}

static void no_live_bytes_are_shared(const World *w)
{
    uint32_t n;
    const Life *life = lives_of(w, &n);
    for (uint32_t i = 0; i < n; i++) {
        const Life *a = &life[i];
        assert_true(a->what.from >= 0 && a->what.to <= w->s->bytes[ARENA]);
        for (uint32_t k = 0; k < i; k++) {
            const Life *b = &life[k];
            if (a->from <= b->to && b->from <= a->to
                && a->what.from < b->what.to && b->what.from < a->what.to)
                fail_msg("%s: live bytes are shared at step %u", where,
                         a->from);
        }
    }
}

static bool is_aligned(const World *w, const Launch *l)
{
    bool is = true;
    for (int i = 0; i < l->n; i++) {
        const Node *n = &w->g->node[l->node[i]];
        is &= pointwise_op(n) || !n->nin || n->op == OP_all_reduce
            || n->op == OP_copy
            || (n->op == OP_move && n->attr.sig[0] == '-');
    }
    return is;
}

/* What writes over what it reads does so index by index: by its ops, or the
 * target says so. */
static void writers_over_operands_are_aligned(const World *w)
{
    const Target *target = target_of_test();
    const uint32_t *uses = graph_uses(w->g, arena);
    for (uint32_t k = 0; k < w->s->nstep; k++) {
        const Launch *l = &w->s->launch[w->s->step[k].launch];
        const Touches *t = &w->touch[k];
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t m = 0; m < t->n; m++) {
                const Touch *a = &t->t[i];
                const Touch *b = &t->t[m];
                if (!a->write || b->write || a->area != b->area
                    || a->from >= b->to || b->from >= a->to)
                    continue;
                assert_true(a->from == b->from && a->to == b->to);
                assert_true(is_aligned(w, l)
                            || (target->over
                                && target->over(w->g, l->node, l->n, uses,
                                                b->node, a->node)));
            }
    }
}

static void results_and_inputs_have_bytes_of_their_own(const World *w)
{
    const Graph *g = w->g;
    for (Ref r = 0; r < g->n; r++) {
        const Buf *a = &w->s->buf[r];
        if (!a->used || a->root != r || a->space != IO)
            continue;
        assert_true(a->at + a->stride * (a->slots - 1) + a->size
                    <= w->s->bytes[IO]);
        for (Ref k = 0; k < r; k++) {
            const Buf *b = &w->s->buf[k];
            if (b->used && b->root == k && b->space == IO)
                assert_true(a->at >= b->at + b->stride * b->slots
                            || b->at >= a->at + a->stride * a->slots);
        }
    }
}

static void bytes_are_shared_by_the_dead_alone(void **state)
{
    (void)state;
    double worst[2] = { 1, 1 };           /* of one turn, of several */
    FOR_ALL(g, chains, {
        World w = world(g);
        no_live_bytes_are_shared(&w);
        writers_over_operands_are_aligned(&w);
        results_and_inputs_have_bytes_of_their_own(&w);
        if (g->sched->lower) {
            double x = (double)g->sched->bytes[ARENA]
                / (double)g->sched->lower;
            double *most = &worst[graph_turns(g, (Axes)~0u) > 1];
            *most = x > *most ? x : *most;
        }
    })
    /* An offset serves all turns, which the bound does not know; and these
     * graphs have few buffers of few sizes. */
    print_message("worst peak: %.3f of the lower bound, %.3f with turns\n",
                  worst[0], worst[1]);
    assert_true(worst[0] <= 1.07 && worst[1] <= 1.3);
}

/* ---- events ---- */

typedef struct Pair { uint32_t first, then; } Pair;
typedef struct Pairs { Pair *p; uint32_t n, cap; } Pairs;

static bool clash(const Touches *a, const Touches *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++) {
            const Touch *x = &a->t[i];
            const Touch *y = &b->t[k];
            if ((x->write || y->write) && x->area == y->area
                && x->from < y->to && y->from < x->to)
                return true;
        }
    return false;
}

static Pairs clashes(const World *w)
{
    Pairs p = { 0 };
    for (uint32_t k = 0; k < w->s->nstep; k++)
        for (uint32_t q = 0; q < k; q++)
            if (w->s->step[q].stream != w->s->step[k].stream
                && clash(&w->touch[q], &w->touch[k])) {
                GROW(arena, p.p, p.n, p.cap);
                p.p[p.n++] = (Pair){ q, k };
            }
    return p;
}

/* Is some clash not ordered by streams and waits, wait `without` left out? */
static bool races(const World *w, const Pairs *p, uint32_t without,
                  uint32_t *nwait)
{
    const Sched *s = w->s;
    int64_t (*seen)[2] = alloc(arena, (s->nstep + 1) * sizeof *seen);
    int64_t *setter = alloc(arena, ((size_t)s->nevent + 1) * sizeof *setter);
    int64_t now[2][2] = { { -1, -1 }, { -1, -1 } };
    uint32_t count = 0;
    for (int i = 0; i < s->nevent; i++)
        setter[i] = -1;
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Step *q = &s->step[k];
        int64_t *c = now[q->stream];
        for (uint32_t i = 0; i < q->nwait; i++) {
            int64_t from = setter[q->wait[i]];
            assert_true(from >= 0);       /* set by an earlier step */
            if (count++ == without)
                continue;
            for (int x = 0; x < 2; x++)
                c[x] = seen[from][x] > c[x] ? seen[from][x] : c[x];
        }
        c[q->stream] = k;
        memcpy(seen[k], c, sizeof seen[k]);
        if (q->event >= 0)
            setter[q->event] = k;
    }
    *nwait = count;
    for (uint32_t i = 0; i < p->n; i++)
        if (seen[p->p[i].then][s->step[p->p[i].first].stream] < p->p[i].first)
            return true;
    return false;
}

static void no_race_and_no_idle_wait(void **state)
{
    (void)state;
    uint32_t waits = 0, n, x;
    FOR_ALL(g, chains, {
        World w = world(g);
        Pairs p = clashes(&w);
        if (races(&w, &p, UINT32_MAX, &n))
            fail_msg("%s: a race", where);
        for (uint32_t i = 0; i < n; i++)
            if (!races(&w, &p, i, &x))
                fail_msg("%s: wait %u of %u is idle", where, i, n);
        waits += n;
    })
    print_message("%u waits, each needed\n", waits);
    assert_true(waits > 100);
}

/* ---- the order itself ---- */

static void sums_of_ranks_start_before_later_gradients(void **state)
{
    (void)state;
    const Graph *g = scheduled(&models[0], &ways[1], false);
    uint32_t last = 0, first = UINT32_MAX;
    for (uint32_t k = 0; k < g->sched->nstep; k++) {
        const Step *q = &g->sched->step[k];
        const Node *n = &g->node[g->sched->launch[q->launch].node[0]];
        if (n->segment == BACKWARD && n->op == OP_dot)
            last = k;
        if (q->stream == 1 && first == UINT32_MAX && n->segment == BACKWARD)
            first = k;
    }
    assert_true(first < last);
}

static void each_gradient_is_summed_once(void **state)
{
    (void)state;
    for (int k = 1; k < 3; k++) {
        const Graph *g = scheduled(&models[0], &ways[k], false);
        int sums = 0;
        for (Ref r = 0; r < g->n; r++)
            sums += g->node[r].op == OP_all_reduce
                && (g->node[r].attr.axes & mesh_axes(&g->mesh, SPACE)) != 0;
        assert_int_equal(sums, 3 + 1);    /* and the loss */
        for (uint32_t i = 0; i < g->sched->nstep; i++) {
            const Step *q = &g->sched->step[i];
            const Node *n = &g->node[g->sched->launch[q->launch].node[0]];
            if (n->segment == UPDATE)
                assert_int_equal(q->turn, 0);
        }
    }
}

int main(void)
{
    op_init();
    arena = arena_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_runs_is_what_is_meant),
        cmocka_unit_test(launches_run_once_a_turn_after_their_operands),
        cmocka_unit_test(bytes_are_shared_by_the_dead_alone),
        cmocka_unit_test(no_race_and_no_idle_wait),
        cmocka_unit_test(sums_of_ranks_start_before_later_gradients),
        cmocka_unit_test(each_gradient_is_summed_once),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
