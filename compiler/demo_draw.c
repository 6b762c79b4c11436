/* demo_draw.c -- pictures from captions, and what the judge says of them.
 *
 * Three sets are drawn, ROWS pictures a call, each call with its own seed:
 *   captions  all pairs of colour and garment, four times
 *   heldout   the pairs never trained on, on each background, five times
 *   shuffled  as captions, but each from the embedding of another caption:
 *             if the garments still came out right, the embedding would not
 *             be what they are drawn from
 * Two are controls, made of the test photographs and the captions of the
 * first: `real` is one photograph for each picture, and says how far as many
 * perfect pictures are from all; `means`, the average photograph of each
 * garment, has the right colours and garments but no variety, and must not
 * pass the gate of the Frechet distance.
 *
 * The distance goes with the square of the features' scale, which is the
 * judge's to choose.  So it is measured in units of their mean variance over
 * real composites, and the same gate means the same for any judge. */
#include "compiler/demo_own.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, COLOURS = 8, GARMENTS = 10,
       LENGTH = 8 };

static const struct { const char *name; int calls, shuffle; } sets[] = {
    { "captions", 4, 0 }, { "heldout", 2, 0 }, { "shuffled", 2, 37 },
    { "real", 4, 0 }, { "means", 1, 0 },
};
typedef enum SetId { CAPTIONS, HELDOUT, SHUFFLED, REAL, MEANS } SetId;

/* ---- captions ---- */

typedef struct Words { Demo *demo; json_t *meta; } Words;

static Words words_open(Demo *d)
{
    ModelOptions o = { .home = d->o->home };
    const char *path = fmt(d->arena, "%s/models/dalle2/unclip.lua",
                           d->o->home);
    Model *m = model_load(path, &o, d->arena);
    Words w = { d, json_loads(m->meta, 0, NULL) };
    if (json_array_size(json_object_get(w.meta, "colours")) != COLOURS ||
        json_array_size(json_object_get(w.meta, "garments")) != GARMENTS)
        err(path, "meta: wanted %d colours and %d garments", COLOURS,
            GARMENTS);
    return w;
}

static const char *word(const Words *w, const char *list, int i)
{
    json_t *l = json_object_get(w->meta, list);
    const char *s = json_string_value(json_array_get(l, (size_t)i));
    if (!s)
        err("unclip.lua", "meta: no %s %d", list, i);
    return s;
}

static const char *caption(const Words *w, const char *colour,
                           const char *garment, int ground)
{
    return fmt(w->demo->arena, "a %s %s on a %s background", colour, garment,
               word(w, "backgrounds", ground));
}

static int ground_of(int row) { return (row / GARMENTS + row) % 4; }

/* Caption `row` of call `call` of a set. */
static const char *caption_of(const Words *w, SetId set, int call, int row)
{
    json_t *held = json_object_get(w->meta, "held_out"), *pair;
    if (set != HELDOUT)
        return caption(w, word(w, "colours", row / GARMENTS),
                       word(w, "garments", row % GARMENTS),
                       ground_of(row));
    int i = call * ROWS + row, n = (int)json_array_size(held);
    if (!n)
        err("unclip.lua", "meta: no held_out pairs");
    pair = json_array_get(held, (size_t)(i % n));
    return caption(w, json_string_value(json_array_get(pair, 0)),
                   json_string_value(json_array_get(pair, 1)), i / n % 4);
}

static void caption_tokens(const Words *w, const char *text, int32_t *to)
{
    json_t *vocab = json_object_get(json_object_get(w->meta, "caption"),
                                    "vocab");
    char *copy = fmt(w->demo->arena, "%s", text), *rest = copy, *one;
    for (int n = 0; (one = strsep(&rest, " ")); n++) {
        json_t *id = json_object_get(vocab, one);
        if (!json_is_integer(id) || n == LENGTH)
            err("unclip.lua", "meta: cannot say \"%s\" at \"%s\"", text, one);
        to[n] = (int32_t)json_integer_value(id);
    }
}

static const char *tokens_write(const Words *w, SetId set, int call)
{
    const char *path = demo_path(w->demo, "draw/%s-%d.tokens.npy",
                                 sets[set].name, call);
    Npy a = npy_make(w->demo->arena, NPY_I32, 2,
                     (int64_t[]){ ROWS, LENGTH });
    for (int i = 0; i < ROWS; i++)
        caption_tokens(w, caption_of(w, set, call, i),
                       (int32_t *)a.data + i * LENGTH);
    npy_write(&a, path);
    return path;
}

/* ---- drawing ---- */

static char *pictures_path(const Demo *d, SetId set, int call)
{
    return demo_path(d, "draw/%s-%d.npy", sets[set].name, call);
}

Line demo_sampler(const Demo *d)
{
    Line l = demo_line(d, "unclip", "sample");
    static const char *const part[] = { "clip", "prior", "decoder" };
    for (int i = 0; i < COUNT(part); i++)
        line_add(&l, "--init-from", fmt(d->arena, "%s=%s:ema:extra",
                 part[i], demo_path(d, "%s", part[i])), NULL);
    return l;
}

static double draw(const Words *w, SetId set, int call)
{
    Demo *d = w->demo;
    Line l = demo_sampler(d);
    line_add(&l, "--quiet", "--seed",
             fmt(d->arena, "%lld", (long long)d->seed + call), "--input",
             fmt(d->arena, "tokens=%s", tokens_write(w, set, call)),
             "--output",
             fmt(d->arena, "pictures=%s", pictures_path(d, set, call)), NULL);
    if (d->report.quick)
        line_add(&l, "--prior-steps", "2", "--decode-steps", "2", NULL);
    if (sets[set].shuffle)
        line_add(&l, "--shuffle", fmt(d->arena, "%d", sets[set].shuffle),
                 NULL);
    return demo_run(d, S_SAMPLE, &l, demo_path(d, "log/sample.txt"));
}

static Npy floats_read(const Demo *d, const char *path, int64_t count)
{
    Npy a = npy_read(d->arena, path);
    if (a.kind != NPY_F32 || npy_count(&a) != count)
        err(path, "%lld elements; wanted %lld of f32",
            (long long)npy_count(&a), (long long)count);
    return a;
}

/* Pictures of all calls of a set, [calls * ROWS, 3, SIDE, SIDE]. */
static float *pictures_read(const Demo *d, SetId set)
{
    int64_t each = ROWS * 3 * PIXELS;
    float *to = alloc(d->arena, (size_t)(sets[set].calls * each) * 4);
    for (int i = 0; i < sets[set].calls; i++) {
        Npy a = floats_read(d, pictures_path(d, set, i), each);
        memcpy(to + i * each, a.data, (size_t)each * 4);
    }
    return to;
}

/* ---- the controls ---- */

/* Sums over n photographs of alpha (0.35 + 0.65 g) and of alpha, in which a
 * composite is linear. */
typedef struct Paint { double fore[PIXELS], alpha[PIXELS]; int n; } Paint;

static void paint_add(Paint *to, const uint8_t *pixel)
{
    for (int k = 0; k < PIXELS; k++) {
        double g = pixel[k] / 255.0, alpha = fmin(1, 3 * g);
        to->fore[k] += alpha * (0.35 + 0.65 * g);
        to->alpha[k] += alpha;
    }
    to->n++;
}

static double channel(const Words *w, const char *name, int c)
{
    json_t *rgb = json_object_get(json_object_get(w->meta, "rgb"), name);
    if (json_array_size(rgb) != 3)
        err("unclip.lua", "meta: no rgb of \"%s\"", name);
    return json_number_value(json_array_get(rgb, (size_t)c));
}

/* The picture of caption `row`, [3, PIXELS]. */
static void paint_put(const Words *w, const Paint *m, int row, float *to)
{
    const char *colour = word(w, "colours", row / GARMENTS);
    const char *ground = word(w, "backgrounds", ground_of(row));
    for (int c = 0; c < 3; c++) {
        double fore = channel(w, colour, c), back = channel(w, ground, c);
        for (int k = 0; k < PIXELS; k++)
            to[c * PIXELS + k] = (float)((m->fore[k] * fore +
                                          (m->n - m->alpha[k]) * back) / m->n);
    }
}

/* The n-th photograph of a garment, counted around. */
static const uint8_t *photo(const Photos *p, int garment, int n)
{
    for (int64_t i = 0, seen = 0; ; i++) {
        if (i >= 4 * p->n && !seen)
            err("photographs", "none has label %d", garment);
        if (p->label[i % p->n] == garment && seen++ == n)
            return p->pixel + i % p->n * PIXELS;
    }
}

static void control_write(const Words *w, const Photos *p, SetId set, int call)
{
    Arena *a = w->demo->arena;
    Npy to = npy_make(a, NPY_F32, 4, (int64_t[]){ ROWS, 3, SIDE, SIDE });
    Paint *mean = alloc(a, GARMENTS * sizeof *mean);
    for (int64_t i = 0; set == MEANS && i < p->n; i++)
        paint_add(&mean[p->label[i] % GARMENTS], p->pixel + i * PIXELS);
    for (int i = 0; i < ROWS; i++) {
        Paint one = { .n = 0 };
        if (set == REAL)
            paint_add(&one, photo(p, i % GARMENTS,
                                  call * COLOURS + i / GARMENTS));
        paint_put(w, set == REAL ? &one : &mean[i % GARMENTS], i,
                  (float *)to.data + i * 3 * PIXELS);
    }
    npy_write(&to, pictures_path(w->demo, set, call));
    tokens_write(w, set, call);
}

static void controls_write(const Words *w)
{
    const Demo *d = w->demo;
    Photos p = photos_read(d->arena, d->data, "t10k");
    if (p.h != SIDE || p.w != SIDE)
        err(d->data, "photographs of %lld x %lld; wanted %d x %d",
            (long long)p.h, (long long)p.w, SIDE, SIDE);
    for (SetId set = REAL; set <= MEANS; set++)
        for (int i = 0; i < sets[set].calls; i++)
            control_write(w, &p, set, i);
}

void demo_sample(Demo *d)
{
    Words w = words_open(d);
    double seconds = 0;
    int n = 0;
    for (SetId set = CAPTIONS; set < REAL; set++)
        for (int i = 0; i < sets[set].calls; i++, n += ROWS)
            seconds += draw(&w, set, i);
    controls_write(&w);
    json_decref(w.meta);
    grid_write(d->arena, demo_path(d, "samples.png"),
               pictures_read(d, CAPTIONS), ROWS, SIDE, SIDE, GARMENTS, 2);
    fprintf(stderr, "demo: drew %d pictures in %.0f s\n", n, seconds);
}

/* ---- scores ---- */

/* What the judge says of a set. */
typedef struct Score {
    Rate garment;
    Mean color, background;
    float *feature;                       /* [n, nfeature] */
    int64_t n;
    int nfeature;
} Score;

static const char *const outs[] = { "right", "color_errors",
                                    "background_errors", "features" };

static void judge_call(Demo *d, SetId set, int call)
{
    Line l = demo_line(d, "judge", "score");
    line_add(&l, "--quiet", "--out", demo_path(d, "judge"), "--input",
             fmt(d->arena, "pictures=%s", pictures_path(d, set, call)),
             "--input", fmt(d->arena, "tokens=%s",
             demo_path(d, "draw/%s-%d.tokens.npy", sets[set].name, call)),
             NULL);
    for (int i = 0; i < COUNT(outs); i++)
        line_add(&l, "--output", fmt(d->arena, "%s=%s", outs[i],
                 demo_path(d, "draw/%s.npy", outs[i])), NULL);
    demo_run(d, S_SCORE, &l, demo_path(d, "log/score.txt"));
}

static void judge_add(const Demo *d, Score *s)
{
    const float *out[3];
    for (int i = 0; i < 3; i++)
        out[i] = floats_read(d, demo_path(d, "draw/%s.npy", outs[i]),
                             ROWS).data;
    for (int i = 0; i < ROWS; i++) {
        s->garment.hit += out[0][i] > 0.5f;
        s->garment.of++;
        mean_add(&s->color, (double)out[1][i]);
        mean_add(&s->background, (double)out[2][i]);
    }
    Npy f = npy_read(d->arena, demo_path(d, "draw/features.npy"));
    if (f.kind != NPY_F32 || f.ndim != 2 || f.dim[0] != ROWS)
        err(demo_path(d, "draw/features.npy"), "wanted f32 [%d, features]",
            ROWS);
    size_t row = (size_t)f.dim[1] * ROWS;
    float *more = alloc(d->arena, ((size_t)s->n / ROWS + 1) * row * 4);
    if (s->n)
        memcpy(more, s->feature, (size_t)s->n / ROWS * row * 4);
    memcpy(more + (size_t)s->n / ROWS * row, f.data, row * 4);
    s->feature = more;
    s->nfeature = (int)f.dim[1];
    s->n += ROWS;
}

static Score judge(Demo *d, SetId set)
{
    Score s = { .n = 0 };
    for (int i = 0; i < sets[set].calls; i++) {
        judge_call(d, set, i);
        judge_add(d, &s);
    }
    return s;
}

/* ---- real photographs ---- */

/* A share of a number of pictures that a model's `eval` printed as `key`. */
static Rate share(Demo *d, const char *model, const char *key)
{
    demo_eval(d, S_SCORE, model);
    int64_t batch = demo_batch(d, model), of = 10000 / batch * batch;
    return (Rate){ llround(demo_number(d, model, key) * (double)of), of };
}

/* The judge's features of real composites, in two halves. */
static void halves(Demo *d, Gauss half[2])
{
    char *mean = demo_path(d, "draw/mean.npy");
    char *cov = demo_path(d, "draw/covariance.npy");
    Line l = demo_line(d, "judge", "features");
    line_add(&l, "--quiet", "--out", demo_path(d, "judge"), "--data",
             fmt(d->arena, "%s:test", d->data), "--output",
             fmt(d->arena, "mean=%s", mean), "--output",
             fmt(d->arena, "covariance=%s", cov), NULL);
    demo_run(d, S_SCORE, &l, demo_path(d, "log/features.txt"));
    Npy m = npy_read(d->arena, mean), c = npy_read(d->arena, cov);
    int n = (int)npy_row(&m);
    if (m.kind != NPY_F32 || c.kind != NPY_F32 || m.dim[0] != 2 ||
        npy_count(&c) != 2 * (int64_t)n * n)
        err(cov, "wanted f32 [2, n, n] beside mean [2, n]");
    for (int h = 0; h < 2; h++)
        half[h] = gauss_of(d->arena, (float *)m.data + h * n,
                           (float *)c.data + h * n * n, n);
}

static double frechet_of(Demo *d, const Score *s, const Gauss *real)
{
    if (real->n != s->nfeature)
        err("judge.lua", "score has %d features, features %d", s->nfeature,
            real->n);
    Gauss g = gauss_fit(d->arena, s->feature, s->n, real->n);
    return gauss_distance(d->arena, &g, real);
}

/* Mean variance of a feature: the unit of distances. */
static double unit_of(const Gauss *g)
{
    double sum = 0;
    for (int i = 0; i < g->n; i++)
        sum += g->cov[i * g->n + i];
    return sum > 0 ? sum / g->n : 1;
}

static void frechet(Demo *d, const Score *drawn, const Score *photos,
                    const Score *means)
{
    Report *r = &d->report;
    Gauss half[2];
    halves(d, half);
    Gauss real = gauss_both(d->arena, &half[0], &half[1]);
    double unit = unit_of(&real);
    double reference = gauss_distance(d->arena, &half[0], &half[1]) / unit;
    report_number(r, M_frechet_reference, reference);
    report_number(r, M_frechet, frechet_of(d, drawn, &real) / unit);
    report_number(r, M_frechet_real, frechet_of(d, photos, &real) / unit);
    report_number(r, M_frechet_class_means,
                  frechet_of(d, means, &real) / unit);
    report_limit(r, M_frechet, 2 * reference + 5);
    report_limit(r, M_frechet_class_means, 2 * reference + 5);
}

void demo_score(Demo *d)
{
    Report *r = &d->report;
    report_rate(r, M_judge_test_accuracy,
                share(d, "judge", "garment_accuracy"));
    report_rate(r, M_zero_shot_accuracy, share(d, "clip", "zero_shot"));
    Score drawn = judge(d, CAPTIONS), held = judge(d, HELDOUT);
    Score shuffled = judge(d, SHUFFLED);
    Score photos = judge(d, REAL), means = judge(d, MEANS);
    report_rate(r, M_garment_accuracy, drawn.garment);
    report_rate(r, M_heldout_accuracy, held.garment);
    report_rate(r, M_shuffled_accuracy, shuffled.garment);
    report_mean(r, M_color_error, &drawn.color);
    report_mean(r, M_background_error, &drawn.background);
    report_number(r, M_diversity,
                  spread(pictures_read(d, CAPTIONS), sets[CAPTIONS].calls,
                         ROWS, 3 * PIXELS));
    frechet(d, &drawn, &photos, &means);
}
