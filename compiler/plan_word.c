/* plan_word.c -- the words "recompute" and "offload" of a plan, as text and
 * back. */
#include "compiler/lua.h"
#include "passes/offload.h"
#include <stdlib.h>

static const char *const words[] = {      /* by Recompute */
    "selective", "none", "full", "auto",
};

/* "512MiB", "2GiB", "1000000"; -1: no such number. */
static int64_t bytes_read(const char *s)
{
    static const struct { const char *name; double size; } unit[] = {
        { "", 1 }, { "KiB", 1 << 10 }, { "MiB", 1 << 20 }, { "GiB", 1 << 30 },
    };
    char *end;
    double n = strtod(s, &end);
    for (int i = 0; i < COUNT(unit) && end != s; i++)
        if (strcmp(end, unit[i].name) == 0 && n > 0 && n * unit[i].size < 1e18)
            return (int64_t)(n * unit[i].size);
    return -1;
}

const char *recompute_read(Arena *a, const char *word, Plan *p)
{
    for (int i = 0; i < COUNT(words); i++)
        if (strcmp(word, words[i]) == 0) {
            p->recompute = (Recompute)i, p->bytes = 0;
            return NULL;
        }
    if (strncmp(word, "auto:", 5) != 0)
        return fmt(a, "recompute: \"%s\" is none of none, selective, full, "
                   "auto, auto:BYTES", word);
    p->recompute = RECOMPUTE_AUTO, p->bytes = bytes_read(word + 5);
    return p->bytes > 0 ? NULL
         : fmt(a, "recompute: \"%s\" says no number of bytes; auto:512MiB, "
               "auto:2GiB or auto:1000000 would", word);
}

const char *recompute_word(Arena *a, const Plan *p)
{
    return p->bytes ? fmt(a, "auto:%lld", (long long)p->bytes)
         : words[p->recompute];
}

/* ---- offload ---- */

/* Does the word name a param or state?  *have: all of them. */
static bool names_any(Graph *const *entry, int nentry, const char *word,
                      Arena *a, const char ***have, int *n)
{
    uint32_t count = 0, cap = 0;
    for (int e = 0; e < nentry; e++)
        for (Ref r = 0; r < entry[e]->n; r++) {
            const Node *x = &entry[e]->node[r];
            if (x->op != OP_param && x->op != OP_state)
                continue;
            if (name_fits(word, x->name))
                return true;
            GROW(a, *have, count, cap);
            (*have)[count++] = x->name;
        }
    *n = (int)count;
    return false;
}

const char *offload_read(Arena *a, const char *list, Graph *const *entry,
                         int nentry, Plan *p)
{
    static const char *const known[] = {
        "none", "states", "params", "activations",
    };
    bool alone = strcmp(list, "auto") == 0;
    if (!alone && offload_says(list, "auto"))
        return fmt(a, "offload: \"%s\": \"auto\" chooses by itself, and goes "
                   "with no other word", list);
    for (const char *s = list, *end; *s && !alone; s = *end ? end + 1 : end) {
        end = s + strcspn(s, ",");
        const char *word = fmt(a, "%.*s", (int)(end - s), s);
        const char **have = NULL;
        int k = 0, n = 0;
        while (k < COUNT(known) && strcmp(word, known[k]) != 0)
            k++;
        if (k == COUNT(known)
            && !names_any(entry, nentry, word, a, &have, &n))
            return fmt(a, "offload: \"%s\" is none of none, auto, states, "
                       "params, activations, and no param or state has that "
                       "name%s", word, near_hint(word, have, n));
    }
    p->offload = strcmp(list, "none") == 0 || !*list ? NULL : list;
    return NULL;
}
