/* test_source.c -- folders as Hugging Face has them, and tensors under other
 * names. */
#include "runtime/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define INDEX "model.safetensors.index.json"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/dpc-source-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char cmd[100];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *in_dir(const char *name)
{
    static char path[4][200];
    static int i;
    char *p = path[i++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void text_write(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Tensors U8[4] with these names, in one file. */
static void shard_write(const char *name, const char *const *tensor, int n)
{
    char head[4000] = "{";
    for (int i = 0; i < n; i++)
        sprintf(head + strlen(head), "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[4],"
                "\"data_offsets\":[%d,%d]}", i ? "," : "", tensor[i], 4 * i,
                4 * i + 4);
    strcat(head, "}");
    uint64_t size = strlen(head);
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fwrite(&size, 1, 8, f);               /* this machine is little-endian */
    fputs(head, f);
    for (int i = 0; i < 4 * n; i++)
        fputc(i, f);
    fclose(f);
}

#define SHARD(name, ...) shard_write(name, (const char *[]){ __VA_ARGS__ }, \
    (int)(sizeof (const char *[]){ __VA_ARGS__ } / sizeof(char *)))
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"

static void refused(const char *path, const char *want)
{
    DpcSource *s;
    if (dpc_source_open(path, &s) == DPC_OK)
        fail_msg("was accepted, expected \"%s\"", want);
    assert_null(s);
    if (!strstr(dpc_last_error(), want))
        fail_msg("said \"%s\", expected \"%s\"", dpc_last_error(), want);
}

static void the_index_says_what_is_read(void **state)
{
    DpcSource *s;
    (void)state;
    SHARD(ONE, "b", "a");
    SHARD(TWO, "c");
    SHARD("other.safetensors", "a", "x");
    text_write(INDEX, "{\"metadata\": {\"total_size\": 12}, \"weight_map\": "
               "{\"a\": \"" ONE "\", \"b\": \"" ONE "\", \"c\": \"" TWO
               "\"}}");
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    assert_int_equal(s->n, 3);
    assert_non_null(dpc_source_find(s, "c"));
    assert_null(dpc_source_find(s, "x"));
    dpc_source_close(s);
    assert_int_equal(dpc_source_open(in_dir(INDEX), &s), DPC_OK);
    assert_int_equal(s->n, 3);
    dpc_source_close(s);
    assert_int_equal(rename(in_dir(INDEX),
        in_dir("diffusion_pytorch_model.safetensors.index.json")), 0);
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    dpc_source_close(s);
    text_write(INDEX, "{}");
    refused(dir, "holds diffusion_pytorch_model.safetensors.index.json and "
            INDEX "; give one of them");
}

#define MAP(text) "{\"weight_map\": {" text "}}"
static const struct { const char *index, *want; } lying[] = {
    { "{", INDEX ":1: " },
    { "{\"weight_map\": {}}", "no \"weight_map\"" },
    { "{\"weight_map\": [1]}", "no \"weight_map\"" },
    { MAP("\"a\": 7"), "\"a\": the name of a file is wanted" },
    { MAP("\"a\": \"../x.safetensors\""), "\"a\" is in \"../x.safetensors\"; a "
      "file of this folder is wanted" },
    { MAP("\"a\": \"/etc/passwd\""), "a file of this folder is wanted" },
    { MAP("\"a\": \"..\""), "a file of this folder is wanted" },
    { MAP("\"a\": \"\""), "a file of this folder is wanted" },
    { MAP("\"a\": \"" ONE "\", \"a\": \"" TWO "\""), "duplicate object key" },
    { MAP("\"a\": \"" ONE "\", \"b\": \"gone.safetensors\""),
      "/gone.safetensors: error: " INDEX " names this file, for \"b\" and "
      "others; it is not there" },
    { MAP("\"a\": \"" ONE "\""), "\"b\" in " ONE " is not in the index" },
    { MAP("\"a\": \"" ONE "\", \"b\": \"" ONE "\", \"c\": \"" ONE "\""),
      "\"c\" is not in " ONE },
    { MAP("\"a\": \"" ONE "\", \"b\": \"" TWO "\", \"c\": \"" TWO "\""),
      "\"b\" is in " ONE ", the index says " TWO },
    { "{\"metadata\": {\"total_size\": 13}, \"weight_map\": {\"a\": \"" ONE
      "\", \"b\": \"" ONE "\", \"c\": \"" TWO "\"}}",
      "total_size is 13, its tensors are 12 bytes" },
};

static void an_index_that_lies_is_refused(void **state)
{
    (void)state;
    SHARD(ONE, "b", "a");
    SHARD(TWO, "c");
    for (size_t i = 0; i < COUNT(lying); i++) {
        text_write(INDEX, lying[i].index);
        refused(dir, lying[i].want);
    }
    text_write(TWO, "version https://git-lfs.github.com/spec/v1\nsize 9\n");
    text_write(INDEX, MAP("\"a\": \"" ONE "\", \"b\": \"" ONE "\", \"c\": \""
                          TWO "\""));
    refused(dir, "/" TWO ": error: a git-lfs pointer of");
}

static void without_an_index_all_shards_are_wanted(void **state)
{
    (void)state;
    SHARD("model-00001-of-00003.safetensors", "a");
    SHARD("model-00003-of-00003.safetensors", "c");
    refused(dir, "/model-00002-of-00003.safetensors: error: shard 2 of 3 is "
            "missing, model-00001-of-00003.safetensors is there");
    SHARD("model-00002-of-00003.safetensors", "a");
    refused(dir, "\"a\" stands in two files");
}

static void names_outlive_the_files_that_are_closed(void **state)
{
    enum { N = 230 };                     /* more than are held open */
    DpcSource *s;
    char name[40], tensor[20];
    uint8_t byte[4], stage[8];
    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "s%03d.safetensors", i);
        snprintf(tensor, sizeof tensor, "t%03d", i);
        SHARD(name, tensor);
    }
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    for (int i = 0; i < N; i += 7) {
        snprintf(tensor, sizeof tensor, "t%03d", i);
        const DpcWhole *w = dpc_source_find(s, tensor);
        assert_non_null(w);
        DpcBox all = dpc_box_whole(w->ndim, w->dim);
        assert_int_equal(dpc_source_read(s, w, &all, w->dim, DPC_SAFE_U8,
                                         byte, stage, 8), DPC_OK);
        assert_int_equal(byte[3], 3);
    }
    dpc_source_close(s);
}

static void rules_rename_and_leave_out(void **state)
{
    DpcSource *s;
    (void)state;
    SHARD("w.safetensors", "m.x.lora_down.weight", "m.x.alpha", "m.y", "z");
    text_write("rules", "# comment\n\n*.alpha -\n"
               "m.*.lora_down.weight  *.lora_A.weight # x\nm.* *\n");
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    assert_int_equal(dpc_source_rename(s, in_dir("rules")), DPC_OK);
    assert_int_equal(s->n, 3);
    assert_string_equal(s->whole[0].name, "x.lora_A.weight");
    assert_string_equal(s->whole[0].own, "m.x.lora_down.weight");
    assert_string_equal(s->whole[1].name, "y");
    uint8_t byte[4], stage[8];
    assert_int_equal(dpc_source_read(s, &s->whole[0],
        &(DpcBox){ 1, { 0 }, { 4 } }, s->whole[0].dim, DPC_SAFE_U8, byte, stage,
        8), DPC_OK);
    dpc_source_close(s);
}

static void rules_that_are_wrong_name_their_line(void **state)
{
    static const struct { const char *rules, *want; } wrong[] = {
        { "\na\n", "rules:2: error: two names are wanted" },
        { "a b c", "rules:1: error: two names are wanted" },
        { "a*b* c", "rules:1: error: \"a*b*\" to \"c\": one * on the left" },
        { "a b*", "none on the right without it" },
        { "no.* *", "rules:1: error: no tensor of" },
        { "x same\ny same", "\"x\" and \"y\" would both be called \"same\"" },
    };
    DpcSource *s;
    (void)state;
    SHARD("w.safetensors", "x", "y");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        text_write("rules", wrong[i].rules);
        assert_int_equal(dpc_source_open(in_dir("w.safetensors"), &s), DPC_OK);
        assert_int_equal(dpc_source_rename(s, in_dir("rules")), DPC_USER);
        if (!strstr(dpc_last_error(), wrong[i].want))
            fail_msg("said \"%s\"", dpc_last_error());
        dpc_source_close(s);
    }
}

static void a_prefix_is_found_when_it_is_the_only_one(void **state)
{
    static const char *const want[] = { "x", "y", "lora" };
    char prefix[2][DPC_PATH];
    DpcSource *s;
    (void)state;
    SHARD("w.safetensors", "module.net.x", "module.net.y", "ema.x", "other");
    assert_int_equal(dpc_source_open(dir, &s), DPC_OK);
    assert_int_equal(dpc_source_prefix(s, want, 3, prefix), 1);
    assert_string_equal(prefix[0], "module.net.");
    assert_int_equal(dpc_source_prefix(s, want, 1, prefix), 2);
    assert_int_equal(dpc_source_prefix(s, want + 2, 1, prefix), 0);
    dpc_source_close(s);
}

/* The whole table, by its definition. */
static int edits(const char *a, int i, const char *b, int k)
{
    if (!i || !k)
        return i + k;
    int best = edits(a, i - 1, b, k - 1) + (a[i - 1] != b[k - 1]);
    int drop = edits(a, i - 1, b, k) + 1, put = edits(a, i, b, k - 1) + 1;
    best = drop < best ? drop : best;
    best = put < best ? put : best;
    if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) {
        int swap = edits(a, i - 2, b, k - 2) + 1;
        best = swap < best ? swap : best;
    }
    return best;
}

static void edits_are_counted_as_far_as_asked(void **state)
{
    uint32_t r = 1;
    (void)state;
    for (int run = 0; run < 4000; run++) {
        char w[2][8] = { 0 };
        for (int i = 0; i < 10; i++)
            r = r * 1664525 + 1013904223, w[i / 5][i % 5] = "abc"[r % 40 / 16];
        w[0][run % 6] = w[1][run / 6 % 6] = 0;
        int want = edits(w[0], run % 6, w[1], run / 6 % 6);
        for (int most = 0; most < 7; most++) {
            int got = dpc_edits(w[0], w[1], most);
            if (want <= most ? got != want : got <= most)
                fail_msg("%s, %s up to %d: %d, not %d", w[0], w[1], most, got,
                         want);
        }
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_index_says_what_is_read),
        T(an_index_that_lies_is_refused),
        T(without_an_index_all_shards_are_wanted),
        T(names_outlive_the_files_that_are_closed),
        T(rules_rename_and_leave_out),
        T(rules_that_are_wrong_name_their_line),
        T(a_prefix_is_found_when_it_is_the_only_one),
        cmocka_unit_test(edits_are_counted_as_far_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
