/* cmd_list.c -- dpc ops and dpc passes: the tables, shown. */
#include "compiler/options.h"

static void op_json(const OpInfo *p, bool first)
{
    printf("%s{\"name\": \"%s\", \"sig\": ", first ? "" : ",\n ", p->name);
    json_quote(stdout, p->sig);
    printf(", \"lin\": \"%s\", \"keys\": ", p->lin ? p->lin : "");
    json_quote(stdout, p->keys ? p->keys : "");
    printf(", \"expr\": ");
    json_quote(stdout, p->expr ? p->expr : "");
    printf(", \"doc\": ");
    json_quote(stdout, p->doc ? p->doc : "");
    printf("}");
}

static void op_long(const OpInfo *p)
{
    const struct { const char *head, *text; } line[] = {
        { "", p->doc }, { "signature", p->sig }, { "linear in", p->lin },
        { "formula", p->expr }, { "keys", p->keys }, { "gradient", p->vjp },
    };
    printf("%s\n", p->name);
    for (int i = 0; i < COUNT(line); i++)
        if (line[i].text && *line[i].text)
            printf("  %-10s %s\n", line[i].head, line[i].text);
}

int cmd_ops(const Options *o)
{
    const char *have[OP_COUNT];
    int shown = 0;
    for (Op op = 0; op < OP_COUNT; op++) {
        have[op] = ops[op].name;
        if (o->nfile && strcmp(o->file[0], ops[op].name) != 0)
            continue;
        if (o->json) {
            fputs(shown ? "" : "[", stdout);
            op_json(&ops[op], !shown);
        } else if (o->nfile)
            op_long(&ops[op]);
        else
            printf("%-14s %-38s %s\n", ops[op].name, ops[op].sig,
                   ops[op].doc ? ops[op].doc : "");
        shown++;
    }
    if (!shown) {
        usage("ops: no op \"%s\"%s", o->file[0],
              near_hint(o->file[0], have, OP_COUNT));
    }
    fputs(o->json ? "]\n" : "", stdout);
    return 0;
}

int cmd_passes(const Options *o)
{
    static const char *const phase[] = { "tensor", "local", "sched", "any" };
    for (int i = 0; i < npass; i++) {
        if (o->json) {
            printf("%s{\"name\": \"%s\", \"from\": \"%s\", \"to\": \"%s\", "
                   "\"what\": ", i ? ",\n " : "[", passes[i].name,
                   phase[passes[i].from], phase[passes[i].to]);
            json_quote(stdout, passes[i].what);
            printf("}%s", i + 1 < npass ? "" : "]\n");
        } else
            printf("%-10s %-6s -> %-6s  %s\n", passes[i].name,
                   phase[passes[i].from], phase[passes[i].to], passes[i].what);
    }
    return 0;
}
