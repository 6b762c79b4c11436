/* dump.c -- named values into a folder (dump.h). */
#include "compiler/dump.h"
#include "compiler/demo.h"
#include <errno.h>
#include <sys/stat.h>

const char *dump_name(const char *out)
{
    static const char prefix[] = "dump.";
    size_t n = sizeof prefix - 1;
    return strncmp(out, prefix, n) == 0 ? out + n : NULL;
}

Dump dump_open(const Options *o)
{
    Dump d = { .dir = o->dump_dir ? o->dump_dir : "dump", .a = o->arena };
    if (mkdir(d.dir, 0777) && errno != EEXIST)
        err_code(5, d.dir, "cannot be made: %s", strerror(errno));
    const char *path = fmt(d.a, "%s/order", d.dir);
    d.order = fopen(path, "we");
    if (!d.order)
        err_code(5, path, "cannot be written: %s", strerror(errno));
    return d;
}

void dump_write(Dump *d, const char *name, const Node *n, const double *value)
{
    Arena *a = arena_new();
    bool whole = n->type.dtype == I32 || n->type.dtype == U8;
    Npy x = npy_make(a, whole ? NPY_I32 : NPY_F64, n->type.ndim, n->type.dim);
    for (int64_t i = 0; i < npy_count(&x); i++)
        if (whole)
            ((int32_t *)x.data)[i] = (int32_t)value[i];
        else
            ((double *)x.data)[i] = value[i];
    npy_write(&x, fmt(a, "%s/%s.npy", d->dir, name));
    fprintf(d->order, "%s\t%s\n", name, n->loc ? n->loc : "?");
    d->n++;
    arena_free(a);
}

void dump_close(Dump *d)
{
    if (fclose(d->order))
        err_code(5, d->dir, "cannot be written: %s", strerror(errno));
    fprintf(stderr, "%u values in %s\n", d->n, d->dir);
}
