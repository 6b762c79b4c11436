/* offload.c -- leaves that live in the host's memory.
 *
 * The plan's word "offload" names params and states whose bytes are the
 * host's.  What reads one reads a copy on the device, which is made right
 * before its first reader and dies with its last; what sets one is copied out
 * (Ren et al., "ZeRO-Offload", 2021; here the device still computes the
 * update).  Copies run on a stream of their own: `order` lets few be ahead,
 * `memory` gives the two memories two arenas, and `events` orders them like
 * all else.  A copy is made where its readers are: a weight of `gather = use`
 * comes once for forward and once more for backward (regather.c). */
#include "passes/offload.h"

enum { SMALL = 4096 };                    /* bytes of a leaf that a word for all
                                             leaves as it is: a copy has a
                                             latency, too */

/* The next word of a list; false: it is at its end. */
static bool next_word(const char **list, const char **word, size_t *n)
{
    *word = *list;
    *n = strcspn(*list, ",");
    *list += *n + ((*list)[*n] == ',');
    return *n > 0;
}

static bool word_is(const char *word, size_t n, const char *s)
{
    return strlen(s) == n && strncmp(word, s, n) == 0;
}

bool offload_names(const Mesh *m, const char *list, const Node *leaf, Arena *a)
{
    const char *word;
    size_t n;
    if (leaf->op != OP_param && leaf->op != OP_state)
        return false;
    bool small = type_bytes(m, &leaf->type) < SMALL, named = false;
    while (!named && next_word(&list, &word, &n))
        named = word_is(word, n, "states") ? leaf->op == OP_state && !small
              : word_is(word, n, "params") ? leaf->op == OP_param && !small
              : name_fits(fmt(a, "%.*s", (int)n, word), leaf->name);
    return named;
}

bool offload_says(const char *list, const char *say)
{
    const char *word;
    size_t n;
    bool says = false;
    while (list && !says && next_word(&list, &word, &n))
        says = word_is(word, n, say);
    return says;
}

Ref offload_copy(Graph *g, Ref x, MemoryClass place, const char *end)
{
    const Node n = g->node[x];
    Ref q = emit_typed(g, OP_copy, NULL, n.type, &x, 1,
                       fmt(g->arena, "%s.%s", n.name, end), n.loc);
    Node *m = &g->node[q];
    m->scope = n.scope, m->stage = n.stage, m->layout = n.layout;
    m->loop = n.loop & type_axes(&n.type);
    m->segment = n.segment, m->place = place;
    return q;
}

/* By node: the copies that its readers want.  The update has one of its own:
 * what forward read would wait for it on the device. */
typedef struct In { bool early, late; Ref copy; } In;

static In *ins(const Graph *g, Arena *a)
{
    In *in = alloc(a, (g->n + 1) * sizeof *in);
    for (Ref r = 0; r < g->n; r++)
        for (int i = 0; i < g->node[r].nin; i++) {
            In *x = &in[g->node[r].in[i]];
            x->late |= g->node[r].segment == UPDATE;
            x->early |= g->node[r].segment != UPDATE;
        }
    for (uint32_t i = 0; i < g->nout; i++)
        in[g->out[i].ref].early = true;
    return in;
}

static Ref fetched(Copy *c, Ref leaf, Segment s)
{
    Ref q = offload_copy(c->out, leaf, DEVICE, "in");
    c->out->node[q].segment = s;
    return q;
}

/* A leaf's new value on its way out.  What is nobody's own bytes gets some
 * first, so that the way itself copies bytes and nothing else. */
static Ref stowed(Copy *c, Ref value)
{
    const Node *n = &c->out->node[value];
    if (ops[n->op].leaf || n->op == OP_move)
        value = offload_copy(c->out, value, DEVICE, "own");
    return offload_copy(c->out, value, HOST, "out");
}

typedef struct Offload {
    Copy c;
    const char *list;
    In *in;
    Ref *leaf, *value;                    /* by node; by set: the new ones */
    uint32_t *set;                        /* by node: 1 + the set it is for */
} Offload;

/* Node r; UPDATE's readers have copies of their own. */
static Ref copy_reader(Offload *o, Ref r, Arena *a)
{
    const Node *n = &o->c.in->node[r];
    Ref *x = alloc(a, (size_t)(n->nin + 1) * sizeof *x);
    for (int i = 0; i < n->nin; i++) {
        Ref late = o->in[n->in[i]].copy;
        x[i] = n->segment == UPDATE && late ? late : o->c.map[n->in[i]];
    }
    return copy_node_in(&o->c, r, x, n->nin);
}

static bool hosted(const Offload *o, Ref leaf)
{
    return o->c.out->node[o->leaf[leaf]].place == HOST;
}

/* A value leaves as soon as it is made. */
static void copy_set(Offload *o, uint32_t i)
{
    const Set *s = &o->c.in->set[i];
    o->value[i] = o->c.map[s->value];
    if (hosted(o, s->leaf))
        o->value[i] = stowed(&o->c, o->value[i]);
}

/* All nodes; a leaf that moves is read as its copies. */
static void copy_all(Offload *o, Arena *a)
{
    const Graph *g = o->c.in;
    for (Ref r = 0; r < g->n; r++) {
        o->leaf[r] = copy_reader(o, r, a);
        if (offload_names(&g->mesh, o->list, &g->node[r], a)) {
            o->c.out->node[o->leaf[r]].place = HOST;
            if (o->in[r].late)
                o->in[r].copy = fetched(&o->c, o->leaf[r], UPDATE);
            if (o->in[r].early)
                o->c.map[r] = fetched(&o->c, o->leaf[r], BEGIN);
        }
        if (o->set[r] && g->set[o->set[r] - 1].leaf < r)
            copy_set(o, o->set[r] - 1);
    }
    for (uint32_t i = 0; i < g->nset; i++)
        if (o->value[i] == NONE)
            copy_set(o, i);
}

Graph *pass_offload(const Graph *in, Job *j)
{
    if (!j->plan || !j->plan->offload)
        return copy_none(in);
    Offload o = { .c = copy_begin(in, j), .list = j->plan->offload,
                  .in = ins(in, j->scratch) };
    o.leaf = alloc(j->scratch, (in->n + 1) * sizeof *o.leaf);
    o.value = alloc(j->scratch, (in->nset + 1) * sizeof *o.value);
    o.set = alloc(j->scratch, (in->n + 1) * sizeof *o.set);
    for (uint32_t i = 0; i < in->nset; i++)
        o.set[in->set[i].value] = i + 1, o.value[i] = NONE;
    copy_all(&o, j->scratch);
    Graph *out = copy_end(&o.c);
    for (uint32_t i = 0; i < out->nset; i++)
        out->set[i] = (Set){ o.leaf[in->set[i].leaf], o.value[i] };
    return out;
}
