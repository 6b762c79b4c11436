/* host_row.c -- rows in C: a worker's loops one after the other.
 *
 * Folds that are the row's are scalars; a fold that keeps loops of the row is
 * a table t9[...].  Where such a loop is the innermost, lanes of a vector are
 * different sums; where it is not, the sum is a scalar, v9, inside the last of
 * the loops that it keeps, and goes back to its place behind it. */
#include "codegen/host.h"

/* ---- where a fold is summed ---- */

/* Loops of the nest up to the last that table v keeps. */
static int table_depth(const Nest *s, int v)
{
    Atoms kept = s->k->value[v].atoms;
    int n = s->n;
    while (n && !(kept >> s->k->order[s->at[n - 1]] & 1))
        n--;
    return n;
}

/* The tables that are scalars within loop `depth` of the nest: they begin
 * before it, or end behind it. */
static void tables_turn(Text *t, const Nest *s, int loop, bool end, int depth)
{
    for (int i = 0; i < s->l->nfold; i++) {
        int v = s->l->fold[i];
        if (!kernel_tabled(s->k, v) || table_depth(s, v) != loop)
            continue;
        text_indent(t, depth);
        if (!end)
            text_add(t, "float v%d = ", v);
        text_table(t, s->k, v);
        text_add(t, end ? " = v%d;\n" : ";\n", v);
    }
}

static void tables(Text *t, const Kernel *k, const Loop *l, int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        const Value *x = &k->value[l->fold[i]];
        long long n = (long long)kernel_points(k, x->atoms & ~k->outer);
        if (!kernel_tabled(k, l->fold[i]))
            continue;
        text_indent(t, depth);
        text_add(t, "float t%d[%lld];\n", l->fold[i], n);
        text_indent(t, depth);
        text_add(t, "for (long i = 0; i < %lldL; i++)\n", n);
        text_indent(t, depth + 1);
        text_add(t, "t%d[i] = %s;\n", l->fold[i], text_identity(x));
    }
}

static void reduction(Text *t, const Nest *s)
{
    text_add(t, "#pragma omp simd");
    for (int i = 0; i < s->l->nfold; i++) {
        int v = s->l->fold[i];
        if (!kernel_tabled(s->k, v) || table_depth(s, v) < s->n)
            text_add(t, " reduction(%s:v%d)",
                     s->k->value[v].fold == FOLD_MAX ? "max" : "+", v);
    }
    text_add(t, "\n");
}

/* ---- scalar folds ---- */

/* Short inner loops: a sum for each of its places, added up behind, instead
 * of one that is added up at the end of each short loop. */
enum { LANES_MIN = 4, LANES_MAX = 64 };

static int64_t row_lanes(const Nest *s)
{
    int64_t last = s->n > 1 ? s->k->extent[s->k->order[s->at[s->n - 1]]] : 0;
    for (int i = 0; i < s->l->nfold; i++)
        if (kernel_tabled(s->k, s->l->fold[i])
            && table_depth(s, s->l->fold[i]) < s->n)
            return 0;
    return s->plain.nfold && last >= LANES_MIN && last <= LANES_MAX ? last : 0;
}

static void row_begin(Text *t, const Nest *s, int depth)
{
    for (int i = 0; i < s->plain.nfold; i++) {
        int v = s->plain.fold[i];
        const char *zero = text_identity(&s->k->value[v]);
        text_indent(t, depth);
        text_add(t, "float v%d = %s;\n", v, zero);
        if (!s->lanes)
            continue;
        text_indent(t, depth);
        text_add(t, "float s%d[%lld];\n", v, (long long)s->lanes);
        text_indent(t, depth);
        text_add(t, "for (long i = 0; i < %lldL; i++)\n", (long long)s->lanes);
        text_indent(t, depth + 1);
        text_add(t, "s%d[i] = %s;\n", v, zero);
    }
}

/* Into v9, into its sum for the place, s9[i3], or into its table. */
static void row_folds(Text *t, const Nest *s, int depth)
{
    for (int i = 0; i < s->l->nfold; i++) {
        int v = s->l->fold[i];
        const Value *x = &s->k->value[v];
        Text acc = { .arena = t->arena };
        if (!kernel_tabled(s->k, v) && s->lanes)
            text_add(&acc, "s%d[i%d]", v, s->at[s->n - 1]);
        else if (!kernel_tabled(s->k, v) || table_depth(s, v) < s->n)
            text_add(&acc, "v%d", v);
        else
            text_table(&acc, s->k, v);
        text_indent(t, depth);
        text_fold(t, x, acc.p, fmt(t->arena, "v%d", x->arg[0]));
    }
}

static void row_end(Text *t, const Nest *s, int depth)
{
    for (int i = 0; s->lanes && i < s->plain.nfold; i++) {
        char acc[16], x[16];
        int v = s->plain.fold[i];
        snprintf(acc, sizeof acc, "v%d", v);
        snprintf(x, sizeof x, "s%d[i]", v);
        text_indent(t, depth);
        text_add(t, "for (long i = 0; i < %lldL; i++)\n", (long long)s->lanes);
        text_indent(t, depth + 1);
        text_fold(t, &s->k->value[v], acc, x);
    }
}

/* ---- the nest ---- */

int host_nest_open(Text *t, const Nest *s, int depth)
{
    host_cascade_begin(t, s->k, &s->plain, s->v, depth);
    for (int i = 0; i < s->n; i++) {
        bool last = i == s->n - 1, block = s->v.block && last;
        if (block)
            host_block_loop(t, s->k, s->at[i], depth++);
        if (i == s->v.at)
            row_begin(t, s, depth);
        tables_turn(t, s, i, false, depth);
        if (last && !s->lanes)
            reduction(t, s);
        else if (last)
            text_add(t, "#pragma omp simd\n");
        host_nest_loop(t, s->k, s->at[i], block, depth++);
        text_add(t, " {\n");
    }
    return depth;
}

static void brace(Text *t, int depth)
{
    text_indent(t, depth);
    text_add(t, "}\n");
}

void host_nest_close(Text *t, const Nest *s, int outside)
{
    int depth = outside + s->n + s->v.block;
    for (int i = s->n; i-- > 0;) {
        brace(t, --depth);
        tables_turn(t, s, i, true, depth);
        if (i == s->v.at) {
            row_end(t, s, depth);
            host_cascade_add(t, s->k, &s->plain, depth);
        }
        if (s->v.block && i == s->n - 1)
            brace(t, --depth);
    }
    host_cascade_end(t, &s->plain, s->v, outside);
}

/* ---- rows ---- */

static void row_buffers(Text *t, const Kernel *k, const Loop *l, int depth)
{
    for (int i = 0; i < l->nsave; i++) {
        text_indent(t, depth);
        text_add(t, "%s t%d[%lld];\n",
                 text_ctype(k->value[l->save[i]].dtype), l->save[i],
                 (long long)kernel_points(k, l->atoms));
    }
    tables(t, k, l, depth);
}

static void row_kept(Text *t, const Nest *s, int depth)
{
    for (int i = 0; i < s->l->nkept; i++) {
        int v = s->l->kept[i];
        text_indent(t, depth);
        text_add(t, "const %s v%d = ", text_ctype(s->k->value[v].dtype), v);
        if (kernel_tabled(s->k, v)) {
            text_table(t, s->k, v);
            text_add(t, ";\n");
            continue;
        }
        text_add(t, "t%d[", v);
        host_place(t, s->k, s->at, s->n);
        text_add(t, "];\n");
    }
}

static void row_saves(Text *t, const Nest *s, int depth)
{
    for (int i = 0; i < s->l->nsave; i++) {
        text_indent(t, depth);
        text_add(t, "t%d[", s->l->save[i]);
        host_place(t, s->k, s->at, s->n);
        text_add(t, "] = v%d;\n", s->l->save[i]);
    }
}

static Nest nest_of(const Kernel *k, const Loop *l)
{
    Nest s = { .k = k, .l = l, .plain = *l };
    s.n = host_places(k, l->atoms, s.at);
    s.plain.fold = alloc(k->arena, ((size_t)l->nfold + 1) * sizeof(int));
    s.plain.nfold = 0;
    for (int i = 0; i < l->nfold; i++)
        if (!kernel_tabled(k, l->fold[i]))
            s.plain.fold[s.plain.nfold++] = l->fold[i];
    s.lanes = row_lanes(&s);
    s.v = host_cascade(k, &s.plain, s.at, s.n, s.lanes);
    return s;
}

static void row_loop(Text *t, const Kernel *k, const Loop *l, int depth)
{
    Nest s = nest_of(k, l);
    text_values(t, k, l->pre, l->npre, depth);
    row_buffers(t, k, l, depth);
    if (s.v.at < 0)
        row_begin(t, &s, depth);
    int in = host_nest_open(t, &s, depth);
    row_kept(t, &s, in);
    text_values(t, k, l->value, l->nvalue, in);
    row_saves(t, &s, in);
    row_folds(t, &s, in);
    host_stores(t, k, l->store, l->nstore, in);
    host_nest_close(t, &s, depth);
    if (s.v.at < 0)
        row_end(t, &s, depth);
}

void host_rows(Text *t, const Kernel *given)
{
    const Kernel *k = kernel_keep(given);
    int at[KATOM], n = host_places(k, k->outer, at);
    if (host_lanes(t, k))
        return;
    text_values(t, k, k->top, k->ntop, 1);
    if (n)
        host_parallel(t, k, n, false);
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], 1 + i);
        text_add(t, i < n - 1 ? "\n" : " {\n");
    }
    for (int i = 0; i < k->nloop; i++)
        row_loop(t, k, &k->loop[i], 1 + n);
    text_values(t, k, k->tail, k->ntail, 1 + n);
    host_stores(t, k, k->tail_store, k->ntail_store, 1 + n);
    if (n)
        brace(t, n);
}
