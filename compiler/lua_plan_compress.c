/* lua_plan_compress.c -- the word `compress` of a plan: "bf16" or "int8" for
 * sums of gradients over all axes of ranks, or a table by axis. */
#include "compiler/lua_plan.h"

static const char *const ways[] = { "none", "bf16", "int8" };
static const DType ways_as[] = { F32, BF16, U8 };

static DType way_read(lua_State *L, const Planning *p, const char *axis)
{
    const char *what = fmt(front_of(L)->a, "compress%s%s", *axis ? " of " : "",
                           axis);
    return ways_as[word_pick(L, p, what, ways, COUNT(ways))];
}

/* { dp = "int8" }, at the top of the stack. */
static void axes_read(lua_State *L, Planning *p)
{
    const Mesh *m = &p->plan->mesh;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        const char *axis = lua_type(L, -2) == LUA_TSTRING
            ? lua_tostring(L, -2) : "?";
        int i = mesh_find(m, axis);
        if (i < 0 || m->axis[i].kind != SPACE)
            plan_fail(L, p, "compress: the mesh has no axis of ranks "
                    "\"%s\"", axis);
        p->plan->compress[i] = way_read(L, p, axis);
    }
}

static bool compresses(const Plan *p)
{
    for (int i = 0; i < p->mesh.naxis; i++)
        if (p->compress[i] != F32)
            return true;
    return false;
}

const char *compress_wrong(const Plan *p)
{
    if (compresses(p) && p->reduce == REDUCE_EACH)
        return "compress: what is left behind is kept once a step, and "
               "reduce = \"each\" sums in each turn; take \"late\"";
    if (compresses(p) && p->exact)
        return "compress: rounded sums are not the same on any number of "
               "ranks, as exact = true asks; take one of them";
    return NULL;
}

void compress_read(lua_State *L, Planning *p, int i)
{
    Plan *plan = p->plan;
    int t = lua_getfield(L, i, "compress");
    if (t == LUA_TTABLE)
        axes_read(L, p);
    else if (t != LUA_TNIL) {
        DType as = way_read(L, p, "");
        for (int k = 0; k < plan->mesh.naxis; k++)
            if (plan->mesh.axis[k].kind == SPACE)
                plan->compress[k] = as;
    }
    lua_pop(L, 1);
    const char *wrong = compress_wrong(plan);
    if (wrong)
        plan_fail(L, p, "%s", wrong);
}

void compress_thin(Plan *plan, const int *to)
{
    for (int i = 0; i < plan->mesh.naxis; i++)
        if (to[i] < i) {
            plan->compress[to[i]] = plan->compress[i];
            plan->compress[i] = F32;
        }
}

void compress_print(const Plan *p, FILE *out)
{
    const char *between = "";
    if (!compresses(p))
        return;
    fputs("    compress = {", out);
    for (int i = 0; i < p->mesh.naxis; i++)
        for (int k = 1; k < COUNT(ways); k++)
            if (p->compress[i] == ways_as[k]) {
                fprintf(out, "%s[\"%s\"] = \"%s\"", between,
                        p->mesh.axis[i].name, ways[k]);
                between = ", ";
            }
    fputs("},\n", out);
}
