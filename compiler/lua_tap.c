/* lua_tap.c -- values that have names, as outs of the graph: --dump.
 *
 * A scope is a module of the original, and what it returns is what a forward
 * hook would see, so scopes need nothing more to be looked into; dpc.tap(name,
 * value) names what lies between.  A name that comes again gets "#2", "#3";
 * further values that a scope returns get "@1", "@2".  Inputs have their own
 * names.  What matches becomes an out "dump.NAME", in the order of the model's
 * text, and so survives every pass. */
#include "compiler/lua_front.h"
#include <fnmatch.h>

static const char out_prefix[] = "dump.";

/* A pattern that names a scope means what is in it, too. */
static bool matches(const char *pattern, size_t size, const char *name)
{
    char text[256];
    if (size >= sizeof text)
        return false;
    memcpy(text, pattern, size);
    text[size] = 0;
    if (fnmatch(text, name, 0) == 0)
        return true;
    return strncmp(name, text, size) == 0 && strchr(".#@", name[size]);
}

bool tap_wanted(const char *list, const char *name)
{
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (matches(p, strcspn(p, ","), name))
            return true;
    return false;
}

static void tap_add(Front *f, const char *name, Ref ref)
{
    int again = 1;
    for (uint32_t i = 0; i < f->ntap; i++)
        again += f->tap[i].base == name;
    GROW(f->a, f->tap, f->ntap, f->tapcap);
    f->tap[f->ntap++] = (Tap){
        again == 1 ? name : intern(f->a, fmt(f->a, "%s#%d", name, again)),
        name, ref };
}

void taps_begin(Front *f)
{
    f->ntap = 0;
}

void tap_results(lua_State *L, int first)
{
    Front *f = front_of(L);
    if (!f->dump || !f->g || !*f->scope)
        return;
    const char *name = intern(f->a, f->scope);
    for (int i = first, n = 0; i <= lua_gettop(L); i++)
        if (value_is(L, i)) {
            tap_add(f, n ? intern(f->a, fmt(f->a, "%s@%d", name, n)) : name,
                    value_check(L, i, "scope"));
            n++;
        }
}

int tap_named(lua_State *L)
{
    Front *f = front_of(L);
    const char *name = name_check(L, 1, "tap");
    Ref r = value_check(L, 2, "tap");
    if (f->dump && f->g)
        tap_add(f, *f->scope ? intern(f->a, fmt(f->a, "%s.%s", f->scope, name))
                             : name, r);
    lua_settop(L, 2);
    return 1;
}

void taps_append(lua_State *L)
{
    Front *f = front_of(L);
    if (!f->dump)
        return;
    for (Ref r = 0; r < f->g->n; r++)
        if (f->g->node[r].op == OP_input && tap_wanted(f->dump, f->g->node[r].name))
            graph_out(f->g, fmt(f->a, "%s%s", out_prefix,
                                f->g->node[r].name), r), f->ndumped++;
    for (uint32_t i = 0; i < f->ntap; i++) {
        const Tap *t = &f->tap[i];
        if (tap_wanted(f->dump, t->name))
            graph_out(f->g, fmt(f->a, "%s%s", out_prefix, t->name), t->ref),
                f->ndumped++;
        GROW(f->a, f->seen, f->nseen, f->seencap);
        f->seen[f->nseen++] = t->name;
    }
}

void taps_check(lua_State *L, const char *loc)
{
    Front *f = front_of(L);
    if (!f->dump || f->ndumped)
        return;
    const char *near = near_name(f->dump, f->seen, (int)f->nseen);
    if (near)
        fail_at(L, loc, "--dump: nothing is called \"%s\"; did you mean "
                "\"%s\"?", f->dump, near);
    fail_at(L, loc, "--dump: nothing is called \"%s\"; there are %u names: "
            "\"%s\", ...; '*' means all", f->dump, f->nseen,
            f->nseen ? f->seen[0] : "");
}
