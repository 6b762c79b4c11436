/* conv.c -- the three convolutions as calls of the library. */
#include "codegen/library.h"

/* Which operand, or 2 the result, is picture, filters and feature map. */
static void roles(Op op, int *x, int *w, int *y)
{
    *x = op == OP_conv ? 0 : op == OP_conv_dx ? 2 : 0;
    *w = op == OP_conv_dw ? 2 : 1;
    *y = op == OP_conv ? 2 : op == OP_conv_dx ? 0 : 1;
}

static Ref part(const Node *n, Ref end, int role)
{
    return role == 2 ? end : n->in[role];
}

bool conv_describe(const Graph *g, Ref r, Ref end, DpcConv *o,
                   const char **why)
{
    const Node *n = &g->node[r];
    int rx, rw, ry;
    roles(n->op, &rx, &rw, &ry);
    const Node *x = &g->node[part(n, end, rx)], *w = &g->node[part(n, end, rw)];
    const Node *y = &g->node[part(n, end, ry)];
    Type tx = type_local(&g->mesh, &x->type);
    Type tw = type_local(&g->mesh, &w->type);
    Type ty = type_local(&g->mesh, &y->type);
    int stride = n->attr.stride ? n->attr.stride : 1;
    int dilate = n->attr.dilate ? n->attr.dilate : 1;
    Sig s = sig_bind(g, n->op, &n->attr, n->in, n->nin, n->loc);
    sig_split(&s, g, n->in);

    *why = "the picture and the result lie in different orders";
    if (x->layout != y->layout || node_is_view(x) || node_is_view(y)
        || node_is_view(w) || w->layout)
        return false;
    *why = "the pictures lie in an order that is neither";
    if (x->layout && x->layout != 231)
        return false;
    *o = (DpcConv){ .kind = n->op == OP_conv ? DPC_CONV
                          : n->op == OP_conv_dx ? DPC_CONV_DX : DPC_CONV_DW,
        .dtype_x = tx.dtype, .dtype_w = tw.dtype, .dtype_y = ty.dtype,
        .dtype_plain = w->op == OP_pack ? g->node[w->in[0]].type.dtype
                                        : tw.dtype,
        .nhwc = x->layout == 231, .packed = w->op == OP_pack,
        .batch = tx.dim[0], .c = tx.dim[1], .h = tx.dim[2], .w = tx.dim[3],
        .o = tw.dim[0], .kh = tw.dim[2], .kw = tw.dim[3],
        .oh = ty.dim[2], .ow = ty.dim[3], .groups = tx.dim[1] / tw.dim[1],
        .stride = { stride, stride }, 
        .pad = { sig_pad(&s, 'h'), sig_pad(&s, 'w') },
        .dilate = { dilate, dilate } };
    *why = "the library has no such convolution";
    return dpc_conv_scratch(o) >= 0;
}

Ref call_end(const Graph *g, Ref r)
{
    Ref end = r;
    for (Ref q = r + 1; g->node[r].kernel >= 0 && q < g->n; q++)
        if (g->node[q].kernel == g->node[r].kernel)
            end = q;
    return end;
}

Ref pack_reader(const Graph *g, Ref pack)
{
    for (Ref r = pack + 1; r < g->n; r++)
        if (ops[g->node[r].op].family == FAMILY_conv
            && g->node[r].in[1] == pack)
            return r;
    return NONE;
}
