/* attention.c -- what both targets know of the attention family. */
#include "codegen/attention.h"

/* Which role each operand of an op has. */
static const struct Plan {
    Op op;
    Role role[NIN];
    Along own;
    Role left_e, right_e, source;
} plans[] = {
    { OP_attn_lse, { QUERY, KEY, MASK }, ALONG_Q, NOROLE, NOROLE, NOROLE },
    { OP_attn_out, { QUERY, KEY, VALUE, MASK, LSE }, ALONG_Q, NOROLE, NOROLE,
      VALUE },
    { OP_attn_dq, { QUERY, KEY, VALUE, MASK, LSE, COTANGENT, OUTPUT }, ALONG_Q,
      COTANGENT, VALUE, KEY },
    { OP_attn_dk, { QUERY, KEY, VALUE, MASK, LSE, COTANGENT, OUTPUT }, ALONG_S,
      VALUE, COTANGENT, QUERY },
    { OP_attn_dv, { QUERY, KEY, MASK, LSE, COTANGENT }, ALONG_S, NOROLE,
      NOROLE, COTANGENT },
};

static const char along_letter[] = { 'q', 's', 'd', 'e' };

static const struct Plan *plan_of(Op op)
{
    for (int i = 0; i < COUNT(plans); i++)
        if (plans[i].op == op)
            return &plans[i];
    return NULL;
}

static int along(char c)
{
    const char *p = memchr(along_letter, c, NALONG);
    return p ? (int)(p - along_letter) : -1;
}

static bool batch_letter(Attention *t, char c, int64_t n)
{
    for (int i = 0; i < t->nbatch; i++)
        if (t->batch[i].c == c)
            return true;
    if (t->nbatch == COUNT(t->batch))
        return false;
    t->batch[t->nbatch].c = c;
    t->batch[t->nbatch].folded = true;
    t->batch[t->nbatch++].n = n;
    return true;
}

/* Strides of one term. */
static bool strides(Build *b, const Member *m, Attention *t, Role role, Ref r,
                    const Term *term)
{
    Operand *o = &t->operand[role];
    int64_t stride[NDIM];
    build_strides(b->g, r, stride);
    o->dtype = b->g->node[r].type.dtype;
    for (int d = 0; d < term->ndim; d++) {
        char c = term->dim[d].c[0];
        int a = along(c);
        b->why = "attention wants one letter a dimension, and few of them";
        if (term->dim[d].n != 1)
            return false;
        if (a >= 0)
            o->along[a] = stride[d];
        else if (batch_letter(t, c, build_extent(b, m, c)))
            o->batch[(int)c] = stride[d];
        else
            return false;
    }
    return true;
}

static bool limits(Build *b, const Member *m, Attention *t)
{
    for (int a = 0; a < NALONG; a++) {
        int c = along_letter[a];
        Split s = m->s.split[c];
        t->whole[a] = m->s.size[c];
        t->extent[a] = t->whole[a] ? build_extent(b, m, (char)c) : 0;
        t->pos[a] = -1;
        if (!s || t->whole[a] % split_parts(&b->g->mesh, s) == 0)
            continue;
        t->pos[a] = build_pos(b, s, t->whole[a], true);
        b->why = "too many split dimensions";
        if (t->pos[a] < 0)
            return false;
    }
    return true;
}

bool build_attention(Build *b, Member *m)
{
    const Node *n = &b->g->node[m->ref];
    const struct Plan *p = plan_of(n->op);
    Attention *t = alloc(b->arena, sizeof *t);
    bool q = p && p->own == ALONG_Q;
    b->why = p ? "attention is a kernel of its own" : "its rows are kernels";
    if (!p || b->n > 1)
        return false;
    *t = (Attention){ .op = n->op, .own = p->own,
                      .other = q ? ALONG_S : ALONG_Q,
                      .left = q ? QUERY : KEY, .right = q ? KEY : QUERY,
                      .left_e = p->left_e, .right_e = p->right_e,
                      .source = p->source };
    for (int i = 0; i < NROLE; i++)
        t->operand[i].buf = -1;
    for (int i = 0; i < n->nin; i++) {
        Value v = build_load(b, m, i);
        t->operand[p->role[i]].buf = v.buf;
        m->value = build_value(b, v);
        if (!strides(b, m, t, p->role[i], n->in[i], &m->s.in[i]))
            return false;
    }
    if (!strides(b, m, t, RESULT, m->ref, &m->s.out) || !limits(b, m, t))
        return false;
    for (int i = 0; i < t->nbatch; i++)
        for (int d = 0; d < m->s.out.ndim; d++)
            t->batch[i].folded &= m->s.out.dim[d].c[0] != t->batch[i].c;
    b->k->attention = t;
    b->k->form = FORM_ATTENTION;
    return true;
}

double attention_traffic(const Kernel *k)
{
    double sum = 0;
    for (int i = 0; i < k->nin + k->nout; i++) {
        Ref r = i < k->nin ? k->in[i] : k->out[i - k->nin];
        sum += (double)type_bytes(&k->g->mesh, &k->g->node[r].type);
    }
    return sum;
}

/* ---- printing ---- */

void attention_limits(Text *t, const Attention *a)
{
    for (int i = 0; i < NALONG; i++) {
        text_add(t, "    const long n%c = ", along_letter[i]);
        if (a->pos[i] < 0)
            text_add(t, "%lldL;\n", (long long)a->extent[i]);
        else
            text_add(t, "DPC_ENV.pos[%d];\n", a->pos[i]);
    }
    text_add(t, "    (void)nq; (void)ns; (void)nd; (void)ne;\n");
}

int64_t attention_workers(const Attention *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->nbatch; i++)
        n *= a->batch[i].folded ? 1 : a->batch[i].n;
    return n;
}

void attention_owners(Text *t, const Attention *a, int depth)
{
    int64_t over = 1;
    for (int i = a->nbatch; i-- > 0;) {
        if (a->batch[i].folded)
            continue;
        text_indent(t, depth);
        text_add(t, "const long b%d = w / %lldL %% %lldL;\n", i,
                 (long long)over, (long long)a->batch[i].n);
        over *= a->batch[i].n;
    }
}

int attention_folded(Text *t, const Attention *a, int depth)
{
    for (int i = 0; i < a->nbatch; i++) {
        if (!a->batch[i].folded)
            continue;
        text_indent(t, depth++);
        text_add(t, "for (long b%d = 0; b%d < %lldL; b%d++) {\n", i, i,
                 (long long)a->batch[i].n, i);
    }
    return depth;
}

void attention_spell(const Attention *a, const char *own, const char *other,
                     const char *inner, const char *at[NALONG])
{
    at[a->own] = own, at[a->other] = other;
    at[ALONG_D] = at[ALONG_E] = inner;
}

static void place(Text *t, const Attention *a, const Operand *o,
                  const char *at[NALONG])
{
    text_add(t, "[0");
    for (int i = 0; i < a->nbatch; i++)
        if (o->batch[(int)a->batch[i].c])
            text_add(t, " + b%d * %lldL", i,
                     (long long)o->batch[(int)a->batch[i].c]);
    for (int i = 0; i < NALONG; i++)
        if (o->along[i])
            text_add(t, " + (%s) * %lldL", at[i], (long long)o->along[i]);
    text_add(t, "]");
}

void attention_load(Text *t, const Attention *a, Role role,
                    const char *at[NALONG])
{
    const Operand *o = &a->operand[role];
    text_add(t, o->dtype == BF16 ? "dpc_from_bf(a%d" : "(float)(a%d", o->buf);
    place(t, a, o, at);
    text_add(t, ")");
}

void attention_store(Text *t, const Attention *a, const char *at[NALONG],
                     const char *value)
{
    const Operand *o = &a->operand[RESULT];
    text_add(t, "o0");
    place(t, a, o, at);
    text_add(t, o->dtype == BF16 ? " = dpc_to_bf(%s);\n" : " = %s;\n", value);
}
