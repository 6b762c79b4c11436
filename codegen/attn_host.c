/* attn_host.c -- attention as C: a thread owns a block of rows.
 *
 * The rows that a block reads are packed into arrays of its own, so that all
 * products are one small matrix product with neighbours in its inner loop:
 * eight rows by 32 columns in registers.  Rows that are missing at the end
 * hold anything: the mask m is 0 there, and nothing else reads them.  The
 * log-sum is made with the largest product so far taken off. */
#include "codegen/attention.h"
#include "codegen/host.h"

enum { LANE = 16, WIDE = 1024 };

const char attention_product[] =
"#ifndef DPC_ATTENTION\n"
"#define DPC_ATTENTION\n"
"typedef float dpc_v16 __attribute__((vector_size(64), aligned(4)));\n"
"#ifdef __clang__\n"
"#define DPC_CONTRACT\n"
"#else\n"
"#define DPC_CONTRACT __attribute__((optimize(\"fp-contract=fast\")))\n"
"#endif\n"
"#define DPC_OUT(p) (*(dpc_v16 *)(p))\n"
"#define DPC_IN(p) (*(const dpc_v16 *)(p))\n"
"#define DPC_GET(i) dpc_v16 s##i = DPC_IN(c + i * cm), \\\n"
"    t##i = DPC_IN(c + i * cm + 16);\n"
"#define DPC_ADD(i) s##i += a[i * am] * x, t##i += a[i * am] * y;\n"
"#define DPC_PUT(i) DPC_OUT(c + i * cm) = s##i, \\\n"
"    DPC_OUT(c + i * cm + 16) = t##i;\n"
"#define DPC_ROWS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)\n"
"/* c[m][n] += a[m][k] b[k][n]: 8 rows, 32 columns; one row, 16 */\n"
"__attribute__((noinline, unused)) DPC_CONTRACT\n"
"static void dpc_mm8(const float *a, long am, const float *b, long bm,\n"
"                    float *c, long cm, long kn)\n"
"{\n"
"    DPC_ROWS(DPC_GET)\n"
"    for (long k = 0; k < kn; k++, a++, b += bm) {\n"
"        const dpc_v16 x = DPC_IN(b), y = DPC_IN(b + 16);\n"
"        DPC_ROWS(DPC_ADD)\n"
"    }\n"
"    DPC_ROWS(DPC_PUT)\n"
"}\n"
"__attribute__((noinline, unused)) DPC_CONTRACT\n"
"static void dpc_mm1(const float *a, const float *b, long bm, float *c,\n"
"                    long kn)\n"
"{\n"
"    dpc_v16 s = DPC_IN(c);\n"
"    for (long k = 0; k < kn; k++, b += bm)\n"
"        s += a[k] * DPC_IN(b);\n"
"    DPC_OUT(c) = s;\n"
"}\n"
"/* n a multiple of 16 */\n"
"__attribute__((noinline, unused))\n"
"static void dpc_mm(long m, long n, long kn, const float *a, long am,\n"
"                   const float *b, long bm, float *c, long cm)\n"
"{\n"
"    long wide = n / 32 * 32, tall = m / 8 * 8;\n"
"    for (long j = 0; j < wide; j += 32)\n"
"        for (long i = 0; i < tall; i += 8)\n"
"            dpc_mm8(a + i * am, am, b + j, bm, c + i * cm + j, cm, kn);\n"
"    for (long i = 0; i < m; i++)\n"
"        for (long j = i < tall ? wide : 0; j < n; j += 16)\n"
"            dpc_mm1(a + i * am, b + j, bm, c + i * cm + j, kn);\n"
"}\n"
"/* n rows of w products to shares; lse by row or by column */\n"
"__attribute__((noinline, unused))\n"
"static void dpc_share(long n, long w, float *z, const float *m, long mm,\n"
"                      const float *lse, int by_row)\n"
"{\n"
"    for (long i = 0; i < n; i++, z += w, m += mm) {\n"
"        const float own = by_row ? lse[i] : 0.0f;\n"
"#pragma omp simd\n"
"        for (long j = 0; j < w; j++) {\n"
"            const float e = dpc_exp(z[j] - (by_row ? own : lse[j]));\n"
"            z[j] = m[j] != 0.0f ? e : 0.0f;\n"
"        }\n"
"    }\n"
"}\n"
"/* shares to their cotangents */\n"
"__attribute__((noinline, unused))\n"
"static void dpc_share_back(long n, long w, float *z, const float *g,\n"
"                           const float *delta, int by_row)\n"
"{\n"
"    for (long i = 0; i < n; i++, z += w, g += w) {\n"
"        const float own = by_row ? delta[i] : 0.0f;\n"
"#pragma omp simd\n"
"        for (long j = 0; j < w; j++)\n"
"            z[j] = z[j] != 0.0f ? z[j] * (g[j] - (by_row ? own : delta[j]))\n"
"                 : 0.0f;\n"
"    }\n"
"}\n"
"/* largest product so far, and the sum of e to the others less it */\n"
"__attribute__((noinline, unused))\n"
"static void dpc_log_sum(long n, long w, const float *z, const float *m,\n"
"                        long mm, float *top, float *sum)\n"
"{\n"
"    for (long i = 0; i < n; i++, z += w, m += mm) {\n"
"        float big = top[i], add = 0.0f;\n"
"#pragma omp simd reduction(max:big)\n"
"        for (long j = 0; j < w; j++) {\n"
"            const float x = m[j] != 0.0f ? z[j] : -DPC_INF;\n"
"            big = x > big ? x : big;\n"
"        }\n"
"        if (big == -DPC_INF)\n"
"            continue;\n"
"#pragma omp simd reduction(+:add)\n"
"        for (long j = 0; j < w; j++) {\n"
"            const float e = dpc_exp(z[j] - big);\n"
"            add += m[j] != 0.0f ? e : 0.0f;\n"
"        }\n"
"        sum[i] = sum[i] * dpc_exp(top[i] - big) + add;\n"
"        top[i] = big;\n"
"    }\n"
"}\n"
"#endif\n";

typedef struct Shape {
    int own, other;                       /* rows of a block */
    long long d, e, dp, ep;               /* padded to whole vectors */
} Shape;

static Shape shape_of(const Attention *a)
{
    int64_t d = a->extent[ALONG_D], e = a->extent[ALONG_E];
    int rows = d + e > WIDE ? 16 : 64;
    return (Shape){ 2 * rows, rows, d, e, (d + LANE - 1) / LANE * LANE,
                    (e + LANE - 1) / LANE * LANE };
}

static bool source_is_e(const Attention *a)
{
    return a->source == VALUE || a->source == COTANGENT;
}

/* The columns of the result; 0: it is a number a row. */
static long long columns(const Attention *a, const Shape *s)
{
    return a->source == NOROLE ? 0 : source_is_e(a) ? s->ep : s->dp;
}

/* to[i][c] = rows of a role (own or other), n columns along d or e apart;
 * turned: to[c][i]. */
static void pack(Text *t, const Attention *a, const char *to, Role role,
                 bool own, char along, long long n, bool turned, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + i", "c", at);
    if (turned)
        text_line(t, depth, "for (long c = 0; c < n%c; c++)", along);
    text_line(t, depth + turned, "for (long i = 0; i < %s; i++)",
              own ? "on" : "tn");
    if (!turned) {
        text_add(t, "#pragma omp simd\n");
        text_line(t, depth + 1, "for (long c = 0; c < n%c; c++)", along);
    }
    text_indent(t, depth + 2);
    text_add(t, turned ? "%s[c * %lldL + i] = " : "%s[i * %lldL + c] = ", to,
             n);
    attention_load(t, a, role, at);
    text_add(t, ";\n");
}

/* A number for each row, by i. */
static void pack_rows(Text *t, const Attention *a, const char *to, Role role,
                      bool own, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + i", "0", at);
    text_line(t, depth, "for (long i = 0; i < %s; i++)", own ? "on" : "tn");
    text_indent(t, depth + 1);
    text_add(t, "%s[i] = ", to);
    attention_load(t, a, role, at);
    text_add(t, ";\n");
}

/* delta[i]: the row of dy times that of y. */
static void delta(Text *t, const Attention *a, bool own, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + i", "c", at);
    text_line(t, depth, "for (long i = 0; i < %s; i++) {", own ? "on" : "tn");
    text_line(t, depth + 1, "float s = 0.0f;");
    text_add(t, "#pragma omp simd reduction(+:s)\n");
    text_line(t, depth + 1, "for (long c = 0; c < ne; c++)");
    text_indent(t, depth + 2);
    text_add(t, "s += ");
    attention_load(t, a, COTANGENT, at);
    text_add(t, " * ");
    attention_load(t, a, OUTPUT, at);
    text_add(t, ";\n");
    text_line(t, depth + 1, "delta[i] = s;");
    text_line(t, depth, "}");
}

/* What stands by queries: log-sums and deltas. */
static void query_rows(Text *t, const Attention *a, bool own, int depth)
{
    if (a->operand[LSE].buf >= 0)
        pack_rows(t, a, "lse", LSE, own, depth);
    if (a->left_e != NOROLE)
        delta(t, a, own, depth);
}

/* What a block reads of its own rows. */
static void own_rows(Text *t, const Attention *a, const Shape *s, int depth)
{
    pack(t, a, "x", a->left, true, 'd', s->d, false, depth);
    if (a->left_e != NOROLE)
        pack(t, a, "xe", a->left_e, true, 'e', s->e, false, depth);
    if (a->own == ALONG_Q)
        query_rows(t, a, true, depth);
}

static void other_rows(Text *t, const Attention *a, const Shape *s, int depth)
{
    pack(t, a, "u", a->right, false, 'd', s->other, true, depth);
    if (a->right_e != NOROLE)
        pack(t, a, "ue", a->right_e, false, 'e', s->other, true, depth);
    if (a->source != NOROLE)
        pack(t, a, "src", a->source, false, source_is_e(a) ? 'e' : 'd',
             columns(a, s), false, depth);
    if (a->own != ALONG_Q)
        query_rows(t, a, false, depth);
}

/* Does the mask differ from own row to own row? */
static bool mask_by_row(const Attention *a)
{
    return a->operand[MASK].along[a->own] != 0;
}

/* m[i][j], or m[j] for all rows: is other row j there, and seen? */
static void masks(Text *t, const Attention *a, const Shape *s, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + j", "0", at);
    if (mask_by_row(a))
        text_line(t, depth, "for (long i = 0; i < on; i++)");
    text_line(t, depth, "for (long j = 0; j < %d; j++)", s->other);
    text_indent(t, depth + 1);
    text_add(t, mask_by_row(a) ? "m[i * %dL + j]" : "m[j]", s->other);
    text_add(t, " = j < tn && ");
    attention_load(t, a, MASK, at);
    text_add(t, " != 0.0f ? 1.0f : 0.0f;\n");
}

static void product(Text *t, const Shape *s, const char *to, const char *x,
                    const char *u, char along, long long n, int depth)
{
    text_line(t, depth, "for (long i = 0; i < %d; i++)", s->own * s->other);
    text_line(t, depth + 1, "%s[i] = 0.0f;", to);
    text_line(t, depth, "dpc_mm(on, %d, n%c, %s, %lldL, %s, %d, %s, %d);",
              s->other, along, x, n, u, s->other, to, s->other);
}

/* One block of other rows. */
static void step(Text *t, const Attention *a, const Shape *s, int depth)
{
    bool grad = a->left_e != NOROLE;
    int by_row = a->own == ALONG_Q, mm = mask_by_row(a) ? s->other : 0;
    long long n = columns(a, s);
    other_rows(t, a, s, depth);
    masks(t, a, s, depth);
    product(t, s, "z", "x", "u", 'd', s->d, depth);
    if (!n) {
        text_line(t, depth, "dpc_log_sum(on, %d, z, m, %d, top, sum);",
                  s->other, mm);
        return;
    }
    text_line(t, depth, "dpc_share(on, %d, z, m, %d, lse, %d);", s->other, mm,
              by_row);
    if (grad) {
        product(t, s, "g", "xe", "ue", 'e', s->e, depth);
        text_line(t, depth, "dpc_share_back(on, %d, z, g, delta, %d);",
                  s->other, by_row);
    }
    text_line(t, depth, "dpc_mm(on, %lldL, tn, z, %d, src, %lldL, acc, %lldL);",
              n, s->other, n, n);
}

static void arrays(Text *t, const Attention *a, const Shape *s, int depth)
{
    bool grad = a->left_e != NOROLE, sum = a->source == NOROLE;
    long long n = columns(a, s), tile = s->own * s->other;
    struct { const char *name; long long n; bool used; } list[] = {
        { "x", s->own * s->d, true }, { "u", s->other * s->d, true },
        { "z", tile, true }, { "m", tile, true },
        { "xe", s->own * s->e, grad }, { "ue", s->other * s->e, grad },
        { "g", tile, grad }, { "delta", s->own, grad },
        { "lse", s->own, !sum }, { "src", s->other * n, !sum },
        { "acc", s->own * n, !sum },
        { "top", s->own, sum }, { "sum", s->own, sum },
    };
    for (int i = 0; i < COUNT(list); i++)
        if (list[i].used)
            text_line(t, depth, "float %s[%lld] __attribute__((aligned(64)));",
                      list[i].name, list[i].n);
}

/* Zeros; in columns of src that are only padding too. */
static void begin(Text *t, const Attention *a, const Shape *s, int depth)
{
    long long n = columns(a, s);
    text_line(t, depth, "for (long i = 0; i < %lldL; i++)",
              n ? s->own * n : s->own);
    text_line(t, depth + 1, n ? "acc[i] = 0.0f;"
                              : "top[i] = -DPC_INF, sum[i] = 0.0f;");
    if (!n)
        return;
    text_line(t, depth, "for (long i = 0; i < %lldL; i++)", s->other * n);
    text_line(t, depth + 1, "src[i] = 0.0f;");
}

static void end(Text *t, const Attention *a, const Shape *s, int depth)
{
    long long n = columns(a, s);
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "0", "c", at);
    text_line(t, depth, "for (long i = 0; i < on; i++)");
    if (n)
        text_line(t, depth + 1, "for (long c = 0; c < n%c; c++)",
                  source_is_e(a) ? 'e' : 'd');
    text_indent(t, depth + 1 + (n > 0));
    attention_store(t, a, at, n ? fmt(t->arena, "acc[i * %lldL + c]", n)
                    : "top[i] + dpc_log(sum[i])");
}

void attention_host(Text *t, const Kernel *k)
{
    const Attention *a = k->attention;
    Shape s = shape_of(a);
    int64_t blocks = (a->extent[a->own] + s.own - 1) / s.own;
    char own = a->own == ALONG_Q ? 'q' : 's', other = own == 'q' ? 's' : 'q';
    attention_limits(t, a);
    if (host_points(k) >= HOST_SHARED)
        text_add(t, "#pragma omp parallel for schedule(static)\n");
    text_line(t, 1, "for (long at = 0; at < %lldL; at++) {",
              (long long)(attention_workers(a) * blocks));
    text_line(t, 2, "const long w = at / %lldL, r0 = at %% %lldL * %d;",
              (long long)blocks, (long long)blocks, s.own);
    text_line(t, 2, "const long on = n%c - r0 < %d ? n%c - r0 : %d;", own,
              s.own, own, s.own);
    arrays(t, a, &s, 2);
    attention_owners(t, a, 2);
    begin(t, a, &s, 2);
    int depth = attention_folded(t, a, 2);
    own_rows(t, a, &s, depth);
    text_line(t, depth, "for (long t0 = 0; t0 < n%c; t0 += %d) {", other,
              s.other);
    text_line(t, depth + 1, "const long tn = n%c - t0 < %d ? n%c - t0 : %d;",
              other, s.other, other, s.other);
    step(t, a, &s, depth + 1);
    for (; depth >= 2; depth--)
        text_line(t, depth, "}");
    end(t, a, &s, 2);
    text_line(t, 1, "}");
}
