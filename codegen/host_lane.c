/* host_lane.c -- short rows side by side.
 *
 * A norm over groups of channels, or a softmax over few keys, folds rows that
 * are short where they are dense: 4 or 8 neighbours of each pixel.  When the
 * next outer loop continues where such a row ends (coefficient = the row's
 * length), both are one dense loop of lanes for the body: full vectors,
 * whole cache lines.  What a row knows once (means, scales) is spread over its
 * lanes, x5[lane]; a fold has a sum for each lane, s3[lane], added up by rows
 * behind the loop.  A column fold over channels whose operands also know
 * things by pixel group goes the same way: chunks of the cut loop outside, all
 * lanes of a point side by side, instead of one pass over memory a group. */
#include "codegen/host.h"

enum { SHORT = 32, MOST = 1024, TASKS = 16, STACK = 1 << 18 };

typedef struct Lanes {
    const Kernel *k;                      /* rows apart: for what a row knows */
    Kernel body;                          /* the same, one loop of lanes */
    int group, dense;                     /* atoms: rows; within a row */
    int64_t rows, length;
    Atoms level;                          /* of what a row knows */
    int64_t stack;                        /* bytes of buffers, so far */
    bool *known;                          /* value has an array x */
} Lanes;

/* ---- is it possible? ---- */

static bool joins(const Affine *a, const Lanes *l)
{
    return a->coef[l->group] == a->coef[l->dense] * l->length;
}

static bool value_joins(const Value *x, const Lanes *l)
{
    bool ok = joins(&x->at, l);
    for (int i = 0; i < x->nguard; i++)
        ok &= joins(&x->guard[i].of, l);
    for (int i = 0; i < x->nquot; i++)
        ok &= joins(&x->quot[i].of, l);
    return ok;
}

/* A value without lanes and without the loops inside of them. */
static bool of_row(const Lanes *l, int v)
{
    const Value *x = &l->k->value[v];
    return !(x->atoms & ~l->level) && !value_global(x);
}

static bool list_joins(const Lanes *l, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!of_row(l, list[i]) && !value_joins(&l->k->value[list[i]], l))
            return false;
    return true;
}

static bool pair_fits(Lanes *l, int group, int dense)
{
    const Kernel *k = l->k;
    l->group = group, l->dense = dense;
    l->rows = k->extent[group], l->length = k->extent[dense];
    if (l->rows < 2 || l->length >= SHORT || l->rows * l->length > MOST)
        return false;
    for (int i = 0; i < k->nloop; i++) {
        const Loop *p = &k->loop[i];
        if (!((p->atoms | k->outer) >> dense & 1)
            || !list_joins(l, p->pre, p->npre)
            || !list_joins(l, p->value, p->nvalue))
            return false;
        for (int s = 0; s < p->nstore; s++)
            if (!joins(&k->store[p->store[s]].at, l))
                return false;
    }
    return true;
}

/* Some value walks the lanes one by one. */
static bool dense_access(const Lanes *l)
{
    for (int i = 0; i < l->k->nloop; i++)
        for (int v = 0; v < l->k->loop[i].nvalue; v++) {
            const Value *x = &l->k->value[l->k->loop[i].value[v]];
            if (x->kind == VAL_LOAD && x->at.coef[l->dense] == 1
                && x->at.coef[l->group])
                return true;
        }
    return false;
}

static int64_t stack_bytes(const Lanes *l)
{
    double n = 0;
    for (int i = 0; i < l->k->nloop; i++) {
        const Loop *p = &l->k->loop[i];
        n += 4.0 * p->nsave * kernel_points(l->k, p->atoms)
            * (double)l->rows;
    }
    return (int64_t)n;
}

static bool lanes_find(Lanes *l)
{
    const Kernel *k = l->k;
    l->level = k->outer;
    for (int a = 0; a < k->natom; a++)
        for (int b = 0; b < k->natom; b++)
            if ((k->outer >> a & 1) && !(k->outer >> b & 1)
                && kernel_points(k, k->outer & ~(1u << a)) >= TASKS
                && pair_fits(l, a, b) && dense_access(l))
                return stack_bytes(l) <= STACK;
    return false;
}

/* ---- the body's view ---- */

static void forget(Affine *a, const Lanes *l)
{
    a->coef[l->group] = 0;
}

static void body_make(Lanes *l)
{
    const Kernel *k = l->k;
    Kernel *b = &l->body;
    *b = *k;
    b->value = alloc(k->arena, ((size_t)k->nvalue + 1) * sizeof *b->value);
    b->store = alloc(k->arena, ((size_t)k->nstore + 1) * sizeof *b->store);
    for (int v = 0; v < k->nvalue; v++) {
        Value *x = &b->value[v];
        *x = k->value[v];
        size_t ng = (size_t)x->nguard + 1, nq = (size_t)x->nquot + 1;
        x->guard = alloc(k->arena, ng * sizeof *x->guard);
        x->quot = alloc(k->arena, nq * sizeof *x->quot);
        forget(&x->at, l);
        for (int i = 0; i < x->nguard; i++) {
            x->guard[i] = k->value[v].guard[i];
            forget(&x->guard[i].of, l);
        }
        for (int i = 0; i < x->nquot; i++) {
            x->quot[i] = k->value[v].quot[i];
            forget(&x->quot[i].of, l);
        }
    }
    for (int s = 0; s < k->nstore; s++) {
        b->store[s] = k->store[s];
        forget(&b->store[s].at, l);
    }
    b->extent[l->dense] = l->rows * l->length;
    b->extent[l->group] = 1;
}

/* ---- what a row knows ---- */

static void array(Text *t, const Lanes *l, const char *letter, int v,
                  int64_t n, int depth)
{
    text_indent(t, depth);
    text_add(t, "%s %s%d[%lld] __attribute__((aligned(64)));\n",
             text_ctype(l->k->value[v].dtype), letter, v, (long long)n);
}

static void arrays(Text *t, const Lanes *l, int depth)
{
    int64_t n = l->rows * l->length;
    for (int i = 0; i < l->k->nloop; i++) {
        const Loop *p = &l->k->loop[i];
        for (int v = 0; v < p->npre; v++)
            array(t, l, "x", p->pre[v], n, depth);
        for (int v = 0; v < p->nfold; v++) {
            array(t, l, "x", p->fold[v], n, depth);
            array(t, l, "s", p->fold[v], n, depth);
        }
        for (int v = 0; v < p->nsave; v++)
            array(t, l, "t", p->save[v],
                  (int64_t)kernel_points(&l->body, p->atoms), depth);
    }
}

/* Brings what earlier rows' loops found back under its name, once. */
static void recall(Text *t, const Lanes *l, int v, bool *seen, int depth)
{
    if (v < 0 || seen[v] || !l->known[v])
        return;
    seen[v] = true;
    text_indent(t, depth);
    text_add(t, "const %s v%d = x%d[i%d * %lldL];\n",
             text_ctype(l->k->value[v].dtype), v, v,
             kernel_place(l->k, l->group), (long long)l->length);
}

static bool *none_seen(const Lanes *l)
{
    return alloc(l->k->arena, (size_t)l->k->nvalue + 1);
}

static void recall_operands(Text *t, const Lanes *l, const int *list, int n,
                            bool *seen, int depth)
{
    for (int i = 0; i < n; i++) {
        const Value *x = &l->k->value[list[i]];
        for (int a = 0; a < x->narg; a++)
            recall(t, l, x->arg[a], seen, depth);
        recall(t, l, x->row, seen, depth);
    }
}

static void spread(Text *t, Lanes *l, int v, int depth)
{
    text_indent(t, depth);
    text_add(t, "for (long l = 0; l < %lldL; l++)\n", (long long)l->length);
    text_indent(t, depth + 1);
    text_add(t, "x%d[i%d * %lldL + l] = v%d;\n", v,
             kernel_place(l->k, l->group), (long long)l->length, v);
}

static void each_row(Text *t, const Lanes *l, int depth)
{
    host_loop(t, l->k, kernel_place(l->k, l->group), depth);
    text_add(t, " {\n");
}

static void block_end(Text *t, int depth)
{
    text_indent(t, depth);
    text_add(t, "}\n");
}

static void learn(Text *t, Lanes *l, const int *v, int n, int depth)
{
    if (!n)
        return;
    each_row(t, l, depth);
    recall_operands(t, l, v, n, none_seen(l), depth + 1);
    text_values(t, l->k, v, n, depth + 1);
    for (int i = 0; i < n; i++)
        spread(t, l, v[i], depth + 1);
    for (int i = 0; i < n; i++)
        l->known[v[i]] = true;
    block_end(t, depth);
}

static void behind(Text *t, Lanes *l, const Loop *p, int depth)
{
    if (!p->nfold)
        return;
    each_row(t, l, depth);
    for (int i = 0; i < p->nfold; i++) {
        int v = p->fold[i];
        char acc[16], x[48];
        snprintf(acc, sizeof acc, "v%d", v);
        snprintf(x, sizeof x, "s%d[i%d * %lldL + l]", v,
                 kernel_place(l->k, l->group), (long long)l->length);
        text_indent(t, depth + 1);
        text_add(t, "float %s = %s;\n", acc,
                 text_identity(&l->k->value[v]));
        text_indent(t, depth + 1);
        text_add(t, "for (long l = 0; l < %lldL; l++)\n",
                 (long long)l->length);
        text_indent(t, depth + 2);
        text_fold(t, &l->k->value[v], acc, x);
        spread(t, l, v, depth + 1);
        l->known[v] = true;
    }
    block_end(t, depth);
}

static void tail(Text *t, const Lanes *l, int depth)
{
    const Kernel *k = l->k;
    bool *seen = none_seen(l);
    if (!k->ntail && !k->ntail_store)
        return;
    each_row(t, l, depth);
    recall_operands(t, l, k->tail, k->ntail, seen, depth + 1);
    for (int i = 0; i < k->ntail_store; i++)
        recall(t, l, k->store[k->tail_store[i]].value, seen, depth + 1);
    text_values(t, k, k->tail, k->ntail, depth + 1);
    host_stores(t, k, k->tail_store, k->ntail_store, depth + 1);
    block_end(t, depth);
}

/* ---- a loop ---- */

static void lane_of(Text *t, const Lanes *l, int v, bool *seen, int depth)
{
    if (v < 0 || seen[v] || !of_row(l, v))
        return;
    seen[v] = true;
    text_indent(t, depth);
    text_add(t, "const %s v%d = x%d[i%d];\n",
             text_ctype(l->k->value[v].dtype), v, v,
             kernel_place(l->k, l->dense));
}

/* Values of the row that the body reads. */
static void lane_values(Text *t, const Lanes *l, const Loop *p,
                        const int *body, int nbody, int depth)
{
    bool *seen = none_seen(l);
    for (int i = 0; i < nbody; i++) {
        const Value *x = &l->k->value[body[i]];
        for (int a = 0; a < x->narg; a++)
            lane_of(t, l, x->arg[a], seen, depth);
        lane_of(t, l, x->row, seen, depth);
    }
    for (int i = 0; i < p->nfold; i++)
        lane_of(t, l, l->k->value[p->fold[i]].arg[0], seen, depth);
    for (int i = 0; i < p->nstore; i++)
        lane_of(t, l, l->k->store[p->store[i]].value, seen, depth);
}

static void buffers(Text *t, const Lanes *l, const Loop *p, const int *at,
                    int n, int depth, bool save)
{
    for (int i = 0; i < (save ? p->nsave : p->nkept); i++) {
        int v = save ? p->save[i] : p->kept[i];
        text_indent(t, depth);
        if (!save)
            text_add(t, "const %s v%d = ", text_ctype(l->k->value[v].dtype), v);
        text_add(t, "t%d[", v);
        host_place(t, &l->body, at, n);
        text_add(t, save ? "] = v%d;\n" : "];\n", v);
    }
}

static void folds(Text *t, const Lanes *l, const Loop *p, int depth)
{
    for (int i = 0; i < p->nfold; i++) {
        int v = p->fold[i];
        char acc[32], x[16];
        snprintf(acc, sizeof acc, "s%d[i%d]", v,
                 kernel_place(l->k, l->dense));
        snprintf(x, sizeof x, "v%d", l->k->value[v].arg[0]);
        text_indent(t, depth);
        text_fold(t, &l->k->value[v], acc, x);
    }
}

static void folds_begin(Text *t, const Lanes *l, const Loop *p, int depth)
{
    for (int i = 0; i < p->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "for (long l = 0; l < %lldL; l++)\n",
                 (long long)(l->rows * l->length));
        text_indent(t, depth + 1);
        text_add(t, "s%d[l] = %s;\n", p->fold[i],
                 text_identity(&l->k->value[p->fold[i]]));
    }
}

static void lane_loop(Text *t, Lanes *l, const Loop *p, int depth)
{
    int at[KATOM];
    int n = host_places(&l->body, p->atoms & ~(1u << l->dense), at);
    at[n++] = kernel_place(&l->body, l->dense);
    learn(t, l, p->pre, p->npre, depth);
    folds_begin(t, l, p, depth);
    for (int i = 0; i < n; i++) {
        if (i == n - 1)
            text_add(t, "#pragma omp simd\n");
        host_loop(t, &l->body, at[i], depth + i);
        text_add(t, i < n - 1 ? "\n" : " {\n");
    }
    lane_values(t, l, p, p->value, p->nvalue, depth + n);
    buffers(t, l, p, at, n, depth + n, false);
    text_values(t, &l->body, p->value, p->nvalue, depth + n);
    buffers(t, l, p, at, n, depth + n, true);
    folds(t, l, p, depth + n);
    host_stores(t, &l->body, p->store, p->nstore, depth + n);
    block_end(t, depth);
    behind(t, l, p, depth);
}

bool host_lanes(Text *t, const Kernel *k)
{
    Lanes l = { .k = k };
    int at[KATOM];
    if (!lanes_find(&l))
        return false;
    body_make(&l);
    l.known = none_seen(&l);
    int n = host_places(k, k->outer & ~(1u << l.group), at);
    text_values(t, k, k->top, k->ntop, 1);
    host_parallel(t, k, n, false);
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], 1 + i);
        text_add(t, i < n - 1 ? "\n" : " {\n");
    }
    arrays(t, &l, 1 + n);
    for (int i = 0; i < k->nloop; i++)
        lane_loop(t, &l, &k->loop[i], 1 + n);
    tail(t, &l, 1 + n);
    text_add(t, "    }\n");
    return true;
}

/* ---- columns ---- */

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
        if (of_row(c->l, v))
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
        if ((k->outer >> a & 1) && a != k->lane && tasks >= TASKS
            && pair_fits(l, a, k->lane) && dense_access(l))
            return true;
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
        snprintf(acc, sizeof acc, "part[%lldL + i%d]",
                 (long long)(i * c->lanes), kernel_place(l->k, l->dense));
        snprintf(x, sizeof x, "v%d", l->k->value[p->fold[i]].arg[0]);
        text_indent(t, depth);
        text_fold(t, &l->k->value[p->fold[i]], acc, x);
    }
    host_stores(t, &l->body, p->store, p->nstore, depth);
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
    if (!inside)
        learn(t, l, c->row, c->nrow, depth);
    column_cut(t, c, depth);
    text_add(t, inside ? " {\n" : "\n");
    if (inside)
        learn(t, l, c->row, c->nrow, depth + 1);
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], depth + 1 + i);
        text_add(t, "\n");
    }
    text_add(t, "#pragma omp simd\n");
    host_loop(t, &l->body, kernel_place(k, l->dense), depth + 1 + n);
    text_add(t, " {\n");
    column_body(t, c, depth + 2 + n);
    block_end(t, depth + 1 + n);
    if (inside)
        block_end(t, depth);
}

static void column_chunk(Text *t, const Column *c, int depth)
{
    const Loop *p = c->loop;
    column_acc(t, c, depth);
    text_indent(t, depth);
    text_add(t, "float *DPC_RESTRICT part = acc + c * %lldL;\n",
             (long long)(p->nfold * c->lanes));
    for (int i = 0; i < c->nrow; i++)
        array(t, c->l, "x", c->row[i], c->lanes, depth);
    for (int i = 0; i < p->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "for (long l = 0; l < %lldL; l++)\n", (long long)c->lanes);
        text_indent(t, depth + 1);
        text_add(t, "part[%lldL + l] = %s;\n", (long long)(i * c->lanes),
                 text_identity(&c->l->k->value[p->fold[i]]));
    }
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
    Lanes l = { .k = k };
    Column c = { .l = &l, .loop = k->loop };
    if (!column_find(&l))
        return false;
    body_make(&l);
    l.known = none_seen(&l);
    c.lanes = l.rows * l.length;
    c.nouter = host_places(k, k->outer & ~(1u << l.group) & ~(1u << l.dense),
                           c.outer);
    column_split(&c);
    int depth = 1 + c.nouter;
    host_parallel(t, k, depth, false);
    column_outer(t, &c);
    text_indent(t, depth);
    text_add(t, "for (long c = 0; c < %lldL; c++) {\n", (long long)k->chunks);
    column_chunk(t, &c, depth + 1);
    block_end(t, depth);
    column_outer(t, &c);
    text_indent(t, depth);
    text_add(t, "{\n");
    column_acc(t, &c, depth + 1);
    each_row(t, &l, depth + 1);
    host_loop(t, k, kernel_place(k, l.dense), depth + 2);
    text_add(t, " {\n");
    column_end(t, &c, depth + 3);
    for (int d = depth + 2; d >= depth; d--)
        block_end(t, d);
    return true;
}
