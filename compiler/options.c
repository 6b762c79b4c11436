/* options.c -- the command line, read by the table in options.def. */
#include "compiler/options.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define ON(command) (1u << CMD_##command)
#define READS (ON(compile) | ON(plan) | ON(sim) | ON(verify) | ON(print) \
             | ON(eval))
#define PLAN (READS | ON(opt))
#define MODEL (READS | ON(weights) | ON(check))
#define ALL ((1u << NCOMMAND) - 1)

static const OptionInfo table[] = {
#define OPTION(field, name, letter, kind, arg, on, doc) \
    { name, letter, OPT_##kind, arg, doc, on, offsetof(Options, field) },
#include "compiler/options.def"
};

const CommandInfo commands[NCOMMAND] = {
#define COMMAND(name, args, least, most, doc) \
    { #name, args, least, most, doc, cmd_##name },
#include "compiler/options.def"
};

_Noreturn void usage(const char *f, ...)
{
    va_list ap;
    va_start(ap, f);
    fputs("dpc: error: ", stderr);
    vfprintf(stderr, f, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

const OptionInfo *options_table(int *n)
{
    *n = COUNT(table);
    return table;
}

/* ---- names ---- */

static const char *near_option(const Options *o, const char *name)
{
    const char *have[COUNT(table)];
    int n = 0;
    for (int i = 0; i < COUNT(table); i++)
        if (table[i].commands & (1u << o->command))
            have[n++] = table[i].name;
    return near_name(name, have, n);
}

static const OptionInfo *option_long(const Options *o, const char *s, int n)
{
    for (int i = 0; i < COUNT(table); i++)
        if ((int)strlen(table[i].name) == n &&
            strncmp(table[i].name, s, (size_t)n) == 0 &&
            (table[i].commands & (1u << o->command)))
            return &table[i];
    const char *name = fmt(o->arena, "%.*s", n, s);
    const char *near = near_option(o, name), *c = commands[o->command].name;
    usage("%s: no option --%s%s%s%s; see dpc help %s", c, name,
          near ? "; did you mean --" : "", near ? near : "",
          near ? "?" : "", c);
}

static const OptionInfo *option_letter(const Options *o, char c)
{
    for (int i = 0; i < COUNT(table); i++)
        if (table[i].letter == c && (table[i].commands & (1u << o->command)))
            return &table[i];
    usage("%s: no option -%c; see dpc help %s", commands[o->command].name, c,
          commands[o->command].name);
}

static CommandId command_find(const char *s)
{
    const char *have[NCOMMAND];
    for (CommandId c = 0; c < NCOMMAND; c++) {
        have[c] = commands[c].name;
        if (strcmp(s, have[c]) == 0)
            return c;
    }
    usage("no command \"%s\"%s; see dpc help", s,
          near_hint(s, have, NCOMMAND));
}

/* ---- values ---- */

static void choice_check(const Options *o, const OptionInfo *p, const char *s)
{
    const char *have[8];
    int n = 0;
    if (!strchr(p->arg, '|') || isupper((unsigned char)p->arg[0]))
        return;
    for (const char *q = p->arg; n < 8; q += strcspn(q, "|") + 1) {
        have[n] = fmt(o->arena, "%.*s", (int)strcspn(q, "|"), q);
        if (strcmp(have[n++], s) == 0)
            return;
        if (!q[strcspn(q, "|")])
            break;
    }
    usage("--%s: \"%s\" is not one of %s%s", p->name, s, p->arg,
          near_hint(s, have, n));
}

static double number(const OptionInfo *p, const char *s)
{
    char *end;
    double least = p->kind == OPT_COUNT;
    errno = 0;
    double x = strtod(s, &end);
    if (end == s || *end || errno || !(x >= least && x <= 1e15) ||
        (p->kind != OPT_REAL && x != (double)(int64_t)x))
        usage("%s%.1s%s: \"%s\" is no %snumber from %g",
              *p->name ? "--" : "-", *p->name ? "" : &p->letter, p->name, s,
              p->kind == OPT_REAL ? "" : "whole ", least);
    return x;
}

static void put(Options *o, const OptionInfo *p, const char *s)
{
    void *at = (char *)o + p->at;
    List *list = at;
    switch (p->kind) {
    case OPT_FLAG: *(bool *)at = true; break;
    case OPT_COUNT:
    case OPT_INT:  *(int64_t *)at = (int64_t)number(p, s); break;
    case OPT_REAL: *(double *)at = number(p, s); break;
    case OPT_TEXT:
        choice_check(o, p, s);
        *(const char **)at = s;
        break;
    case OPT_MAYBE: *(const char **)at = s ? s : ""; break;
    case OPT_LIST:
        if (list->n == NLIST)
            usage("--%s: more than %d times", p->name, NLIST);
        list->at[list->n++] = s;
        break;
    }
}

/* ---- the line ---- */

/* --name, --name=value, --name value; returns arguments taken. */
static int take_long(Options *o, char **arg)
{
    const char *s = arg[0] + 2, *is = strchr(s, '=');
    const OptionInfo *p = option_long(o, s, (int)strcspn(s, "="));
    if (p->kind == OPT_FLAG && is)
        usage("--%s takes no value", p->name);
    if (p->kind == OPT_FLAG || p->kind == OPT_MAYBE || is) {
        put(o, p, is ? is + 1 : NULL);
        return 1;
    }
    if (!arg[1])
        usage("--%s wants %s", p->name, p->arg);
    put(o, p, arg[1]);
    return 2;
}

/* -v, -o FILE, -oFILE, -Dk=v */
static int take_letters(Options *o, char **arg)
{
    for (const char *s = arg[0] + 1; *s; s++) {
        const OptionInfo *p = option_letter(o, *s);
        if (p->kind == OPT_FLAG) {
            put(o, p, NULL);
            continue;
        }
        if (!s[1] && !arg[1])
            usage("-%c wants %s", *s, p->arg);
        put(o, p, s[1] ? s + 1 : arg[1]);
        return s[1] ? 1 : 2;
    }
    return 1;
}

static void files_check(const Options *o)
{
    const CommandInfo *c = &commands[o->command];
    if (o->help)
        return;
    if (o->nfile < c->least)
        usage("%s: %s is wanted; see dpc help %s", c->name, c->args, c->name);
    if (c->most >= 0 && o->nfile > c->most)
        usage("%s: \"%s\" is one argument too many", c->name,
              o->file[c->most]);
}

void options_parse(Options *o, int argc, char **argv)
{
    bool plain = false;
    if (argc < 2) {
        help_all(stdout);
        exit(0);
    }
    const char *first = argv[1];
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        first = "help";
    else if (strcmp(first, "--version") == 0)
        first = "version";
    o->command = command_find(first);
    bool rest = strstr(commands[o->command].args, "...") != NULL;
    const char **file = alloc(o->arena, (size_t)(argc + 1) * sizeof *file);
    o->file = file;
    for (int i = 2; i < argc;) {
        const char *s = argv[i];
        if (plain || s[0] != '-' || !s[1]) {
            file[o->nfile++] = s, i++;
            plain |= rest;
        } else if (strcmp(s, "--") == 0)
            plain = true, i++;
        else
            i += s[1] == '-' ? take_long(o, argv + i)
                             : take_letters(o, argv + i);
    }
    files_check(o);
}
