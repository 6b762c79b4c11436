/* models.h -- small graphs of the kinds that users train, as text, for tests
 * of the passes; each with its parameters' update where it has one. */
#ifndef DPC_TEST_MODELS_H
#define DPC_TEST_MODELS_H

#include "ir/graph.h"

typedef struct Model {
    const char *name;
    const char *text;
    /* What AdamW updates: "w1 ab 4 6" a line; NULL: nothing. */
    const char *train;
} Model;

static const Model models[] = {
{ "mlp",
    "x = input : f32[8,4]\ny = input : f32[8,2]\n"
    "w1 = param : f32[4,6]\nb1 = param : f32[6]\nw2 = param : f32[6,2]\n"
    "h1 = dot x, w1 \"bk,kn->bn\"\nb1s = move b1 \"n->bn\" b=8\n"
    "h2 = add h1, b1s\nh = relu h2\no = dot h, w2 \"bk,kn->bn\"\n"
    "d = sub o, y\nd2 = mul d, d\nl = move d2 \"bn->\"\n"
    "c = const value=0.0625 : f32[]\nloss = mul l, c\n",
    "w1 4 6\nb1 6\nw2 6 2\n" },
{ "attention",
    "x = input : f32[4,6,8]\n"
    "wq = param : f32[8,8]\nwk = param : f32[8,8]\nwv = param : f32[8,8]\n"
    "wo = param : f32[8,8]\n"
    "q0 = dot x, wq \"bqd,de->bqe\"\nq = move q0 \"bq(he)->bhqe\" h=2\n"
    "k0 = dot x, wk \"bqd,de->bqe\"\nk = move k0 \"bq(he)->bhqe\" h=2\n"
    "v0 = dot x, wv \"bqd,de->bqe\"\nv = move v0 \"bq(he)->bhqe\" h=2\n"
    "s = dot q, k \"bhqe,bhse->bhqs\"\nm0 = max s \"bhqs->bhq\"\n"
    "m1 = stop m0\nm = move m1 \"bhq->bhqs\" s=6\nu = sub s, m\ne = exp u\n"
    "z0 = move e \"bhqs->bhq\"\nz = move z0 \"bhq->bhqs\" s=6\np = div e, z\n"
    "a = dot p, v \"bhqs,bhse->bhqe\"\na1 = move a \"bhqe->bq(he)\"\n"
    "o = dot a1, wo \"bqd,de->bqe\"\no1 = add o, x\no2 = mul o1, o1\n"
    "loss = move o2 \"bqe->\"\n",
    "wq 8 8\nwk 8 8\nwv 8 8\nwo 8 8\n" },
{ "layer norm",
    "x = input : f32[8,6]\nw = param : f32[6,6]\ng = param : f32[6]\n"
    "h = dot x, w \"bk,kn->bn\"\nsixth = const value=0.125 : f32[]\n"
    "k = move sixth \"->b\" b=8\nm0 = move h \"bn->b\"\nm1 = mul m0, k\n"
    "m = move m1 \"b->bn\" n=6\nd = sub h, m\nv0 = dot d, d \"bn,bn->b\"\n"
    "v1 = mul v0, k\nv2 = add v1, k\nr = rsqrt v2\nrs = move r \"b->bn\" n=6\n"
    "y = mul d, rs\ngs = move g \"n->bn\" b=8\nz = mul y, gs\nt = tanh z\n"
    "loss = move t \"bn->\"\n",
    "w 6 6\ng 6\n" },
{ "u-net",
    "x = input : f32[4,3,8,8]\nw1 = param : f32[4,3,3,3]\n"
    "w2 = param : f32[4,16,3,3]\nw3 = param : f32[3,8,3,3]\n"
    "gain = param : f32[4]\n"
    "n = random id=3 dist=\"normal\" : f32[4,3,8,8]\nx1 = add x, n\n"
    "c1 = conv x1, w1 pad=1\ng0 = move c1 \"b(gc)hw->bgchw\" g=2\n"
    "s0 = move g0 \"bgchw->bg\"\nq0 = dot g0, g0 \"bgchw,bgchw->bg\"\n"
    "e = const value=0.0078125 : f32[]\nes = move e \"->bg\" b=4 g=2\n"
    "mu = mul s0, es\nq1 = mul q0, es\nmm = mul mu, mu\nva = sub q1, mm\n"
    "vb = add va, es\nri = rsqrt vb\nris = move ri \"bg->bgchw\" c=2 h=8 w=8\n"
    "mus = move mu \"bg->bgchw\" c=2 h=8 w=8\ndd = sub g0, mus\n"
    "nn = mul dd, ris\nn4 = move nn \"bgchw->b(gc)hw\"\n"
    "ga = move gain \"c->bchw\" b=4 h=8 w=8\nn5 = mul n4, ga\n"
    "sg = sigmoid n5\nact = mul n5, sg\n"
    "down = move act \"bc(hr)(ws)->b(crs)hw\" r=2 s=2\n"
    "c2 = conv down, w2 pad=1\nr2 = relu c2\n"
    "up = move r2 \"bchw->bc(hr)(ws)\" r=2 s=2\n"
    "cat = concat act, up dim=1\nc3 = conv cat, w3 pad=1\n"
    "half = slice c3 dim=1 at=1 size=2\nhh = mul half, half\n"
    "loss = move hh \"bchw->\"\n",
    "w1 4 3 3 3\nw2 4 16 3 3\nw3 3 8 3 3\ngain 4\n" },
{ "embedding",
    "t = input : i32[4,5]\ntab = param : f32[10,6]\nw = param : f32[6,10]\n"
    "e = take tab, t\nl = dot e, w \"bsd,dv->bsv\"\nz = tanh l\n"
    "p = dot z, e \"bsv,bsd->bvd\"\nq = mul p, p\nloss = move q \"bvd->\"\n",
    "tab 10 6\nw 6 10\n" },
{ "contrastive",
    "x = input : f32[8,4]\ny = input : f32[8,4]\nwx = param : f32[4,6]\n"
    "wy = param : f32[4,6]\na = dot x, wx \"bk,kd->bd\"\n"
    "b = dot y, wy \"bk,kd->bd\"\ns = dot a, b \"bd,cd->bc\"\n"
    "m0 = max s \"bc->b\"\nm1 = stop m0\nm = move m1 \"b->bc\" c=8\n"
    "u = sub s, m\ne = exp u\nz = move e \"bc->b\"\nlz = log z\n"
    "i = iota dim=0 : f32[8,8]\nj = iota dim=1 : f32[8,8]\nd = eq i, j\n"
    "k = keep d, u\ndiag = move k \"bc->b\"\nn = sub lz, diag\n"
    "loss = move n \"b->\"\n",
    "wx 4 6\nwy 4 6\n" },
{ "noise",
    "x = input : f32[8,4]\nlevel = scalar value=0.5 : f32[]\n"
    "w = param : f32[4,4]\nn = random id=1 dist=\"normal\" : f32[8,4]\n"
    "u = random id=2 dist=\"uniform\" : f32[8]\ni = iota dim=1 : f32[8,4]\n"
    "us = move u \"b->bk\" k=4\nls = move level \"->bk\" b=8 k=4\n"
    "n1 = mul n, us\nn2 = mul n1, ls\nn3 = add n2, i\nx1 = add x, n3\n"
    "h = dot x1, w \"bk,kn->bn\"\nd = sub h, n\nd2 = mul d, d\n"
    "loss = move d2 \"bn->\"\n",
    "w 4 4\n" },
{ "second order",
    "x = input : f32[8,4]\nw = param : f32[4,3]\nh = dot x, w \"bk,kn->bn\"\n"
    "t = tanh h\nt2 = mul t, t\nl1 = move t2 \"bn->\"\ng = grad l1, w\n"
    "gg = mul g, g\nl2 = move gg \"kn->\"\nloss = add l1, l2\n",
    "w 4 3\n" },
/* leaves that take each other's values, or none of the step's */
{ "swap",
    "x = input : f32[8,3]\na = state : f32[3,3]\nb = state : f32[3,3]\n"
    "c = state : f32[3,3]\nd = state : f32[3,3]\ne = state : f32[3,3]\n"
    "f = param frozen=1 : f32[3,3]\np = state : f32[3,3]\n"
    "q = state : f32[3,3]\n"
    "xx = dot x, x \"bk,bn->kn\"\ncx = dot c, c \"ij,jk->ik\"\n"
    "dx = add d, xx\nnd = neg d\ncd = dot nd, f \"ij,jk->ik\"\nte = tanh e\n"
    "tt = move e \"ij->ji\"\npp = dot xx, p \"ij,kj->ik\"\n"
    "l0 = move cd \"ij->\"\nl1 = move te \"ij->\"\nloss = add l0, l1\n"
    "set a = b\nset b = a\nset c = cx\nset d = dx\nset e = tt\nset p = pp\n"
    "set q = xx\n"
    "return loss=loss c=c cx=cx tt=tt x2=xx again=xx\n", NULL },
/* ranks that owe a sum to a leaf which others read in between */
{ "statistics",
    "x = input : f32[8,3]\nm = state : f32[3,3]\nc = state : f32[3,3]\n"
    "s = dot x, x \"bi,bj->ij\"\nold = dot m, m \"ij,jk->ik\"\n"
    "mx = max x \"bi->i\"\nmx2 = move mx \"i->ij\" j=3\nc1 = add old, mx2\n"
    "xm = dot x, m \"bi,ij->bj\"\nxs = dot xm, x \"bi,bj->ij\"\n"
    "r = add c, xs\nset m = s\nset c = r\nreturn s=c1\n", NULL },
{ "outer product",
    "x = input : f32[8,4]\nw = param : f32[6]\n"
    "o = dot x, w \"bk,n->bkn\"\no1 = mul o, o\n"
    "loss = move o1 \"bkn->\"\n",
    "w 6\n" },
{ "attention without scores",
    "x = input : f32[4,6,8]\nm = const value=1 : f32[6]\n"
    "wq = param : f32[8,8]\nwk = param : f32[8,4]\nwv = param : f32[8,4]\n"
    "wo = param : f32[8,8]\n"
    "q0 = dot x, wq \"bqd,de->bqe\"\nq = move q0 \"bq(he)->bhqe\" h=2\n"
    "k = dot x, wk \"bqd,de->bqe\"\nv = dot x, wv \"bqd,de->bqe\"\n"
    "a = attn q, k, v, m \"bhqd,bsd,bse,s->bhqe\"\n"
    "a1 = move a \"bhqe->bq(he)\"\n"
    "o = dot a1, wo \"bqd,de->bqe\"\no1 = add o, x\no2 = mul o1, o1\n"
    "loss = move o2 \"bqe->\"\n",
    "wq 8 8\nwk 8 4\nwv 8 4\nwo 8 8\n" },
};

static inline void dims_of(const char *line, int64_t *dim, int *n)
{
    const char *p = strchr(line, ' ');
    for (*n = 0; p && *p == ' '; p += strcspn(p + 1, " \n") + 1)
        dim[(*n)++] = p[1] - '0' + (p[2] >= '0' && p[2] <= '9'
            ? 9 * (p[1] - '0') + p[2] - '0' : 0);
}

typedef struct Param {
    char name[16], letters[8], sizes[64], type[64];
} Param;

/* "w1 4 6\n" and on; the next line, or NULL. */
static inline const char *param_read(const char *line, Param *p)
{
    int64_t dim[NDIM];
    int n;
    size_t len = strcspn(line, " ");
    memset(p, 0, sizeof *p);
    memcpy(p->name, line, len);
    dims_of(line, dim, &n);
    char *s = p->sizes, *t = p->type;
    t += sprintf(t, "f32[");
    for (int d = 0; d < n; d++) {
        p->letters[d] = (char)('a' + d);
        s += sprintf(s, " %c=%d", 'a' + d, (int)dim[d]);
        t += sprintf(t, "%s%d", d ? "," : "", (int)dim[d]);
    }
    sprintf(t, "]");
    line += strcspn(line, "\n");
    return line[0] && line[1] ? line + 1 : NULL;
}

static inline void spread(Str *s, const Param *p, const char *to,
                          const char *from)
{
    str_add(s, "%s_%s = move %s \"->%s\"%s\n", to, p->name, from, p->letters,
            p->sizes);
}

/* AdamW (moments, bias correction from the step's count, decay), clipped by
 * the global norm, and an average of the weights. */
static inline void adam(Str *s, const Param *p)
{
    const char *n = p->name;
    str_add(s, "m_%1$s = state : %2$s\nv_%1$s = state : %2$s\n"
            "ema_%1$s = state : %2$s\n", n, p->type);
    spread(s, p, "clip", "clip"), spread(s, p, "be", "beta");
    spread(s, p, "nb", "rest"), spread(s, p, "cb", "fix");
    spread(s, p, "lr", "rate"), spread(s, p, "ep", "tiny");
    str_add(s, "gc_%1$s = mul g_%1$s, clip_%1$s\n"
            "ma_%1$s = mul m_%1$s, be_%1$s\nmb_%1$s = mul gc_%1$s, nb_%1$s\n"
            "m1_%1$s = add ma_%1$s, mb_%1$s\n"
            "g2_%1$s = mul gc_%1$s, gc_%1$s\n"
            "va_%1$s = mul v_%1$s, be_%1$s\nvb_%1$s = mul g2_%1$s, nb_%1$s\n"
            "v1_%1$s = add va_%1$s, vb_%1$s\n"
            "mh_%1$s = mul m1_%1$s, cb_%1$s\nvh_%1$s = mul v1_%1$s, cb_%1$s\n"
            "sq_%1$s = sqrt vh_%1$s\nsq1_%1$s = add sq_%1$s, ep_%1$s\n"
            "up_%1$s = div mh_%1$s, sq1_%1$s\nde_%1$s = mul %1$s, nb_%1$s\n"
            "up1_%1$s = add up_%1$s, de_%1$s\n"
            "up2_%1$s = mul up1_%1$s, lr_%1$s\nw1_%1$s = sub %1$s, up2_%1$s\n"
            "ea_%1$s = mul ema_%1$s, be_%1$s\neb_%1$s = mul w1_%1$s, nb_%1$s\n"
            "e1_%1$s = add ea_%1$s, eb_%1$s\n"
            "set %1$s = w1_%1$s\nset m_%1$s = m1_%1$s\n"
            "set v_%1$s = v1_%1$s\nset ema_%1$s = e1_%1$s\n", n);
}

static inline void norm(Str *s, const char *train)
{
    Str names = { .arena = s->arena };
    Param p;
    for (const char *t = train; t;) {
        t = param_read(t, &p);
        str_add(s, "g_%1$s = grad loss, %1$s\n"
                "q_%1$s = dot g_%1$s, g_%1$s \"%2$s,%2$s->\"\n", p.name,
                p.letters);
        str_add(&names, "%sq_%s", names.n ? ", " : "", p.name);
    }
    str_add(s, "nn_ = total %s\nnorm = sqrt nn_\none = const value=1 : f32[]\n"
            "inv = div one, norm\nclip = minimum one, inv\n"
            "count = state : f32[]\ncount1 = add count, one\n"
            "beta = const value=0.875 : f32[]\nrest = sub one, beta\n"
            "bp = pow beta, count1\nbp1 = sub one, bp\nfix = div one, bp1\n"
            "rate = scalar value=0.01 : f32[]\n"
            "tiny = const value=0.0009765625 : f32[]\nset count = count1\n",
            names.p);
}

/* The text of a whole step.  In `a`. */
static inline char *model_text(Arena *a, const Model *m)
{
    Str s = { .arena = a };
    Param p;
    str_add(&s, "entry train\nphase tensor\n%s", m->text);
    if (m->train)
        norm(&s, m->train);
    for (const char *t = m->train; t;) {
        t = param_read(t, &p);
        adam(&s, &p);
    }
    if (m->train)
        str_add(&s, "return loss=loss norm=norm\n");
    return s.p;
}

static inline Graph *model_graph(Arena *a, const Model *m)
{
    return graph_parse(a, model_text(a, m), m->name);
}

#endif
