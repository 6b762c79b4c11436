/* fuzz_shipped.c -- plans of the shipped partitioners, with options by chance,
 * for the rest of a drawn plan to be laid over.
 *
 * Sizes that would be too small to part in a real model are parted here. */
#include "compiler/verify.h"

typedef struct Choice { const char *name, *word[4]; int n; } Choice;

/* A partitioner and what may be said to it: of each option one word. */
typedef struct Shipped {
    Feature feature;
    const char *name[4];
    int nname;
    Choice option[4];
    int noption;
} Shipped;

static const Shipped shipped[] = {
    { FEATURE_zero, { "zero", "zero1", "zero2", "zero3" }, 4,
      { { "least", { "1", "8" }, 2 } }, 1 },
    { FEATURE_hsdp, { "hsdp" }, 1,
      { { "least", { "1", "8" }, 2 }, { "nodes", { "2" }, 1 },
        { "reduce", { "late", "each" }, 2 } }, 3 },
    { FEATURE_megatron, { "megatron" }, 1,
      { { "least", { "1", "64" }, 2 }, { "zero", { "0", "1", "3" }, 3 },
        { "sp", { "true", "false" }, 2 }, { "tp", { "2" }, 1 } }, 4 },
    { FEATURE_ulysses, { "ulysses" }, 1, { { "sp", { "2", "2" }, 2 } }, 1 },
};

static const Shipped *which(FeatureSet want)
{
    for (int i = 0; i < COUNT(shipped); i++)
        if (want >> shipped[i].feature & 1)
            return &shipped[i];
    return NULL;
}

/* NULL: the partitioner refuses. */
static Plan *asked(const PlanOptions *o, const Graph *g, Arena *a)
{
    Graph *entry[] = { (Graph *)(uintptr_t)g };
    Plan *p = NULL;
    ErrTrap t;
    if (setjmp(t.jump) != 0)
        return NULL;
    err_push(&t);
    p = plan_partition(o, entry, 1, a);
    err_pop();
    return p;
}

Plan *shipped_draw(Draw *d, const Graph *g, Arena *a, const char *home,
                   FeatureSet want, FeatureSet *has)
{
    const Shipped *s = which(want);
    const char *set[COUNT(s->option)];
    if (!s)
        return NULL;
    PlanOptions o = {
        .home = home, .file = s->name[draw_below(d, (uint64_t)s->nname)],
        .ranks = 2 << draw_below(d, 2), .micro = 1 << draw_below(d, 2),
        .compute = F32, .define = set, .ndefine = s->noption };
    for (int i = 0; i < s->noption; i++) {
        const Choice *c = &s->option[i];
        set[i] = fmt(a, "%s=%s", c->name,
                     c->word[draw_below(d, (uint64_t)c->n)]);
    }
    Plan *p = asked(&o, g, a);
    if (p)
        *has |= (FeatureSet)1 << s->feature;
    return p;
}
