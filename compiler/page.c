/* page.c -- dpc plan --html: a plan on one page that needs nothing else.
 *
 * What it costs, a step over time and memory, who holds what, the plan's own
 * text, and what else was tried.  All numbers are the clock's, as in `dpc sim`;
 * equal plans give equal bytes. */
#include "compiler/page.h"
#include <errno.h>
#include <stdlib.h>

void html_text(FILE *f, const char *s)
{
    for (; *s; s++)
        if (strchr("<>&\"'", *s))
            fprintf(f, "&#%d;", *s);
        else
            fputc(*s, f);
}

void html_type(FILE *f, const char *s)
{
    while (*s) {
        size_t n = 1 + strspn(s + 1, "abcdefghijklmnopqrstuvwxyz'");
        if (strchr("/+^~", *s) && n > 1)
            fprintf(f, "<span class=\"ax\">%.*s</span>", (int)n, s);
        else {
            n = 1;
            html_text(f, (char[]){ *s, 0 });
        }
        s += n;
    }
}

const char *bytes_text(Arena *a, double bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int k = 0;
    while (bytes >= 1024 && k + 1 < COUNT(unit))
        bytes /= 1024, k++;
    return fmt(a, "%.*f %s", k && bytes < 100 ? bytes < 10
               ? 2 : 1 : 0, bytes, unit[k]);
}

/* ---- head ---- */

static const char *model_name(const Page *p)
{
    const char *path = p->o->file[0], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return fmt(p->a, "%.*s", (int)strcspn(name, "."), name);
}

static void chips(const Page *p)
{
    static const char *const kind[] = { [SPACE] = "ranks", [STAGE] = "roles",
                                        [TIME] = "turns" };
    const Mesh *m = &p->plan->mesh;
    fprintf(p->out, "<div class=\"chips\"><span><b>%d</b> rank%s</span>",
            plan_ranks(p->plan), plan_ranks(p->plan) > 1 ? "s" : "");
    for (int i = 0; i < m->naxis; i++)
        fprintf(p->out, "<span><b>%s = %d</b> %s</span>", m->axis[i].name,
                m->axis[i].size, kind[m->axis[i].kind]);
    fprintf(p->out, "<span>on <b>");
    html_text(p->out, p->o->cluster ? p->o->cluster : "host");
    fprintf(p->out, "</b></span></div>\n");
}

static void card(const Page *p, const char *value, const char *what)
{
    fprintf(p->out, "<div><b>%s</b><i>%s</i></div>\n", value, what);
}

/* Of the role that holds most. */
static void memory_card(const Page *p)
{
    Priced most = { .plan = NULL };
    for (int i = 0; i < p->n; i++) {
        Priced one = { .plan = NULL };
        memory_price(p->role[i].g, p->job, &one);
        if (one.leaves + one.arena + one.io
            >= most.leaves + most.arena + most.io)
            most = one;
    }
    int64_t all = most.leaves + most.arena + most.io;
    double limit = (double)memory_limit(p->job);
    double whole = limit > (double)all ? limit : (double)all;
    fprintf(p->out, "<div style=\"grid-column:span 2\"><b>%s</b><i>a rank%s: "
            "%s weights and states, %s arena, %s io; of %s</i><span class=\"bar "
            "two\"><i class=\"upd\" style=\"width:%.2f%%\"></i><i class=\"fwd\" "
            "style=\"width:%.2f%%\"></i></span></div>\n",
            bytes_text(p->a, (double)all), p->n > 1 ? ", at most" : "",
            bytes_text(p->a, (double)most.leaves),
            bytes_text(p->a, (double)most.arena),
            bytes_text(p->a, (double)most.io), bytes_text(p->a, limit),
            100 * (double)(most.leaves + most.io) / whole,
            100 * (double)most.arena / whole);
}

static void cards(const Page *p)
{
    const Timeline *t = p->role;
    fprintf(p->out, "<div class=\"cards\">\n");
    card(p, fmt(p->a, "%.4g ms", 1e3 * t->spent.step), "a step");
    card(p, fmt(p->a, "%.1f %%", 100 * mfu_of(t, p->n, p->job)),
         "MFU: products at the device’s peak");
    card(p, fmt(p->a, "%.1f %%", 100 * exposed_share(t, p->n)),
         "communication that stands bare");
    if (p->n > 1)
        card(p, fmt(p->a, "%.1f %%", 100 * bubble_share(t, p->n)), "bubble");
    memory_card(p);
    fprintf(p->out, "</div>\n");
}

/* ---- stages ---- */

static void stages(const Page *p)
{
    const Plan *q = p->plan;
    if (!q->nstage)
        return;
    fprintf(p->out, "<section><h2>Stages</h2><table><tr><th>stage</th><th>role"
            "</th><th>scopes</th></tr>\n");
    for (int s = 0; s < q->nstage; s++) {
        fprintf(p->out, "<tr><td>%d</td><td>%d</td><td class=\"m\">", s,
                q->role_of[s]);
        for (uint32_t i = 0, n = 0; i < q->nscope; i++)
            if (q->stage[i].stage == s) {
                fputs(n++ ? ", " : "", p->out);
                html_text(p->out, *q->stage[i].scope ? q->stage[i].scope
                                                     : "(the rest)");
            }
        fprintf(p->out, "</td></tr>\n");
    }
    fprintf(p->out, "</table></section>\n");
}

/* ---- what was tried ---- */

static void tried_row(const Page *p, const Priced *q, double slowest,
                      bool pick)
{
    const Spent *s = &q->spent;
    fprintf(p->out, "<tr%s><td class=\"m\">", pick ? " class=\"pick\""
            : q->why || !q->fits ? " class=\"no\"" : "");
    html_text(p->out, q->name);
    fprintf(p->out, "</td><td class=\"r\">%d</td>", q->micro);
    if (q->why) {
        fprintf(p->out, "<td colspan=\"5\">refused: ");
        html_text(p->out, q->why);
        fprintf(p->out, "</td></tr>\n");
        return;
    }
    fprintf(p->out, "<td><span class=\"bar\"><i style=\"width:%.1f%%\"></i>"
            "</span>%s%.4g</td><td class=\"r\">%.4g</td><td class=\"r\">%.4g"
            "</td><td class=\"r\">%s</td><td>%s</td></tr>\n",
            100 * s->step / slowest, q->rough ? "about " : "", 1e3 * s->step,
            1e3 * s->compute, 1e3 * spent_exposed(s),
            bytes_text(p->a, (double)(q->leaves + q->arena + q->io)),
            q->fits ? pick ? "chosen" : "" : "does not fit");
}

static void tried(const Page *p)
{
    double slowest = 0;
    if (p->ntried < 2)
        return;
    for (uint32_t i = 0; i < p->ntried; i++)
        if (!p->tried[i].why && p->tried[i].spent.step > slowest)
            slowest = p->tried[i].spent.step;
    fprintf(p->out, "<section><h2>What else was tried</h2><table><tr><th>plan"
            "</th><th class=\"r\">turns</th><th>ms a step</th><th class=\"r\">"
            "computes</th><th class=\"r\">exposed</th><th class=\"r\">memory a "
            "rank</th><th></th></tr>\n");
    for (uint32_t i = 0; i < p->ntried; i++)
        tried_row(p, &p->tried[i], slowest, i == 0);
    fprintf(p->out, "</table></section>\n");
}

/* ---- the plan's text ---- */

static void text(const Page *p)
{
    char *s = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&s, &n);
    if (!to)
        err_code(5, "dpc", "no memory: %s", strerror(errno));
    plan_print(p->plan, to);
    fclose(to);
    fprintf(p->out, "<section><h2>The plan</h2><p>As <code>dpc plan -o</code> "
            "writes it, and <code>--plan</code> reads it.</p><pre>");
    html_text(p->out, s);
    fprintf(p->out, "</pre></section>\n");
    free(s);
}

void page_write(Page *p)
{
    const char *path = p->o->html;
    p->out = fopen(path, "w");
    if (!p->out)
        err_code(5, path, "cannot be written: %s", strerror(errno));
    fprintf(p->out, "<!DOCTYPE html>\n<html lang=\"en\"><head>\n<title>");
    html_text(p->out, model_name(p));
    fprintf(p->out, ", a plan</title>\n%s</head><body>\n<h1>", page_head);
    html_text(p->out, model_name(p));
    fprintf(p->out, " <span class=\"dim\">%s</span></h1>\n",
            p->role[0].g->entry);
    chips(p);
    cards(p);
    page_time(p);
    tried(p);
    page_peak(p);
    stages(p);
    page_layers(p);
    text(p);
    fprintf(p->out, "%s</body></html>\n", page_tail);
    if (ferror(p->out) | fclose(p->out))
        err_code(5, path, "cannot be written: %s", strerror(errno));
}
