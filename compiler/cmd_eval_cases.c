/* cmd_eval_cases.c -- dpc eval --cases: parts of models against numbers of
 * the originals. */
#include "compiler/case_host.h"
#include "compiler/dump.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { DIFFER = 6 };                      /* exit code */
enum { ROUNDINGS = 8 };                   /* see beyond_f32 */
static const double WHOLE_F32 = 1e-5;     /* relative L2 of a whole tensor */
static const double WHOLE_BF16 = 0.03;

typedef struct Tally {
    const Options *o;
    int passed, failed, skipped, shown;
} Tally;

/* ---- one number ---- */

typedef struct Shown {                    /* a number beside its limit */
    const char *text;
    double got, want, within;
} Shown;

static bool differs(const Shown *s)
{
    return !(fabs(s->got - s->want) <= s->within);
}

static void json_line(Tally *t, const Case *c, const char *on, const Shown *s)
{
    printf("%s{\"case\": ", t->shown++ ? ",\n " : "");
    json_quote(stdout, c->name);
    printf(", \"on\": \"%s\", \"value\": ", on);
    json_quote(stdout, s->text);
    if (isfinite(s->got))
        printf(", \"got\": %.17g", s->got);
    else
        printf(", \"got\": null");
    printf(", \"want\": %.17g, \"tolerance\": %.3g, \"differs\": %s}",
           s->want, s->within, differs(s) ? "true" : "false");
}

/* True when it does not differ. */
static bool show(Tally *t, const Case *c, const char *on, const Shown *s)
{
    bool bad = differs(s);
    if (t->o->json)
        json_line(t, c, on, s);
    else if (bad || t->o->verbose)
        printf("%s %s on %s: %s is %.10g, %.10g is wanted, within %.2g\n",
               bad ? "FAIL" : "ok", c->name, on, s->text, s->got, s->want,
               s->within);
    return !bad;
}

static void skip(Tally *t, const Case *c, const char *why)
{
    t->skipped++;
    if (!t->o->json && !t->o->quiet)
        printf("skip %s: %s\n", c->name, why);
}

/* ---- in doubles ---- */

static double mean_abs(const Whole *x)
{
    double sum = 0;
    for (int64_t i = 0; i < x->n; i++)
        sum += fabs(x->at[i]);
    return x->n ? sum / (double)x->n : 0;
}

/* 2e-6, or half a unit of the last digit that is given; of a tensor's numbers
 * 2e-6 of its mean magnitude, if that is more. */
static double real_within(const Want *w, const Whole *got)
{
    bool of_tensor = w->kind == WANT_ELEMENT || w->kind == WANT_SUM;
    double size = fmax(fabs(w->value), of_tensor ? mean_abs(got) : 0);
    return fmax(2e-6 * size, w->half);
}

static bool compare_eval(Tally *t, const Case *c, const Whole *got)
{
    bool same = true;
    for (uint32_t i = 0; i < c->nwant; i++) {
        const Want *w = &c->want[i];
        if (w->kind == WANT_DUMP)
            continue;
        Shown s = { w->text, want_measure(w, &got[i]), w->value,
                    real_within(w, &got[i]) };
        same &= show(t, c, "eval", &s);
    }
    return same;
}

/* ---- on the host ---- */

/* How far f32 may be from the expected value; `exact` is what it is read off
 * in doubles.  Values that the original's own f32 misses by more, by that. */
static double f32_within(const Want *w, const Whole *exact)
{
    double mean = mean_abs(exact), own = fabs(w->f32 - w->value);
    double within = w->kind == WANT_LOSS ? 1e-5 * fabs(w->value)
                  : w->kind == WANT_NORM ? 1e-4 * fabs(w->value)
                  : w->kind == WANT_SUM ? 1e-5 * (double)exact->n * mean
                  : 1e-5 * mean;
    return fmax(within, w->half) + own;
}

/* |got - exact| / |exact|, L2. */
static double distance(const Whole *got, const Whole *exact)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < got->n; i++) {
        double d = got->at[i] - exact->at[i];
        off += d * d, all += exact->at[i] * exact->at[i];
    }
    return sqrt(off / all);
}

/* Whole tensors are compared once, where the first of their wants stands. */
static bool is_whole(const Case *c, uint32_t i, const Whole *got,
                     const Whole *exact)
{
    const Want *w = &c->want[i];
    bool first = !i || w[-1].step != w->step || strcmp(w[-1].of, w->of) != 0;
    return first && w->kind != WANT_DUMP && got[i].n > 1
        && got[i].n == exact[i].n;
}

/* Whole tensors against the evaluator's. */
static bool compare_whole(Tally *t, const Case *c, const char *on,
                          double within, const Whole *got, const Whole *exact)
{
    bool same = true;
    for (uint32_t i = 0; i < c->nwant; i++) {
        if (!is_whole(c, i, got, exact))
            continue;
        Shown s = { fmt(t->o->arena, "%s: relative L2", c->want[i].of),
                    distance(&got[i], &exact[i]), 0, within };
        same &= show(t, c, on, &s);
    }
    return same;
}

static double farthest(const Case *c, const Whole *got, const Whole *exact)
{
    double most = 0;
    for (uint32_t i = 0; i < c->nwant; i++)
        if (is_whole(c, i, got, exact))
            most = fmax(most, distance(&got[i], &exact[i]));
    return most;
}

static bool compare_f32(Tally *t, const Case *c, const Whole *got,
                        const Whole *exact)
{
    bool same = compare_whole(t, c, "host", WHOLE_F32, got, exact);
    for (uint32_t i = 0; i < c->nwant; i++) {
        const Want *w = &c->want[i];
        Shown s = { w->text, want_measure(w, &got[i]), w->value,
                    f32_within(w, &exact[i]) };
        same &= w->kind == WANT_COUNT || w->kind == WANT_DUMP ||
                show(t, c, "host", &s);
    }
    return same;
}

/* ---- one case ---- */

/* The node that each want is read off: a copy, since compiling changes g. */
static Node *nodes_wanted(const Case *c, const Graph *g, Arena *a)
{
    Node *node = alloc(a, (c->nwant + 1) * sizeof *node);
    for (uint32_t i = 0; i < c->nwant; i++)
        for (uint32_t k = 0; k < g->nout; k++)
            if (strcmp(g->out[k].name, c->want[i].of) == 0)
                node[i] = g->node[g->out[k].ref];
    return node;
}

/* What --dump names, of the evaluator or of the binary. */
static void values_dump(const Options *o, const Case *c, const Node *node,
                        const Whole *got)
{
    Dump d = dump_open(o);
    for (uint32_t i = 0; i < c->nwant; i++)
        if (c->want[i].kind == WANT_DUMP)
            dump_write(&d, dump_name(c->want[i].of), &node[i], got[i].at);
    dump_close(&d);
}

typedef struct Attempt {
    Case *c;
    const CaseFile *file;
    Tally *t;
    bool same, beyond;                    /* beyond: what f32 can hold */
    Arena *arena;                         /* of the case alone */
    ErrTrap trap;                         /* of the case: text of the error */
} Attempt;

/* Is it f32 that is too far off?  `best` has every sum exact and what each op
 * makes rounded to f32: where a whole tensor is too far off even so, no binary
 * in f32 can pass.  It is held to a few times that distance, and the case is
 * counted as skipped. */
static bool beyond_f32(const Attempt *at, const Whole *got, const Whole *best,
                       const Whole *exact)
{
    const Case *c = at->c;
    double least = farthest(c, best, exact);
    for (uint32_t i = 0; i < c->nwant; i++)
        if (is_whole(c, i, got, exact) && !(distance(&got[i], &exact[i]) <=
            fmax(WHOLE_F32, ROUNDINGS * distance(&best[i], &exact[i]))))
            return false;
    if (!(least > WHOLE_F32))
        return false;
    skip(at->t, c, fmt(at->t->o->arena, "on host: f32 cannot hold it: with "
         "each result rounded once it is %.2g off, the binary %.2g; %.2g is "
         "wanted", least, farthest(c, got, exact), WHOLE_F32));
    return true;
}

/* The case in f32, by its binary. */
static void attempt_f32(Attempt *at, const Whole *got, const Whole *exact,
                        const Graph *g, const Graph *init, Arena *a)
{
    if (farthest(at->c, got, exact) > WHOLE_F32)
        at->beyond = at->same &&
            beyond_f32(at, got, case_evaluate(at->c, g, init, true, a), exact);
    if (!at->beyond)
        at->same &= compare_f32(at->t, at->c, got, exact);
}

/* The case in bf16.  What not even f32 can hold is not asked of it. */
static void attempt_bf16(Attempt *at, const Whole *got, const Whole *exact,
                         const Graph *g, const Graph *init, Arena *a)
{
    const Case *c = at->c;
    double off = farthest(c, got, exact), least = 0;
    if (at->same && off > WHOLE_BF16 && off < 1)
        least = farthest(c, case_evaluate(at->c, g, init, true, a), exact);
    at->beyond = least > WHOLE_F32;
    if (at->beyond)
        skip(at->t, c, fmt(at->t->o->arena, "on host in bf16: not even f32 "
             "can hold it: with each result rounded once it is %.2g off, the "
             "binary %.2g; %.2g is wanted", least, off, WHOLE_BF16));
    else
        at->same &= compare_whole(at->t, c, "host in bf16", WHOLE_BF16, got,
                                  exact);
}

static void attempt(Attempt *at)
{
    const Options *o = at->t->o;
    Case *c = at->c;
    Arena *a = at->arena;
    Graph *init;
    ModelOptions m = { .home = o->home, .define = o->define.at,
                       .ndefine = o->define.n, .memory = o->lua_memory << 20,
                       .instructions = o->lua_limit, .dump = o->dump };
    bool bf16 = dtype_wanted(o) == BF16;
    Graph *g = case_trace(c, at->file, &m, &init, a);
    const Node *node = nodes_wanted(c, g, a);
    Whole *exact = case_evaluate(c, g, init, false, a), *got = exact;
    at->same = compare_eval(at->t, c, exact);
    if (o->host) {
        Job job = { .keep = a, .scratch = a };
        const Graph *whole = graph_dce(g, &job), *start = graph_dce(init, &job);
        got = case_on_host(o, c, g, init, a);
        if (bf16)
            attempt_bf16(at, got, exact, whole, start, a);
        else
            attempt_f32(at, got, exact, whole, start, a);
    }
    if (o->dump)
        values_dump(o, c, node, got);
}

/* Inputs that the part asked for and the case does not give: it may have
 * stumbled over one. */
static void absent_tell(const Case *c)
{
    int n = 0;
    for (uint32_t i = 0; i < c->nasked; i++) {
        bool told = false;
        for (uint32_t k = 0; k < c->ninput; k++)
            told |= strcmp(c->input[k].name, c->asked[i]) == 0;
        for (uint32_t k = 0; k < i; k++)
            told |= c->asked[k] == c->asked[i];   /* interned */
        if (!told)
            fprintf(stderr, n++ ? ", \"%s\"" : "%2$s: note: it asks for inputs "
                    "that the case does not give: \"%1$s\"", c->asked[i],
                    c->loc);
    }
    if (n)
        fputc('\n', stderr);
}

/* Where the case has a word of an error's first line: one in quotes, an
 * option say, or what "is" something; c->loc: nowhere. */
static const char *word_place(const Attempt *at, const char *line)
{
    const Case *c = at->c;
    Arena *a = at->t->o->arena;
    const char *loc = c->loc, *is = strstr(line, " is ");
    for (const char *p = line, *q; (p = strchr(p, '"')) &&
         (q = strchr(p + 1, '"')) && strcmp(loc, c->loc) == 0; p = q + 1)
        if (q > p + 1)
            loc = case_place(a, at->file->path, c->name,
                             fmt(a, "%.*s", (int)(q - p - 1), p + 1));
    if (!is || strcmp(loc, c->loc) != 0)
        return loc;
    const char *end = is, *p;
    for (p = line; p < is; p++)           /* "attn[1] is": attn */
        end = *p == '[' ? p : *p == ' ' ? is : end;
    for (p = end; p > line && (isalnum((unsigned char)p[-1]) || p[-1] == '_'); )
        p--;
    return p < end ? case_place(a, at->file->path, c->name,
                                fmt(a, "%.*s", (int)(end - p), p)) : loc;
}

/* Is that line one of a model that comes with dpc? */
static bool is_ours(const Options *o, const char *text, int n)
{
    const char *file = fmt(o->arena, "%.*s", n, text);
    const char *models = fmt(o->arena, "%s/models", o->home ? o->home : ".");
    char *at = realpath(fmt(o->arena, "%.*s", (int)strcspn(file, ":"), file),
                        NULL), *home = realpath(models, NULL);
    bool is = at && home && strncmp(at, home, strlen(home)) == 0;
    free(at);
    free(home);
    return is;
}

/* The error as a user reads it: at the case's line, and the model's as a note,
 * where it is about a word of the case or was found by a model of ours. */
static const char *error_placed(const Attempt *at, const char *text)
{
    Arena *a = at->t->o->arena;
    const char *mark = strstr(text, ": error: ");
    if (!mark)
        return text;
    int place = (int)(mark - text), n = (int)strcspn(mark += 9, "\n");
    const char *line = fmt(a, "%.*s", n, mark), *loc = word_place(at, line);
    size_t own = strlen(at->file->path);
    if ((strncmp(text, at->file->path, own) == 0 && text[own] == ':') ||
        (strcmp(loc, at->c->loc) == 0 && !is_ours(at->t->o, text, place)))
        return text;
    return fmt(a, "%s: error: case \"%s\": %s\n%.*s: note: here%s", loc,
               at->c->name, line, place, text, mark + n);
}

/* An error is printed, then where the case stands, unless that was said. */
static void told(const Attempt *at, const char *text)
{
    const Case *c = at->c;
    text = error_placed(at, text);
    size_t n = strlen(text);
    if (at->t->o->json) {
        printf("%s{\"case\": ", at->t->shown++ ? ",\n " : "");
        json_quote(stdout, c->name);
        printf(", \"error\": ");
        json_quote(stdout, text);
        printf("}");
    }
    fflush(stdout);
    fprintf(stderr, "%s%s", text, n && text[n - 1] == '\n' ? "" : "\n");
    if (!strstr(text, "case \""))
        fprintf(stderr, "%s: note: in case \"%s\"\n", c->loc, c->name);
    if (strstr(text, "a nil value"))
        absent_tell(c);
    if (!at->t->o->json)
        printf("FAIL %s: it cannot be run\n", c->name);
}

/* Errors of the model or of the case are the case's failure. */
static void try(Attempt *at)
{
    at->arena = arena_new();
    if (setjmp(at->trap.jump) == 0) {
        err_push(&at->trap);
        attempt(at);
        err_pop();
    } else {
        at->same = false;
        told(at, at->trap.text);
    }
    arena_free(at->arena);
}

/* The model's file: as it stands, or below home. */
static const char *model_find(const Options *o, const char *name)
{
    const char *home = fmt(o->arena, "%s/%s", o->home ? o->home : ".", name);
    return access(name, R_OK) == 0 ? name : access(home, R_OK) == 0 ? home
         : NULL;
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
    Attempt at = { .c = c, .file = file, .t = t };
    try(&at);
    if (!at.beyond)
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
        if (k == file->n)
            usage("--case: \"%s\" has no case \"%s\"%s", file->path,
                  o->only.at[i],
                  near_hint(o->only.at[i], have, (int)file->n));
    }
}

int cmd_eval_cases(const Options *o)
{
    ModelOptions m = { .memory = o->lua_memory << 20,
                       .instructions = o->lua_limit };
    CaseFile *file = case_read(o->cases, &m, o->arena);
    Tally t = { .o = o };
    names_check(o, file);
    if (o->dump && o->only.n != 1 && file->n != 1)
        usage("--dump: of which case? name one by --case");
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
