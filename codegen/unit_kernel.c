/* unit_kernel.c -- the kernels of a unit, and who their values are. */
#include "codegen/unit.h"
#include "codegen/watch.h"

/* [nout][nin], NULL where no result may lie over an operand. */
static uint8_t *overs(Arena *a, const Kernel *k)
{
    uint8_t *over = alloc(a, (size_t)(k->nout * k->nin) + 1);
    bool any = false;
    for (int o = 0; o < k->nout; o++)
        for (int i = 0; i < k->nin; i++)
            any |= over[o * k->nin + i] = kernel_over(k, i, o);
    return any ? over : NULL;
}

uint32_t unit_kernel(Unit *u, const Kernel *k)
{
    Ref *node;
    KernelText t = u->cuda ? kernel_cuda(u->arena, k)
                           : kernel_host(u->arena, k);
    for (uint32_t i = 0; i < u->nkernel; i++)
        if (strcmp(u->kernel[i].name, t.name) == 0)
            return i;
    GROW(u->arena, u->kernel, u->nkernel, u->kernelcap);
    UnitKernel *row = &u->kernel[u->nkernel];
    *row = (UnitKernel){ .name = t.name, .text = t.text, .nin = k->nin,
                         .nout = k->nout, .over = overs(u->arena, k) };
    row->nwatch = u->cuda || !watch_worth(k) ? 0 : watch_nodes(k, &node);
    if (row->nwatch) {
        KernelText w = watch_text(u->arena, k);
        row->watch = w.text, row->watch_name = w.name;
    }
    return u->nkernel++;
}

/* Turns of a step share what is said here. */
void unit_watch(Unit *u, Program *p, uint32_t call, Kernel *const *k, int n)
{
    uint32_t *at = &p->watched_at[k[0]->out[0]];
    GROW(u->arena, p->watch, p->nstep, p->watchcap);
    if (u->kernel[call].nwatch && !*at) {
        *at = p->nwatched + 1;
        for (int i = 0; i < n; i++) {
            Ref *node;
            int count = watch_nodes(k[i], &node);
            if (count != u->kernel[call].nwatch)
                die("%s: twins of %d and %d values", u->kernel[call].name,
                    count, u->kernel[call].nwatch);
            for (int v = 0; v < count; v++) {
                GROW(u->arena, p->watched, p->nwatched, p->watchedcap);
                p->watched[p->nwatched++] = unit_node(u, p, node[v]);
            }
        }
    }
    p->watch[p->nstep] = *at ? *at - 1 : 0;
}
