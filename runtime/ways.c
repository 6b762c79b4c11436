/* ways.c -- which program a step runs, and on which data. */
#include "runtime/ways.h"

#include <stdio.h>
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

/* Of an epoch, at least 1; or of an evaluation, as many as it was told. */
static int64_t batches_of(const DpcWays *w, const DpcWay *q)
{
    int64_t batch = w->app->unit->program[q->program].batch, n = 1;
    if (w->what == DPC_TO_EVAL && w->app->opt.batches >= 0)
        return w->app->opt.batches;
    if (q->data && batch > 0)
        n = dpc_data_count(q->data) / batch;
    return n ? n : 1;
}

static DpcFeedHow feed_how(const DpcWays *w, const DpcWay *q, int64_t start)
{
    const DpcApp *a = w->app;
    DpcFeedHow how = {.data = q->data, .spec = q->spec, .given = a->given,
                      .ngiven = a->ngiven};
    if (w->what == DPC_TO_TRAIN) {
        how.once = a->opt.overfit;
        how.order.seed = a->rt->seed;
        how.order.start = how.once ? 0 : start;
    } else {
        how.order.cycle = batches_of(w, q);
    }
    return how;
}

static DpcStatus feed_open(const DpcWays *w, DpcWay *q, int64_t start)
{
    DpcFeedHow how = feed_how(w, q, start);
    return dpc_feed_open(w->app->rt, q->program, &how, &q->feed);
}

static void way_add(DpcWays *w, const DpcWay *q)
{
    DpcWay *to = &w->way[w->n++];
    *to = *q;
    to->batches = batches_of(w, q);
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

static bool is_taken(const DpcWays *w, uint32_t program)
{
    for (int i = 0; i < w->n; i++)
        if (w->way[i].program == program)
            return true;
    return false;
}

/* Why a data set fits no program, by the one that it fits best. */
static DpcStatus misfit(const DpcWays *w, const char *entry, DpcWay q)
{
    const DpcUnit *u = w->app->unit;
    char why[768];
    int most = -1, ways = 0;
    for (uint32_t i = 0; i < u->nprogram; i++) {
        DpcFeedHow how = feed_how(w, &q, 0);
        int n = is_way(u->program[i].entry, entry)
              ? dpc_feed_fits(w->app->rt, i, &how) : -1;
        ways += n >= 0;
        if (n > most)
            most = n, q.program = i;
    }
    if (!ways)
        return dpc_fail(DPC_USER, "%s: error: the model has no entry '%s'",
                        u->model, entry);
    const char *name = u->program[q.program].entry;
    DpcStatus s = feed_open(w, &q, 0);
    dpc_feed_close(q.feed);
    if (!s)
        return dpc_fail(DPC_USER, "%s: error: data: '%s' has its data "
                        "already; give one data set a size", q.spec, name);
    snprintf(why, sizeof why, "%s", dpc_last_error());
    return ways == 1 ? s
         : dpc_fail(s, "%s\nnote: of %d sizes '%s' fits best", why, ways, name);
}

/* Programs that a data set fits, and that none before it did. */
static DpcStatus data_add(DpcWays *w, const char *entry, DpcData *data,
                          const char *spec)
{
    const DpcUnit *u = w->app->unit;
    int before = w->n;
    for (uint32_t i = 0; i < u->nprogram && w->n < DPC_NWAY; i++) {
        DpcWay q = {.program = i, .data = data, .spec = spec};
        if (!is_way(u->program[i].entry, entry) || is_taken(w, i))
            continue;
        DpcStatus s = feed_open(w, &q, w->app->step);
        if (s && s != DPC_USER)
            return s;
        if (!s)
            way_add(w, &q);
    }
    return w->n > before ? DPC_OK
         : misfit(w, entry, (DpcWay){.data = data, .spec = spec});
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

DpcStatus dpc_ways_open(DpcApp *a, const char *entry, DpcWaysFor what,
                        DpcWays *w)
{
    *w = (DpcWays){.app = a, .what = what};
    if (what == DPC_TO_EVAL && a->val)
        return data_add(w, entry, a->val, a->opt.val_data);
    DpcStatus s = data_add(w, entry, a->data, a->opt.data);
    for (int i = 0; !s && i < a->opt.more_data.n; i++)
        s = data_add(w, entry, a->more[i], a->opt.more_data.at[i]);
    return s || what == DPC_TO_EVAL ? s : starts_set(w);
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
    w->n = 0;
}
