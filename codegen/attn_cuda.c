/* attn_cuda.c -- attention as CUDA C: a block owns 16 rows, a thread one
 * product of an own row i with another row j.
 *
 * Rows of d and e pass through shared memory 32 columns at a time; the 16 by
 * 16 shares of a tile do too, then a thread adds up every 16th column of its
 * row's result, in registers.  On a CPU a block has fewer threads, and each is
 * several of the 256 between two barriers. */
#include "codegen/attention.h"

enum { TILE = 16, CHUNK = 32, PITCH = CHUNK + 1, BLOCK = 256, GRID = 1 << 16 };

/* All items of this thread: i, j and its registers' u. */
static const char items[] =
    "for (int u = 0; u < 256 / DPC_BLOCK; u++) {";
static const char item[] =
    "const int t = (int)DPC_THREAD + u * DPC_BLOCK, i = t / 16, j = t % 16;";

static void items_begin(Text *t, int depth)
{
    text_line(t, depth, "%s", items);
    text_line(t, depth + 1, "%s", item);
    text_line(t, depth + 1, "(void)i; (void)j;");
}

static void items_end(Text *t, int depth)
{
    text_line(t, depth, "}");
    text_line(t, depth, "dpc_sync();");
}

/* to[row][c], 16 rows of a role from column c0 on. */
static void fetch(Text *t, const Attention *a, const char *to, Role role,
                  bool own, char along, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + row", "t0 + row", "c0 + c", at);
    text_line(t, depth, "for (int k = (int)DPC_THREAD; k < %d; "
              "k += DPC_BLOCK) {", TILE * CHUNK);
    text_line(t, depth + 1, "const int row = k / %d, c = k %% %d;", CHUNK,
              CHUNK);
    text_indent(t, depth + 1);
    text_add(t, "%s[row * %d + c] = row < %s && c0 + c < n%c ? ", to, PITCH,
             own ? "on" : "tn", along);
    attention_load(t, a, role, at);
    text_add(t, " : 0.0f;\n");
    text_line(t, depth, "}");
}

/* into[u] = left row i times right row j, over d or e. */
static void products(Text *t, const Attention *a, const char *into, Role left,
                     Role right, Along along, int depth)
{
    char c = along == ALONG_D ? 'd' : 'e';
    text_line(t, depth, "for (int u = 0; u < 256 / DPC_BLOCK; u++)");
    text_line(t, depth + 1, "%s[u] = 0.0f;", into);
    text_line(t, depth, "for (long c0 = 0; c0 < n%c; c0 += %d) {", c, CHUNK);
    fetch(t, a, "x", left, true, c, depth + 1);
    fetch(t, a, "y", right, false, c, depth + 1);
    text_line(t, depth + 1, "dpc_sync();");
    items_begin(t, depth + 1);
    text_line(t, depth + 2, "for (int c = 0; c < %d; c++)", CHUNK);
    text_line(t, depth + 3, "%s[u] += x[i * %d + c] * y[j * %d + c];", into,
              PITCH, PITCH);
    items_end(t, depth + 1);
    text_line(t, depth, "}");
}

/* delta[u]: dy times y of the query's row. */
static void delta(Text *t, const Attention *a, int depth)
{
    bool own = a->own == ALONG_Q;
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + i", "c", at);
    items_begin(t, depth);
    text_line(t, depth + 1, "float s = 0.0f;");
    text_line(t, depth + 1, "for (long c = j; c < ne && i < %s; c += 16)",
              own ? "on" : "tn");
    text_indent(t, depth + 2);
    text_add(t, "s += ");
    attention_load(t, a, COTANGENT, at);
    text_add(t, " * ");
    attention_load(t, a, OUTPUT, at);
    text_add(t, ";\n");
    text_line(t, depth + 1, "z[t] = s;");
    items_end(t, depth);
    items_begin(t, depth);
    text_line(t, depth + 1, "delta[u] = 0.0f;");
    text_line(t, depth + 1, "for (int k = 0; k < 16; k++)");
    text_line(t, depth + 2, "delta[u] += z[%s * 16 + k];", own ? "i" : "j");
    items_end(t, depth);
}

/* z[i][j]: the share, or its cotangent; for the log-sum the product. */
static void tile(Text *t, const Attention *a, int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "t0 + j", "0", at);
    items_begin(t, depth);
    text_indent(t, depth + 1);
    text_add(t, "const int on_ = i < on && j < tn && ");
    attention_load(t, a, MASK, at);
    text_add(t, " != 0.0f;\n");
    if (a->source == NOROLE) {
        text_line(t, depth + 1, "z[t] = on_ ? h[u] : -DPC_INF;");
        items_end(t, depth);
        return;
    }
    text_indent(t, depth + 1);
    text_add(t, "z[t] = on_ ? dpc_exp(h[u] - ");
    attention_load(t, a, LSE, at);
    text_add(t, a->left_e == NOROLE ? ") : 0.0f;\n"
                                    : ") * (g[u] - delta[u]) : 0.0f;\n");
    items_end(t, depth);
}

/* Every thread of a row follows its largest product and its sum. */
static void log_sums(Text *t, int depth)
{
    items_begin(t, depth);
    text_line(t, depth + 1, "float big = top[u], add = 0.0f;");
    text_line(t, depth + 1, "for (int k = 0; k < 16; k++)");
    text_line(t, depth + 2, "big = dpc_fmax(big, z[i * 16 + k]);");
    text_line(t, depth + 1, "if (big > -DPC_INF) {");
    text_line(t, depth + 2, "for (int k = 0; k < 16; k++)");
    text_line(t, depth + 3, "add += dpc_exp(z[i * 16 + k] - big);");
    text_line(t, depth + 2, "sum[u] = sum[u] * dpc_exp(top[u] - big) + add;");
    text_line(t, depth + 2, "top[u] = big;");
    text_line(t, depth + 1, "}");
    items_end(t, depth);
}

/* Columns j, j + 16, ... of row i of the result. */
static void add_up(Text *t, const Attention *a, long long columns, char c,
                   int depth)
{
    const char *at[NALONG];
    attention_spell(a, "0", "t0 + k", "c * 16 + j", at);
    items_begin(t, depth);
    text_line(t, depth + 1, "for (int c = 0; c < %lld; c++)", columns);
    text_line(t, depth + 2, "for (int k = 0; k < 16; k++)");
    text_indent(t, depth + 3);
    text_add(t, "acc[u][c] += k < tn && c * 16 + j < n%c ? z[i * 16 + k] * ",
             c);
    attention_load(t, a, a->source, at);
    text_add(t, " : 0.0f;\n");
    items_end(t, depth);
}

static void registers(Text *t, const Attention *a, long long columns)
{
    text_line(t, 1, "DPC_SHARED float x[%d], y[%d], z[256];", TILE * PITCH,
              TILE * PITCH);
    text_line(t, 1, "float h[256 / DPC_BLOCK];");
    if (a->left_e != NOROLE)
        text_line(t, 1, "float g[256 / DPC_BLOCK], delta[256 / DPC_BLOCK];");
    if (columns)
        text_line(t, 1, "float acc[256 / DPC_BLOCK][%lld];", columns);
    else
        text_line(t, 1, "float top[256 / DPC_BLOCK], sum[256 / DPC_BLOCK];");
}

static void begin(Text *t, long long columns, int depth)
{
    text_line(t, depth, "for (int u = 0; u < 256 / DPC_BLOCK; u++) {");
    if (columns) {
        text_line(t, depth + 1, "for (int c = 0; c < %lld; c++)", columns);
        text_line(t, depth + 2, "acc[u][c] = 0.0f;");
    } else
        text_line(t, depth + 1, "top[u] = -DPC_INF, sum[u] = 0.0f;");
    text_line(t, depth, "}");
}

static void end(Text *t, const Attention *a, long long columns, char c,
                int depth)
{
    const char *at[NALONG];
    attention_spell(a, "r0 + i", "0", "c * 16 + j", at);
    items_begin(t, depth);
    if (columns) {
        text_line(t, depth + 1, "for (int c = 0; c < %lld; c++)", columns);
        text_line(t, depth + 2, "if (i < on && c * 16 + j < n%c)", c);
        text_indent(t, depth + 3);
        attention_store(t, a, at, "acc[u][c]");
    } else {
        text_line(t, depth + 1, "if (i < on && j == 0)");
        text_indent(t, depth + 2);
        attention_store(t, a, at, "top[u] + dpc_log(sum[u])");
    }
    items_end(t, depth);
}

/* A tile of other rows. */
static void step(Text *t, const Attention *a, long long columns, char c,
                 int depth)
{
    bool grad = a->left_e != NOROLE;
    products(t, a, "h", a->left, a->right, ALONG_D, depth);
    if (grad)
        products(t, a, "g", a->left_e, a->right_e, ALONG_E, depth);
    if (grad)
        delta(t, a, depth);
    tile(t, a, depth);
    if (columns)
        add_up(t, a, columns, c, depth);
    else
        log_sums(t, depth);
}

void attention_cuda(Text *t, const Kernel *k, KernelText *r)
{
    const Attention *a = k->attention;
    bool along_e = a->source == VALUE || a->source == COTANGENT;
    int64_t n = a->extent[along_e ? ALONG_E : ALONG_D];
    long long columns = a->source == NOROLE ? 0 : (n + TILE - 1) / TILE;
    int64_t blocks = (a->extent[a->own] + TILE - 1) / TILE;
    int64_t all = attention_workers(a) * blocks;
    char own = a->own == ALONG_Q ? 'q' : 's', c = along_e ? 'e' : 'd';
    char other = a->own == ALONG_Q ? 's' : 'q';
    r->grid = all > GRID ? GRID : all;
    attention_limits(t, a);
    registers(t, a, columns);
    text_line(t, 1, "for (long at = DPC_AT; at < %lldL; at += DPC_GRID) {",
              (long long)all);
    text_line(t, 2, "const long w = at / %lldL, r0 = at %% %lldL * 16;",
              (long long)blocks, (long long)blocks);
    text_line(t, 2, "const long on = n%c - r0;", own);
    attention_owners(t, a, 2);
    begin(t, columns, 2);
    int depth = attention_folded(t, a, 2);
    text_line(t, depth, "for (long t0 = 0; t0 < n%c; t0 += 16) {", other);
    text_line(t, depth + 1, "const long tn = n%c - t0;", other);
    step(t, a, columns, c, depth + 1);
    for (; depth >= 2; depth--)
        text_line(t, depth, "}");
    end(t, a, columns, c, 2);
    text_line(t, 1, "}");
}
