/* text.c -- a graph as text: one node a line, labels and schedule too.
 *
 * The text is the graph: what prints reads back, and prints the same bytes
 * again (text_parse.c; the grammar is in IR.md).  A field at its default is
 * left out.  Strings stand bare where their characters allow it, else quoted.
 */
#include "ir/text.h"
#include <math.h>

const char *const segment_names[UPDATE + 1] = {
    "", "init", "begin", "forward", "backward", "weight", "update"
};
const char *const axis_kinds[TIME + 1] = { "", "stage", "time" };
const char *const phase_names[PHASE_ANY] = { "tensor", "local", "sched" };
const char *const space_names[NSPACE] = { "leaves", "arena", "io",
    "host_leaves", "host_arena" };
const char *const memory_names[HOST + 1] = { "device", "host" };
const char fold_marks[] = "+^~";

/* ---- nodes by name ---- */

enum { AHEAD = 8 };                       /* nodes: names lie anywhere */

static uint32_t hash(const char *s)
{
    uint32_t h = 2166136261u;             /* FNV-1a */
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

static uint32_t place(const Names *t, const Graph *g, const char *name,
                      uint32_t h)
{
    uint32_t i = h & (t->cap - 1);
    while (t->at[i] != NONE && (t->hash[i] != h
           || strcmp(g->node[t->at[i]].name, name) != 0))
        i = (i + 1) & (t->cap - 1);
    return i;
}

Ref names_find(const Names *t, const Graph *g, const char *name)
{
    return t->cap ? t->at[place(t, g, name, hash(name))] : NONE;
}

static void empty(Names *t, Arena *a, uint32_t cap)
{
    t->cap = cap;
    t->at = alloc(a, cap * sizeof *t->at);
    t->hash = alloc(a, cap * sizeof *t->hash);
    memset(t->at, 0xff, cap * sizeof *t->at);         /* NONE */
}

void names_reserve(Names *t, Arena *a, uint32_t n)
{
    uint32_t cap = 64;
    while (cap < 2 * (n + 1))
        cap *= 2;
    empty(t, a, cap);
}

static void names_grow(Names *t, Arena *a, const Graph *g)
{
    Names old = *t;
    empty(t, a, old.cap ? old.cap * 2 : 64);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.at[i] != NONE) {
            uint32_t k = place(t, g, g->node[old.at[i]].name, old.hash[i]);
            t->at[k] = old.at[i], t->hash[k] = old.hash[i];
        }
}

bool names_add(Names *t, Arena *a, const Graph *g, Ref r)
{
    if (2 * (t->n + 1) > t->cap)
        names_grow(t, a, g);
    if (r + AHEAD < g->n)
        __builtin_prefetch(g->node[r + AHEAD].name);
    uint32_t h = hash(g->node[r].name);
    uint32_t i = place(t, g, g->node[r].name, h);
    if (t->at[i] != NONE)
        return false;
    t->at[i] = r, t->hash[i] = h;
    t->n++;
    return true;
}

/* A node whose name is taken becomes NAME.1, NAME.2, ...; last: the number
 * that was given last, by the node whose name it is. */
static void name_apart(Names *t, Arena *scratch, Graph *g, Ref r,
                       uint32_t *last)
{
    const char *name = g->node[r].name;
    if (names_add(t, scratch, g, r))
        return;
    uint32_t *k = &last[names_find(t, g, name)];
    do
        g->node[r].name = fmt(g->arena, "%s.%u", name, ++*k);
    while (!names_add(t, scratch, g, r));
}

bool graph_name(Graph *g)
{
    Arena *scratch = arena_new();
    Names t = { 0 };
    bool apart = true;
    uint32_t *last = alloc(scratch, (g->n + 1) * sizeof *last);
    names_reserve(&t, scratch, g->n);
    for (Ref r = 0; r < g->n; r++)
        if (op_public(g->node[r].op))
            apart &= names_add(&t, scratch, g, r);
    for (Ref r = 0; r < g->n; r++)
        if (!op_public(g->node[r].op))
            name_apart(&t, scratch, g, r, last);
    arena_free(scratch);
    return apart;
}

/* ---- pieces ---- */

bool name_char(char c)
{
    static const bool other[128] = {
        ['_'] = true, ['.'] = true, ['$'] = true, ['\''] = true, ['@'] = true,
        ['/'] = true, ['+'] = true, ['-'] = true,
    };
    unsigned u = (unsigned char)c;
    return (u | 32) - 'a' < 26u || u - '0' < 10u || (u < 128 && other[u]);
}

static void quoted(Str *s, const char *p)
{
    str_add(s, "\"");
    for (; *p; p++) {
        const char *q = p;                /* as it is, so far */
        while ((unsigned char)*q >= ' ' && *q != 127 && *q != '"'
               && *q != '\\')
            q++;
        str_put(s, p, (size_t)(q - p));
        if (!*(p = q))
            break;
        if (*p == '"' || *p == '\\')
            str_add(s, "\\%c", *p);
        else if (*p == '\n')
            str_add(s, "\\n");
        else
            str_add(s, "\\x%02x", *p);
    }
    str_add(s, "\"");
}

/* A name, or with `colon` a value, where a colon needs no quotes. */
static void word(Str *s, const char *p, bool colon)
{
    const char *q = p;
    while (name_char(*q) || (colon && *q == ':'))
        q++;
    if (*p && !*q)
        str_put(s, p, (size_t)(q - p));
    else
        quoted(s, p);
}

#define PUT(s, literal) str_put(s, literal, sizeof literal - 1)

static void node_name(Str *s, const Graph *g, Ref r)
{
    word(s, g->node[r].name, false);
}

static void axes_list(Str *s, const Mesh *m, Axes set)
{
    const char *comma = "";
    for (int i = 0; i < m->naxis; i++)
        if (set >> i & 1) {
            str_add(s, "%s%s", comma, m->axis[i].name);
            comma = ",";
        }
}

static void numbers(Str *s, const double *v, int64_t n)
{
    char text[33] = ",";
    for (int64_t i = 0; i < n; i++) {
        num_text(text + 1, v[i]);
        str_put(s, text + !i, strlen(text + !i));
    }
}

/* ---- a node ---- */

static void letters(Str *s, const Mesh *m, const Attr *a)
{
    for (int i = 0; i < a->nletter; i++) {
        const Letter *l = &a->letter[i];
        str_add(s, " %c=%lld", l->c, (long long)l->size);
        for (Split p = l->split; p; p >>= 4)
            str_add(s, "/%s", m->axis[(p & 15) - 1].name);
    }
}

#define PRINT_REAL(key, v)                                               \
    if (v != 0 || signbit(v))                                            \
        PUT(s, " " key "="), numbers(s, &v, 1);
#define PRINT_REALS(key, v)                                              \
    if (a->ndata)                                                        \
        PUT(s, " " key "="), numbers(s, v, a->ndata);
#define PRINT_WORD(key, v) if (v) PUT(s, " " key "="), word(s, v, true);
#define PRINT_TEXT(key, v) if (v) PUT(s, " " key "="), quoted(s, v);
#define PRINT_INT(key, v) if (v) PUT(s, " " key "="), str_int(s, v);
#define PRINT_DTYPE(key, v) if (v) str_add(s, " " key "=%s", dtype_name(v));
#define PRINT_AXES(key, v) if (v) PUT(s, " " key "="), axes_list(s, m, v);

static void attributes(Str *s, const Mesh *m, const Attr *a)
{
#define ATTR(key, field, kind) PRINT_##kind(#key, a->field)
#include "ir/attrs.def"
    letters(s, m, a);
}

/* Memory order, one digit a dimension: the leading 0 of 0231 is one too. */
static void layout(Str *s, const Node *n)
{
    if (n->layout)
        str_add(s, " layout=%0*d", n->type.ndim, n->layout);
}

static void labels(Str *s, const Graph *g, const Node *n)
{
    if (n->segment)
        str_add(s, " seg=%s", segment_names[n->segment]);
    if (n->loop)
        str_add(s, " loop="), axes_list(s, &g->mesh, n->loop);
    if (n->stage != EVERY)
        str_add(s, " stage=%d", n->stage);
    if (n->place == HOST)
        str_add(s, " place=%s", memory_names[n->place]);
    layout(s, n);
    if (n->kernel != -1)
        str_add(s, " kernel=%d", n->kernel);
    if (n->bucket != -1)
        str_add(s, " bucket=%d", n->bucket);
    if (n->stream)
        str_add(s, " stream=%d", n->stream);
    if (n->again != NONE)
        PUT(s, " again="), node_name(s, g, n->again);
    if (n->moment)
        str_add(s, " moment=%d", n->moment);
    if (n->scope && *n->scope)
        PUT(s, " scope="), word(s, n->scope, true);
    if (n->loc && *n->loc)
        PUT(s, " loc="), word(s, n->loc, true);
}

static void node_line(Str *s, const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    node_name(s, g, r);
    str_add(s, " = %s", ops[n->op].name);
    for (int i = 0; i < n->nin; i++) {
        str_put(s, ", " + !i, i ? 2 : 1);
        node_name(s, g, n->in[i]);
    }
    if (n->attr.sig)
        PUT(s, " "), quoted(s, n->attr.sig);
    attributes(s, &g->mesh, &n->attr);
    PUT(s, " : ");
    type_put(s, &g->mesh, &n->type);
    labels(s, g, n);
}

char *node_text(Arena *a, const Graph *g, Ref r)
{
    Str s = { .arena = a };
    node_line(&s, g, r);
    return s.p;
}

/* ---- the schedule ---- */

static void int_key(Str *s, const char *key, int64_t v, int64_t absent)
{
    if (v == absent)
        return;
    str_add(s, " %s=", key);
    str_int(s, v);
}

static void buf_line(Str *s, const Graph *g, Ref r)
{
    const Buf *b = &g->sched->buf[r];
    str_add(s, "buf ");
    node_name(s, g, r);
    str_add(s, " %s", space_names[b->space]);
    int_key(s, "at", b->at, -1);
    int_key(s, "size", b->size, 0);
    int_key(s, "stride", b->stride, 0);
    int_key(s, "slots", b->slots, 1);
    for (int k = 0; b->place && k < b->slots; k++)
        str_add(s, k ? ",%lld" : " places=%lld", (long long)b->place[k]);
    if (b->root != r)
        str_add(s, " root="), node_name(s, g, b->root);
    int_key(s, "off", b->off, 0);
    str_add(s, " born=%u dies=%u\n", b->born, b->dies);
}

static void launch_line(Str *s, const Graph *g, uint32_t i)
{
    const Launch *l = &g->sched->launch[i];
    str_add(s, "launch %u =", i);
    for (int k = 0; k < l->n; k++) {
        str_add(s, k ? ", " : " ");
        node_name(s, g, l->node[k]);
    }
    int_key(s, "scratch", l->scratch, 0);
    str_add(s, "\n");
}

static void step_line(Str *s, const Sched *c, uint32_t i)
{
    const Step *t = &c->step[i];
    str_add(s, "step %u.%d", t->launch, t->turn);
    int_key(s, "stream", t->stream, 0);
    for (uint32_t k = 0; k < t->nwait; k++)
        str_add(s, k ? ",%d" : " wait=%d", t->wait[k]);
    int_key(s, "event", t->event, -1);
    int_key(s, "at", t->scratch_at, 0);
    str_add(s, "\n");
}

static void flush(Str *s, FILE *f)
{
    fwrite(s->p, 1, s->n, f);
    s->n = 0;
}

static void sched_print(Str *s, const Graph *g, FILE *f)
{
    const Sched *c = g->sched;
    str_add(s, "sched");
    for (int i = 0; i < NSPACE; i++)
        int_key(s, space_names[i], c->bytes[i], 0);
    int_key(s, "lower", c->lower, 0);
    int_key(s, "peak", c->peak, 0);
    int_key(s, "host_lower", c->host_lower, 0);
    int_key(s, "host_peak", c->host_peak, 0);
    int_key(s, "events", c->nevent, 0);
    str_add(s, "\n");
    for (Ref r = 0; c->buf && r < g->n; r++, flush(s, f))
        if (c->buf[r].used)
            buf_line(s, g, r);
    for (uint32_t i = 0; i < c->nlaunch; i++, flush(s, f))
        launch_line(s, g, i);
    for (uint32_t i = 0; i < c->nstep; i++, flush(s, f))
        step_line(s, c, i);
}

/* ---- the graph ---- */

static void head(Str *s, const Graph *g)
{
    const Mesh *m = &g->mesh;
    for (int i = 0; i < m->naxis; i++) {
        const Axis *x = &m->axis[i];
        str_add(s, "%s%s=%d%s%s", i ? " " : "mesh ", x->name, x->size,
                x->kind == SPACE ? "" : ":", axis_kinds[x->kind]);
    }
    str_add(s, m->naxis ? "\nentry " : "entry ");
    word(s, g->entry, false);
    str_add(s, "\nphase %s\n", phase_names[g->phase]);
    for (int i = 0; i < g->nstage; i++)
        str_add(s, "%s%d%s", i ? " " : "roles ", g->role_of[i],
                i == g->nstage - 1 ? "\n" : "");
    for (uint32_t i = 0; i < g->nchunk; i++)
        str_add(s, "%s%s.%d.%d%s", i ? " " : "order ",
                segment_names[g->chunk[i].segment], g->chunk[i].stage,
                g->chunk[i].turn, i == g->nchunk - 1 ? "\n" : "");
    if (g->role >= 0)
        str_add(s, "role %d\n", g->role);
}

static void tail(Str *s, const Graph *g)
{
    for (uint32_t i = 0; i < g->nset; i++) {
        str_add(s, "set ");
        node_name(s, g, g->set[i].leaf);
        str_add(s, " = ");
        node_name(s, g, g->set[i].value);
        str_add(s, "\n");
    }
    for (uint32_t i = 0; i < g->nout; i++) {
        str_add(s, i ? " " : "return ");
        word(s, g->out[i].name, false);
        str_add(s, "=");
        node_name(s, g, g->out[i].ref);
    }
    if (g->nout)
        str_add(s, "\n");
}

void graph_print(const Graph *g, FILE *f)
{
    Arena *scratch = arena_new();
    Str s = { .arena = scratch };
    head(&s, g);
    flush(&s, f);
    for (Ref r = 0; r < g->n; r++, flush(&s, f)) {
        node_line(&s, g, r);
        PUT(&s, "\n");
    }
    tail(&s, g);
    flush(&s, f);
    if (g->sched)
        sched_print(&s, g, f);
    if (s.n)
        flush(&s, f);
    arena_free(scratch);
}
