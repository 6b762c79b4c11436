/* page.h -- a plan, drawn on one page of HTML. */
#ifndef DPC_PAGE_H
#define DPC_PAGE_H

#include "compiler/planning.h"

typedef struct Page {
    const Options *o;
    const Plan *plan;
    const Timeline *role;
    int n;                                /* roles */
    const Job *job;
    const Priced *tried;                  /* of auto, best first; NULL */
    uint32_t ntried;
    Arena *a;
    FILE *out;
} Page;

/* Into --html; err_code 5 where it cannot be written. */
void page_write(Page *);

/* What the parts share: text with what HTML means escaped, and the same with
 * axes, "/dp" and "+dp", marked. */
void html_text(FILE *, const char *);
void html_type(FILE *, const char *);

/* "3.41 MiB", "793 B". */
const char *bytes_text(Arena *, double bytes);

extern const char page_head[], page_tail[];   /* page_style.c */
void page_time(const Page *);             /* page_time.c: lanes, memory; */
void page_peak(const Page *);             /* who makes it */
void page_layers(const Page *);           /* page_layer.c: who holds what */

#endif
