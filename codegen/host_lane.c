/* host_lane.c -- short rows side by side.
 *
 * A norm over groups of channels, or a softmax over few keys, folds rows that
 * are short where they are dense: 4 or 8 neighbours of each pixel.  When the
 * next outer loop continues where such a row ends (coefficient = the row's
 * length), both are one dense loop of lanes for the body: full vectors,
 * whole cache lines.  What a row knows once (means, scales) is spread over its
 * lanes, x5[lane]; a fold has a sum for each lane, s3[lane], added up by rows
 * behind the loop, unless it is a table of just the lanes. */
#include "codegen/host_lane.h"

enum { SHORT = 128, MOST = 1024, STACK = 1 << 18 };

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
bool lane_of_row(const Lanes *l, int v)
{
    const Value *x = &l->k->value[v];
    return !(x->atoms & ~l->level) && !value_global(x);
}

static bool list_joins(const Lanes *l, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!lane_of_row(l, list[i]) && !value_joins(&l->k->value[list[i]], l))
            return false;
    return true;
}

bool lane_joins(const Lanes *l, const Loop *p)
{
    for (int i = 0; i < p->nstore; i++)
        if (l->k->store[p->store[i]].cut
            || !joins(&l->k->store[p->store[i]].at, l))
            return false;
    return list_joins(l, p->pre, p->npre)
        && list_joins(l, p->value, p->nvalue);
}

/* Some value of the loop walks the lanes one by one. */
bool lane_walks(const Lanes *l, const Loop *p)
{
    for (int i = 0; i < p->nvalue; i++) {
        const Value *x = &l->k->value[p->value[i]];
        if (x->kind == VAL_LOAD && x->at.coef[l->dense] == 1
            && x->at.coef[l->group])
            return true;
    }
    return false;
}

bool lane_pair(Lanes *l, int group, int64_t length)
{
    l->group = group;
    l->rows = l->k->extent[group], l->length = length;
    return l->rows > 1 && length > 1 && length < SHORT
        && l->rows * length <= MOST;
}

/* Have the tables that a loop makes or reads a sum for each lane? */
static bool tables_join(const Lanes *l, const Loop *p)
{
    Atoms lane = 1u << l->dense;
    for (int i = 0; i < p->nfold + p->nkept; i++) {
        int v = i < p->nfold ? p->fold[i] : p->kept[i - p->nfold];
        if (kernel_tabled(l->k, v)
            && (l->k->value[v].atoms & ~l->k->outer) != lane)
            return false;
    }
    return true;
}

/* The loop's dense atom: it may go by another number than in its neighbours,
 * where nothing ties the two. */
static bool loop_find(Lanes *l, int loop, bool *walks)
{
    const Loop *p = &l->k->loop[loop];
    for (int a = 0; a < l->k->natom; a++) {
        l->dense = a;
        if (!(p->atoms >> a & 1) || l->k->extent[a] != l->length
            || !lane_joins(l, p) || !tables_join(l, p))
            continue;
        l->dense_of[loop] = a;
        *walks |= lane_walks(l, p);
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

static bool lanes_fit(Lanes *l, int group, int64_t length)
{
    bool walks = false;
    if (!lane_pair(l, group, length))
        return false;
    for (int i = 0; i < l->k->nloop; i++)
        if (!loop_find(l, i, &walks))
            return false;
    return walks && stack_bytes(l) <= STACK;
}

static bool lanes_find(Lanes *l)
{
    const Kernel *k = l->k;
    l->level = k->outer;
    for (int a = 0; a < k->natom; a++)
        for (int b = 0; b < k->natom; b++)
            if ((k->outer >> a & 1) && (k->loop[0].atoms >> b & 1)
                && kernel_points(k, k->outer & ~(1u << a)) >= LANE_TASKS
                && lanes_fit(l, a, k->extent[b]))
                return true;
    return false;
}

/* ---- the body's view ---- */

static void forget(Affine *a, const Lanes *l)
{
    a->coef[l->group] = 0;
}

void lane_body(Lanes *l)
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
    for (int i = 0; i < k->nloop; i++)
        b->extent[l->dense_of[i]] = l->rows * l->length;
    b->extent[l->group] = 1;
}

/* ---- what a row knows ---- */

void lane_array(Text *t, const Lanes *l, const char *letter, int v,
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
            if (l->wanted[p->pre[v]])
                lane_array(t, l, "x", p->pre[v], n, depth);
        for (int v = 0; v < p->nfold; v++) {
            if (!kernel_tabled(l->k, p->fold[v]) && l->wanted[p->fold[v]])
                lane_array(t, l, "x", p->fold[v], n, depth);
            lane_array(t, l, "s", p->fold[v], n, depth);
        }
        for (int v = 0; v < p->nsave; v++)
            lane_array(t, l, "t", p->save[v],
                  (int64_t)kernel_points(&l->body, p->atoms), depth);
    }
}

static bool *none_seen(const Lanes *l)
{
    return alloc(l->k->arena, (size_t)l->k->nvalue + 1);
}

static void want(Lanes *l, int v)
{
    if (v >= 0)
        l->wanted[v] = true;
}

/* All that a list reads, but what stands before it in the same rows: itself,
 * and folds of the loop before. */
static void want_operands(Lanes *l, const int *list, int n, const Loop *before)
{
    bool *own = none_seen(l);
    for (int i = 0; before && i < before->nfold; i++)
        own[before->fold[i]] = true;
    for (int i = 0; i < n; i++) {
        const Value *x = &l->k->value[list[i]];
        for (int a = 0; a < x->narg; a++)
            if (x->arg[a] >= 0 && !own[x->arg[a]])
                want(l, x->arg[a]);
        if (x->row >= 0 && !own[x->row])
            want(l, x->row);
        own[list[i]] = true;
    }
}

void lane_want(Lanes *l, const int *body, int n, const Loop *p)
{
    want_operands(l, body, n, NULL);
    for (int i = 0; i < p->nfold; i++)
        want(l, l->k->value[p->fold[i]].arg[0]);
    for (int i = 0; i < p->nstore; i++)
        want(l, l->k->store[p->store[i]].value);
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

/* One loop over a row's lanes gives each value wanted later its array. */
static void spread(Text *t, Lanes *l, const int *v, int n, int depth)
{
    int count = 0, row = kernel_place(l->k, l->group);
    for (int i = 0; i < n; i++) {
        l->known[v[i]] = true;
        if (!l->wanted[v[i]])
            continue;
        if (!count++)
            text_line(t, depth, "for (long l = 0; l < %lldL; l++) {",
                      (long long)l->length);
        text_line(t, depth + 1, "x%d[i%d * %lldL + l] = v%d;", v[i], row,
                  (long long)l->length, v[i]);
    }
    if (count)
        lane_end(t, depth);
}

void lane_rows(Text *t, const Lanes *l, int depth)
{
    host_loop(t, l->k, kernel_place(l->k, l->group), depth);
    text_add(t, " {\n");
}

void lane_end(Text *t, int depth)
{
    text_indent(t, depth);
    text_add(t, "}\n");
}

/* Values of a row, and what they need of earlier loops. */
static void learn(Text *t, Lanes *l, const int *v, int n, bool *seen,
                  int depth)
{
    recall_operands(t, l, v, n, seen, depth);
    text_values(t, l->k, v, n, depth);
    spread(t, l, v, n, depth);
}

void lane_learn(Text *t, Lanes *l, const int *v, int n, int depth)
{
    if (!n)
        return;
    lane_rows(t, l, depth);
    learn(t, l, v, n, none_seen(l), depth + 1);
    lane_end(t, depth);
}

/* Adds a row's lanes up: its folds, as scalars. */
static void row_folds(Text *t, const Lanes *l, const int *fold, int n,
                      int depth)
{
    const Kernel *k = l->k;
    if (!n)
        return;
    for (int i = 0; i < n; i++)
        text_line(t, depth, "float v%d = %s;", fold[i],
                  text_identity(&k->value[fold[i]]));
    text_line(t, depth, "for (long l = 0; l < %lldL; l++) {",
              (long long)l->length);
    for (int i = 0; i < n; i++) {
        char acc[16], x[48];
        snprintf(acc, sizeof acc, "v%d", fold[i]);
        snprintf(x, sizeof x, "s%d[i%d * %lldL + l]", fold[i],
                 kernel_place(k, l->group), (long long)l->length);
        text_indent(t, depth + 1);
        text_fold(t, &k->value[fold[i]], acc, x);
    }
    lane_end(t, depth);
}

/* Folds of the loop before that are no tables. */
static int row_folds_of(const Lanes *l, const Loop *p, int *fold)
{
    int n = 0;
    for (int i = 0; p && i < p->nfold; i++)
        if (!kernel_tabled(l->k, p->fold[i]))
            fold[n++] = p->fold[i];
    return n;
}

static void tail(Text *t, const Lanes *l, bool *seen, int depth)
{
    const Kernel *k = l->k;
    recall_operands(t, l, k->tail, k->ntail, seen, depth);
    for (int i = 0; i < k->ntail_store; i++)
        recall(t, l, k->store[k->tail_store[i]].value, seen, depth);
    text_values(t, k, k->tail, k->ntail, depth);
    host_stores(t, k, k->tail_store, k->ntail_store, depth);
}

/* Between two loops (before NULL: it is the first; after NULL: the last was):
 * what a row knows of the one before, and what the next begins with. */
static void between(Text *t, Lanes *l, const Loop *before, const Loop *after,
                    int depth)
{
    const Kernel *k = l->k;
    bool *seen = none_seen(l);
    int *fold = alloc(k->arena, ((size_t)k->nvalue + 1) * sizeof *fold);
    int n = row_folds_of(l, before, fold), npre = after ? after->npre : 0;
    bool last = !after && (k->ntail || k->ntail_store);
    for (int i = 0; i < n; i++)
        seen[fold[i]] = true;
    if (!last && !npre && !n)
        return;
    lane_rows(t, l, depth++);
    row_folds(t, l, fold, n, depth);
    spread(t, l, fold, n, depth);
    if (npre)
        learn(t, l, after->pre, npre, seen, depth);
    if (last)
        tail(t, l, seen, depth);
    lane_end(t, depth - 1);
}

/* ---- a loop ---- */

static void lane_of(Text *t, const Lanes *l, int v, bool *seen, int depth)
{
    bool table = v >= 0 && kernel_tabled(l->k, v);
    if (v < 0 || seen[v] || (!table && !lane_of_row(l, v)))
        return;
    seen[v] = true;
    text_indent(t, depth);
    text_add(t, "const %s v%d = %c%d[i%d];\n",
             text_ctype(l->k->value[v].dtype), v, table ? 's' : 'x', v,
             kernel_place(l->k, l->dense));
}

/* Values of the row, and tables, that the body reads. */
void lane_values(Text *t, const Lanes *l, const Loop *p,
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
        if (kernel_tabled(l->k, v))
            continue;
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

void lane_folds_begin(Text *t, const Lanes *l, const Loop *p, int depth)
{
    if (!p->nfold)
        return;
    text_line(t, depth, "for (long l = 0; l < %lldL; l++) {",
              (long long)(l->rows * l->length));
    for (int i = 0; i < p->nfold; i++)
        text_line(t, depth + 1, "s%d[l] = %s;", p->fold[i],
                  text_identity(&l->k->value[p->fold[i]]));
    lane_end(t, depth);
}

static void lane_loop(Text *t, const Lanes *l, const Loop *p, int depth)
{
    int at[KATOM];
    int n = host_places(&l->body, p->atoms & ~(1u << l->dense), at);
    at[n++] = kernel_place(&l->body, l->dense);
    lane_folds_begin(t, l, p, depth);
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
    lane_end(t, depth);
}

Lanes lane_new(const Kernel *k)
{
    return (Lanes){
        .k = k, .known = alloc(k->arena, (size_t)k->nvalue + 1),
        .wanted = alloc(k->arena, (size_t)k->nvalue + 1),
        .dense_of = alloc(k->arena, (size_t)(k->nloop + 1) * sizeof(int)),
    };
}

static void wants(Lanes *l)
{
    const Kernel *k = l->k;
    const Loop *before = NULL;
    for (int i = 0; i < k->nloop; before = &k->loop[i++]) {
        const Loop *p = &k->loop[i];
        want_operands(l, p->pre, p->npre, before);
        lane_want(l, p->value, p->nvalue, p);
    }
    want_operands(l, k->tail, k->ntail, before);
    for (int i = 0; i < k->ntail_store; i++)
        want(l, k->store[k->tail_store[i]].value);
}

bool host_lanes(Text *t, const Kernel *k)
{
    Lanes l = lane_new(k);
    int at[KATOM];
    if (!lanes_find(&l))
        return false;
    lane_body(&l);
    wants(&l);
    int n = host_places(k, k->outer & ~(1u << l.group), at);
    text_values(t, k, k->top, k->ntop, 1);
    host_parallel(t, k, n, false);
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], 1 + i);
        text_add(t, i < n - 1 ? "\n" : " {\n");
    }
    arrays(t, &l, 1 + n);
    const Loop *before = NULL;
    for (int i = 0; i < k->nloop; before = &k->loop[i++]) {
        between(t, &l, before, &k->loop[i], 1 + n);
        l.dense = l.dense_of[i];
        lane_loop(t, &l, &k->loop[i], 1 + n);
    }
    between(t, &l, before, NULL, 1 + n);
    text_add(t, "    }\n");
    return true;
}
