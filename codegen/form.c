/* form.c -- the order of a kernel's loops, its form, and what it costs.
 *
 * Loops are ordered by the strides of what they read most of, and neighbours
 * that all indices see as one become one.  The form says who works on what: a
 * map's points, a row for each worker, or the chunks of a column. */
#include "codegen/attention.h"

/* ---- order ---- */

/* Call f for every index of the kernel. */
static void each_affine(Kernel *k, void (*f)(void *, Affine *), void *arg)
{
    for (int v = 0; v < k->nvalue; v++) {
        Value *x = &k->value[v];
        f(arg, &x->at);
        for (int i = 0; i < x->nguard; i++)
            f(arg, &x->guard[i].of);
        for (int i = 0; i < x->nquot; i++)
            f(arg, &x->quot[i].of);
    }
    for (int i = 0; i < k->nstore; i++) {
        f(arg, &k->store[i].at);
        if (k->store[i].cut)
            f(arg, &k->store[i].in.of);
    }
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Weight of each atom: its stride in the largest access that has it. */
static void weights(const Kernel *k, int64_t *weight)
{
    double best[KATOM] = {0};
    for (int i = 0; i < k->nstore + k->nvalue; i++) {
        const Value *x = i < k->nstore ? NULL : &k->value[i - k->nstore];
        if (x && x->kind != VAL_LOAD)
            continue;
        const Affine *a = x ? &x->at : &k->store[i].at;
        double n = kernel_points(k, affine_atoms(a));
        for (int d = 0; d < k->natom; d++)
            if (a->coef[d] && n > best[d]) {
                best[d] = n;
                weight[d] = magnitude(a->coef[d]);
            }
    }
}

static void sort(Kernel *k, Atoms set, const int64_t *weight)
{
    int from = k->norder;
    for (int a = 0; a < k->natom; a++) {
        if (!(set >> a & 1))
            continue;
        int at = k->norder++;
        for (; at > from && weight[k->order[at - 1]] < weight[a]; at--)
            k->order[at] = k->order[at - 1];
        k->order[at] = a;
    }
}

typedef struct Pair { int a, b; int64_t n; bool ok; } Pair;

static void fits(void *arg, Affine *x)
{
    Pair *p = arg;
    p->ok &= x->coef[p->a] == x->coef[p->b] * p->n;
}

static void forget(void *arg, Affine *x)
{
    x->coef[((Pair *)arg)->a] = 0;
}

/* The next loop in the order that stands in a nest with the one at place i:
 * loops of other nests may stand between them.  -1: none. */
static int next_of_nest(const Kernel *k, int i)
{
    Atoms a = 1u << k->order[i], near = k->outer & a ? k->outer : 0;
    for (int l = 0; l < k->nloop; l++)
        near |= k->loop[l].atoms & a ? k->loop[l].atoms : 0;
    for (int j = i + 1; j < k->norder; j++)
        if (near >> k->order[j] & 1)
            return j;
    return -1;
}

/* May a, the loop around b, become one loop with it? */
static bool mergeable(Kernel *k, int a, int b)
{
    Pair p = { a, b, k->extent[b], true };
    if ((k->outer >> a & 1) != (k->outer >> b & 1))
        return false;
    for (int i = 0; i < k->nloop; i++)
        if ((k->loop[i].atoms >> a & 1) != (k->loop[i].atoms >> b & 1))
            return false;
    for (int v = 0; v < k->nvalue; v++)
        if ((k->value[v].over >> a & 1) != (k->value[v].over >> b & 1))
            return false;
    each_affine(k, fits, &p);
    return p.ok;
}

static void merge(Kernel *k, int at, int next)
{
    Pair p = { k->order[at], k->order[next], 0, true };
    Atoms keep = ~(1u << p.a);
    k->extent[p.b] *= k->extent[p.a];
    each_affine(k, forget, &p);
    k->outer &= keep;
    for (int i = 0; i < k->nloop; i++)
        k->loop[i].atoms &= keep;
    for (int v = 0; v < k->nvalue; v++) {
        k->value[v].atoms &= keep;
        k->value[v].over &= keep;
    }
    k->norder--;
    memmove(&k->order[at], &k->order[at + 1],
            (size_t)(k->norder - at) * sizeof *k->order);
}

/* Flops of values at each of `points`, roughly: a load counts as one. */
static double work(const Kernel *k, const int *v, int n, double points)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const Value *x = &k->value[v[i]];
        sum += x->kind == VAL_RANDOM ? 64
             : x->kind == VAL_EXPR ? 1 + ops[x->op].work : 1;
    }
    return sum * points;
}

enum { FEW = 8, BUSY = 16 };

/* A map that computes more than it moves wants its vectors full: a longer
 * loop goes inside, even where its steps are no neighbours. */
static void fill_vectors(Kernel *k)
{
    int last = k->norder - 1;
    if (k->nloop || last < 1 || k->extent[k->order[last]] >= FEW
        || work(k, k->tail, k->ntail, 1) < BUSY)
        return;
    for (int i = last - 1; i >= 0; i--) {
        int a = k->order[i];
        if (k->extent[a] < FEW)
            continue;
        memmove(&k->order[i], &k->order[i + 1],
                (size_t)(last - i) * sizeof *k->order);
        k->order[last] = a;
        return;
    }
}

void kernel_order(Kernel *k)
{
    int64_t weight[KATOM] = {0};
    Atoms inner = 0;
    for (int i = 0; i < k->nloop; i++)
        inner |= k->loop[i].atoms;
    weights(k, weight);
    sort(k, k->outer, weight);
    sort(k, inner, weight);
    for (int i = 0; i < k->norder;) {
        int next = next_of_nest(k, i);
        if (next >= 0 && mergeable(k, k->order[i], k->order[next])) {
            merge(k, i, next);
            i = 0;
        } else
            i++;
    }
    fill_vectors(k);
}

/* ---- form ---- */

/* An element read or written counts for each atom that it is a step of, less
 * where the steps do not fill a vector. */
static void vote(const Kernel *k, const Affine *x, double *votes)
{
    enum { FULL = 16 };
    double n = kernel_points(k, affine_atoms(x));
    for (int a = 0; a < k->natom; a++) {
        double steps = (double)k->extent[a];
        if (x->coef[a] == 1 && steps > 1)
            votes[a] += n * (steps < FULL ? steps / FULL : 1);
    }
}

/* The atom that most elements of the loop lie along. */
static int fast_atom(const Kernel *k, const Loop *l)
{
    double votes[KATOM] = {0};
    int best = -1;
    for (int i = 0; i < l->nvalue; i++)
        if (k->value[l->value[i]].kind == VAL_LOAD)
            vote(k, &k->value[l->value[i]].at, votes);
    for (int i = 0; i < l->nstore; i++)
        vote(k, &k->store[l->store[i]].at, votes);
    for (int a = 0; a < k->natom; a++)
        if (votes[a] > 0 && (best < 0 || votes[a] > votes[best]))
            best = a;
    return best;
}

enum { CHUNK = 16384, CHUNKS = 64, WORKERS = 16 };

/* A fold whose worker is a chunk of its loops, with lanes of outer atoms. */
static void column_form(Kernel *k, int lane)
{
    const Loop *l = k->loop;
    double rows = kernel_points(k, k->outer);
    double points = rows * kernel_points(k, l->atoms);
    k->form = FORM_COLUMN;
    k->lane = lane;
    rows /= lane >= 0 ? (double)k->extent[lane] : 1;
    int64_t n = (int64_t)(points / rows / CHUNK);
    if (rows < WORKERS && n < WORKERS)
        n = points < WORKERS * CHUNK ? (int64_t)(points / CHUNK) : WORKERS;
    n = n < 1 || rows >= WORKERS ? 1 : n > CHUNKS ? CHUNKS : n;
    k->cut = -1;
    for (int i = 0; i < k->norder; i++) {
        int a = k->order[i];
        if (!(l->atoms >> a & 1))
            continue;
        if (k->cut < 0 || (k->extent[k->cut] < n
                           && k->extent[a] > k->extent[k->cut]))
            k->cut = a;
    }
    k->chunks = n < k->extent[k->cut] ? n : k->extent[k->cut];
}

static bool has_tables(const Kernel *k)
{
    for (int i = 0; i < k->nloop; i++)
        for (int f = 0; f < k->loop[i].nfold; f++)
            if (kernel_tabled(k, k->loop[i].fold[f]))
                return true;
    return false;
}

bool kernel_form(Kernel *k, const char **why)
{
    Loop *l = k->loop;
    if (!k->nloop) {
        k->form = FORM_MAP;
        return true;
    }
    k->form = FORM_ROW;
    int fast = fast_atom(k, l);
    bool lane = fast >= 0 && (k->outer >> fast & 1);
    if (has_tables(k)) {
        *why = lane ? "folds keep different dimensions" : NULL;
        return !lane;
    }
    double rows = kernel_points(k, k->outer);
    double points = rows * kernel_points(k, l->atoms);
    bool column = lane || (rows < WORKERS && points >= 4 * CHUNK);
    if (k->nloop == 1 && l->nfold && column)
        column_form(k, lane ? fast : -1);
    return true;
}

int kernel_folds(const Kernel *k)
{
    return k->form == FORM_COLUMN ? k->loop[0].nfold : 0;
}

int64_t kernel_scratch(const Kernel *k)
{
    if (k->form != FORM_COLUMN)
        return 0;
    return (int64_t)kernel_points(k, k->outer) * k->chunks * kernel_folds(k)
        * (int64_t)sizeof(float);
}

/* ---- cost ---- */

enum { NEAR = 1 << 18 };                  /* bytes of a row that caches keep */

static double traffic(const Kernel *k, const Affine *a, DType d, Atoms loops,
                      int inner)
{
    bool walk = inner >= 0 && magnitude(a->coef[inner]) > 1;
    return kernel_points(k, affine_atoms(a) & (loops | k->outer))
        * (double)dtype_size(d) * (walk ? 2 : 1);
}

static int innermost(const Kernel *k, Atoms set)
{
    for (int i = k->norder; i-- > 0;)
        if (set >> k->order[i] & 1)
            return k->order[i];
    return -1;
}

static double values_traffic(const Kernel *k, const int *v, int n, Atoms set)
{
    double bytes = 0;
    int inner = k->lane >= 0 ? k->lane : innermost(k, set);
    for (int i = 0; i < n; i++) {
        const Value *x = &k->value[v[i]];
        if (x->kind == VAL_LOAD)
            bytes += traffic(k, &x->at, x->dtype, set, inner);
    }
    return bytes;
}

static double stores_traffic(const Kernel *k, const int *s, int n, Atoms set)
{
    double bytes = 0;
    int inner = k->lane >= 0 ? k->lane : innermost(k, set);
    for (int i = 0; i < n; i++) {
        const Store *x = &k->store[s[i]];
        bytes += traffic(k, &x->at, k->out_dtype[x->out], set, inner);
    }
    return bytes;
}

double kernel_work(const Kernel *k)
{
    double rows = kernel_points(k, k->outer);
    if (k->form == FORM_ATTENTION)        /* its products reach half the peak */
        return 2 * k->flops;
    double sum = work(k, k->tail, k->ntail, rows);
    for (int i = 0; i < k->nloop; i++) {
        const Loop *l = &k->loop[i];
        double points = rows * kernel_points(k, l->atoms);
        sum += work(k, l->value, l->nvalue, points) + points * l->nfold;
        sum += work(k, l->pre, l->npre, rows);
    }
    return sum;
}

double kernel_traffic(const Kernel *k)
{
    double rows = kernel_points(k, k->outer), sum = 0;
    if (k->form == FORM_ATTENTION)
        return attention_traffic(k);
    if (k->form == FORM_PUT)
        return (double)(k->put_rows * k->put_row * 4 + k->put_n * 8);
    for (int i = 0; i < k->nloop; i++) {
        const Loop *l = &k->loop[i];
        Atoms set = l->atoms ? l->atoms : k->outer;
        double in = values_traffic(k, l->value, l->nvalue, set);
        sum += stores_traffic(k, l->store, l->nstore, set);
        sum += i == 0 || in / rows > NEAR ? in : in / 8;
        sum += values_traffic(k, l->pre, l->npre, k->outer);
    }
    sum += values_traffic(k, k->tail, k->ntail, k->outer);
    return sum + stores_traffic(k, k->tail_store, k->ntail_store, k->outer);
}
