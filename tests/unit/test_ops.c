/* test_ops.c -- laws of the op table, each over all rows.
 *
 * A new row is tested with no line added here: its operands are made from its
 * signature (cases.h).  Rows with their own signature ("@1", "@2") run a
 * handful of them, rows with windows several strides, pads and dilations. */
#include "tests/unit/cases.h"

/* ---- linear groups ---- */

/* Is f(p + q) = f(p) + f(q) when the operands of `group` move together? */
static bool linear(const Case *c, unsigned group, enum Sort sort)
{
    Ref in[NIN];
    Graph *g = build(c, &alone, in);
    Ref r = g->n - 1;
    Num *x[3][NIN], *y[3];
    int64_t n = volume(g, r);
    for (int k = 0; k < 3; k++) {
        y[k] = alloc(arena, (size_t)(n + 1) * sizeof *y[k]);
        for (int i = 0; i < c->nin; i++) {
            bool m = group >> i & 1;
            x[k][i] = values(&c->in[i], sort, (uint64_t)(m ? 10 * k : 0) +
                             (uint64_t)i + 1);
            for (int64_t j = 0; m && k == 2 && j < volume(g, in[i]); j++)
                x[2][i][j].r = x[0][i][j].r + x[1][i][j].r;
        }
        eval_node(g, r, REAL, (const Num *const *)x[k], y[k]);
    }
    double top = 1;                       /* sums cancel */
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(y[2][i].r));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(y[2][i].r - y[0][i].r - y[1][i].r) <= 1e-12 * top))
            return false;
    return true;
}

/* A folded pending sum: its group takes own'd operands, finishing equals
 * the whole. */
static void pending_passes(const Case *c, unsigned group)
{
    Mesh two = { 1, { { "x", 2, SPACE } } };
    Ref in[NIN], part[NIN];
    Graph *one = build(c, &alone, in), *g = build(c, &two, in);
    for (int i = 0; i < c->nin; i++) {
        Attr a = { .axes = 1 };
        part[i] = in[i];
        if (group >> i & 1)
            part[i] = emit_typed(g, OP_own, &a, coll_type(g, OP_own, &a, in[i],
                                 LOC), &in[i], 1, NULL, LOC);
    }
    Ref y = emit(g, c->op, &c->attr, part, c->nin, LOC);
    assert_int_equal(g->node[y].type.partial, 1);
    Eval *e = eval_new(g, FIELD, 0, 0), *f = eval_new(one, FIELD, 0, 0);
    eval_run(e), eval_run(f);
    if (memcmp(eval_get(e, y), eval_get(f, one->n - 1),
               (size_t)volume(g, y) * sizeof(Num)) != 0)
        fail_msg("%s: group %x does not pass a pending sum",
                 ops[c->op].name, group);
    eval_free(e), eval_free(f);
}

/* A group is linear in every case; an operand in none fails in some. */
static void lin_groups_are_linear_and_no_others(void **state)
{
    (void)state;
    int pairs = 0;
    Case c[NCASE];
    for (Op op = 0; op < OP_COUNT; op++) {
        int n = cases_of(op, c, false);
        for (int i = 0; n && i < c[0].nin; i++) {
            Ref in[NIN];
            Graph *g = build(&c[0], &alone, in);
            bool lin = op_linear(op, i, i), always = true;
            unsigned group = 1u << i;
            for (int j = 0; lin && j < c[0].nin; j++)
                group |= (unsigned)op_linear(op, i, j) << j;
            if (!moves(g, &c[0], in, i))
                continue;
            for (int k = 0; k < n; k++) {
                always &= linear(&c[k], group, SIGNED)
                          && linear(&c[k], group, WHOLE);
                if (lin)
                    pending_passes(&c[k], group);
            }
            if (always != lin)
                fail_msg("%s: lin says %d of operand %d", ops[op].name, lin,
                         i);
            pairs++;
        }
    }
    print_message("  %d groups\n", pairs);
}

/* ---- the one law ---- */

/* The case with letter l split over axis 0; false when it cannot be. */
static bool split_letter(Case *c, int l)
{
    Ref in[NIN];
    Graph *g = build(c, &alone, in);
    Sig s = sig_bind(g, c->op, &c->attr, in, c->nin, LOC);
    bool read = false, inner_letter = false;
    if (!s.size[l] || s.fixed[l] || s.extent[l])    /* windows: test_halo.c */
        return false;
    for (int i = 0; i < s.nin; i++)
        for (int d = 0; d < s.in[i].ndim; d++) {
            const Dim *m = &s.in[i].dim[d];
            for (int k = 1; k < m->n; k++)
                inner_letter |= m->c[k] == l;
            if (m->c[0] != l)
                continue;
            read |= !s.in[i].unread;
            inner_letter |= m->n > 1 && s.size[l] % 2;
            c->in[i].split[d] = split_push(0, 0);
        }
    for (int d = 0; d < s.out.ndim; d++) {
        for (int k = 1; k < s.out.dim[d].n; k++)
            inner_letter |= s.out.dim[d].c[k] == l;
        inner_letter |= s.out.dim[d].n > 1 && s.out.dim[d].c[0] == l
                        && s.size[l] % 2;
    }
    if (!read) {                          /* the node alone says so */
        Letter *own_ = alloc(arena, 9 * sizeof *own_);
        int n = 0;
        for (int i = 0; i < c->attr.nletter; i++)
            if (c->attr.letter[i].c != l)
                own_[n++] = c->attr.letter[i];
        own_[n++] = (Letter){ (char)l, s.size[l], split_push(0, 0) };
        c->attr.letter = own_, c->attr.nletter = n;
    }
    return !inner_letter;
}

static Num *small(const Type *t, uint64_t seed)   /* field: 0, 1, 2 */
{
    int64_t n = type_volume(t);
    Num *x = alloc(arena, (size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i].f = (uint64_t)(3 * noise(&seed));
    return x;
}

static void check_split(const Case *whole, const Case *part, AxisKind kind,
                        int l)
{
    Mesh two = { 1, { { "x", 2, kind } } };
    Ref in[NIN], ip[NIN];
    Graph *g = build(whole, &alone, in), *h = build(part, &two, ip);
    Ref r = g->n - 1;
    verify(h, "emit");
    if (!(type_axes(&h->node[r].type) & 1))
        fail_msg("%s: split letter %c is lost", ops[whole->op].name, l);
    for (int set = 0; set < 2; set++) {
        Eval *e = eval_new(g, FIELD, 5, 1), *f = eval_new(h, FIELD, 5, 1);
        for (int i = 0; set && i < whole->nin; i++) {
            Num *x = small(&whole->in[i], (uint64_t)i + 1);
            eval_set(e, in[i], x), eval_set(f, ip[i], x);
        }
        eval_run(e), eval_run(f);
        if (memcmp(eval_get(e, r), eval_get(f, r),
                   (size_t)volume(g, r) * sizeof(Num)) != 0)
            fail_msg("%s %s: letter %c split over a %s axis differs",
                     ops[whole->op].name,
                     whole->attr.sig ? whole->attr.sig : ops[whole->op].sig, l,
                     kind == TIME ? "time" : kind == STAGE ? "stage" : "space");
        eval_free(e), eval_free(f);
    }
}

static void split_letters_join_or_fold_to_the_whole(void **state)
{
    (void)state;
    int pairs = 0;
    Case c[NCASE];
    for (Op op = 0; op < OP_COUNT; op++)
        for (int odd = 0; odd < 2; odd++) {
            int n = cases_of(op, c, odd);
            for (int i = 0; i < n; i++)
                for (int l = 0; l < NLETTER; l++) {
                    Case part = c[i];
                    if (ops[op].arity < 0 || !split_letter(&part, l))
                        continue;
                    for (AxisKind k = SPACE; k <= TIME; k++, pairs++)
                        check_split(&c[i], &part, k, l);
                }
        }
    print_message("  %d letters\n", pairs);
}

/* Leaves that are made, not given, are the same whatever the split. */
static void made_leaves_do_not_know_the_mesh(void **state)
{
    (void)state;
    const char *dist[] = { "uniform", "normal" };
    for (Op op = 0; op < OP_COUNT; op++)
        for (int i = 0; ops[op].leaf && i < 4; i++) {
            Mesh two = { 1, { { "x", 2, i & 1 ? TIME : SPACE } } };
            Attr a = { .value = 3, .id = 4, .dim = i & 1, .dist = dist[i / 2] };
            Type t = { .ndim = 2, .dim = { 5, 4 } }, u = t;
            u.split[i / 2] = split_push(0, 0);
            Graph *g = graph_new(arena, &alone), *h = graph_new(arena, &two);
            emit_typed(g, op, &a, t, NULL, 0, "x", LOC);
            emit_typed(h, op, &a, u, NULL, 0, "x", LOC);
            for (Domain d = REAL; d <= FIELD; d++) {
                Eval *e = eval_new(g, d, 9, 2), *f = eval_new(h, d, 9, 2);
                eval_run(e), eval_run(f);
                assert_memory_equal(eval_get(e, 0), eval_get(f, 0),
                                    20 * sizeof(Num));
                eval_free(e), eval_free(f);
            }
        }
}

/* ---- collectives ---- */

static char *text_of(const Graph *g)
{
    char *p = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&p, &n);
    graph_print(g, f);
    fclose(f);
    char *copy = fmt(arena, "%s", p);
    free(p);
    return copy;
}

static void same_text(const Graph *g)
{
    char *one = text_of(g);
    char *two = text_of(graph_parse(arena, one, "text"));
    assert_string_equal(one, two);
}

/* Lying `how`: dimensions unsplit or over an axis, a sum owed; false when an
 * axis would stand twice. */
static bool lie(Type *t, int how, Axes *owed)
{
    Axes used = 0;
    *t = (Type){ .ndim = 2, .dim = { 6, 12 } };
    for (int d = 0; d < 2; d++, how /= 3) {
        Split s = how % 3 ? split_push(0, how % 3 - 1) : 0;
        if (used & split_axes(s))
            return false;
        used |= split_axes(s);
        t->split[d] = s;
    }
    *owed = (Axes)how;
    return !(used & *owed);
}
enum { NLIE = 9 * 4 };

static Ref owing(Graph *g, Ref x, Axes owed)
{
    Attr a = { .axes = owed };
    if (!owed)
        return x;
    return emit_typed(g, OP_own, &a, coll_type(g, OP_own, &a, x, LOC), &x, 1,
                      NULL, LOC);
}

/* No type: an axis stands in it twice (V1). */
static bool twice(const Type *t)
{
    Axes used = t->partial;
    for (int d = 0; d < t->ndim; d++) {
        if (used & split_axes(t->split[d]))
            return true;
        used |= split_axes(t->split[d]);
    }
    return false;
}

static bool keeps_value(Op op, const Type *t, Axes owed, const Attr *a,
                        const Type *want)
{
    Mesh m = { 2, { { "x", 2, SPACE }, { "t", 3, TIME } } };
    if (op == OP_ring)
        m.axis[1] = (Axis){ "x'", 2, TIME };
    Graph *g = graph_new(arena, &m);
    ErrTrap trap;
    Type u;
    Ref leaf = emit_typed(g, OP_input, NULL, *t, NULL, 0, "x", LOC);
    Ref x = owing(g, leaf, owed);
    if (setjmp(trap.jump))
        return false;                     /* no such collective */
    err_push(&trap);
    u = want ? *want : coll_type(g, op, a, x, LOC);
    err_pop();
    if (twice(&u))
        return false;
    Ref y = emit_typed(g, op, a, u, &x, 1, NULL, LOC);
    Eval *e = eval_new(g, FIELD, 0, 0);
    verify(g, "emit");
    eval_run(e);
    if (memcmp(eval_get(e, leaf), eval_get(e, y), 72 * sizeof(Num)) != 0)
        fail_msg("%s: %s -> %s is another value", ops[op].name,
                 type_text(arena, &m, &g->node[x].type),
                 type_text(arena, &m, &u));
    eval_free(e);
    same_text(g);
    return true;
}

static void collectives_change_no_value(void **state)
{
    (void)state;
    int pairs = 0;
    for (Op op = 0; op < OP_COUNT; op++) {
        int before = pairs;
        for (int have = 0; have < NLIE; have++)
            for (int k = 0; k < NLIE; k++) {
                Attr a = { .axes = (Axes)(1 + k % 3), .dim = k / 3 % 2,
                           .to = 1 - k / 3 % 2 };
                Type t, want;
                Axes owed, owes;
                bool any = op == OP_reshard;
                if (ops[op].family != FAMILY_collective
                    || !lie(&t, have, &owed) || (!any && k >= 6)
                    || (any && !lie(&want, k, &owes)))
                    continue;
                if (any)
                    want.partial = owes;
                pairs += keeps_value(op, &t, owed, &a, any ? &want : NULL);
            }
        if (ops[op].family == FAMILY_collective && pairs == before)
            fail_msg("%s never ran", ops[op].name);
    }
    print_message("  %d collectives\n", pairs);
}

/* ---- text ---- */

static void rows_print_and_read_back(void **state)
{
    (void)state;
    Case c[NCASE];
    Mesh m = { 2, { { "x", 2, SPACE }, { "t", 3, TIME } } };
    int n = 0;
    for (Op op = 0; op < OP_COUNT; op++) {
        int k = cases_of(op, c, false);
        Attr a = { .axes = 1, .value = 2.5, .id = 3, .dim = 1,
                   .dist = "normal" };
        Type t = { .ndim = 2, .dim = { 6, 12 } };
        for (int i = 0; i < k; i++, n++) {
            Ref in[NIN];
            same_text(build(&c[i], &m, in));
        }
        if (k || ops[op].family == FAMILY_collective)
            continue;                     /* those: above */
        Graph *g = graph_new(arena, &m);
        Ref x = emit_typed(g, OP_input, NULL, t, NULL, 0, "a", LOC);
        if (ops[op].leaf || op == OP_recv)
            emit_typed(g, op, &a, t, NULL, 0, "leaf", LOC);
        else                              /* grad: of a scalar */
            EMIT(g, op, NULL, LOC, emit_const(g, 1, NULL, LOC), x);
        same_text(g);
        n++;
    }
    print_message("  %d graphs\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lin_groups_are_linear_and_no_others),
        cmocka_unit_test(split_letters_join_or_fold_to_the_whole),
        cmocka_unit_test(made_leaves_do_not_know_the_mesh),
        cmocka_unit_test(collectives_change_no_value),
        cmocka_unit_test(rows_print_and_read_back),
    };
    op_init();
    arena = arena_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}
