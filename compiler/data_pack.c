/* data_pack.c -- dpc data pack and index: archives, and where their records
 * lie. */
#include "compiler/data.h"

enum { RECORDS = 10000, MIB = 1 << 20, ARCHIVE = 1024 };

static int index_make(const Options *o, const char *spec)
{
    DpcData *d;
    const char *path;
    const char *fresh = fmt(o->arena, "%s%sindex=no", spec,
                            strchr(spec, '?') ? "&" : "?");
    DpcStatus s = dpc_data_open(fresh, DPC_DATA_ALL, &d);
    s = s ? s : dpc_data_index_write(d, &path);
    if (s)
        runtime_fail(s);
    if (o->json) {
        printf("{\"records\":%lld,\"index\":", (long long)dpc_data_count(d));
        json_quote(stdout, path);
        printf("}\n");
    } else {
        printf("%lld records in %s\n", (long long)dpc_data_count(d), path);
    }
    dpc_data_close(d);
    return 0;
}

int data_index(const Options *o)
{
    return index_make(o, o->file[1]);
}

int data_pack(const Options *o)
{
    DpcPackTold told;
    DpcPack how = { .out = o->output, .prefix = "",
                    .records = o->records > 0 ? o->records : RECORDS,
                    .bytes = (o->size > 0 ? o->size : ARCHIVE) * MIB };
    if (!o->output)
        usage("data pack: give --output DIR, a folder for the archives");
    DpcStatus s = dpc_data_pack(o->file[1], &how, &told);
    if (s)
        runtime_fail(s);
    if (!o->json)
        printf("%lld records in %lld archives, %.1f MiB\n",
               (long long)told.records, (long long)told.archives,
               (double)told.bytes / MIB);
    return index_make(o, o->output);
}
