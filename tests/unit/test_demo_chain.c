/* test_demo_chain.c -- the demo's stages, with a dpc that only pretends. */
#include "compiler/demo_own.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static Arena *arena;
static char folder[] = "/tmp/dpc-test-chain-XXXXXX";

static const char *at(const char *name)
{
    return fmt(arena, "%s/%s", folder, name);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---- the report ---- */

static json_t *load(const char *path)
{
    json_error_t e;
    json_t *o = json_load_file(path, 0, &e);
    if (!o)
        fail_msg("%s: %s", path, e.text);
    return o;
}

static void losses_and_rates_come_from_metrics(void **state)
{
    (void)state;
    char text[8192];
    size_t n = (size_t)sprintf(text, "{\"event\":\"memory\",\"leaves_bytes\":"
        "100,\"arena_bytes\":20,\"io_bytes\":3,\"planned_bytes\":130}\n");
    for (int i = 1; i <= 21; i++)
        n += (size_t)sprintf(text + n, "{\"step\":%d,\"loss\":%d,\"step_s\":"
            "0.5,\"samples_per_s\":%d}\n", i, 30 - i, i == 7 ? 1 : 100 + i);
    sprintf(text + n, "{\"event\":\"save\",\"step\":21,\"loss\":999}\n");
    put("metrics.jsonl", text);
    Report r = { .arena = arena };
    Trained t = { .name = "m" };
    report_metrics(&r, &t, at("metrics.jsonl"));
    assert_int_equal(t.steps, 21);
    assert_int_equal(t.allocated, 123);
    assert_true(fabs(t.seconds - 10.5) < 1e-9);
    assert_true(fabs(t.first - 29) < 1e-9);
    assert_true(fabs(t.last - 13.5) < 1e-9);
    assert_true(fabs(t.rate - 111) < 1e-9);
}

static void fill(Report *r, double garment, double error)
{
    *r = (Report){ .arena = arena };
    report_rate(r, M_garment_accuracy,
                (Rate){ (int64_t)(garment * 320), 320 });
    report_rate(r, M_heldout_accuracy, (Rate){ 120, 160 });
    report_rate(r, M_judge_test_accuracy, (Rate){ 8800, 10000 });
    report_rate(r, M_zero_shot_accuracy, (Rate){ 7800, 10000 });
    report_rate(r, M_shuffled_accuracy, (Rate){ 16, 160 });
    Mean m = { .sum = error * 4, .square = error * error * 4, .n = 4 };
    report_mean(r, M_color_error, &m);
    report_number(r, M_background_error, 0.01);
    report_number(r, M_diversity, 0.1);
    report_number(r, M_frechet, 6);
    report_number(r, M_frechet_reference, 1);
    report_limit(r, M_frechet, 7);
    report_number(r, M_frechet_class_means, 30);
    report_limit(r, M_frechet_class_means, 7);
}

static void gates_hold_miss_and_want_a_value(void **state)
{
    (void)state;
    Report r;
    fill(&r, 0.85, 0.1);
    assert_int_equal(report_missed(&r), 0);
    fill(&r, 0.75, 0.1);
    assert_int_equal(report_missed(&r), 1);
    fill(&r, 0.75, 0.2);
    assert_int_equal(report_missed(&r), 2);
    fill(&r, 0.85, 0.1);
    report_number(&r, M_frechet, 7.5);
    report_limit(&r, M_frechet, 7);
    assert_int_equal(report_missed(&r), 1);
    fill(&r, 0.85, 0.1);
    report_number(&r, M_frechet_class_means, 6.5);
    report_limit(&r, M_frechet_class_means, 7);
    assert_int_equal(report_missed(&r), 1);
    fill(&r, 0.85, NAN);
    assert_int_equal(report_missed(&r), 1);
    r = (Report){ .arena = arena };
    assert_int_equal(report_missed(&r), 10);
}

static const char *const keys[] = {
    "garment_accuracy", "color_error", "background_error", "heldout_accuracy",
    "judge_test_accuracy", "zero_shot_accuracy", "shuffled_accuracy",
    "diversity", "frechet", "frechet_reference", "images_per_second",
    "compile_seconds", "train_seconds", "seconds", "planned_bytes",
    "allocated_bytes", "losses",
};

static void report_json_has_every_key_and_interval(void **state)
{
    (void)state;
    Report r;
    fill(&r, 0.85, 0.1);
    report_write(&r, at("report.json"));
    json_t *o = load(at("report.json")), *i;
    for (int k = 0; k < COUNT(keys); k++)
        if (!json_object_get(o, keys[k]))
            fail_msg("no key %s", keys[k]);
    i = json_object_get(json_object_get(o, "intervals_95"),
                        "garment_accuracy");
    double low = json_number_value(json_object_get(i, "low"));
    assert_true(low > 0.80 && low < 0.85);
    assert_int_equal(json_integer_value(json_object_get(i, "of")), 320);
    json_decref(o);
    report_number(&r, M_frechet, NAN);
    report_write(&r, at("report.json"));
    o = load(at("report.json"));
    assert_true(json_is_null(json_object_get(o, "frechet")));
    json_decref(o);
}

/* ---- all stages ---- */

/* compile writes a binary that knows `info`; what runs copies an array for
 * each output, and counts itself. */
static const char script[] =
    "#!/bin/sh\n"
    "F=%s\n"
    "echo \"$*\" >> $F/calls\n"
    "for a; do case $a in */fail) exit 7 ;; esac; done\n"
    "if [ $1 = compile ]; then\n"
    "  while [ $1 != -o ]; do shift; done\n"
    "  printf '#!/bin/sh\\necho \"{\\\\\"leaves_bytes\\\\\": 5}\"\\n' > $2\n"
    "  chmod +x $2; exit 0\n"
    "fi\n"
    "case $5 in\n"
    "eval) cat $F/eval.json ;;\n"
    "train)\n"
    "  while [ $1 != --out ]; do shift; done\n"
    "  mkdir -p $2/ckpt/step-1; echo step-1 > $2/ckpt/latest\n"
    "  cp $F/model.safetensors $F/state.safetensors $2/ckpt/step-1\n"
    "  echo '{\"step\":1,\"loss\":2,\"step_s\":1,\"samples_per_s\":8}' "
    ">> $2/metrics.jsonl ;;\n"
    "*)\n"
    "  while [ $# -gt 0 ]; do\n"
    "    [ $1 = --output ] && cp $F/${2%%%%=*}.npy ${2#*=}\n"
    "    shift\n"
    "  done ;;\n"
    "esac\n";

static void array(const char *name, int ndim, const int64_t *dim, float x)
{
    Npy a = npy_make(arena, NPY_F32, ndim, dim);
    for (int64_t i = 0; i < npy_count(&a); i++)
        ((float *)a.data)[i] = x;
    npy_write(&a, at(name));
}

/* Three tensors of 4, 4 and 2 bytes. */
static void tensors(const char *name, const char *a, const char *b,
                    const char *c, const char *bytes)
{
    char head[512];
    uint8_t size[8] = { 0 };
    int n = snprintf(head, sizeof head, "{\"%s\":{\"dtype\":\"F32\",\"shape\":"
        "[1],\"data_offsets\":[0,4]},\"%s\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[4,8]},\"%s\":{\"dtype\":\"BF16\",\"shape\":[1],"
        "\"data_offsets\":[8,10]}}", a, b, c);
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    size[0] = (uint8_t)n, size[1] = (uint8_t)(n >> 8);
    fwrite(size, 1, sizeof size, f);
    fwrite(head, 1, (size_t)n, f);
    fwrite(bytes, 1, 10, f);
    fclose(f);
}

static void gz(const char *name, const uint8_t *bytes, unsigned n)
{
    gzFile z = gzopen(at(name), "wb");
    assert_non_null(z);
    assert_int_equal(gzwrite(z, bytes, n), (int)n);
    gzclose(z);
}

/* Ten photographs, one a garment, in both splits. */
static void photographs(void)
{
    static uint8_t image[16 + 7840] = { 0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 28,
                                        0, 0, 0, 28 };
    uint8_t label[8 + 10] = { 0, 0, 8, 1, 0, 0, 0, 10 };
    for (int i = 0; i < 10; i++)
        label[8 + i] = (uint8_t)i;
    gz("train-images-idx3-ubyte.gz", image, sizeof image);
    gz("t10k-images-idx3-ubyte.gz", image, sizeof image);
    gz("train-labels-idx1-ubyte.gz", label, sizeof label);
    gz("t10k-labels-idx1-ubyte.gz", label, sizeof label);
}

static Options options(void)
{
    FILE *f = fopen(at("dpc"), "w");
    assert_non_null(f);
    fprintf(f, script, folder);
    fclose(f);
    chmod(at("dpc"), 0755);
    array("pictures.npy", 4, (int64_t[]){ 80, 3, 28, 28 }, 0.5f);
    array("right.npy", 1, (int64_t[]){ 80 }, 1);
    array("color_errors.npy", 1, (int64_t[]){ 80 }, 0.125f);
    array("background_errors.npy", 1, (int64_t[]){ 80 }, 0.25f);
    array("features.npy", 2, (int64_t[]){ 80, 4 }, 1);
    array("mean.npy", 2, (int64_t[]){ 2, 4 }, 3);
    array("covariance.npy", 3, (int64_t[]){ 2, 4, 4 }, 0.5f);
    photographs();
    put("eval.json", "{\"step\":1,\"garment_accuracy\":0.9,\"zero_shot\":0.8,"
        "\"recolour_error\":0.1,\"recolour_right\":0.9,\"ground_right\":0.8,"
        "\"mirror_right\":0.7,\"mirror_mse\":1,\"copy_mse\":4,"
        "\"silhouette_right\":0.9,\"base_right\":0.1}");
    tensors("model.safetensors", "edit.a", "edit.b", "edit.lora", "aaaabbbbll");
    tensors("state.safetensors", "ema.edit.a", "ema.edit.b", "other",
            "aaaabbxbzz");
    remove(at("calls"));
    return (Options){ .command = CMD_demo, .home = ".", .arena = arena,
                      .out = at("out"), .data = folder, .quiet = true };
}

static int calls(const char *part)
{
    char line[4096];
    int n = 0;
    FILE *f = fopen(at("calls"), "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, part) != NULL;
    if (f)
        fclose(f);
    return n;
}

static double get(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void all_stages_run_and_their_numbers_are_reported(void **state)
{
    (void)state;
    if (access("models/dalle2/unclip.lua", R_OK) != 0)
        skip();
    Options o = options();
    Demo d = demo_open(&o, at("dpc"));
    /* exchanged pictures are "right", backgrounds 0.25 off, no variety, and
     * features 4 * (3 - 1)^2 + 4 * 0.5 from the real ones, in units of 0.5;
     * so are the class means' */
    assert_int_equal(demo_all(&d), 4);
    assert_int_equal(calls("compile "), 5);
    assert_int_equal(calls(" train "), 4);
    assert_int_equal(calls(" sample "), 8);
    assert_int_equal(calls(" score "), 13);
    assert_int_equal(calls("--shuffle 37"), 2);
    json_t *r = load(at("out/report.json"));
    assert_true(fabs(get(r, "garment_accuracy") - 1) < 1e-9);
    assert_true(fabs(get(r, "color_error") - 0.125) < 1e-6);
    assert_true(fabs(get(r, "background_error") - 0.25) < 1e-6);
    assert_true(fabs(get(r, "zero_shot_accuracy") - 0.8) < 1e-3);
    assert_true(fabs(get(r, "frechet") - 36) < 1e-6);
    assert_true(get(r, "diversity") == 0);
    assert_true(get(json_object_get(r, "planned_bytes"), "clip") == 5);
    assert_int_equal(json_array_size(json_object_get(r, "commands")),
                     5 + 4 + 8 + 13 + 3);
    json_decref(r);
    assert_int_equal(access(at("out/samples.png"), R_OK), 0);
}

static void the_edit_demo_compares_the_base_bit_by_bit(void **state)
{
    (void)state;
    if (access("models/qwen_image/fashion_lora.lua", R_OK) != 0)
        skip();
    Options o = options();
    const char *name = "edit";
    o.file = &name, o.nfile = 1;
    Demo d = demo_open(&o, at("dpc"));
    assert_int_equal(demo_all(&d), 1);    /* the tensor that differs */
    assert_int_equal(calls("compile "), 2);
    assert_int_equal(calls(" train "), 2);
    assert_int_equal(calls("--init-from edit="), 1);
    json_t *r = load(at("out/report.json"));
    assert_true(get(r, "mirror_ratio") == 0.25);
    assert_true(get(r, "base_tensors") == 2);
    assert_true(get(r, "base_changed") == 1);
    assert_true(get(r, "trainable") > 100000);
    assert_null(json_object_get(r, "frechet"));
    json_decref(r);
    assert_int_equal(access(at("out/samples.png"), R_OK), 0);
}

static void a_stage_can_be_run_again_alone(void **state)
{
    (void)state;
    if (access("models/dalle2/unclip.lua", R_OK) != 0)
        skip();
    Options o = options();
    o.from = "score";
    Demo d = demo_open(&o, at("dpc"));
    demo_all(&d);
    assert_int_equal(calls(" train "), 0);
    assert_int_equal(calls(" score "), 13);
    assert_int_equal(d.report.ntrained, 5);
    assert_int_equal(d.report.trained[0].steps, 1);
}

static void training_again_forgets_the_old_run(void **state)
{
    (void)state;
    Options o = options();
    Demo d = demo_open(&o, at("dpc"));
    demo_train(&d, S_CLIP);
    mkdir(at("out/clip/ckpt/step-9"), 0777);
    demo_train(&d, S_CLIP);
    assert_int_not_equal(access(at("out/clip/ckpt/step-9"), F_OK), 0);
    assert_int_equal(access(at("out/clip/ckpt/step-1"), F_OK), 0);
}

static void a_failed_stage_says_its_command_and_how_to_go_on(void **state)
{
    (void)state;
    Options o = options();
    Demo d = demo_open(&o, at("dpc"));
    Line l = { .n = 0 };
    line_add(&l, d.self, "run", "/fail", NULL);
    static ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        demo_run(&d, S_PRIOR, &l, NULL);
        err_pop();
        fail_msg("a failed command passed");
    }
    assert_int_equal(t.code, 7);
    assert_non_null(strstr(t.text, "run /fail"));
    assert_non_null(strstr(t.text, "--from prior"));
}

static int begin(void **state)
{
    (void)state;
    arena = arena_new();
    op_init();
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    int bad = system(fmt(arena, "rm -r '%s'", folder));
    arena_free(arena);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_rates_come_from_metrics),
        cmocka_unit_test(gates_hold_miss_and_want_a_value),
        cmocka_unit_test(report_json_has_every_key_and_interval),
        cmocka_unit_test(all_stages_run_and_their_numbers_are_reported),
        cmocka_unit_test(the_edit_demo_compares_the_base_bit_by_bit),
        cmocka_unit_test(a_stage_can_be_run_again_alone),
        cmocka_unit_test(training_again_forgets_the_old_run),
        cmocka_unit_test(a_failed_stage_says_its_command_and_how_to_go_on),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
