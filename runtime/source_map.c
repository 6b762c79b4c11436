/* source_map.c -- tensors under the names that a model has for them.
 *
 * What wraps a module puts a word before its names ("module.", "unet."), and
 * whoever publishes weights may call layers as they please.  A prefix under
 * which everything that is wanted is there is found; for the rest there is a
 * file of rules, a line each:
 *
 *     # name in the file              name in the model, or - to leave it out
 *     model.diffusion_model.*         *
 *     *.lora_down.weight              *.lora_A.weight
 *
 * The first rule that fits a name counts; names that none fits stay. */
#include "runtime/source_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Rule {
    char *from, *to;
    int line;
    bool fits;                            /* some tensor */
} Rule;

typedef struct Rules { Rule *at; uint32_t n; } Rules;

/* ---- the file ---- */

static bool stars_fit(const char *from, const char *to)
{
    const char *a = strchr(from, '*'), *b = strchr(to, '*');
    return (!a || !strchr(a + 1, '*')) && (!b || !strchr(b + 1, '*')) &&
           (a || !b);
}

static DpcStatus rule_add(DpcSource *s, Rules *r, const char *path, int line,
                          char *text)
{
    char *word[3] = { NULL };
    for (int n = 0; n < 3; n++)
        word[n] = strtok(n ? NULL : text, " \t\r\n");
    if (!word[0] || word[0][0] == '#')
        return DPC_OK;
    if (!word[1] || (word[2] && word[2][0] != '#'))
        return dpc_fail(DPC_USER, "%s:%d: error: two names are wanted, of the "
                        "tensor in the file and in the model", path, line);
    if (!stars_fit(word[0], word[1]))
        return dpc_fail(DPC_USER, "%s:%d: error: \"%s\" to \"%s\": one * on "
                        "the left at most, and none on the right without it",
                        path, line, word[0], word[1]);
    Rule *at = realloc(r->at, (r->n + 1) * sizeof *at);
    r->at = at ? at : r->at;
    if (!at)
        return no_memory();
    at[r->n++] = (Rule){ strdup(word[0]), strdup(word[1]), line, false };
    return at[r->n - 1].from && at[r->n - 1].to ? DPC_OK : no_memory();
}

static DpcStatus rules_read(DpcSource *s, const char *path, Rules *r)
{
    char *text = NULL, *line, *rest;
    size_t n = 0;
    int number = 0;
    DpcStatus e = source_text(s, path, path, &text, &n);
    rest = text;
    while (e == DPC_OK && (line = strsep(&rest, "\n")))
        e = rule_add(s, r, path, ++number, line);
    free(text);
    return e;
}

static void rules_free(Rules *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        free(r->at[i].from);
        free(r->at[i].to);
    }
    free(r->at);
}

/* ---- names ---- */

/* What * of the pattern stands for in name, *n letters; false: no fit. */
static bool match(const char *pattern, const char *name, const char **part,
                  int *n)
{
    const char *star = strchr(pattern, '*');
    size_t size = strlen(name), all = strlen(pattern);
    *part = name, *n = 0;
    if (!star)
        return !strcmp(pattern, name);
    size_t head = (size_t)(star - pattern), tail = all - head - 1;
    if (size < head + tail || strncmp(pattern, name, head) ||
        strcmp(star + 1, name + size - tail))
        return false;
    *part = name + head, *n = (int)(size - head - tail);
    return true;
}

/* The name of w by the first rule that fits; "-": it is left out. */
static DpcStatus name_change(DpcSource *s, Rules *r, DpcWhole *w)
{
    char name[DPC_PATH];
    const char *part;
    int n;
    for (uint32_t i = 0; i < r->n; i++) {
        Rule *rule = &r->at[i];
        if (!match(rule->from, w->name, &part, &n))
            continue;
        const char *star = strchr(rule->to, '*');
        int head = star ? (int)(star - rule->to) : (int)strlen(rule->to);
        rule->fits = true;
        DpcStatus e = dpc_path(name, "%.*s%.*s%s", head, rule->to,
                               star ? n : 0, part, star ? star + 1 : "");
        w->name = e == DPC_OK ? source_keep(s, name) : w->name;
        return e != DPC_OK ? e : w->name ? DPC_OK : no_memory();
    }
    return DPC_OK;
}

DpcStatus dpc_source_rename(DpcSource *s, const char *path)
{
    Rules r = { 0 };
    DpcStatus e = rules_read(s, path, &r);
    uint32_t kept = 0;
    for (uint32_t i = 0; e == DPC_OK && i < s->n; i++) {
        DpcWhole w = s->whole[i];
        e = name_change(s, &r, &w);
        if (strcmp(w.name, "-"))
            s->whole[kept++] = w;
    }
    s->n = e == DPC_OK ? kept : s->n;
    for (uint32_t i = 0; e == DPC_OK && i < r.n; i++)
        if (!r.at[i].fits)
            e = dpc_fail(DPC_USER, "%s:%d: error: no tensor of %s is left for "
                         "\"%s\"", path, r.at[i].line, s->path, r.at[i].from);
    rules_free(&r);
    return e == DPC_OK ? source_sort(s) : e;
}

/* ---- a prefix ---- */

static uint32_t found_below(const DpcSource *s, const char *prefix,
                            const char *const *want, uint32_t n)
{
    char name[DPC_PATH];
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += dpc_path(name, "%s%s", prefix, want[i]) == DPC_OK &&
                 dpc_source_find(s, name);
    return found;
}

int dpc_source_prefix(const DpcSource *s, const char *const *want, uint32_t n,
                      char prefix[2][DPC_PATH])
{
    char here[DPC_PATH];
    uint32_t most = 0;
    int alike = 0;
    prefix[0][0] = prefix[1][0] = 0;
    for (uint32_t k = 0; k < n && !alike; k++)      /* the first that is there */
        for (uint32_t i = 0; i < s->n; i++) {
            size_t size = strlen(s->whole[i].name), tail = strlen(want[k]);
            if (size <= tail || s->whole[i].name[size - tail - 1] != '.' ||
                strcmp(s->whole[i].name + size - tail, want[k]) ||
                dpc_path(here, "%.*s", (int)(size - tail), s->whole[i].name))
                continue;
            uint32_t found = found_below(s, here, want, n);
            alike = found > most ? 1 : alike + (found == most);
            if (found < most)
                continue;
            most = found;
            strcpy(prefix[alike > 1], here);
        }
    return alike;
}
