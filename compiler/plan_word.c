/* plan_word.c -- the word "recompute" of a plan, as text and back. */
#include "compiler/lua.h"
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
