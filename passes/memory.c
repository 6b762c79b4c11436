/* memory.c -- an offset for each buffer, on the order as it stands.
 *
 * A value lives from the step that writes it to the last step that reads it;
 * one that is made anew each turn lives once a turn, in `slots` places when
 * turns overlap.  What a transfer reads lives until the step in which it will
 * end, by the clock.  Values that never live at one moment may share bytes:
 * place.c.
 *
 * Aliases: a view reads its root's bytes, a `set` value lies in its leaf, a
 * collective works in place when it alone reads its operand, and a kernel's
 * result may lie over an operand that dies there: memory_over.c. */
#include "passes/clock.h"
#include "passes/like.h"
#include "passes/memory.h"
#include <stdlib.h>

enum { ALIGN = 64 };

static int64_t round_up(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t turns_of(const Mem *m, Ref r)
{
    return (uint32_t)graph_turns(m->g, node_along(m->g, r));
}

/* ---- whose bytes ---- */

static bool in_place(const Mem *m, Ref r)
{
    const Graph *g = m->g;
    const Node *n = &g->node[r];
    if (n->op != OP_all_reduce || !node_over_ranks(g, n))
        return false;
    Ref x = n->in[0];
    return m->uses[x] == 1 && !ops[g->node[x].op].leaf
        && !node_is_view(&g->node[x])
        && g->node[x].layout == n->layout;
}

static Ref root_of(const Mem *m, Ref r)
{
    const Graph *g = m->g;
    for (;;) {
        r = view_root(g, r);
        Ref up = m->s->buf[r].root;
        if (up == r)
            return r;
        r = up;
    }
}

/* A set's value lies in its leaf.  What a collective works on in place does
 * not: it is written earlier, when the leaf's old value may still be read. */
static void find_roots(Mem *m)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++)
        m->s->buf[r].root = node_is_view(&g->node[r]) ? view_root(g, r) : r;
    for (uint32_t i = 0; i < g->nset; i++)
        m->s->buf[g->set[i].value].root = g->set[i].leaf;
    for (Ref r = g->n; r-- > 0;)
        if (in_place(m, r) && !ops[g->node[root_of(m, r)].op].leaf
            && m->s->buf[g->node[r].in[0]].root == g->node[r].in[0])
            m->s->buf[g->node[r].in[0]].root = r;
    for (Ref r = 0; r < g->n; r++)
        m->s->buf[r].root = root_of(m, r);
}

/* ---- how long ---- */

static void live_at(Mem *m, Ref root, uint32_t instance, uint32_t step)
{
    Span *p = &m->life[root * m->nturn + instance];
    if (p->from > p->to)
        *p = (Span){ step, step };
    p->from = step < p->from ? step : p->from;
    p->to = step > p->to ? step : p->to;
}

/* A step touches the instance of its own turn; one that does not run along
 * all time axes of the value touches what all turns have left. */
static void touch(Mem *m, Ref r, const Step *q, uint32_t step)
{
    Ref root = m->s->buf[r].root;
    Axes has = node_along(m->g, root);
    Axes loop = m->g->node[m->s->launch[q->launch].node[0]].loop;
    if (has & (Axes)~loop)
        for (uint32_t t = 0; t < turns_of(m, root); t++)
            live_at(m, root, t, step);
    else
        live_at(m, root, (uint32_t)turn_instance(&m->g->mesh, has, q->turn),
                step);
}

/* For each transfer the first step that has not ended when it begins, and the
 * last that begins before it ends: bytes of those are not its own, or one
 * would wait for the other. */
static Span *beside(const Mem *m)
{
    uint32_t n = m->s->nstep;
    Span *span = alloc(m->scratch, (n + 1) * sizeof *span);
    double *begin = alloc(m->scratch, (n + 1) * sizeof *begin);
    double *end = alloc(m->scratch, (n + 1) * sizeof *end);
    if (sched_transfers(m->s))
        clock_steps(m->g, m->job, begin, end);
    for (uint32_t k = 0; k < n; k++) {
        span[k] = (Span){ k, k };
        if (!m->s->step[k].stream)
            continue;
        for (uint32_t i = k + 1; i < n && begin[i] < end[k]; i++)
            span[k].to = i;
        for (uint32_t i = k; i-- > 0;)
            if (end[i] > begin[k])
                span[k].from = i;
            else if (!m->s->step[i].stream)
                break;
    }
    return span;
}

static void lives(Mem *m)
{
    Graph *g = m->g;
    const Span *span = beside(m);
    for (uint32_t i = 0; i < g->n * m->nturn; i++)
        m->life[i] = (Span){ UINT32_MAX, 0 };
    for (uint32_t k = 0; k < m->s->nstep; k++) {
        const Step *q = &m->s->step[k];
        const Launch *l = &m->s->launch[q->launch];
        int max = launch_operands(g, l);
        Ref *x = alloc(m->scratch, (size_t)max * sizeof *x);
        int n = launch_inputs(g, l, x, max);
        for (int i = 0; i < n; i++)
            touch(m, x[i], q, span[k].to);
        n = launch_outputs(g, l, m->uses, x, max);
        for (int i = 0; i < n; i++) {
            m->s->buf[x[i]].used = true;
            touch(m, x[i], q, span[k].from);
            touch(m, x[i], q, k);
        }
    }
}

/* ---- which space ---- */

static void set_buf(Mem *m, Ref r, Space space, int slots)
{
    Buf *b = &m->s->buf[r];
    Graph *g = m->g;
    b->used = true;
    b->space = space;
    b->slots = slots;
    b->size = type_bytes(&g->mesh, &g->node[r].type);
    if (g->node[r].op == OP_pack && m->job->target
        && m->job->target->pack_bytes)
        b->size = m->job->target->pack_bytes(g, r);
    b->stride = round_up(b->size);
    b->at = -1;
    b->place = NULL;
}

static void place_io(Mem *m, Ref r)
{
    set_buf(m, r, IO, (int)turns_of(m, r));
    Buf *b = &m->s->buf[r];
    b->at = m->s->bytes[IO];
    m->s->bytes[IO] += b->stride * b->slots;
    m->fixed[r] = true;
}

static void fixed_places(Mem *m)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++) {
        Op op = g->node[r].op;
        if (op == OP_input || op == OP_scalar)
            place_io(m, r);
        if (op != OP_param && op != OP_state)
            continue;
        set_buf(m, r, g->node[r].place == HOST ? HOST_LEAVES : LEAVES, 1);
        m->fixed[r] = true;
    }
    for (uint32_t i = 0; i < g->nout; i++) {
        Ref root = m->s->buf[g->out[i].ref].root;
        if (!m->fixed[root])
            place_io(m, root);
    }
}

/* ---- items ---- */

static void item_new(Mem *m, Ref r, uint32_t index, int64_t size, Span life)
{
    if (life.from > life.to)
        return;
    GROW(m->scratch, m->item, m->nitem, m->itemcap);
    Item *it = &m->item[m->nitem++];
    *it = (Item){ .node = r, .index = index, .size = size, .at = -1,
                  .life = life };
}

/* Each instance of a value is placed by itself: those of two turns need not
 * lie alike, nor apart. */
static void value_items(Mem *m, Space of)
{
    Graph *g = m->g;
    for (Ref r = 0; r < g->n; r++) {
        Buf *b = &m->s->buf[r];
        if (!b->used || b->root != r || m->fixed[r])
            continue;
        Space space = g->node[r].place == HOST ? HOST_ARENA : ARENA;
        if (space != of)
            continue;
        set_buf(m, r, space, (int)turns_of(m, r));
        for (uint32_t t = 0; t < turns_of(m, r); t++)
            item_new(m, r, t, b->stride, m->life[r * m->nturn + t]);
    }
}

static void find_scratch(Mem *m)
{
    const int64_t *bytes = launches_scratch(m->g, m->s, m->job->target,
                                            m->uses, m->scratch);
    for (uint32_t l = 0; l < m->s->nlaunch; l++)
        m->s->launch[l].scratch = bytes[l];
}

static void scratch_items(Mem *m)
{
    for (uint32_t k = 0; k < m->s->nstep; k++) {
        int64_t bytes = m->s->launch[m->s->step[k].launch].scratch;
        if (bytes > 0)
            item_new(m, NONE, k, round_up(bytes), (Span){ k, k });
    }
}

static void put(Mem *m, const Item *it)
{
    Buf *b = &m->s->buf[it->node];
    if (!b->place)
        b->place = alloc(m->job->keep, (size_t)b->slots * sizeof *b->place);
    b->place[it->index] = it->at;
}

/* One slot where all instances lie alike; a list of places where not. */
static void settle(Buf *b)
{
    bool alike = true;
    for (int k = 1; b->place && k < b->slots; k++)
        alike &= b->place[k] == b->place[0];
    if (!b->place)
        return;
    b->at = b->place[0];
    if (alike)
        b->slots = 1, b->place = NULL;
}

/* Results over dying operands are worth a part in a hundred of the arena; what
 * is enough stays so in a plan that is as much larger without them. */
enum { PART = 100 };

/* What lives in one of the two memories, and dies in the step. */
static void place_arena(Mem *m, Space space)
{
    Sched *s = m->s;
    m->nitem = 0;
    value_items(m, space);
    if (space == ARENA)
        scratch_items(m);
    int64_t enough = space == ARENA ? m->job->enough : 0;
    s->bytes[space] = place_items(m->item, m->nitem, s->nstep,
        enough - enough / PART, space == ARENA ? &s->lower : &s->host_lower,
        space == ARENA ? &s->peak : &s->host_peak);
    for (uint32_t i = 0; i < m->nitem; i++)
        if (m->item[i].node == NONE)
            s->step[m->item[i].index].scratch_at = m->item[i].at;
        else
            put(m, &m->item[i]);
}

/* Results over dying operands, where that makes the arena smaller by a part in
 * a hundred: where it comes out above the bound by as much, it is placed
 * without them as well. */
static void place_over(Mem *m)
{
    Sched *s = m->s;
    size_t spans = m->g->n * m->nturn;
    Ref *root = alloc(m->scratch, (m->g->n + 1) * sizeof *root);
    Span *life = alloc(m->scratch, (spans + 1) * sizeof *life);
    for (Ref r = 0; r < m->g->n; r++)
        root[r] = s->buf[r].root;
    memcpy(life, m->life, spans * sizeof *life);
    bool any = memory_over(m);
    place_arena(m, ARENA);
    int64_t bytes = s->bytes[ARENA];
    if (!any || bytes <= s->lower + s->lower / PART
        || bytes <= m->job->enough - m->job->enough / PART)
        return;
    for (int again = 0; again < 2; again++) {
        for (Ref r = 0; r < m->g->n; r++)
            s->buf[r].root = root[r];
        memcpy(m->life, life, spans * sizeof *life);
        if (again)
            memory_over(m);
        place_arena(m, ARENA);
        if (s->bytes[ARENA] - s->bytes[ARENA] / PART <= bytes)
            return;
    }
}

/* What lies in another's bytes says so itself, for those who read one row. */
static void copy_places(Mem *m)
{
    for (Ref r = 0; r < m->g->n; r++) {
        Buf *b = &m->s->buf[r], *root = &m->s->buf[b->root];
        const Span *p = &m->life[b->root * m->nturn];
        for (uint32_t t = 0; t < turns_of(m, b->root); t++) {
            if (p[t].from > p[t].to)
                continue;
            if (!t || p[t].from < b->born)
                b->born = p[t].from;
            b->dies = p[t].to > b->dies ? p[t].to : b->dies;
        }
        if (b->root == r || !root->used)
            continue;
        Ref keep = b->root;
        uint32_t born = b->born, dies = b->dies;
        bool used = b->used;
        *b = *root;
        b->root = keep, b->used = used, b->born = born, b->dies = dies;
    }
}

Graph *pass_memory(const Graph *in, Job *j)
{
    Graph *g = copy_whole(in, j);
    Mem m = { .g = g, .scratch = j->scratch, .job = j };
    g->sched = m.s = alloc(j->keep, sizeof *m.s);
    *m.s = *in->sched;
    m.s->step = alloc(j->keep, (m.s->nstep + 1) * sizeof *m.s->step);
    m.s->launch = alloc(j->keep, (m.s->nlaunch + 1) * sizeof *m.s->launch);
    memcpy(m.s->step, in->sched->step, m.s->nstep * sizeof *m.s->step);
    memcpy(m.s->launch, in->sched->launch, m.s->nlaunch * sizeof *m.s->launch);
    m.s->buf = alloc(j->keep, (g->n + 1) * sizeof *m.s->buf);
    m.uses = graph_uses(g, j->scratch);
    m.nturn = (uint32_t)mesh_size(&g->mesh, mesh_axes(&g->mesh, TIME));
    m.fixed = alloc(j->scratch, (g->n + 1) * sizeof *m.fixed);
    m.life = alloc(j->scratch, (g->n + 1) * m.nturn * sizeof *m.life);
    find_roots(&m);
    lives(&m);
    fixed_places(&m);
    find_scratch(&m);
    place_over(&m);
    place_arena(&m, HOST_ARENA);
    for (Ref r = 0; r < g->n; r++)
        settle(&m.s->buf[r]);
    copy_places(&m);
    return g;
}
