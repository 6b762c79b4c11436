/* simulate.h -- runs a schedule: every step in order, on memory by bytes.
 *
 * Values are field elements, wider than what they stand for; so each byte
 * remembers of which element it is which byte, and an element counts only if
 * all of its bytes are still there.  What overwrites a live value, or reads
 * one that is not yet there, shows in the results.  All ranks walk in step.
 * Shares nothing with the passes but the schedule's structs. */
#ifndef DPC_TEST_SIMULATE_H
#define DPC_TEST_SIMULATE_H

#include "ir/eval_node.h"
#include "tests/unit/passrun.h"

typedef struct Cell { uint64_t v; uint8_t k; bool set; } Cell;

typedef struct Sim {
    const Graph *g;
    const Sched *s;
    Arena *arena;
    int nrank, time;                      /* time: its mesh axis, or -1 */
    Cell ***mem;                          /* by rank, by space or leaf */
    int64_t *bytes;                       /* by area */
    Num **reg;                            /* by rank and node: this launch */
    bool *done;                           /* by node: in reg */
    uint32_t *uses;
} Sim;

/* ---- places ---- */

/* Leaves have no offsets yet: an area each, after those of the spaces. */
static inline int64_t area_of(const Sim *m, Ref root)
{
    Space sp = m->s->buf[root].space;
    return space_leaves(sp) ? NSPACE + (int64_t)root : sp;
}

static inline void coord_of(const Sim *m, int rank, int turn, int *coord)
{
    const Mesh *x = &m->g->mesh;
    for (int i = x->naxis; i-- > 0;)
        if (x->axis[i].kind == TIME) {
            coord[i] = turn % x->axis[i].size, turn /= x->axis[i].size;
        } else {
            coord[i] = rank % x->axis[i].size, rank /= x->axis[i].size;
        }
}

static inline int rank_at(const Sim *m, const int *coord)
{
    const Mesh *x = &m->g->mesh;
    int r = 0;
    for (int i = 0; i < x->naxis; i++)
        if (x->axis[i].kind != TIME)
            r = r * x->axis[i].size + coord[i];
    return r;
}

static inline int64_t elements(const Sim *m, Ref r)
{
    Type t = type_local(&m->g->mesh, &m->g->node[r].type);
    return type_volume(&t);
}

/* Which of its values node r has in that turn: turns that differ only along
 * time axes that its type does not name have one value. */
static inline int instance_in(const Graph *g, Ref r, int turn)
{
    int coord[NAXIS] = { 0 }, instance = 0;
    for (int i = g->mesh.naxis; i-- > 0;)
        if (g->mesh.axis[i].kind == TIME) {
            coord[i] = turn % g->mesh.axis[i].size;
            turn /= g->mesh.axis[i].size;
        }
    for (int i = 0; i < g->mesh.naxis; i++)
        if (g->mesh.axis[i].kind == TIME
            && (type_axes(&g->node[r].type) >> i & 1))
            instance = instance * g->mesh.axis[i].size + coord[i];
    return instance;
}

/* First byte of the value that node r has in that turn. */
static inline int64_t byte_of(const Sim *m, Ref r, int turn)
{
    const Buf *b = &m->s->buf[r], *root = &m->s->buf[b->root];
    if (!root->used)
        fail_msg("\"%s\" has no bytes", m->g->node[r].name);
    int64_t at = space_leaves(root->space) ? 0 : root->at;
    if (root->place)
        return root->place[instance_in(m->g, b->root, turn)] + b->off;
    int k = instance_in(m->g, b->root, turn);
    return at + b->off + k % root->slots * root->stride;
}

static inline void store(Sim *m, int rank, Ref r, int turn, const Num *x)
{
    int64_t n = elements(m, r), w = dtype_size(m->g->node[r].type.dtype);
    int64_t area = area_of(m, m->s->buf[r].root), at = byte_of(m, r, turn);
    if (at < 0 || at + n * w > m->bytes[area])
        fail_msg("\"%s\" lies outside its space", m->g->node[r].name);
    for (int64_t i = 0; i < n * w; i++)
        m->mem[rank][area][at + i] =
            (Cell){ x[i / w].f, (uint8_t)(i % w), true };
}

static inline void load(const Sim *m, int rank, Ref r, int turn, Num *x)
{
    int64_t n = elements(m, r), w = dtype_size(m->g->node[r].type.dtype);
    int64_t area = area_of(m, m->s->buf[r].root), at = byte_of(m, r, turn);
    for (int64_t i = 0; i < n; i++) {
        const Cell *c = &m->mem[rank][area][at + i * w];
        bool whole = true;
        for (int64_t k = 0; k < w; k++)
            whole &= c[k].set && c[k].v == c[0].v && c[k].k == k;
        x[i].f = whole ? c[0].v : 0x1badbadbadbad + (uint64_t)i;
    }
}

/* ---- values ---- */

static inline Num *value_at(Sim *m, int rank, Ref r, int turn);

static inline Num *evaluate(Sim *m, int rank, Ref r, int turn)
{
    const Node *n = &m->g->node[r];
    int coord[NAXIS] = { 0 };
    const Num **in = alloc(m->arena, (size_t)(n->nin + 1) * sizeof *in);
    Num *out = alloc(m->arena, (size_t)(elements(m, r) + 1) * sizeof *out);
    coord_of(m, rank, turn, coord);
    for (int i = 0; i < n->nin; i++)
        in[i] = op_unread(n->op, i) ? NULL    /* its bytes may be gone */
              : value_at(m, rank, n->in[i], turn);
    Place p = { coord, 5, 3 };
    eval_part(m->g, r, FIELD, &p, in, out);
    return out;
}

static inline Num *value_at(Sim *m, int rank, Ref r, int turn)
{
    Num **reg = &m->reg[(size_t)rank * m->g->n + r];
    if (*reg)
        return *reg;
    if (node_is_view(&m->g->node[r]))
        return evaluate(m, rank, r, turn);
    Num *x = alloc(m->arena, (size_t)(elements(m, r) + 1) * sizeof *x);
    load(m, rank, r, turn, x);
    return x;
}

/* ---- collectives ---- */

/* Where global indices lie in the part at coord; -1: elsewhere. */
static inline int64_t offset_in(const Mesh *x, const Type *t, const int *coord,
                                const int64_t *global)
{
    int64_t at = 0;
    for (int d = 0; d < t->ndim; d++) {
        Part p = type_part(x, t, d, coord);
        int64_t k = global[d] - p.at;
        if (k < 0 || k >= p.n)
            return -1;
        at = at * p.room + k;
    }
    return at;
}

/* Which element of the whole lies at idx of a part; false: padding. */
static inline bool global_of(const Mesh *x, const Type *t, const int *coord,
                             const int64_t *idx, int64_t *global)
{
    bool held = true;
    for (int d = 0; d < t->ndim; d++) {
        Part p = type_part(x, t, d, coord);
        global[d] = p.at + idx[d];
        held &= idx[d] < p.n;
    }
    return held;
}

static inline bool next_of(const Mesh *x, Axes set, int *coord)
{
    for (int i = x->naxis; i-- > 0;)
        if (set >> i & 1) {
            if (++coord[i] < x->axis[i].size)
                return true;
            coord[i] = 0;
        }
    return false;
}

/* Element `global` at the rank of coord, among those that the op reaches. */
static inline Num element(Sim *m, Ref r, Num *const *parts, const int *coord,
                          const int64_t *global)
{
    const Mesh *x = &m->g->mesh;
    const Node *n = &m->g->node[r];
    const Type *have = &m->g->node[n->in[0]].type;
    bool folds = n->op == OP_all_reduce || n->op == OP_reduce_scatter;
    Axes set = n->op == OP_shard ? 0 : n->attr.axes & mesh_axes(x, SPACE);
    int c[NAXIS];
    memcpy(c, coord, sizeof c);
    for (int i = 0; i < NAXIS; i++)
        c[i] = set >> i & 1 ? 0 : c[i];
    Num sum = { .f = 0 };
    bool any = false;
    do {
        int64_t at = offset_in(x, have, c, global);
        if (at < 0)
            continue;
        Num v = parts[rank_at(m, c)][at];
        sum = any && folds ? num_fold(FIELD, have->fold, sum, v) : v;
        any = true;
    } while (next_of(x, set, c));
    if (!any)
        sum.f = 0x5ad;
    return sum;
}

static inline void collective(Sim *m, Ref r, int turn, Num **out)
{
    const Mesh *x = &m->g->mesh;
    const Node *n = &m->g->node[r];
    Type part = type_local(x, &n->type);
    Num **parts = alloc(m->arena, (size_t)m->nrank * sizeof *parts);
    for (int k = 0; k < m->nrank; k++)
        parts[k] = value_at(m, k, n->in[0], turn);
    for (int k = 0; k < m->nrank; k++) {
        int coord[NAXIS] = { 0 };
        int64_t idx[NDIM] = { 0 }, global[NDIM];
        coord_of(m, k, turn, coord);
        out[k] = alloc(m->arena, (size_t)(elements(m, r) + 1) * sizeof *out[k]);
        bool mine = n->op != OP_own;
        int others = 0;
        for (int i = 0; i < NAXIS; i++)
            others += (n->attr.axes >> i & 1) && coord[i];
        mine |= !others;
        for (int64_t i = 0; i < elements(m, r); i++) {
            bool held = global_of(x, &n->type, coord, idx, global);
            out[k][i] = mine && held ? element(m, r, parts, coord, global)
                             : (Num){ .f = 0 };
            for (int d = part.ndim; d-- > 0 && ++idx[d] == part.dim[d];)
                idx[d] = 0;
        }
    }
}

/* Over turns: a sum is added to what is there, a slice is put in place. */
static inline void over_turns(Sim *m, Ref r, int rank, int turn)
{
    const Mesh *x = &m->g->mesh;
    const Node *n = &m->g->node[r];
    const Type *have = &m->g->node[n->in[0]].type;
    int64_t size = elements(m, r);
    int coord[NAXIS] = { 0 };
    coord_of(m, rank, turn, coord);
    const Num *in = value_at(m, rank, n->in[0], turn);
    Num *out = alloc(m->arena, (size_t)(size + 1) * sizeof *out);
    load(m, rank, r, turn, out);
    Type part = type_local(x, &n->type);
    int64_t idx[NDIM] = { 0 }, global[NDIM];
    for (int64_t i = 0; i < size; i++) {
        bool held = global_of(x, &n->type, coord, idx, global);
        int64_t at = held ? offset_in(x, have, coord, global) : -1;
        if (n->op == OP_all_gather && at >= 0)
            out[i] = in[at];
        if (n->op == OP_all_reduce)
            out[i] = turn ? num_fold(FIELD, have->fold, out[i], in[i]) : in[i];
        for (int d = part.ndim; d-- > 0 && ++idx[d] == part.dim[d];)
            idx[d] = 0;
    }
    m->reg[(size_t)rank * m->g->n + r] = out;
}

/* ---- steps ---- */

static inline void node_run(Sim *m, Ref r, int turn)
{
    const Node *n = &m->g->node[r];
    bool coll = ops[n->op].family == FAMILY_collective;
    bool time = n->attr.axes & mesh_axes(&m->g->mesh, TIME)
        && (n->op == OP_all_reduce || n->op == OP_all_gather);
    Num **out = alloc(m->arena, (size_t)m->nrank * sizeof *out);
    if (coll && !time)
        collective(m, r, turn, out);
    for (int k = 0; k < m->nrank; k++)
        if (time)
            over_turns(m, r, k, turn);
        else
            m->reg[(size_t)k * m->g->n + r] =
                coll ? out[k] : evaluate(m, k, r, turn);
}

static inline void step_run(Sim *m, const Step *q)
{
    const Launch *l = &m->s->launch[q->launch];
    Ref *x = alloc(m->arena, (size_t)launch_operands(m->g, l) * sizeof *x);
    for (int i = 0; i < l->n; i++)
        node_run(m, l->node[i], q->turn);
    int n = launch_outputs(m->g, l, m->uses, x, launch_operands(m->g, l));
    for (int k = 0; k < m->nrank; k++) {
        Num **reg = &m->reg[(size_t)k * m->g->n];
        if (l->scratch > 0)               /* written over, at its leisure */
            for (int64_t b = 0; b < l->scratch; b++)
                m->mem[k][ARENA][q->scratch_at + b] = (Cell){ 0 };
        for (int i = 0; i < n; i++)
            store(m, k, x[i], q->turn, reg[x[i]]);
        for (int i = 0; i < l->n; i++)
            reg[l->node[i]] = NULL;
    }
}

/* ---- the whole ---- */

/* Give every rank and turn its part of the leaf's whole value. */
static inline void leaf_fill(Sim *m, Ref r, const Num *whole)
{
    const Mesh *x = &m->g->mesh;
    const Type *t = &m->g->node[r].type;
    Type part = type_local(x, t), all = *t;
    Num *v = alloc(m->arena, (size_t)(elements(m, r) + 1) * sizeof *v);
    memset(all.split, 0, sizeof all.split);
    memset(all.step, 0, sizeof all.step);
    for (int k = 0; k < m->nrank; k++)
        for (int turn = 0; turn < m->s->buf[r].slots; turn++) {
            int64_t idx[NDIM] = { 0 }, global[NDIM];
            int coord[NAXIS] = { 0 }, none[NAXIS] = { 0 };
            coord_of(m, k, turn, coord);
            for (int64_t i = 0; i < elements(m, r); i++) {
                v[i] = global_of(x, t, coord, idx, global)
                    ? whole[offset_in(x, &all, none, global)]
                    : (Num){ .f = 0x1bad };
                for (int d = part.ndim; d-- > 0 && ++idx[d] == part.dim[d];)
                    idx[d] = 0;
            }
            store(m, k, r, turn, v);
        }
}

static inline Sim *sim_new(const Graph *g, Arena *a)
{
    Sim *m = alloc(a, sizeof *m);
    *m = (Sim){ .g = g, .s = g->sched, .arena = a };
    m->nrank = (int)(mesh_size(&g->mesh, (Axes)~0u)
                     / mesh_size(&g->mesh, mesh_axes(&g->mesh, TIME)));
    m->uses = graph_uses(g, a);
    m->bytes = alloc(a, (NSPACE + g->n + 1) * sizeof *m->bytes);
    for (int sp = 0; sp < NSPACE; sp++)
        m->bytes[sp] = space_leaves(sp) ? 0 : m->s->bytes[sp];
    for (Ref r = 0; r < g->n; r++) {
        const Buf *b = &m->s->buf[r];
        if (b->used && b->root == r && space_leaves(b->space))
            m->bytes[NSPACE + r] = b->size;
    }
    m->mem = alloc(a, (size_t)m->nrank * sizeof *m->mem);
    for (int k = 0; k < m->nrank; k++) {
        m->mem[k] = alloc(a, (NSPACE + g->n + 1) * sizeof **m->mem);
        for (uint32_t i = 0; i < NSPACE + g->n; i++)
            m->mem[k][i] = alloc(a, (size_t)(m->bytes[i] + 1) * sizeof(Cell));
    }
    m->reg = alloc(a, ((size_t)m->nrank * g->n + 1) * sizeof *m->reg);
    return m;
}

/* What the graph means, leaf by leaf, against what memory holds. */
static inline void sim_compare(Sim *m, Eval *e, Ref value, Ref at,
                               const char *what)
{
    const Mesh *x = &m->g->mesh;
    const Type *t = &m->g->node[value].type;
    const Num *whole = eval_get(e, value);
    Type part = type_local(x, t), all = *t;
    Num *v = alloc(m->arena, (size_t)(elements(m, value) + 1) * sizeof *v);
    memset(all.split, 0, sizeof all.split);
    memset(all.step, 0, sizeof all.step);
    for (int k = 0; k < m->nrank; k++) {
        int64_t idx[NDIM] = { 0 }, global[NDIM];
        int coord[NAXIS] = { 0 }, none[NAXIS] = { 0 };
        coord_of(m, k, 0, coord);
        load(m, k, at, 0, v);
        for (int64_t i = 0; i < elements(m, value); i++) {
            if (global_of(x, t, coord, idx, global)
                && v[i].f != whole[offset_in(x, &all, none, global)].f)
                fail_msg("\"%s\"[%d] is wrong on rank %d", what, (int)i, k);
            for (int d = part.ndim; d-- > 0 && ++idx[d] == part.dim[d];)
                idx[d] = 0;
        }
    }
}

/* Runs g's schedule and compares leaves and results with g's meaning; the
 * number of values compared. */
static inline int simulate(const Graph *g)
{
    Arena *a = arena_new();
    Sim *m = sim_new(g, a);
    Eval *e = eval_new(g, FIELD, 5, 3);
    int n = 0;
    eval_run(e);
    for (Ref r = 0; r < g->n; r++)
        if (m->s->buf[r].used && m->s->buf[r].root == r
            && ops[g->node[r].op].leaf && g->node[r].kernel < 0)
            leaf_fill(m, r, eval_get(e, r));
    for (uint32_t k = 0; k < m->s->nstep; k++)
        step_run(m, &m->s->step[k]);
    for (uint32_t i = 0; i < g->nset; i++, n++)
        sim_compare(m, e, g->set[i].value, g->set[i].leaf,
                    g->node[g->set[i].leaf].name);
    for (uint32_t i = 0; i < g->nout; i++, n++)
        sim_compare(m, e, g->out[i].ref, g->out[i].ref, g->out[i].name);
    eval_free(e);
    arena_free(a);
    return n;
}

#endif
