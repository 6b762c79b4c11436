/* near.c -- what a misspelt name may have meant.
 *
 * The edit distance of Damerau and Levenshtein (neighbours swapped count
 * one); a name is near when at most a third of its letters differ. */
#include "compiler/lua.h"

enum { LONG = 48 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b), d[LONG + 1][LONG + 1];
    if (na > LONG || nb > LONG)
        return LONG;
    for (int i = 0; i <= na; i++)
        for (int k = 0; k <= nb; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = least(least(d[i - 1][k], d[i][k - 1]) + 1,
                            d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[na][nb];
}

const char *near_name(const char *word, const char *const *name, int n)
{
    const char *best = NULL;
    int size = (int)strlen(word), far = (size + 2) / 3 + 1;
    for (int i = 0; i < n; i++) {
        int d = distance(word, name[i]);
        if (d < far)
            best = name[i], far = d;
    }
    return best;
}

const char *near_hint(const char *word, const char *const *name, int n)
{
    static char text[LONG + 24];
    const char *near = near_name(word, name, n);
    snprintf(text, sizeof text, "; did you mean \"%s\"?", near ? near : "");
    return near ? text : "";
}
