/* unit_leaf.c -- leaves of all entries and roles in one table.
 *
 * They are united by name.  Params and states get their places here, the same
 * for all programs of a role: first those that live on every role, then the
 * role's own. */
#include "codegen/unit.h"

static bool same_leaf(const DpcLeaf *l, const Type *t)
{
    bool same = l->dtype == t->dtype && l->ndim == t->ndim;
    for (int d = 0; same && d < t->ndim; d++)
        same = l->dim[d] == t->dim[d] && l->split[d] == t->split[d];
    return same;
}

/* Inputs may have other sizes in other programs. */
static DpcLeaf *leaf_find(const Unit *u, int kind, const char *name,
                          const Type *t)
{
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (u->leaf[i].kind == kind && strcmp(u->leaf[i].name, name) == 0
            && (kind != DPC_INPUT || same_leaf(&u->leaf[i], t)))
            return &u->leaf[i];
    return NULL;
}

/* Params and states live where their stage is. */
static int32_t leaf_role(const Graph *g, int kind, Ref r)
{
    bool held = kind == DPC_PARAM || kind == DPC_STATE;
    return held && g->node[r].stage != EVERY ? g->role : -1;
}

static void leaf_same(const Unit *u, const DpcLeaf *l, const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    if (!same_leaf(l, &n->type))
        err(n->loc, "\"%s\" is %s here and another type in another entry, at "
            "%s", l->name, type_text(u->arena, &g->mesh, &n->type), l->loc);
    if (l->role != leaf_role(g, l->kind, r))
        err(n->loc, "\"%s\" lives on role %d in \"%s\", but on role %d in "
            "another entry; -1 is every role", l->name,
            leaf_role(g, l->kind, r), g->entry, l->role);
}

uint32_t unit_leaf(Unit *u, int kind, const char *name, const Graph *g,
                         Ref r)
{
    const Node *n = &g->node[r];
    DpcLeaf *l = leaf_find(u, kind, name, &n->type);
    if (l) {
        leaf_same(u, l, g, r);
        return (uint32_t)(l - u->leaf);
    }
    GROW(u->arena, u->leaf, u->nleaf, u->leafcap);
    l = &u->leaf[u->nleaf];
    *l = (DpcLeaf){ .name = name, .loc = n->loc, .doc = n->attr.doc,
        .kind = (uint8_t)kind, .dtype = (uint8_t)n->type.dtype,
        .ndim = (uint8_t)n->type.ndim, .role = leaf_role(g, kind, r),
        .space = n->place == HOST ? DPC_HOST_LEAVES : DPC_LEAVES,
        .trainable = kind == DPC_PARAM && !n->attr.frozen,
        .residual = n->attr.residual != 0, .value = n->attr.value,
        .bytes = type_bytes(&g->mesh, &n->type) };
    for (int d = 0; d < n->type.ndim; d++)
        l->dim[d] = n->type.dim[d], l->split[d] = n->type.split[d];
    return u->nleaf++;
}

int unit_leaf_kind(Op op)
{
    return op == OP_param ? DPC_PARAM : op == OP_state ? DPC_STATE
         : op == OP_input ? DPC_INPUT : op == OP_scalar ? DPC_SCALAR : -1;
}

void unit_leaves_add(Unit *u, const Graph *g)
{
    for (Ref r = 0; r < g->n; r++) {
        int kind = unit_leaf_kind(g->node[r].op);
        if (kind >= 0)
            unit_leaf(u, kind, g->node[r].name, g, r);
    }
    for (uint32_t i = 0; i < g->nout; i++)
        unit_leaf(u, DPC_OUTPUT, g->out[i].name, g, g->out[i].ref);
}

/* A leaf on every role has one place, so those come first. */
void unit_leaves_place(Unit *u)
{
    for (int role = -1; role < u->nrole; role++)
        for (uint32_t i = 0; i < u->nleaf; i++) {
            DpcLeaf *l = &u->leaf[i];
            bool held = l->kind == DPC_PARAM || l->kind == DPC_STATE;
            if (!held || l->role != role)
                continue;
            int64_t *taken = l->space == DPC_LEAVES ? u->leaves
                           : u->host_leaves;
            l->at = taken[role < 0 ? 0 : role];
            for (int k = 0; k < u->nrole; k++)
                if (role < 0 || k == role)
                    taken[k] += (l->bytes + 63) / 64 * 64;
        }
}
