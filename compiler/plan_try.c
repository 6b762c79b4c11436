/* plan_try.c -- what "auto" tries, and how: each plan in a process of its own,
 * as many at a time as there are cores.
 *
 * A plan that is priced goes through all passes; one that is judged goes as far
 * as its collectives, which is a small part of the work: flops, bytes and
 * transfers of the nodes are added up, with what backward reads of forward as
 * the memory.  A process keeps a refusal, or a crash, to itself; what it found
 * comes back in memory that is shared, and the plan is made again from its
 * name. */
#include "compiler/planning.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void try_add(Tries *t, int micro, const char *recompute,
             const char *partitioner, const char *a, const char *b)
{
    GROW(t->arena, t->at, t->n, t->cap);
    Try *x = &t->at[t->n++];
    *x = (Try){ .partitioner = partitioner, .micro = micro,
                .recompute = recompute };
    Str name = { .arena = t->arena };
    str_add(&name, "%s", partitioner);
    for (int i = 0; i < 2; i++) {
        const char *set = i ? b : a;
        if (!set)
            continue;
        x->set.at[x->set.n++] = set;
        str_add(&name, " -P %s", set);
    }
    if (recompute)
        str_add(&name, " --recompute %s", recompute);
    x->name = name.p;
}

/* ---- one plan ---- */

static Options options_of(const Options *o, const Try *t)
{
    Options mine = *o;
    mine.partitioner = t->partitioner, mine.set = t->set;
    mine.micro = t->micro, mine.plan = NULL, mine.exact = false;
    mine.quiet = true;
    if (t->ranks)
        mine.ranks = t->ranks;
    if (t->recompute)
        mine.recompute = t->recompute;
    return mine;
}

Plan *try_plan(const Options *o, const Try *t, Graph *const *entry, int n)
{
    Options mine = options_of(o, t);
    return plan_open(&mine, entry, n);
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

static void try_judge(const Options *o, const Work *w, const Try *t, Priced *p)
{
    Options mine = options_of(o, t);
    Job j = job_open(&mine, plan_open(&mine, w->entry, w->nentry));
    j.start_from = w->begun && !j.plan->nvalue ? "partition" : NULL;
    j.stop_after = "local";
    const Graph *g = run_passes(NULL, j.start_from ? w->begun
                                : plan_entry(w->entry, w->nentry), &j);
    p->leaves = leaf_bytes(g);
    graph_judge(g, &j, p);
    int64_t all = p->arena, room = j.cluster->memory - p->leaves;
    p->micro = t->micro;
    while (p->micro < TURNS && !o->micro && room > 0 && p->arena > room
           && rows_cut(g, 2 * p->micro / t->micro)) {
        p->micro *= 2;
        p->arena = all * t->micro / p->micro;
    }
    p->fits = p->arena <= room;
    p->rough = true;
}

static void try_price(const Options *o, const Work *w, const Try *t, Priced *p)
{
    Options mine = options_of(o, t);
    p->plan = plan_open(&mine, w->entry, w->nentry);
    plan_price(&mine, plan_entry(w->entry, w->nentry), p);
}

/* ---- all of them ---- */

enum { WHY = 400 };
typedef struct Told { bool done; Priced p; char why[WHY]; } Told;

static void told_fill(const Options *o, const Work *w, const Try *t,
                      Told *told)
{
    ErrTrap trap;
    told->p.micro = t->micro;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        (w->judge ? try_judge : try_price)(o, w, t, &told->p);
        err_pop();
    } else
        snprintf(told->why, WHY, "%.*s", (int)strcspn(trap.text, "\n"),
                 trap.text);
    told->done = true;
}

/* Waits for one; how it ended, in words, where that was no good end. */
static void one_wait(const pid_t *pid, uint32_t n, Told *told)
{
    int status;
    pid_t p = waitpid(-1, &status, 0);
    for (uint32_t i = 0; i < n; i++)
        if (p > 0 && pid[i] == p && !told[i].done)
            snprintf(told[i].why, WHY, WIFSIGNALED(status)
                     ? "internal error: ended by signal %d"
                     : "internal error: exit %d", WIFSIGNALED(status)
                     ? WTERMSIG(status) : WEXITSTATUS(status));
}

Priced *tries_run(const Options *o, const Work *w, const Try *t, uint32_t n)
{
    size_t bytes = (n + 1) * sizeof(Told);
    Told *told = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        err_code(5, "dpc", "no memory: %s", strerror(errno));
    pid_t *pid = alloc(o->arena, (n + 1) * sizeof *pid);
    long cores = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
    fflush(NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (running >= (cores > 1 ? cores : 1))
            one_wait(pid, i, told), running--;
        pid[i] = fork();
        if (pid[i] < 0)
            err_code(5, "dpc", "no process: %s", strerror(errno));
        if (pid[i] == 0) {
            if (!freopen("/dev/null", "w", stderr))
                _exit(5);
            told_fill(o, w, &t[i], &told[i]);
            _exit(0);
        }
        running++;
    }
    for (; running > 0; running--)
        one_wait(pid, n, told);
    Priced *p = alloc(o->arena, (n + 1) * sizeof *p);
    for (uint32_t i = 0; i < n; i++) {
        p[i] = told[i].p;
        p[i].name = t[i].name, p[i].plan = NULL, p[i].of = t[i];
        p[i].of.micro = p[i].micro;
        p[i].why = told[i].why[0] ? intern(o->arena, told[i].why) : NULL;
    }
    munmap(told, bytes);
    return p;
}
