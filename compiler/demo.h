/* demo.h -- the parts of `dpc demo`: arrays as files, photographs, captions,
 * weights, processes, measures, the report.
 *
 * The demo is a client of what `dpc` makes: it starts binaries with files as
 * inputs and reads files back, so all it knows of a model is a few names. */
#ifndef DPC_DEMO_H
#define DPC_DEMO_H

#include "ir/base.h"

/* ---- demo_npy.c: NumPy arrays ---- */

typedef enum NpyKind {
    NPY_F32, NPY_I32, NPY_U8, NPY_F64, NPY_F16, NPY_I64, NPY_BOOL
} NpyKind;
enum { NPY_NDIM = 8 };

/* An array, row-major. */
typedef struct Npy {
    NpyKind kind;
    int ndim;
    int64_t dim[NPY_NDIM];
    void *data;
} Npy;

Npy npy_make(Arena *, NpyKind, int ndim, const int64_t *dim);
int64_t npy_count(const Npy *);           /* elements */
int64_t npy_row(const Npy *);             /* elements of dimension 1 on */
/* err_code (5) when the disk refuses. */
void npy_write(const Npy *, const char *path);
/* err (1) where the file is no row-major array of one of these kinds. */
Npy npy_read(Arena *, const char *path);
const char *npy_kind_name(NpyKind);       /* "f32" */
double npy_get(const Npy *, int64_t i);   /* element i */

/* ---- demo_photo.c: Fashion-MNIST ---- */

typedef struct Photos {
    int64_t n, h, w;
    uint8_t *pixel;                       /* [n, h, w] */
    uint8_t *label;                       /* [n] */
} Photos;

/* err_code (5) with what to install unless all four files are there. */
void photos_check(Arena *, const char *dir);
/* Split "train" or "t10k" of a folder.  err_code (5) with what to install
 * when it is missing, err (1) where it is damaged. */
Photos photos_read(Arena *, const char *dir, const char *split);

/* ---- demo_stat.c: measures ---- */

typedef struct Rate { int64_t hit, of; } Rate;
typedef struct Interval { double low, high; } Interval;
double rate_value(Rate);                  /* 0 of 0 is 0 */
/* Wilson's interval at 95 %: holds near 0 and 1, where the normal one
 * leaves [0, 1].  Wilson, J. Am. Stat. Assoc. 22 (1927) 209. */
Interval rate_interval(Rate);

typedef struct Mean { double sum, square; int64_t n; } Mean;
void mean_add(Mean *, double);
double mean_value(const Mean *);
Interval mean_interval(const Mean *);     /* 1.96 standard errors */

/* Mean over elements of the standard deviation over `nset` sets of `n` rows
 * of `row` elements, set-major. */
double spread(const float *x, int64_t nset, int64_t n, int64_t row);

/* ---- demo_frechet.c ---- */

typedef struct Gauss { int n; double *mean, *cov; } Gauss;   /* cov [n, n] */
/* Mean and covariance (by n - 1) of rows [nrow, n]. */
Gauss gauss_fit(Arena *, const float *row, int64_t nrow, int n);
/* From single precision; of two sets of equal size together. */
Gauss gauss_of(Arena *, const float *mean, const float *cov, int n);
Gauss gauss_both(Arena *, const Gauss *, const Gauss *);
/* The squared distance of two Gaussians,
 * |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)): what FID computes. */
double gauss_distance(Arena *, const Gauss *, const Gauss *);
/* Symmetric a [n, n] = v diag(value) v^T; a is destroyed. */
void eigen_symmetric(double *a, int n, double *value, double *v);

/* ---- demo_grid.c ---- */

/* Pictures rgb [n, 3, h, w] of 0 to 1 as a PNG of `columns`, each pixel
 * `scale` wide.  err_code (5) when the disk refuses. */
void grid_write(Arena *, const char *path, const float *rgb, int64_t n,
                int64_t h, int64_t w, int64_t columns, int64_t scale);

/* ---- demo_weights.c ---- */

/* Of the tensors in the safetensors file `a` whose name, with `prefix` before
 * it, is in `b`: how many, and in *differ how many are not the same bits.
 * err (1) where a file is no such file. */
int64_t weights_compare(Arena *, const char *a, const char *b,
                        const char *prefix, int64_t *differ);

/* ---- demo_process.c ---- */

typedef struct Process {
    const char *stage;
    const char **arg;                     /* NULL at the end */
    const char *out, *log;                /* files for stdout, stderr; NULL:
                                             ours */
    double seconds;                       /* filled */
    int code;                             /* exit code; 128 + signal; 127:
                                             cannot be started */
    int pid;
} Process;

/* Runs all, at most `at_once` side by side, and waits.  Their number that
 * failed; after a failure no more are started (code -1). */
int processes_run(Process *, int n, int at_once);
char *process_text(Arena *, const Process *);      /* as for a shell */
double seconds_now(void);
double seconds_cpu(void);                 /* of all children waited for */

/* ---- demo_report.c ---- */

typedef enum DemoId { FASHION, EDIT } DemoId;

typedef enum MeasureId {
#define MEASURE(demo, key, ...) M_##key,
#include "compiler/demo.def"
#undef MEASURE
    NMEASURE
} MeasureId;

typedef struct Measured {
    double value, limit;                  /* limit: of the gate */
    Interval at95;
    int64_t of;                           /* pictures; 0: no interval */
    bool known;
} Measured;

/* How a model was trained. */
typedef struct Trained {
    const char *name;
    int64_t steps, planned, allocated;    /* bytes a rank */
    double seconds, rate;                 /* of all steps; images a second,
                                             median */
    double first, last;                   /* loss: of step 1; mean of the
                                             last ten steps */
} Trained;

enum { NTRAINED = 8, NSTAGE = 16 };
typedef struct Stage { const char *name; double seconds, cpu; } Stage;

typedef struct Report {
    Arena *arena;
    DemoId demo;                          /* whose measures are reported */
    Measured m[NMEASURE];
    Trained trained[NTRAINED];
    Stage stage[NSTAGE];
    int ntrained, nstage;
    const char **command;                 /* as typed, in order */
    uint32_t ncommand, cap;
    double build_seconds;                 /* of dpc itself; 0: not known */
    double compile_seconds, train_seconds, seconds;
    int ranks;
    int64_t seed;
    bool quick;
} Report;

void report_rate(Report *, MeasureId, Rate);
void report_mean(Report *, MeasureId, const Mean *);
void report_number(Report *, MeasureId, double value);
/* Beside the value, the limit of a gate that is computed. */
void report_limit(Report *, MeasureId, double limit);
/* cpu: seconds of all cores; beside `seconds` it says how busy with other
 * things the machine was. */
void report_stage(Report *, const char *name, double seconds, double cpu);
/* Reads the metrics.jsonl of a training.  err (1) where it is not whole. */
void report_metrics(Report *, Trained *, const char *path);
/* Measures whose gate does not hold, or that were not measured. */
int report_missed(const Report *);
/* err_code (5) when the disk refuses. */
void report_write(const Report *, const char *path);
void report_print(const Report *, FILE *);

#endif
