/* text_parse.c -- the text of a graph read back: recursive descent by line.
 *
 * A line whose second word is "=" is a node; else its first word says what it
 * is.  Operands stand earlier, as in the graph; only `again` may point ahead,
 * so it is resolved at the end.  A node without a type gets the one that its
 * row derives, which spares those who write graphs by hand. */
#include "ir/text_parse.h"
#include <ctype.h>
#include <limits.h>

/* ---- axes and types ---- */

static char *axis_name(Parser *p)
{
    const char *start = p->s;
    while (isalnum((unsigned char)*p->s) || (*p->s && strchr("_'.-", *p->s)))
        p->s++;
    if (p->s == start)
        token_expected(p, "the name of a mesh axis");
    return token_copy(p, start, (size_t)(p->s - start));
}

static int axis(Parser *p)
{
    const char *name = axis_name(p);
    int a = mesh_find(&p->g->mesh, name);
    if (a < 0)
        token_err(p, "unknown mesh axis \"%s\"", name);
    return a;
}

static Axes axes(Parser *p)
{
    Axes set = 0;
    do
        set |= (Axes)(1u << axis(p));
    while (token_eat(p, ','));
    return set;
}

static Split split(Parser *p)
{
    Split s = 0;
    while (token_eat(p, '/')) {
        int a = axis(p);
        if (split_axes(s) >> a & 1)
            token_err(p, "mesh axis \"%s\" splits one dimension twice",
                p->g->mesh.axis[a].name);
        s = split_push(s, a);
    }
    return s;
}

static void dimension(Parser *p, Type *t)
{
    int d = t->ndim;
    if (d == NDIM)
        token_err(p, "a type has at most %d dimensions", NDIM);
    t->ndim++;
    t->dim[d] = token_int(p, 1, INT64_MAX);
    t->split[d] = split(p);
    if (!token_eat(p, ':'))
        return;
    t->lo[d] = (uint8_t)token_int(p, 0, 255);
    token_need(p, ':', "\":\" and the rows above");
    t->hi[d] = (uint8_t)token_int(p, 0, 255);
    if (token_eat(p, ':'))
        t->step[d] = (int32_t)token_int(p, 1, INT32_MAX);
}

static void pending(Parser *p, Type *t)
{
    const char *mark;
    while (!token_end(p) && (mark = strchr(fold_marks, *p->s)) != NULL) {
        Fold fold = (Fold)(mark - fold_marks);
        if (t->partial && t->fold != fold)
            token_err(p, "one type waits for two kinds of fold");
        p->s++;
        t->fold = fold;
        t->partial |= (Axes)(1u << axis(p));
    }
}

static DType dtype(Parser *p)
{
    const char *names[NDTYPE];
    for (DType d = 0; d < NDTYPE; d++)
        names[d] = dtype_name(d);
    return (DType)token_choice(p, "dtype", names, NDTYPE);
}

static Type type(Parser *p)
{
    Type t = { .dtype = dtype(p) };
    int64_t volume = 1;
    token_need(p, '[', "\"[\" and the sizes");
    while (!token_eat(p, ']')) {
        if (t.ndim)
            token_need(p, ',', "\",\" or \"]\"");
        dimension(p, &t);
        if (__builtin_mul_overflow(volume, t.dim[t.ndim - 1], &volume)
            || volume > INT64_MAX / 64)
            token_err(p, "a tensor of this size is out of reach");
    }
    pending(p, &t);
    return t;
}

/* ---- attributes and labels ---- */

typedef struct Line {                     /* of a node, as far as it is read */
    Op op;
    Attr attr;
    Node label;                           /* labels only */
    const char *again;
    bool typed;
    Type type;
    uint32_t nin, incap, lettercap;
    Ref *in;
} Line;

static const double *reals(Parser *p, int64_t *n)
{
    double *v = NULL;
    uint32_t cap = 0;
    *n = 0;
    do {
        GROW(p->arena, v, *n, cap);
        v[(*n)++] = token_real(p);
    } while (token_eat(p, ','));
    return v;
}

#define INT_MAX_OF(field) (sizeof(field) == 8 ? INT64_MAX : INT_MAX)
#define PARSE_REAL(field) field = token_real(p);
#define PARSE_REALS(field) field = reals(p, &a->ndata);
#define PARSE_WORD(field) field = token_value(p, "a word");
#define PARSE_TEXT(field) field = token_value(p, "a quoted text");
#define PARSE_INT(field)                                                 \
    field = token_int(p, -INT_MAX_OF(field) - 1, INT_MAX_OF(field));
#define PARSE_DTYPE(field) field = dtype(p);
#define PARSE_AXES(field) field = axes(p);

static bool attribute(Parser *p, const char *key, Attr *a)
{
#define ATTR(key_, field, kind)                                          \
    if (strcmp(key, #key_) == 0) {                                       \
        PARSE_##kind(a->field)                                           \
        return true;                                                     \
    }
#include "ir/attrs.def"
    return false;
}

static void letter(Parser *p, char c, Line *l)
{
    GROW(p->arena, l->attr.letter, l->attr.nletter, l->lettercap);
    int64_t size = token_int(p, 1, INT64_MAX);
    l->attr.letter[l->attr.nletter++] = (Letter){ c, size, split(p) };
}

static bool label(Parser *p, const char *key, Line *l)
{
    Node *n = &l->label;
    if (strcmp(key, "seg") == 0)
        n->segment = (Segment)(1 + token_choice(p, "segment", segment_names + 1,
                                          UPDATE));
    else if (strcmp(key, "loop") == 0)
        n->loop = axes(p);
    else if (strcmp(key, "stage") == 0)
        n->stage = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "place") == 0)
        n->place = (MemoryClass)token_choice(p, "memory", memory_names,
                                             HOST + 1);
    else if (strcmp(key, "layout") == 0)
        n->layout = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "kernel") == 0)
        n->kernel = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "bucket") == 0)
        n->bucket = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "stream") == 0)
        n->stream = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "moment") == 0)
        n->moment = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(key, "again") == 0)
        l->again = token_word(p, "the name of a node");
    else if (strcmp(key, "scope") == 0)
        n->scope = token_value(p, "a scope");
    else if (strcmp(key, "loc") == 0)
        n->loc = token_value(p, "file:line");
    else
        return false;
    return true;
}

/* ---- nodes ---- */

static void operands(Parser *p, Line *l)
{
    int want = ops[l->op].arity;
    bool none = token_end(p) || *p->s == ':' || token_key(p);
    if (!none && want != 0)
        do {
            GROW(p->arena, l->in, l->nin, l->incap);
            l->in[l->nin++] = token_node(p);
        } while (token_eat(p, ','));
    if (want >= 0 && l->nin != (uint32_t)want)
        token_err(p, "%s takes %d operands, found %u", ops[l->op].name, want,
            l->nin);
}

/* key=value of any kind, or ": type". */
static void property(Parser *p, Line *l)
{
    if (token_eat(p, ':')) {
        token_end(p);
        l->type = type(p);
        l->typed = true;
        return;
    }
    if (token_end(p) || !token_key(p))
        token_expected(p, "key=value or \": type\"");
    const char *key = token_next_key(p);
    if (attribute(p, key, &l->attr) || label(p, key, l))
        return;
    if (key[1] || !isalpha((unsigned char)*key))
        token_err(p, "unknown key \"%s\"", key);
    letter(p, *key, l);
}

static Type derive(Parser *p, const Line *l)
{
    const char *loc = token_loc(p);
    if (ops[l->op].family == FAMILY_collective)
        return coll_type(p->g, l->op, &l->attr, l->in[0], loc);
    Sig s = sig_bind(p->g, l->op, &l->attr, l->in, (int)l->nin, loc);
    return sig_type(&s, p->g, l->op, &l->attr, l->in, loc);
}

/* The type as given, or as its row derives it: where both are, one. */
static Type type_of(Parser *p, const Line *l)
{
    bool follows = !ops[l->op].leaf && l->op != OP_reshard
        && l->op != OP_recv;
    if (!follows && !l->typed)
        token_err(p, "%s: its type does not follow; write \": f32[...]\"",
                  ops[l->op].name);
    if (!follows)
        return l->type;
    Type t = derive(p, l);
    if (l->typed && !type_equal(&t, &l->type))
        token_err(p, "%s: its operands give %s, the text says %s",
                  ops[l->op].name, type_text(p->arena, &p->g->mesh, &t),
                  type_text(p->arena, &p->g->mesh, &l->type));
    return t;
}

static void remember(Parser *p, Ref r, const char *name)
{
    GROW(p->arena, p->again, p->nagain, p->againcap);
    p->again[p->nagain++] = (Later){ r, name, p->line };
}

static void node_add(Parser *p, const char *name, Line *l)
{
    Graph *g = p->g;
    if (g->sched)
        token_err(p, "nodes come before the schedule");
    if (names_find(&p->names, g, name) != NONE)
        token_err(p, "the name \"%s\" is taken; names are unique", name);
    Type t = type_of(p, l);
    Ref r = emit_typed(g, l->op, &l->attr, t, l->in, (int)l->nin, name,
                       l->label.loc);
    Node *n = &g->node[r], *from = &l->label;
    n->scope = from->scope;
    n->segment = from->segment, n->loop = from->loop, n->stage = from->stage;
    n->place = from->place;
    n->layout = from->layout, n->kernel = from->kernel;
    n->bucket = from->bucket, n->stream = from->stream;
    n->moment = from->moment;
    n->again = NONE;
    names_add(&p->names, p->arena, g, r);
    if (l->again)
        remember(p, r, l->again);
}

/* From after "name =". */
static void node(Parser *p, const char *name)
{
    Line l = { .label = { .stage = EVERY, .kernel = -1, .bucket = -1,
                          .scope = "", .loc = "" } };
    const char *op = token_word(p, "an op");
    l.op = op_find(op);
    if (l.op == OP_COUNT)
        token_err(p, "unknown op \"%s\"; see \"dpc ops\"", op);
    operands(p, &l);
    if (!token_end(p) && *p->s == '"')
        l.attr.sig = token_quoted(p);
    while (!token_end(p))
        property(p, &l);
    node_add(p, name, &l);
}

/* ---- other lines ---- */

static void mesh_line(Parser *p)
{
    Mesh *m = &p->g->mesh;
    if (p->g->n || m->naxis)
        token_err(p, "the mesh comes first, and once");
    while (!token_end(p)) {
        if (m->naxis == NAXIS)
            token_err(p, "a mesh has at most %d axes", NAXIS);
        Axis x = { .name = axis_name(p), .kind = SPACE };
        if (mesh_find(m, x.name) >= 0)
            token_err(p, "mesh axis \"%s\" stands twice", x.name);
        token_need(p, '=', "\"=\" and the size of the axis");
        x.size = (int)token_int(p, 1, INT_MAX);
        if (token_eat(p, ':'))
            x.kind = (AxisKind)(1 + token_choice(p, "kind of axis",
                                                 axis_kinds + 1, TIME));
        m->axis[m->naxis++] = x;
    }
}

/* Where the text breaks what V5 asks of a set (verify.c), that is the text's
 * fault. */
static void set_line(Parser *p)
{
    Graph *g = p->g;
    Ref leaf = token_node(p);
    const Node *n = &g->node[leaf];
    if (n->op != OP_param && n->op != OP_state)
        token_err(p, "set: \"%s\" is %s; a param or a state is wanted",
                  n->name, ops[n->op].name);
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == leaf)
            token_err(p, "set: \"%s\" is set already, to \"%s\"", n->name,
                      g->node[g->set[i].value].name);
    token_need(p, '=', "\"=\" and the new value");
    Ref value = token_node(p);
    if (!type_equal(&n->type, &g->node[value].type))
        token_err(p, "set: \"%s\" is %s, \"%s\" is %s", n->name,
                  type_text(p->arena, &g->mesh, &n->type),
                  g->node[value].name,
                  type_text(p->arena, &g->mesh, &g->node[value].type));
    graph_set(g, leaf, value);
}

static void return_line(Parser *p)
{
    do {
        const char *name = token_word(p, "name=node");
        token_need(p, '=', "\"=\" and the value's node");
        graph_out(p->g, name, token_node(p));
    } while (!token_end(p));
}

static void roles_line(Parser *p)
{
    uint32_t cap = 0;
    do {
        GROW(p->arena, p->g->role_of, p->g->nstage, cap);
        p->g->role_of[p->g->nstage++] = (int)token_int(p, 0, INT_MAX);
    } while (!token_end(p));
}

/* "forward.2.7": segment, stage, turn. */
static void order_line(Parser *p)
{
    Graph *g = p->g;
    uint32_t cap = 0;
    do {
        int seg = FORWARD;
        const char *word = token_word(p, "segment.stage.turn");
        while (seg <= WEIGHT && (strncmp(word, segment_names[seg],
                                         strlen(segment_names[seg])) != 0))
            seg++;
        Chunk c = { (Segment)seg, -1, -1 };
        if (seg > WEIGHT || sscanf(word + strlen(segment_names[seg]),
                                   ".%d.%d", &c.stage, &c.turn) != 2
            || c.stage < 0 || c.stage >= g->nstage || c.turn < 0)
            token_err(p, "order: \"%s\" is no segment.stage.turn", word);
        GROW(p->arena, g->chunk, g->nchunk, cap);
        g->chunk[g->nchunk++] = c;
    } while (!token_end(p));
}

/* ---- the whole ---- */

static void line(Parser *p)
{
    static const struct Kind {
        const char *word;
        void (*read)(Parser *);
    } kinds[] = {
        { "mesh", mesh_line }, { "set", set_line }, { "return", return_line },
        { "sched", parse_sched }, { "buf", parse_buf },
        { "launch", parse_launch }, { "step", parse_step },
        { "roles", roles_line }, { "order", order_line },
    };
    const char *first = token_word(p, "a name");
    if (token_eat(p, '=')) {
        node(p, first);
        return;
    }
    for (int i = 0; i < COUNT(kinds); i++)
        if (strcmp(first, kinds[i].word) == 0) {
            kinds[i].read(p);
            return;
        }
    if (strcmp(first, "entry") == 0)
        p->g->entry = token_word(p, "the name of the entry");
    else if (strcmp(first, "role") == 0)
        p->g->role = (int)token_int(p, 0, INT_MAX);
    else if (strcmp(first, "phase") == 0)
        p->g->phase = (Phase)token_choice(p, "phase", phase_names, PHASE_ANY);
    else
        token_expected(p, fmt(p->arena, "\"=\" after \"%s\"", first));
}

static void resolve_again(Parser *p)
{
    for (uint32_t i = 0; i < p->nagain; i++) {
        const Later *l = &p->again[i];
        Ref r = names_find(&p->names, p->g, l->name);
        p->line = l->line;
        if (r == NONE)
            token_err(p, "again: unknown node \"%s\"", l->name);
        p->g->node[l->node].again = r;
    }
}

Graph *graph_parse(Arena *a, const char *text, const char *file)
{
    op_init();
    Parser p = { .arena = a, .g = graph_new(a, NULL), .s = text,
                 .file = file, .line = 1 };
    for (; *p.s; p.line++) {
        if (!token_end(&p))
            line(&p);
        if (!token_end(&p))
            token_expected(&p, "the end of the line");
        p.s += *p.s == '\n';
    }
    resolve_again(&p);
    return p.g;
}
