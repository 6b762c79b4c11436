/* op.c -- the op table, and what is read off its signatures once. */
#include "ir/graph.h"
#include <stdlib.h>

#define FOLD_max FOLD_MAX                 /* as ops.def spells them */
#define FOLD_lse FOLD_LSE

OpInfo ops[OP_COUNT] = {
#define OP(name_, sig_, lin_, work_, ...)                                \
    [OP_##name_] = { .name = #name_, .sig = sig_, .lin = lin_,           \
                     .work = work_, __VA_ARGS__ },
#define EXPR(...) .expr = #__VA_ARGS__,
#define FIELD(...) .field = #__VA_ARGS__,
#define FOLD(fold_) .fold = FOLD_##fold_,
#define KERNEL(family_) .family = FAMILY_##family_,
#define KEYS(keys_) .keys = keys_,
#define DEF(...) .def = #__VA_ARGS__,
#define FLOPS(text_) .flops = text_,
#define ONCE(text_) .once = text_,
#define VJP(...) .vjp = #__VA_ARGS__,
#define DOC(doc_) .doc = doc_,
#include "ir/ops.def"
};

static int count_operands(const char *sig)
{
    const char *end = strstr(sig, "->");
    if (*sig == '@')
        return atoi(sig + 1);
    if (*sig == '*')
        return -1;
    if (!*sig)
        return 0;
    int n = 1;
    for (const char *s = sig; s < end; s++)
        n += *s == ',';
    return n;
}

static unsigned find_unread(const char *sig)
{
    unsigned set = 0, bit = 1;
    for (const char *s = sig; *s && *s != '>'; s++) {
        set |= *s == '~' ? bit : 0;
        bit <<= *s == ',';
    }
    return set;
}

bool op_pointwise(Op op)
{
    return ops[op].family == FAMILY_nest && ops[op].arity > 0
        && strncmp(ops[op].sig, "...", 3) == 0;
}

bool op_public(Op op)
{
    return op == OP_input || op == OP_param || op == OP_state
        || op == OP_scalar;
}

bool op_unread(Op op, int i)
{
    return i < NIN && (ops[op].unread >> i & 1);
}

void op_init(void)
{
    for (Op o = 0; o < OP_COUNT; o++) {
        ops[o].unread = o == OP_grad ? 0    /* reads how they were made */
                      : find_unread(ops[o].sig);
        ops[o].leaf = !*ops[o].sig && ops[o].family != FAMILY_hop;
        ops[o].arity = count_operands(ops[o].sig);
    }
}

Op op_find(const char *name)
{
    for (Op o = 0; o < OP_COUNT; o++)
        if (strcmp(ops[o].name, name) == 0)
            return o;
    return OP_COUNT;
}

/* The lin group of operand i: its first character; NULL if it is in none. */
static const char *group(const char *lin, int i)
{
    const char *start = lin;
    for (const char *s = lin; *s; s++) {
        if (*s == ',')
            start = s + 1;
        else if (*s == '*' || *s == 'a' + i)
            return start;
    }
    return NULL;
}

bool op_collects(Op op)
{
    return ops[op].family == FAMILY_collective && op != OP_shard
        && op != OP_own && op != OP_reshard;
}

bool op_linear(Op op, int i, int k)
{
    const char *g = group(ops[op].lin, i);
    return g && g == group(ops[op].lin, k);
}

bool op_has_key(Op op, const char *key)
{
    size_t n = strlen(key);
    const char *s = ops[op].keys;
    while (s && *s) {
        size_t k = strcspn(s, " ");
        if (k == n && memcmp(s, key, n) == 0)
            return true;
        s += k + (s[k] == ' ');
    }
    return false;
}

static bool letters_equal(const Attr *a, const Attr *b)
{
    if (a->nletter != b->nletter)
        return false;
    for (int i = 0; i < a->nletter; i++) {
        const Letter *l = &a->letter[i], *m = &b->letter[i];
        if (l->c != m->c || l->size != m->size || l->split != m->split)
            return false;
    }
    return true;
}

static bool text_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool data_equal(const Attr *a, const Attr *b)
{
    return a->ndata == b->ndata
        && (a->ndata == 0 || memcmp(a->data, b->data, (size_t)a->ndata
                                    * sizeof *a->data) == 0);
}

bool attr_equal(const Attr *a, const Attr *b)
{
#define SAME_REAL(f) memcmp(&a->f, &b->f, sizeof a->f) == 0  /* -0, NaN */
#define SAME_REALS(f) data_equal(a, b)
#define SAME_WORD(f) text_equal(a->f, b->f)
#define SAME_TEXT(f) true
#define SAME_INT(f) a->f == b->f
#define SAME_DTYPE(f) a->f == b->f
#define SAME_AXES(f) a->f == b->f
#define ATTR(key, field, kind) if (!(SAME_##kind(field))) return false;
#include "ir/attrs.def"
    return text_equal(a->sig, b->sig) && letters_equal(a, b);
}

static const struct { const char *name; int64_t size; } dtypes[NDTYPE] = {
    [F32] = { "f32", 4 }, [BF16] = { "bf16", 2 }, [I32] = { "i32", 4 },
    [U8] = { "u8", 1 },
};

const char *dtype_name(DType d)
{
    return dtypes[d].name;
}

DType dtype_find(const char *name)
{
    DType d = 0;
    while (d < NDTYPE && strcmp(dtypes[d].name, name) != 0)
        d++;
    return d;
}

int64_t dtype_size(DType d)
{
    return dtypes[d].size;
}
