/* source_folder.c -- a folder of .safetensors files, as Hugging Face has it.
 *
 * Beside shards stands NAME.safetensors.index.json: {"metadata":
 * {"total_size": bytes}, "weight_map": {tensor: file}}.  It decides which
 * files are read, and is then held to its word: files lie in this folder and
 * nowhere else, each tensor is in the file that it says, no file holds
 * another, and the bytes add up.  A folder in which downloads were mixed, or
 * one ended early, is so refused before a single weight is taken. */
#include "runtime/source_own.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARD ".safetensors"
#define INDEX ".safetensors.index.json"

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

bool source_is_index(const char *path)
{
    return ends(path, INDEX);
}

static int is_shard(const struct dirent *e) { return ends(e->d_name, SHARD); }
static int is_index(const struct dirent *e) { return ends(e->d_name, INDEX); }

static void entries_free(struct dirent **e, int n)
{
    for (int i = 0; i < n; i++)
        free(e[i]);
    free(e);
}

/* ---- without an index ---- */

/* "model-00002-of-00005.safetensors": 5, with "model-" and ".safetensors" cut
 * off; 0 for other names. */
static int shards_of(const char *name, int *prefix)
{
    size_t n = strlen(name) - strlen(SHARD);
    int of = 0, at = -1;
    char dash[8] = "";
    if (n <= 15 || sscanf(name + n - 15, "-%5d%4[-of]%5d", &at, dash, &of) != 3
        || strcmp(dash, "-of-"))
        return 0;
    *prefix = (int)n - 15;
    return of;
}

/* Shards number themselves, so one that is absent has a name.  before: the
 * shard that was checked before; NULL: none. */
static DpcStatus shards_check(DpcSource *s, const char *name,
                              const char *before)
{
    int prefix = 0, other = 0, of = shards_of(name, &prefix);
    if (before && of == shards_of(before, &other) && prefix == other &&
        !strncmp(name, before, (size_t)prefix))
        return DPC_OK;
    for (int i = 1; i <= of; i++) {
        DpcStatus r = dpc_path(s->file_path, "%s/%.*s-%05d-of-%05d" SHARD,
                               s->path, prefix, name, i, of);
        if (r != DPC_OK)
            return r;
        if (access(s->file_path, F_OK))
            return dpc_fail(DPC_USER, "%s: error: shard %d of %d is missing, "
                            "%s is there; fetch it", s->file_path, i, of,
                            name);
    }
    return DPC_OK;
}

/* Every shard of the folder; no name may come twice. */
static DpcStatus shards_read(DpcSource *s)
{
    struct dirent **e = NULL;
    int n = scandir(s->path, &e, is_shard, alphasort);
    DpcStatus r = n < 0 ? dpc_fail(DPC_ENV, "%s: error: %s", s->path,
                                   strerror(errno)) : DPC_OK;
    if (n == 0)
        r = bad("holds neither %s nor a .safetensors file", DPC_CKPT_INDEX);
    for (int i = 0; r == DPC_OK && i < n; i++) {
        r = shards_check(s, e[i]->d_name, i ? e[i - 1]->d_name : NULL);
        if (r == DPC_OK)
            r = source_file_add(s, e[i]->d_name, NULL, 0);
        if (r == DPC_OK)
            r = source_plain_add(s, s->nfile - 1);
    }
    entries_free(e, n);
    return r;
}

/* ---- with one ---- */

static int64_t file_number(const DpcSource *s, const char *name)
{
    for (uint32_t i = 0; i < s->nfile; i++)
        if (!strcmp(s->file[i].name, name))
            return i;
    return -1;
}

/* A name in this very folder: no path leads out of it. */
static DpcStatus shard_add(DpcSource *s, const char *index, const char *tensor,
                           const json_t *v)
{
    const char *file = json_string_value(v);
    if (!file)
        return bad("%s: \"%s\": the name of a file is wanted", index, tensor);
    if (!*file || strchr(file, '/') || !strcmp(file, ".") ||
        !strcmp(file, ".."))
        return bad("%s: \"%s\" is in \"%s\"; a file of this folder is wanted",
                   index, tensor, file);
    if (file_number(s, file) >= 0)
        return DPC_OK;
    DpcStatus r = dpc_path(s->file_path, "%s/%s", s->path, file);
    if (r == DPC_OK && access(s->file_path, F_OK))
        return dpc_fail(DPC_USER, "%s: error: %s names this file, for \"%s\" "
                        "and others; it is not there", s->file_path, index,
                        tensor);
    return r == DPC_OK ? source_file_add(s, file, NULL, 0) : r;
}

static DpcStatus map_read(DpcSource *s, const char *index, const json_t *map)
{
    const char *tensor;
    json_t *v;
    DpcStatus r = DPC_OK;
    if (!json_is_object(map) || !json_object_size(map))
        return bad("%s: no \"weight_map\" of tensors to files", index);
    json_object_foreach((json_t *)map, tensor, v) {
        r = shard_add(s, index, tensor, v);
        if (r != DPC_OK)
            return r;
    }
    for (uint32_t i = 0; r == DPC_OK && i < s->nfile; i++)
        r = source_plain_add(s, i);
    return r;
}

/* Every tensor of a file is the index's, and the other way round. */
static DpcStatus map_check(DpcSource *s, const char *index, const json_t *map)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const DpcWhole *w = &s->whole[i];
        const char *file = s->file[s->piece[w->piece].file].name;
        const char *said = json_string_value(json_object_get(map, w->name));
        if (!said)
            return bad("%s: \"%s\" in %s is not in the index", index, w->name,
                       file);
        if (strcmp(said, file))
            return bad("%s: \"%s\" is in %s, the index says %s", index,
                       w->name, file, said);
    }
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)map, tensor, v)
        if (!dpc_source_find(s, tensor))
            return bad("%s: \"%s\" is not in %s", index, tensor,
                       json_string_value(v));
    return DPC_OK;
}

static DpcStatus total_check(DpcSource *s, const char *index, const json_t *v)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t bytes = dpc_safe_bytes((DpcSafeKind)s->whole[i].kind,
                                       s->whole[i].ndim, s->whole[i].dim);
        sum += bytes;                     /* of files that are there: no more
                                             than a disk holds */
    }
    if (!v || json_is_null(v) || json_number_value(v) == (double)sum)
        return DPC_OK;
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    DpcStatus r = bad("%s: total_size is %s, its tensors are %" PRId64
                      " bytes; are the shards of one download?", index,
                      text ? text : "?", sum);
    free(text);
    return r;
}

static DpcStatus index_apply(DpcSource *s, const char *index)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t e;
    DpcStatus r = dpc_path(s->file_path, "%s/%s", s->path, index);
    if (r == DPC_OK)
        r = source_text(s, s->file_path, index, &text, &n);
    if (r != DPC_OK)
        return r;
    json_t *doc = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    if (!doc)
        return bad("%s:%d: %s", index, e.line, e.text);
    const json_t *map = json_object_get(doc, "weight_map");
    r = map_read(s, index, map);
    if (r == DPC_OK)
        r = source_sort(s);
    if (r == DPC_OK)
        r = map_check(s, index, map);
    if (r == DPC_OK)
        r = total_check(s, index, json_object_get(
            json_object_get(doc, "metadata"), "total_size"));
    json_decref(doc);
    return r;
}

DpcStatus source_folder_read(DpcSource *s, const char *index)
{
    struct dirent **e = NULL;
    if (index)
        return index_apply(s, index);
    int n = scandir(s->path, &e, is_index, alphasort);
    DpcStatus r = n > 1 ? bad("holds %s and %s; give one of them as the path",
                              e[0]->d_name, e[1]->d_name)
                : n == 1 ? index_apply(s, e[0]->d_name) : shards_read(s);
    entries_free(e, n);
    return r;
}
