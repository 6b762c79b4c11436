/* loader.c -- one thread, two buffers a field.
 *
 * Step s lies in slot s % 2.  `done` counts the steps that are read, `free`
 * the steps whose slot may be written: the thread reads while done < free,
 * the caller takes step s once done > s and thereby frees slot (s - 1) % 2
 * for step s + 1.  Two counters under one lock; each waits for the other's,
 * never for both, so neither can be stuck. */
#include "runtime/loader.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 2, ALIGN = 64, ERROR_MAX = 1024 };

struct DpcLoader {
    DpcData *data;
    DpcOrder order;
    int64_t batch, nrow, *row;
    int nfield, *field;
    int64_t *size;                        /* bytes of one sample, a field */
    int64_t *at;                          /* of a field in a slot: bytes */
    int64_t slot, bytes;                  /* bytes of a slot, of everything */
    uint8_t *mem;                         /* [SLOTS, slot] */
    pthread_t thread;
    pthread_mutex_t lock;                 /* of all below */
    pthread_cond_t moved;
    int64_t next, done, free;             /* steps */
    bool started, stop;
    DpcStatus status;                     /* of step `done` */
    char error[ERROR_MAX];
};

static bool stopped(DpcLoader *l)
{
    pthread_mutex_lock(&l->lock);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    return stop;
}

static DpcStatus read_step(DpcLoader *l, int64_t step)
{
    uint8_t *slot = l->mem + step % SLOTS * l->slot;
    int64_t count = dpc_data_count(l->data), cycle = l->order.cycle;
    int64_t first = (cycle ? step % cycle : step) * l->batch;
    for (int64_t r = 0; r < l->nrow && !stopped(l); r++) {
        int64_t k = first + l->row[r];
        int64_t sample = dpc_data_index(l->order.seed, count, k);
        for (int i = 0; i < l->nfield; i++) {
            uint8_t *to = slot + l->at[i] + r * l->size[i];
            DpcStatus s = dpc_data_read(l->data, sample, l->field[i], to,
                                        l->size[i]);
            if (s)
                return s;
        }
    }
    return DPC_OK;
}

static void *loader_run(void *arg)
{
    DpcLoader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->status) {
        if (l->done >= l->free) {
            pthread_cond_wait(&l->moved, &l->lock);
            continue;
        }
        int64_t step = l->done;
        pthread_mutex_unlock(&l->lock);
        DpcStatus s = read_step(l, step);
        pthread_mutex_lock(&l->lock);
        l->status = s;
        if (s)
            snprintf(l->error, sizeof l->error, "%s", dpc_last_error());
        else
            l->done++;
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

DpcStatus dpc_loader_next(DpcLoader *l, const void **of_field,
                          double *waited_s)
{
    double begin = now();
    pthread_mutex_lock(&l->lock);
    int64_t step = l->next;
    l->free = step + 1;
    pthread_cond_broadcast(&l->moved);
    while (l->done <= step && !l->status)
        pthread_cond_wait(&l->moved, &l->lock);
    bool ready = l->done > step;
    if (ready) {
        l->next = step + 1;
        l->free = step + 2;                     /* the slot before is free */
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    *waited_s = now() - begin;
    if (!ready)
        return dpc_fail(l->status, "%s", l->error);
    for (int i = 0; i < l->nfield; i++)
        of_field[i] = l->mem + step % SLOTS * l->slot + l->at[i];
    return DPC_OK;
}

/* Where each field lies in a slot; false when sizes do not fit 63 bits. */
static bool loader_layout(DpcLoader *l)
{
    int64_t n, total;
    for (int i = 0; i < l->nfield; i++) {
        l->size[i] = dpc_field_bytes(dpc_data_field(l->data, l->field[i]));
        l->at[i] = l->slot;
        if (__builtin_mul_overflow(l->size[i], l->nrow, &n) ||
            __builtin_add_overflow(l->slot, n, &total) ||
            total > INT64_MAX / SLOTS - ALIGN)
            return false;
        l->slot = (total + ALIGN - 1) / ALIGN * ALIGN;
    }
    l->bytes = SLOTS * l->slot + (int64_t)sizeof *l +
               l->nrow * (int64_t)sizeof *l->row +
               l->nfield * (int64_t)(2 * sizeof *l->at + sizeof *l->field);
    return true;
}

static DpcStatus loader_alloc(DpcLoader *l, const int64_t *row,
                              const int *field)
{
    l->row = malloc((size_t)l->nrow * sizeof *row + 1);
    l->field = malloc((size_t)l->nfield * sizeof *field + 1);
    l->size = calloc((size_t)l->nfield + 1, sizeof *l->size);
    l->at = calloc((size_t)l->nfield + 1, sizeof *l->at);
    if (!l->row || !l->field || !l->size || !l->at)
        return dpc_fail(DPC_MEMORY, "loader: error: out of memory");
    for (int64_t r = 0; r < l->nrow; r++)
        l->row[r] = row[r];
    for (int i = 0; i < l->nfield; i++)
        l->field[i] = field[i];
    bool fits = loader_layout(l);
    if (fits)
        l->mem = aligned_alloc(ALIGN, (size_t)(SLOTS * l->slot) + ALIGN);
    if (!l->mem)
        return dpc_fail(DPC_MEMORY, "loader: error: no memory for two "
                        "buffers of %lld samples; use more ranks or a "
                        "smaller batch", (long long)l->nrow);
    return DPC_OK;
}

static DpcStatus loader_check(const DpcData *d, DpcOrder o, int64_t batch,
                              const int64_t *row, int64_t nrow,
                              const int *field, int nfield)
{
    bool ok = batch > 0 && nrow >= 0 && nfield >= 0 && o.start >= 0 &&
              o.cycle >= 0;
    for (int64_t r = 0; ok && r < nrow; r++)
        ok = row[r] >= 0 && row[r] < batch;
    for (int i = 0; ok && i < nfield; i++)
        ok = field[i] >= 0 && field[i] < dpc_data_nfield(d);
    return ok ? DPC_OK
         : dpc_fail(DPC_BUG, "loader: error: batch %lld, step %lld, %lld "
                    "rows, %d fields: something is out of range",
                    (long long)batch, (long long)o.start, (long long)nrow,
                    nfield);
}

DpcStatus dpc_loader_open(DpcData *data, DpcOrder order, int64_t batch,
                          const int64_t *row, int64_t nrow, const int *field,
                          int nfield, DpcLoader **out)
{
    *out = NULL;
    DpcStatus s = loader_check(data, order, batch, row, nrow, field, nfield);
    if (s)
        return s;
    DpcLoader *l = calloc(1, sizeof *l);
    if (!l)
        return dpc_fail(DPC_MEMORY, "loader: error: out of memory");
    l->data = data, l->order = order, l->batch = batch;
    l->nrow = nrow, l->nfield = nfield;
    l->next = l->done = order.start;
    l->free = order.start + 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    s = loader_alloc(l, row, field);
    if (!s) {
        int e = pthread_create(&l->thread, NULL, loader_run, l);
        l->started = !e;
        if (e)
            s = dpc_fail(DPC_ENV, "loader: error: cannot start a thread: %s",
                         strerror(e));
    }
    if (s)
        dpc_loader_close(l);
    else
        *out = l;
    return s;
}

int64_t dpc_loader_bytes(const DpcLoader *l) { return l->bytes; }

void dpc_loader_close(DpcLoader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->moved);
    free(l->row);
    free(l->field);
    free(l->size);
    free(l->at);
    free(l->mem);
    free(l);
}
