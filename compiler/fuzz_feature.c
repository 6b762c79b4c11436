/* fuzz_feature.c -- what drawn plans have, and how evenly it is met.
 *
 * A pair is about a handful of features that a plan may have together, drawn
 * before anything else: any two of them then meet about as often as any other
 * two, however seldom chance alone would bring them together.  Those of which
 * a plan has one have to share its word: it is drawn more often than a feature
 * that stands alone.  The rest of the plan is by chance. */
#include "compiler/verify.h"

static const struct {
    const char *name, *word;
    int ranks, turns;
} feature[NFEATURE] = {
#define X(name, word, ranks, turns) { #name, word, ranks, turns },
    FEATURES(X)
#undef X
};

/* What a plan file with the two words would be refused for. */
static const char *words_exclude(FeatureSet two)
{
    Plan p = { .mesh = { .naxis = 1, .axis = { { "a", 2, SPACE } } } };
    if (two & FEATURE_SET(compress))
        p.compress[0] = BF16;
    if (two & FEATURE_SET(reduce_each))
        p.reduce = REDUCE_EACH;
    p.exact = two & FEATURE_SET(exact);
    return compress_wrong(&p);
}

const char *features_exclude(int a, int b)
{
    static char why[64];
    const char *word = feature[a].word;
    if (a == b)
        return NULL;
    if (!word || !feature[b].word || strcmp(word, feature[b].word) != 0)
        return words_exclude((FeatureSet)1 << a | (FeatureSet)1 << b);
    snprintf(why, sizeof why, "a plan has one word for %s", word);
    return why;
}

/* Features from f on of one word. */
static int alike_count(int f)
{
    int n = 0;
    while (f + n < NFEATURE && feature[f + n].word
           && strcmp(feature[f + n].word, feature[f].word) == 0)
        n++;
    return n;
}

/* Of two words in three one feature, and some without a word. */
FeatureSet features_draw(Draw *d)
{
    enum { ALONE = 4 };
    FeatureSet want = 0;
    for (int f = 0, n; f < NFEATURE; f += n ? n : 1)
        if ((n = alike_count(f)) && draw_below(d, 3))
            want |= (FeatureSet)1 << (f + (int)draw_below(d, (uint64_t)n));
    for (int n = 0; n < ALONE;) {
        int f = (int)draw_below(d, NFEATURE);
        bool may = !feature[f].word && !(want >> f & 1);
        for (int k = 0; k < NFEATURE && may; k++)
            may = !(want >> k & 1 && features_exclude(f, k));
        want |= (FeatureSet)may << f;
        n += may;
    }
    return want;
}

int features_count(FeatureSet set)
{
    return __builtin_popcountll(set);
}

void features_axes(FeatureSet want, int *ranks, int *turns)
{
    *ranks = *turns = 0;
    for (int f = 0; f < NFEATURE; f++) {
        if (!(want >> f & 1))
            continue;
        *ranks = feature[f].ranks > *ranks ? feature[f].ranks : *ranks;
        *turns = feature[f].turns > *turns ? feature[f].turns : *turns;
    }
}

/* ---- how often ---- */

void cover_add(Cover *c, FeatureSet set)
{
    for (int i = 0; i < NFEATURE; i++)
        for (int k = 0; k <= i; k++)
            if (set >> i & 1 && set >> k & 1)
                c->both[i][k]++;
}

static int64_t rarest_two(const Cover *c)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < NFEATURE; i++)
        for (int k = 0; k < i; k++)
            if (!features_exclude(i, k) && c->both[i][k] < least)
                least = c->both[i][k];
    return least;
}

void cover_json(const Cover *c)
{
    printf(" \"rarest_two_features\": %lld,\n \"features\": {",
           (long long)rarest_two(c));
    for (int i = 0; i < NFEATURE; i++)
        printf("%s\"%s\": %lld", i ? ", " : "", feature[i].name,
               (long long)c->both[i][i]);
    printf("},\n \"together\": [");
    for (int i = 0; i < NFEATURE; i++)
        for (int k = 0; k <= i; k++)
            printf("%s%lld%s", k ? ", " : i ? ",\n  [" : "\n  [",
                   (long long)c->both[i][k], k == i ? "]" : "");
    printf("]");
}

/* Two that met less than once in a hundred plans, and two that cannot. */
static void rare_print(const Cover *c, int64_t pairs)
{
    for (int i = 0; i < NFEATURE; i++)
        for (int k = 0; k <= i; k++) {
            const char *why = features_exclude(i, k);
            int64_t want = i == k ? pairs / 10 : pairs / 100;
            if (why)
                printf("never: %s with %s: %s\n", feature[k].name,
                       feature[i].name, why);
            else if (c->both[i][k] < want)
                printf("rare: %s with %s: %lld, %lld wanted\n",
                       feature[k].name, feature[i].name,
                       (long long)c->both[i][k], (long long)want);
        }
}

/* The lower triangle: how often two features stood in one proven plan. */
void cover_print(const Cover *c, int64_t pairs)
{
    for (int i = 0; i < NFEATURE; i++) {
        printf("%-18s", feature[i].name);
        for (int k = 0; k <= i; k++)
            if (features_exclude(i, k))
                printf("    -");
            else
                printf(" %4lld", (long long)c->both[i][k]);
        printf("\n");
    }
    rare_print(c, pairs);
}
