/* unit.c -- scheduled graphs as tables.
 *
 * Each step of a schedule becomes a row: a kernel, a library call, a
 * collective, a hop or a copy. */
#include "codegen/kernel.h"
#include "codegen/unit.h"

enum { MAXARG = 4096 };

/* ---- buffers ---- */

static uint32_t buf_add(Unit *u, Program *p, DpcBuf b)
{
    GROW(u->arena, p->buf, p->nbuf, p->bufcap);
    p->buf[p->nbuf] = b;
    return p->nbuf++;
}

/* Where instance k of a value lies, and what it is.  A view is its root; what
 * is written over other bytes (set, in place) is a value of its own. */
static DpcBuf buf_row(Unit *u, const Graph *g, Ref r, int k)
{
    const Type *t = &g->node[r].type;
    Ref root = g->sched->buf[r].root;
    const Buf *b = &g->sched->buf[root];
    const Node *n = &g->node[root];
    if (!b->used)
        die("%s has no buffer", n->name);
    int64_t at = !space_leaves(b->space) ? buf_place(b, k)
               : u->leaf[unit_leaf(u, unit_leaf_kind(n->op), n->name, g,
                                   root)].at;
    return (DpcBuf){ .at = at, .size = b->size, .stride = b->stride,
                     .slots = 1, .space = (uint8_t)b->space,
                     .dtype = (uint8_t)(t->dtype + 1), .value = r + 1,
                     .instance = (uint32_t)k,
                     .split = type_axes(t) & (Axes)~t->partial,
                     .pending = t->partial,
                     .along = node_along(g, root) };
}

/* The buffer of a value at a turn, made at first use: which instance it is
 * follows from the time axes that the value names. */
static uint32_t buf_of(Unit *u, Program *p, Ref r, int turn)
{
    const Graph *g = p->g;
    r = view_root(g, r);
    int k = turn_instance(&g->mesh, node_along(g, g->sched->buf[r].root),
                          turn);
    uint32_t *at = &p->buf_of[(int)r * p->turns + k];
    if (!*at)
        *at = buf_add(u, p, buf_row(u, g, r, k)) + 1;
    return *at - 1;
}

static void arg_add(Unit *u, Program *p, uint32_t buf, int how)
{
    GROW(u->arena, p->arg, p->narg, p->argcap);
    GROW(u->arena, p->how, p->narg, p->howcap);
    p->how[p->narg] = (uint8_t)how;
    p->arg[p->narg++] = buf;
}

static void arg_read(Unit *u, Program *p, const DpcStep *q, Ref r)
{
    arg_add(u, p, buf_of(u, p, r, q->turn), DPC_READ);
}

static void arg_write(Unit *u, Program *p, const DpcStep *q, Ref r)
{
    arg_add(u, p, buf_of(u, p, r, q->turn), DPC_WRITE);
}

static void arg_scratch(Unit *u, Program *p, const Launch *l)
{
    if (l->scratch > 0)
        arg_add(u, p, buf_add(u, p, (DpcBuf){ .at = p->scratch_at,
                .size = l->scratch, .stride = l->scratch, .slots = 1,
                .space = DPC_ARENA }), DPC_WRITE);
}

/* ---- calls ---- */

static void pos_add(Unit *u, Program *p, DpcPos pos)
{
    GROW(u->arena, p->pos, p->npos, p->poscap);
    p->pos[p->npos++] = pos;
}

static void pos_number(Unit *u, Program *p, int64_t n)
{
    pos_add(u, p, (DpcPos){ .size = n });
}

/* Of a kernel's first loop. */
static int64_t first_length(const Kernel *k)
{
    return k->extent[k->order[0]];
}

static Kernel *kernel_of(const Unit *u, const Graph *g, const Ref *node, int n,
                         const uint32_t *uses)
{
    const char *why = "";
    Kernel *k = kernel_describe(u->arena, g, node, n, uses, &why);
    if (!k)
        die("%s: no kernel: %s", g->node[node[0]].name, why);
    return k;
}

/* Described and printed once, whatever turns it runs in. */
static const UnitCall *call_of(Unit *u, Program *p, const Ref *node, int n,
                               const uint32_t *uses)
{
    UnitCall *c = &p->call_of[node[0]];
    if (!c->kernel) {
        c->kernel = kernel_of(u, p->g, node, n, uses);
        c->row = unit_kernel(u, c->kernel);
    }
    return c;
}

/* What later turns join to a result, they add to what is there. */
static bool adds(const Graph *g, Ref r, int turn)
{
    const Node *n = &g->node[r];
    Axes time = n->attr.axes & mesh_axes(&g->mesh, TIME);
    return n->op == OP_all_gather && time
        && turn_instance(&g->mesh, time, turn);
}

static void kernel_args(Unit *u, Program *p, const DpcStep *q, const Kernel *k)
{
    for (int i = 0; i < k->nin; i++)
        arg_read(u, p, q, k->in[i]);
    for (int i = 0; i < k->nout; i++)
        arg_add(u, p, buf_of(u, p, k->out[i], q->turn), DPC_WRITE
                | (adds(p->g, k->out[i], q->turn) ? DPC_READ : 0));
    p->flops += k->flops;
}

/* The list that a flat kernel walks: {members, lengths, sum, data}. */
static void flat_pos(Unit *u, Program *p, Kernel *const *k, int n)
{
    int64_t sum = 0;
    pos_number(u, p, n);
    for (int i = 0; i < n; i++) {
        pos_number(u, p, first_length(k[i]));
        sum += first_length(k[i]);
    }
    pos_number(u, p, sum);
    for (int i = 0; i < n; i++) {
        int64_t data[KDATA + 1];
        int ndata = kernel_data(k[i], data);
        for (int d = 0; d < ndata; d++)
            pos_number(u, p, data[d]);
    }
}

static bool is_flat(const Unit *u, const Kernel *k)
{
    return !u->cuda && kernel_flat(k);
}

static void kernel_step(Unit *u, Program *p, DpcStep *q, const Launch *l,
                        const uint32_t *uses)
{
    const UnitCall *c = call_of(u, p, l->node, l->n, uses);
    Kernel *k = c->kernel;
    q->kind = DPC_STEP_KERNEL;
    q->call = c->row;
    unit_watch(u, p, q->call, &k, 1);
    kernel_args(u, p, q, k);
    arg_scratch(u, p, l);
    for (int i = 0; i < k->npos; i++)
        pos_add(u, p, k->pos[i]);
    if (is_flat(u, k))
        flat_pos(u, p, &k, 1);
    else if (!u->cuda && kernel_open(k))
        pos_number(u, p, first_length(k));
}

/* The kernels of a bucket, in the order of their first nodes. */
static int bucket_kernels(Unit *u, Program *p, const Launch *l,
                          const uint32_t *uses, Kernel **k, uint32_t *row)
{
    const Graph *g = p->g;
    Ref *node = alloc(u->arena, (size_t)l->n * sizeof *node);
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        int label = g->node[l->node[i]].kernel, count = 0;
        bool first = true;
        for (int m = 0; m < i; m++)
            first &= g->node[l->node[m]].kernel != label;
        for (int m = i; first && m < l->n; m++)
            if (g->node[l->node[m]].kernel == label)
                node[count++] = l->node[m];
        if (!first)
            continue;
        const UnitCall *c = call_of(u, p, node, count, uses);
        k[n] = c->kernel, row[n++] = c->row;
    }
    return n;
}

/* Twins: one step over all of them.  False when their texts differ after all;
 * then each has a step of its own. */
static bool twin_step(Unit *u, Program *p, DpcStep *q, Kernel *const *k,
                      const uint32_t *row, int n)
{
    q->kind = DPC_STEP_KERNEL;
    q->call = row[0];
    for (int i = 0; i < n; i++)
        if (!is_flat(u, k[i]) || row[i] != q->call)
            return false;
    unit_watch(u, p, q->call, k, n);
    for (int i = 0; i < n; i++)
        kernel_args(u, p, q, k[i]);
    flat_pos(u, p, k, n);
    return true;
}

/* Equal rows are one.  They compare as bytes, so the padding between the
 * small fields and the numbers must be the same in all. */
#define ROW_ADD(u, list, n, cap, row)                                    \
    (row_find((list), sizeof *(list), (n), &(row)) < (n)                 \
     ? row_find((list), sizeof *(list), (n), &(row))                     \
     : (GROW((u)->arena, list, n, cap), (list)[n] = (row), (n)++))
#define CLEAR_PADDING(row, last, next)                                   \
    memset((char *)&(row).last + sizeof (row).last, 0,                   \
           (size_t)((char *)&(row).next - (char *)&(row).last)           \
           - sizeof (row).last)

static uint32_t row_find(const void *list, size_t size, uint32_t n,
                         const void *row)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp((const char *)list + i * size, row, size) == 0)
            return i;
    return n;
}

static bool dot_row(Unit *u, const Graph *g, Ref r, Ref end, uint32_t *call)
{
    const char *why;
    DpcDot d;
    if (g->node[r].op != OP_dot || !dot_describe(g, r, end, &d, &why))
        return false;
    CLEAR_PADDING(d, accumulate, m);
    *call = ROW_ADD(u, u->dot, u->ndot, u->dotcap, d);
    return true;
}

static bool conv_row(Unit *u, const Graph *g, Ref r, uint32_t *call)
{
    const char *why;
    DpcConv c;
    if (r == NONE || ops[g->node[r].op].family != FAMILY_conv
        || !conv_describe(g, r, call_end(g, r), &c, &why))
        return false;
    CLEAR_PADDING(c, dtype_plain, batch);
    *call = ROW_ADD(u, u->conv, u->nconv, u->convcap, c);
    return true;
}

/* A call of the library: two operands, or one of a pack.  It stores the value
 * of the launch's last node. */
static bool call_step(Unit *u, Program *p, DpcStep *q, const Launch *l)
{
    const Graph *g = p->g;
    Ref r = l->node[0], end = l->node[l->n - 1];
    const Node *n = &g->node[r];
    bool pack = n->op == OP_pack;
    if (dot_row(u, g, r, end, &q->call))
        q->kind = DPC_STEP_DOT;
    else if (conv_row(u, g, pack ? pack_reader(g, r) : r, &q->call))
        q->kind = pack ? DPC_STEP_PACK : DPC_STEP_CONV;
    else
        return false;
    arg_read(u, p, q, n->in[0]);
    if (!pack)
        arg_read(u, p, q, n->in[1]);
    arg_write(u, p, q, end);
    arg_scratch(u, p, l);
    p->flops += node_flops(g, r);
    return true;
}

static bool coll_step(Unit *u, Program *p, DpcStep *q, uint32_t launch)
{
    const Graph *g = p->g;
    const Launch *l = &g->sched->launch[launch];
    const Node *first = &g->node[l->node[0]];
    int kind = unit_coll_kind(first->op);
    bool hop = kind == DPC_SEND || kind == DPC_RECV;
    if (kind < 0 || (!hop && !node_over_ranks(g, first)))
        return false;
    q->kind = hop ? DPC_STEP_HOP : DPC_STEP_COLL;
    q->call = unit_colls(u, p, launch);
    for (int i = 0; i < l->n; i++) {
        if (g->node[l->node[i]].op != OP_recv)
            arg_read(u, p, q, g->node[l->node[i]].in[0]);
        if (g->node[l->node[i]].op != OP_send)
            arg_write(u, p, q, l->node[i]);
    }
    return true;
}

/* A kernel over operands of the local type, made of a row of the table. */
static void row_kernel(Unit *u, Program *p, DpcStep *q, Op op, Type t)
{
    Graph *g = graph_new(u->arena, NULL);
    memset(t.split, 0, sizeof t.split);
    t.partial = 0;
    Ref a = emit_typed(g, OP_input, NULL, t, NULL, 0, "a", "");
    Ref b = emit_typed(g, OP_input, NULL, t, NULL, 0, "b", "");
    Ref c = EMIT(g, op, NULL, "", a, b);
    graph_out(g, "c", c);
    Kernel *k = kernel_of(u, g, &c, 1, NULL);
    q->kind = DPC_STEP_KERNEL;
    q->call = unit_kernel(u, k);
    if (is_flat(u, k))
        flat_pos(u, p, &k, 1);
}

/* all_reduce over turns: the first turn is copied, later ones are folded in. */
static bool time_step(Unit *u, Program *p, DpcStep *q, const Launch *l)
{
    const Graph *g = p->g;
    Ref r = l->node[0];
    const Node *n = &g->node[r];
    if (n->op != OP_all_reduce
        || !(n->attr.axes & mesh_axes(&g->mesh, TIME)))
        return false;
    Fold fold = g->node[n->in[0]].type.fold;
    if (turn_instance(&g->mesh, n->attr.axes, q->turn) == 0) {
        q->kind = DPC_STEP_COPY;
        arg_read(u, p, q, n->in[0]);
        arg_write(u, p, q, r);
        return true;
    }
    row_kernel(u, p, q, fold == FOLD_MAX ? OP_maximum
               : fold == FOLD_LSE ? OP_lse_add : OP_add,
               type_local(&g->mesh, &n->type));
    arg_read(u, p, q, n->in[0]);
    arg_read(u, p, q, r);
    arg_write(u, p, q, r);
    return true;
}

static bool copy_step(Unit *u, Program *p, DpcStep *q, const Launch *l)
{
    const Graph *g = p->g;
    Ref r = l->node[0];
    const Node *n = &g->node[r];
    if (n->op != OP_copy || node_is_view(&g->node[n->in[0]])
        || g->node[n->in[0]].layout != n->layout)
        return false;
    q->kind = DPC_STEP_COPY;
    arg_read(u, p, q, n->in[0]);
    arg_write(u, p, q, r);
    return true;
}

/* ---- programs ---- */

uint32_t unit_node(Unit *u, Program *p, Ref r)
{
    const Node *n = &p->g->node[r];
    if (p->node_of[r])
        return p->node_of[r] - 1;
    GROW(u->arena, p->node, p->nnode, p->nodecap);
    p->node[p->nnode] = (DpcNode){ n->name, ops[n->op].name, n->loc };
    p->node_of[r] = ++p->nnode;
    return p->nnode - 1;
}

/* A step of that name: of the last node that it computes. */
static void step_push(Unit *u, Program *p, DpcStep q, Ref last)
{
    q.node = unit_node(u, p, last);
    q.narg = p->narg - q.arg;
    q.npos = p->npos - q.pos;
    GROW(u->arena, p->step, p->nstep, p->stepcap);
    GROW(u->arena, p->watch, p->nstep, p->watchcap);
    p->step[p->nstep++] = q;
}

static DpcStep step_begin(Program *p, const Step *s)
{
    p->scratch_at = s->scratch_at;
    return (DpcStep){ .stream = (uint8_t)s->stream, .turn = (uint16_t)s->turn,
                      .event = -1, .arg = p->narg, .pos = p->npos,
                      .wait = p->nwait };
}

static bool library_step(Unit *u, Program *p, DpcStep *q, uint32_t launch)
{
    const Launch *l = &p->g->sched->launch[launch];
    const Node *n = &p->g->node[l->node[0]];
    bool alone = l->n == 1 && n->kernel < 0;
    return coll_step(u, p, q, launch)
        || ((alone || library_product(n)) && call_step(u, p, q, l))
        || (alone && (time_step(u, p, q, l) || copy_step(u, p, q, l)));
}

/* A bucket of kernels: one step, or one each. */
static void bucket_steps(Unit *u, Program *p, const Step *s, const Launch *l,
                         const uint32_t *uses)
{
    Kernel **k = alloc(u->arena, (size_t)l->n * sizeof *k);
    uint32_t *row = alloc(u->arena, (size_t)l->n * sizeof *row);
    int n = bucket_kernels(u, p, l, uses, k, row);
    DpcStep q = step_begin(p, s);
    if (twin_step(u, p, &q, k, row, n)) {
        step_push(u, p, q, l->node[l->n - 1]);
        return;
    }
    for (int i = 0; i < n; i++) {
        q = step_begin(p, s);
        q.kind = DPC_STEP_KERNEL;
        q.call = row[i];
        unit_watch(u, p, q.call, &k[i], 1);
        kernel_args(u, p, &q, k[i]);
        if (is_flat(u, k[i]))
            flat_pos(u, p, &k[i], 1);
        step_push(u, p, q, k[i]->out[k[i]->nout - 1]);
    }
}

static void step_add(Unit *u, Program *p, const Step *s, const uint32_t *uses)
{
    const Launch *l = &p->g->sched->launch[s->launch];
    const Node *n = &p->g->node[l->node[0]];
    uint32_t first = p->nstep;
    DpcStep q = step_begin(p, s);
    if (n->bucket >= 0 && n->kernel >= 0) {
        bucket_steps(u, p, s, l, uses);
    } else {
        if (!library_step(u, p, &q, s->launch))
            kernel_step(u, p, &q, l, uses);
        step_push(u, p, q, l->node[l->n - 1]);
    }
    p->step[first].wait = p->nwait, p->step[first].nwait = s->nwait;
    for (uint32_t i = 0; i < s->nwait; i++) {
        GROW(u->arena, p->wait, p->nwait, p->waitcap);
        p->wait[p->nwait++] = (uint32_t)s->wait[i];
    }
    p->step[p->nstep - 1].event = s->event;
}

/* A port sees all instances of its value, which lie evenly. */
static void port_add(Unit *u, Program *p, uint32_t leaf, Ref r)
{
    Ref root = view_root(p->g, r);
    DpcBuf all = buf_row(u, p->g, root, 0);
    all.slots = (uint16_t)p->g->sched->buf[p->g->sched->buf[root].root].slots;
    uint32_t buf = buf_add(u, p, all);
    GROW(u->arena, p->port, p->nport, p->portcap);
    p->port[p->nport++] = (DpcPort){ leaf, buf };
}

static void held_add(Unit *u, Program *p, uint32_t leaf, Ref r)
{
    const Graph *g = p->g;
    Ref after = r;
    for (uint32_t i = 0; i < g->nset; i++)
        if (g->set[i].leaf == r)
            after = view_root(g, g->set[i].value);
    GROW(u->arena, p->held, p->nheld, p->heldcap);
    p->held[p->nheld++] = (DpcHeld){ leaf, r + 1, after + 1 };
}

static void ports(Unit *u, Program *p)
{
    const Graph *g = p->g;
    for (Ref r = 0; r < g->n; r++) {
        int kind = unit_leaf_kind(g->node[r].op);
        if (kind < 0)
            continue;
        uint32_t leaf = unit_leaf(u, kind, g->node[r].name, g, r);
        if (kind == DPC_INPUT)
            unit_index(g, r, &u->leaf[leaf], u->arena);
        if (kind == DPC_INPUT || kind == DPC_SCALAR)
            port_add(u, p, leaf, r);
        else
            held_add(u, p, leaf, r);
        if (kind == DPC_INPUT && g->node[r].type.ndim
            && g->node[r].type.dim[0] > p->batch)
            p->batch = g->node[r].type.dim[0];
    }
    for (uint32_t i = 0; i < g->nout; i++)
        port_add(u, p, unit_leaf(u, DPC_OUTPUT, g->out[i].name, g,
                                g->out[i].ref), g->out[i].ref);
}

static void program_new(Unit *u, Program *p, const Graph *g)
{
    p->g = g;
    p->turns = graph_turns(g, mesh_axes(&g->mesh, TIME));
    p->buf_of = alloc(u->arena, ((size_t)g->n * (size_t)p->turns + 1)
                      * sizeof *p->buf_of);
    p->node_of = alloc(u->arena, (g->n + 1) * sizeof *p->node_of);
    p->watched_at = alloc(u->arena, (g->n + 1) * sizeof *p->watched_at);
    p->call_of = alloc(u->arena, (g->n + 1) * sizeof *p->call_of);
    p->coll_of = alloc(u->arena, (g->sched->nlaunch + 1)
                       * sizeof *p->coll_of);
    uint32_t *uses = graph_uses(g, u->arena);
    ports(u, p);
    for (uint32_t i = 0; i < g->sched->nstep; i++)
        step_add(u, p, &g->sched->step[i], uses);
}

/* A role that reads no input runs as many samples as the others. */
static void batches_unite(Unit *u)
{
    for (int i = 0; i < u->nprogram; i++)
        for (int k = 0; k < u->nprogram; k++)
            if (strcmp(u->program[i].g->entry, u->program[k].g->entry) == 0
                && u->program[k].batch > u->program[i].batch)
                u->program[i].batch = u->program[k].batch;
}

Unit *unit_new(Graph *const *entry, int n, bool cuda, Arena *a)
{
    Unit *u = alloc(a, sizeof *u);
    u->arena = a;
    u->cuda = cuda;
    u->program = alloc(a, (size_t)n * sizeof *u->program);
    u->nprogram = n;
    u->mesh = &entry[0]->mesh;
    u->nrole = (int)mesh_size(u->mesh, mesh_axes(u->mesh, STAGE));
    u->leaves = alloc(a, (size_t)u->nrole * sizeof *u->leaves);
    u->host_leaves = alloc(a, (size_t)u->nrole * sizeof *u->host_leaves);
    for (int i = 0; i < n; i++)
        unit_leaves_add(u, entry[i]);
    unit_leaves_place(u);
    for (int i = 0; i < n; i++)
        program_new(u, &u->program[i], entry[i]);
    batches_unite(u);
    return u;
}
