/* naive.c -- dots and convolutions as loops, in place of oneDNN.
 *
 * ThreadSanitizer sees what it compiles alone: a library's threads and its
 * accesses would be missed, or reported wrongly.  Packed weights are plain. */
#include "runtime/dpc_rt.h"
#include "runtime/fold.h"

#include <stdlib.h>

struct DpcDnn { const DpcUnit *unit; };

static float get(const void *p, int64_t i, uint8_t dtype)
{
    return dtype == DPC_F32 ? ((const float *)p)[i]
                            : dpc_bf16_load(((const uint16_t *)p)[i]);
}

static void put(void *p, int64_t i, uint8_t dtype, float x)
{
    if (dtype == DPC_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = dpc_bf16_round(x);
}

int64_t dpc_dot_scratch(const DpcDot *d) { (void)d; return 0; }
int64_t dpc_conv_scratch(const DpcConv *c) { (void)c; return 0; }

int64_t dpc_conv_pack_bytes(const DpcConv *c)
{
    return c->o * (c->c / c->groups) * c->kh * c->kw
        * dpc_dtype_size(c->dtype_w);
}

DpcStatus dpc_dnn_open(const DpcUnit *u, DpcDnn **out)
{
    *out = malloc(sizeof **out);
    (*out)->unit = u;
    return DPC_OK;
}

void dpc_dnn_close(DpcDnn *d) { free(d); }

/* ---- dot ---- */

static int64_t offset(const DpcDot *d, int64_t at, const int64_t *stride)
{
    int64_t sum = 0;
    for (int i = d->nbatch - 1; i >= 0; at /= d->batch[i], i--)
        sum += at % d->batch[i] * stride[i];
    return sum;
}

static void dot_one(const DpcDot *d, const void *a, const void *b, void *c,
                    int64_t batch)
{
    int64_t pa = offset(d, batch, d->a_batch), pb = offset(d, batch,
                                                           d->b_batch);
    int64_t pc = offset(d, batch, d->c_batch);
    for (int64_t m = 0; m < d->m; m++)
        for (int64_t n = 0; n < d->n; n++) {
            int64_t at = pc + m * d->c_m + n * d->c_n;
            float sum = d->accumulate ? get(c, at, d->dtype_c) : 0;
            for (int64_t k = 0; k < d->k; k++)
                sum += get(a, pa + m * d->a_m + k * d->a_k, d->dtype_a)
                    * get(b, pb + k * d->b_k + n * d->b_n, d->dtype_b);
            put(c, at, d->dtype_c, sum);
        }
}

DpcStatus dpc_dnn_dot(DpcDnn *dnn, uint32_t call, void *a, void *b, void *c,
                      void *scratch)
{
    const DpcDot *d = &dnn->unit->dot[call];
    int64_t n = 1;
    (void)scratch;
    for (int i = 0; i < d->nbatch; i++)
        n *= d->batch[i];
    for (int64_t i = 0; i < n; i++)
        dot_one(d, a, b, c, i);
    return DPC_OK;
}

/* ---- conv ---- */

/* Index of [image, channel, y, x] in x or y, of so many channels. */
static int64_t pixel(const DpcConv *c, int64_t image, int64_t channel,
                     int64_t nchannel, int64_t y, int64_t h, int64_t x,
                     int64_t w)
{
    return c->nhwc ? ((image * h + y) * w + x) * nchannel + channel
                   : ((image * nchannel + channel) * h + y) * w + x;
}

/* fn for all products: places in x, in w and in y. */
typedef void Product(void *arg, int64_t x, int64_t w, int64_t y);

static void filter(const DpcConv *c, int64_t b, int64_t o, int64_t oy,
                   int64_t ox, Product *fn, void *arg)
{
    int64_t per = c->c / c->groups, first = o / (c->o / c->groups) * per;
    int64_t y = pixel(c, b, o, c->o, oy, c->oh, ox, c->ow);
    for (int64_t i = 0; i < per; i++)
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t kx = 0; kx < c->kw; kx++) {
                int64_t iy = oy * c->stride[0] + ky * c->dilate[0] - c->pad[0];
                int64_t ix = ox * c->stride[1] + kx * c->dilate[1] - c->pad[1];
                if (iy >= 0 && iy < c->h && ix >= 0 && ix < c->w)
                    fn(arg, pixel(c, b, first + i, c->c, iy, c->h, ix, c->w),
                       ((o * per + i) * c->kh + ky) * c->kw + kx, y);
            }
}

static void products(const DpcConv *c, Product *fn, void *arg)
{
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t o = 0; o < c->o; o++)
            for (int64_t oy = 0; oy < c->oh; oy++)
                for (int64_t ox = 0; ox < c->ow; ox++)
                    filter(c, b, o, oy, ox, fn, arg);
}

typedef struct Conv {
    const DpcConv *c;
    const void *in[2];
    float *sum;
} Conv;

static void forward(void *arg, int64_t x, int64_t w, int64_t y)
{
    Conv *v = arg;
    v->sum[y] += get(v->in[0], x, v->c->dtype_x)
        * get(v->in[1], w, v->c->dtype_w);
}

static void to_picture(void *arg, int64_t x, int64_t w, int64_t y)
{
    Conv *v = arg;
    v->sum[x] += get(v->in[0], y, v->c->dtype_y)
        * get(v->in[1], w, v->c->dtype_w);
}

static void to_filter(void *arg, int64_t x, int64_t w, int64_t y)
{
    Conv *v = arg;
    v->sum[w] += get(v->in[0], x, v->c->dtype_x)
        * get(v->in[1], y, v->c->dtype_y);
}

DpcStatus dpc_dnn_conv(DpcDnn *dnn, uint32_t call, void *in0, void *in1,
                       void *out, void *scratch)
{
    static Product *const fn[] = { forward, to_picture, to_filter };
    const DpcConv *c = &dnn->unit->conv[call];
    const int64_t size[] = { c->batch * c->o * c->oh * c->ow,
                             c->batch * c->c * c->h * c->w,
                             c->o * (c->c / c->groups) * c->kh * c->kw };
    const uint8_t dtype[] = { c->dtype_y, c->dtype_x, c->dtype_w };
    int64_t n = size[c->kind];
    Conv v = { c, { in0, in1 }, calloc((size_t)n, sizeof *v.sum) };
    (void)scratch;
    products(c, fn[c->kind], &v);
    for (int64_t i = 0; i < n; i++)
        put(out, i, dtype[c->kind], v.sum[i]);
    free(v.sum);
    return DPC_OK;
}

static DpcStatus copy(const DpcConv *c, uint8_t from_type, uint8_t to_type,
                      const void *from, void *to)
{
    int64_t n = c->o * (c->c / c->groups) * c->kh * c->kw;
    for (int64_t i = 0; i < n; i++)
        put(to, i, to_type, get(from, i, from_type));
    return DPC_OK;
}

DpcStatus dpc_dnn_pack(DpcDnn *dnn, uint32_t call, void *from, void *to)
{
    const DpcConv *c = &dnn->unit->conv[call];
    return copy(c, c->dtype_plain, c->dtype_w, from, to);
}

DpcStatus dpc_dnn_unpack(DpcDnn *dnn, uint32_t call, void *from, void *to)
{
    const DpcConv *c = &dnn->unit->conv[call];
    return copy(c, c->dtype_w, c->dtype_plain, from, to);
}
