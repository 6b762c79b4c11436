/* cmd_eval_cases.c -- dpc eval --cases: parts of models against numbers of
 * the originals. */
#include "compiler/case.h"
#include "compiler/options.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { DIFFER = 6 };                      /* exit code */

typedef struct Tally {
    const Options *o;
    int passed, failed, skipped, shown;
} Tally;

/* ---- one number ---- */

/* In doubles: 2e-6, or half a unit of the last digit that is given. */
static double tolerance(const Want *w)
{
    return fmax(2e-6 * fabs(w->value), w->half);
}

static bool differs(const Want *w, double got, double within)
{
    return !(fabs(got - w->value) <= within);
}

static void json_line(Tally *t, const Case *c, const char *on, const Want *w,
                      double got, double within)
{
    printf("%s{\"case\": ", t->shown++ ? ",\n " : "");
    json_quote(stdout, c->name);
    printf(", \"on\": \"%s\", \"value\": ", on);
    json_quote(stdout, w->text);
    if (isfinite(got))
        printf(", \"got\": %.17g", got);
    else
        printf(", \"got\": null");
    printf(", \"want\": %.17g, \"tolerance\": %.3g, \"differs\": %s}",
           w->value, within, differs(w, got, within) ? "true" : "false");
}

/* Numbers of a case, by want; true when none differs. */
static bool compare(Tally *t, const Case *c, const char *on,
                    const double *got)
{
    bool same = true;
    for (uint32_t i = 0; i < c->nwant; i++) {
        const Want *w = &c->want[i];
        double within = tolerance(w);
        bool bad = differs(w, got[i], within);
        same &= !bad;
        if (t->o->json)
            json_line(t, c, on, w, got[i], within);
        else if (bad || t->o->verbose)
            printf("%s %s on %s: %s is %.10g, %.10g is wanted, within %.2g\n",
                   bad ? "FAIL" : "ok", c->name, on, w->text, got[i],
                   w->value, within);
    }
    return same;
}

/* ---- one case ---- */

typedef struct Attempt { Case *c; const CaseFile *file; Tally *t; bool same; }
    Attempt;

static void attempt(Attempt *at)
{
    const Options *o = at->t->o;
    Arena *a = arena_new();
    Graph *init;
    ModelOptions m = { .home = o->home, .define = o->define.at,
                       .ndefine = o->define.n, .memory = o->lua_memory << 20,
                       .instructions = o->lua_limit };
    Graph *g = case_trace(at->c, at->file, &m, &init, a);
    at->same = compare(at->t, at->c, "eval",
                       case_evaluate(at->c, g, init, a));
    arena_free(a);
}

/* An error is printed as it is, then where the case stands: at the word that
 * the error puts in quotes, an option say, if the case has it. */
static void told(const Attempt *at, const char *text)
{
    const Case *c = at->c;
    Arena *a = at->t->o->arena;
    const char *loc = c->loc;
    for (const char *p = text, *q; (p = strchr(p, '"')) &&
         (q = strchr(p + 1, '"')) && strcmp(loc, c->loc) == 0; p = q + 1)
        loc = case_place(a, at->file->path, c->name,
                         fmt(a, "%.*s", (int)(q - p - 1), p + 1));
    size_t n = strlen(text);
    fflush(stdout);
    fprintf(stderr, "%s%s%s: note: in case \"%s\"\n", text,
            n && text[n - 1] == '\n' ? "" : "\n", loc, c->name);
    if (!at->t->o->json)
        printf("FAIL %s: it cannot be run\n", c->name);
}

/* Errors of the model or of the case are the case's failure. */
static void try(Attempt *at)
{
    ErrTrap trap;
    if (setjmp(trap.jump) == 0) {
        err_push(&trap);
        attempt(at);
        err_pop();
        return;
    }
    at->same = false;
    told(at, trap.text);
}

/* The model's file: as it stands, or below home. */
static const char *model_find(const Options *o, const char *name)
{
    const char *home = fmt(o->arena, "%s/%s", o->home ? o->home : ".", name);
    return access(name, R_OK) == 0 ? name : access(home, R_OK) == 0 ? home
         : NULL;
}

static void skip(Tally *t, const Case *c, const char *why)
{
    t->skipped++;
    if (!t->o->json && !t->o->quiet)
        printf("skip %s: %s\n", c->name, why);
}

static void one(Tally *t, const CaseFile *file, Case *c)
{
    const Options *o = t->o;
    const char *model = o->nfile ? o->file[0] : c->model;
    if (c->skip) {
        skip(t, c, c->skip);
        return;
    }
    if (!model)
        err(c->loc, "case \"%s\" names no \"model\", nor does the command "
            "line", c->name);
    c->model = o->nfile ? model : model_find(o, model);
    if (!c->model) {
        skip(t, c, fmt(o->arena, "there is no \"%s\"", model));
        return;
    }
    Attempt at = { c, file, t, false };
    try(&at);
    at.same ? t->passed++ : t->failed++;
    fflush(stdout);
}

/* ---- the command ---- */

static bool chosen(const Options *o, const char *name)
{
    for (int i = 0; i < o->only.n; i++)
        if (strcmp(o->only.at[i], name) == 0)
            return true;
    return o->only.n == 0;
}

static void names_check(const Options *o, const CaseFile *file)
{
    const char **have = alloc(o->arena, (file->n + 1) * sizeof *have);
    for (uint32_t k = 0; k < file->n; k++)
        have[k] = file->at[k].name;
    for (int i = 0; i < o->only.n; i++) {
        uint32_t k = 0;
        while (k < file->n && strcmp(have[k], o->only.at[i]) != 0)
            k++;
        const char *near = near_name(o->only.at[i], have, (int)file->n);
        if (k == file->n)
            usage("--case: \"%s\" has no case \"%s\"%s%s%s", file->path,
                  o->only.at[i], near ? "; did you mean \"" : "",
                  near ? near : "", near ? "\"?" : "");
    }
}

int cmd_eval_cases(const Options *o)
{
    ModelOptions m = { .memory = o->lua_memory << 20,
                       .instructions = o->lua_limit };
    CaseFile *file = case_read(o->cases, &m, o->arena);
    Tally t = { .o = o };
    names_check(o, file);
    if (o->json)
        printf("{\"values\": [");
    for (uint32_t i = 0; i < file->n; i++)
        if (chosen(o, file->at[i].name))
            one(&t, file, &file->at[i]);
    if (o->json)
        printf("],\n \"passed\": %d, \"failed\": %d, \"skipped\": %d}\n",
               t.passed, t.failed, t.skipped);
    else
        printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed,
               t.skipped);
    return t.failed ? DIFFER : 0;
}
