/* local.c -- every edge can run: a reshard becomes collectives.
 *
 * One table (architecture.md C3) lowers "have -> want":
 *     +a -> whole   all_reduce       /a -> whole        all_gather
 *     +a -> /a      reduce_scatter   /a dim i -> dim k  all_to_all
 *     whole -> /a   shard            whole -> +a        own
 *     /a -> /a:1:1  halo             /a -> /a:0:0:6  halo
 *     /a -> /a'     ring             /a' +a -> /a       ring, all_reduce a'
 * Time axes are finished first: then what is sent is sent once a step and not
 * once a turn; where the plan says `reduce = "each"`, what becomes parts is
 * summed over ranks first, so that turns add up parts only (ZeRO-2).  What can
 * be cut at once is cut before anything is sent.  From here on every node says
 * along which time axes it runs. */
#include "passes/pass.h"

typedef struct Way {
    Graph *g;
    Ref r;                                /* the value so far */
    const Type *want;
    const Node *of;                       /* the reshard: its labels */
    const Plan *plan;                     /* NULL: one rank */
} Way;

static const Type *have(const Way *w)
{
    return &w->g->node[w->r].type;
}

static void take_step(Way *w, Op op, Attr a)
{
    Type t = coll_type(w->g, op, &a, w->r, w->of->loc);
    w->r = emit_typed(w->g, op, &a, t, &w->r, 1, NULL, w->of->loc);
    Node *n = &w->g->node[w->r];
    n->segment = w->of->segment, n->scope = w->of->scope;
    n->stage = w->of->stage;
}

/* The dimension that wants this axis as its next minor one; -1. */
static int scatter_dim(const Way *w, int axis)
{
    const Type *h = have(w);
    for (int d = 0; d < h->ndim; d++) {
        Split next = split_push(h->split[d], axis), want = w->want->split[d];
        while (want && want != next)
            want = split_without(want, (Axes)(1u << split_minor(want)));
        if (want)
            return d;
    }
    return -1;
}

static void finish_axis(Way *w, int axis)
{
    Axes a = (Axes)(1u << axis);
    int d = scatter_dim(w, axis);
    bool time = w->g->mesh.axis[axis].kind == TIME;
    if (d >= 0 && !time && have(w)->fold == FOLD_SUM)
        take_step(w, OP_reduce_scatter, (Attr){ .axes = a, .dim = d });
    else
        take_step(w, OP_all_reduce, (Attr){ .axes = a });
}

/* Axes that fold alike and scatter nowhere go in one all_reduce; in an exact
 * plan each goes alone, minor first, which makes a tree of the sum. */
static void finish_together(Way *w, Axes owed, AxisKind kind)
{
    Axes together = 0;
    bool exact = w->plan && w->plan->exact;
    for (int i = w->g->mesh.naxis; i-- > 0;) {
        if (!(owed >> i & 1) || w->g->mesh.axis[i].kind != kind)
            continue;
        if (!exact && (kind == TIME || scatter_dim(w, i) < 0))
            together |= (Axes)(1u << i);
        else
            finish_axis(w, i);
    }
    if (together)
        take_step(w, OP_all_reduce, (Attr){ .axes = together });
}

static bool is_prefix(Split whole_, Split part)
{
    for (;; whole_ = split_without(whole_, (Axes)(1u << split_minor(whole_)))) {
        if (whole_ == part)
            return true;
        if (!whole_)
            return false;
    }
}

static void gather(Way *w, int d)
{
    while (!is_prefix(w->want->split[d], have(w)->split[d])) {
        int axis = split_minor(have(w)->split[d]);
        Attr a = { .axes = (Axes)(1u << axis), .dim = d };
        bool moved = false;
        for (int k = 0; k < have(w)->ndim && !moved; k++) {
            Split next = split_push(have(w)->split[k], axis);
            moved = k != d && is_prefix(w->want->split[k], next)
                && w->g->mesh.axis[axis].kind == SPACE;
            a.to = k;
        }
        if (!moved)
            a.to = 0;
        take_step(w, moved ? OP_all_to_all : OP_all_gather, a);
    }
}

/* The axis that dimension d is split by next, after those that it has. */
static int next_axis(const Way *w, int d)
{
    Split next = w->want->split[d];
    int axis = -1;
    while (next != have(w)->split[d]) {
        axis = split_minor(next);
        next = split_without(next, (Axes)(1u << axis));
    }
    return axis;
}

static void cut(Way *w, int d)
{
    while (have(w)->split[d] != w->want->split[d])
        take_step(w, OP_shard, (Attr){
            .axes = (Axes)(1u << next_axis(w, d)), .dim = d });
}

static void take_halo(Way *w, int d, int lo, int hi, int step)
{
    if (lo != have(w)->lo[d] || hi != have(w)->hi[d]
        || step != have(w)->step[d])
        take_step(w, OP_halo, (Attr){ .dim = d, .lo = lo, .hi = hi,
            .step = step, .axes = split_axes(have(w)->split[d]) });
}

/* Rows of other parts; those of a later dimension bring along the earlier
 * ones', so that corners come from where they are. */
static void take_halos(Way *w)
{
    for (int d = 0; d < have(w)->ndim; d++)
        take_halo(w, d, w->want->lo[d], w->want->hi[d], w->want->step[d]);
}

/* What is to be cut otherwise lies in parts of its size first. */
static void even_out(Way *w)
{
    for (int d = 0; d < have(w)->ndim; d++)
        if (have(w)->split[d] != w->want->split[d])
            take_halo(w, d, 0, 0, 0);
}

/* Axes that the value does not name yet: what is not kept need not be sent. */
static void cut_early(Way *w)
{
    for (int d = 0; d < have(w)->ndim; d++)
        while (have(w)->split[d] != w->want->split[d]
               && is_prefix(w->want->split[d], have(w)->split[d])) {
            Axes a = (Axes)(1u << next_axis(w, d));
            if (type_axes(have(w)) & a)
                break;
            take_step(w, OP_shard, (Attr){ .axes = a, .dim = d });
        }
}

/* Sums over ranks whose parts are kept, before those over turns. */
static void scatter_each(Way *w)
{
    Axes owed = have(w)->partial & (Axes)~w->want->partial;
    Axes space = mesh_axes(&w->g->mesh, SPACE) & owed;
    bool turns = owed & mesh_axes(&w->g->mesh, TIME);
    if (!w->plan || w->plan->reduce != REDUCE_EACH || !turns
        || have(w)->fold != FOLD_SUM)
        return;
    for (int i = w->g->mesh.naxis; i-- > 0;)
        if (space >> i & 1 && scatter_dim(w, i) >= 0)
            finish_axis(w, i);
}

/* Is dimension d to be cut along the other axis of that ring?  What comes
 * back from one brings the sum of the ranks that is owed. */
static bool rung(const Way *w, int d, Axes ring)
{
    Axes have_ = split_axes(have(w)->split[d]) & ring;
    Axes want = split_axes(w->want->split[d]) & ring;
    Axes space = ring & mesh_axes(&w->g->mesh, SPACE);
    return have_ && want && have_ != want
        && (have_ == space || have(w)->partial & space);
}

static void take_rings(Way *w)
{
    for (int i = 0; i < w->g->mesh.naxis; i++) {
        Axes ring = mesh_ring(&w->g->mesh, i);
        bool any = false;
        for (int d = 0; ring && d < have(w)->ndim; d++)
            any |= rung(w, d, ring);
        if (any)
            take_step(w, OP_ring, (Attr){ .axes = ring, .id = w->of->attr.id });
    }
}

static Ref lower(Graph *g, Ref r, const Node *of, const Plan *plan)
{
    Way w = { g, r, &of->type, of, plan };
    even_out(&w);
    take_rings(&w);
    cut_early(&w);
    scatter_each(&w);
    finish_together(&w, have(&w)->partial & (Axes)~of->type.partial, TIME);
    finish_together(&w, have(&w)->partial & (Axes)~of->type.partial, STAGE);
    finish_together(&w, have(&w)->partial & (Axes)~of->type.partial, SPACE);
    for (int d = 0; d < of->type.ndim; d++)
        gather(&w, d);
    for (int d = 0; d < of->type.ndim; d++)
        cut(&w, d);
    Axes owe = of->type.partial & (Axes)~have(&w)->partial;
    if (owe)
        take_step(&w, OP_own, (Attr){ .axes = owe });
    take_halos(&w);
    if (!type_equal(have(&w), &of->type))
        die("reshard %s -> %s has no way",
            type_text(g->arena, &g->mesh, have(&w)),
            type_text(g->arena, &g->mesh, &of->type));
    return w.r;
}

static void label_loops(Graph *g)
{
    Axes time = mesh_axes(&g->mesh, TIME);
    for (Ref r = 0; r < g->n; r++) {
        Node *n = &g->node[r];
        n->loop = type_axes(&n->type) & time;
        for (int i = 0; i < n->nin; i++)
            n->loop |= type_axes(&g->node[n->in[i]].type) & time;
    }
}

static Graph *lowered(const Graph *in, Job *j)
{
    Copy c = copy_begin(in, j);
    for (Ref r = 0; r < in->n; r++)
        if (in->node[r].op == OP_reshard)
            c.map[r] = lower(c.out, c.map[in->node[r].in[0]], &in->node[r],
                             j->plan);
        else
            copy_node(&c, r);
    return copy_end(&c);
}

Graph *pass_local(const Graph *in, Job *j)
{
    Ref r = 0;
    while (r < in->n && in->node[r].op != OP_reshard)
        r++;
    const Graph *whole = r < in->n ? lowered(in, j) : in;
    Graph *g = graph_simplify(whole, j);
    if (whole != in)
        arena_drop(j->keep, whole->node);
    label_loops(g);
    return g;
}
