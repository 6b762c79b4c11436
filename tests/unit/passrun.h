/* passrun.h -- what tests of the passes share: a target and a fuse that stand
 * for codegen's, plans, the check around each pass. */
#ifndef DPC_TEST_PASSRUN_H
#define DPC_TEST_PASSRUN_H

#include "ir/eval.h"
#include "passes/pass.h"
#include "tests/unit/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- a target ---- */

static inline int fake_layout(const Graph *g, Ref r)
{
    return ops[g->node[r].op].family == FAMILY_conv ? 231 : 0;
}

static inline int64_t fake_scratch(const Graph *g, const Ref *r, int n,
                                   const uint32_t *uses)
{
    (void)uses;
    return n == 1 && ops[g->node[r[0]].op].family == FAMILY_conv ? 1000 : 0;
}

static const Target fake_target = {
    .name = "fake", .layout = fake_layout, .scratch = fake_scratch
};

/* A test that says HOST_TARGET runs codegen's host and the fuse of dpc. */
static inline const Target *target_of_test(void)
{
#ifdef HOST_TARGET
    return target_find("host");
#else
    return &fake_target;
#endif
}

/* ---- the check hook ---- */

typedef struct Seen {
    int passes;                           /* that ran */
    uint32_t compared;                    /* values */
    Eval *last;                           /* of what the last one made */
    EvalMemo *memo;                       /* of nodes that none has changed:
                                             the job looks back */
} Seen;

static inline Ref value_of(const Graph *g, const char *out, const char *leaf)
{
    for (uint32_t i = 0; out && i < g->nout; i++)
        if (strcmp(g->out[i].name, out) == 0)
            return g->out[i].ref;
    for (uint32_t i = 0; leaf && i < g->nset; i++)
        if (strcmp(g->node[g->set[i].leaf].name, leaf) == 0)
            return g->set[i].value;
    return NONE;
}

static inline void same_value(Eval *e, const Graph *g, Ref r, Eval *f,
                              Ref q, const char *pass, const char *what)
{
    if (q == NONE)
        fail_msg("%s: \"%s\" is lost", pass, what);
    const Num *x = eval_get(e, r), *y = eval_get(f, q);
    int64_t n = type_volume(&g->node[r].type);
    for (int64_t i = 0; i < n; i++)
        if (x[i].f != y[i].f)
            fail_msg("%s: \"%s\"[%d] changes", pass, what, (int)i);
}

static inline Eval *run_of(const Graph *g, EvalMemo *memo)
{
    Eval *e = eval_new(g, FIELD, 5, 3);
    if (memo)
        eval_share(e, memo);
    eval_run(e);
    return e;
}

/* Outs and set values of both are equal, bit for bit, in FIELD. */
static inline void same_values(const char *pass, Eval *e, const Graph *a,
                               Eval *f, const Graph *b)
{
    assert_int_equal(a->nout, b->nout);
    assert_int_equal(a->nset, b->nset);
    for (uint32_t i = 0; i < a->nout; i++)
        same_value(e, a, a->out[i].ref, f, value_of(b, a->out[i].name, NULL),
                   pass, a->out[i].name);
    for (uint32_t i = 0; i < a->nset; i++) {
        const char *leaf = a->node[a->set[i].leaf].name;
        same_value(e, a, a->set[i].value, f, value_of(b, NULL, leaf), pass,
                   leaf);
    }
}

static inline void same_meaning(const char *pass, const Graph *a,
                                const Graph *b)
{
    Eval *e = run_of(a, NULL), *f = run_of(b, NULL);
    same_values(pass, e, a, f, b);
    eval_free(e);
    eval_free(f);
}

static inline bool has_grad(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_grad)
            return true;
    return false;
}

static inline void check_pass(void *arg, const char *pass, const Graph *before,
                              const Graph *after)
{
    Seen *s = arg;
    s->passes++;
    if (!has_grad(before)) {              /* that has no value of its own */
        if (!s->memo)
            s->memo = eval_memo_new();
        if (!s->last)
            s->last = run_of(before, s->memo);
        Eval *e = run_of(after, s->memo);
        same_values(pass, s->last, before, e, after);
        eval_free(s->last);
        s->last = e;
        s->compared += before->nout + before->nset;
    }
    if (strcmp(pass, passes[npass - 1].name) == 0) {
        eval_free(s->last);
        eval_memo_free(s->memo);
        s->last = NULL, s->memo = NULL;
    }
}

/* ---- plans ---- */

typedef struct Way {
    const char *name, *mesh;              /* "r=2 t=4:time" */
    const char *input;                    /* of an input's first dimension */
    const char *first, *last;             /* of the first and last dimension of */
} Way;                                    /* leaves that are kept */

static const Way ways[] = {
    { "one rank", "", "", "", "" },
    { "batch on ranks", "r=2", "r", "", "" },
    { "batch on ranks and turns", "r=2 t=2:time", "rt", "", "" },
    { "turns", "t=4:time", "t", "", "" },
    { "columns", "r=2 c=2", "r", "", "c" },
    { "rows", "r=2 c=2", "r", "c", "" },
    { "states split", "r=2 t=2:time", "rt", "r", "" },
    { "states and columns, turns", "r=2 c=2 t=2:time", "rt", "r", "c" },
    { "turns before ranks", "r=2 t=2:time", "tr", "", "" },
    { "four columns", "c=4", "", "", "c" },
    { "four rows", "c=4", "", "c", "" },
    { "ranks in two levels", "a=2 r=2", "ar", "r", "" },
    { "three axes on the batch", "r=2 c=2 t=2:time", "tcr", "", "" },
    { "turns in two levels", "t=2:time u=2:time", "tu", "", "" },
    { "ranks, turns in two levels", "r=2 t=2:time u=2:time", "rtu", "r", "" },
    { "axes of one", "r=1 c=1 t=1:time", "rt", "r", "c" },
    { "uneven batch", "r=3", "r", "", "" },
    { "uneven turns of an uneven batch", "r=3 t=2:time", "rt", "", "" },
    { "uneven rows and columns", "r=3 c=5", "r", "r", "c" },
    { "more ranks than rows", "r=7 t=2:time", "tr", "r", "" },
};

static inline Split way_split(const Mesh *m, const char *axes)
{
    Split s = 0;
    for (; *axes; axes++)
        s = split_push(s, mesh_find(m, (char[]){ *axes, 0 }));
    return s;
}

static inline Plan *way_plan(Arena *a, const Way *w, const Graph *g)
{
    Plan *p = alloc(a, sizeof *p);
    *p = (Plan){ .bucket = 100, .compute = F32 };
    if (*w->mesh)
        p->mesh = graph_parse(a, fmt(a, "mesh %s\nentry train\nphase tensor\n",
                                     w->mesh), "plan")->mesh;
    p->leaf = alloc(a, (g->n + 1) * sizeof *p->leaf);
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        bool kept = n->op == OP_param || n->op == OP_state;
        if (!n->type.ndim || !(kept || n->op == OP_input))
            continue;
        LeafPlan *l = &p->leaf[p->nleaf++];
        *l = (LeafPlan){ .name = n->name, .ndim = n->type.ndim };
        int last = n->type.ndim - 1;
        Split s = way_split(&p->mesh, kept ? w->first : w->input);
        l->split[0] = s;
        s = way_split(&p->mesh, w->last);
        if (kept && last)
            l->split[last] = s;
    }
    return p;
}

static inline char *graph_string(Arena *a, const Graph *g)
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

/* ---- fuse, as far as the passes around it see it ---- */

/* A move that only groups or ungroups: the same order of the same numbers. */
static inline bool keeps_order(const Node *n)
{
    char left[64], right[64], *l = left, *r = right;
    const char *s = n->attr.sig, *arrow = strstr(s, "->");
    for (const char *p = s; p < arrow; p++)
        if (*p != '(' && *p != ')' && *p != ' ')
            *l++ = *p;
    for (const char *p = arrow + 2; *p; p++)
        if (*p != '(' && *p != ')' && *p != ' ')
            *r++ = *p;
    *l = *r = 0;
    return strcmp(left, right) == 0;
}

static bool fuse_chains;                  /* pointwise readers join makers */

static inline bool own_kernel(const Graph *g, const Node *n)
{
    Family f = ops[n->op].family;
    bool data = n->op == OP_input || n->op == OP_param || n->op == OP_state
        || n->op == OP_scalar;
    bool view = n->op == OP_move && keeps_order(n)
        && g->node[n->in[0]].layout == 0 && !n->layout;
    return !data && !view && n->op != OP_dot
        && (f == FAMILY_nest || f == FAMILY_index || f == FAMILY_take
            || f == FAMILY_random);
}

static inline bool pointwise_op(const Node *n)
{
    return ops[n->op].family == FAMILY_nest && ops[n->op].arity > 0
        && strncmp(ops[n->op].sig, "...", 3) == 0;
}

#ifndef HOST_TARGET
static inline Graph *same_graph(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        copy_node(&c, r);
    return copy_end(&c);
}

/* These two ask the fuse of dpc. */
Graph *pass_refold(const Graph *in, Job *j)
{
    return same_graph(in, j);
}

Graph *pass_recompute(const Graph *in, Job *j)
{
    return same_graph(in, j);
}

Graph *pass_fuse(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    uint32_t *uses = graph_uses(in, j->scratch);
    int next = 0;
    for (Ref r = 0; r < in->n; r++) {
        Ref q = copy_node(&c, r);
        Node *n = &c.out->node[q];
        if (!own_kernel(c.out, n))
            continue;
        n->kernel = next++;
        for (int i = 0; fuse_chains && i < n->nin; i++) {
            const Node *x = &c.out->node[n->in[i]];
            if (x->kernel >= 0 && pointwise_op(n) && pointwise_op(x)
                && uses[in->node[r].in[i]] == 1 && x->segment == n->segment
                && x->loop == n->loop && x->layout == n->layout) {
                n->kernel = x->kernel;
                break;
            }
        }
    }
    return copy_end(&c);
}
#endif

#endif
