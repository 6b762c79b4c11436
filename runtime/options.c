/* options.c -- the command line of an emitted binary.
 *
 * One table makes the struct, the parser and --help; the model's scalars are
 * options too, under their own names.  Whatever would change the graph is no
 * option here: it was fixed when the binary was compiled. */
#include "runtime/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind { TEXT, COUNT, FLAG, LIST } Kind;
typedef struct Row {
    const char *name, *argument, *doc;
    size_t at;                            /* in DpcOptions */
    Kind kind;
} Row;

static const Row rows[] = {
#define OPT(field, name, argument, kind, doc) \
    {name, argument, doc, offsetof(DpcOptions, field), kind},
#include "runtime/options.def"
#undef OPT
};
enum { NROW = sizeof rows / sizeof *rows, WORD = 64 };

int dpc_word_distance(const char *a, const char *b)
{
    int row[WORD + 1], n = (int)strlen(b);
    n = n > WORD ? WORD : n;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 0; a[i]; i++) {
        int left = row[0]++;
        for (int j = 1; j <= n; j++) {
            int best = left + (a[i] != b[j - 1]);
            left = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

bool dpc_option_own(const DpcLeaf *l)
{
    return !strcmp(l->name, "step") || !strcmp(l->name, "seed");
}

/* "warm_up" answers to --warm-up too. */
static bool same_name(const char *leaf, const char *option, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (leaf[i] != option[i] && (leaf[i] != '_' || option[i] != '-'))
            return false;
    return !leaf[n];
}

bool dpc_option_taken(const char *scalar)
{
    bool ours = !strcmp(scalar, "steps") || !strcmp(scalar, "seed");
    for (int i = 0; i < NROW && !ours; i++)
        if (same_name(scalar, rows[i].name, strlen(rows[i].name)) &&
            strlen(scalar) == strlen(rows[i].name))
            return true;
    return false;
}

static const Row *row_find(const char *name, size_t n)
{
    for (int i = 0; i < NROW; i++)
        if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n))
            return &rows[i];
    return NULL;
}

static int32_t scalar_find(const DpcUnit *u, const char *name, size_t n)
{
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (u->leaf[i].kind == DPC_SCALAR && !dpc_option_own(&u->leaf[i]) &&
            strlen(u->leaf[i].name) == n &&
            same_name(u->leaf[i].name, name, n))
            return (int32_t)i;
    return -1;
}

typedef struct Nearest { const char *name; int distance; } Nearest;

static void nearer(Nearest *best, const char *name, const char *to)
{
    int d = dpc_word_distance(name, to);
    if (d < best->distance)
        *best = (Nearest){name, d};
}

static DpcStatus unknown(const DpcUnit *u, const DpcOptions *o,
                         const char *name)
{
    Nearest best = {NULL, 1 + (int)strlen(name) / 2};
    for (int i = 0; i < NROW; i++)
        nearer(&best, rows[i].name, name);
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (u->leaf[i].kind == DPC_SCALAR && !dpc_option_own(&u->leaf[i]))
            nearer(&best, u->leaf[i].name, name);
    return dpc_fail(DPC_USAGE, "%s: error: unknown option '--%s'; %s%s%s",
        o->program, name, best.name ? "did you mean '--" : "see --help",
        best.name ? best.name : "", best.name ? "'?" : "");
}

static DpcStatus unknown_command(const DpcUnit *u, const DpcOptions *o)
{
    Nearest best = {NULL, 4};
    nearer(&best, "info", o->command);
    for (uint32_t i = 0; i < u->nrun; i++)
        nearer(&best, u->run[i].command, o->command);
    return dpc_fail(DPC_USAGE, "%s: error: unknown command '%s'; %s%s%s",
        o->program, o->command, best.name ? "did you mean '" : "see --help",
        best.name ? best.name : "", best.name ? "'?" : "");
}

/* ---- values ---- */

static DpcStatus wrong(const DpcOptions *o, const char *name, const char *text,
                       const char *want)
{
    return dpc_fail(DPC_USAGE, "%s: error: '--%s %s': not %s", o->program,
                    name, text, want);
}

static DpcStatus row_set(DpcOptions *o, const Row *r, const char *text)
{
    void *at = (char *)o + r->at;
    char *end;
    switch (r->kind) {
    case TEXT:
        *(const char **)at = text;
        return *text ? DPC_OK
             : dpc_fail(DPC_USAGE, "%s: error: '--%s': it is empty; wanted %s",
                        o->program, r->name, r->argument);
    case FLAG:
        *(bool *)at = true;
        return DPC_OK;
    case COUNT:
        errno = 0;
        *(int64_t *)at = strtoll(text, &end, 10);
        return errno || end == text || *end || *(int64_t *)at < 0
                   ? wrong(o, r->name, text, "a whole number")
                   : DPC_OK;
    default: {
        DpcTextList *l = at;
        if (l->n == DPC_NLIST)
            return wrong(o, r->name, text, "one of the first 1024");
        l->at[l->n++] = text;
        return DPC_OK;
    }
    }
}

static DpcStatus scalar_set(const DpcUnit *u, DpcOptions *o, int32_t leaf,
                            const char *text)
{
    char *end;
    const DpcLeaf *l = &u->leaf[leaf];
    double v = strtod(text, &end);
    if (end == text || *end || v != v)
        return wrong(o, l->name, text, "a number");
    if (l->dtype == DPC_I32 && v != (double)(int32_t)v)
        return wrong(o, l->name, text, "a whole number");
    o->scalar[leaf] = v;
    o->given[leaf] = true;
    return DPC_OK;
}

/* One option and its argument; *i moves past what it took. */
static DpcStatus option_take(const DpcUnit *u, DpcOptions *o, int argc,
                             char **argv, int *i)
{
    const char *name = argv[*i] + 2, *value = strchr(name, '=');
    size_t n = value ? (size_t)(value++ - name) : strlen(name);
    const Row *r = row_find(name, n);
    int32_t leaf = r ? -1 : scalar_find(u, name, n);
    if (!r && leaf < 0)
        return unknown(u, o, name);
    if (r && r->kind == FLAG && value)
        return wrong(o, r->name, value, "wanted: it takes no argument");
    if ((!r || r->kind != FLAG) && !value) {
        if (*i + 1 >= argc)
            return dpc_fail(DPC_USAGE, "%s: error: '--%s' wants %s",
                o->program, name, r ? r->argument : "a number");
        value = argv[++*i];
    }
    return r ? row_set(o, r, value) : scalar_set(u, o, leaf, value);
}

/* `--steps` is the scalar of that name where the model has one. */
static void steps_settle(const DpcUnit *u, DpcOptions *o)
{
    for (uint32_t i = 0; i < u->nleaf; i++) {
        if (u->leaf[i].kind != DPC_SCALAR || strcmp(u->leaf[i].name, "steps"))
            continue;
        o->given[i] = o->steps >= 0;
        if (o->steps >= 0)
            o->scalar[i] = (double)o->steps;
        else
            o->steps = (int64_t)o->scalar[i];
    }
}

static DpcStatus command_check(const DpcUnit *u, const DpcOptions *o)
{
    if (o->help || o->version)
        return DPC_OK;
    if (!o->command)
        return dpc_fail(DPC_USAGE, "%s: error: no command; see --help",
                        o->program);
    if (!strcmp(o->command, "info"))
        return DPC_OK;
    for (uint32_t i = 0; i < u->nrun; i++)
        if (!strcmp(u->run[i].command, o->command))
            return DPC_OK;
    return unknown_command(u, o);
}

static void defaults(const DpcUnit *u, DpcOptions *o)
{
    for (int i = 0; i < NROW; i++)
        if (rows[i].kind == COUNT)
            *(int64_t *)((char *)o + rows[i].at) = -1;
    for (uint32_t i = 0; i < u->nleaf; i++)
        o->scalar[i] = u->leaf[i].value;
}

DpcStatus dpc_options_parse(const DpcUnit *u, int argc, char **argv,
                            DpcOptions *o)
{
    *o = (DpcOptions){.program = argc ? argv[0] : u->model};
    o->scalar = calloc(u->nleaf + 1, sizeof *o->scalar);
    o->given = calloc(u->nleaf + 1, sizeof *o->given);
    if (!o->scalar || !o->given)
        return dpc_fail(DPC_MEMORY, "%s: error: no memory", o->program);
    defaults(u, o);
    for (int i = 1; i < argc; i++) {
        DpcStatus s = DPC_OK;
        if (!strcmp(argv[i], "-h"))
            o->help = true;
        else if (!strncmp(argv[i], "--", 2))
            s = option_take(u, o, argc, argv, &i);
        else if (!o->command)
            o->command = argv[i];
        else
            s = dpc_fail(DPC_USAGE, "%s: error: '%s': one command at a time",
                         o->program, argv[i]);
        if (s)
            return s;
    }
    steps_settle(u, o);
    return command_check(u, o);
}

void dpc_options_close(DpcOptions *o)
{
    free(o->scalar);
    free(o->given);
}

/* ---- help ---- */

static void commands_print(const DpcUnit *u, FILE *f)
{
    for (uint32_t i = 0; i < u->nrun; i++) {
        uint32_t j = 0;
        while (strcmp(u->run[j].command, u->run[i].command))
            j++;
        if (j < i)
            continue;
        fprintf(f, "  %-12s runs", u->run[i].command);
        for (; j < u->nrun; j++)
            if (!strcmp(u->run[j].command, u->run[i].command))
                fprintf(f, " %s", u->run[j].entry);
        fputc('\n', f);
    }
    fputs("  info         shows what this binary is and needs\n", f);
}

/* Of an option that is a scalar of the model, too: which commands repeat an
 * entry so often, and what it is by default. */
static void scalar_print(const DpcUnit *u, const char *name, FILE *f)
{
    int32_t leaf = scalar_find(u, name, strlen(name));
    const char *said = NULL;
    if (leaf < 0)
        return;
    for (uint32_t i = 0; i < u->nrun; i++) {
        const DpcRun *r = &u->run[i];
        if (!r->count || strcmp(r->count, name) ||
            (said && !strcmp(said, r->command)))
            continue;
        fprintf(f, "%s%s", said ? ", " : "; of ", r->command);
        said = r->command;
    }
    const DpcLeaf *l = &u->leaf[leaf];
    fprintf(f, "%s%s (default: %g)", said ? ": " : "",
            said && l->doc ? l->doc : "", l->value);
}

void dpc_options_help(const DpcUnit *u, const DpcOptions *o, FILE *f)
{
    char left[WORD];
    fprintf(f, "usage: %s COMMAND [options]\n\n%s, compiled by dpc %s\n\n"
            "commands\n", o->program, u->model, u->version);
    commands_print(u, f);
    fputs("\noptions\n", f);
    for (int i = 0; i < NROW; i++) {
        snprintf(left, sizeof left, "--%s %s", rows[i].name,
                 rows[i].argument ? rows[i].argument : "");
        fprintf(f, "  %-32s %s", left, rows[i].doc);
        scalar_print(u, rows[i].name, f);
        fputc('\n', f);
    }
    fputs("\nscalars of the model\n", f);
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        if (l->kind != DPC_SCALAR || dpc_option_own(l) ||
            row_find(l->name, strlen(l->name)))
            continue;
        snprintf(left, sizeof left, "--%s X", l->name);
        fprintf(f, "  %-32s %s (default: %g)\n", left, l->doc ? l->doc : "",
                l->value);
    }
}
