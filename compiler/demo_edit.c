/* demo_edit.c -- the edit demo's numbers and pictures.
 *
 * A base learns three kinds of instructions, adapters a fourth, while the base
 * stays as it is.  The models' own `eval` measures them on photographs that
 * were never seen: the true result of every edit is known. */
#include "compiler/demo_own.h"

enum { SIDE = 28, SHOWN = 24, COLUMNS = 12 };  /* triplets of each model */

/* The newest checkpoint's file, of the model's run. */
static char *weights_path(const Demo *d, const char *model, const char *file)
{
    char line[256] = "";
    char *path = demo_path(d, "%s/ckpt/latest", model);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(line, sizeof line, f))
        err(path, "cannot be read; run the demo from --from %s", model);
    fclose(f);
    line[strcspn(line, "\n")] = 0;
    return demo_path(d, "%s/ckpt/%s/%s.safetensors", model, line, file);
}

/* Adapters began with the base's averages. */
static void base_compare(Demo *d)
{
    int64_t differ;
    int64_t n = weights_compare(d->arena, weights_path(d, "lora", "model"),
                                weights_path(d, "base", "state"), "ema.",
                                &differ);
    if (!n)
        err(d->out, "lora and base have no tensor in common");
    report_number(&d->report, M_base_changed, (double)differ);
    report_number(&d->report, M_base_tensors, (double)n);
}

static double trainable(const Demo *d, const char *model)
{
    int64_t n = 0;
    const Graph *g = model_entry(demo_model(d, model), "init");
    for (Ref r = 0; g && r < g->n; r++)
        if (g->node[r].op == OP_param && !g->node[r].attr.frozen)
            n += type_volume(&g->node[r].type);
    return (double)n;
}

/* Source, result and truth of each triplet: rgb [n, 3, SIDE, SIDE]. */
static const float *draw(Demo *d, const char *model)
{
    char *path = demo_path(d, "draw/%s.npy", model);
    Line l = demo_line(d, model, "draw");
    line_add(&l, "--quiet", "--out", demo_path(d, "%s", model), "--data",
             fmt(d->arena, "%s:test", d->data), "--output",
             fmt(d->arena, "pictures=%s", path), NULL);
    demo_run(d, S_SCORE, &l, demo_path(d, "log/draw.txt"));
    Npy a = npy_read(d->arena, path);
    if (a.kind != NPY_F32 || a.dim[0] < 3 * SHOWN
        || npy_row(&a) != 3 * SIDE * SIDE)
        err(path, "wanted f32 [%d, 3, %d, %d]", 3 * SHOWN, SIDE, SIDE);
    return a.data;
}

/* Rows of sources, of results, of truths: twelve edits of each a band. */
static void pictures(Demo *d)
{
    static const char *const model[] = { "base", "lora" };
    size_t one = 3 * SIDE * SIDE, all = 3 * SHOWN * one;
    float *to = alloc(d->arena, COUNT(model) * all * sizeof *to);
    for (int m = 0; m < COUNT(model); m++) {
        const float *from = draw(d, model[m]);
        for (int i = 0; i < 3 * SHOWN; i++) {
            int row = i / 3 / COLUMNS * 3 + i % 3, column = i / 3 % COLUMNS;
            memcpy(to + (size_t)m * all
                   + (size_t)(row * COLUMNS + column) * one,
                   from + (size_t)i * one, one * sizeof *to);
        }
    }
    grid_write(d->arena, demo_path(d, "samples.png"), to,
               COUNT(model) * 3 * SHOWN, SIDE, SIDE, COLUMNS, 3);
}

void demo_edit_score(Demo *d)
{
    static const struct { MeasureId id; const char *model, *key; } row[] = {
        { M_recolour_error, "base", "recolour_error" },
        { M_recolour_right, "base", "recolour_right" },
        { M_ground_right, "base", "ground_right" },
        { M_mirror_right, "base", "mirror_right" },
        { M_lora_right, "lora", "silhouette_right" },
        { M_base_right, "lora", "base_right" },
    };
    Report *r = &d->report;
    demo_eval(d, S_SCORE, "base");
    demo_eval(d, S_SCORE, "lora");
    for (int i = 0; i < COUNT(row); i++)
        report_number(r, row[i].id,
                      demo_number(d, row[i].model, row[i].key));
    report_number(r, M_mirror_ratio, demo_number(d, "base", "mirror_mse")
                  / demo_number(d, "base", "copy_mse"));
    report_number(r, M_trainable, trainable(d, "lora"));
    base_compare(d);
    pictures(d);
}
