/* unit_text.c -- the tables of a unit as C text.
 *
 * Rows are printed without field names, in the order of dpc_rt.h: these
 * files are read by compilers.  Their strings are places in one array: as
 * literals they were thousands of symbols, most of them equal. */
#include "codegen/kernel.h"
#include "codegen/unit.h"

enum { RECENT = 1 << 12 };

typedef struct Pool {                     /* the array of all strings */
    Text text;                            /* as literals */
    uint32_t n;                           /* bytes */
    struct { const char *s; uint32_t at; } recent[RECENT];
} Pool;

/* FNV-1a */
static uint64_t hash_text(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h;
}

static uint32_t pool_add(Pool *p, const char *s)
{
    Text *t = &p->text;
    uint32_t at = p->n;
    text_add(t, "\"");
    for (; *s; s++, p->n++)
        if (*s == '"' || *s == '\\')
            text_add(t, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            text_add(t, "\\%03o", (unsigned char)*s);
        else
            text_add(t, "%c", *s);
    text_add(t, "\\0\"\n");
    p->n++;
    return at;
}

/* Where a string lies; one that was met not long ago is there. */
static void quote(Text *t, Pool *p, const char *s)
{
    if (!s) {
        text_add(t, "0");
        return;
    }
    uint64_t k = hash_text(0xcbf29ce484222325u, s, strlen(s)) % RECENT;
    if (!p->recent[k].s || strcmp(p->recent[k].s, s) != 0) {
        p->recent[k].at = pool_add(p, s);
        p->recent[k].s = s;
    }
    text_add(t, "s+%u", p->recent[k].at);
}

static void numbers(Text *t, const int64_t *v, int n)
{
    text_add(t, "{");
    for (int i = 0; i < n; i++)
        text_add(t, "%s%lld", i ? "," : "", (long long)v[i]);
    text_add(t, "}");
}

static void splits(Text *t, const DpcSplit *v, int n)
{
    text_add(t, "{");
    for (int i = 0; i < n; i++)
        text_add(t, "%s0x%llx", i ? "," : "", (unsigned long long)v[i]);
    text_add(t, "}");
}

static void leaves(Text *t, Pool *pool, const Unit *u)
{
    text_add(t, "static const DpcLeaf leaf[] = {\n");
    for (uint32_t i = 0; i < u->nleaf; i++) {
        const DpcLeaf *l = &u->leaf[i];
        text_add(t, "{");
        quote(t, pool, l->name);
        text_add(t, ",");
        quote(t, pool, l->loc);
        text_add(t, ",");
        quote(t, pool, l->doc);
        text_add(t, ",%d,%d,%d,%d,%d,", l->kind, l->dtype, l->ndim,
                 l->trainable, l->residual);
        numbers(t, l->dim, DPC_NDIM);
        text_add(t, ",");
        splits(t, l->split, DPC_NDIM);
        text_add(t, ",%d,%d,%lld,%lld,%.17g,%lld,", l->role, l->space,
                 (long long)l->at, (long long)l->bytes, l->value,
                 (long long)l->limit);
        quote(t, pool, l->table);
        text_add(t, "},\n");
    }
    text_add(t, "{0}};\n");
}

static void steps(Text *t, Pool *pool, const Program *p, int i)
{
    text_add(t, "static const DpcStep step%d[] = {\n", i);
    for (uint32_t k = 0; k < p->nstep; k++) {
        const DpcStep *s = &p->step[k];
        text_add(t, "{%d,%d,%d,%u,%u,%u,%u,%u,%u,%u,%u,%d},\n", s->kind,
                 s->stream, s->turn, s->node, s->call, s->arg, s->narg, s->pos,
                 s->npos, s->wait, s->nwait, s->event);
    }
    text_add(t, "{0}};\nstatic const DpcBuf buf%d[] = {\n", i);
    for (uint32_t k = 0; k < p->nbuf; k++) {
        const DpcBuf *b = &p->buf[k];
        text_add(t, "{%lld,%lld,%lld,%d,%d,%d,%u,%u,%d,%d,%d},\n",
                 (long long)b->at,
                 (long long)b->size, (long long)b->stride, b->slots, b->space,
                 b->dtype, b->value, b->instance, b->split,
                 b->pending, b->along);
    }
    text_add(t, "{0}};\nstatic const DpcNode node%d[] = {\n", i);
    for (uint32_t k = 0; k < p->nnode; k++) {
        text_add(t, "{");
        quote(t, pool, p->node[k].name);
        text_add(t, ",");
        quote(t, pool, p->node[k].op);
        text_add(t, ",");
        quote(t, pool, p->node[k].loc);
        text_add(t, "},\n");
    }
    text_add(t, "{0}};\n");
}

static void indices(Text *t, const Program *p, int i)
{
    text_add(t, "static const DpcPort port%d[] = {", i);
    for (uint32_t k = 0; k < p->nport; k++)
        text_add(t, "{%u,%u},", p->port[k].leaf, p->port[k].buf);
    text_add(t, "{0}};\nstatic const DpcHeld held%d[] = {", i);
    for (uint32_t k = 0; k < p->nheld; k++)
        text_add(t, "{%u,%u,%u},", p->held[k].leaf, p->held[k].before,
                 p->held[k].after);
    text_add(t, "{0}};\nstatic const uint32_t arg%d[] = {", i);
    for (uint32_t k = 0; k < p->narg; k++)
        text_add(t, "%u,%s", p->arg[k], k % 16 == 15 ? "\n" : "");
    text_add(t, "0};\nstatic const uint8_t how%d[] = {", i);
    for (uint32_t k = 0; k < p->narg; k++)
        text_add(t, "%d,%s", p->how[k], k % 32 == 31 ? "\n" : "");
    text_add(t, "0};\nstatic const uint32_t wait%d[] = {", i);
    for (uint32_t k = 0; k < p->nwait; k++)
        text_add(t, "%u,", p->wait[k]);
    text_add(t, "0};\nstatic const DpcPos pos%d[] = {", i);
    for (uint32_t k = 0; k < p->npos; k++)
        text_add(t, "{0x%llx,%lld,%d},", (unsigned long long)p->pos[k].split,
                 (long long)p->pos[k].size, p->pos[k].held);
    text_add(t, "{0}};\n");
}

static void watches(Text *t, const Program *p, int i)
{
    text_add(t, "static const uint32_t watch%d[] = {", i);
    for (uint32_t k = 0; k < p->nstep; k++)
        text_add(t, "%u,%s", p->watch[k], k % 16 == 15 ? "\n" : "");
    text_add(t, "0};\nstatic const uint32_t watched%d[] = {", i);
    for (uint32_t k = 0; k < p->nwatched; k++)
        text_add(t, "%u,%s", p->watched[k], k % 16 == 15 ? "\n" : "");
    text_add(t, "0};\n");
}

static void programs(Text *t, Pool *pool, const Unit *u)
{
    for (int i = 0; i < u->nprogram; i++) {
        steps(t, pool, &u->program[i], i);
        indices(t, &u->program[i], i);
        watches(t, &u->program[i], i);
    }
    text_add(t, "static const DpcProgram program[] = {\n");
    for (int i = 0; i < u->nprogram; i++) {
        const Program *p = &u->program[i];
        const Sched *s = p->g->sched;
        text_add(t, "{");
        quote(t, pool, p->g->entry);
        text_add(t, ",%d,%u,%u,%u,%u,%d,%u,step%d,buf%d,node%d,port%d,held%d,"
                 "arg%d,wait%d,how%d,pos%d,watch%d,watched%d,%lld,%lld,%lld,"
                 "%lld,%.17g,%lld},\n", p->g->role, p->nstep, p->nbuf,
                 p->nnode, p->nport, s->nevent, p->nheld, i, i, i, i, i, i, i,
                 i, i, i, i,
                 (long long)s->bytes[ARENA], (long long)s->bytes[IO],
                 (long long)s->bytes[HOST_ARENA],
                 (long long)s->lower, p->flops, (long long)p->batch);
    }
    text_add(t, "};\n");
}

static void overs(Text *t, const Unit *u)
{
    for (uint32_t i = 0; i < u->nkernel; i++) {
        const UnitKernel *k = &u->kernel[i];
        if (!k->over)
            continue;
        text_add(t, "static const uint8_t over%u[] = {", i);
        for (int m = 0; m < k->nin * k->nout; m++)
            text_add(t, "%d,", k->over[m]);
        text_add(t, "};\n");
    }
}

static void kernels(Text *t, Pool *pool, const Unit *u)
{
    overs(t, u);
    for (uint32_t i = 0; i < u->nkernel && !u->cuda; i++)
        text_add(t, "DpcKernelFn %s;\n", u->kernel[i].name);
    text_add(t, "static const DpcKernel kernel[] = {\n");
    for (uint32_t i = 0; i < u->nkernel; i++) {
        const UnitKernel *k = &u->kernel[i];
        text_add(t, "{");
        quote(t, pool, k->name);
        text_add(t, ",%s,%d,%d,", u->cuda ? "0" : k->name, k->nin, k->nout);
        text_add(t, k->over ? "over%u},\n" : "0},\n", i);
    }
    text_add(t, "{0}};\n");
    for (uint32_t i = 0; i < u->nkernel; i++)
        if (u->kernel[i].watch)
            text_add(t, "DpcWatchFn %s;\n", u->kernel[i].watch_name);
    text_add(t, "static DpcWatchFn *const watch[] = {\n");
    for (uint32_t i = 0; i < u->nkernel; i++)
        text_add(t, u->kernel[i].watch ? "%s,\n" : "0,\n",
                 u->kernel[i].watch_name);
    text_add(t, "0};\n");
}

static void dots(Text *t, const Unit *u)
{
    text_add(t, "static const DpcDot dot[] = {\n");
    for (uint32_t i = 0; i < u->ndot; i++) {
        const DpcDot *d = &u->dot[i];
        text_add(t, "{%d,%d,%d,%d,%d,%lld,%lld,%lld,", d->dtype_a, d->dtype_b,
                 d->dtype_c, d->nbatch, d->accumulate, (long long)d->m,
                 (long long)d->n, (long long)d->k);
        numbers(t, d->batch, DPC_NBATCH);
        text_add(t, ",%lld,%lld,", (long long)d->a_m, (long long)d->a_k);
        numbers(t, d->a_batch, DPC_NBATCH);
        text_add(t, ",%lld,%lld,", (long long)d->b_k, (long long)d->b_n);
        numbers(t, d->b_batch, DPC_NBATCH);
        text_add(t, ",%lld,%lld,", (long long)d->c_m, (long long)d->c_n);
        numbers(t, d->c_batch, DPC_NBATCH);
        text_add(t, "},\n");
    }
    text_add(t, "{0}};\n");
}

static void convs(Text *t, const Unit *u)
{
    text_add(t, "static const DpcConv conv[] = {\n");
    for (uint32_t i = 0; i < u->nconv; i++) {
        const DpcConv *c = &u->conv[i];
        int64_t v[] = { c->batch, c->c, c->h, c->w, c->o, c->kh, c->kw, c->oh,
                        c->ow, c->groups };
        text_add(t, "{%d,%d,%d,%d,%d,%d,%d", c->kind, c->dtype_x, c->dtype_w,
                 c->dtype_y, c->nhwc, c->packed, c->dtype_plain);
        for (int k = 0; k < COUNT(v); k++)
            text_add(t, ",%lld", (long long)v[k]);
        text_add(t, ",");
        numbers(t, c->stride, 2);
        text_add(t, ",");
        numbers(t, c->pad, 2);
        text_add(t, ",");
        numbers(t, c->dilate, 2);
        text_add(t, "},\n");
    }
    text_add(t, "{0}};\nstatic const DpcColl coll[] = {\n");
    for (uint32_t i = 0; i < u->ncoll; i++) {
        const DpcColl *c = &u->coll[i];
        text_add(t, "{%d,%d,%d,%d,%lld,%lld,%lld,%lld,%lld,%lld,%d,%u,%d,%d,"
                 "%d,%lld,%lld},\n",
                 c->kind, c->dtype, c->fold, c->axes, (long long)c->outer,
                 (long long)c->size, (long long)c->inner,
                 (long long)c->to_outer, (long long)c->to_size,
                 (long long)c->to_inner, c->peer, c->hop, c->lo,
                 c->hi, c->ranks, (long long)c->rows, (long long)c->step);
    }
    text_add(t, "{0}};\n");
}

static void mesh_and_runs(Text *t, Pool *pool, const Unit *u,
                          const UnitOptions *o)
{
    text_add(t, "static const DpcAxis axis[] = {");
    for (int i = 0; i < u->mesh->naxis; i++) {
        text_add(t, "{");
        quote(t, pool, u->mesh->axis[i].name);
        text_add(t, ",%d,%d,%d},", u->mesh->axis[i].size,
                 u->mesh->axis[i].kind, mesh_home(u->mesh, i) + 1);
    }
    text_add(t, "{0}};\nstatic const DpcRun run[] = {\n");
    for (int i = 0; i < o->nrun; i++) {
        text_add(t, "{");
        quote(t, pool, o->run[i].command);
        text_add(t, ",");
        quote(t, pool, o->run[i].entry);
        text_add(t, ",");
        quote(t, pool, o->run[i].count);
        text_add(t, ",%d},\n", o->run[i].times);
    }
    text_add(t, "{0}};\n");
}

/* The hash of the tables is what ranks compare, and checkpoints note.  No const
 * for the unit: its section, full of addresses, must not be read-only. */
char *unit_text(const Unit *u, const UnitOptions *o)
{
    Text t = { .arena = u->arena };
    Pool *pool = alloc(u->arena, sizeof *pool);
    pool->text.arena = u->arena;
    kernels(&t, pool, u);
    mesh_and_runs(&t, pool, u, o);
    leaves(&t, pool, u);
    dots(&t, u);
    convs(&t, u);
    programs(&t, pool, u);
    text_add(&t, "static const int64_t leaves[] = ");
    numbers(&t, u->leaves, u->nrole);
    text_add(&t, ";\nstatic const int64_t host_leaves[] = ");
    numbers(&t, u->host_leaves, u->nrole);
    text_add(&t, ";\n");
    uint64_t h = hash_text(0xcbf29ce484222325u, t.p, t.n);
    h = hash_text(h, pool->text.p, pool->text.n);
    text_add(&t, "__attribute((section(\".dpc_unit\")))\n"
             "DpcUnit dpc_unit = {\nDPC_ABI,");
    quote(&t, pool, o->model);
    text_add(&t, ",");
    quote(&t, pool, o->version);
    text_add(&t, ",\"%016llx\",%d,%u,%d,%u,%u,%u,%u,%d,%d,\naxis,leaf,program,"
             "kernel,watch,dot,conv,coll,run,leaves,"
             "host_leaves,\n", (unsigned long long)h,
             u->mesh->naxis, u->nleaf, u->nprogram, u->nkernel, u->ndot,
             u->nconv, u->ncoll, o->nrun, o->threads);
    quote(&t, pool, o->meta ? o->meta : "{}");
    text_add(&t, "};\nint main(int argc, char **argv)\n{\n"
             "    return dpc_main(argc, argv, &dpc_unit);\n}\n");
    Text all = { .arena = u->arena };
    text_add(&all, "#include \"dpc_rt.h\"\nstatic const char s[] =\n%s;\n%s",
             pool->text.p, t.p);
    return all.p;
}
