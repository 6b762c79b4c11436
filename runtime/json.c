/* json.c -- a printer of JSON that needs no tree and no memory.
 *
 * One bit a level says whether a comma is due.  Reference: RFC 8259. */
#include "runtime/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(DpcJson *j, const void *s, size_t n)
{
    if (j->status == DPC_OK && n > 0)
        j->status = j->put(j->arg, s, n);
}

static void puts_(DpcJson *j, const char *s) { put(j, s, strlen(s)); }

static void line(DpcJson *j)
{
    static const char space[] = "\n                ";
    if (j->depth <= j->lines && j->lines > 0)
        put(j, space, 1 + (size_t)(j->depth < 16 ? j->depth : 16));
}

/* What stands before a value or a key at this place. */
static void lead(DpcJson *j)
{
    if (j->named) {
        j->named = false;
        return;
    }
    if (j->filled >> j->depth & 1)
        put(j, ",", 1);
    if (j->depth > 0)
        line(j);
    j->filled |= (uint64_t)1 << j->depth;
}

void dpc_json_init(DpcJson *j, DpcPut *f, void *arg, int lines)
{
    *j = (DpcJson){ .put = f, .arg = arg, .lines = lines };
}

void dpc_json_open(DpcJson *j, char bracket)
{
    lead(j);
    put(j, &bracket, 1);
    if (j->depth == DPC_JSON_DEPTH) {
        j->status = dpc_fail(DPC_BUG, "json: error: nested too deeply");
        return;
    }
    j->depth++;
    j->filled &= ~((uint64_t)1 << j->depth);
}

void dpc_json_close(DpcJson *j, char bracket)
{
    bool any = j->filled >> j->depth & 1;
    bool own = j->depth <= j->lines;
    if (j->depth > 0)
        j->depth--;
    if (any && own)
        line(j);
    put(j, &bracket, 1);
}

void dpc_json_newline(DpcJson *j)
{
    put(j, "\n", 1);
    if (j->depth == 0)
        j->filled = 0;
}

/* Bytes of the UTF-8 letter at s; 0: not one. */
static size_t letter(const unsigned char *s)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 :
               s[0] >> 3 == 30 ? 4 : 0;
    if (n <= 1)
        return n;
    uint32_t c = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    bool bad = c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000);
    return bad ? 0 : n;
}

static void quoted(DpcJson *j, const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    put(j, "\"", 1);
    while (*p) {
        const unsigned char *from = p;
        size_t n;
        while (*p >= 0x20 && *p != '"' && *p != '\\' && (n = letter(p)) > 0)
            p += n;
        put(j, from, (size_t)(p - from));
        if (!*p)
            break;
        char text[8];
        if (*p == '"' || *p == '\\')
            snprintf(text, sizeof text, "\\%c", *p);
        else if (*p == '\n')
            snprintf(text, sizeof text, "\\n");
        else
            snprintf(text, sizeof text, "\\u%04x", *p < 0x20 ? *p : 0xfffdu);
        puts_(j, text);
        p++;
    }
    put(j, "\"", 1);
}

void dpc_json_key(DpcJson *j, const char *s)
{
    lead(j);
    quoted(j, s);
    puts_(j, j->lines ? ": " : ":");
    j->named = true;
}

void dpc_json_str(DpcJson *j, const char *s)
{
    lead(j);
    if (s)
        quoted(j, s);
    else
        puts_(j, "null");
}

void dpc_json_int(DpcJson *j, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    lead(j);
    puts_(j, text);
}

void dpc_json_pair(DpcJson *j, const char *key, const char *value)
{
    dpc_json_key(j, key);
    dpc_json_str(j, value);
}

void dpc_json_count(DpcJson *j, const char *key, int64_t value)
{
    dpc_json_key(j, key);
    dpc_json_int(j, value);
}

void dpc_json_num(DpcJson *j, double v)
{
    char text[32] = "null";
    for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    for (char *p = text; *p; p++)         /* some locales write 0,5 */
        if (*p == ',')
            *p = '.';
    lead(j);
    puts_(j, text);
}

void dpc_json_bool(DpcJson *j, bool v)
{
    lead(j);
    puts_(j, v ? "true" : "false");
}

DpcStatus dpc_json_file(void *arg, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, arg) == n)
        return DPC_OK;
    return dpc_fail(DPC_ENV, "json: error: cannot write: %s", strerror(errno));
}

DpcStatus dpc_json_text(void *arg, const void *bytes, size_t n)
{
    DpcJsonText *t = arg;
    if (n >= t->cap - t->n)
        return dpc_fail(DPC_USER, "json: error: text needs more than the %zu "
                        "bytes it may have", t->cap);
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
    return DPC_OK;
}
