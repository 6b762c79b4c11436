/* fuzz_plan.c -- plans by chance, for `dpc verify --fuzz`.
 *
 * A mesh of up to three rank axes and two of turns; the batch split over some
 * of them in some order; weights, moments and averages split anywhere that
 * divides, or, in some, anywhere; values told to lie somewhere; stages
 * (fuzz_stage.c).  Some are laid over what a shipped partitioner says
 * (fuzz_shipped.c).  No such plan need be good; every one must be right. */
#include "compiler/verify.h"
#include "ir/field.h"
#include "passes/offload.h"
#include <stdlib.h>

/* Seeds in a row begin far apart. */
Draw draw_of(uint64_t seed)
{
    return (Draw){ field_mix(seed) };
}

/* Knuth's MMIX generator; the high bits are the good ones. */
uint64_t draw_below(Draw *d, uint64_t n)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return n ? (d->state >> 33) % n : 0;
}

typedef struct Leaves { const char **name; uint32_t n; } Leaves;  /* sorted */

typedef struct Drawing {
    Draw *d;
    Plan *plan;
    FeatureSet want, has;
    Arena *arena;
    int64_t batch;
    Split order;                          /* of the batch */
    const Graph *g;
    const Leaves *leaves;                 /* of it; and, of each, the first */
    uint32_t *told;                       /* of the plan that is it, + 1; 0 */
    int weights, states;                  /* of ten, so many are split */
    bool uneven;                          /* sizes need not divide */
} Drawing;

static bool chance(Drawing *w, uint64_t of_ten)
{
    return draw_below(w->d, 10) < of_ten;
}

static void has(Drawing *w, Feature f)
{
    w->has |= (FeatureSet)1 << f;
}

static bool wanted(const Drawing *w, Feature f)
{
    return w->want >> f & 1;
}

/* Is it wanted?  Else by chance; it counts once it is there. */
static bool wants(Drawing *w, Feature f, uint64_t of_ten)
{
    bool by_chance = chance(w, of_ten);
    return by_chance || wanted(w, f);
}

/* One of n words: the one whose feature is wanted, else any; -1 is no
 * feature. */
static int word_draw(Drawing *w, const int *feature, int n)
{
    int word = (int)draw_below(w->d, (uint64_t)n);
    for (int k = 0; k < n; k++)
        if (feature[k] >= 0 && wanted(w, (Feature)feature[k]))
            word = k;
    return word;
}

static int at_least(int n, int least)
{
    return n < least ? least : n;
}

static int axis_count(const Plan *p, AxisKind kind)
{
    return __builtin_popcount(mesh_axes(&p->mesh, kind));
}

/* Axes that a partitioner has made stay, and count. */
static void mesh_draw(Drawing *w)
{
    static const int some[] = { 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3 };
    static const int few[] = { 0, 0, 1, 1, 1, 2 };
    static const char *const space[] = { "a", "b", "c" };
    static const char *const time[] = { "t", "u" };
    Mesh *m = &w->plan->mesh;
    bool own = !m->naxis;
    int least[2];
    features_axes(w->want, &least[0], &least[1]);
    int ranks = at_least(own ? some[draw_below(w->d, COUNT(some))] : 0,
                         least[0]);
    int turns = at_least(own ? few[draw_below(w->d, COUNT(few))] : 0,
                         least[1]);
    for (int i = axis_count(w->plan, SPACE); i < ranks; i++)
        m->axis[m->naxis++] = (Axis){ space[i], own && ranks < 3
                                      && chance(w, 3) ? 4 : 2, SPACE };
    for (int i = axis_count(w->plan, TIME); i < turns; i++)
        m->axis[m->naxis++] = (Axis){ time[i], 2, TIME };
    for (int i = 0; i < axis_count(w->plan, SPACE); i++)
        has(w, (Feature)(FEATURE_ranks + i));
    for (int i = 0; i < axis_count(w->plan, TIME); i++)
        has(w, (Feature)(FEATURE_turns + i));
}

/* Some of the axes in some order, as far as they divide n. */
static Split split_draw(Drawing *w, int64_t n, Axes from, uint64_t of_ten)
{
    const Mesh *m = &w->plan->mesh;
    Split s = 0;
    for (int tries = 0; tries < m->naxis; tries++) {
        int i = (int)draw_below(w->d, (uint64_t)m->naxis);
        Split next = split_push(s, i);
        if (from >> i & 1 && !(split_axes(s) >> i & 1) && chance(w, of_ten)
            && (w->uneven || n % split_parts(m, next) == 0))
            s = next;
    }
    return s;
}

/* ---- leaves by name ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static Leaves *leaves_of(const Graph *g, Arena *a)
{
    Leaves *l = alloc(a, sizeof *l);
    l->name = alloc(a, (g->n + 1) * sizeof *l->name);
    for (Ref r = 0; r < g->n; r++)
        if (ops[g->node[r].op].leaf)
            l->name[l->n++] = g->node[r].name;
    qsort(l->name, l->n, sizeof *l->name, by_name);
    return l;
}

/* Where its place in the plan is kept; NULL: the graph has no such leaf. */
static uint32_t *told_of(const Drawing *w, const char *name)
{
    const Leaves *l = w->leaves;
    const char **at = bsearch(&name, l->name, l->n, sizeof *at, by_name);
    return at ? &w->told[at - l->name] : NULL;
}

static void told_note(Drawing *w, uint32_t i)
{
    uint32_t *at = told_of(w, w->plan->leaf[i].name);
    if (at && !*at)
        *at = i + 1;
}

static LeafPlan *plan_of_leaf(const Drawing *w, const char *name)
{
    const uint32_t *at = told_of(w, name);
    return at && *at ? &w->plan->leaf[*at - 1] : NULL;
}

/* What the splits of a leaf are; is any dimension split? */
static bool leaf_note(Drawing *w, const LeafPlan *l, const Type *t)
{
    Split all = 0;
    int split = 0;
    for (int d = 0; d < l->ndim; d++) {
        all |= l->split[d], split += l->split[d] != 0;
        if (t->dim[d] % split_parts(&w->plan->mesh, l->split[d]))
            has(w, FEATURE_uneven);
        if (l->split[d] >> 4)
            has(w, FEATURE_dimension_by_two);
    }
    if (split > 1)
        has(w, FEATURE_two_dimensions);
    return all;
}

/* Then it stands in the plan. */
static bool leaf_put(Drawing *w, const LeafPlan *l, const Type *t)
{
    if (!leaf_note(w, l, t))
        return false;
    GROW(w->arena, w->plan->leaf, w->plan->nleaf, w->plan->leafcap);
    w->plan->leaf[w->plan->nleaf] = *l;
    told_note(w, w->plan->nleaf++);
    return true;
}

/* All inputs of a batch lie alike, but for a plan that says otherwise.  told:
 * what a partitioner has said of it, or NULL. */
static void input_draw(Drawing *w, const Node *n, LeafPlan *told, bool apart)
{
    LeafPlan l = { .name = n->name, .ndim = n->type.ndim };
    Axes time = mesh_axes(&w->plan->mesh, TIME);
    Axes ranks = mesh_axes(&w->plan->mesh, SPACE);
    if (n->type.ndim && n->type.dim[0] == w->batch)
        l.split[0] = w->order;
    if (apart && n->type.ndim) {
        l.split[0] = split_without(w->order, ranks);
        if (l.split[0] != w->order)
            has(w, FEATURE_inputs_apart);
        int d = (int)draw_below(w->d, (uint64_t)n->type.ndim);
        if (d && !(time & split_axes(l.split[d])))
            l.split[d] = split_draw(w, n->type.dim[d], ranks, 7);
    }
    if (told)
        *told = l;                        /* noted with what else was said */
    else
        leaf_put(w, &l, &n->type);
}

static bool kept_draw(Drawing *w, const Node *n, uint64_t of_ten)
{
    LeafPlan l = { .name = n->name, .ndim = n->type.ndim };
    Axes free = mesh_axes(&w->plan->mesh, SPACE);
    for (int d = 0; d < l.ndim && chance(w, of_ten); d++) {
        l.split[d] = split_draw(w, n->type.dim[d], free, 5);
        free &= (Axes)~split_axes(l.split[d]);
    }
    return leaf_put(w, &l, &n->type);
}

/* The plan of the weight whose moment or average this is; NULL. */
static const LeafPlan *plan_of_weight(const Drawing *w, const char *name)
{
    while ((name = strchr(name, '.')) && !told_of(w, ++name))
        ;
    return name ? plan_of_leaf(w, name) : NULL;
}

static bool lies_alike(const LeafPlan *a, const LeafPlan *b)
{
    return memcmp(a->split, b->split, sizeof a->split) == 0;
}

/* What a partitioner has said of a leaf. */
static void said_note(Drawing *w, const Node *n, const LeafPlan *l)
{
    leaf_note(w, l, &n->type);
    if (n->op == OP_param)
        has(w, FEATURE_weights_split);
    const LeafPlan *like = n->op == OP_state
        ? plan_of_weight(w, n->name) : NULL;
    if (n->op == OP_state && (!like || !lies_alike(l, like)))
        has(w, FEATURE_states_apart);
}

static void leaves_draw(Drawing *w, const Graph *g)
{
    bool apart = wants(w, FEATURE_inputs_apart, 2);
    bool own = wants(w, FEATURE_states_apart, 5);
    uint32_t said = w->plan->nleaf;
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        LeafPlan *told = said ? plan_of_leaf(w, n->name) : NULL;
        if (n->op == OP_param && n->attr.frozen)
            has(w, FEATURE_frozen);
        if (n->op == OP_input && (apart || !told))
            input_draw(w, n, told, apart);
        if (told) {
            said_note(w, n, told);
            continue;
        }
        if (n->op == OP_param && kept_draw(w, n, (uint64_t)w->weights))
            has(w, FEATURE_weights_split);
        if (n->op == OP_state && own && kept_draw(w, n, (uint64_t)w->states))
            has(w, FEATURE_states_apart);
        const LeafPlan *like = n->op == OP_state && !own
            ? plan_of_weight(w, n->name) : NULL;
        if (like) {
            LeafPlan l = *like;
            l.name = n->name;
            leaf_put(w, &l, &n->type);
        }
    }
}

/* ---- words of the plan ---- */

/* Weights whole for a step, a turn or a use; sums once a step or a turn. */
static void weights_words_draw(Drawing *w)
{
    static const int gather[] = { -1, FEATURE_gather_batch,
                                  FEATURE_gather_use };
    Axes ranks = mesh_axes(&w->plan->mesh, SPACE);
    Axes turns = mesh_axes(&w->plan->mesh, TIME);
    w->plan->gather = (GatherWhen)word_draw(w, gather, COUNT(gather));
    bool late = wanted(w, FEATURE_compress);
    w->plan->reduce = wants(w, FEATURE_reduce_each, 4) && !late ? REDUCE_EACH
                                                               : REDUCE_LATE;
    if (w->has >> FEATURE_weights_split & 1 && w->plan->gather)
        has(w, (Feature)gather[w->plan->gather]);
    if (turns && ranks && w->plan->reduce == REDUCE_EACH)
        has(w, FEATURE_reduce_each);
}

/* Sums of gradients in fewer bytes, over some axes. */
static void compress_draw(Drawing *w)
{
    Plan *p = w->plan;
    Axes some = 0;
    if (p->exact || p->reduce == REDUCE_EACH || !wants(w, FEATURE_compress, 2))
        return;                           /* compress_wrong */
    for (int i = 0; i < p->mesh.naxis; i++)
        if (p->mesh.axis[i].kind == SPACE && chance(w, 8)) {
            p->compress[i] = chance(w, 5) ? U8 : BF16;
            some |= (Axes)(1u << i);
        }
    if (split_axes(w->order) & some)
        has(w, FEATURE_compress);
}

static void recompute_draw(Drawing *w)
{
    static const int feature[] = { -1, FEATURE_remade_none,
                                   FEATURE_remade_all, FEATURE_remade_to_fit };
    const FeatureSet any = FEATURE_SET(remade_none) | FEATURE_SET(remade_all)
        | FEATURE_SET(remade_to_fit);
    Recompute word = (Recompute)word_draw(w, feature, COUNT(feature));
    if (chance(w, 6) && !(w->want & any))  /* the others are dear to try */
        word = RECOMPUTE_SELECTIVE;
    w->plan->recompute = word;
    w->plan->bytes = 1 << (12 + draw_below(w->d, 8));
    if (word != RECOMPUTE_SELECTIVE)
        has(w, (Feature)feature[word]);
}

/* Some splits of that type's dimensions, the others free. */
static Lie lie_draw(Drawing *w, const Type *t)
{
    Lie l = { .ndim = t->ndim };
    Axes ranks = mesh_axes(&w->plan->mesh, SPACE);
    for (int d = 0; d < t->ndim; d++) {
        l.free[d] = chance(w, 4);
        if (l.free[d])
            continue;
        l.split[d] = split_draw(w, t->dim[d], ranks, 5);
        ranks &= (Axes)~split_axes(l.split[d]);
    }
    return l;
}

ValuePlan *value_add(Plan *p, Arena *a, const Node *x)
{
    GROW(a, p->value, p->nvalue, p->valuecap);
    ValuePlan *v = &p->value[p->nvalue++];
    *v = (ValuePlan){ .loc = "fuzz", .name = *x->scope
        ? fmt(a, "%s.%s", x->scope, x->name) : x->name };
    return v;
}

/* Values that are neither leaves nor numbers. */
static void values_draw(Drawing *w)
{
    Plan *p = w->plan;
    int n = 1 + (int)draw_below(w->d, 3);
    if (!wants(w, FEATURE_constraints, 3) || !mesh_axes(&p->mesh, SPACE))
        return;
    for (int tries = 0; tries < 40 && (int)p->nvalue < n; tries++) {
        const Node *x = &w->g->node[draw_below(w->d, w->g->n)];
        if (ops[x->op].leaf || x->op == OP_grad || !x->type.ndim)
            continue;
        ValuePlan *v = value_add(p, w->arena, x);
        v->lie = lie_draw(w, &x->type);
        v->grad = chance(w, 5) ? v->lie : lie_draw(w, &x->type);
    }
    if (p->nvalue)
        has(w, FEATURE_constraints);
}

static int64_t batch_of(const Graph *g)
{
    for (Ref r = 0; r < g->n; r++)
        if (g->node[r].op == OP_input && g->node[r].type.ndim)
            return g->node[r].type.dim[0];
    return 1;
}

static void storage_draw(Drawing *w)
{
    static const int64_t buckets[] = { 0, 500, 10000 };
    Plan *p = w->plan;
    p->bucket = wants(w, FEATURE_small_buckets, 5)
        ? buckets[draw_below(w->d, COUNT(buckets))] : 32 << 20;
    p->compute = wants(w, FEATURE_bf16, 3) ? BF16 : F32;
    p->exact = wants(w, FEATURE_exact, 2) && !wanted(w, FEATURE_compress);
    if (p->bucket < 1 << 20 && mesh_axes(&p->mesh, SPACE))
        has(w, FEATURE_small_buckets);
    if (p->compute == BF16)
        has(w, FEATURE_bf16);
    if (p->exact)
        has(w, FEATURE_exact);
}

/* All leaves, or some by name; small ones, too, which words leave alone.
 * Values that wait for backward. */
static void offload_draw(Drawing *w)
{
    static const char *const lists[] = { "**", "adam.**", "ema.**,*.w",
                                         "*.*.w,adam.m.**" };
    Plan *p = w->plan;
    bool leaves = wants(w, FEATURE_offload, 1);
    bool spill = wants(w, FEATURE_spill, 1);
    const char *list = leaves ? lists[draw_below(w->d, COUNT(lists))] : "";
    if (!leaves && !spill)
        return;
    p->offload = fmt(w->arena, "%s%s", list, !spill ? "" : leaves
                     ? ",activations" : "activations");
    for (Ref r = 0; r < w->g->n && leaves; r++)
        if (offload_names(&p->mesh, p->offload, &w->g->node[r], w->arena))
            has(w, FEATURE_offload);
    if (spill)
        has(w, FEATURE_spill);
}

/* Of ten leaves, so many are split: few or most, if any need be. */
static int share_draw(Drawing *w, bool any)
{
    static const int share[] = { 3, 9, 0 };
    return share[draw_below(w->d, any ? 2 : 3)];
}

static Split batch_order(Drawing *w)
{
    for (Ref r = 0; r < w->g->n; r++) {
        const LeafPlan *l = w->g->node[r].op == OP_input
            ? plan_of_leaf(w, w->g->node[r].name) : NULL;
        if (l)
            return l->split[0];
    }
    return split_draw(w, w->batch, (Axes)~mesh_axes(&w->plan->mesh, STAGE), 8);
}

/* `of`: what it is laid over, or NULL. */
static Plan *plan_once(Draw *d, const Graph *g, const Leaves *leaves,
                       Arena *a, const Plan *of, FeatureSet want,
                       FeatureSet *has_what)
{
    const FeatureSet of_weights = FEATURE_SET(weights_split)
        | FEATURE_SET(dimension_by_two) | FEATURE_SET(two_dimensions)
        | FEATURE_SET(gather_batch) | FEATURE_SET(gather_use);
    Plan *p = alloc(a, sizeof *p);
    Drawing w = { .d = d, .plan = p, .want = want, .arena = a,
                  .batch = batch_of(g), .g = g, .leaves = leaves };
    if (of) {
        *p = *of, p->valuecap = p->nvalue;
        p->leaf = alloc(a, (of->nleaf + 1) * sizeof *p->leaf);
        memcpy(p->leaf, of->leaf, of->nleaf * sizeof *p->leaf);
        p->leafcap = of->nleaf + 1;
    }
    w.told = alloc(a, (leaves->n + 1) * sizeof *w.told);
    for (uint32_t i = 0; i < p->nleaf; i++)
        told_note(&w, i);
    mesh_draw(&w);
    w.uneven = wants(&w, FEATURE_uneven, 2) && p->mesh.naxis;
    stages_draw(d, p, g, a, want, &w.has);
    w.order = batch_order(&w);
    if (split_axes(w.order) & mesh_axes(&p->mesh, SPACE))
        has(&w, FEATURE_batch_split);
    w.weights = share_draw(&w, want & of_weights);
    w.states = share_draw(&w, want & FEATURE_SET(states_apart));
    leaves_draw(&w, g);
    weights_words_draw(&w), recompute_draw(&w);
    values_draw(&w), storage_draw(&w), compress_draw(&w);
    rows_draw(d, p, g, a, want, &w.has);
    rings_draw(d, p, g, a, want, &w.has);
    chunks_draw(d, p, g, a, want, &w.has);
    offload_draw(&w);
    *has_what = w.has;
    return p;
}

/* Where a split falls is chance: a plan that lacks what is wanted is drawn
 * again, and the one that had most of it stays. */
Plan *plan_draw(Draw *d, const Graph *g, Arena *a, const char *home,
                FeatureSet want, FeatureSet *has_what)
{
    enum { TRIES = 20 };
    FeatureSet begun = 0;
    const Plan *of = shipped_draw(d, g, a, home, want, &begun);
    const Leaves *leaves = leaves_of(g, a);
    Draw best = *d;
    int most = -1;
    for (int i = 0; i < TRIES && most < features_count(want & ~begun); i++) {
        ArenaMark mark = arena_mark(a);
        Draw begin = *d;
        plan_once(d, g, leaves, a, of, want, has_what);
        arena_rewind(a, mark);
        int met = features_count(want & *has_what & ~begun);
        if (met > most)
            most = met, best = begin;
    }
    *d = best;
    Plan *p = plan_once(d, g, leaves, a, of, want, has_what);
    *has_what |= begun;
    return p;
}
