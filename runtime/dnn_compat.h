/* dnn_compat.h -- oneDNN 2.x and 3.x behind one set of names.
 *
 * 2.x describes memory with a struct by value and a primitive with an
 * operation descriptor; 3.x hides the first behind a handle and has dropped
 * the second.  Here a DnnDesc is a pointer that desc_free gives back, a
 * DnnView one that something else owns (a primitive descriptor, say), and
 * primitive descriptors are made straight from views.  Every function returns
 * oneDNN's status, dnnl_success being 0.
 *
 * https://uxlfoundation.github.io/oneDNN/dev_guide_transition_to_v3.html */
#ifndef RUNTIME_DNN_COMPAT_H
#define RUNTIME_DNN_COMPAT_H

#include <dnnl.h>
#include <stdint.h>
#include <stdlib.h>

/* Where a convolution's windows lie, in oneDNN's words: dilate 0 is dense. */
typedef struct DnnWindow {
    dnnl_dims_t stride, dilate, before, after;
} DnnWindow;

typedef struct DnnConvDesc {
    dnnl_prop_kind_t prop;                /* forward, backward_{data,weights} */
    DnnWindow window;
    dnnl_primitive_desc_t hint;           /* of the forward; NULL in it */
} DnnConvDesc;

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t DnnDesc;
typedef const_dnnl_memory_desc_t DnnView;

static inline dnnl_status_t desc_strided(DnnDesc *d, int n,
                                         const dnnl_dims_t dim,
                                         dnnl_data_type_t t,
                                         const dnnl_dims_t stride)
{
    return dnnl_memory_desc_create_with_strides(d, n, dim, t, stride);
}

static inline dnnl_status_t desc_tag(DnnDesc *d, int n, const dnnl_dims_t dim,
                                     dnnl_data_type_t t,
                                     dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(d, n, dim, t, tag);
}

static inline void desc_free(DnnDesc d)
{
    if (d)
        dnnl_memory_desc_destroy(d);
}

static inline dnnl_status_t post_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd,
                                        dnnl_engine_t e, DnnView a, DnnView b,
                                        DnnView c, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, a, b, NULL, c, attr);
}

static inline dnnl_status_t conv_desc(dnnl_primitive_desc_t *pd,
                                      dnnl_engine_t e, const DnnConvDesc *c,
                                      DnnView x, DnnView w, DnnView y,
                                      dnnl_primitive_attr_t attr)
{
    const DnnWindow *v = &c->window;
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    if (c->prop == dnnl_backward_data)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, e, alg, x, w, y, v->stride, v->dilate, v->before, v->after,
            c->hint, attr);
    if (c->prop == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd, e, alg, x, w, NULL, y, v->stride, v->dilate, v->before,
            v->after, c->hint, attr);
    return dnnl_convolution_forward_primitive_desc_create(
        pd, e, c->prop, alg, x, w, NULL, y, v->stride, v->dilate, v->before,
        v->after, attr);
}

#else

typedef dnnl_memory_desc_t *DnnDesc;
typedef const dnnl_memory_desc_t *DnnView;

static inline dnnl_status_t desc_strided(DnnDesc *d, int n,
                                         const dnnl_dims_t dim,
                                         dnnl_data_type_t t,
                                         const dnnl_dims_t stride)
{
    *d = calloc(1, sizeof **d);
    return *d ? dnnl_memory_desc_init_by_strides(*d, n, dim, t, stride)
              : dnnl_out_of_memory;
}

static inline dnnl_status_t desc_tag(DnnDesc *d, int n, const dnnl_dims_t dim,
                                     dnnl_data_type_t t,
                                     dnnl_format_tag_t tag)
{
    *d = calloc(1, sizeof **d);
    return *d ? dnnl_memory_desc_init_by_tag(*d, n, dim, t, tag)
              : dnnl_out_of_memory;
}

static inline void desc_free(DnnDesc d)
{
    free(d);
}

static inline dnnl_status_t post_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1);
}

static inline dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd,
                                        dnnl_engine_t e, DnnView a, DnnView b,
                                        DnnView c, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, NULL, c);
    return s ? s : dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static inline dnnl_status_t conv_desc(dnnl_primitive_desc_t *pd,
                                      dnnl_engine_t e, const DnnConvDesc *c,
                                      DnnView x, DnnView w, DnnView y,
                                      dnnl_primitive_attr_t attr)
{
    const DnnWindow *v = &c->window;
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_convolution_desc_t d;
    dnnl_status_t s;
    if (c->prop == dnnl_backward_data)
        s = dnnl_dilated_convolution_backward_data_desc_init(
            &d, alg, x, w, y, v->stride, v->dilate, v->before, v->after);
    else if (c->prop == dnnl_backward_weights)
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            &d, alg, x, w, NULL, y, v->stride, v->dilate, v->before,
            v->after);
    else
        s = dnnl_dilated_convolution_forward_desc_init(
            &d, c->prop, alg, x, w, NULL, y, v->stride, v->dilate, v->before,
            v->after);
    return s ? s : dnnl_primitive_desc_create(pd, &d, attr, e, c->hint);
}

#endif
#endif
