/* lua_trace.c -- a case of a case file becomes a graph.
 *
 * The model file and the case file run in one sandbox, so that the options of
 * the case reach the part as the tables that they are.  What the case wants
 * beside the part's own results (the squared distance to a target, norms of
 * gradients, of parameters, leaves after the step) is appended to the graph
 * as further outs: every number that a case expects is read off one out. */
#include "compiler/case.h"
#include "compiler/lua_front.h"
#include <math.h>

typedef struct Tracing {
    Front *f;
    Case *c;
    const CaseFile *file;
    Graph *made, *init;
} Tracing;

/* ---- words ---- */

/* "a, b, c" of sorted names. */
static const char *listing(Arena *a, const char *const *name, int n)
{
    Str s = { .arena = a };
    for (int i = 0; i < n; i++)
        str_add(&s, "%s%s", i ? ", " : "", name[i]);
    return s.p ? s.p : "none";
}

/* ---- the call ---- */

/* Push parts[c->part] of the model at i. */
static void part_push(lua_State *L, const Tracing *t, int i)
{
    const Case *c = t->c;
    if (lua_getfield(L, i, "parts") != LUA_TTABLE)
        fail_at(L, c->loc, "case \"%s\": %s has no table \"parts\"", c->name,
                c->model);
    if (lua_getfield(L, -1, c->part) != LUA_TFUNCTION) {
        int n;
        const char **have = names_sorted(L, -2, "parts", &n);
        const char *near = near_hint(c->part, have, n);
        fail_at(L, c->loc, "case \"%s\": %s has no part \"%s\"%s%s", c->name,
                c->model, c->part, *near ? near : "; there are: ",
                *near ? "" : listing(t->f->a, have, n));
    }
    lua_remove(L, -2);
}

/* Push the table `key` of the case at i, or an empty one. */
static void plain_push(lua_State *L, int i, const char *key)
{
    if (lua_getfield(L, i, key) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_newtable(L);
    }
}

/* ---- what a part asks for ---- */

static const char asked_inputs[] = "case.inputs", asked_call[] = "case.call";

/* __index: upvalues are a table behind, a table of the keys that were asked
 * for, and a case that keeps them, too, or NULL. */
static int asked_index(lua_State *L)
{
    Case *c = lua_touserdata(L, lua_upvalueindex(3));
    lua_settop(L, 2);
    if (c && lua_type(L, 2) == LUA_TSTRING) {
        GROW(front_of(L)->a, c->asked, c->nasked, c->askedcap);
        c->asked[c->nasked++] = intern(front_of(L)->a, lua_tostring(L, 2));
    }
    lua_pushvalue(L, 2);
    lua_pushboolean(L, true);
    lua_rawset(L, lua_upvalueindex(2));
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
}

/* Whoever walks over all keys reads them all: upvalues as above. */
static int asked_pairs(lua_State *L)
{
    for (lua_pushnil(L); lua_next(L, lua_upvalueindex(1)); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushboolean(L, true);
        lua_rawset(L, lua_upvalueindex(2));
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

/* The table on top gets a metatable that keeps what is asked for in the
 * registry, under `key`: of keys that are there, too, where the table is an
 * empty one before that `behind` (an index). */
static void asked_keep(lua_State *L, int behind, const char *key, Case *c)
{
    behind = lua_absindex(L, behind);
    lua_newtable(L);                      /* table, asked */
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, key);
    lua_createtable(L, 0, 3);             /* table, asked, meta */
    for (int k = 0; k < 2; k++) {
        lua_pushvalue(L, behind), lua_pushvalue(L, -3);
        lua_pushlightuserdata(L, c);
        lua_pushcclosure(L, k ? asked_pairs : asked_index, 3);
        lua_setfield(L, -2, k ? "__pairs" : "__index");
    }
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -3);
    lua_pop(L, 1);
}

static const char **asked_names(lua_State *L, const char *key, int *n)
{
    lua_getfield(L, LUA_REGISTRYINDEX, key);
    const char **name = names_sorted(L, -1, "call", n);
    lua_pop(L, 1);
    return name;
}

static bool is_among(const char *s, const char *const *name, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], s) == 0)
            return true;
    return false;
}

/* `word`, which is read by nothing, is misspelt if it is near a name that was
 * asked for and is not given; else it may be needless under these options. */
static void unread_tell(lua_State *L, const Tracing *t, const char *what,
                        const char *word, const char *asked,
                        const char *const *given, int ngiven)
{
    int n, open = 0;
    const char **name = asked_names(L, asked, &n);
    for (int i = 0; i < n; i++)
        if (!is_among(name[i], given, ngiven))
            name[open++] = name[i];
    const char *near = near_name(word, name, open);
    const char *loc = case_place(t->f->a, t->file->path, t->c->name, word);
    if (near)
        fail_at(L, loc, "case \"%s\": part \"%s\" reads no %s \"%s\"; did you "
                "mean \"%s\"?", t->c->name, t->c->part, what, word, near);
    fprintf(stderr, "%s: note: case \"%s\": nothing reads %s \"%s\"\n",
            t->c->loc, t->c->name, what, word);
}

/* ---- the call itself ---- */

static void inputs_push(lua_State *L, const Case *c)
{
    lua_newtable(L);
    for (uint32_t i = 0; i < c->ninput; i++) {
        leaf_input_push(L, c->input[i].name, c->input[i].type);
        lua_setfield(L, -2, c->input[i].name);
    }
}

/* Does no node read input i, nor its shape? */
static bool is_unread(const Graph *g, const uint32_t *uses, const char *name)
{
    Ref r = graph_leaf(g, name);
    for (Ref k = r; !uses[r] && k < g->n; k++)
        for (int m = 0; m < g->node[k].nin; m++)
            if (g->node[k].in[m] == r)
                return false;
    return !uses[r];
}

static void inputs_told(lua_State *L, const Tracing *t)
{
    const Case *c = t->c;
    const Graph *g = t->f->g;
    uint32_t *uses = graph_uses(g, t->f->a);
    const char **given = alloc(t->f->a, (c->ninput + 1) * sizeof *given);
    for (uint32_t i = 0; i < c->ninput; i++)
        given[i] = c->input[i].name;
    for (uint32_t i = 0; i < c->ninput; i++)
        if (is_unread(g, uses, given[i]))
            unread_tell(L, t, "input", given[i], asked_inputs, given,
                        (int)c->ninput);
}

static void call_told(lua_State *L, const Tracing *t)
{
    int n, all;
    const char **asked = asked_names(L, asked_call, &all);
    plain_push(L, 3, "call");
    const char **given = names_sorted(L, -1, "call", &n);
    lua_pop(L, 1);
    for (int i = 0; i < n; i++)
        if (!is_among(given[i], asked, all))
            unread_tell(L, t, "argument of the call", given[i], asked_call,
                        given, n);
}

/* Noise that a part draws by itself is no original's, but the same in each
 * run: cases of one's own may do without. */
static void draws_told(const Tracing *t)
{
    const Graph *g = t->f->g;
    const uint32_t *uses = graph_uses(g, t->f->a);
    Ref r = 0;
    for (; r < g->n; r++)
        if (g->node[r].op == OP_random && uses[r] &&
            strcmp(g->node[r].attr.dist, "normal") == 0)
            break;
    if (r < g->n)
        fprintf(stderr, "%s: note: case \"%s\": part \"%s\" draws noise of "
                "its own; draws = \"randn\" gives the original's\n",
                t->c->loc, t->c->name, t->c->part);
}

/* Model at 2, case at 3: call the part, its results become outs. */
static void part_call(lua_State *L, Tracing *t)
{
    Front *f = t->f;
    part_push(L, t, 2);
    plain_push(L, 3, "options");
    inputs_push(L, t->c);
    asked_keep(L, -1, asked_inputs, t->c);
    lua_newtable(L);
    plain_push(L, 3, "call");
    lua_insert(L, -2);
    asked_keep(L, -2, asked_call, NULL);
    lua_remove(L, -2);
    f->draws = t->c->draws, f->ndraw = 0;
    lua_call(L, 3, 1);
    t->c->ndraw = f->ndraw, f->draws = NULL;
    if (!lua_istable(L, -1))
        fail_at(L, t->c->loc, "case \"%s\": part \"%s\" returns %s; a table of "
                "values is wanted", t->c->name, t->c->part,
                luaL_typename(L, -1));
    outs_read(L, t->c->part);
    draws_told(t);
    inputs_told(L, t);
    call_told(L, t);
}

/* ---- what is appended ---- */

static Ref node1(lua_State *L, Op op, const char *sig, Ref a)
{
    Attr attr = { .sig = sig };
    return node_new(L, op, &attr, &a, 1);
}

static Ref node2(lua_State *L, Op op, Ref a, Ref b)
{
    return node_new(L, op, NULL, (Ref[]){ a, b }, 2);
}

/* f32 [] of x: the sum of its squares. */
static Ref square_sum(lua_State *L, Ref x)
{
    Front *f = front_of(L);
    int n = f->g->node[x].type.ndim;
    Ref y = node2(L, OP_mul, x, x);
    return n ? node1(L, OP_move, fmt(f->g->arena, "%.*s->", n, "abcdefgh"), y)
             : y;
}

/* Sum of n scalars, as many at once as a row takes. */
static Ref total(lua_State *L, Ref *x, uint32_t n)
{
    while (n > 1) {
        uint32_t m = 0;
        for (uint32_t i = 0; i < n; i += NIN)
            x[m++] = node_new(L, OP_total, NULL, x + i,
                              n - i < NIN ? (int)(n - i) : NIN);
        n = m;
    }
    return x[0];
}

/* The root of the sum of squares of n values. */
static Ref norm(lua_State *L, const Ref *x, uint32_t n)
{
    Front *f = front_of(L);
    Ref *square = alloc(f->a, (n + 1) * sizeof *square);
    for (uint32_t i = 0; i < n; i++)
        square[i] = square_sum(L, x[i]);
    return node1(L, OP_sqrt, NULL, total(L, square, n));
}

static Ref out_find(const Graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->nout; i++)
        if (strcmp(g->out[i].name, name) == 0)
            return g->out[i].ref;
    return NONE;
}

static Ref out_check(lua_State *L, const Tracing *t, const char *name)
{
    const Graph *g = t->f->g;
    Ref r = out_find(g, name);
    if (r != NONE)
        return r;
    static const char *const word[] = { "params", "trainable", "mse", "gradL2",
        "grads", "input_grads", "norm", "leaves", "steps" };
    const char **have = alloc(t->f->a, (g->nout + COUNT(word) + 1)
                                       * sizeof *have);
    for (uint32_t i = 0; i < g->nout; i++)
        have[i] = g->out[i].name;
    memcpy(have + g->nout, word, sizeof word);
    const char *near = near_hint(name, have,
                                    (int)g->nout + COUNT(word));
    fail_at(L, t->c->loc, "case \"%s\": part \"%s\" gives no \"%s\"%s%s",
            t->c->name, t->c->part, name, *near ? near : "; it gives: ",
            *near ? "" : listing(t->f->a, have, (int)g->nout));
}

static const Node *leaf_check(lua_State *L, const Tracing *t, Op op,
                              const char *name)
{
    const Graph *g = t->f->g;
    Ref r = graph_leaf(g, name);
    if (r != NONE && (op == OP_COUNT || g->node[r].op == op))
        return &g->node[r];
    const char **have = alloc(t->f->a, (g->n + 1) * sizeof *have);
    int n = 0;
    for (Ref k = 0; k < g->n; k++)
        if (op == OP_COUNT ? op_public(g->node[k].op) : g->node[k].op == op)
            have[n++] = g->node[k].name;
    fail_at(L, t->c->loc, "case \"%s\": part \"%s\" has no %s \"%s\"%s",
            t->c->name, t->c->part, op == OP_COUNT ? "leaf" : ops[op].name,
            name, near_hint(name, have, n));
}

/* mean((out - target)^2) */
static Ref mse_new(lua_State *L, const Tracing *t)
{
    Front *f = t->f;
    Ref out = out_check(L, t, "out");
    Type type = f->g->node[out].type, scalar = { .dtype = F32 };
    Ref target = graph_leaf(f->g, "target");
    if (target == NONE) {
        leaf_input_push(L, "target", type);
        target = value_check(L, -1, "target");
        lua_pop(L, 1);
    }
    Ref sum = square_sum(L, node2(L, OP_sub, out, target));
    Attr attr = { .value = 1 / (double)type_volume(&type) };
    return node2(L, OP_mul, sum, node_typed(L, OP_const, &attr, scalar, NULL));
}

/* What gradients are of: the part's loss, else the distance to the target. */
static Ref loss_of(lua_State *L, const Tracing *t)
{
    Graph *g = t->f->g;
    Ref loss = out_find(g, "loss");
    if (loss == NONE)
        loss = out_find(g, "mse");
    if (loss == NONE && out_find(g, "out") == NONE)
        fail_at(L, t->c->loc, "case \"%s\": gradients are of \"loss\", or of "
                "\"mse\", the distance of \"out\" to a target; part \"%s\" gives "
                "neither loss nor out", t->c->name, t->c->part);
    if (loss == NONE)
        graph_out(g, "mse", loss = mse_new(L, t));
    return loss;
}

static Ref grad_of(lua_State *L, const Tracing *t, Ref wrt)
{
    return node2(L, OP_grad, loss_of(L, t), wrt);
}

static Ref grads_norm(lua_State *L, Tracing *t)
{
    Front *f = t->f;
    uint32_t n = f->nparam;
    if (!n)
        fail_at(L, t->c->loc, "case \"%s\": gradL2: part \"%s\" has no "
                "trainable param", t->c->name, t->c->part);
    Ref *grad = alloc(f->a, n * sizeof *grad);
    for (uint32_t i = 0; i < n; i++)
        grad[i] = grad_of(L, t, f->param[i]);
    return norm(L, grad, n);
}

/* A leaf after the step. */
static Ref leaf_after(const Graph *g, Ref leaf)
{
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == leaf)
            return g->set[i].value;
    return leaf;
}

/* The norm of all trainable params after the step, or of all states below a
 * prefix. */
static Ref leaves_norm(lua_State *L, const Tracing *t, const char *prefix)
{
    Front *f = t->f;
    bool params = strcmp(prefix, "params") == 0;
    Ref *x = alloc(f->a, (f->g->n + 1) * sizeof *x);
    size_t size = strlen(prefix);
    uint32_t n = 0, end = f->g->n;
    for (Ref r = 0; r < end; r++) {
        const Node *k = &f->g->node[r];
        if (params ? k->op == OP_param && !k->attr.frozen
            : k->op == OP_state && strncmp(k->name, prefix, size) == 0 &&
              k->name[size] == '.')
            x[n++] = leaf_after(f->g, r);
    }
    if (!n)
        fail_at(L, t->c->loc, "case \"%s\": norm: no state below \"%s\"",
                t->c->name, prefix);
    return norm(L, x, n);
}

static const char *behind(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

/* The value of out `of`, which the part does not give itself. */
static Ref want_new(lua_State *L, Tracing *t, const char *of)
{
    Front *f = t->f;
    const char *name;
    if (strcmp(of, "mse") == 0)
        return mse_new(L, t);
    if (strcmp(of, "gradL2") == 0)
        return grads_norm(L, t);
    if ((name = behind(of, "norm.")))
        return leaves_norm(L, t, name);
    if ((name = behind(of, "leaves.")))
        return leaf_after(f->g, (Ref)(leaf_check(L, t, OP_COUNT, name)
                                      - f->g->node));
    bool input = (name = behind(of, "input_grads."));
    if (!input && !(name = behind(of, "grads.")))
        return out_check(L, t, of);
    const Node *n = leaf_check(L, t, input ? OP_input : OP_param, name);
    Ref g = grad_of(L, t, (Ref)(n - f->g->node));
    return norm(L, &g, 1);
}

/* There are as many elements as a case looks at. */
static void element_check(lua_State *L, const Tracing *t, const Want *w)
{
    const Type *type = &t->f->g->node[out_find(t->f->g, w->of)].type;
    if (w->index >= type_volume(type))
        fail_at(L, case_place(t->f->a, t->file->path, t->c->name, "first"),
                "case \"%s\": %s is expected, and \"%s\" is %s", t->c->name,
                w->text, w->of, type_show(L, type));
}

static void wants_append(lua_State *L, Tracing *t)
{
    Front *f = t->f;
    const Case *c = t->c;
    f->line = c->loc;
    if (c->mse)
        graph_out(f->g, "mse", mse_new(L, t));
    for (uint32_t i = 0; i < c->nwant; i++) {
        const Want *w = &c->want[i];
        if (w->kind != WANT_COUNT && out_find(f->g, w->of) == NONE) {
            Ref made = want_new(L, t, w->of);
            if (out_find(f->g, w->of) == NONE)
                graph_out(f->g, w->of, made);
        }
        if (w->kind == WANT_ELEMENT)
            element_check(L, t, w);
        else if (w->kind == WANT_LOSS || w->kind == WANT_NORM) {
            const Type *type = &f->g->node[out_find(f->g, w->of)].type;
            if (type_volume(type) != 1)
                fail_at(L, c->loc, "case \"%s\": \"%s\" is %s; one number is "
                        "expected", c->name, w->of, type_show(L, type));
        }
    }
    for (uint32_t i = 0; i < c->nleaf; i++)
        leaf_check(L, t, OP_COUNT, c->leaf[i].name);
    for (uint32_t i = 0; i < c->nscalar; i++)
        leaf_check(L, t, OP_scalar, c->scalar[i].name);
    f->line = NULL;
}

/* Gradients of params are dumped where a pattern begins with "grad". */
static void grads_tap(lua_State *L, Tracing *t)
{
    Front *f = t->f;
    for (uint32_t i = 0, n = f->nparam; i < n; i++) {
        const char *name = fmt(f->a, "grad.%s", f->g->node[f->param[i]].name);
        if (tap_wanted(f->dump, name)) {
            graph_out(f->g, fmt(f->a, "dump.%s", name),
                      grad_of(L, t, f->param[i]));
            f->ndumped++;
        }
    }
}

/* What --dump names is wanted whole, at the last step. */
static void dumps_append(lua_State *L, Tracing *t)
{
    Front *f = t->f;
    Case *c = t->c;
    if (!f->dump)
        return;
    taps_append(L);
    if (strstr(f->dump, "grad"))
        grads_tap(L, t);
    taps_check(L, c->loc);
    for (uint32_t i = 0; i < f->g->nout; i++)
        if (strncmp(f->g->out[i].name, "dump.", 5) == 0) {
            GROW(f->a, c->want, c->nwant, c->wantcap);
            c->want[c->nwant++] = (Want){ .kind = WANT_DUMP,
                .of = f->g->out[i].name, .text = f->g->out[i].name,
                .step = c->steps - 1 };
        }
}

/* stack: Tracing, model's chunk, chunk of the cases */
static int trace(lua_State *L)
{
    Tracing *t = lua_touserdata(L, 1);
    lua_pushvalue(L, 2);
    lua_call(L, 0, 1);
    lua_replace(L, 2);
    if (!lua_istable(L, 2))
        fail_at(L, t->c->model, "the file returns %s; a table with \"parts\" "
                "is wanted", luaL_typename(L, 2));
    lua_call(L, 0, 1);
    lua_geti(L, 3, t->c->index);
    lua_replace(L, 3);
    entry_begin(L, t->c->part);
    part_call(L, t);
    wants_append(L, t);
    dumps_append(L, t);
    t->made = t->f->g;
    entry_begin(L, "init");
    t->f->filled = true;
    leaf_init_all(L);
    t->init = t->f->g;
    return 0;
}

Graph *case_trace(Case *c, const CaseFile *file, const ModelOptions *o,
                  Graph **init, Arena *a)
{
    lua_State *L = model_state(c->model, o, a);
    Tracing t = { front_of(L), c, file, NULL, NULL };
    lua_pushcfunction(L, trace);
    lua_pushlightuserdata(L, &t);
    sandbox_load(L, c->model, c->model, false);
    sandbox_load(L, file->path, file->path, false);
    sandbox_call(L, 3, 0);
    lua_close(L);
    *init = t.init;
    return t.made;
}
