/* fuzz_source.c -- no index of shards and no file of rules makes the reader
 * of folders misbehave.
 *
 * Two shards lie in a folder of memory; the bytes are their index, or, where
 * the first one is odd, rules for their names.  What is accepted is judged: an
 * index names every tensor once; names after rules are sorted and differ; all
 * tensors can be read.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. \
 *       tests/fuzz/fuzz_source.c runtime/source*.c runtime/safetensors*.c \
 *       runtime/json.c runtime/disk.c runtime/hash.c runtime/base.c \
 *       runtime/box.c -ljansson -lpthread -o fuzz
 *   ./fuzz -max_len=400 -max_total_time=60 */
#include "runtime/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64], path[4][128];

static void must(bool b)
{
    if (!b)
        abort();
}

static void file_put(const char *to, const void *bytes, size_t n)
{
    FILE *f = fopen(to, "wb");
    must(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

static void shard_put(const char *to, const char *one, const char *two)
{
    char text[400] = { 0 };
    int n = snprintf(text + 8, sizeof text - 8,
        "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"%s\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}",
        one, two);
    text[0] = (char)n;
    file_put(to, text, (size_t)n + 12);
}

static void folder_make(void)
{
    snprintf(dir, sizeof dir, "/dev/shm/dpc-fuzz-%d", (int)getpid());
    dpc_disk.mkdir(NULL, dir);
    const char *name[] = { "a.safetensors", "b.safetensors",
                           "m.safetensors.index.json", "rules" };
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, name[i]);
    shard_put(path[0], "net.w", "net.b");
    shard_put(path[1], "x", "y.z");
}

static void judge(DpcSource *s)
{
    char out[64], stage[64];
    for (uint32_t i = 0; i < s->n; i++) {
        const DpcWhole *w = &s->whole[i];
        DpcBox all = dpc_box_whole(w->ndim, w->dim);
        must(i == 0 || strcmp(w[-1].name, w->name) < 0);
        must(dpc_source_find(s, w->name) == w);
        must(dpc_source_read(s, w, &all, w->dim, (DpcSafeKind)w->kind, out,
                             stage, sizeof stage) == DPC_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DpcSource *s = NULL;
    if (!*dir)
        folder_make();
    bool rules = size && data[0] % 2;
    unlink(path[2]);
    file_put(path[rules ? 3 : 2], data + (size > 0), size - (size > 0));
    DpcStatus e = dpc_source_open(dir, &s);
    must((e == DPC_OK) == (s != NULL));
    must(e == DPC_OK || !rules);
    if (s && rules)
        e = dpc_source_rename(s, path[3]);
    if (e == DPC_OK)
        judge(s);
    dpc_source_close(s);
    return 0;
}
