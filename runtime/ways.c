/* ways.c -- which program a step runs, and on which data. */
#include "runtime/ways.h"

#include <string.h>

/* ---- which ---- */

/* Mixes well enough that neighbouring steps have nothing in common (Steele et
 * al. 2014, SplitMix). */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int index_at(const DpcWays *w, int64_t step)
{
    uint64_t key = mixed(w->app->rt->seed ^ mixed((uint64_t)step));
    int64_t place = (int64_t)(key % (uint64_t)w->total);
    int i = 0;
    while (i + 1 < w->n && place >= w->way[i].batches)
        place -= w->way[i++].batches;
    return i;
}

DpcWay *dpc_ways_at(DpcWays *w, int64_t step)
{
    return &w->way[w->n > 1 ? index_at(w, step) : 0];
}

/* ---- opening ---- */

static DpcStatus feed_open(DpcWays *w, DpcWay *q, int64_t start)
{
    const DpcApp *a = w->app;
    DpcFeedHow how = {.data = q->data, .spec = q->spec, .seed = a->rt->seed,
        .start = a->opt.overfit ? 0 : start, .given = a->given,
        .ngiven = a->ngiven, .once = a->opt.overfit};
    return dpc_feed_open(a->rt, q->program, &how, &q->feed);
}

static void way_add(DpcWays *w, const DpcWay *q)
{
    DpcWay *to = &w->way[w->n++];
    int64_t batch = w->app->unit->program[q->program].batch;
    *to = *q;
    to->batches = q->data && batch > 0 ? dpc_data_count(q->data) / batch : 1;
    to->batches += to->batches == 0;
    w->total += to->batches;
    dpc_values_bind(w->app->rt, to->program, &to->values);
    to->loss = dpc_values_find(&to->values, "loss");
    to->finite = dpc_values_find(&to->values, "finite");
}

/* Is program p the entry, or one of its other sizes? */
static bool is_way(const char *p, const char *entry)
{
    size_t n = strcspn(entry, "-");
    return entry[n] ? !strncmp(p, entry, n + 1) : !strcmp(p, entry);
}

/* Programs that a data set fits, and that none before it did. */
static DpcStatus data_add(DpcWays *w, const char *entry, DpcData *data,
                          const char *spec)
{
    const DpcUnit *u = w->app->unit;
    DpcStatus s = dpc_fail(DPC_USER, "%s: error: the model has no entry '%s'",
                           u->model, entry);
    int before = w->n;
    for (uint32_t i = 0; i < u->nprogram && w->n < DPC_NWAY; i++) {
        DpcWay q = {.program = i, .data = data, .spec = spec};
        bool taken = !is_way(u->program[i].entry, entry);
        for (int k = 0; k < w->n; k++)
            taken |= w->way[k].program == i;
        DpcStatus one = taken ? DPC_USER : feed_open(w, &q, w->app->step);
        if (one && one != DPC_USER)
            return one;
        if (!one)
            way_add(w, &q);
        if (!taken)
            s = one;
    }
    return w->n > before ? DPC_OK : s;
}

/* Each data set has been read as often as its way was taken. */
static DpcStatus starts_set(DpcWays *w)
{
    int64_t done[DPC_NWAY] = {0};
    DpcStatus s = DPC_OK;
    for (int64_t k = 0; w->n > 1 && k < w->app->step; k++)
        done[index_at(w, k)]++;
    for (int i = 0; !s && w->n > 1 && w->app->step && i < w->n; i++) {
        dpc_feed_close(w->way[i].feed);
        w->way[i].feed = NULL;
        s = feed_open(w, &w->way[i], done[i]);
    }
    return s;
}

DpcStatus dpc_ways_open(DpcApp *a, const char *entry, DpcWays *w)
{
    *w = (DpcWays){.app = a};
    DpcStatus s = data_add(w, entry, a->data, a->opt.data);
    for (int i = 0; !s && i < a->opt.more_data.n; i++) {
        const char *spec = a->opt.more_data.at[i];
        if (w->nown == DPC_NWAY)
            return dpc_fail(DPC_USAGE, "%s: error: more than %d --more-data",
                            a->opt.program, DPC_NWAY);
        s = dpc_app_data(a, spec, &w->own[w->nown]);
        if (!s)
            s = data_add(w, entry, w->own[w->nown++], spec);
    }
    return s ? s : starts_set(w);
}

int64_t dpc_ways_bytes(const DpcWays *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->n; i++)
        n += dpc_feed_bytes(w->way[i].feed);
    return n;
}

void dpc_ways_close(DpcWays *w)
{
    for (int i = 0; i < w->n; i++)
        dpc_feed_close(w->way[i].feed);
    for (int i = 0; i < w->nown; i++)
        dpc_data_close(w->own[i]);
    w->n = w->nown = 0;
}
