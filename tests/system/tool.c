/* tool.c -- what the system tests need and a shell has not.
 *
 *   tool idx DIR N H W        IDX files of N pictures u8[H, W] and labels
 *   tool npy FILE H W N       the same pictures as one .npy file, u8[N, H, W]
 *   tool array FILE f4|u1 N D..   .npy of N rows of D.. numbers
 *   tool pictures DIR         PNG files of every kind, one of them broken
 *   tool json                 is what it reads one JSON text?
 *   tool hash CKPT            of the logical tensors
 *   tool diff CKPT CKPT       largest relative L2 over tensors, and whose
 *   tool apart CKPT CKPT      the same over tensors, not single numbers, of 1 %
 *                             of their kind (weights, averages, moments,
 *                             gradients), and the largest relative to the kind
 *   tool peak FILE COMMAND..  its largest resident size, KiB, into FILE
 *   tool strike PID DIR       kill -9 when a save begins in DIR
 *
 * Pictures are a function of their number: class k = number % 10 is bright in
 * column k, so that there is something to learn. */
#include "runtime/ckpt.h"
#include "runtime/image.h"
#include "runtime/source.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <png.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <webp/encode.h>

static char path[4096];

static const char *in(const char *dir, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static FILE *create(const char *name)
{
    FILE *f = fopen(name, "wb");
    if (!f) {
        perror(name);
        exit(5);
    }
    return f;
}

/* ---- data ---- */

static uint8_t pixel(int n, int i, int j)
{
    uint32_t x = (uint32_t)(n * 7919 + i * 104729 + j * 1299709) * 2654435761u;
    return (uint8_t)((x >> 25) + (j == n % 10 ? 120 : 0));
}

static void pixels_put(FILE *f, int n, int h, int w)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < h; i++)
            for (int j = 0; j < w; j++)
                fputc(pixel(k, i, j), f);
}

static void big_endian(FILE *f, int x)
{
    for (int s = 24; s >= 0; s -= 8)
        fputc(x >> s & 255, f);
}

static int idx(const char *dir, int n, int h, int w)
{
    mkdir(dir, 0777);
    FILE *f = create(in(dir, "train-images-idx3-ubyte"));
    big_endian(f, 0x803);
    big_endian(f, n);
    big_endian(f, h);
    big_endian(f, w);
    pixels_put(f, n, h, w);
    fclose(f);
    f = create(in(dir, "train-labels-idx1-ubyte"));
    big_endian(f, 0x801);
    big_endian(f, n);
    for (int k = 0; k < n; k++)
        fputc(k % 10, f);
    return fclose(f);
}

static FILE *npy_begin(const char *name, const char *type, const char *shape)
{
    char head[118];
    FILE *f = create(name);
    memset(head, ' ', sizeof head);
    int k = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': "
                     "False, 'shape': (%s), }", type, shape);
    head[k] = ' ';
    head[sizeof head - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
    fwrite(head, 1, sizeof head, f);
    return f;
}

/* h = 0: labels u8[n]. */
static int npy(const char *name, int h, int w, int n)
{
    char shape[64];
    snprintf(shape, sizeof shape, h ? "%d, %d, %d" : "%d,", n, h, w);
    FILE *f = npy_begin(name, "|u1", shape);
    if (h)
        pixels_put(f, n, h, w);
    for (int k = 0; !h && k < n; k++)
        fputc(k % 10, f);
    return fclose(f);
}

/* Numbers of a hash: f4 in -1 .. 1, or bytes. */
static int array(const char *name, bool real, int ndim, char **dim)
{
    char shape[64] = "";
    size_t n = 1;
    for (int d = 0; d < ndim; d++) {
        n *= (size_t)atoi(dim[d]);
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%d, ",
                 atoi(dim[d]));
    }
    FILE *f = npy_begin(name, real ? "<f4" : "|u1", shape);
    for (size_t i = 0; i < n; i++) {
        int b = pixel((int)(i % 9973), (int)i, 1);
        float x = (float)b / 120 - 1;
        if (real)
            fwrite(&x, sizeof x, 1, f);
        else
            fputc(b, f);
    }
    return fclose(f);
}

/* A PNG of any colour type and depth. */
static void png_put(const char *name, int type, int depth, int h, int w)
{
    FILE *f = create(name);
    png_structp p = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL,
                                            NULL);
    png_infop info = png_create_info_struct(p);
    int c = type == PNG_COLOR_TYPE_GRAY ? 1 : type == PNG_COLOR_TYPE_RGB ? 3
                                                                         : 4;
    int row = w * c * depth / 8;
    png_byte *x = calloc(1, (size_t)row);
    png_init_io(p, f);
    png_set_IHDR(p, info, (png_uint_32)w, (png_uint_32)h, depth, type,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(p, info);
    for (int i = 0; i < h; i++) {
        for (int j = 0; j < row; j++)
            x[j] = pixel(row, i, j);
        png_write_row(p, x);
    }
    png_write_end(p, info);
    png_destroy_write_struct(&p, &info);
    free(x);
    fclose(f);
}

static int pictures(const char *dir)
{
    mkdir(dir, 0777);
    mkdir(in(dir, "a"), 0777);
    mkdir(in(dir, "b"), 0777);
    png_put(in(dir, "a/grey.png"), PNG_COLOR_TYPE_GRAY, 8, 8, 8);
    png_put(in(dir, "a/rgba.png"), PNG_COLOR_TYPE_RGB_ALPHA, 8, 8, 8);
    png_put(in(dir, "a/rgb.png"), PNG_COLOR_TYPE_RGB, 8, 8, 8);
    png_put(in(dir, "b/deep.png"), PNG_COLOR_TYPE_RGB, 16, 8, 8);
    png_put(in(dir, "b/deep_grey.png"), PNG_COLOR_TYPE_GRAY, 16, 8, 8);
    png_put(in(dir, "b/wide.png"), PNG_COLOR_TYPE_RGB, 8, 9, 31);
    FILE *f = create(in(dir, "b/broken.png"));
    fputs("no picture", f);
    return fclose(f);
}

/* Lossless, of the pixels that the others have. */
static int webp(const char *name, int h, int w)
{
    uint8_t *x = malloc(3 * (size_t)(h * w)), *b = NULL;
    for (int i = 0; i < 3 * h * w; i++)
        x[i] = pixel(w, i, h);
    size_t n = WebPEncodeLosslessRGB(x, w, h, 3 * w, &b);
    FILE *f = create(name);
    fwrite(b, 1, n, f);
    WebPFree(b);
    free(x);
    return fclose(f) || !n;
}

static int json(FILE *f)
{
    json_error_t e;
    json_t *text = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
    if (!text)
        fprintf(stderr, "line %d: %s\n", e.line, e.text);
    json_decref(text);
    return !text;
}

/* ---- checkpoints ---- */

static int told(DpcStatus s)
{
    if (s)
        fprintf(stderr, "%s\n", dpc_last_error());
    return dpc_exit_code(s);
}

static float *whole_read(DpcSource *s, const DpcWhole *w, int64_t *n)
{
    static char stage[1 << 20];
    DpcBox box = {0};
    *n = 1;
    for (int d = 0; d < w->ndim; d++) {
        box.size[d] = w->dim[d];
        *n *= w->dim[d];
    }
    box.ndim = w->ndim;
    float *x = malloc((size_t)*n * 4 + 4);
    DpcStatus r = dpc_source_read(s, w, &box, w->dim, DPC_SAFE_F32, x, stage,
                                  sizeof stage);
    if (r)
        exit(told(r));
    return x;
}

/* Sums of squares: of x, and of x - y; both 1 where sizes differ. */
typedef struct Squares { double own, off; int64_t n; } Squares;

static Squares squares(DpcSource *a, const DpcWhole *w, DpcSource *b)
{
    const DpcWhole *v = dpc_source_find(b, w->name);
    int64_t n, m;
    Squares s = {0, 0, 0};
    if (!v)
        return (Squares){1, 1, 2};
    float *x = whole_read(a, w, &n), *y = whole_read(b, v, &m);
    s.n = n;
    for (int64_t i = 0; n == m && i < n; i++) {
        s.own += (double)x[i] * (double)x[i];
        s.off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    }
    free(x);
    free(y);
    return n != m ? (Squares){1, 1, 2} : s;
}

static double ratio(double off, double of)
{
    return off == 0 ? 0 : sqrt(off / (of > 0 ? of : 1));
}

/* |x - y| / |x|, and 1 where sizes differ. */
static double distance(DpcSource *a, const DpcWhole *w, DpcSource *b)
{
    Squares s = squares(a, w, b);
    return ratio(s.off, s.own);
}

enum { WEIGHT, AVERAGE, GRADIENT, FIRST, SECOND, NKIND };

static int kind_of(const char *name)
{
    return !strncmp(name, "ema.", 4)     ? AVERAGE
         : !strncmp(name, "grad.", 5)    ? GRADIENT
         : !strncmp(name, "adam.m.", 7)  ? FIRST
         : !strncmp(name, "adam.v.", 7)  ? SECOND : WEIGHT;
}

static int apart(const char *one, const char *other)
{
    DpcSource *a, *b;
    DpcStatus s = dpc_source_open(one, &a);
    s = s ? s : dpc_source_open(other, &b);
    if (s)
        return told(s);
    Squares *q = calloc(a->n + 1, sizeof *q);
    double kind[NKIND] = {0}, most = a->n == b->n ? 0 : 1, all = most;
    const char *who = "-", *whose = "-";
    for (uint32_t i = 0; i < a->n; i++) {
        q[i] = squares(a, &a->whole[i], b);
        kind[kind_of(a->whole[i].name)] += q[i].own;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        double of = kind[kind_of(a->whole[i].name)];
        double d = ratio(q[i].off, q[i].own), e = ratio(q[i].off, of);
        if (q[i].n > 1 && q[i].own >= 1e-4 * of && !(d <= most))
            most = d, who = a->whole[i].name;
        if (!(e <= all))
            all = e, whose = a->whole[i].name;
    }
    printf("%.3g %s %.3g %s\n", most, who, all, whose);
    free(q);
    dpc_source_close(a);
    dpc_source_close(b);
    return 0;
}

static int diff(const char *one, const char *other)
{
    DpcSource *a, *b;
    DpcStatus s = dpc_source_open(one, &a);
    s = s ? s : dpc_source_open(other, &b);
    if (s)
        return told(s);
    double most = a->n == b->n ? 0 : 1;
    const char *who = "-";
    for (uint32_t i = 0; i < a->n; i++) {
        double d = distance(a, &a->whole[i], b);
        if (d > most || isnan(d)) {
            most = d;
            who = a->whole[i].name;
        }
    }
    printf("%.3g %s\n", most, who);
    dpc_source_close(a);
    dpc_source_close(b);
    return 0;
}

static int hash(const char *ckpt)
{
    char hex[DPC_HASH];
    DpcStatus s = dpc_ckpt_hash(ckpt, hex);
    if (!s)
        puts(hex);
    return told(s);
}

/* ---- peak FILE COMMAND...: the largest resident size, KiB, into a file ---- */

static int peak(const char *to, char **command)
{
    int status;
    struct rusage use;
    pid_t pid = fork();
    if (pid == 0) {
        execv(command[0], command);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &use) != pid)
        return 5;
    FILE *f = fopen(to, "w");
    if (!f)
        return 5;
    fprintf(f, "%ld\n", use.ru_maxrss);
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- kill ---- */

static bool saving(const char *dir)
{
    DIR *d = opendir(dir);
    bool yes = false;
    for (struct dirent *e; d && !yes && (e = readdir(d));)
        yes = strstr(e->d_name, ".tmp-new") != NULL;
    if (d)
        closedir(d);
    return yes;
}

/* Exit 0: it was struck while it saved. */
static int strike(pid_t pid, const char *dir)
{
    while (pid > 0 && kill(pid, 0) == 0)
        if (saving(dir))
            return kill(pid, SIGKILL) ? 1 : 0;
    return 1;
}

int main(int n, char **arg)
{
    if (n == 6 && !strcmp(arg[1], "idx"))
        return idx(arg[2], atoi(arg[3]), atoi(arg[4]), atoi(arg[5]));
    if (n == 6 && !strcmp(arg[1], "npy"))
        return npy(arg[2], atoi(arg[3]), atoi(arg[4]), atoi(arg[5]));
    if (n == 3 && !strcmp(arg[1], "pictures"))
        return pictures(arg[2]);
    if (n == 5 && !strcmp(arg[1], "webp"))
        return webp(arg[2], atoi(arg[3]), atoi(arg[4]));
    if (n == 2 && !strcmp(arg[1], "json"))
        return json(stdin);
    if (n == 3 && !strcmp(arg[1], "hash"))
        return hash(arg[2]);
    if (n == 4 && !strcmp(arg[1], "diff"))
        return diff(arg[2], arg[3]);
    if (n == 4 && !strcmp(arg[1], "apart"))
        return apart(arg[2], arg[3]);
    if (n == 4 && !strcmp(arg[1], "strike"))
        return strike(atoi(arg[2]), arg[3]);
    if (n >= 4 && !strcmp(arg[1], "peak"))
        return peak(arg[2], arg + 3);
    if (n >= 5 && !strcmp(arg[1], "array"))
        return array(arg[2], !strcmp(arg[3], "f4"), n - 4, arg + 4);
    fputs("usage: tool idx|npy|array|pictures|webp|json|hash|diff|apart|strike|peak "
          "...\n", stderr);
    return 2;
}
