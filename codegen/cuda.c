/* cuda.c -- a kernel as CUDA C, from the same description as host.c.
 *
 * A map has a thread a point; a row is a block's, its folds a tree over the
 * block's threads, or a thread's when it is short; a row's tables are shared
 * memory, and each has a pass of its own over the row, a thread or a tree for
 * each of its sums, whichever reads neighbours; a column fold has a thread
 * (or, down to one number, a block) a chunk, and a second launch, NAME_end,
 * that adds the chunks in order.  No atomics: results do not depend on who
 * comes first.  Indices have 64 bits. */
#include "codegen/attention.h"

enum { BLOCK = 256, GRID = 1 << 16, SHORT = 64 };

static int64_t points(const Kernel *k, Atoms a)
{
    return (int64_t)kernel_points(k, a);
}

/* "const long i2 = w / 12L % 5L;" for the atoms of a set, from their index. */
static void unflatten(Text *t, const Kernel *k, Atoms set, const char *from,
                      int depth)
{
    int64_t below = 1, all = points(k, set);
    for (int i = k->norder; i-- > 0;) {
        int a = k->order[i];
        if (!(set >> a & 1))
            continue;
        text_indent(t, depth);
        text_add(t, "const long i%d = %s", i, from);
        if (below > 1)
            text_add(t, " / %lldL", (long long)below);
        below *= k->extent[a];
        if (below < all)
            text_add(t, " %% %lldL", (long long)k->extent[a]);
        text_add(t, ";\n");
    }
}

/* A loop over n things shared by all threads of the grid, or by blocks. */
static void grid_loop(Text *t, const char *i, int64_t n, bool blocks)
{
    if (blocks)
        text_add(t, "    for (long %s = DPC_AT; %s < %lldL; %s += DPC_GRID) {\n",
                 i, i, (long long)n, i);
    else
        text_add(t, "    for (long %s = DPC_AT * DPC_BLOCK + DPC_THREAD; "
                 "%s < %lldL; %s += DPC_GRID * DPC_BLOCK) {\n", i, i,
                 (long long)n, i);
}

static int64_t grid_of(int64_t n, bool blocks)
{
    int64_t g = blocks ? n : (n + BLOCK - 1) / BLOCK;
    return g < 1 ? 1 : g > GRID ? GRID : g;
}

static void stores(Text *t, const Kernel *k, const int *s, int n, int depth)
{
    for (int i = 0; i < n; i++)
        text_store(t, k, &k->store[s[i]], depth);
}

/* Folds of a loop in one pass: those that keep these of its atoms. */
static bool of_pass(const Kernel *k, const Loop *l, int fold, Atoms kept)
{
    return (k->value[l->fold[fold]].atoms & ~k->outer) == kept;
}

static void identities(Text *t, const Kernel *k, const Loop *l, Atoms kept,
                       int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        if (!of_pass(k, l, i, kept))
            continue;
        text_indent(t, depth);
        text_add(t, "float v%d = %s;\n", l->fold[i],
                 text_identity(&k->value[l->fold[i]]));
    }
}

static void fold_lines(Text *t, const Kernel *k, const Loop *l, Atoms kept,
                       int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        const Value *v = &k->value[l->fold[i]];
        char acc[16], x[16];
        if (!of_pass(k, l, i, kept))
            continue;
        snprintf(acc, sizeof acc, "v%d", l->fold[i]);
        snprintf(x, sizeof x, "v%d", v->arg[0]);
        text_indent(t, depth);
        text_fold(t, v, acc, x);
    }
}

static void block_folds(Text *t, const Kernel *k, const Loop *l, Atoms kept,
                        int depth)
{
    for (int i = 0; i < l->nfold; i++) {
        if (!of_pass(k, l, i, kept))
            continue;
        text_indent(t, depth);
        text_add(t, "v%d = dpc_block_fold(v%d, %d);\n", l->fold[i],
                 l->fold[i], k->value[l->fold[i]].fold == FOLD_MAX);
    }
}

/* What a point of the loop needs, once its indices are known. */
static void loop_values(Text *t, const Kernel *k, const Loop *l, int depth)
{
    for (int i = 0; i < l->nkept; i++) {
        text_indent(t, depth);
        text_add(t, "const float v%d = ", l->kept[i]);
        text_table(t, k, l->kept[i]);
        text_add(t, ";\n");
    }
    text_values(t, k, l->value, l->nvalue, depth);
}

static void loop_body(Text *t, const Kernel *k, const Loop *l, int depth)
{
    unflatten(t, k, l->atoms, "u", depth);
    loop_values(t, k, l, depth);
    fold_lines(t, k, l, 0, depth);
    stores(t, k, l->store, l->nstore, depth);
}

/* ---- maps and rows ---- */

static void map(Text *t, const Kernel *k, KernelText *r)
{
    int64_t n = points(k, k->outer);
    r->grid = grid_of(n, false);
    grid_loop(t, "w", n, false);
    unflatten(t, k, k->outer, "w", 2);
    text_values(t, k, k->tail, k->ntail, 2);
    stores(t, k, k->tail_store, k->ntail_store, 2);
    text_add(t, "    }\n");
}

/* The next set that a table of the loop keeps, larger than `last`; 0. */
static Atoms next_tables(const Kernel *k, const Loop *l, Atoms last)
{
    Atoms found = 0;
    for (int i = 0; i < l->nfold; i++) {
        Atoms kept = k->value[l->fold[i]].atoms & ~k->outer;
        if (kept > last && (!found || kept < found))
            found = kept;
    }
    return found;
}

static void table_store(Text *t, const Kernel *k, const Loop *l, Atoms kept,
                        bool tree)
{
    if (tree)
        text_add(t, "            if (DPC_THREAD == 0) {\n");
    for (int i = 0; i < l->nfold; i++)
        if (of_pass(k, l, i, kept))
            text_add(t, "            %st%d[q] = v%d;\n", tree ? "    " : "",
                     l->fold[i], l->fold[i]);
    if (tree)
        text_add(t, "            }\n");
}

/* Tables that keep the same loops, by a block: q is the place in them, u in
 * what is folded. */
static void table_pass(Text *t, const Kernel *k, const Loop *l, Atoms kept)
{
    enum { WARP = 32 };
    long long n = points(k, kept), over = points(k, l->atoms & ~kept);
    int last = k->order[k->norder - 1];
    bool tree = over >= WARP && (n < WARP || !(kept >> last & 1));
    text_add(t, tree
             ? "        for (long q = 0; q < %lldL; q++) {\n"
             : "        for (long q = DPC_THREAD; q < %lldL; q += DPC_BLOCK) {\n",
             n);
    unflatten(t, k, kept, "q", 3);
    identities(t, k, l, kept, 3);
    text_add(t, tree
             ? "            for (long u = DPC_THREAD; u < %lldL; u += DPC_BLOCK)"
               " {\n" : "            for (long u = 0; u < %lldL; u++) {\n", over);
    unflatten(t, k, l->atoms & ~kept, "u", 4);
    loop_values(t, k, l, 4);
    fold_lines(t, k, l, kept, 4);
    text_add(t, "            }\n");
    if (tree)
        block_folds(t, k, l, kept, 3);
    table_store(t, k, l, kept, tree);
    text_add(t, "        }\n        dpc_sync();\n");
}

static bool tables(Text *t, const Kernel *k, const char *how)
{
    bool any = false;
    for (int i = 0; i < k->nloop; i++)
        for (int f = 0; f < k->loop[i].nfold; f++) {
            int v = k->loop[i].fold[f];
            if (!kernel_tabled(k, v))
                continue;
            any = true;
            text_add(t, "        %sfloat t%d[%lld];\n", how, v,
                     (long long)points(k, k->value[v].atoms & ~k->outer));
        }
    return any;
}

static void block_loop(Text *t, const Kernel *k, const Loop *l)
{
    Atoms kept = 0;
    identities(t, k, l, 0, 2);
    text_add(t, "        for (long u = DPC_THREAD; u < %lldL; u += DPC_BLOCK) "
             "{\n", (long long)points(k, l->atoms));
    loop_body(t, k, l, 3);
    text_add(t, "        }\n");
    block_folds(t, k, l, 0, 2);
    while ((kept = next_tables(k, l, kept)))
        table_pass(t, k, l, kept);
}

/* A short row, by a thread: its tables are its own. */
static void thread_loop(Text *t, const Kernel *k, const Loop *l)
{
    identities(t, k, l, 0, 2);
    for (int i = 0; i < l->nfold; i++)
        if (kernel_tabled(k, l->fold[i]))
            text_add(t, "        for (long q = 0; q < %lldL; q++)\n"
                     "            t%d[q] = %s;\n",
                     (long long)points(k, k->value[l->fold[i]].atoms
                                       & ~k->outer),
                     l->fold[i], text_identity(&k->value[l->fold[i]]));
    text_add(t, "        for (long u = 0; u < %lldL; u++) {\n",
             (long long)points(k, l->atoms));
    loop_body(t, k, l, 3);
    for (int i = 0; i < l->nfold; i++) {
        Text acc = { .arena = t->arena };
        const Value *v = &k->value[l->fold[i]];
        if (!kernel_tabled(k, l->fold[i]))
            continue;
        text_table(&acc, k, l->fold[i]);
        text_indent(t, 3);
        text_fold(t, v, acc.p, fmt(t->arena, "v%d", v->arg[0]));
    }
    text_add(t, "        }\n");
}

static void rows(Text *t, const Kernel *k, KernelText *r)
{
    int64_t n = points(k, k->outer), row = 1;
    for (int i = 0; i < k->nloop; i++)
        if (points(k, k->loop[i].atoms) > row)
            row = points(k, k->loop[i].atoms);
    bool block = row > SHORT;
    r->grid = grid_of(n, block);
    grid_loop(t, "w", n, block);
    unflatten(t, k, k->outer, "w", 2);
    bool shared = tables(t, k, block ? "DPC_SHARED " : "") && block;
    for (int i = 0; i < k->nloop; i++) {
        text_values(t, k, k->loop[i].pre, k->loop[i].npre, 2);
        (block ? block_loop : thread_loop)(t, k, &k->loop[i]);
    }
    text_values(t, k, k->tail, k->ntail, 2);
    if (block && k->ntail_store)
        text_add(t, "        if (DPC_THREAD == 0) {\n");
    stores(t, k, k->tail_store, k->ntail_store, block ? 3 : 2);
    text_add(t, block && k->ntail_store ? "        }\n" : "");
    text_add(t, shared ? "        dpc_sync();\n    }\n" : "    }\n");
}

/* ---- columns ---- */

typedef struct Column {
    Atoms lane, rows;                     /* rows: outer without the lane */
    int64_t lanes, nrows, chunks, inner;
    int folds;
} Column;

static Column column_of(const Kernel *k)
{
    Atoms lane = k->lane < 0 ? 0 : 1u << k->lane;
    return (Column){ lane, k->outer & ~lane, points(k, lane),
                     points(k, k->outer & ~lane), k->chunks,
                     points(k, k->loop[0].atoms), k->loop[0].nfold };
}

/* Where fold f of (row, chunk, lane) lies in the scratch. */
static void partial(Text *t, const Column *c, int f, const char *row,
                    const char *chunk, const char *lane)
{
    text_add(t, "((float *)DPC_ENV.scratch)[((%s * %lldL + %s) * %dL + %dL)"
             " * %lldL + %s]", row, (long long)c->chunks, chunk, c->folds, f,
             (long long)c->lanes, lane);
}

static void column_chunks(Text *t, const Kernel *k, const Column *c,
                          KernelText *r)
{
    const Loop *l = k->loop;
    bool block = !c->lane;
    int64_t n = c->nrows * c->chunks * c->lanes;
    long long in = (long long)c->inner, ch = (long long)c->chunks;
    r->grid = grid_of(n, block);
    grid_loop(t, "w", n, block);
    text_add(t, "        const long lane = w %% %lldL, chunk = w / %lldL %% "
             "%lldL, row = w / %lldL;\n", (long long)c->lanes,
             (long long)c->lanes, ch, (long long)(c->lanes * c->chunks));
    unflatten(t, k, c->rows, "row", 2);
    unflatten(t, k, c->lane, "lane", 2);
    text_values(t, k, l->pre, l->npre, 2);
    identities(t, k, l, 0, 2);
    text_add(t, "        for (long u = chunk * %lldL / %lldL%s; u < (chunk + 1)"
             " * %lldL / %lldL; u += %s) {\n", in, ch,
             block ? " + DPC_THREAD" : "", in, ch, block ? "DPC_BLOCK" : "1");
    loop_body(t, k, l, 3);
    text_add(t, "        }\n");
    if (block)
        block_folds(t, k, l, 0, 2);
    for (int i = 0; i < l->nfold; i++) {
        text_add(t, block ? "        if (DPC_THREAD == 0)\n            "
                          : "        ");
        partial(t, c, i, "row", "chunk", "lane");
        text_add(t, " = v%d;\n", l->fold[i]);
    }
    text_add(t, "    }\n");
}

static void column_end(Text *t, const Kernel *k, const Column *c,
                       KernelText *r)
{
    const Loop *l = k->loop;
    int64_t n = c->nrows * c->lanes;
    r->grid2 = grid_of(n, false);
    grid_loop(t, "w", n, false);
    text_add(t, "        const long lane = w %% %lldL, row = w / %lldL;\n",
             (long long)c->lanes, (long long)c->lanes);
    unflatten(t, k, c->rows, "row", 2);
    unflatten(t, k, c->lane, "lane", 2);
    identities(t, k, l, 0, 2);
    text_add(t, "        for (long c = 0; c < %lldL; c++) {\n",
             (long long)c->chunks);
    for (int i = 0; i < l->nfold; i++) {
        Text x = { .arena = t->arena };
        char name[16];
        partial(&x, c, i, "row", "c", "lane");
        snprintf(name, sizeof name, "v%d", l->fold[i]);
        text_add(t, "            ");
        text_fold(t, &k->value[l->fold[i]], name, x.p);
    }
    text_add(t, "        }\n");
    text_values(t, k, l->pre, l->npre, 2);
    text_values(t, k, k->tail, k->ntail, 2);
    stores(t, k, k->tail_store, k->ntail_store, 2);
    text_add(t, "    }\n");
}

/* ---- put ---- */

/* A thread a column: rows are summed in the order of their indices. */
static void put(Text *t, const Kernel *k, KernelText *r)
{
    long long row = (long long)k->put_row;
    r->grid = grid_of(k->put_row, false);
    grid_loop(t, "d", k->put_row, false);
    text_add(t, "        for (long r = 0; r < %lldL; r++)\n"
             "            o0[r * %lldL + d] = 0;\n"
             "        for (long i = 0; i < %lldL; i++) {\n"
             "            const long r = (long)a1[i]%s;\n"
             "            if (r >= 0 && r < %lldL)\n"
             "                o0[r * %lldL + d] += ",
             (long long)k->put_rows, row, (long long)k->put_n,
             k->put_split ? " - DPC_ENV.pos[0]" : "", (long long)k->put_rows,
             row);
    text_add(t, k->value[0].dtype == BF16 ? "dpc_from_bf(a0[i * %lldL + d]);\n"
             : "a0[i * %lldL + d];\n", row);
    text_add(t, "        }\n    }\n");
}

static void head(Text *t, const Kernel *k, const char *suffix)
{
    text_add(t, "DPC_KERNEL @%s(void **p, const DpcEnv env)\n{\n", suffix);
    text_buffers(t, k);
    text_values(t, k, k->top, k->ntop, 1);
}

KernelText kernel_cuda(Arena *a, const Kernel *k)
{
    Text t = { .arena = a };
    KernelText r = { .block = BLOCK };
    text_tables(&t, k);
    head(&t, k, "");
    if (k->form == FORM_COLUMN) {
        Column c = column_of(k);
        column_chunks(&t, k, &c, &r);
        text_add(&t, "}\n");
        head(&t, k, "_end");
        column_end(&t, k, &c, &r);
    } else if (k->form == FORM_ROW)
        rows(&t, k, &r);
    else if (k->form == FORM_MAP)
        map(&t, k, &r);
    else if (k->form == FORM_ATTENTION)
        attention_cuda(&t, k, &r);
    else
        put(&t, k, &r);
    text_add(&t, "}\n");
    KernelText named = text_named(a, &t);
    r.name = named.name, r.text = named.text;
    return r;
}
