/* lua_reach.c -- what reaches what: parameters a loss, masks a softmax.
 *
 * `dpc.reached(loss, list)` keeps the values of a list that a loss depends on:
 * the others have no gradient, so nothing need be kept of one.
 *
 * `dpc.mask(v)` says that v is 1 where something may be looked at.  A network
 * that takes a mask and never brings it to a softmax trains on padding, and
 * no number looks wrong; so each mask is followed, through movement and
 * arithmetic with constants, into what it hides (the condition of a `where`,
 * or an addend), and from there into an exp; or into attention's mask; of which
 * something returned or set is made. */
#include "compiler/lua_front.h"

int values_reached(lua_State *L)
{
    const Graph *g = front_graph(L, "reached");
    Ref y = value_check(L, 1, "reached");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 2), kept = 0;
    bool *in = lua_newuserdatauv(L, g->n + 1, 0);
    memset(in, 0, g->n + 1);
    in[y] = true;
    for (Ref r = y + 1; r-- > 0;)
        for (int i = 0; in[r] && i < g->node[r].nin; i++)
            in[g->node[r].in[i]] |= g->node[r].op != OP_stop
                                 && !op_unread(g->node[r].op, i);
    lua_newtable(L);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 2, i);
        if (in[value_check(L, -1, "reached")])
            lua_rawseti(L, -2, ++kept);
        else
            lua_pop(L, 1);
    }
    return 1;
}

/* ---- masks ---- */

typedef enum What {
    OTHER, NUMBER,                        /* of constants alone */
    MASK,                                 /* of the mask and constants */
    HIDDEN                                /* values of which it hides some */
} What;

int mask_declare(lua_State *L)
{
    Front *f = front_of(L);
    Ref r = value_check(L, 1, "mask");
    lua_settop(L, 1);
    GROW(f->a, f->mask, f->nmask, f->maskcap);
    f->mask[f->nmask++] = (Mask){ r, user_loc(L) };
    return 1;
}

static bool hides(Op op)
{
    return op == OP_where || op == OP_keep || op == OP_drop;
}

/* Movement keeps what it moves; of several operands the strongest counts. */
static What joined(const Node *n, const What *of)
{
    What w = NUMBER;
    for (int i = 0; i < n->nin; i++)
        w = of[n->in[i]] == OTHER ? OTHER
          : w != OTHER && of[n->in[i]] > w ? of[n->in[i]] : w;
    for (int i = 0; i < n->nin; i++)
        w = of[n->in[i]] == HIDDEN ? HIDDEN : w;
    return w;
}

static What what_of(const Node *n, const What *of)
{
    bool moves = n->op == OP_move || ops[n->op].family == FAMILY_index;
    What w;
    if (n->op == OP_const || n->op == OP_iota)
        return NUMBER;
    if (ops[n->op].leaf || !(moves || op_pointwise(n->op)))
        return OTHER;
    w = joined(n, of);
    if (hides(n->op) && of[n->in[0]] == MASK)
        return HIDDEN;
    if (w == OTHER && (n->op == OP_add || n->op == OP_sub)
        && (of[n->in[0]] == MASK || of[n->in[1]] == MASK))
        return HIDDEN;
    return w;
}

/* By node: is something returned or set made of it? */
static bool *wanted(lua_State *L, const Graph *g)
{
    bool *live = lua_newuserdatauv(L, g->n + 1, 0);
    memset(live, 0, g->n + 1);
    for (uint32_t i = 0; i < g->nset; i++)
        live[g->set[i].value] = true;
    for (uint32_t i = 0; i < g->nout; i++)
        live[g->out[i].ref] = true;
    for (Ref r = g->n; r-- > 0;)
        for (int i = 0; live[r] && i < g->node[r].nin; i++)
            live[g->node[r].in[i]] |= !op_unread(g->node[r].op, i);
    return live;
}

static bool reaches_softmax(const Graph *g, Ref mask, const bool *live,
                            What *of)
{
    for (Ref r = 0; r < g->n; r++) {
        const Node *n = &g->node[r];
        if (live[r] && ((n->op == OP_exp && of[n->in[0]] == HIDDEN)
                        || (n->op == OP_attn && of[n->in[3]] == MASK)))
            return true;
        of[r] = r == mask ? MASK : what_of(n, of);
    }
    return false;
}

void masks_check(lua_State *L)
{
    Front *f = front_of(L);
    if (!f->nmask)
        return;
    const bool *live = wanted(L, f->g);
    for (uint32_t i = 0; i < f->nmask; i++) {
        What *of = lua_newuserdatauv(L, (f->g->n + 1) * sizeof *of, 0);
        if (!reaches_softmax(f->g, f->mask[i].ref, live, of))
            fail_at(L, f->mask[i].loc, "mask: \"%s\" reaches no softmax, so "
                    "what it should hide is looked at; use it as the condition "
                    "of a where on the logits",
                    f->g->node[f->mask[i].ref].name);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}
