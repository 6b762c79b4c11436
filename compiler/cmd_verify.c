/* cmd_verify.c -- dpc verify: a plan computes what the model says.
 *
 * Every entry is evaluated twice in the field mod 2^61-1, where sums may be
 * cut and re-associated without a trace: as the model wrote it, on one rank,
 * and as the last pass left it, on all ranks and turns of the plan.  What the
 * entry returns and what it leaves in params and states must agree bit for
 * bit (reliability.md 4.2).  When something differs, the graphs in between
 * tell the first pass that it differs after.  Of a pipeline the parts of all
 * roles are evaluated, too, each with what it receives from the others; what
 * they return, keep and send is compared.  Then the tables of the unit go
 * to the checker of schedules, which knows nothing of passes. */
#include "codegen/unit.h"
#include "compiler/verify.h"
#include "ir/eval.h"

typedef struct Verdict {
    const char *entry;
    uint32_t values, steps;
    int64_t ranks, turns;
} Verdict;

static void trail_add(void *arg, const char *pass, const Graph *before,
                      const Graph *after)
{
    Trail *t = arg;
    if (t->next)
        t->next(NULL, pass, before, after);
    GROW(t->arena, t->stop, t->n, t->cap);
    t->stop[t->n++] = (Stop){ pass, after };
}

/* The entry with its gradient written out: what has a value of its own. */
static uint32_t trail_start(const Trail *t)
{
    uint32_t i = 0;
    while (i + 1 < t->n && strcmp(t->stop[i].pass, "grad") != 0)
        i++;
    return i;
}

/* ---- what is compared: outs, then sets ---- */

static uint32_t value_count(const Graph *g)
{
    return g->nout + g->nset;
}

static Ref value_ref(const Graph *g, uint32_t i)
{
    return i < g->nout ? g->out[i].ref : g->set[i - g->nout].value;
}

static const char *value_name(const Graph *g, uint32_t i)
{
    return i < g->nout ? g->out[i].name
         : g->node[g->set[i - g->nout].leaf].name;
}

/* Passes keep names, not places. */
static Ref value_find(const Graph *g, const Graph *of, uint32_t i)
{
    const char *name = value_name(of, i);
    for (uint32_t k = 0; k < value_count(g); k++)
        if ((k < g->nout) == (i < of->nout)
            && strcmp(value_name(g, k), name) == 0)
            return value_ref(g, k);
    return NONE;
}

typedef struct Difference { const char *name, *loc; int64_t at; } Difference;

/* Are value r of x and value q of y the same?  q NONE: it is lost. */
static bool same(Eval *x, const Graph *a, Ref r, Eval *y, Ref q,
                 Difference *d)
{
    int64_t n = type_volume(&a->node[r].type), k = 0;
    const Num *p = eval_get(x, r), *s = q == NONE ? NULL : eval_get(y, q);
    while (s && k < n && p[k].f == s[k].f)
        k++;
    d->at = k, d->loc = a->node[r].loc;
    return s && k == n;
}

/* The first value of `a` that `b` has otherwise, by runs of both; false:
 * none. */
static bool differs(Eval *x, const Graph *a, Eval *y, const Graph *b,
                    Difference *d)
{
    bool found = false;
    for (uint32_t i = 0; i < value_count(a) && !found; i++) {
        d->name = value_name(a, i);
        found = !same(x, a, value_ref(a, i), y, value_find(b, a, i), d);
    }
    return found;
}

/* ---- the parts of roles ---- */

static Ref hop_find(const Graph *g, int64_t id)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_hop && g->node[r].attr.id == id)
            return r;
    return NONE;
}

/* The first value that a role's part returns, keeps or sends otherwise than
 * the graph of all roles, whose run x is; the part receives what that has. */
static bool part_differs(Eval *x, const Graph *a, const Graph *part,
                         uint64_t seed, Difference *d)
{
    Eval *y = eval_new(part, FIELD, seed, 1);
    bool found = false;
    eval_receive(y, x);
    eval_run(y);
    for (uint32_t i = 0; i < value_count(part) && !found; i++) {
        Ref r = value_find(a, part, i);
        d->name = value_name(part, i);
        found = !same(y, part, value_ref(part, i), x, r, d);
    }
    for (Ref r = 0; r < part->n && !found; r++) {
        const Node *n = &part->node[r];
        if (n->op != OP_send)
            continue;
        d->name = n->name;
        found = !same(y, part, n->in[0], x, hop_find(a, n->attr.id), d);
    }
    eval_free(y);
    return found;
}

/* Both evaluations take a moment a point, on every rank and turn. */
static void size_check(const Options *o, const Graph *g)
{
    enum { MOST = 50 };                   /* Gflop: about two minutes */
    double flops = 0;
    for (Ref r = 0; r < g->n; r++)
        flops += node_flops(g, r);
    if (flops > MOST * 1e9)
        err(o->file[0], "verify: entry \"%s\" takes %.0f Gflop, more than %d "
            "by the reference; say smaller sizes with -D, or one --entry",
            g->entry, flops / 1e9, MOST);
}

static _Noreturn void blame(const Graph *a, const Difference *d,
                            const char *pass)
{
    err_code(6, d->loc, "verify: \"%s\"[%lld] of \"%s\" is another value "
             "after %s", d->name, (long long)d->at, a->entry, pass);
}

Graph **verify_run(const Graph *g, Job *job, Trail *t, int *n)
{
    Job watched = *job;
    t->next = job->check;
    watched.check = trail_add, watched.check_arg = t;
    watched.look_back = true;
    return run_roles(g, &watched, n);
}

/* The last graph of a role, or of all (-1), in the trail. */
static uint32_t trail_last(const Trail *t, int role)
{
    uint32_t i = t->n - 1;
    while (i && t->stop[i].g->role != role)
        i--;
    return i;
}

/* Of the graphs of all roles, each is that of the one before.  y: a run of the
 * last of them. */
static void whole_verify(const Trail *t, Eval *x, Eval *y, uint64_t seed)
{
    uint32_t from = trail_start(t), last = trail_last(t, -1);
    const Graph *a = t->stop[from].g;
    Difference d = { 0 };
    if (!differs(x, a, y, t->stop[last].g, &d))
        return;
    for (uint32_t k = from + 1;; k++) {
        const Graph *b = t->stop[k].g;
        Eval *z = eval_new(b, FIELD, seed, 1);
        eval_run(z);
        if (differs(x, a, z, b, &d))
            blame(a, &d, t->stop[k].pass);
        eval_free(z);
    }
}

/* x: a run of the graph of all roles. */
static void roles_verify(const Trail *t, const Graph *whole, Eval *x,
                         uint64_t seed)
{
    int roles = (int)mesh_size(&whole->mesh, mesh_axes(&whole->mesh, STAGE));
    Difference d = { 0 };
    for (int role = 0; role < roles; role++) {
        uint32_t last = trail_last(t, role), k = 0;
        if (!part_differs(x, whole, t->stop[last].g, seed, &d))
            continue;
        while (t->stop[k].g->role != role
               || !part_differs(x, whole, t->stop[k].g, seed, &d))
            k++;
        blame(whole, &d, t->stop[k].pass);
    }
}

/* A leaf that no role keeps would not be missed by any. */
static void sets_verify(const Trail *t, const Graph *whole)
{
    int roles = (int)mesh_size(&whole->mesh, mesh_axes(&whole->mesh, STAGE));
    for (uint32_t i = 0; i < whole->nset; i++) {
        bool kept = false;
        for (int role = 0; role < roles; role++)
            kept |= value_find(t->stop[trail_last(t, role)].g, whole,
                               whole->nout + i) != NONE;
        if (!kept)
            err_code(6, whole->node[whole->set[i].leaf].loc, "verify: no role "
                     "keeps \"%s\"", value_name(whole, whole->nout + i));
    }
}

uint32_t verify_values(const Options *o, const Trail *t)
{
    const Graph *a = t->stop[trail_start(t)].g;
    const Graph *whole = t->stop[trail_last(t, -1)].g;
    uint64_t seed = (uint64_t)o->seed;
    size_check(o, a);
    Eval *x = eval_new(a, FIELD, seed, 1);
    Eval *y = eval_new(whole, FIELD, seed, 1);
    eval_run(x), eval_run(y);
    whole_verify(t, x, y, seed);
    eval_free(x);
    if (t->stop[t->n - 1].g->role >= 0) {
        roles_verify(t, whole, y, seed);
        sets_verify(t, whole);
    }
    eval_free(y);
    return value_count(a);
}

static Verdict entry_verify(const Options *o, const Graph *g, Job *job,
                            Graph **done, int *n)
{
    const Mesh *m = &job->plan->mesh;
    Trail t = { .arena = o->arena };
    Verdict v = { .entry = g->entry, .ranks = plan_ranks(job->plan),
                  .turns = mesh_size(m, mesh_axes(m, TIME)) };
    int roles;
    Graph **role = verify_run(g, job, &t, &roles);
    v.values = verify_values(o, &t);
    for (int k = 0; k < roles; k++) {
        v.steps += role[k]->sched->nstep;
        done[(*n)++] = role[k];
    }
    return v;
}

/* What the runtime will do again when the binary starts. */
void verify_schedule(const Options *o, const Model *m, Graph *const *done,
                     int n)
{
    DpcUnit u = unit_rows(unit_new(done, n, false, o->arena), m->name);
    if (dpc_check(&u))
        err_code(6, o->file[0], "verify: %s", dpc_last_error());
}

static void verdict_print(const Options *o, const Verdict *v, bool first)
{
    if (o->json)
        printf("%s{\"entry\": \"%s\", \"ranks\": %lld, \"turns\": %lld, "
               "\"values\": %u, \"steps\": %u}", first ? "[" : ",\n ",
               v->entry, (long long)v->ranks, (long long)v->turns, v->values,
               v->steps);
    else
        printf("%s: %u values equal in the field on %lld rank%s x %lld turn%s"
               "; %u steps without race or deadlock\n", v->entry, v->values,
               (long long)v->ranks, v->ranks == 1 ? "" : "s",
               (long long)v->turns, v->turns == 1 ? "" : "s", v->steps);
}

int cmd_verify(const Options *o)
{
    if (o->fuzz)
        return verify_fuzz(o);
    if (!o->nfile)
        usage("verify: MODEL.lua is wanted, or --fuzz N; see dpc help verify");
    Model *m = model_open(o);
    Plan *plan = plan_open(o, m->entry, m->nentry);
    Job job = job_open(o, plan);
    int64_t roles = mesh_size(&plan->mesh, mesh_axes(&plan->mesh, STAGE));
    Graph **done = alloc(o->arena, (size_t)(m->nentry * roles)
                         * sizeof *done);
    Verdict *v = alloc(o->arena, (size_t)m->nentry * sizeof *v);
    int n = 0, ndone = 0;
    for (int i = 0; i < m->nentry; i++)
        if (!o->entry || strcmp(m->entry[i]->entry, o->entry) == 0)
            v[n++] = entry_verify(o, m->entry[i], &job, done, &ndone);
    if (!n)
        usage("--entry: \"%s\" has no entry \"%s\"", o->file[0], o->entry);
    verify_schedule(o, m, done, ndone);
    for (int i = 0; i < n; i++)
        verdict_print(o, &v[i], i == 0);
    if (o->json)
        printf("]\n");
    return 0;
}
