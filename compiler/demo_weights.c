/* demo_weights.c -- two checkpoints' tensors, bit against bit.
 *
 * A safetensors file is a length of eight bytes (little-endian), so many bytes
 * of JSON, {"name": {"dtype", "shape", "data_offsets": [from, to]}, ...}, and
 * the tensors behind it. */
#include "compiler/demo.h"
#include <jansson.h>
#include <stdlib.h>

typedef struct Weights {
    const char *path;
    uint8_t *byte;                        /* behind the head */
    int64_t n;
    json_t *head;
} Weights;

static void read_whole(FILE *f, const char *path, void *to, size_t n)
{
    if (fread(to, 1, n, f) != n)
        err(path, "ends early");
}

static Weights weights_read(Arena *a, const char *path)
{
    Weights w = { .path = path };
    uint8_t size[8];
    uint64_t n = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        err(path, "cannot be opened");
    fseek(f, 0, SEEK_END);
    int64_t all = ftell(f) - (int64_t)sizeof size;
    rewind(f);
    read_whole(f, path, size, sizeof size);
    for (int i = 8; i-- > 0;)
        n = n << 8 | size[i];
    if (all < 0 || n > (uint64_t)all)
        err(path, "is no safetensors file");
    char *text = alloc(a, (size_t)n + 1);
    read_whole(f, path, text, (size_t)n);
    w.n = all - (int64_t)n;
    w.byte = alloc(a, (size_t)w.n + 1);
    read_whole(f, path, w.byte, (size_t)w.n);
    fclose(f);
    w.head = json_loads(text, 0, NULL);
    if (!json_is_object(w.head))
        err(path, "is no safetensors file");
    return w;
}

/* Bytes of a tensor; *n their number. */
static const uint8_t *bytes_of(const Weights *w, json_t *tensor, int64_t *n)
{
    json_t *at = json_object_get(tensor, "data_offsets");
    int64_t from = json_integer_value(json_array_get(at, 0));
    int64_t to = json_integer_value(json_array_get(at, 1));
    if (json_array_size(at) != 2 || from < 0 || to < from || to > w->n)
        err(w->path, "a tensor lies outside of the file");
    *n = to - from;
    return w->byte + from;
}

int64_t weights_compare(Arena *arena, const char *path_a, const char *path_b,
                        const char *prefix, int64_t *differ)
{
    Weights a = weights_read(arena, path_a), b = weights_read(arena, path_b);
    int64_t found = 0;
    const char *name;
    json_t *x;
    *differ = 0;
    json_object_foreach(a.head, name, x) {
        json_t *y = json_object_get(b.head, fmt(arena, "%s%s", prefix, name));
        int64_t n, m;
        if (!y)
            continue;
        const uint8_t *p = bytes_of(&a, x, &n), *q = bytes_of(&b, y, &m);
        *differ += n != m || memcmp(p, q, (size_t)n) != 0;
        found++;
    }
    json_decref(a.head);
    json_decref(b.head);
    return found;
}
