/* source_own.h -- what the files source*.c share, and nobody else. */
#ifndef DPC_SOURCE_OWN_H
#define DPC_SOURCE_OWN_H

#include "runtime/source.h"

#define bad(f, ...) dpc_fail(DPC_USER, "%s: error: " f, s->path, __VA_ARGS__)
#define no_memory() dpc_fail(DPC_MEMORY, "%s: error: out of memory", s->path)

/* source.c */
DpcStatus source_file_add(DpcSource *, const char *name, const char *hash,
                          int64_t bytes);
/* Opens file i where it is not; others may be closed for it. */
DpcStatus source_file_open(DpcSource *, uint32_t i);
/* Is the last file there, and as large as was noted? */
DpcStatus source_file_check(DpcSource *, const DpcSourceFile *);
/* All tensors of file i as whole ones. */
DpcStatus source_plain_add(DpcSource *, uint32_t i);
/* All of a text file of at most 1 GiB, with a NUL; `what` names it. */
DpcStatus source_text(DpcSource *, const char *path, const char *what,
                      char **text, size_t *n);
/* A copy that lives as long as the source; NULL: no memory. */
const char *source_keep(DpcSource *, const char *name);
/* Tensors in the order of their names; DPC_USER where two have the same. */
DpcStatus source_sort(DpcSource *);

/* source_index.c: what dpc.json, at s->file_path, says. */
DpcStatus source_index_read(DpcSource *);

/* source_folder.c: the .safetensors files of a folder; `index`: by that file
 * in it, NULL: by the one that is there, or all of them. */
DpcStatus source_folder_read(DpcSource *, const char *index);
bool source_is_index(const char *path);   /* by its name */

#endif
