/* near.c -- what a misspelt name may have meant: one is near when at most a
 * third of its letters differ. */
#include "compiler/lua.h"

#include "runtime/source.h"

const char *near_name(const char *word, const char *const *name, int n)
{
    const char *best = NULL;
    int size = (int)strlen(word), far = (size + 2) / 3 + 1;
    for (int i = 0; i < n; i++) {
        int d = dpc_edits(word, name[i], far - 1);
        if (d < far)
            best = name[i], far = d;
    }
    return best;
}

const char *near_hint(const char *word, const char *const *name, int n)
{
    static char text[152];
    const char *near = near_name(word, name, n);
    snprintf(text, sizeof text, "; did you mean \"%s\"?", near ? near : "");
    return near ? text : "";
}
