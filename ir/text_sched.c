/* text_sched.c -- the schedule's lines of a graph's text. */
#include "ir/text_parse.h"
#include <limits.h>

static bool key_is(const char *key, const char *name, Parser *p, int64_t *v)
{
    if (strcmp(key, name) != 0)
        return false;
    *v = token_int(p, INT64_MIN, INT64_MAX);
    return true;
}

static _Noreturn void unknown_key(Parser *p, const char *key)
{
    token_err(p, "unknown key \"%s\"", key);
}

static Sched *sched(Parser *p)
{
    if (!p->g->sched)
        token_err(p, "a line \"sched\" comes before the schedule's lines");
    return p->g->sched;
}

void parse_sched(Parser *p)
{
    if (p->g->sched)
        token_err(p, "the graph has two schedules");
    Sched *c = alloc(p->arena, sizeof *c);
    c->buf = alloc(p->arena, (p->g->n + 1) * sizeof *c->buf);
    for (Ref r = 0; r < p->g->n; r++)
        c->buf[r] = (Buf){ .at = -1, .slots = 1, .root = r };
    p->g->sched = c;
    while (!token_end(p)) {
        const char *key = token_next_key(p);
        int i = 0;
        int64_t v = token_int(p, 0, INT64_MAX);
        while (i < NSPACE && strcmp(key, space_names[i]) != 0)
            i++;
        if (i < NSPACE)
            c->bytes[i] = v;
        else if (strcmp(key, "lower") == 0)
            c->lower = v;
        else if (strcmp(key, "peak") == 0)
            c->peak = (uint32_t)v;
        else if (strcmp(key, "host_lower") == 0)
            c->host_lower = v;
        else if (strcmp(key, "host_peak") == 0)
            c->host_peak = (uint32_t)v;
        else if (strcmp(key, "events") == 0)
            c->nevent = (int)v;
        else
            unknown_key(p, key);
    }
}

static int64_t parse_places(Parser *p, Buf *b)
{
    uint32_t n = 0, cap = 0;
    do {
        GROW(p->arena, b->place, n, cap);
        b->place[n++] = token_int(p, 0, INT64_MAX);
    } while (token_eat(p, ','));
    return n;
}

void parse_buf(Parser *p)
{
    Sched *c = sched(p);
    Ref r = token_node(p);
    Buf *b = &c->buf[r];
    int64_t slots = 1, born = 0, dies = 0, places = 0;
    b->used = true;
    b->space = (Space)token_choice(p, "space", space_names, NSPACE);
    while (!token_end(p)) {
        const char *key = token_next_key(p);
        if (strcmp(key, "root") == 0)
            b->root = token_node(p);
        else if (strcmp(key, "places") == 0)
            places = parse_places(p, b);
        else if (!key_is(key, "at", p, &b->at)
                 && !key_is(key, "size", p, &b->size)
                 && !key_is(key, "stride", p, &b->stride)
                 && !key_is(key, "off", p, &b->off)
                 && !key_is(key, "slots", p, &slots)
                 && !key_is(key, "born", p, &born)
                 && !key_is(key, "dies", p, &dies))
            unknown_key(p, key);
    }
    if (places && places != slots)
        token_err(p, "%lld places for %lld slots", (long long)places,
                  (long long)slots);
    b->slots = (int)slots;
    b->born = (uint32_t)born, b->dies = (uint32_t)dies;
}

void parse_launch(Parser *p)
{
    Sched *c = sched(p);
    Launch l = { 0 };
    uint32_t cap = 0;
    if (token_int(p, 0, INT_MAX) != c->nlaunch)
        token_err(p, "expected launch %u, the next one", c->nlaunch);
    token_need(p, '=', "\"=\" and the launch's nodes");
    do {
        GROW(p->arena, l.node, l.n, cap);
        l.node[l.n++] = token_node(p);
    } while (token_eat(p, ','));
    while (!token_end(p)) {
        const char *key = token_next_key(p);
        if (!key_is(key, "scratch", p, &l.scratch))
            unknown_key(p, key);
    }
    GROW(p->arena, c->launch, c->nlaunch, c->launchcap);
    c->launch[c->nlaunch++] = l;
}

void parse_step(Parser *p)
{
    Sched *c = sched(p);
    Step t = { .event = -1 };
    uint32_t cap = 0;
    int64_t launch = token_int(p, 0, INT_MAX), v;
    if (launch >= c->nlaunch)
        token_err(p, "unknown launch %lld; there are %u", (long long)launch,
            c->nlaunch);
    t.launch = (uint32_t)launch;
    token_need(p, '.', "\".\" and the turn");
    t.turn = (int)token_int(p, 0, INT_MAX);
    while (!token_end(p)) {
        const char *key = token_next_key(p);
        if (strcmp(key, "wait") == 0)
            do {
                GROW(p->arena, t.wait, t.nwait, cap);
                t.wait[t.nwait++] = (int)token_int(p, 0, INT_MAX);
            } while (token_eat(p, ','));
        else if (key_is(key, "stream", p, &v))
            t.stream = (int)v;
        else if (key_is(key, "event", p, &v))
            t.event = (int)v;
        else if (key_is(key, "at", p, &v))
            t.scratch_at = v;
        else
            unknown_key(p, key);
    }
    GROW(p->arena, c->step, c->nstep, c->stepcap);
    c->step[c->nstep++] = t;
}
