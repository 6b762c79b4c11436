/* data_token.c -- dpc data tokens TEXT: the ids that a model would get. */
#include "compiler/data.h"
#include "runtime/token.h"
#include <stdlib.h>

/* "-": all of stdin. */
static const char *text_of(const Options *o, int64_t *n)
{
    const char *text = o->file[1];
    size_t cap = 1 << 16, k = 0;
    *n = (int64_t)strlen(text);
    if (strcmp(text, "-") != 0)
        return text;
    char *all = alloc(o->arena, cap);
    for (size_t got; (got = fread(all + k, 1, cap - k, stdin)) > 0; ) {
        k += got;
        if (k < cap)
            continue;
        char *more = alloc(o->arena, 2 * cap);
        memcpy(more, all, k);
        all = more, cap *= 2;
    }
    *n = (int64_t)k;
    return all;
}

static void ids_print(const Options *o, const int32_t *id, int64_t n,
                      int64_t used)
{
    const char *between = o->json ? "," : " ";
    if (o->json)
        printf("{\"ids\":[");
    for (int64_t i = 0; i < n; i++)
        printf("%s%d", i ? between : "", id[i]);
    if (o->json)
        printf("],\"used\":%lld}", (long long)used);
    printf("\n");
}

/* Without a length in the spec, all ids. */
int data_tokens(const Options *o)
{
    DpcToken *t;
    int64_t n, used;
    const int32_t *id;
    if (!o->tokenizer)
        usage("data tokens: give --tokenizer PATH");
    const char *text = text_of(o, &n);
    DpcStatus s = dpc_token_open(o->tokenizer, &t);
    if (!s && strstr(o->tokenizer, "length=")) {
        int64_t length = dpc_token_length(t);
        int32_t *row = alloc(o->arena, (size_t)length * sizeof *row);
        s = dpc_token_row(t, text, n, length, row, &used);
        id = row, n = length;
    } else if (!s) {
        s = dpc_token_ids(t, text, n, &id, &used);
        n = used;
    }
    if (s)
        runtime_fail(s);
    ids_print(o, id, n, used);
    dpc_token_close(t);
    return 0;
}
