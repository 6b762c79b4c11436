/* data_option.c -- what stands behind the '?' of a spec.
 *
 *     size=HxW, size=N   pictures become of that size
 *     text=N             bytes of a text; longer ones are cut
 *     pad=NAME:N         records of NAME have up to N rows
 *     rows=NAME:DIR      NAME is a row of the .npy files in DIR
 *     digits=N           of a key, that count its row there
 *     index=no           archives are listed anew */
#include "runtime/data_reader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 1 << 14, TEXT_MAX = 1 << 16, ROWS_MAX = 1 << 24 };

static bool number(const char **p, int64_t max, int64_t *to)
{
    char *end;
    errno = 0;
    long long v = strtoll(*p, &end, 10);
    if (end == *p || errno || v < 1 || v > max)
        return false;
    *p = end;
    *to = v;
    return true;
}

static bool is(const char **p, const char *word)
{
    size_t n = strlen(word);
    bool yes = !strncmp(*p, word, n);
    *p += yes ? n : 0;
    return yes;
}

static bool size_read(const char **p, DpcDataOptions *o)
{
    bool ok = number(p, SIDE_MAX, &o->h);
    o->w = o->h;
    return ok && (**p != 'x' || (++*p, number(p, SIDE_MAX, &o->w)));
}

/* "NAME:" into a place of its own. */
static bool name_read(const char **p, char *to, size_t size)
{
    size_t n = strcspn(*p, ":&");
    if (!n || n >= size || (*p)[n] != ':')
        return false;
    memcpy(to, *p, n);
    to[n] = '\0';
    *p += n + 1;
    return true;
}

static bool pad_read(const char **p, DpcDataOptions *o)
{
    return o->npad < DPC_NFIELD &&
           name_read(p, o->pad[o->npad].name, sizeof o->pad->name) &&
           number(p, ROWS_MAX, &o->pad[o->npad++].rows);
}

static bool rows_read(const char **p, DpcDataOptions *o)
{
    if (o->nrows == DPC_NFIELD ||
        !name_read(p, o->rows[o->nrows].name, sizeof o->rows->name))
        return false;
    struct DpcDataRows *r = &o->rows[o->nrows++];
    size_t n = strcspn(*p, "&");
    if (!n || n >= sizeof r->dir)
        return false;
    memcpy(r->dir, *p, n);
    r->dir[n] = '\0';
    *p += n;
    return true;
}

DpcStatus dpc_data_options(const char *what, const char *p, DpcDataOptions *o)
{
    const char *all = p;
    bool ok = true;
    *o = (DpcDataOptions){.digits = 4};
    while (p && ok && *p) {
        ok = is(&p, "size=")   ? size_read(&p, o)
           : is(&p, "text=")   ? number(&p, TEXT_MAX, &o->text)
           : is(&p, "pad=")    ? pad_read(&p, o)
           : is(&p, "rows=")   ? rows_read(&p, o)
           : is(&p, "index=no") ? (o->no_index = true)
           : is(&p, "digits=") ? number(&p, 18, &o->digits) : false;
        ok = ok && (!*p || *p == '&');
        p += *p == '&';
    }
    return ok ? DPC_OK
         : dpc_fail(DPC_USER, "%s: error: data: option \"%s\" is not known; "
                    "wanted size=HxW (to %d), text=BYTES (to %d), "
                    "pad=NAME:ROWS, rows=NAME:DIR, digits=N, index=no, "
                    "joined by &", what, all, SIDE_MAX, TEXT_MAX);
}
