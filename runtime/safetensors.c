/* safetensors.c -- a strict reader and a streaming writer of .safetensors.
 *
 * Files come from strangers, and size arithmetic is where such readers get
 * exploited (CVE-2025-53630).  Hence: the checks stand in the order of the
 * reference implementation, every product and sum is checked, the tensors
 * must tile the data exactly (so none overlap and nothing hides between), and
 * data is read with pread, never mapped. */
#include "runtime/safetensors.h"

#include "runtime/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 8, HEADER_MAX = 100000000, PEEK = 256, NAME_MAX_ = 4096 };

static const struct { const char *name; int bits; } kinds[] = {
#define X(name, bits) { #name, bits },
    DPC_SAFE_KINDS(X)
#undef X
};

const char *dpc_safe_kind_name(DpcSafeKind k) { return kinds[k].name; }
int dpc_safe_bits(DpcSafeKind k) { return kinds[k].bits; }

DpcSafeKind dpc_safe_kind_of(DpcDtype d)
{
    static const uint8_t kind[DPC_NDTYPE] = {
        [DPC_F32] = DPC_SAFE_F32, [DPC_BF16] = DPC_SAFE_BF16,
        [DPC_I32] = DPC_SAFE_I32, [DPC_U8] = DPC_SAFE_U8,
    };
    return kind[d];
}

int64_t dpc_safe_bytes(DpcSafeKind kind, int ndim, const int64_t *dim)
{
    int64_t bits = kinds[kind].bits;
    for (int d = 0; d < ndim; d++)
        bits *= dim[d];
    return bits / 8;
}

#define bad(f, ...) \
    dpc_fail(DPC_USER, "%s: error: " f, safe->path, __VA_ARGS__)

/* ---- reading ---- */

static DpcStatus take(const DpcSafe *safe, int64_t at, void *to, size_t n)
{
    char *p = to;
    while (n > 0) {
        ssize_t k = pread(safe->fd, p, n, safe->base + at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return dpc_fail(DPC_ENV, "%s: error: cannot read at byte %" PRId64
                            ": %s", safe->path, at, strerror(errno));
        if (k == 0)
            return bad("the file ends at byte %" PRId64 ", it had %" PRId64
                       " when it was opened", at, safe->bytes);
        p += k, at += k, n -= (size_t)k;
    }
    return DPC_OK;
}

/* What people really have in place of weights. */
static DpcStatus impostor(const DpcSafe *safe, const char *head)
{
    if (!strncmp(head, "version https://git-lfs", 23)) {
        const char *size = strstr(head, "\nsize ");
        return bad("a git-lfs pointer of %" PRId64 " bytes, not the tensors "
                   "(%lld bytes); run \"git lfs pull\"", safe->bytes,
                   size ? strtoll(size + 6, NULL, 10) : -1LL);
    }
    if (!strncasecmp(head, "<!doctype", 9) || !strncasecmp(head, "<html", 5))
        return bad("a web page of %" PRId64 " bytes, not tensors; download "
                   "the file itself", safe->bytes);
    if (!strncmp(head, "PK\3\4", 4))
        return bad("%s", "a zip file (a PyTorch pickle?), not safetensors; "
                   "convert it first");
    return DPC_OK;
}

static DpcStatus header_length(const DpcSafe *safe, int64_t *n)
{
    char head[PEEK + 1] = "";
    size_t peek = safe->bytes < PEEK ? (size_t)safe->bytes : PEEK;
    DpcStatus s = take(safe, 0, head, peek);
    if (s == DPC_OK)
        s = impostor(safe, head);
    if (s != DPC_OK)
        return s;
    if (safe->bytes < LENGTH)
        return bad("%" PRId64 " bytes; even an empty safetensors file has %d",
                   safe->bytes, LENGTH + 2);
    uint64_t length = 0;
    for (int i = LENGTH; i-- > 0;)
        length = length << 8 | (unsigned char)head[i];
    if (length > HEADER_MAX)
        return bad("header of %" PRIu64 " bytes, at most %d are allowed; is "
                   "this a safetensors file?", length, HEADER_MAX);
    if (length > (uint64_t)safe->bytes - LENGTH)
        return bad("cut short: the header takes %" PRIu64 " bytes, the file "
                   "has %" PRId64 "; fetch it again", length + LENGTH,
                   safe->bytes);
    if (length < 2 || head[LENGTH] != '{')
        return bad("the header does not begin with \"{\" (%" PRIu64 " bytes)",
                   length);
    *n = (int64_t)length;
    return DPC_OK;
}

static DpcStatus header_read(DpcSafe *safe, int64_t n)
{
    char *text = malloc((size_t)n);
    if (!text)
        return dpc_fail(DPC_MEMORY, "%s: error: header: no memory for %" PRId64
                        " bytes", safe->path, n);
    DpcStatus s = take(safe, LENGTH, text, (size_t)n);
    json_error_t e;
    if (s == DPC_OK) {
        safe->doc = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &e);
        if (!safe->doc)
            s = bad("header, byte %d: %s", e.position, e.text);
        else if (!json_is_object((json_t *)safe->doc))
            s = bad("%s", "header is no JSON object");
    }
    free(text);
    return s;
}

static DpcStatus shape_read(const DpcSafe *safe, const json_t *shape,
                            DpcSafeTensor *t, int64_t *bits)
{
    if (!json_is_array(shape))
        return bad("\"%s\": \"shape\" is no list", t->name);
    if (json_array_size(shape) > DPC_NDIM)
        return bad("\"%s\": %zu dimensions; at most %d can be read", t->name,
                   json_array_size(shape), DPC_NDIM);
    t->ndim = (int)json_array_size(shape);
    *bits = kinds[t->kind].bits;
    bool over = false;
    for (int d = 0; d < t->ndim; d++) {
        const json_t *v = json_array_get(shape, (size_t)d);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return bad("\"%s\": dimension %d of \"shape\" is no size",
                       t->name, d);
        t->dim[d] = json_integer_value(v);
        over |= __builtin_mul_overflow(*bits, t->dim[d], bits);
    }
    if (over)
        return bad("\"%s\": more elements than 63 bits can count", t->name);
    if (*bits % 8)
        return bad("\"%s\": %" PRId64 " bits are not whole bytes", t->name,
                   *bits);
    return DPC_OK;
}

static DpcStatus kind_read(const DpcSafe *safe, const json_t *v,
                           DpcSafeTensor *t)
{
    const char *name = json_string_value(v);
    if (!name)
        return bad("\"%s\": \"dtype\" is no name", t->name);
    for (t->kind = 0; t->kind < DPC_SAFE_NKIND; t->kind++)
        if (!strcmp(kinds[t->kind].name, name))
            return DPC_OK;
    return bad("\"%s\": dtype \"%s\" is not known", t->name, name);
}

static DpcStatus offsets_read(const DpcSafe *safe, const json_t *v,
                              DpcSafeTensor *t, int64_t bits)
{
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return bad("\"%s\": \"data_offsets\" are not two numbers", t->name);
    int64_t from = json_integer_value(a), to = json_integer_value(b);
    if (from < 0 || to < from)
        return bad("\"%s\": data from %" PRId64 " to %" PRId64, t->name, from,
                   to);
    if (to - from != bits / 8)
        return bad("\"%s\": data of %" PRId64 " bytes, its shape needs "
                   "%" PRId64, t->name, to - from, bits / 8);
    t->at = from, t->bytes = to - from;
    return DPC_OK;
}

static DpcStatus tensor_read(const DpcSafe *safe, const json_t *v,
                             DpcSafeTensor *t)
{
    if (!json_is_object(v))
        return bad("\"%s\" is no object", t->name);
    if (json_object_size(v) != 3)
        return bad("\"%s\" has %zu fields, not dtype, shape, data_offsets",
                   t->name, json_object_size(v));
    int64_t bits = 0;
    DpcStatus s = kind_read(safe, json_object_get(v, "dtype"), t);
    if (s == DPC_OK)
        s = shape_read(safe, json_object_get(v, "shape"), t, &bits);
    if (s == DPC_OK)
        s = offsets_read(safe, json_object_get(v, "data_offsets"), t, bits);
    return s;
}

static DpcStatus metadata_check(const DpcSafe *safe, json_t *v)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return bad("%s", "\"__metadata__\" is no object");
    json_object_foreach(v, key, value)
        if (!json_is_string(value))
            return bad("\"__metadata__\": \"%s\" is no text", key);
    return DPC_OK;
}

static int by_place(const void *a, const void *b)
{
    const DpcSafeTensor *s = a, *t = b;
    int64_t p = s->at != t->at ? s->at - t->at : s->bytes - t->bytes;
    return p < 0 ? -1 : p > 0;
}

static int by_name(const void *a, const void *b)
{
    const DpcSafeTensor *s = a, *t = b;
    return strcmp(s->name, t->name);
}

/* The tensors must tile the data: from 0, without gap, to the last byte. */
static DpcStatus tiling_check(DpcSafe *safe, int64_t data)
{
    int64_t end = 0;
    qsort(safe->tensor, safe->n, sizeof *safe->tensor, by_place);
    for (uint32_t i = 0; i < safe->n; i++) {
        DpcSafeTensor *t = &safe->tensor[i];
        if (t->at != end)
            return bad("\"%s\" %s: it begins at %" PRId64 ", what stands "
                       "before it ends at %" PRId64, t->name, t->at < end ?
                       "overlaps" : "leaves a gap", t->at, end);
        end = t->at + t->bytes;
    }
    int64_t have = safe->bytes - data;
    if (end > have)
        return bad("cut short: the tensors take %" PRId64 " bytes, the file "
                   "has %" PRId64 " of them; fetch it again", end, have);
    if (end < have)
        return bad("%" PRId64 " bytes follow the last tensor", have - end);
    for (uint32_t i = 0; i < safe->n; i++)
        safe->tensor[i].at += data;
    qsort(safe->tensor, safe->n, sizeof *safe->tensor, by_name);
    return DPC_OK;
}

static DpcStatus tensors_read(DpcSafe *safe, int64_t data)
{
    size_t n = json_object_size(safe->doc);
    safe->tensor = calloc(n + 1, sizeof *safe->tensor);
    if (!safe->tensor)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory for %zu tensors",
                        safe->path, n);
    const char *name;
    json_t *value;
    DpcStatus s = DPC_OK;
    json_object_foreach((json_t *)safe->doc, name, value) {
        if (!strcmp(name, "__metadata__")) {
            s = metadata_check(safe, value);
        } else if (strlen(name) > NAME_MAX_) {
            s = bad("a name of %zu bytes; at most %d", strlen(name), NAME_MAX_);
        } else {
            safe->tensor[safe->n].name = name;
            s = tensor_read(safe, value, &safe->tensor[safe->n++]);
        }
        if (s != DPC_OK)
            return s;
    }
    return tiling_check(safe, data);
}

static DpcStatus parse(DpcSafe *safe, const DpcSafe *part)
{
    struct stat st;
    int64_t n = 0;
    if (fstat(safe->fd, &st))
        return dpc_fail(DPC_ENV, "%s: error: %s", safe->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return bad("%s", "not a regular file");
    safe->base = part ? part->base : 0;
    safe->bytes = part ? part->bytes : st.st_size;
    DpcStatus s = header_length(safe, &n);
    if (s == DPC_OK)
        s = header_read(safe, n);
    return s == DPC_OK ? tensors_read(safe, LENGTH + n) : s;
}

static DpcStatus open_part(int fd, const char *path, const DpcSafe *part,
                           DpcSafe **out)
{
    DpcSafe *safe = calloc(1, sizeof *safe);
    *out = NULL;
    if (!safe || !(safe->path = strdup(path))) {
        free(safe);
        close(fd);
        return dpc_fail(DPC_MEMORY, "%s: error: out of memory", path);
    }
    safe->fd = fd;
    DpcStatus s = parse(safe, part);
    if (s == DPC_OK)
        *out = safe;
    else
        dpc_safe_close(safe);
    return s;
}

DpcStatus dpc_safe_open_fd(int fd, const char *path, DpcSafe **out)
{
    return open_part(fd, path, NULL, out);
}

DpcStatus dpc_safe_open_within(int fd, int64_t at, int64_t bytes,
                               const char *path, DpcSafe **out)
{
    DpcSafe part = { .base = at, .bytes = bytes };
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    *out = NULL;
    if (own < 0)
        return dpc_fail(DPC_ENV, "%s: error: cannot open: %s", path,
                        strerror(errno));
    return open_part(own, path, &part, out);
}

DpcStatus dpc_safe_open(const char *path, DpcSafe **out)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return dpc_fail(errno == ENOENT ? DPC_USER : DPC_ENV,
                        "%s: error: cannot open: %s", path, strerror(errno));
    return dpc_safe_open_fd(fd, path, out);
}

void dpc_safe_close(DpcSafe *safe)
{
    if (!safe)
        return;
    if (safe->fd >= 0)
        close(safe->fd);
    json_decref(safe->doc);
    free(safe->tensor);
    free(safe->path);
    free(safe);
}

const DpcSafeTensor *dpc_safe_find(const DpcSafe *safe, const char *name)
{
    DpcSafeTensor key = { .name = name };
    return bsearch(&key, safe->tensor, safe->n, sizeof key, by_name);
}

void dpc_safe_ahead(const DpcSafe *safe, const DpcSafeTensor *t, int64_t from,
                    size_t n)
{
    posix_fadvise(safe->fd, t->at + from, (off_t)n, POSIX_FADV_WILLNEED);
}

DpcStatus dpc_safe_read(const DpcSafe *safe, const DpcSafeTensor *t,
                        int64_t from, void *to, size_t n)
{
    if (from < 0 || from > t->bytes || n > (size_t)(t->bytes - from))
        return dpc_fail(DPC_BUG, "%s: error: \"%s\": bytes %" PRId64 " + %zu "
                        "of %" PRId64, safe->path, t->name, from, n, t->bytes);
    return take(safe, t->at + from, to, n);
}

/* ---- writing ---- */

static int64_t entry_bytes(const DpcSafeTensor *t)
{
    return dpc_safe_bytes((DpcSafeKind)t->kind, t->ndim, t->dim);
}

int64_t dpc_safe_list_bytes(const DpcSafeList *list)
{
    int64_t n = 0;
    DpcSafeTensor t;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->entry(list->arg, i, &t))
            n += entry_bytes(&t);
    return n;
}

static void entry_print(DpcJson *j, const DpcSafeTensor *t, int64_t at)
{
    dpc_json_key(j, t->name);
    dpc_json_open(j, '{');
    dpc_json_key(j, "dtype");
    dpc_json_str(j, kinds[t->kind].name);
    dpc_json_key(j, "shape");
    dpc_json_open(j, '[');
    for (int d = 0; d < t->ndim; d++)
        dpc_json_int(j, t->dim[d]);
    dpc_json_close(j, ']');
    dpc_json_key(j, "data_offsets");
    dpc_json_open(j, '[');
    dpc_json_int(j, at);
    dpc_json_int(j, at + entry_bytes(t));
    dpc_json_close(j, ']');
    dpc_json_close(j, '}');
}

/* "format": "pt" is what Hugging Face loaders insist on. */
static DpcStatus header_print(DpcPut *put, void *arg, const DpcSafeList *list)
{
    DpcJson j;
    dpc_json_init(&j, put, arg, 0);
    dpc_json_open(&j, '{');
    dpc_json_key(&j, "__metadata__");
    dpc_json_open(&j, '{');
    dpc_json_key(&j, "format");
    dpc_json_str(&j, "pt");
    dpc_json_close(&j, '}');
    DpcSafeTensor t;
    int64_t at = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->entry(list->arg, i, &t)) {
            entry_print(&j, &t, at);
            at += entry_bytes(&t);
        }
    dpc_json_close(&j, '}');
    return j.status;
}

static DpcStatus count(void *arg, const void *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)arg += n;
    return DPC_OK;
}

DpcStatus dpc_safe_head(DpcOut *o, const DpcSafeList *list)
{
    size_t n = 0;
    header_print(count, &n, list);
    size_t pad = (LENGTH - n % LENGTH) % LENGTH;  /* aligns the data */
    if (n + pad > HEADER_MAX)
        return dpc_fail(DPC_USER, "%s: error: header of %zu bytes, at most %d",
                        o->path, n + pad, HEADER_MAX);
    char length[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        length[i] = (char)((uint64_t)(n + pad) >> 8 * i);
    dpc_out_put(o, length, LENGTH);
    DpcStatus s = header_print(dpc_out_put, o, list);
    return s == DPC_OK ? dpc_out_put(o, "        ", pad) : s;
}
