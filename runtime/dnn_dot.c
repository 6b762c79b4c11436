/* dnn_dot.c -- a DpcDot as oneDNN's matmul.
 *
 * oneDNN is fast when c is row-major and a and b have a unit stride on one
 * side.  So a dot is first brought to a normal form, which changes no
 * address that is read or written:
 *
 *   batch dimensions of size 1 go; one that b (a) does not have and that
 *   continues m (n) becomes part of it; two that continue each other in all
 *   three become one; a column-major c is computed as c^T = b^T a^T.
 *
 * What is then still only in reach of the plain loops ("ref", a thousand
 * times slower) is given dense copies in scratch: the smallest set of a, b
 * and c for which oneDNN has a real kernel.  A column-major a is copied, too,
 * where that takes much scratch away: else each thread turns it for itself. */
#include "runtime/dnn.h"

enum { COPY_A = 1, COPY_B = 2, COPY_C = 4, NCOPY = 8 };

/* A loop over the output, and how far each operand moves with it. */
typedef struct Loop { int64_t n, a, b, c; } Loop;

/* The normal form.  Loops m and n move b and a by 0; k moves c by 0. */
typedef struct Form {
    int nbatch;
    Loop batch[DPC_NBATCH], m, n, k;
    uint8_t dtype_a, dtype_b, dtype_c;
    bool accumulate, swapped;             /* swapped: a is the step's b */
} Form;

/* Whether `in` continues `out`: the two are one loop of out.n * in.n. */
static bool joins(const Loop *out, const Loop *in)
{
    return out->a == in->a * in->n && out->b == in->b * in->n &&
           out->c == in->c * in->n;
}

/* Make x the one loop over x and y, if they are one.  A loop of 1 has no
 * strides to speak of. */
static bool join(Loop *x, const Loop *y)
{
    if (x->n == 1) {
        *x = *y;
        return true;
    }
    bool inside = joins(y, x);
    if (!inside && !joins(x, y))
        return false;
    Loop in = inside ? *x : *y;
    in.n = x->n * y->n;
    *x = in;
    return true;
}

static void drop(Form *f, int i)
{
    for (f->nbatch--; i < f->nbatch; i++)
        f->batch[i] = f->batch[i + 1];
}

/* Join what joins, until nothing does. */
static void fold(Form *f)
{
    for (int i = 0; i < f->nbatch; i++) {
        Loop *l = &f->batch[i];
        bool gone = l->n == 1 || (!l->b && join(&f->m, l)) ||
                    (!l->a && join(&f->n, l));
        for (int j = 0; j < i && !gone; j++)
            gone = join(&f->batch[j], l);
        if (gone) {
            drop(f, i);
            i = -1;
        }
    }
}

/* Outer loops first: a stable order by c's stride. */
static void sort(Form *f)
{
    for (int i = 1; i < f->nbatch; i++)
        for (int j = i; j && f->batch[j - 1].c < f->batch[j].c; j--) {
            Loop l = f->batch[j];
            f->batch[j] = f->batch[j - 1], f->batch[j - 1] = l;
        }
}

static Loop mirrored(Loop l)
{
    return (Loop){l.n, l.b, l.a, l.c};
}

static void swap(Form *f)
{
    Loop m = f->m;
    uint8_t t = f->dtype_a;
    f->m = mirrored(f->n), f->n = mirrored(m), f->k = mirrored(f->k);
    f->dtype_a = f->dtype_b, f->dtype_b = t;
    for (int i = 0; i < f->nbatch; i++)
        f->batch[i] = mirrored(f->batch[i]);
    f->swapped = !f->swapped;
}

static Form form(const DpcDot *d)
{
    Form f = {.nbatch = d->nbatch, .dtype_a = d->dtype_a,
              .dtype_b = d->dtype_b, .dtype_c = d->dtype_c,
              .accumulate = d->accumulate};
    f.m = (Loop){d->m, d->a_m, 0, d->c_m};
    f.n = (Loop){d->n, 0, d->b_n, d->c_n};
    f.k = (Loop){d->k, d->a_k, d->b_k, 0};
    for (int i = 0; i < d->nbatch; i++)
        f.batch[i] = (Loop){d->batch[i], d->a_batch[i], d->b_batch[i],
                            d->c_batch[i]};
    fold(&f);
    sort(&f);
    if (f.n.n > 1 && f.n.c != 1 && (f.m.c == 1 || f.m.n == 1))
        swap(&f);
    return f;
}

/* dims and strides of one operand: batch, row, column */
typedef struct Mat {
    int n;
    dnnl_dims_t dim, stride;
    dnnl_data_type_t type;
} Mat;

/* The stride of a dimension of 1 may be any: make it the one with which the
 * matrix has a side of stride 1 and, if it can, is row-major. */
static void settle(Mat *m)
{
    int64_t *dim = m->dim + m->n - 2, *stride = m->stride + m->n - 2;
    if (dim[1] == 1)
        stride[1] = 1;
    if (dim[0] == 1)
        stride[0] = stride[1] == 1 ? dim[1] : 1;
    int64_t all = dim[0] * stride[0], other = dim[1] * stride[1];
    all = all > other ? all : other;
    for (int i = m->n - 3; i >= 0; i--) {
        if (m->dim[i] == 1)
            m->stride[i] = all;
        if (m->dim[i] * m->stride[i] > all)
            all = m->dim[i] * m->stride[i];
    }
}

static Mat dense(Mat m)
{
    int64_t all = 1;
    for (int i = m.n - 1; i >= 0; i--)
        m.stride[i] = all, all *= m.dim[i];
    return m;
}

/* Operand 0, 1, 2 is a, b, c.  A batch that one of a and b does not have is
 * a dimension of 1 there; one that neither has is read at stride 0. */
static Mat operand(const Form *f, int which)
{
    Mat m = {.n = f->nbatch + 2};
    for (int i = 0; i < f->nbatch; i++) {
        const Loop *l = &f->batch[i];
        int64_t mine = which == 0 ? l->a : which == 1 ? l->b : l->c;
        bool alone = (l->a || l->b) && !mine;
        m.dim[i] = alone ? 1 : l->n;
        m.stride[i] = mine;
    }
    const Loop *row = which == 1 ? &f->k : &f->m;
    const Loop *column = which == 0 ? &f->k : &f->n;
    int i = f->nbatch;
    m.dim[i] = row->n, m.dim[i + 1] = column->n;
    m.stride[i] = which == 0 ? row->a : which == 1 ? row->b : row->c;
    m.stride[i + 1] = which == 0 ? column->a : which == 1 ? column->b
                                                          : column->c;
    settle(&m);
    return m;
}

/* The three operands as they lie, and dense. */
typedef struct Descs {
    DnnDesc user[3], copy[3];
} Descs;

static void descs_free(Descs *d)
{
    for (int i = 0; i < 3; i++) {
        desc_free(d->user[i]);
        desc_free(d->copy[i]);
    }
}

static dnnl_status_t descs_make(const Form *f, Descs *d)
{
    const uint8_t dtype[3] = {f->dtype_a, f->dtype_b, f->dtype_c};
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < 3 && !s; i++) {
        Mat m = operand(f, i), c = dense(m);
        s = op_dtype(dtype[i], &m.type);
        if (!s)
            s = desc_strided(&d->user[i], m.n, m.dim, m.type, m.stride);
        if (!s)
            s = desc_strided(&d->copy[i], c.n, c.dim, m.type, c.stride);
    }
    return s;
}

/* The matmul with these copies, if oneDNN has it and, unless `any`, has it
 * fast. */
static dnnl_status_t matmul(const Form *f, const Descs *d, int copies,
                            bool any, dnnl_engine_t engine,
                            dnnl_primitive_desc_t *desc)
{
    DnnView v[3];
    for (int i = 0; i < 3; i++)
        v[i] = copies >> i & 1 ? d->copy[i] : d->user[i];
    dnnl_primitive_attr_t attr;
    dnnl_status_t s = op_attr(&attr, f->accumulate && !(copies & COPY_C));
    if (s)
        return s;
    s = matmul_desc(desc, engine, v[0], v[1], v[2], attr);
    dnnl_primitive_attr_destroy(attr);
    if (!s && !any && op_way(*desc) == OP_LOOPS) {
        dnnl_primitive_desc_destroy(*desc);
        return dnnl_unimplemented;
    }
    return s;
}

enum { MUCH = 1 << 19 };                  /* bytes */

static int64_t pad_bytes(dnnl_primitive_desc_t desc)
{
    DnnView v = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md,
                                             0);
    return v ? (int64_t)dnnl_memory_desc_get_size(v) : 0;
}

/* The same with a copy of a, if that takes much less scratch. */
static void turn(const Form *f, const Descs *d, dnnl_engine_t engine,
                 int *copies, dnnl_primitive_desc_t *desc)
{
    dnnl_primitive_desc_t other;
    int64_t now = pad_bytes(*desc);
    if (now < MUCH || *copies & COPY_A || f->m.a != 1 || f->k.n == 1 ||
        matmul(f, d, *copies | COPY_A, false, engine, &other))
        return;
    int64_t then = pad_bytes(other) +
                   (int64_t)dnnl_memory_desc_get_size(d->copy[0]);
    bool less = now - then >= MUCH;
    dnnl_primitive_desc_destroy(less ? *desc : other);
    if (less)
        *desc = other, *copies |= COPY_A;
}

/* Which copies to make: a mask and its primitive. */
static dnnl_status_t choose(const Form *f, const Descs *d,
                            dnnl_engine_t engine, int *copies,
                            dnnl_primitive_desc_t *desc)
{
    for (int any = 0; any < 2; any++)
        for (*copies = 0; *copies < NCOPY; ++*copies)
            if (!matmul(f, d, *copies, any, engine, desc)) {
                turn(f, d, engine, copies, desc);
                return dnnl_success;
            }
    return dnnl_unimplemented;
}

/* Reorders before, the matmul, a reorder after. */
static dnnl_status_t chain(const Form *f, const Descs *d, int copies,
                           dnnl_engine_t engine, dnnl_primitive_desc_t desc,
                           Op *op)
{
    OpPlace user[3] = {{f->swapped ? OP_IN1 : OP_IN0, 0},
                       {f->swapped ? OP_IN0 : OP_IN1, 0}, {OP_OUT, 0}};
    OpPlace place[3];
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < 3; i++) {
        bool copy = copies >> i & 1;
        place[i] = copy ? op_copy(op, d->copy[i]) : user[i];
        if (copy && i < 2 && !s)
            s = op_reorder(op, engine, d->user[i], user[i], d->copy[i],
                           place[i], false);
    }
    OpCall *c = op_call(op, desc);
    if (s || !c)
        return s ? s : dnnl_runtime_error;
    op_arg(c, DNNL_ARG_SRC, dnnl_query_src_md, place[0]);
    op_arg(c, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, place[1]);
    op_arg(c, DNNL_ARG_DST, dnnl_query_dst_md, place[2]);
    if (copies & COPY_C)
        s = op_reorder(op, engine, d->copy[2], place[2], d->user[2], user[2],
                       f->accumulate);
    return s;
}

static bool sane(const DpcDot *d)
{
    bool ok = d->nbatch <= DPC_NBATCH && d->m > 0 && d->n > 0 && d->k > 0 &&
              d->dtype_a == d->dtype_b &&
              (!d->accumulate || d->dtype_c == DPC_F32);
    for (int i = 0; ok && i < d->nbatch; i++)
        ok = d->batch[i] > 0;
    return ok;
}

dnnl_status_t dot_plan(const DpcDot *d, dnnl_engine_t engine, Op *op)
{
    *op = (Op){0};
    if (!sane(d))
        return dnnl_invalid_arguments;
    Form f = form(d);
    Descs descs = {0};
    dnnl_primitive_desc_t desc;
    int copies;
    dnnl_status_t s = descs_make(&f, &descs);
    if (!s)
        s = choose(&f, &descs, engine, &copies, &desc);
    if (!s)
        s = chain(&f, &descs, copies, engine, desc, op);
    descs_free(&descs);
    if (s)
        op_free(op);
    return s;
}
