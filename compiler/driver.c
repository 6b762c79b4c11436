/* driver.c -- what the commands that read a model share. */
#include "compiler/planning.h"
#include <stdlib.h>

Model *model_open(const Options *o)
{
    ModelOptions m = {
        .home = o->home, .define = o->define.at, .ndefine = o->define.n,
        .config = o->config, .dump = o->dump,
        .memory = o->lua_memory << 20, .instructions = o->lua_limit,
    };
    return model_load(o->file[0], &m, o->arena);
}

enum { RANKS = 65536 };                   /* and turns: at most */

static int small(int64_t n, const char *name)
{
    if (n > RANKS)
        usage("--%s: %lld; at most %d", name, (long long)n, RANKS);
    return (int)n;
}

int ranks_wanted(const Options *o)
{
    const Cluster *c = cluster_read(o->home, o->cluster, o->arena);
    int most = cluster_ranks(c);
    if (most && o->ranks > most)
        usage("--ranks %lld: the cluster \"%s\" has %d; --cluster 2x8xNAME "
              "has 16", (long long)o->ranks, c->name, most);
    return o->ranks ? small(o->ranks, "ranks") : most ? most : 1;
}

/* What a plan's word would be refused for is so before anything is tried. */
static void words_check(const Options *o, Graph *const *entry, int nentry)
{
    Plan none = { 0 };
    const char *wrong = o->recompute
        ? recompute_read(o->arena, o->recompute, &none) : NULL;
    if (!wrong && o->offload)
        wrong = offload_read(o->arena, o->offload, entry, nentry, &none);
    if (wrong)
        usage("--%s", wrong);
}

void plan_flags_check(const Options *o, Graph *const *entry, int nentry)
{
    if (o->plan && o->partitioner)
        usage("--plan and --partitioner exclude each other");
    if (o->exact && (o->plan || o->partitioner))
        usage("--exact is a partitioner of its own; leave --%s out",
              o->plan ? "plan" : "partitioner");
    for (int i = 0; i < o->set.n; i++)
        if (o->recompute && strncmp(o->set.at[i], "recompute=", 10) == 0
            && strcmp(o->set.at[i] + 10, o->recompute) != 0)
            usage("--recompute %s and -P %s contradict each other; leave one "
                  "of them out", o->recompute, o->set.at[i]);
    words_check(o, entry, nentry);
}

int ranks_most(const Options *o)
{
    int most = cluster_ranks(cluster_read(o->home, o->cluster, o->arena));
    return most && most < RANKS ? most : RANKS;
}

static void differs(const Options *o, const char *flag, const char *said,
                    const char *plan)
{
    usage("--%s %s, but the plan \"%s\" says %s; change one of them", flag,
          said, o->plan, plan);
}

/* A plan file says all of a plan: a flag beside it may only say the same.
 * --offload may move what a plan that moves nothing leaves. */
static void flags_agree(const Options *o, const Plan *p)
{
    Plan mine = *p;
    int ranks = plan_ranks(p), turns = plan_turns(p);
    if (o->micro && o->micro != turns)
        differs(o, "micro", fmt(o->arena, "%lld", (long long)o->micro),
                fmt(o->arena, "%d", turns));
    if (o->dtype && strcmp(o->dtype, dtype_name(p->compute)) != 0)
        differs(o, "dtype", o->dtype, dtype_name(p->compute));
    if (o->recompute && !recompute_read(o->arena, o->recompute, &mine)
        && (mine.recompute != p->recompute || mine.bytes != p->bytes))
        differs(o, "recompute", o->recompute, recompute_word(o->arena, p));
    if (o->offload && p->offload && strcmp(o->offload, p->offload) != 0)
        differs(o, "offload", o->offload, p->offload);
    if (o->cluster && ranks > ranks_most(o))
        usage("--cluster %s: ranks are %d, but the plan \"%s\" has %d",
              o->cluster, ranks_most(o), o->plan, ranks);
}

/* What the command line says of a plan's words. */
static void plan_words(const Options *o, Graph *const *entry, int nentry,
                       Plan *p)
{
    if (o->recompute)
        recompute_read(o->arena, o->recompute, p);
    if (o->offload)
        offload_read(o->arena, o->offload, entry, nentry, p);
    if (p->recompute == RECOMPUTE_AUTO && !p->bytes)
        p->bytes = cluster_read(o->home, o->cluster, o->arena)->memory;
    offload_fit(o, entry, nentry, p);
}

typedef struct Asker { const Options *o; Work w; } Asker;

static PlanCost cost_of(void *arg, Plan *plan)
{
    Asker *a = arg;
    plan_words(a->o, a->w.entry, a->w.nentry, plan);
    Try t = { .name = "cost", .plan = plan, .micro = plan_turns(plan) };
    const Priced *p = tries_run(a->o, &a->w, &t, 1);
    const Spent *s = &p->spent;
    return (PlanCost){ s->step, s->compute, s->communicate, spent_exposed(s),
                       p->leaves, p->arena, p->io, p->fits, p->why };
}

static Plan *plan_found(const Options *o, Graph *const *entry, int nentry)
{
    Asker asker = { o, { .entry = entry, .nentry = nentry } };
    PlanOptions p = {
        .cost = cost_of, .arg = &asker,
        .home = o->home, .file = o->plan ? o->plan : o->partitioner,
        .ranks = small(o->ranks, "ranks"), .micro = small(o->micro, "micro"),
        .compute = dtype_wanted(o),
    };
    p.define = o->set.at, p.ndefine = o->set.n;
    plan_flags_check(o, entry, nentry);
    if (p.file && strcmp(p.file, "auto") == 0) {
        uint32_t n;
        Priced *best = plans_auto(o, entry, nentry, &n);
        return plans_best(o, best, n, entry, nentry)->plan;
    }
    if (o->plan) {
        Plan *plan = plan_read(&p, entry, nentry, o->arena);
        flags_agree(o, plan);
        return plan;
    }
    p.ranks = ranks_wanted(o);
    p.micro = p.micro ? p.micro : 1;
    if (!p.file)
        p.file = o->exact ? "exact" : "ddp";
    return plan_partition(&p, entry, nentry, o->arena);
}

Plan *plan_open(const Options *o, Graph *const *entry, int nentry)
{
    Plan *p = plan_found(o, entry, nentry);
    plan_words(o, entry, nentry, p);
    return p;
}

void outputs_check(const Options *o)
{
    const struct { const char *flag, *path; } of[] = {
        { "-o", o->output }, { "--html", o->html }, { "--trace", o->trace } };
    for (int i = 0; i < COUNT(of); i++) {
        if (of[i].path && strcmp(of[i].path, "-") == 0)
            usage("%s -: the name of a file is wanted", of[i].flag);
        for (int k = 0; k < i; k++)
            if (of[i].path && of[k].path
                && strcmp(of[i].path, of[k].path) == 0)
                usage("%s and %s are both \"%s\"", of[k].flag, of[i].flag,
                      of[i].path);
    }
}

static const Graph *current;              /* for dpc-crash.ir */

static void dump(FILE *f)
{
    if (current)
        graph_print(current, f);
}

static void remember(void *arg, const char *pass, const Graph *before,
                     const Graph *after)
{
    (void)arg, (void)pass, (void)before;
    current = after;
}

int plan_threads(const Plan *p, const Cluster *c)
{
    int n = !p ? c->cores : p->exact ? 1 : c->cores / plan_ranks(p);
    return n > 1 ? n : 1;
}

DType dtype_wanted(const Options *o)
{
    return o->dtype && strcmp(o->dtype, "bf16") == 0 ? BF16 : F32;
}

Job job_open(const Options *o, const Plan *plan)
{
    Cluster *c = cluster_read(o->home, o->cluster, o->arena);
    const char *name = o->target ? o->target : c->target;
    const Target *t = target_find(name);
    if (!t)
        err_code(2, "dpc", "--target: this dpc has no target \"%s\"", name);
    die_dump = dump;
    int64_t roles = plan ? mesh_size(&plan->mesh, mesh_axes(&plan->mesh, STAGE))
                  : 1;
    if (o->role >= roles)
        usage("--role %lld: the plan has %lld role%s", (long long)o->role,
              (long long)roles, roles == 1 ? "" : "s");
    cluster_share(c, plan ? plan_ranks(plan) : 1, plan_threads(plan, c));
    return (Job){ .keep = o->arena, .plan = plan, .target = t, .cluster = c,
                  .time = o->time_passes, .check = remember,
                  .role = (int)o->role };
}

/* All of a file or of stdin, as text. */
static char *text_read(const Options *o, const char *path)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t n = 0, size = 1 << 16, k;
    char *text = malloc(size), *more;
    if (!in)
        err(path, "cannot be opened");
    while (text && (k = fread(text + n, 1, size - n - 1, in)) > 0) {
        n += k;
        if (n + 1 < size)
            continue;
        more = realloc(text, size *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (!text)
        err_code(3, path, "out of memory");
    text[n] = 0;
    if (in != stdin)
        fclose(in);
    char *kept = fmt(o->arena, "%s", text);
    free(text);
    return kept;
}

Graph *graph_read(const Options *o, const char *path)
{
    const char *name = strcmp(path, "-") == 0 ? "stdin" : path;
    return graph_parse(o->arena, text_read(o, path), name);
}

/* ---- short text ---- */

/* Cut " key=word" or " key="text"" out of the line. */
static void cut(char *line, const char *key)
{
    char *p = strstr(line, key);
    if (!p)
        return;
    char *e = p + strlen(key) + strcspn(p + strlen(key), " ");
    memmove(p, e, strlen(e) + 1);
}

void graph_print_short(const Graph *g, FILE *out)
{
    char *text = NULL, *line;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    graph_print(g, f);
    fclose(f);
    for (char *p = text; (line = strsep(&p, "\n")) && (p || *line);) {
        if (*line != '#') {
            cut(line, " loc=");
            cut(line, " scope=");
        }
        fprintf(out, "%s\n", line);
    }
    free(text);
}

void runtime_fail(DpcStatus s)
{
    fprintf(stderr, "%s\n", dpc_last_error());
    exit(dpc_exit_code(s));
}

char *dims_text(Arena *a, const char *kind, int ndim, const int64_t *dim)
{
    Str s = { .arena = a };
    str_add(&s, "%s[", kind);
    for (int i = 0; i < ndim; i++)
        str_add(&s, "%s%lld", i ? "," : "", (long long)dim[i]);
    str_add(&s, "]");
    return s.p;
}

void json_quote(FILE *out, const char *s)
{
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', out);
        if ((unsigned char)*s < 32)
            fprintf(out, "\\u%04x", (unsigned)*s);
        else
            fputc(*s, out);
    }
    fputc('"', out);
}
