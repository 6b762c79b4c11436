/* clock.c -- about when each step of an order begins and ends.
 *
 * Rough on purpose: flops and bytes over what the target and the cluster say,
 * the two streams side by side, a step after what makes its operands.  It is
 * enough to tell what a transfer runs beside, and so what has to stay out of
 * its way; events make the real order safe whatever is said here. */
#include "passes/clock.h"

bool launch_communicates(const Graph *g, const Launch *l)
{
    const Node *n = &g->node[l->node[0]];
    bool collects = n->op == OP_all_reduce || n->op == OP_reduce_scatter
        || n->op == OP_all_gather || n->op == OP_all_to_all;
    return collects && !(n->attr.axes & mesh_axes(&g->mesh, TIME));
}

/* Bytes that a rank sends: of the larger of operand and result, but for its
 * own part; a sum that all get is scattered and gathered. */
static double sent(const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    double in = (double)type_bytes(&g->mesh, &g->node[n->in[0]].type);
    double out = (double)type_bytes(&g->mesh, &n->type);
    double ranks = (double)mesh_size(&g->mesh, n->attr.axes);
    double once = (in > out ? in : out) * (ranks - 1) / ranks;
    return n->op == OP_all_reduce ? 2 * once : once;
}

static double transfer(const Graph *g, const Launch *l, const Cluster *c)
{
    if (!c || !c->nlevel)
        return 0;
    const Level *v = &c->level[c->nlevel - 1];
    double s = 0;
    for (int i = 0; i < l->n; i++)
        s += v->latency
            + (v->bandwidth > 0 ? sent(g, l->node[i]) / v->bandwidth : 0);
    return s;
}

static double bytes(const Graph *g, const Launch *l)
{
    double n = 0;
    for (int i = 0; i < l->n; i++) {
        const Node *x = &g->node[l->node[i]];
        bool large = x->op == OP_dot || ops[x->op].family == FAMILY_conv;
        n += (double)type_bytes(&g->mesh, &x->type) / (large ? 1 : l->n);
        for (int k = 0; k < x->nin; k++)
            n += (double)type_bytes(&g->mesh, &g->node[x->in[k]].type)
                / (large ? 1 : l->n);
    }
    return n;
}

double launch_seconds(const Graph *g, const Launch *l, const Job *j)
{
    const Target *t = j->target;
    if (launch_communicates(g, l))
        return transfer(g, l, j->cluster);
    if (!t || t->bandwidth <= 0)
        return 0;
    double flops = 0, move = bytes(g, l) / t->bandwidth;
    DType d = F32;
    for (int i = 0; i < l->n; i++) {
        const Node *n = &g->node[l->node[i]];
        flops += node_flops(g, l->node[i]);
        if (n->op == OP_dot || ops[n->op].family == FAMILY_conv)
            d = g->node[n->in[0]].type.dtype;
    }
    double work = t->flops[d] > 0 ? flops / t->flops[d] : 0;
    return t->launch + (move > work ? move : work);
}

void clock_steps(const Graph *g, const Job *j, double *begin, double *end)
{
    const Sched *s = g->sched;
    Arena *a = j->scratch;
    double *made = alloc(a, (g->n + 1) * sizeof *made), now[2] = { 0, 0 };
    double *takes = alloc(a, (s->nlaunch + 1) * sizeof *takes);
    for (uint32_t l = 0; l < s->nlaunch; l++)
        takes[l] = launch_seconds(g, &s->launch[l], j);
    for (uint32_t k = 0; k < s->nstep; k++) {
        const Launch *l = &s->launch[s->step[k].launch];
        double *stream = &now[s->step[k].stream != 0];
        for (int i = 0; i < l->n; i++)
            for (int q = 0; q < g->node[l->node[i]].nin; q++) {
                double m = made[view_root(g, g->node[l->node[i]].in[q])];
                *stream = m > *stream ? m : *stream;
            }
        begin[k] = *stream;
        end[k] = *stream += takes[s->step[k].launch];
        for (int i = 0; i < l->n; i++)
            made[l->node[i]] = end[k];
    }
}
