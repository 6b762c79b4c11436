/* kernel.c -- nodes become a kernel: atoms, values, stores.
 *
 * First the letters of all nodes are unified along the edges of the group
 * (atom.c); then each node is a value over its operands' values (kernel_op.c),
 * operands from memory are loads at affine indices of the atoms; then
 * loop.c finds the loops.  A group that is no single nest is refused with a
 * reason, and the caller makes two kernels of it. */
#include "codegen/build.h"

Member *build_member(Build *b, Ref r)
{
    int lo = 0, hi = b->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (b->member[mid].ref < r)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < b->n && b->member[lo].ref == r ? &b->member[lo] : NULL;
}

int64_t build_extent(const Build *b, const Member *m, char letter)
{
    return sig_extent(&m->s, &b->g->mesh, letter);
}

/* A node without operands has a letter for each dimension. */
static Sig leaf_sig(const Type *t)
{
    Sig s = { .stride = 1, .dilate = 1 };
    s.out.ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) {
        s.out.dim[d].n = 1;
        s.out.dim[d].c[0] = (char)('0' + d);
        s.size['0' + d] = t->dim[d];
    }
    return s;
}

/* A window in the result: its positions are the loop, and the places h are
 * those that divide. */
static void window_out(Member *m, const Mesh *mesh, const Type *t)
{
    for (int d = 0; d < m->s.out.ndim; d++) {
        Dim *o = &m->s.out.dim[d];
        if (!o->window)
            continue;
        char at = (char)(1 + m->nplace), h = o->c[0];
        m->place[m->nplace].h = h;
        m->place[m->nplace].k = o->c[1];
        m->place[m->nplace++].at = at;
        m->s.size[(int)at] = type_step(mesh, t, d)
            * split_parts(mesh, t->split[d]);
        m->s.split[(int)at] = m->s.split[(int)h];
        m->place[m->nplace - 1].pad = sig_pad(&m->s, h);
        m->place[m->nplace - 1].extent = sig_extent(&m->s, mesh, h);
        m->s.folded[(int)o->c[1]] = true;
        *o = (Dim){ .n = 1, .c = { at } };
    }
}

static void member_init(Build *b, Member *m, Ref r)
{
    const Node *n = &b->g->node[r];
    m->ref = r;
    m->value = -1;
    if (n->nin) {
        m->s = sig_bind(b->g, n->op, &n->attr, n->in, n->nin, n->loc);
        if (ops[n->op].arity >= 0)
            sig_split(&m->s, b->g, n->in);
    } else
        m->s = leaf_sig(&n->type);
    for (int d = 0; d < m->s.out.ndim; d++)
        m->s.split[(int)m->s.out.dim[d].c[0]] = n->type.split[d];
    if (n->op == OP_all_gather) {         /* one turn's part of it */
        Split own = b->g->node[n->in[0]].type.split[n->attr.dim];
        m->s.split[(int)m->s.out.dim[n->attr.dim].c[0]] = own;
    }
    window_out(m, &b->g->mesh, &n->type);
    for (int c = 0; c < NLETTER; c++)
        m->atom[c] = m->s.size[c] ? atom_new(&b->u, build_extent(b, m, (char)c))
                                  : -1;
    for (int i = 0; i < m->nplace; i++)
        m->atom[(int)m->place[i].h] = -1;
}

static int dim_atoms(const Member *m, const Dim *d, int *out)
{
    for (int i = 0; i < d->n; i++)
        out[i] = m->atom[(int)d->c[i]];
    return d->n;
}

/* Does operand i lie shifted, or is it a table: read from memory only? */
static bool shifted(const Node *n, const Member *m, int i)
{
    if (ops[n->op].family == FAMILY_index || n->op == OP_put
        || ops[n->op].family == FAMILY_attention
        || ops[n->op].family == FAMILY_collective)
        return true;
    if (n->op == OP_take)
        return i == 0;
    for (int d = 0; d < m->s.in[i].ndim; d++)
        if (m->s.in[i].dim[d].window)
            return true;
    return m->nplace > 0;
}

static bool edge(Build *b, Member *m, int i)
{
    const Node *n = &b->g->node[m->ref];
    Member *from = build_member(b, n->in[i]);
    bool variadic = ops[n->op].arity < 0;

    if (!from || (!variadic && m->s.in[i].unread))
        return true;
    if (variadic)
        return true;
    if (shifted(n, m, i)) {
        b->why = "a shifted or indexed operand is read from memory";
        return false;
    }
    for (int d = 0; d < m->s.in[i].ndim; d++) {
        int x[NDIM], y[NDIM];
        int nx = dim_atoms(from, &from->s.out.dim[d], x);
        int ny = dim_atoms(m, &m->s.in[i].dim[d], y);
        if (!atom_unify(&b->u, x, nx, y, ny)) {
            b->why = "dimensions have no common factors";
            return false;
        }
    }
    return true;
}

/* Each letter of a node must be loops of its own. */
static bool distinct(Build *b, const Member *m)
{
    int seen[BATOM], n = 0;
    for (int c = 0; c < NLETTER; c++) {
        int x[KATOM], nx;
        if (m->atom[c] < 0)
            continue;
        if ((nx = atom_leaves(&b->u, &m->atom[c], 1, x, KATOM)) < 0
            || n + nx > BATOM)
            return b->why = "too many loops", false;
        for (int i = 0; i < nx; i++) {
            for (int k = 0; k < n; k++)
                if (seen[k] == x[i])
                    return b->why = "two dimensions would be one loop", false;
            seen[n++] = x[i];
        }
    }
    return true;
}

static bool number_atoms(Build *b, const Member *m)
{
    Kernel *k = b->k;
    for (int c = 0; c < NLETTER; c++) {
        int x[KATOM], nx;
        if (m->atom[c] < 0)
            continue;
        nx = atom_leaves(&b->u, &m->atom[c], 1, x, KATOM);
        for (int i = 0; i < nx; i++) {
            int at = 0;
            while (at < k->natom && b->leaf[at] != x[i])
                at++;
            if (at < k->natom)
                continue;
            if (at == KATOM)
                return b->why = "too many loops", false;
            b->leaf[at] = x[i];
            k->extent[at] = b->u.atom[x[i]].n;
            k->natom++;
        }
    }
    return true;
}

void build_strides(const Graph *g, Ref r, int64_t *stride)
{
    Type t = type_local(&g->mesh, &g->node[r].type);
    int layout = g->node[r].layout, order[NDIM];
    int64_t s = 1;
    for (int i = t.ndim - 1; i >= 0; i--, layout /= 10)
        order[i] = g->node[r].layout ? layout % 10 : i;
    for (int i = t.ndim - 1; i >= 0; i--) {
        stride[order[i]] = s;
        s *= t.dim[order[i]];
    }
}

void build_letter(Build *b, const Member *m, char letter, int64_t stride,
                  Affine *a)
{
    int x[KATOM];
    int n = atom_leaves(&b->u, &m->atom[(int)letter], 1, x, KATOM);
    for (int i = n - 1; i >= 0; i--) {
        int at = 0;
        while (b->leaf[at] != x[i])
            at++;
        a->coef[at] += stride;
        stride *= b->k->extent[at];
    }
}

int build_pos(Build *b, Split split, int64_t size, bool held)
{
    Kernel *k = b->k;
    for (int i = 0; i < k->npos; i++)
        if (k->pos[i].split == split && k->pos[i].size == size
            && k->pos[i].held == held)
            return i;
    if (k->npos == KPOS)
        return -1;
    k->pos[k->npos] = (DpcPos){ split, size, held };
    return k->npos++;
}

static int buffer(Build *b, Ref r)
{
    Kernel *k = b->k;
    for (int i = 0; i < k->nin; i++)
        if (k->in[i] == r)
            return i;
    GROW(b->arena, k->in, k->nin, b->cap_in);
    k->in[k->nin] = r;
    return k->nin++;
}

void build_guards(Build *b, Value *v)
{
    if (v->guard)
        return;
    v->guard = alloc(b->arena, (NDIM + 1) * sizeof *v->guard);
    v->quot = alloc(b->arena, NDIM * sizeof *v->quot);
}

/* A window dimension: index h*stride + k*dilate - pad, zero outside. */
static void window(Build *b, Member *m, const Dim *d, int64_t stride,
                   int64_t extent, Value *v)
{
    Affine x = { .at = -sig_pad(&m->s, d->c[0]) };
    build_letter(b, m, d->c[0], m->s.stride, &x);
    build_letter(b, m, d->c[1], m->s.dilate, &x);
    v->at.at += stride * x.at;
    for (int i = 0; i < KATOM; i++)
        v->at.coef[i] += stride * x.coef[i];
    build_guards(b, v);
    v->guard[v->nguard++] = (Guard){ x, 0, extent, 1 };
}

/* Letter h where the result has the window: (at + pad - k*dilate) / stride. */
static void place(Build *b, Member *m, char h, int64_t stride, Value *v)
{
    for (int i = 0; i < m->nplace; i++) {
        if (m->place[i].h != h)
            continue;
        Affine x = { .at = m->place[i].pad };
        build_letter(b, m, m->place[i].at, 1, &x);
        build_letter(b, m, m->place[i].k, -m->s.dilate, &x);
        build_guards(b, v);
        v->guard[v->nguard++] = (Guard){
            x, 0, m->place[i].extent * m->s.stride, m->s.stride };
        v->quot[v->nquot++] = (Quot){ x, m->s.stride, stride };
    }
}

Value build_load(Build *b, Member *m, int i)
{
    const Node *n = &b->g->node[m->ref];
    const Term *t = &m->s.in[ops[n->op].arity < 0 ? 0 : i];
    Ref r = n->in[i];
    int64_t stride[NDIM];
    Type local = type_local(&b->g->mesh, &b->g->node[r].type);
    Value v = { .kind = VAL_LOAD, .dtype = local.dtype, .row = -1 };

    v.buf = buffer(b, r);
    build_strides(b->g, r, stride);
    for (int d = 0; ops[n->op].arity >= 0 && d < t->ndim; d++) {
        const Dim *m_d = &t->dim[d];
        int64_t s = stride[d];
        if (m_d->window) {
            window(b, m, m_d, s, local.dim[d], &v);
            continue;
        }
        for (int c = m_d->n - 1; c >= 0; c--) {
            if (m->atom[(int)m_d->c[c]] < 0)
                place(b, m, m_d->c[c], s, &v);
            else
                build_letter(b, m, m_d->c[c], s, &v.at);
            s *= build_extent(b, m, m_d->c[c]);
        }
    }
    return v;
}

static bool guards_equal(const Value *a, const Value *b)
{
    if (a->nguard != b->nguard || a->nquot != b->nquot)
        return false;
    for (int i = 0; i < a->nguard; i++)
        if (memcmp(&a->guard[i], &b->guard[i], sizeof(Guard)) != 0)
            return false;
    for (int i = 0; i < a->nquot; i++)
        if (memcmp(&a->quot[i], &b->quot[i], sizeof(Quot)) != 0)
            return false;
    return true;
}

static bool value_equal(const Value *a, const Value *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op
        && a->round == b->round && a->narg == b->narg && a->row == b->row
        && memcmp(a->arg, b->arg, sizeof a->arg) == 0
        && a->row_stride == b->row_stride && a->buf == b->buf
        && memcmp(&a->num, &b->num, sizeof a->num) == 0 && a->id == b->id
        && memcmp(&a->at, &b->at, sizeof a->at) == 0
        && a->atoms == b->atoms && a->over == b->over
        && a->fold == b->fold && a->dist == b->dist && guards_equal(a, b);
}

/* v stands on value i: after its folds, inside its loops. */
static void depend(const Kernel *k, Value *v, int i)
{
    const Value *a = &k->value[i];
    int level = a->level + (a->kind == VAL_FOLD);
    if (v->kind != VAL_FOLD)
        v->atoms |= a->atoms;
    v->level = level > v->level ? level : v->level;
}

int build_value(Build *b, Value v)
{
    Kernel *k = b->k;
    for (int i = 0; i < v.narg; i++)
        depend(k, &v, v.arg[i]);
    if (v.row >= 0)
        depend(k, &v, v.row);
    v.atoms |= affine_atoms(&v.at);
    for (int i = 0; i < v.nguard; i++)
        v.atoms |= affine_atoms(&v.guard[i].of);
    for (int i = 0; i < v.nquot; i++)
        v.atoms |= affine_atoms(&v.quot[i].of);
    for (int i = 0; i < k->nvalue; i++)
        if (value_equal(&k->value[i], &v))
            return i;
    GROW(b->arena, k->value, k->nvalue, b->cap_value);
    k->value[k->nvalue] = v;
    return k->nvalue++;
}

/* ---- stores ---- */

static int reads_inside(const Build *b, Ref r)
{
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        const Node *m = &b->g->node[b->member[i].ref];
        for (int k = 0; k < m->nin && !b->member[i].view; k++)
            n += m->in[k] == r;
    }
    return n;
}

/* A turn's part goes where it belongs in the whole, padding nowhere. */
static void slice_store(Build *b, Member *m, const int64_t *stride, Store *s)
{
    const Node *n = &b->g->node[m->ref];
    Type t = type_local(&b->g->mesh, &n->type);
    int64_t one[NDIM], dim = n->attr.dim;
    char letter = m->s.out.dim[dim].c[0];
    for (int d = 0; d < NDIM; d++)
        one[d] = 1;
    build_slice(b, m, stride, &s->at);
    s->cut = build_past(b, m, t.dim[dim]);
    if (!s->cut)
        return;
    s->in = (Guard){ .hi = t.dim[dim], .by = 1 };
    build_slice(b, m, one, &s->in.of);
    build_letter(b, m, letter, 1, &s->in.of);
}

static void store(Build *b, Member *m)
{
    Kernel *k = b->k;
    int64_t stride[NDIM];
    Store *s = &k->store[k->nstore++];
    s->value = m->value;
    s->out = k->nout;
    build_strides(b->g, m->ref, stride);
    for (int d = 0; d < m->s.out.ndim; d++) {
        const Dim *o = &m->s.out.dim[d];
        int64_t w = stride[d];
        for (int c = o->n - 1; c >= 0; c--) {
            build_letter(b, m, o->c[c], w, &s->at);
            w *= build_extent(b, m, o->c[c]);
        }
    }
    if (b->g->node[m->ref].op == OP_all_gather)
        slice_store(b, m, stride, s);
    k->out_dtype[k->nout] = b->g->node[m->ref].type.dtype;
    k->out[k->nout++] = m->ref;
}

/* ---- nodes that only an operand from memory holds together ---- */

static int set_of(const int *set, int i)
{
    while (set[i] != i)
        i = set[i];
    return i;
}

/* Member i and an earlier one read one value: the same loops, when nothing
 * else says how their loops belong together. */
static bool meet(Build *b, int *set, int i, int in)
{
    const Node *n = &b->g->node[b->member[i].ref];
    Ref r = n->in[in];
    for (int k = 0; k < i; k++) {
        const Node *m = &b->g->node[b->member[k].ref];
        for (int q = 0; q < m->nin; q++) {
            int x = set_of(set, i), y = set_of(set, k);
            if (m->in[q] != r || x == y || shifted(m, &b->member[k], q))
                continue;
            set[x > y ? x : y] = x > y ? y : x;
            for (int d = 0; d < b->member[k].s.in[q].ndim; d++) {
                int p[NDIM], o[NDIM];
                int np = dim_atoms(&b->member[k],
                                   &b->member[k].s.in[q].dim[d], p);
                int no = dim_atoms(&b->member[i],
                                   &b->member[i].s.in[in].dim[d], o);
                if (!atom_unify(&b->u, p, np, o, no)) {
                    b->why = "dimensions have no common factors";
                    return false;
                }
            }
        }
    }
    return true;
}

static bool unify_siblings(Build *b)
{
    int *set = alloc(b->arena, (size_t)b->n * sizeof *set);
    for (int i = 0; i < b->n; i++) {
        const Node *n = &b->g->node[b->member[i].ref];
        set[i] = i;
        for (int k = 0; k < n->nin; k++) {
            Member *m = build_member(b, n->in[k]);
            if (m && b->g->node[m->ref].type.ndim)
                set[set_of(set, i)] = set_of(set, (int)(m - b->member));
        }
    }
    for (int i = 0; i < b->n; i++) {
        const Node *n = &b->g->node[b->member[i].ref];
        for (int k = 0; k < n->nin; k++)
            if (ops[n->op].arity >= 0 && !build_member(b, n->in[k])
                && !shifted(n, &b->member[i], k) && !meet(b, set, i, k))
                return false;
    }
    return true;
}

static bool unify_all(Build *b, const Ref *ref, int n)
{
    for (int i = 0; i < n; i++)
        member_init(b, &b->member[i], ref[i]);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < b->g->node[ref[i]].nin; k++)
            if (!edge(b, &b->member[i], k))
                return false;
    if (!unify_siblings(b))
        return false;
    for (int i = 0; i < n; i++)
        if (!distinct(b, &b->member[i]) || !number_atoms(b, &b->member[i]))
            return false;
    return true;
}

static void count_flops(Build *b)
{
    for (int i = 0; i < b->n; i++) {
        const Member *m = &b->member[i];
        double n = ops[b->g->node[m->ref].op].work;
        if (ops[b->g->node[m->ref].op].flops)
            b->k->flops += node_flops(b->g, m->ref);
        for (int c = 0; c < NLETTER && n > 0; c++)
            if (m->s.size[c])
                n *= (double)build_extent(b, m, (char)c);
        b->k->flops += n;
    }
}

static bool build(Build *b, const Ref *ref, int n, const uint32_t *uses)
{
    Kernel *k = b->k;
    if (!unify_all(b, ref, n))
        return false;
    for (int i = 0; i < n; i++)
        if (!build_op(b, &b->member[i]))
            return false;
    for (int i = 0; i < n; i++)
        if (!b->member[i].view && (int)uses[ref[i]] > reads_inside(b, ref[i]))
            store(b, &b->member[i]);
    if (!k->nstore)
        return b->why = "nobody reads it", false;
    count_flops(b);
    if (k->form == FORM_PUT || k->form == FORM_ATTENTION)
        return true;
    if (!kernel_loops(k, &b->why))
        return false;
    kernel_order(k);
    return kernel_form(k, &b->why);
}

/* ---- the group ---- */

typedef struct Group {
    Ref *ref;
    bool *view;
    int n;
    uint32_t cap, cap_view;
} Group;

static void group_add(Arena *a, Group *s, Ref r, bool view)
{
    int at = s->n;
    for (int i = 0; i < s->n; i++)
        if (s->ref[i] == r)
            return;
    GROW(a, s->ref, s->n, s->cap);
    GROW(a, s->view, s->n, s->cap_view);
    s->n++;
    for (; at > 0 && s->ref[at - 1] > r; at--) {
        s->ref[at] = s->ref[at - 1];
        s->view[at] = s->view[at - 1];
    }
    s->ref[at] = r;
    s->view[at] = view;
}

/* Views that the nodes read come along: their bytes lie in another order. */
static Group group_of(Arena *a, const Graph *g, const Ref *ref, int n)
{
    Group s = {0};
    for (int i = 0; i < n; i++)
        group_add(a, &s, ref[i], false);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < g->node[ref[i]].nin; k++)
            for (Ref r = g->node[ref[i]].in[k]; node_is_view(&g->node[r]);
                 r = g->node[r].in[0])
                group_add(a, &s, r, true);
    return s;
}

Kernel *kernel_describe(Arena *arena, const Graph *g, const Ref *given,
                        int ngiven, const uint32_t *uses, const char **why)
{
    Build *b = alloc(arena, sizeof *b);
    Kernel *k = alloc(arena, sizeof *k);
    Group s = group_of(arena, g, given, ngiven);
    const Ref *ref = s.ref;
    int n = s.n;

    b->k = k, b->g = k->g = g, b->arena = k->arena = arena;
    b->n = n;
    b->member = alloc(arena, (size_t)n * sizeof *b->member);
    for (int i = 0; i < n; i++)
        b->member[i].view = s.view[i];
    k->lane = -1;
    k->chunks = 1;
    k->store = alloc(arena, (size_t)n * sizeof *k->store);
    k->out = alloc(arena, (size_t)n * sizeof *k->out);
    k->out_dtype = alloc(arena, (size_t)n * sizeof *k->out_dtype);
    if (!uses)
        uses = graph_uses(g, arena);
    bool ok = build(b, ref, n, uses);
    if (why)
        *why = ok ? NULL : b->why;
    return ok ? k : NULL;
}
