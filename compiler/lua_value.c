/* lua_value.c -- values of a model: each op row of ops.def is a method.
 *
 * A value is a node of the graph being traced.  Operands come first, then the
 * signature of rows that carry their own, then a table of keys and letters:
 *     x:dot(w, "bnk,km->bnm")   x:move("b c (h w) -> b h w c", {h=28})
 * Numbers become constants.  Pointwise rows broadcast as NumPy does, by a
 * move that repeats, so that nothing is implicit in the graph. */
#include "compiler/lua_front.h"
#include <ctype.h>

#define VALUE "dpc.value"
enum { NODES_MAX = 2000000 };
static const double ELEMENTS_MAX = 1099511627776.0;       /* 2^40 */

typedef struct Value { Ref ref; const Graph *g; } Value;

Graph *front_graph(lua_State *L, const char *what)
{
    Front *f = front_of(L);
    if (!f->g)
        fail(L, "%s: only inside of an entry", what);
    return f->g;
}

void value_push(lua_State *L, Ref r)
{
    Value *v = lua_newuserdatauv(L, sizeof *v, 0);
    *v = (Value){ r, front_of(L)->g };
    luaL_setmetatable(L, VALUE);
}

bool value_is(lua_State *L, int i)
{
    return luaL_testudata(L, i, VALUE) != NULL;
}

Ref value_check(lua_State *L, int i, const char *what)
{
    Graph *g = front_graph(L, what);
    Value *v = luaL_testudata(L, i, VALUE);
    if (!v)
        fail(L, "%s: a value is wanted, this is %s", what,
             lua_isnone(L, i) ? "nothing" : luaL_typename(L, i));
    if (v->g != g)
        fail(L, "%s: a value of entry \"%s\" cannot be used in \"%s\"", what,
             v->g->entry, g->entry);
    return v->ref;
}

const char *type_show(lua_State *L, const Type *t)
{
    Arena *a = front_of(L)->a;
    char *s = fmt(a, "%s[", dtype_name(t->dtype));
    for (int d = 0; d < t->ndim; d++)
        s = fmt(a, "%s%s%lld", s, d ? "," : "", (long long)t->dim[d]);
    return fmt(a, "%s]", s);
}

/* ---- nodes ---- */

typedef struct Making {
    Graph *g;
    Op op;
    const Attr *attr;
    const Ref *in;
    int nin;
    const char *loc;
    Ref made;
} Making;

static void make(void *arg)
{
    Making *m = arg;
    m->made = emit(m->g, m->op, m->attr, m->in, m->nin, m->loc);
}

/* Refuse what no machine holds, before anything of that size is made. */
static void size_check(lua_State *L, const char *what, const Type *t)
{
    double n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= (double)t->dim[d];
    if (n > ELEMENTS_MAX)
        fail(L, "%s: %s has %.4g elements; at most %.4g", what,
             type_show(L, t), n, ELEMENTS_MAX);
    if (++front_of(L)->nodes > NODES_MAX)
        fail(L, "%s: the model has more than %d nodes", what, NODES_MAX);
}

Ref node_new(lua_State *L, Op op, const Attr *attr, const Ref *in, int nin)
{
    Graph *g = front_graph(L, ops[op].name);
    Making m = { g, op, attr, in, nin, user_loc(L), NONE };
    guarded(L, make, &m);
    size_check(L, ops[op].name, &g->node[m.made].type);
    g->node[m.made].scope = front_of(L)->scope;
    return m.made;
}

Ref node_typed(lua_State *L, Op op, const Attr *attr, Type t, const char *name)
{
    Graph *g = front_graph(L, ops[op].name);
    size_check(L, ops[op].name, &t);
    Ref r = emit_typed(g, op, attr, t, NULL, 0, name, user_loc(L));
    g->node[r].scope = front_of(L)->scope;
    return r;
}

static const Type *type_of(lua_State *L, Ref r)
{
    return &front_of(L)->g->node[r].type;
}

static Ref number_new(lua_State *L, int i, Type like)
{
    Attr attr = { .value = lua_tonumber(L, i) };
    return node_typed(L, OP_const, &attr, like, NULL);
}

/* ---- broadcasting ---- */

/* r repeated to the dimensions of `want`: aligned at the last one, sizes of
 * one repeat.  Letters a.. are kept or new, p.. vanish (they are one). */
static Ref repeat(lua_State *L, Ref r, const Type *want, const char *what)
{
    const Type *t = type_of(L, r);
    int shift = want->ndim - t->ndim, n = 0;
    char sig[4 * NDIM], *p = sig;
    Letter letter[NDIM];
    bool same = shift == 0;
    for (int d = 0; d < t->ndim && shift >= 0; d++) {
        int64_t have = t->dim[d], to = want->dim[d + shift];
        if (have != to && have != 1)
            shift = -1;
        same &= have == to;
        *p++ = (char)((have == to ? 'a' : 'p') + d + shift);
    }
    if (shift < 0)
        fail(L, "%s: %s and %s do not broadcast", what, type_show(L, t),
             type_show(L, want));
    if (same)
        return r;
    *p++ = '-', *p++ = '>';
    for (int d = 0; d < want->ndim; d++) {
        int k = d - shift;
        if (k < 0 || t->dim[k] != want->dim[d])
            letter[n++] = (Letter){ .c = (char)('a' + d),
                                    .size = want->dim[d] };
        *p++ = (char)('a' + d);
    }
    *p = 0;
    Arena *a = front_of(L)->g->arena;
    Attr attr = { .sig = fmt(a, "%s", sig), .nletter = n };
    attr.letter = alloc(a, sizeof letter);
    memcpy(attr.letter, letter, sizeof letter);
    return node_new(L, OP_move, &attr, &r, 1);
}

/* The shape that two shapes broadcast to. */
static Type joined(lua_State *L, const Type *a, const Type *b,
                   const char *what)
{
    Type t = *a;
    t.ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < t.ndim; d++) {
        int i = d - t.ndim + a->ndim, k = d - t.ndim + b->ndim;
        int64_t x = i < 0 ? 1 : a->dim[i], y = k < 0 ? 1 : b->dim[k];
        if (x != y && x != 1 && y != 1)
            fail(L, "%s: %s and %s do not broadcast", what, type_show(L, a),
                 type_show(L, b));
        t.dim[d] = x == 1 ? y : x;
    }
    return t;
}

Ref value_fit(lua_State *L, int i, const Type *want, const char *what)
{
    if (lua_isnumber(L, i) || lua_isboolean(L, i)) {
        Attr attr = { .value = lua_isboolean(L, i) ? lua_toboolean(L, i)
                                                   : lua_tonumber(L, i) };
        return node_typed(L, OP_const, &attr, *want, NULL);
    }
    Ref r = value_check(L, i, what);
    const Type *t = type_of(L, r);
    if (t->dtype != want->dtype)
        fail(L, "%s: %s does not fit %s; cast it", what, type_show(L, t),
             type_show(L, want));
    return repeat(L, r, want, what);
}

static bool pointwise(Op op)
{
    return ops[op].arity > 1 && strncmp(ops[op].sig, "..., ...", 8) == 0 &&
           strcmp(ops[op].sig + strlen(ops[op].sig) - 6, "-> ...") == 0;
}

/* Operands of a pointwise row, from stack 1..n, to one shape. */
static void operands_pointwise(lua_State *L, Op op, Ref *in)
{
    const char *what = ops[op].name;
    int n = ops[op].arity, any = 0;
    Type t = { 0 };
    for (int i = 0; i < n; i++) {
        if (!value_is(L, i + 1)) {
            if (lua_type(L, i + 1) != LUA_TNUMBER)
                value_check(L, i + 1, what);
            continue;
        }
        in[i] = value_check(L, i + 1, what);
        Type u = *type_of(L, in[i]);
        t = any++ ? joined(L, &t, &u, what) : u;
    }
    if (!any)
        fail(L, "%s: none of the operands is a value", what);
    for (int i = 0; i < n; i++)
        in[i] = value_is(L, i + 1) ? repeat(L, in[i], &t, what)
                                   : number_new(L, i + 1, t);
}

static int operands_plain(lua_State *L, Op op, Ref *in)
{
    int n = ops[op].arity, top = lua_gettop(L);
    if (n < 0)
        for (n = 0; n < top && value_is(L, n + 1);)
            n++;
    if (n > NIN)
        fail(L, "%s: %d operands; at most %d", ops[op].name, n, NIN);
    for (int i = 0; i < n; i++)
        in[i] = value_check(L, i + 1, ops[op].name);
    return n;
}

/* ---- attributes ---- */

typedef enum Kind { REAL, REALS, INT, WORD, DTYPE, AXES, TEXT } Kind;
typedef struct Key { const char *name; Kind kind; size_t at; } Key;
static const Key keys[] = {
#define ATTR(key, field, kind) { #key, kind, offsetof(Attr, field) },
#include "ir/attrs.def"
};

/* Fields of Attr that hold an INT are int or int64_t. */
static void int_put(Attr *a, const Key *k, lua_Integer n)
{
    void *p = (char *)a + k->at;
    bool wide = k->at == offsetof(Attr, id) || k->at == offsetof(Attr, at) ||
                k->at == offsetof(Attr, size);
    if (wide)
        *(int64_t *)p = n;
    else
        *(int *)p = (int)n;
}

static void key_put(lua_State *L, Op op, Attr *a, const Key *k, int i)
{
    const char *what = ops[op].name;
    Arena *arena = front_of(L)->g->arena;
    int whole = 0;
    lua_Integer n = lua_tointegerx(L, i, &whole);
    if (k->kind == INT && (!whole || n > INT32_MAX || n < INT32_MIN))
        fail(L, "%s: %s is %s, not a whole number", what, k->name,
             luaL_tolstring(L, i, NULL));
    bool window = k->at == offsetof(Attr, stride)
               || k->at == offsetof(Attr, dilate);
    if (k->kind == INT && window && n < 1)
        fail(L, "%s: %s is %lld; the least is 1", what, k->name, (long long)n);
    if (k->kind == INT)
        int_put(a, k, n);
    else if (k->kind == DTYPE)
        a->dtype = dtype_check(L, i, NDTYPE, what);
    else if (k->kind == REAL)
        *(double *)((char *)a + k->at) = luaL_checknumber(L, i);
    else if (k->kind == WORD || k->kind == TEXT)
        *(const char **)((char *)a + k->at) =
            intern(arena, luaL_checkstring(L, i));
    else
        fail(L, "%s: %s cannot be set in a model", what, k->name);
}

static const char *keys_text(lua_State *L, Op op)
{
    return ops[op].sig[0] == '@' ? "letters" : ops[op].keys && *ops[op].keys
         ? fmt(front_of(L)->a, "%s", ops[op].keys) : "none";
}

static void key_read(lua_State *L, Op op, Attr *a, const char *name, int i)
{
    const char *have[COUNT(keys)];
    int n = 0;
    for (int k = 0; k < COUNT(keys); k++) {
        if (!op_has_key(op, keys[k].name))
            continue;
        have[n++] = keys[k].name;
        if (strcmp(keys[k].name, name) == 0) {
            key_put(L, op, a, &keys[k], i);
            return;
        }
    }
    const char *near = near_name(name, have, n);
    if (near)
        fail(L, "%s: no key \"%s\"; did you mean \"%s\"?", ops[op].name, name,
             near);
    fail(L, "%s: no key \"%s\"; it takes: %s", ops[op].name, name,
         keys_text(L, op));
}

static void letter_read(lua_State *L, Op op, Attr *a, char c, int i)
{
    int whole = 0;
    lua_Integer n = lua_tointegerx(L, i, &whole);
    if (!whole || n < 1)
        fail(L, "%s: letter %c is %s, not a size", ops[op].name, c,
             luaL_tolstring(L, i, NULL));
    if (a->sig && !strchr(a->sig, c))
        fail(L, "%s: \"%s\" has no letter %c", ops[op].name, a->sig, c);
    if (!a->sig && n == 1)                /* one group is none */
        return;
    int at = a->nletter++;
    for (; at && a->letter[at - 1].c > c; at--)
        a->letter[at] = a->letter[at - 1];
    a->letter[at] = (Letter){ .c = c, .size = n };
}

/* A letter that the node may size: of its own signature, or "g?". */
static bool is_letter(Op op, const char *s)
{
    const char *sig = ops[op].sig;
    return isalpha((unsigned char)s[0]) && !s[1]
        && (sig[0] == '@' || strstr(sig, (char[]){ s[0], '?', 0 }));
}

/* Keys and letters of the table at i. */
static void table_read(lua_State *L, Op op, Attr *a, int i)
{
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            fail(L, "%s: its table has a %s as key", ops[op].name,
                 luaL_typename(L, -2));
        const char *name = lua_tostring(L, -2);
        int at = lua_gettop(L);
        if (is_letter(op, name) && a->nletter < NATOM)
            letter_read(L, op, a, name[0], at);
        else
            key_read(L, op, a, name, at);
    }
}

/* The signature without blanks: "bchw->b(hw)c". */
static const char *sig_read(lua_State *L, Op op, int i)
{
    if (lua_type(L, i) != LUA_TSTRING)
        fail(L, "%s: a signature such as \"%s\" is wanted after the operands",
             ops[op].name, ops[op].arity == 1 ? "bk->kb" : "bk,km->bm");
    size_t n;
    const char *s = lua_tolstring(L, i, &n);
    if (n > 200)
        fail(L, "%s: a signature of %zu characters", ops[op].name, n);
    char *t = alloc(front_of(L)->g->arena, n + 1), *p = t;
    for (; *s; s++)
        if (*s != ' ')
            *p++ = *s;
    return intern(front_of(L)->g->arena, t);
}

/* What follows the operands: signature, one word, table. */
static void attr_read(lua_State *L, Op op, Attr *a, int i)
{
    a->letter = alloc(front_of(L)->g->arena, NATOM * sizeof(Letter));
    if (op_has_key(op, "dim"))
        a->dim = 0;
    if (ops[op].sig[0] == '@')
        a->sig = sig_read(L, op, i++);
    else if (op_has_key(op, "dtype") && !lua_istable(L, i))
        a->dtype = dtype_check(L, i++, NDTYPE, ops[op].name);
    if (lua_istable(L, i))
        table_read(L, op, a, i++);
    if (lua_gettop(L) >= i)
        fail(L, "%s: argument %d is one too many", ops[op].name, i);
}

/* dim=-1 is the last; a slice must keep something that is there. */
static void attr_settle(lua_State *L, Op op, Attr *a, Ref first)
{
    const Type *t = type_of(L, first);
    if (!op_has_key(op, "dim"))
        return;
    if (a->dim < 0)
        a->dim += t->ndim;
    if (a->dim < 0 || a->dim >= t->ndim)
        fail(L, "%s: dim %d of %s", ops[op].name, a->dim, type_show(L, t));
    if (op == OP_slice && (a->at < 0 || a->size < 1 ||
                           a->at + a->size > t->dim[a->dim]))
        fail(L, "slice: at %lld, size %lld of dimension %d of %s",
             (long long)a->at, (long long)a->size, a->dim, type_show(L, t));
}

static int op_call(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    Ref in[NIN];
    int n = ops[op].arity;
    front_graph(L, ops[op].name);
    if (pointwise(op))
        operands_pointwise(L, op, in);
    else
        n = operands_plain(L, op, in);
    Attr attr = { 0 };
    attr_read(L, op, &attr, n + 1);
    if (n)
        attr_settle(L, op, &attr, in[0]);
    value_push(L, node_new(L, op, &attr, in, n));
    return 1;
}

/* __unm gets its operand twice, __pow and the rest exactly two. */
static int op_event(lua_State *L)
{
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    lua_settop(L, ops[op].arity);
    return op_call(L);
}

/* ---- the metatable ---- */

static int value_dims(lua_State *L)
{
    const Type *t = type_of(L, value_check(L, 1, "dims"));
    lua_createtable(L, t->ndim, 0);
    for (int d = 0; d < t->ndim; d++) {
        lua_pushinteger(L, t->dim[d]);
        lua_rawseti(L, -2, d + 1);
    }
    return 1;
}

static int value_dim(lua_State *L)
{
    const Type *t = type_of(L, value_check(L, 1, "dim"));
    lua_Integer d = luaL_checkinteger(L, 2);
    if (d < 0)
        d += t->ndim;
    if (d < 0 || d >= t->ndim)
        fail(L, "dim: %lld of %s", luaL_checkinteger(L, 2), type_show(L, t));
    lua_pushinteger(L, t->dim[d]);
    return 1;
}

static int value_dtype(lua_State *L)
{
    Ref r = value_check(L, 1, "dtype");
    lua_pushstring(L, dtype_name(type_of(L, r)->dtype));
    return 1;
}

static int value_name(lua_State *L)
{
    Ref r = value_check(L, 1, "name");
    lua_pushstring(L, front_of(L)->g->node[r].name);
    return 1;
}

static int value_text(lua_State *L)
{
    Value *v = luaL_checkudata(L, 1, VALUE);
    const Node *n = &v->g->node[v->ref];
    lua_pushfstring(L, "%s %s", n->name, type_show(L, &n->type));
    return 1;
}

static bool is_method(Op op)
{
    Family f = ops[op].family;
    return !ops[op].leaf && op != OP_grad && f != FAMILY_collective &&
           f != FAMILY_copy && f != FAMILY_pack && f != FAMILY_hop;
}

/* upvalue 1: the methods */
static int value_index(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2), *have[OP_COUNT];
    if (lua_getfield(L, lua_upvalueindex(1), name) != LUA_TNIL)
        return 1;
    int n = 0;
    for (Op op = 0; op < OP_COUNT; op++)
        if (is_method(op))
            have[n++] = ops[op].name;
    const char *near = near_name(name, have, n);
    if (near)
        fail(L, "%s: a value has no such method; did you mean \"%s\"?", name,
             near);
    fail(L, "%s: a value has no such method; see dpc ops", name);
}

static int value_assign(lua_State *L)
{
    fail(L, "a value cannot be changed; make another");
}

static void methods(lua_State *L)
{
    static const luaL_Reg own[] = {
        { "dims", value_dims }, { "dim", value_dim }, { "dtype", value_dtype },
        { "name", value_name }, { NULL, NULL },
    };
    lua_newtable(L);
    luaL_setfuncs(L, own, 0);
    for (Op op = 0; op < OP_COUNT; op++) {
        if (!is_method(op))
            continue;
        lua_pushinteger(L, op);
        lua_pushcclosure(L, op_call, 1);
        lua_setfield(L, -2, ops[op].name);
    }
    lua_pushcclosure(L, value_index, 1);
    lua_setfield(L, -2, "__index");
}

void value_open(lua_State *L)
{
    static const struct { const char *event; Op op; } event[] = {
        { "__add", OP_add }, { "__sub", OP_sub }, { "__mul", OP_mul },
        { "__div", OP_div }, { "__pow", OP_pow }, { "__unm", OP_neg },
    };
    luaL_newmetatable(L, VALUE);
    methods(L);
    for (int i = 0; i < COUNT(event); i++) {
        lua_pushinteger(L, event[i].op);
        lua_pushcclosure(L, op_event, 1);
        lua_setfield(L, -2, event[i].event);
    }
    lua_pushcfunction(L, value_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushcfunction(L, value_assign);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
