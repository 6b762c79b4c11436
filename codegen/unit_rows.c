/* unit_rows.c -- a unit as the runtime will see it, without printing it. */
#include "codegen/unit.h"

static DpcProgram program_row(const Program *p)
{
    const Sched *s = p->g->sched;
    return (DpcProgram){
        .entry = p->g->entry, .role = p->g->role, .nstep = p->nstep, .nbuf = p->nbuf,
        .nnode = p->nnode, .nport = p->nport, .nheld = p->nheld,
        .nevent = (uint32_t)s->nevent, .step = p->step, .buf = p->buf,
        .node = p->node, .port = p->port, .held = p->held, .arg = p->arg,
        .wait = p->wait, .how = p->how, .pos = p->pos,
        .watch = p->watch, .watched = p->watched,
        .arena = s->bytes[ARENA], .io = s->bytes[IO],
        .host = s->bytes[HOST_ARENA],
        .arena_lower = s->lower, .flops = p->flops, .batch = p->batch
    };
}

DpcUnit unit_rows(const Unit *u, const char *model)
{
    DpcProgram *p = alloc(u->arena, (size_t)u->nprogram * sizeof *p);
    DpcKernel *k = alloc(u->arena, (size_t)u->nkernel * sizeof *k);
    DpcAxis *axis = alloc(u->arena, (size_t)u->mesh->naxis * sizeof *axis);
    for (int i = 0; i < u->nprogram; i++)
        p[i] = program_row(&u->program[i]);
    for (uint32_t i = 0; i < u->nkernel; i++)
        k[i] = (DpcKernel){ .name = u->kernel[i].name,
                            .nin = (uint16_t)u->kernel[i].nin,
                            .nout = (uint16_t)u->kernel[i].nout,
                            .over = u->kernel[i].over };
    for (int i = 0; i < u->mesh->naxis; i++)
        axis[i] = (DpcAxis){ u->mesh->axis[i].name, u->mesh->axis[i].size,
                             (uint8_t)u->mesh->axis[i].kind,
                             mesh_home(u->mesh, i) + 1 };
    return (DpcUnit){
        .abi = DPC_ABI, .model = model, .naxis = (uint32_t)u->mesh->naxis,
        .nleaf = u->nleaf, .nprogram = (uint32_t)u->nprogram,
        .nkernel = u->nkernel, .ndot = u->ndot, .nconv = u->nconv,
        .ncoll = u->ncoll, .axis = axis, .leaf = u->leaf, .program = p,
        .kernel = k, .dot = u->dot, .conv = u->conv, .coll = u->coll,
        .leaves = u->leaves, .host_leaves = u->host_leaves
    };
}
