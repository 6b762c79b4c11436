/* text_token.c -- the words of a graph's text, and what is wrong with them. */
#include "ir/text_parse.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

char *token_loc(Parser *p)
{
    return fmt(p->arena, "%s:%d", p->file, p->line);
}

bool token_end(Parser *p)
{
    while (*p->s == ' ' || *p->s == '\t' || *p->s == '\r')
        p->s++;
    if (*p->s == '#')
        p->s += strcspn(p->s, "\n");
    return *p->s == '\n' || !*p->s;
}

_Noreturn void token_expected(Parser *p, const char *want)
{
    if (token_end(p))
        token_err(p, "expected %s, found the end of the line", want);
    int n = 1;
    while (n < 40 && name_char(p->s[n - 1]) && name_char(p->s[n]))
        n++;
    token_err(p, "expected %s, found \"%.*s\"", want, n, p->s);
}

bool token_eat(Parser *p, char c)
{
    if (token_end(p) || *p->s != c)
        return false;
    p->s++;
    return true;
}

void token_need(Parser *p, char c, const char *want)
{
    if (!token_eat(p, c))
        token_expected(p, want);
}

char *token_copy(Parser *p, const char *s, size_t n)
{
    char *t = alloc(p->arena, n + 1);
    memcpy(t, s, n);
    return t;
}

static char escape(Parser *p)
{
    char hex[3] = { 0 }, c = *p->s;
    if (c == 'n' || c == '"' || c == '\\') {
        p->s++;
        return c == 'n' ? '\n' : c;
    }
    if (c != 'x' || !isxdigit((unsigned char)p->s[1])
        || !isxdigit((unsigned char)p->s[2]) || !memcmp(p->s + 1, "00", 2))
        token_expected(p, "n, x01 to xff, a quote or a backslash after \"\\\"");
    memcpy(hex, p->s + 1, 2);
    p->s += 3;
    return (char)strtol(hex, NULL, 16);
}

char *token_quoted(Parser *p)
{
    char *t = token_copy(p, p->s, strcspn(p->s, "\n"));   /* never longer */
    size_t n = 0;
    for (p->s++; *p->s != '"'; ) {
        if (!*p->s || *p->s == '\n')
            token_err(p, "expected a closing quote, found the end of the line");
        t[n] = *p->s++;
        if (t[n] == '\\')
            t[n] = escape(p);
        n++;
    }
    p->s++;
    t[n] = 0;
    return t;
}

static char *bare_or_quoted(Parser *p, const char *want, bool colon)
{
    if (!token_end(p) && *p->s == '"')
        return token_quoted(p);
    const char *start = p->s;
    while (name_char(*p->s) || (colon && *p->s == ':'))
        p->s++;
    if (p->s == start)
        token_expected(p, want);
    return token_copy(p, start, (size_t)(p->s - start));
}

char *token_word(Parser *p, const char *want)
{
    return bare_or_quoted(p, want, false);
}

char *token_value(Parser *p, const char *want)
{
    return bare_or_quoted(p, want, true);
}

bool token_key(Parser *p)
{
    const char *s = p->s;
    while (name_char(*s))
        s++;
    return s > p->s && *s == '=';
}

const char *token_next_key(Parser *p)
{
    const char *key = token_word(p, "key=value");
    token_need(p, '=', "\"=\" and a value");
    return key;
}

int64_t token_int(Parser *p, int64_t min, int64_t max)
{
    char *end = (char *)p->s;
    errno = 0;
    long long v = token_end(p) ? 0 : strtoll(p->s, &end, 10);
    if (token_end(p) || end == p->s)
        token_expected(p, "a number");
    if (errno || v < min || v > max)
        token_err(p, "\"%.*s\" is not from %lld to %lld", (int)(end - p->s),
            p->s, (long long)min, (long long)max);
    p->s = end;
    return v;
}

double token_real(Parser *p)
{
    char *end = (char *)p->s;
    double v = token_end(p) ? 0 : strtod(p->s, &end);
    if (token_end(p) || end == p->s)
        token_expected(p, "a number");
    p->s = end;
    return v;
}

int token_choice(Parser *p, const char *what, const char *const *list, int n)
{
    const char *s = token_word(p, what);
    Str all = { .arena = p->arena };
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i], s) == 0)
            return i;
        str_add(&all, "%s%s", all.n ? ", " : "", list[i]);
    }
    token_err(p, "unknown %s \"%s\"; there are: %s", what, s, all.p);
}

Ref token_node(Parser *p)
{
    const char *name = token_word(p, "the name of a node");
    Ref r = names_find(&p->names, p->g, name);
    if (r == NONE)
        token_err(p, "unknown node \"%s\"; a node stands before its readers",
            name);
    return r;
}
