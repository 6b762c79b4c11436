/* host_column.c -- column folds of groups side by side.
 *
 * A fold over pictures and places that keeps channels, of operands that also
 * know things by group of channels: the backward pass of a group norm.  One
 * pass over memory for each group would read a part of each cache line; so
 * the chunks of the cut loop stand outside, and all lanes of a point are side
 * by side (see host_lane.c). */
#include "codegen/host_lane.h"

typedef struct Column {
    Lanes *l;
    const Loop *loop;
    int nouter, outer[KATOM];             /* places: neither rows nor lanes */
    int nrow, *row, nbody, *body;         /* values, by where they stand */
    int64_t lanes;
} Column;

static void column_split(Column *c)
{
    const Loop *p = c->loop;
    const Kernel *k = c->l->k;
    size_t n = (size_t)(p->npre + p->nvalue) + 1;
    c->row = alloc(k->arena, n * sizeof *c->row);
    c->body = alloc(k->arena, n * sizeof *c->body);
    for (int i = 0; i < p->npre + p->nvalue; i++) {
        int v = i < p->npre ? p->pre[i] : p->value[i - p->npre];
        if (lane_of_row(c->l, v))
            c->row[c->nrow++] = v;
        else
            c->body[c->nbody++] = v;
    }
}

static bool column_find(Lanes *l)
{
    const Kernel *k = l->k;
    Atoms in = k->loop[0].atoms, cut = 1u << k->cut;
    if (k->lane < 0)
        return false;
    l->level = (k->outer & ~(1u << k->lane)) | (in == cut ? 0 : cut);
    for (int a = 0; a < k->natom; a++) {
        double tasks = kernel_points(k, k->outer & ~(1u << a)
                                     & ~(1u << k->lane)) * (double)k->chunks;
        if ((k->outer >> a & 1) && a != k->lane && tasks >= LANE_TASKS
            && lane_pair(l, a, k->extent[k->lane])) {
            l->dense = l->dense_of[0] = k->lane;
            if (lane_joins(l, k->loop) && lane_walks(l, k->loop))
                return true;
        }
    }
    return false;
}

/* Accumulators: [outer without rows and lanes][chunks][folds][lanes]. */
static void column_acc(Text *t, const Column *c, int depth)
{
    const Kernel *k = c->l->k;
    text_indent(t, depth);
    text_add(t, "float *DPC_RESTRICT acc = (float *)DPC_ENV.scratch + (");
    host_place(t, k, c->outer, c->nouter);
    text_add(t, ") * %lldL;\n",
             (long long)(k->chunks * c->loop->nfold * c->lanes));
}

static void column_outer(Text *t, const Column *c)
{
    for (int i = 0; i < c->nouter; i++) {
        host_loop(t, c->l->k, c->outer[i], 1 + i);
        text_add(t, "\n");
    }
}

static void column_cut(Text *t, const Column *c, int depth)
{
    const Kernel *k = c->l->k;
    long long n = (long long)k->extent[k->cut], m = (long long)k->chunks;
    int at = kernel_place(k, k->cut);
    text_indent(t, depth);
    text_add(t, "for (long i%d = c * %lldL / %lldL; i%d < (c + 1) * %lldL "
             "/ %lldL; i%d++)", at, n, m, at, n, m, at);
}

static void column_body(Text *t, const Column *c, int depth)
{
    Lanes *l = c->l;
    const Loop *p = c->loop;
    lane_values(t, l, p, c->body, c->nbody, depth);
    text_values(t, &l->body, c->body, c->nbody, depth);
    for (int i = 0; i < p->nfold; i++) {
        char acc[48], x[16];
        snprintf(acc, sizeof acc, "s%d[i%d]", p->fold[i],
                 kernel_place(l->k, l->dense));
        snprintf(x, sizeof x, "v%d", l->k->value[p->fold[i]].arg[0]);
        text_indent(t, depth);
        text_fold(t, &l->k->value[p->fold[i]], acc, x);
    }
    host_stores(t, &l->body, p->store, p->nstore, depth);
}

/* Sums of a turn of the cut loop are short ones, that is exact ones: they are
 * added to the chunk's behind it. */
static void turn_end(Text *t, const Column *c, int depth)
{
    text_line(t, depth, "for (long l = 0; l < %lldL; l++) {",
              (long long)c->lanes);
    for (int i = 0; i < c->loop->nfold; i++) {
        int v = c->loop->fold[i];
        char acc[48], x[16];
        snprintf(acc, sizeof acc, "part[%lldL + l]",
                 (long long)(i * c->lanes));
        snprintf(x, sizeof x, "s%d[l]", v);
        text_indent(t, depth + 1);
        text_fold(t, &c->l->k->value[v], acc, x);
    }
    lane_end(t, depth);
}

/* Loops around the lanes; the cut one around what a row knows, unless it is
 * the only one. */
static void column_loops(Text *t, const Column *c, int depth)
{
    Lanes *l = c->l;
    const Kernel *k = l->k;
    int at[KATOM];
    bool inside = l->level >> k->cut & 1;
    int n = host_places(k, c->loop->atoms & ~(1u << k->cut), at);
    if (!inside) {
        lane_learn(t, l, c->row, c->nrow, depth);
        lane_folds_begin(t, l, c->loop, depth);
    }
    column_cut(t, c, depth);
    text_add(t, inside ? " {\n" : "\n");
    if (inside) {
        lane_learn(t, l, c->row, c->nrow, depth + 1);
        lane_folds_begin(t, l, c->loop, depth + 1);
    }
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], depth + 1 + i);
        text_add(t, "\n");
    }
    text_add(t, "#pragma omp simd\n");
    host_loop(t, &l->body, kernel_place(k, l->dense), depth + 1 + n);
    text_add(t, " {\n");
    column_body(t, c, depth + 2 + n);
    lane_end(t, depth + 1 + n);
    turn_end(t, c, depth + inside);
    if (inside)
        lane_end(t, depth);
}

static void column_chunk(Text *t, const Column *c, int depth)
{
    const Loop *p = c->loop;
    column_acc(t, c, depth);
    text_line(t, depth, "float *DPC_RESTRICT part = acc + c * %lldL;",
              (long long)(p->nfold * c->lanes));
    for (int i = 0; i < c->nrow; i++)
        if (c->l->wanted[c->row[i]])
            lane_array(t, c->l, "x", c->row[i], c->lanes, depth);
    for (int i = 0; i < p->nfold; i++)
        lane_array(t, c->l, "s", p->fold[i], c->lanes, depth);
    text_line(t, depth, "for (long l = 0; l < %lldL; l++) {",
              (long long)c->lanes);
    for (int i = 0; i < p->nfold; i++)
        text_line(t, depth + 1, "part[%lldL + l] = %s;",
                  (long long)(i * c->lanes),
                  text_identity(&c->l->k->value[p->fold[i]]));
    lane_end(t, depth);
    column_loops(t, c, depth);
}

/* Folds over the chunks, then what stands behind the loops. */
static void column_end(Text *t, const Column *c, int depth)
{
    const Kernel *k = c->l->k;
    const Loop *p = c->loop;
    for (int i = 0; i < p->nfold; i++) {
        char name[16], x[96];
        int v = p->fold[i];
        snprintf(name, sizeof name, "v%d", v);
        snprintf(x, sizeof x, "acc[(c * %d + %d) * %lldL + i%d * %lldL + i%d]",
                 p->nfold, i, (long long)c->lanes,
                 kernel_place(k, c->l->group), (long long)c->l->length,
                 kernel_place(k, c->l->dense));
        text_indent(t, depth);
        text_add(t, "float %s = %s;\n", name, text_identity(&k->value[v]));
        text_indent(t, depth);
        text_add(t, "for (long c = 0; c < %lldL; c++)\n", (long long)k->chunks);
        text_indent(t, depth + 1);
        text_fold(t, &k->value[v], name, x);
    }
    text_values(t, k, p->pre, p->npre, depth);
    text_values(t, k, k->tail, k->ntail, depth);
    host_stores(t, k, k->tail_store, k->ntail_store, depth);
}

bool host_lane_columns(Text *t, const Kernel *k)
{
    Lanes l = lane_new(k);
    Column c = { .l = &l, .loop = k->loop };
    if (!column_find(&l))
        return false;
    lane_body(&l);
    c.lanes = l.rows * l.length;
    c.nouter = host_places(k, k->outer & ~(1u << l.group) & ~(1u << l.dense),
                           c.outer);
    column_split(&c);
    lane_want(&l, c.body, c.nbody, c.loop);
    int depth = 1 + c.nouter;
    host_parallel(t, k, depth, false);
    column_outer(t, &c);
    text_indent(t, depth);
    text_add(t, "for (long c = 0; c < %lldL; c++) {\n", (long long)k->chunks);
    column_chunk(t, &c, depth + 1);
    lane_end(t, depth);
    column_outer(t, &c);
    text_indent(t, depth);
    text_add(t, "{\n");
    column_acc(t, &c, depth + 1);
    lane_rows(t, &l, depth + 1);
    host_loop(t, k, kernel_place(k, l.dense), depth + 2);
    text_add(t, " {\n");
    column_end(t, &c, depth + 3);
    for (int d = depth + 2; d >= depth; d--)
        lane_end(t, d);
    return true;
}
