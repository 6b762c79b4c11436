/* ckpt_index.c -- dpc.json: what a checkpoint is made of.
 *
 * Rank 0 knows the coordinates, sizes and hashes of all ranks and works out
 * from the splits which box of which tensor lies where, so no list of tensors
 * ever travels.  Numbers that may have 64 bits are hex text: readers of JSON
 * keep 53.  The last field is the hash of everything before it. */
#include "runtime/ckpt_own.h"

#include "runtime/json.h"
#include "runtime/safetensors.h"
#include "runtime/source.h"
#include <inttypes.h>
#include <stdio.h>

DpcStatus ckpt_file_name(const DpcCkpt *c, int class, int rank,
                         char name[CKPT_NAME])
{
    const char *what = class == CKPT_MODEL ? "model" : "state";
    if (c->plain[class])
        snprintf(name, CKPT_NAME, "%s.safetensors", what);
    else
        snprintf(name, CKPT_NAME, "%s-%05d-of-%05d.safetensors", what,
                 rank + 1, c->world.size);
    return DPC_OK;
}

static void hex_print(DpcJson *j, const char *key, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "0x%016" PRIx64, v);
    dpc_json_pair(j, key, text);
}

static void ints_print(DpcJson *j, const char *key, int n, const int64_t *v)
{
    dpc_json_key(j, key);
    dpc_json_open(j, '[');
    for (int i = 0; i < n; i++)
        dpc_json_int(j, v[i]);
    dpc_json_close(j, ']');
}

static void run_print(DpcJson *j, const DpcCkpt *c, const DpcCkptInfo *info)
{
    const DpcUnit *u = c->unit;
    dpc_json_pair(j, "format", DPC_CKPT_FORMAT);
    dpc_json_count(j, "version", DPC_CKPT_VERSION);
    dpc_json_pair(j, "model", u->model);
    dpc_json_pair(j, "unit", u->hash);
    dpc_json_count(j, "step", info->step);
    dpc_json_count(j, "cursor", info->cursor);
    hex_print(j, "seed", info->seed);
    hex_print(j, "data", info->data);
    dpc_json_count(j, "world", c->world.size);
    dpc_json_key(j, "scalars");
    dpc_json_open(j, '{');
    for (uint32_t i = 0; i < u->nleaf; i++)
        if (u->leaf[i].kind == DPC_SCALAR) {
            dpc_json_key(j, u->leaf[i].name);
            dpc_json_num(j, info->scalar ? info->scalar[i]
                                         : u->leaf[i].value);
        }
    dpc_json_close(j, '}');
}

static void files_print(DpcJson *j, const DpcCkpt *c)
{
    dpc_json_key(j, "files");
    dpc_json_open(j, '[');
    for (int k = 0; k < CKPT_NCLASS; k++)
        for (int r = 0; r < c->world.size; r++) {
            char name[CKPT_NAME];
            if (c->all[r].bytes[k] == 0)
                continue;
            ckpt_file_name(c, k, r, name);
            dpc_json_open(j, '{');
            dpc_json_pair(j, "name", name);
            dpc_json_count(j, "bytes", c->all[r].bytes[k]);
            dpc_json_pair(j, "xxh3", c->all[r].hash[k]);
            dpc_json_close(j, '}');
        }
    dpc_json_close(j, ']');
}

/* Pieces in the order of ranks; `file` counts as files_print does. */
static void pieces_print(DpcJson *j, const DpcCkpt *c, const DpcLeaf *l)
{
    int class = ckpt_class(l);
    int64_t file = 0, local[DPC_NDIM];
    for (int r = 0; class == CKPT_STATE && r < c->world.size; r++)
        file += c->all[r].bytes[CKPT_MODEL] != 0;
    dpc_json_key(j, "pieces");
    dpc_json_open(j, '[');
    for (int r = 0; r < c->world.size; r++) {
        if (c->all[r].bytes[class] == 0)
            continue;
        DpcBox b = dpc_box_of(c->unit, l, c->all[r].coord, local);
        if (dpc_leaf_owner(c->unit, l, c->all[r].coord) &&
            !(dpc_leaf_split(l) && dpc_box_count(&b) == 0)) {
            dpc_json_open(j, '{');
            dpc_json_count(j, "file", file);
            ints_print(j, "at", l->ndim, b.at);
            ints_print(j, "size", l->ndim, b.size);
            dpc_json_close(j, '}');
        }
        file++;
    }
    dpc_json_close(j, ']');
}

static void tensors_print(DpcJson *j, const DpcCkpt *c)
{
    dpc_json_key(j, "tensors");
    dpc_json_open(j, '{');
    for (uint32_t i = 0; i < c->unit->nleaf; i++) {
        const DpcLeaf *l = &c->unit->leaf[i];
        if (ckpt_class(l) < 0)
            continue;
        dpc_json_key(j, l->name);
        dpc_json_open(j, '{');
        dpc_json_pair(j, "kind", l->kind == DPC_PARAM ? "param"
                      : l->residual ? "residual" : "state");
        dpc_json_pair(j, "dtype",
                      dpc_safe_kind_name(dpc_safe_kind_of(l->dtype)));
        ints_print(j, "shape", l->ndim, l->dim);
        pieces_print(j, c, l);
        dpc_json_close(j, '}');
    }
    dpc_json_close(j, '}');
}

DpcStatus ckpt_index_write(DpcCkpt *c, const DpcCkptInfo *info)
{
    DpcJson j;
    char self[DPC_HASH];
    DpcStatus s = dpc_path(c->path, "%s/" DPC_CKPT_INDEX, c->tmp);
    if (s == DPC_OK)
        s = dpc_out_open(&c->out, c->path);
    if (s != DPC_OK)
        return s;
    dpc_json_init(&j, dpc_out_put, &c->out, 2);
    dpc_json_open(&j, '{');
    run_print(&j, c, info);
    files_print(&j, c);
    tensors_print(&j, c);
    dpc_out_hash(&c->out, self);
    dpc_json_pair(&j, "self", self);
    dpc_json_close(&j, '}');
    dpc_json_newline(&j);
    DpcStatus closed = dpc_out_close(&c->out);
    return j.status == DPC_OK ? closed : j.status;
}
