/* near.c -- what a name that is not there may have meant.
 *
 * By edits as Damerau and Levenshtein count them; two rows of the table are
 * looked back to, and no more of it is filled than may matter. */
#include "runtime/source.h"

#include <string.h>

static int less(int a, int b)
{
    return a < b ? a : b;
}

int dpc_edits(const char *a, const char *b, int most)
{
    enum { N = 128 };
    int na = (int)strlen(a), nb = (int)strlen(b), rows[3][N + 1];
    int *two = rows[0], *one = rows[1], *row = rows[2], before = 0;
    if (na > N || nb > N || na - nb > most || nb - na > most)
        return most + 1;
    for (int j = 0; j <= nb; j++)
        one[j] = j;
    for (int i = 1; i <= na; i++) {
        int least = row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = less(less(one[j], row[j - 1]) + 1,
                          one[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = less(row[j], two[j - 2] + 1);
            least = less(least, row[j]);
        }
        if (least > most && before > most)
            return most + 1;
        int *free_row = two;
        two = one, one = row, row = free_row, before = least;
    }
    return one[nb];
}

DpcNamed dpc_whole_named(const DpcWhole *w)
{
    return (DpcNamed){ w->name, w->ndim, w->dim };
}

static bool alike(DpcNamed a, DpcNamed b)
{
    return a.ndim == b.ndim &&
           !memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim);
}

int dpc_names_near(DpcNamed of, uint32_t n, DpcNameAt at, const void *arg,
                   const char *near[DPC_NEAR])
{
    int off[DPC_NEAR], k = 0, size = (int)strlen(of.name);
    for (uint32_t i = 0; i < n; i++) {
        DpcNamed b = at(arg, i);
        int both = b.name ? (int)strlen(b.name) : 0, place;
        both = both > size ? both : size;
        int other = b.name && alike(of, b) ? 0 : both / 3;
        int most = 2 * both / 3 - other;
        if (k == DPC_NEAR && off[k - 1] - 1 - other < most)
            most = off[k - 1] - 1 - other;
        int d = b.name && most >= 0 ? dpc_edits(of.name, b.name, most)
                                    : most + 1;
        if (d > most)
            continue;
        k += k < DPC_NEAR;
        for (place = k - 1; place > 0 && off[place - 1] > d + other; place--)
            off[place] = off[place - 1], near[place] = near[place - 1];
        off[place] = d + other, near[place] = b.name;
    }
    return k;
}
