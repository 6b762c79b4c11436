/* page_time.c -- a step of all roles over time: lanes, and the arena below.
 *
 * What the clock says of each launch, as rectangles; steps that are narrower
 * than a point are drawn together with their neighbours, so a page is never
 * much longer than it is wide. */
#include "compiler/page.h"
#include "ir/text.h"

enum { WIDTH = 1100, LEFT = 92, RIGHT = 14, LANE = 22, GAP = 5,
       CURVE = 58, BELOW = 16, SHOWN = 8 };
static const double least = 1.1;          /* width of a rectangle, at least */

static const char *const lanes[NSTREAM] = {
    "computes", "collects", "hops", "copies"
};

typedef struct Draw {
    const Page *p;
    const Timeline *t;
    FILE *f;
    double scale, y;                      /* points a second; top of a lane */
} Draw;

static double x_of(const Draw *d, double seconds)
{
    return LEFT + d->scale * seconds;
}

/* ---- words ---- */

static const Node *node_of(const Graph *g, uint32_t step)
{
    const Launch *l = &g->sched->launch[g->sched->step[step].launch];
    return &g->node[l->node[l->n - 1]];
}

/* What a launch does, of all it might; "" for what is but prepared. */
static const char *kind_of(const Graph *g, uint32_t step)
{
    const Launch *l = &g->sched->launch[g->sched->step[step].launch];
    const Node *n = node_of(g, step);
    if (launch_communicates(g, l))
        return "com";
    if (n->again != NONE)
        return "again";
    return n->segment >= UPDATE ? "upd" : n->segment > FORWARD ? "bwd" : "fwd";
}

static const char *segment_of(const Graph *g, uint32_t step)
{
    const Node *n = node_of(g, step);
    return fmt(g->arena, "%s%s", n->again != NONE ? "again for " : "",
               segment_names[n->segment]);
}

static bool has_product(const Graph *g, uint32_t step)
{
    const Launch *l = &g->sched->launch[g->sched->step[step].launch];
    return launch_amount(g, l, target_find("host"), NULL).kind != OTHERS;
}

/* ---- rectangles ---- */

typedef struct Piece { uint32_t first, last, n; double from, to; } Piece;

static void piece_put(const Draw *d, const Piece *q)
{
    const Graph *g = d->t->g;
    const Node *a = node_of(g, q->first), *b = node_of(g, q->last);
    double w = d->scale * (q->to - q->from);
    fprintf(d->f, "<rect class=\"%s%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
            "height=\"%d\" data-t=\"", kind_of(g, q->first),
            q->n == 1 && !has_product(g, q->first) ? " loop" : "",
            x_of(d, q->from), d->y, w > 0.3 ? w : 0.3, LANE);
    html_text(d->f, fmt(d->p->a, "%s %s", ops[a->op].name, a->name));
    if (q->n > 1)
        html_text(d->f, fmt(d->p->a, " … %s %s, %u launches", ops[b->op].name,
                            b->name, q->n));
    fprintf(d->f, "&#10;%s, turn %d&#10;%.4g ms, from %.4g to %.4g&#10;",
            segment_of(g, q->first), g->sched->step[q->first].turn,
            1e3 * (q->to - q->from), 1e3 * q->from, 1e3 * q->to);
    html_text(d->f, a->loc ? a->loc : "");
    fprintf(d->f, "\"/>\n");
}

/* A hop begins when its end of it is there: until the other's is, it waits. */
static double sends_from(const Draw *d, uint32_t k)
{
    return d->t->end[k] - d->t->takes[k];
}

static void waits_put(const Draw *d, uint32_t k)
{
    double x = x_of(d, d->t->begin[k]), w = x_of(d, sends_from(d, k)) - x;
    if (d->t->g->sched->step[k].stream == STREAM_HOP && w > 0.5)
        fprintf(d->f, "<rect class=\"com wait\" x=\"%.2f\" y=\"%.1f\" width="
                "\"%.2f\" height=\"%d\" data-t=\"waits for the other role"
                "\"/>\n", x, d->y, w, LANE);
}

static void lane_pieces(const Draw *d, int stream)
{
    const Graph *g = d->t->g;
    const Sched *s = g->sched;
    Piece q = { .n = 0 };
    for (uint32_t k = 0; k < s->nstep; k++) {
        double from = stream == STREAM_HOP ? sends_from(d, k)
                    : d->t->begin[k], to = d->t->end[k];
        if (s->step[k].stream != stream || to <= from)
            continue;
        waits_put(d, k);
        bool alike = q.n && strcmp(kind_of(g, k), kind_of(g, q.first)) == 0
            && s->step[k].turn == s->step[q.first].turn;
        bool near = d->scale * (from - q.to) < 0.5;
        bool narrow = d->scale * (q.to - q.from) < least
            || d->scale * (to - from) < least / 4;
        if (q.n && !(near && narrow && alike)) {
            piece_put(d, &q);
            q.n = 0;
        }
        if (!q.n)
            q = (Piece){ .first = k, .from = from };
        q.last = k, q.to = to, q.n++;
    }
    if (q.n)
        piece_put(d, &q);
}

/* Number i: of a turn and a segment; it is over. */
typedef struct Stretch { double from, to; } Stretch;

static void part_end(const Draw *d, Stretch *q, int i, int turns)
{
    Segment seg = (Segment)(i % (UPDATE + 1));
    const char *name = turns > 1 && seg < UPDATE
        ? fmt(d->p->a, "%d", i / (UPDATE + 1)) : segment_names[seg];
    double w = d->scale * (q->to - q->from);
    if (seg >= FORWARD && w > 7 * (double)strlen(name) + 6)
        fprintf(d->f, "<text class=\"on\" text-anchor=\"middle\" x=\"%.1f\" "
                "y=\"%.1f\">%s</text>\n", x_of(d, q->from) + w / 2,
                d->y + 15, name);
    *q = (Stretch){ 0, 0 };
}

/* Names of the parts that are wide enough to carry one: turns, or segments
 * where there are none.  What comes between and is narrow cuts none in two. */
static void lane_names(const Draw *d)
{
    const Graph *g = d->t->g;
    int turns = graph_turns(g, mesh_axes(&g->mesh, TIME));
    int n = turns * (UPDATE + 1);
    Stretch *part = alloc(d->p->a, (size_t)n * sizeof *part);
    for (uint32_t k = 0; k < g->sched->nstep; k++) {
        const Step *q = &g->sched->step[k];
        Segment seg = node_of(g, k)->segment;
        int i = q->turn * (UPDATE + 1) + (seg == WEIGHT ? BACKWARD : seg);
        if (q->stream)
            continue;
        if (part[i].to > 0 && d->scale * (d->t->begin[k] - part[i].to) > 8)
            part_end(d, &part[i], i, turns);
        if (!(part[i].to > 0))
            part[i].from = d->t->begin[k];
        part[i].to = d->t->end[k];
    }
    for (int i = 0; i < n; i++)
        if (part[i].to > 0)
            part_end(d, &part[i], i, turns);
}

static bool lane_used(const Graph *g, int stream)
{
    for (uint32_t k = 0; k < g->sched->nstep; k++)
        if (g->sched->step[k].stream == stream)
            return true;
    return stream == STREAM_COMPUTE;
}

static void lane(Draw *d, int stream)
{
    fprintf(d->f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>"
            "<rect class=\"lane\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d"
            "\"/>\n", LEFT - 8, d->y + 15, lanes[stream], LEFT, d->y,
            WIDTH - LEFT - RIGHT, LANE);
    lane_pieces(d, stream);
    if (stream == STREAM_COMPUTE)
        lane_names(d);
    d->y += LANE + GAP;
}

/* ---- memory ---- */

/* One point a column: the most that lives in it. */
static void curve_path(const Draw *d, const Memory *m, double bottom,
                       double high)
{
    double last = 0;
    fprintf(d->f, "M%d %.1f", LEFT, bottom);
    for (uint32_t i = 0, e; i < m->n; i = e) {
        double x = x_of(d, i ? m->at[i] : 0), most = m->bytes[i];
        for (e = i + 1; e < m->n && x_of(d, m->at[e]) - x < 0.8; e++)
            most = m->bytes[e] > most ? m->bytes[e] : most;
        last = most;
        fprintf(d->f, "L%.1f %.1fH%.1f", x, bottom - CURVE * most / high,
                x_of(d, m->at[e]));
    }
    fprintf(d->f, "L%d %.1f", WIDTH - RIGHT, bottom - CURVE * last / high);
}

static void curve(Draw *d)
{
    const Graph *g = d->t->g;
    Memory m = memory_of(d->t, d->p->a);
    double high = (double)g->sched->bytes[ARENA], bottom = d->y + CURVE;
    if (!m.n || high <= 0)
        return;
    fprintf(d->f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">arena</text>"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n"
            "<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f"
            "\"/>\n", LEFT - 8, d->y + 24, LEFT - 8, d->y + 8,
            bytes_text(d->p->a, high),
            LEFT, WIDTH - RIGHT, d->y, d->y);
    fprintf(d->f, "<path class=\"area\" d=\"");
    curve_path(d, &m, bottom, high);
    fprintf(d->f, "V%.1fZ\"/>\n<path class=\"edge\" d=\"", bottom);
    curve_path(d, &m, bottom, high);
    double x = x_of(d, d->t->begin[m.step]);
    double y = bottom - CURVE * (double)m.most / high;
    bool right = x > WIDTH - 240;
    fprintf(d->f, "\"/>\n<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\""
            "/><text class=\"h\" x=\"%.1f\" y=\"%.1f\"%s>%s at %.4g ms"
            "</text>\n", x, y, right ? x - 7 : x + 7, y + 13,
            right ? " text-anchor=\"end\"" : "",
            bytes_text(d->p->a, (double)m.most),
            1e3 * d->t->begin[m.step]);
    d->y = bottom + GAP;
}

/* ---- all roles ---- */

/* 1, 2 or 5 times a power of ten: about eight of them fill the step. */
static double tick_of(double seconds)
{
    double t = 1e-9;
    for (int i = 0; seconds / t > 9; i++)
        t *= i % 3 == 1 ? 2.5 : 2;
    return t;
}

static double height_of(const Page *p)
{
    double h = BELOW + 14;
    for (int i = 0; i < p->n; i++) {
        h += CURVE + GAP + 34;
        for (int s = 0; s < NSTREAM; s++)
            h += lane_used(p->role[i].g, s) ? LANE + GAP : 0;
    }
    return h;
}

static void grid(const Draw *d, double height)
{
    double step = d->p->role[0].spent.step, tick = tick_of(step);
    for (int i = 0; i * tick <= step; i++) {
        double x = x_of(d, i * tick);
        fprintf(d->f, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" "
                "y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">"
                "%.4g%s</text>\n", x, x, height - BELOW, x, height - 3,
                i ? "middle" : "start", 1e3 * i * tick, i ? "" : " ms");
    }
}

static void role_draw(Draw *d, int i)
{
    const Spent *s = &d->t->spent;
    d->y += 20;
    fprintf(d->f, "<text class=\"h\" x=\"%d\" y=\"%.1f\">%s</text><text x=\"%d"
            "\" y=\"%.1f\">computes %.4g ms, sends %s in %.4g ms, %.4g ms "
            "exposed%s</text>\n", 0, d->y, d->p->n > 1
            ? fmt(d->p->a, "role %d", i) : "each rank", LEFT, d->y,
            1e3 * s->compute, bytes_text(d->p->a, s->bytes), 1e3 * s->communicate,
            1e3 * spent_exposed(s), d->p->n > 1
            ? fmt(d->p->a, ", bubble %.4g ms", 1e3 * s->bubble) : "");
    d->y += 8;
    for (int k = 0; k < NSTREAM; k++)
        if (lane_used(d->t->g, k))
            lane(d, k);
    curve(d);
    d->y += 6;
}

static void key(FILE *f, const char *class, const char *what)
{
    fprintf(f, "<span><i class=\"%s\"></i>%s</span>", class, what);
}

/* Who lives in the arena of a role where it is fullest. */
static void peak_table(const Page *p, int i)
{
    const Graph *g = p->role[i].g;
    Memory m = memory_of(&p->role[i], p->a);
    uint32_t n;
    const Span *s = spans_at(m.span, m.nspan, m.step, &n, p->a);
    fprintf(p->out, "<table><tr><th style=\"width:22%%\">%s, step %u</th><th>"
            "value</th><th>made by</th><th>lives</th><th>line</th></tr>\n",
            p->n > 1 ? fmt(p->a, "role %d", i) : "each rank", m.step);
    for (uint32_t k = 0; k < n && k < SHOWN; k++) {
        const Node *x = &g->node[s[k].id];
        double share = 100.0 * (double)s[k].size / (double)s[0].size;
        fprintf(p->out, "<tr><td><span class=\"bar\"><i style=\"width:%.1f%%\">"
                "</i></span>%s</td><td class=\"m\">", share,
                bytes_text(p->a, (double)s[k].size));
        html_text(p->out, x->name);
        fprintf(p->out, "</td><td>%s%s</td><td>%.4g to %.4g ms</td><td "
                "class=\"m\">", ops[x->op].name, s[k].instance < 0
                ? ", scratch" : "", 1e3 * p->role[i].begin[s[k].first],
                1e3 * p->role[i].end[s[k].last]);
        html_text(p->out, x->loc ? x->loc : "");
        fprintf(p->out, "</td></tr>\n");
    }
    fprintf(p->out, "</table>\n");
    if (n > SHOWN)
        fprintf(p->out, "<p>and %u smaller ones</p>\n", n - SHOWN);
}

void page_time(const Page *p)
{
    Draw d = { .p = p, .f = p->out };
    double height = height_of(p);
    d.scale = (WIDTH - LEFT - RIGHT) / p->role[0].spent.step;
    fprintf(p->out, "<section><h2>A step over time</h2><p>Each launch by the "
            "clock of the cluster; pale ones move memory, the others multiply. "
            "Below, what lives in the arena.</p><div class=\"key\">");
    key(p->out, "fwd", "forward");
    key(p->out, "again", "made again for backward");
    key(p->out, "bwd", "backward");
    key(p->out, "upd", "update");
    key(p->out, "com", "communication");
    if (p->n > 1)
        key(p->out, "com wait", "waits for another role");
    fprintf(p->out, "</div><div class=\"scroll\"><svg viewBox=\"0 0 %d %.0f\" "
            "role=\"img\" aria-label=\"time line of a step\">\n", WIDTH,
            height);
    grid(&d, height);
    for (int i = 0; i < p->n; i++) {
        d.t = &p->role[i];
        role_draw(&d, i);
    }
    fprintf(p->out, "</svg></div></section>\n");
}

void page_peak(const Page *p)
{
    fprintf(p->out, "<section><h2>Who lives at the peak</h2>\n");
    for (int i = 0; i < p->n; i++)
        peak_table(p, i);
    fprintf(p->out, "</section>\n");
}
