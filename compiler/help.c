/* help.c -- --help, the man page and completion, from the option table. */
#include "compiler/options.h"

static void option_head(const OptionInfo *p, char *out, size_t size)
{
    const char *name = p->name, *arg = p->kind == OPT_FLAG ? "" : p->arg;
    if (!*name)
        snprintf(out, size, "-%c %s", p->letter, arg);
    else if (p->kind == OPT_MAYBE)
        snprintf(out, size, "    --%s[=%s]", name, arg);
    else
        snprintf(out, size, "%s%c%s--%s%s%s", p->letter ? "-" : "  ",
                 p->letter ? p->letter : ' ', p->letter ? ", " : " ", name,
                 *arg ? " " : "", arg);
}

void help_command(CommandId c, FILE *out)
{
    int n;
    const OptionInfo *p = options_table(&n);
    fprintf(out, "usage: dpc %s [options] %s\n\n%s\n\n", commands[c].name,
            commands[c].args, commands[c].doc);
    for (int i = 0; i < n; i++) {
        char head[80];
        if (!(p[i].commands & (1u << c)))
            continue;
        option_head(&p[i], head, sizeof head);
        fprintf(out, "  %-28s %s\n", head, p[i].doc);
    }
}

void help_all(FILE *out)
{
    fprintf(out, "dpc " DPC_VERSION " - ahead-of-time compiler for multi-GPU "
            "training\n\nusage: dpc COMMAND [options] FILE...\n\n");
    for (int i = 0; i < NCOMMAND; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].doc);
    fprintf(out, "\nstart with: dpc doctor, dpc demo; then dpc help COMMAND\n");
}

/* ---- man page, in mdoc ---- */

static void man_text(FILE *out, const char *s)
{
    for (; *s; s++)
        fprintf(out, *s == '-' ? "\\-" : *s == '\\' ? "\\e" : "%c", *s);
}

static void man_option(const OptionInfo *p, FILE *out)
{
    char head[80];
    option_head(p, head, sizeof head);
    fprintf(out, ".It ");
    man_text(out, head + strspn(head, " "));
    fprintf(out, "\n");
    man_text(out, p->doc);
    fprintf(out, "\n");
}

/* Options that every command takes are said once, above. */
static void man_command(int c, FILE *out)
{
    int n, shown = 0;
    const OptionInfo *p = options_table(&n);
    fprintf(out, ".Ss dpc %s %s\n", commands[c].name, commands[c].args);
    man_text(out, commands[c].doc);
    fprintf(out, ".\n");
    for (int i = 0; i < n; i++) {
        if (!(p[i].commands & (1u << c)) ||
            p[i].commands == ((1u << NCOMMAND) - 1))
            continue;
        if (!shown++)
            fprintf(out, ".Bl -tag -width Ds\n");
        man_option(&p[i], out);
    }
    if (shown)
        fprintf(out, ".El\n");
}

static void man(FILE *out)
{
    fprintf(out, ".Dd December 1, 2026\n.Dt DPC 1\n.Os\n.Sh NAME\n.Nm dpc\n"
            ".Nd ahead\\-of\\-time compiler for multi\\-GPU training\n"
            ".Sh SYNOPSIS\n.Nm\n.Ar command\n.Op Ar options\n.Ar file ...\n"
            ".Sh DESCRIPTION\nCompiles a model written in Lua into one binary "
            "that trains it on ranks of a cluster.\nEvery command takes\n"
            ".Fl v ,\n.Fl q\nand\n.Fl h .\n.Sh COMMANDS\n");
    for (int c = 0; c < NCOMMAND; c++)
        man_command(c, out);
    fprintf(out, ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n.It Ev DPC_HOME\n"
            "folder that holds models and passes\n.It Ev DPC_CACHE_DIR\n"
            "compiled kernels (default ~/.cache/dpc)\n.It Ev CC\nC compiler "
            "(default cc, with tcc and gold where they are)\n"
            ".El\n.Sh EXIT STATUS\n"
            "0 ok, 1 an input is wrong, 2 usage, 3 does not fit into memory, "
            "4 no feasible plan, 5 environment, 6 verification differs, "
            "7 numerics, 70 internal error, 124 out of time.\n");
}

int cmd_help(const Options *o)
{
    if (o->man)
        man(stdout);
    else if (!o->nfile)
        help_all(stdout);
    else {
        const char *have[NCOMMAND];
        for (int c = 0; c < NCOMMAND; c++) {
            have[c] = commands[c].name;
            if (strcmp(o->file[0], have[c]) == 0) {
                help_command((CommandId)c, stdout);
                return 0;
            }
        }
        usage("help: no command \"%s\"%s", o->file[0],
              near_hint(o->file[0], have, NCOMMAND));
    }
    return 0;
}

int cmd_version(const Options *o)
{
    (void)o;
    puts("dpc " DPC_VERSION);
    return 0;
}

/* ---- completion ---- */

static bool wants_text(const OptionInfo *p)
{
    return p->kind != OPT_FLAG && p->kind != OPT_MAYBE;
}

static bool takes(const OptionInfo *p, int c)
{
    return (p->commands & (1u << c)) && *p->name;
}

static void bash(const OptionInfo *p, int n)
{
    puts("_dpc() {\n    local cur=${COMP_WORDS[COMP_CWORD]} list=\n"
         "    if [ $COMP_CWORD -eq 1 ]; then");
    fputs("        list='", stdout);
    for (int c = 0; c < NCOMMAND; c++)
        printf("%s%s", c ? " " : "", commands[c].name);
    puts("'\n    else case ${COMP_WORDS[1]} in");
    for (int c = 0; c < NCOMMAND; c++) {
        printf("    %s) list='", commands[c].name);
        for (int i = 0; i < n; i++)
            if (takes(&p[i], c))
                printf("--%s ", p[i].name);
        puts("' ;;");
    }
    puts("    esac; fi\n"
         "    case $cur in\n    -*) ;;\n"
         "    *) [ $COMP_CWORD -gt 1 ] && {\n"
         "        COMPREPLY=($(compgen -f -- \"$cur\")); return; } ;;\n    esac\n"
         "    COMPREPLY=($(compgen -W \"$list\" -- \"$cur\"))\n}\n"
         "complete -o filenames -F _dpc dpc");
}

/* Quotes and brackets mean something to zsh's _arguments. */
static void zsh_text(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\'", stdout);
        else if (strchr("[]:", *s))
            putchar('\\');
        putchar(*s);
    }
}

static void zsh(const OptionInfo *p, int n)
{
    puts("#compdef dpc\nif (( CURRENT == 2 )); then\n    _values command \\");
    for (int c = 0; c < NCOMMAND; c++) {
        printf("        '%s[", commands[c].name);
        zsh_text(commands[c].doc);
        printf("]'%s\n", c + 1 < NCOMMAND ? " \\" : "");
    }
    puts("else\n    case $words[2] in");
    for (int c = 0; c < NCOMMAND; c++) {
        printf("    %s) _arguments", commands[c].name);
        for (int i = 0; i < n; i++) {
            if (!takes(&p[i], c))
                continue;
            printf(" \\\n        '--%s[", p[i].name);
            zsh_text(p[i].doc);
            printf("]%s%s%s'", wants_text(&p[i]) ? ":" : "",
                   wants_text(&p[i]) ? p[i].name : "",
                   wants_text(&p[i]) ? ":_files" : "");
        }
        puts(" \\\n        '*:file:_files' ;;");
    }
    puts("    esac\nfi");
}

static void fish_text(const char *s)
{
    for (; *s; s++)
        printf(*s == '\'' ? "\\%c" : "%c", *s);
}

static void fish(const OptionInfo *p, int n)
{
    for (int c = 0; c < NCOMMAND; c++) {
        printf("complete -c dpc -n __fish_use_subcommand -a %s -d '",
               commands[c].name);
        fish_text(commands[c].doc);
        puts("'");
    }
    for (int c = 0; c < NCOMMAND; c++)
        for (int i = 0; i < n; i++) {
            if (!takes(&p[i], c))
                continue;
            printf("complete -c dpc -n '__fish_seen_subcommand_from %s' -l %s "
                   "%s-d '", commands[c].name, p[i].name,
                   wants_text(&p[i]) ? "-r " : "");
            fish_text(p[i].doc);
            puts("'");
        }
}

int cmd_completion(const Options *o)
{
    int n;
    const OptionInfo *p = options_table(&n);
    const char *shell = o->file[0];
    if (strcmp(shell, "bash") == 0)
        bash(p, n);
    else if (strcmp(shell, "zsh") == 0)
        zsh(p, n);
    else if (strcmp(shell, "fish") == 0)
        fish(p, n);
    else
        usage("completion: \"%s\" is not one of bash|zsh|fish", shell);
    return 0;
}
