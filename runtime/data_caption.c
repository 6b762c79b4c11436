/* data_caption.c -- the text of pictures, from a list or files beside them.
 *
 * captions.tsv:   NAME <tab> TEXT, a line a picture
 * captions.jsonl: {"file": NAME, "caption": TEXT}, or the "file_name" and
 *                 "text" of Hugging Face's metadata.jsonl
 * X.txt:          beside X.png and the like, where there is no list
 * NAME is relative to the folder.  A name that is not there is an error and
 * not a silence: it is nearly always a wrong folder.  A picture without a
 * line has the empty text. */
#include "runtime/data_reader.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Captions {
    const char *path;
    char *const *name;                    /* [n], sorted by `order` */
    int64_t n;
    DpcOrder *order;
    char **caption;                       /* [n] */
    long line;
} Captions;

static DpcStatus line_fail(const Captions *c, const char *what,
                           const char *arg, const char *todo)
{
    return dpc_fail(DPC_USER, "%s:%ld: error: captions: %s \"%.200s\"; %s",
                    c->path, c->line, what, arg, todo);
}

static DpcStatus caption_put(Captions *c, const char *name, const char *text)
{
    char *const *at = bsearch(&name, c->name, (size_t)c->n, sizeof *c->name,
                              c->order);
    if (!at)
        return line_fail(c, "no picture", name,
                         "take the line away or add the picture");
    char **to = &c->caption[at - c->name];
    if (*to)
        return line_fail(c, "a second text for", name,
                         "take one of the lines away");
    return (*to = strdup(text)) ? DPC_OK
           : dpc_fail(DPC_MEMORY, "data: error: out of memory");
}

static DpcStatus tsv_line(Captions *c, char *line)
{
    char *tab = strchr(line, '\t');
    if (!tab)
        return line_fail(c, "no tab in", line, "write NAME <tab> TEXT");
    *tab = '\0';
    return caption_put(c, line, tab + 1);
}

static const char *member(const json_t *o, const char *a, const char *b)
{
    const char *s = json_string_value(json_object_get(o, a));
    return s ? s : json_string_value(json_object_get(o, b));
}

static DpcStatus jsonl_line(Captions *c, char *line)
{
    json_error_t e;
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &e);
    if (!o)
        return line_fail(c, e.text, line, "write one JSON object a line");
    const char *name = member(o, "file", "file_name");
    const char *text = member(o, "caption", "text");
    DpcStatus s = name && text ? caption_put(c, name, text)
                : line_fail(c, "no string \"file\" and \"caption\" in", line,
                            "write {\"file\": NAME, \"caption\": TEXT}");
    json_decref(o);
    return s;
}

static DpcStatus captions_file(Captions *c, FILE *f,
                               DpcStatus (*put)(Captions *, char *))
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    DpcStatus s = DPC_OK;
    errno = 0;
    while (!s && (n = getline(&line, &cap, f)) >= 0) {
        c->line++;
        if (strlen(line) != (size_t)n)
            s = line_fail(c, "a zero byte behind", line, "write UTF-8 text");
        while (n && strchr("\r\n", line[n - 1]))
            line[--n] = '\0';
        if (!s && n)
            s = put(c, line);
    }
    if (!s && !feof(f))
        s = dpc_fail(DPC_ENV, "%s: error: captions: %s", c->path,
                     strerror(errno));
    free(line);
    return s;
}

DpcStatus dpc_captions_read(const char *dir, char *const *name, int64_t n,
                            DpcOrder *order, char **caption, bool *found)
{
    static const struct {
        const char *name;
        DpcStatus (*put)(Captions *, char *);
    } kind[] = {
        { "captions.tsv", tsv_line }, { "captions.jsonl", jsonl_line },
        { "metadata.jsonl", jsonl_line },
    };
    *found = false;
    DpcStatus s = DPC_OK;
    for (size_t i = 0; !s && !*found && i < sizeof kind / sizeof *kind; i++) {
        char *path = dpc_path_join(dir, kind[i].name);
        if (!path)
            return dpc_fail(DPC_MEMORY, "data: error: out of memory");
        FILE *f = fopen(path, "rbe");
        Captions c = { path, name, n, order, caption, 0 };
        if (!f && errno != ENOENT)
            s = dpc_fail(DPC_USER, "%s: error: captions: %s; look at its "
                         "permissions", path, strerror(errno));
        *found = !!f;
        if (f) {
            s = captions_file(&c, f, kind[i].put);
            fclose(f);
        }
        free(path);
    }
    return s;
}

/* The text of a file, without the ends of lines behind it; NULL: there is
 * none. */
static DpcStatus beside_read(const char *path, char **text)
{
    enum { MOST = 1 << 16 };
    FILE *f = fopen(path, "rbe");
    *text = NULL;
    if (!f)
        return errno == ENOENT ? DPC_OK
             : dpc_fail(DPC_USER, "%s: error: captions: %s; look at its "
                        "permissions", path, strerror(errno));
    char *s = malloc(MOST + 1);
    size_t n = s ? fread(s, 1, MOST, f) : 0;
    bool good = s && !ferror(f);
    fclose(f);
    if (!good) {
        free(s);
        return s ? dpc_fail(DPC_ENV, "%s: error: captions: cannot be read",
                            path)
                 : dpc_fail(DPC_MEMORY, "data: error: out of memory");
    }
    s[n] = '\0';
    for (n = strlen(s); n && strchr("\r\n", s[n - 1]); )
        s[--n] = '\0';
    *text = realloc(s, n + 1);
    return DPC_OK;
}

DpcStatus dpc_captions_beside(const char *dir, char *const *name, int64_t n,
                              char **caption, bool *found)
{
    DpcStatus s = DPC_OK;
    *found = false;
    for (int64_t i = 0; !s && i < n; i++) {
        char *path = dpc_path_join(dir, name[i]);
        char *dot = path ? strrchr(path, '.') : NULL;
        if (!dot || strlen(dot) < 4) {
            free(path);
            return dpc_fail(DPC_MEMORY, "data: error: out of memory");
        }
        memcpy(dot, ".txt", 5);
        s = beside_read(path, &caption[i]);
        *found |= caption[i] != NULL;
        free(path);
    }
    return s;
}
