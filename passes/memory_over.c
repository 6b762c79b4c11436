/* memory_over.c -- a result over an operand that dies (architecture.md, C12).
 *
 * Where a kernel is the last to read a value, and makes another of the same
 * size out of it point by point, both may lie in the same bytes: they count
 * once in that step, which is where an order that frees soon has its peak.
 * Whether a kernel works point by point is the target's to say: it knows the
 * loops.
 *
 * Two values in one place are harder to place than two in two.  So only those
 * are joined that lower the largest sum of live bytes, and the target is asked
 * about those only that might. */
#include "passes/memory.h"

typedef struct Pair { Ref dies, made; uint32_t launch; } Pair;

typedef struct Over {
    Mem *m;
    int64_t *live, *most, *gain;          /* by step: bytes; what might lie over
                                             others; what can */
    bool *taken;                          /* root: by a result of the launch */
    Pair *pair;
    uint32_t n, cap;
} Over;

static Ref root_of(const Mem *m, Ref r)
{
    return m->s->buf[view_root(m->g, r)].root;
}

static bool is_placed(const Mem *m, Ref root)
{
    const Node *n = &m->g->node[root];
    return m->s->buf[root].used && !m->fixed[root] && n->place == DEVICE;
}

static int64_t bytes_of(const Mem *m, Ref root)
{
    return type_bytes(&m->g->mesh, &m->g->node[root].type);
}

/* Does each instance of `x` die in the step that makes r's? */
static bool meets(const Mem *m, Ref x, Ref r)
{
    const Graph *g = m->g;
    if (!is_placed(m, x) || !is_placed(m, r) || x == r
        || g->node[x].op == OP_pack || bytes_of(m, x) != bytes_of(m, r)
        || node_along(g, x) != node_along(g, r))
        return false;
    for (uint32_t t = 0; t < m->nturn; t++) {
        const Span *a = &m->life[x * m->nturn + t];
        const Span *b = &m->life[r * m->nturn + t];
        if ((a->from > a->to) != (b->from > b->to)
            || (a->from <= a->to && a->to != b->from))
            return false;
    }
    return true;
}

/* One kernel: of several in a bucket, one may be ahead of another. */
static bool is_kernel(const Graph *g, const Launch *l)
{
    const Node *n = &g->node[l->node[0]];
    return n->kernel >= 0 && n->bucket < 0;
}

/* All that the launch reads of those bytes, it must read point by point. */
static bool allows(const Mem *m, const Launch *l, const Ref *in, int nin,
                   Ref root, Ref out)
{
    for (int i = 0; i < nin; i++)
        if (root_of(m, in[i]) == root
            && !m->job->target->over(m->g, l->node, l->n, m->uses, in[i],
                                     out))
            return false;
    return true;
}

/* The launch's pairs, where the target is asked; else just how many bytes of
 * results might lie over operands. */
static int64_t look_at(Over *o, uint32_t launch, bool ask)
{
    const Mem *m = o->m;
    const Launch *l = &m->s->launch[launch];
    int max = launch_operands(m->g, l);
    int64_t bytes = 0;
    Ref *in = alloc(m->scratch, (size_t)max * sizeof *in);
    Ref *out = alloc(m->scratch, (size_t)max * sizeof *out);
    int nin = launch_inputs(m->g, l, in, max);
    int nout = launch_outputs(m->g, l, m->uses, out, max);
    for (int i = 0; i < nout; i++)
        for (int k = 0; k < nin; k++) {
            Ref r = root_of(m, out[i]), x = root_of(m, in[k]);
            if (o->taken[x] || !meets(m, x, r)
                || (ask && !allows(m, l, in, nin, x, out[i])))
                continue;
            GROW(m->scratch, o->pair, o->n, o->cap);
            o->pair[o->n] = (Pair){ x, r, launch };
            o->n += ask;
            o->taken[x] = true;
            bytes += bytes_of(m, r);
            break;
        }
    for (int k = 0; k < nin; k++)
        o->taken[root_of(m, in[k])] = false;
    return bytes;
}

static void live_bytes(Over *o)
{
    const Mem *m = o->m;
    for (Ref r = 0; r < m->g->n; r++) {
        const Span *p = &m->life[r * m->nturn];
        if (!is_placed(m, r) || m->s->buf[r].root != r)
            continue;
        for (uint32_t t = 0; t < m->nturn; t++)
            if (p[t].from <= p[t].to) {
                o->live[p[t].from] += bytes_of(m, r);
                o->live[p[t].to + 1] -= bytes_of(m, r);
            }
    }
    for (uint32_t k = 0; k < m->s->nstep; k++)
        o->live[k + 1] += o->live[k];
    for (uint32_t k = 0; k < m->s->nstep; k++)
        o->live[k] += m->s->launch[m->s->step[k].launch].scratch;
}

/* The largest sum of live bytes, less that of each step. */
static int64_t largest(const Over *o, const int64_t *less)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < o->m->s->nstep; k++)
        if (o->live[k] - less[k] > most)
            most = o->live[k] - less[k];
    return most;
}

/* By launch: has it a step with more live bytes than so many? */
static bool *crowded(const Over *o, int64_t bytes)
{
    const Sched *s = o->m->s;
    bool *is = alloc(o->m->scratch, s->nlaunch + 1);
    for (uint32_t k = 0; k < s->nstep; k++)
        is[s->step[k].launch] |= o->live[k] > bytes;
    return is;
}

/* What each step gains by the launches of `which`: `gain`. */
static void gains(Over *o, const bool *which, bool ask, int64_t *gain)
{
    const Mem *m = o->m;
    int64_t *of = alloc(m->scratch, (m->s->nlaunch + 1) * sizeof *of);
    bool *seen = alloc(m->scratch, m->s->nlaunch + 1);
    for (uint32_t k = 0; k < m->s->nstep; k++) {
        uint32_t l = m->s->step[k].launch;
        if (!seen[l] && which[l] && is_kernel(m->g, &m->s->launch[l]))
            of[l] = look_at(o, l, ask);
        seen[l] = true;
        gain[k] = of[l];
    }
}

/* In the order of steps: what dies was joined before, if it is at all. */
static bool join_all(Over *o, const bool *which)
{
    Mem *m = o->m;
    bool any = false;
    Ref *onto = alloc(m->scratch, (m->g->n + 1) * sizeof *onto);
    for (Ref r = 0; r < m->g->n; r++)
        onto[r] = r;
    for (uint32_t i = 0; i < o->n; i++) {
        const Pair *p = &o->pair[i];
        if (!which[p->launch])
            continue;
        any = true;
        Ref x = onto[p->made] = onto[p->dies];
        for (uint32_t t = 0; t < m->nturn; t++) {
            const Span *made = &m->life[p->made * m->nturn + t];
            if (made->from <= made->to)
                m->life[x * m->nturn + t].to = made->to;
        }
    }
    for (Ref r = 0; r < m->g->n; r++)
        m->s->buf[r].root = onto[m->s->buf[r].root];
    return any;
}

bool memory_over(Mem *m)
{
    Over o = { .m = m };
    size_t steps = (m->s->nstep + 2) * sizeof(int64_t);
    if (!m->job->target || !m->job->target->over)
        return false;
    o.live = alloc(m->scratch, steps);
    o.most = alloc(m->scratch, steps);
    o.gain = alloc(m->scratch, steps);
    o.taken = alloc(m->scratch, m->g->n + 1);
    live_bytes(&o);
    gains(&o, crowded(&o, 0), false, o.most);
    gains(&o, crowded(&o, largest(&o, o.most)), true, o.gain);
    return join_all(&o, crowded(&o, largest(&o, o.gain)));
}
