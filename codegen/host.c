/* host.c -- a kernel as C: OpenMP over the outer loops, SIMD inside.
 *
 * Work is cut in the same places for any number of threads, so results do
 * not depend on it.  A column fold has accumulators for each of a fixed
 * number of chunks, in env->scratch, and a second loop that adds them. */
#include "codegen/attention.h"
#include "codegen/host.h"
#include <math.h>

/* What the kernels of a step gain nothing from is off: of what -O1 does, it
 * takes a third of the compiler's time; -O2 would take half as much again.
 * Loops become vectors as they stand, so straight code need not be searched
 * for more (slp), and each value has a name, so few copies are found. */
const char host_flags[] =
    "-std=gnu11 -O1 -ftree-vectorize -march=native -fopenmp -fno-math-errno "
    "-fno-trapping-math -ffp-contract=off -fno-strict-aliasing "
    "-fno-tree-slp-vectorize -fno-tree-ccp -fno-tree-copy-prop "
    "-fno-tree-dominator-opts -fno-tree-sink -fno-tree-dse -fno-tree-pta "
    "-fno-ipa-modref -fno-ipa-pure-const -fno-if-conversion "
    "-fno-if-conversion2 -fira-region=one "
    "--param max-completely-peeled-insns=60";

enum { WORTH = 4 };                       /* atoms of a collapse */

bool kernel_open(const Kernel *k)
{
    int outer[KATOM];
    return (k->form == FORM_MAP || k->form == FORM_ROW) && k->norder > 1
        && (k->outer >> k->order[0] & 1)
        && host_places(k, k->outer, outer) > (k->form == FORM_MAP);
}

void host_open(Text *t, const Kernel *k)
{
    if (kernel_open(k))
        text_line(t, 1, "const long n0 = DPC_ENV.pos[%d];", k->npos);
}

void host_loop(Text *t, const Kernel *k, int at, int depth)
{
    text_indent(t, depth);
    if (!at && kernel_open(k)) {
        text_add(t, "for (long i0 = 0; i0 < n0; i0++)");
        return;
    }
    text_add(t, "for (long i%d = 0; i%d < %lldL; i%d++)", at, at,
             (long long)k->extent[k->order[at]], at);
}

/* Positions in the order of the atoms of a set. */
int host_places(const Kernel *k, Atoms set, int *out)
{
    int n = 0;
    for (int i = 0; i < k->norder; i++)
        if (set >> k->order[i] & 1)
            out[n++] = i;
    return n;
}

double host_points(const Kernel *k)
{
    double n = 0;
    if (k->form == FORM_ATTENTION)
        return k->flops;
    if (k->form == FORM_ROW && !k->outer) /* one row, one worker */
        return 0;
    for (int i = 0; i < k->nloop; i++)
        n += kernel_points(k, k->outer | k->loop[i].atoms)
            * (k->loop[i].nvalue + 1);
    return n + kernel_points(k, k->outer) * (k->ntail + 1);
}

void host_parallel(Text *t, const Kernel *k, int n, bool simd)
{
    if (host_points(k) < HOST_SHARED)
        text_add(t, simd ? "#pragma omp simd\n" : "");
    else if (n > 1)
        text_add(t, "#pragma omp parallel for collapse(%d) schedule(static)\n",
                 n);
    else
        text_add(t, "#pragma omp parallel for%s schedule(static)\n",
                 simd ? " simd" : "");
}

void host_stores(Text *t, const Kernel *k, const int *s, int n, int depth)
{
    for (int i = 0; i < n; i++)
        text_store(t, k, &k->store[s[i]], depth);
}

/* Place of a point of the loop in a buffer of the row. */
void host_place(Text *t, const Kernel *k, const int *at, int n)
{
    for (int i = 0; i < n; i++)
        text_add(t, "(");
    text_add(t, "0");
    for (int i = 0; i < n; i++)
        text_add(t, ") * %lldL + i%d", (long long)k->extent[k->order[at[i]]],
                 at[i]);
}

/* ---- maps ---- */

static bool is_datum(const Value *x, bool draws)
{
    return x->kind == VAL_RANDOM
        || (draws && x->kind == VAL_CONST && isfinite((float)x->num)
            && (x->dtype == F32 || x->dtype == BF16));
}

static bool has_draws(const Kernel *k)
{
    for (int v = 0; v < k->nvalue; v++)
        if (k->value[v].kind == VAL_RANDOM)
            return true;
    return false;
}

static int64_t datum(const Value *x)
{
    float f = (float)x->num;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return x->kind == VAL_RANDOM ? x->id : (int64_t)bits;
}

int kernel_data(const Kernel *k, int64_t *data)
{
    bool draws = has_draws(k);
    int n = 0;
    for (int v = 0; v < k->nvalue && n <= KDATA; v++)
        if (is_datum(&k->value[v], draws))
            data[n++] = datum(&k->value[v]);
    return n;
}

int kernel_datum(const Kernel *k, int v)
{
    bool draws = has_draws(k);
    int n = 0;
    for (int i = 0; i < v; i++)
        n += is_datum(&k->value[i], draws);
    return is_datum(&k->value[v], draws) ? n : -1;
}

bool kernel_flat(const Kernel *k)
{
    int64_t data[KDATA + 1];
    bool flat = k->form == FORM_MAP && k->norder == 1 && !k->npos && !k->ntable
        && !k->nloop;
    for (int v = 0; v < k->nvalue && flat; v++) {
        const Value *x = &k->value[v];
        flat = x->kind == VAL_CONST || x->kind == VAL_EXPR
            || (x->kind == VAL_RANDOM && !x->at.at
                && x->at.coef[k->order[0]] == 1)
            || (x->kind == VAL_LOAD && x->row < 0 && !x->nguard && !x->nquot
                && !x->at.at && (unsigned long)x->at.coef[k->order[0]] < 2);
    }
    for (int s = 0; s < k->nstore && flat; s++)
        flat = !k->store[s].cut && !k->store[s].at.at
            && k->store[s].at.coef[k->order[0]] == 1;
    return flat && kernel_data(k, data) <= KDATA;
}

void host_flat_member(Text *t, const Kernel *k)
{
    int64_t data[KDATA + 1];
    int ndata = kernel_data(k, data);
    for (int i = 0; i < k->nin + k->nout; i++) {
        bool in = i < k->nin;
        const char *type = text_memtype(in ? k->g->node[k->in[i]].type.dtype
                                           : k->out_dtype[i - k->nin]);
        text_add(t, "        %s%s *%s%c%d = p[c * %dL + %d];\n",
                 in ? "const " : "", type, text_restrict(k, i), in ? 'a' : 'o',
                 in ? i : i - k->nin, k->nin + k->nout, i);
    }
    if (ndata)
        text_add(t, "        const long *d = n + count + 1 + c * %dL;\n",
                 ndata);
}

/* All members in one parallel region: no thread waits between two of them.
 * Little work is done outside of one, where `omp for` is the whole loop: a
 * region that an `if` turns off would make a team of one, on the heap. */
static void flat(Text *t, const Kernel *given)
{
    static const char head[] = "void @%s(void *const *p, const DpcEnv *env)\n"
        "{\n    const long *n = DPC_ENV.pos + 1, count = DPC_ENV.pos[0];\n";
    Kernel list = *given;
    const Kernel *k = &list;
    list.list = true;
    text_add(t, "static ");
    text_add(t, head, "_all");
    text_add(t, "    for (long c = 0; c < count; c++) {\n");
    host_flat_member(t, k);
    text_values(t, k, k->top, k->ntop, 2);
    text_add(t, "#pragma omp for simd schedule(static) nowait\n"
             "        for (long i0 = 0; i0 < n[c]; i0++) {\n");
    text_values(t, k, k->tail, k->ntail, 3);
    host_stores(t, k, k->tail_store, k->ntail_store, 3);
    text_add(t, "        }\n    }\n}\n\n");
    text_add(t, head, "");
    text_add(t, "    if (n[count] * %dL < %dL) {\n"
             "        @_all(p, env);\n        return;\n    }\n"
             "#pragma omp parallel\n    @_all(p, env);\n}\n",
             k->ntail + 1, HOST_SHARED);
}

/* A vector of bytes has four times the places of one of floats: left alone,
 * the C compiler writes each operation four times over. */
static const char *simd_of(const Kernel *k)
{
    for (int v = 0; v < k->nvalue; v++)
        if (k->value[v].kind == VAL_LOAD && k->value[v].dtype == U8)
            return "#pragma omp simd simdlen(16)\n";
    return "#pragma omp simd\n";
}

static void map(Text *t, const Kernel *k)
{
    int at[KATOM], n = host_places(k, k->outer, at), depth = 1;
    if (n > 1)
        host_parallel(t, k, n - 1, false);
    for (int i = 0; i < n; i++) {
        if (i == n - 1 && n > 1)
            text_add(t, "%s", simd_of(k));
        else if (n == 1)
            host_parallel(t, k, 1, true);
        host_loop(t, k, at[i], depth++);
        text_add(t, i < n - 1 ? "\n" : " {\n");
    }
    text_values(t, k, k->tail, k->ntail, depth);
    host_stores(t, k, k->tail_store, k->ntail_store, depth);
    if (n)
        text_add(t, "    }\n");
}

/* ---- columns ---- */

/* "acc" of worker (outer without lane, chunk): its place in the scratch. */
static void partials(Text *t, const Kernel *k, const int *at, int n, int depth)
{
    int64_t lanes = k->lane < 0 ? 1 : k->extent[k->lane];
    text_indent(t, depth);
    text_add(t, "float *DPC_RESTRICT acc = (float *)DPC_ENV.scratch + (");
    host_place(t, k, at, n);
    text_add(t, ") * %lldL;\n",
             (long long)(k->chunks * kernel_folds(k) * lanes));
}

static void acc_name(const Kernel *k, int fold, int lane_at, char *s, size_t n)
{
    int64_t lanes = k->lane < 0 ? 1 : k->extent[k->lane];
    if (k->lane < 0)
        snprintf(s, n, "v%d", k->loop[0].fold[fold]);
    else
        snprintf(s, n, "part[%lldL + i%d]", (long long)(fold * lanes), lane_at);
}

static void column_begin(Text *t, const Kernel *k, int lane_at, int depth)
{
    const Loop *l = k->loop;
    for (int i = 0; i < l->nfold; i++) {
        char acc[40];
        const char *zero = text_identity(&k->value[l->fold[i]]);
        acc_name(k, i, lane_at, acc, sizeof acc);
        text_indent(t, depth);
        if (k->lane < 0) {
            text_add(t, "float %s = %s;\n", acc, zero);
            continue;
        }
        text_add(t, "for (long i%d = 0; i%d < %lldL; i%d++)\n", lane_at,
                 lane_at, (long long)k->extent[k->lane], lane_at);
        text_indent(t, depth + 1);
        text_add(t, "%s = %s;\n", acc, zero);
    }
}

/* One chunk: the loops, cut, with the lane innermost. */
static void column_chunk(Text *t, const Kernel *k, int lane_at, int depth)
{
    const Loop *l = k->loop;
    Nest s = { .k = k, .l = l, .plain = *l, .v = { -1, false } };
    s.n = host_places(k, l->atoms, s.at);
    s.lanes = k->lane < 0 ? 0 : k->extent[k->lane];
    if (s.lanes)
        s.at[s.n++] = lane_at;
    else
        s.v = host_cascade(k, l, s.at, s.n, 0);
    if (s.v.at < 0)
        column_begin(t, k, lane_at, depth);
    int in = host_nest_open(t, &s, depth);
    text_values(t, k, l->pre, l->npre, in);
    text_values(t, k, l->value, l->nvalue, in);
    for (int i = 0; i < l->nfold; i++) {
        char acc[40], x[16];
        acc_name(k, i, lane_at, acc, sizeof acc);
        snprintf(x, sizeof x, "v%d", k->value[l->fold[i]].arg[0]);
        text_indent(t, in);
        text_fold(t, &k->value[l->fold[i]], acc, x);
    }
    host_stores(t, k, l->store, l->nstore, in);
    host_nest_close(t, &s, depth);
    for (int i = 0; k->lane < 0 && i < l->nfold; i++) {
        text_indent(t, depth);
        text_add(t, "part[%d] = v%d;\n", i, l->fold[i]);
    }
}

/* Finish the folds over the chunks, then what stands behind the loops. */
static void column_end(Text *t, const Kernel *k, int lane_at, int depth)
{
    const Loop *l = k->loop;
    int64_t lanes = k->lane < 0 ? 1 : k->extent[k->lane];
    for (int i = 0; i < l->nfold; i++) {
        char name[16], x[80];
        snprintf(name, sizeof name, "v%d", l->fold[i]);
        text_indent(t, depth);
        text_add(t, "float %s = %s;\n", name,
                 text_identity(&k->value[l->fold[i]]));
        text_indent(t, depth);
        text_add(t, "for (long c = 0; c < %lldL; c++)\n", (long long)k->chunks);
        text_indent(t, depth + 1);
        if (k->lane < 0)
            snprintf(x, sizeof x, "acc[c * %dL + %d]", l->nfold, i);
        else
            snprintf(x, sizeof x, "acc[c * %lldL + %lldL + i%d]",
                     (long long)(l->nfold * lanes), (long long)(i * lanes),
                     lane_at);
        text_fold(t, &k->value[l->fold[i]], name, x);
    }
    text_values(t, k, l->pre, l->npre, depth);
    text_values(t, k, k->tail, k->ntail, depth);
    host_stores(t, k, k->tail_store, k->ntail_store, depth);
}

static void columns(Text *t, const Kernel *k)
{
    Atoms lane = k->lane < 0 ? 0 : 1u << k->lane;
    int at[KATOM], n = host_places(k, k->outer & ~lane, at), depth = 1;
    int lane_at = k->lane < 0 ? -1 : kernel_place(k, k->lane);
    int64_t each = kernel_folds(k) * (lane ? k->extent[k->lane] : 1);

    if (host_lane_columns(t, k))
        return;
    host_parallel(t, k, n + 1, false);
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], depth++);
        text_add(t, "\n");
    }
    text_indent(t, depth);
    text_add(t, "for (long c = 0; c < %lldL; c++) {\n", (long long)k->chunks);
    partials(t, k, at, n, depth + 1);
    text_indent(t, depth + 1);
    text_add(t, "float *DPC_RESTRICT part = acc + c * %lldL;\n",
             (long long)each);
    column_chunk(t, k, lane_at, depth + 1);
    text_indent(t, depth);
    text_add(t, "}\n");

    depth = 1;
    for (int i = 0; i < n; i++) {
        host_loop(t, k, at[i], depth++);
        text_add(t, " {\n");
    }
    partials(t, k, at, n, depth);
    if (lane) {
        host_loop(t, k, lane_at, depth++);
        text_add(t, " {\n");
    }
    column_end(t, k, lane_at, depth);
    while (depth-- > 1) {
        text_indent(t, depth);
        text_add(t, "}\n");
    }
}

/* ---- put ---- */

/* Rows are cut into fixed blocks; each looks at all indices in order, so a
 * row is summed in that order whatever the threads. */
static void put(Text *t, const Kernel *k)
{
    enum { BLOCKS = 16 };
    long long rows_ = (long long)k->put_rows, row = (long long)k->put_row;
    host_parallel(t, k, 1, false);
    text_add(t, "    for (long b = 0; b < %dL; b++) {\n"
             "        const long lo = b * %lldL / %d, hi = (b + 1) * %lldL / %d;\n"
             "        for (long i = lo * %lldL; i < hi * %lldL; i++)\n"
             "            o0[i] = 0;\n"
             "        for (long i = 0; i < %lldL; i++) {\n"
             "            const long r = (long)a1[i]%s;\n"
             "            if (r < lo || r >= hi)\n"
             "                continue;\n"
             "            for (long d = 0; d < %lldL; d++)\n"
             "                o0[r * %lldL + d] += ",
             BLOCKS, rows_, BLOCKS, rows_, BLOCKS, row, row,
             (long long)k->put_n, k->put_split ? " - DPC_ENV.pos[0]" : "", row,
             row);
    text_add(t, k->value[0].dtype == BF16 ? "dpc_from_bf(a0[i * %lldL + d]);\n"
             : "a0[i * %lldL + d];\n", row);
    text_add(t, "        }\n    }\n");
}

KernelText kernel_host(Arena *a, const Kernel *k)
{
    static void (*const form[])(Text *, const Kernel *) = {
        [FORM_MAP] = map, [FORM_ROW] = host_rows, [FORM_COLUMN] = columns,
        [FORM_PUT] = put, [FORM_ATTENTION] = attention_host,
    };
    Text t = { .arena = a };
    if (kernel_flat(k)) {
        flat(&t, k);
        return text_named(a, &t);
    }
    text_tables(&t, k);
    if (k->form == FORM_ATTENTION)
        text_add(&t, "%s", attention_product);
    text_add(&t, "void @(void *const *p, const DpcEnv *env)\n{\n");
    text_buffers(&t, k);
    host_open(&t, k);
    if (k->form != FORM_ROW)
        text_values(&t, k, k->top, k->ntop, 1);
    form[k->form](&t, k);
    text_add(&t, "}\n");
    return text_named(a, &t);
}
