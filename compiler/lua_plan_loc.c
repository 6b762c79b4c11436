/* lua_plan_loc.c -- the line of a plan file that an error is about.
 *
 * A table keeps no lines, so it is the one where what the message names
 * stands: after the word of the plan that it begins with, the first quoted
 * name that the file has; else that word.  Of a partitioner, which may have
 * made the table anyhow, it is the option that says that word, or else the
 * line of its function. */
#include "compiler/lua_plan.h"
#include <ctype.h>
#include <stdarg.h>

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* Is the place in a comment of a line of its own? */
static bool is_comment(const char *text, const char *at)
{
    while (at > text && at[-1] != '\n')
        at--;
    at += strspn(at, " \t");
    return at[0] == '-' && at[1] == '-';
}

/* A name of n letters, whole, from p on; NULL. */
static const char *name_find(const char *text, const char *p,
                             const char *name, size_t n)
{
    for (; n && *p; p++)
        if (strncmp(p, name, n) == 0 && (p == text || !in_name(p[-1]))
            && !in_name(p[n]) && !is_comment(text, p))
            return p;
    return NULL;
}

/* Where the plan's word is given a value; the first that the message has. */
static const char *word_find(const char *text, const char *message)
{
    const char *at = NULL;
    size_t first = SIZE_MAX;
    for (int i = 0; i < NPLAN_WORD; i++) {
        size_t n = strlen(plan_words[i]);
        const char *m = name_find(message, message, plan_words[i], n), *q = text;
        if (!m || (size_t)(m - message) >= first)
            continue;
        while ((q = name_find(text, q, plan_words[i], n))
               && q[n + strspn(q + n, " ")] != '=')
            q += n;
        if (q)
            at = q, first = (size_t)(m - message);
    }
    return at;
}

/* -P compress=int9, where the message is about that word; NULL. */
static const char *option_of(lua_State *L, const Planning *p,
                             const char *message)
{
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz");
    for (int i = 0; i < p->o->ndefine && n; i++)
        if (strncmp(p->o->define[i], message, n) == 0
            && p->o->define[i][n] == '=')
            return fmt(front_of(L)->a, "-P %s", p->o->define[i]);
    return NULL;
}

const char *plan_loc(lua_State *L, const Planning *p, const char *message)
{
    if (!p->text) {
        const char *option = option_of(L, p, message);
        return option ? option : p->loc;
    }
    const char *word = word_find(p->text, message), *at = NULL;
    for (const char *q = strchr(message, '"'); q && !at;) {
        size_t n = strcspn(q + 1, "\"");
        at = name_find(p->text, word ? word : p->text, q + 1, n);
        q = q[n + 1] ? strchr(q + n + 2, '"') : NULL;
    }
    at = at ? at : word;
    int line = 1;
    for (const char *q = p->text; at && q < at; q++)
        line += *q == '\n';
    return at ? fmt(front_of(L)->a, "%s:%d", p->loc, line) : p->loc;
}

_Noreturn void plan_fail(lua_State *L, const Planning *p, const char *f, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, f);
    vsnprintf(text, sizeof text, f, ap);
    va_end(ap);
    if (p->about)
        note(p->about->loc, "\"%s\" is made here, with %d dimension%s",
             p->about->name, p->about->type.ndim,
             p->about->type.ndim == 1 ? "" : "s");
    fail_at(L, plan_loc(L, p, text), "%s", text);
}
