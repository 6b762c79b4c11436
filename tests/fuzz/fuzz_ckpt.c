/* fuzz_ckpt.c -- no dpc.json makes the reader of checkpoints misbehave.
 *
 * The input is the index without its hash, which is added here, for else
 * nothing would get past it.  Beside it lies one good file of tensors; the
 * whole checkpoint is then hashed, which reads every piece of every tensor.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. \
 *       tests/fuzz/fuzz_ckpt.c runtime/ckpt_hash.c runtime/source.c \
 *       runtime/box.c runtime/safetensors.c runtime/json.c runtime/disk.c \
 *       runtime/hash.c runtime/base.c -ljansson -o fuzz
 *   ./fuzz -max_len=900 -max_total_time=60 */
#include "runtime/ckpt.h"

#include "runtime/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[32];

static FILE *file_open(const char *name)
{
    char path[80];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        abort();
    return f;
}

static void folder_make(void)
{
    static const char head[] = "\x6e\0\0\0\0\0\0\0"
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"n\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]}}";
    strcpy(dir, "/tmp/dpc-fuzz-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    FILE *f = file_open("m");             /* 143 bytes */
    fwrite(head, 1, sizeof head - 1, f);
    fwrite("0123456789abcdefghijklmno", 1, 25, f);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static DpcHash *h;
    char hex[DPC_HASH];
    if (!h) {
        folder_make();
        h = dpc_hash_open();
    }
    dpc_hash_reset(h);
    dpc_hash_add(h, data, size);
    dpc_hash_hex(h, hex);
    FILE *f = file_open("dpc.json");
    fwrite(data, 1, size, f);
    fprintf(f, ",\"self\":\"%s\"}", hex);
    fclose(f);
    char dummy[DPC_HASH];
    dpc_ckpt_hash(dir, dummy);
    return 0;
}
