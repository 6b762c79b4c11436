/* verify.c -- what holds in every graph, between any two passes.
 *
 * V1 to V9 are those of architecture.md, named in messages; the rest is what
 * the structs promise.  A broken one is a bug of the pass before: die, with
 * the node as it prints.  Types are not believed but derived anew from the
 * op's row, so a forgotten all_reduce cannot hide.  What follows for a node
 * follows for its like: repeated blocks are derived once. */
#include "ir/sched.h"
#include "ir/text.h"

enum { KNOWN = 1 << 12 };                 /* a power of two */

typedef struct Check {
    const Graph *g;
    const char *after;
    Arena *arena;
    Axes time, *along;                    /* along: of each node */
    bool named;                           /* names are known to be apart */
    Names names;
    Ref known[KNOWN];                     /* by hash: a node whose type is
                                             what its row gives; NONE */
} Check;

static void readable(const Check *c, Ref r);

static _Noreturn void broken(const Check *c, Ref r, const char *what)
{
    const char *loc = c->g->node[r].loc;
    for (Ref k = r; k < c->g->n; k++)     /* those before it are */
        readable(c, k);
    die("after \"%s\": %s\n  %s: %s", c->after, what,
        loc && *loc ? loc : "node", node_text(c->arena, c->g, r));
}

/* ---- the structs ---- */

/* Before anything is printed: all that node_text reads is in range. */
static void readable(const Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    if (n->op >= OP_COUNT || !n->name || !*n->name)
        die("after \"%s\": node %u has no op or no name", c->after, r);
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= r)
            die("after \"%s\": node \"%s\" reads a node that comes later",
                c->after, n->name);
    if (n->again != NONE && n->again >= c->g->n)
        die("after \"%s\": node \"%s\": again is out of range", c->after,
            n->name);
    int naxis = c->g->mesh.naxis;
    Axes none = (Axes)(0xffffu << naxis);
    bool ok = n->type.dtype < NDTYPE && n->type.ndim >= 0
        && n->type.ndim <= NDIM && n->type.fold <= FOLD_LSE
        && !((type_axes(&n->type) | n->attr.axes | n->loop) & none)
        && n->segment <= UPDATE;
    for (int i = 0; ok && i < n->attr.nletter; i++)
        ok = !(split_axes(n->attr.letter[i].split) & none);
    if (!ok)
        die("after \"%s\": node \"%s\": its type, segment or axes are out of "
            "range", c->after, n->name);
}

static void structure(Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    const OpInfo *o = &ops[n->op];
    if (o->arity >= 0 && n->nin != o->arity)
        broken(c, r, "the number of operands is not the op's");
    if (!c->named && !names_add(&c->names, c->arena, c->g, r))
        broken(c, r, "another node has this name");
    for (int d = 0; d < n->type.ndim; d++)
        if (n->type.dim[d] < 1)
            broken(c, r, "a dimension is empty");
    if (n->attr.ndata && n->attr.ndata != type_volume(&n->type))
        broken(c, r, "data has another number of elements than the type");
    if (n->stage < EVERY || n->kernel < -1 || n->bucket < -1 || n->stream < 0)
        broken(c, r, "a label is out of range");
}

static void bounds(const Check *c)
{
    const Graph *g = c->g;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf >= g->n || g->set[i].value >= g->n)
            die("after \"%s\": set %u is out of range", c->after, i);
    for (uint32_t i = 0; i < g->nout; i++)
        if (g->out[i].ref >= g->n || !g->out[i].name)
            die("after \"%s\": result %u is out of range", c->after, i);
}

/* ---- types ---- */

static void v1_axis_once(const Check *c, Ref r)
{
    const Type *t = &c->g->node[r].type;
    Axes seen = t->partial;
    for (int d = 0; d < t->ndim; d++)
        for (Split s = t->split[d]; s; s >>= 4) {
            Axes a = (Axes)(1u << ((s & 15) - 1));
            if (seen & a)
                broken(c, r, "V1: a mesh axis stands twice in the type");
            seen |= a;
        }
}

static Type derive(const Graph *g, const Node *n)
{
    if (ops[n->op].family == FAMILY_collective)
        return coll_type(g, n->op, &n->attr, n->in[0], n->loc);
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    return sig_type(&s, g, n->op, &n->attr, n->in, n->loc);
}

/* The same op and attributes, of operands of the same types. */
static bool alike(const Graph *g, const Node *a, const Node *b)
{
    bool same = a->op == b->op && a->nin == b->nin
        && type_equal(&a->type, &b->type) && attr_equal(&a->attr, &b->attr);
    for (int i = 0; same && i < a->nin; i++)
        same = type_equal(&g->node[a->in[i]].type, &g->node[b->in[i]].type);
    return same;
}

/* Where its like would be known. */
static Ref *known_slot(Check *c, const Node *n)
{
    uint64_t h = n->op;
    for (const char *p = n->attr.sig; p && *p; p++)
        h = (h ^ (uint8_t)*p) * 0x9e3779b97f4a7c15u;
    for (int i = -1; i < n->nin; i++) {
        const Type *t = i < 0 ? &n->type : &c->g->node[n->in[i]].type;
        for (int d = 0; d < t->ndim; d++)
            h = (h ^ (uint64_t)t->dim[d] ^ t->split[d] << 32)
                * 0x9e3779b97f4a7c15u;
        h ^= (uint64_t)t->partial << 16;
    }
    h = (h ^ (uint64_t)n->attr.at) * 0x9e3779b97f4a7c15u;
    return &c->known[(h >> 32) & (KNOWN - 1)];
}

/* V2, V3 and, for gathers, V4: the row gives this very type. */
static void v2_retype(Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    Ref *like = known_slot(c, n);
    ErrTrap t;
    Type want;
    if (*like != NONE && alike(c->g, &c->g->node[*like], n))
        return;
    if (setjmp(t.jump))
        broken(c, r, fmt(c->arena, "V2-V4: %s", t.text));
    err_push(&t);
    want = derive(c->g, n);
    err_pop();
    if (!type_equal(&want, &n->type))
        broken(c, r, fmt(c->arena, "V2: its row gives %s",
                         type_text(c->arena, &c->g->mesh, &want)));
    *like = r;
}

/* reshard names its own type: the same tensor, lying otherwise. */
static void reshard(const Check *c, Ref r)
{
    const Type *to = &c->g->node[r].type;
    const Type *from = &c->g->node[c->g->node[r].in[0]].type;
    bool same = to->dtype == from->dtype && to->ndim == from->ndim;
    for (int d = 0; same && d < to->ndim; d++)
        same = to->dim[d] == from->dim[d];
    if (!same)
        broken(c, r, "reshard changes dtype or sizes");
    if (c->g->phase != PHASE_TENSOR)
        broken(c, r, "reshard is left behind");
}

static void v5_sets(const Check *c)
{
    const Graph *g = c->g;
    bool *written = alloc(c->arena, g->n + 1);
    for (uint32_t i = 0; i < g->nset; i++) {
        Ref leaf = g->set[i].leaf, value = g->set[i].value;
        const Type *t = &g->node[leaf].type, *u = &g->node[value].type;
        Op op = g->node[leaf].op;
        if (op != OP_param && op != OP_state)
            broken(c, leaf, "V5: only a param or a state can be set");
        if (written[leaf])
            broken(c, leaf, "V5: the leaf is set twice");
        if (!type_equal(t, u))
            broken(c, value, fmt(c->arena, "V5: is set to \"%s\", which is %s",
                                 g->node[leaf].name,
                                 type_text(c->arena, &g->mesh, t)));
        if (type_axes(t) & c->time)
            broken(c, leaf, "V5: a leaf that is set differs between turns");
        written[leaf] = true;
    }
}

/* ---- labels ---- */

/* Stages of one role hand values on where the graph is that role's. */
static bool apart(const Graph *g, int from, int to)
{
    bool same = g->role >= 0 && from < g->nstage && to < g->nstage
        && (to == EVERY || g->role_of[from] == g->role_of[to]);
    return from != EVERY && from != to && !same;
}

static void v6_stages(const Check *c, Ref r)
{
    const Graph *g = c->g;
    const Node *n = &g->node[r];
    for (int i = 0; i < n->nin; i++) {
        int from = g->node[n->in[i]].stage;
        int to = n->op == OP_hop ? n->attr.from : n->stage;
        if (!op_unread(n->op, i) && apart(g, from, to))
            broken(c, r, fmt(c->arena, "V6: reads \"%s\" of stage %d without "
                             "a hop", g->node[n->in[i]].name, from));
    }
    if (g->nstage && n->stage >= g->nstage)
        broken(c, r, "V6: there is no such stage");
}

static void v6_sets(const Check *c)
{
    const Graph *g = c->g;
    for (uint32_t i = 0; i < g->nset && g->phase != PHASE_TENSOR; i++) {
        Ref value = g->set[i].value;
        if (apart(g, g->node[value].stage, g->node[g->set[i].leaf].stage))
            broken(c, value, fmt(c->arena, "V6: is set to \"%s\", a leaf of "
                                 "another stage",
                                 g->node[g->set[i].leaf].name));
    }
}

/* A value that is made anew in each turn (a weight's copy) names none of them
 * in its type, yet who reads it must run in the same turns. */
static void v7_loops(const Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    Axes need = type_axes(&n->type);
    for (int i = 0; i < n->nin; i++)
        need |= type_axes(&c->g->node[n->in[i]].type);
    if (need & c->time & (Axes)~n->loop)
        broken(c, r, "V7: loop lacks a time axis of its types");
    if (n->loop & (Axes)~c->time)
        broken(c, r, "V7: loop names an axis that is not time");
    c->along[r] = node_along(c->g, r);
    for (int i = 0; i < n->nin; i++)
        if (!op_unread(n->op, i) && c->along[n->in[i]] & (Axes)~n->loop)
            broken(c, r, fmt(c->arena, "V7: loop lacks a turn in which \"%s\" "
                             "is made anew", c->g->node[n->in[i]].name));
}

/* What outlives the turns is made once, but for its parts. */
static void v7_ends(const Check *c)
{
    const Graph *g = c->g;
    for (uint32_t i = 0; i < g->nset + g->nout
             && g->phase != PHASE_TENSOR; i++) {
        Ref r = i < g->nset ? g->set[i].value : g->out[i - g->nset].ref;
        if (c->along[r] & (Axes)~type_axes(&g->node[r].type))
            broken(c, r, "V7: is made anew in each turn, and outlives them");
    }
}

static void v8_clones(const Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    if (n->again == NONE)
        return;
    const Node *of = &c->g->node[n->again];
    if (of->op != n->op || !type_equal(&of->type, &n->type)
        || !attr_equal(&of->attr, &n->attr))
        broken(c, r, fmt(c->arena, "V8: differs from what it clones, %s",
                         node_text(c->arena, c->g, n->again)));
}

/* What reads them is the row's to say (sig_type.c); a collective's own rows
 * are its attributes'. */
static void v9_halos(const Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    if (ops[n->op].leaf && type_halo(&n->type))
        broken(c, r, "V9: a leaf has no rows of neighbours");
}

/* ---- the schedule ---- */

static void launches(const Check *c, const Sched *s)
{
    for (uint32_t i = 0; i < s->nlaunch; i++) {
        const Launch *l = &s->launch[i];
        for (int k = 0; k < l->n; k++)
            if (l->node[k] >= c->g->n || (k && l->node[k - 1] >= l->node[k]))
                die("after \"%s\": launch %u: its nodes do not ascend",
                    c->after, i);
    }
}

static void schedule(const Check *c)
{
    const Sched *s = c->g->sched;
    if (!s) {
        if (c->g->phase == PHASE_SCHED)
            die("after \"%s\": there is no schedule", c->after);
        return;
    }
    launches(c, s);
    for (uint32_t i = 0; i < s->nstep; i++) {
        const Step *t = &s->step[i];
        bool ok = t->launch < s->nlaunch && t->turn >= 0
            && t->event < s->nevent;
        for (uint32_t k = 0; k < t->nwait; k++)
            ok = ok && t->wait[k] >= 0 && t->wait[k] < s->nevent;
        if (!ok)
            die("after \"%s\": step %u is out of range", c->after, i);
    }
    for (Ref r = 0; s->buf && r < c->g->n; r++) {
        const Buf *b = &s->buf[r];
        if (b->used && (b->root >= c->g->n || !s->buf[b->root].used
                        || b->slots < 1 || b->size < 0 || b->born > b->dies))
            broken(c, r, "its buffer is out of range");
    }
}

/* ---- all ---- */

static void node(Check *c, Ref r)
{
    const Node *n = &c->g->node[r];
    structure(c, r);
    v1_axis_once(c, r);
    if (n->op == OP_reshard)
        reshard(c, r);
    else if (!ops[n->op].leaf && n->op != OP_recv)
        v2_retype(c, r);
    v8_clones(c, r);
    v9_halos(c, r);
    if (c->g->phase != PHASE_TENSOR) {
        v6_stages(c, r);
        v7_loops(c, r);
    }
}

static void check(const Graph *g, const char *after, bool named)
{
    Check c = { .g = g, .after = after, .arena = arena_new(), .named = named,
                .time = mesh_axes(&g->mesh, TIME) };
    memset(c.known, 0xff, sizeof c.known);            /* NONE */
    c.along = alloc(c.arena, (g->n + 1) * sizeof *c.along);
    if (!named)
        names_reserve(&c.names, c.arena, g->n);
    bounds(&c);
    for (Ref r = 0; r < g->n; r++) {
        readable(&c, r);
        node(&c, r);
    }
    v5_sets(&c);
    v6_sets(&c);
    v7_ends(&c);
    schedule(&c);
    arena_free(c.arena);
}

void verify(const Graph *g, const char *after) { check(g, after, false); }

void verify_named(const Graph *g, const char *after) { check(g, after, true); }
