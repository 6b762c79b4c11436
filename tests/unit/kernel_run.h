/* kernel_run.h -- emitted kernels compiled, run on every rank and turn of a
 * small mesh, and compared with the evaluator.  For test programs.
 *
 * A case is a graph as text; $N, $M and $D (twice $N) stand for sizes.  All nodes that are
 * no leaves are one kernel; what the graph returns is compared. */
#ifndef KERNEL_RUN_H
#define KERNEL_RUN_H

#include "codegen/kernel.h"
#include "ir/eval.h"
#include "runtime/dpc_rt.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Case { const char *name, *text; double tol; int layout; } Case;

typedef struct Run {                      /* a case at one size */
    const Case *c;
    int64_t n, m;
    Graph *g;
    Kernel *k;
    KernelText text;
} Run;

static Arena *arena;

static char *sized(const char *s, int64_t n, int64_t m)
{
    char *out = alloc(arena, strlen(s) * 8 + 64), *p = out;
    for (; *s; s++)
        if (*s == '$')
            p += sprintf(p, "%lld", (long long)(*++s == 'N' ? n : *s == 'M' ? m
                                                : 2 * n));
        else
            *p++ = *s;
    return out;
}

static bool in_kernel(Op op)
{
    return !ops[op].leaf || op == OP_const || op == OP_iota || op == OP_random;
}

static Kernel *describe(const Graph *g, const char **why)
{
    Ref *r = alloc(arena, g->n * sizeof *r);
    int n = 0;
    for (Ref i = 0; i < g->n; i++)
        if (in_kernel(g->node[i].op))
            r[n++] = i;
    return kernel_describe(arena, g, r, n, NULL, why);
}

static inline Run run_new(const Case *c, int64_t n, int64_t m)
{
    Run r = { .c = c, .n = n, .m = m };
    const char *why = NULL;
    r.g = graph_parse(arena, sized(c->text, n, m), c->name);
    for (Ref i = 0; i < r.g->n; i++)
        if (r.g->node[i].type.ndim == 4 && c->layout)
            r.g->node[i].layout = c->layout;
    r.k = describe(r.g, &why);
    if (!r.k)
        fail_msg("%s at %d, %d: %s", c->name, (int)n, (int)m, why);
    return r;
}

/* ---- memory of one part ---- */

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double from_memory(const void *p, DType d, int64_t i)
{
    if (d == BF16) {
        uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
        float x;
        memcpy(&x, &u, 4);
        return x;
    }
    return d == F32 ? (double)((const float *)p)[i]
         : d == I32 ? ((const int *)p)[i] : ((const uint8_t *)p)[i];
}

static void to_memory(void *p, DType d, int64_t i, double x)
{
    if (d == BF16)
        ((uint16_t *)p)[i] = to_bf16((float)x);
    else if (d == F32)
        ((float *)p)[i] = (float)x;
    else if (d == I32)
        ((int *)p)[i] = (int)x;
    else
        ((uint8_t *)p)[i] = (uint8_t)x;
}

/* Places of the elements of the part at coord: whole[i] is memory[i] in the
 * memory order of the node; -1 where the part holds padding. */
static int64_t part(const Graph *g, Ref r, const int *coord, int64_t **whole)
{
    const Node *n = &g->node[r];
    Type t = type_local(&g->mesh, &n->type);
    int64_t volume = type_volume(&t), stride[NDIM], global[NDIM], w = 1, s = 1;
    int layout = n->layout, order[NDIM];

    for (int d = t.ndim; d-- > 0; layout /= 10) {
        order[d] = n->layout ? layout % 10 : d;
        global[d] = w;
        w *= n->type.dim[d];
    }
    for (int d = t.ndim; d-- > 0; s *= t.dim[order[d]])
        stride[order[d]] = s;
    *whole = alloc(arena, (size_t)(volume + 1) * sizeof **whole);
    for (int64_t i = 0; i < volume; i++) {
        int64_t at = 0, from = 0, rest = i;
        bool out = false;
        for (int d = t.ndim; d-- > 0; rest /= t.dim[d]) {
            Part p = split_part(&g->mesh, n->type.split[d], n->type.dim[d],
                                coord);
            int64_t x = rest % t.dim[d];
            at += x * stride[d];
            from += (p.at + x) * global[d];
            out |= x >= p.n;
        }
        (*whole)[at] = out ? -1 : from;
    }
    return volume;
}

/* ---- compiling ---- */

static const char *cc(void)
{
    return getenv("CC") ? getenv("CC") : "cc";
}

/* One shared object of a text, for good: its threads live on.  NULL when the
 * compiler refuses it. */
static void *compile(const char *text, const char *flags)
{
    char c[64], so[64];
    static int n;
    snprintf(c, sizeof c, "/tmp/dpc-test-%d-%d.c", (int)getpid(), n);
    snprintf(so, sizeof so, "/tmp/dpc-test-%d-%d.so", (int)getpid(), n++);
    FILE *f = fopen(c, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    char *cmd = fmt(arena, "%s %s -w -shared -fPIC -o %s %s -lm", cc(), flags,
                    so, c);
    if (system(cmd) != 0) {
        fprintf(stderr, "kept: %s\n%s\n", c, cmd);
        return NULL;
    }
    void *lib = dlopen(so, RTLD_NOW | RTLD_NODELETE);
    if (!lib)
        fprintf(stderr, "%s\n", dlerror());
    unlink(so);
    if (!getenv("KEEP"))
        unlink(c);
    return lib;
}

/* ---- running ---- */

typedef void Caller(const Run *, void *fn, void **p, const DpcEnv *);

static bool next(const Mesh *m, int *coord)
{
    for (int i = m->naxis; i-- > 0; coord[i] = 0)
        if (++coord[i] < m->axis[i].size)
            return true;
    return false;
}

/* Does the part wait for a fold?  Then parts are added before comparing. */
static void compare(const Run *r, Eval *e, Ref out, const double *got)
{
    const Num *want = eval_get(e, out);
    int64_t n = type_volume(&r->g->node[out].type);
    double scale = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i].r))
            scale = fmax(scale, fabs(want[i].r));
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i].r);
        bool same = want[i].r == got[i] || (isnan(want[i].r) && isnan(got[i]));
        if (!same && !(d <= r->c->tol * (scale + fabs(want[i].r))))
            fail_msg("%s at %d, %d: %s[%d] is %.9g, not %.9g\n%s", r->c->name,
                     (int)r->n, (int)r->m, r->g->node[out].name, (int)i,
                     got[i], want[i].r, r->text.text);
    }
}

/* The reference, its leaves rounded to what memory can hold. */
static Eval *reference(const Graph *g)
{
    Eval *plain = eval_new(g, REAL, 42, 3), *e = eval_new(g, REAL, 42, 3);
    eval_run(plain);
    for (Ref r = 0; r < g->n; r++) {
        const Type *t = &g->node[r].type;
        int64_t n = type_volume(t), one;
        if (in_kernel(g->node[r].op))
            continue;
        const Num *x = eval_get(plain, r);
        Num *y = alloc(arena, (size_t)n * sizeof *y);
        for (int64_t i = 0; i < n; i++) {
            bool mask = strcmp(g->node[r].name, "mask") == 0;
            to_memory(&one, t->dtype, 0, mask ? x[i].r > -0.2 : x[i].r);
            y[i].r = from_memory(&one, t->dtype, 0);
        }
        eval_set(e, r, y);
    }
    eval_run(e);
    eval_free(plain);
    return e;
}

static double folded(Fold fold, double a, double b)
{
    double top = fmax(a, b);
    return fold == FOLD_SUM ? a + b
         : fold == FOLD_MAX || isinf(top) ? top
         : top + log(exp(a - top) + exp(b - top));
}

static void add_part(const Run *r, Ref out, const int *coord, const void *p,
                     double *got)
{
    const Type *t = &r->g->node[out].type;
    int64_t *at, n = part(r->g, out, coord, &at);
    for (int64_t i = 0; i < n; i++) {
        double x = from_memory(p, t->dtype, i);
        bool other = r->g->node[out].op == OP_all_gather && isnan(x);
        if (at[i] >= 0 && !other)         /* not another turn's slice */
            got[at[i]] = t->partial ? folded(t->fold, got[at[i]], x) : x;
    }
}

static void *filled(const Run *r, Eval *e, Ref leaf, const int *coord)
{
    const Type *t = &r->g->node[leaf].type;
    int64_t *at, n = part(r->g, leaf, coord, &at);
    const Num *x = eval_get(e, leaf);
    void *p = alloc(arena, (size_t)(n * 4 + 64));
    for (int64_t i = 0; i < n; i++)
        to_memory(p, t->dtype, i, at[i] < 0 ? 1e30 : x[at[i]].r);
    return p;
}

static void run_part(const Run *r, Eval *e, void *fn, Caller *call,
                     const int *coord, double **got)
{
    const Kernel *k = r->k;
    void **p = alloc(arena, (size_t)(k->nin + k->nout) * sizeof *p);
    int64_t pos[KPOS + KDATA + 4];
    DpcEnv env = { .seed = 42, .step = 3, .pos = pos, .nthread = 1 };

    for (int i = 0; i < k->npos; i++) {
        const DpcPos *q = &k->pos[i];
        Part part = split_part(&r->g->mesh, q->split, q->size, coord);
        pos[i] = q->held ? part.n : part.at;
    }
    if (kernel_open(k))
        pos[k->npos] = k->extent[k->order[0]];
    if (kernel_flat(k))                   /* a list of one; CUDA reads none */
        pos[0] = 1, pos[1] = pos[2] = k->extent[k->order[0]],
        kernel_data(k, pos + 3);
    for (int i = 0; i < k->nin; i++)
        p[i] = filled(r, e, k->in[i], coord);
    for (int i = 0; i < k->nout; i++) {
        int64_t size = type_bytes(&r->g->mesh, &r->g->node[k->out[i]].type);
        p[k->nin + i] = memset(alloc(arena, (size_t)size + 64), 0xff,
                               (size_t)size);
    }
    env.scratch = alloc(arena, (size_t)kernel_scratch(k) + 64);
    call(r, fn, p, &env);
    for (int i = 0; i < k->nout; i++)
        add_part(r, k->out[i], coord, p[k->nin + i], got[i]);
}

static inline void run_compare(const Run *r, void *lib, Caller *call)
{
    int coord[NAXIS] = {0};
    double **got = alloc(arena, (size_t)r->k->nout * sizeof *got);
    void *fn = dlsym(lib, r->text.name);
    Eval *e = reference(r->g);

    assert_non_null(fn);
    for (int i = 0; i < r->k->nout; i++) {
        const Type *t = &r->g->node[r->k->out[i]].type;
        int64_t n = type_volume(t);
        got[i] = alloc(arena, (size_t)n * sizeof **got);
        for (int64_t x = 0; x < n && t->partial && t->fold != FOLD_SUM; x++)
            got[i][x] = -INFINITY;
    }
    do
        run_part(r, e, fn, call, coord, got);
    while (next(&r->g->mesh, coord));
    for (int i = 0; i < r->k->nout; i++)
        compare(r, e, r->k->out[i], got[i]);
    eval_free(e);
}

/* ---- a result over an operand ---- */

static struct { int in, out; Caller *call; } over;

static inline void call_over(const Run *r, void *fn, void **p,
                             const DpcEnv *env)
{
    const Type *t = &r->g->node[r->k->out[over.out]].type;
    void **to = &p[r->k->nin + over.out], *out = *to;
    *to = p[over.in];
    over.call(r, fn, p, env);
    memcpy(out, *to, (size_t)type_bytes(&r->g->mesh, t));
    *to = out;
}

/* Once more for each result that may lie over an operand; how many. */
static inline int run_compare_over(const Run *r, void *lib, Caller *call)
{
    int n = 0;
    over.call = call;
    for (over.out = 0; over.out < r->k->nout; over.out++)
        for (over.in = 0; over.in < r->k->nin; over.in++)
            if (kernel_over(r->k, over.in, over.out)) {
                run_compare(r, lib, call_over);
                n++;
                break;
            }
    return n;
}

#endif
