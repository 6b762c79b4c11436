/* data_pack.c -- a folder of files becomes archives.
 *
 * The order is that of the folder's reader, so both are the same data set:
 * class by class, then by name.  What depends on the machine is left out of
 * the heads (times, owners), and archives are cut by counts and sizes alone:
 * the same files give the same bytes.  Beside the files of a record there come
 * from elsewhere:
 *     txt  its line in captions.tsv, captions.jsonl or metadata.jsonl
 *     cls  the number of its class, where pictures lie in folders of classes
 * ustar of POSIX.1-1988; a name of more than 100 bytes is told before by a
 * member of type x, pax(1). */
#include "runtime/data_tar.h"
#include "runtime/disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, BUFFER = 1 << 16, SHORT = 100 };

typedef struct File { char *name; int64_t size; } File;

typedef struct Pack {
    const char *dir;
    const DpcPack *how;
    DpcPackTold *told;
    File *file;                           /* [n], in order */
    int64_t n, cap;
    char **caption;                       /* [n], by file; NULL: none */
    bool classes;
    DpcOut out;
    int64_t records;                      /* of the archive that is open */
    char path[DPC_PATH];                  /* its last name */
} Pack;

static DpcStatus no_memory(void)
{
    return dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

/* ---- files ---- */

static DpcStatus file_add(Pack *p, const char *name, int64_t size)
{
    if (p->n == p->cap) {
        int64_t cap = p->cap ? 2 * p->cap : 256;
        File *f = realloc(p->file, (size_t)cap * sizeof *f);
        if (!f)
            return no_memory();
        p->file = f, p->cap = cap;
    }
    if (!(p->file[p->n].name = strdup(name)))
        return no_memory();
    p->file[p->n++].size = size;
    return DPC_OK;
}

static DpcStatus files_walk(Pack *p)
{
    char *root[] = {(char *)p->dir, NULL}, field[64];
    FTS *t = fts_open(root, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    DpcStatus s = t ? DPC_OK : no_memory();
    for (FTSENT *e; !s && (e = fts_read(t)); ) {
        const char *name = e->fts_path + strlen(p->dir);
        name += strspn(name, "/");
        bool hidden = e->fts_level > 0 && e->fts_name[0] == '.';
        if (e->fts_info == FTS_D && hidden)
            fts_set(t, e, FTS_SKIP);
        else if (e->fts_info == FTS_F && !hidden &&
                 dpc_member_ext(name, field))
            s = file_add(p, name, e->fts_statp->st_size);
        else if (e->fts_errno)
            s = dpc_fail(DPC_USER, "%s: error: data: %s; give an existing "
                         "folder", e->fts_path, strerror(e->fts_errno));
    }
    if (t)
        fts_close(t);
    return s;
}

static int by_order(const void *a, const void *b)
{
    return dpc_folder_order(&((const File *)a)->name,
                            &((const File *)b)->name);
}

/* Captions are looked up by the names of pictures. */
static DpcStatus captions_take(Pack *p)
{
    char **name = malloc((size_t)p->n * sizeof *name), field[64];
    bool found;
    p->caption = calloc((size_t)p->n, sizeof *p->caption);
    if (!name || !p->caption) {
        free(name);
        return no_memory();
    }
    for (int64_t i = 0; i < p->n; i++) {
        name[i] = p->file[i].name;
        p->classes |= strchr(name[i], '/') && dpc_member_ext(name[i], field) &&
                      !strcmp(field, "image");
    }
    DpcStatus s = dpc_captions_read(p->dir, name, p->n, dpc_folder_order,
                                    p->caption, &found);
    free(name);
    return s;
}

/* ---- archives ---- */

static DpcStatus archive_end(Pack *p)
{
    static const char zero[2 * BLOCK];
    char temp[DPC_PATH];
    if (p->out.fd < 0)
        return DPC_OK;
    DpcStatus s = dpc_out_put(&p->out, zero, sizeof zero);
    p->told->bytes += p->out.bytes;
    snprintf(temp, sizeof temp, "%s", p->out.path);
    DpcStatus end = dpc_out_close(&p->out);
    s = s ? s : end;
    if (!s && rename(temp, p->path))
        s = dpc_fail(DPC_ENV, "%s: error: data: %s", p->path,
                     strerror(errno));
    if (s)
        unlink(temp);
    return s;
}

static DpcStatus archive_begin(Pack *p)
{
    char temp[DPC_PATH];
    DpcStatus s = dpc_path(p->path, "%s/%s%06" PRId64 ".tar", p->how->out,
                           p->how->prefix, p->told->archives++);
    s = s ? s : dpc_path(temp, "%s.tmp-new", p->path);
    p->records = 0;
    if (!s)
        unlink(temp);                     /* of a run that was broken */
    return s ? s : dpc_out_open(&p->out, temp);
}

static DpcStatus head_put(Pack *p, const char *name, int64_t size, char type)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;
    snprintf(h, SHORT, "%s", name);
    snprintf(h + 100, 8, "%07o", 0644);
    snprintf(h + 108, 8, "%07o", 0);
    snprintf(h + 116, 8, "%07o", 0);
    snprintf(h + 124, 12, "%011" PRIo64, (uint64_t)size);
    snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8);
    h[156] = type;
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++)
        sum += (uint8_t)h[i];
    snprintf(h + 148, 7, "%06o", sum);
    return dpc_out_put(&p->out, h, BLOCK);
}

static DpcStatus fill_put(Pack *p, int64_t size)
{
    static const char zero[BLOCK];
    return dpc_out_put(&p->out, zero, (size_t)(-size & (BLOCK - 1)));
}

/* "LENGTH path=NAME\n", where the length counts itself. */
static DpcStatus member_head(Pack *p, const char *name, int64_t size)
{
    char line[DPC_PATH + 32];
    int n = 0, was = -1;
    if (size > 0777777777777LL)
        return dpc_fail(DPC_USER, "%s/%s: error: data: %lld bytes; an archive "
                        "takes files to 8 GiB", p->dir, name,
                        (long long)size);
    if (strlen(name) < SHORT)
        return head_put(p, name, size, '0');
    while (n != was) {
        was = n;
        n = snprintf(line, sizeof line, "%d path=%s\n", was, name);
    }
    DpcStatus s = n < (int)sizeof line ? head_put(p, "pax", n, 'x')
                : dpc_fail(DPC_USER, "%s: error: data: the name is too long",
                           name);
    s = s ? s : dpc_out_put(&p->out, line, (size_t)n);
    s = s ? s : fill_put(p, n);
    return s ? s : head_put(p, name, size, '0');
}

static DpcStatus text_put(Pack *p, const char *key, int n, const char *ext,
                          const char *text)
{
    char name[DPC_PATH];
    int64_t size = (int64_t)strlen(text);
    DpcStatus s = dpc_path(name, "%.*s.%s", n, key, ext);
    s = s ? s : member_head(p, name, size);
    s = s ? s : dpc_out_put(&p->out, text, (size_t)size);
    return s ? s : fill_put(p, size);
}

static DpcStatus file_put(Pack *p, const File *f)
{
    char path[DPC_PATH], part[BUFFER];
    DpcStatus s = dpc_path(path, "%s/%s", p->dir, f->name);
    int fd = s ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return s ? s : dpc_fail(DPC_USER, "%s: error: data: %s", path,
                                strerror(errno));
    s = member_head(p, f->name, f->size);
    for (int64_t at = 0; !s && at < f->size; at += BUFFER) {
        int64_t n = f->size - at < BUFFER ? f->size - at : BUFFER;
        s = dpc_file_take(path, fd, at, n, part);
        s = s ? s : dpc_out_put(&p->out, part, (size_t)n);
    }
    close(fd);
    return s ? s : fill_put(p, f->size);
}

/* ---- records ---- */

static int key_length(const char *name)
{
    char field[64];
    return (int)(dpc_member_ext(name, field) - name) - 1;
}

/* The first file behind the record that begins at `from`. */
static int64_t record_end(const Pack *p, int64_t from)
{
    int64_t i = from + 1;
    int n = key_length(p->file[from].name);
    while (i < p->n && key_length(p->file[i].name) == n &&
           !strncmp(p->file[i].name, p->file[from].name, (size_t)n))
        i++;
    return i;
}

/* Which of a record's files make which fields; DPC_USER: two make one. */
static DpcStatus record_look(const Pack *p, int64_t from, int64_t end,
                             bool *text, bool *label, const char **caption)
{
    char a[64], b[64];
    *text = *label = false, *caption = NULL;
    for (int64_t i = from; i < end; i++) {
        const char *ext = dpc_member_ext(p->file[i].name, a);
        *text |= !strcmp(a, "caption") && strcmp(ext, "json");
        *label |= !strcmp(a, "label");
        *caption = p->caption[i] ? p->caption[i] : *caption;
        for (int64_t k = from; k < i; k++) {
            const char *other = dpc_member_ext(p->file[k].name, b);
            if (!strcmp(a, b) && !strcmp(ext, "json") == !strcmp(other, "json"))
                return dpc_fail(DPC_USER, "%s/%s: error: data: its record has "
                                "\"%s\" already from \"%s\"; take one away",
                                p->dir, p->file[i].name, a, p->file[k].name);
        }
    }
    if (*text && *caption)
        return dpc_fail(DPC_USER, "%s/%s: error: data: a .txt beside it, and a "
                        "line in the list of captions; take one away", p->dir,
                        p->file[from].name);
    return DPC_OK;
}

static DpcStatus record_put(Pack *p, int64_t from, int64_t end, int label)
{
    const char *caption, *name = p->file[from].name;
    char number[16];
    bool text, has;
    DpcStatus s = record_look(p, from, end, &text, &has, &caption);
    if (!s && p->out.fd >= 0 &&
        (p->records == p->how->records || p->out.bytes >= p->how->bytes))
        s = archive_end(p);
    if (!s && p->out.fd < 0)
        s = archive_begin(p);
    for (int64_t i = from; !s && i < end; i++)
        s = file_put(p, &p->file[i]);
    if (!s && caption)
        s = text_put(p, name, key_length(name), "txt", caption);
    snprintf(number, sizeof number, "%d", label);
    if (!s && p->classes && !has)
        s = text_put(p, name, key_length(name), "cls", number);
    p->records++;
    p->told->records++;
    return s;
}

static size_t class_of(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash ? (size_t)(slash - name) : 0;
}

static DpcStatus records_put(Pack *p)
{
    DpcStatus s = DPC_OK;
    int label = 0;
    for (int64_t i = 0, end; !s && i < p->n; i = end) {
        const char *name = p->file[i].name;
        const char *last = i ? p->file[i - 1].name : name;
        label += class_of(name) != class_of(last) ||
                 strncmp(name, last, class_of(name));
        end = record_end(p, i);
        s = record_put(p, i, end, label);
    }
    return s;
}

/* ---- the whole ---- */

/* The folder that takes the archives, made and without any. */
static DpcStatus out_check(const DpcPack *how)
{
    char **path = NULL;
    int n = 0;
    if (mkdir(how->out, 0777) && errno != EEXIST)
        return dpc_fail(DPC_ENV, "%s: error: data: %s", how->out,
                        strerror(errno));
    DpcStatus s = dpc_tars_find(how->out, &path, &n);
    if (!s && n)
        s = dpc_fail(DPC_USER, "%s: error: data: there are archives already, "
                     "\"%s\"; give another folder", how->out, path[0]);
    for (int i = 0; i < n; i++)
        free(path[i]);
    free(path);
    return s;
}

static void pack_free(Pack *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        free(p->file[i].name);
        if (p->caption)
            free(p->caption[i]);
    }
    free(p->file);
    free(p->caption);
    free(p->out.buf);
    dpc_hash_close(p->out.hash);
}

DpcStatus dpc_data_pack(const char *dir, const DpcPack *how, DpcPackTold *told)
{
    Pack p = {.dir = dir, .how = how, .told = told,
              .out = {.disk = &dpc_disk, .buf = malloc(BUFFER), .cap = BUFFER,
                      .hash = dpc_hash_open(), .fd = -1}};
    *told = (DpcPackTold){0};
    DpcStatus s = p.out.buf && p.out.hash ? files_walk(&p) : no_memory();
    if (!s && !p.n)
        s = dpc_fail(DPC_USER, "%s: error: data: 0 files of records; wanted "
                     "names like \"000.jpg\", \"000.latent.npy\"", dir);
    if (!s)
        qsort(p.file, (size_t)p.n, sizeof *p.file, by_order);
    s = s ? s : captions_take(&p);
    s = s ? s : out_check(how);
    s = s ? s : records_put(&p);
    if (s && p.out.fd >= 0) {
        dpc_out_close(&p.out);
        unlink(p.out.path);
    }
    s = s ? s : archive_end(&p);
    pack_free(&p);
    return s;
}
