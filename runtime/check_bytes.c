/* check_bytes.c -- each operand holds its value, whatever the streams do.
 *
 * The ends of all buffers cut each space into cells.  A cell knows which
 * value was written to it last, by which step, and which steps of each stream
 * read it since.  A step knows, as a vector clock, the last step of each
 * stream that is certainly over when it begins: what its stream ran before,
 * and what the setters of its events knew.  Then a read is right when the
 * cell holds the value of its row and the writer is over, and a write when
 * the writer and all readers are (reliability.md 4.5).  Bytes, not names, are
 * compared: reuse of memory is no special case. */
#include "runtime/check_own.h"

#include <stdlib.h>
#include <string.h>

typedef struct Cell {
    uint32_t value, instance;             /* that it holds; 0: nothing */
    uint32_t writer;                      /* step + 1; 0: before the first */
    uint32_t reader[DPC_NSTREAM];         /* last one since, step + 1 */
} Cell;

/* An operand of a step: one slot. */
typedef struct Part {
    int64_t at, size;                     /* bytes */
    uint32_t value, instance, arg;
    uint8_t how;
} Part;

typedef struct Cells { int64_t *edge; uint32_t n; Cell *cell; } Cells;

typedef struct Clock { uint32_t seen[DPC_NSTREAM]; } Clock;  /* step + 1 */

typedef struct Walk {
    const DpcCheck *c;
    Cells space[DPC_NSPACE];
    Clock now[DPC_NSTREAM], *event;       /* of a stream; of who set it */
    bool *set;                            /* event: set so far */
    uint32_t joined[2];                   /* last collective, and hop, + 1 */
} Walk;

/* ---- cells ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void edges_add(Cells *s, int64_t at, int64_t size)
{
    s->edge[s->n++] = at;
    s->edge[s->n++] = at + size;
}

static void edges_sort(Cells *s)
{
    uint32_t n = 0;
    qsort(s->edge, s->n, sizeof *s->edge, by_value);
    for (uint32_t i = 0; i < s->n; i++)
        if (!n || s->edge[n - 1] != s->edge[i])
            s->edge[n++] = s->edge[i];
    s->n = n;
}

static uint32_t cell_at(const Cells *s, int64_t at)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->edge[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* How often a row's bytes are there: a port's once a slot. */
static uint32_t slots_of(const DpcBuf *b)
{
    return b->slots ? b->slots : 1;
}

/* Room for the ends of all that lies in a space. */
static size_t ends(const Walk *w)
{
    size_t n = w->c->u->nleaf;
    for (uint32_t i = 0; i < w->c->p->nbuf; i++)
        n += slots_of(&w->c->p->buf[i]);
    return 2 * n + 2;
}

static bool is_held(const Walk *w, const DpcLeaf *l)
{
    return (l->kind == DPC_PARAM || l->kind == DPC_STATE)
        && dpc_check_here(w->c, l);
}

static void cells_cut(Walk *w)
{
    const DpcProgram *p = w->c->p;
    const DpcUnit *u = w->c->u;
    for (uint32_t i = 0; i < p->nbuf; i++)
        for (uint32_t k = 0; k < slots_of(&p->buf[i]); k++)
            edges_add(&w->space[p->buf[i].space],
                      p->buf[i].at + k * p->buf[i].stride, p->buf[i].size);
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (is_held(w, &u->leaf[i]))
            edges_add(&w->space[u->leaf[i].space], u->leaf[i].at,
                      u->leaf[i].bytes);
    for (int k = 0; k < DPC_NSPACE; k++)
        edges_sort(&w->space[k]);
}

static bool walk_open(Walk *w)
{
    size_t n = ends(w), events = w->c->p->nevent + 1;
    bool ok = true;
    for (int k = 0; k < DPC_NSPACE; k++) {
        w->space[k].edge = malloc(n * sizeof *w->space[k].edge);
        w->space[k].cell = calloc(n, sizeof *w->space[k].cell);
        ok &= w->space[k].edge && w->space[k].cell;
    }
    w->event = calloc(events, sizeof *w->event);
    w->set = calloc(events, sizeof *w->set);
    ok &= w->event && w->set;
    if (ok)
        cells_cut(w);
    return ok;
}

static void walk_close(Walk *w)
{
    for (int k = 0; k < DPC_NSPACE; k++) {
        free(w->space[k].edge);
        free(w->space[k].cell);
    }
    free(w->event);
    free(w->set);
}

/* ---- before and after the steps ---- */

/* False when the bytes are another's already. */
static bool cells_give(Cells *s, int64_t at, int64_t size, uint32_t value,
                       uint32_t instance)
{
    bool ok = true;
    for (uint32_t i = cell_at(s, at); i < cell_at(s, at + size); i++) {
        ok &= !s->cell[i].value;
        s->cell[i].value = value;
        s->cell[i].instance = instance;
    }
    return ok;
}

static bool cells_hold(const Cells *s, int64_t at, int64_t size,
                       uint32_t value, uint32_t instance)
{
    bool ok = true;
    for (uint32_t i = cell_at(s, at); i < cell_at(s, at + size); i++)
        ok &= s->cell[i].value == value && s->cell[i].instance == instance;
    return ok;
}

static DpcStatus leaf_fault(const Walk *w, uint32_t leaf, const char *what)
{
    const DpcLeaf *l = &w->c->u->leaf[leaf];
    return dpc_fail(DPC_BUG, "%s: internal error: schedule of '%s': '%s' "
                    "(%s) %s", w->c->u->model, w->c->p->entry, l->name, l->loc,
                    what);
}

/* A leaf that no row speaks of keeps a value which nobody may name. */
static uint32_t held(const DpcProgram *p, uint32_t leaf, bool after)
{
    for (uint32_t i = 0; i < p->nheld; i++)
        if (p->held[i].leaf == leaf)
            return after ? p->held[i].after : p->held[i].before;
    return UINT32_MAX;
}

static DpcStatus leaves_give(Walk *w)
{
    const DpcUnit *u = w->c->u;
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        if (!is_held(w, l))
            continue;
        if (l->at < 0 || l->bytes < 0 || l->at + l->bytes
            > (l->space == DPC_LEAVES ? w->c->leaves : w->c->host_leaves))
            return leaf_fault(w, i, "leaves the space of leaves");
        if (!cells_give(&w->space[l->space], l->at, l->bytes,
                        held(w->c->p, i, false), 0))
            return leaf_fault(w, i, "lies in another leaf's bytes");
    }
    return DPC_OK;
}

static DpcStatus ports_look(Walk *w, bool after)
{
    const DpcProgram *p = w->c->p;
    for (uint32_t i = 0; i < p->nport; i++) {
        const DpcBuf *b = &p->buf[p->port[i].buf];
        uint32_t leaf = p->port[i].leaf;
        bool out = w->c->u->leaf[leaf].kind == DPC_OUTPUT;
        for (uint32_t k = 0; out == after && k < slots_of(b); k++) {
            int64_t at = b->at + k * b->stride;
            if (after && !cells_hold(&w->space[b->space], at, b->size,
                                     b->value, k))
                return leaf_fault(w, leaf, "is not there at the end");
            if (!after && !cells_give(&w->space[b->space], at, b->size,
                                      b->value, k))
                return leaf_fault(w, leaf, "lies in another input's bytes");
        }
    }
    return DPC_OK;
}

static DpcStatus leaves_look(const Walk *w)
{
    const DpcUnit *u = w->c->u;
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (is_held(w, &u->leaf[i])
            && !cells_hold(&w->space[u->leaf[i].space], u->leaf[i].at,
                           u->leaf[i].bytes, held(w->c->p, i, true), 0))
            return leaf_fault(w, i, "does not hold its new value at the end");
    return DPC_OK;
}

/* ---- a step ---- */

static void clock_join(Clock *a, const Clock *b)
{
    for (int i = 0; i < DPC_NSTREAM; i++)
        a->seen[i] = b->seen[i] > a->seen[i] ? b->seen[i] : a->seen[i];
}

/* Is that earlier step (+ 1; 0: none) over when `s` begins? */
static bool over(const Walk *w, uint32_t s, uint32_t earlier)
{
    const DpcStep *t = w->c->p->step;
    return !earlier || t[earlier - 1].stream == t[s].stream
        || w->now[t[s].stream].seen[t[earlier - 1].stream] >= earlier;
}

static DpcStatus race(const Walk *w, uint32_t s, uint32_t earlier,
                      const char *did)
{
    char place[DPC_PLACE];
    return dpc_check_fault(w->c, s, "touches bytes that %s %s, and no wait "
                           "orders the two",
                           dpc_check_place(w->c, earlier - 1, place), did);
}

static DpcStatus other_value(const Walk *w, uint32_t s, uint32_t arg,
                             const Cell *x)
{
    char place[DPC_PLACE];
    if (!x->writer)
        return dpc_check_fault(w->c, s, "operand %u: its bytes were not "
                               "written yet", arg);
    return dpc_check_fault(w->c, s, "operand %u: its bytes were overwritten "
                           "by %s", arg,
                           dpc_check_place(w->c, x->writer - 1, place));
}

static DpcStatus cell_read(Walk *w, uint32_t s, const Part *b, Cell *x)
{
    uint32_t *last = &x->reader[w->c->p->step[s].stream];
    if (!b->value || x->value != b->value || x->instance != b->instance)
        return other_value(w, s, b->arg, x);
    if (!over(w, s, x->writer))
        return race(w, s, x->writer, "writes");
    *last = s + 1;
    return DPC_OK;
}

static Part part_of(const DpcProgram *p, const DpcStep *t, uint32_t arg)
{
    const DpcBuf *b = &p->buf[p->arg[t->arg + arg]];
    uint32_t slot = t->turn % slots_of(b);
    return (Part){b->at + slot * b->stride, b->size, b->value,
                  b->instance + slot, arg, p->how[t->arg + arg]};
}

/* Does the kernel say that it goes through both, of one member, point by
 * point?  Collectives and copies do; no call of the library does, but for what
 * it adds to. */
static bool may_lie_over(const DpcCheck *c, const DpcStep *t, const Part *out,
                         const Part *in)
{
    if (t->kind != DPC_STEP_KERNEL)
        return t->kind == DPC_STEP_COLL || t->kind == DPC_STEP_COPY
            || out->arg == in->arg;
    const DpcKernel *k = &c->u->kernel[t->call];
    uint32_t all = (uint32_t)k->nin + k->nout;
    uint32_t o = all ? out->arg % all : 0, i = all ? in->arg % all : 0;
    return out->arg == in->arg
        || (k->over && out->arg / all == in->arg / all && i < k->nin
            && o >= k->nin && k->over[(o - k->nin) * k->nin + i]);
}

/* May the result lie where operands do?  The same bytes from end to end. */
static bool writes_over(const DpcCheck *c, const DpcStep *t, const Part *out)
{
    uint8_t space = c->p->buf[c->p->arg[t->arg + out->arg]].space;
    for (uint32_t i = 0; i < t->narg; i++) {
        Part in = part_of(c->p, t, i);
        if (!(in.how & DPC_READ)
            || c->p->buf[c->p->arg[t->arg + i]].space != space
            || in.at >= out->at + out->size || out->at >= in.at + in.size)
            continue;
        if (in.at != out->at || in.size != out->size || !out->value
            || !may_lie_over(c, t, out, &in))
            return false;
    }
    return true;
}

static DpcStatus cell_write(Walk *w, uint32_t s, const Part *b, Cell *x)
{
    if (!over(w, s, x->writer))
        return race(w, s, x->writer, "writes");
    for (int i = 0; i < DPC_NSTREAM; i++)
        if (!over(w, s, x->reader[i]))
            return race(w, s, x->reader[i], "reads");
    if (x->writer == s + 1)
        return dpc_check_fault(w->c, s, "operand %u: lies in another result "
                               "or scratch of the same step", b->arg);
    if (x->reader[w->c->p->step[s].stream] == s + 1
        && !writes_over(w->c, &w->c->p->step[s], b))
        return dpc_check_fault(w->c, s, "operand %u: overwrites a part of "
                               "what the step reads", b->arg);
    *x = (Cell){.value = b->value, .instance = b->instance, .writer = s + 1};
    return DPC_OK;
}

static DpcStatus arg_walk(Walk *w, uint32_t s, uint32_t arg, uint8_t how)
{
    const DpcStep *t = &w->c->p->step[s];
    Part b = part_of(w->c->p, t, arg);
    Cells *c = &w->space[w->c->p->buf[w->c->p->arg[t->arg + arg]].space];
    DpcStatus e = DPC_OK;
    uint32_t last = cell_at(c, b.at + b.size);
    for (uint32_t i = cell_at(c, b.at); !e && i < last; i++)
        e = how == DPC_READ ? cell_read(w, s, &b, &c->cell[i])
                            : cell_write(w, s, &b, &c->cell[i]);
    return e;
}

static DpcStatus args_walk(Walk *w, uint32_t s, uint8_t how)
{
    const DpcProgram *p = w->c->p;
    DpcStatus e = DPC_OK;
    for (uint32_t i = 0; !e && i < p->step[s].narg; i++)
        if (p->how[p->step[s].arg + i] & how)
            e = arg_walk(w, s, i, how);
    return e;
}

static DpcStatus events_await(Walk *w, uint32_t s)
{
    const DpcStep *t = &w->c->p->step[s];
    for (uint32_t i = 0; i < t->nwait; i++) {
        uint32_t e = w->c->p->wait[t->wait + i];
        if (!w->set[e])
            return dpc_check_fault(w->c, s, "waits for event %u, which no "
                                   "earlier step sets", e);
        clock_join(&w->now[t->stream], &w->event[e]);
    }
    return DPC_OK;
}

/* One communicator serves all streams of a rank: which collective starts
 * first must be the same on every rank.  So with hops, which are known by
 * their order only. */
static DpcStatus collective_order(Walk *w, uint32_t s)
{
    uint8_t kind = w->c->p->step[s].kind;
    uint32_t *joined = &w->joined[kind == DPC_STEP_HOP];
    if (kind != DPC_STEP_COLL && kind != DPC_STEP_HOP)
        return DPC_OK;
    if (!over(w, s, *joined))
        return race(w, s, *joined, "communicates");
    *joined = s + 1;
    return DPC_OK;
}

static DpcStatus step_walk(Walk *w, uint32_t s)
{
    const DpcStep *t = &w->c->p->step[s];
    DpcStatus e = events_await(w, s);
    if (!e)
        e = collective_order(w, s);
    if (!e)
        e = args_walk(w, s, DPC_READ);
    if (!e)
        e = args_walk(w, s, DPC_WRITE);
    w->now[t->stream].seen[t->stream] = s + 1;
    if (e || t->event < 0)
        return e;
    if (w->set[t->event])
        return dpc_check_fault(w->c, s, "sets event %d a second time",
                               t->event);
    w->set[t->event] = true;
    w->event[t->event] = w->now[t->stream];
    return DPC_OK;
}

static DpcStatus walk_all(Walk *w)
{
    DpcStatus e = leaves_give(w);
    if (!e)
        e = ports_look(w, false);
    for (uint32_t s = 0; !e && s < w->c->p->nstep; s++)
        e = step_walk(w, s);
    if (!e)
        e = ports_look(w, true);
    return e ? e : leaves_look(w);
}

DpcStatus dpc_check_bytes(const DpcCheck *c)
{
    Walk w = {.c = c};
    DpcStatus e = walk_open(&w) ? walk_all(&w)
        : dpc_fail(DPC_MEMORY, "%s: error: no memory", c->u->model);
    walk_close(&w);
    return e;
}
