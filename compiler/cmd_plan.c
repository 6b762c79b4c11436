/* cmd_plan.c -- dpc plan: a plan for a model, printed with its price. */
#include "compiler/page.h"
#include <errno.h>

static void page_draw(const Options *o, const Model *m, const Plan *plan,
                      const Priced *tried, uint32_t n)
{
    Job j = job_open(o, plan);
    Page page = { .o = o, .plan = plan, .job = &j, .tried = tried,
                  .ntried = n, .a = o->arena };
    Graph **done = run_roles(plan_entry(m->entry, m->nentry), &j, &page.n);
    page.role = roles_timed(done, page.n, &j);
    page_write(&page);
}

static const Plan *plan_chosen(const Options *o, const Model *m)
{
    uint32_t n = 1;
    Priced one, *p = &one;
    plan_flags_check(o, m->entry, m->nentry);
    if (o->partitioner && strcmp(o->partitioner, "auto") == 0) {
        p = plans_auto(o, m->entry, m->nentry, &n);
    } else {
        one = (Priced){ .name = o->plan ? o->plan : o->partitioner
                        ? o->partitioner : o->exact ? "exact" : "ddp",
                        .of = { .partitioner = o->plan || o->exact ? NULL
                                : o->partitioner ? o->partitioner : "ddp",
                                .set = o->set,
                                .micro = o->micro ? (int)o->micro : 1 },
                        .plan = plan_open(o, m->entry, m->nentry) };
        one.micro = plan_turns(one.plan);
        plan_price(o, plan_entry(m->entry, m->nentry), NULL, p);
    }
    if (!o->quiet)
        plans_print(p, n, stderr);
    const Plan *best = plans_best(o, p, n, m->entry, m->nentry)->plan;
    if (o->html)
        page_draw(o, m, best, p, n);
    return best;
}

int cmd_plan(const Options *o)
{
    outputs_check(o);
    Model *m = model_open(o);
    const Plan *p = plan_chosen(o, m);
    FILE *out = o->output ? fopen(o->output, "w") : stdout;
    if (!out)
        err_code(5, o->output, "cannot be written: %s", strerror(errno));
    plan_print(p, out);
    if (o->output && (ferror(out) | fclose(out)))
        err_code(5, o->output, "cannot be written: %s", strerror(errno));
    return 0;
}
