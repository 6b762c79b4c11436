/* eval.c -- a graph on its mesh: every node, rank and turn.
 *
 * Nodes are taken in order, each on all coordinates at once: ranks (space and
 * stage axes) and the turns that its type or operands name.  Along a time
 * axis of `loop` that neither names all turns are alike, so one is run.  What
 * a node owes over turns is finished by its all_reduce after the last turn,
 * as a node is complete before its readers start.
 *
 * A collective is one definition: fold the parts of the ranks and turns that
 * differ in the folded axes, then fetch each element that the wanted part
 * holds from whoever has it, among those that differ in the gathered axes.
 * An element that nobody in reach has becomes poison (NaN, or a hash), so
 * that a wrong shard shows.
 *
 * From LOCAL on a node of a stage runs on the ranks of that stage's role
 * alone, and only a hop fetches from another role: what is read elsewhere is
 * poison, too.  The graph of one role runs on its ranks, with what it
 * receives given. */
#include "ir/eval_node.h"
#include "ir/field.h"

#include <math.h>

struct Eval {
    const Graph *g;
    Domain domain;
    uint64_t seed, step;
    Arena *arena;
    Axes ranks;                           /* space and stage axes */
    int stage;                            /* the axis along which nodes of a
                                             stage stand apart; -1 */
    Val *val;                             /* by node */
    const Num **given;                    /* by node: whole value of a leaf */
    bool done, rounds;
    EvalMemo *memo;                       /* NULL: none */
    int *number;                          /* by node, there */
};

/* ---- coordinates ---- */

static int64_t part_stride(const Mesh *m, Axes axes, int axis)
{
    int64_t n = axes >> axis & 1;
    for (int i = axis + 1; i < m->naxis; i++)
        n *= axes >> i & 1 ? m->axis[i].size : 1;
    return n;
}

static int64_t part_index(const Mesh *m, Axes axes, const int *coord)
{
    int64_t n = 0;
    for (int i = 0; i < m->naxis; i++)
        if (axes >> i & 1)
            n = n * m->axis[i].size + coord[i];
    return n;
}

/* Next coordinates along `axes`; false, and all zero there, after the last. */
static bool next(const Mesh *m, Axes axes, int *coord)
{
    for (int i = m->naxis; i-- > 0;)
        if (axes >> i & 1) {
            if (++coord[i] < m->axis[i].size)
                return true;
            coord[i] = 0;
        }
    return false;
}

static Num *part_at(const Eval *e, Ref r, const int *coord)
{
    const Val *v = &e->val[r];
    return v->data + part_index(&e->g->mesh, v->axes, coord) * v->each;
}

/* ---- fetching across ranks and turns ---- */

enum { CUT = -1, ABSENT = -2 };           /* beyond the end; out of reach */

/* Where the elements of a wanted part lie: the sum of one entry a dimension. */
typedef struct Route {
    int64_t n[NDIM];
    int64_t *from[NDIM];                  /* numbers, or CUT, or ABSENT */
} Route;

/* Distance from the part at coord to the one that holds element *at of
 * dimension d, plus bias: never negative, so that it is told from ABSENT.
 * *at becomes its place in that part. */
static int64_t hop(const Eval *e, Ref r, int d, int64_t *at,
                   const int *coord, Axes reach, int64_t bias)
{
    const Mesh *m = &e->g->mesh;
    const Val *v = &e->val[r];
    const Type *t = &e->g->node[r].type;
    int64_t far = bias, n = t->step[d] * split_parts(m, t->split[d]);

    n = n ? n : t->dim[d];
    for (Split split = t->split[d]; split; split >>= 4) {
        int a = (int)(split & 15) - 1;
        n = (n + m->axis[a].size - 1) / m->axis[a].size;
        int c = (int)(*at / n);
        *at %= n;
        if (c != coord[a] && !(reach >> a & 1))
            return ABSENT;
        far += (c - coord[a]) * part_stride(m, v->axes, a) * v->each;
    }
    return far;
}

/* Is dimension d of both cut alike, rows of neighbours and all? */
static bool cut_alike(const Type *a, const Type *b, int d)
{
    return a->split[d] == b->split[d] && a->lo[d] == b->lo[d]
        && a->hi[d] == b->hi[d] && a->step[d] == b->step[d];
}

/* From the part at `from` to the one wanted at coord.  Offsets are biased by
 * `bias` so that negative ones are CUT and ABSENT.  Rows of neighbours are
 * theirs, and beyond the ends nobody's; where they are there already, they
 * stay. */
static Route route(const Eval *e, Arena *a, Ref in, const int *from,
                   const int *coord, Axes reach, const Type *want,
                   int64_t bias)
{
    const Mesh *m = &e->g->mesh;
    const Type *have = &e->g->node[in].type;
    Type local = type_local(m, have);
    Route t;
    int64_t stride = 1;

    for (int d = want->ndim; d-- > 0; stride *= local.dim[d]) {
        Part p = type_part(m, want, d, coord);
        int lo = want->lo[d], hi = want->hi[d];
        bool stays = (lo || hi || want->step[d]) && cut_alike(have, want, d);
        t.n[d] = p.room + lo + hi;
        t.from[d] = alloc(a, (size_t)(t.n[d] + 1) * sizeof **t.from);
        for (int64_t i = 0; i < t.n[d]; i++) {
            int64_t at = p.at + i - lo, far = CUT;
            if (!stays && i < p.n + lo + hi && at >= 0 && at < want->dim[d])
                far = hop(e, in, d, &at, from, reach, bias);
            at = stays ? i : at + have->lo[d];
            far = stays ? bias : far;
            t.from[d][i] = far < 0 ? far : far + at * stride;
        }
    }
    return t;
}

static Num poison(const Eval *e, int64_t i)
{
    if (e->domain == REAL)
        return (Num){ .r = NAN };
    uint64_t h = field_hash(field_key("absent"), (uint64_t)i);
    return (Num){ .f = field_mod(h) };
}

/* The part that `want` has at coord, of what the parts of `in` that differ
 * from it in the axes `fold` are together. */
static void fetch(const Eval *e, Ref in, const int *coord, Axes fold,
                  Axes reach, const Type *want, Num *out)
{
    const Graph *g = e->g;
    const Type *have = &g->node[in].type;
    Type part = type_local(&g->mesh, want);
    Arena *scratch = arena_new();
    int64_t n = type_volume(&part), idx[NDIM] = {0};
    int64_t bias = (int64_t)1 << 40;      /* above every part's distance */
    int c[NAXIS];

    fold &= e->val[in].axes;              /* a fold over what does not vary */
    memcpy(c, coord, sizeof c);
    for (int i = 0; i < NAXIS; i++)
        c[i] = fold >> i & 1 ? 0 : c[i];
    Route t = route(e, scratch, in, c, coord, reach, want, bias);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, bad = 0;
        for (int d = 0; d < part.ndim; d++) {
            int64_t f = t.from[d][idx[d]];
            bad = f == CUT ? CUT : f == ABSENT && !bad ? ABSENT : bad;
            at += f - bias;
        }
        for (int d = part.ndim; d-- > 0 && ++idx[d] == part.dim[d];)
            idx[d] = 0;
        if (bad) {
            out[i] = bad == CUT ? num_of(e->domain, 0) : poison(e, i);
            continue;
        }
        out[i] = part_at(e, in, c)[at];
        while (next(&g->mesh, fold, c))   /* ends with zeros again */
            out[i] = num_fold(e->domain, have->fold, out[i],
                              part_at(e, in, c)[at]);
    }
    arena_free(scratch);
}

/* ---- nodes ---- */

/* One coordinate owes everything, the others nothing. */
static void own(const Eval *e, const Type *t, Axes axes, const int *coord,
                Num *out)
{
    Type part = type_local(&e->g->mesh, t);
    int64_t n = type_volume(&part);
    bool mine = true;

    for (int i = 0; i < NAXIS; i++)
        mine &= !(axes >> i & 1) || coord[i] == 0;
    for (int64_t i = 0; !mine && i < n; i++)
        out[i] = num_identity(e->domain, t->fold);
}

/* Rank i at turn t has what rank t has at turn i. */
static void ring(const Eval *e, Ref r, const int *coord, Num *out)
{
    const Node *n = &e->g->node[r];
    Axes space = n->attr.axes & e->ranks;
    int x = __builtin_ctz(space), c[NAXIS];
    int y = __builtin_ctz(n->attr.axes & (Axes)~space);
    memcpy(c, coord, sizeof c);
    c[x] = coord[y], c[y] = coord[x];
    memcpy(out, part_at(e, n->in[0], c),
           (size_t)e->val[r].each * sizeof *out);
}

static void collective(const Eval *e, Ref r, const int *coord, Num *out)
{
    const Node *n = &e->g->node[r];
    Ref in = n->in[0];
    const Type *have = &e->g->node[in].type;
    Axes all = (Axes)~0u, axes = n->attr.axes, fold = 0, reach = 0, owned = 0;

    switch (n->op) {
    case OP_reshard:
        fold = have->partial & (Axes)~n->type.partial;
        owned = n->type.partial & (Axes)~have->partial;
        reach = all;
        break;
    case OP_all_reduce:
    case OP_reduce_scatter:
        fold = axes;
        break;
    case OP_all_gather:
    case OP_all_to_all:
    case OP_halo:
        reach = axes;
        break;
    case OP_ring:
        ring(e, r, coord, out);
        return;
    case OP_own:
        owned = axes;
        break;
    case OP_shard:
        break;
    default:
        die("the evaluator knows no collective \"%s\"", ops[n->op].name);
    }
    fetch(e, in, coord, fold, reach, &n->type, out);
    own(e, &n->type, owned, coord, out);
}

static void given(const Eval *e, Ref r, const int *coord, Num *out)
{
    const Graph *g = e->g;
    const Type *t = &g->node[r].type;
    Type u = type_local(&g->mesh, t);
    int64_t n = type_volume(&u), idx[NDIM] = {0};
    Part p[NDIM];

    for (int d = 0; d < u.ndim; d++)
        p[d] = type_part(&g->mesh, t, d, coord);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        bool pad = false;
        for (int d = 0; d < u.ndim; d++) {
            int64_t k = p[d].at + idx[d] - t->lo[d];
            pad |= idx[d] >= p[d].n + t->lo[d] + t->hi[d] || k < 0
                || k >= t->dim[d];
            at = at * t->dim[d] + k;
        }
        out[i] = pad ? num_of(e->domain, 0) : e->given[r][at];
        for (int d = u.ndim; d-- > 0 && ++idx[d] == u.dim[d];)
            idx[d] = 0;
    }
}

/* Is there a value of the node at coord? */
static bool held(const Eval *e, Ref r, const int *coord)
{
    const Node *n = &e->g->node[r];
    return e->stage < 0 || n->stage == EVERY
        || e->g->role_of[n->stage] == coord[e->stage];
}

static const Num *operand_at(Eval *e, Ref r, const int *coord)
{
    if (held(e, r, coord))
        return part_at(e, r, coord);
    Num *bad = alloc(e->arena, (size_t)(e->val[r].each + 1) * sizeof *bad);
    for (int64_t i = 0; i < e->val[r].each; i++)
        bad[i] = poison(e, i);
    return bad;
}

/* From the role that makes it. */
static void hop_at(Eval *e, Ref r, const int *coord, Num *out)
{
    const Node *n = &e->g->node[r];
    int c[NAXIS];
    memcpy(c, coord, sizeof c);
    if (e->stage >= 0)
        c[e->stage] = e->g->role_of[n->attr.from];
    const Num *in = operand_at(e, n->in[0], c);
    memcpy(out, in, (size_t)e->val[r].each * sizeof *out);
}

static void run_at(Eval *e, Ref r, const int *coord)
{
    const Node *n = &e->g->node[r];
    Num *out = part_at(e, r, coord);
    const Num *few[NIN], **in = few;

    if (n->op == OP_hop) {
        hop_at(e, r, coord, out);
        return;
    }

    if (ops[n->op].family == FAMILY_collective) {
        collective(e, r, coord, out);
        return;
    }
    if (e->given[r]) {
        given(e, r, coord, out);
        own(e, &n->type, n->type.partial, coord, out);
        return;
    }
    if (n->nin > NIN)
        in = alloc(e->arena, (size_t)n->nin * sizeof *in);
    for (int i = 0; i < n->nin; i++)
        in[i] = operand_at(e, n->in[i], coord);
    Place p = { coord, e->seed, e->step };
    eval_part(e->g, r, e->domain, &p, in, out);
    for (int64_t i = 0; e->rounds && n->type.dtype == F32
         && i < e->val[r].each; i++)
        out[i].r = (float)out[i].r;
    if (ops[n->op].leaf)                  /* a leaf that owes a fold */
        own(e, &n->type, n->type.partial, coord, out);
}

/* Where it runs; coord is set to its role. */
static Spot spot_of(const Eval *e, Ref r, int *coord)
{
    const Graph *g = e->g;
    const Node *n = &g->node[r];
    Spot s = { .axes = e->ranks, .stage = e->stage, .role = -1, .from = -1 };
    if (e->stage >= 0 && n->stage != EVERY) {
        s.axes &= (Axes)~(1u << e->stage);
        coord[e->stage] = s.role = g->role_of[n->stage];
    }
    if (e->stage >= 0 && n->op == OP_hop)
        s.from = g->role_of[n->attr.from];
    return s;
}

/* Is it known from a run before?  *in: its operands' numbers. */
static bool known(Eval *e, Ref r, const Spot *s, int **in)
{
    const Node *n = &e->g->node[r];
    if (!e->memo)
        return false;
    *in = alloc(memo_arena(e->memo), (size_t)n->nin * sizeof **in + 1);
    for (int i = 0; i < n->nin; i++)
        (*in)[i] = e->number[n->in[i]];
    if (!e->given[r])
        e->number[r] = memo_find(e->memo, n, *in, s, &e->val[r]);
    return e->number[r];
}

static void run(Eval *e, Ref r)
{
    const Graph *g = e->g;
    const Node *n = &g->node[r];
    Axes time = mesh_axes(&g->mesh, TIME), turns = type_axes(&n->type);
    Type part = type_local(&g->mesh, &n->type);
    Val *v = &e->val[r];
    int coord[NAXIS] = {0}, *in = NULL;
    Spot s = spot_of(e, r, coord);

    if (ops[n->op].leaf && type_halo(&n->type))
        die("%s: a leaf has no rows of neighbours", n->name);
    if (n->op == OP_recv && !e->given[r])
        die("%s: what is received must be given", n->name);
    if (known(e, r, &s, &in))
        return;
    v->axes = s.axes | (turns & time);
    v->each = type_volume(&part);
    v->data = alloc(e->memo ? memo_arena(e->memo) : e->arena,
                    (size_t)(v->each * mesh_size(&g->mesh, v->axes) + 1)
                    * sizeof *v->data);
    if (ops[n->op].family != FAMILY_collective)
        for (int i = 0; i < n->nin; i++)
            turns |= type_axes(&g->node[n->in[i]].type);
    do
        run_at(e, r, coord);
    while (next(&g->mesh, s.axes | (turns & time), coord));
    if (e->memo)
        e->number[r] = e->given[r] ? memo_number(e->memo)
                     : memo_add(e->memo, n, in, &s, *v);
}

/* ---- the interface ---- */

Eval *eval_new(const Graph *g, Domain domain, uint64_t seed, uint64_t step)
{
    Arena *a = arena_new();
    Eval *e = alloc(a, sizeof *e);

    *e = (Eval){ .g = g, .domain = domain, .seed = seed, .step = step,
                 .arena = a };
    Axes stage = mesh_axes(&g->mesh, STAGE);
    bool apart = g->nstage && g->role < 0 && g->phase != PHASE_TENSOR;
    e->ranks = mesh_axes(&g->mesh, SPACE) | (g->role < 0 ? stage : 0);
    e->stage = -1;
    for (int i = 0; apart && i < g->mesh.naxis; i++)
        e->stage = stage >> i & 1 ? i : e->stage;
    e->val = alloc(a, (g->n + 1) * sizeof *e->val);
    e->given = alloc(a, (g->n + 1) * sizeof *e->given);
    return e;
}

void eval_round(Eval *e)
{
    e->rounds = e->domain == REAL;
}

void eval_share(Eval *e, EvalMemo *m)
{
    e->memo = m;
    e->number = alloc(e->arena, (e->g->n + 1) * sizeof *e->number);
    memo_mesh(m, &e->g->mesh);
}

void eval_set(Eval *e, Ref leaf, const Num *whole)
{
    size_t n = (size_t)type_volume(&e->g->node[leaf].type) * sizeof *whole;
    Num *copy = alloc(e->arena, n + 1);

    if (!ops[e->g->node[leaf].op].leaf && e->g->node[leaf].op != OP_recv)
        die("%s is no leaf", e->g->node[leaf].name);
    memcpy(copy, whole, n);
    e->given[leaf] = copy;
}

void eval_run(Eval *e)
{
    for (Ref r = 0; r < e->g->n; r++)
        run(e, r);
    e->done = true;
}

/* Ranks that the type says hold the same must: else the value is poison. */
static void agree(const Eval *e, Ref r, const Type *whole, Num *out)
{
    const Mesh *m = &e->g->mesh;
    const Type *t = &e->g->node[r].type;
    Axes copies = e->ranks & e->val[r].axes & (Axes)~type_axes(t);
    int64_t n = type_volume(whole);
    int coord[NAXIS] = {0};
    Arena *scratch = arena_new();
    Num *other = alloc(scratch, (size_t)(n + 1) * sizeof *other);

    while (next(m, copies, coord)) {
        fetch(e, r, coord, t->partial, (Axes)~copies, whole, other);
        for (int64_t i = 0; i < n; i++)
            if (other[i].f != out[i].f)
                out[i] = poison(e, (int64_t)(other[i].f ^ out[i].f));
    }
    arena_free(scratch);
}

const Num *eval_get(Eval *e, Ref r)
{
    Type whole = e->g->node[r].type;
    Axes partial = whole.partial;
    int64_t n = type_volume(&whole);
    Num *out = alloc(e->arena, (size_t)(n + 1) * sizeof *out);
    static const int origin[NAXIS];

    if (!e->done)
        die("eval_get before eval_run");
    memset(whole.split, 0, sizeof whole.split);
    memset(whole.lo, 0, sizeof whole.lo);
    memset(whole.hi, 0, sizeof whole.hi);
    memset(whole.step, 0, sizeof whole.step);
    whole.partial = 0;
    fetch(e, r, origin, partial, (Axes)~0u, &whole, out);
    agree(e, r, &whole, out);
    return out;
}

void eval_receive(Eval *part, Eval *whole)
{
    const Graph *g = part->g, *w = whole->g;
    for (Ref r = 0; r < g->n; r++)
        for (Ref q = 0; g->node[r].op == OP_recv && q < w->n; q++)
            if (w->node[q].op == OP_hop
                && w->node[q].attr.id == g->node[r].attr.id)
                eval_set(part, r, eval_get(whole, q));
}

void eval_free(Eval *e)
{
    arena_free(e->arena);
}
