/* kernel_op.c -- what a node is as a value at one point of the loops.
 *
 * Movement changes where an operand is read, not its value, so most of it
 * makes no value at all.  A value has the dtype of its node, in registers
 * too: rounding to bf16 happens at the node, whether it is fused or not. */
#include "codegen/attention.h"
#include <math.h>

static bool refuse(Build *b, const char *why)
{
    b->why = why;
    return false;
}

static int operand(Build *b, Member *m, int i)
{
    Member *from = build_member(b, b->g->node[m->ref].in[i]);
    return from ? from->value : build_value(b, build_load(b, m, i));
}

static Value value_new(const Build *b, const Member *m, ValueKind kind)
{
    const Node *n = &b->g->node[m->ref];
    return (Value){ .kind = kind, .dtype = n->type.dtype, .op = n->op,
                    .node = m->ref, .row = -1, .row_pos = -1 };
}

static int number(Build *b, const Member *m, double x)
{
    Value v = value_new(b, m, VAL_CONST);
    v.op = OP_const;
    v.num = x;
    return build_value(b, v);
}

/* a + env->pos where the letter is split. */
static bool global(Build *b, const Member *m, char letter, int64_t stride,
                   Affine *a)
{
    Split s = m->s.split[(int)letter];
    build_letter(b, m, letter, stride, a);
    if (!s)
        return true;
    int at = build_pos(b, s, m->s.size[(int)letter], false);
    if (at < 0)
        return refuse(b, "too many split dimensions");
    a->pos[at] += stride;
    return true;
}

/* The row-major index of the node's element in the whole tensor. */
static bool global_index(Build *b, const Member *m, Affine *a)
{
    const Type *t = &b->g->node[m->ref].type;
    int64_t stride = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (!global(b, m, m->s.out.dim[d].c[0], stride, a))
            return false;
        stride *= t->dim[d];
    }
    return true;
}

static bool op_const(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    if (!n->attr.data) {
        m->value = number(b, m, n->attr.value);
        return true;
    }
    Kernel *k = b->k;
    Value v = value_new(b, m, VAL_TABLE);
    v.op = OP_const;
    v.buf = k->ntable;
    for (int i = 0; i < k->ntable; i++)
        if (b->g->node[k->table[i]].attr.data == n->attr.data)
            v.buf = i;
    if (v.buf == k->ntable) {
        GROW(b->arena, k->table, k->ntable, b->cap_table);
        k->table[k->ntable++] = m->ref;
    }
    if (!global_index(b, m, &v.at))
        return false;
    m->value = build_value(b, v);
    return true;
}

static bool op_iota(Build *b, Member *m)
{
    Value v = value_new(b, m, VAL_INDEX);
    int dim = b->g->node[m->ref].attr.dim;
    if (!global(b, m, m->s.out.dim[dim].c[0], 1, &v.at))
        return false;
    m->value = build_value(b, v);
    return true;
}

static bool op_random(Build *b, Member *m)
{
    const Attr *a = &b->g->node[m->ref].attr;
    Value v = value_new(b, m, VAL_RANDOM);
    v.id = a->id;
    v.dist = a->dist && strcmp(a->dist, "normal") == 0 ? "normal" : "uniform";
    v.round = v.dtype == BF16;
    if (!global_index(b, m, &v.at))
        return false;
    m->value = build_value(b, v);
    return true;
}

/* ---- folds ---- */

static Atoms letter_atoms(Build *b, const Member *m, char letter)
{
    Affine a = {0};
    Atoms s = 0;
    build_letter(b, m, letter, 1, &a);
    for (int i = 0; i < KATOM; i++)
        s |= a.coef[i] ? 1u << i : 0;
    return s;
}

static Atoms out_atoms(Build *b, const Member *m)
{
    Atoms s = 0;
    for (int d = 0; d < m->s.out.ndim; d++)
        for (int i = 0; i < m->s.out.dim[d].n; i++)
            s |= letter_atoms(b, m, m->s.out.dim[d].c[i]);
    return s;
}

/* The last part of a split that does not divide holds padding: the fold
 * takes the identity there. */
static bool trim(Build *b, Member *m, char letter, Fold fold, int *value)
{
    Split s = m->s.split[(int)letter];
    int64_t size = m->s.size[(int)letter];
    if (size % split_parts(&b->g->mesh, s) == 0)
        return true;
    int held = build_pos(b, s, size, true);
    if (held < 0)
        return refuse(b, "too many split dimensions");
    Value v = value_new(b, m, VAL_PICK);
    v.op = OP_where;
    v.narg = 2;
    v.arg[0] = *value;
    v.arg[1] = number(b, m, fold == FOLD_MAX ? -INFINITY : 0);
    v.guard = alloc(b->arena, sizeof *v.guard);
    v.nguard = 1;
    *v.guard = (Guard){ .lo = -size, .by = 1 };
    v.guard->of.pos[held] = -1;
    build_letter(b, m, letter, 1, &v.guard->of);
    *value = build_value(b, v);
    return true;
}

static bool fold_value(Build *b, Member *m, int value)
{
    Value v = value_new(b, m, VAL_FOLD);
    Fold fold = ops[v.op].fold;
    v.fold = fold;
    for (int c = 0; c < NLETTER; c++)
        if (m->s.folded[c] && m->atom[c] >= 0) {
            v.over |= letter_atoms(b, m, (char)c);
            if (!trim(b, m, (char)c, fold, &value))
                return false;
        }
    m->value = value;
    if (!v.over)
        return true;
    v.op = OP_move;
    v.narg = 1;
    v.arg[0] = value;
    v.atoms = out_atoms(b, m);
    m->value = build_value(b, v);
    return true;
}

/* ---- one loop nest ---- */

static bool op_total(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    m->value = operand(b, m, 0);
    for (int i = 1; i < n->nin; i++) {
        Value v = value_new(b, m, VAL_EXPR);
        v.op = OP_add;
        v.narg = 2;
        v.arg[0] = m->value;
        v.arg[1] = operand(b, m, i);
        m->value = build_value(b, v);
    }
    return true;
}

static bool op_nest(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    Value v = value_new(b, m, VAL_EXPR);
    v.narg = n->nin;
    if (n->nin > 3)
        return refuse(b, "more than three operands");
    for (int i = 0; i < n->nin; i++) {
        if (m->s.in[i].unread) {
            v.narg = i;
            break;
        }
        v.arg[i] = operand(b, m, i);
    }
    bool same = strcmp(ops[n->op].expr, "a") == 0
        && (n->op != OP_cast
            || b->k->value[v.arg[0]].dtype == n->type.dtype);
    if (ops[n->op].family == FAMILY_conv)
        v.op = OP_mul;
    if (v.op == OP_dot)
        v.op = OP_mul;
    v.round = v.dtype == BF16;
    return fold_value(b, m, same ? v.arg[0] : build_value(b, v));
}

/* ---- shifted reads ---- */

/* Operand i with index (result's - at) along dim, zero outside. */
static int shifted_load(Build *b, Member *m, int i, int64_t at)
{
    const Node *n = &b->g->node[m->ref];
    Ref r = n->in[i];
    int dim = n->attr.dim;
    int64_t stride[NDIM];
    Term *t = &m->s.in[i], own = *t;
    Type local = type_local(&b->g->mesh, &b->g->node[r].type);

    t->dim[dim] = m->s.out.dim[dim];
    Value v = build_load(b, m, i);
    *t = own;
    build_strides(b->g, r, stride);
    v.at.at -= at * stride[dim];
    build_guards(b, &v);
    Guard *g = &v.guard[v.nguard];
    g->of.at = -at;
    g->lo = 0, g->hi = local.dim[dim], g->by = 1;
    build_letter(b, m, m->s.out.dim[dim].c[0], 1, &g->of);
    v.nguard += n->op != OP_slice;
    return build_value(b, v);
}

static bool op_index(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    if (n->op != OP_concat) {
        m->value = shifted_load(b, m, 0, n->op == OP_pad ? n->attr.at
                                                         : -n->attr.at);
        return true;
    }
    int64_t cut = b->g->node[n->in[0]].type.dim[n->attr.dim];
    Value v = value_new(b, m, VAL_PICK);
    v.narg = 2;
    v.arg[0] = shifted_load(b, m, 0, 0);
    v.arg[1] = shifted_load(b, m, 1, cut);
    v.guard = alloc(b->arena, sizeof *v.guard);
    v.nguard = 1;
    *v.guard = (Guard){ .hi = cut, .by = 1 };
    build_letter(b, m, m->s.out.dim[n->attr.dim].c[0], 1, &v.guard->of);
    m->value = build_value(b, v);
    return true;
}

/* ---- rows by index ---- */

static bool row_pos(Build *b, Member *m, int *at)
{
    Split s = m->s.split['v'];
    *at = -1;
    if (!s)
        return true;
    *at = build_pos(b, s, m->s.size['v'], false);
    return *at >= 0 || refuse(b, "too many split dimensions");
}

static bool op_take(Build *b, Member *m)
{
    Term *t = &m->s.in[0];
    int64_t stride[NDIM];
    int row = operand(b, m, 1);

    build_strides(b->g, b->g->node[m->ref].in[0], stride);
    Dim v_dim = t->dim[0];
    t->dim[0].n = 0;
    Value v = build_load(b, m, 0);
    t->dim[0] = v_dim;
    v.row = row;
    v.row_stride = stride[0];
    v.rows = build_extent(b, m, 'v');
    if (!row_pos(b, m, &v.row_pos))
        return false;
    m->value = build_value(b, v);
    return true;
}

static bool op_put(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    Kernel *k = b->k;
    int at;

    if (b->n > 1)
        return refuse(b, "put is a kernel of its own");
    for (int i = 0; i < 2; i++) {
        Type t = type_local(&b->g->mesh, &b->g->node[n->in[i]].type);
        if (b->g->node[n->in[i]].layout)
            return refuse(b, "put reads row-major operands");
        k->put_n = type_volume(&t);
        build_value(b, build_load(b, m, i));
    }
    if (!row_pos(b, m, &at))
        return false;
    k->put_split = at >= 0;
    k->put_rows = build_extent(b, m, 'v');
    k->put_row = build_extent(b, m, 'd');
    k->form = FORM_PUT;
    m->value = 0;
    return true;
}

/* ---- collectives without traffic ---- */

/* Parts of that extent, along the first of the axes. */
static int axis_pos(Build *b, Axes axes, int64_t extent)
{
    return build_pos(b, split_push(0, __builtin_ctz(axes)),
                     extent * mesh_size(&b->g->mesh, axes & -axes), false);
}

bool build_slice(Build *b, Member *m, const int64_t *stride, Affine *at)
{
    const Node *n = &b->g->node[m->ref];
    int dim = n->attr.dim;
    char letter = m->s.out.dim[dim].c[0];
    int pos = axis_pos(b, n->attr.axes, build_extent(b, m, letter));
    if (pos < 0)
        return refuse(b, "too many split dimensions");
    at->pos[pos] += stride[dim];
    return true;
}

bool build_past(Build *b, Member *m, int64_t whole)
{
    const Node *n = &b->g->node[m->ref];
    int64_t part = build_extent(b, m, m->s.out.dim[n->attr.dim].c[0]);
    return part * mesh_size(&b->g->mesh, n->attr.axes) > whole;
}

/* shard: one's part of dim. */
static bool op_shard(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    int64_t stride[NDIM], one[NDIM];
    Type t = type_local(&b->g->mesh, &b->g->node[n->in[0]].type);
    Value v = build_load(b, m, 0);
    build_guards(b, &v);
    Guard *q = &v.guard[v.nguard];
    for (int d = 0; d < NDIM; d++)
        one[d] = 1;
    build_strides(b->g, n->in[0], stride);
    if (!build_slice(b, m, stride, &v.at) || !build_slice(b, m, one, &q->of))
        return false;
    build_letter(b, m, m->s.out.dim[n->attr.dim].c[0], 1, &q->of);
    q->hi = t.dim[n->attr.dim], q->by = 1;
    v.nguard += build_past(b, m, q->hi);
    m->value = build_value(b, v);
    return true;
}

/* own: zero but where all coordinates are. */
static bool op_own(Build *b, Member *m)
{
    Axes axes = b->g->node[m->ref].attr.axes;
    Value v = build_load(b, m, 0);
    for (; axes; axes &= (Axes)(axes - 1)) {
        int pos = axis_pos(b, axes, 1);
        if (pos < 0 || v.nguard > NDIM)
            return refuse(b, "too many axes");
        build_guards(b, &v);
        v.guard[v.nguard] = (Guard){ .hi = 1, .by = 1 };
        v.guard[v.nguard++].of.pos[pos] = 1;
    }
    m->value = build_value(b, v);
    return true;
}

/* The others talk to ranks; but all_gather over turns writes a slice. */
static bool op_collective(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    Axes time = mesh_axes(&b->g->mesh, TIME);
    bool one = n->attr.axes && !(n->attr.axes & (n->attr.axes - 1));
    if (n->op == OP_own)
        return op_own(b, m);
    if (n->op == OP_shard && one)
        return op_shard(b, m);
    if (n->op != OP_all_gather || !one || (n->attr.axes & ~time))
        return refuse(b, "not a generated kernel");
    m->value = build_value(b, build_load(b, m, 0));
    return true;
}

static bool op_trim(Build *b, Member *m)
{
    m->value = operand(b, m, 0);
    for (int d = 0; d < m->s.out.ndim; d++)
        if (!trim(b, m, m->s.out.dim[d].c[0], FOLD_SUM, &m->value))
            return false;
    return true;
}

bool build_op(Build *b, Member *m)
{
    Op op = b->g->node[m->ref].op;
    if (op == OP_const)
        return op_const(b, m);
    if (op == OP_iota)
        return op_iota(b, m);
    if (op == OP_random)
        return op_random(b, m);
    if (op == OP_take)
        return op_take(b, m);
    if (op == OP_put)
        return op_put(b, m);
    if (op == OP_total)
        return op_total(b, m);
    if (op == OP_trim)
        return op_trim(b, m);
    if (ops[op].family == FAMILY_attention)
        return build_attention(b, m);
    if (ops[op].family == FAMILY_index)
        return op_index(b, m);
    if (ops[op].family == FAMILY_collective)
        return op_collective(b, m);
    if (ops[op].leaf || ops[op].family == FAMILY_pack
        || ops[op].family == FAMILY_hop || op == OP_grad)
        return refuse(b, "not a generated kernel");
    return op_nest(b, m);
}
