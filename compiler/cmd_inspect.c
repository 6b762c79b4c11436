/* cmd_inspect.c -- dpc inspect: the tables of a binary, as people or programs
 * read them.  A role's ranks hold the same schedule, so a rank is its role and
 * its coordinates. */
#include "compiler/inspect.h"
#include "ir/text.h"
#include "runtime/info.h"
#include <stdlib.h>

static const char *const kinds[] = {      /* DpcStepKind */
    "kernel", "dot", "conv", "pack", "unpack", "coll", "copy", "hop",
};
static const char *const streams[DPC_NSTREAM] = {
    "compute", "collect", "hops", "copies"
};
static const char *const hows[] = { "-", "r", "w", "rw" };

/* ---- which of them ---- */

static int64_t ranks_of(const DpcUnit *u)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < u->naxis; i++)
        n *= u->axis[i].kind == DPC_TIME ? 1 : u->axis[i].size;
    return n;
}

/* "pp=1 dp=0", and the role of a rank. */
static const char *rank_text(const DpcUnit *u, int64_t rank, int32_t *role,
                             Arena *a)
{
    int32_t coord[DPC_NAXIS];
    Str s = { .arena = a };
    for (uint32_t i = u->naxis; i-- > 0;)
        if (u->axis[i].kind != DPC_TIME) {
            coord[i] = (int32_t)(rank % u->axis[i].size);
            rank /= u->axis[i].size;
        }
    *role = 0;
    for (uint32_t i = 0; i < u->naxis; i++) {
        if (u->axis[i].kind == DPC_STAGE)
            *role = *role * u->axis[i].size + coord[i];
        if (u->axis[i].kind != DPC_TIME)
            str_add(&s, "%s%s=%d", s.n ? " " : "", u->axis[i].name, coord[i]);
    }
    return s.p ? s.p : "";
}

static int64_t number_of(const Options *o, const char *s, int64_t n,
                         const char *what)
{
    char *end;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || *s == '-' || *s == '+')
        usage("--schedule=%s: a rank, or role and its number, is wanted",
              o->schedule);
    if (v >= n)
        err_code(2, o->file[0], "there is no %s %lld: it has %lld %s%s", what,
                 v, (long long)n, what, n == 1 ? "" : "s");
    return v;
}

/* The role that --schedule names; -1: all of them. */
static int32_t role_chosen(const Options *o, const DpcUnit *u)
{
    const char *s = o->schedule ? o->schedule : "";
    int32_t role;
    if (!*s)
        return -1;
    if (strncmp(s, "role", 4) == 0)
        return (int32_t)number_of(o, s + 4, dpc_roles(u), "role");
    int64_t rank = number_of(o, s, ranks_of(u), "rank");
    const char *at = rank_text(u, rank, &role, o->arena);
    if (!o->json)
        printf("rank %lld is at %s: role %d\n", (long long)rank,
               *at ? at : "no axis", role);
    return role;
}

static bool is_chosen(const Options *o, const DpcProgram *p, int32_t role)
{
    return (role < 0 || p->role < 0 || p->role == role)
        && (!o->entry || strcmp(o->entry, p->entry) == 0);
}

/* ---- words ---- */

static const char *axes_text(const DpcUnit *u, DpcAxes axes, char sign,
                             Arena *a)
{
    Str s = { .arena = a };
    for (uint32_t i = 0; i < u->naxis; i++)
        if (axes >> i & 1)
            str_add(&s, "%c%s", sign, u->axis[i].name);
    return s.p ? s.p : "";
}

static const char *coll_text(const DpcUnit *u, const DpcColl *c, Arena *a)
{
    static const char *const kind[] = { "all_reduce", "reduce_scatter",
        "all_gather", "all_to_all", "send", "recv", "halo", "ring" };
    const char *axes = axes_text(u, c->axes, ' ', a);
    if (c->kind == DPC_SEND || c->kind == DPC_RECV)
        return fmt(a, "%s %s role %d, hop %u", kind[c->kind],
                   c->kind == DPC_SEND ? "to" : "from", c->peer, c->hop);
    return fmt(a, "%s%s, %lld of %s", kind[c->kind], axes,
               (long long)(c->outer * c->size * c->inner),
               dpc_dtype_name(c->dtype));
}

/* What a step calls: one name or size, beside where it comes from. */
static const char *call_text(const DpcUnit *u, const DpcStep *q, Arena *a)
{
    if (q->kind == DPC_STEP_KERNEL)
        return u->kernel[q->call].name;
    if (q->kind == DPC_STEP_DOT) {
        const DpcDot *d = &u->dot[q->call];
        int64_t batch = 1;
        for (int i = 0; i < d->nbatch; i++)
            batch *= d->batch[i];
        return fmt(a, "%lld x %lld,%lld,%lld", (long long)batch,
                   (long long)d->m, (long long)d->n, (long long)d->k);
    }
    if (q->kind == DPC_STEP_COLL)
        return coll_text(u, &u->coll[q->call], a);
    Str s = { .arena = a };
    for (uint32_t i = 0; q->kind == DPC_STEP_HOP && i < q->narg; i++)
        str_add(&s, "%s%s", i ? ", " : "",
                coll_text(u, &u->coll[q->call + i], a));
    return s.p ? s.p : "";
}

static const char *waits_text(const DpcProgram *p, const DpcStep *q, Arena *a)
{
    Str s = { .arena = a };
    for (uint32_t i = 0; i < q->nwait; i++)
        str_add(&s, "%se%u", i ? "," : "", p->wait[q->wait + i]);
    return s.p ? s.p : "-";
}

static const char *args_text(const DpcProgram *p, const DpcStep *q, Arena *a)
{
    Str s = { .arena = a };
    for (uint32_t i = 0; i < q->narg; i++)
        str_add(&s, "%s%s:%u", i ? " " : "", hows[p->how[q->arg + i] & 3],
                p->arg[q->arg + i]);
    return s.p ? s.p : "";
}

/* ---- for people ---- */

static void schedule_print(const DpcUnit *u, const DpcProgram *p, Arena *a)
{
    printf("%5s %4s %-7s %-6s %-7s %-4s %s\n", "step", "turn", "stream",
           "kind", "waits", "sets", "what; operands by buffer");
    for (uint32_t i = 0; i < p->nstep; i++) {
        const DpcStep *q = &p->step[i];
        const DpcNode *n = &p->node[q->node];
        printf("%5u %4u %-7s %-6s %-7s %-4s %s %s (%s) %s; %s\n", i, q->turn,
               streams[q->stream], kinds[q->kind], waits_text(p, q, a),
               q->event < 0 ? "-" : fmt(a, "e%d", q->event), n->op, n->name,
               n->loc, call_text(u, q, a), args_text(p, q, a));
    }
    printf("%6s %-6s %11s %11s %-5s %6s %5s  %s\n", "buffer", "space", "at",
           "bytes", "dtype", "value", "slots", "instance, axes");
    for (uint32_t i = 0; i < p->nbuf; i++) {
        const DpcBuf *b = &p->buf[i];
        printf("%6u %-6s %11lld %11lld %-5s %6u %5u  %u %s%s\n", i,
               space_names[b->space], (long long)b->at, (long long)b->size,
               b->dtype ? dpc_dtype_name(b->dtype - 1) : "-", b->value,
               b->slots, b->instance, axes_text(u, b->split, '/', a),
               axes_text(u, b->pending, '+', a));
    }
}

static void head_print(const DpcUnit *u, const DpcProgram *p)
{
    printf("\n%s", p->entry);
    if (p->role >= 0 && dpc_roles(u) > 1)
        printf(" of role %d", p->role);
    printf(": %u steps, %u buffers, %u events\n", p->nstep, p->nbuf,
           p->nevent);
}

/* ---- for programs ---- */

static void list(DpcJson *j, const char *key, const uint32_t *at, uint32_t n)
{
    dpc_json_key(j, key);
    dpc_json_open(j, '[');
    for (uint32_t i = 0; i < n; i++)
        dpc_json_int(j, at[i]);
    dpc_json_close(j, ']');
}

static void step_json(DpcJson *j, const DpcUnit *u, const DpcProgram *p,
                      const DpcStep *q, Arena *a)
{
    const DpcNode *n = &p->node[q->node];
    dpc_json_open(j, '{');
    dpc_json_pair(j, "kind", kinds[q->kind]);
    dpc_json_pair(j, "stream", streams[q->stream]);
    dpc_json_count(j, "turn", q->turn);
    dpc_json_pair(j, "op", n->op);
    dpc_json_pair(j, "name", n->name);
    dpc_json_pair(j, "loc", n->loc);
    dpc_json_pair(j, "call", call_text(u, q, a));
    list(j, "waits", p->wait + q->wait, q->nwait);
    if (q->event >= 0)
        dpc_json_count(j, "sets", q->event);
    list(j, "buffers", p->arg + q->arg, q->narg);
    dpc_json_key(j, "how");
    dpc_json_open(j, '[');
    for (uint32_t i = 0; i < q->narg; i++)
        dpc_json_str(j, hows[p->how[q->arg + i] & 3]);
    dpc_json_close(j, ']');
    dpc_json_close(j, '}');
}

static void buf_json(DpcJson *j, const DpcUnit *u, const DpcBuf *b, Arena *a)
{
    dpc_json_open(j, '{');
    dpc_json_pair(j, "space", space_names[b->space]);
    dpc_json_count(j, "at", b->at);
    dpc_json_count(j, "bytes", b->size);
    dpc_json_pair(j, "dtype", b->dtype ? dpc_dtype_name(b->dtype - 1) : NULL);
    dpc_json_count(j, "value", b->value);
    dpc_json_count(j, "instance", b->instance);
    dpc_json_count(j, "slots", b->slots);
    dpc_json_pair(j, "split", axes_text(u, b->split, '/', a));
    dpc_json_pair(j, "pending", axes_text(u, b->pending, '+', a));
    dpc_json_close(j, '}');
}

static void schedule_json(DpcJson *j, const DpcUnit *u, const DpcProgram *p,
                          Arena *a)
{
    dpc_json_key(j, "steps");
    dpc_json_open(j, '[');
    for (uint32_t i = 0; i < p->nstep; i++)
        step_json(j, u, p, &p->step[i], a);
    dpc_json_close(j, ']');
    dpc_json_key(j, "buffers");
    dpc_json_open(j, '[');
    for (uint32_t i = 0; i < p->nbuf; i++)
        buf_json(j, u, &p->buf[i], a);
    dpc_json_close(j, ']');
}

static void memory_json(DpcJson *j, const Held *h)
{
    dpc_json_count(j, "peak_bytes", h->bytes);
    dpc_json_count(j, "peak_step", h->step);
    dpc_json_key(j, "alive_bytes");
    dpc_json_open(j, '[');
    for (uint32_t k = 0; k < h->nstep; k++)
        dpc_json_int(j, h->alive[k]);
    dpc_json_close(j, ']');
}

/* ---- the command ---- */

static void program_json(DpcJson *j, const Options *o, const DpcUnit *u,
                         const DpcProgram *p)
{
    dpc_json_open(j, '{');
    dpc_json_pair(j, "entry", p->entry);
    dpc_json_count(j, "role", p->role);
    dpc_json_count(j, "events", p->nevent);
    dpc_json_count(j, "arena_bytes", p->arena);
    dpc_json_count(j, "arena_bound_bytes", p->arena_lower);
    dpc_json_count(j, "io_bytes", p->io);
    if (o->schedule)
        schedule_json(j, u, p, o->arena);
    if (o->memory) {
        Held h = held_of(p, o->arena);
        memory_json(j, &h);
    }
    dpc_json_close(j, '}');
}

static void all_json(const Options *o, const DpcUnit *u, int32_t role)
{
    DpcJson j;
    dpc_json_init(&j, dpc_json_file, stdout, 3);
    dpc_json_open(&j, '{');
    dpc_info_pairs(&j, u);
    dpc_json_key(&j, "programs");
    dpc_json_open(&j, '[');
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (is_chosen(o, &u->program[i], role))
            program_json(&j, o, u, &u->program[i]);
    dpc_json_close(&j, ']');
    dpc_json_close(&j, '}');
    dpc_json_newline(&j);
}

static void entry_check(const Options *o, const DpcUnit *u)
{
    const char **have = alloc(o->arena, (u->nprogram + 1) * sizeof *have);
    for (uint32_t i = 0; i < u->nprogram; i++)
        if (strcmp(have[i] = u->program[i].entry, o->entry) == 0)
            return;
    usage("--entry: \"%s\" has no entry \"%s\"%s", o->file[0], o->entry,
          near_hint(o->entry, have, (int)u->nprogram));
}

int cmd_inspect(const Options *o)
{
    const DpcUnit *u = unit_read(o->file[0], o->arena);
    int32_t role = role_chosen(o, u);
    if (o->entry)
        entry_check(o, u);
    if (o->json) {
        all_json(o, u, role);
        return 0;
    }
    if (o->schedule || o->memory)
        printf("%s, compiled by dpc %s, hash %s, tables of layout %d\n",
               u->model, u->version, u->hash, u->abi);
    else
        dpc_info_print(u);
    for (uint32_t i = 0; i < u->nprogram; i++) {
        const DpcProgram *p = &u->program[i];
        if (!is_chosen(o, p, role) || !(o->schedule || o->memory))
            continue;
        head_print(u, p);
        if (o->memory)
            held_print(p, o->arena);
        if (o->schedule)
            schedule_print(u, p, o->arena);
    }
    return 0;
}
