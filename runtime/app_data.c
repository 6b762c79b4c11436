/* app_data.c -- data as the model's inputs want them. */
#include "runtime/app.h"

#include <stdio.h>
#include <string.h>

/* An input NAME_mask or NAME_length says that NAME's rows are padded. */
static DpcStatus data_pad(const DpcApp *a, const DpcLeaf *l, DpcData *d)
{
    static const char *const end[] = {"_mask", "_length"};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(l->name), m = strlen(end[i]);
        char name[128];
        if (n <= m || n - m >= sizeof name || strcmp(l->name + n - m, end[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - m), l->name);
        int32_t of = dpc_rt_find(a->unit, name);
        int field = dpc_data_find(d, name);
        if (of >= 0 && field >= 0 && a->unit->leaf[of].ndim > 1)
            return dpc_data_pad(d, field, a->unit->leaf[of].dim[1]);
    }
    return DPC_OK;
}

static bool has_input(const DpcApp *a, const char *name, const char *end)
{
    char text[160];
    snprintf(text, sizeof text, "%s%s", name, end);
    return dpc_rt_find(a->unit, text) >= 0;
}

/* Zeros that an index fills up would be data to a model that reads neither
 * mask nor length: records of fewer rows are corrupt then. */
static void data_unpad(const DpcApp *a, const DpcLeaf *l, DpcData *d)
{
    int field = dpc_data_find(d, l->name);
    if (field >= 0 && !has_input(a, l->name, "_mask") &&
        !has_input(a, l->name, "_length"))
        dpc_data_unpad(d, field);
}

DpcStatus dpc_app_data(DpcApp *a, const char *spec, DpcData **d)
{
    int64_t budget = a->opt.bad_data < 0 ? 100 : a->opt.bad_data;
    DpcStatus s = dpc_data_open(spec, budget, d);
    for (uint32_t i = 0; !s && i < a->unit->nleaf; i++)
        if (a->unit->leaf[i].kind == DPC_INPUT) {
            data_unpad(a, &a->unit->leaf[i], *d);
            s = data_pad(a, &a->unit->leaf[i], *d);
        }
    return s || !a->caption ? s : dpc_caption_data(a->caption, *d);
}
