/* page_layer.c -- who holds what: each scope that has weights, and each that
 * communicates, with twins in one row.
 *
 * Twins are scopes that differ by numbers at the end of their parts, and whose
 * weights, results and transfers are alike: "blocks.17.mlp" and its 59 others
 * are "blocks.*.mlp". */
#include "compiler/page.h"
#include <ctype.h>
#include <stdlib.h>

typedef struct Sent { Op op; Axes axes; double bytes; } Sent;

typedef struct Layer {
    const char *name;                     /* with a star for each number */
    int role, count;
    Ref first;                            /* of its nodes */
    const char *weights, *result;
    Sent sent[6];                         /* by op and axes; a step */
    int nsent;
    double flops;                         /* of a rank, a step */
} Layer;

typedef struct Layers {
    const Page *p;
    const Graph *g;
    int role;
    Layer *at;
    uint32_t n, cap;
} Layers;

/* "blocks.17.to_q2" as "blocks.*.to_q*". */
static const char *starred(Arena *a, const char *scope)
{
    Str s = { .arena = a };
    for (const char *p = scope; *p;) {
        size_t n = strcspn(p, "."), k = n;
        while (k && isdigit((unsigned char)p[k - 1]))
            k--;
        str_add(&s, "%.*s%s%s", (int)k, p, k < n ? "*" : "",
                p[n] ? "." : "");
        p += n + (p[n] == '.');
    }
    return s.p ? s.p : "";
}

/* ---- one scope ---- */

static const char *tail_of(const char *name, const char *scope)
{
    size_t n = strlen(scope);
    return strncmp(name, scope, n) == 0 && name[n] == '.' ? name + n + 1
         : name;
}

static void sent_add(Layer *l, const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    Launch one = { .n = 1, .node = &r };
    if (!n->nin || !launch_communicates(g, &one))
        return;
    double bytes = graph_turns(g, n->loop) * transfer_bytes(g, r);
    int k = 0;
    while (k < l->nsent && (l->sent[k].op != n->op
                            || l->sent[k].axes != n->attr.axes))
        k++;
    if (k == COUNT(l->sent))
        return;
    l->nsent = k == l->nsent ? k + 1 : l->nsent;
    l->sent[k] = (Sent){ n->op, n->attr.axes, l->sent[k].bytes + bytes };
}

static void node_add(Layer *l, Str *weights, const Graph *g, Ref r)
{
    const Node *n = &g->node[r];
    if (n->op == OP_param) {
        str_add(weights, "%s%s %s%s", weights->n ? "\n" : "",
                tail_of(n->name, n->scope),
                type_text(g->arena, &g->mesh, &n->type),
                n->attr.frozen ? " frozen" : "");
    } else if (n->segment == FORWARD && n->nin && n->type.ndim
               && ops[n->op].family != FAMILY_hop)
        l->result = type_text(g->arena, &g->mesh, &n->type);
    l->flops += graph_turns(g, n->loop) * node_flops(g, r);
    sent_add(l, g, r);
}

/* ---- all of them ---- */

static const Graph *sorted;               /* of by_scope */

static int by_scope(const void *a, const void *b)
{
    Ref x = *(const Ref *)a, y = *(const Ref *)b;
    int k = strcmp(sorted->node[x].scope, sorted->node[y].scope);
    return k ? k : (x > y) - (x < y);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool twins(const Layer *a, const Layer *b)
{
    if (strcmp(a->name, b->name) != 0 || a->role != b->role
        || !same_text(a->weights, b->weights)
        || !same_text(a->result, b->result) || a->nsent != b->nsent)
        return false;
    for (int i = 0; i < a->nsent; i++)
        if (a->sent[i].op != b->sent[i].op
            || a->sent[i].axes != b->sent[i].axes)
            return false;
    return true;
}

static void layer_add(Layers *s, const Layer *l)
{
    if (!l->weights && !l->nsent)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        if (twins(&s->at[i], l)) {
            Layer *to = &s->at[i];
            to->count++, to->flops += l->flops;
            for (int k = 0; k < l->nsent; k++)
                to->sent[k].bytes += l->sent[k].bytes;
            return;
        }
    GROW(s->p->a, s->at, s->n, s->cap);
    s->at[s->n++] = *l;
}

static void role_layers(Layers *s)
{
    const Graph *g = sorted = s->g;
    Ref *r = alloc(s->p->a, (g->n + 1) * sizeof *r);
    for (Ref i = 0; i < g->n; i++)
        r[i] = i;
    qsort(r, g->n, sizeof *r, by_scope);
    for (uint32_t i = 0, e; i < g->n; i = e) {
        const char *scope = g->node[r[i]].scope;
        Layer l = { .name = starred(s->p->a, scope), .role = s->role,
                    .count = 1, .first = r[i] };
        Str weights = { .arena = s->p->a };
        for (e = i; e < g->n && strcmp(g->node[r[e]].scope, scope) == 0; e++)
            node_add(&l, &weights, g, r[e]);
        l.weights = weights.p;
        layer_add(s, &l);
    }
}

static int by_first(const void *a, const void *b)
{
    const Layer *x = a, *y = b;
    return x->role != y->role ? x->role - y->role
         : (x->first > y->first) - (x->first < y->first);
}

/* ---- rows ---- */

static void types_put(const Page *p, const char *text)
{
    for (const char *s = text; s && *s;) {
        size_t n = strcspn(s, "\n");
        html_type(p->out, fmt(p->a, "%.*s", (int)n, s));
        fputs(s[n] ? "<br>" : "", p->out);
        s += n + (s[n] == '\n');
    }
}

static void sent_put(const Page *p, const Graph *g, const Layer *l)
{
    for (int i = 0; i < l->nsent; i++) {
        const Sent *s = &l->sent[i];
        fprintf(p->out, "%s%s", i ? "<br>" : "", ops[s->op].name);
        for (int k = 0; k < g->mesh.naxis; k++)
            if (s->axes >> k & 1)
                fprintf(p->out, " <span class=\"ax\">%s</span>",
                        g->mesh.axis[k].name);
        fprintf(p->out, " %s", bytes_text(p->a, s->bytes));
    }
}

static void layer_put(const Page *p, const Layer *l, double all)
{
    fprintf(p->out, "<tr><td class=\"m\">");
    html_text(p->out, *l->name ? l->name : "(no scope)");
    if (l->count > 1)
        fprintf(p->out, " <span class=\"dim\">× %d</span>", l->count);
    if (p->n > 1)
        fprintf(p->out, "</td><td>%d", l->role);
    fprintf(p->out, "</td><td class=\"m\">");
    types_put(p, l->weights);
    fprintf(p->out, "</td><td class=\"m\">");
    types_put(p, l->result);
    fprintf(p->out, "</td><td>");
    sent_put(p, p->role[l->role].g, l);
    double share = all > 0 ? 100 * l->flops / all : 0;
    fprintf(p->out, "</td><td class=\"r\"><span class=\"bar\" style=\"width:"
            "48px\"><i style=\"width:%.1f%%\"></i></span><span class=\"n\">"
            "%.1f %%</span></td></tr>\n",
            share, share);
}

void page_layers(const Page *p)
{
    Layers s = { .p = p };
    double all = 0;
    for (int i = 0; i < p->n; i++) {
        s.g = p->role[i].g, s.role = i;
        role_layers(&s);
    }
    if (s.n)
        qsort(s.at, s.n, sizeof *s.at, by_first);
    for (uint32_t i = 0; i < s.n; i++)
        all += s.at[i].flops;
    fprintf(p->out, "<section><h2>Layers and their parts</h2><p>Sizes are "
            "whole; <span class=\"ax\">/axis</span> cuts a dimension over the "
            "ranks, or turns, of an axis, <span class=\"ax\">+axis</span> is "
            "a sum that is still owed. Bytes are what a rank sends a step."
            "</p><div class=\"scroll\"><table><tr><th>layer</th>%s<th>weights"
            "</th><th>its last value</th><th>sends</th><th class=\"r\">flops"
            "</th></tr>\n", p->n > 1 ? "<th>role</th>" : "");
    for (uint32_t i = 0; i < s.n; i++)
        layer_put(p, &s.at[i], all);
    fprintf(p->out, "</table></div></section>\n");
}
