/* graph.c -- build a graph: one node at a time, operands first. */
#include "ir/graph.h"

Graph *graph_new(Arena *a, const Mesh *mesh)
{
    Graph *g = alloc(a, sizeof *g);
    g->arena = a;
    g->entry = "train";
    g->role = -1;
    if (mesh)
        g->mesh = *mesh;
    return g;
}

static Ref push(Graph *g, Node n)
{
    GROW(g->arena, g->node, g->n, g->ncap);
    if (!n.name)
        n.name = fmt(g->arena, "v%u", g->n);
    if (!n.scope)
        n.scope = "";
    g->node[g->n] = n;
    return g->n++;
}

static Node node_of(Graph *g, Op op, const Attr *a, const Ref *in, int nin,
                    const char *loc)
{
    Node n = { .op = op, .nin = nin, .loc = loc, .again = NONE,
               .stage = EVERY, .kernel = -1, .bucket = -1 };
    if (a)
        n.attr = *a;
    n.in = alloc(g->arena, (size_t)(nin ? nin : 1) * sizeof *in);
    for (int i = 0; i < nin; i++)
        n.in[i] = in[i];
    return n;
}

Ref emit(Graph *g, Op op, const Attr *a, const Ref *in, int nin,
         const char *loc)
{
    Node n = node_of(g, op, a, in, nin, loc);
    Sig s = sig_bind(g, op, a, in, nin, loc);
    n.type = sig_type(&s, g, op, &n.attr, in, loc);
    return push(g, n);
}

Ref emit_typed(Graph *g, Op op, const Attr *a, Type t, const Ref *in, int nin,
               const char *name, const char *loc)
{
    Node n = node_of(g, op, a, in, nin, loc);
    n.type = t;
    n.name = name;
    return push(g, n);
}

Ref emit_const(Graph *g, double v, const Type *like, const char *loc)
{
    Type t = { .dtype = like ? like->dtype : F32 };
    Attr a = { .value = v };
    Ref c = emit_typed(g, OP_const, &a, t, NULL, 0, NULL, loc);
    if (!like || !like->ndim)
        return c;
    Attr m = {0};
    char text[NDIM + 3] = "->";
    m.letter = alloc(g->arena, (size_t)like->ndim * sizeof *m.letter);
    for (int d = 0; d < like->ndim; d++) {
        text[2 + d] = (char)('a' + d);
        m.letter[m.nletter++] = (Letter){ (char)('a' + d), like->dim[d],
                                          like->split[d] };
    }
    m.sig = fmt(g->arena, "%s", text);
    return EMIT(g, OP_move, &m, loc, c);
}

Ref graph_leaf(const Graph *g, const char *name)
{
    for (Ref r = 0; r < g->n; r++)
        if (ops[g->node[r].op].leaf && strcmp(g->node[r].name, name) == 0)
            return r;
    return NONE;
}

void graph_set(Graph *g, Ref leaf, Ref value)
{
    GROW(g->arena, g->set, g->nset, g->setcap);
    g->set[g->nset++] = (Set){ leaf, value };
}

void graph_out(Graph *g, const char *name, Ref value)
{
    GROW(g->arena, g->out, g->nout, g->outcap);
    g->out[g->nout++] = (Out){ name, value };
}

uint32_t *graph_uses(const Graph *g, Arena *a)
{
    uint32_t *n = alloc(a, (g->n + 1) * sizeof *n);
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++)
            n[g->node[r].in[i]] += !op_unread(g->node[r].op, i);
    for (uint32_t i = 0; i < g->nset; i++)
        n[g->set[i].value]++, n[g->set[i].leaf]++;
    for (uint32_t i = 0; i < g->nout; i++)
        n[g->out[i].ref]++;
    return n;
}

/* ---- collectives: the types of table C3 ---- */

static void finish_fold(const Graph *g, const Attr *a, Type *t, Op op,
                        const char *loc)
{
    if ((t->partial & a->axes) != a->axes || !a->axes)
        err(loc, "%s: the operand %s owes nothing over these axes",
            ops[op].name, type_text(g->arena, &g->mesh, t));
    t->partial &= (Axes)~a->axes;
    if (!t->partial)
        t->fold = FOLD_SUM;
}

static void part_dim(const Graph *g, const Attr *a, int d, Type *t, Op op,
                     const char *loc)
{
    if (d < 0 || d >= t->ndim || (type_axes(t) & a->axes))
        err(loc, "%s: %s cannot be split over these axes along dimension %d",
            ops[op].name, type_text(g->arena, &g->mesh, t), d);
    for (int i = 0; i < g->mesh.naxis; i++)
        if (a->axes >> i & 1)
            t->split[d] = split_push(t->split[d], i);
}

/* V4: a gather removes the minor-most axes of its dimension. */
static void join_dim(const Graph *g, const Attr *a, int d, Type *t, Op op,
                     const char *loc)
{
    Axes left = a->axes;
    bool ok = d >= 0 && d < t->ndim;
    while (ok && left) {
        int minor = split_minor(t->split[d]);
        ok = minor >= 0 && (left >> minor & 1);
        if (ok) {
            t->split[d] = split_without(t->split[d], (Axes)(1u << minor));
            left &= (Axes)~(1u << minor);
        }
    }
    if (!ok)
        err(loc, "%s: the axes are not the minor ones of dimension %d of %s",
            ops[op].name, d, type_text(g->arena, &g->mesh, t));
}

/* Parts whose rows ranks give each other are those of ranks in order, and
 * these hold all there is. */
static void halo_dim(const Graph *g, const Attr *a, Type *t, const char *loc)
{
    int d = a->dim;
    bool ok = d >= 0 && d < t->ndim && a->axes
        && split_axes(t->split[d]) == a->axes && !t->lo[d] && !t->hi[d]
        && parts_in_line(&g->mesh, t->split[d], t->step[d] ? t->step[d]
                         * split_parts(&g->mesh, t->split[d]) : t->dim[d]);
    if (!ok || a->lo < 0 || a->hi < 0 || a->step < 0 || a->lo > UINT8_MAX
        || a->hi > UINT8_MAX)
        err(loc, "halo: %d and %d rows of others, and parts of %d, along "
            "dimension %d of %s", a->lo, a->hi, a->step, d,
            type_text(g->arena, &g->mesh, t));
    t->lo[d] = (uint8_t)a->lo, t->hi[d] = (uint8_t)a->hi;
    t->step[d] = a->step;
}

static Type ring_type(const Graph *g, const Attr *a, const Type *t,
                      const char *loc)
{
    Axes space = a->axes & mesh_axes(&g->mesh, SPACE);
    bool one = space && !(space & (space - 1));
    if (!one || mesh_ring(&g->mesh, __builtin_ctz(space)) != a->axes
        || !(type_axes(t) & a->axes))
        err(loc, "ring: the axes are no axis of %s and its twin",
            type_text(g->arena, &g->mesh, t));
    return type_swap(t, a->axes);
}

Type coll_type(const Graph *g, Op op, const Attr *a, Ref in, const char *loc)
{
    Type t = g->node[in].type;
    if (op == OP_all_reduce || op == OP_reduce_scatter)
        finish_fold(g, a, &t, op, loc);
    if (op == OP_reduce_scatter || op == OP_shard)
        part_dim(g, a, a->dim, &t, op, loc);
    if (op == OP_ring)
        t = ring_type(g, a, &t, loc);
    if (op == OP_halo)
        halo_dim(g, a, &t, loc);
    if (op == OP_all_gather || op == OP_all_to_all)
        join_dim(g, a, a->dim, &t, op, loc);
    if (op == OP_all_to_all)
        part_dim(g, a, a->to, &t, op, loc);
    if (op == OP_own && (type_axes(&t) & a->axes))
        err(loc, "own: %s names one of these axes already",
            type_text(g->arena, &g->mesh, &t));
    if (op == OP_own)
        t.partial |= a->axes;
    return t;
}
