/* lua_view.c -- the graph as a partitioner sees it: plain data, read only in
 * effect, since what it changes nobody reads.
 *
 * A node says how its sizes hang together by letters: `letters[i][d]` names
 * dimension d of operand i, `out[d]` of the result.  A letter on both sides
 * may be split alike; one on the left alone is folded away. */
#include "compiler/lua_front.h"

static void text_set(lua_State *L, const char *key, const char *s)
{
    lua_pushstring(L, s ? s : "");
    lua_setfield(L, -2, key);
}

/* { "b", "hd", "h+k" }: a letter, a group, a window. */
static void term_push(lua_State *L, const Term *t)
{
    lua_createtable(L, t->ndim, 0);
    for (int d = 0; d < t->ndim; d++) {
        char s[2 * NDIM + 1], *p = s;
        for (int k = 0; k < t->dim[d].n; k++) {
            if (k && t->dim[d].window)
                *p++ = '+';
            *p++ = t->dim[d].c[k];
        }
        *p = 0;
        lua_pushstring(L, s);
        lua_rawseti(L, -2, d + 1);
    }
}

static void letters_push(lua_State *L, const Graph *g, const Node *n)
{
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    lua_createtable(L, s.nin, 0);
    for (int i = 0; i < s.nin; i++) {
        term_push(L, &s.in[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "letters");
    term_push(L, &s.out);
    lua_setfield(L, -2, "out");
}

static void node_push(lua_State *L, const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    lua_createtable(L, 0, 9);
    text_set(L, "op", ops[n->op].name);
    text_set(L, "name", n->name);
    text_set(L, "scope", n->scope);
    text_set(L, "loc", n->loc);
    text_set(L, "dtype", dtype_name(n->type.dtype));
    lua_createtable(L, n->type.ndim, 0);
    for (int d = 0; d < n->type.ndim; d++) {
        lua_pushinteger(L, n->type.dim[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "dims");
    lua_createtable(L, n->nin, 0);
    for (int i = 0; i < n->nin; i++) {
        lua_pushinteger(L, (lua_Integer)n->in[i] + 1);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "inputs");
    if (ops[n->op].leaf)
        return;
    letters_push(L, g, n);
    lua_pushnumber(L, n->op == OP_grad ? 0 : node_flops(g, r));
    lua_setfield(L, -2, "flops");
}

void nodes_push(lua_State *L, const Graph *g)
{
    luaL_checkstack(L, 8, NULL);
    lua_createtable(L, (int)g->n, 0);
    for (Ref r = 0; r < g->n; r++) {
        node_push(L, g, r);
        lua_rawseti(L, -2, (lua_Integer)r + 1);
    }
}
