/* plan_try.c -- what "auto" tries, and how: each plan in a process of its own,
 * as many at a time as there are cores.
 *
 * What no plan changes is made once, for all.  A plan whose leaves alone do not
 * fit goes no further.  One that is priced goes through all passes; one that is
 * judged as far as its collectives, which is a small part of the work: flops,
 * bytes and transfers of the nodes are added up, with what backward reads of
 * forward as the memory.  The best of those are held, stopped, with what they
 * have made, and go on from there where they are to be priced.  A process keeps
 * a refusal, or a crash, to itself; what it found comes back in memory that is
 * shared, and the plan is made again from its name. */
#include "compiler/apart.h"
#include "compiler/planning.h"
#include "passes/offload.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

Try *try_add(Tries *t, int micro, const char *partitioner, const char *a,
             const char *b, const char *c)
{
    const char *const set[] = { a, b, c };
    GROW(t->arena, t->at, t->n, t->cap);
    Try *x = &t->at[t->n++];
    *x = (Try){ .partitioner = partitioner, .micro = micro };
    Str name = { .arena = t->arena };
    str_add(&name, "%s", partitioner);
    for (int i = 0; i < COUNT(set) && set[i]; i++) {
        x->set.at[x->set.n++] = set[i];
        str_add(&name, " -P %s", set[i]);
    }
    x->name = name.p;
    return x;
}

void try_add_word(Tries *t, const Try *of, const char *recompute)
{
    GROW(t->arena, t->at, t->n, t->cap);
    Try *x = &t->at[t->n++];
    *x = *of;
    x->recompute = recompute;
    x->name = fmt(t->arena, "%s --recompute %s", of->name, recompute);
}

/* ---- one plan ---- */

static Options options_of(const Options *o, const Try *t)
{
    Options mine = *o;
    mine.quiet = true;
    if (t->partitioner || !o->plan)       /* which has turns of its own */
        mine.micro = t->micro;
    if (t->partitioner) {
        mine.partitioner = t->partitioner, mine.set = t->set;
        mine.plan = NULL, mine.exact = false;
    }
    if (t->dtype)
        mine.dtype = t->dtype;
    if (t->offload)
        mine.offload = t->offload;
    if (t->ranks)
        mine.ranks = t->ranks;
    if (t->recompute)
        mine.recompute = t->recompute;
    return mine;
}

/* A plan file may say another word of recomputation than a way out of it. */
static Plan *plan_of(const Options *o, const Try *t, Graph *const *entry,
                     int n)
{
    Options mine = *o;
    if (t->partitioner || !t->recompute)
        return plan_open(o, entry, n);
    mine.recompute = NULL;
    Plan *p = plan_open(&mine, entry, n);
    recompute_read(o->arena, t->recompute, p);
    return p;
}

Plan *try_plan(const Options *o, const Try *t, Graph *const *entry, int n)
{
    Options mine = options_of(o, t);
    return plan_of(&mine, t, entry, n);
}

static const Graph *priced_of(const Work *w)
{
    return w->of ? w->of : plan_entry(w->entry, w->nentry);
}

const Graph *work_begin(const Options *o, const Work *w)
{
    Plan *plan = plan_begin(dtype_wanted(o), o->arena);
    Job j = job_open(o, plan);
    j.stop_after = "segment";
    return run_passes(NULL, priced_of(w), &j);
}

/* Share of the bytes of loops that kernels move once they are fused, and of a
 * transfer that computing does not hide. */
static const double moved = 0.3, bare = 0.3;

static double node_seconds(const Graph *g, Ref r, const Job *j)
{
    const Node *n = &g->node[r];
    Amount a = { .kind = PRODUCTS, .flops = node_flops(g, r) };
    bool product = n->op == OP_dot || ops[n->op].family == FAMILY_conv
        || ops[n->op].family == FAMILY_attention;
    if (!n->nin || ops[n->op].family == FAMILY_collective)
        return 0;
    a.bytes = (double)type_bytes(&g->mesh, &n->type) * (product ? 1 : moved);
    for (int i = 0; i < n->nin; i++)
        a.bytes += (double)type_bytes(&g->mesh, &g->node[n->in[i]].type)
            * (product ? 1 : moved);
    a.dtype = product ? g->node[n->in[0]].type.dtype : F32;
    Rates free = j->cluster->rates;
    free.launch = 1e-12;
    return amount_seconds(&a, &free, j->target);
}

/* May its value be kept for backward?  About half of those are made again at
 * hand, or share a kernel with what makes them. */
static const double held = 0.5;
static bool is_kept(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    return n->segment == FORWARD && n->nin && view_root(g, r) == r
        && !node_is_spread(n);
}

/* The most bytes that one node reads and makes: no plan of that graph holds
 * less. */
static int64_t at_once(const Graph *g)
{
    int64_t most = 0;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        int64_t bytes = n->nin && view_root(g, r) == r && !node_is_spread(n)
            ? type_bytes(&g->mesh, &n->type) : 0;
        for (int i = 0; i < n->nin && bytes; i++) {
            const Node *x = &g->node[view_root(g, n->in[i])];
            if (x->nin && !node_is_spread(x))
                bytes += type_bytes(&g->mesh, &x->type);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void graph_judge(const Graph *g, const Job *j, Priced *p)
{
    bool *read = alloc(j->keep, (g->n + 1) * sizeof *read);
    double compute = 0, send = 0, kept = 0;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        int turns = graph_turns(g, n->loop);
        Launch l = { .n = 1, .node = &r };
        for (int i = 0; n->segment > FORWARD && i < n->nin; i++)
            read[view_root(g, n->in[i])] = true;
        if (n->nin && launch_communicates(g, &l))
            send += turns * transfer_seconds(g, r, j->cluster);
        else
            compute += turns * node_seconds(g, r, j);
    }
    for (Ref r = 0; r < g->n; r++)
        if (read[r] && is_kept(g, r))
            kept += held * (double)type_bytes(&g->mesh, &g->node[r].type);
    p->spent = (Spent){ .compute = compute, .communicate = send,
                        .step = compute + bare * send };
    double room = (double)memory_limit(j) - (double)p->leaves;
    if (j->plan->recompute == RECOMPUTE_AUTO && kept > room)
        kept = fmax(room, (double)at_once(g));      /* the rest: made again */
    p->arena = (int64_t)kept;
}

/* The most turns among which a batch is cut to fit. */
enum { TURNS = 16 };

/* Can the rows that a rank has in a turn be cut in two, so many times? */
static bool rows_cut(const Graph *g, int parts)
{
    for (Ref r = 0; r < g->n; r++) {
        const Type *t = &g->node[r].type;
        if (g->node[r].op == OP_input && t->ndim && t->split[0]
            && type_local(&g->mesh, t).dim[0] % parts)
            return false;
    }
    return true;
}

enum { WHY = 400 };
typedef struct Told {
    bool done, go;                        /* go: it is to be priced */
    Priced p;
    char why[WHY];
    const Graph *local;                   /* of that process: what is priced, as
                                             it was judged; NULL: it is not to
                                             be gone on with */
} Told;

/* The graph where the plan has split its leaves, and in *j how to go on; NULL:
 * all that a plan says before, values and stages, needs the whole way. */
static const Graph *leaves_split(const Options *o, const Work *w, Job *j,
                                 Priced *p)
{
    const Plan *plan = p->plan;
    *j = job_open(o, plan);
    if (!w->begun || plan->nvalue || plan->nstage
        || plan->compute != dtype_wanted(o))
        return NULL;
    j->start_from = j->stop_after = "partition";
    const Graph *g = run_passes(NULL, w->begun, j);
    p->leaves = leaf_bytes(g);
    p->alone = !plan->offload && p->leaves > memory_limit(j);
    j->start_from = "propagate";
    return g;
}

static void try_judge(const Options *o, const Work *w, const Try *t,
                      Told *told)
{
    Options mine = options_of(o, t);
    Priced *p = &told->p;
    Job j;
    bool later = offload_says(mine.offload, "auto");
    if (later)
        mine.offload = NULL;              /* which takes whole compiles */
    p->plan = plan_of(&mine, t, w->entry, w->nentry);
    const Graph *g = leaves_split(o, w, &j, p);
    if (p->alone)
        return;
    j.stop_after = p->plan->offload && !p->plan->nstage ? "offload" : "local";
    g = run_passes(NULL, g ? g : priced_of(w), &j);
    p->leaves = leaf_bytes(g);
    graph_judge(g, &j, p);
    int64_t all = p->arena, room = memory_limit(&j) - p->leaves;
    p->micro = t->micro;
    while (p->micro < TURNS && !o->micro && room > 0 && p->arena > room
           && rows_cut(g, 2 * p->micro / t->micro)) {
        p->micro *= 2;
        p->arena = all * t->micro / p->micro;
    }
    p->fits = p->arena <= room;
    p->rough = true;
    if (!later && p->micro == t->micro && strcmp(j.stop_after, "local") == 0)
        told->local = g;
}

static void try_price(const Options *o, const Work *w, const Try *t,
                      Told *told)
{
    Options mine = options_of(o, t);
    Priced *p = &told->p;
    Job j;
    if (told->local) {
        *p = (Priced){ .micro = t->micro, .plan = p->plan };
        plan_price(&mine, told->local, "cut", p);
        return;
    }
    p->plan = t->plan ? t->plan : plan_of(&mine, t, w->entry, w->nentry);
    const Graph *g = leaves_split(o, w, &j, p);
    if (!p->alone)
        plan_price(&mine, g ? g : priced_of(w), g ? j.start_from : NULL, p);
}

/* ---- all of them ---- */

static void told_fill(const Options *o, const Work *w, const Try *t,
                      Told *told)
{
    ErrTrap trap;
    told->p.micro = t->micro;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        (w->judge ? try_judge : try_price)(o, w, t, told);
        err_pop();
    } else
        snprintf(told->why, WHY, "%.*s", (int)strcspn(trap.text, "\n"),
                 trap.text);
    told->done = true;
}

/* Those that were judged: what they told, and who is held. */
struct Held {
    Told *told;
    pid_t *pid;                           /* 0: not, or no longer */
    uint32_t n;
};

static void process_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void tries_end(Work *w)
{
    for (uint32_t i = 0; w->held && i < w->held->n; i++)
        if (w->held->pid[i])
            process_end(w->held->pid[i]);
    if (w->held)
        apart_free(w->held->told, (w->held->n + 1) * sizeof(Told));
    w->held = NULL;
}

/* Holds one more; where those are too many, the worst goes. */
static void hold(const Work *w, uint32_t i, pid_t pid)
{
    struct Held *h = w->held;
    uint32_t n = 0, worst = i;
    h->pid[i] = pid;
    for (uint32_t k = 0; k < h->n; k++) {
        n += h->pid[k] != 0;
        if (h->pid[k] && plans_order(&h->told[k].p, &h->told[worst].p) > 0)
            worst = k;
    }
    if (n <= w->most)
        return;
    process_end(h->pid[worst]);
    h->pid[worst] = 0;
}

typedef struct Run {
    const Try *t;
    uint32_t n, running;
    Told **told;
    pid_t *pid;                           /* 0: not begun, -1: over */
} Run;

/* Process i of the run has ended so, or has stopped to be held. */
static void one_over(const Work *w, Run *r, uint32_t i, int status)
{
    pid_t pid = r->pid[i];
    if (WIFSTOPPED(status) && !(w->held && w->judge && r->told[i]->done))
        return;                           /* by someone at a keyboard */
    r->pid[i] = -1, r->running--;
    if (WIFSTOPPED(status))
        hold(w, i, pid);
    else if (!r->told[i]->done)
        snprintf(r->told[i]->why, WHY, WIFSIGNALED(status)
                 ? "internal error: ended by signal %d"
                 : "internal error: exit %d", WIFSIGNALED(status)
                 ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Waits for any. */
static void one_wait(const Work *w, Run *r)
{
    int status;
    pid_t p = waitpid(-1, &status, WUNTRACED);
    for (uint32_t i = 0; i < r->n; i++)
        if (p > 0 && r->pid[i] == p)
            one_over(w, r, i, status);
    if (p < 0 && errno != EINTR)
        die("no process to wait for: %s", strerror(errno));
}

static bool same_set(const Try *a, const Try *b)
{
    bool same = a->set.n == b->set.n;
    for (int i = 0; same && i < a->set.n; i++)
        same = strcmp(a->set.at[i], b->set.at[i]) == 0;
    return same;
}

static bool same_word(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Are the leaves of a no smaller than those of b, another try? */
static bool is_no_smaller(const Try *a, const Try *b)
{
    return same_word(a->partitioner, b->partitioner) && a->ranks == b->ranks
        && same_word(a->dtype, b->dtype) && same_word(a->offload, b->offload)
        && (same_set(a, b) || (a->size && b->size >= a->size));
}

/* Where the leaves alone of such a one did not fit, these do not. */
static bool is_ruled_out(Run *r, uint32_t i)
{
    for (uint32_t k = 0; k < r->n; k++)
        if (k != i && r->told[k]->done && r->told[k]->p.alone
            && is_no_smaller(&r->t[i], &r->t[k])) {
            *r->told[i] = *r->told[k];
            r->told[i]->p.micro = r->t[i].micro;
            r->told[i]->p.rough |= !same_set(&r->t[i], &r->t[k]);
            return true;
        }
    return false;
}

/* Ends those that run on in vain. */
static void ruled_out_end(Run *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->pid[i] <= 0 || !is_ruled_out(r, i))
            continue;
        process_end(r->pid[i]);
        is_ruled_out(r, i);               /* whatever it said last */
        r->pid[i] = -1, r->running--;
    }
}

/* The first that waits for none that may rule it out; else the first. */
static uint32_t next_of(const Run *r)
{
    uint32_t first = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        bool waits = false;
        if (r->pid[i])
            continue;
        for (uint32_t k = 0; k < r->n; k++)
            waits |= r->pid[k] > 0 && is_no_smaller(&r->t[i], &r->t[k]);
        if (!waits)
            return i;
        first = first < r->n ? first : i;
    }
    return first;
}

/* The work of a process; where it is held, all of it. */
static void try_work(const Options *o, const Work *w, const Try *t, Told *told)
{
    Work next = *w;
    told_fill(o, w, t, told);
    if (!w->judge || !w->held || !told->local)
        return;
    while (!told->go)
        raise(SIGSTOP);
    next.judge = false;
    told_fill(o, &next, t, told);
}

/* A process that ends with this one, however that ends. */
static pid_t try_fork(const Options *o, const Work *w, const Try *t,
                      Told *told)
{
    pid_t us = getpid(), pid = fork();
    if (pid < 0)
        err_code(5, "dpc", "no process: %s", strerror(errno));
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != us || !freopen("/dev/null", "w", stderr))
        _exit(5);
    try_work(o, w, t, told);
    _exit(0);
}

static void try_begin(const Options *o, Work *w, Run *r, uint32_t i)
{
    uint32_t was = r->t[i].judged - 1;
    if (w->judge || !w->held || !r->t[i].judged || !w->held->pid[was]) {
        r->pid[i] = try_fork(o, w, &r->t[i], r->told[i]);
    } else {
        r->pid[i] = w->held->pid[was], w->held->pid[was] = 0;
        r->told[i] = &w->held->told[was];
        r->told[i]->done = false, r->told[i]->go = true;
        kill(r->pid[i], SIGCONT);
    }
    r->running++;
}

static Run run_open(const Options *o, Work *w, const Try *t, uint32_t n,
                    Told *told)
{
    Run r = { .t = t, .n = n };
    r.told = alloc(o->arena, (n + 1) * sizeof(Told *));
    r.pid = alloc(o->arena, (n + 1) * sizeof *r.pid);
    for (uint32_t i = 0; i < n; i++)
        r.told[i] = &told[i];
    if (w->judge && w->most) {
        w->held = alloc(o->arena, sizeof *w->held);
        *w->held = (struct Held){ .told = told, .n = n };
        w->held->pid = alloc(o->arena, (n + 1) * sizeof(pid_t));
    }
    fflush(NULL);
    return r;
}

static Priced told_of(const Options *o, const Work *w, const Run *r, uint32_t i)
{
    const Told *told = r->told[i];
    Priced p = told->p;
    p.name = r->t[i].name, p.plan = NULL, p.of = r->t[i];
    p.of.micro = p.micro;
    p.of.judged = w->judge && w->held ? i + 1 : 0;
    p.why = told->why[0] ? intern(o->arena, told->why) : NULL;
    return p;
}

Priced *tries_run(const Options *o, Work *w, const Try *t, uint32_t n)
{
    size_t bytes = (n + 1) * sizeof(Told);
    Told *told = apart_memory(bytes);
    Run r = run_open(o, w, t, n, told);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (uint32_t i; (i = next_of(&r)) < n;) {
        if (is_ruled_out(&r, i))
            r.pid[i] = -1;
        else if (r.running >= (cores > 1 ? cores : 1))
            one_wait(w, &r), ruled_out_end(&r);
        else
            try_begin(o, w, &r, i);
    }
    Plan *plan = w->wanted && n && r.running < cores
        ? try_plan(o, t, w->entry, w->nentry) : NULL;
    while (r.running)
        one_wait(w, &r), ruled_out_end(&r);
    Priced *p = alloc(o->arena, (n + 1) * sizeof *p);
    for (uint32_t i = 0; i < n; i++)
        p[i] = told_of(o, w, &r, i);
    p[0].plan = plan;
    if (!w->held || w->held->told != told)
        apart_free(told, bytes);
    return p;
}
