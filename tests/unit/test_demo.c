/* test_demo.c -- what the demo's numbers rest on. */
#include "compiler/demo.h"
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static Arena *arena;
static char folder[] = "/tmp/dpc-test-demo-XXXXXX";

static const char *at(const char *name)
{
    return fmt(arena, "%s/%s", folder, name);
}

/* err's text, or NULL when fn(arg) does not err. */
static const char *complaint(void (*fn)(const char *), const char *arg,
                             int code)
{
    static ErrTrap t;
    if (setjmp(t.jump) == 0) {
        err_push(&t);
        fn(arg);
        err_pop();
        return NULL;
    }
    assert_int_equal(t.code, code);
    return t.text;
}

#define SAYS(text, part) \
    do { const char *t_ = (text); \
         assert_non_null(t_); assert_non_null(strstr(t_, part)); } while (0)

/* ---- arrays ---- */

static void an_array_comes_back_from_its_file(void **state)
{
    (void)state;
    static const int64_t dim[3] = { 2, 3, 5 };
    for (NpyKind k = NPY_F32; k <= NPY_BOOL; k++) {
        Npy a = npy_make(arena, k, 3, dim);
        size_t bytes = k == NPY_U8 || k == NPY_BOOL ? 30 : k == NPY_F16 ? 60
                     : k == NPY_F64 || k == NPY_I64 ? 240 : 120;
        for (int i = 0; i < 30; i++) {
            if (k == NPY_F64)
                ((double *)a.data)[i] = (double)i / 7;
            else if (k == NPY_I64)
                ((int64_t *)a.data)[i] = -i * 10000000000;
            else if (k == NPY_F16)
                ((uint16_t *)a.data)[i] = (uint16_t)(0x3c00 + i);
            else if (k == NPY_F32)
                ((float *)a.data)[i] = (float)i / 7;
            else if (k == NPY_I32)
                ((int32_t *)a.data)[i] = -i * 1000000;
            else
                ((uint8_t *)a.data)[i] = (uint8_t)(255 - i);
        }
        npy_write(&a, at("a.npy"));
        Npy b = npy_read(arena, at("a.npy"));
        assert_int_equal(b.kind, k);
        assert_int_equal(b.ndim, 3);
        assert_int_equal(npy_count(&b), 30);
        assert_int_equal(npy_row(&b), 15);
        assert_memory_equal(a.data, b.data, bytes);
        double want[] = { [NPY_F32] = 2.f / 7, [NPY_I32] = -2000000,
                          [NPY_U8] = 253, [NPY_F64] = 2. / 7,
                          [NPY_F16] = 1 + 2 * 0x1p-10, [NPY_I64] = -2e10,
                          [NPY_BOOL] = 253 };
        assert_true(npy_get(&b, 2) == want[k]);
    }
}

static void put(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void read_it(const char *path) { npy_read(arena, path); }

static void what_is_no_array_is_refused(void **state)
{
    (void)state;
    static const int64_t dim[1] = { 100 };
    Npy a = npy_make(arena, NPY_F32, 1, dim);
    npy_write(&a, at("cut.npy"));
    assert_int_equal(truncate(at("cut.npy"), 300), 0);
    SAYS(complaint(read_it, at("cut.npy"), 1), "ends early");
    put(at("text.npy"), "hello, world", 12);
    SAYS(complaint(read_it, at("text.npy"), 1), "no .npy array");
    SAYS(complaint(read_it, at("nowhere.npy"), 1), "cannot be opened");
    static const char c8[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '<c8', "
        "'fortran_order': False, 'shape': (1,), }             \n12345678";
    put(at("c8.npy"), c8, sizeof c8 - 1);
    SAYS(complaint(read_it, at("c8.npy"), 1), "<c8");
}

/* ---- photographs ---- */

static void idx_put(const char *name, const uint8_t *bytes, unsigned n)
{
    gzFile z = gzopen(at(name), "wb");
    assert_non_null(z);
    assert_int_equal(gzwrite(z, bytes, n), (int)n);
    gzclose(z);
}

static void read_photos(const char *dir) { photos_read(arena, dir, "t10k"); }

static void photographs_and_labels_are_read(void **state)
{
    (void)state;
    uint8_t image[16 + 12] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0,
                               2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    uint8_t label[8 + 2] = { 0, 0, 8, 1, 0, 0, 0, 2, 9, 4 };
    SAYS(complaint(read_photos, folder, 5), "apt-get install -y "
         "dataset-fashion-mnist");
    idx_put("t10k-images-idx3-ubyte.gz", image, sizeof image);
    idx_put("t10k-labels-idx1-ubyte.gz", label, sizeof label);
    Photos p = photos_read(arena, folder, "t10k");
    assert_int_equal(p.n, 2);
    assert_int_equal(p.h, 3);
    assert_int_equal(p.w, 2);
    assert_int_equal(p.pixel[11], 12);
    assert_int_equal(p.label[0], 9);
    idx_put("t10k-images-idx3-ubyte.gz", image, sizeof image - 1);
    SAYS(complaint(read_photos, folder, 1), "ends early");
    image[4] = 255;
    idx_put("t10k-images-idx3-ubyte.gz", image, sizeof image);
    SAYS(complaint(read_photos, folder, 1), "promises too much");
}

/* ---- measures ---- */

static void near(double a, double b, double within)
{
    if (!(fabs(a - b) <= within))
        fail_msg("%.9g is not %.9g", a, b);
}

/* Values of R's binom.confint(method = "wilson"). */
static void wilsons_interval_is_the_published_one(void **state)
{
    (void)state;
    Interval i = rate_interval((Rate){ 8, 10 });
    near(i.low, 0.4901625, 1e-6);
    near(i.high, 0.9433178, 1e-6);
    i = rate_interval((Rate){ 0, 20 });
    near(i.low, 0, 0);
    near(i.high, 0.1611252, 1e-6);
    i = rate_interval((Rate){ 320, 320 });
    near(i.high, 1, 0);
    near(i.low, 0.9881378, 1e-6);
    i = rate_interval((Rate){ 0, 0 });
    near(i.low, 0, 0);
    near(i.high, 1, 0);
}

static void a_mean_has_its_standard_error(void **state)
{
    (void)state;
    Mean m = { 0 };
    for (int i = 1; i <= 5; i++)
        mean_add(&m, i);
    near(mean_value(&m), 3, 1e-12);
    near(mean_interval(&m).high - 3, 1.959964 * sqrt(2.5 / 5), 1e-6);
}

static void spread_is_zero_for_equal_sets_only(void **state)
{
    (void)state;
    static const float same[8] = { 1, 2, 3, 4, 1, 2, 3, 4 };
    static const float other[8] = { 1, 2, 3, 4, 3, 4, 5, 6 };
    near(spread(same, 2, 2, 2), 0, 0);
    near(spread(other, 2, 2, 2), sqrt(2), 1e-9);
}

/* ---- Frechet ---- */

static uint64_t state_;

static double uniform(void)
{
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state_ >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void eigenvectors_rebuild_the_matrix(void **state)
{
    (void)state;
    enum { N = 24 };
    double a[N * N], b[N * N], v[N * N], value[N];
    state_ = 1;
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            a[i * N + j] = a[j * N + i] = normal();
    memcpy(b, a, sizeof a);
    eigen_symmetric(b, N, value, v);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, one = 0;
            for (int k = 0; k < N; k++) {
                sum += value[k] * v[k * N + i] * v[k * N + j];
                one += v[i * N + k] * v[j * N + k];
            }
            near(sum, a[i * N + j], 1e-11);
            near(one, i == j, 1e-12);
        }
}

static Gauss gauss(int n, const double *mean, const double *cov)
{
    Gauss g = { n, alloc(arena, (size_t)n * 8),
                alloc(arena, (size_t)(n * n) * 8) };
    memcpy(g.mean, mean, (size_t)n * 8);
    memcpy(g.cov, cov, (size_t)(n * n) * 8);
    return g;
}

/* Closed forms: diagonal covariances give sums of (s1 - s2)^2; a rotated
 * pair that commutes likewise. */
static void known_gaussians_have_their_distance(void **state)
{
    (void)state;
    Gauss a = gauss(2, (double[]){ 1, 2 }, (double[]){ 4, 0, 0, 9 });
    Gauss b = gauss(2, (double[]){ 4, 6 }, (double[]){ 1, 0, 0, 25 });
    near(gauss_distance(arena, &a, &b), 25 + 1 + 4, 1e-9);
    near(gauss_distance(arena, &a, &a), 0, 1e-9);
    Gauss c = gauss(2, (double[]){ 0, 0 }, (double[]){ 5, 4, 4, 5 });
    Gauss d = gauss(2, (double[]){ 0, 0 }, (double[]){ 10, 6, 6, 10 });
    /* eigenvalues 9, 1 and 16, 4 on the same axes */
    near(gauss_distance(arena, &c, &d), 1 + 1, 1e-9);
    /* one that does not commute: tr((AB)^1/2) of 2 x 2 is
     * sqrt(tr(AB) + 2 sqrt(det(AB))) */
    near(gauss_distance(arena, &a, &c), 5 + 13 + 10 -
         2 * sqrt(65 + 2 * sqrt(36.0 * 9)), 1e-9);
}

static void the_fit_finds_mean_and_covariance(void **state)
{
    (void)state;
    static const float row[8] = { 1, 1, 3, 5, 1, 1, 3, 5 };
    Gauss g = gauss_fit(arena, row, 4, 2);
    near(g.mean[1], 3, 1e-12);
    near(g.cov[0], 4.0 / 3, 1e-12);
    near(g.cov[1], 8.0 / 3, 1e-12);
    near(g.cov[3], 16.0 / 3, 1e-12);
}

static void halves_together_are_the_whole(void **state)
{
    (void)state;
    static const float row[12] = { 1, 2, 5, 1, 3, 7, 4, 4, 0, 2, 8, 9 };
    Gauss whole = gauss_fit(arena, row, 6, 2);
    Gauss a = gauss_fit(arena, row, 3, 2), b = gauss_fit(arena, row + 6, 3, 2);
    for (int i = 0; i < 4; i++) {         /* by n, as the judge's are */
        a.cov[i] *= 2.0 / 3;
        b.cov[i] *= 2.0 / 3;
    }
    Gauss both = gauss_both(arena, &a, &b);
    for (int i = 0; i < 4; i++)
        near(both.cov[i], whole.cov[i] * 5 / 6, 1e-12);
    near(both.mean[0], whole.mean[0], 1e-12);
}

enum { CLASSES = 10, DIMS = 16, EACH = 100 };

/* Features of pictures of ten classes; scatter 0: the mean of each class. */
static float *features(double scatter, uint64_t seed)
{
    float *x = alloc(arena, sizeof *x * CLASSES * EACH * DIMS), *p = x;
    double centre[CLASSES][DIMS];
    state_ = 7;
    for (int i = 0; i < CLASSES * DIMS; i++)
        centre[i / DIMS][i % DIMS] = 3 * normal();
    state_ = seed;
    for (int i = 0; i < CLASSES * EACH; i++)
        for (int k = 0; k < DIMS; k++)
            *p++ = (float)(centre[i % CLASSES][k] + scatter * normal());
    return x;
}

/* The gate is 2 x reference + 5: a table of class means has the right means
 * and no scatter, and must not get through. */
static void class_means_fail_the_frechet_gate(void **state)
{
    (void)state;
    enum { N = CLASSES * EACH };
    Gauss real = gauss_fit(arena, features(2, 11), N, DIMS);
    Gauss half = gauss_fit(arena, features(2, 12), N, DIMS);
    Gauss good = gauss_fit(arena, features(1.8, 13), N, DIMS);
    Gauss means = gauss_fit(arena, features(0, 14), N, DIMS);
    double gate = 2 * gauss_distance(arena, &real, &half) + 5;
    assert_true(gauss_distance(arena, &good, &real) <= gate);
    assert_true(gauss_distance(arena, &means, &real) > gate);
}

/* ---- pictures ---- */

static void the_grid_is_a_png_of_all_pictures(void **state)
{
    (void)state;
    float rgb[3 * 3 * 4];                 /* three of 2 x 2 */
    for (int i = 0; i < 36; i++)
        rgb[i] = i / 12 == 1 ? 1 : -1;
    grid_write(arena, at("grid.png"), rgb, 3, 2, 2, 2, 3);
    png_image p = { .version = PNG_IMAGE_VERSION };
    assert_true(png_image_begin_read_from_file(&p, at("grid.png")));
    assert_int_equal(p.width, 2 * 8 + 2);
    assert_int_equal(p.height, 2 * 8 + 2);
    p.format = PNG_FORMAT_RGB;
    uint8_t pixel[18 * 18 * 3];
    assert_true(png_image_finish_read(&p, NULL, pixel, 0, NULL));
    assert_int_equal(pixel[(3 * 18 + 3) * 3], 0);
    assert_int_equal(pixel[(3 * 18 + 11) * 3], 255);
    assert_int_equal(pixel[0], 255);
}

/* ---- processes ---- */

static Process shell(const char *text)
{
    const char **arg = alloc(arena, 4 * sizeof *arg);
    arg[0] = "sh", arg[1] = "-c", arg[2] = text;
    return (Process){ .stage = "test", .arg = arg };
}

static void output_goes_to_its_file_and_time_is_taken(void **state)
{
    (void)state;
    Process p = shell("echo out; echo err >&2; sleep 0.2");
    p.out = at("out"), p.log = at("err");
    assert_int_equal(processes_run(&p, 1, 1), 0);
    assert_int_equal(p.code, 0);
    assert_true(p.seconds >= 0.19 && p.seconds < 10);
    char text[16] = { 0 };
    FILE *f = fopen(p.log, "r");
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "err\n");
}

static void nothing_starts_after_a_failure(void **state)
{
    (void)state;
    Process p[3] = { shell("exit 7"), shell("exit 0"), shell("exit 0") };
    assert_int_equal(processes_run(p, 3, 1), 1);
    assert_int_equal(p[0].code, 7);
    assert_int_equal(p[1].code, -1);
    assert_int_equal(p[2].code, -1);
    Process q = shell("kill -9 $$");
    assert_int_equal(processes_run(&q, 1, 1), 1);
    assert_int_equal(q.code, 128 + 9);
}

static void two_run_side_by_side(void **state)
{
    (void)state;
    Process p[2] = { shell("sleep 0.5"), shell("sleep 0.5") };
    double begin = seconds_now();
    assert_int_equal(processes_run(p, 2, 2), 0);
    assert_true(seconds_now() - begin < 0.95);
}

static void a_command_prints_as_the_shell_reads_it(void **state)
{
    (void)state;
    Process p = shell("echo a b");
    assert_string_equal(process_text(arena, &p), "sh -c 'echo a b'");
}

static int begin(void **state)
{
    (void)state;
    arena = arena_new();
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
        cmocka_unit_test(an_array_comes_back_from_its_file),
        cmocka_unit_test(what_is_no_array_is_refused),
        cmocka_unit_test(photographs_and_labels_are_read),
        cmocka_unit_test(wilsons_interval_is_the_published_one),
        cmocka_unit_test(a_mean_has_its_standard_error),
        cmocka_unit_test(spread_is_zero_for_equal_sets_only),
        cmocka_unit_test(eigenvectors_rebuild_the_matrix),
        cmocka_unit_test(known_gaussians_have_their_distance),
        cmocka_unit_test(the_fit_finds_mean_and_covariance),
        cmocka_unit_test(halves_together_are_the_whole),
        cmocka_unit_test(class_means_fail_the_frechet_gate),
        cmocka_unit_test(the_grid_is_a_png_of_all_pictures),
        cmocka_unit_test(output_goes_to_its_file_and_time_is_taken),
        cmocka_unit_test(nothing_starts_after_a_failure),
        cmocka_unit_test(two_run_side_by_side),
        cmocka_unit_test(a_command_prints_as_the_shell_reads_it),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
