/* fuzz_safetensors.c -- no bytes make the reader of weights misbehave.
 *
 * What it accepts is judged by rules written a second time here: the tensors
 * tile the data after the header exactly, each as large as its shape says.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. \
 *       tests/fuzz/fuzz_safetensors.c runtime/safetensors.c runtime/json.c \
 *       runtime/disk.c runtime/hash.c runtime/base.c -ljansson -o fuzz
 *   ./fuzz -max_len=600 -max_total_time=60 */
#define _GNU_SOURCE                       /* memfd_create */
#include "runtime/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool b)
{
    if (!b)
        abort();
}

static int64_t bytes_of(const DpcSafeTensor *t)
{
    static const int bits[] = {
#define X(name, n) n,
        DPC_SAFE_KINDS(X)
#undef X
    };
    __int128 n = bits[t->kind];
    for (int d = 0; d < t->ndim; d++) {
        must(t->dim[d] >= 0);
        n *= t->dim[d];
        must(n >> 63 == 0);
    }
    must(n % 8 == 0);
    return (int64_t)(n / 8);
}

static void judge(const DpcSafe *f, const uint8_t *data, size_t size)
{
    uint64_t header = 0;
    memcpy(&header, data, 8);
    must(header <= size - 8 && data[8] == '{');
    int64_t begin = 8 + (int64_t)header, sum = 0;
    char *copy = malloc(size);
    for (uint32_t i = 0; i < f->n; i++) {
        const DpcSafeTensor *t = &f->tensor[i];
        must(t->bytes == bytes_of(t));
        must(t->at >= begin && t->at + t->bytes <= (int64_t)size);
        must(dpc_safe_find(f, t->name) == t);
        must(i == 0 || strcmp(f->tensor[i - 1].name, t->name) < 0);
        for (uint32_t k = 0; k < i; k++)
            must(t->at + t->bytes <= f->tensor[k].at ||
                 f->tensor[k].at + f->tensor[k].bytes <= t->at);
        must(dpc_safe_read(f, t, 0, copy, (size_t)t->bytes) == DPC_OK);
        must(!memcmp(copy, data + t->at, (size_t)t->bytes));
        sum += t->bytes;
    }
    must(begin + sum == (int64_t)size);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    DpcSafe *f;
    DpcStatus s = dpc_safe_open_fd(fd, "fuzz", &f);
    must((s == DPC_OK) == (f != NULL));
    if (f)
        judge(f, data, size);
    dpc_safe_close(f);
    return 0;
}
