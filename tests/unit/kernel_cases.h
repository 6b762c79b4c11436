/* kernel_cases.h -- graphs that are one kernel each.  For test programs. */
#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H

#include "tests/unit/kernel_run.h"

static const Case maps[] = {
    { "bias and gelu",
      "x = input : f32[$N,$M]\n"
      "b = param : f32[$M]\n"
      "bb = move b \"d -> n d\" n=$N\n"
      "y = add x, bb\n"
      "h = const value=0.5 : f32[$N,$M]\n"
      "r = const value=0.70710678 : f32[$N,$M]\n"
      "o = const value=1 : f32[$N,$M]\n"
      "z = mul y, r\n"
      "e = erf z\n"
      "f = add e, o\n"
      "g = mul y, f\n"
      "k = mul g, h\n"
      "return k=k y=y\n", 1e-6, 0 },
    { "functions",
      "x = input : f32[$N,$M]\n"
      "s = const value=3 : f32[$N,$M]\n"
      "y = mul x, s\n"
      "a = exp y\nb = abs y\nc = log b\nd = tanh y\ne = sin y\nf = cos y\n"
      "g = sigmoid y\nh = sqrt b\ni = rsqrt b\nj = floor y\nk = finite c\n"
      "l = sign y\nm = relu y\nn = step y\no = pow b, y\np = where l, a, b\n"
      "q = neg y\nr = recip b\ns1 = maximum y, q\nt = le y, q\n"
      "return a=a c=c d=d e=e f=f g=g h=h j=j k=k l=l m=m n=n o=o p=p s1=s1 "
      "t=t i=i r=r\n", 3e-6, 0 },
    { "scalars, integers and bytes",
      "x = input : u8[$N,$M]\n"
      "s = scalar value=0.25 : f32[]\n"
      "f = cast x dtype=f32\n"
      "t = move s \"-> n m\" n=$N m=$M\n"
      "y = mul f, t\n"
      "i = cast x dtype=i32\n"
      "j = add i, i\n"
      "return y=y j=j\n", 1e-6, 0 },
    { "casts out of range",
      "x = input : f32[$N,$M]\n"
      "k = const value=1e12 : f32[$N,$M]\n"
      "o = const value=300 : f32[$N,$M]\n"
      "y = mul x, k\n"
      "z = log x\n"
      "s = mul x, o\n"
      "a = cast y dtype=u8\nb = cast y dtype=i32\n"
      "c = cast z dtype=u8\nd = cast z dtype=i32\n"
      "e = cast s dtype=u8\nf = cast s dtype=i32\n"
      "g = cast f dtype=u8\nh = cast e dtype=f32\n"
      "return a=a b=b c=c d=d e=e f=f g=g h=h\n", 1e-6, 0 },
    { "bf16 rounds where the node is",
      "x = input : bf16[$N,$M]\n"
      "y = mul x, x\n"
      "z = cast y dtype=f32\n"
      "w = cast z dtype=bf16\n"
      "return y=y z=z w=w\n", 8e-3, 0 },
    { "transposes",
      "x = input : f32[$N,4,$M]\n"
      "y = move x \"nkm -> mkn\"\n"
      "z = move x \"nkm -> (mk) n\"\n"
      "w = neg z\n"
      "return w=w\n", 0, 0 },
    { "space to depth",
      "x = input : f32[2,3,$D,4]\n"
      "y = move x \"bc(hi)(wj) -> b(cij)hw\" i=2 j=2\n"
      "z = add y, y\n"
      "return z=z y=y\n", 0, 0 },
    { "pixels repeat",
      "x = input : f32[2,3,$N,$M]\n"
      "y = move x \"bchw -> bc(hi)(wj)\" i=2 j=2\n"
      "return y=y\n", 0, 231 },
    { "slice, pad and concat",
      "x = input : f32[$N,$M]\n"
      "c = input : f32[$N,3]\n"
      "y = concat x, c dim=1\n"
      "return y=y\n", 0, 0 },
    { "iota and random",
      "x = input : f32[$N,$M]\n"
      "i = iota dim=1 : f32[$N,$M]\n"
      "r = random id=7 dist=normal : f32[$N,$M]\n"
      "u = random id=8 : f32[$N,$M]\n"
      "a = mul i, r\n"
      "c = add a, u\n"
      "y = add c, x\n"
      "return y=y r=r u=u\n", 1e-6, 0 },
    { "draws, scaled",
      "r = random id=7 dist=normal : f32[$N,$M]\n"
      "s = const value=0.02 : f32[$N,$M]\n"
      "u = random id=8 : f32[$N,$M]\n"
      "o = const value=1 : f32[$N,$M]\n"
      "p = mul r, s\n"
      "q = sub u, o\n"
      "y = add p, q\n"
      "return y=y\n", 1e-6, 0 },
    { "iota and random of parts",
      "mesh a=2 b=2:time\n"
      "x = input : f32[8/a,6/b]\n"
      "i = iota dim=1 : f32[8/a,6/b]\n"
      "r = random id=7 dist=normal : f32[8/a,6/b]\n"
      "a = mul i, r\n"
      "y = add a, x\n"
      "return y=y\n", 1e-6, 0 },
    { "take",
      "t = param : f32[10,$M]\n"
      "i = input : i32[$N,2]\n"
      "y = take t, i\n"
      "z = mul y, y\n"
      "return z=z\n", 1e-6, 0 },
    { "take from a split table",
      "mesh a=3\n"
      "t = param : f32[12/a,$M]\n"
      "i = input : i32[$N]\n"
      "y = take t, i\n"
      "return y=y\n", 1e-6, 0 },
    { "shard",
      "mesh a=2 b=3:time\n"
      "x = input : f32[12/a,$M]\n"
      "y = shard x axes=b dim=0\n"
      "z = neg y\n"
      "return y=y z=z\n", 0, 0 },
    { "own",
      "mesh a=2 b=3\n"
      "x = input : f32[12/a,$M]\n"
      "y = own x axes=b\n"
      "return y=y\n", 0, 0 },
    { "gather over turns",
      "mesh a=2 b=3:time\n"
      "x = input : f32[12/a/b,$M]\n"
      "y = all_gather x axes=b dim=0\n"
      "return y=y\n", 0, 0 },
    { "numbers from a table",
      "mesh a=2\n"
      "x = input : f32[$N,6/a]\n"
      "t = const data=1,2,3,4,5,6.5 : f32[6/a]\n"
      "u = move t \"m -> nm\" n=$N\n"
      "y = mul x, u\n"
      "return y=y\n", 1e-6, 0 },
    { "put",
      "d = input : f32[$N,2,$M]\n"
      "i = input : i32[$N,2]\n"
      "t = param : f32[10,$M]\n"
      "y = put d, i, t\n"
      "return y=y\n", 1e-6, 0 },
};

static const Case folds[] = {
    { "layer norm",
      "x = input : f32[2,$N,$M]\n"
      "g = param : f32[$M]\n"
      "in = const value=0.0078125 : f32[2,$N]\n"
      "s = move x \"bnd -> bn\"\n"
      "m = mul s, in\n"
      "mm = move m \"bn -> bnd\" d=$M\n"
      "c = sub x, mm\n"
      "q = mul c, c\n"
      "v = move q \"bnd -> bn\"\n"
      "v1 = mul v, in\n"
      "eps = const value=1e-5 : f32[2,$N]\n"
      "v2 = add v1, eps\n"
      "r = rsqrt v2\n"
      "rr = move r \"bn -> bnd\" d=$M\n"
      "h = mul c, rr\n"
      "gg = move g \"d -> bnd\" b=2 n=$N\n"
      "y = mul h, gg\n"
      "return y=y r=r\n", 1e-5, 0 },
    { "layer norm backward",
      "x = input : f32[2,$N,$M]\n"
      "dy = input : f32[2,$N,$M]\n"
      "r = input : f32[2,$N]\n"
      "in = const value=0.0078125 : f32[2,$N]\n"
      "rr = move r \"bn -> bnd\" d=$M\n"
      "h = mul x, rr\n"
      "p = mul h, dy\n"
      "a = move p \"bnd -> bn\"\n"
      "b = move dy \"bnd -> bn\"\n"
      "a1 = mul a, in\n"
      "b1 = mul b, in\n"
      "a2 = move a1 \"bn -> bnd\" d=$M\n"
      "b2 = move b1 \"bn -> bnd\" d=$M\n"
      "t = mul h, a2\n"
      "u = add t, b2\n"
      "w = sub dy, u\n"
      "dx = mul w, rr\n"
      "return dx=dx\n", 1e-5, 0 },
    { "layer norm backward, with the columns of each row",
      "x = input : f32[20,$N,$M]\n"
      "dy = input : f32[20,$N,$M]\n"
      "g = param : f32[$M]\n"
      "in = const value=0.0078125 : f32[20,$N]\n"
      "gg = move g \"d -> bnd\" b=20 n=$N\n"
      "db = move dy \"bnd -> bd\"\n"
      "s = move x \"bnd -> bn\"\n"
      "m = mul s, in\n"
      "mm = move m \"bn -> bnd\" d=$M\n"
      "h = sub x, mm\n"
      "p = mul h, dy\n"
      "dg = move p \"bnd -> bd\"\n"
      "w = mul dy, gg\n"
      "q = mul w, h\n"
      "a = move q \"bnd -> bn\"\n"
      "a1 = mul a, in\n"
      "a2 = move a1 \"bn -> bnd\" d=$M\n"
      "t = mul h, a2\n"
      "dx = sub w, t\n"
      "dc = move dx \"bnd -> bd\"\n"
      "hi = max dx \"bnd -> bd\"\n"
      "return dx=dx db=db dg=dg dc=dc hi=hi\n", 2e-5, 0 },
    { "group norm backward, channels last, with the columns of each picture",
      "x = input : f32[20,12,$N,$M]\n"
      "dy = input : f32[20,12,$N,$M]\n"
      "g = param : f32[12]\n"
      "s = input : f32[20,12]\n"
      "gg = move g \"c -> bchw\" b=20 h=$N w=$M\n"
      "ss = move s \"bc -> bchw\" h=$N w=$M\n"
      "u = mul dy, ss\n"
      "db = move u \"bchw -> bc\"\n"
      "p = mul u, x\n"
      "dg = move p \"bchw -> bc\"\n"
      "w = mul u, gg\n"
      "q = mul w, x\n"
      "a = move q \"b(gc)hw -> bg\" g=4\n"
      "k = const value=0.01 : f32[20,4]\n"
      "a1 = mul a, k\n"
      "a2 = move a1 \"bg -> b(gc)hw\" c=3 h=$N w=$M\n"
      "t = mul x, a2\n"
      "dx = sub w, t\n"
      "dc = move dx \"bchw -> bc\"\n"
      "e = sigmoid p\n"
      "return dx=dx db=db dg=dg dc=dc e=e\n", 2e-5, 231 },
    { "group norm backward, with the columns of each picture",
      "x = input : f32[20,12,$N,$M]\n"
      "dy = input : f32[20,12,$N,$M]\n"
      "p = mul dy, x\n"
      "dg = move p \"bchw -> bc\"\n"
      "a = move p \"b(gc)hw -> bg\" g=4\n"
      "k = const value=0.01 : f32[20,4]\n"
      "a1 = mul a, k\n"
      "a2 = move a1 \"bg -> b(gc)hw\" c=3 h=$N w=$M\n"
      "t = mul x, a2\n"
      "dx = sub dy, t\n"
      "return dx=dx dg=dg\n", 2e-5, 0 },
    { "a table read by what stands on it",
      "x = input : f32[16,$N,7]\n"
      "s = move x \"bnd -> bn\"\n"
      "e = tanh s\n"
      "ee = move e \"bn -> bnd\" d=7\n"
      "y = mul x, ee\n"
      "t = move y \"bnd -> bd\"\n"
      "f = abs t\n"
      "r = move f \"bd -> b\"\n"
      "rr = move r \"b -> bn\" n=$N\n"
      "z = sub s, rr\n"
      "return y=y t=t r=r z=z\n", 1e-5, 0 },
    { "softmax",
      "x = input : f32[3,$N,$M]\n"
      "m = max x \"bnd -> bn\"\n"
      "mm = move m \"bn -> bnd\" d=$M\n"
      "c = sub x, mm\n"
      "e = exp c\n"
      "s = move e \"bnd -> bn\"\n"
      "ss = move s \"bn -> bnd\" d=$M\n"
      "y = div e, ss\n"
      "return y=y\n", 2e-6, 0 },
    { "softmax backward",
      "y = input : f32[3,$N,$M]\n"
      "dy = input : f32[3,$N,$M]\n"
      "p = mul y, dy\n"
      "s = move p \"bnd -> bn\"\n"
      "ss = move s \"bn -> bnd\" d=$M\n"
      "c = sub dy, ss\n"
      "dx = mul y, c\n"
      "return dx=dx\n", 1e-5, 0 },
    { "group norm, channels last",
      "x = input : f32[2,12,$N,$M]\n"
      "g = param : f32[12]\n"
      "s = move x \"b(gc)hw -> bg\" g=4\n"
      "q = mul x, x\n"
      "t = move q \"b(gc)hw -> bg\" g=4\n"
      "k = const value=0.01 : f32[2,4]\n"
      "m = mul s, k\n"
      "v = mul t, k\n"
      "m2 = mul m, m\n"
      "d = sub v, m2\n"
      "a = abs d\n"
      "r = sqrt a\n"
      "mm = move m \"bg -> b(gc)hw\" c=3 h=$N w=$M\n"
      "rr = move r \"bg -> b(gc)hw\" c=3 h=$N w=$M\n"
      "gg = move g \"c -> bchw\" b=2 h=$N w=$M\n"
      "y1 = sub x, mm\n"
      "y2 = mul y1, rr\n"
      "y = mul y2, gg\n"
      "z = sigmoid y\n"
      "o = mul y, z\n"
      "return o=o\n", 1e-5, 231 },
    { "column fold",
      "dy = input : f32[2,$M,$N,3]\n"
      "db = move dy \"bchw -> c\"\n"
      "return db=db\n", 1e-5, 0 },
    { "column fold, channels last, with its map",
      "dy = input : f32[2,$M,$N,3]\n"
      "x = input : f32[2,$M,$N,3]\n"
      "dx = mul dy, x\n"
      "db = move dx \"bchw -> c\"\n"
      "h = const value=0.5 : f32[$M]\n"
      "y = mul db, h\n"
      "return y=y dx=dx\n", 1e-5, 231 },
    { "total",
      "x = input : f32[$N,$M,5]\n"
      "q = mul x, x\n"
      "s = move q \"abc ->\"\n"
      "m = max x \"abc ->\"\n"
      "r = sqrt s\n"
      "return r=r m=m\n", 1e-5, 0 },
    { "fold of parts",
      "mesh a=2 b=2:time\n"
      "x = input : f32[6/a,$M/b]\n"
      "q = mul x, x\n"
      "s = move q \"nm -> n\"\n"
      "return s=s\n", 1e-5, 0 },
    { "fold of uneven parts",
      "mesh a=2\n"
      "x = input : f32[$N,7/a]\n"
      "s = move x \"nm -> n\"\n"
      "m = max x \"nm -> n\"\n"
      "return s=s m=m\n", 1e-5, 0 },
    { "a long row",
      "x = input : f32[3,70001]\n"
      "s = move x \"nm -> n\"\n"
      "m = max x \"nm -> n\"\n"
      "y = add s, m\n"
      "return y=y\n", 1e-4, 0 },
    { "long columns",
      "x = input : f32[9001,$M]\n"
      "s = move x \"nm -> m\"\n"
      "return s=s\n", 1e-4, 0 },
    { "fold in the middle",
      "x = input : f32[3,$N,$M]\n"
      "m = max x \"bnd -> bd\"\n"
      "s = move x \"bnd -> bd\"\n"
      "return m=m s=s\n", 1e-5, 0 },
    { "fold of bf16",
      "x = input : bf16[$N,$M]\n"
      "s = move x \"nm -> n\"\n"
      "return s=s\n", 8e-3, 0 },
    { "dot as loops",
      "a = input : f32[2,$N,5]\n"
      "b = input : f32[2,$M,5]\n"
      "c = dot a, b \"bnk,bmk->bnm\"\n"
      "return c=c\n", 1e-6, 0 },
    { "conv as loops",
      "x = input : f32[2,3,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "y = conv x, w stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
    { "conv in groups as loops",
      "x = input : f32[2,6,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "y = conv x, w g=2 stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
    { "conv_dx in groups as loops",
      "x = input : f32[2,6,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "dy = input : f32[2,4,5,4]\n"
      "y = conv_dx dy, w, x g=2 stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
    { "conv_dw in groups as loops",
      "x = input : f32[2,6,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "dy = input : f32[2,4,5,4]\n"
      "y = conv_dw x, dy, w g=2 stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
    { "conv_dx as loops",
      "x = input : f32[2,3,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "dy = input : f32[2,4,5,4]\n"
      "y = conv_dx dy, w, x stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
    { "conv_dw as loops",
      "x = input : f32[2,3,9,8]\n"
      "w = param : f32[4,3,3,3]\n"
      "dy = input : f32[2,4,5,4]\n"
      "y = conv_dw x, dy, w stride=2 pad=1\n"
      "return y=y\n", 1e-6, 0 },
};

/* Attention: keys of each head, shared ones, parts that hold padding.  The
 * leaf named mask is 0 or 1. */
static const Case attentions[] = {
    { "attn_lse of heads",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,3,$M,20]\n"
      "mask = input : f32[2,$M]\n"
      "r = attn_lse q, k, mask \"bhqd,bhsd,bs->bhq\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_out of heads",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,3,$M,20]\n"
      "v = input : f32[2,3,$M,24]\n"
      "mask = input : f32[2,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "r = attn_out q, k, v, mask, lse \"bhqd,bhsd,bhse,bs,bhq->bhqe\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dq of heads",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,3,$M,20]\n"
      "v = input : f32[2,3,$M,24]\n"
      "mask = input : f32[2,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "y = input : f32[2,3,$N,24]\n"
      "r = attn_dq q, k, v, mask, lse, dy, y \"bhqd,bhsd,bhse,bs,bhq,bhqe,bhqe->bhqd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dk of heads",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,3,$M,20]\n"
      "v = input : f32[2,3,$M,24]\n"
      "mask = input : f32[2,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "y = input : f32[2,3,$N,24]\n"
      "r = attn_dk q, k, v, mask, lse, dy, y \"bhqd,bhsd,bhse,bs,bhq,bhqe,bhqe->bhsd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dv of heads",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,3,$M,20]\n"
      "mask = input : f32[2,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "r = attn_dv q, k, mask, lse, dy \"bhqd,bhsd,bs,bhq,bhqe->bhse\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_lse of shared keys",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,$M,20]\n"
      "mask = input : f32[2,$N,$M]\n"
      "r = attn_lse q, k, mask \"bhqd,bsd,bqs->bhq\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_out of shared keys",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,$M,20]\n"
      "v = input : f32[2,$M,24]\n"
      "mask = input : f32[2,$N,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "r = attn_out q, k, v, mask, lse \"bhqd,bsd,bse,bqs,bhq->bhqe\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dq of shared keys",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,$M,20]\n"
      "v = input : f32[2,$M,24]\n"
      "mask = input : f32[2,$N,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "y = input : f32[2,3,$N,24]\n"
      "r = attn_dq q, k, v, mask, lse, dy, y \"bhqd,bsd,bse,bqs,bhq,bhqe,bhqe->bhqd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dk of shared keys",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,$M,20]\n"
      "v = input : f32[2,$M,24]\n"
      "mask = input : f32[2,$N,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "y = input : f32[2,3,$N,24]\n"
      "r = attn_dk q, k, v, mask, lse, dy, y \"bhqd,bsd,bse,bqs,bhq,bhqe,bhqe->bsd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dv of shared keys",
      "q = input : f32[2,3,$N,20]\n"
      "k = input : f32[2,$M,20]\n"
      "mask = input : f32[2,$N,$M]\n"
      "lse = input : f32[2,3,$N]\n"
      "dy = input : f32[2,3,$N,24]\n"
      "r = attn_dv q, k, mask, lse, dy \"bhqd,bsd,bqs,bhq,bhqe->bse\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_lse of parts",
      "mesh a=2 c=2\n"
      "q = input : f32[2,3,7/a,20]\n"
      "k = input : f32[2,3,9/c,20]\n"
      "mask = input : f32[2,9/c]\n"
      "r = attn_lse q, k, mask \"bhqd,bhsd,bs->bhq\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_out of parts",
      "mesh a=2 c=2\n"
      "q = input : f32[2,3,7/a,20]\n"
      "k = input : f32[2,3,9/c,20]\n"
      "v = input : f32[2,3,9/c,24]\n"
      "mask = input : f32[2,9/c]\n"
      "lse = input : f32[2,3,7/a]\n"
      "r = attn_out q, k, v, mask, lse \"bhqd,bhsd,bhse,bs,bhq->bhqe\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dq of parts",
      "mesh a=2 c=2\n"
      "q = input : f32[2,3,7/a,20]\n"
      "k = input : f32[2,3,9/c,20]\n"
      "v = input : f32[2,3,9/c,24]\n"
      "mask = input : f32[2,9/c]\n"
      "lse = input : f32[2,3,7/a]\n"
      "dy = input : f32[2,3,7/a,24]\n"
      "y = input : f32[2,3,7/a,24]\n"
      "r = attn_dq q, k, v, mask, lse, dy, y \"bhqd,bhsd,bhse,bs,bhq,bhqe,bhqe->bhqd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dk of parts",
      "mesh a=2 c=2\n"
      "q = input : f32[2,3,7/a,20]\n"
      "k = input : f32[2,3,9/c,20]\n"
      "v = input : f32[2,3,9/c,24]\n"
      "mask = input : f32[2,9/c]\n"
      "lse = input : f32[2,3,7/a]\n"
      "dy = input : f32[2,3,7/a,24]\n"
      "y = input : f32[2,3,7/a,24]\n"
      "r = attn_dk q, k, v, mask, lse, dy, y \"bhqd,bhsd,bhse,bs,bhq,bhqe,bhqe->bhsd\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dv of parts",
      "mesh a=2 c=2\n"
      "q = input : f32[2,3,7/a,20]\n"
      "k = input : f32[2,3,9/c,20]\n"
      "mask = input : f32[2,9/c]\n"
      "lse = input : f32[2,3,7/a]\n"
      "dy = input : f32[2,3,7/a,24]\n"
      "r = attn_dv q, k, mask, lse, dy \"bhqd,bhsd,bs,bhq,bhqe->bhse\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_out of wide heads",
      "q = input : f32[1,2,3,520]\n"
      "k = input : f32[1,2,5,520]\n"
      "v = input : f32[1,2,5,513]\n"
      "mask = input : f32[5]\n"
      "lse = input : f32[1,2,3]\n"
      "r = attn_out q, k, v, mask, lse \"bhqd,bhsd,bhse,s,bhq->bhqe\"\n"
      "return r=r\n", 1e-5, 0 },
    { "attn_dk of wide heads",
      "q = input : f32[1,2,35,520]\n"
      "k = input : f32[1,2,5,520]\n"
      "v = input : f32[1,2,5,513]\n"
      "mask = input : f32[5]\n"
      "lse = input : f32[1,2,35]\n"
      "dy = input : f32[1,2,35,513]\n"
      "y = input : f32[1,2,35,513]\n"
      "r = attn_dk q, k, v, mask, lse, dy, y "
      "\"bhqd,bhsd,bhse,s,bhq,bhqe,bhqe->bhsd\"\n"
      "return r=r\n", 1e-5, 0 },
};

#endif
