/* chunk.c -- which stage does what when: the order of a pipeline.
 *
 * A step is cut into chunks: a segment of a stage in a turn.  A role does its
 * own one by one.  GPipe (Huang et al., NeurIPS 2019) does all forwards first;
 * 1F1B (Narayanan et al., PipeDream, SOSP 2019) lets as many be ahead as there
 * are roles behind; interleaved (Narayanan et al., SC 2021, section 2.2) does
 * so with several stages a role.  There the order of each role is a list, and
 * the clock says only when each begins.  ZB-H1 (Qi et al., "Zero Bubble
 * Pipeline Parallelism", ICLR 2024) splits the gradients of weights off, which
 * nothing waits for, and fills gaps with them.  `auto` tries these, and lists
 * made as the clock runs: backward first, then forward while few are ahead,
 * then weights; the quickest wins that keeps no more than it may.
 *
 * What no backward belongs to (the forward of a frozen model) stands in no
 * list: it fills gaps, or runs when its role has nothing else to do. */
#include "passes/chunk.h"
#include <math.h>
#include <stdlib.h>

const char *const pattern_names[NPATTERN] = {
    "gpipe", "1f1b", "interleaved", "zb-h1", "auto", "given"
};

bool order_splits(Pattern p)
{
    return p == ZB_H1 || p == AUTO;
}

/* What a role does next, where the clock decides. */
typedef struct Rule {
    bool listed;                          /* by its list; else: */
    int ahead;                            /* forwards without their backward,
                                             in those that 1F1B has there */
    int kept;                             /* without their weight */
    bool patient;                         /* weights only where no backward
                                             comes before they would be done */
} Rule;

typedef struct Run {
    const Pipe *p;
    const Rule *rule;
    Arena *a;
    double *done;                         /* by chunk; infinity: not yet */
    double *free;                         /* by role: when it is */
    int *next;                            /* [nstage][NSEGMENT]: turn */
    int *warm;                            /* by role: forwards of 1F1B before
                                             its first backward */
    Chunk **list;                         /* by role */
    int *nlist, *at;                      /* its length; how far it is */
    int *ahead, *kept, *most;             /* by role; most: of kept */
    Timetable t;
} Run;

static int index_of(const Pipe *p, Chunk c)
{
    return ((int)(c.segment - FORWARD) * p->nstage + c.stage) * p->nturn
        + c.turn;
}

static double cost_of(const Pipe *p, Chunk c)
{
    return p->cost[c.stage * NSEGMENT + (int)(c.segment - FORWARD)];
}

static bool has(const Pipe *p, int stage, Segment s)
{
    return cost_of(p, (Chunk){ s, stage, 0 }) >= 0;
}

static double done(const Run *r, int stage, Segment s, int turn)
{
    return has(r->p, stage, s)
        ? r->done[index_of(r->p, (Chunk){ s, stage, turn })] : 0;
}

static void later(double *t, double than)
{
    *t = than > *t ? than : *t;
}

/* When all that the chunk reads is made; infinity: not known yet. */
static double ready(const Run *r, Chunk c)
{
    const Pipe *p = r->p;
    double t = 0;
    if (c.segment != FORWARD)
        later(&t, done(r, c.stage, FORWARD, c.turn));
    if (c.segment == WEIGHT)
        later(&t, done(r, c.stage, BACKWARD, c.turn));
    for (int s = 0; s < p->nstage; s++) {
        int feeds = p->feeds[s * p->nstage + c.stage];
        if (c.segment == FORWARD && feeds & FEEDS_FORWARD)
            later(&t, done(r, s, FORWARD, c.turn));
        if (c.segment == BACKWARD && feeds & FEEDS_BACKWARD)
            later(&t, done(r, s, BACKWARD, c.turn));
        if (c.segment == BACKWARD && feeds & FEEDS_LATER)
            later(&t, done(r, s, FORWARD, c.turn));
    }
    return t;
}

/* Stages that only run forward, where others do more. */
static bool fills(const Pipe *p, int stage)
{
    bool train = false;
    for (int s = 0; s < p->nstage; s++)
        train |= has(p, s, BACKWARD);
    return train && !has(p, stage, BACKWARD);
}

/* ---- what a role may do ---- */

typedef struct Pick { Chunk chunk; double begin; bool any; } Pick;

/* The sooner; of two at once the more urgent. */
static void prefer(Pick *best, Chunk c, double begin, bool urgent)
{
    if (begin == INFINITY)
        return;
    if (!best->any || begin < best->begin
        || (begin == best->begin && urgent))
        *best = (Pick){ c, begin, true };
}

static double begins(const Run *r, int role, Chunk c)
{
    double t = ready(r, c);
    return t > r->free[role] ? t : r->free[role];
}

/* The first turn of that segment of a stage that is not done; -1. */
static int next_turn(const Run *r, int stage, Segment s)
{
    int t = r->next[stage * NSEGMENT + (int)(s - FORWARD)];
    return has(r->p, stage, s) && t < r->p->nturn ? t : -1;
}

/* Backward of the earliest turn first; forward of the latest stage. */
static Pick pick_segment(const Run *r, int role, Segment s, bool filler)
{
    Pick best = { .any = false };
    for (int k = 0; k < r->p->nstage; k++) {
        int turn = next_turn(r, k, s);
        if (r->p->role_of[k] != role || turn < 0
            || (s == FORWARD && fills(r->p, k) != filler))
            continue;
        Chunk c = { s, k, turn };
        prefer(&best, c, begins(r, role, c),
               s == FORWARD || turn <= best.chunk.turn);
    }
    return best;
}

static Pick pick_by_rule(const Run *r, int role)
{
    Pick b = pick_segment(r, role, BACKWARD, false), best = b;
    bool room = r->ahead[role] < r->rule->ahead * (r->warm[role] + 1)
        && r->kept[role] < r->rule->kept;
    Pick f = pick_segment(r, role, FORWARD, false);
    Pick w = pick_segment(r, role, WEIGHT, false);
    if (f.any && room)
        prefer(&best, f.chunk, f.begin, false);
    if (!w.any)
        return best;
    bool fits = !best.any || w.begin + cost_of(r->p, w.chunk) <= best.begin;
    if (fits || (!r->rule->patient && w.begin < best.begin))
        best = w;
    return best;
}

static Pick pick_listed(const Run *r, int role)
{
    Pick best = { .any = false };
    if (r->at[role] < r->nlist[role]) {
        Chunk c = r->list[role][r->at[role]];
        prefer(&best, c, begins(r, role, c), true);
    }
    return best;
}

static Pick pick(const Run *r, int role)
{
    Pick best = r->rule->listed ? pick_listed(r, role)
        : pick_by_rule(r, role);
    Pick f = pick_segment(r, role, FORWARD, true);
    if (f.any && (!best.any
                  || f.begin + cost_of(r->p, f.chunk) <= best.begin))
        return f;
    return best;
}

/* ---- the clock ---- */

static void do_chunk(Run *r, int role, Chunk c, double begin)
{
    Timetable *t = &r->t;
    double end = begin + cost_of(r->p, c);
    bool splits = has(r->p, c.stage, WEIGHT), filler = fills(r->p, c.stage);
    r->done[index_of(r->p, c)] = r->free[role] = end;
    r->next[c.stage * NSEGMENT + (int)(c.segment - FORWARD)]++;
    t->chunk[t->n] = c, t->begin[t->n] = begin, t->end[t->n++] = end;
    later(&t->step, end);
    r->at[role] += r->rule->listed && !filler;
    r->ahead[role] += filler ? 0 : (c.segment == FORWARD)
        - (c.segment == BACKWARD);
    r->kept[role] += filler ? 0 : (c.segment == FORWARD)
        - (c.segment == (splits ? WEIGHT : BACKWARD));
    if (r->kept[role] > r->most[role])
        r->most[role] = r->kept[role];
}

typedef struct Row { Chunk chunk; double begin, end; int role; } Row;

static int by_end(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    return x->end != y->end ? (x->end > y->end) - (x->end < y->end)
         : x->role != y->role ? x->role - y->role
         : (x->begin > y->begin) - (x->begin < y->begin);
}

static void sort_timetable(Run *r)
{
    Timetable *t = &r->t;
    Row *row = alloc(r->a, (t->n + 1) * sizeof *row);
    for (uint32_t i = 0; i < t->n; i++)
        row[i] = (Row){ t->chunk[i], t->begin[i], t->end[i],
                        r->p->role_of[t->chunk[i].stage] };
    qsort(row, t->n, sizeof *row, by_end);
    for (uint32_t i = 0; i < t->n; i++) {
        t->chunk[i] = row[i].chunk;
        t->begin[i] = row[i].begin, t->end[i] = row[i].end;
    }
}

/* The stages of a role that train, ascending. */
static int stages_of(const Pipe *p, int role, int *out)
{
    int n = 0;
    for (int s = 0; s < p->nstage; s++)
        if (p->role_of[s] == role && !fills(p, s))
            out[n++] = s;
    return n;
}

/* Forwards before the first backward of a role. */
static int warm_up(const Pipe *p, int role, int n)
{
    int behind = p->nrole - role - 1, all = n * p->nturn;
    int w = n > 1 ? 2 * behind + (n - 1) * p->nrole : behind;
    return w < all ? w : all;
}

static uint32_t chunk_count(const Pipe *p)
{
    uint32_t n = 0;
    for (int i = 0; i < p->nstage * NSEGMENT; i++)
        n += p->cost[i] >= 0 ? (uint32_t)p->nturn : 0;
    return n;
}

static Run run_new(const Pipe *p, const Rule *rule, Arena *a)
{
    Run r = { .p = p, .rule = rule, .a = a };
    size_t roles = (size_t)p->nrole + 1, n = chunk_count(p);
    int *stage = alloc(a, ((size_t)p->nstage + 1) * sizeof *stage);
    size_t all = (size_t)(NSEGMENT * p->nstage) * (size_t)p->nturn;
    r.done = alloc(a, (all + 1) * sizeof *r.done);
    for (size_t i = 0; i < all; i++)
        r.done[i] = INFINITY;
    r.free = alloc(a, roles * sizeof *r.free);
    r.warm = alloc(a, roles * sizeof *r.warm);
    r.next = alloc(a, ((size_t)(NSEGMENT * p->nstage) + 1) * sizeof *r.next);
    r.list = alloc(a, roles * sizeof *r.list);
    r.nlist = alloc(a, roles * sizeof *r.nlist);
    r.at = alloc(a, roles * sizeof *r.at);
    r.ahead = alloc(a, roles * sizeof *r.ahead);
    r.kept = alloc(a, roles * sizeof *r.kept);
    r.most = alloc(a, roles * sizeof *r.most);
    for (int k = 0; k < p->nrole; k++) {
        r.list[k] = alloc(a, (n + 1) * sizeof **r.list);
        r.warm[k] = warm_up(p, k, stages_of(p, k, stage));
    }
    r.t.chunk = alloc(a, (n + 1) * sizeof *r.t.chunk);
    r.t.begin = alloc(a, (n + 1) * sizeof *r.t.begin);
    r.t.end = alloc(a, (n + 1) * sizeof *r.t.end);
    return r;
}

/* False: the lists wait for each other in a circle. */
static bool clock_run(Run *r)
{
    double work = 0;
    for (uint32_t left = chunk_count(r->p); left--;) {
        Pick best = { .any = false };
        int role = -1;
        for (int k = 0; k < r->p->nrole; k++) {
            Pick p = pick(r, k);
            if (p.any && (!best.any || p.begin < best.begin))
                best = p, role = k;
        }
        if (role < 0)
            return false;
        work += cost_of(r->p, best.chunk);
        do_chunk(r, role, best.chunk, best.begin);
    }
    for (int k = 0; k < r->p->nrole; k++)
        if (r->most[k] > r->t.alive)
            r->t.alive = r->most[k];
    r->t.bubble = r->t.step > 0 ? 1 - work / (r->p->nrole * r->t.step) : 0;
    sort_timetable(r);
    return true;
}

/* ---- lists ---- */

static void put(Run *r, int role, Segment s, int stage, int turn)
{
    if (has(r->p, stage, s))
        r->list[role][r->nlist[role]++] = (Chunk){ s, stage, turn };
}

static void list_gpipe(Run *r, int role, const int *stage, int n)
{
    for (int k = 0; k < n; k++)
        for (int t = 0; t < r->p->nturn; t++)
            put(r, role, FORWARD, stage[k], t);
    for (int k = n; k-- > 0;)
        for (int t = 0; t < r->p->nturn; t++) {
            put(r, role, BACKWARD, stage[k], t);
            put(r, role, WEIGHT, stage[k], t);
        }
}

/* The k-th forward of a role: as many turns as there are roles through its
 * first stage, then through the next; the last group may be smaller.  Backward
 * goes through the stages from the last. */
static void nth(const Pipe *p, int k, int n, int *stage, int *turn)
{
    int group = k / (p->nrole * n), in = k % (p->nrole * n);
    int first = group * p->nrole, size = p->nturn - first;
    size = size < p->nrole ? size : p->nrole;
    *stage = in / size, *turn = first + in % size;
}

static void list_1f1b(Run *r, int role, const int *stage, int n)
{
    const Pipe *p = r->p;
    int all = n * p->nturn, warm = warm_up(p, role, n), s, t;
    for (int k = 0; k < all + warm; k++) {
        if (k < all) {
            nth(p, k, n, &s, &t);
            put(r, role, FORWARD, stage[s], t);
        }
        if (k >= warm) {
            nth(p, k - warm, n, &s, &t);
            put(r, role, BACKWARD, stage[n - 1 - s], t);
            put(r, role, WEIGHT, stage[n - 1 - s], t);
        }
    }
}

/* As 1F1B, but role i leaves i gradients of weights until the end: so the last
 * role's backward begins soon, and no role keeps more than the first. */
static void list_zb_h1(Run *r, int role, const int *stage, int n)
{
    const Pipe *p = r->p;
    int warm = warm_up(p, role, n);
    for (int t = 0; t < warm; t++)
        put(r, role, FORWARD, stage[0], t);
    for (int t = 0; t < p->nturn; t++) {
        if (t + warm < p->nturn)
            put(r, role, FORWARD, stage[0], t + warm);
        put(r, role, BACKWARD, stage[0], t);
        if (t >= role)
            put(r, role, WEIGHT, stage[0], t - role);
    }
    int left = role < p->nturn ? p->nturn - role : 0;
    for (int t = left; t < p->nturn; t++)
        put(r, role, WEIGHT, stage[0], t);
}

static bool run_listed(const Pipe *p, Pattern pattern, Arena *a, Timetable *t)
{
    Rule rule = { .listed = true };
    Run r = run_new(p, &rule, a);
    int *stage = alloc(a, ((size_t)p->nstage + 1) * sizeof *stage);
    for (int role = 0; role < p->nrole; role++) {
        int n = stages_of(p, role, stage);
        if (pattern == ZB_H1 && n != 1)
            return false;
        (pattern == GPIPE ? list_gpipe : pattern == ZB_H1 ? list_zb_h1
         : list_1f1b)(&r, role, stage, n);
    }
    bool goes = clock_run(&r);
    *t = r.t;
    return goes;
}

/* ---- as the clock runs ---- */

/* As many forwards as 1F1B keeps at most: those of the first role. */
static int alive_1f1b(const Pipe *p, Arena *a)
{
    return run_new(p, NULL, a).warm[0] + 1;
}

/* Where a role has several stages, few forwards may be too few to come to the
 * last: then more, at last all. */
static Timetable run_ruled(const Pipe *p, Rule rule, Arena *a)
{
    for (int all = p->nstage * p->nturn;; rule.ahead++, rule.kept *= 2) {
        Run r = run_new(p, &rule, a);
        if (clock_run(&r))
            return r.t;
        if (rule.ahead > all && rule.kept > all)
            die("a pipeline's stages wait for each other in a circle");
    }
}

static bool better(const Timetable *x, const Timetable *than, int alive)
{
    bool a = x->alive <= alive, b = than->alive <= alive;
    return !than->n || (a != b ? a : !a && x->alive != than->alive
                        ? x->alive < than->alive : x->step < than->step);
}

/* The quickest of all that are within the limit. */
static Timetable run_auto(const Pipe *p, Arena *a)
{
    int most = alive_1f1b(p, a), limit = p->alive ? p->alive : most;
    Timetable best = { .n = 0 }, t;
    static const Pattern lists[] = { ZB_H1, ONE_F_ONE_B, GPIPE };
    for (int i = 0; i < COUNT(lists); i++)
        if (run_listed(p, lists[i], a, &t) && better(&t, &best, limit))
            best = t;
    for (int ahead = 1; ahead <= 2; ahead++)
        for (int patient = 0; patient < 2; patient++) {
            Rule rule = { .ahead = ahead, .kept = limit,
                          .patient = patient };
            t = run_ruled(p, rule, a);
            if (better(&t, &best, limit))
                best = t;
        }
    return best;
}

Timetable pipe_order(const Pipe *p, Pattern pattern, Arena *a)
{
    int most = alive_1f1b(p, a);
    Timetable t;
    if (pattern == AUTO)
        return run_auto(p, a);
    if (run_listed(p, pattern, a, &t))
        return t;
    return run_ruled(p, (Rule){ .ahead = 1, .kept = most }, a);
}
