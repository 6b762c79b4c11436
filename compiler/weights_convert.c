/* weights_convert.c -- dpc weights convert: tensors into other files.
 *
 * One slice at a time is in memory, whatever the size of a tensor.  Tensors of
 * wide elements stand first in a file, so that none is misaligned; which file
 * a tensor goes to follows from the sizes alone.  Files grow under a name of
 * their own and are renamed when they are durable, so that OUT is whole or not
 * there. */
#include "compiler/weights.h"
#include "runtime/source.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROOM = 8 << 20 };                  /* bytes of a slice */

typedef struct Convert {
    const Options *o;
    DpcSource *s;
    const DpcWhole **take;                /* [n], by name */
    const char **name;                    /* [n] in the files to be made */
    uint32_t *file;                       /* [n] which file it goes to */
    uint32_t n, nfile;
    uint32_t at;                          /* the file that is being made */
    const char *out, *tmp;
    int64_t total;                        /* bytes of all tensors */
    DpcOut to;
    char *slice, *stage, *own;            /* [ROOM] each; own: unconverted */
    int64_t beyond;                       /* elements of the tensor at hand that
                                             the new kind does not reach */
} Convert;

/* ---- which tensors ---- */

static bool is_float(uint8_t kind)
{
    return kind == DPC_SAFE_F16 || kind == DPC_SAFE_BF16 ||
           kind == DPC_SAFE_F32 || kind == DPC_SAFE_F64;
}

/* Of eight bits, whose tensors are quantized by factors in other ones. */
static bool is_eight(uint8_t kind)
{
    return kind == DPC_SAFE_F8_E4M3 || kind == DPC_SAFE_F8_E5M2 ||
           kind == DPC_SAFE_F8_E8M0;
}

static DpcSafeKind kind_of(const Convert *c, const DpcWhole *w)
{
    static const struct { const char *name; DpcSafeKind kind; } known[] = {
        { "f32", DPC_SAFE_F32 }, { "bf16", DPC_SAFE_BF16 },
        { "f16", DPC_SAFE_F16 }, { "f64", DPC_SAFE_F64 },
    };
    for (int i = 0; c->o->store && i < COUNT(known); i++)
        if (is_float(w->kind) && strcmp(known[i].name, c->o->store) == 0)
            return known[i].kind;
    return (DpcSafeKind)w->kind;
}

static int64_t bytes_of(const Convert *c, uint32_t i)
{
    const DpcWhole *w = c->take[i];
    return dpc_safe_bytes(kind_of(c, w), w->ndim, w->dim);
}

/* Params, or with --ema their averages where there are; below --prefix. */
static void tensors_choose(Convert *c)
{
    const Options *o = c->o;
    const char *prefix = o->prefix ? o->prefix : "";
    size_t n = strlen(prefix);
    if (n && prefix[n - 1] != '.')
        prefix = fmt(o->arena, "%s.", prefix), n++;
    c->take = alloc(o->arena, (c->s->n + 1) * sizeof *c->take);
    c->name = alloc(o->arena, (c->s->n + 1) * sizeof *c->name);
    for (uint32_t i = 0; i < c->s->n; i++) {
        const DpcWhole *w = &c->s->whole[i], *mean = NULL;
        if (w->state || strncmp(w->name, prefix, n) != 0)
            continue;
        if (o->ema)
            mean = dpc_source_find(c->s, fmt(o->arena, "ema.%s", w->name));
        if (o->store && is_eight(w->kind))
            err(c->s->path, "\"%s\": elements of %s want their scales to be "
                "converted; without --dtype they stay as they are", w->name,
                dpc_safe_kind_name(w->kind));
        if (!dpc_safe_converts(w->kind, kind_of(c, w)))
            err(c->s->path, "\"%s\": elements of %s are parts of bytes, which "
                "cannot be converted", w->name, dpc_safe_kind_name(w->kind));
        c->name[c->n] = w->name + n;
        c->take[c->n++] = mean ? mean : w;
    }
    if (!c->n)
        err(c->s->path, "holds no tensor%s%s%s", n ? " below \"" : "",
            prefix, n ? "\"" : "");
}

/* "5GB", "500MB", "64KiB", "4096". */
static int64_t size_read(const char *s)
{
    static const struct { const char *unit; double size; } unit[] = {
        { "", 1 }, { "B", 1 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 },
        { "KiB", 1024 }, { "MiB", 1 << 20 }, { "GiB", 1 << 30 },
    };
    char *end;
    double x = strtod(s, &end);
    for (int i = 0; i < COUNT(unit); i++)
        if (end != s && strcmp(end, unit[i].unit) == 0 &&
            x * unit[i].size >= 1 && x * unit[i].size < 1e18)
            return (int64_t)(x * unit[i].size);
    usage("--shards: \"%s\" is no size; 5GB, 500MB, 64MiB are", s);
}

/* Each file takes what fits in the order of names, and one tensor at least. */
static void files_choose(Convert *c)
{
    int64_t most = c->o->shards ? size_read(c->o->shards) : INT64_MAX;
    int64_t in = 0;
    c->file = alloc(c->o->arena, (c->n + 1) * sizeof *c->file);
    for (uint32_t i = 0; i < c->n; i++) {
        int64_t bytes = bytes_of(c, i);
        if (i && (bytes > most || in > most - bytes))
            c->nfile++, in = 0;
        in += bytes, c->total += bytes;
        c->file[i] = c->nfile;
    }
    c->nfile++;
}

/* ---- one file ---- */

enum { WIDEST = 64, NWIDTH = 4 };         /* bits of an element: 64 32 16 8 */

/* Number i is tensor i % n if its elements have WIDEST >> i / n bits. */
static bool here(const Convert *c, uint32_t i)
{
    uint32_t k = i % c->n;
    return c->file[k] == c->at &&
           dpc_safe_bits(kind_of(c, c->take[k])) == WIDEST >> i / c->n;
}

static bool entry(void *arg, uint32_t i, DpcSafeTensor *t)
{
    const Convert *c = arg;
    const DpcWhole *w = c->take[i % c->n];
    if (!here(c, i))
        return false;
    *t = (DpcSafeTensor){ .name = c->name[i % c->n], .ndim = w->ndim,
                          .kind = (uint8_t)kind_of(c, w) };
    memcpy(t->dim, w->dim, sizeof w->dim);
    return true;
}

typedef struct Slice { Convert *c; const DpcWhole *w; } Slice;

/* Elements of a slice that are infinite; of whole numbers, none. */
static int64_t infinite(DpcSafeKind kind, const char *p, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; is_float(kind) && i < n; i++) {
        double x = 0;
        dpc_safe_convert(kind, p + i * (dpc_safe_bits(kind) / 8),
                         DPC_SAFE_F64, &x, 1);
        count += isinf(x) != 0;
    }
    return count;
}

/* What was finite there and is infinite here; *stage is read once more only
 * where anything is infinite. */
static DpcStatus beyond_count(Convert *c, const DpcWhole *w, const DpcBox *box)
{
    DpcSafeKind to = kind_of(c, w), from = (DpcSafeKind)w->kind;
    int64_t n = dpc_box_count(box);
    int64_t here = from == to ? 0 : infinite(to, c->slice, n);
    if (!here)
        return DPC_OK;
    DpcStatus s = dpc_source_read(c->s, w, box, box->size, from, c->own,
                                  c->stage, ROOM);
    if (!s)
        c->beyond += here - infinite(from, c->own, n);
    return s;
}

static DpcStatus slice_copy(void *arg, const DpcBox *box)
{
    const Slice *l = arg;
    Convert *c = l->c;
    DpcSafeKind to = kind_of(c, l->w);
    DpcStatus s = dpc_source_read(c->s, l->w, box, box->size, to, c->slice,
                                  c->stage, ROOM);
    s = s ? s : beyond_count(c, l->w, box);
    return s ? s : dpc_out_put(&c->to, c->slice, (size_t)
                               (dpc_box_count(box) * dpc_safe_bits(to) / 8));
}

static DpcStatus tensor_copy(Convert *c, const DpcWhole *w)
{
    DpcSafeKind to = kind_of(c, w);
    int bits = dpc_safe_bits(to), own = dpc_safe_bits((DpcSafeKind)w->kind);
    c->beyond = 0;
    DpcStatus s = dpc_source_slices(w, ROOM / ((own > bits ? own : bits) / 8),
                                    slice_copy, &(Slice){ c, w });
    if (c->beyond)
        fprintf(stderr, "warning: \"%s\": %lld numbers are beyond %s and "
                "became infinite\n", w->name, (long long)c->beyond,
                dpc_safe_kind_name(to));
    return s;
}

static DpcStatus file_write(Convert *c, const char *path)
{
    DpcSafeList list = { NWIDTH * c->n, entry, c };
    DpcStatus s = dpc_out_open(&c->to, path);
    s = s ? s : dpc_safe_head(&c->to, &list);
    for (uint32_t i = 0; !s && i < list.n; i++) {
        if (here(c, i))
            s = tensor_copy(c, c->take[i % c->n]);
    }
    DpcStatus closed = dpc_out_close(&c->to);
    return s ? s : closed;
}

/* ---- a folder ---- */

static const char *shard_name(const Convert *c, uint32_t i)
{
    return c->nfile == 1 ? "model.safetensors"
         : fmt(c->o->arena, "model-%05u-of-%05u.safetensors", i + 1, c->nfile);
}

static DpcStatus index_write(const Convert *c, const char *path)
{
    FILE *f = fopen(path, "wxe");
    bool ok = f != NULL;
    if (ok)
        fprintf(f, "{\n  \"metadata\": {\"total_size\": %lld},\n"
                "  \"weight_map\": {", (long long)c->total);
    for (uint32_t i = 0; ok && i < c->n; i++) {
        fputs(i ? ",\n    " : "\n    ", f);
        json_quote(f, c->name[i]);
        fprintf(f, ": \"%s\"", shard_name(c, c->file[i]));
    }
    if (ok)
        fputs("\n  }\n}\n", f);
    ok = ok && fflush(f) == 0 && fsync(fileno(f)) == 0;
    int why = errno;
    if (f)
        fclose(f);
    return ok ? DPC_OK : dpc_fail(DPC_ENV, "%s: error: cannot be written: %s",
                                  path, strerror(why));
}

static DpcStatus folder_write(Convert *c)
{
    Arena *a = c->o->arena;
    DpcStatus s = DPC_OK;
    if (dpc_disk.mkdir(NULL, c->tmp))
        err_code(5, c->tmp, "cannot be made");
    for (c->at = 0; !s && c->at < c->nfile; c->at++)
        s = file_write(c, fmt(a, "%s/%s", c->tmp, shard_name(c, c->at)));
    if (!s && c->nfile > 1)
        s = index_write(c, fmt(a, "%s/model.safetensors.index.json", c->tmp));
    if (!s && dpc_disk.fsync_dir(NULL, c->tmp))
        s = dpc_fail(DPC_ENV, "%s: error: cannot be made durable", c->tmp);
    return s;
}

/* What a failure left; the names are ours. */
static void leavings_remove(const Convert *c, bool folder)
{
    Arena *a = c->o->arena;
    for (uint32_t i = 0; folder && i < c->nfile; i++)
        unlink(fmt(a, "%s/%s", c->tmp, shard_name(c, i)));
    if (folder) {
        unlink(fmt(a, "%s/model.safetensors.index.json", c->tmp));
        rmdir(c->tmp);
    } else
        unlink(c->tmp);
}

/* ---- the command ---- */

static bool is_file(const char *path)
{
    size_t n = strlen(path), k = strlen(".safetensors");
    return n > k && strcmp(path + n - k, ".safetensors") == 0;
}

static void room_make(Convert *c)
{
    c->slice = alloc(c->o->arena, ROOM);
    c->stage = alloc(c->o->arena, ROOM);
    c->own = alloc(c->o->arena, ROOM);
    c->to.disk = &dpc_disk;
    c->to.cap = 1 << 16, c->to.buf = alloc(c->o->arena, c->to.cap);
    c->to.hash = dpc_hash_open();
    c->to.fd = -1;
    if (!c->to.hash)
        err_code(5, c->out, "out of memory");
}

int weights_convert(const Options *o)
{
    if (o->nfile < 3)
        usage("weights convert: PATH OUT are wanted");
    if (!*o->file[2])
        usage("weights convert: OUT is empty");
    bool file = is_file(o->file[2]);
    Convert c = { .o = o, .out = o->file[2],
                  .tmp = fmt(o->arena, "%s.tmp-%d", o->file[2],
                             (int)getpid()) };
    if (file && o->shards)
        usage("--shards: \"%s\" is one file; give a folder", c.out);
    if (access(c.out, F_OK) == 0)
        err(c.out, "exists already; give another name, or remove it");
    c.s = weights_open(o, 1);
    tensors_choose(&c);
    files_choose(&c);
    room_make(&c);
    DpcStatus s = file ? file_write(&c, c.tmp) : folder_write(&c);
    if (!s && dpc_disk.rename(NULL, c.tmp, c.out))
        s = dpc_fail(DPC_ENV, "%s: error: cannot be renamed to %s", c.tmp,
                     c.out);
    if (s) {
        leavings_remove(&c, !file);
        runtime_fail(s);
    }
    fprintf(stderr, "%u tensors, %lld bytes, %u file%s\n", c.n,
            (long long)c.total, c.nfile, c.nfile > 1 ? "s" : "");
    dpc_hash_close(c.to.hash);
    dpc_source_close(c.s);
    return 0;
}
